"""Region features in one HDF5 file, in the layouts people have.

- M2: `<id>_features` (n, d), perhaps `<id>_boxes` (pixels) and `<id>_cls_prob` (n, classes).
- self-critical: a dataset per id.
- POS-SCAN's source: `image_features` (images, n, d) and `image_bb`, whose rows are images without ids.
- GVD's `dets_labels` and `nms_num` are recognised and counted: they hold detections of features stored elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.feature_source import (
    FeatureSource,
    PerProcess,
    atomic_path,
    library,
    pixel_size,
    plain_name,
    regions_of,
    scene_format,
    survey_scenes,
    write_each,
)
from sightline.data.format import Probe, Summary
from sightline.data.records import Problems
from sightline.errors import (
    CountError,
    DataError,
    MissingRecordError,
    SightlineError,
    TruncatedError,
)
from sightline.files import PathLike, check_declared_size
from sightline.scene import Scene

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_FEATURES = "_features"
_M2 = re.compile(r"(?P<id>.*)_(?:features|boxes|cls_prob)", re.DOTALL)
_GVD = frozenset({"dets_labels", "nms_num"})


def open_hdf5(path: Path) -> Any:
    """The open `h5py.File`, or an error that tells a cut file from one that is no HDF5."""
    h5py, fix = library("h5py", f"reading {path.name}"), "copy or download it again"
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if "truncated" in str(error):
            raise TruncatedError("the HDF5 file ends too early", where=path, fix=fix) from error
        raise DataError(f"not a readable HDF5 file: {error}", where=path, fix=fix) from error


def dataset_of(file: Any, name: str, where: PathLike) -> Any:
    """The dataset `name` of an open file, or None; its numbers are in this file, and not far fewer than it declares.

    An HDF5 file can name other files, to be read as if they were parts of it: by links, by external storage, by virtual
    datasets. None of these is followed. (`name in file` would follow a link already.)
    """
    import h5py

    link = file.get(name, getlink=True)
    if link is None:
        return None
    if not isinstance(link, h5py.HardLink):
        raise _elsewhere(f"`{name}` is a link to {getattr(link, 'filename', '')} {link.path}", where)
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset):
        raise DataError(f"there is no dataset {name!r}, but a group", where=where, fix="store one array under it")
    if dataset.external or dataset.is_virtual:
        raise _elsewhere(f"the numbers of `{name}` are in another file", where)
    if dataset.shape is None or dataset.dtype.hasobject:
        raise DataError(f"`{name}` holds no plain numbers", where=where, fix="store numbers")
    # A side of no length would make any number of rows free.
    declared = math.prod(max(1, side) for side in dataset.shape) * dataset.dtype.itemsize
    check_declared_size(declared, dataset.id.get_storage_size(), f"`{name}`", where)
    return dataset


def _elsewhere(what: str, where: PathLike) -> DataError:
    fix = "copy everything into one file, for example with `h5repack`"
    return DataError(f"{what}, and other files are never read in its name", where=where, fix=fix)


@contextlib.contextmanager
def damage(where: PathLike) -> Iterator[None]:
    """Turn what h5py raises on damaged parts of a file into one kind of error."""
    try:
        yield
    except (OSError, RuntimeError, LookupError, AttributeError, TypeError, ValueError, MemoryError) as error:
        raise DataError(f"damaged HDF5: {error}", where=where, fix="copy or download the file again") from error


class Hdf5Features(FeatureSource):
    """Scenes of one HDF5 file. Boxes are in pixels; without the image's size they are left out."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._file = PerProcess(partial(open_hdf5, self.path))
        with damage(self.path):
            self.layout = _layout(self._file(), self.path)
        if self.layout == "gvd":
            fix = "read the folder of <image id>.npy that came with it"
            raise DataError("these are GVD's detections, without the features", where=self.path, fix=fix)
        if self.layout == "unknown":
            what = "neither <id>_features, nor image_features, nor a floating-point dataset per id"
            fix = "check that it is a feature file; `*_ims.h5` belongs to its folder: name that"
            raise DataError(what, where=self.path, fix=fix)

    def ids(self) -> list[str]:
        return self._ids

    def notes(self) -> tuple[str, ...]:
        layouts = {
            "m2": "layout: <id>_features",
            "per id": "layout: a dataset per id",
            "rows": "layout: image_features, whose images are known by their row only",
        }
        return (layouts[self.layout], *super().notes())

    @cached_property
    def _ids(self) -> list[str]:
        file = self._file()
        with damage(self.path):
            if self.layout == "rows":
                return list(map(str, range(len(dataset_of(file, "image_features", self.path)))))
            names = [_text(key) for key in file]
            if self.layout == "m2":
                names = [match["id"] for match in map(_M2.fullmatch, names) if match]
            return list(dict.fromkeys(names))

    def read(self, id: str) -> Scene:
        where = f"{self.path}, image {id}"
        parts = self._row_parts(id, where) if self.layout == "rows" else self._keyed_parts(id, where)
        return Scene(id, **parts, source=str(self.path))

    def _keyed_parts(self, id: str, where: str) -> dict[str, Any]:
        file, names = self._file(), {"features": id}
        if self.layout == "m2":
            names = {part: f"{id}_{part}" for part in ("features", "boxes", "cls_prob")}
        with damage(where):
            datasets = {part: dataset_of(file, name, where) for part, name in names.items()}
            arrays = {part: np.asarray(dataset[()]) for part, dataset in datasets.items() if dataset is not None}
            if "features" not in arrays:
                what = f"{' and '.join(names[part] for part in arrays)} without {names['features']}"
                raise MissingRecordError(what, where=where, fix="extract this image again")
            pair = np.ravel(datasets["features"].attrs.get("size", ()))
        size = pixel_size(pair[:1], pair[1:], where) if pair.size else None
        boxes, probabilities = arrays.get("boxes"), arrays.get("cls_prob")
        return self.parts(id, arrays["features"], where, boxes=boxes, probabilities=probabilities, size=size)

    def _row_parts(self, id: str, where: str) -> dict[str, Any]:
        file, boxes = self._file(), None
        with damage(where):
            features = np.asarray(dataset_of(file, "image_features", where)[int(id)])
            dataset = dataset_of(file, "image_bb", where)
            if dataset is not None:
                if len(dataset) != len(self):
                    what = f"{len(dataset)} rows of image_bb for {len(self)} of image_features"
                    raise CountError(what, where=where, fix="extract both together")
                boxes = np.asarray(dataset[int(id)])
        return self.parts(id, features, where, boxes=boxes)


