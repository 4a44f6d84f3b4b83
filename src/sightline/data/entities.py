"""Flickr30k Entities: which words of a caption are a phrase, which phrases mean the same thing, and where it is.

`Sentences/<id>.txt` marks phrases, `[/EN#<chain>/<type> a brown dog]`; `Annotations/<id>.xml` gives each chain its
boxes. Both come as a folder, or as a tar or zip archive of it, which is read without unpacking.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from sightline.data.caption_format import collect
from sightline.data.entities_annotation import Annotation, PixelBox, parse_annotation
from sightline.data.entities_sentence import NOT_VISUAL, EntitiesSentence, parse_sentence
from sightline.data.format import Format, Probe, Report
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence
from sightline.errors import DataError, MissingRecordError, TruncatedError
from sightline.files import existing, refuse_special

_CAPTIONS = 5  # of every photo
_LARGEST = 4 << 20  # bytes of one file; real ones have a few thousand


@dataclass(frozen=True)
class EntitiesPhoto:
    """One photo with its phrases and boxes.

    Attributes:
        id: the number that is the photo's file name.
        size: (width, height) of the ORIGINAL photo, which the boxes refer to.
        sentences: tokens and phrases of each caption.
        boxes: chain to its boxes, x1 y1 x2 y2 in pixels counted from 0.
        no_box: chains that people could not put a box around.
        scene: chains that are the whole scene.
    """

    id: str
    size: tuple[int, int]
    sentences: tuple[EntitiesSentence, ...]
    boxes: dict[str, tuple[PixelBox, ...]]
    no_box: frozenset[str] = frozenset()
    scene: frozenset[str] = frozenset()

    @property
    def box_count(self) -> int:
        """How many boxes people drew; one that belongs to two chains counts once."""
        return len({box for boxes in self.boxes.values() for box in boxes})


def matches(probe: Probe) -> bool:
    """A folder of both folders, or an archive that opens with one of them."""
    if probe.is_folder:
        return {"Annotations", "Sentences"} <= set(probe.entries)
    if not probe.name.endswith((".tar", ".tgz", ".zip")):
        return False
    return b"Sentences/" in probe.head or b"Annotations/" in probe.head


def read_photos(path: Path, problems: Problems | None = None) -> dict[str, EntitiesPhoto]:
    """Photos by id, in the order of their sentence files."""
    met = Problems() if problems is None else problems
    sentences: dict[str, tuple[EntitiesSentence, ...]] = {}
    annotations: dict[str, Annotation] = {}
    damaged: set[str] = set()
    for name, raw in _files(existing(path)):
        where = f"{path}: {name.parent.name}/{name.name}"
        try:
            text = raw.decode("utf-8")
            if name.suffix == ".txt":
                sentences[name.stem] = _sentences(text, where)
            else:
                annotations[name.stem] = parse_annotation(text, where)
        except (DataError, UnicodeDecodeError) as error:
            met.report(error if isinstance(error, DataError) else DataError(f"not UTF-8 text: {error}", where=where))
            damaged.add(name.stem)
    if not sentences and not annotations and not damaged:
        met.report(TruncatedError("it holds no Sentences/<id>.txt", where=path, fix="copy or download it again"))
    for id in damaged:  # told already; its other half is not missing
        sentences.pop(id, None)
        annotations.pop(id, None)
    return _paired(path, sentences, annotations, met)


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """The captions as plain tokens, without their marks. `file` is `<id>.jpg`."""
    photos = read_photos(path, problems).values()
    captions = ((photo, tuple(Sentence(" ".join(s.tokens), s.tokens) for s in photo.sentences)) for photo in photos)
    return CaptionSet(
        tuple(CaptionedPhoto(p.id, sentences, f"{p.id}.jpg", None, p.size) for p, sentences in captions), str(path)
    )


def inspect(path: Path) -> Report:
    """Counts of photos, captions, phrases, chains and boxes."""
    found, problems = collect(path, read_photos)
    photos = list((found or {}).values())
    counts: dict[str, int | str] = {
        "photos": len(photos),
        "captions": sum(len(photo.sentences) for photo in photos),
        "phrases": sum(len(sentence.phrases) for photo in photos for sentence in photo.sentences),
        "chains with boxes": sum(len(photo.boxes) for photo in photos),
        "boxes": sum(photo.box_count for photo in photos),
    }
    odd = sum(len(photo.sentences) != _CAPTIONS for photo in photos)
    notes = [f"{odd} photos do not have {_CAPTIONS} captions"] if odd else []
    return Report.of(path, FORMAT, counts, problems, notes)


def _files(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Every sentence and annotation file with its bytes."""
    if path.is_dir():
        for file in (*sorted((path / "Annotations").iterdir()), *sorted((path / "Sentences").iterdir())):
            if _is_wanted(PurePosixPath(file.parent.name, file.name)):
                refuse_special(file)
                with file.open("rb") as content:
                    yield PurePosixPath(file.parent.name, file.name), _limited(content, path, file.name)
        return
    try:
        yield from _zipped(path) if path.suffix == ".zip" else _tarred(path)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise TruncatedError(
            f"the archive cannot be read to its end ({error})", where=path, fix="copy or download it again"
        ) from error


