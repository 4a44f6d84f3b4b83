"""Flickr30k Entities: which words of a caption are a phrase, which phrases mean the same thing, and where it is.

`Sentences/<id>.txt` marks phrases, `[/EN#18/people A child] in [/EN#19/clothing a pink dress] .`, by chain and type;
`Annotations/<id>.xml` gives each chain its boxes. Both come as a folder, or as a tar or zip archive of it, which is
read without unpacking.

Grounded words are made of phrases by a rule. The head of a phrase is its last word, lower-cased and reduced to its noun
lemma; it is a class if at least 20 phrases of the TRAINING photos have it as head. The list is built once from training
photos alone and kept in `entities_classes.tsv` (class, tab, phrases), so that no evaluation depends on the photos it
evaluates. A grounded word is the head of a phrase whose chain has boxes and whose class is in the list.
"""

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple
from xml.etree import ElementTree

from sightline.data.caption_format import plain_captions, record_format
from sightline.data.format import Probe, Summary
from sightline.data.records import STRICT, CaptionSet, GroundedPhoto, GroundedSentence, GroundedWord, Problems
from sightline.errors import BoxError, DataError, MissingRecordError, TruncatedError, plural
from sightline.files import COPY_AGAIN, existing_path, refuse_special
from sightline.text.lemmas import lemma

PixelBox = tuple[int, int, int, int]
CLASSES = Path(__file__).parent / "entities_classes.tsv"
NOT_VISUAL = "0"  # the chain of phrases that name nothing one could point at

_OPENING = re.compile(r"\[/EN#(\d+)(?:/[^/\s\]]+)+$")
_CAPTIONS = 5  # of every photo
_LARGEST = 4 << 20  # bytes of one file; real ones have a few thousand


@dataclass(frozen=True)
class Phrase:
    """A marked phrase. Phrases of one chain mean the same thing."""

    chain: str
    words: tuple[str, ...]
    first: int  # the index of its first word in the sentence


@dataclass(frozen=True)
class EntitiesSentence:
    """The plain tokens of a caption, and its phrases."""

    tokens: tuple[str, ...]
    phrases: tuple[Phrase, ...]


def parse_sentence(line: str, where: str) -> EntitiesSentence:
    """Split a marked caption; brackets that do not pair are a DataError."""
    tokens: list[str] = []
    phrases: list[Phrase] = []
    malformed = partial(DataError, where=where, fix="a phrase is `[/EN#<chain>/<type> words]`")
    opened: re.Match[str] | None = None
    first = 0
    for part in line.split():
        if part.startswith("["):
            opening = _OPENING.match(part)
            if opening is None or opened is not None:
                problem = "opens before the phrase before it closes" if opening else "is not `[/EN#<chain>/<type>`"
                raise malformed(f"{part!r} {problem}")
            opened, first = opening, len(tokens)
            continue
        closes = part.endswith("]")
        word = part[:-1] if closes else part
        if (closes and opened is None) or (not word and len(tokens) == first) or "[" in word:
            raise malformed(f"{part!r} does not fit into a phrase")
        tokens += [word] if word else []
        if closes and opened is not None:
            phrases.append(Phrase(opened[1], tuple(tokens[first:]), first))
            opened = None
    if opened is not None:
        raise malformed(f"the phrase {opened[0]!r} is not closed")
    return EntitiesSentence(tuple(tokens), tuple(phrases))


class Annotation(NamedTuple):
    """The photo's size in pixels, the boxes of each chain (counted from 0), and all chains, with or without a box."""

    size: tuple[int, int]
    boxes: dict[str, tuple[PixelBox, ...]]
    chains: frozenset[str]


