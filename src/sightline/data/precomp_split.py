"""One split of a `*_precomp` folder: which files it has, its captions' lines, and the images they belong to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from sightline.data.hdf5_features import damage, dataset_of, open_hdf5, read_dataset
from sightline.data.numpy_files import AnyArray, NpyRows
from sightline.data.per_process import PerProcess
from sightline.errors import CountError, DataError, DuplicateRecordError, MissingRecordError
from sightline.files import open_bytes, read_json

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
