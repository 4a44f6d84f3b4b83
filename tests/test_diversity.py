import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_samples import SENTENCE, score
from sightline.errors import CountError, DuplicateRecordError
from sightline.metrics.bleu import Bleu
from sightline.metrics.cider import CIDEr, DocumentFrequencies
from sightline.metrics.diversity import Diversity
from sightline.metrics.lengths import CaptionStatistics

IMAGES = st.lists(st.lists(SENTENCE, min_size=2, max_size=4), min_size=1, max_size=4).map(
    lambda images: {str(i): sentences for i, sentences in enumerate(images)}
)


def diversity(captions, frequencies=None):
    metric = Diversity(frequencies)
    metric.update(captions)
    return metric.compute()


@given(IMAGES)
def test_div_n_is_distinct_ngrams_over_words(captions):
    scores = diversity(captions)
    for n, key in ((1, "Div_1"), (2, "Div_2")):
        for id, sentences in captions.items():
            words = [sentence.split() for sentence in sentences]
            distinct = {tuple(w[i : i + n]) for w in words for i in range(len(w) - n + 1)}
            assert scores.per_image[id][key] == pytest.approx(len(distinct) / max(1, sum(map(len, words))))
        assert scores.corpus[key] == pytest.approx(np.mean([s[key] for s in scores.per_image.values()]))


@given(IMAGES)
def test_mbleu_is_bleu_against_the_other_captions(captions):
    scores = diversity(captions)
    for id, sentences in captions.items():
        alone = [
            score(Bleu(), {"1": said}, {"1": sentences[:i] + sentences[i + 1 :]}).corpus["Bleu_4"]
            for i, said in enumerate(sentences)
        ]
        assert scores.per_image[id]["mBleu_4"] == pytest.approx(np.mean(alone), rel=1e-9, abs=1e-15)


@given(st.lists(st.lists(SENTENCE, min_size=3, max_size=3), min_size=1, max_size=3))
def test_mbleu_of_the_corpus_is_the_mean_over_turns(images):
    captions = {str(i): sentences for i, sentences in enumerate(images)}
    turns = []
    for turn in range(3):
        said = {id: sentences[turn] for id, sentences in captions.items()}
        others = {id: [s for i, s in enumerate(sentences) if i != turn] for id, sentences in captions.items()}
        turns.append(score(Bleu(), said, others).corpus["Bleu_4"])
    assert diversity(captions).corpus["mBleu_4"] == pytest.approx(np.mean(turns), rel=1e-9, abs=1e-15)


@given(IMAGES, st.booleans())
def test_self_cider_is_the_spread_of_eigenvalues_of_the_cider_kernel(captions, saved):
    frequencies = DocumentFrequencies.of([["a dog", "a 犬"], ["on the"], ["a"]]) if saved else None
    scores = diversity(captions, frequencies)
    df = frequencies or DocumentFrequencies.of(captions.values())
    for id, sentences in captions.items():
        kernel = np.array(
            [[score(CIDEr(df), {"1": a}, {"1": [b]}).corpus["CIDEr_plain"] / 10 for b in sentences] for a in sentences]
        )
        roots = np.sqrt(np.clip(np.linalg.eigvalsh(kernel), 0, None))
        expected = -math.log(roots.max() / roots.sum(), len(sentences)) if roots.sum() else 0.0
        assert scores.per_image[id]["SelfCIDEr"] == pytest.approx(expected, abs=1e-6)


def test_equal_captions_have_no_diversity_and_disjoint_ones_all_of_it():
    scores = diversity(
        {
            "same": ["a dog runs on the grass"] * 4,
            "other": ["one two three four", "five six seven eight", "nine ten eleven twelve"],
        }
    )
    assert scores.per_image["same"]["SelfCIDEr"] == pytest.approx(0.0, abs=1e-6)
    assert scores.per_image["same"]["mBleu_4"] == pytest.approx(1.0, abs=1e-6)
    assert scores.per_image["other"]["SelfCIDEr"] == pytest.approx(1.0, abs=1e-6)
    assert scores.per_image["other"]["mBleu_4"] == pytest.approx(0.0, abs=1e-3)


def test_no_image_scores_zero_and_reset_forgets():
    metric = Diversity()
    assert set(metric.compute().corpus.values()) == {0.0}
    metric.update({"1": ["a dog", "a cat"]})
    metric.reset()
    assert metric.compute().per_image == {}


def test_single_captions_and_images_given_twice_are_refused():
    metric = Diversity()
    with pytest.raises(CountError, match="image 7 has 1 caption"):
        metric.update({"7": ["a dog"]})
    metric.update({"1": ["a dog", "a cat"]})
    with pytest.raises(DuplicateRecordError, match="image 1"):
        metric.update({"1": ["a dog", "a cat"]})


@given(st.lists(SENTENCE, min_size=1), st.lists(SENTENCE))
def test_caption_statistics_equal_plain_counting(captions, training):
    metric = CaptionStatistics(training)
    metric.update(captions[: len(captions) // 2])
    metric.update(captions[len(captions) // 2 :])
    found = metric.compute()
    lengths = [len(caption.split()) for caption in captions]
    assert found.captions == len(captions)
    assert found.mean_length == pytest.approx(statistics.fmean(lengths))
    assert found.std_length == pytest.approx(statistics.pstdev(lengths))
    assert list(found.histogram.items()) == [(n, lengths.count(n)) for n in sorted(set(lengths))]
    assert found.vocabulary == len({word for caption in captions for word in caption.split()})
    assert found.novel == pytest.approx(100 * sum(c not in training for c in captions) / len(captions))
    assert found.distinct == pytest.approx(100 * len(set(captions)) / len(captions))


def test_statistics_of_nothing_are_zero_and_novelty_needs_a_training_set():
    found = CaptionStatistics().compute()
    assert (found.captions, found.mean_length, found.std_length, found.histogram) == (0, 0.0, 0.0, {})
    assert found.novel is None
    metric = CaptionStatistics(["a dog"])
    metric.update(["a  dog", "a cat"])
    assert metric.compute().novel == 50.0
    metric.reset()
    assert metric.compute().novel == 0.0
