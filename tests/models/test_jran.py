"""JRAN: the contract, the rows of Table 1 and the schemes of Fig. 5, and Eq. 11–13 with the LSTMs written out."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import pytest
import torch

from captioner_contract import (
    GRID_WIDTH,
    REGION_WIDTH,
    WORDS,
    CaptionerContract,
    more_padding,
    random_scenes,
    random_words,
    rows,
    stepped,
)
from jrln_samples import BASELINE, SCHEMES, TABLE_1, awake, variation_after
from sightline.config import build
from sightline.errors import ConfigError, MissingPartError
from sightline.models.jran import JRANConfig
from sightline.models.jrln import JRLNConfig
from sightline.models.model_configs import CaptionerConfig
from sightline.text.vocabulary import PAD

HIDDEN = 32


def small(config, **changes):
    """The same switches with tiny sizes and no dropout."""
    jrln = config.jrln and replace(config.jrln, size=16, heads=2, layers=2, dropout=0.0)
    sizes = {"size": 16, "word_size": 12, "hidden_size": HIDDEN, "attention_size": 14}
    return replace(config, jrln=jrln, region_width=REGION_WIDTH, grid_width=GRID_WIDTH, dropout=0.0, **sizes, **changes)


VARIANTS = {
    **{f"row {n}": config for n, config in TABLE_1.items()},
    **{f"scheme {name}": config for name, config in SCHEMES.items() if name != "rc"},
    "baseline": BASELINE,
    "grid only": JRANConfig(regions=False, jrln=None),
    "row 6, updown": replace(TABLE_1[6], decoder="updown"),
    "row 4, updown": replace(TABLE_1[4], decoder="updown"),
}


def built(name):
    torch.manual_seed(0)
    return awake(small(VARIANTS[name]).build(WORDS)).eval()


class TestRow6(CaptionerContract):
    def build(self):
        return small(TABLE_1[6]).build(WORDS)

    @pytest.fixture
    def model(self):
        torch.manual_seed(0)
        return awake(self.build()).eval()


class TestRow5(CaptionerContract):
    def build(self):
        return small(TABLE_1[5]).build(WORDS)


class TestBaseline(CaptionerContract):
    def build(self):
        return small(BASELINE).build(WORDS)


class TestBaselineWithTwoLSTMs(CaptionerContract):
    def build(self):
        return small(BASELINE, decoder="updown").build(WORDS)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n not in ("row 5", "row 6", "baseline")])
class TestEveryVariant:
    """The parts of the contract in which a switch could go wrong."""

    def test_forward_equals_stepping_with_a_shared_memory(self, name):
        model, scenes, words = built(name), random_scenes(3), random_words(6)
        memory = model.encode(scenes)
        output = model(memory, words)
        torch.testing.assert_close(output.log_probs, stepped(model, scenes, words), atol=1e-5, rtol=1e-5)
        alone = model(model.encode(rows(scenes, [0, 0, 1, 1, 2, 2])), words)
        torch.testing.assert_close(output.log_probs, alone.log_probs, atol=1e-5, rtol=1e-5)

    def test_padding_never_changes_a_result(self, name):
        model, scenes, words = built(name), random_scenes(3), random_words(3)
        plain, padded = (model(model.encode(s), words) for s in (scenes, more_padding(scenes)))
        torch.testing.assert_close(plain.log_probs, padded.log_probs, atol=1e-5, rtol=1e-5)
        for gate, value in plain.trace.gates.items():
            torch.testing.assert_close(value, padded.trace.gates[gate])

    def test_gradients_reach_every_parameter(self, name):
        model = built(name).train()
        model.log_prob(model.encode(random_scenes(4)), random_words(4)).sum().backward()
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.abs().sum() > 0, parameter_name

    def test_its_config_survives_as_plain_data(self, name):
        @dataclasses.dataclass(frozen=True)
        class Holder:
            model: CaptionerConfig

        assert build(Holder, {"model": dataclasses.asdict(VARIANTS[name])}).model == VARIANTS[name]

    def test_the_parts_it_needs_are_those_it_reads(self, name):
        model, scenes, words = built(name), random_scenes(3), random_words(3)
        unread = {part: None for part in ("regions", "grid") if part not in model.needs}
        expected = model(model.encode(scenes), words).log_probs
        assert torch.equal(model(model.encode(replace(scenes, **unread)), words).log_probs, expected)
        for part in model.needs:
            with pytest.raises(MissingPartError, match=part):
                model.encode(replace(scenes, **{part: None}))
            moved = replace(scenes, **{part: getattr(scenes, part) + 1})
            assert not torch.allclose(model(model.encode(moved), words).log_probs, expected)


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def naive_lstm(gates, cell):
    enter, forget, candidate, leave = (gates[part * HIDDEN : (part + 1) * HIDDEN] for part in range(4))
    cell = sigmoid(forget) * cell + sigmoid(enter) * torch.tanh(candidate)
    return sigmoid(leave) * torch.tanh(cell), cell


def naive_attention(attention, features, query):
    """Eq. 11–13 of one image without padding: context (d,) and a list of weights."""
    scores = []
    for v in features:
        inner = attention.key.weight @ v + attention.query.weight @ query + attention.key.bias
        scores.append(math.exp(float(attention.score.weight[0] @ torch.tanh(inner))))
    weights = [score / sum(scores) for score in scores]
    return sum((w * v for w, v in zip(weights, features, strict=True)), torch.zeros(len(features[0]))), weights


def projected(model, scenes, image):
    """The regions that are there and the cells, projected to d, row by row."""
    kinds = []
    for part in ("regions", "grid"):
        layer = getattr(model, f"{part.removesuffix('s')}_projection", None)
        mask = scenes.region_mask if part == "regions" else scenes.grid_mask
        there = getattr(scenes, part)[image][mask[image]]
        kinds.append([(layer.weight @ row + layer.bias).clamp(min=0) for row in there] if layer else [])
    return kinds


def naive_features(model, scenes, image):
    """What the decoder looks at, and σ of each where JRLN has a gate."""
    regions, cells = projected(model, scenes, image)
    if model.jrln is None:
        return [*regions, *cells], None
    first, second = (regions, cells) if regions else (cells, None)
    sets = [torch.stack(rows)[None] if rows else None for rows in (first, second)]
    masks = [part if part is None else torch.ones(1, part.shape[1], dtype=torch.bool) for part in sets]
    joint, sigma = model.jrln(sets[0], masks[0], sets[1], masks[1])  # itself tested against loops
    return list(joint[0]), None if sigma is None else sigma[0]


@pytest.mark.parametrize("name", [n for n in VARIANTS if "updown" not in n])
@torch.no_grad()
def test_the_decoder_is_equations_11_to_13_and_one_lstm(name):
    model, scenes, words = built(name), random_scenes(2), random_words(4)
    output = model(model.encode(scenes), words)
    decoder = model.decoder
    for n in range(4):
        features, sigma = naive_features(model, scenes, n // 2)
        hidden, cell = torch.zeros(HIDDEN), torch.zeros(HIDDEN)
        for t, word in enumerate(words[n, :-1]):
            if model.config.relationship_attention:
                context, eta = naive_attention(decoder.attention, features, hidden)
            else:
                context, eta = sum(features) / len(features), [1 / len(features)] * len(features)
            gates = decoder.word.weight @ model.embedding.weight[word] + decoder.word.bias
            gates = gates + decoder.context.weight @ context + decoder.recurrent.weight @ hidden
            hidden, cell = naive_lstm(gates, cell)
            torch.testing.assert_close(output.hidden[n, t], hidden, atol=1e-5, rtol=1e-4)
            scores = torch.exp(model.output.weight @ hidden + model.output.bias)
            torch.testing.assert_close(output.log_probs[n, t], (scores / scores.sum()).log(), atol=1e-5, rtol=1e-4)
            if sigma is None:
                assert output.trace.gates == {}
            else:
                expected = sum(weight * float(gate) for weight, gate in zip(eta, sigma, strict=True))
                assert float(output.trace.gates["relationship"][n, t]) == pytest.approx(expected, abs=1e-5)
            if model.config.relationship_attention:
                traced = [w[n, t] for w in (output.trace.regions, output.trace.grid) if w is not None]
                found = torch.cat(traced)
                torch.testing.assert_close(found[found > 0], torch.tensor(eta), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["row 6, updown", "row 4, updown"])
@torch.no_grad()
def test_the_updown_decoder_attends_with_its_first_lstm(name):
    model, scenes, words = built(name), random_scenes(3), random_words(3)
    output = model(model.encode(scenes), words)
    decoder = model.decoder
    for n in range(3):
        features, _ = naive_features(model, scenes, n)
        mean = sum(features) / len(features)
        first, first_cell, second, second_cell = torch.zeros(4, HIDDEN)
        for t, word in enumerate(words[n, :-1]):
            gates = decoder.word.weight @ model.embedding.weight[word] + decoder.word.bias
            gates = gates + decoder.mean.weight @ mean
            gates = gates + decoder.attention_recurrent.weight @ torch.cat([first, second])
            first, first_cell = naive_lstm(gates, first_cell)
            context = mean
            if model.config.relationship_attention:
                context, _ = naive_attention(decoder.attention, features, first)
            gates = decoder.language_recurrent.weight @ torch.cat([first, second]) + decoder.language_recurrent.bias
            second, second_cell = naive_lstm(gates + decoder.context.weight @ context, second_cell)
            torch.testing.assert_close(output.hidden[n, t], second, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "traced"),
    [
        ("row 1", ()),
        ("row 2", ()),
        ("row 3", ()),
        ("row 4", ("gate",)),
        ("row 5", ("regions", "grid")),
        ("row 6", ("regions", "gate")),
        ("scheme none", ("regions",)),
        ("scheme concat", ("regions",)),
        ("scheme no-gate", ("regions",)),
        ("baseline", ("regions",)),
        ("grid only", ("grid",)),
    ],
)
def test_the_trace_tells_what_was_attended_and_gated(name, traced):
    model, scenes, words = built(name), random_scenes(3), random_words(6)
    trace = model(model.encode(scenes), words).trace
    assert (trace.regions is not None) == ("regions" in traced)
    assert (trace.grid is not None) == ("grid" in traced)
    assert list(trace.gates) == (["relationship"] if "gate" in traced else [])
    parts = [part for part in (trace.regions, trace.grid) if part is not None]
    if parts:
        torch.testing.assert_close(torch.cat(parts, -1).sum(-1), torch.ones(6, words.shape[1] - 1))
    for gate in trace.gates.values():
        assert gate.shape == (6, words.shape[1] - 1)
        assert ((gate > 0) & (gate < 1)).all()


def test_with_attention_the_gate_differs_from_word_to_word_and_without_it_not():
    scenes, words = random_scenes(3), random_words(3)
    gates = {}
    for name in ("row 4", "row 6"):
        model = built(name)
        gates[name] = model(model.encode(scenes), words).trace.gates["relationship"]
    there = scenes.region_mask.sum(1) > 1
    assert there.any()
    assert (gates["row 6"].std(1) > 0)[there].all()
    assert (gates["row 4"] == gates["row 4"][:, :1]).all()


def test_the_rows_are_the_switches_of_table_1():
    switches = {n: (c.regions, c.grid, c.jrln is not None, c.relationship_attention) for n, c in TABLE_1.items()}
    assert switches == {
        1: (True, False, True, False),
        2: (False, True, True, False),
        3: (True, True, False, False),
        4: (True, True, True, False),
        5: (True, True, False, True),
        6: (True, True, True, True),
    }
    assert {name: config.jrln.scheme for name, config in SCHEMES.items()} == {name: name for name in SCHEMES}
    assert all(config.relationship_attention for config in SCHEMES.values())
    assert SCHEMES["rc"] == TABLE_1[6] == JRANConfig()
    assert (BASELINE.regions, BASELINE.grid, BASELINE.jrln, BASELINE.relationship_attention) == (
        True,
        False,
        None,
        True,
    )


def test_an_image_without_regions_gets_a_finite_caption():
    for name in ("row 4", "row 6", "baseline"):
        model, scenes, words = built(name), random_scenes(2), random_words(2)
        empty = replace(scenes, region_mask=torch.zeros_like(scenes.region_mask))
        assert model(model.encode(empty), words).log_probs.isfinite().all()


def test_dropout_acts_in_training_and_never_in_predict():
    torch.manual_seed(0)
    model = replace(small(TABLE_1[6]), dropout=0.5).build(WORDS).train()
    scenes, words = random_scenes(3), random_words(3)
    memory = model.encode(scenes)
    assert not torch.equal(model(memory, words).log_probs, model(memory, words).log_probs)
    hidden = torch.randn(3, HIDDEN)
    assert torch.equal(model.predict(hidden), model.predict(hidden))
    model.eval()
    real = words[:, 1:] != PAD
    assert torch.equal(model(memory, words).log_probs[real], model(memory, words).log_probs[real])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"regions": False, "grid": False, "jrln": None}, "sees nothing"),
        ({"grid": False}, "`rc` relates regions with grid cells"),
        ({"regions": False}, "`rc` relates regions with grid cells"),
        ({"jrln": SCHEMES["none"].jrln}, "`none` relates one kind of feature"),
        ({"size": 256}, "`size` is 256 and `jrln.size` 512"),
        ({"hidden_size": 0}, "`hidden_size` is 0"),
        ({"dropout": -0.1}, "`dropout` is -0.1"),
    ],
)
def test_switches_that_contradict_each_other_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(TABLE_1[6], **change)


@torch.no_grad()
def test_it_starts_as_its_own_baseline():
    torch.manual_seed(0)
    full, plain = small(TABLE_1[6]).build(WORDS).eval(), small(BASELINE).build(WORDS).eval()
    theirs = full.state_dict()
    plain.load_state_dict({name: theirs[name] for name in plain.state_dict()})
    scenes, words = random_scenes(3), random_words(6)
    found, expected = (model(model.encode(scenes), words) for model in (full, plain))
    assert torch.equal(found.log_probs, expected.log_probs)
    assert torch.equal(found.trace.regions, expected.trace.regions)


def learned(norm):
    """What is left of the differences between regions after ten steps as recipes take them."""
    torch.manual_seed(0)
    return variation_after(
        JRANConfig(region_width=512, grid_width=512, jrln=JRLNConfig(norm=norm)).build(200), 10, 5e-4
    )


def test_regions_stay_different_while_it_learns():
    assert learned("pre") > 0.1


def test_with_norms_after_the_sums_regions_become_one_and_the_same():
    """The reason for the default; a test of the switch."""
    assert learned("post") < 0.1
