"""`Caption`: what was said about one photo, and where each word came from. numpy only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sightline.errors import CountError
from sightline.scene import Array, Box, Concept, Scene


@dataclass(frozen=True, eq=False)
class WordTrace:
    """Where one word came from.

    Attributes:
        log_prob: natural logarithm of the word's probability.
        regions: (n,) attention over the scene's regions, or None.
        grid: (h·w,) attention over the scene's grid cells, or None.
        box: the normalised box the word points at, or None (function words point nowhere).
        score: how sure that box is, in [0, 1].
        gates: named gate values: `relationship` (JRAN) and `sentinel` (AdaptiveAttention) are numbers, `fusion` and
            `memory` (R2M) small matrices.
        others: further boxes that a plural points at.
    """

    log_prob: float | None = None
    regions: Array | None = None
    grid: Array | None = None
    box: Box | None = None
    score: float | None = None
    gates: dict[str, float | Array] = field(default_factory=dict)
    others: tuple[Box, ...] = ()

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

    def to_json(self, scene: Scene | None = None) -> dict[str, Any]:
        """A JSON-ready form; boxes are in pixels where `scene` gives the size, else normalised."""
        scale = np.ones(4) if scene is None or scene.size is None else np.array([*scene.size, *scene.size])

        def told(box: Box) -> list[float]:
            return [round(float(v), 4) for v in np.asarray(box) * scale]

        traces = self.trace or tuple(WordTrace() for _ in self.words)
        return {
            "caption": self.text,
            "log_prob": self.log_prob,
            "words": [
                {
                    "word": word,
                    "box": None if t.box is None else told(t.box),
                    "boxes": [told(box) for box in t.boxes],
                    "score": t.score,
                    **({"gates": {n: np.asarray(g).tolist() for n, g in t.gates.items()}} if t.gates else {}),
                }
                for word, t in zip(self.words, traces, strict=True)
            ],
        }


@dataclass(frozen=True, eq=False)
class PhotoCaption(Caption):
    """A caption with the photo it is about.

    Attributes:
        path: of the photo; "" where it came as pixels.
        size: width and height of the photo in pixels, upright.
        confidence: the probability that the caption is good (`sightline.grounding.calibration` tells what that means).
        low_confidence: whether it is too small to rely on the caption.
        concepts: named things in the photo, the surest first; boxes are normalised.
        warning: why the caption tells little, such as that the photo is of one colour; "" for nearly all.
    """

    path: str = ""
    size: tuple[int, int] = (0, 0)
    confidence: float = 0.0
    low_confidence: bool = False
    concepts: tuple[Concept, ...] = ()
    warning: str = ""

    def to_json(self, scene: Scene | None = None) -> dict[str, Any]:
        """A JSON-ready form; boxes are in pixels of the upright photo."""
        told = super().to_json(Scene(self.path, size=self.size) if scene is None else scene)
        return {
            "path": self.path,
            "caption": told["caption"],
            "log_prob": round(self.log_prob, 4),
            "confidence": round(self.confidence, 4),
            "low_confidence": self.low_confidence,
            "words": [
                {
                    **word,
                    "box": _rounded(word["box"]),
                    "boxes": [_rounded(box) for box in word["boxes"]],
                    "score": None if word["score"] is None else round(word["score"], 4),
                }
                for word in told["words"]
            ],
            "concepts": [
                {"name": c.name, "score": round(c.score, 4), "box": _rounded(self._pixels(c.box))}
                for c in self.concepts
            ],
            "size": list(self.size),
            **({"warning": self.warning} if self.warning else {}),
        }

    def _pixels(self, box: Box | None) -> list[float] | None:
        return None if box is None else [v * side for v, side in zip(box, (*self.size, *self.size), strict=True)]


def _rounded(value: list[float] | None) -> list[float] | None:
    return None if value is None else [round(v, 1) for v in value]


def _point(trace: WordTrace, boxes: Array) -> WordTrace:
    if trace.regions is None or len(trace.regions) == 0:
        return trace
    best = int(np.argmax(trace.regions))
    x1, y1, x2, y2 = (float(v) for v in boxes[best])
    return replace(trace, box=(x1, y1, x2, y2), score=float(trace.regions[best]), others=())
