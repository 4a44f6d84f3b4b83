import json
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_samples import CORPUS, SETS, recorded, score, split
from sightline.errors import DataError
from sightline.metrics.cider import ONE_IMAGE, CIDErD, DocumentFrequencies
from sightline.metrics.ngrams import Tokens, count_ngrams, name_ngrams, sort_places


def ngrams(sentence):
    words = sentence.split()
    return Counter(tuple(words[i : i + n]) for n in range(1, 5) for i in range(len(words) - n + 1))


def naive_cider(said, references, df, images):
    """CIDEr-D with dictionaries, straight from the definition."""

    def vector(sentence, n):
        weights = ngrams(sentence).items()
        return {g: c * (math.log(images) - math.log(max(1, df.get(g, 0)))) for g, c in weights if len(g) == n}

    total = 0.0
    for reference in references:
        delta = max(len(said.split()) - 1, 0) - max(len(reference.split()) - 1, 0)
        for n in range(1, 5):
            ours, theirs = vector(said, n), vector(reference, n)
            scale = math.hypot(*ours.values()) * math.hypot(*theirs.values())
            if scale:
                shared = ours.keys() & theirs.keys()
                dot = sum(min(ours[g], theirs[g]) * theirs[g] for g in shared)
                total += dot / scale * math.exp(-(delta**2) / 72)
    return 10 * total / 4 / len(references)


def naive_frequencies(references):
    return Counter(gram for sentences in references for gram in {g for s in sentences for g in ngrams(s)})


@pytest.mark.parametrize("name", SETS)
def test_cider_d_equals_the_recorded_tool(name):
    hypotheses, references, expected = recorded(name)
    scores = score(CIDErD(), hypotheses, references)
    assert scores.corpus["CIDEr"] == pytest.approx(expected[None]["CIDEr"], rel=0, abs=1e-9)
    for id in hypotheses:
        assert scores.per_image[id]["CIDEr"] == pytest.approx(expected[id]["CIDEr"], rel=0, abs=1e-9), id


@given(CORPUS)
def test_cider_equals_the_naive_formula(corpus):
    hypotheses, references = split(corpus)
    df = naive_frequencies(references.values())
    scores = score(CIDErD(), hypotheses, references)
    expected = [naive_cider(said, refs, df, len(corpus)) for said, refs in corpus]
    assert [scores.per_image[id]["CIDEr"] for id in hypotheses] == pytest.approx(expected, abs=1e-12)
    assert scores.corpus["CIDEr"] == pytest.approx(np.mean(expected), abs=1e-12)


@given(CORPUS, CORPUS)
def test_saved_frequencies_take_the_place_of_the_corpus(saved, corpus):
    hypotheses, references = split(corpus)
    df = DocumentFrequencies(naive_frequencies(refs for _, refs in saved), len(saved) + 3)
    scores = score(CIDErD(df), hypotheses, references)
    for id, (said, refs) in zip(hypotheses, corpus, strict=True):
        expected = naive_cider(said, refs, df.counts, df.images)
        assert scores.per_image[id]["CIDEr"] == pytest.approx(expected, abs=1e-12)


@given(CORPUS)
def test_frequencies_counted_beforehand_change_nothing(corpus):
    hypotheses, references = split(corpus)
    df = DocumentFrequencies.of(references.values())
    assert score(CIDErD(df), hypotheses, references) == score(CIDErD(), hypotheses, references)


@given(CORPUS, st.randoms())
def test_neither_the_order_of_images_nor_the_batches_matter(corpus, random):
    hypotheses, references = split(corpus)
    one_by_one = CIDErD()
    ids = list(hypotheses)
    random.shuffle(ids)
    for id in ids:
        one_by_one.update({id: hypotheses[id]}, {id: references[id]})
    scores, expected = one_by_one.compute(), score(CIDErD(), hypotheses, references)
    for id in ids:
        assert scores.per_image[id] == pytest.approx(expected.per_image[id], abs=1e-12)
    assert scores.corpus == pytest.approx(expected.corpus, abs=1e-12)


@given(CORPUS)
def test_explained_shares_add_up_to_the_score(corpus):
    hypotheses, references = split(corpus)
    scorer = CIDErD()
    scores = score(scorer, hypotheses, references)
    for id, said in hypotheses.items():
        explained = scorer.explain(said, references[id])
        assert sum(explained.values()) == pytest.approx(scores.per_image[id]["CIDEr"], abs=1e-12)
        assert list(explained) == list(ngrams(said))


