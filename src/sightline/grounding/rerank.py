"""Choosing among the captions of a beam: the captioner's own scores, and how well each fits the photo as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from sightline.batch import TextBatch
from sightline.models.matcher import Embedding, Matcher
from sightline.models.reader import Reader

CaptionWords = Sequence[Sequence[Sequence[str]]]  # the words of each caption of each photo


def rerank_by_photo(
    finds: Reader[Matcher], images: Embedding, weight: float
) -> Callable[[CaptionWords, Tensor], Tensor]:
    """The caption with the best score + weight · cosine with the photo, by the vectors of a matcher of whole photos."""
    return lambda said, scores: (scores + weight * photo_cosines(finds, images, said)).argmax(1)


def photo_cosines(finds: Reader[Matcher], images: Embedding, said: CaptionWords) -> Tensor:
    """(B, K) cosines of photos with their captions."""
    photos = images["vector"]  # (B, d)
    texts = TextBatch.collate([words for own in said for words in own], finds.vocabulary).to(photos.device)
    vectors = finds.model.embed_texts(texts)["vector"].view(len(photos), -1, photos.shape[1])  # (B, K, d)
    return (vectors @ photos.unsqueeze(2)).squeeze(2).float()
