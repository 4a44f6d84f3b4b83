"""Choosing among the captions of a beam: the captioner's own scores, and how well each fits the photo as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from sightline.batch import TextBatch
from sightline.bundle import Reader
from sightline.models.matcher import Embedding, Matcher

Said = Sequence[Sequence[Sequence[str]]]  # the words of each caption of each photo


def by_fit(finds: Reader[Matcher], images: Embedding, weight: float) -> Callable[[Said, Tensor], Tensor]:
    """The caption with the best score + weight · cosine with the photo, by the vectors of a matcher of whole photos."""
    return lambda said, scores: (scores + weight * fits(finds, images, said)).argmax(1)


def fits(finds: Reader[Matcher], images: Embedding, said: Said) -> Tensor:
    """(B, K) cosines of photos with their captions."""
    photos = images["vector"]  # (B, d)
    texts = TextBatch.collate([words for own in said for words in own], finds.vocabulary).to(photos.device)
    vectors = finds.model.embed_texts(texts)["vector"].view(len(photos), -1, photos.shape[1])  # (B, K, d)
    return (vectors @ photos.unsqueeze(2)).squeeze(2).float()
