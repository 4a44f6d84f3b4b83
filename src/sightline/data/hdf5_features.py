"""HDF5 files from strangers, and region features in one, in the layouts people have.

A file that names other files does not make us read them, nor one that declares far more than it stores take memory.

- M2: `<id>_features` (n, d), perhaps `<id>_boxes` (pixels) and `<id>_cls_prob` (n, classes).
- self-critical: a dataset per id.
- POS-SCAN's source: `image_features` (images, n, d), whose rows are images without ids; the boxes of its `image_bb` are
  in pixels of an unknown size, and not read.
- GVD's `dets_labels` and `nms_num` are recognised and counted: they are detections of features stored elsewhere.
"""

import contextlib
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.feature_source import (
    BOXES_LEFT_OUT,
    FeatureSource,
    PerProcess,
    atomic_path,
    feature_parts,
    flat_name,
    id_of,
    pixel_size,
    regions_of,
    scene_format,
    survey_scenes,
    unique_scenes,
)
from sightline.data.format import Probe, Summary
from sightline.data.numpy_files import AnyArray
from sightline.data.records import Problems
from sightline.errors import DataError, MissingRecordError, SightlineError, TruncatedError, about, library
from sightline.files import COPY_AGAIN, PathLike, check_declared_size
from sightline.scene import Scene

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_FEATURES = "_features"
_M2 = re.compile(r"(?P<id>.*)_(?:features|boxes|cls_prob)", re.DOTALL)
_PARTS = ("features", "boxes", "cls_prob")  # of an image in M2's layout
_LAYOUTS = {
    "m2": "layout: <id>_features",
    "per id": "layout: a dataset per id",
    "rows": "layout: image_features, whose images are known by their row only",
}


class Hdf5File:
    """One HDF5 file, open once a process. What h5py raises on damaged parts is a DataError, which names no place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = PerProcess(partial(_open, path))
        self._handle()

    def names(self, most: int | None = None) -> list[str]:
        """What the file holds; a name that is no UTF-8 is spelled so that it is not found again."""
        with _damage():
            keys = itertools.islice(self._handle(), most)
            return [key if isinstance(key, str) else key.decode("utf-8", "replace") for key in keys]

    def has(self, name: str) -> bool:
        return self._link(name) is not None

    def has_group(self, name: str) -> bool:
        import h5py

        with _damage():
            return isinstance(self._link(name), h5py.HardLink) and isinstance(self._handle()[name], h5py.Group)

    def dataset(self, name: str) -> Any:
        """The dataset, or None; its numbers are in this file, and not far fewer than it declares.

        An HDF5 file can name other files, to be read as if they were parts of it: by links, by external storage, by
        virtual datasets. None of these is followed.
        """
        import h5py

        link = self._link(name)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise _elsewhere(f"`{name}` is a link to {getattr(link, 'filename', '')} {link.path}")
        with _damage():
            dataset = self._handle()[name]
            if not isinstance(dataset, h5py.Dataset):
                raise DataError(f"there is no dataset {name!r}, but a group", fix="store one array there")
            if dataset.external or dataset.is_virtual:
                raise _elsewhere(f"the numbers of `{name}` are in another file")
            if dataset.shape is None or dataset.dtype.hasobject:
                raise DataError(f"`{name}` holds no plain numbers", fix="store numbers")
            # A side of no length would make any number of rows free.
            declared = math.prod(max(1, side) for side in dataset.shape) * dataset.dtype.itemsize
            check_declared_size(declared, dataset.id.get_storage_size(), f"`{name}`")
            return dataset

    def row_count(self, name: str) -> int:
        dataset = self.dataset(name)
        if dataset is None or not dataset.shape:
            raise DataError(f"no rows in a dataset {name!r}", fix="store one row an image under it")
        return len(dataset)

    def read(self, name: str, row: int | None = None) -> AnyArray:
        """The numbers of a dataset, or of one row of it; a MissingRecordError without such a dataset."""
        dataset = self.dataset(name)
        if dataset is None:
            raise MissingRecordError(f"there is no dataset {name!r}", fix="make the file again with it")
        with _damage():
            return np.asarray(dataset[() if row is None else row])

    def _link(self, name: str) -> Any:
        with _damage():
            return self._handle().get(name, getlink=True)  # `name in file` would follow a link already


def _open(path: Path) -> Any:
    """The open `h5py.File`, or an error that tells a cut file from one that is no HDF5."""
    h5py = library("h5py", "train", f"reading {path.name}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if "truncated" in str(error):
            raise TruncatedError("the HDF5 file ends too early", where=path, fix=COPY_AGAIN) from error
        raise DataError(f"not a readable HDF5 file: {error}", where=path, fix=COPY_AGAIN) from error


def _elsewhere(what: str) -> DataError:
    fix = "copy everything into one file, for example with `h5repack`"
    return DataError(f"{what}, and other files are never read in its name", fix=fix)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """What h5py raises on damaged parts of a file is one kind of error."""
    try:
        yield
    except (OSError, RuntimeError, LookupError, AttributeError, TypeError, ValueError, MemoryError) as error:
        raise DataError(f"damaged HDF5: {error}", fix=COPY_AGAIN) from error


class Hdf5Features(FeatureSource):
    """Scenes of one HDF5 file. Boxes are in pixels; without the image's size they are left out."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._file = Hdf5File(self.path)
        with about(self.path):
            self.layout = _layout(self._file)
            if self.layout == "gvd":
                fix = "read the folder of <image id>.npy that came with it"
                raise DataError("these are GVD's detections, without the features", fix=fix)
            if self.layout == "unknown":
                what = "neither <id>_features, nor image_features, nor a floating-point dataset per id"
                fix = "check that it is a feature file; `*_ims.h5` belongs to its folder: name that"
                raise DataError(what, fix=fix)

    @cached_property
    def index(self) -> dict[str, int | str]:
        """The row of each image, or how its datasets spell its id."""
        with about(self.path):
            if self.layout == "rows":
                return {str(row): row for row in range(self._file.row_count("image_features"))}
            names = self._file.names()
        if self.layout == "m2":
            names = [match["id"] for match in map(_M2.fullmatch, names) if match]
        return {id_of(name): name for name in names}

    def notes(self) -> tuple[str, ...]:
        unplaced = (BOXES_LEFT_OUT,) if self.layout == "rows" and self._file.has("image_bb") else ()
        return (_LAYOUTS[self.layout], *super().notes(), *unplaced)

    def read(self, id: str) -> Scene:
        stored = self.index[id]
        if isinstance(stored, int):
            features = self._file.read("image_features", stored)
            return Scene(id, **feature_parts(features), source=str(self.path))
        names = {part: f"{stored}_{part}" for part in _PARTS} if self.layout == "m2" else {"features": stored}
        datasets = {part: self._file.dataset(name) for part, name in names.items()}
        with _damage():
            arrays = {part: np.asarray(dataset[()]) for part, dataset in datasets.items() if dataset is not None}
            if "features" not in arrays:
                what = f"{' and '.join(names[part] for part in arrays)} without {names['features']}"
                raise MissingRecordError(what, fix="extract this image again")
            pair = np.ravel(datasets["features"].attrs.get("size", ()))
        size = pixel_size(pair[:1], pair[1:]) if pair.size else None
        boxes, probabilities = arrays.get("boxes"), arrays.get("cls_prob")
        parts = self.parts(id, arrays["features"], boxes=boxes, probabilities=probabilities, size=size)
        return Scene(id, **parts, source=str(self.path))


