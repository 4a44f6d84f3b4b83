"""POS-SCAN: SCAN over the words of some parts of speech ("More Grounded Image Captioning by Distilling Image-Text
Matching", section 3.1, Eq. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sightline.batch import TextBatch
from sightline.errors import ConfigError, MissingPartError
from sightline.models.matcher import Embedding
from sightline.models.scan import SCAN, SCANConfig
from sightline.text.tagger import Tagger

PLACEHOLDERS = frozenset({"unk", "<unk>"})  # of unknown words, which a tagger would call nouns


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
