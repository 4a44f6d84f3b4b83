"""Captions with little room: whole ones, never cut. A beam as wide as all captions against a formula over them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding_samples import SIZE, VOCABULARY, HashCaptioner, Naive, Words, all_captions, memory_of, said
from sightline.decoding.decode import decode
from sightline.decoding.rules import CAREFUL, MOST_WORDS, Rules, rules_of, word_limits
from sightline.decoding.sentence_end import A_WORD, BROKEN_OFF, CRAMMED, DOUBTFUL, NOT_WHOLE, doubts, ends_badly
from sightline.decoding.strategies import Average, Beam, DiverseBeam, Greedy, Sample
from sightline.errors import ConfigError
from sightline.text.vocabulary import END, UNK

EVERY = Beam(64, keep=4)


def ranked(naive: Naive, longest: int) -> list[tuple[float, Words]]:
    """All captions by what ranks them, written out: the model's END where it is likeliest, else the price."""
    found = []
    for words in all_captions(longest):
        log_probs = naive.next_log_probs(words)
        likely = max([END, *range(UNK + 1, SIZE)], key=lambda id: (log_probs[id], -id))
        if likely == END:
            price = CRAMMED if words and ends_badly([[VOCABULARY.word(id) for id in words]])[0] else 0
            found.append((naive.log_prob(words) - price, words))
            continue
        phrase = [VOCABULARY.word(id) for id in (*words, likely)]
        doubt = doubts([phrase])[0] if words else math.inf
        price = BROKEN_OFF + A_WORD * (longest - len(words)) + doubt
        if len(words) == longest:
            price = min(price, NOT_WHOLE)
        if price < math.inf:
            found.append((naive.log_prob(words) - log_probs[END] - price, words))
    return sorted(found, key=lambda one: -one[0])


@pytest.mark.parametrize("end", [-4.0, 0.0, 2.0])
def test_the_widest_beam_finds_the_best_whole_captions(end):
    model = HashCaptioner(end=end)
    found = decode(model, memory_of(range(4)), EVERY, Rules(3, whole=True), VOCABULARY)
    for i in range(4):
        naive = Naive(model, i)
        best = ranked(naive, 3)[:4]
        assert [said(row) for row in found.words[i]] == [words for _, words in best]
        torch.testing.assert_close(found.scores[i], torch.tensor([score for score, _ in best]))
        own = torch.tensor([said_of(naive, words) for _, words in best])
        torch.testing.assert_close(found.log_probs[i], own)  # the model's own, whatever was paid


def said_of(naive: Naive, words: Words) -> float:
    """The log-probability of the words, and of END where the model ends there."""
    following = naive.next_log_probs(words)
    ends = max([END, *range(UNK + 1, SIZE)], key=lambda id: (following[id], -id)) == END
    return naive.log_prob(words) - (0 if ends else following[END])


def phrase_ends(text: str) -> float:
    return doubts([text.split()])[0]


@pytest.mark.parametrize(
    "text",
    [
        "a man riding a horse | in",
        "a bathroom with a toilet | and",
        "a vase with white flowers | sitting",
        "a group of people | standing",
        "two trains | next",
        "a clock on top of it | with",
    ],
)
def test_a_phrase_has_come_to_its_end_where_something_new_begins(text):
    assert phrase_ends(text.replace("| ", "")) == 0


@pytest.mark.parametrize(
    "text",
    [
        "a red fire | hydrant",
        "a stuffed teddy | bear",
        "a group | of",
        "a bench sitting on top | of",
        "a vase sitting | on",
        "a bathroom with a toilet and | a",
        "a man riding a | horse",
        "a polar bear standing next | to",
        "a woman in a | red",
    ],
)
def test_no_phrase_ends_before_a_word_that_belongs_to_it(text):
    assert phrase_ends(text.replace("| ", "")) == math.inf


def test_before_a_participle_it_is_doubtful():
    assert phrase_ends("a man riding down a snow covered") == DOUBTFUL


@pytest.mark.parametrize(
    ("text", "is_crammed"),
    [
        ("a dog standing on top of rock", True),
        ("a man flying through the air bicycle", True),
        ("a woman sitting on a couch dog", True),
        ("airplane", True),
        ("a dog playing in water", False),
        ("two dogs", False),
        ("a man on a tennis court", False),
        ("a piece of cake", False),
        ("a man with two brown dog", False),
        ("a boy with a beach ball", False),
    ],
)
def test_a_last_noun_without_its_article_or_after_a_whole_phrase_is_crammed_in(text, is_crammed):
    assert ends_badly([text.split()]) == [is_crammed]


@settings(max_examples=20, deadline=None)
@given(
    first=st.integers(0, 10_000),
    longest=st.integers(2, 8),
    end=st.sampled_from([-8.0, -2.0, 1.0]),
    size=st.integers(1, 12),
    wanted=st.sampled_from([(), ("cat",), ("a dog",)]),
)
def test_no_caption_is_longer_than_allowed_and_the_words_asked_for_are_in_it(first, longest, end, size, wanted):
    model, memory = HashCaptioner(end=end), memory_of(range(first, first + 4))
    rules = replace(rules_of("short", wanted), max_words=longest)
    try:
        found = decode(model, memory, Beam(size), rules, VOCABULARY)
    except ConfigError:  # the few hypotheses of a narrow beam may all come to where no word is allowed
        assert size <= 6
        return
    for image, row in enumerate(found.words[:, 0], first):
        words = [VOCABULARY.word(id) for id in said(row)]
        assert 1 <= len(words) <= longest
        assert all(phrase in " ".join(words) for phrase in wanted)
        assert words[-1] not in ("a", "on")
        log_prob = float(found.log_probs[image - first, 0])
        assert log_prob == pytest.approx(said_of(Naive(model, image), said(row)), abs=1e-4)
    alone = decode(model, memory_of([first + 2]), Beam(size), rules, VOCABULARY)
    assert said(alone.words[0, 0]) == said(found.words[2, 0])


def test_a_length_penalty_does_not_make_the_last_resort_cheap():
    model = HashCaptioner(end=-9.0)
    found = decode(model, memory_of(range(30)), Beam(64, length_penalty=Average()), Rules(5, whole=True), VOCABULARY)
    assert (found.scores[:, 0] > -NOT_WHOLE / 2).all()


@pytest.mark.parametrize("strategy", [Greedy(), Sample(), DiverseBeam()], ids=str)
def test_only_a_plain_beam_can_look_for_a_whole_caption(strategy):
    with pytest.raises(ConfigError, match=f"`whole`.*{strategy.kind}"):
        decode(HashCaptioner(), memory_of([0]), strategy, Rules(whole=True), VOCABULARY)


def test_a_number_is_the_most_words_and_normal_captions_are_careful():
    assert word_limits("12") == (1, 12)
    assert word_limits("short") == (1, 7)
    assert word_limits("long") == (13, 20)
    assert rules_of("normal") == CAREFUL
    assert rules_of("normal", ("dog",)) == replace(CAREFUL, must_include=("dog",))
    assert "on top of a room" in rules_of("normal").must_not  # unless somebody asks for it
    assert "on top of a room" not in rules_of("normal", ("on top of a room",)).must_not


@pytest.mark.parametrize("length", ["0", "4", str(MOST_WORDS + 1), "-3", "5.0", "05", "٥", "", "9" * 5000, "medium"])
def test_a_length_that_there_is_not_is_refused(length):
    with pytest.raises(ConfigError, match="`length`"):
        rules_of(length)
