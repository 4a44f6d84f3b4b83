"""AdaptiveAttention keeps the captioner contract, and each of its equations is what a loop over cells computes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from captioner_contract import GRID_WIDTH, VECTOR_WIDTH, WORDS, CaptionerContract, random_scenes, random_words
from sightline.models import adaptive_attention
from sightline.models.adaptive_attention import AdaptiveAttention, AdaptiveAttentionConfig

SIZES = {
    "grid_width": GRID_WIDTH,
    "vector_width": VECTOR_WIDTH,
    "word_size": 14,
    "hidden_size": 16,
    "attention_size": 12,
}


class TestAdaptiveAttention(CaptionerContract):
    def build(self) -> AdaptiveAttention:
        return AdaptiveAttentionConfig(**{**SIZES, "hidden_size": 32}, dropout=0).build(WORDS)


@pytest.fixture
def model() -> AdaptiveAttention:
    torch.manual_seed(0)
    return AdaptiveAttentionConfig(**SIZES).build(WORDS).eval()


def affine(layer: nn.Linear, inputs: list[float]) -> list[float]:
    found = [sum(w * x for w, x in zip(row, inputs, strict=True)) for row in layer.weight.tolist()]
    return found if layer.bias is None else added(found, layer.bias.tolist())


def added(*vectors: list[float]) -> list[float]:
    return [sum(values) for values in zip(*vectors, strict=True)]


def relu(vector: list[float]) -> list[float]:
    return [max(0.0, x) for x in vector]


def tanh(vector: list[float]) -> list[float]:
    return [math.tanh(x) for x in vector]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def naive_lstm(model, word, image, hidden, cell):
    """h_t, m_t and the sentinel s_t, unit by unit, from the rows of the three matrices that belong to each gate."""
    size = len(hidden)
    sums = added(affine(model.word_gates, word), affine(model.image_gates, image), affine(model.hidden_gates, hidden))
    new_hidden, new_cell, sentinel = [], [], []
    for unit in range(size):
        enter, keep, leave, look = (sigmoid(sums[gate * size + unit]) for gate in range(4))
        new_cell.append(keep * cell[unit] + enter * math.tanh(sums[4 * size + unit]))
        new_hidden.append(leave * math.tanh(new_cell[unit]))
        sentinel.append(look * math.tanh(new_cell[unit]))
    return new_hidden, new_cell, sentinel


def naive_attention(model, hidden, sentinel, cells):
    """What a word is predicted from, and the weights of sentinel and cells, slot by slot."""
    state = tanh(affine(model.hidden[0], hidden))
    query = affine(model.queries, state)
    slots = [relu(affine(model.sentinel[0], sentinel))]
    keys = [affine(model.sentinel_keys, slots[0])]
    for cell in cells:
        slots.append(relu(affine(model.cells[0], cell)))
        keys.append(affine(model.cell_keys, slots[-1]))
    exps = [math.exp(affine(model.score, tanh(added(key, query)))[0]) for key in keys]
    weights = [value / sum(exps) for value in exps]
    context = [0.0] * len(state)
    for weight, slot in zip(weights, slots, strict=True):
        context = added(context, [weight * x for x in slot])
    return tanh(affine(model.mix[0], added(context, state))), weights


def naive_caption(model, vector, cells, words):
    """Log-probabilities and weights after each word."""
    image = relu(affine(model.image[0], vector))
    hidden = cell = [0.0] * model.config.hidden_size
    log_probs, traced = [], []
    for word in words:
        embedded = relu(model.embedding[0].weight[word].tolist())
        hidden, cell, sentinel = naive_lstm(model, embedded, image, hidden, cell)
        mixed, weights = naive_attention(model, hidden, sentinel, cells)
        scores = affine(model.output, mixed)
        total = math.log(sum(math.exp(score) for score in scores))
        log_probs.append([score - total for score in scores])
        traced.append(weights)
    return torch.tensor(log_probs), torch.tensor(traced)


def with_missing_cells(scenes):
    """Image i has one cell fewer than image i - 1; what stands in the others is rubbish."""
    count, cells = scenes.grid.shape[:2]
    mask = torch.arange(cells) < cells - torch.arange(count)[:, None]
    return replace(scenes, grid=scenes.grid.masked_fill(~mask[..., None], 5.0), grid_mask=mask)


def test_it_is_the_loop_over_words_units_and_cells(model):
    scenes, words = with_missing_cells(random_scenes(3)), random_words(6)
    output = model(model.encode(scenes), words)
    for row in range(6):
        image = row // 2
        cells = scenes.grid[image][scenes.grid_mask[image]].tolist()
        log_probs, weights = naive_caption(model, scenes.vector[image].tolist(), cells, words[row, :-1].tolist())
        torch.testing.assert_close(output.log_probs[row], log_probs, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(output.trace.gates["sentinel"][row], weights[:, 0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(output.trace.grid[row, :, : len(cells)], weights[:, 1:], atol=1e-5, rtol=1e-5)


def test_cells_and_sentinel_share_one_distribution(model):
    scenes = with_missing_cells(random_scenes(3))
    trace = model(model.encode(scenes), random_words(6)).trace
    beta = trace.gates["sentinel"]
    assert ((beta > 0) & (beta < 1)).all()
    torch.testing.assert_close(trace.grid.sum(-1), 1 - beta)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (7, 7)])
def test_the_softmax_is_over_one_slot_more_than_the_grid_has_cells(model, grid):
    scenes, words = random_scenes(2, grid=grid), random_words(2)
    nn.init.zeros_(model.score.weight)
    trace = model(model.encode(scenes), words).trace
    slots = grid[0] * grid[1] + 1
    torch.testing.assert_close(trace.grid, torch.full((2, words.shape[1] - 1, slots - 1), 1 / slots))
    torch.testing.assert_close(trace.gates["sentinel"], torch.full((2, words.shape[1] - 1), 1 / slots))


def test_a_sentinel_that_takes_all_the_weight_hides_the_cells(model):
    scenes, words = random_scenes(2), random_words(2)
    nn.init.zeros_(model.cell_keys.weight)
    nn.init.constant_(model.cell_keys.bias, -50.0)
    nn.init.constant_(model.sentinel_keys.bias, 50.0)
    nn.init.constant_(model.score.weight, 50.0)
    output = model(model.encode(scenes), words)
    assert (output.trace.gates["sentinel"] > 1 - 1e-6).all()
    other = model(model.encode(replace(scenes, grid=torch.randn_like(scenes.grid))), words)
    torch.testing.assert_close(output.log_probs, other.log_probs)


@pytest.mark.parametrize("chunk", [1, 1000])
def test_attending_to_some_words_at_a_time_changes_nothing(model, chunk, monkeypatch):
    memory, words = model.encode(random_scenes(2)), random_words(8)
    whole = model(memory, words)
    monkeypatch.setattr(adaptive_attention, "CHUNK", chunk)
    parts = model(memory, words)
    torch.testing.assert_close(parts.log_probs, whole.log_probs)
    torch.testing.assert_close(parts.trace.grid, whole.trace.grid)


def test_dropout_acts_in_training_only(model):
    scenes, words = random_scenes(4), random_words(40)
    quiet, _ = model.unroll(model.encode(scenes), words)
    assert torch.equal(quiet, model.unroll(model.encode(scenes), words)[0])
    model.train()
    noisy, _ = model.unroll(model.encode(scenes), words)
    assert 0.4 < (noisy != 0).float().mean() < 0.6
    assert 0.4 < (model.encode(scenes)["cells"] != 0).sum() / (model.eval().encode(scenes)["cells"] != 0).sum() < 0.6
