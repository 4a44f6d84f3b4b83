"""Networks folded for inference give what the unfolded ones give."""

import copy
import io

import pytest
import torch

from sightline.errors import ConfigError
from sightline.vision import fold_batch_norm
from sightline.vision.efficientnet_lite import Convolution, EfficientNetLite
from sightline.vision.fold_batch_norm import SHAPES_KEPT, FusedConvolution, fold

torch.set_num_threads(1)


def with_statistics(network):
    """Batch norms as after training, and widths of activations that neither vanish nor all reach six."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, 0.5, 0.5)
            torch.nn.init.normal_(module.running_mean, 0, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.2, 0.6)
    return network.eval()


@pytest.fixture(scope="module")
def network():
    return with_statistics(EfficientNetLite("lite0"))


@pytest.fixture(scope="module")
def quick(network):
    return fold(network)


@pytest.fixture(params=["fused", "plain"])
def way(request, monkeypatch):
    """With oneDNN's fused convolution where there is one, and as on machines without."""
    if request.param == "plain":
        monkeypatch.setattr(fold_batch_norm, "fuses", lambda: False)
    elif not fold_batch_norm.fuses():
        pytest.skip("this PyTorch has no fused convolution")


@torch.inference_mode()
def assert_same(network, quick, x):
    expected, found = network(x), quick(x)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(quick.head_map(found[2]), network.head_map(expected[2]), atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", [(64, 64), (65, 65), (64, 97), (75, 50), (33, 32), (1, 1), (2, 7)])
def test_maps_equal_those_of_the_unfolded_network(network, quick, size):
    assert_same(network, quick, torch.randn(2, 3, *size))


def test_photo_by_photo_is_the_same_as_together(network, quick):
    x = torch.randn(3, 3, 64, 48)
    for one in (network, quick):
        together = one(x)  # gradients are on
        with torch.no_grad():
            for found, expected in zip(one(x), together, strict=True):
                torch.testing.assert_close(found, expected.detach(), atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.mT,
        lambda x: x[:, :, ::2, 1:],
        lambda x: x[:1].expand(3, -1, -1, -1),
    ],
)
def test_the_memory_of_the_input_does_not_matter(network, quick, view):
    assert_same(network, quick, view(torch.randn(2, 3, 64, 48)))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("linear", [True, False])
def test_each_kind_of_convolution_is_kept_with_and_without_a_sum(kernel, stride, linear):
    one = with_statistics(Convolution(8, 8, kernel, stride, groups=4, linear=linear))
    for size in ((9, 12), (12, 10)):
        x = torch.randn(2, 8, *size)
        with torch.inference_mode():
            expected = one(x)
            plus = torch.randn_like(expected)
            torch.testing.assert_close(fold(one)(x), expected, atol=1e-5, rtol=1e-5)
            for summand in (plus, plus.contiguous(memory_format=torch.channels_last)):
                torch.testing.assert_close(fold(one)(x, summand), expected + plus, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (8, 1), (1, 8)])
def test_a_single_channel_is_convolved_and_summed(inputs, outputs):
    one = with_statistics(Convolution(inputs, outputs, 1, linear=True))
    x, plus = torch.randn(2, inputs, 5, 6), torch.randn(2, outputs, 5, 6)
    with torch.inference_mode():
        torch.testing.assert_close(fold(one)(x, plus), one(x) + plus, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("way")
def test_inputs_and_summands_are_not_written_to():
    one = fold(with_statistics(Convolution(8, 8, 1, linear=True)))
    x, plus = torch.randn(2, 1, 8, 6, 6).unbind()
    before = x.clone(), plus.clone()
    one(x, plus)
    assert torch.equal(x, before[0])
    assert torch.equal(plus, before[1])


def test_the_original_is_untouched(network):
    before = copy.deepcopy(network.state_dict())
    quick = fold(network)
    quick(torch.randn(1, 3, 32, 32))
    assert not any(isinstance(module, FusedConvolution) for module in network.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_no_batch_norm_is_left(quick):
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in quick.modules())


def test_a_network_in_training_mode_is_refused(network):
    training = copy.deepcopy(network)
    training.blocks[3].train()
    with pytest.raises(ConfigError, match=r"eval\(\)"):
        fold(training)


def test_gradients_of_the_pixels_are_those_of_the_unfolded_network(network, quick):
    found, expected = torch.randn(1, 3, 48, 48).repeat(2, 1, 1, 1, 1).unbind()
    for model, x in ((quick, found), (network, expected)):
        model(x.requires_grad_())[2].square().mean().backward()
    network.zero_grad()
    assert expected.grad.abs().sum() > 0
    torch.testing.assert_close(found.grad, expected.grad, atol=1e-5, rtol=1e-3)
    assert not any(parameter.requires_grad for parameter in quick.parameters())


def test_layouts_of_old_shapes_are_forgotten(network):
    if not fold_batch_norm.fuses():
        pytest.skip("this PyTorch has no fused convolution")
    quick = fold(network)
    for size in range(32, 32 + 3 * SHAPES_KEPT):
        quick(torch.zeros(1, 3, size, size))
    assert len(quick.stem._laid) == SHAPES_KEPT


def test_a_network_in_use_can_be_copied_saved_and_moved(network, quick):
    x = torch.randn(1, 3, 40, 40)
    quick(x)
    file = io.BytesIO()
    torch.save(quick, file)
    file.seek(0)
    assert_same(network, torch.load(file, weights_only=False), x)
    assert_same(network, copy.deepcopy(quick), x)
    rounded = copy.deepcopy(quick)
    rounded(x)  # laid out before the weights lose digits
    assert rounded.to(torch.bfloat16)(x.bfloat16())[0].dtype == torch.bfloat16
    assert not torch.equal(rounded.float()(x)[0], quick(x)[0])