def _layout(file: Hdf5File) -> str:
    if file.has("image_features"):
        return "rows"
    if file.has("dets_labels") and file.has("nms_num"):
        return "gvd"
    first = file.names(6)
    if any(name.endswith(_FEATURES) for name in first):
        return "m2"
    if not first or not set(first).isdisjoint({"feats", "boxes"}) or any(map(file.has_group, first)):
        return "unknown"
    datasets = [file.dataset(name) for name in first]
    floats = all(array is not None and array.dtype.kind == "f" and 1 <= array.ndim <= 3 for array in datasets)
    return "per id" if floats else "unknown"


def _matches(probe: Probe) -> bool:
    """An HDF5 file in one of the layouts; a damaged one unless its name is that of labels or a precomp part."""
    if not probe.head.startswith(HDF5_MAGIC):
        return False
    with contextlib.suppress(SightlineError):
        return _layout(Hdf5File(probe.path)) != "unknown"
    return not any(part in probe.name for part in ("label", "_ims", "talk"))


def write_scenes(path: PathLike, scenes: Iterable[Scene]) -> int:
    """Write M2's layout: `<id>_features`, and where the scene has them `<id>_boxes` in pixels and `<id>_cls_prob`.

    `<id>_features` carries the image size as its attribute `size`; `<id>_cls_prob` is (n, 1), the score of each region.
    """
    h5py = library("h5py", "train", "writing HDF5")
    count = 0
    with atomic_path(path) as draft, _Disk(draft, "w+") as disk:
        with h5py.File(disk, "w") as file:
            for scene in unique_scenes(scenes, path):
                name = flat_name(scene)
                features = file.create_dataset(f"{name}{_FEATURES}", data=regions_of(scene, "M2's hdf5"))
                if scene.size is not None:
                    features.attrs["size"] = scene.size
                if scene.boxes is not None:
                    file[f"{name}_boxes"] = scene.pixel_boxes()
                if scene.scores is not None:
                    file[f"{name}_cls_prob"] = scene.scores[:, None]
                disk.check()
                count += 1
        disk.check()
    return count


class _Disk(io.FileIO):
    """Where h5py writes. Errors are kept until `check`: libhdf5 crashes Python if it cannot finish a file it closes."""

    _error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data)
        try:
            while rest and self._error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self._error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size) if self._error is None else 0
        except OSError as error:
            self._error = error
            return 0

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _survey(path: Path, problems: Problems) -> Summary:
    """What a file holds; of GVD's detections, how many there are."""
    file = Hdf5File(path)
    if _layout(file) != "gvd":
        return survey_scenes(Hdf5Features, path, problems)
    boxes = file.dataset("dets_labels")
    if boxes is None or boxes.ndim != 3:
        raise DataError("`dets_labels` is not (images, boxes, numbers)")
    counts: dict[str, int | str] = {"images": len(boxes), "boxes per image": int(boxes.shape[1])}
    return counts, ("GVD's detections; the features are in a folder of <image id>.npy",)


FORMAT = replace(
    scene_format(
        "m2-hdf5",
        "Region features in one HDF5 file: M2's <id>_features, self-critical's dataset per id, POS-SCAN's rows",
        _matches,
        Hdf5Features,
        write_scenes,
        ("boxes", "scores", "regions", "size"),
    ),
    survey=_survey,
)
