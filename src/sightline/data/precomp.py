"""`*_precomp` folders of SCAN, VSRN and VSE++: `{train,dev,test,testall}_ims.npy`, `_caps.txt`, `_ids.txt`.

POS-SCAN's variant has `_ims.h5` (`feats`), `_ims_box.h5` (`boxes`, in pixels), `_files.json` and `_tags.txt`. Line k of
`_caps.txt` belongs to image k // 5, or to image k where there are as many feature rows as captions. Ids are unique in
what is read, one split or the folder: see `precomp_split.image_ids`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from sightline.data.atomic_paths import atomic_folder
from sightline.data.feature_source import (
    FeatureSource,
    Sizes,
    distinct,
    existing_folder,
    passed_over,
    regions_of,
    size_of,
    survey,
)
from sightline.data.format import Format, Probe, Report
from sightline.data.precomp_split import PARTS, Split, find_splits, image_ids
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption
from sightline.errors import CountError, DataError, MissingRecordError
from sightline.files import PathLike, write_text
from sightline.scene import Array, Scene

_HEADER = 128  # bytes of the npy header, fixed so that the row count can be filled in at the end


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


def read_captions(path: PathLike, problems: Problems | None = None, split: str | None = None) -> CaptionSet:
    """The photos of one split, or of every split that has captions, with the ids `PrecompFeatures` gives them.

    Sentences have tokens and Penn tags where there is `_tags.txt`.
    """
    folder, met = existing_folder(path), Problems() if problems is None else problems
    splits = {name: one for name, one in find_splits(folder).items() if split in (None, name)}
    if split is not None and not splits:
        raise MissingRecordError(f"no split {split!r}", where=folder, fix=f"there must be {split}_caps.txt")
    ids = image_ids(splits.values())
    photos: list[CaptionedPhoto] = []
    for one in splits.values():
        if one.part("caps.txt"):
            try:
                photos.extend(_photos(one, ids[one.name], met))
            except DataError as error:
                met.report(error)
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