def parse_annotation(text: str, where: str) -> Annotation:
    """Read the VOC-like xml. Its boxes count pixels from 1; ours from 0."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        kind = DataError if text.rstrip().endswith("</annotation>") else TruncatedError
        raise kind(f"not valid XML: {error}", where=where, fix=COPY_AGAIN) from error
    size = root.find("size")
    if size is None:
        raise DataError("`size` is missing", where=where)
    width, height = _number(size, "width", where), _number(size, "height", where)
    boxes: dict[str, tuple[PixelBox, ...]] = {}
    every_chain: set[str] = set()
    for position, thing in enumerate(root.findall("object")):
        place = f"{where}, object {position}"
        chains = [(name.text or "").strip() for name in thing.findall("name")]
        if not all(chains) or not chains:
            raise DataError("an object has no chain in `name`", where=place)
        every_chain.update(chains)
        drawn = thing.find("bndbox")
        if drawn is not None:
            box = _box(drawn, (width, height), place)
            for chain in chains:
                boxes[chain] = (*boxes.get(chain, ()), box)
        elif not any((thing.findtext(flag) or "").strip() == "1" for flag in ("nobndbox", "scene")):
            raise DataError("an object has neither `bndbox` nor `nobndbox` nor `scene`", where=place)
    return Annotation((width, height), boxes, frozenset(every_chain))


def _box(drawn: ElementTree.Element, size: tuple[int, int], where: str) -> PixelBox:
    x1, y1, x2, y2 = (_number(drawn, side, where) - 1 for side in ("xmin", "ymin", "xmax", "ymax"))
    if not (0 <= x1 <= x2 < size[0] and 0 <= y1 <= y2 < size[1]):
        drawn_as = f"{x1 + 1} {y1 + 1} {x2 + 1} {y2 + 1} (counted from 1)"
        what = f"the box {drawn_as} is not inside the {size[0]}×{size[1]} photo"
        fix = "boxes are xmin ymin xmax ymax in pixels of the original photo, counted from 1"
        raise BoxError(what, where=where, fix=fix)
    return x1, y1, x2, y2


def _number(element: ElementTree.Element, tag: str, where: str) -> int:
    text = element.findtext(tag)
    try:
        return int(text or "")
    except ValueError:
        what = f"`{tag}` is missing" if text is None else f"`{tag}` is {text!r}, a whole number was expected"
        raise DataError(what, where=where) from None


@dataclass(frozen=True)
class EntitiesPhoto:
    """One photo with its phrases and boxes."""

    id: str  # the number that is the photo's file name
    size: tuple[int, int]  # (width, height) of the ORIGINAL photo, which the boxes refer to
    sentences: tuple[EntitiesSentence, ...]
    boxes: dict[str, tuple[PixelBox, ...]]  # of each chain, x1 y1 x2 y2 in pixels counted from 0

    @property
    def box_count(self) -> int:
        """How many boxes people drew; one that belongs to two chains counts once."""
        return len({box for boxes in self.boxes.values() for box in boxes})


def read_photos(path: Path, problems: Problems = STRICT) -> dict[str, EntitiesPhoto]:
    """Photos by id, in the order of their sentence files."""
    sentences: dict[str, tuple[EntitiesSentence, ...]] = {}
    annotations: dict[str, Annotation] = {}
    damaged: set[str] = set()
    for name, raw in _files(existing_path(path)):
        where, before = f"{path}: {name.parent.name}/{name.name}", problems.total
        with problems:
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"not UTF-8 text: {error}", where=where) from error
            if name.suffix == ".txt":
                sentences[name.stem] = _sentences(text, where)
            else:
                annotations[name.stem] = parse_annotation(text, where)
        if problems.total > before:
            damaged.add(name.stem)
    if not sentences and not annotations and not damaged:
        problems.report(TruncatedError("it holds no Sentences/<id>.txt", where=path, fix=COPY_AGAIN))
    for id in damaged:  # reported already; its other half is not missing
        sentences.pop(id, None)
        annotations.pop(id, None)
    return _paired(path, sentences, annotations, problems)


def _files(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
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
        what = f"the archive cannot be read to its end ({error})"
        raise TruncatedError(what, where=path, fix=COPY_AGAIN) from error


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
        what = f"{name} is larger than {_LARGEST >> 20} MiB"
        raise DataError(what, where=path, fix="remove it, or download it again")
    return content


def _is_wanted(name: PurePosixPath) -> bool:
    """Hidden files (macOS puts `._` ones into archives) are not."""
    kind = (name.parent.name, name.suffix)
    return kind in (("Annotations", ".xml"), ("Sentences", ".txt")) and not name.name.startswith(".")


def _sentences(text: str, where: str) -> tuple[EntitiesSentence, ...]:
    if not text.strip():
        raise TruncatedError("the file is empty", where=where, fix=COPY_AGAIN)
    sentences = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        place = f"{where}, line {number}"
        if not line.strip():
            raise DataError("the line is empty", where=place, fix="remove it")
        sentences.append(parse_sentence(line, place))
    return tuple(sentences)


def _paired(
    path: Path,
    sentences: dict[str, tuple[EntitiesSentence, ...]],
    annotations: dict[str, Annotation],
    problems: Problems,
) -> dict[str, EntitiesPhoto]:
    for id in annotations.keys() - sentences.keys():
        what = f"photo {id} has Annotations/{id}.xml but no Sentences/{id}.txt"
        problems.report(MissingRecordError(what, where=path))
    photos = {}
    for id, lines in sentences.items():
        if id not in annotations:
            what = f"photo {id} has Sentences/{id}.txt but no Annotations/{id}.xml"
            problems.report(MissingRecordError(what, where=path))
            continue
        size, boxes, chains = annotations[id]
        for chain in sorted({phrase.chain for line in lines for phrase in line.phrases} - chains - {NOT_VISUAL}):
            what = f"photo {id} has phrases of chain {chain}, and Annotations/{id}.xml does not name it"
            fix = "sentences and annotations must be of the same release"
            problems.report(MissingRecordError(what, where=path, fix=fix))
        photos[id] = EntitiesPhoto(id, size, lines, boxes)
    return photos


def read_captions(path: Path) -> CaptionSet:
    """The captions without their marks."""
    plain = []
    for photo in read_photos(path).values():
        sentences = tuple(GroundedSentence(sentence.tokens) for sentence in photo.sentences)
        plain.append(GroundedPhoto(photo.id, sentences, photo.size))
    return plain_captions(plain, path)


def _count(photos: dict[str, EntitiesPhoto]) -> Summary:
    listed = photos.values()
    counts: dict[str, int | str] = {
        "photos": len(photos),
        "captions": sum(len(photo.sentences) for photo in listed),
        "phrases": sum(len(sentence.phrases) for photo in listed for sentence in photo.sentences),
        "chains with boxes": sum(len(photo.boxes) for photo in listed),
        "boxes": sum(photo.box_count for photo in listed),
    }
    odd = sum(len(photo.sentences) != _CAPTIONS for photo in listed)
    do = "does" if odd == 1 else "do"
    return counts, [f"{plural(odd, 'photo')} {do} not have {_CAPTIONS} captions"] if odd else []


def _matches(probe: Probe) -> bool:
    """A folder of both folders, or an archive that opens with one of them."""
    if probe.is_folder:
        return {"Annotations", "Sentences"} <= set(probe.entries)
    if not probe.name.endswith((".tar", ".tgz", ".zip")):
        return False
    return b"Sentences/" in probe.head or b"Annotations/" in probe.head


FORMAT = record_format(
    "flickr30k-entities",
    "Flickr30k Entities: captions with phrases and their boxes (a folder, tar or zip of Annotations and Sentences)",
    _matches,
    read_photos,
    _count,
    captions=read_captions,
)


def head(phrase: Phrase) -> str:
    """The class a phrase would have: the noun lemma of its last word."""
    return lemma(phrase.words[-1].lower(), "n")


def read_classes() -> dict[str, int]:
    """The classes that come with Sightline, and how many phrases of Flickr8k's training photos have each."""
    rows = (line.split("\t") for line in CLASSES.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for name, count in rows}


def ground(photo: EntitiesPhoto, classes: Mapping[str, int]) -> GroundedPhoto:
    """The photo's captions with their grounded words; boxes stay in pixels of the original photo."""

    def words(sentence: EntitiesSentence) -> Iterator[GroundedWord]:
        for phrase in sentence.phrases:
            if phrase.chain in photo.boxes and head(phrase) in classes:
                yield GroundedWord(phrase.first + len(phrase.words) - 1, head(phrase), photo.boxes[phrase.chain])

    sentences = tuple(GroundedSentence(sentence.tokens, tuple(words(sentence))) for sentence in photo.sentences)
    return GroundedPhoto(photo.id, sentences, photo.size)
