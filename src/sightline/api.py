"""What people call: a model loaded once, and photos in, captions with boxes out.

sight = sightline.load()
said = sight.caption("photo.jpg")
print(said, said.confidence, said.to_json()["words"])
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast, overload

import numpy as np
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.bundle import Bundle, Reader, default_bundle, load_bundle
from sightline.caption import PhotoCaption
from sightline.decoding.captions import captions
from sightline.decoding.rules import Rules
from sightline.decoding.ways import Beam, Greedy
from sightline.devices import choose_device
from sightline.errors import ConfigError, CountError, SightlineError
from sightline.evidence import Audit, Grounding
from sightline.files import PathLike
from sightline.look import Look
from sightline.models.int8 import with_int8
from sightline.models.matcher import GlobalMatcher, Matcher
from sightline.pointed import pointed
from sightline.scene import Array
from sightline.text.vocabulary import rule
from sightline.vision.detector import Detector
from sightline.vision.folded import fold
from sightline.vision.images import Source
from sightline.vision.pixels import Pixels, read_pixels
from sightline.vision.reading import Progress, left_out, read_photos
from sightline.vision.zoo import VisionModel
from sightline.witness import Witness

BATCH = 8  # photos that are looked at together
Photo = tuple[str, Pixels, tuple[int, int]]  # path, (size, size, 3) pixels, width and height before


def load(path: PathLike | None = None, device: str = "auto", threads: int | None = None) -> Sightline:
    """The model that comes with Sightline, or that of a file, ready for photos.

    Args:
        path: a bundle (`sightline.bundle.save_bundle`).
        device: auto, cpu, cuda, cuda:1 or mps; auto takes an accelerator where there is one.
        threads: that a CPU computes with, in this whole process; by default as many as PyTorch chooses.
    """
    if threads is not None:
        if threads < 1:
            raise ConfigError(f"`threads` is {threads}", fix="give 1 or more")
        torch.set_num_threads(threads)
    place = choose_device(device)
    return Sightline(load_bundle(default_bundle() if path is None else path, place), place)


class Sightline:
    """A bundle at work. Photos are paths, bytes of files, Pillow images or arrays (`sightline.vision.images`)."""

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.bundle, self.device = bundle, torch.device(device)
        self._vision = cast("VisionModel", fold(bundle.vision))
        self._fingerprint = bundle.vision.fingerprint()
        model = bundle.captioner.model
        self.captioner = with_int8(model) if self.device.type == "cpu" else model
        self.auditing = bundle.auditing
        self._witness = Witness(bundle, self._vision, self.captioner, self.auditing)

    @overload
    def caption(
        self, photos: list[Source] | tuple[Source, ...], *, beam: int = 3, rules: Rules | None = None
    ) -> list[PhotoCaption]: ...
    @overload
    def caption(self, photos: Source, *, beam: int = 3, rules: Rules | None = None) -> PhotoCaption: ...
    def caption(
        self, photos: Source | list[Source] | tuple[Source, ...], *, beam: int = 3, rules: Rules | None = None
    ) -> PhotoCaption | list[PhotoCaption]:
        """The caption of one photo, or those of a list in its order.

        Args:
            photos: one, or a list or tuple of them. The first that cannot be read is an error.
            beam: hypotheses that are followed at once; 1 takes the most probable word at each step.
            rules: what captions may and must say.
        """
        if not isinstance(photos, list | tuple):
            return self.caption_read([self.read(photos)], beam, rules)[0]
        coming = map(self.read, photos)
        return [said for group in _groups(coming, BATCH) for said in self.caption_read(group, beam, rules)]

    def caption_many(
        self,
        paths: Iterable[PathLike],
        *,
        batch: int = BATCH,
        beam: int = 3,
        rules: Rules | None = None,
        bad: Callable[[SightlineError], None] | None = None,
        progress: Progress = iter,
    ) -> Iterator[PhotoCaption]:
        """The captions of the photos at `paths`, in their order, as they come; files are read while the model works.

        Args:
            paths: of photos; `sightline.vision.walk.find_photos` lists those of folders and patterns.
            batch: photos that are looked at together.
            beam: as for `caption`.
            rules: as for `caption`.
            bad: is given the error of a file that cannot be read, which stops nothing. By default all are told in one
                warning at the end.
            progress: wraps the paths, such as `sightline.vision.reading.progress_bar("captioning")`.
        """
        for group in self._read_many(paths, batch, bad, progress):
            yield from self.caption_read(group, beam, rules)

    def look_many(
        self,
        paths: Iterable[PathLike],
        *,
        captions: bool = True,
        batch: int = BATCH,
        beam: int = 3,
        rules: Rules | None = None,
        bad: Callable[[SightlineError], None] | None = None,
        progress: Progress = iter,
    ) -> Iterator[Look]:
        """The vectors of the photos at `paths`, and captions where asked for; the rest is as for `caption_many`."""
        for group in self._read_many(paths, batch, bad, progress):
            yield from self.look(group, captions=captions, beam=beam, rules=rules)

    @torch.inference_mode()
    def look(
        self, photos: Sequence[Photo], *, captions: bool = True, beam: int = 3, rules: Rules | None = None
    ) -> list[Look]:
        """The same of photos that were read: for jobs, whose results must be picklable (`sightline.jobs`)."""
        finds, scenes = self._finds(), self.scenes(photos)
        vectors: Array = finds.model.embed_images(scenes)["vector"].float().cpu().numpy()
        said = self._said(photos, scenes, beam, rules) if captions else [None] * len(photos)
        return [
            Look(path, size, vector, caption)
            for (path, _, size), vector, caption in zip(photos, vectors, said, strict=True)
        ]

    def vectors(self, photos: Sequence[Source]) -> Array:
        """(n, d) vectors of photos, to search with."""
        looks = [look for group in _groups(map(self.read, photos), BATCH) for look in self.look(group, captions=False)]
        return np.stack([look.vector for look in looks])

    @torch.inference_mode()
    def text_vectors(self, sentences: Sequence[str]) -> Array:
        """(n, d) vectors of sentences, or of a few words each, to search with."""
        finds = self._finds()
        split = rule(finds.text_rule)
        words = [split.words(sentence) for sentence in sentences]
        texts = TextBatch.collate(words, finds.vocabulary).to(self.device)
        return np.asarray(finds.model.embed_texts(texts)["vector"].float().cpu())

    def ground(self, photo: Source, sentence: str) -> Grounding:
        """Where in a photo the nouns of a sentence are: a box and a score for each that a model knows."""
        return self.ground_many([photo], [sentence])[0]

    @torch.inference_mode()
    def ground_many(self, photos: Sequence[Source], sentences: Sequence[str]) -> list[Grounding]:
        """The same of many photos, each with its own sentence."""
        if len(photos) != len(sentences):
            raise CountError(f"{len(photos)} photos with {len(sentences)} sentences", fix="give a sentence for each")
        results: list[Grounding] = []
        for group in _groups(map(self.read, photos), BATCH):
            scenes, done = self.scenes(group), len(results)
            for row, (path, _, size) in enumerate(group):
                results.append(self._witness.ground(sentences[done + row], scenes, row, path, size))
        return results

    def audit(self, photo: Source, captions: str | Sequence[str], *, least: float | None = None) -> list[Audit]:
        """Which nouns of captions that someone wrote the photo does not support, and what is seen instead.

        Args:
            photo: one.
            captions: one, or several.
            least: the support that a noun needs, from 0 to 1; by default the model's own.
        """
        given = [captions] if isinstance(captions, str) else captions
        return self.audit_read([self.read(photo)], [given], least=least)[0]

    @torch.inference_mode()
    def audit_read(
        self, photos: Sequence[Photo], captions: Sequence[Sequence[str]], *, least: float | None = None
    ) -> list[list[Audit]]:
        """The same of photos that were read, each with its captions: for jobs."""
        scenes = self.scenes(photos)
        return [
            self._witness.audit(own, scenes, row, path, size, least)
            for row, ((path, _, size), own) in enumerate(zip(photos, captions, strict=True))
        ]

    def _finds(self) -> Reader[Matcher]:
        finds = self.bundle.matcher
        if finds is None or not isinstance(finds.model, GlobalMatcher):
            raise ConfigError(
                "this model has no matcher of whole photos", fix="use the model that comes with Sightline"
            )
        return finds

    def _read_many(
        self,
        paths: Iterable[PathLike],
        batch: int,
        bad: Callable[[SightlineError], None] | None,
        progress: Progress,
    ) -> Iterator[list[Photo]]:
        if batch < 1:
            raise ConfigError(f"`batch` is {batch}", fix="give 1 or more")
        refused: list[SightlineError] = []
        reading = read_photos(
            [Path(path) for path in paths], self._vision.size, bad=bad or refused.append, progress=progress
        )
        yield from _groups(((os.fspath(photo.path), photo.pixels, photo.size) for photo in reading), batch)
        if refused:
            warnings.warn(left_out(refused), stacklevel=3)

    def read(self, photo: Source) -> Photo:
        """A photo as the other verbs' `…_read` forms take it."""
        pixels, size = read_pixels(photo, self._vision.size)
        return os.fspath(photo) if isinstance(photo, str | os.PathLike) else "", pixels, size

    @torch.inference_mode()
    def caption_read(self, photos: Sequence[Photo], beam: int = 3, rules: Rules | None = None) -> list[PhotoCaption]:
        """The captions of photos that were read: for jobs."""
        return self._said(photos, self.scenes(photos), beam, rules)

    def scenes(self, photos: Sequence[Photo]) -> SceneBatch:
        """What vision sees in photos that were read."""
        paths, arrays, _ = zip(*photos, strict=True)
        pixels = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).to(self.device)
        return self._vision.scenes(pixels, paths, self._fingerprint)

    def _said(self, photos: Sequence[Photo], scenes: SceneBatch, beam: int, rules: Rules | None) -> list[PhotoCaption]:
        says, calibration = self.bundle.captioner, self.bundle.calibration
        way = Greedy() if beam == 1 else Beam(beam)
        said = [best for best, *_ in captions(self.captioner, scenes, says.vocabulary, way, rules)]
        concepts = self._vision.concepts(scenes) if isinstance(self._vision, Detector) else [()] * len(said)
        results = []
        for caption, (path, _, size), things in zip(pointed(self.bundle, said, scenes), photos, concepts, strict=True):
            sure = calibration.of(caption)
            results.append(
                PhotoCaption(
                    caption.words, caption.log_prob, caption.trace, path, size, sure, sure < calibration.low, things
                )
            )
        return results


def _groups(photos: Iterable[Photo], size: int) -> Iterator[list[Photo]]:
    coming = iter(photos)
    while group := list(itertools.islice(coming, size)):
        yield group
