"""Optimisers, schedules and selection, as recipes write them."""

import math

import pytest
import torch
from torch import nn

from sightline.errors import ConfigError
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.stage import Optimiser, Schedule, Selection, Stage


def parameters() -> dict[str, nn.Parameter]:
    names = ("vision.stem.weight", "vision.head.weight", "words.weight", "bias")
    return {name: nn.Parameter(torch.ones(2)) for name in names}


def rates(optimiser: torch.optim.Optimizer, named: dict[str, nn.Parameter]) -> dict[str, float]:
    found = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    return {name: found[id(parameter)] for name, parameter in named.items() if id(parameter) in found}


def test_a_parameter_learns_at_the_rate_of_the_longest_prefix_that_fits():
    named = parameters()
    optimiser = Optimiser(lr=0.5, lrs={"vision": 0.1, "vision.head": 0.2}).build(named)
    expected = {"vision.stem.weight": 0.1, "vision.head.weight": 0.2, "words.weight": 0.5, "bias": 0.5}
    assert rates(optimiser, named) == expected
    assert {group["base_lr"] for group in optimiser.param_groups} == {0.1, 0.2, 0.5}


def test_a_rate_of_zero_freezes_and_what_is_frozen_is_left_out():
    named = parameters()
    named["bias"].requires_grad_(False)
    optimiser = Optimiser(lr=0.5, lrs={"vision": 0.0}).build(named)
    assert rates(optimiser, named) == {"words.weight": 0.5}
    assert not named["vision.stem.weight"].requires_grad


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_a_step_is_that_of_the_optimisers_formula(kind):
    rate, decay, eps = 0.1, 0.01, 1e-8
    parameter = nn.Parameter(torch.tensor([2.0]))
    optimiser = Optimiser(kind, lr=rate, weight_decay=decay, eps=eps, betas=(0.8, 0.9)).build({"x": parameter})
    value, mean, square = 2.0, 0.0, 0.0
    for step, gradient in enumerate((0.5, -1.5), start=1):
        parameter.grad = torch.tensor([gradient])
        optimiser.step()
        if kind == "adamw":
            value *= 1 - rate * decay
        else:
            gradient += decay * value
        if kind == "sgd":
            value -= rate * gradient
            continue
        mean = 0.8 * mean + 0.2 * gradient
        square = 0.9 * square + 0.1 * gradient**2
        value -= rate * (mean / (1 - 0.8**step)) / (math.sqrt(square / (1 - 0.9**step)) + eps)
    assert parameter.item() == pytest.approx(value, rel=1e-6)


def test_rates_that_fit_nothing_and_freezing_everything_are_refused():
    with pytest.raises(ConfigError, match=r"`optimiser.lrs.visoin` names no parameter.*bias, vision, words"):
        Optimiser(lrs={"visoin": 1e-5}).build(parameters())
    with pytest.raises(ConfigError, match="nothing is left to train"):
        Optimiser(lr=0.0).build(parameters())


def test_a_constant_rate_stays():
    assert [Schedule().at(epoch, 7 * epoch, 100) for epoch in range(5)] == [1.0] * 5


def test_decay_multiplies_each_few_epochs_after_the_start():
    schedule = Schedule("decay", factor=0.8, every=3, start=2)
    found = [schedule.at(epoch, 0, 1) for epoch in range(12)]
    assert found == pytest.approx([1] * 5 + [0.8] * 3 + [0.64] * 3 + [0.512])


def test_the_inverse_root_rises_to_the_end_of_the_warm_up_and_falls_with_the_root():
    schedule = Schedule("inverse_sqrt", warmup=4)
    found = [schedule.at(0, step, 100) for step in range(16)]
    assert found[:4] == pytest.approx([0.25, 0.5, 0.75, 1])
    assert found[4:] == pytest.approx([math.sqrt(4 / (step + 1)) for step in range(4, 16)])
    without = Schedule("inverse_sqrt")
    assert [without.at(0, step, 9) for step in range(3)] == pytest.approx([1, math.sqrt(1 / 2), math.sqrt(1 / 3)])


def test_the_cosine_goes_to_zero():
    schedule = Schedule("cosine")
    found = [schedule.at(0, step, 10) for step in range(11)]
    assert found == pytest.approx([(1 + math.cos(math.pi * step / 10)) / 2 for step in range(11)])
    assert Schedule("cosine", warmup=2).at(0, 0, 10) == pytest.approx(0.5)


def test_evaluation_is_due_by_epochs_or_steps_and_at_the_end():
    assert [s for s in range(1, 11) if Selection(every=2).due(s, 2, s == 10)] == [4, 8, 10]
    assert [s for s in range(1, 8) if Selection(every_steps=3).due(s, 2, s == 7)] == [3, 6, 7]
    assert not any(Selection(every=0).due(s, 2, s == 7) for s in range(1, 8))


def test_patience_is_spent_after_so_many_evaluations():
    assert [Selection(patience=2).spent(count) for count in range(4)] == [False, False, True, True]
    assert not Selection(patience=0).spent(99)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Optimiser(lr=-1), "`optimiser.lr` is -1.*give 0 or more"),
        (lambda: Optimiser(lr=float("nan")), "`optimiser.lr` is nan"),
        (lambda: Optimiser(lrs={"vision": -1e-5}), "`optimiser.lrs.vision` is -1e-05"),
        (lambda: Schedule(every=0), "`schedule.every` is 0.*give 1 or more"),
        (lambda: Selection(patience=-1), "`select.patience` is -1"),
        (lambda: Selection(every=0, start=True), "the first would always be chosen"),
        (lambda: Stage(CrossEntropyConfig(), "xe", accumulate=0), "`stages.xe.accumulate` is 0"),
        (lambda: Stage(CrossEntropyConfig(), "xe", epochs=0), "`stages.xe.epochs` is 0"),
        (lambda: Stage(CrossEntropyConfig(), epochs=0), "^`epochs` is 0"),  # of a recipe, which says which stage it is
        (lambda: Stage(CrossEntropyConfig(), "xe", average=1), "`stages.xe.average` is 1"),
    ],
)
def test_settings_that_cannot_work_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