def test_explain_follows_updates_and_reset():
    metric = CIDErD()
    metric.update({"1": "a dog"}, {"1": ["a dog"]})
    assert metric.explain("a dog", ["a dog"])[("dog",)] == 0.0
    metric.update({"2": "a cat"}, {"2": ["a cat"]})
    assert metric.explain("a dog", ["a dog"])[("dog",)] == pytest.approx(2.5)
    metric.reset()
    assert metric.explain("a dog", ["a dog"])[("dog",)] == 0.0


def test_one_image_alone_scores_zero_and_the_note_says_why():
    assert score(CIDErD(), {"1": "a dog runs"}, {"1": ["a dog runs"]}).corpus == {"CIDEr": 0.0}
    assert "document frequencies" in ONE_IMAGE


def test_no_image_at_all_scores_zero():
    assert CIDErD().compute().corpus == {"CIDEr": 0.0}


@given(st.lists(st.tuples(st.text(), st.lists(st.text(), min_size=1, max_size=2)), min_size=1, max_size=3))
def test_any_text_has_a_score(corpus):
    values = score(CIDErD(), *split(corpus)).per_image.values()
    assert all(0 <= value["CIDEr"] <= 10 + 1e-9 for value in values)


def test_scoring_does_not_grow_the_frequencies_it_was_given():
    counts = defaultdict(float, {("a",): 3.0, ("a", "dog"): 1.0})
    metric = CIDErD(DocumentFrequencies(counts, 5))
    score(metric, {"1": "an unseen caption of a dog"}, {"1": ["a dog", "more unseen words"]})
    metric.explain("quite other words", ["a dog"])
    assert dict(counts) == {("a",): 3.0, ("a", "dog"): 1.0}


@pytest.mark.parametrize("images", [0, -1, float("nan")])
def test_frequencies_over_no_image_are_refused(images):
    with pytest.raises(DataError, match="ref_len"):
        DocumentFrequencies({("a",): 1.0}, images)


def test_a_zero_byte_in_a_caption_is_a_word_like_any_other():
    tokens = Tokens.of(["a \0 b", "\0\0", "", "b \0\0 \0"])
    assert tokens.lengths.tolist() == [3, 1, 0, 3]
    assert [tokens.vocabulary[w] for w in tokens.words] == ["a", "\0", "b", "\0\0", "b", "\0\0", "\0"]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=8).map(" ".join), max_size=6))
def test_counted_ngrams_are_those_of_a_dictionary(sentences):
    tokens = Tokens.of(sentences)
    found = [Counter() for _ in sentences]
    names = [()]
    for counted in count_ngrams(tokens):
        names = name_ngrams(counted, names, tokens.vocabulary)
        for gram, sentence, count in zip(counted.gram, counted.sentence, counted.count, strict=True):
            found[sentence][names[gram]] = count
    assert found == [ngrams(sentence) for sentence in sentences]


@given(st.lists(st.integers(0, 2**62 - 1), max_size=30), st.booleans())
def test_places_are_sorted_by_key_then_place_whatever_the_size_of_keys(keys, small):
    array = np.array(keys, np.int64) % 3 if small else np.array(keys, np.int64)
    sorted_keys, places = sort_places(array, np.arange(len(array)))
    expected = sorted(zip(array.tolist(), range(len(array)), strict=True))
    assert list(zip(sorted_keys.tolist(), places.tolist(), strict=True)) == expected


@pytest.mark.data
def test_cider_of_the_official_example_equals_the_reference_tools_file(data_dir):
    whole = json.loads((data_dir / "metrics" / "reference.json").read_text())["sets"]["fakecap1000_official"]
    hypotheses, references, _ = recorded("fakecap")
    scores = score(CIDErD(), hypotheses, references)
    assert scores.corpus["CIDEr"] == pytest.approx(whole["corpus"]["CIDEr_D"], rel=0, abs=1e-9)
    for image in whole["per_image"]:
        assert scores.per_image[image["image_id"]]["CIDEr"] == pytest.approx(image["CIDEr_D"], rel=0, abs=1e-9)
