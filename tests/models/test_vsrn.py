from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS, greedy, more_padding, random_scenes, random_words, rows
from matcher_contract import MatcherContract
from sightline.batch import SceneBatch
from sightline.errors import ConfigError, DataError, MissingPartError
from sightline.models.vsrn import VSRN, RegionRelationship, ResetAfterGRU, ResetBeforeGRU, VSRNConfig, reading_order
from sightline.text.vocabulary import PAD

SMALL = {"region_width": REGION_WIDTH, "size": 24, "word_size": 16, "hidden_size": 16, "dropout": 0.0}
TABLE_4 = {"Mean-pool": (0, False), "RRR": (1, False), "GSR": (0, True), "1RRR+GSR": (1, True), "4RRR+GSR": (4, True)}
RELEASED = {"reset": "after", "norm_axis": "region", "memory": "default"}


def small(**changes) -> VSRN:
    """A model whose relationship layers do something: as they start, they pass regions through unchanged."""
    model = VSRNConfig(**{**SMALL, **changes}).build(WORDS)
    for relation in model.relations:
        torch.nn.init.normal_(relation.W[1].weight, 0.5, 0.2)
        torch.nn.init.normal_(relation.W[1].bias, 0, 0.1)
    return model


def linear(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return layer.weight @ x if layer.bias is None else layer.weight @ x + layer.bias


def naive_relationship(layer: RegionRelationship, images: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Eq. 2–3 region by region, over images without padding; batch norm over all their regions when training."""
    projected = []
    for v in images:
        for i in range(len(v)):
            row = [linear(layer.theta, v[i]) @ linear(layer.phi, v[j]) for j in range(len(v))]
            if layer.normalise == "softmax":
                row = [r.exp() / sum(s.exp() for s in row) for r in row]
            else:
                row = [r / len(v) for r in row]
            y = sum(row[j] * linear(layer.g, v[j]) for j in range(len(v)))
            projected.append(linear(layer.W[0], y))
    norm = layer.W[1]
    mean, variance = norm.running_mean, norm.running_var
    if layer.training:
        mean = sum(projected) / len(projected)
        variance = sum((p - mean) ** 2 for p in projected) / len(projected)
    changes = iter((p - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias for p in projected)
    return [[region + next(changes) for region in v] for v in images]


def naive_reset_before(gru: ResetBeforeGRU, regions: list[torch.Tensor]) -> torch.Tensor:
    """Eq. 4–7 as printed, with U_m in Eq. 5."""
    size = gru.content.in_features
    W_z, W_r, W_m = gru.inputs.weight.split(size)
    b_z, b_r, b_m = gru.inputs.bias.split(size)
    U_z, U_r = gru.gates.weight.split(size)
    m = torch.zeros(size)
    for v in regions:
        z = torch.sigmoid(W_z @ v + U_z @ m + b_z)
        r = torch.sigmoid(W_r @ v + U_r @ m + b_r)
        new = torch.tanh(W_m @ v + gru.content.weight @ (r * m) + b_m)
        m = (1 - z) * m + z * new
    return m


def naive_reset_after(gru: ResetAfterGRU, regions: list[torch.Tensor]) -> torch.Tensor:
    """Eq. 4–7 with the reset gate on U_m's result; PyTorch's update gate is one minus the paper's."""
    size = gru.rnn.hidden_size
    m = torch.zeros(size)
    for v in regions:
        input_r, input_z, input_m = (gru.rnn.weight_ih_l0 @ v + gru.rnn.bias_ih_l0).split(size)
        memory_r, memory_z, memory_m = (gru.rnn.weight_hh_l0 @ m + gru.rnn.bias_hh_l0).split(size)
        z = 1 - torch.sigmoid(input_z + memory_z)
        m = (1 - z) * m + z * torch.tanh(input_m + torch.sigmoid(input_r + memory_r) * memory_m)
    return m


def naive_unit(regions: list[torch.Tensor], axis: str) -> list[torch.Tensor]:
    if axis == "feature":
        return [v / v.norm() for v in regions]
    length = sum(v**2 for v in regions).sqrt()
    return [v / length for v in regions]


def naive_images(model: VSRN, scenes: SceneBatch) -> list[torch.Tensor]:
    """Sections 3.1–3.3 image by image, regions as stored."""
    config = model.config
    images = []
    for features, mask in zip(scenes.regions, scenes.region_mask, strict=True):
        images.append([linear(model.fc, f) for f, there in zip(features, mask, strict=True) if there])
        if config.early_norm:
            images[-1] = naive_unit(images[-1], config.norm_axis)
    for relation in model.relations:
        images = naive_relationship(relation, images)
    vectors = []
    for regions in images:
        regions = naive_unit(regions, config.norm_axis)
        if not config.gsr:
            vector = sum(regions) / len(regions)
        else:
            read = naive_reset_before if config.reset == "before" else naive_reset_after
            vector = read(model.reasoning, regions)
        if config.batch_norm:
            norm = model.norm
            vector = (vector - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        vectors.append(vector / vector.norm())
    return vectors


class TestVSRN(MatcherContract):
    # A bias in front of a batch norm is taken out again with the mean: it has no gradient.
    outside_similarity = ("captioner.", *(f"relations.{i}.W.0.bias" for i in range(4)))

    def build(self):
        return small()

    def test_regions_are_unit_vectors_in_stored_order_and_zero_on_padding(self, model, scenes):
        images = model.embed_images(scenes)
        torch.testing.assert_close(images["regions"].norm(dim=-1), scenes.region_mask.float())
        assert torch.equal(images["region_mask"], scenes.region_mask)
        torch.testing.assert_close(images["vector"].norm(dim=-1), torch.ones(4))


class TestReleasedForCOCO(MatcherContract):
    outside_similarity = ("captioner.", "relations.0.W.0.bias")
    overfit_rate = 0.01

    def build(self):
        return small(**RELEASED, early_norm=True, rrr_layers=1)


@pytest.mark.parametrize("row", TABLE_4)
def test_every_row_of_table_4_is_its_equations(row):
    torch.manual_seed(0)
    layers, gsr = TABLE_4[row]
    model, scenes = small(rrr_layers=layers, gsr=gsr).eval(), random_scenes(4)
    found = model.embed_images(scenes)["vector"]
    torch.testing.assert_close(found, torch.stack(naive_images(model, scenes)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("row", TABLE_4)
@pytest.mark.parametrize("generation", [True, False])
def test_every_row_of_table_4_keeps_the_contract_s_main_points(row, generation, tmp_path):
    layers, gsr = TABLE_4[row]

    class Row(MatcherContract):
        outside_similarity = ("captioner.", *(f"relations.{i}.W.0.bias" for i in range(layers)))

    torch.manual_seed(0)
    contract, model, scenes = Row(), small(rrr_layers=layers, gsr=gsr, generation=generation).eval(), random_scenes(4)
    contract.test_a_pair_scores_the_same_alone_and_in_company(model, scenes)
    contract.test_padding_never_changes_a_result(model, scenes)
    contract.test_saved_and_loaded_it_is_bit_identical(model, scenes, tmp_path)
    contract.test_gradients_reach_every_parameter(model, scenes)


@pytest.mark.parametrize(
    "choices",
    [
        {"reset": "after"},
        {"normalise": "softmax"},
        {"norm_axis": "region"},
        {"early_norm": True},
        {"batch_norm": True},
        {**RELEASED, "early_norm": True},
        {**RELEASED, "batch_norm": True},
        {**RELEASED, "gsr": False},
    ],
    ids=str,
)
def test_every_choice_is_its_equations_and_makes_a_difference(choices):
    torch.manual_seed(0)
    model, scenes = small(**choices, rrr_layers=2).eval(), random_scenes(4)
    if model.config.batch_norm:
        torch.nn.init.normal_(model.norm.running_mean, 0, 0.1)
    found = model.embed_images(scenes)["vector"]
    torch.testing.assert_close(found, torch.stack(naive_images(model, scenes)), atol=1e-5, rtol=1e-4)
    if "reset" not in choices:  # the two GRUs have different weights
        plain = small(rrr_layers=2).eval()
        plain.load_state_dict(model.state_dict(), strict=False)
        assert not torch.allclose(plain.embed_images(scenes)["vector"], found, atol=1e-3)


def test_the_two_resets_differ_although_their_weights_are_the_same():
    torch.manual_seed(0)
    before, after = ResetBeforeGRU(8), ResetAfterGRU(8)
    input_z, input_r, input_m = before.inputs.weight.split(8)
    bias_z, bias_r, bias_m = before.inputs.bias.split(8)
    memory_z, memory_r = before.gates.weight.split(8)
    with torch.no_grad():
        after.rnn.weight_ih_l0.copy_(torch.cat([input_r, -input_z, input_m]))
        after.rnn.bias_ih_l0.copy_(torch.cat([bias_r, -bias_z, bias_m]))
        after.rnn.weight_hh_l0.copy_(torch.cat([memory_r, -memory_z, before.content.weight]))
        after.rnn.bias_hh_l0.zero_()
    v, mask = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    torch.testing.assert_close(before(v[:, :1], mask[:, :1]), after(v[:, :1], mask[:, :1]))  # nothing to reset yet
    assert not torch.allclose(before(v, mask), after(v, mask), atol=1e-3)


@pytest.mark.parametrize("normalise", ["count", "softmax"])
def test_relationships_in_training_take_statistics_of_real_regions_only(normalise):
    torch.manual_seed(0)
    layer, scenes = RegionRelationship(REGION_WIDTH, normalise).train(), more_padding(random_scenes(5))
    torch.nn.init.normal_(layer.W[1].weight)
    mask = scenes.region_mask
    lists = [list(v[there]) for v, there in zip(scenes.regions, mask, strict=True)]
    expected = naive_relationship(layer, lists)
    found = layer(scenes.regions, mask)
    for i, regions in enumerate(expected):
        torch.testing.assert_close(found[i, mask[i]], torch.stack(regions), atol=1e-4, rtol=1e-4)
    alone = copy.deepcopy(layer)
    alone.W[1].reset_running_stats()
    layer.W[1].reset_running_stats()
    layer(scenes.regions, mask)
    clean = random_scenes(5)
    alone(clean.regions, clean.region_mask)
    torch.testing.assert_close(layer.W[1].running_mean, alone.W[1].running_mean)
    torch.testing.assert_close(layer.W[1].running_var, alone.W[1].running_var)


def test_a_new_relationship_layer_passes_regions_through_unchanged():
    torch.manual_seed(0)
    scenes = random_scenes(3)
    four = VSRNConfig(**SMALL).build(WORDS)
    none = VSRNConfig(**SMALL, rrr_layers=0).build(WORDS)
    none.load_state_dict(four.state_dict(), strict=False)
    for model in (four.train(), four.eval()):
        assert torch.equal(model.embed_images(scenes)["vector"], none.embed_images(scenes)["vector"])


def test_affinities_of_each_region_over_the_others_sum_to_one_with_softmax_and_never_see_padding():
    torch.manual_seed(0)
    scenes = random_scenes(4)
    for normalise in ("count", "softmax"):
        R = RegionRelationship(REGION_WIDTH, normalise).affinity(scenes.regions, scenes.region_mask)
        assert not R[~scenes.region_mask.unsqueeze(1).expand_as(R)].any()
        if normalise == "softmax":
            torch.testing.assert_close(R.sum(-1), torch.ones(4, 5))


@pytest.mark.parametrize("reset", ["before", "after"])
def test_an_image_without_regions_has_no_vector(reset):
    torch.manual_seed(0)
    model, scenes = small(reset=reset).eval(), random_scenes(3)
    mask = scenes.region_mask.clone()
    mask[1] = False
    found = model.embed_images(replace(scenes, region_mask=mask))["vector"]
    assert not found[1].any()
    torch.testing.assert_close(found[[0, 2]], model.embed_images(scenes)["vector"][[0, 2]])


def test_box_size_reads_the_largest_box_first():
    torch.manual_seed(0)
    scenes = random_scenes(6)
    order = reading_order(scenes, scenes.region_mask, "box-size", training=False)
    for i in range(6):
        real = [j for j in range(5) if scenes.region_mask[i, j]]
        areas = {j: float((scenes.boxes[i, j, 2:] - scenes.boxes[i, j, :2]).prod()) for j in real}
        assert order[i, : len(real)].tolist() == sorted(real, key=lambda j: -areas[j])


def test_box_size_asks_for_boxes():
    model, scenes = small(order="box-size"), random_scenes(3)
    assert model.needs == ("regions", "boxes")
    with pytest.raises(MissingPartError, match="boxes"):
        model.embed_images(replace(scenes, boxes=None))
    assert small(order="box-size", gsr=False).needs == ("regions",)


def test_box_size_refuses_boxes_of_one_area():
    """Cells of a grid, in half precision; one photo with boxes of different size is enough to go on."""
    edges = torch.arange(8) / 7
    top, left = torch.meshgrid(edges[:7], edges[:7], indexing="ij")
    cells = torch.stack([left, top, left + 1 / 7, top + 1 / 7], -1).view(49, 4).half().float()
    mask = torch.ones(3, 49, dtype=torch.bool)
    grid = SceneBatch(("a", "b", "c"), boxes=cells.expand(3, -1, -1))
    with pytest.raises(DataError, match="all boxes of an image have the same area, as the cells of a grid do"):
        reading_order(grid, mask, "box-size", training=False)
    boxes = grid.boxes.clone()
    boxes[1, 5, 2:] = 1.0
    assert reading_order(replace(grid, boxes=boxes), mask, "box-size", training=True)[1, 0] == 5
    alone = torch.arange(49).expand(3, -1) == 0  # one region each has an order
    assert reading_order(grid, alone, "box-size", training=True) is not None


def test_confidence_is_the_stored_order_and_training_checks_that_it_is():
    scenes = random_scenes(6)
    for order in ("stored", "confidence"):
        assert reading_order(scenes, scenes.region_mask, order, training=True) is None
    bare, rising = replace(scenes, scores=None), replace(scenes, scores=scenes.scores.flip(1))
    with pytest.raises(MissingPartError, match="the surest regions first, and these have no scores"):
        reading_order(bare, scenes.region_mask, "confidence", training=True)
    with pytest.raises(DataError, match="not stored by falling score"):
        reading_order(rising, torch.ones_like(scenes.region_mask), "confidence", training=True)
    for other in (bare, rising):
        assert reading_order(other, scenes.region_mask, "stored", training=True) is None
        assert (
            reading_order(other, scenes.region_mask, "confidence", training=False) is None
        )  # trained models still run


@pytest.mark.parametrize("reset", ["before", "after"])
@pytest.mark.parametrize("order", ["box-size", "random", "redrawn"])
def test_an_order_changes_what_global_reasoning_reads_and_nothing_else(order, reset):
    torch.manual_seed(0)
    model, scenes = small(order=order, reset=reset, rrr_layers=1).eval(), random_scenes(6)
    stored = small(reset=reset, rrr_layers=1).eval()
    stored.load_state_dict(model.state_dict())
    found, plain = model.embed_images(scenes), stored.embed_images(scenes)
    assert torch.equal(found["regions"], plain["regions"])
    places = reading_order(scenes, scenes.region_mask, order, training=False)
    read = naive_reset_before if reset == "before" else naive_reset_after
    for i in range(6):
        count = int(scenes.region_mask[i].sum())
        memory = read(model.reasoning, [plain["regions"][i, j] for j in places[i, :count]])
        torch.testing.assert_close(found["vector"][i], memory / memory.norm(), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found["vector"], plain["vector"], atol=1e-3)


@pytest.mark.parametrize("order", ["box-size", "random"])
def test_with_any_order_a_pair_scores_the_same_alone_and_with_padding(order):
    torch.manual_seed(0)
    model, scenes, contract = small(order=order, rrr_layers=1).eval(), random_scenes(4), MatcherContract()
    contract.test_a_pair_scores_the_same_alone_and_in_company(model, scenes)
    contract.test_padding_never_changes_a_result(model, scenes)


def test_the_random_order_of_an_image_depends_on_its_id_alone():
    full = torch.ones(6, 5, dtype=torch.bool)
    scenes = random_scenes(6)
    order = reading_order(scenes, full, "random", training=True)
    assert torch.equal(order.sort(1).values, torch.arange(5).expand(6, 5))
    assert len({tuple(row) for row in order.tolist()}) > 1
    assert torch.equal(reading_order(rows(scenes, [4, 1]), full[:2], "random", training=False), order[[4, 1]])
    program = (
        "import torch; from sightline.batch import SceneBatch;"
        "from sightline.models.vsrn import reading_order;"
        "print(reading_order(SceneBatch(('0', '1')), torch.ones(2, 5) > 0, 'random', True).tolist())"
    )
    elsewhere = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert elsewhere.strip() == str(order[:2].tolist())


def test_a_redrawn_order_is_new_each_time_while_training_and_fixed_afterwards():
    scenes = random_scenes(8)
    drawn = [reading_order(scenes, scenes.region_mask, "redrawn", training=True) for _ in range(2)]
    assert not torch.equal(*drawn)
    for order in drawn:
        assert torch.equal(scenes.region_mask.gather(1, order), scenes.region_mask)  # padding stays last
    fixed = reading_order(scenes, scenes.region_mask, "redrawn", training=False)
    assert torch.equal(fixed, reading_order(scenes, scenes.region_mask, "random", training=False))


def test_a_region_correlates_with_the_image_by_their_inner_product():
    torch.manual_seed(0)
    model, scenes = small(rrr_layers=1).eval(), random_scenes(6)
    images = {name: part.detach() for name, part in model.embed_images(scenes).items()}
    found = model.correlations(images)
    assert found.shape == (6, 5)
    for i in range(6):
        for j in range(5):
            expected = images["regions"][i, j] @ images["vector"][i] if scenes.region_mask[i, j] else torch.tensor(0.0)
            torch.testing.assert_close(found[i, j], expected)


def test_generation_scores_captions_from_the_reasoned_regions():
    torch.manual_seed(0)
    model, scenes, words = small().eval(), random_scenes(4), random_words(8)
    images = model.embed_images(scenes)
    found = model.generation_log_probs(images, words)
    log_probs = model.captioner(model.captioner.encode_regions(images["regions"], scenes.region_mask), words).log_probs
    for i in range(8):
        for t in range(words.shape[1] - 1):
            expected = 0.0 if words[i, t + 1] == PAD else log_probs[i, t, words[i, t + 1]].item()
            assert found[i, t].item() == pytest.approx(expected, abs=1e-5)
    other = model.generation_log_probs({**images, "regions": images["regions"].flip(-1)}, words)
    assert not torch.allclose(found, other)


@pytest.mark.parametrize("row", TABLE_4)
def test_generation_trains_what_feeds_the_pooling_and_not_the_pooling(row):
    torch.manual_seed(0)
    layers, gsr = TABLE_4[row]
    model = small(rrr_layers=layers, gsr=gsr).train()
    model.generation_log_probs(model.embed_images(random_scenes(4)), random_words(4)).sum().backward()
    for name, parameter in model.named_parameters():
        if name.startswith(("reasoning.", "text.")):
            assert parameter.grad is None, name
        elif not name.endswith("W.0.bias"):
            assert parameter.grad.abs().sum() > 0, name


def test_the_captioner_learns_to_say_captions_from_the_reasoned_regions():
    torch.manual_seed(0)
    model, scenes, words = small(rrr_layers=1, hidden_size=32), random_scenes(8), random_words(8)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        loss = -model.generation_log_probs(model.embed_images(scenes), words).sum() / 8
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    memory = model.captioner.encode_regions(model.embed_images(scenes)["regions"], scenes.region_mask)

    class Spoken:  # the greedy loop of the contract encodes scenes; here the memory is VSRN's
        encode, start, step = staticmethod(lambda scenes: memory), model.captioner.start, model.captioner.step

    with torch.no_grad():
        said = greedy(Spoken, scenes, longest=6)
    assert torch.equal(said, words[:, 1:])


def test_without_generation_there_is_no_captioner_and_the_error_says_so():
    model = small(generation=False)
    assert not any(name.startswith("captioner") for name, _ in model.named_parameters())
    images = model.embed_images(random_scenes(2))
    with pytest.raises(ConfigError, match="generation: true"):
        model.generation_log_probs(images, random_words(2))


def test_it_trains_under_autocast():
    torch.manual_seed(0)
    for choices in ({}, RELEASED, {"normalise": "softmax", "order": "box-size"}):
        model, scenes = small(**choices).train(), random_scenes(4)
        with torch.autocast("cpu", torch.bfloat16):
            images = model.embed_images(scenes)
            loss = images["vector"].sum() - model.generation_log_probs(images, random_words(8)).mean()
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
        assert model.fc.weight.grad.abs().sum() > 0


def test_the_paper_s_choices_are_the_defaults():
    config = VSRNConfig()
    assert (config.region_width, config.size, config.word_size, config.rrr_layers) == (2048, 2048, 300, 4)
    assert (config.gsr, config.order, config.reset, config.generation) == (True, "stored", "before", True)
