"""What the pipeline does as the work of a job, and how captions are wanted.

PyTorch is imported when there is a photo to look at, not before.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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

WHOLE = ("csv", "jsonl", "json", "html")  # formats with one file of all captions
FORMATS = (*WHOLE, "pictures", "xmp")  # these have a file of each photo
BATCH = 8  # photos that are looked at together, and that a kill can cost


class PipelineWork:
    """A model that `load` loads, once in each process; it travels by pickle, without the model.

    Args:
        model: a model file; None for the one that comes with Sightline.
        device: auto, cpu, cuda, cuda:1 or mps.
        threads: that a CPU computes with.
        style: the checkpoint of an R²M model that speaks in its place.
    """

    def __init__(
        self, model: Path | None, device: str = "auto", threads: int | None = None, style: Path | None = None
    ) -> None:
        self.model, self.device, self.threads, self.style = model, device, threads, style
        self._pipeline: Pipeline | None = None

    def load(self) -> Pipeline:
        """The model at work. The first call loads it, which takes a second or two."""
        if self._pipeline is None:
            gc.disable()  # what imports make is there to stay; looking for garbage in it takes a tenth of the start
            try:
                from sightline.pipeline import load

                self._pipeline = load(self.model, self.device, self.threads, style=self.style)
            finally:
                gc.freeze()
                gc.enable()
        return self._pipeline

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pipeline": None}


class EmbedWork(PipelineWork):
    """Photos to vectors, and to captions where they are wanted."""

    def __init__(self, captions: bool, model: Path | None, device: str = "auto", threads: int | None = None) -> None:
        super().__init__(model, device, threads)
        self.captions = captions

    def __call__(self, photos: Sequence[Photo]) -> list[PhotoEmbedding]:
        """What the model makes of them, in their order."""
        return self.load().embed_photos(photos, captions=self.captions)


class CaptionWork(PipelineWork):
    """Photos to captions, as `options` want them."""

    def __init__(self, options: CaptionOptions, device: str = "auto", threads: int | None = None) -> None:
        super().__init__(options.model, device, threads, options.style)
        self.options = options

    def __call__(self, photos: Sequence[Photo]) -> list[PhotoCaption]:
        """The captions of the photos, in their order."""
        return self.load().caption_photos(photos, self.options.beam, self.options.rules())


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
        word_limits(self.length)

    def fingerprint(self) -> str:
        """A short name for all that captions depend on, the contents of the model files included."""
        model = self.model
        if model is None:
            from sightline.checkpoint.bundle import default_bundle

            model = default_bundle()
        files = [existing_path(model_file(path)).read_bytes() for path in (model, self.style) if path is not None]
        plain = {**asdict(self), "model": "", "style": ""}
        return fingerprint(json.dumps(plain), *(str(checksum(raw)) for raw in files))

    def rules(self) -> Rules | None:
        """What captions may and must say; None where they are free."""
        return rules_of(self.length, self.must_include)


def formats_of(named: Sequence[str]) -> frozenset[str]:
    """The formats that people named, in whatever case.

    >>> sorted(formats_of(["csv", "HTML"]))
    ['csv', 'html']
    """
    found = frozenset(map(str.lower, named))
    if unknown := sorted(found - set(FORMATS)):
        raise ConfigError(f"there is no format {unknown[0]!r}", fix=f"choose of {', '.join(FORMATS)}")
    return found
