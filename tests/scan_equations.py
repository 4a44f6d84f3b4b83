"""The equations of SCAN as loops over one pair at a time, in float64, for the tests of SCAN and POS-SCAN."""

from __future__ import annotations

import torch

from captioner_contract import random_scenes
from sightline.batch import SceneBatch
from sightline.models.scan import SCAN, SCANConfig

NORMS = ("clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "softmax", "no_norm")


def double_scenes(count: int, **choices) -> SceneBatch:
    return random_scenes(count, **choices).to("cpu", torch.float64)


def unit(vector: torch.Tensor) -> torch.Tensor:
    return vector / (vector.pow(2).sum().sqrt() + 1e-8)


def naive_words(model: SCAN, ids: list[int]) -> list[torch.Tensor]:
    """The unit word vectors of one caption without padding, by a GRU cell stepped from both ends."""
    weights = dict(model.text.gru.named_parameters())

    def read(order: list[int], suffix: str) -> dict[int, torch.Tensor]:
        state, states = torch.zeros(model.config.size, dtype=torch.float64), {}
        for t in order:
            x = weights["weight_ih_l0" + suffix] @ model.text.embedding.weight[ids[t]]
            x = (x + weights["bias_ih_l0" + suffix]).chunk(3)
            h = (weights["weight_hh_l0" + suffix] @ state + weights["bias_hh_l0" + suffix]).chunk(3)
            reset, update = torch.sigmoid(x[0] + h[0]), torch.sigmoid(x[1] + h[1])
            state = (1 - update) * torch.tanh(x[2] + reset * h[2]) + update * state
            states[t] = state
        return states

    steps = list(range(len(ids)))
    forward = read(steps, "")
    if not model.config.bidirectional:
        return [unit(forward[t]) for t in steps]
    backward = read(steps[::-1], "_reverse")
    return [unit((forward[t] + backward[t]) / 2) for t in steps]


def naive_regions(model: SCAN, scenes: SceneBatch, b: int) -> list[torch.Tensor]:
    """The unit region vectors of one image."""
    kept = scenes.regions[b][scenes.region_mask[b]]
    return [unit(model.image.weight @ region + model.image.bias) for region in kept]


def naive_attention(
    config: SCANConfig, contexts: list[torch.Tensor], queries: list[torch.Tensor]
) -> list[list[torch.Tensor]]:
    """alpha[t][i]: the weight of context i for query t, in the words of the equations."""
    scores = [[v @ e for e in queries] for v in contexts]
    clip = (lambda x: x.clamp(min=0)) if config.clip == "hard" else (lambda x: torch.where(x > 0, x, 0.1 * x))
    for i, row in enumerate(scores):
        if config.raw_feature_norm.startswith("clipped"):
            row = [clip(s) for s in row]
        if config.raw_feature_norm.endswith("l2norm"):
            length = sum(s * s for s in row) ** 0.5 if any(s != 0 for s in row) else 0.0
            row = [s / (length + 1e-8) for s in row]
        if config.raw_feature_norm.endswith("l1norm"):
            row = [s / (sum(abs(x) for x in row) + 1e-8) for s in row]
        if config.raw_feature_norm == "softmax":
            row = [s.exp() / sum(x.exp() for x in row) for s in row]
        scores[i] = row
    weights = [[(config.temperature * scores[i][t]).exp() for i in range(len(contexts))] for t in range(len(queries))]
    return [[w / sum(row) for w in row] for row in weights]


def naive_score(config: SCANConfig, regions: list[torch.Tensor], words: list[torch.Tensor]) -> torch.Tensor:
    """S(I, T) of one pair."""
    contexts, queries = (regions, words) if config.direction == "t2i" else (words, regions)
    attention = naive_attention(config, contexts, queries)
    relevance = []
    for e, row in zip(queries, attention, strict=True):
        attended = sum(a * v for a, v in zip(row, contexts, strict=True))
        relevance.append(e @ attended / (e.norm() * attended.norm()))
    if config.aggregate == "max":
        return max(relevance)
    if config.aggregate == "lse":
        return sum((config.lambda_lse * r).exp() for r in relevance).log() / config.lambda_lse
    return sum(relevance) / (len(relevance) if config.aggregate == "mean" else 1)


def naive_similarity(model: SCAN, scenes: SceneBatch, ids: torch.Tensor) -> torch.Tensor:
    """(images, texts) pair by pair."""
    regions = [naive_regions(model, scenes, b) for b in range(len(scenes))]
    words = [naive_words(model, [i for i in row if i]) for row in ids.tolist()]
    rows = [torch.stack([naive_score(model.config, v, e) for e in words]) for v in regions]
    return torch.stack(rows)