def _tarred(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            content = archive.extractfile(member) if _is_wanted(PurePosixPath(member.name)) else None
            if content is not None:
                yield PurePosixPath(member.name), _limited(content, path, member.name)


def _zipped(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename)
            if not _is_wanted(name):
                continue
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError(f"{name} is not packed with deflate", where=path, fix="pack it again as a plain zip")
            with archive.open(member) as content:
                yield name, _limited(content, path, member.filename)


def _limited(file: IO[bytes], path: Path, name: str) -> bytes:
    """The content, refused beyond a size no real file has: an archive of a few bytes can unpack to anything."""
    content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise DataError(
            f"{name} is larger than {_LARGEST >> 20} MiB", where=path, fix="remove it, or download it again"
        )
    return content


def _is_wanted(name: PurePosixPath) -> bool:
    """Hidden files (macOS puts `._` ones into archives) are not."""
    kind = (name.parent.name, name.suffix)
    return kind in (("Annotations", ".xml"), ("Sentences", ".txt")) and not name.name.startswith(".")


def _sentences(text: str, where: str) -> tuple[EntitiesSentence, ...]:
    if not text.strip():
        raise TruncatedError("the file is empty", where=where, fix="copy or download it again")
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise DataError("the line is empty", where=f"{where}, line {number}", fix="remove it")
    return tuple(parse_sentence(line, f"{where}, line {number}") for number, line in enumerate(lines, 1))


def _paired(
    path: Path,
    sentences: dict[str, tuple[EntitiesSentence, ...]],
    annotations: dict[str, Annotation],
    problems: Problems,
) -> dict[str, EntitiesPhoto]:
    for id in annotations.keys() - sentences.keys():
        problems.report(
            MissingRecordError(f"photo {id} has Annotations/{id}.xml but no Sentences/{id}.txt", where=path)
        )
    photos = {}
    for id, lines in sentences.items():
        if id not in annotations:
            problems.report(
                MissingRecordError(f"photo {id} has Sentences/{id}.txt but no Annotations/{id}.xml", where=path)
            )
            continue
        size, boxes, no_box, scene = annotations[id]
        known = {NOT_VISUAL, *boxes, *no_box, *scene}
        for chain in sorted({phrase.chain for line in lines for phrase in line.phrases} - known):
            problems.report(
                MissingRecordError(
                    f"photo {id} has phrases of chain {chain}, and Annotations/{id}.xml does not name it",
                    where=path,
                    fix="sentences and annotations must be of the same release",
                )
            )
        photos[id] = EntitiesPhoto(id, size, lines, boxes, no_box, scene)
    return photos


FORMAT = Format(
    "flickr30k-entities",
    "Flickr30k Entities: captions with phrases and their boxes (a folder, tar or zip of Annotations and Sentences)",
    matches,
    inspect,
    captions=read,
)
