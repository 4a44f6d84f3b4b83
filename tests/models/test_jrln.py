"""The Joint Relationship Learning Network against its equations, written out with loops."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch

from sightline.config import build
from sightline.errors import ConfigError
from sightline.models.jrln import JRLN, FeatureRelationship, JRLNConfig, RelationshipComputation

torch.set_num_threads(1)

SIZE, HEADS, WIDTH = 12, 3, 4
CONFIG = JRLNConfig(size=SIZE, heads=HEADS, layers=2, dropout=0.0)
SCHEMES = ("none", "concat", "no-gate", "rc")


@pytest.fixture
def image_parts():
    """Regions (2, 4, d) of which 4 and 2 are there, and cells (2, 5, d) of which 5 and 3 are."""
    torch.manual_seed(3)
    region_mask = torch.tensor([[True] * 4, [True, True, False, False]])
    grid_mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    return torch.randn(2, 4, SIZE), region_mask, torch.randn(2, 5, SIZE), grid_mask


def built(kind, config):
    torch.manual_seed(1)
    module = kind(config).eval().requires_grad_(False)
    for parameter in module.parameters():  # no zero bias and no identity may hide a mistake
        parameter.data = torch.randn_like(parameter) * 0.5
    return module


def naive_attention(query, keys, values):
    """One query against lists of keys and values."""
    weights = [math.exp(float(query @ key) / math.sqrt(WIDTH)) for key in keys]
    total = sum(weights)
    return sum((w / total * value for w, value in zip(weights, values, strict=True)), torch.zeros(WIDTH))


def naive_relationships(rc, config, regions, cells):
    """Eq. 3–8 for one image without padding: a list over regions of V_o (d,), and of σ (heads, …)."""
    outputs, gates = [], []
    for v in regions:
        heads, head_gates = [], []
        for n in range(HEADS):
            part = slice(n * WIDTH, (n + 1) * WIDTH)
            tokens = [*regions, *cells] if config.scheme == "concat" else list(regions)
            visual = naive_attention(
                rc.query.weight[part] @ v,
                [rc.key.weight[part] @ u for u in tokens],
                [rc.value.weight[part] @ u for u in tokens],
            )
            if config.scheme in ("none", "concat"):
                heads.append(visual)
                continue
            semantic = naive_attention(
                rc.cell_query.weight[part] @ v,
                [rc.cell_key.weight[part] @ u for u in cells],
                [rc.cell_value.weight[part] @ u for u in cells],
            )
            if config.scheme == "no-gate":
                heads.append(torch.cat([visual, semantic]) @ rc.fusion.weight[n] + rc.fusion_bias[n, 0])
                continue
            own = part if config.gate == "vector" else slice(n, n + 1)
            sigma = torch.sigmoid(
                rc.gate_region.weight[own] @ v + rc.gate_region.bias[own] + semantic @ rc.gate_semantic.weight[n]
            )
            heads.append(
                sigma * (visual @ rc.visual.weight[n]) + (1 - sigma) * (semantic @ rc.visual_semantic.weight[n])
            )
            head_gates.append(sigma)
        outputs.append(torch.cat(heads))
        gates.append(torch.stack(head_gates) if head_gates else None)
    return outputs, gates


def naive_norm(norm, row):
    centred = row - row.mean()
    return centred / torch.sqrt((centred**2).mean() + norm.eps) * norm.weight + norm.bias


def naive_feed_forward(layer, config, row):
    if config.ffn == "linear":
        return layer.feed_forward.weight @ row + layer.feed_forward.bias
    first, _, last = layer.feed_forward
    return last.weight @ (first.weight @ row + first.bias).clamp(min=0) + last.bias


def naive_layer(layer, config, regions, cells):
    """Eq. 9–10 for one image: V_J rows, and the mean gate of each."""
    read = [naive_norm(layer.attention_norm, v) for v in regions] if config.norm == "pre" else regions
    outputs, gates = naive_relationships(layer.relationships, config, read, cells)
    joint = []
    for v, heads in zip(regions, outputs, strict=True):
        row = layer.residual.weight @ v + layer.output.weight @ heads
        if config.norm == "pre":
            row = row + naive_feed_forward(layer, config, naive_norm(layer.feed_forward_norm, row))
        elif config.norm == "post":
            row = naive_norm(layer.attention_norm, row)
            row = naive_norm(layer.feed_forward_norm, row + naive_feed_forward(layer, config, row))
        else:
            row = naive_feed_forward(layer, config, row)
        joint.append(row)
    return torch.stack(joint), None if gates[0] is None else torch.stack([g.mean() for g in gates])


@pytest.mark.parametrize(
    "config", [*(replace(CONFIG, scheme=s) for s in SCHEMES), replace(CONFIG, gate="scalar")], ids=lambda c: c.scheme
)
def test_relationships_of_all_heads_are_equations_3_to_8(config, image_parts):
    regions, region_mask, grid, grid_mask = image_parts
    rc = built(RelationshipComputation, config)
    found, sigma = rc(*image_parts)
    for image in range(2):
        there = region_mask[image]
        outputs, gates = naive_relationships(rc, config, regions[image][there], grid[image][grid_mask[image]])
        torch.testing.assert_close(found[image][there], torch.stack(outputs), atol=1e-5, rtol=1e-4)
        if config.scheme == "rc":
            torch.testing.assert_close(sigma[image][:, there], torch.stack(gates, 1), atol=1e-5, rtol=1e-4)
        else:
            assert sigma is None


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.parametrize("ffn", ["linear", "relu"])
def test_a_layer_is_equations_9_and_10(norm, ffn, image_parts):
    regions, region_mask, grid, grid_mask = image_parts
    config = replace(CONFIG, norm=norm, ffn=ffn)
    layer = built(FeatureRelationship, config)
    found, gate = layer(*image_parts)
    for image in range(2):
        there = region_mask[image]
        joint, mean = naive_layer(layer, config, regions[image][there], grid[image][grid_mask[image]])
        torch.testing.assert_close(found[image][there], joint, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(gate[image][there], mean)


def test_a_second_layer_takes_joint_features_as_regions_and_the_same_grid(image_parts):
    regions, region_mask, grid, grid_mask = image_parts
    model = built(JRLN, CONFIG)
    found, gate = model(*image_parts)
    first, second = model.layers
    for image in range(2):
        there, cells = region_mask[image], grid[image][grid_mask[image]]
        joint, _ = naive_layer(first, CONFIG, regions[image][there], cells)
        joint, last_gate = naive_layer(second, CONFIG, joint, cells)
        torch.testing.assert_close(found[image][there], joint, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(gate[image][there], last_gate)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rubbish_in_padding_never_changes_a_region(scheme, image_parts):
    regions, region_mask, grid, grid_mask = image_parts
    model = built(JRLN, replace(CONFIG, scheme=scheme))
    other = (
        torch.where(region_mask[..., None], regions, torch.tensor(7.0)),
        region_mask,
        torch.where(grid_mask[..., None], grid, torch.tensor(-7.0)),
        grid_mask,
    )
    torch.testing.assert_close(model(*image_parts)[0][region_mask], model(*other)[0][region_mask])


@pytest.mark.parametrize("gate", ["vector", "scalar"])
def test_the_gate_of_a_region_is_one_number_between_0_and_1(gate, image_parts):
    torch.manual_seed(0)
    _, sigma = JRLN(replace(CONFIG, gate=gate)).eval()(*image_parts)
    assert sigma.shape == (2, 4)
    assert ((sigma > 0) & (sigma < 1)).all()
    assert len(sigma.unique()) == 8


def test_only_the_gated_scheme_has_a_gate(image_parts):
    for scheme in ("none", "concat", "no-gate"):
        assert JRLN(replace(CONFIG, scheme=scheme))(*image_parts)[1] is None


def test_every_scheme_but_none_hears_the_grid(image_parts):
    regions, region_mask, grid, grid_mask = image_parts
    for scheme in SCHEMES:
        model = built(JRLN, replace(CONFIG, scheme=scheme))
        same = torch.equal(model(*image_parts)[0], model(regions, region_mask, grid + 1, grid_mask)[0])
        assert same == (scheme == "none")


def test_the_residual_starts_as_the_identity():
    layer = FeatureRelationship(CONFIG)
    assert torch.equal(layer.residual.weight, torch.eye(SIZE))


@pytest.mark.parametrize("ffn", ["linear", "relu"])
def test_joint_features_start_as_the_regions(ffn, image_parts):
    assert torch.equal(JRLN(replace(CONFIG, ffn=ffn))(*image_parts)[0], image_parts[0])


def test_true_and_false_of_older_checkpoints_are_post_and_none():
    for old, name in ((True, "post"), (False, "none")):
        plain = {**asdict(CONFIG), "norm": old}
        assert build(JRLNConfig, plain) == replace(CONFIG, norm=name)
        assert asdict(build(JRLNConfig, plain))["norm"] == name
    assert JRLNConfig().norm == "pre"
    with pytest.raises(ConfigError, match="`norm` is 'before'"):
        build(JRLNConfig, {"norm": "before"})


def test_dropout_acts_in_training_only(image_parts):
    model = built(JRLN, replace(CONFIG, dropout=0.5))
    assert not torch.equal(model.train()(*image_parts)[0], model(*image_parts)[0])
    assert torch.equal(model.eval()(*image_parts)[0], model(*image_parts)[0])


def test_the_scheme_none_needs_no_grid(image_parts):
    regions, region_mask, _, _ = image_parts
    assert JRLN(replace(CONFIG, scheme="none"))(regions, region_mask)[0].shape == regions.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 5}, "cannot be split into 5 heads"),
        ({"layers": 0}, "`layers` is 0"),
        ({"heads": 0}, "`heads` is 0"),
        ({"dropout": 1.0}, "`dropout` is 1.0"),
    ],
)
def test_sizes_that_cannot_be_built_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(CONFIG, **change)
