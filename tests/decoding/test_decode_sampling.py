"""Sampling: how often each caption comes, against the distribution written out over all captions."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from decoding_samples import END, HashCaptioner, Naive, all_captions, memory_of, said
from sightline.decoding.decode import decode, draw
from sightline.decoding.decode_result import BLOCK, DONE_SHARE
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Sample
from sightline.text.vocabulary import PAD, UNK

LONGEST = 3
RULES = Rules(max_words=LONGEST)


def truncated(log_probs: list[float], strategy: Sample) -> dict[int, float]:
    """The distribution of the next word, step by step as the docstring of `Sample` says."""
    allowed = [END, *range(UNK + 1, len(log_probs))]
    weights = {id: math.exp(log_probs[id] / strategy.temperature) for id in allowed}
    ranked = sorted(allowed, key=lambda id: (-weights[id], id))[: strategy.top_k or None]
    total, reached, nucleus = sum(weights[id] for id in ranked), 0.0, []
    for id in ranked:
        if reached / total < strategy.top_p:
            nucleus.append(id)
        reached += weights[id]
    whole = sum(weights[id] for id in nucleus)
    return {id: weights[id] / whole for id in nucleus}


def distribution(naive: Naive, strategy: Sample) -> dict[tuple[int, ...], float]:
    found = {}
    for words in all_captions(LONGEST):
        probability = 1.0
        for t, id in enumerate((*words, END)):
            if t < LONGEST:  # there END is forced
                probability *= truncated(naive.next_log_probs(words[:t]), strategy).get(id, 0.0)
        if probability:
            found[words] = probability
    assert math.isclose(sum(found.values()), 1)
    return found


def chi_square(counts: Counter, expected: dict, draws: int) -> tuple[float, int]:
    """The statistic and its degrees of freedom; captions expected less than 5 times are taken together."""
    rare = {words for words, p in expected.items() if p * draws < 5}
    cells = [(counts[words], p * draws) for words, p in expected.items() if words not in rare]
    if rare:
        cells.append((sum(counts[w] for w in rare), sum(expected[w] for w in rare) * draws))
    return sum((seen - due) ** 2 / due for seen, due in cells), len(cells) - 1


@pytest.mark.parametrize(
    "strategy",
    [
        Sample(),
        Sample(temperature=0.6),
        Sample(temperature=2.0),
        Sample(top_k=2),
        Sample(top_p=0.7),
        Sample(temperature=1.5, top_k=4, top_p=0.8),
    ],
    ids=str,
)
def test_captions_come_as_often_as_they_should(strategy):
    model, draws = HashCaptioner(sharpness=1.0), 20_000
    strategy = Sample(strategy.temperature, strategy.top_k, strategy.top_p, copies=draws, seed=5)
    found = decode(model, memory_of([11]), strategy, RULES)
    counts = Counter(said(row) for row in found.words[0])
    expected = distribution(Naive(model, 11), strategy)
    assert set(counts) <= set(expected)
    statistic, freedom = chi_square(counts, expected, draws)
    # The 99.9 % quantile of chi-square, by Wilson and Hilferty's approximation.
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    assert len(set(counts)) > 3


@pytest.mark.parametrize("size", [100, 128, 300])
def test_places_of_a_long_row_come_as_often_as_they_should(size):
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(size, generator=generator) ** 4
    weights[:7] = 0
    weights[-3] = 0
    draws = 50_000
    places = draw(weights.expand(draws, -1), generator).squeeze(1)
    probabilities = (weights / weights.sum()).tolist()
    expected = {i: p for i, p in enumerate(probabilities) if p}
    counts = Counter(places.tolist())
    assert set(counts) <= set(expected)
    statistic, freedom = chi_square(counts, expected, draws)
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


class CountingCaptioner(HashCaptioner):
    """Counts the rows of each step whose next word it was asked for."""

    def __init__(self, end: float) -> None:
        super().__init__(end=end)
        self.rows_predicted: list[int] = []

    def predict(self, hidden: Tensor) -> Tensor:
        self.rows_predicted.append(len(hidden))
        return hidden


def test_words_are_computed_only_for_captions_that_go_on():
    model = CountingCaptioner(end=0.5)
    words = decode(model, memory_of(range(32)), Sample(copies=5, seed=0), Rules(max_words=12)).words
    assert model.rows_predicted == (words[..., 1:] != PAD).sum((0, 1)).tolist()


def test_an_image_keeps_about_as_many_rows_as_the_most_that_go_on_of_any():
    model = CountingCaptioner(end=0.5)
    words = decode(model, memory_of(range(32)), Sample(copies=5, seed=0), Rules(max_words=12)).words
    left = (words[..., 1:] != PAD).sum(1)  # (32, steps)
    fewest = (left > 0).sum(0) * left.amax(0)
    for rows, needed in zip(model.rows_stepped, fewest.tolist(), strict=True):
        assert needed <= rows <= needed / (1 - DONE_SHARE)
    assert {rows // images for rows, images in zip(model.rows_stepped, model.images_stepped, strict=True)} == {
        2,
        3,
        4,
        5,
    }


def test_samples_of_captions_that_moved_together_have_their_own_log_probability():
    model, memory = HashCaptioner(end=0.5), memory_of(range(32))
    found = decode(model, memory, Sample(copies=5, seed=0), Rules(max_words=12))
    assert len(set(model.rows_stepped)) > 3
    forced = model.log_prob(memory, found.words.flatten(0, 1)).view_as(found.log_probs)
    torch.testing.assert_close(found.log_probs, forced)


def test_a_row_without_any_word_draws_one_all_the_same():
    rows = torch.full((4, 3 * BLOCK), math.nan)
    for size in (3, BLOCK, 2 * BLOCK + 1, 3 * BLOCK):
        places = draw(rows[:, :size], torch.Generator().manual_seed(0))
        assert ((places >= 0) & (places < size)).all()


def test_the_same_seed_gives_the_same_captions_and_another_gives_others():
    model, memory = HashCaptioner(), memory_of(range(30))
    one, again, other = (decode(model, memory, Sample(copies=2, seed=seed), RULES).words for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert one.shape != other.shape or not torch.equal(one, other)


def test_without_a_seed_torchs_own_generator_decides_and_with_one_it_is_left_alone():
    model, memory = HashCaptioner(), memory_of(range(30))
    torch.manual_seed(3)
    one = decode(model, memory, Sample(), RULES).words
    torch.manual_seed(3)
    decode(model, memory, Sample(seed=1), RULES)
    assert torch.equal(decode(model, memory, Sample(), RULES).words, one)


def test_drawing_from_the_best_word_alone_is_greedy():
    from sightline.decoding.strategies import Greedy

    model, memory = HashCaptioner(), memory_of(range(30))
    greedy = decode(model, memory, Greedy(), RULES).words
    assert torch.equal(decode(model, memory, Sample(top_k=1), RULES).words, greedy)
    assert torch.equal(decode(model, memory, Sample(top_p=1e-6), RULES).words, greedy)
    assert torch.equal(decode(model, memory, Sample(temperature=1e-4, seed=0), RULES).words, greedy)
