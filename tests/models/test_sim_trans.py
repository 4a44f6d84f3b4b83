"""Sim-Trans and the transformer decoder, against loops over captions, heads, positions and regions."""

import math
from dataclasses import replace

import pytest
import torch

from captioner_contract import (
    REGION_WIDTH,
    WORDS,
    CaptionerContract,
    more_padding,
    random_scenes,
    random_words,
    rows,
    stepped,
)
from sightline.batch import SceneBatch
from sightline.errors import ConfigError, CountError
from sightline.models.captioner import expand, select
from sightline.models.layers import corners_and_area
from sightline.models.sim_trans import SimTrans, SimTransConfig
from sightline.models.transformer_decoder import (
    PLACES,
    DecoderLayer,
    MultiHeadAttention,
    SelfAttention,
    attend,
    bias_of,
    positions,
)
from sightline.text.vocabulary import END, PAD, START

SMALL = SimTransConfig(region_width=REGION_WIDTH, hidden_size=16, layers=2, heads=4, ffn_size=32, dropout=0.0)


class TransformerContract(CaptionerContract):
    overfit_steps, overfit_rate = 100, 0.008


class TestSimTrans(TransformerContract):
    def build(self):
        return SMALL.build(WORDS)


class TestSimTransWithBoxes(TransformerContract):
    def build(self):
        return replace(SMALL, box_encoding=True).build(WORDS)


class TestSimTransPreNorm(TransformerContract):
    def build(self):
        return replace(SMALL, pre_norm=True).build(WORDS)


@pytest.fixture
def scenes() -> SceneBatch:
    return random_scenes(4)


def built(**changes) -> SimTrans:
    """A small model whose biases and norms are not at their start values, so that forgetting one shows."""
    torch.manual_seed(0)
    model = replace(SMALL, **changes).build(WORDS)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def projections(attention: SelfAttention | MultiHeadAttention) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The matrices and biases of queries, keys and values."""
    parts = [attention.projection] if isinstance(attention, SelfAttention) else [attention.query, attention.key_value]
    weight, bias = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
    return list(zip(weight.chunk(3), bias.chunk(3), strict=True))


def naive_attention(
    attention: SelfAttention | MultiHeadAttention, query_row: torch.Tensor, offered: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One row attends to the rows `offered`: the result (d,) and the weights (heads, n)."""
    size = len(query_row)
    width = size // attention.heads
    (w_q, b_q), (w_k, b_k), (w_v, b_v) = projections(attention)
    query = w_q @ query_row + b_q
    found, all_weights = torch.zeros(size), []
    for head in range(attention.heads):
        part = slice(head * width, (head + 1) * width)
        scores = []
        for row in offered:
            key = w_k @ row + b_k
            scores.append(sum(query[part][c] * key[part][c] for c in range(width)) / math.sqrt(width))
        total = sum(math.exp(score) for score in scores)
        weights = [math.exp(score) / total for score in scores]
        for weight, row in zip(weights, offered, strict=True):
            found[part] += weight * (w_v @ row + b_v)[part]
        all_weights.append(torch.tensor(weights))
    return attention.output.weight @ found + attention.output.bias, torch.stack(all_weights)


def naive_norm(norm: torch.nn.LayerNorm, row: torch.Tensor) -> torch.Tensor:
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    return (row - mean) / torch.sqrt(variance + 1e-5) * norm.weight + norm.bias


