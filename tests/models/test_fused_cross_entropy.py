"""Log-probabilities picked in the memory of their scores are those of the formula, and so are gradients."""

from __future__ import annotations

import math

import pytest
import torch

from sightline.models.fused_cross_entropy import fused_cross_entropy


def by_formula(logits: torch.Tensor, targets: torch.Tensor, spread: float) -> torch.Tensor:
    """Σ q · ln p of each row, q being `spread` over all words and the rest on the target."""
    found = []
    for row, target in zip(logits, targets.tolist(), strict=True):
        total = sum(x.exp() for x in row)
        log_p = [x - total.log() for x in row]
        found.append(sum((spread / len(row) + (1 - spread) * (i == target)) * x for i, x in enumerate(log_p)))
    return torch.stack(found)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_values_and_gradients_are_those_of_the_formula_whatever_each_word_weighs(spread):
    torch.manual_seed(0)
    scores = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    targets, weights = torch.tensor([0, 6, 3, 3, 1]), torch.randn(5, dtype=torch.float64)
    expected = by_formula(scores, targets, spread)
    found = fused_cross_entropy(scores * 1, targets, spread)
    torch.testing.assert_close(found, expected)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), scores)
    (gradient,) = torch.autograd.grad((found * weights).sum(), scores)
    torch.testing.assert_close(gradient, wanted)


def test_large_scores_stay_finite():
    scores = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    found = fused_cross_entropy(scores * 1, torch.tensor([1]))
    found.backward()
    assert found.item() == -2e4
    torch.testing.assert_close(scores.grad, torch.tensor([[-1.0, 1.0, 0.0]]))


def test_without_gradients_the_scores_become_log_probabilities():
    scores = torch.zeros(1, 4)
    with torch.no_grad():
        assert fused_cross_entropy(scores, torch.tensor([2])).item() == pytest.approx(-math.log(4))
    torch.testing.assert_close(scores, torch.full((1, 4), -math.log(4)))


def test_a_second_backward_pass_is_refused_rather_than_wrong():
    scores = torch.randn(2, 3, requires_grad=True)
    total = fused_cross_entropy(scores * 1, torch.tensor([0, 1])).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        total.backward()


def test_scores_that_the_backward_pass_needs_are_not_overwritten_unnoticed():
    scores = torch.randn(2, 3, requires_grad=True)
    total = fused_cross_entropy(scores.exp(), torch.tensor([0, 1])).sum()  # the gradient of exp is its value
    with pytest.raises(RuntimeError, match="inplace"):
        total.backward()
