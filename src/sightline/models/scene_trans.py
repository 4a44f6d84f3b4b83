"""Scene-Trans, Sightline's own captioner: a transformer that reads a scene's regions and its grid cells together.

Regions say what is there, and words can point at them; the grid says what no box was drawn around. Both become rows of
one width, each with where it is and which of the two it is. The rows look at each other in `encoder_layers` layers of
self-attention, and the decoder of `sightline.models.transformer_decoder` looks at all of them in one softmax. So a word
divides its attention between regions and cells: `Trace.regions` and `Trace.grid` are the two parts of the last layer's
weights (their mean over the heads) as they are, and it is their sums that together make 1.

With `concepts`, the names that the vision model gave to what it sees (`SceneBatch.names`) are rows too, behind the
cells: the embeddings of their words, the same with which captions are written, with how sure each is and where it is.
`Trace` leaves out the attention on these rows.

With `copy`, a word can be said in two ways (Gu et al., "Incorporating Copying Mechanism in Sequence-to-Sequence
Learning", ACL 2016): as any word, by the vocabulary's scores, or because a name says it. Both are in one softmax:
p(w) ∝ exp(generate(w)) + Σ exp(copy(k)) over the rows k of names whose word is w. So the model can say a word that no
caption of its training had, where the vision model names it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.models.captioner import Memory, State, Trace
from sightline.models.layers import corners_and_area
from sightline.models.transformer_decoder import EncoderLayer, TransformerCaptioner, TransformerConfig, bias_of
from sightline.text.vocabulary import PAD, Vocabulary

NAME = "Scene-Trans"
NAME_WORDS = 2  # of a name that are read: "teddy bear"
COPY_SIZE = 64  # of the queries and keys by which words are copied
NEVER = -1e4  # the score of a row that cannot be copied: finite, so that a photo without names has gradients too


@dataclass(frozen=True)
class SceneTransConfig(TransformerConfig):
    """The sizes and choices of Scene-Trans; the defaults are those of the shipped model."""

    kind: Literal["scene-trans"] = "scene-trans"
    region_width: int = 512
    grid_width: int = 1280  # numbers a grid feature has
    hidden_size: int = 384
    encoder_layers: int = 2  # layers in which regions and cells look at each other
    layers: int = 3
    heads: int = 6
    ffn_size: int = 1024
    dropout: float = 0.1
    pre_norm: bool = True
    tied: bool = True
    sources: Literal["both", "regions", "grid"] = "both"  # what of a scene is read
    concepts: int = 0  # names that the vision model has, if the model reads them; 0 leaves them out
    copy: bool = False  # whether words can be copied from names

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.copy and not self.concepts:
            raise ConfigError("`copy` is true, and the model reads no names", fix="set `concepts` to their number")

    def build(self, vocab_size: int) -> SceneTrans:
        return SceneTrans(self, vocab_size)


class Source(nn.Module):
    """Features of one kind as rows: W f + V [box; its area] + the vector that tells this kind from the other."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.features = nn.Linear(width, size)  # its bias is that vector
        self.boxes = nn.Linear(5, size, bias=False)

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        """Features (B, n, width) at boxes (B, n, 4), normalised corners: (B, n, d)."""
        rows: Tensor = self.features(features) + self.boxes(corners_and_area(boxes).to(features.dtype))
        return rows


class NameSource(nn.Module):
    """Names as rows, one for each of their words: its embedding + W [scores; box; its area] + which word it is."""

    words: Tensor

    def __init__(self, names: int, size: int) -> None:
        super().__init__()
        self.features = nn.Linear(7, size)  # its bias tells names from regions and cells
        self.second = nn.Parameter(torch.zeros(size))
        self.register_buffer("words", torch.full((names, NAME_WORDS), PAD, dtype=torch.int32))

    def set_words(self, names: Sequence[str], vocabulary: Vocabulary) -> None:
        """Tell which words the names are made of; a name with an unknown word, or more than two, has none."""
        for row, name in zip(self.words, names, strict=True):
            words = name.split()
            known = len(words) <= NAME_WORDS and all(word in vocabulary for word in words)
            for place in range(NAME_WORDS):
                row[place] = vocabulary.id(words[place]) if known and place < len(words) else PAD

    def forward(self, scenes: SceneBatch, embedding: nn.Embedding) -> tuple[Tensor, Tensor]:
        """Rows (B, 2 k, d) of the scenes' names, and their words (B, 2 k), PAD where a row is none."""
        names, scores = scenes.part("names", by=NAME), scenes.part("name_scores", by=NAME)
        boxes = corners_and_area(scenes.part("name_boxes", by=NAME))
        words = self.words[names.clamp(min=0)].masked_fill((names < 0)[..., None], PAD).long()  # (B, k, 2)
        about = self.features(torch.cat([scores, boxes], -1).to(self.features.weight.dtype))  # (B, k, d)
        rows = embedding(words) * math.sqrt(embedding.embedding_dim) + about[:, :, None]
        rows = rows + torch.stack([torch.zeros_like(self.second), self.second])
        return rows.flatten(1, 2), words.flatten(1, 2)


