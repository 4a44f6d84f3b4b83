"""SCAN and POS-SCAN: stacked cross attention, in the form that "More Grounded Image Captioning by Distilling Image-Text
Matching" (section 3.1) gives it: each word attends to the regions, and a caption fits as well as its words do
(Eq. 1-6), or as well as its words of some parts of speech do (Eq. 8). Eq. 7 is the objective `triplet`.

The direction i2t of the original ("Stacked Cross Attention for Image-Text Matching") swaps the roles. Below, the side
that is attended to is the context (t2i: regions) and the side that attends is the query (t2i: words).
`plain_similarity` has the equations as they are printed; `similarity` computes the same sooner, by `scan_fast.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_config, check_ranges
from sightline.errors import ConfigError, MissingPartError
from sightline.models.layers import WordGRU, l2norm, masked_softmax
from sightline.models.matcher import AligningMatcher, Embedding, full_precision
from sightline.models.scan_fast import fast_similarity
from sightline.text.tagger import Tagger

EPS = 1e-8  # added to lengths, and the least a length counts in a cosine
PLACEHOLDERS = frozenset({"unk", "<unk>"})  # of unknown words, which a tagger would call nouns


@dataclass(frozen=True)
class SCANConfig:
    """The sizes and choices of SCAN; the defaults are those of POS-SCAN's paper."""

    kind: Literal["scan"] = "scan"
    region_width: int = 2048  # width of a region's feature
    word_size: int = 300  # width of a word's embedding
    size: int = 1024  # width of the space that words and regions share
    bidirectional: bool = True  # whether the GRU reads the caption from both ends
    direction: Literal["t2i", "i2t"] = "t2i"  # t2i: words attend to regions. i2t: regions attend to words.
    # How the scores of the words (i2t: regions) make the score of the pair.
    aggregate: Literal["mean", "lse", "max", "sum"] = "mean"
    raw_feature_norm: Literal[
        "clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "softmax", "no_norm"
    ] = "clipped_l2norm"  # what happens to the cosines before the softmax, along the words (i2t: regions)
    # The clip in it: [x]_+ as printed, or LeakyReLU(0.1) as in the released code.
    clip: Literal["hard", "leaky"] = "hard"
    lambda_softmax: float | None = None  # inverse temperature of the attention; None is 9 for t2i and 4 for i2t
    lambda_lse: float = 6.0  # inverse temperature of the aggregate "lse"

    def __post_init__(self) -> None:
        check_config(self)
        check_ranges(self, lambda_lse="(0, ∞)")
        # squares of exp(λ) must stay finite in float32
        check_ranges({"lambda_softmax": self.temperature}, lambda_softmax="(0, 40]")

    @property
    def temperature(self) -> float:
        """The inverse temperature of the attention: τ of Eq. 5."""
        return {"t2i": 9.0, "i2t": 4.0}[self.direction] if self.lambda_softmax is None else self.lambda_softmax

    def build(self, vocab_size: int) -> SCAN:
        return SCAN(self, vocab_size)