def naive_layer(
    layer: DecoderLayer, words: list[torch.Tensor], seen: list[torch.Tensor], pre_norm: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """One layer over one caption's rows and its image's real rows: new rows, and the weights of each over the image."""

    def sublayer(norm, row, change):
        return row + change(naive_norm(norm, row)) if pre_norm else naive_norm(norm, row + change(row))

    first, last = layer.feed_forward[0], layer.feed_forward[2]

    def feed(row):
        return last.weight @ (first.weight @ row + first.bias).clamp(min=0) + last.bias

    inputs = [naive_norm(layer.self_norm, row) for row in words] if pre_norm else words
    rows_out, all_weights = [], []
    for t, row in enumerate(words):
        earlier = inputs[: t + 1]
        row = sublayer(
            layer.self_norm, row, lambda r, earlier=earlier: naive_attention(layer.self_attention, r, earlier)[0]
        )
        weights = []

        def look(r, weights=weights):
            found, w = naive_attention(layer.cross_attention, r, seen)
            weights.append(w.mean(0))
            return found

        row = sublayer(layer.cross_norm, row, look)
        rows_out.append(sublayer(layer.feed_norm, row, feed))
        all_weights.append(weights[0])
    return rows_out, all_weights


def naive_sim_trans(model: SimTrans, scenes: SceneBatch, i: int, words: torch.Tensor):
    """Logits (T, V) and attention (T, n) of one caption of image i, by loops."""
    size = model.config.hidden_size
    seen = []
    for region, box, there in zip(scenes.regions[i], scenes.boxes[i], scenes.region_mask[i], strict=True):
        if there:
            row = model.regions.weight @ region + model.regions.bias
            if model.boxes is not None:
                x1, y1, x2, y2 = box.tolist()
                numbers = torch.tensor([x1, y1, x2, y2, (x2 - x1) * (y2 - y1)])
                row = row + model.boxes.weight @ numbers + model.boxes.bias
            seen.append(row)
    caption = []
    for t, word in enumerate(words.tolist()):
        place = [math.sin(t / 10000 ** (c / (size // 2 - 1))) for c in range(size // 2)]
        place += [math.cos(t / 10000 ** (c / (size // 2 - 1))) for c in range(size // 2)]
        caption.append(model.embedding.weight[word] * math.sqrt(size) + torch.tensor(place))
    for layer in model.layers:
        caption, weights = naive_layer(layer, caption, seen, model.config.pre_norm)
    if model.config.pre_norm:
        caption = [naive_norm(model.norm, row) for row in caption]
    return torch.stack([model.output.weight @ row for row in caption]), torch.stack(weights)


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("box_encoding", [False, True])
@torch.no_grad()
def test_the_whole_model_equals_loops_over_captions_heads_and_regions(scenes, pre_norm, box_encoding):
    model = built(pre_norm=pre_norm, box_encoding=box_encoding)
    words = random_words(8, longest=4)
    output = model(model.encode(scenes), words)
    for n in (0, 3, 7):
        logits, weights = naive_sim_trans(model, scenes, n // 2, words[n, :-1])
        torch.testing.assert_close(output.log_probs[n], logits.log_softmax(-1), atol=1e-4, rtol=1e-4)
        count = weights.shape[1]
        torch.testing.assert_close(output.trace.regions[n, :, :count], weights, atol=1e-5, rtol=1e-4)


def test_positions_are_sines_then_cosines_of_falling_frequencies():
    found = positions(3, 4, 8, torch.device("cpu"))
    assert found.shape == (4, 8)
    for row, place in zip(found, (3, 4, 5, 6), strict=True):
        for c in range(4):
            angle = place * 10000 ** (-c / 3)
            assert row[c].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert row[4 + c].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_positions_are_not_in_the_state_dict_and_no_weight_is_shared():
    model = SMALL.build(WORDS)
    names = set(model.state_dict())
    assert names == {name for name, _ in model.named_parameters()}
    assert not any("position" in name for name in names)
    assert model.output.weight.data_ptr() != model.embedding.weight.data_ptr()


def test_every_part_of_attention_starts_as_the_stacked_matrix_of_queries_keys_and_values_would():
    torch.manual_seed(0)
    bound = math.sqrt(6 / (64 + 3 * 64))  # Xavier's for 64 inputs and 192 outputs
    for attention in (SelfAttention(64, 4), MultiHeadAttention(64, 4)):
        for weight, bias in projections(attention):
            assert 0.99 * bound < weight.abs().max() <= bound
            assert (bias == 0).all()


def test_attention_with_and_without_weights_gives_the_same():
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    offered = attention.keys_values(torch.randn(2, 3, 16))
    queries = torch.randn(2, 5, 16)
    found, weights = attention.with_weights(queries, offered, mask[:, None, None])
    for hidden in (mask, bias_of(mask, torch.float32)):
        torch.testing.assert_close(found, attention(queries, offered, hidden[:, None, None]))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))
    assert (weights[1, :, 1:] == 0).all()


@torch.no_grad()
def test_the_trace_is_a_distribution_over_the_real_regions(scenes):
    model = built()
    weights = model(model.encode(scenes), random_words(4)).trace.regions
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))


def test_an_image_without_regions_still_gets_words_and_finite_gradients(scenes):
    mask = scenes.region_mask.clone()
    mask[1] = False
    bare = replace(scenes, region_mask=mask)
    model, words = built(), random_words(4)
    output = model(model.encode(bare), words)
    assert torch.isfinite(output.log_probs).all()
    assert (output.trace.regions[1] == 0).all()
    torch.testing.assert_close(stepped(model, bare, words), output.log_probs, atol=1e-4, rtol=1e-4)
    other = replace(bare, regions=scenes.regions + 1)
    torch.testing.assert_close(model(model.encode(other), words).log_probs[1], output.log_probs[1])
    output.log_probs.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@torch.no_grad()
def test_a_batch_of_images_without_any_region_still_gets_words(scenes):
    empty = {name: getattr(scenes, name)[:, :0] for name in ("regions", "boxes", "scores", "region_mask")}
    bare = replace(scenes, **empty)
    model, words = built(), random_words(4)
    unseen = replace(scenes, region_mask=torch.zeros_like(scenes.region_mask))
    expected = model(model.encode(unseen), words).log_probs
    torch.testing.assert_close(model(model.encode(bare), words).log_probs, expected)
    torch.testing.assert_close(stepped(model, bare, words), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_words_see_no_later_word(scenes):
    model, words = built(), random_words(4)
    changed = words.clone()
    changed[:, 3:] = 9
    memory = model.encode(scenes)
    before, after = model(memory, words).log_probs, model(memory, changed).log_probs
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@torch.no_grad()
def test_the_order_of_words_matters_and_that_of_regions_does_not(scenes):
    model = built()
    memory = model.encode(rows(scenes, [0]))
    said = torch.tensor([[START, 5, 6, 7, END], [START, 6, 5, 7, END]])
    log_probs = model(memory, said).log_probs
    assert not torch.allclose(log_probs[0, 3], log_probs[1, 3])
    swapped = replace(scenes, regions=scenes.regions.flip(1), region_mask=scenes.region_mask.flip(1))
    words = random_words(4)
    torch.testing.assert_close(
        model(model.encode(scenes), words).log_probs,
        model(model.encode(swapped), words).log_probs,
        atol=1e-5,
        rtol=1e-4,
    )


@torch.no_grad()
def test_boxes_tell_regions_apart(scenes):
    model, words = built(box_encoding=True), random_words(4)
    assert model.needs == ("regions", "boxes")
    moved = replace(scenes, boxes=scenes.boxes.flip(1))
    one, other = (model(model.encode(s), words).log_probs for s in (scenes, moved))
    assert not torch.allclose(one, other)
    assert built().needs == ("regions",)


def test_a_box_is_encoded_by_its_corners_and_its_area():
    box = torch.tensor([0.1, 0.2, 0.5, 0.7])
    torch.testing.assert_close(corners_and_area(box), torch.tensor([0.1, 0.2, 0.5, 0.7, 0.4 * 0.5]))


@torch.no_grad()
def test_the_state_grows_by_one_place_a_word_and_starts_empty(scenes):
    model = built()
    memory = model.encode(scenes)
    assert memory["keys"].shape == memory["values"].shape == (4, 2, 4, 5, 4)
    state = expand(model.start(memory), 12)
    state = select(state, torch.arange(11, -1, -1))
    for t in range(3):
        assert {name: part.shape for name, part in state.items()} == dict.fromkeys(("layer0", "layer1"), (12, t, 32))
        before = state
        _, state = model.step(torch.full((12,), 5), memory, state)
        assert all(torch.equal(state[name][:, :t], before[name]) for name in before)


@torch.no_grad()
def test_captions_longer_than_the_places_kept_are_read_and_stepped_alike(scenes):
    model, words = built(), torch.full((4, 71), 5)
    log_probs = model(model.encode(scenes), words).log_probs
    assert log_probs.shape[1] > PLACES
    torch.testing.assert_close(stepped(built(), scenes, words), log_probs, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model.places[:PLACES], built().places)


def test_nothing_is_hidden_in_an_image_without_rows_so_that_no_softmax_is_over_nothing():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    hidden = -torch.inf
    assert bias_of(mask, torch.bfloat16).tolist() == [[0, hidden, 0], [0, 0, 0]]


def test_gradients_pass_through_stepping(scenes):
    model, words = built(), random_words(4, longest=3)
    total = stepped(model, scenes, words).gather(-1, words[:, 1:, None]).squeeze(-1)
    (total * (words[:, 1:] != PAD)).sum().backward()
    by_steps = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    model.log_prob(model.encode(scenes), words).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(by_steps[name], parameter.grad, atol=1e-4, rtol=1e-3)


def test_dropout_is_on_in_training_only_and_never_in_predict(scenes):
    model, words = built(dropout=0.5), random_words(4)
    memory = model.encode(scenes)
    assert torch.equal(model(memory, words).log_probs, model(memory, words).log_probs)
    model.train()
    assert not torch.equal(model(memory, words).log_probs, model(memory, words).log_probs)
    hidden = torch.randn(3, 16)
    assert torch.equal(model.predict(hidden), model.predict(hidden))


def test_padding_regions_never_get_a_gradient(scenes):
    model = built()
    padded = more_padding(scenes)
    regions = padded.regions.clone().requires_grad_()
    model.log_prob(model.encode(replace(padded, regions=regions)), random_words(4)).sum().backward()
    assert (regions.grad[~padded.region_mask] == 0).all()
    assert (regions.grad[padded.region_mask].abs().sum(-1) > 0).all()


@torch.no_grad()
def test_every_tensor_is_made_on_the_device_of_the_inputs(scenes):
    model, words = built(box_encoding=True).to("meta"), random_words(8).to("meta")
    memory = model.encode(scenes.to("meta"))
    assert model(memory, words).log_probs.device.type == "meta"
    log_probs, state = model.step(words[:, 0], memory, expand(model.start(memory), 8))
    assert {log_probs.device.type, *(part.device.type for part in state.values())} == {"meta"}


def test_captions_that_cannot_be_shared_out_are_refused(scenes):
    model = built()
    memory = model.encode(scenes)
    with pytest.raises(CountError, match="6 captions for 4 images"):
        model(memory, random_words(6))
    with pytest.raises(CountError, match="6 captions for 4 images"):
        model.step(torch.full((6,), 5), memory, model.start(memory))


def test_the_defaults_are_those_of_fairseq():
    config = SimTransConfig()
    assert (config.hidden_size, config.layers, config.heads, config.ffn_size) == (512, 6, 8, 2048)
    assert (config.region_width, config.dropout, config.pre_norm, config.box_encoding) == (2048, 0.3, False, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "`layers` is 0"),
        ({"heads": 0}, "`heads` is 0"),
        ({"region_width": 0}, "`region_width` is 0"),
        ({"ffn_size": -1}, "`ffn_size` is -1"),
        ({"hidden_size": 18}, "18 with 4 heads"),
        ({"hidden_size": 2, "heads": 1}, "2 with 1 heads"),
        ({"hidden_size": 15, "heads": 3}, "15 with 3 heads"),
        ({"dropout": 1.0}, "`dropout` is 1.0"),
    ],
)
def test_bad_sizes_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(SMALL, **changes)


@pytest.mark.parametrize("mask", ["none", "causal", "seen", "bias"])
def test_attention_in_bfloat16_is_pytorchs_forwards_and_backwards(mask):
    torch.manual_seed(0)
    parts = [torch.randn(3, 2, length, 4, requires_grad=True) for length in (5, 5, 5)]
    half = [part.detach().bfloat16().requires_grad_() for part in parts]
    seen = torch.rand(3, 1, 1, 5) < 0.6
    seen[..., 0] = True
    given = {"seen": seen, "bias": torch.randn(3, 1, 1, 5)}.get(mask)
    expected = torch.nn.functional.scaled_dot_product_attention(*parts, given, is_causal=mask == "causal")
    in_half = given.bfloat16() if mask == "bias" else given
    found = attend(*half, in_half, causal=mask == "causal")
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.03, rtol=0.03)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (found.float() * weights).sum().backward()
    for one, other in zip(half, parts, strict=True):
        torch.testing.assert_close(one.grad.float(), other.grad, atol=0.06, rtol=0.06)
