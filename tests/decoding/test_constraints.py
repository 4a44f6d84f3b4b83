"""What captions may and must say: a beam as wide as all captions against filtering all captions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from decoding_samples import (
    CAT,
    DOG,
    ON,
    SIZE,
    VOCABULARY,
    A,
    HashCaptioner,
    Naive,
    Words,
    all_captions,
    memory_of,
    said,
)
from sightline.decoding.constraints import WordRules, progress
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam, DiverseBeam, Greedy, Sample
from sightline.errors import ConfigError
from sightline.text.vocabulary import START, UNK, Vocabulary

EVERY = Beam(256, keep=8)
WAYS = (Greedy(), Sample(copies=4, seed=0), Beam(3, keep=3), DiverseBeam(4, 2))


def grams(words: Words, n: int) -> list[Words]:
    return [words[i : i + n] for i in range(len(words) - n + 1)]


def has(words: Words, phrase: Words) -> bool:
    return phrase in grams(words, len(phrase))


def repeats(words: Words, n: int) -> bool:
    return len(set(grams(words, n))) < len(grams(words, n))


def says_a_noun_twice(words: Words) -> bool:
    """Dog or cat, other than in "dog on dog"."""
    return any(
        word in (DOG, CAT) and word in words[:place] and words[max(0, place - 2) : place] != (word, ON)
        for place, word in enumerate(words)
    )


KEPT_BY = {
    Rules(4, min_words=2): lambda words: len(words) >= 2,
    Rules(4, no_repeat_ngram=1): lambda words: not repeats(words, 1),
    Rules(4, no_repeat_ngram=2): lambda words: not repeats(words, 2),
    Rules(4, no_repeat_word=True): lambda words: all(a != b for a, b in grams(words, 2)),
    Rules(4, bad_endings=True): lambda words: words[-1:] not in ((A,), (ON,)),
    Rules(4, no_repeat_noun=True): lambda words: not says_a_noun_twice(words),
    Rules(4, no_repeat_noun=True, must_include=("dog a dog",)): lambda words: has(words, (DOG, A, DOG)),
    Rules(4, must_not=("dog",)): lambda words: DOG not in words,
    Rules(4, must_not=("a dog", "on", "zebra")): lambda words: not has(words, (A, DOG)) and ON not in words,
    Rules(4, must_not=("a dog on",)): lambda words: not has(words, (A, DOG, ON)),
    Rules(4, must_include=("dog",)): lambda words: DOG in words,
    Rules(4, must_include=("dog", "on")): lambda words: DOG in words and ON in words,
    Rules(4, must_include=("a dog",)): lambda words: has(words, (A, DOG)),
    Rules(4, must_include=("a dog", "cat")): lambda words: has(words, (A, DOG)) and CAT in words,
    Rules(4, must_include=("a dog", "dog on")): lambda words: has(words, (A, DOG)) and has(words, (DOG, ON)),
    Rules(4, must_include=("a a dog",)): lambda words: has(words, (A, A, DOG)),
    Rules(4, 3, no_repeat_ngram=1, bad_endings=True, must_include=("on",)): lambda words: (
        len(words) >= 3 and not repeats(words, 1) and words[-1] not in (A, ON) and ON in words
    ),
}


def label(rules: Rules) -> str:
    return ", ".join(f"{name} {value}" for name, value in vars(rules).items() if value != vars(Rules(4))[name])


@pytest.mark.parametrize(("rules", "kept"), KEPT_BY.items(), ids=map(label, KEPT_BY))
def test_the_widest_beam_finds_the_best_captions_that_keep_the_rules(rules, kept):
    model = HashCaptioner(end=0.5)
    found = decode(model, memory_of(range(3)), EVERY, rules, VOCABULARY)
    for i in range(3):
        naive = Naive(model, i)
        allowed = sorted(filter(kept, all_captions(4)), key=lambda words: -naive.log_prob(words))
        there = found.log_probs[i].isfinite()
        assert [said(row) for row in found.words[i][there]] == allowed[:8]
        torch.testing.assert_close(found.log_probs[i][there], torch.tensor([naive.log_prob(w) for w in allowed[:8]]))


@pytest.mark.parametrize("strategy", WAYS, ids=str)
@pytest.mark.parametrize("rules", [rules for rules in KEPT_BY if not rules.must_include], ids=label)
def test_every_way_keeps_the_rules(strategy, rules):
    found = decode(HashCaptioner(), memory_of(range(40)), strategy, rules, VOCABULARY)
    assert found.log_probs[:, 0].isfinite().all()
    for row, log_prob in zip(found.words.flatten(0, 1), found.log_probs.flatten(), strict=True):
        assert log_prob.isinf() or KEPT_BY[rules](said(row))


def test_the_repeat_penalty_is_charged_for_each_earlier_use_of_a_trigram():
    model, longest = HashCaptioner(vocab_size=6, end=-1.0), 7
    rules = Rules(longest, repeat_penalty=0.8)
    naive = Naive(model, 2)

    def score(words: Words) -> float:
        uses = sum(grams(words[: i + 2], 3).count(words[i : i + 3]) for i in range(len(words) - 2))
        return naive.log_prob(words) - 0.8 * uses

    found = decode(model, memory_of([2]), Beam(2**8, keep=200), rules)
    ranked = sorted(all_captions(longest, (4, 5)), key=lambda words: -score(words))[:200]
    assert [said(row) for row in found.words[0]] == ranked
    torch.testing.assert_close(found.scores[0], torch.tensor([score(words) for words in ranked]))
    torch.testing.assert_close(found.log_probs[0], torch.tensor([naive.log_prob(words) for words in ranked]))
    assert (found.scores[0] < found.log_probs[0] - 1.5).any()  # some trigram was used three times


def test_unknown_words_are_said_only_where_allowed():
    model, memory = HashCaptioner(), memory_of(range(30))
    assert not (decode(model, memory, Greedy(), Rules(4)).words == UNK).any()
    assert (decode(model, memory, Greedy(), Rules(4, suppress_unk=False)).words == UNK).any()


@settings(max_examples=15, deadline=None)
@given(
    first=st.integers(0, 10_000),
    size=st.integers(1, 4),
    wanted=st.lists(st.lists(st.sampled_from("a dog cat on".split()), min_size=1, max_size=3), min_size=1, max_size=3),
    longest=st.integers(9, 11),
    end=st.sampled_from([-2.0, 0.0, 3.0]),
)
def test_any_beam_says_all_wanted_phrases_and_gives_teacher_forced_scores(first, size, wanted, longest, end):
    model, memory = HashCaptioner(end=end), memory_of(range(first, first + 4))
    rules = Rules(longest, must_include=tuple(" ".join(phrase) for phrase in wanted))
    found = decode(model, memory, Beam(size), rules, VOCABULARY)
    for row in found.words[:, 0]:
        for phrase in wanted:
            assert has(said(row), tuple(VOCABULARY.id(word) for word in phrase))
    torch.testing.assert_close(found.log_probs[:, 0], model.log_prob(memory, found.words[:, 0]))
    alone = decode(model, memory_of([first + 2]), Beam(size), rules, VOCABULARY)
    assert said(alone.words[0, 0]) == said(found.words[2, 0])


@settings(max_examples=40, deadline=None)
@given(
    first=st.integers(0, 10_000), n=st.integers(1, 3), strategy=st.sampled_from(WAYS), end=st.sampled_from([-3.0, 0.0])
)
def test_no_run_of_words_comes_twice(first, n, strategy, end):
    rules = Rules((3, 5, 9)[n - 1], no_repeat_ngram=n, bad_endings=True)
    try:
        found = decode(HashCaptioner(end=end), memory_of(range(first, first + 4)), strategy, rules, VOCABULARY)
    except ConfigError:  # a sample may come to where the few words of the vocabulary are all used up
        assert isinstance(strategy, Sample)
        reject()
    for row in found.words.flatten(0, 1):
        assert not repeats(said(row), n)
        assert said(row)[-1:] not in ((A,), (ON,))


def test_a_noun_comes_again_only_after_another_and_in_no_other_number():
    vocabulary = Vocabulary("a man men other another red and".split())
    rules = WordRules(Rules(no_repeat_noun=True), len(vocabulary), vocabulary, torch.device("cpu"))

    def open_after(*words: str) -> set[str]:
        said = [torch.tensor([[START, *map(vocabulary.id, words[:count])]]) for count in range(len(words) + 1)]
        for prefix in said:  # as decoding comes to know words
            values = torch.zeros(1, len(vocabulary))
            rules.apply(values, prefix)
        return {word for word in vocabulary if values[0, vocabulary.id(word)] == 0}

    every = set(vocabulary)
    assert open_after("red") == every
    assert open_after("red", "man", "and", "a") == every - {"man", "men"}
    assert open_after("men", "and") == every - {"man", "men"}
    assert open_after("a", "man", "and", "another") == every
    assert open_after("a", "man", "and", "other", "red") == every
    assert open_after("a", "man", "and", "other", "red", "a") == every - {"man", "men"}


def test_progress_counts_whole_phrases_and_the_longest_begun():
    wanted = [torch.tensor([A, DOG]), torch.tensor([DOG, ON, CAT])]
    ids = torch.tensor([[A, A, A], [A, DOG, A], [CAT, DOG, ON], [A, DOG, ON], [DOG, ON, CAT]])
    met, following = progress(ids, wanted)
    assert met.tolist() == [1, 2 + 0, 2, 2 + 2, 3]
    assert following.tolist() == [[DOG, DOG], [DOG, DOG], [A, CAT], [A, CAT], [A, DOG]]


def test_rules_that_leave_no_caption_are_an_error_that_names_the_image():
    rules = Rules(8, min_words=6, no_repeat_ngram=1)  # there are four words
    for strategy in WAYS:
        with pytest.raises(ConfigError, match="image 0 of the batch") as error:
            decode(HashCaptioner(), memory_of(range(3)), strategy, rules)
        assert error.value.fix
    with pytest.raises(ConfigError, match="no caption"):
        decode(
            HashCaptioner(), memory_of([0]), Beam(3), Rules(4, no_repeat_word=True, must_include=("on on",)), VOCABULARY
        )


@pytest.mark.parametrize("strategy", [Greedy(), Sample(), DiverseBeam()], ids=str)
def test_only_a_plain_beam_can_be_made_to_say_words(strategy):
    with pytest.raises(ConfigError, match=f"must_include.*{strategy.kind}"):
        decode(HashCaptioner(), memory_of([0]), strategy, Rules(must_include=("dog",)), VOCABULARY)


def test_a_wanted_word_the_model_does_not_know_is_named_with_near_ones():
    with pytest.raises(ConfigError, match=r"'dogg'.*dog"):
        decode(HashCaptioner(), memory_of([0]), Beam(), Rules(must_include=("a Dogg",)), VOCABULARY)
    with pytest.raises(ConfigError, match=r"'xyzzy'.*vocabulary"):
        decode(HashCaptioner(), memory_of([0]), Beam(), Rules(must_include=("xyzzy",)), VOCABULARY)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(must_include=("a dog on",), must_not=("dog on",)), "must_not"),
        (Rules(2, must_include=("a dog", "cat")), r"at most 2\. To fix: ask for fewer words, or .*--length"),
    ],
)
def test_rules_that_contradict_each_other_are_refused(rules, message):
    with pytest.raises(ConfigError, match=message):
        decode(HashCaptioner(), memory_of([0]), Beam(), rules, VOCABULARY)


@pytest.mark.parametrize(
    "rules", [Rules(bad_endings=True), Rules(no_repeat_noun=True), Rules(must_not=("a",)), Rules(must_include=("a",))]
)
def test_rules_that_name_words_need_the_models_vocabulary(rules):
    with pytest.raises(ConfigError, match="no vocabulary"):
        decode(HashCaptioner(), memory_of([0]), Beam(), rules)
    with pytest.raises(ConfigError, match=f"{SIZE} ids with a vocabulary of 5"):
        decode(HashCaptioner(), memory_of([0]), Beam(), rules, Vocabulary(["a"]))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"max_words": 0}, "max_words"),
        ({"min_words": 21}, "min_words"),
        ({"min_words": -1}, "min_words"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram"),
        ({"repeat_penalty": -0.5}, "repeat_penalty"),
        ({"must_include": "dog"}, "must_include"),
        ({"must_not": ("dog", " ")}, "must_not"),
    ],
)
def test_a_rule_out_of_range_is_named(values, name):
    with pytest.raises(ConfigError, match=f"`{name}`"):
        Rules(**values)
