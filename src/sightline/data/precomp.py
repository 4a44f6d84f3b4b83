"""`*_precomp` folders of SCAN, VSRN and VSE++: `{train,dev,test,testall}_ims.npy`, `_caps.txt`, `_ids.txt`.

POS-SCAN's variant has `_ims.h5` (`feats`), `_files.json` and `_tags.txt`; the boxes of its `_ims_box.h5` are not read,
since they are in pixels of an unknown size. Line k of `_caps.txt` belongs to image k // 5, or to image k where there
are as many feature rows as captions. Ids are unique in what is read, one split or the folder: see `_image_ids`.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.caption_format import line_of
from sightline.data.feature_source import (
    BOXES_LEFT_OUT,
    FeatureSource,
    atomic_folder,
    existing_folder,
    feature_parts,
    other_files,
    regions_of,
    survey_scenes,
    unique_scenes,
)
from sightline.data.format import Format, Summary
from sightline.data.hdf5_features import Hdf5File
from sightline.data.numpy_files import AnyArray, NpyRows
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import CountError, DataError, DuplicateRecordError, MissingRecordError, about
from sightline.files import PathLike, open_bytes, read_json, write_text
from sightline.scene import Array, Scene

CAPTIONS_PER_IMAGE = 5  # lines of `_caps.txt` that an image has
PARTS = ("ims.npy", "ims.h5", "ims_box.h5", "caps.txt", "ids.txt", "files.json", "tags.txt")
_PART = re.compile(r"(?P<split>.+?)_(?:ims\.npy|ims\.h5|caps\.txt)$")


class _Hdf5Rows:
    """The rows of `feats` of an HDF5 file, each read on its own."""

    def __init__(self, path: Path) -> None:
        self._file = Hdf5File(path)
        with about(path):
            self._count = self._file.row_count("feats")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> AnyArray:
        with about(f"{self._file.path}, row {row}"):
            return self._file.read("feats", row)


@dataclass(frozen=True)
class _Split:
    """The files `<name>_*` of a precomp folder. Nothing is read before it is asked for."""

    folder: Path
    name: str

    def file(self, ending: str) -> Path | None:
        path = self.folder / f"{self.name}_{ending}"
        return path if path.is_file() else None

    @cached_property
    def rows(self) -> NpyRows | _Hdf5Rows | None:
        """The features: `ims.npy`, or `feats` of `ims.h5`; None in a folder with captions only."""
        if array := self.file("ims.npy"):
            return NpyRows(array)
        dataset = self.file("ims.h5")
        return None if dataset is None else _Hdf5Rows(dataset)

    @cached_property
    def files(self) -> list[str] | None:
        if (path := self.file("files.json")) is None:
            return None
        names: Any = read_json(path)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError("a list of file names was expected", where=path, fix='write ["1.jpg", "2.jpg", ...]')
        return self._one_an_image(names, path)

    def lines(self, ending: str) -> list[str] | None:
        """The lines of a text part, stripped. Only a line feed ends a line: captions hold stray carriage returns."""
        if (path := self.file(ending)) is None:
            return None
        with open_bytes(path) as file:
            raw = file.read()
        try:
            lines = raw.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            where, fix = line_of(path, raw.count(b"\n", 0, error.start) + 1), "convert it with `iconv`"
            raise DataError(f"not UTF-8 text: {error.reason}", where=where, fix=fix) from error
        return [line.strip() for line in (lines if lines[-1] else lines[:-1])]

    @cached_property
    def captions(self) -> list[str]:
        return self.lines("caps.txt") or []

    @cached_property
    def tags(self) -> list[str] | None:
        lines = self.lines("tags.txt")
        if lines is not None and len(lines) != len(self.captions):
            what = f"{len(lines)} lines of tags for {len(self.captions)} captions"
            raise CountError(what, where=self.file("tags.txt"), fix="write one line of tags a caption")
        return lines

    @cached_property
    def image_count(self) -> int:
        """The feature rows, or without features the distinct ids."""
        if self.rows is not None:
            return len(self.rows)
        if self._id_lines is not None:
            return len(dict.fromkeys(self._id_lines))
        what = f"neither {self.name}_ims.npy nor {self.name}_ids.txt, so the captions' images cannot be told apart"
        raise MissingRecordError(what, where=self.folder / f"{self.name}_caps.txt", fix="put one of them beside it")

    @cached_property
    def captions_per_image(self) -> int:
        """5, or 1 where the features have a row for every caption; other ratios are a CountError."""
        for ratio in (1, CAPTIONS_PER_IMAGE):
            if len(self.captions) == ratio * self.image_count:
                return ratio
        what = f"{len(self.captions)} captions for {self.image_count} images: there must be as many, or five times that"
        where, fix = self.folder / f"{self.name}_caps.txt", "make both files from the same list of images"
        raise CountError(what, where=where, fix=fix)

    @cached_property
    def stored_ids(self) -> list[str]:
        """One id an image: from `ids.txt`, which may repeat it for every caption, else the row number."""
        if self._id_lines is None:
            return [str(row) for row in range(self.image_count)]
        path, ids = self.folder / f"{self.name}_ids.txt", self._id_lines
        if len(ids) == CAPTIONS_PER_IMAGE * self.image_count:
            for row, line in enumerate(ids):
                first = ids[row - row % CAPTIONS_PER_IMAGE]
                if line != first:
                    what = f"line {row + 1} is {line!r} where image {first} has five captions"
                    raise CountError(what, where=path, fix="write each id once, or five times in a row")
            ids = ids[::CAPTIONS_PER_IMAGE]
        if twice := [id for id, times in Counter(self._one_an_image(ids, path)).items() if times > 1]:
            what = f"image {twice[0]} appears twice"
            raise DuplicateRecordError(what, where=path, fix="make ids unique, or remove the file to number the rows")
        return ids

    @cached_property
    def _id_lines(self) -> list[str] | None:
        return self.lines("ids.txt")

    def _one_an_image(self, entries: list[str], path: Path) -> list[str]:
        if len(entries) != self.image_count:
            what = f"{len(entries)} entries for {self.image_count} images"
            raise CountError(what, where=path, fix="make all files of a split from the same list of images")
        return entries


def _find_splits(folder: Path, entries: Iterable[str] | None = None) -> dict[str, _Split]:
    """The splits of a folder by name, `train`, `dev`, `test`, `testall` first."""
    names = (entry.name for entry in folder.iterdir()) if entries is None else entries
    splits = {match["split"] for name in names if (match := _PART.fullmatch(name))}
    usual = ("train", "dev", "val", "test", "testall")
    order = sorted(splits, key=lambda name: (usual.index(name) if name in usual else len(usual), name))
    return {name: _Split(folder, name) for name in order}


def _image_ids(splits: Iterable[_Split]) -> dict[str, list[str]]:
    """The image ids of each split, unique among these splits.

    An id is as `ids.txt` has it, or the row number. If two splits share one (`test` is a part of `testall`; numbers
    start at 0 in each), every id is written `split/id`.
    """
    stored = {split.name: split.stored_ids for split in splits}
    if len({id for ids in stored.values() for id in ids}) == sum(map(len, stored.values())):
        return stored
    return {name: [f"{name}/{id}" for id in ids] for name, ids in stored.items()}


class PrecompFeatures(FeatureSource):
    """Scenes of a precomp folder: of one split, or of every split that has features."""

    def __init__(self, path: PathLike, split: str | None = None) -> None:
        super().__init__(path)
        every = _find_splits(existing_folder(self.path))
        chosen = {name: part for name, part in every.items() if split in (None, name)}
        self._splits = {name: part for name, part in chosen.items() if part.rows is not None}
        if not self._splits:
            what = "no features" if split is None else f"no features of split {split!r}"
            fix = f"there must be {split or 'train'}_ims.npy; splits found: {', '.join(every) or 'none'}"
            raise MissingRecordError(what, where=self.path, fix=fix)
        self._ids = _image_ids(every.values() if split is None else self._splits.values())

    @cached_property
    def index(self) -> dict[str, tuple[str, int]]:
        """The split and row of each image."""
        return {id: (name, row) for name in self._splits for row, id in enumerate(self._ids[name])}

    def read(self, id: str) -> Scene:
        name, row = self.index[id]
        rows, source = self._splits[name].rows, f"{self.path}, split {name}, row {row}"
        assert rows is not None
        with about(f"{source}, image {id}"):
            return Scene(id, **feature_parts(rows[row]), source=source)

    def notes(self) -> tuple[str, ...]:
        prefixed = any(self._ids[name] != split.stored_ids for name, split in self._splits.items())
        return ("splits share ids, so that images are called split/id",) if prefixed else ()


def read_captions(path: PathLike, problems: Problems = STRICT, split: str | None = None) -> CaptionSet:
    """The photos of one split, or of every split that has captions, with the ids `PrecompFeatures` gives them.

    Sentences have tokens and Penn tags where there is `_tags.txt`.
    """
    folder = existing_folder(path)
    parts = [part for part in _find_splits(folder).values() if split in (None, part.name)]
    if split is not None and not parts:
        raise MissingRecordError(f"no split {split!r}", where=folder, fix=f"there must be {split}_caps.txt")
    ids = _image_ids(parts)
    photos: list[CaptionedPhoto] = []
    for part in parts:
        with problems:
            if not part.file("caps.txt"):
                continue
            sentences, ratio = _sentences(part, problems), part.captions_per_image
            files: list[str] | list[None] = part.files or [None] * part.image_count
            for row, (id, file) in enumerate(zip(ids[part.name], files, strict=True)):
                of_image = tuple(sentences[row * ratio : (row + 1) * ratio])
                photos.append(CaptionedPhoto(id, of_image, file, part.name))
    return CaptionSet(tuple(photos), source=str(folder))


def _sentences(split: _Split, problems: Problems) -> list[Sentence]:
    sentences, start = [], split.folder / split.name
    for number, text in enumerate(split.captions, start=1):
        check_caption(text, f"{start}_caps.txt, line {number}", problems)
        if split.tags is None:
            sentences.append(Sentence(text))
            continue
        tokens, tags = tuple(text.split()), tuple(split.tags[number - 1].split())
        if len(tokens) != len(tags):
            what = f"{len(tags)} tags for the {len(tokens)} words of {text[:60]!r}"
            fix = "tag the whitespace-separated words of the caption, one tag a word"
            problems.report(CountError(what, where=f"{start}_tags.txt, line {number}", fix=fix))
        sentences.append(Sentence(text, tokens, tags))
    return sentences


def _survey(path: Path, problems: Problems) -> Summary:
    splits = list(_find_splits(path).values())
    ids = _image_ids(splits)  # without which neither features nor captions can be read
    counts: dict[str, int | str] = {}
    notes: list[str] = []
    if any(split.rows is not None for split in splits):
        counts, feature_notes = survey_scenes(PrecompFeatures, path, problems)
        notes += feature_notes
    if bare := [split.name for split in splits if split.rows is None]:
        notes.append(f"captions without features (no _ims.npy or _ims.h5): {', '.join(bare)}")
    if any(split.file("ims_box.h5") for split in splits):
        notes.append(BOXES_LEFT_OUT)
    own = {f"{split.name}_{part}" for split in splits for part in PARTS}
    notes += other_files({entry.name for entry in path.iterdir()} - own)
    texts = [sentence.text for sentence in read_captions(path, problems).sentences()]
    counts |= {"captions": len(texts), "splits": ", ".join(f"{name} {len(ids[name])}" for name in ids)}
    if empty := texts.count(""):
        them = "caption is an empty line, which is" if empty == 1 else "captions are empty lines, which are"
        notes.append(f"{empty:,} {them} kept, so that the others stay with their images")
    return counts, notes


def write_scenes(path: PathLike, scenes: Iterable[Scene]) -> int:
    """Write `train_ims.npy` and `train_ids.txt` in a new folder.

    Rows are the regions (n, d), or the global vectors where scenes have no regions. All must have one shape and type.
    """
    ids: list[str] = []
    first: Array = np.empty((0, 0), np.float32)
    with atomic_folder(path) as draft:
        with (draft / "train_ims.npy").open("wb") as file:

            def write_header() -> None:
                shape = (len(ids), *first.shape)
                header = {"descr": first.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)  # with room for any number of rows

            for scene in unique_scenes(scenes, path):
                if scene.id != scene.id.strip() or "\n" in scene.id or not scene.id:
                    raise DataError(f"the id {scene.id!r} is not one line of text", where=scene.where, fix="rename it")
                row = scene.vector
                if row is None or scene.regions is not None:
                    row = regions_of(scene, "precomp features")
                if not ids:
                    first = row
                    write_header()
                if (row.shape, row.dtype) != (first.shape, first.dtype):
                    both = f"{row.shape} {row.dtype}, those of the first image {first.shape} {first.dtype}"
                    fix = "precomp files need as many regions in every image; choose another format"
                    raise CountError(f"features are {both}", where=scene.where, fix=fix)
                file.write(np.ascontiguousarray(row).tobytes())
                ids.append(scene.id)
            file.seek(0)
            write_header()
        write_text(draft / "train_ids.txt", "".join(f"{id}\n" for id in ids))
    return len(ids)


FORMAT = Format(
    name="precomp",
    about="SCAN, VSRN and VSE++ folders: fixed-size region features, captions five lines an image",
    matches=lambda probe: probe.is_folder and bool(_find_splits(probe.path, probe.entries)),
    survey=_survey,
    scenes=PrecompFeatures,
    captions=read_captions,
    split_scenes=PrecompFeatures,
    split_captions=lambda path, split: read_captions(path, split=split),
    write_scenes=write_scenes,
    keeps=("regions",),
)
