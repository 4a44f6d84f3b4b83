"""Greedy, beam and diverse beam against searches written out in plain Python."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding_samples import CAT, DOG, SIZE, VOCABULARY, HashCaptioner, Naive, all_captions, memory_of, said
from sightline.config import build
from sightline.decoding import decode_result as decoded_module
from sightline.decoding.decode import decode
from sightline.decoding.decode_result import BLOCK, top
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Average, Beam, DiverseBeam, Greedy, NoPenalty, Sample, Strategy, Wu
from sightline.errors import ConfigError, NonFiniteError

LONGEST = 4
RULES = Rules(max_words=LONGEST)
PENALTIES = (NoPenalty(), Wu(0.0), Wu(0.9), Wu(3.0), Average())


def plain(log_prob: float, length: int) -> float:
    return log_prob


def naive_penalty(penalty):
    if isinstance(penalty, Wu):
        return lambda log_prob, length: log_prob / ((5 + length) / 6) ** penalty.alpha
    return (lambda log_prob, length: log_prob / length) if isinstance(penalty, Average) else plain


@pytest.mark.parametrize("end", [-1.0, 0.5])
def test_greedy_is_the_naive_loop(end):
    model = HashCaptioner(end=end)
    found = decode(model, memory_of(range(20)), Greedy(), RULES)
    assert [said(row) for row in found.words[:, 0]] == [Naive(model, i).greedy(LONGEST) for i in range(20)]


def test_greedy_and_a_beam_of_one_are_equal_even_where_words_tie():
    model = HashCaptioner(levels=1, sharpness=1)
    memory = memory_of(range(40))
    log_probs = [Naive(model, i).next_log_probs(()) for i in range(40)]
    assert any(row.count(max(row[2:])) > 1 for row in log_probs)
    greedy, beam = decode(model, memory, Greedy(), RULES), decode(model, memory, Beam(1), RULES)
    assert torch.equal(greedy.words, beam.words)
    assert torch.equal(greedy.log_probs, beam.log_probs)
    assert torch.equal(greedy.scores, beam.scores)
    assert torch.equal(greedy.finished, beam.finished)
    assert [said(row) for row in greedy.words[:, 0]] == [Naive(model, i).greedy(LONGEST) for i in range(40)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_a_beam_as_wide_as_all_captions_finds_exactly_the_best(penalty):
    model = HashCaptioner()
    score = naive_penalty(penalty)
    found = decode(model, memory_of(range(4)), Beam(SIZE**3, keep=10, length_penalty=penalty), Rules(max_words=3))
    for i in range(4):
        naive = Naive(model, i)
        ranked = sorted(all_captions(3), key=lambda words: -score(naive.log_prob(words), len(words) + 1))[:10]
        assert [said(row) for row in found.words[i]] == ranked
        expected = torch.tensor([naive.log_prob(words) for words in ranked])
        torch.testing.assert_close(found.log_probs[i], expected)
        expected = torch.tensor([score(naive.log_prob(words), len(words) + 1) for words in ranked])
        torch.testing.assert_close(found.scores[i], expected)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_beam_is_the_naive_search_to_the_last_step(size, penalty):
    model = HashCaptioner(end=0.3)
    score = naive_penalty(penalty)
    found = decode(model, memory_of(range(15)), Beam(size, keep=size, length_penalty=penalty), RULES)
    for i in range(15):
        expected = Naive(model, i).beam(size, LONGEST, score)[:size]
        # Where fewer finish than are kept, the rest is missing.
        there = found.log_probs[i].isfinite()
        assert [said(row) for row in found.words[i][there]] == [words for _, words in expected]
        torch.testing.assert_close(found.scores[i][there], torch.tensor([s for s, _ in expected]))


@settings(max_examples=40, deadline=None)
@given(
    first=st.integers(0, 10_000),
    strategy=st.sampled_from(
        [
            Greedy(),
            Sample(copies=3, seed=1),
            Sample(0.7, top_k=3, top_p=0.9, seed=2),
            Beam(3, keep=2),
            Beam(4, keep=4, length_penalty=Average()),
            DiverseBeam(4, 2),
        ]
    ),
    penalty=st.sampled_from([0.0, 1.386]),
)
def test_log_probs_are_those_of_teacher_forcing(first, strategy: Strategy, penalty):
    model, memory = HashCaptioner(), memory_of(range(first, first + 5))
    found = decode(model, memory, strategy, Rules(max_words=6, repeat_penalty=penalty))
    assert found.words.shape[:2] == found.log_probs.shape == found.scores.shape == found.finished.shape
    forced = model.log_prob(memory, found.words.flatten(0, 1)).view_as(found.log_probs)
    there = found.log_probs.isfinite()
    torch.testing.assert_close(found.log_probs[there], forced[there])
    for row in found.words.flatten(0, 1):
        said(row)


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("penalty", [NoPenalty(), Average()], ids=str)
def test_diverse_beams_are_the_naive_groups(groups, penalty):
    model = HashCaptioner(end=0.2)
    strategy = DiverseBeam(6, groups, strength=0.8, length_penalty=penalty)
    found = decode(model, memory_of(range(12)), strategy, RULES)
    width = 6 // groups
    for i in range(12):
        lists = Naive(model, i).group_beams([width] * groups, 0.8, LONGEST, naive_penalty(penalty))
        expected = sorted((item for of in lists for item in of[:width]), key=lambda item: -item[0])
        there = found.scores[i].isfinite()
        torch.testing.assert_close(found.scores[i][there], torch.tensor([s for s, _ in expected]))
        assert [said(row) for row in found.words[i][there]] == [words for _, words in expected]


def test_diversity_without_strength_repeats_one_beam():
    model = HashCaptioner()
    diverse = decode(model, memory_of(range(6)), DiverseBeam(4, 2, strength=0.0), RULES)
    beam = decode(model, memory_of(range(6)), Beam(2, keep=2), RULES)
    assert torch.equal(diverse.words, beam.words.repeat_interleave(2, 1))


def test_groups_differ_more_the_stronger_they_avoid_each_other():
    model, memory = HashCaptioner(), memory_of(range(50))

    def different(strength: float) -> int:
        found = decode(model, memory, DiverseBeam(3, 3, strength=strength), RULES)
        return sum(len({said(row) for row in image}) for image in found.words)

    assert different(0.0) == 50 < different(0.5) < different(3.0)


@settings(max_examples=30, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 100_000), min_size=1, max_size=8),
    end=st.sampled_from([-2.0, 0.0, 2.0]),
    strategy=st.sampled_from([Greedy(), Beam(3, keep=3), Beam(3, length_penalty=Wu(0.9)), DiverseBeam(4, 2)]),
    share=st.sampled_from([0.0, 0.25, 1.0]),
)
def test_a_batch_equals_one_by_one_and_dropping_done_images_changes_nothing(numbers, end, strategy, share):
    model = HashCaptioner(end=end)
    before = decoded_module.DONE_SHARE
    try:
        decoded_module.DONE_SHARE = share
        together = decode(model, memory_of(numbers), strategy, RULES)
    finally:
        decoded_module.DONE_SHARE = before
    for i, number in enumerate(numbers):
        alone = decode(model, memory_of([number]), strategy, RULES)
        length = alone.words.shape[2]
        assert torch.equal(together.words[i, :, :length], alone.words[0])
        assert (together.words[i, :, length:] == 0).all()
        assert torch.equal(together.log_probs[i], alone.log_probs[0])
        assert torch.equal(together.scores[i], alone.scores[0])


@pytest.mark.parametrize("strategy", [Greedy(), Sample(copies=3, seed=0), Beam(3), DiverseBeam(3, 3)], ids=str)
def test_done_images_leave_the_batch_and_the_search_stops_with_the_last(strategy):
    model = HashCaptioner(end=1.5)
    found = decode(model, memory_of(range(64)), strategy, Rules(max_words=50))
    assert model.images_stepped[0] == 64
    assert model.images_stepped == sorted(model.images_stepped, reverse=True)
    assert model.images_stepped[-1] < 16
    assert len(model.images_stepped) < 50
    assert found.finished.all()


def test_places_of_finished_hypotheses_cost_no_rows():
    model = HashCaptioner(end=4.0, sharpness=0.5)
    decode(model, memory_of([0]), Beam(4, keep=4), RULES)
    assert model.rows_stepped[0] == 1
    assert model.rows_stepped[1] == 3  # END was among the best four first words


def test_a_caption_cut_at_the_limit_ends_in_a_counted_end_and_says_so():
    model = HashCaptioner(end=-20.0)
    memory = memory_of(range(5))
    for strategy in (Greedy(), Beam(2), Sample(seed=0)):
        found = decode(model, memory, strategy, RULES)
        assert not found.finished.any()
        assert all(len(said(row)) == LONGEST for row in found.words[:, 0])
        assert (found.log_probs < -10).all()


def test_captions_that_do_not_exist_are_empty_and_minus_infinity():
    model = HashCaptioner(vocab_size=5)  # one word
    found = decode(model, memory_of([3]), Beam(6, keep=6), Rules(max_words=2))
    assert found.log_probs.isfinite().sum() == 3
    assert torch.equal(found.log_probs.isfinite(), found.scores.isfinite())
    assert {said(row) for row in found.words[0, :3]} == {(), (4,), (4, 4)}
    assert all(said(row) == () for row in found.words[0, 3:])
    assert not found.finished[0, 3:].any()


def test_probabilities_that_are_not_numbers_are_an_error():
    model = HashCaptioner(sharpness=float("nan"))
    for strategy in (Greedy(), Sample(), Sample(top_k=3), Beam(1), Beam(3), DiverseBeam(4, 2)):
        with pytest.raises(NonFiniteError, match="not numbers"):
            decode(model, memory_of(range(3)), strategy, RULES)


def test_decoded_words_can_be_trained_on():
    model = HashCaptioner()
    found = decode(model, memory_of(range(3)), Sample(), RULES)
    weight = torch.ones(SIZE, 2, requires_grad=True)
    torch.nn.functional.embedding(found.words, weight).sum().backward()
    assert weight.grad is not None


@settings(max_examples=60, deadline=None)
@given(
    count=st.sampled_from([1, 5, BLOCK, 2 * BLOCK, 8 * BLOCK - 1, 8 * BLOCK, 8 * BLOCK + 1, 9 * BLOCK - 1]),
    k=st.integers(1, 7),
    kinds=st.sampled_from([1, 2, 50, 10**6]),
    seed=st.integers(0, 1000),
)
def test_top_is_the_stable_order(count, k, kinds, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(kinds, (4, count), generator=generator).float()
    expected = sorted(range(count), key=lambda i: (-values[0, i].item(), i))[:k]
    found, places = top(values.clone(), k)
    assert places[0].tolist() == expected
    assert torch.equal(found, values.gather(1, places))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Beam(0), "size"),
        (lambda: Beam(3, keep=4), "keep"),
        (lambda: DiverseBeam(5, 2), "size"),
        (lambda: DiverseBeam(4, 0), "groups"),
        (lambda: DiverseBeam(4, 2, strength=-1.0), "strength"),
        (lambda: Sample(temperature=0), "temperature"),
        (lambda: Sample(top_k=-1), "top_k"),
        (lambda: Sample(top_p=0), "top_p"),
        (lambda: Sample(copies=0), "copies"),
        (lambda: Wu(-1), "alpha"),
    ],
)
def test_a_value_out_of_range_is_named(make, name):
    with pytest.raises(ConfigError, match=f"`{name}`"):
        make()


@dataclass(frozen=True)
class Recipe:
    strategy: Strategy


def test_recipes_name_ways_by_their_kind():
    written = {"kind": "beam", "size": 5, "length_penalty": {"kind": "wu", "alpha": 0.5}}
    assert build(Recipe, {"strategy": written}).strategy == Beam(5, length_penalty=Wu(0.5))
    assert build(Recipe, {"strategy": {"kind": "diverse_beam"}}).strategy == DiverseBeam()


def test_a_bias_ranks_captions_and_is_no_part_of_their_log_probabilities():
    model, memory = HashCaptioner(end=0.5), memory_of(range(3))
    bias = torch.zeros(3, SIZE)
    bias[1, DOG], bias[2, CAT] = -2.5, -1000.0
    found = decode(model, memory, Beam(256, keep=8), Rules(4), VOCABULARY, bias)
    for i in range(3):
        naive = Naive(model, i)

        def score(words, i=i, naive=naive):
            return naive.log_prob(words) + sum(float(bias[i, word]) for word in words)

        best = sorted(all_captions(4), key=lambda words: -score(words))[:8]
        assert [said(row) for row in found.words[i]] == best
        assert found.log_probs[i].tolist() == pytest.approx([naive.log_prob(words) for words in best], abs=1e-4)
        assert found.scores[i].tolist() == pytest.approx([score(words) for words in best], abs=1e-4)
    with pytest.raises(ConfigError, match="bias"):
        decode(model, memory, Greedy(), bias=bias)