class Copier(nn.Module):
    """How much each name's word wants to be the next one: copy(k) = (W_q h) · (W_k r_k) / √64 + b for the row r_k."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, COPY_SIZE)
        self.key = nn.Linear(size, COPY_SIZE)
        self.bias = nn.Parameter(torch.zeros(()))

    def remember(self, rows: Tensor, words: Tensor) -> Memory:
        """What `scores` reads of the encoded rows (B, k, d) of names, whose words are `words` (B, k), PAD where none.

        `copy_same` (B, k, k) is 0 where two rows have the same word, else NEVER.
        """
        there = words != PAD
        same = (words[:, :, None] == words[:, None]) & there[:, None]
        bias = torch.zeros_like(same, dtype=rows.dtype).masked_fill_(~same, NEVER)
        return {"copy_keys": self.key(rows), "copy_words": words, "copy_same": bias}

    def scores(self, hidden: Tensor, memory: Memory) -> Tensor:
        """(N, T, k) of hidden (N, T, d): log Σ exp(copy) over the rows that have the same word."""
        keys, count = memory["copy_keys"], len(memory["copy_keys"])
        queries = self.query(hidden).reshape(count, -1, COPY_SIZE)  # (B, K·T, 64)
        each = queries @ keys.mT / math.sqrt(COPY_SIZE) + self.bias  # (B, K·T, k)
        total: Tensor = (each[:, :, None] + memory["copy_same"][:, None]).logsumexp(-1)
        return total.view(*hidden.shape[:2], -1)


class SceneTrans(TransformerCaptioner):
    """Regions and cells, aware of each other, are what the decoder looks at; memory's rows are those, in this order.

    Memory also holds `region_mask` (B, n) and `cell_mask` (B, L), which tell how many of the rows are which.

    Where words can be copied, a hidden vector is followed by the scores of the k rows of names, and by their words as
    numbers: `predict` has all it needs in it.
    """

    config: SceneTransConfig

    def __init__(self, config: SceneTransConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        size, sources = config.hidden_size, config.sources
        self.regions = Source(config.region_width, size) if sources != "grid" else None
        self.grid = Source(config.grid_width, size) if sources != "regions" else None
        self.names = NameSource(config.concepts, size) if config.concepts else None
        self.copier = Copier(size) if config.copy else None
        self.rows_norm = nn.LayerNorm(size)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.encoder_norm = nn.LayerNorm(size) if config.pre_norm else nn.Identity()
        read = {"both": ("regions", "boxes", "grid"), "regions": ("regions", "boxes"), "grid": ("grid",)}
        self.needs = read[sources]

    def encode(self, scenes: SceneBatch) -> Memory:
        """The cross-attention memory of the encoded rows: regions first, then cells."""
        parts: list[Tensor] = []
        masks: list[Tensor] = []
        words: Tensor | None = None  # of names
        if self.regions is not None:
            features = scenes.part("regions", by=NAME, width=self.config.region_width)
            parts.append(self.regions(features, scenes.part("boxes", by=NAME)))  # (B, n, d)
            masks.append(scenes.mask("regions"))
        if self.grid is not None:
            features = scenes.part("grid", by=NAME, width=self.config.grid_width)
            parts.append(self.grid(features, scenes.cell_boxes(NAME)))  # (B, L, d)
            masks.append(scenes.mask("grid"))
        if self.names is not None and scenes.names is not None:  # features of others have none
            rows, words = self.names(scenes, self.embedding)
            parts.append(rows)  # (B, 2 k, d)
            masks.append(words != PAD)
        mask = torch.cat(masks, 1)
        rows = self.dropout(self.rows_norm(torch.cat(parts, 1)))  # (B, n + L, d)
        bias = bias_of(mask, rows.dtype)[:, None, None]
        for layer in self.encoder:
            rows = layer(rows, bias)
        regions = 0 if self.regions is None else masks[0].shape[1]
        cells = 0 if self.grid is None else masks[self.regions is not None].shape[1]
        counts = {"region_mask": mask[:, :regions], "cell_mask": mask[:, regions : regions + cells]}
        rows = self.encoder_norm(rows)
        if self.copier is not None and words is not None:
            counts |= self.copier.remember(rows[:, regions + cells :], words)
        return {**self.remember(rows, mask), **counts}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """As the decoder does, with what names would copy."""
        hidden, state = super().advance(words, memory, state)
        return self._with_copies(hidden[:, None], memory)[:, 0], state

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        """As the decoder does; its attention is divided into that on regions and that on cells."""
        hidden, trace = super().unroll(memory, words)
        hidden = self._with_copies(hidden, memory)
        assert trace.regions is not None
        count, cells = memory["region_mask"].shape[1], memory["cell_mask"].shape[1]
        regions = None if self.regions is None else trace.regions[..., :count]
        return hidden, Trace(regions, None if self.grid is None else trace.regions[..., count : count + cells])

    def _with_copies(self, hidden: Tensor, memory: Memory) -> Tensor:
        """(N, T, d) to (N, T, d + 2 k): hidden, the scores of names' rows, and their words."""
        if self.copier is None or "copy_keys" not in memory:
            return hidden
        scores, words = self.copier.scores(hidden, memory), memory["copy_words"]
        of_rows = words.repeat_interleave(len(hidden) // len(words), 0)[:, None].expand_as(scores)
        return torch.cat([hidden, scores, of_rows.float()], -1)  # float32, in which every id is exact

    def predict(self, hidden: Tensor) -> Tensor:
        """The vocabulary's scores and, for words of names, log(exp(generate) + Σ exp(copy))."""
        size = self.config.hidden_size
        logits = super().predict(hidden[..., :size].to(self.embedding.weight.dtype))
        if hidden.shape[-1] == size:
            return logits
        scores, words = hidden[..., size:].tensor_split(2, -1)
        words = words.long()
        both = torch.logaddexp(logits.gather(-1, words).float(), scores.float()).to(logits.dtype)
        # Rows of one word have one score, so that their order is free. A gradient needs what was gathered from.
        return logits.scatter(-1, words, both) if torch.is_grad_enabled() else logits.scatter_(-1, words, both)
