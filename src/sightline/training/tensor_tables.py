"""Scenes and sentences of a whole split as tensors, so that a batch is a selection of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import ConfigError, CountError
from sightline.scene import Scene
from sightline.text.vocabulary import PAD, Vocabulary
from sightline.vision.concept_tokens import stored_names

Mark = Callable[[Sequence[Sequence[str]]], Sequence[Sequence[bool]]]
PARTS = ("regions", "boxes", "scores", "grid", "vector")


class Scenes(Protocol):
    """The scenes of a split, by row."""

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor) -> SceneBatch:
        """The scenes of `rows`, in that order."""
        ...


@dataclass(frozen=True, eq=False)
class SceneTable:
    """All scenes in memory, features as they are stored (often float16); a batch is float32."""

    scenes: SceneBatch  # of all photos, the views of one next to each other: the whole photo first, then parts of it
    views: int = 1  # of each photo

    @classmethod
    def build(
        cls, scenes: Iterable[Scene], needs: Sequence[str] = (), vocabulary: Vocabulary | None = None
    ) -> SceneTable:
        """Collate all scenes, with only the parts in `needs` (boxes and scores come with regions)."""
        return cls(collate([_only(scene, parts_of(needs)) for scene in scenes], vocabulary, needs))

    def __len__(self) -> int:
        return len(self.scenes) // self.views

    def batch(self, rows: Tensor, views: Tensor | None = None) -> SceneBatch:
        """The scenes of `rows`: the whole photo of each, or the view whose number is in `views` (B,)."""
        rows = rows * self.views + (0 if views is None else views)
        parts: dict[str, Any] = {}
        for name, part in vars(self.scenes).items():
            if isinstance(part, Tensor):
                part = part.index_select(0, rows.to(part.device))
                parts[name] = part.float() if part.is_floating_point() else part
        ids = tuple(self.scenes.ids[row] for row in rows.tolist())
        shapes = tuple(self.scenes.grid_shapes[row] for row in rows.tolist())
        return SceneBatch(ids=ids, grid_shapes=shapes, fingerprint=self.scenes.fingerprint, **parts)


@dataclass(frozen=True, eq=False)
class SceneStream:
    """Scenes read from their file when a batch asks for them: for feature sets that do not fit into memory."""

    read: Callable[[str], Scene]  # the scene of an id
    ids: tuple[str, ...]
    needs: tuple[str, ...] = ()
    vocabulary: Vocabulary | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: Tensor) -> SceneBatch:
        scenes = [_only(self.read(self.ids[row]), parts_of(self.needs)) for row in rows.tolist()]
        return collate(scenes, self.vocabulary, self.needs).to("cpu", torch.float32)


@dataclass(frozen=True, eq=False)
class TextTable:
    """All sentences of a split as ids: START, words, END, padding."""

    words: tuple[tuple[str, ...], ...]  # surface words of each sentence, cut to the length limit
    ids: Tensor  # (M, T)
    lengths: Tensor  # (M,) ids a sentence has
    tagged: Tensor | None = None  # (M, T) words of the chosen parts of speech, or None

    @classmethod
    def build(
        cls,
        sentences: Sequence[Sequence[str]],
        vocabulary: Vocabulary,
        max_words: int | None = None,
        mark: Mark | None = None,
    ) -> TextTable:
        """Encode sentences of words; `mark` tells which words are of the chosen parts of speech."""
        texts = TextBatch.collate(sentences, vocabulary, max_words=max_words, mark=mark)
        return cls(texts.words, texts.ids.to(torch.int32), texts.lengths, texts.tagged)

    def __len__(self) -> int:
        return len(self.words)

    def batch(self, rows: Tensor, width: int | None = None) -> TextBatch:
        """The sentences of `rows`, padded to the longest of them, or to `width` ids."""
        width = width or int(self.lengths[rows].max())
        ids = self.ids[rows, :width].long()
        tagged = None if self.tagged is None else self.tagged[rows, :width]
        return TextBatch(tuple(self.words[row] for row in rows.tolist()), ids, ids != PAD, tagged)


@dataclass(frozen=True, eq=False)
class Pool:
    """The photos of one split with their scenes and captions; captions of photo i are rows first[i] to first[i + 1]."""

    ids: tuple[str, ...]  # of the photos
    scenes: Scenes | None = None  # what was seen in them; None for a pool of texts alone
    texts: TextTable | None = None  # their captions, photo after photo; None for photos alone
    first: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None  # (P + 1,) where each photo's captions begin
    references: tuple[tuple[str, ...], ...] = ()  # the raw captions of each photo, for scoring
    # how far regions truly show a word (`word_boxes.word_overlaps`), by caption row: (t, n) IoU, -1 for words without
    # annotation; None without grounding annotations
    positives: dict[int, Tensor] | None = None

    def __post_init__(self) -> None:
        if self.scenes is not None and len(self.scenes) != len(self.ids):
            raise CountError(f"{len(self.scenes)} scenes for {len(self.ids)} photos")
        if self.texts is not None and (self.first is None or int(self.first[-1]) != len(self.texts)):
            raise CountError(f"{len(self.texts)} captions do not follow from where photos' captions begin")

    def __len__(self) -> int:
        return len(self.ids)

    def scene_batch(self, rows: Tensor) -> SceneBatch:
        if self.scenes is None:
            raise ConfigError("the split has no scenes", fix="give data.features")
        return self.scenes.batch(rows)

    def captions(self, by: str) -> tuple[TextTable, Tensor]:
        """The captions, and (P + 1,) where each photo's begin; an error where there are none, which `by` needs."""
        if self.texts is None or self.first is None:
            raise ConfigError(f"{by} needs captions, and there are none", fix="give data.captions")
        return self.texts, torch.from_numpy(self.first)


def collate(
    scenes: Sequence[Scene], vocabulary: Vocabulary | None, needs: Sequence[str], by: str = "this model"
) -> SceneBatch:
    """`SceneBatch.collate`; where a model needs `names`, they are read from concepts, and a scene may have none."""
    batch = SceneBatch.collate(scenes, vocabulary, [part for part in needs if part != "names"], by)
    names: dict[str, Any] = stored_names(scenes) if "names" in needs else {}
    return replace(batch, **names)


def parts_of(needs: Sequence[str]) -> set[str]:
    """What is kept of a scene for a model that reads `needs`: boxes and scores come with regions, names as concepts."""
    return {*needs, *(("boxes", "scores") if "regions" in needs else ()), *(("concepts",) if "names" in needs else ())}


def _only(scene: Scene, keep: set[str]) -> Scene:
    return Scene(
        scene.id,
        **{name: getattr(scene, name) for name in PARTS if name in keep},
        grid_shape=scene.grid_shape if "grid" in keep else None,
        concepts=scene.concepts if "concepts" in keep else (),
        size=scene.size,
        fingerprint=scene.fingerprint,
        source=scene.source,
    )
