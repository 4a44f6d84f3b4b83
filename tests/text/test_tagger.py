"""The part-of-speech tagger: hand-tagged captions, a naive scorer, batches, and phrase heads of Entities."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightline.text.tagger as tagger_module
from sightline.errors import DataError
from sightline.text.tagger import (
    AFTER,
    ASSET,
    BEFORE,
    CLAUSES,
    NOUNS,
    OFFSETS,
    RESTARTS,
    Tagger,
    clause_after,
    closed_classes,
    features,
    form,
    shape,
    word_class,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from tagger_measure import measure, sentences

CAPTIONS = [
    [pair.rsplit("_", 1) for pair in line.split()]
    for line in (Path(__file__).parents[1] / "tagged_captions.txt").read_text("utf-8").splitlines()
]
TOKENS = [[word for word, _ in caption] for caption in CAPTIONS]

words = st.sampled_from(
    "a the dog dogs run runs red jumping in-line , . while and 1999 3rd café Ω -lrb- '' unk".split()
)
tokens = st.lists(words | st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=6))


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger.default()


def accuracy(tagger: Tagger, captions: list[list[str]]) -> float:
    right = [
        tag == gold
        for found, caption in zip(tagger.tag_all(captions), CAPTIONS, strict=True)
        for tag, (_, gold) in zip(found, caption, strict=True)
    ]
    return sum(right) / len(right)


def test_hand_tagged_captions_are_tagged_with_few_errors(tagger: Tagger) -> None:
    assert len(CAPTIONS) >= 40
    assert accuracy(tagger, TOKENS) >= 0.97


def test_a_capital_at_the_start_changes_little(tagger: Tagger) -> None:
    assert accuracy(tagger, [[caption[0].capitalize(), *caption[1:]] for caption in TOKENS]) >= 0.97


@pytest.mark.parametrize(
    ("caption", "word", "tags"),
    [
        ("a man rides a horse", "rides", {"VBZ"}),
        ("two dogs run", "run", {"VBP"}),
        ("a surfer surfs a wave", "surfs", {"VBZ"}),
        ("a girl in red jumps over a rope", "jumps", {"VBZ"}),
        ("a man and a woman pose for a picture", "pose", {"VBP"}),
        ("a crowd gathers in the street", "gathers", {"VBZ"}),
        ("people watch as a boy dances", "dances", {"VBZ"}),
        ("a man standing in the rain", "standing", {"VBG"}),
        ("the dog is running on grass", "running", {"VBG"}),
        ("a tall building", "building", NOUNS),
        ("people in warm clothing", "clothing", NOUNS),
        ("a boy on a swing", "swing", NOUNS),
        ("a skateboard trick on a ramp", "trick", NOUNS),
        ("a snowboarder in the air", "snowboarder", NOUNS),
        ("a kayaker with a wetsuit", "wetsuit", NOUNS),
        ("a cat in a swimming pool", "pool", NOUNS),
        ("a white shirt", "white", {"JJ"}),
        ("a red and white striped shirt", "red", {"JJ"}),
        ("a wooden table", "wooden", {"JJ"}),
        ("the apples are red", "red", {"JJ"}),
        ("a plate filled with food", "filled", {"VBN"}),
        ("a man walks down a street", "down", {"IN"}),
        ("a man picks up a phone", "up", {"RP"}),
        ("she can not swim", "swim", {"VB"}),
        ("unk on a bench", "unk", {"FW"}),
        ("He lives in London .", "London", {"NNP"}),
        ("He lives in London .", ".", {"."}),
    ],
)
def test_a_word_in_context(tagger: Tagger, caption: str, word: str, tags: frozenset[str]) -> None:
    split = caption.split()
    assert tagger.tag(split)[split.index(word)] in tags


def test_function_words_never_get_a_tag_outside_their_class(tagger: Tagger) -> None:
    for word, allowed in closed_classes().items():
        found = tagger.tag(["the", "big", word, "dog"])[2]
        assert found in allowed.split("/"), word


def test_nouns_says_which_tokens_are_nouns(tagger: Tagger) -> None:
    assert tagger.nouns("a dog chases two cats".split()) == [False, True, False, False, True]


def naive(weights: dict[str, np.ndarray], sentence: list[str]) -> list[str]:
    """The definition, one token and one feature at a time."""
    lines = {name: weights[name].tobytes().decode().split("\n") for name in ("tags", "names", "classes")}
    tags, row_of = lines["tags"], {name: i for i, name in enumerate(lines["names"])}
    class_of = {name: i for i, name in enumerate(lines["classes"])}
    history_words = weights["history_words"].tobytes().decode().split("\n")
    history_row = {key: i for i, key in enumerate(zip(history_words, weights["history_tags"].tolist(), strict=True), 1)}
    padded = [*BEFORE, *sentence, *AFTER]
    two, one, clause, found = len(tags), len(tags) + 1, "start", []
    for i, token in enumerate(sentence, start=2):
        score = np.zeros(len(tags), dtype=int)
        for offset in OFFSETS:
            for name in features(padded[i + offset], offset):
                if name in row_of:
                    score += weights["lexical"][row_of[name]]
        if token in closed_classes():
            score[[tag not in closed_classes()[token].split("/") for tag in tags]] -= 10**9
        kind, following = (class_of.get(word_class(padded[i + k]), 0) for k in (0, 1))
        score += weights["history"][two, one] + weights["class_history"][kind, one]
        score += weights["class_clause"][kind, CLAUSES.index(clause)]
        score += weights["pairs"][weights["pair_rows"][kind, following]]
        score += weights["word_history"][history_row.get((form(token), one), 0)]
        two, one = one, int(score.argmax())
        clause = clause_after(clause, tags[one], form(token) in RESTARTS)
        found.append(tags[one])
    return found


def test_tags_are_those_of_the_naive_sum_of_weights(tagger: Tagger) -> None:
    with np.load(ASSET, allow_pickle=False) as stored:
        weights = {name: stored[name] for name in stored.files}
    mixed = [*TOKENS, ["In", "1999", ",", "IBM", "bought", "a", "well-known", "firm", "!"], ["zzqx", "blorped", "9th"]]
    assert tagger.tag_all(mixed) == [naive(weights, sentence) for sentence in mixed]


@given(st.lists(tokens, max_size=6))
def test_a_batch_gives_the_same_tags_as_one_by_one(batch: list[list[str]]) -> None:
    tagger = Tagger.default()
    together = tagger.tag_all(batch)
    assert together == [tagger.tag(sentence) for sentence in batch]
    assert [len(tags) for tags in together] == [len(sentence) for sentence in batch]
    assert {tag for tags in together for tag in tags} <= set(tagger.tags)


def test_more_sentences_than_one_batch_keep_their_order(tagger: Tagger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagger_module, "BATCH", 5)
    mixed = [*TOKENS, [], ["dog"], []]
    assert tagger.tag_all(mixed) == [tagger.tag(sentence) for sentence in mixed]
    assert tagger.tag_all([]) == []


def test_forgetting_word_types_does_not_change_tags(tagger: Tagger, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tagger.tag_all(TOKENS)
    monkeypatch.setattr(tagger_module, "MOST_TYPES", 30)
    forgetful = Tagger.load(ASSET)
    forgetful._forget(30)
    assert [forgetful.tag(sentence) for sentence in TOKENS] == expected
    assert len(forgetful._number) <= 30
    assert forgetful.tag_all(TOKENS) == expected  # one batch with more types than there is room for


def test_threads_can_share_a_tagger() -> None:
    shared, expected = Tagger.load(ASSET), Tagger.default().tag_all(TOKENS)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shared.tag, TOKENS * 5)) == expected * 5


def test_a_string_in_place_of_tokens_is_refused(tagger: Tagger) -> None:
    with pytest.raises(DataError, match="split it into tokens"):
        tagger.tag("a man")


def test_the_weights_stay_small() -> None:
    assert ASSET.stat().st_size <= 2_000_000


@pytest.mark.parametrize(
    ("token", "expected"),
    [("dog", "x"), ("Dog", "Xx"), ("NASA", "XX"), ("A", "Xx"), ("1990s", "0"), ("mp3", "0"), ("--", "."), ("", ".")],
)
def test_shapes_of_tokens(token: str, expected: str) -> None:
    assert shape(token) == expected


def test_word_classes_tell_readings_apart() -> None:
    assert word_class("the") == "DT"
    assert word_class("jumps") == "n+s?/v+s"
    assert word_class("moss-covered") == "-a/v+ed"
    assert word_class("1984") == "!YEAR"
    assert word_class("zzqx") == ""


def test_the_clause_follows_its_subject_and_verb() -> None:
    def walk(*tags: str) -> str:
        clause = "start"
        for tag in tags:
            clause = clause_after(clause, tag)
        return clause

    assert walk("DT", "NN") == "one"
    assert walk("CD", "NNS") == "many"
    assert walk("DT", "NN", "CC", "DT", "JJ", "NN") == "many"
    assert walk("DT", "NN", "IN", "DT", "NN") == "one passed"
    assert walk("NNS", "VBG") == "many passed"
    assert walk("DT", "NN", "CC", "VBG") == "one passed"
    assert walk("DT", "NN", "VBZ", "DT", "NN") == "verb"
    assert walk("DT", "NN", "VBZ", "CC") == "verb and"
    assert walk("DT", "NN", "VBZ", "CC", "VBZ") == "verb"
    assert clause_after("verb", "IN", restart=True) == "start"


@pytest.mark.data
@pytest.mark.parametrize("lower", [True, False])
def test_phrase_heads_of_the_flickr8k_test_photos_are_nouns(data_dir: Path, lower: bool) -> None:
    measured = measure(Tagger.default(), sentences(data_dir / "flickr8k", "test"), lower)
    assert measured.heads > 14_000
    assert measured.head_share >= 0.97, measured.missed.most_common(20)
    assert measured.function_share <= 0.05
