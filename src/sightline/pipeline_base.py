"""A bundle at work on photos that were read: what the verbs of `sightline.Pipeline` and the jobs are made of."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import PhotoCaption
from sightline.checkpoint.bundle import Bundle
from sightline.decoding.caption_scenes import captions
from sightline.decoding.constraints import Rules
from sightline.decoding.strategies import Beam, Greedy
from sightline.errors import ConfigError
from sightline.grounding.caption_boxes import choose_boxes
from sightline.grounding.evidence import Audit
from sightline.grounding.noun_scores import Grounder
from sightline.grounding.rerank import rerank_by_photo
from sightline.models.int8_linear import with_int8
from sightline.models.matcher import Embedding, GlobalMatcher, Matcher
from sightline.models.reader import Reader
from sightline.photo_embedding import PhotoEmbedding
from sightline.scene import Array
from sightline.text.vocabulary import rule
from sightline.vision.detector import Detector
from sightline.vision.images import Source
from sightline.vision.int8_backbone import fold_int8
from sightline.vision.pixels import Pixels, read_pixels

if TYPE_CHECKING:
    from sightline.jobs.job_photos import LoadedPhoto

TOGETHER = {"cpu": 8}  # photos that are looked at at once
TOGETHER_ELSEWHERE = 64
WIDE = 10  # hypotheses, at least, where captions have little room: whole sentences are rare among the first few
Photo = tuple[str, Pixels, tuple[int, int]]  # path, (size, size, 3) pixels, width and height before


class PipelineBase:
    """Looks at photos that were read (`read`), and says, finds and checks what is in them."""

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.bundle, self.device = bundle, torch.device(device)
        self._vision = fold_int8(bundle.vision)
        self._fingerprint = bundle.vision.fingerprint()
        model = bundle.captioner.model
        self.captioner = with_int8(model) if self.device.type == "cpu" else model
        self.auditing = bundle.auditing
        self._grounder = Grounder(bundle, self._vision, self.captioner, self.auditing)

    def read(self, photo: Source) -> Photo:
        """A photo as the other methods take it."""
        pixels, size = read_pixels(photo, self._vision.size)
        return os.fspath(photo) if isinstance(photo, str | os.PathLike) else "", pixels, size

    def scenes(self, photos: Sequence[Photo]) -> SceneBatch:
        """What vision sees in them."""
        paths, arrays, _ = zip(*photos, strict=True)
        pixels = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).to(self.device)
        return self._vision.scenes(pixels, paths, self._fingerprint)

    @torch.inference_mode()
    def caption_photos(self, photos: Sequence[Photo], beam: int = 3, rules: Rules | None = None) -> list[PhotoCaption]:
        """Their captions, in their order; beam and rules are those of `Pipeline.caption`."""
        return self._said(photos, self.scenes(photos), beam, rules)

    @torch.inference_mode()
    def look(
        self, photos: Sequence[Photo], *, captions: bool = True, beam: int = 3, rules: Rules | None = None
    ) -> list[PhotoEmbedding]:
        """Their vectors, and captions where asked for."""
        finds, scenes = self._finds(), self.scenes(photos)
        images = finds.model.embed_images(scenes)
        vectors: Array = images["vector"].float().cpu().numpy()
        said = self._said(photos, scenes, beam, rules, images) if captions else [None] * len(photos)
        return [
            PhotoEmbedding(path, size, vector, caption)
            for (path, _, size), vector, caption in zip(photos, vectors, said, strict=True)
        ]

    def embed_loaded(self, photos: Sequence[LoadedPhoto], *, captions: bool = True) -> list[PhotoEmbedding]:
        """The same of the photos of a job, however many they are."""
        read = [(str(photo.path), photo.pixels, photo.size) for photo in photos]
        together = TOGETHER.get(self.device.type, TOGETHER_ELSEWHERE)
        return [look for group in groups(read, together) for look in self.look(group, captions=captions)]

    @torch.inference_mode()
    def audit_photos(
        self, photos: Sequence[Photo], captions: Sequence[Sequence[str]], *, least: float | None = None
    ) -> list[list[Audit]]:
        """The audits of the captions of each; `least` is that of `Pipeline.audit`."""
        scenes = self.scenes(photos)
        return [
            self._grounder.audit(own, scenes, row, path, size, least)
            for row, ((path, _, size), own) in enumerate(zip(photos, captions, strict=True))
        ]

    @torch.inference_mode()
    def text_vectors(self, sentences: Sequence[str]) -> Array:
        """(n, d) vectors of sentences, or of a few words each, to search with."""
        finds = self._finds()
        split = rule(finds.text_rule)
        words = [split.words(sentence) for sentence in sentences]
        texts = TextBatch.collate(words, finds.vocabulary).to(self.device)
        return np.asarray(finds.model.embed_texts(texts)["vector"].float().cpu())

    def _finds(self) -> Reader[Matcher]:
        finds = self.bundle.matcher
        if finds is None or not isinstance(finds.model, GlobalMatcher):
            raise ConfigError(
                "this model has no matcher of whole photos", fix="use the model that comes with Sightline"
            )
        return finds

    def _said(
        self,
        photos: Sequence[Photo],
        scenes: SceneBatch,
        beam: int,
        rules: Rules | None,
        images: Embedding | None = None,
    ) -> list[PhotoCaption]:
        says, finds, calibration = self.bundle.captioner, self.bundle.matcher, self.bundle.calibration
        whole = rules is not None and rules.whole
        beam = max(beam, WIDE) if whole else beam
        choose = None
        if finds is not None:
            images = finds.model.embed_images(scenes) if images is None else images
            if beam > 1 and self.bundle.fit and isinstance(finds.model, GlobalMatcher):
                choose = rerank_by_photo(finds, images, self.bundle.fit)
        strategy = Greedy() if beam == 1 else Beam(beam, keep=1 if choose is None else beam)
        said = [best for best, *_ in captions(self.captioner, scenes, says.vocabulary, strategy, rules, choose=choose)]
        said = choose_boxes(self.bundle, said, scenes, images=images)
        concepts = self._vision.concepts(scenes) if isinstance(self._vision, Detector) else [()] * len(said)
        results = []
        for caption, (path, _, size), things in zip(said, photos, concepts, strict=True):
            sure = calibration.of(caption)
            results.append(
                PhotoCaption(
                    caption.words, caption.log_prob, caption.trace, path, size, sure, sure < calibration.low, things
                )
            )
        return results


def groups(photos: Iterable[Photo], size: int) -> Iterator[list[Photo]]:
    """So many photos at a time, in their order."""
    coming = iter(photos)
    while group := list(itertools.islice(coming, size)):
        yield group
