"""Lists of photos, a file name or an id per line: Flickr8k's `Flickr_8k.trainImages.txt`, Entities' `train.txt`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from posixpath import basename, normpath, splitext

from sightline.data.caption_format import mostly, parse_unique_lines, record_format
from sightline.data.format import Probe
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError, plural
from sightline.files import open_text
from sightline.vision.find_photos import SUFFIXES

_COCO_NAME = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)$")
_FLICKR_NAME = re.compile(r"(\d+)_[0-9a-f]{10}$")
_MOST = 6  # photos of one name that are told


def read_names(path: Path, problems: Problems = STRICT) -> list[str]:
    """The names or ids, in file order; one that is not like the others, or that appears twice, is an error."""
    with open_text(path) as file:
        lines = list(file)
    ids = sum(map(_is_id, lines)) > sum(map(_is_name, lines))
    fits, kind = (_is_id, "an id of digits") if ids else (_is_name, "the name of a picture")

    def name(line: str, where: str) -> tuple[str, None]:
        if not fits(line):
            raise DataError(f"{line.strip()[:60]!r} is not {kind}", where=where)
        return line.strip(), None

    return list(parse_unique_lines(path, problems, name))


def photo_number(name: str) -> str:
    """The id that other files of the same set use for a photo of this name.

    >>> [photo_number(name) for name in ("COCO_val2014_000000391895.jpg", "1000268201_693b08cb0e.jpg", "a/b.png")]
    ['391895', '1000268201', 'b']
    """
    stem = splitext(basename(name))[0]
    match = _COCO_NAME.match(stem) or _FLICKR_NAME.match(stem)
    return match[1] if match else stem


def match_photos(photos: Iterable[CaptionedPhoto], others: Iterable[CaptionedPhoto]) -> dict[str, str]:
    """Photo id to the id of the same photo among `others`, where there is one and no more.

    The same photo has the same id, or the same file: with its folders, with as many of the last ones as both name,
    without them, without its suffix, or by the number that COCO or Flickr gave it. The first of these that says
    something decides.

    >>> match_photos([CaptionedPhoto("val/000000030034.jpg"), CaptionedPhoto("cat.jpg"), CaptionedPhoto("x/sub/1.jpg")],
    ...              [CaptionedPhoto(id) for id in ("30034", "examples/cat.jpg", "sub/1.jpg", "1.jpg")])
    {'val/000000030034.jpg': '30034', 'cat.jpg': 'examples/cat.jpg', 'x/sub/1.jpg': 'sub/1.jpg'}
    """
    index = PhotoIndex(others)
    candidates = ((photo.id, index.candidates(photo)) for photo in photos)
    return {id: found[0] for id, found in candidates if len(found) == 1}


class PhotoIndex:
    """Photos by all that they may be called."""

    def __init__(self, photos: Iterable[CaptionedPhoto]) -> None:
        self._ids: dict[tuple[str, str], list[str]] = {}
        for photo in photos:
            for name in _names(photo):
                ids = self._ids.setdefault(name, [])
                if len(ids) < _MOST and photo.id not in ids:
                    ids.append(photo.id)

    def candidates(self, photo: CaptionedPhoto) -> list[str]:
        """The ids of the photos that this may be: one, where a name of it is that of one alone; else the first few."""
        found = [ids for name in _names(photo) if (ids := self._ids.get(name))]
        return next((ids for ids in found if len(ids) == 1), found[0] if found else [])


def _names(photo: CaptionedPhoto) -> Iterator[tuple[str, str]]:
    """What a photo may be called, and what kind of name that is; those that say more come first."""
    file = normpath(photo.file or photo.id)
    name = basename(file)
    yield "id", photo.id
    yield "path", file
    folders = [folder for folder in file.split("/")[:-1] if folder not in ("", "..")]
    for start in range(len(folders)):
        yield "end", "/".join([*folders[start:], name])
    yield "name", name
    yield "stem", splitext(name)[0]
    yield "number", photo_number(name)


def with_splits(captions: CaptionSet, lists: Mapping[str, Path]) -> CaptionSet:
    """`captions` with each photo's split taken from lists of file names or ids; photos in no list have none.

    A name is looked for among the photos' files, an id among the files without their suffix and the photos' ids. One
    in two lists, or of no photo here, is an error.
    """
    split_of: dict[str, str] = {}
    for split, path in lists.items():
        for name in read_names(path):
            base = basename(name)
            if base in split_of:
                what = f"{name} is in {split_of[base]} and in {split}"
                raise DuplicateRecordError(what, where=path, fix="a photo has one split")
            split_of[base] = split
    photos = []
    for photo in captions:
        file = PurePosixPath(photo.file or photo.id)
        listed = next((name for name in (file.name, file.stem, photo.id) if name in split_of), None)
        photos.append(replace(photo, split=None if listed is None else split_of.pop(listed)))
    if split_of:
        name, split = next(iter(split_of.items()))
        are = "is" if len(split_of) == 1 else "are"
        what = f"{plural(len(split_of), 'photo')} of the lists {are} not here, such as {name} of {split}"
        fix = "read the captions that the lists were made for"
        raise MissingRecordError(what, where=captions.source or None, fix=fix)
    return CaptionSet(tuple(photos), captions.source)


def _is_id(line: str) -> bool:
    return line.strip().isascii() and line.strip().isdigit()


def _is_name(line: str) -> bool:
    return line.strip().lower().endswith(SUFFIXES) and "\t" not in line


def _matches(probe: Probe) -> bool:
    """Lines that are the name of a picture, or a number, and nothing else; precomp's `_ids.txt` are not split lists."""
    ids = probe.name.endswith(".txt") and not probe.name.endswith("_ids.txt") and mostly(probe.lines, _is_id)
    return not probe.json_start and (ids or mostly(probe.lines, _is_name))


FORMAT = record_format(
    "image-list",
    "A list of photos, a file name or an id per line (a split of Flickr8k, COCO or Flickr30k Entities)",
    _matches,
    read_names,
    lambda names: ({"photos": len(names)}, ()),
)
