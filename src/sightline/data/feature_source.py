"""What the readers of feature files share: ids, strict and collecting iteration, inspection, and the scene's parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.format import Format, Report
from sightline.data.records import Problems
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError
from sightline.files import PathLike, existing
from sightline.scene import Array, Scene, normalise_boxes

Size = tuple[int, int]
Sizes = Mapping[str, Size]


class FeatureSource(ABC):
    """A `SceneSource` over one file or folder. Nothing is read before it is asked for, nothing is kept after.

    Sources hold a path and an index, no open file, or one per process: they may be pickled, and used after a fork.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = existing(path)

    @abstractmethod
    def ids(self) -> Sequence[str]:
        """Every image id, in file order."""

    @abstractmethod
    def read(self, id: str) -> Scene:
        """The scene of an id that `ids` lists."""

    def notes(self) -> tuple[str, ...]:
        """What a reader of this file should know."""
        return ()

    def each(self, problems: Problems) -> Iterator[Scene]:
        """Every scene in file order; what is wrong with one goes to `problems`."""
        for id in self.ids():
            try:
                scene = self.read(id)
            except DataError as error:
                problems.report(error)
            else:
                yield scene

    def __len__(self) -> int:
        """How many scenes there are."""
        return len(self.ids())

    def __iter__(self) -> Iterator[Scene]:
        return self.each(Problems())

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def __getitem__(self, id: str) -> Scene:
        if id not in self._known:
            raise self._missing(id)
        return self.read(id)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.ids())

    def _missing(self, id: str) -> MissingRecordError:
        digits = id.rsplit(".", 1)[0].rsplit("_", 1)[-1].lstrip("0")
        hint = f"this file calls it {digits}" if digits in self._known else "check its spelling and leading zeros"
        return MissingRecordError(f"no features of image {id} among the {len(self)} here", where=self.path, fix=hint)


def existing_folder(path: PathLike) -> Path:
    """`path` as a Path, or a DataError if it is no folder."""
    folder = existing(path)
    if not folder.is_dir():
        raise DataError("this is a file, a folder was expected", where=folder, fix=f"name {folder.parent}")
    return folder


def feature_parts(features: Array, where: str) -> dict[str, Any]:
    """The part of a scene that an array is: (d,) a global vector, (n, d) regions, (h, w, d) a grid."""
    if not np.issubdtype(features.dtype, np.floating):
        raise DataError(f"features are {features.dtype}, floating point was expected", where=where)
    if features.ndim == 1:
        return {"vector": features}
    if features.ndim == 2:
        return {"regions": features}
    if features.ndim == 3:
        height, width, depth = features.shape
        return {"grid": features.reshape(height * width, depth), "grid_shape": (height, width)}
    raise DataError(f"features have shape {features.shape}", where=where, fix="store (n, d) region features")


def box_parts(boxes: Array | None, size: Size | None, where: str) -> dict[str, Any]:
    """`boxes` and `size` of a scene from boxes in pixels; without a size the boxes are left out, for want of a unit."""
    if size is None:
        return {}
    return {"size": size} if boxes is None else {"size": size, "boxes": normalise_boxes(boxes, size, where)}


def size_of(id: str, sizes: Sizes | None, where: str) -> Size | None:
    """The size of image `id`: None without `sizes`, an error if they lack this one."""
    if sizes is None:
        return None
    if id not in sizes:
        raise MissingRecordError(
            f"`sizes` lacks image {id}", where=where, fix="give the (width, height) of every image"
        )
    return sizes[id]


def score_parts(probabilities: Array | None) -> dict[str, Any]:
    """`scores` from per-class probabilities (n, classes), background first, or from confidences (n,) or (n, 1).

    Scenes keep their stored order, and their scores descend. Files of 10 to 100 boxes are often not in that order:
    then the scores are left out rather than the regions moved.
    """
    if probabilities is None or probabilities.size == 0:
        return {}
    table = probabilities.reshape(len(probabilities), -1)
    scores = table[:, min(1, table.shape[1] - 1) :].max(axis=1)
    return {"scores": scores} if np.all(scores[1:] <= scores[:-1]) else {}


def distinct(scenes: Iterable[Scene], where: PathLike) -> Iterator[Scene]:
    """The scenes a writer is given, refusing an id that comes twice."""
    seen: set[str] = set()
    for scene in scenes:
        if scene.id in seen:
            raise DuplicateRecordError(f"image {scene.id} comes twice", where=where, fix="write each image once")
        seen.add(scene.id)
        yield scene


def plain_name(scene: Scene) -> str:
    """The scene's id, refused where it cannot name a file or dataset."""
    if not scene.id or scene.id.startswith(".") or any(c in scene.id for c in "/\\\0\t\r\n"):
        raise DataError(
            f"the id {scene.id!r} cannot name a record", where=scene.where, fix="use ids without slashes, tabs or dots"
        )
    return scene.id


def inspect_scenes(path: Path, format: Format, open_source: Callable[[Path], FeatureSource]) -> Report:
    """Read every scene of `path`, one at a time, counting what is there and collecting what is wrong."""
    problems = Problems(collect=True)
    counts, notes = survey(path, open_source, problems)
    return Report.of(path, format, counts, problems, notes)


def survey(
    path: Path, open_source: Callable[[Path], FeatureSource], problems: Problems
) -> tuple[dict[str, int | str], tuple[str, ...]]:
    """The counts and notes of `inspect_scenes`."""
    tally = Tally()
    notes: tuple[str, ...] = ()
    try:
        source = open_source(path)
        notes = source.notes()
        for scene in source.each(problems):
            tally.add(scene)
    except DataError as error:
        problems.report(error)
    return tally.counts(), notes


class Tally:
    """Counts over scenes: images, regions, widths, and which parts they have."""

    def __init__(self) -> None:
        self._parts: Counter[str] = Counter()
        self._regions: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()

    def add(self, scene: Scene) -> None:
        """Count one scene."""
        self._parts.update(("images", *scene.parts()))
        if len(scene):
            self._regions[len(scene)] += 1
        for part in (scene.regions, scene.grid, scene.vector):
            if part is not None:
                self._kinds[f"{part.shape[-1]} × {part.dtype}"] += 1
                break

    def counts(self) -> dict[str, int | str]:
        """The counts, ready for a report."""
        found: dict[str, int | str] = {"images": self._parts["images"]}
        if self._regions:
            least, most = min(self._regions), max(self._regions)
            found["regions"] = sum(n * times for n, times in self._regions.items())
            found["regions per image"] = str(least) if least == most else f"{least}–{most}"
        if self._kinds:
            found["features"] = ", ".join(sorted(self._kinds))
        for part, label in (("boxes", "with boxes"), ("scores", "with scores"), ("vector", "with a global vector")):
            if self._parts[part]:
                found[label] = self._parts[part]
        return found
