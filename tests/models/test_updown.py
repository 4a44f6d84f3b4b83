"""Up-Down against the equations of the paper, written out with loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS, CaptionerContract, first_regions, random_scenes, random_words
from sightline.config import build
from sightline.errors import CountError
from sightline.models.captioner import expand, per_image
from sightline.models.updown import UpDown, UpDownConfig

SMALL = UpDownConfig(region_width=REGION_WIDTH, word_size=12, hidden_size=16, attention_size=14, dropout=0.0)
RELEASED = replace(SMALL, mean_of="raw")


class TestUpDown(CaptionerContract):
    outside_likelihood = ("attention_score.bias",)  # a softmax does not see what all its scores share

    def build(self):
        return replace(SMALL, hidden_size=32, word_size=24).build(WORDS)


class TestUpDownAsReleased(CaptionerContract):
    outside_likelihood = ("attention_score.bias",)

    def build(self):
        return replace(RELEASED, hidden_size=32, word_size=24).build(WORDS)


def small(config: UpDownConfig = SMALL) -> UpDown:
    torch.manual_seed(0)
    return config.build(WORDS).eval()


def affine(matrix, vector, bias=None):
    rows = [sum(w * x for w, x in zip(row, vector, strict=True)) for row in matrix.tolist()]
    return rows if bias is None else plus(rows, bias.tolist())


def plus(*vectors):
    return [sum(parts) for parts in zip(*vectors, strict=True)]


def relu(vector, config):
    return [max(0.0, x) for x in vector] if config.relu else vector


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softmax(scores):
    exponentials = [math.exp(score - max(scores)) for score in scores]
    return [e / sum(exponentials) for e in exponentials]


def lstm(module, inputs, h, c):
    gates = plus(affine(module.weight_ih, inputs, module.bias_ih), affine(module.weight_hh, h, module.bias_hh))
    size = len(h)
    i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
    c = [sigmoid(f[k]) * c[k] + sigmoid(i[k]) * math.tanh(g[k]) for k in range(size)]
    return [sigmoid(o[k]) * math.tanh(c[k]) for k in range(size)], c


def naive(model, features, words):
    """Log-probabilities and attention of one caption of one image, number by number; `features` has no padding."""
    config, size = model.config, model.config.hidden_size
    embed = model.region_embedding
    regions = [relu(affine(embed.weight, f, embed.bias), config) for f in features.tolist()]  # Eq. 9
    if config.mean_of == "embedded":
        mean = [sum(column) / len(regions) for column in zip(*regions, strict=True)]
    else:
        raw = [sum(column) / len(features) for column in zip(*features.tolist(), strict=True)]
        mean = relu(affine(model.mean_embedding.weight, raw, model.mean_embedding.bias), config)
    h1, c1, h2, c2 = ([0.0] * size for _ in range(4))
    log_probs, attention = [], []
    for word in words[:-1]:
        embedded = relu(model.word_embedding.weight[word].tolist(), config)
        h1, c1 = lstm(model.attention_lstm, h2 + mean + embedded, h1, c1)  # Eq. 10
        scores = []
        for v in regions:
            inner = plus(
                affine(model.region_attention.weight, v, model.region_attention.bias),
                affine(model.hidden_attention.weight, h1, model.hidden_attention.bias),
            )
            squeezed = [math.tanh(x) for x in inner]
            scores += affine(model.attention_score.weight, squeezed, model.attention_score.bias)  # Eq. 12
        beta = softmax(scores)
        seen = [sum(b * v[k] for b, v in zip(beta, regions, strict=True)) for k in range(size)]  # Eq. 11
        h2, c2 = lstm(model.language_lstm, seen + h1, h2, c2)  # Eq. 13
        log_probs.append([math.log(p) for p in softmax(affine(model.output.weight, h2, model.output.bias))])  # Eq. 14
        attention.append(beta)
    return torch.tensor(log_probs), torch.tensor(attention)


@pytest.mark.parametrize("mean_of", ["embedded", "raw"])
@pytest.mark.parametrize("relu", [True, False])
def test_it_computes_the_equations_of_the_paper(mean_of, relu):
    model = small(replace(SMALL, mean_of=mean_of, relu=relu, hidden_size=6, word_size=5, attention_size=4))
    scenes, words = random_scenes(3), random_words(6, longest=3)
    output = model(model.encode(scenes), words)
    for row in range(6):
        there = scenes.region_mask[row // 2]
        log_probs, attention = naive(model, scenes.regions[row // 2][there], words[row])
        torch.testing.assert_close(output.log_probs[row], log_probs, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(output.trace.regions[row][:, there], attention, atol=1e-6, rtol=1e-4)


def test_an_image_without_regions_is_captioned_from_its_words_alone():
    model, scenes = small(), random_scenes(2)
    blind = replace(scenes, region_mask=torch.zeros_like(scenes.region_mask))
    output = model(model.encode(blind), random_words(2))
    assert output.log_probs.isfinite().all()
    assert (output.trace.regions == 0).all()
    empty = replace(scenes, regions=scenes.regions[:, :0], region_mask=scenes.region_mask[:, :0])
    with torch.no_grad():
        assert torch.equal(model(model.encode(empty), random_words(2)).log_probs, output.log_probs)


def test_steps_without_gradients_are_the_same_steps_and_leave_what_they_read():
    model, scenes, words = small(), random_scenes(3), random_words(6)
    memory = model.encode(scenes)
    state = expand(model.start(memory), 6)
    for column in words[:, :4].T:
        before = {name: part.clone() for name, part in {**memory, **state}.items()}
        hidden, following = model.advance(column, memory, state)
        with torch.no_grad():
            again, other = model.advance(column, memory, state)
        for name, part in {**memory, **state}.items():
            assert torch.equal(part, before[name]), name
        torch.testing.assert_close(again, hidden)
        torch.testing.assert_close(other, following)
        state = following
    with torch.no_grad():
        output = model(memory, words)
    torch.testing.assert_close(output.log_probs, model(memory, words).log_probs)
    torch.testing.assert_close(output.trace.regions, model(memory, words).trace.regions)


def test_it_runs_under_autocast_with_and_without_gradients():
    model, scenes, words = small(), random_scenes(3), random_words(6)
    expected = model(model.encode(scenes), words).log_probs
    with torch.autocast("cpu", torch.bfloat16):
        trained = model(model.encode(scenes), words).log_probs
        with torch.no_grad():
            decoded = model(model.encode(scenes), words).log_probs
    torch.testing.assert_close(trained, expected, atol=0.1, rtol=0.1)
    torch.testing.assert_close(decoded, expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("mean_of", ["embedded", "raw"])
@pytest.mark.parametrize("batch_norm", [1, 2])
def test_batch_norm_counts_real_regions_only(mean_of, batch_norm):
    model = small(replace(SMALL, batch_norm=batch_norm, mean_of=mean_of)).train()
    scenes = random_scenes(6)
    real = scenes.regions[scenes.region_mask]
    memory = model.encode(scenes)
    normal = (real - real.mean(0)) / (real.var(0, unbiased=False) + 1e-5).sqrt()
    embedded = model.region_embedding(normal).relu()
    if batch_norm == 2:
        embedded = (embedded - embedded.mean(0)) / (embedded.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(memory["regions"][scenes.region_mask], embedded, atol=1e-5, rtol=1e-4)
    assert (memory["regions"][~scenes.region_mask] == 0).all()
    torch.testing.assert_close(model.region_norm.running_mean, 0.1 * real.mean(0))
    model.eval()
    assert not torch.equal(model.encode(scenes)["regions"], memory["regions"])
    assert (model.embedded_norm is not None) == (batch_norm == 2)


def test_batch_norm_runs_in_bfloat16():
    model = small(replace(SMALL, batch_norm=2)).to(torch.bfloat16)
    output = model(model.encode(random_scenes(3).to("cpu", torch.bfloat16)), random_words(3))
    assert output.log_probs.isfinite().all()


def test_dropout_touches_words_regions_and_the_hidden_state_but_not_the_recurrence():
    model = small(replace(SMALL, dropout=0.5, hidden_size=400)).train()
    scenes = random_scenes(2)
    memory = model.encode(scenes)
    real = model.region_embedding(scenes.regions).relu()[scenes.region_mask]
    dropped = memory["regions"][scenes.region_mask]
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * real[kept])
    assert 0.4 < (dropped[real > 0] == 0).float().mean() < 0.6
    hidden, state = model.advance(torch.tensor([5, 5]), memory, model.start(memory))
    kept = hidden != 0
    torch.testing.assert_close(hidden[kept], 2 * state["h2"][kept])
    assert 0.4 < kept.float().mean() < 0.6
    assert (state["h2"] != 0).all()
    model.eval()
    hidden, state = model.advance(torch.tensor([5, 5]), memory, model.start(memory))
    assert torch.equal(hidden, state["h2"])


def test_equal_words_of_a_batch_are_dropped_apart_in_training():
    model = small(replace(SMALL, dropout=0.5)).train()
    with torch.no_grad():
        model.region_embedding.weight.zero_()  # only the words' dropout can tell the rows apart
        model.region_embedding.bias.zero_()
    scenes = random_scenes(1)
    memory = model.encode(scenes)
    _, state = model.advance(torch.tensor([5, 5]), memory, expand(model.start(memory), 2))
    assert not torch.equal(state["h1"][0], state["h1"][1])


def test_every_weight_of_the_released_code_has_a_home():
    shapes = {name: tuple(part.shape) for name, part in small(replace(RELEASED, batch_norm=2)).state_dict().items()}
    assert shapes["word_embedding.weight"] == (WORDS, 12)
    assert shapes["mean_embedding.weight"] == shapes["region_embedding.weight"] == (16, REGION_WIDTH)
    assert shapes["attention_lstm.weight_ih"] == (64, 16 + 16 + 12)
    assert shapes["language_lstm.weight_ih"] == (64, 16 + 16)
    assert shapes["attention_lstm.weight_hh"] == shapes["language_lstm.weight_hh"] == (64, 16)
    assert shapes["attention_lstm.bias_ih"] == shapes["language_lstm.bias_hh"] == (64,)
    assert shapes["region_attention.weight"] == shapes["hidden_attention.weight"] == (14, 16)
    assert shapes["region_attention.bias"] == shapes["hidden_attention.bias"] == (14,)
    assert shapes["attention_score.weight"] == (1, 14)
    assert shapes["attention_score.bias"] == (1,)
    assert shapes["region_norm.running_var"] == (REGION_WIDTH,)
    assert shapes["embedded_norm.running_mean"] == (16,)
    assert shapes["output.weight"] == (WORDS, 16)
    assert "mean_embedding.weight" not in small().state_dict()


def test_a_recipe_names_its_options():
    config = build(UpDownConfig, {"kind": "updown", "mean_of": "raw", "batch_norm": 2, "relu": False})
    assert config == UpDownConfig(mean_of="raw", batch_norm=2, relu=False)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("batch_norm", [1, 2])
def test_one_region_alone_is_normalised_by_what_was_seen_before(batch_norm, count):
    torch.manual_seed(0)
    model = replace(SMALL, batch_norm=batch_norm).build(WORDS).train()
    model.encode(random_scenes(6))
    alone = first_regions(random_scenes(1), count)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    trained = model.encode(alone)
    assert torch.equal(trained["regions"], model.eval().encode(alone)["regions"])
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


def test_a_memory_of_no_images_is_refused():
    with pytest.raises(CountError, match="at least one image"):
        per_image(torch.zeros(4, 2), {"gates": torch.zeros(0, 8)})


def test_captions_that_do_not_divide_among_the_images_are_refused():
    model = small()
    with pytest.raises(CountError, match="5 captions for 2 images"):
        model(model.encode(random_scenes(2)), random_words(5))
