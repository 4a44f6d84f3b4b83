"""What feature files share: iteration and inspection, the parts of a scene, and files and folders made whole."""

import contextlib
import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.format import Format, Probe, Summary
from sightline.data.numpy_files import AnyArray
from sightline.data.records import Problems
from sightline.errors import (
    CountError,
    DataError,
    DuplicateRecordError,
    MissingRecordError,
    NonFiniteError,
    about,
    plural,
)
from sightline.files import MAKE_ROOM, PathLike, existing_path, sync_folder, unwritable
from sightline.scene import Array, Scene, check_order, normalise_boxes

Size = tuple[int, int]
_NO_SIZE = "they are in pixels, and no image size is stored"
_SLASH = "%2F"  # as addresses spell it
BOXES_LEFT_OUT = f"boxes left out: {_NO_SIZE}"


class FeatureSource(ABC):
    """A `SceneSource` over one file or folder. Nothing is read before it is asked for, nothing is kept after.

    Sources hold a path and an index, no open file, or one per process: they may be pickled, and used after a fork.
    Errors of `read` that name no place are about the file and the image.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = existing_path(path)
        self._left_out: dict[str, set[str]] = {}  # ids by the part that their scenes lack though the file has it

    @property
    @abstractmethod
    def index(self) -> Mapping[str, Any]:
        """Where in the file each image is, by id and in file order."""

    def ids(self) -> list[str]:
        return list(self.index)

    @abstractmethod
    def read(self, id: str) -> Scene:
        """The scene of an id that is in the index."""

    def notes(self) -> tuple[str, ...]:
        """What a reader of this file should know; what is left out is known once the scenes were read."""
        reasons = {"boxes": _NO_SIZE, "scores": "the stored order of the regions is not by descending score"}
        return tuple(
            f"{part} of {plural(len(ids), 'image')} left out: {reasons[part]}" for part, ids in self._left_out.items()
        )

    def each(self, problems: Problems) -> Iterator[Scene]:
        """Every scene in file order; what is wrong with one goes to `problems`."""
        first_widths: dict[str, int] = {}
        for id in self.index:
            with problems:
                with about(f"{self.path}, image {id}"):
                    scene = self.read(id)
                _check_widths(scene, first_widths)
                yield scene

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Scene]:
        return self.each(Problems())

    def __contains__(self, id: object) -> bool:
        return id in self.index

    def __getitem__(self, id: str) -> Scene:
        if id in self:
            with about(f"{self.path}, image {id}"):
                return self.read(id)
        digits = id.rsplit(".", 1)[0].rsplit("_", 1)[-1].lstrip("0")
        hint = f"this file calls it {digits}" if digits in self else "check its spelling and leading zeros"
        raise MissingRecordError(f"no features of image {id} among the {len(self)} here", where=self.path, fix=hint)

    def parts(
        self,
        id: str,
        features: AnyArray,
        *,
        boxes: AnyArray | None = None,
        probabilities: AnyArray | None = None,
        size: Size | None = None,
    ) -> dict[str, Any]:
        """The parts of a scene from the arrays stored for it; all are checked, also those the scene cannot have."""
        parts = feature_parts(features)
        count = len(parts["regions"]) if "regions" in parts else None
        if probabilities is not None:
            parts |= score_parts(probabilities, count)
        if boxes is not None:
            _check_numbers("boxes", boxes, (2,), count)
            check_order(boxes)
        if size is not None:
            parts["size"] = size
            if boxes is not None:  # without a size they have no unit, and are left out
                parts["boxes"] = normalise_boxes(boxes, size)
        for part, stored in (("boxes", boxes), ("scores", probabilities)):
            if stored is not None and part not in parts:
                self._left_out.setdefault(part, set()).add(id)
        return parts


def existing_folder(path: PathLike) -> Path:
    folder = existing_path(path)
    if not folder.is_dir():
        raise DataError("this is a file, a folder was expected", where=folder, fix=f"name {folder.parent}")
    return folder


def feature_parts(features: AnyArray) -> dict[str, Any]:
    """The part of a scene that an array is: (d,) a global vector, (n, d) regions, (h, w, d) a grid."""
    if features.dtype.kind != "f":
        raise DataError(f"features are {features.dtype}, floating point was expected")
    if features.size == 0:
        raise CountError(f"features have shape {features.shape}: none at all", fix="extract them again")
    if features.ndim == 1:
        return {"vector": features}
    if features.ndim == 2:
        return {"regions": features}
    if features.ndim == 3:
        height, width, depth = features.shape
        return {"grid": features.reshape(height * width, depth), "grid_shape": (height, width)}
    raise DataError(f"features have shape {features.shape}", fix="store (n, d) region features")


def pixel_size(width: Any, height: Any) -> Size:
    """(width, height) from two stored numbers."""
    sides = [np.ravel(value) for value in (width, height)]
    if not all(side.dtype.kind in "fiu" and side.size == 1 and 1 <= side[0] < 1 << 31 for side in sides):
        what = f"the stored image size is {sides[0][:3]} × {sides[1][:3]}"
        raise DataError(what, fix="store its width and height in pixels")
    return int(sides[0][0]), int(sides[1][0])


def score_parts(probabilities: AnyArray, count: int | None) -> dict[str, Any]:
    """`scores` from per-class probabilities (n, classes), background first, or from confidences (n,) or (n, 1).

    Scenes keep their stored order, and their scores descend. Files of 10 to 100 boxes are often not in that order:
    then the scores are left out rather than the regions moved.
    """
    _check_numbers("cls_prob", probabilities, (1, 2), count)
    table = probabilities.reshape(len(probabilities), -1)
    scores = table[:, min(1, table.shape[1] - 1) :].max(axis=1)
    scores = scores.astype(np.result_type(scores, np.float16), copy=False)  # whole numbers become floats
    return {"scores": scores} if np.all(scores[1:] <= scores[:-1]) else {}


def _check_numbers(name: str, stored: AnyArray, dimensions: tuple[int, ...], count: int | None) -> None:
    if stored.dtype.kind not in "fiu":
        raise DataError(f"`{name}` is {stored.dtype}, numbers were expected")
    if stored.ndim not in dimensions or stored.size == 0:
        raise DataError(f"`{name}` has shape {stored.shape}", fix="store one row a region")
    if count is not None and len(stored) != count:
        fix = "extract the features and boxes together"
        raise CountError(f"{len(stored)} rows of `{name}` for {count} regions", fix=fix)
    if not np.isfinite(stored).all():
        fix = "extract this image again; nothing is replaced silently"
        raise NonFiniteError(f"`{name}` holds NaN or infinity", fix=fix)


def _check_widths(scene: Scene, first: dict[str, int]) -> None:
    """Refuse features of another width than the first ones had, which `first` remembers."""
    for part, features in (("regions", scene.regions), ("grid", scene.grid), ("vector", scene.vector)):
        if features is None or not features.shape[-1]:
            continue
        width = features.shape[-1]
        if first.setdefault(part, width) != width:
            what = f"features ({part}) are {width} wide, those of the first image {first[part]}"
            raise CountError(what, where=scene.where, fix="keep features of different models in different files")


def other_files(names: Iterable[str]) -> tuple[str, ...]:
    """The note on files of a folder that its reader has no use for."""
    others = sorted(name for name in names if not name.startswith("."))
    more = f" and {len(others) - 5} more" if len(others) > 5 else ""
    return (f"other files here, to be named one by one: {', '.join(others[:5])}{more}",) if others else ()


def unique_scenes(scenes: Iterable[Scene], where: PathLike) -> Iterator[Scene]:
    """The scenes to be written to `where`; an id that comes twice is refused."""
    ids: set[str] = set()
    for scene in scenes:
        if scene.id in ids:
            raise DuplicateRecordError(f"image {scene.id} comes twice", where=where, fix="write each image once")
        ids.add(scene.id)
        yield scene


def plain_name(scene: Scene) -> str:
    """The scene's id, refused where it cannot name a record."""
    if not scene.id or scene.id.startswith(".") or any(c in scene.id for c in "\\\0\t\r\n"):
        fix = "use ids without backslashes, tabs or a leading dot"
        raise DataError(f"the id {scene.id!r} cannot name a record", where=scene.where, fix=fix)
    return scene.id


