"""A model in 8 bits says nearly what it says in 32."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from captioner_contract import rows
from sightline.batch import SceneBatch
from sightline.decoding.decode import decode
from sightline.decoding.strategies import Beam
from sightline.models import int8_linear
from sightline.models.int8_linear import HalfDecoderLayer, HalfLinear, Int8Linear, with_int8
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.transformer_decoder import DecoderLayer
from sightline.models.updown import UpDownConfig

pytestmark = [
    pytest.mark.skipif(not int8_linear.int8_available(), reason="PyTorch has no 8-bit products here"),
    pytest.mark.skipif(not int8_linear.half_available(), reason="PyTorch has no products with 16-bit weights here"),
]


def scenes(count: int = 2) -> SceneBatch:
    torch.manual_seed(1)
    corners = torch.rand(count, 5, 2, 2)
    return SceneBatch(
        tuple(map(str, range(count))),
        regions=torch.rand(count, 5, 32),
        boxes=torch.cat([corners.amin(2), corners.amax(2)], -1),
        grid=torch.rand(count, 4, 48),
        grid_shapes=((2, 2),) * count,
    )


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def model(request):
    torch.manual_seed(0)
    config = SceneTransConfig(
        region_width=32, grid_width=48, hidden_size=96, heads=4, layers=2, ffn_size=128, tied=request.param
    )
    return config.build(200).eval()


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_rounds_by_less_than_a_hundredth_of_its_largest_result(bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(96, 64, bias=bias), torch.randn(3, 5, 96)
    found, exact = Int8Linear(layer.weight, layer.bias)(x), layer(x)
    assert found.shape == exact.shape
    assert (found - exact).abs().max() < 0.02 * exact.abs().max()


def test_each_row_of_the_weights_has_a_scale_of_its_own():
    weight = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)) * torch.tensor([[100.0], [0.01]])
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    found, exact = Int8Linear(weight, None)(x), x @ weight.T
    for row in range(2):
        torch.testing.assert_close(found[:, row], exact[:, row], rtol=0.1, atol=0.02 * float(exact[:, row].abs().max()))


@torch.inference_mode()
def test_a_captioner_says_nearly_the_same_with_nearly_the_same_probability(model):
    swift = with_int8(model)
    memory, quick = model.encode(scenes()), swift.encode(scenes())
    words = decode(model, memory, Beam(3)).words[:, 0]
    exact, found = model.word_log_probs(memory, words), swift.word_log_probs(quick, words)
    torch.testing.assert_close(found, exact, atol=0.2, rtol=0.05)


def test_a_row_is_rounded_the_same_whatever_stands_beside_it():
    torch.manual_seed(0)
    layer = Int8Linear(torch.randn(64, 96), torch.randn(64))
    x = torch.randn(2, 3, 96)
    beside = torch.cat([1e3 * torch.randn(2, 2, 96), x, -0.01 * torch.rand(2, 4, 96)], 1)
    torch.testing.assert_close(layer(beside)[:, 2:5], layer(x), rtol=0, atol=1e-5)
    torch.testing.assert_close(layer(torch.zeros(1, 96))[0], layer._bias)


@torch.inference_mode()
def test_what_is_said_of_a_photo_does_not_depend_on_the_photos_beside_it(model):
    swift, many = with_int8(model), scenes(8)
    words = decode(swift, swift.encode(many), Beam(3)).words[:, 0]
    together = swift.word_log_probs(swift.encode(many), words)
    for i in range(8):
        alone = swift.word_log_probs(swift.encode(rows(many, [i])), words[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-3)


@torch.inference_mode()
def test_the_short_way_of_a_word_gives_the_numbers_of_the_usual_one(model):
    swift, plain = with_int8(model), with_int8(model)
    for place, layer in enumerate(plain.layers):
        assert isinstance(layer, HalfDecoderLayer)
        usual = copy.copy(layer)
        usual.__class__ = DecoderLayer
        plain.layers[place] = usual
    memory, state = swift.encode(scenes(3)), None
    for words in torch.randint(4, 200, (5, 6)):
        state = state or {name: part.repeat_interleave(2, 0) for name, part in swift.start(memory).items()}
        found, after = swift.advance(words, memory, state)
        expected, state = plain.advance(words, memory, state)
        torch.testing.assert_close(found, expected, rtol=0, atol=3e-6)
        for name in state:
            torch.testing.assert_close(after[name], state[name], rtol=0, atol=3e-6)


@pytest.mark.parametrize("pre_norm", [True, False])
@torch.inference_mode()
def test_layers_that_normalise_last_go_the_usual_way(pre_norm):
    torch.manual_seed(0)
    sizes = {"region_width": 32, "grid_width": 48, "hidden_size": 96, "heads": 4, "layers": 1, "ffn_size": 128}
    model = SceneTransConfig(**sizes, pre_norm=pre_norm).build(200).eval()
    swift = with_int8(model)
    assert isinstance(swift.layers[0], HalfDecoderLayer) == pre_norm
    words = decode(swift, swift.encode(scenes()), Beam(3)).words
    assert words.shape[:2] == (2, 1)


def test_large_products_of_whole_photos_change_and_the_model_itself_does_not(model):
    before = copy.deepcopy(model.state_dict())
    swift = with_int8(model)
    left = {name for name, module in swift.named_modules() if isinstance(module, nn.Linear)}
    assert all(
        name.startswith("layers.") or swift.get_submodule(name).weight.numel() < int8_linear.SMALLEST for name in left
    )
    changed = {name for name, module in swift.named_modules() if isinstance(module, Int8Linear)}
    assert {"output", "layers.0.cross_attention.key_value", "layers.1.cross_attention.key_value"} <= changed
    assert any(name.startswith("encoder.") for name in changed)
    assert not any(isinstance(module, Int8Linear) for module in model.modules())
    for name, part in model.state_dict().items():
        torch.testing.assert_close(part, before[name], rtol=0, atol=0)


def test_a_model_that_learns_is_refused(model):
    learning = copy.deepcopy(model).train()
    with pytest.raises(ValueError, match="eval"):
        with_int8(learning)


def test_other_captioners_stay_as_they_are():
    plain = UpDownConfig(region_width=32, word_size=96, hidden_size=96, attention_size=96).build(200).eval()
    assert with_int8(plain) is plain


def test_without_8_bit_products_the_model_stays_as_it_is(model, monkeypatch):
    monkeypatch.setattr(int8_linear, "int8_available", lambda: False)
    assert with_int8(model) is model


def round_to_8_bits(module):
    """Weights as a file of 8 bits has them."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            scales = part.weight.abs().amax(1, keepdim=True) / 127
            part.weight.data = (part.weight / scales).round() * scales
    return module


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 96), (3, 1, 96), (2, 40, 96), (200, 96)])
@torch.inference_mode()
def test_a_product_with_weights_of_8_bits_is_the_plain_one(shape, bias):
    torch.manual_seed(0)
    layer, x = round_to_8_bits(nn.Linear(96, 160, bias=bias)), torch.randn(shape)
    plain = x @ layer.weight.T + (layer.bias if bias else 0)
    torch.testing.assert_close(HalfLinear(layer.weight, layer.bias)(x), plain, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_other_weights_are_rounded_to_16_bits():
    torch.manual_seed(0)
    layer, x = nn.Linear(96, 160), torch.randn(20, 96)
    layer.weight[0] = 0
    scales = (layer.weight.abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
    halved = (layer.weight / scales).half().float() * scales
    product = HalfLinear(layer.weight, layer.bias)(x)
    torch.testing.assert_close(product, x @ halved.T + layer.bias, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(product, layer(x), rtol=0, atol=2e-3)


@torch.inference_mode()
def test_rows_that_are_views_of_others_are_read_as_they_are():
    layer, x = round_to_8_bits(nn.Linear(96, 160)), torch.randn(5, 7, 192)[:, ::2, 96:]
    torch.testing.assert_close(HalfLinear(layer.weight, layer.bias)(x), layer(x), rtol=1e-5, atol=1e-5)


def test_a_copy_is_itself():
    layer = HalfLinear(torch.randn(8, 16), None)
    assert copy.deepcopy(layer) is layer


def test_the_products_of_a_word_are_of_16_bits_and_those_of_the_model_itself_are_not():
    model = SceneTransConfig(hidden_size=96, heads=4, layers=2, ffn_size=128, encoder_layers=1).build(50).eval()
    swift = with_int8(model)
    assert not any(isinstance(module, nn.Linear) for module in swift.layers.modules())
    assert isinstance(swift.get_submodule("layers.0.self_attention.projection"), HalfLinear)
    assert not any(isinstance(module, HalfLinear) for module in model.modules())


@torch.inference_mode()
def test_a_captioner_says_the_same_without(monkeypatch):
    torch.manual_seed(0)
    config = SceneTransConfig(hidden_size=96, heads=4, layers=2, ffn_size=128, encoder_layers=1, sources="regions")
    model = round_to_8_bits(config.build(50).eval())
    swift = with_int8(model)
    monkeypatch.setattr(int8_linear, "half_available", lambda: False)
    plain = with_int8(model)
    assert isinstance(plain.get_submodule("layers.0.self_attention.projection"), nn.Linear)
    rows, words = torch.randn(2, 7, 96), torch.randint(4, 50, (2, 5))
    for one, other in zip(swift.layers, plain.layers, strict=True):
        kept = one.cross_attention.key_value(rows)
        keys = kept.view(2, 7, 2, 4, 24).permute(2, 0, 3, 1, 4)
        given = (swift.embedding(words), (keys[0], keys[1]), torch.zeros(2, 1, 1, 7))
        torch.testing.assert_close(one(*given)[0], other(*given)[0], rtol=1e-4, atol=1e-4)
