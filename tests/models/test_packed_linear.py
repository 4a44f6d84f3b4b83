"""Products whose weights are laid out beforehand are the plain ones."""

import copy

import pytest
import torch
from torch import nn

from sightline.models import packed_linear
from sightline.models.int8_linear import available, with_int8
from sightline.models.packed_linear import PackedLinear
from sightline.models.scene_trans import SceneTransConfig

pytestmark = pytest.mark.skipif(not packed_linear.available(), reason="PyTorch has no products by oneDNN here")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 96), (3, 1, 96), (2, 40, 96), (200, 96)])
@torch.inference_mode()
def test_a_product_is_the_plain_one(shape, bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(96, 160, bias=bias), torch.randn(shape)
    plain = x @ layer.weight.T + (layer.bias if bias else 0)
    torch.testing.assert_close(PackedLinear(layer.weight, layer.bias)(x), plain, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_rows_that_are_views_of_others_are_read_as_they_are():
    layer, x = nn.Linear(96, 160), torch.randn(5, 7, 192)[:, ::2, 96:]
    torch.testing.assert_close(PackedLinear(layer.weight, layer.bias)(x), layer(x), rtol=1e-5, atol=1e-5)


def test_a_copy_is_itself():
    layer = PackedLinear(torch.randn(8, 16), None)
    assert copy.deepcopy(layer) is layer


@pytest.mark.skipif(not available(), reason="PyTorch has no 8-bit products here")
def test_the_products_of_a_word_are_packed_and_the_model_itself_is_not():
    model = SceneTransConfig(hidden_size=96, heads=4, layers=2, ffn_size=128, encoder_layers=1).build(50).eval()
    swift = with_int8(model)
    assert not any(isinstance(module, nn.Linear) for module in swift.layers.modules())
    assert isinstance(swift.get_submodule("layers.0.self_attention.projection"), PackedLinear)
    assert not any(isinstance(module, PackedLinear) for module in model.modules())


@pytest.mark.skipif(not available(), reason="PyTorch has no 8-bit products here")
@torch.inference_mode()
def test_a_captioner_says_the_same_without(monkeypatch):
    torch.manual_seed(0)
    config = SceneTransConfig(hidden_size=96, heads=4, layers=2, ffn_size=128, encoder_layers=1, sources="regions")
    model = config.build(50).eval()
    swift = with_int8(model)
    monkeypatch.setattr(packed_linear, "available", lambda: False)
    plain = with_int8(model)
    assert isinstance(plain.get_submodule("layers.0.self_attention.projection"), nn.Linear)
    rows, words = torch.randn(2, 7, 96), torch.randint(4, 50, (2, 5))
    for one, other in zip(swift.layers, plain.layers, strict=True):
        kept = one.cross_attention.key_value(rows)
        keys = kept.view(2, 7, 2, 4, 24).permute(2, 0, 3, 1, 4)
        given = (swift.embedding(words), (keys[0], keys[1]), torch.zeros(2, 1, 1, 7))
        torch.testing.assert_close(one(*given)[0], other(*given)[0], rtol=1e-4, atol=1e-4)
