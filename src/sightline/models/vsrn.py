"""VSRN: Visual Semantic Reasoning Network for image-text matching.

Li et al., "Visual Semantic Reasoning for Image-Text Matching" (ICCV 2019), sections 3.1–3.4, 4.4 and 4.5. Regions learn
about each other by graph convolution, a GRU reads them one by one and what it remembers is the image. Trained together
with a captioner on the same regions, by the objective `triplet` (Eq. 8 and 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_config
from sightline.errors import ConfigError, DataError, MissingPartError
from sightline.models.captioner import Captioner, Memory, State, Trace, expand, per_image
from sightline.models.layers import (
    GRU,
    LONG_REGIONS,
    BatchNorm,
    SentenceGRU,
    chrono_biases,
    l2norm,
    masked_mean,
    masked_softmax,
    read_sequence,
    remember_long,
)
from sightline.models.matcher import Embedding, GlobalMatcher

Order = Literal["stored", "confidence", "box-size", "random", "redrawn"]
EQUAL = 0.02  # areas that differ by less are equal: cells of a grid do, by the rounding of half precision


@dataclass(frozen=True)
class VSRNConfig:
    """The sizes and choices of VSRN; the defaults are the paper's 4RRR + GSR.

    Table 4 is (`rrr_layers`, `gsr`) = (0, false) Mean-pool, (1, false) RRR, (0, true) GSR, (1, true) 1RRR + GSR,
    (4, true) 4RRR + GSR, and the last with `generation: false` for the row with a star. Table 5 is `order`.

    The paper is silent about normalisation. The released code brings V* to unit length before the GRU, along the axis
    of regions instead of features, and treats its two datasets differently. Its weights need `reset: after` and
    `norm_axis: region`, with `early_norm: true` for COCO or `batch_norm: true` for Flickr30k.

    Trained from random weights with hardest negatives, all images become one vector without `batch_norm: true`, and
    without `memory: long` global reasoning starts by reading the last regions alone.
    """

    kind: Literal["vsrn"] = "vsrn"
    region_width: int = 2048  # size of a region feature
    # Dimensions of regions in reasoning, and of the space in which photos and sentences meet (the paper's D).
    size: int = 2048
    word_size: int = 300  # size of a word embedding
    rrr_layers: int = 4  # layers of region relationship reasoning; 0 leaves it out
    gsr: bool = True  # global semantic reasoning over V*; without it the image is the mean of V*
    # In which order global reasoning reads regions: as stored; as stored, where training checks that it is by falling
    # confidence; by falling box area; in one random order per image; or in one that is redrawn each time while
    # training. The captioner reads them as stored.
    order: Order = "stored"
    # Whether the reset gate acts before U_m, as in Eq. 5, or after it, as in PyTorch's GRU and the released code.
    reset: Literal["before", "after"] = "before"
    # How both GRUs start: remembering a whole photo (36 regions) and a whole caption (12 words), or the last few alone
    # (PyTorch's start, the released code's).
    memory: Literal["long", "default"] = "long"
    # How rows of the affinity matrix are normalised: over the number of regions (released code), or by softmax.
    normalise: Literal["count", "softmax"] = "count"
    # Along which axis V* is brought to unit length: each region, or each feature over all regions (released code).
    norm_axis: Literal["feature", "region"] = "feature"
    # Unit length before the first layer of relationship reasoning too (released code for COCO).
    early_norm: bool = False
    # Batch norm of the image before unit length (released code for Flickr30k). It keeps hardest negatives from making
    # one vector of all images.
    batch_norm: bool = False
    generation: bool = True  # whether the captioner of the generation objective is there
    hidden_size: int = 512  # size of the captioner's states and attention
    dropout: float = 0.2  # in the captioner only

    def __post_init__(self) -> None:
        check_config(self, may_be_zero=("rrr_layers",))

    def build(self, vocab_size: int) -> VSRN:
        return VSRN(self, vocab_size)


class VSRN(GlobalMatcher):
    """Regions that reason, as one unit vector; similarity is the inner product with the sentence's, S of Eq. 8."""

    def __init__(self, config: VSRNConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.needs = ("regions", "boxes") if config.gsr and config.order == "box-size" else ("regions",)
        size = config.size
        self.fc = nn.Linear(config.region_width, size)
        self.relations = nn.ModuleList(RegionRelationship(size, config.normalise) for _ in range(config.rrr_layers))
        reasoning = ResetBeforeGRU if config.reset == "before" else ResetAfterGRU
        self.reasoning = reasoning(size, config.memory) if config.gsr else None
        self.norm = BatchNorm(size) if config.batch_norm else nn.Identity()
        self.text = SentenceGRU(vocab_size, config.word_size, size, config.memory)
        self.captioner = VSRNCaptioner(config, vocab_size) if config.generation else None
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def embed_images(self, scenes: SceneBatch) -> Embedding:
        """`vector` (B, D): I at unit length; `regions` (B, n, D): V*, in stored order, 0 on padding; `region_mask`."""
        features = scenes.part("regions", by="VSRN", width=self.config.region_width)
        mask = scenes.mask("regions")
        v = self.fc(features)  # Eq. 1
        if self.config.early_norm:
            v = self._unit(v, mask)
        for relation in self.relations:
            v = relation(v, mask)  # Eq. 2–3
        v = self._unit(v, mask)
        image = masked_mean(v, mask) if self.reasoning is None else self._reason(v, mask, scenes)
        return {"vector": l2norm(self.norm(image)), "regions": v, "region_mask": mask}

    def embed_texts(self, texts: TextBatch) -> Embedding:
        """`vector` (B, D), unit length."""
        return {"vector": self.text(texts)}

    def generation_log_probs(self, images: Embedding, words: Tensor) -> Tensor:
        """(N, T) log p(y_t | y_<t, V*) of words (N, T + 1), START first, 0 on padding; L_G is minus their sum."""
        if self.captioner is None:
            raise ConfigError("this VSRN has no captioner", fix="build it with `generation: true`")
        memory = self.captioner.encode_regions(images["regions"], images["region_mask"])
        return self.captioner.word_log_probs(memory, words)  # Eq. 9

    def correlations(self, images: Embedding) -> Tensor:
        """(B, n) inner product of each region of V* with I, 0 on padding: what section 4.5 ranks regions by.

        `sightline.draw.attention_maps.representation_attention` draws the ranks.
        """
        return torch.einsum("bnd,bd->bn", images["regions"], images["vector"])

    def _reason(self, v: Tensor, mask: Tensor, scenes: SceneBatch) -> Tensor:
        assert self.reasoning is not None
        order = reading_order(scenes, mask, self.config.order, self.training)
        if order is not None:
            v, mask = v.take_along_dim(order.unsqueeze(-1), 1), mask.take_along_dim(order, 1)
        memory: Tensor = self.reasoning(v, mask)  # Eq. 4–7
        return memory

    def _unit(self, v: Tensor, mask: Tensor) -> Tensor:
        real = v * mask.unsqueeze(-1)
        if self.config.norm_axis == "region":
            return l2norm(real.transpose(1, 2)).transpose(1, 2)
        return l2norm(real)


class RegionRelationship(nn.Module):
    """One layer of region relationship reasoning (section 3.2): a graph convolution with a residual connection.

    The paper's φ and ϕ are `theta` and `phi`, W_g is `g` and W_r is `W`. As in the released code, `W` ends in a batch
    norm whose weight and bias start at 0, so that a new layer passes regions through unchanged. Its statistics are
    those of real regions only.
    """

    def __init__(self, size: int, normalise: Literal["count", "softmax"]) -> None:
        super().__init__()
        self.normalise = normalise
        self.theta = nn.Linear(size, size)
        self.phi = nn.Linear(size, size)
        self.g = nn.Linear(size, size)
        norm = BatchNorm(size)
        self.W = nn.Sequential(nn.Linear(size, size), norm)
        nn.init.zeros_(norm.weight)

    def affinity(self, v: Tensor, mask: Tensor) -> Tensor:
        """(B, n, n) row-normalised affinities of regions v (B, n, d); columns of padding are 0."""
        R: Tensor = self.theta(v) @ self.phi(v).transpose(1, 2)  # Eq. 2
        columns = mask.unsqueeze(1)  # (B, 1, n)
        if self.normalise == "softmax":
            return masked_softmax(R, columns)
        return R * columns / columns.sum(-1, keepdim=True).clamp(min=1)

    def forward(self, v: Tensor, mask: Tensor) -> Tensor:
        """Regions (B, n, d) to regions that know the others; rows of padding stay as they are."""
        neighbours = self.affinity(v, mask) @ self.g(v)  # Eq. 3, R V W_g
        change: Tensor = self.W(neighbours[mask])  # Eq. 3, W_r(…): (real regions, d)
        return v + change.new_zeros(v.shape).masked_scatter(mask.unsqueeze(-1), change)  # Eq. 3, … + V


class ResetBeforeGRU(nn.Module):
    """Global semantic reasoning as printed in section 3.3: the reset gate acts on the memory before U_m does.

    `inputs` holds W_z, W_r, W_m with their biases, `gates` holds U_z and U_r, `content` is U_m (Eq. 5 prints U_z, but
    the text below it names U_m).
    """

    def __init__(self, size: int, memory: Literal["long", "default"] = "default") -> None:
        super().__init__()
        self.inputs = nn.Linear(size, 3 * size)
        self.gates = nn.Linear(size, 2 * size, bias=False)
        self.content = nn.Linear(size, size, bias=False)
        if memory == "long":
            update = self.inputs.bias.data[:size]
            chrono_biases(update, LONG_REGIONS)
            update.neg_()  # z of Eq. 7 is the share of the new, not of the old

    def forward(self, v: Tensor, mask: Tensor) -> Tensor:
        """Regions (B, n, d), padded at the end, to the memory after the last real one (B, d)."""
        m = v.new_zeros(v.shape[0], v.shape[2])
        for inputs, is_real in zip(self.inputs(v).unbind(1), mask.unbind(1), strict=True):
            input_z, input_r, input_m = inputs.chunk(3, -1)
            memory_z, memory_r = self.gates(m).chunk(2, -1)
            z = torch.sigmoid(input_z + memory_z)  # Eq. 4
            r = torch.sigmoid(input_r + memory_r)  # Eq. 6
            new = torch.tanh(input_m + self.content(r * m))  # Eq. 5
            z = z * is_real.unsqueeze(-1)  # padding never updates the memory
            m = (1 - z) * m + z * new  # Eq. 7
        return m


class ResetAfterGRU(nn.Module):
    """Global semantic reasoning with PyTorch's GRU, as released: the reset gate acts on U_m's result.

    PyTorch's update gate is one minus the paper's.
    """

    def __init__(self, size: int, memory: Literal["long", "default"] = "default") -> None:
        super().__init__()
        self.rnn = GRU(size, size, batch_first=True)
        if memory == "long":
            remember_long(self.rnn, LONG_REGIONS)

    def forward(self, v: Tensor, mask: Tensor) -> Tensor:
        """Regions (B, n, d), padded at the end, to the memory after the last real one (B, d)."""
        return read_sequence(self.rnn, v, mask)[1]


class VSRNCaptioner(Captioner):
    """The captioner that VSRN is trained together with (section 3.4): p(y_t | y_<t, V*) of Eq. 9.

    An encoder GRU reads V*, a decoder GRU attends to its states and writes the caption (Venugopalan et al., "Sequence
    to Sequence - Video to Text", ICCV 2015, with additive attention as in the released code). `encode_regions` takes
    V*; `encode` takes the scenes' own region features, for use without VSRN. Matrices that meet a concatenation are
    kept in halves, so that what words and regions add to them is computed once.
    """

    needs = ("regions",)

    def __init__(self, config: VSRNConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        size = config.hidden_size
        self.project = nn.Linear(config.size, size)
        self.encoder = GRU(size, size, batch_first=True)
        self.attend_memory = nn.Linear(size, size)
        self.attend_state = nn.Linear(size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False)
        self.embed = nn.Embedding(vocab_size, config.word_size)
        self.word_gates = nn.Linear(config.word_size, 3 * size)
        self.context_gates = nn.Linear(size, 3 * size, bias=False)
        self.state_gates = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, vocab_size)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.xavier_normal_(self.project.weight)
        nn.init.xavier_normal_(self.out.weight)
        for half in (self.attend_memory, self.attend_state):  # as one matrix from 2h to h starts
            for parameter in half.parameters():
                nn.init.uniform_(parameter, -((2 * size) ** -0.5), (2 * size) ** -0.5)
        for parameter in self.word_gates.parameters():  # as a GRU starts
            nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)

    def encode(self, scenes: SceneBatch) -> Memory:
        regions = scenes.part("regions", by="VSRN's captioner", width=self.config.size)
        return self.encode_regions(regions, scenes.mask("regions"))

    def encode_regions(self, regions: Tensor, mask: Tensor) -> Memory:
        """Memory of regions (B, n, d), padded at the end: the encoder's states and what attention adds to each."""
        states, last = read_sequence(self.encoder, self.dropout(self.project(regions)), mask)
        return {"states": states, "keys": self.attend_memory(states), "mask": mask, "last": last}

    def start(self, memory: Memory) -> State:
        """The decoder begins where the encoder ended."""
        return {"hidden": memory["last"]}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        hidden, _ = self._decode(self._word_gates(words), memory, state["hidden"])
        return hidden, {"hidden": hidden}

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        hidden = expand(self.start(memory), len(words))["hidden"]
        states, weights = [], []
        for gates in self._word_gates(words).unbind(1):
            hidden, attention = self._decode(gates, memory, hidden)
            states.append(hidden)
            weights.append(attention)
        return torch.stack(states, 1), Trace(regions=torch.stack(weights, 1))

    def predict(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.out(hidden)
        return scores

    def output_bias(self) -> nn.Parameter:
        return self.out.bias

    def _word_gates(self, words: Tensor) -> Tensor:
        """What words (…) add to the decoder's gates (…, 3h)."""
        gates: Tensor = self.word_gates(self.dropout(self.embed(words)))
        return gates

    def _decode(self, word_gates: Tensor, memory: Memory, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """One step of p(y_t | y_<t, V*) in Eq. 9: the new state (N, h), and attention (N, n)."""
        query = per_image(self.attend_state(hidden), memory).unsqueeze(2)  # (B, K, 1, h)
        scores = self.score(torch.tanh(memory["keys"].unsqueeze(1) + query)).squeeze(-1)  # (B, K, n)
        weights = masked_softmax(scores, memory["mask"].unsqueeze(1))
        context = (weights @ memory["states"]).flatten(0, 1)  # (N, h)
        # A GRU cell; PyTorch's order is reset, update, new.
        input_r, input_z, input_n = (word_gates + self.context_gates(self.dropout(context))).chunk(3, -1)
        state_r, state_z, state_n = self.state_gates(hidden).chunk(3, -1)
        new = torch.tanh(input_n + torch.sigmoid(input_r + state_r) * state_n)
        keep = torch.sigmoid(input_z + state_z)
        return keep * hidden + (1 - keep) * new, weights.flatten(0, 1)


def reading_order(scenes: SceneBatch, mask: Tensor, order: Order, training: bool) -> Tensor | None:
    """(B, n) the places of regions in the order of Table 5, padding last; None for the order they are stored in.

    "confidence" is the stored order of a detector's regions, and training refuses regions of which it is not true.
    "random" is one permutation per image, drawn from its id alone, so that it is the same in every batch and process.
    "redrawn" draws a new one each time while training, and is "random" otherwise.
    """
    if order == "confidence" and training:
        _check_confidence(scenes, mask)
    if order in ("stored", "confidence"):
        return None
    if order == "box-size":
        left, top, right, bottom = scenes.part("boxes", by="VSRN with `order: box-size`").float().unbind(-1)
        key = (left - right) * (bottom - top)
        _check_areas(-key, mask, scenes.ids)
    elif order == "redrawn" and training:
        key = torch.rand(mask.shape, device=mask.device)
    else:
        key = torch.tensor([_random_numbers(id, mask.shape[1]) for id in scenes.ids], device=mask.device)
    return key.masked_fill(~mask, torch.inf).argsort(dim=1, stable=True)


def _random_numbers(id: str, count: int) -> list[float]:
    generator = Random(id)
    return [generator.random() for _ in range(count)]


def _check_confidence(scenes: SceneBatch, mask: Tensor) -> None:
    """Refuse regions without scores, and those that are not stored by falling score."""
    if scenes.scores is None:
        what = "`order: confidence` reads the surest regions first, and these have no scores"
        fix = "use the regions of a detector, or `order: stored`, which reads regions as they come"
        raise MissingPartError(what, where=f"images {scenes.ids[0]} … {scenes.ids[-1]}", fix=fix)
    rises = (scenes.scores.diff(dim=1) > 0) & mask[:, 1:]
    if bool(rises.any()):
        what = "`order: confidence` reads the surest regions first, and these are not stored by falling score"
        fix = "sort them, or use `order: stored`, which reads regions as they come"
        raise DataError(what, where=f"image {scenes.ids[int(rises.any(1).nonzero()[0])]}", fix=fix)


def _check_areas(areas: Tensor, mask: Tensor, ids: tuple[str, ...]) -> None:
    """Refuse boxes that have one area in every image: they have no order by it."""
    several = mask.sum(1) > 1
    areas, mask = areas[several], mask[several]
    if not len(areas):
        return
    largest, smallest = areas.masked_fill(~mask, 0).amax(1), areas.masked_fill(~mask, torch.inf).amin(1)
    if bool((smallest >= (1 - EQUAL) * largest).all()):
        raise DataError(
            "`order: box-size` reads the largest boxes first, and all boxes of an image have the same area, as the "
            "cells of a grid do",
            where=f"images {ids[0]} … {ids[-1]}",
            fix="use the regions of a detector, or another order",
        )
