"""How captions are wanted, and the work that makes them: what `sightline caption` and its jobs hand around.

PyTorch is imported when there is a photo to look at, not before.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.decoding.length_options import rules_of, words_of
from sightline.errors import ConfigError
from sightline.files import checksum, existing, fingerprint, model_file

if TYPE_CHECKING:
    from sightline.caption import PhotoCaption
    from sightline.decoding.constraints import Rules
    from sightline.jobs.job_photos import LoadedPhoto
    from sightline.pipeline import Pipeline

BATCH = 8  # photos that are looked at together, and that a kill can cost


@dataclass(frozen=True)
class CaptionOptions:
    """How captions are wanted.

    Attributes:
        model: a model file; None for the one that comes with Sightline.
        style: the checkpoint of an R²M model that speaks in its place; None for the model's own words.
        beam: hypotheses that are followed at once.
        length: short, normal, long, or the most words.
        must_include: words and phrases that every caption has.
    """

    model: Path | None = None
    style: Path | None = None
    beam: int = 3
    length: str = "normal"
    must_include: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ConfigError(f"`beam` is {self.beam}", fix="give 1 or more")
        if self.must_include and self.beam == 1:
            raise ConfigError("--must-include needs a beam, which can look ahead", fix="use --beam 3 or more")
        words_of(self.length)

    def fingerprint(self) -> str:
        """A short name for all that captions depend on, the contents of the model files included."""
        model = self.model
        if model is None:
            from sightline.checkpoint.bundle import default_bundle

            model = default_bundle()
        files = [existing(model_file(path)).read_bytes() for path in (model, self.style) if path is not None]
        plain = {**asdict(self), "model": "", "style": ""}
        return fingerprint(json.dumps(plain), *(str(checksum(raw)) for raw in files))

    def rules(self) -> Rules | None:
        """What captions may and must say; None where they are free."""
        return rules_of(self.length, self.must_include)


@dataclass(frozen=True)
class CaptionWork:
    """From photos that were read to captions, by a model that is loaded at the first of them; it travels by pickle."""

    wanted: CaptionOptions
    device: str = "auto"
    threads: int | None = None

    def __call__(self, photos: Sequence[LoadedPhoto]) -> list[PhotoCaption]:
        """The captions of the photos, in their order."""
        read = [(str(photo.path), photo.pixels, photo.size) for photo in photos]
        return self.pipeline.caption_photos(read, self.wanted.beam, self.wanted.rules())

    @property
    def size(self) -> int:
        """The side of the squares that photos are squashed to."""
        return self.pipeline.bundle.vision.size

    @cached_property
    def pipeline(self) -> Pipeline:
        """The model at work."""
        gc.disable()  # what imports make is there to stay, and looking for garbage in it takes a tenth of the start
        try:
            from sightline.pipeline import Pipeline, load

            pipeline = load(self.wanted.model, self.device, self.threads)
            if self.wanted.style is not None:
                from sightline.checkpoint.style_captions import with_style

                pipeline = Pipeline(with_style(pipeline.bundle, self.wanted.style, pipeline.device), pipeline.device)
        finally:
            gc.freeze()
            gc.enable()
        return pipeline

    def __reduce__(self) -> tuple[object, ...]:
        """Without the model, which is loaded where the work is done."""
        return CaptionWork, (self.wanted, self.device, self.threads)
