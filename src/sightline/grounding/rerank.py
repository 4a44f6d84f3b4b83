"""How well the captions of a beam fit their photo as a whole, by which one of them is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sightline.batch import TextBatch
from sightline.models.end_to_end import Reader
from sightline.models.matcher import Embedding, Matcher

CaptionWords = Sequence[Sequence[Sequence[str]]]  # the words of each caption of each photo


def photo_cosines(finds: Reader[Matcher], images: Embedding, said: CaptionWords) -> Tensor:
    """(B, K) cosines of photos with their captions."""
    photos = images["vector"]  # (B, d)
    texts = TextBatch.collate([words for own in said for words in own], finds.vocabulary).to(photos.device)
    vectors = finds.model.embed_texts(texts)["vector"].view(len(photos), -1, photos.shape[1])  # (B, K, d)
    return (vectors @ photos.unsqueeze(2)).squeeze(2).float()
