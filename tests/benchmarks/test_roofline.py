"""The FLOPs and bytes that `roofline.py` counts, against sums by hand; no test is of time."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import roofline

CEILINGS = roofline.Ceilings({"float32": 100.0, "tf32": 200.0, "bfloat16": 400.0}, bandwidth=10.0)


def test_a_product_has_two_flops_for_each_pair_and_moves_three_matrices():
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    work = roofline.count(lambda: a @ b)
    assert work.flops == {"float32": 2 * 3 * 4 * 5}
    assert work.bytes == 4 * (12 + 20 + 15)


def test_numbers_of_half_the_size_count_as_their_own_kind():
    a = torch.ones(2, 2, dtype=torch.bfloat16)
    work = roofline.count(lambda: a @ a)
    assert work.flops == {"bfloat16": 16}
    assert work.bytes == 2 * (4 + 4 + 4)


def test_views_and_fresh_memory_move_nothing():
    a = torch.ones(4, 4)
    assert roofline.count(lambda: (a.T, a.view(16), a.expand(9, 4, 4), torch.empty(5))).bytes == 0


def test_what_is_repeated_counts_once_and_what_is_changed_twice():
    a, row = torch.ones(8, 4), torch.ones(4)
    assert roofline.count(lambda: a + row.expand(8, 4)).bytes == 4 * (32 + 4 + 32)
    assert roofline.count(lambda: a.add_(row)).bytes == 4 * (32 + 4 + 32)


def test_an_embedding_reads_the_rows_it_gives():
    table, ids = torch.ones(1000, 4), torch.tensor([1, 2])
    assert roofline.count(lambda: F.embedding(ids, table)).bytes == 2 * (2 * 4 * 4) + 2 * 8


def test_gradients_of_a_depthwise_convolution_cost_twice_the_convolution():
    pixels = torch.ones(2, 6, 8, 8, requires_grad=True)
    weights = torch.ones(6, 1, 3, 3, requires_grad=True)
    forward = 2 * (2 * 6 * 8 * 8) * 9
    work = roofline.count(lambda: F.conv2d(pixels, weights, padding=1, groups=6).sum().backward())
    assert work.flops == {"float32": 3 * forward}


def test_the_roofline_is_the_longer_of_both_times():
    assert CEILINGS.seconds({"float32": 100.0, "bfloat16": 400.0}, 5.0) == 2
    assert CEILINGS.seconds({"float32": 100.0}, 30.0) == 3


def test_operators_one_after_the_other_take_the_sum_of_their_limits():
    work = roofline.Work(operators=[("float32", 100.0, 5.0), ("float32", 0.0, 30.0)])
    assert work.operators_seconds(CEILINGS) == 1 + 3


def test_ceilings_are_measured():
    found = roofline.measure_ceilings(torch.device("cpu"), quick=True)
    assert min(found.flops.values()) > 0
    assert found.bandwidth > 0
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_nothing_has_no_bytes(shape):
    assert roofline.size(torch.ones(shape)) == 0