def has_name(file: Any, name: str) -> bool:
    """Whether an open file has something of that name, without following links."""
    return file.get(name, getlink=True) is not None


def _layout(file: Any, path: Path) -> str:
    if has_name(file, "image_features"):
        return "rows"
    if all(has_name(file, name) for name in _GVD):
        return "gvd"
    first = list(map(_text, itertools.islice(file, 6)))
    if any(key.endswith(_FEATURES) for key in first):
        return "m2"
    if not first or not set(first).isdisjoint({"feats", "boxes"}) or any(_is_group(file, name) for name in first):
        return "unknown"
    datasets = [dataset_of(file, key, path) for key in first]
    floats = all(array is not None and array.dtype.kind == "f" and 1 <= array.ndim <= 3 for array in datasets)
    return "per id" if floats else "unknown"


def _is_group(file: Any, name: str) -> bool:
    import h5py

    return isinstance(file.get(name, getlink=True), h5py.HardLink) and not isinstance(file[name], h5py.Dataset)


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "replace")  # bytes where a name is no UTF-8


def _matches(probe: Probe) -> bool:
    """An HDF5 file in one of the layouts; a damaged one unless its name is that of labels or a precomp part."""
    if not probe.head.startswith(HDF5_MAGIC):
        return False
    with contextlib.suppress(SightlineError), open_hdf5(probe.path) as file, damage(probe.path):
        return _layout(file, probe.path) != "unknown"
    return not any(part in probe.name for part in ("label", "_ims", "talk"))


def _survey(path: Path, problems: Problems) -> Summary:
    with contextlib.suppress(DataError), open_hdf5(path) as file, damage(path):
        if _layout(file, path) == "gvd":
            boxes, counts = dataset_of(file, "dets_labels", path), dataset_of(file, "nms_num", path)
            images = len(boxes)
            if images != len(counts):
                problems.report(CountError(f"{images} rows of dets_labels for {len(counts)} of nms_num", where=path))
            note = "GVD's detections; the features are in a folder of <image id>.npy"
            return {"images": images, "boxes per image": int(boxes.shape[1])}, [note]
    return survey_scenes(path, Hdf5Features, problems)


def write_scenes(path: PathLike, scenes: Iterable[Scene]) -> int:
    """Write M2's layout: `<id>_features`, and where the scene has them `<id>_boxes` in pixels and `<id>_cls_prob`.

    `<id>_features` carries the image size as its attribute `size`; `<id>_cls_prob` is (n, 1), the score of each region.
    """
    h5py = library("h5py", "writing HDF5")
    with atomic_path(path) as draft, _Disk(draft, "w+") as disk:
        with h5py.File(disk, "w") as file:
            count = write_each(scenes, path, lambda scene: _put(file, scene, disk))
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


def _put(file: Any, scene: Scene, disk: _Disk) -> None:
    id = plain_name(scene)
    features = file.create_dataset(f"{id}{_FEATURES}", data=regions_of(scene, "M2's hdf5"))
    if scene.size is not None:
        features.attrs["size"] = scene.size
    if scene.boxes is not None:
        file[f"{id}_boxes"] = scene.pixel_boxes()
    if scene.scores is not None:
        file[f"{id}_cls_prob"] = scene.scores[:, None]
    disk.check()


FORMAT = scene_format(
    "m2-hdf5",
    "Region features in one HDF5 file: M2's <id>_features, self-critical's dataset per id, POS-SCAN's rows",
    _matches,
    Hdf5Features,
    write_scenes,
    ("boxes", "scores", "regions", "size"),
    _survey,
)
