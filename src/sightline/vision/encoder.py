"""What can make scenes: anything that has these methods, ours or yours.

`sightline.jobs.extract_job.extract` takes every `Encoder`; docs/scenes.md wraps a Hugging Face model as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from sightline.batch import SceneBatch
from sightline.scene import Concept


class Encoder(Protocol):
    """From pixels to scenes.

    An encoder that is a `torch.nn.Module` is moved to the device and set to evaluation before it is asked; any other
    finds its pixels on the device. Gradients are off.
    """

    @property
    def size(self) -> int:
        """Photos are squashed to squares of so many pixels."""

    def fingerprint(self) -> str:
        """A short name for weights and choices: whatever changes a scene changes it."""

    def scenes(self, pixels: Tensor, ids: Sequence[str]) -> SceneBatch:
        """The scenes of photos, in their order, with whatever parts the encoder has.

        Args:
            pixels: (B, 3, size, size) uint8, upright RGB.
            ids: of the photos.
        """


@runtime_checkable
class ConceptEncoder(Protocol):
    """An encoder that can also tell what is in its scenes."""

    def concepts(self, scenes: SceneBatch) -> Sequence[tuple[Concept, ...]]:
        """Names with scores and boxes, of each photo."""
