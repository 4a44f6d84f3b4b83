"""Weights in few bits: what becomes int8, how far it is off, and what is left alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.checkpoint.checkpoint_file import SCALE, pack, quantise, unpack


def some(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * scale


@given(st.integers(1, 5), st.integers(1, 40), st.floats(1e-6, 1e4), st.integers(0, 99))
def test_a_whole_number_is_off_by_half_a_step_of_its_row_at_most(rows, columns, size, seed):
    tensor = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    whole, scale = quantise(tensor)
    for row in range(rows):
        step = max(abs(float(v)) for v in tensor[row]) / 127
        for column in range(columns):
            back = float(whole[row, column]) * float(scale[row])
            assert abs(back - float(tensor[row, column])) <= step * 0.5001


def test_each_output_has_its_own_scale_so_a_large_row_does_not_drown_a_small_one():
    tensor = torch.cat([some(1, 4096, scale=1000.0), some(1, 4096, scale=0.001)])
    back = unpack(pack({"w": tensor}, "int8"))["w"]
    assert (back[1] - tensor[1]).abs().max() < 0.001 * 4 / 127


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((64, 64), torch.int8),
        ((64, 8, 3, 3), torch.int8),
        ((64, 63), torch.float16),
        ((512, 1, 3, 3), torch.float16),
        ((5000,), torch.float16),
        ((), torch.float16),
    ],
    ids=["matrix", "convolution", "small matrix", "depthwise convolution", "vector", "number"],
)
def test_int8_is_for_large_tensors_whose_outputs_read_several_inputs(shape, kind):
    packed = pack({"w": torch.ones(shape)}, "int8")
    assert packed["w"].dtype == kind
    assert (f"w{SCALE}" in packed) == (kind == torch.int8)
    assert unpack(packed)["w"].shape == torch.Size(shape)


@pytest.mark.parametrize("precision", ["int8", "float16", "float32"])
def test_what_is_unpacked_is_float32_and_whole_numbers_stay_as_they_were(precision):
    weights = {"matrix": some(64, 64), "bias": some(64).double(), "half": some(4).half(), "steps": torch.tensor(7)}
    back = unpack(pack(weights, precision))
    assert list(back) == list(weights)
    assert {back[name].dtype for name in ("matrix", "bias", "half")} == {torch.float32}
    assert back["steps"].dtype == torch.int64
    assert int(back["steps"]) == 7


def test_float32_changes_nothing():
    weights = {"matrix": some(64, 64), "bias": some(64)}
    back = unpack(pack(weights, "float32"))
    assert all(torch.equal(back[name], tensor) for name, tensor in weights.items())


def test_a_number_beyond_float16_keeps_its_tensor_whole():
    variance = torch.tensor([1.0, 70000.0])
    assert torch.equal(unpack(pack({"running_var": variance}, "int8"))["running_var"], variance)


def test_a_row_of_zeros_stays_zero():
    tensor = some(64, 64)
    tensor[3] = 0
    back = unpack(pack({"w": tensor}, "int8"))["w"]
    assert torch.equal(back[3], torch.zeros(64))
    assert back.isfinite().all()
