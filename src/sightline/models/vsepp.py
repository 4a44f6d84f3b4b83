"""VSE++: a photo and a sentence as two unit vectors, with no attention and no reasoning. The plain baseline.

Faghri et al., "VSE++: Improving Visual-Semantic Embeddings with Hard Negatives" (BMVC 2018); [5] in the VSRN paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_config
from sightline.models.layers import BatchNorm, SentenceGRU, l2norm, masked_mean
from sightline.models.matcher import Embedding, GlobalMatcher


@dataclass(frozen=True)
class VSEPPConfig:
    """The sizes and choices of VSE++."""

    kind: Literal["vsepp"] = "vsepp"
    # What the image is read from: the mean of its region features, or its global vector.
    image: Literal["regions", "vector"] = "regions"
    region_width: int = 2048  # size of a region feature; read with `image: regions`
    vector_width: int = 2048  # size of the global vector; read with `image: vector`
    size: int = 1024  # dimensions of the space in which photos and sentences meet
    word_size: int = 300  # size of a word embedding
    # How the sentence GRU starts: remembering a whole caption, or its last words (PyTorch's start, the published).
    memory: Literal["long", "default"] = "long"
    # Batch norm of the image before unit length. Not in the published model; hardest negatives cannot merge all images
    # with it.
    batch_norm: bool = False

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def width(self) -> int:
        """Size of the feature that is read."""
        return self.region_width if self.image == "regions" else self.vector_width

    def build(self, vocab_size: int) -> VSEPP:
        return VSEPP(self, vocab_size)


class VSEPP(GlobalMatcher):
    """One linear map of the image's feature, one GRU over the words; similarity is their cosine."""

    def __init__(self, config: VSEPPConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size, self.needs = config, vocab_size, (config.image,)
        self.fc = nn.Linear(config.width, config.size)
        self.norm = BatchNorm(config.size) if config.batch_norm else nn.Identity()
        self.text = SentenceGRU(vocab_size, config.word_size, config.size, config.memory)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def embed_images(self, scenes: SceneBatch) -> Embedding:
        """`vector` (B, size), unit length."""
        feature = scenes.part(self.config.image, by="VSE++", width=self.config.width)  # (B, n, d) or (B, d)
        if self.config.image == "regions":
            feature = masked_mean(feature, scenes.mask("regions"))
        return {"vector": l2norm(self.norm(self.fc(feature)))}

    def embed_texts(self, texts: TextBatch) -> Embedding:
        """`vector` (B, size), unit length."""
        return {"vector": self.text(texts)}
