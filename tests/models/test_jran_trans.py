"""JRAN-Trans: V_J under the decoder that tests/models/test_sim_trans.py checks against loops."""

from dataclasses import replace

import pytest
import torch

from captioner_contract import (
    GRID_WIDTH,
    REGION_WIDTH,
    WORDS,
    CaptionerContract,
    random_scenes,
    random_words,
    rows,
)
from jrln_samples import awake, variation_after
from sightline.batch import SceneBatch
from sightline.errors import ConfigError
from sightline.models.jran_trans import JRANTrans, JRANTransConfig
from sightline.models.jrln import JRLNConfig
from sightline.models.sim_trans import SimTransConfig

RELATIONS = JRLNConfig(size=16, heads=2, layers=2, dropout=0.0)
SMALL = JRANTransConfig(
    region_width=REGION_WIDTH,
    grid_width=GRID_WIDTH,
    hidden_size=16,
    layers=2,
    heads=4,
    ffn_size=32,
    dropout=0.0,
    jrln=RELATIONS,
)


class TestJRANTrans(CaptionerContract):
    overfit_steps, overfit_rate = 100, 0.008

    def build(self):
        return SMALL.build(WORDS)

    @pytest.fixture
    def model(self):
        torch.manual_seed(0)
        return awake(self.build()).eval()


@pytest.fixture
def scenes() -> SceneBatch:
    return random_scenes(4)


def built(scheme="rc", **changes) -> JRANTrans:
    torch.manual_seed(0)
    return awake(replace(SMALL, jrln=replace(RELATIONS, scheme=scheme), **changes).build(WORDS)).eval()


@torch.no_grad()
def test_it_is_the_decoder_of_sim_trans_over_joint_relationship_features(scenes):
    model, words = built(), random_words(8)
    regions, grid = model.regions(scenes.regions), model.grid(scenes.grid)
    joint, _ = model.jrln(regions, scenes.region_mask, grid, scenes.grid_mask)
    plain = SimTransConfig(region_width=16, hidden_size=16, layers=2, heads=4, ffn_size=32).build(WORDS).eval()
    shared = {
        name: part for name, part in model.state_dict().items() if not name.startswith(("grid", "jrln", "regions"))
    }
    plain.load_state_dict({**shared, "regions.weight": torch.eye(16), "regions.bias": torch.zeros(16)})
    expected = plain(plain.encode(replace(scenes, regions=joint)), words)
    found = model(model.encode(scenes), words)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.trace.regions, expected.trace.regions)


@torch.no_grad()
def test_the_gate_of_a_word_is_the_mean_of_the_regions_gates_under_its_attention(scenes):
    model, words = built(), random_words(8)
    memory = model.encode(scenes)
    trace = model(memory, words).trace
    gate = trace.gates["relationship"]
    assert gate.shape == (8, words.shape[1] - 1)
    for n in range(8):
        for t in range(words.shape[1] - 1):
            expected = sum(
                trace.regions[n, t, i] * memory["sigma"][n // 2, i] for i in range(5) if scenes.region_mask[n // 2, i]
            )
            torch.testing.assert_close(gate[n, t], expected, atol=1e-6, rtol=1e-5)
    assert ((gate > 0) & (gate < 1)).all()


@pytest.mark.parametrize("scheme", ["concat", "no-gate"])
@torch.no_grad()
def test_schemes_without_a_gate_have_none_in_the_trace(scenes, scheme):
    model = built(scheme)
    memory = model.encode(scenes)
    output = model(memory, random_words(4))
    assert "sigma" not in memory
    assert output.trace.gates == {}
    assert output.trace.regions is not None
    assert model.needs == ("regions", "grid")


@pytest.mark.parametrize("scheme", ["rc", "concat", "no-gate"])
@torch.no_grad()
def test_the_grid_changes_what_is_said(scenes, scheme):
    model, words = built(scheme), random_words(4)
    other = replace(scenes, grid=scenes.grid + 1)
    one, two = (model(model.encode(s), words).log_probs for s in (scenes, other))
    assert not torch.allclose(one, two, atol=1e-4)


def test_without_visual_semantic_relationships_no_grid_is_needed(scenes):
    model, words = built("none"), random_words(4)
    assert model.needs == ("regions",)
    output = model(model.encode(replace(scenes, grid=None, grid_mask=None)), words)
    assert output.trace.gates == {}
    output.log_probs.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@torch.no_grad()
def test_regions_know_of_each_other(scenes):
    model = built()
    memory = model.encode(rows(scenes, [0]))
    changed = replace(scenes, regions=scenes.regions.clone())
    changed.regions[0, 0] += 1
    assert scenes.region_mask[0, :2].all()
    other = model.encode(rows(changed, [0]))
    assert not torch.allclose(memory["keys"][:, :, :, 1], other["keys"][:, :, :, 1], atol=1e-4)


@torch.no_grad()
def test_every_tensor_is_made_on_the_device_of_the_inputs(scenes):
    model = built().to("meta")
    output = model(model.encode(scenes.to("meta")), random_words(8).to("meta"))
    assert output.trace.gates["relationship"].device.type == "meta"


def test_the_defaults_are_sim_trans_with_three_layers_of_relationships():
    config = JRANTransConfig()
    assert (config.hidden_size, config.layers, config.heads, config.ffn_size) == (512, 6, 8, 2048)
    assert (config.jrln.scheme, config.jrln.layers, config.jrln.heads) == ("rc", 3, 8)


def test_bad_sizes_are_refused():
    with pytest.raises(ConfigError, match=r"`jrln.size` is 512 and `hidden_size` is 16"):
        replace(SMALL, jrln=JRLNConfig())
    with pytest.raises(ConfigError, match="`grid_width` is 0"):
        replace(SMALL, grid_width=0)
    with pytest.raises(ConfigError, match="`layers` is 0"):
        replace(SMALL, layers=0)


@torch.no_grad()
def test_it_starts_as_sim_trans(scenes):
    torch.manual_seed(0)
    full, words = SMALL.build(WORDS).eval(), random_words(8)
    plain = (
        SimTransConfig(region_width=REGION_WIDTH, hidden_size=16, layers=2, heads=4, ffn_size=32).build(WORDS).eval()
    )
    theirs = full.state_dict()
    plain.load_state_dict({name: theirs[name] for name in plain.state_dict()})
    assert torch.equal(full(full.encode(scenes), words).log_probs, plain(plain.encode(scenes), words).log_probs)


@pytest.mark.parametrize(("norm", "least", "most"), [("pre", 0.9, 2), ("post", 0, 0.5)])
def test_regions_stay_different_while_it_learns_unless_norms_come_after_the_sums(norm, least, most):
    config = JRANTransConfig(region_width=512, grid_width=512, layers=2, jrln=JRLNConfig(norm=norm))
    new, trained = (_variation(config, steps) for steps in (0, 10))
    assert new > 0.1
    assert least < trained / new < most


def _variation(config, steps):
    torch.manual_seed(0)
    return variation_after(config.build(200), steps, 3e-4)
