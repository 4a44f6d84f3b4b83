"""What the pipeline does as the work of a job: it travels by pickle, without its model.

PyTorch is imported when there is a photo to look at, not before.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.decoding.rules import rules_of, word_limits
from sightline.errors import ConfigError
from sightline.files import checksum, existing_path, fingerprint, model_file

if TYPE_CHECKING:
    from sightline.caption import PhotoCaption
    from sightline.decoding.rules import Rules
    from sightline.photo import Photo, PhotoEmbedding
    from sightline.pipeline import Pipeline

BATCH = 8  # photos that are looked at together, and that a kill can cost


@dataclass
class PipelineWork:
    """A model that `load` loads, once in each process; the arguments are those of `sightline.load`."""

    model: Path | None = None
    device: str = "auto"
    threads: int | None = None
    style: Path | None = None
    _pipeline: Pipeline | None = field(default=None, init=False, repr=False)

    def load(self) -> Pipeline:
        """The model at work. The first call loads it, which takes a second or two."""
        if self._pipeline is None:
            gc.disable()  # imported objects stay; searching them for garbage takes a tenth of the start
            try:
                from sightline.pipeline import load

                self._pipeline = load(self.model, self.device, self.threads, style=self.style)
            finally:
                gc.freeze()
                gc.enable()
        return self._pipeline

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pipeline": None}


@dataclass
class EmbedWork(PipelineWork):
    """Photos to vectors, and to captions where they are wanted."""

    captions: bool = True

    def __call__(self, photos: Sequence[Photo]) -> list[PhotoEmbedding]:
        return self.load().embed_photos(photos, captions=self.captions)


@dataclass
class CaptionWork(PipelineWork):
    """Photos to captions; beam, length and `must_include` are the options of `sightline caption`."""

    beam: int = 5
    length: str = "normal"
    must_include: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ConfigError(f"`beam` is {self.beam}", fix="give 1 or more")
        if self.must_include and self.beam == 1:
            raise ConfigError("--must-include needs a beam, which can look ahead", fix="use --beam 3 or more")
        word_limits(self.length)

    def __call__(self, photos: Sequence[Photo]) -> list[PhotoCaption]:
        return self.load().caption_photos(photos, self.beam, self.rules())

    def fingerprint(self) -> str:
        """A short name for all that captions depend on, the contents of the model files included."""
        model = self.model
        if model is None:
            from sightline.checkpoint.bundle import default_bundle

            model = default_bundle()
        files = [existing_path(model_file(path)).read_bytes() for path in (model, self.style) if path is not None]
        rest = {"beam": self.beam, "length": self.length, "must_include": self.must_include}
        return fingerprint(json.dumps({"model": "", "style": "", **rest}), *(str(checksum(raw)) for raw in files))

    def rules(self) -> Rules | None:
        """What captions may and must say; None where they are free."""
        return rules_of(self.length, self.must_include)
