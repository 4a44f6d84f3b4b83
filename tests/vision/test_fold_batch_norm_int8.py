"""A backbone of 8-bit integers: its arithmetic against whole numbers written out, its bounds, and what it sees."""

import copy

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES
from sightline.pipeline import load_model
from sightline.vision import fold_batch_norm
from sightline.vision.efficientnet_lite import Block, Convolution, EfficientNetLite, same_padding
from sightline.vision.fold_batch_norm import SIX, FusedConvolution, Int8Block, Int8Convolution, fold, fold_int8
from sightline.vision.images import read_pixels

needs_int8 = pytest.mark.skipif(
    not fold_batch_norm.int8_available(), reason="this machine is not faster with 8-bit integers"
)


def as_trained(network, size):
    """Batch norms with the statistics of what they see, means and deviations of all kinds."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
            torch.nn.init.uniform_(module.weight, 0.5, 3.0)
            torch.nn.init.normal_(module.bias, 0.5, 1.0)
    network.train()
    with torch.no_grad():
        network(torch.randn(8, *size))
    return network.eval()


@pytest.fixture(scope="module")
def network():
    return as_trained(EfficientNetLite("lite0"), (3, 96, 96))


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


@needs_int8
@pytest.mark.parametrize(("kernel", "stride", "groups"), [(1, 1, 1), (3, 1, 8), (5, 2, 8), (3, 2, 1)])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("size", [(9, 12), (12, 11)])
def test_a_convolution_is_that_of_whole_numbers(kernel, stride, groups, linear, size):
    one = as_trained(Convolution(8, 8, kernel, stride, groups=groups, linear=linear), (8, 16, 16))
    step, zero = (0.1, 120) if kernel == 1 else (SIX, 0)  # what is padded is 0, and only that can be told by 0
    mean = torch.rand(8)
    x = torch.randint(0, 256, (2, 8, *size), dtype=torch.uint8)
    found = Int8Convolution(one, mean, step, zero)(channels_last(x))

    float_ = FusedConvolution(one)
    scale = float_.weight.abs().amax((1, 2, 3), keepdim=True).double() / 127
    weight = (float_.weight / scale).round()
    (top, bottom), (left, right) = (same_padding(n, kernel, stride) for n in size)
    padded = torch.nn.functional.pad(x.double() - zero, (left, right, top, bottom))
    sums = torch.nn.functional.conv2d(padded, weight, None, stride, groups=groups)
    bias = float_.bias.double()
    for output in range(8):  # E[Δ] of section 4.2: what was lost of each weight, times what it meets on average
        for place in range(weight.shape[1]):
            channel = place if groups == 1 else output
            lost = float_.weight[output, place].double() - weight[output, place] * scale[output]
            bias[output] += lost.sum() * mean[channel]
    expected = sums * step * scale.view(-1, 1, 1) + bias.view(-1, 1, 1)
    if linear:
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, atol=1e-3, rtol=1e-4)
    else:
        assert found.dtype == torch.uint8
        steps = expected.clamp(0, 6) / SIX
        assert (found.double() - steps).abs().max() <= 0.51


def test_the_mean_of_relu6_is_that_of_many_draws():
    norm = torch.nn.BatchNorm2d(5)
    with torch.no_grad():
        norm.bias.copy_(torch.tensor([-3.0, 0.0, 1.0, 5.0, 9.0]))
        norm.weight.copy_(torch.tensor([2.0, 1.0, -3.0, 2.0, 0.0]))
    torch.manual_seed(0)
    draws = norm.bias + norm.weight * torch.randn(400_000, 5)
    torch.testing.assert_close(fold_batch_norm._mean_of_relu6(norm), draws.clamp(0, 6).mean(0), atol=0.01, rtol=0)


@needs_int8
def test_what_enters_a_block_is_told_in_256_steps_and_cut_beyond():
    block = as_trained(Block(8, 8, 3, 1, 6), (8, 16, 16))
    mean, deviation = torch.linspace(-1, 2, 8), torch.full((8,), 0.5)
    rounded = Int8Block(block, block.expand, mean, deviation)
    assert rounded.step == pytest.approx((2 + 2.5 - (-1 - 2.5)) / 255)
    x = channels_last((mean + deviation * torch.randn(2, 10, 10, 8)).permute(0, 3, 1, 2))
    before = x.clone()
    with torch.no_grad():
        error = (rounded(x) - block(x)).norm() / block(x).norm()
        assert error < 0.05
        far = rounded(torch.full_like(x, 1e6)) - 1e6  # the residual is not cut
        torch.testing.assert_close(far, rounded(torch.full_like(x, 4.5)) - 4.5, atol=0.2, rtol=0)
    assert torch.equal(x, before)


@needs_int8
@pytest.mark.parametrize("size", [(96, 96), (65, 97), (33, 40), (1, 1)])
@torch.inference_mode()
def test_maps_have_the_shapes_of_the_network(network, size):
    swift, x = fold_int8(network), torch.randn(3, 3, *size)
    assert sum(isinstance(module, Int8Block) for module in swift.modules()) == len(network.blocks) - 1
    for found, expected in zip(swift(x), network(x), strict=True):
        assert found.shape == expected.shape


@pytest.fixture(scope="module")
def shipped():
    """The vision model that comes with the package, sample photos, and what it sees in them."""
    vision = load_model().vision
    pixels = [read_pixels(path, vision.size)[0] for path in sorted(EXAMPLES.glob("*.jpg"))[:4]]
    photos = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
    with torch.inference_mode():
        return vision, photos, fold(vision)(photos)


def away(found, expected):
    return float((found - expected).norm() / expected.norm())


@needs_int8
@torch.inference_mode()
def test_the_shipped_model_sees_nearly_the_same(shipped):
    vision, photos, expected = shipped
    found = fold_int8(vision)(photos)
    assert 0 < away(found.cells, expected.cells) < 0.1
    assert away(found.objectness, expected.objectness) < 0.02
    assert away(found.boxes, expected.boxes) < 0.01


@needs_int8
@torch.inference_mode()
def test_taking_back_what_rounding_shifts_brings_maps_nearer(shipped, monkeypatch):
    vision, photos, expected = shipped
    with_it = away(fold_int8(vision)(photos).cells, expected.cells)
    monkeypatch.setattr(fold_batch_norm, "_mean_of_relu6", lambda norm: torch.zeros_like(norm.bias))
    assert with_it < 0.9 * away(fold_int8(vision)(photos).cells, expected.cells)


@needs_int8
@pytest.mark.parametrize("middle", [10.0, -10.0])
@torch.no_grad()
def test_what_enters_far_from_0_is_told_too(middle):
    block = as_trained(Block(8, 8, 3, 1, 6), (8, 16, 16))
    mean, deviation = torch.full((8,), middle), torch.full((8,), 0.5)
    x = channels_last(middle + 0.5 * torch.randn(2, 8, 10, 10))
    rounded = Int8Block(block, block.expand, mean, deviation)
    assert (rounded(x) - block(x)).norm() / (block(x) - x).norm() < 0.1


@needs_int8
def test_it_can_be_folded_again_like_any_network_that_evaluates(network):
    swift = fold_int8(network)
    assert not any(module.training for module in swift.modules())


@needs_int8
@torch.inference_mode()
def test_a_photo_is_seen_as_it_is_alone(network):
    swift, x = fold_int8(network), torch.randn(5, 3, 64, 80)
    x[0] *= 30  # a companion that is out of all bounds
    together = swift(x)
    for photo in range(5):
        for one, many in zip(swift(x[photo : photo + 1]), together, strict=True):
            assert torch.equal(one[0], many[photo])


@torch.inference_mode()
def test_where_it_is_not_faster_nothing_is_rounded(network, monkeypatch):
    monkeypatch.setattr(fold_batch_norm, "int8_available", lambda: False)
    x = torch.randn(2, 3, 64, 64)
    for found, expected in zip(fold_int8(network)(x), fold(network)(x), strict=True):
        assert torch.equal(found, expected)


@needs_int8
def test_a_copy_sees_the_same(network):
    swift, x = fold_int8(network), torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        first = swift(x)[2]
        assert torch.equal(copy.deepcopy(swift)(x)[2], first)


def test_looking_for_it_draws_no_random_numbers():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fold_batch_norm.int8_available.cache_clear()
    fold_batch_norm.int8_available()
    assert torch.equal(torch.rand(1), expected)
