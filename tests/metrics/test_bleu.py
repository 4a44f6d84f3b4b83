import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from language_samples import CORPUS, SENTENCE, SETS, recorded, score, split
from sightline.errors import DuplicateRecordError, MissingRecordError
from sightline.metrics.bleu import Bleu


def naive_statistics(said, references):
    """Matched and total n-grams for n = 1…4, the length, and the closest reference length."""
    words = said.split()
    matched, total = [], []
    for n in range(1, 5):
        ours = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        best = Counter()
        for reference in references:
            other = reference.split()
            best |= Counter(tuple(other[i : i + n]) for i in range(len(other) - n + 1))
        matched.append(sum((ours & best).values()))
        total.append(sum(ours.values()))
    closest = min((abs(len(r.split()) - len(words)), len(r.split())) for r in references)[1]
    return matched, total, len(words), closest


def naive_bleu(matched, total, length, closest):
    ratio = (length + 1e-15) / (closest + 1e-9)
    penalty = min(1.0, math.exp(1 - 1 / ratio))
    precisions = [(m + 1e-15) / (t + 1e-9) for m, t in zip(matched, total, strict=True)]
    return [math.prod(precisions[:n]) ** (1 / n) * penalty for n in range(1, 5)]


@pytest.mark.parametrize("name", SETS)
def test_bleu_equals_the_recorded_tool(name):
    hypotheses, references, expected = recorded(name)
    scores = score(Bleu(), hypotheses, references)
    for key in Bleu.keys:
        assert scores.corpus[key] == pytest.approx(expected[None][key], rel=0, abs=1e-9)
        for id in hypotheses:
            assert scores.per_image[id][key] == pytest.approx(expected[id][key], rel=0, abs=1e-9), (id, key)


@given(CORPUS)
def test_bleu_equals_the_naive_formula(corpus):
    hypotheses, references = split(corpus)
    scores = score(Bleu(), hypotheses, references)
    statistics = [naive_statistics(said, refs) for said, refs in corpus]
    for id, found in zip(hypotheses, statistics, strict=True):
        assert list(scores.per_image[id].values()) == pytest.approx(naive_bleu(*found), rel=1e-12)
    summed = [
        [sum(column) for column in zip(*(found[part] for found in statistics), strict=True)] for part in (0, 1)
    ] + [sum(found[part] for found in statistics) for part in (2, 3)]
    assert list(scores.corpus.values()) == pytest.approx(naive_bleu(*summed), rel=1e-12)


@given(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=4), SENTENCE)
def test_ngram_precision_never_falls_when_a_reference_is_added(said, references, another):
    def precisions(refs):
        """BLEU without its brevity penalty, which a longer reference may well make stronger."""
        values = score(Bleu(), {"1": said}, {"1": refs}).per_image["1"].values()
        _, _, length, closest = naive_statistics(said, refs)
        penalty = min(1.0, math.exp(1 - 1 / ((length + 1e-15) / (closest + 1e-9))))
        return [value / penalty for value in values]

    assume(said)
    for before, after in zip(precisions(references), precisions([*references, another]), strict=True):
        assert after >= before * (1 - 1e-12)


@given(CORPUS, st.randoms())
def test_neither_the_order_of_images_nor_the_batches_matter(corpus, random):
    hypotheses, references = split(corpus)
    one_by_one = Bleu()
    ids = list(hypotheses)
    random.shuffle(ids)
    for id in ids:
        one_by_one.update({id: hypotheses[id]}, {id: references[id]})
    assert one_by_one.compute() == score(Bleu(), hypotheses, references)


@given(st.text(), st.lists(st.text(), min_size=1, max_size=3))
def test_any_text_has_a_score(said, references):
    values = score(Bleu(), {"1": said}, {"1": references}).corpus.values()
    assert all(0 <= value <= 1 for value in values)


def test_a_thousand_words_have_a_score():
    words = " ".join(f"w{i % 400}" for i in range(1000))
    assert score(Bleu(), {"1": words}, {"1": [words]}).corpus["Bleu_4"] == pytest.approx(1.0, abs=1e-9)


@given(CORPUS, st.data())
def test_resampled_scores_are_those_of_the_images_drawn(corpus, data):
    hypotheses, references = split(corpus)
    draws = data.draw(st.lists(st.sampled_from(list(hypotheses)), min_size=1, max_size=6))
    metric, again = Bleu(), Bleu()
    metric.update(hypotheses, references)
    again.update(
        {str(i): hypotheses[id] for i, id in enumerate(draws)}, {str(i): references[id] for i, id in enumerate(draws)}
    )
    weights = np.array([[draws.count(id) for id in hypotheses], [1] * len(corpus)], np.float64)
    found = metric.resample(weights)
    for key in Bleu.keys:
        expected = [again.compute().corpus[key], metric.compute().corpus[key]]
        assert found[key].tolist() == pytest.approx(expected, rel=1e-9)


def test_no_image_at_all_scores_zero():
    assert set(Bleu().compute().corpus.values()) == {0.0}


def test_explain_tells_matches_up_to_the_richest_reference():
    matches = Bleu().explain("a a a cat", ["a a dog", "a cat"])
    assert matches == {("a",): 2, ("cat",): 1, ("a", "a"): 1, ("a", "cat"): 1}


@given(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=4))
def test_explained_matches_are_the_matches_that_score(said, references):
    explained = Bleu().explain(said, references)
    matched, _, _, _ = naive_statistics(said, references)
    for n in range(1, 5):
        assert sum(count for words, count in explained.items() if len(words) == n) == matched[n - 1]


def test_an_image_given_twice_or_without_references_is_refused():
    metric = Bleu()
    metric.update({"1": "a dog"}, {"1": ["a dog"]})
    with pytest.raises(DuplicateRecordError, match="image 1"):
        metric.update({"1": "a dog"}, {"1": ["a dog"]})
    with pytest.raises(MissingRecordError, match="image 2"):
        metric.update({"2": "a dog"}, {"2": []})
    metric.reset()
    metric.update({"1": "a dog"}, {"1": ["a dog"]})


@pytest.mark.data
def test_bleu_of_single_images_equals_the_reference_tools_file(data_dir):
    sets = json.loads((data_dir / "metrics" / "reference.json").read_text())["sets"]
    for name, whole in sets.items():
        images = {image["image_id"]: image for image in whole["per_image"]}
        scores = score(
            Bleu(), {i: v["tok_hyp"] for i, v in images.items()}, {i: v["tok_refs"] for i, v in images.items()}
        )
        for id, image in images.items():
            for key in Bleu.keys:
                assert scores.per_image[id][key] == pytest.approx(image[key], rel=0, abs=1e-9), (name, id, key)
