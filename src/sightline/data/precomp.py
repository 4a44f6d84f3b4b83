"""`*_precomp` folders of SCAN, VSRN and VSE++: `{train,dev,test,testall}_ims.npy`, `_caps.txt`, `_ids.txt`.

POS-SCAN's variant has `_ims.h5` (`feats`), `_ims_box.h5` (`boxes`, in pixels), `_files.json` and `_tags.txt`. Line k of
`_caps.txt` belongs to image k // 5, or to image k where there are as many feature rows as captions. Ids are unique in
what is read, one split or the folder: see `image_ids`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from sightline.data.feature_source import (
    FeatureSource,
    PerProcess,
    Sizes,
    atomic_folder,
    distinct,
    existing_folder,
    passed_over,
    regions_of,
    size_of,
    survey,
)
from sightline.data.format import Format, Probe, Report
from sightline.data.hdf5_features import damage, dataset_of, open_hdf5, read_dataset
from sightline.data.numpy_files import AnyArray, NpyRows
from sightline.data.records import STRICT, CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import CountError, DataError, DuplicateRecordError, MissingRecordError
from sightline.files import PathLike, open_bytes, read_json, write_text
from sightline.scene import Array, Scene

_HEADER = 128  # bytes of the npy header, fixed so that the row count can be filled in at the end
CAPTIONS_PER_IMAGE = 5
PARTS = ("ims.npy", "ims.h5", "ims_box.h5", "caps.txt", "ids.txt", "files.json", "tags.txt")
_PART = re.compile(r"(?P<split>.+?)_(?:ims\.npy|ims\.h5|caps\.txt)$")


class Rows(Protocol):
    """The rows of a stored array, each read on its own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array."""
        ...

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def __getitem__(self, row: int) -> AnyArray: ...


class Hdf5Rows:
    """The rows of one dataset of an HDF5 file."""

    def __init__(self, path: Path, dataset: str) -> None:
        self.path = path
        self._dataset = dataset
        self._file = PerProcess(partial(open_hdf5, path))
        with damage(path):
            found = dataset_of(self._file(), dataset, path)
            if found is None:
                raise MissingRecordError(f"no dataset {dataset!r}", where=path, fix=f"store the array as {dataset!r}")
            self.shape: tuple[int, ...] = tuple(found.shape)
        if not self.shape:
            raise DataError(f"{dataset!r} is one number", where=path, fix="store one row an image")

    def __len__(self) -> int:
        """How many rows there are."""
        return self.shape[0]

    def __getitem__(self, row: int) -> AnyArray:
        where = f"{self.path}, row {row}"
        with damage(where):
            dataset = dataset_of(self._file(), self._dataset, where)
        return read_dataset(dataset, where, row)


@dataclass(frozen=True)
class Split:
    """The files `<name>_*` of a precomp folder. Nothing is read before it is asked for."""

    folder: Path
    name: str

    def part(self, ending: str) -> Path | None:
        """The file `<name>_<ending>`, if it is there."""
        path = self.folder / f"{self.name}_{ending}"
        return path if path.is_file() else None

    @cached_property
    def rows(self) -> Rows | None:
        """The features: `ims.npy`, or `feats` of `ims.h5`; None in a folder with captions only."""
        if array := self.part("ims.npy"):
            return NpyRows(array)
        if dataset := self.part("ims.h5"):
            return Hdf5Rows(dataset, "feats")
        return None

    @cached_property
    def boxes(self) -> Rows | None:
        """`boxes` of `ims_box.h5` (pixels), if it is there."""
        path = self.part("ims_box.h5")
        return None if path is None else self._one_an_image(Hdf5Rows(path, "boxes"), path)

    @cached_property
    def files(self) -> list[str] | None:
        """The image file names of `files.json`, if it is there."""
        if (path := self.part("files.json")) is None:
            return None
        names: Any = read_json(path)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError("a list of file names was expected", where=path, fix='write ["1.jpg", "2.jpg", ...]')
        self._one_an_image(names, path)
        return names

    @cached_property
    def caption_lines(self) -> list[str]:
        """The captions, in file order."""
        path = self.part("caps.txt")
        return [] if path is None else read_lines(path)

    @cached_property
    def tag_lines(self) -> list[str] | None:
        """The Penn tags of each caption, if there is `tags.txt`."""
        if (path := self.part("tags.txt")) is None:
            return None
        lines = read_lines(path)
        if len(lines) != len(self.caption_lines):
            raise CountError(
                f"{len(lines)} lines of tags for {len(self.caption_lines)} captions",
                where=path,
                fix="write one line of tags a caption",
            )
        return lines

    @cached_property
    def image_count(self) -> int:
        """How many images there are: the feature rows, or without features the distinct ids."""
        if self.rows is not None:
            return len(self.rows)
        if self._id_lines is not None:
            return len(dict.fromkeys(self._id_lines))
        raise MissingRecordError(
            f"neither {self.name}_ims.npy nor {self.name}_ids.txt, so the captions' images cannot be told apart",
            where=self.folder / f"{self.name}_caps.txt",
            fix="put one of them beside it",
        )

    @cached_property
    def captions_per_image(self) -> int:
        """5, or 1 where the features have a row for every caption; other ratios are a CountError."""
        captions = len(self.caption_lines)
        for ratio in (1, CAPTIONS_PER_IMAGE):
            if captions == ratio * self.image_count:
                return ratio
        raise CountError(
            f"{captions} captions for {self.image_count} images: there must be as many, or five times as many",
            where=self.folder / f"{self.name}_caps.txt",
            fix="make both files from the same list of images",
        )

    @cached_property
    def stored_ids(self) -> list[str]:
        """One id an image: from `ids.txt`, which may repeat it for every caption, else the row number."""
        lines = self._id_lines
        if lines is None:
            return [str(row) for row in range(self.image_count)]
        path = self.folder / f"{self.name}_ids.txt"
        ids = lines
        if len(lines) == CAPTIONS_PER_IMAGE * self.image_count:
            ids = lines[::CAPTIONS_PER_IMAGE]
            for row, line in enumerate(lines):
                if line != ids[row // CAPTIONS_PER_IMAGE]:
                    raise CountError(
                        f"line {row + 1} is {line!r} where image {ids[row // CAPTIONS_PER_IMAGE]} has five captions",
                        where=path,
                        fix="write each id once, or five times in a row",
                    )
        self._one_an_image(ids, path)
        if twice := [id for id, times in Counter(ids).items() if times > 1]:
            raise DuplicateRecordError(
                f"image {twice[0]} appears twice",
                where=path,
                fix="make ids unique, or remove the file to number the rows",
            )
        return ids

    @cached_property
    def _id_lines(self) -> list[str] | None:
        path = self.part("ids.txt")
        return None if path is None else read_lines(path)

    def _one_an_image(self, found: Any, path: Path) -> Any:
        if len(found) != self.image_count:
            raise CountError(
                f"{len(found)} entries for {self.image_count} images",
                where=path,
                fix="make all files of a split from the same list of images",
            )
        return found


def find_splits(folder: Path, entries: Iterable[str] | None = None) -> dict[str, Split]:
    """The splits of a folder by name, `train`, `dev`, `test`, `testall` first."""
    names = (entry.name for entry in folder.iterdir()) if entries is None else entries
    found = {match["split"] for name in names if (match := _PART.fullmatch(name))}
    usual = ("train", "dev", "val", "test", "testall")
    order = sorted(found, key=lambda name: (usual.index(name) if name in usual else len(usual), name))
    return {name: Split(folder, name) for name in order}


def image_ids(splits: Iterable[Split]) -> dict[str, list[str]]:
    """The image ids of each split, unique among these splits.

    An id is as `ids.txt` has it, or the row number. If two splits share one (`test` is a part of `testall`; numbers
    start at 0 in each), every id is written `split/id`.
    """
    stored = {split.name: split.stored_ids for split in splits}
    distinct = {id for ids in stored.values() for id in ids}
    if len(distinct) == sum(map(len, stored.values())):
        return stored
    return {name: [f"{name}/{id}" for id in ids] for name, ids in stored.items()}


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, stripped. Only a line feed ends a line: captions hold stray carriage returns."""
    with open_bytes(path) as file:
        raw = file.read().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = raw[:-1] if raw[-1] == b"" else raw
    return [_decode(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text: {error.reason}", where=where, fix="convert it with `iconv`") from error


class PrecompFeatures(FeatureSource):
    """Scenes of a precomp folder: of one split, or of every split that has features.

    Args:
        path: the folder.
        split: `train`, `dev`, ...; None for all.
        sizes: (width, height) of every image, for the boxes of `_ims_box.h5`; without it they are left out.
    """

    def __init__(self, path: PathLike, split: str | None = None, sizes: Sizes | None = None) -> None:
        super().__init__(path)
        self.sizes = sizes
        found = find_splits(existing_folder(self.path))
        self._splits = {name: one for name, one in found.items() if one.rows is not None and split in (None, name)}
        if not self._splits:
            raise MissingRecordError(
                "no features" if split is None else f"no features of split {split!r}",
                where=self.path,
                fix=f"there must be {split or 'train'}_ims.npy; splits found: {', '.join(found) or 'none'}",
            )
        ids = image_ids(found.values() if split is None else self._splits.values())
        self._prefixed = any(ids[name] != one.stored_ids for name, one in self._splits.items())
        self._rows = {id: (name, row) for name in self._splits for row, id in enumerate(ids[name])}

    def ids(self) -> list[str]:
        """Every image id, split by split."""
        return list(self._rows)

    def read(self, id: str) -> Scene:
        """The scene of an id that `ids` lists."""
        name, row = self._rows[id]
        split = self._splits[name]
        where = f"{self.path}, split {name}, row {row}, image {id}"
        assert split.rows is not None
        boxes = None if split.boxes is None else split.boxes[row]
        size = None if boxes is None else size_of(id, self.sizes, where)
        parts = self.parts(id, split.rows[row], where, boxes=boxes, size=size)
        return Scene(id, **parts, source=f"{self.path}, split {name}, row {row}")

    def notes(self) -> tuple[str, ...]:
        """What is left out, and how images are named."""
        names = ("splits share ids, so that images are called split/id",) if self._prefixed else ()
        return (*super().notes(), *names)


def read_captions(path: PathLike, problems: Problems = STRICT, split: str | None = None) -> CaptionSet:
    """The photos of one split, or of every split that has captions, with the ids `PrecompFeatures` gives them.

    Sentences have tokens and Penn tags where there is `_tags.txt`.
    """
    folder = existing_folder(path)
    splits = {name: one for name, one in find_splits(folder).items() if split in (None, name)}
    if split is not None and not splits:
        raise MissingRecordError(f"no split {split!r}", where=folder, fix=f"there must be {split}_caps.txt")
    ids = image_ids(splits.values())
    photos: list[CaptionedPhoto] = []
    for one in splits.values():
        if one.part("caps.txt"):
            try:
                photos.extend(_photos(one, ids[one.name], problems))
            except DataError as error:
                problems.report(error)
    return CaptionSet(tuple(photos), source=str(folder))


def _photos(split: Split, ids: list[str], problems: Problems) -> Iterator[CaptionedPhoto]:
    sentences = list(_sentences(split, problems))
    ratio = split.captions_per_image
    for row, id in enumerate(ids):
        file = None if split.files is None else split.files[row]
        yield CaptionedPhoto(id, tuple(sentences[row * ratio : (row + 1) * ratio]), file=file, split=split.name)


def _sentences(split: Split, problems: Problems) -> Iterator[Sentence]:
    lines, tag_lines = split.caption_lines, split.tag_lines
    for number, text in enumerate(lines, start=1):
        check_caption(text, f"{split.folder / split.name}_caps.txt, line {number}", problems)
        if tag_lines is None:
            yield Sentence(text)
            continue
        tokens, tags = tuple(text.split()), tuple(tag_lines[number - 1].split())
        if len(tokens) != len(tags):
            problems.report(
                CountError(
                    f"{len(tags)} tags for the {len(tokens)} words of {text[:60]!r}",
                    where=f"{split.folder / split.name}_tags.txt, line {number}",
                    fix="tag the whitespace-separated words of the caption, one tag a word",
                )
            )
        yield Sentence(text, tokens, tags)


def matches(probe: Probe) -> bool:
    """A folder with `<split>_ims.npy`, `<split>_ims.h5` or `<split>_caps.txt`."""
    return probe.is_folder and bool(find_splits(probe.path, probe.entries))


def inspect(path: Path) -> Report:
    """Count images, regions and captions split by split, collecting what is wrong."""
    problems = Problems(collect=True)
    splits = list(find_splits(path).values())
    try:
        ids = image_ids(splits)
    except DataError as error:  # without ids neither features nor captions can be read
        problems.report(error)
        return Report.of(path, FORMAT, {}, problems)
    counts: dict[str, int | str] = {}
    notes: tuple[str, ...] = ()
    if any(split.rows is not None for split in splits):
        counts, notes = survey(path, PrecompFeatures, problems)
    if bare := [split.name for split in splits if split.rows is None]:
        notes += (f"captions without features (no _ims.npy or _ims.h5): {', '.join(bare)}",)
    known = {f"{split.name}_{part}" for split in splits for part in PARTS}
    notes += passed_over({entry.name for entry in path.iterdir()} - known)
    captions = read_captions(path, problems)
    sentences = [sentence.text for sentence in captions.sentences()]
    counts |= {"captions": len(sentences), "splits": ", ".join(f"{name} {len(ids[name])}" for name in ids)}
    if empty := sentences.count(""):
        notes += (f"{empty} captions are empty lines; they are kept, so that the others stay with their images",)
    return Report.of(path, FORMAT, counts, problems, notes)


def write_scenes(path: PathLike, scenes: Iterable[Scene], split: str = "train") -> int:
    """Write `<split>_ims.npy` and `<split>_ids.txt` in a new folder.

    Rows are the regions (n, d), or the global vectors where scenes have no regions. All must have one shape and type.
    """
    ids: list[str] = []
    shape: tuple[int, ...] = (0, 0)
    dtype: np.dtype[Any] = np.dtype(np.float32)
    with atomic_folder(path) as draft:
        with (draft / f"{split}_ims.npy").open("wb") as file:
            file.write(bytes(_HEADER))
            for scene in distinct(scenes, path):
                row = _row(scene)
                if not ids:
                    shape, dtype = row.shape, row.dtype
                if (row.shape, row.dtype) != (shape, dtype):
                    raise CountError(
                        f"features are {row.shape} {row.dtype}, those of the first image {shape} {dtype}",
                        where=scene.where,
                        fix="precomp files need as many regions in every image; choose another format",
                    )
                file.write(np.ascontiguousarray(row).tobytes())
                ids.append(scene.id)
            _write_header(file, (len(ids), *shape), dtype)
        write_text(draft / f"{split}_ids.txt", "".join(f"{id}\n" for id in ids))
    return len(ids)


def _row(scene: Scene) -> Array:
    if scene.id != scene.id.strip() or "\n" in scene.id or not scene.id:
        raise DataError(f"the id {scene.id!r} is not one line of text", where=scene.where, fix="rename it")
    if scene.regions is None and scene.vector is not None:
        return scene.vector
    return regions_of(scene, "precomp features")


def _write_header(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape})
    start = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.encode("ascii")
    file.seek(0)
    file.write(start.ljust(_HEADER - 1) + b"\n")


FORMAT = Format(
    name="precomp",
    about="SCAN, VSRN and VSE++ folders: fixed-size region features, captions five lines an image",
    matches=matches,
    inspect=inspect,
    scenes=PrecompFeatures,
    captions=read_captions,
    split_scenes=PrecompFeatures,
    split_captions=lambda path, split: read_captions(path, split=split),
    write_scenes=write_scenes,
    keeps=("regions",),
)
