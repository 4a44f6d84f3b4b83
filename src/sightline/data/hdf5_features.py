"""Region features in one HDF5 file, in the layouts people have.

- M2: `<id>_features` (n, d), perhaps `<id>_boxes` (pixels) and `<id>_cls_prob` (n, classes).
- self-critical: a dataset per id.
- POS-SCAN's source: `image_features` (images, n, d), whose rows are images without ids; the boxes of its `image_bb` are
  in pixels of an unknown size, and not read.
- GVD's `dets_labels` and `nms_num` are recognised and counted: they are detections of features stored elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.feature_source import (
    BOXES_LEFT_OUT,
    FeatureSource,
    atomic_path,
    feature_parts,
    library,
    pixel_size,
    plain_name,
    regions_of,
    scene_format,
    survey_scenes,
    write_each,
)
from sightline.data.format import Probe, Summary
from sightline.data.hdf5_file import HDF5_MAGIC, Hdf5File, damage
from sightline.data.records import Problems
from sightline.errors import DataError, MissingRecordError, SightlineError
from sightline.files import PathLike
from sightline.scene import Scene

_FEATURES = "_features"
_M2 = re.compile(r"(?P<id>.*)_(?:features|boxes|cls_prob)", re.DOTALL)
_PARTS = ("features", "boxes", "cls_prob")  # of an image in M2's layout
_LAYOUTS = {
    "m2": "layout: <id>_features",
    "per id": "layout: a dataset per id",
    "rows": "layout: image_features, whose images are known by their row only",
}


class Hdf5Features(FeatureSource):
    """Scenes of one HDF5 file. Boxes are in pixels; without the image's size they are left out."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._file = Hdf5File(self.path)
        self.layout = _layout(self._file)
        if self.layout == "gvd":
            fix = "read the folder of <image id>.npy that came with it"
            raise DataError("these are GVD's detections, without the features", where=self.path, fix=fix)
        if self.layout == "unknown":
            what = "neither <id>_features, nor image_features, nor a floating-point dataset per id"
            fix = "check that it is a feature file; `*_ims.h5` belongs to its folder: name that"
            raise DataError(what, where=self.path, fix=fix)

    def build_index(self) -> dict[str, int]:
        if self.layout == "rows":
            return {str(row): row for row in range(len(self._file.dataset("image_features")))}
        names = self._file.names()
        if self.layout == "m2":
            names = [match["id"] for match in map(_M2.fullmatch, names) if match]
        return {id: place for place, id in enumerate(dict.fromkeys(names))}

    def notes(self) -> tuple[str, ...]:
        unplaced = (BOXES_LEFT_OUT,) if self.layout == "rows" and self._file.has("image_bb") else ()
        return (_LAYOUTS[self.layout], *super().notes(), *unplaced)

    def read(self, id: str) -> Scene:
        where = f"{self.path}, image {id}"
        if self.layout == "rows":
            features = self._file.read("image_features", where, self.index[id])
            return Scene(id, **feature_parts(features, where), source=str(self.path))
        names = {part: f"{id}_{part}" for part in _PARTS} if self.layout == "m2" else {"features": id}
        datasets = {part: self._file.dataset(name, where) for part, name in names.items()}
        with damage(where):
            arrays = {part: np.asarray(dataset[()]) for part, dataset in datasets.items() if dataset is not None}
            if "features" not in arrays:
                what = f"{' and '.join(names[part] for part in arrays)} without {names['features']}"
                raise MissingRecordError(what, where=where, fix="extract this image again")
            pair = np.ravel(datasets["features"].attrs.get("size", ()))
        size = pixel_size(pair[:1], pair[1:], where) if pair.size else None
        boxes, probabilities = arrays.get("boxes"), arrays.get("cls_prob")
        parts = self.parts(id, arrays["features"], where, boxes=boxes, probabilities=probabilities, size=size)
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


def _survey(path: Path, problems: Problems) -> Summary:
    """What a file holds; of GVD's detections, how many there are."""
    file = Hdf5File(path)
    if _layout(file) != "gvd":
        return survey_scenes(path, Hdf5Features, problems)
    boxes = file.dataset("dets_labels")
    if boxes is None or boxes.ndim != 3:
        raise DataError("`dets_labels` is not (images, boxes, numbers)", where=path)
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
