"""The torch forms of scenes and sentences: padded, masked, ready for models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sightline.errors import CountError, DataError, MissingPartError
from sightline.scene import Array, Scene
from sightline.text.vocabulary import PAD, Vocabulary

MASKS = {  # the part that tells which elements of a part are padding
    "regions": "region_mask",
    "boxes": "region_mask",
    "scores": "region_mask",
    "grid": "grid_mask",
    "concepts": "concept_mask",
    "concept_scores": "concept_mask",
    "true_boxes": "true_box_mask",
    "true_box_names": "true_box_mask",
    "true_box_weights": "true_box_mask",
}


class _Moves:
    """Moves every tensor field of a dataclass to a device."""

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """A copy on `device`; `dtype` changes floating-point tensors only."""
        moved = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                moved[item.name] = value.to(device, dtype if value.is_floating_point() else None, non_blocking=True)
        return replace(self, **moved)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class SceneBatch(_Moves):
    """B scenes, padded with zeros. A part is None where the scenes do not have it; a mask is True where a part is."""

    ids: tuple[str, ...]
    regions: Tensor | None = None  # (B, n, d)
    region_mask: Tensor | None = None  # (B, n)
    boxes: Tensor | None = None  # (B, n, 4) normalised
    scores: Tensor | None = None  # (B, n)
    grid: Tensor | None = None  # (B, L, d)
    grid_mask: Tensor | None = None  # (B, L)
    grid_shapes: tuple[tuple[int, int] | None, ...] = ()  # (h, w) each
    vector: Tensor | None = None  # (B, d)
    concepts: Tensor | None = None  # (B, c) word ids
    concept_mask: Tensor | None = None  # (B, c)
    concept_scores: Tensor | None = None  # (B, c)
    # What the vision model calls what it sees, as places in its list of names (`vision.concept_tokens`).
    names: Tensor | None = None  # (B, k), -1 where there are no more
    name_scores: Tensor | None = None  # (B, k, 2)
    name_boxes: Tensor | None = None  # (B, k, 4)
    sizes: Tensor | None = None  # (B, 2) width and height in pixels, 0 where unknown
    pixels: Tensor | None = None  # (B, 3, H, W) of 0 to 255, for models that look for themselves (`models.end_to_end`)
    # Boxes that are truly there, which detectors learn from.
    true_boxes: Tensor | None = None  # (B, m, 4)
    true_box_mask: Tensor | None = None  # (B, m)
    true_box_names: Tensor | None = None  # (B, m, k) ids of what people call each, -1 where they have no more names
    true_box_weights: Tensor | None = None  # (B, m) how much each counts: 1 if people drew it
    fingerprint: str = ""  # of the vision model that made all of them

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def collate(
        cls,
        scenes: Sequence[Scene],
        vocabulary: Vocabulary | None = None,
        needs: Sequence[str] = (),
        by: str = "this model",
    ) -> SceneBatch:
        """Pad scenes into a batch. Parts in `needs` must be in every scene; others are taken where all have them.

        Concepts become word ids through `vocabulary` (concepts it does not know are left out).
        """
        if not scenes:
            raise CountError("a batch needs at least one scene")
        for scene in scenes:
            scene.require(*needs, by=by)
        fingerprints = {scene.fingerprint for scene in scenes}
        if len(fingerprints) > 1:
            models = ", ".join(sorted(fingerprint or "unknown" for fingerprint in fingerprints))
            what = f"scenes of different vision models in one batch ({models})"
            raise DataError(what, where=scenes[0].where, fix="extract all features with one model")
        parts: dict[str, Tensor | None] = {}
        for name in ("regions", "boxes", "scores", "grid"):
            parts[name], mask = _pad([getattr(scene, name) for scene in scenes])
            if mask is not None:
                parts.setdefault(MASKS[name], mask)
        vector, _ = _pad([None if scene.vector is None else scene.vector[None] for scene in scenes])
        concepts, concept_mask, concept_scores = _concepts(scenes, vocabulary)
        return cls(
            ids=tuple(scene.id for scene in scenes),
            grid_shapes=tuple(scene.grid_shape for scene in scenes),
            vector=None if vector is None else vector[:, 0],
            concepts=concepts,
            concept_mask=concept_mask,
            concept_scores=concept_scores,
            sizes=torch.tensor([scene.size or (0, 0) for scene in scenes]),
            fingerprint=scenes[0].fingerprint,
            **parts,
        )

    def part(self, name: str, by: str = "this model", width: int | None = None) -> Tensor:
        """The tensor of a part; an error where it is not there, or its features are not `width` numbers."""
        if not self.ids:
            raise CountError("a batch needs at least one scene")
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            raise self._missing(name, by, "use features that hold it, or another model")
        if width is not None and value.shape[-1] != width:
            what = f"{by} reads `{name}` of {width} numbers, and these have {value.shape[-1]}"
            fix = "use features of the kind that the model was made for, or make it for these"
            raise CountError(what, where=self._where, fix=fix)
        return value

    @property
    def _where(self) -> str:
        return f"images {self.ids[0]} … {self.ids[-1]}"

    def _missing(self, name: str, by: str, fix: str) -> MissingPartError:
        what = f"{by} needs `{name}`, and not every scene of the batch has it"
        return MissingPartError(what, where=self._where, fix=fix)

    def mask(self, name: str, by: str = "this model") -> Tensor:
        """(B, n) True where an element of a part is: its mask, or True everywhere where the batch has none."""
        value, mask = self.part(name, by), getattr(self, MASKS[name])
        return mask if isinstance(mask, Tensor) else value.new_ones(value.shape[:2], dtype=torch.bool)

    def cell_boxes(self, by: str = "this model") -> Tensor:
        """(B, L, 4) normalised boxes of the grid's cells, row by row of each image's own grid."""
        cells = self.part("grid", by)
        shapes = [shape for shape in self.grid_shapes if shape is not None]
        if len(shapes) != len(cells):
            fix = "use features that hold the shapes of grids, or a model that reads regions alone"
            raise self._missing("grid_shape", by, fix)
        return cell_boxes(torch.tensor(shapes).to(cells.device, non_blocking=True), cells.shape[1])


def cell_boxes(sides: Tensor, count: int) -> Tensor:
    """(B, L, 4) normalised boxes of the first `count` cells of grids of heights and widths `sides` (B, 2)."""
    height, width = sides[:, :, None].unbind(1)  # (B, 1) each
    place = torch.arange(count, device=sides.device)
    y, x = place // width, place % width  # (B, L)
    return torch.stack([x / width, y / height, (x + 1) / width, (y + 1) / height], 2)


@dataclass(frozen=True, eq=False)
class TextBatch(_Moves):
    """B sentences as ids: start, words, end, padding."""

    words: tuple[tuple[str, ...], ...]  # surface words (cut to the length limit), without specials
    ids: Tensor  # (B, T) with T = longest + 2
    mask: Tensor  # (B, T) True on start, words and end
    tagged: Tensor | None = None  # (B, T) True on words of the chosen parts of speech; None without a tagger

    def __len__(self) -> int:
        return len(self.words)

    @property
    def lengths(self) -> Tensor:
        """(B,) ids a sentence has, start and end counted."""
        return self.mask.sum(1)

    @classmethod
    def collate(
        cls,
        sentences: Sequence[Sequence[str]],
        vocabulary: Vocabulary,
        *,
        max_words: int | None = None,
        mark: Callable[[Sequence[Sequence[str]]], Sequence[Sequence[bool]]] | None = None,
    ) -> TextBatch:
        """Encode and pad sentences of words. `mark` tells which words of each whole sentence are of the chosen kind."""
        if not sentences:
            raise CountError("a batch needs at least one sentence")
        words = tuple(tuple(sentence[:max_words]) for sentence in sentences)
        encoded = [vocabulary.encode(sentence) for sentence in words]
        lengths = torch.tensor([len(e) for e in encoded])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = torch.full(mask.shape, PAD, dtype=torch.long)
        ids[mask] = torch.from_numpy(np.fromiter(chain.from_iterable(encoded), np.int64, int(lengths.sum())))
        tagged = None
        if mark is not None:
            tagged = torch.zeros_like(mask)
            for row, flags, sentence in zip(tagged, mark(sentences), words, strict=True):
                row[1 : len(sentence) + 1] = torch.tensor(flags[: len(sentence)], dtype=torch.bool)
        return cls(words, ids, mask, tagged)


def _pad(parts: Sequence[Array | None]) -> tuple[Tensor | None, Tensor | None]:
    """Stack arrays of different first dimension, padded with zeros; the mask is True where there is data."""
    arrays = [part for part in parts if part is not None]
    if not arrays or len(arrays) != len(parts):
        return None, None
    widths = {array.shape[1:] for array in arrays}
    if len(widths) > 1:
        raise CountError(f"features of different width in one batch: {sorted(widths)}", fix="use one feature source")
    counts = [len(array) for array in arrays]
    dtype = np.result_type(*arrays)
    padded = np.zeros((len(arrays), max(counts), *arrays[0].shape[1:]), dtype=dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    return torch.from_numpy(padded), mask


def _concepts(
    scenes: Sequence[Scene], vocabulary: Vocabulary | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if vocabulary is None or not any(scene.concepts for scene in scenes):
        return None, None, None
    concepts = [[concept for concept in scene.concepts if concept.name in vocabulary] for scene in scenes]
    ids, mask = _pad([np.array([vocabulary.id(concept.name) for concept in row], np.float64) for row in concepts])
    scores, _ = _pad([np.array([concept.score for concept in row], np.float32) for row in concepts])
    assert ids is not None
    return ids.long(), mask, scores
