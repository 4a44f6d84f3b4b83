"""The matcher contract: how well a text fits a photo.

images = model.embed_images(scenes)            dict of tensors, one row per image
texts = model.embed_texts(sentences)           dict of tensors, one row per text
scores = model.similarity(images, texts)       (images, texts), computed block by block
weights = model.alignment(images, texts)       SCAN family: word × region, image b with text b
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import CountError

Embedding = dict[str, Tensor]


class Matcher(nn.Module, ABC):
    """A model of how well texts fit images. `needs` names the scene parts it reads, `words` its vocabulary's size."""

    needs: tuple[str, ...] = ("regions",)
    vocab_size: int
    config: Any

    @abstractmethod
    def embed_images(self, scenes: SceneBatch) -> Embedding:
        """What matching needs of each image: tensors with one row per image."""

    @abstractmethod
    def embed_texts(self, texts: TextBatch) -> Embedding:
        """What matching needs of each text: tensors with one row per text."""

    @abstractmethod
    def block(self, images: Embedding, texts: Embedding) -> Tensor:
        """(images, texts) scores of every pair, in one piece."""

    def similarity(self, images: Embedding, texts: Embedding, block: tuple[int, int] = (128, 128)) -> Tensor:
        """(images, texts) scores, `block` images × texts at a time so that memory stays bounded."""
        rows = [
            torch.cat([self.block(some, few) for few in _pieces(texts, block[1])], 1)
            for some in _pieces(images, block[0])
        ]
        return torch.cat(rows)

    def forward(self, scenes: SceneBatch, texts: TextBatch) -> Tensor:
        """(images, texts) scores of a batch, as the triplet objective takes them."""
        return self.similarity(self.embed_images(scenes), self.embed_texts(texts))


class GlobalMatcher(Matcher):
    """A matcher whose images and texts are single unit vectors under `vector`: similarity is one product."""

    def block(self, images: Embedding, texts: Embedding) -> Tensor:
        """Inner products, in full precision."""
        vectors = images["vector"].float(), texts["vector"].float()
        with full_precision(vectors[0].device):
            return vectors[0] @ vectors[1].T


class AligningMatcher(Matcher):
    """A matcher that can say which regions each word was matched with."""

    @abstractmethod
    def alignment(self, images: Embedding, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        """(B, T, n) weights of image b's regions for each word of text b; rows of words that take no part are 0.

        T counts START and END, as `TextBatch.ids` does. `forced` (B, T) makes words take part that the model's parts of
        speech would leave out.
        """


def full_precision(device: torch.device) -> torch.autocast:
    """No autocast in here: bfloat16 has 3 digits, and the scores of a batch often differ in the fourth.

    Of 128 close vectors, two to four different scores were left, and a hardest negative was any of dozens.
    """
    return torch.autocast(device.type, enabled=False)


def count(rows: Embedding) -> int:
    """How many images, or texts, were embedded."""
    found = len(next(iter(rows.values())))
    if not found:
        raise CountError("matching needs at least one image and one text")
    return found


def _pieces(rows: Embedding, size: int) -> list[Embedding]:
    return [{name: part[start : start + size] for name, part in rows.items()} for start in range(0, count(rows), size)]
