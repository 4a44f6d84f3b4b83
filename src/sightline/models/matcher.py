"""The matcher contract: how well a text fits a photo.

images = model.embed_images(scenes)            dict of tensors, one row per image
texts = model.embed_texts(sentences)           dict of tensors, one row per text
scores = model.similarity(images, texts)       (images, texts)
weights = model.alignment(images, texts)       SCAN family: word × region, image b with text b
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import CountError

Embedding = dict[str, Tensor]


class Matcher(nn.Module, ABC):
    """A model of how well texts fit images. `needs` names the scene parts it reads."""

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
    def similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        """(images, texts) scores of every pair, in float32."""

    def forward(self, scenes: SceneBatch, texts: TextBatch) -> Tensor:
        """(images, texts) scores of a batch, as the triplet objective takes them."""
        return self.similarity(self.embed_images(scenes), self.embed_texts(texts))


class GlobalMatcher(Matcher):
    """A matcher whose images and texts are single unit vectors under `vector`: similarity is their inner product."""

    def similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        require_rows(images, texts)
        with full_precision(images["vector"].device):
            return images["vector"].float() @ texts["vector"].float().T


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


def require_rows(images: Embedding, texts: Embedding) -> None:
    if not all(len(next(iter(rows.values()))) for rows in (images, texts)):
        raise CountError("matching needs at least one image and one text")
