"""Weights of loops and chosen log-probabilities have the values and the gradients of the plain formulas."""

from __future__ import annotations

import math

import pytest
import torch

from sightline.models.custom_gradients import LoopWeights, fused_cross_entropy


def recurrence(looped, inputs, steps, by="times"):
    """h_t = tanh(W h_{t-1} + b), or by `plus` tanh(W h_{t-1} + x)."""
    hidden = inputs
    for _ in range(steps):
        hidden = (looped.times(hidden, plus=inputs.clone()) if by == "plus" else looped.times(hidden)).tanh()
    return hidden.square().sum()


class Plain:
    """The product as autograd has it."""

    def __init__(self, weight, bias=None):
        self.weight, self.bias = weight, bias

    def times(self, x, plus=None):
        sums = self.bias if plus is None else plus
        return x @ self.weight.T if sums is None else sums + x @ self.weight.T


def tensors():
    torch.manual_seed(0)
    shapes = {"weight": (4, 4), "inputs": (5, 4), "bias": (4,)}
    return {name: torch.randn(shape, dtype=torch.float64, requires_grad=True) for name, shape in shapes.items()}


@pytest.mark.parametrize(("by", "biased"), [("times", True), ("times", False), ("plus", False)])
@pytest.mark.parametrize("steps", [1, 6])
def test_gradients_of_a_recurrence_are_those_of_the_plain_product(steps, by, biased):
    weight, inputs, bias = tensors().values()
    given = [weight, inputs, *([bias] if biased else [])]
    plain = recurrence(Plain(weight, bias if biased else None), inputs, steps, by)
    expected = torch.autograd.grad(plain, given)
    looped = recurrence(LoopWeights(weight, bias=bias if biased else None), inputs, steps, by)
    assert looped.item() == pytest.approx(plain.item())
    for found, wanted in zip(torch.autograd.grad(looped, given), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_graph_that_is_kept_gives_the_same_gradient_again():
    weight, inputs, bias = tensors().values()
    total = recurrence(LoopWeights(weight, bias=bias), inputs, 3)
    total.backward(retain_graph=True)
    once = weight.grad.clone()
    total.backward()
    torch.testing.assert_close(weight.grad, 2 * once)


def test_a_frozen_weight_gets_no_gradient_and_lets_others_have_theirs():
    weight, inputs, bias = tensors().values()
    recurrence(LoopWeights(weight.detach(), bias=bias), inputs, 3).backward()
    assert weight.grad is None
    assert bias.grad.abs().sum() > 0
    assert inputs.grad.abs().sum() > 0


def test_a_weight_that_no_step_used_gets_none():
    weight = torch.ones(2, 2, requires_grad=True)
    LoopWeights(weight)._weights[0].sum().backward(inputs=[weight])
    assert weight.grad is None


def test_without_gradients_sums_are_added_and_left_as_they_are():
    weight, inputs, _ = (part.detach() for part in tensors().values())
    sums = torch.ones(5, 4, dtype=torch.float64)
    with torch.no_grad():
        found = LoopWeights(weight).times(inputs, plus=sums)
    assert (sums == 1).all()
    torch.testing.assert_close(found, inputs @ weight.T + 1)


@pytest.mark.parametrize("gradients", [True, False])
def test_sums_beside_a_bias_are_refused_whose_gradient_would_be_wrong(gradients):
    weight, inputs, bias = tensors().values()
    with torch.set_grad_enabled(gradients), pytest.raises(AssertionError):
        LoopWeights(weight, bias=bias).times(inputs, plus=torch.zeros(5, 4, dtype=torch.float64))


def test_autocast_computes_in_half_precision_with_gradients():
    weight = torch.randn(4, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = LoopWeights(weight, bias=torch.zeros(4)).times(torch.ones(2, 3))
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()
    torch.testing.assert_close(weight.grad, torch.full((4, 3), 2.0))


def test_the_products_of_several_inputs_are_added_and_each_weight_has_its_gradient():
    weight, inputs, bias = tensors().values()
    other = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    more = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    given = [weight, other, inputs, more, bias]
    plain = bias + inputs @ weight.T + more @ other.T
    looped = LoopWeights(weight, other, bias=bias).times(inputs, more)
    torch.testing.assert_close(looped, plain)
    expected = torch.autograd.grad(plain.square().sum(), given)
    for found, wanted in zip(torch.autograd.grad(looped.square().sum(), given), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_of_several_weights_a_frozen_one_gets_no_gradient():
    weight, inputs, _ = tensors().values()
    frozen = torch.ones(4, 4, dtype=torch.float64)
    LoopWeights(frozen, weight).times(inputs, inputs.detach()).sum().backward()
    torch.testing.assert_close(weight.grad, inputs.detach().sum(0).expand(4, 4))
    torch.testing.assert_close(inputs.grad, torch.full((5, 4), 4.0, dtype=torch.float64))


def test_without_gradients_a_bias_and_the_inputs_stay_as_they_were():
    weight, inputs, bias = (part.detach() for part in tensors().values())
    before = bias.clone(), inputs.clone()
    with torch.no_grad():
        found = LoopWeights(weight, weight, bias=bias).times(inputs, inputs)
    torch.testing.assert_close(found, bias + 2 * inputs @ weight.T)
    assert torch.equal(bias, before[0])
    assert torch.equal(inputs, before[1])


@pytest.mark.parametrize("gradients", [True, False])
def test_autocast_adds_several_products(gradients):
    weight = torch.randn(4, 3, requires_grad=True)
    with torch.set_grad_enabled(gradients), torch.autocast("cpu", torch.bfloat16):
        found = LoopWeights(weight, weight).times(torch.ones(2, 3), torch.ones(2, 3), plus=torch.zeros(2, 4))
    torch.testing.assert_close(found.float(), (2 * weight.sum(1)).expand(2, 4), atol=0.1, rtol=0.05)


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