def flat_name(scene: Scene) -> str:
    """`plain_name` where a slash would be a folder: `sub/cat.jpg` is `sub%2Fcat.jpg`, which `id_of` reads."""
    if _SLASH in scene.id:
        what = f"the id {scene.id!r} has {_SLASH} in it, which stands for a slash"
        raise DataError(what, where=scene.where, fix="rename the photo, and extract it again")
    return plain_name(scene).replace("/", _SLASH)


def id_of(flat: str) -> str:
    """The id that `flat_name` wrote.

    >>> id_of("sub%2Fcat.jpg")
    'sub/cat.jpg'
    """
    return flat.replace(_SLASH, "/")


def regions_of(scene: Scene, by: str) -> Array:
    """The regions of a scene to be written `by` a format: it must have one at least."""
    regions = scene.require("regions", by=by).regions
    assert regions is not None
    if regions.size == 0:
        raise CountError(f"the scene has no region, and {by} needs one", where=scene.where, fix="leave this image out")
    return regions


def scene_format(
    name: str,
    about: str,
    matches: Callable[[Probe], bool],
    source: Callable[[Path], FeatureSource],
    write_scenes: Callable[[Path, Iterable[Scene]], int],
    keeps: tuple[str, ...],
) -> Format:
    """A format that holds nothing but the scenes of a `source`."""
    survey = partial(survey_scenes, source)
    return Format(name, about, matches, survey, scenes=source, write_scenes=write_scenes, keeps=keeps)


