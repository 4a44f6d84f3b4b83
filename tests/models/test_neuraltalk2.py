"""NeuralTalk2 keeps the captioner contract and is the LSTM of its equations."""

from __future__ import annotations

import math

import pytest
import torch

from captioner_contract import VECTOR_WIDTH, WORDS, CaptionerContract, random_scenes, random_words
from sightline.models.neuraltalk2 import NeuralTalk2, NeuralTalk2Config

SIZES = {"vector_width": VECTOR_WIDTH, "word_size": 20, "hidden_size": 24}


class TestNeuralTalk2(CaptionerContract):
    def build(self) -> NeuralTalk2:
        return NeuralTalk2Config(**SIZES, dropout=0).build(WORDS)


@pytest.fixture
def model() -> NeuralTalk2:
    torch.manual_seed(0)
    return NeuralTalk2Config(**SIZES).build(WORDS).eval()


def affine(weight: torch.Tensor, bias: torch.Tensor, inputs: list[float]) -> list[float]:
    return [
        sum(w * x for w, x in zip(row, inputs, strict=True)) + b
        for row, b in zip(weight.tolist(), bias.tolist(), strict=True)
    ]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def naive_lstm(lstm: torch.nn.LSTM, inputs: list[float], hidden: list[float], cell: list[float]):
    """One step, gate by gate and unit by unit; PyTorch's order is input, forget, candidate, output."""
    size = len(hidden)
    from_input = affine(lstm.weight_ih_l0, lstm.bias_ih_l0, inputs)
    from_hidden = affine(lstm.weight_hh_l0, lstm.bias_hh_l0, hidden)
    gates = [a + b for a, b in zip(from_input, from_hidden, strict=True)]
    new_hidden, new_cell = [], []
    for unit in range(size):
        enter, keep = sigmoid(gates[unit]), sigmoid(gates[size + unit])
        candidate, leave = math.tanh(gates[2 * size + unit]), sigmoid(gates[3 * size + unit])
        new_cell.append(keep * cell[unit] + enter * candidate)
        new_hidden.append(leave * math.tanh(new_cell[-1]))
    return new_hidden, new_cell


def naive_log_probs(model: NeuralTalk2, vector: list[float], words: list[int]) -> list[list[float]]:
    """The image, then the words, one after the other: a distribution after each word."""
    image = [max(0.0, x) for x in affine(model.image[0].weight, model.image[0].bias, vector)]
    zeros = [0.0] * model.config.hidden_size
    hidden, cell = naive_lstm(model.lstm, image, zeros, zeros)
    found = []
    for word in words:
        hidden, cell = naive_lstm(model.lstm, model.embedding.weight[word].tolist(), hidden, cell)
        scores = affine(model.output.weight, model.output.bias, hidden)
        total = math.log(sum(math.exp(score) for score in scores))
        found.append([score - total for score in scores])
    return found


def test_it_reads_the_image_then_the_words_as_a_naive_lstm_does(model):
    scenes, words = random_scenes(3), random_words(3)
    found = model(model.encode(scenes), words).log_probs
    for i in range(3):
        expected = naive_log_probs(model, scenes.vector[i].tolist(), words[i, :-1].tolist())
        torch.testing.assert_close(found[i], torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_there_is_nothing_to_trace(model):
    trace = model(model.encode(random_scenes(2)), random_words(2)).trace
    assert trace.regions is None
    assert trace.grid is None
    assert trace.gates == {}


def test_dropout_zeroes_half_of_what_words_are_predicted_from_in_training_only(model):
    scenes, words = random_scenes(4), random_words(40)
    quiet, _ = model.unroll(model.encode(scenes), words)
    assert (quiet != 0).all()
    model.train()
    noisy, _ = model.unroll(model.encode(scenes), words)
    kept = noisy != 0
    assert 0.4 < kept.float().mean() < 0.6
    torch.testing.assert_close(noisy[kept], 2 * quiet[kept])
