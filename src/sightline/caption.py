"""`Caption`: what was said about one photo, and where each word came from. numpy only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sightline.errors import CountError
from sightline.scene import Array, Box, Concept, Scene, as_box


@dataclass(frozen=True, eq=False)
class WordTrace:
    """Where one word came from."""

    log_prob: float | None = None  # natural logarithm of the word's probability
    regions: Array | None = None  # (n,) attention over the scene's regions
    grid: Array | None = None  # (h·w,) attention over the scene's grid cells
    box: Box | None = None  # the normalised box the word points at; function words point nowhere
    score: float | None = None  # how sure that box is, in [0, 1]
    # `relationship` (JRAN) and `sentinel` (AdaptiveAttention) are numbers, `fusion` and `memory` (R2M) small matrices.
    gates: dict[str, float | Array] = field(default_factory=dict)
    others: tuple[Box, ...] = ()  # further boxes that a plural points at

    @property
    def boxes(self) -> tuple[Box, ...]:
        """All boxes the word points at, `box` first."""
        return () if self.box is None else (self.box, *self.others)


@dataclass(frozen=True, eq=False)
class Caption:
    """Words, their log-probability, and per word its trace (empty, or one entry a word)."""

    words: tuple[str, ...]
    log_prob: float = 0.0
    trace: tuple[WordTrace, ...] = ()

    def __post_init__(self) -> None:
        if self.trace and len(self.trace) != len(self.words):
            raise CountError(f"{len(self.words)} words with {len(self.trace)} traces", where=self.text)

    def __len__(self) -> int:
        return len(self.words)

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join(self.words)

    def with_boxes(self, scene: Scene) -> Caption:
        """Point every word that has region attention at the box it attends to most."""
        scene.require("boxes", by="Caption.with_boxes")
        assert scene.boxes is not None
        return Caption(self.words, self.log_prob, tuple(_point(word, scene.boxes) for word in self.trace))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; boxes are normalised."""
        return {"caption": self.text, "log_prob": self.log_prob, "words": self._words_json((1, 1), 4)}

    def _words_json(self, size: tuple[int, int], digits: int) -> list[dict[str, Any]]:
        """Each word with its boxes, which are scaled to `size`."""
        words = []
        for word, trace in zip(self.words, self.trace or [WordTrace()] * len(self.words), strict=True):
            record: dict[str, Any] = {
                "word": word,
                "box": scale_box(trace.box, size, digits),
                "boxes": [scale_box(box, size, digits) for box in trace.boxes],
                "score": None if trace.score is None else round(trace.score, 4),
            }
            if trace.gates:
                record["gates"] = {name: np.asarray(gate).tolist() for name, gate in trace.gates.items()}
            words.append(record)
        return words


@dataclass(frozen=True, eq=False)
class PhotoCaption(Caption):
    """A caption with the photo it is about."""

    path: str = ""  # "" where the photo came as pixels
    size: tuple[int, int] = (0, 0)  # width and height of the photo in pixels, upright
    confidence: float = 0.0  # the probability that the caption is good (`sightline.grounding.calibration`)
    low_confidence: bool = False  # whether that is too small to rely on the caption
    concepts: tuple[Concept, ...] = ()  # named things in the photo, the surest first
    warning: str = ""  # why the caption tells little, such as that the photo is of one colour

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; boxes are in pixels of the upright photo."""
        return {
            "path": self.path,
            "caption": self.text,
            "log_prob": round(self.log_prob, 4),
            "confidence": round(self.confidence, 4),
            "low_confidence": self.low_confidence,
            "words": self._words_json(self.size, 1),
            "concepts": [
                {"name": concept.name, "score": round(concept.score, 4), "box": scale_box(concept.box, self.size)}
                for concept in self.concepts
            ],
            "size": list(self.size),
            **({"warning": self.warning} if self.warning else {}),
        }


def scale_box(box: Box | None, size: tuple[int, int], digits: int = 1) -> list[float] | None:
    """A normalised box in the units of `size`, such as pixels; None without a box."""
    if box is None:
        return None
    return [round(float(value) * side, digits) for value, side in zip(box, (*size, *size), strict=True)]


def _point(trace: WordTrace, boxes: Array) -> WordTrace:
    if trace.regions is None or len(trace.regions) == 0:
        return trace
    best = int(np.argmax(trace.regions))
    return replace(trace, box=as_box(boxes[best]), score=float(trace.regions[best]), others=())