def survey_scenes(open_source: Callable[[Path], FeatureSource], path: Path, problems: Problems) -> Summary:
    """Read every scene, one at a time, and count: images, regions, widths, and which parts they have."""
    parts: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    kinds: set[str] = set()
    notes: tuple[str, ...] = ()
    with problems, about(path):
        source = open_source(path)
        try:
            for scene in source.each(problems):
                parts.update(("images", *scene.parts()))
                lengths[len(scene)] += 1
                features = [part for part in (scene.regions, scene.grid, scene.vector) if part is not None]
                kinds.update(f"{part.shape[-1]} × {part.dtype}" for part in features[:1])
        finally:
            notes = source.notes()
    del lengths[0]
    counts: dict[str, int | str] = {"images": parts["images"]}
    if lengths:
        least, most = min(lengths), max(lengths)
        counts["regions"] = sum(length * images for length, images in lengths.items())
        counts["regions per image"] = str(least) if least == most else f"{least}–{most}"
    if kinds:
        counts["features"] = ", ".join(sorted(kinds))
    labels = {"boxes": "with boxes", "scores": "with scores", "vector": "with a global vector"}
    return counts | {label: parts[part] for part, label in labels.items() if parts[part]}, notes


class PerProcess:
    """One open handle a process, for libraries whose handles must not cross a fork or a pickle (HDF5, LMDB).

    Call it for this process's handle: made by `make` at the first call, and again in every forked or spawned worker.

    >>> numbers = PerProcess(list)
    >>> numbers() is numbers()
    True
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._handle: tuple[int, Any] | None = None  # with the id of the process that made it

    def __call__(self) -> Any:
        if self._handle is None or self._handle[0] != os.getpid():
            self._handle = (os.getpid(), self._make())
        return self._handle[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_handle": None}


@contextlib.contextmanager
def atomic_path(path: PathLike, fix: str = MAKE_ROOM) -> Iterator[Path]:
    """A path beside `path` at which a library writes a file or a folder; on success it takes `path`'s place, else it
    vanishes. A full disk, or no permission, is a DataError that names `path`, and the `fix`.
    """
    target = Path(path)
    draft = target.with_name(f".{secrets.token_hex(8)}.tmp")  # short: that of `target` may be as long as can be
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield draft
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(target, error, fix) from error


@contextlib.contextmanager
def atomic_folder(path: PathLike, fix: str = MAKE_ROOM) -> Iterator[Path]:
    """`atomic_path` of a new folder. A folder with something in it is refused."""
    target = Path(path)
    with atomic_path(target, fix) as draft:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise DataError("there is something here already", where=target, fix="name a new folder, or empty this one")
        draft.mkdir()
        yield draft
        if target.exists():
            target.rmdir()  # Windows does not rename onto an empty folder
