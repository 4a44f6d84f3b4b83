"""Folders with one npy or npz an image.

- self-critical: `cocobu_att/<id>.npz` (`feat`, or `z` in the test files), and beside it, where they exist,
  `cocobu_fc/<id>.npy` (a global vector) and `cocobu_box/<id>.npy` (boxes in pixels). Name `cocobu_att`, or its parent.
- xmodaler and X-LAN: `<id>.npz` with `features` and perhaps `boxes`, `image_w`, `image_h`, `cls_prob`.
- GVD and POS-SCAN: `<id>.npy` (100, d).

An array (n, d) is regions, (h, w, d) a grid, (d,) a global vector.
"""

import itertools
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.feature_source import (
    FeatureSource,
    atomic_folder,
    existing_folder,
    feature_parts,
    flat_name,
    id_of,
    other_files,
    pixel_size,
    regions_of,
    scene_format,
    unique_scenes,
)
from sightline.data.format import Probe
from sightline.data.numpy_files import AnyArray, parse_arrays
from sightline.errors import CountError, DataError, DuplicateRecordError, MissingRecordError, about
from sightline.files import PathLike, open_bytes
from sightline.scene import Scene

FEATURE_KEYS = ("feat", "features", "z")
WANTED = (*FEATURE_KEYS, "boxes", "cls_prob", "image_w", "image_h")
_SUFFIXES = (".npz", ".npy")
_KIND = re.compile(r"(.+)_(?:att|fc|box)")


class NpzFolder(FeatureSource):
    """Scenes of a folder of npz or npy files, or of the parent of a `*_att` folder.

    Most of these files give boxes in pixels and no image size; the scenes of those have no boxes.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        folder = existing_folder(self.path)
        inside = sorted(entry for entry in folder.iterdir() if entry.name.endswith("_att") and entry.is_dir())
        if len(inside) > 1:
            what = f"several feature folders: {', '.join(one.name for one in inside)}"
            raise DataError(what, where=folder, fix="name one of them")
        self.folder = inside[0] if inside else folder
        self._vectors = _beside(self.folder, "fc")
        self._boxes = _beside(self.folder, "box")

    def read(self, id: str) -> Scene:
        path = self.folder / self.index[id]
        beside = f"{path.stem}.npy"
        with about(f"{path}, image {id}"):
            arrays = _load(path, WANTED)
            key = next((key for key in FEATURE_KEYS if key in arrays), None)
            if key is None:
                raise MissingRecordError("no features in it", fix="store them under `feat` or `features`")
            boxes, probabilities, size = arrays.get("boxes"), arrays.get("cls_prob"), None
            if self._boxes is not None:
                boxes = _load(self._boxes / beside, ("boxes",))["boxes"]
            if "image_w" in arrays and "image_h" in arrays:
                size = pixel_size(arrays["image_w"], arrays["image_h"])
            parts = self.parts(id, arrays[key], boxes=boxes, probabilities=probabilities, size=size)
        if self._vectors is not None:
            vector_path = self._vectors / beside
            with about(f"{vector_path}, image {id}"):
                vector = _load(vector_path, ("vector",))["vector"]
                if vector.ndim != 1:
                    raise DataError(f"its shape is {vector.shape}, one vector was expected")
                parts |= feature_parts(vector)
        return Scene(id, **parts, source=str(path))

    def notes(self) -> tuple[str, ...]:
        vectors = (f"global vectors from {self._vectors.name}",) if self._vectors else ()
        others = other_files(entry.name for entry in self.folder.iterdir() if entry.suffix not in _SUFFIXES)
        return (*vectors, *super().notes(), *others)

    @cached_property
    def index(self) -> dict[str, str]:
        """The name of each image's file."""
        files: dict[str, str] = {}
        for name in sorted(entry.name for entry in self.folder.iterdir()):
            id = id_of(Path(name).stem)
            if Path(name).suffix not in _SUFFIXES or name.startswith("."):
                continue
            if id in files:
                what = f"both {files[id]} and {name} are features of image {id}"
                raise DuplicateRecordError(what, where=self.folder, fix="remove one")
            files[id] = name
        return files


def _beside(folder: Path, kind: str) -> Path | None:
    sibling = folder.with_name(f"{folder.name.removesuffix('_att')}_{kind}")
    return sibling if folder.name.endswith("_att") and sibling.is_dir() else None


def _load(path: Path, wanted: tuple[str, ...]) -> dict[str, AnyArray]:
    if not path.is_file():
        raise MissingRecordError(f"{path.name} is missing from {path.parent}", fix="extract it again")
    with about(path), open_bytes(path) as file:
        return parse_arrays(file.read(), wanted)


def _matches(probe: Probe) -> bool:
    """A folder of npz or npy files that are not `*_ims.npy`, or of nothing but one `*_att`, `*_fc` and `*_box`."""
    names = [name for name in probe.entries if not name.startswith(".")]
    arrays = [name for name in names if name.endswith(_SUFFIXES)]
    if 2 * len(arrays) > len(names):
        return not any(name.endswith("_ims.npy") for name in arrays)
    kinds = [_KIND.fullmatch(name) for name in names]
    stems = {kind[1] for kind in kinds if kind}
    if not all(kinds) or len(stems) != 1 or not (folder := probe.path / f"{stems.pop()}_att").is_dir():
        return False
    return any(entry.suffix in _SUFFIXES for entry in itertools.islice(folder.iterdir(), 50))


def write_scenes(path: PathLike, scenes: Iterable[Scene]) -> int:
    """Write self-critical's folders `cocobu_att`, `cocobu_fc` and, if the scenes have boxes, `cocobu_box`.

    The npz in `att` hold image size and scores too, under xmodaler's names. `fc` is the scene's global vector or, as
    self-critical makes it, the mean of its regions: its models need the file. Read again, either is the scene's vector.
    """
    folders: dict[str, Path] = {}
    count = 0
    with atomic_folder(path) as draft:
        for scene in unique_scenes(scenes, path):
            name, regions = flat_name(scene), regions_of(scene, "self-critical's folders")
            if not folders:
                for kind in ("att", "fc", "box") if scene.boxes is not None else ("att", "fc"):
                    folders[kind] = draft / f"cocobu_{kind}"
                    folders[kind].mkdir()
            arrays: dict[str, Any] = {"feat": regions}
            if scene.size is not None:
                arrays["image_w"], arrays["image_h"] = scene.size
            if scene.scores is not None:
                arrays["cls_prob"] = scene.scores[:, None]
            np.savez_compressed(folders["att"] / f"{name}.npz", **arrays)
            np.save(folders["fc"] / f"{name}.npy", regions.mean(axis=0) if scene.vector is None else scene.vector)
            if scene.boxes is not None and "box" not in folders:
                what = "the first image has no boxes, and this one has"
                raise CountError(what, where=scene.where, fix="give all or none")
            if "box" in folders:
                np.save(folders["box"] / f"{name}.npy", scene.pixel_boxes())
            count += 1
    return count


FORMAT = scene_format(
    "npz-folder",
    "Region features in one npz or npy an image: self-critical's cocobu_att, xmodaler, GVD",
    _matches,
    NpzFolder,
    write_scenes,
    ("boxes", "scores", "regions", "vector", "size"),
)