class SCAN(AligningMatcher):
    """Section 3.1. All words take part, START and END too."""

    config: SCANConfig

    def __init__(self, config: SCANConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.image = nn.Linear(config.region_width, config.size)
        self.text = WordGRU(vocab_size, config.word_size, config.size, config.bidirectional)
        nn.init.xavier_uniform_(self.image.weight)
        nn.init.zeros_(self.image.bias)

    def embed_images(self, scenes: SceneBatch) -> Embedding:
        """`regions` (B, n, d), unit vectors, and their `mask` (B, n)."""
        regions = scenes.part("regions", by=self.config.kind, width=self.config.region_width)
        mask = scenes.mask("regions")
        vectors = l2norm(self.image(regions))  # Eq. 1, and the length of Eq. 4
        return {"regions": vectors * mask.unsqueeze(2), "mask": mask}

    def embed_texts(self, texts: TextBatch) -> Embedding:
        """`words` (B, T, d), unit vectors, and their `mask` (B, T)."""
        return {"words": l2norm(self.text(texts.ids, texts.mask)), "mask": texts.mask}  # Eq. 2, 3, the length of Eq. 4

    def word_mask(self, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        """(B, T) which words are matched; here all of them, whatever is `forced`."""
        return texts["mask"]

    def similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        return fast_similarity(self, images, texts)

    def plain_similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        """(images, texts) scores of every pair, as the equations are printed."""
        regions, region_mask = images["regions"].float(), images["mask"]
        word_mask = self.word_mask(texts)
        words = texts["words"].float() * word_mask.unsqueeze(2)
        with full_precision(words.device):
            if self.config.direction == "t2i":
                return self._pairs(regions, region_mask, words, word_mask)
            return self._pairs(words, word_mask, regions, region_mask).T

    def _pairs(self, context: Tensor, context_mask: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        """Contexts (A, k, d) and queries (Q, m, d), unit vectors, to scores (A, Q)."""
        s = torch.einsum("akd,qmd->akmq", context, query)  # Eq. 4
        sharpened = self.sharpen(s, mask.T, 2)  # τ s̄
        alpha = masked_softmax(sharpened, context_mask[:, :, None, None], 1)  # Eq. 5
        attended = torch.einsum("akmq,akd->amqd", alpha, context)  # a of Eq. 5
        products = torch.einsum("amqd,qmd->amq", attended, query)
        R = products / attended.square().sum(-1).clamp(min=EPS**2).sqrt()  # Eq. 6; the query's length is 1
        return self.aggregate(R, mask.T)  # S of Eq. 6

    def alignment(self, images: Embedding, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        """(B, T, n) weights of image b's regions for each word of text b; rows of words that take no part are 0.

        t2i: α of Eq. 5. In i2t each region has weights over the words; the same normalised scores, with the softmax
        taken over the regions, are given instead, so that a word's row is a distribution in both directions.
        """
        word_mask = self.word_mask(texts, forced).unsqueeze(1)  # (B, 1, T)
        region_mask = images["mask"].unsqueeze(2)  # (B, n, 1)
        with full_precision(word_mask.device):
            s = images["regions"].float() @ texts["words"].float().mT * word_mask  # (B, n, T), Eq. 4
        sharpened = self.sharpen(s, word_mask, 2) if self.config.direction == "t2i" else self.sharpen(s, region_mask, 1)
        alpha = masked_softmax(sharpened, region_mask, 1) * word_mask  # Eq. 5
        return alpha.mT

    def sharpen(self, scores: Tensor, mask: Tensor, dim: int) -> Tensor:
        """τ s̄ of Eq. 5: the scores, 0 on padding, normalised along `dim` (the line after Eq. 4, and its variants)."""
        norm, temperature = self.config.raw_feature_norm, self.config.temperature
        if norm == "softmax":
            return temperature * masked_softmax(scores, mask, dim)
        if norm.startswith("clipped"):
            scores = scores.relu() if self.config.clip == "hard" else F.leaky_relu(scores, 0.1)
        if norm.endswith("l2norm"):
            # Not `vector_norm`, which is many times slower along any but the last dimension; the clamp keeps the
            # gradient finite where all scores are 0.
            return scores * (temperature / (scores.square().sum(dim, keepdim=True).clamp(min=EPS**2).sqrt() + EPS))
        if norm.endswith("l1norm"):
            return scores * (temperature / (scores.abs().sum(dim, keepdim=True) + EPS))
        return temperature * scores

    def aggregate(self, relevance: Tensor, mask: Tensor) -> Tensor:
        """(A, m, Q) and mask (m, Q) to (A, Q): S of Eq. 6, over the queries' elements."""
        aggregate = self.config.aggregate
        if aggregate == "max":
            return relevance.masked_fill(~mask, -1).amax(1)
        if aggregate == "lse":
            lowest = torch.finfo(relevance.dtype).min
            scaled = (self.config.lambda_lse * relevance).masked_fill(~mask, lowest)
            return torch.logsumexp(scaled, 1) / self.config.lambda_lse
        total = (relevance * mask).sum(1)
        return total / mask.sum(0).clamp(min=1) if aggregate == "mean" else total  # Eq. 6


@dataclass(frozen=True)
class POSSCANConfig(SCANConfig):
    """The sizes and choices of POS-SCAN: those of SCAN, and the parts of speech that are matched.

    `TextBatch.collate(sentences, vocabulary, mark=config.mark)` marks them in a batch.
    """

    kind: Literal["pos-scan"] = "pos-scan"  # type: ignore[assignment]
    tags: tuple[str, ...] = ("NN", "NNS", "NNP", "NNPS")  # penn tags of the words that are matched

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tags:
            raise ConfigError("`tags` is empty", fix="name a part of speech, or use the model scan")

    def mark(self, sentences: Sequence[Sequence[str]]) -> list[list[bool]]:
        """Which words of each sentence are of these parts of speech; a word that stands for unknown ones never is."""
        tagger = Tagger.default()
        unknown = sorted(set(self.tags) - set(tagger.tags))
        if unknown:
            raise ConfigError(f"`tags` has {', '.join(unknown)}", fix=f"choose from {', '.join(sorted(tagger.tags))}")
        marks = []
        for words, tags in zip(sentences, tagger.tag_all(sentences), strict=True):
            tagged_words = zip(words, tags, strict=True)
            marks.append([tag in self.tags and word.lower() not in PLACEHOLDERS for word, tag in tagged_words])
        return marks

    def build(self, vocab_size: int) -> POSSCAN:
        return POSSCAN(self, vocab_size)


class POSSCAN(SCAN):
    """Section 3.1, Eq. 8. The GRU reads the whole caption; only tagged words (nouns) attend and are averaged.

    The others are dropped before the attention, as in the released code, so that the normalisation after Eq. 4 runs
    over tagged words alone. A caption without any is matched by all its words.
    """

    def embed_texts(self, texts: TextBatch) -> Embedding:
        """`words` (B, T, d), unit vectors, their `mask` (B, T), and which are `tagged` (B, T)."""
        if texts.tagged is None:
            what = "pos-scan needs the parts of speech of the words, and the texts are not tagged"
            raise MissingPartError(what, fix="give TextBatch.collate the argument mark=model.config.mark")
        return {**super().embed_texts(texts), "tagged": texts.tagged}

    def word_mask(self, texts: Embedding, forced: Tensor | None = None) -> Tensor:
        """(B, T) which words are matched: the indicator of Eq. 8, with the `forced` ones."""
        chosen = texts["tagged"] if forced is None else texts["tagged"] | forced
        chosen = chosen & texts["mask"]
        return torch.where(chosen.any(1, keepdim=True), chosen, texts["mask"])  # Eq. 8
