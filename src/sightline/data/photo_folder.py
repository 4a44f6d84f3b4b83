"""A plain folder of photos, with or without a table of captions in it."""

from collections import Counter
from pathlib import Path, PurePosixPath

from sightline.data import caption_table
from sightline.data.caption_format import caption_format, count_captions
from sightline.data.format import Probe, Summary
from sightline.data.photo_finder import PhotoFinder
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems
from sightline.errors import DataError, TruncatedError
from sightline.vision.find_photos import OUTPUT, is_picture
from sightline.vision.picture_formats import kind_of

TABLES = ("captions.csv", "captions.tsv", "captions.jsonl", "captions.json", *caption_table.IMAGE_FOLDER)


def photo_files(folder: Path) -> list[str]:
    """Every picture below `folder`, relative to it and sorted; hidden files and folders are left out."""
    return PhotoFinder(folder).files


def table_of(folder: Path) -> Path | None:
    return next((folder / name for name in TABLES if (folder / name).is_file() and _is_table(folder / name)), None)


def read(path: Path, problems: Problems = STRICT) -> CaptionSet:
    """Every photo of the folder, with its captions where the table has some. The file is the path inside the folder.

    The id is what the table says, or the file. A file that is called a picture and begins like none is an error, and so
    is a photo of the table that is not there, unless `sightline caption` wrote the table here about photos elsewhere.
    """
    table, finder, output = table_of(path), PhotoFinder(path), (path / OUTPUT).is_dir()
    captions = CaptionSet(()) if table is None else caption_table.read(table, problems, finder, away=output)
    with_captions = {PurePosixPath(photo.file or photo.id).as_posix() for photo in captions}  # `./a.jpg` is `a.jpg`
    for error in finder.paths.problems if problems is not STRICT else ():  # which stop no other photo
        problems.report(DataError(error.what, where=error.where, fix=error.fix))
    for file in finder.files:
        with problems:
            _check_picture(path / file)
    bare = [file for file in finder.files if file not in with_captions]
    return CaptionSet((*captions.photos, *(CaptionedPhoto(file, (), file) for file in bare)), str(path))


def _count(captions: CaptionSet) -> Summary:
    folder = Path(captions.source)
    counts, notes = count_captions(captions)
    kinds = Counter(Path(file).suffix.lower().removeprefix(".") for file in photo_files(folder))
    bare = () if table_of(folder) else ("no table of captions is in it",)
    return counts | dict(sorted(kinds.items())), (*notes, *bare)


def _check_picture(path: Path) -> None:
    """Refuse a file whose first bytes are those of no kind of picture; the rest is not decoded."""
    fix = "copy it again, or remove it"
    if path.exists() and not path.is_file():  # a pipe, which would be waited for
        raise DataError("this is called a picture and is no ordinary file", where=path, fix="remove it")
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(16)
    except OSError as error:
        raise DataError(f"the picture cannot be read ({error.strerror})", where=path, fix=fix) from error
    if not head:
        raise TruncatedError("the picture is empty", where=path, fix=fix)
    if kind_of(head) is None:
        raise DataError("not a picture", where=path, fix=fix)


def _is_table(path: Path) -> bool:
    probe = Probe(path)
    return any(format.matches(probe) for format in caption_table.FORMATS)


def _matches(probe: Probe) -> bool:
    """A folder with a table of captions, or one of whose files at least half are pictures."""
    if any(_is_table(probe.path / name) for name in probe.entries if name in TABLES):
        return True
    pictures = sum(map(is_picture, probe.entries))
    others = sum(Path(name).suffix != "" and not name.startswith(".") for name in probe.entries) - pictures
    return pictures > 0 and pictures >= others


FORMAT = caption_format(
    "photo-folder",
    "A folder of photos, with captions where it holds captions.csv, .tsv or .jsonl",
    _matches,
    read,
    count=_count,
)
