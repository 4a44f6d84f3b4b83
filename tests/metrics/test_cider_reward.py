import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_samples import score
from sightline.errors import ConfigError, CountError, DataError
from sightline.metrics.cider import CIDErD, DocumentFrequencies
from sightline.metrics.cider_reward import CiderDReward

END = 2
SENTENCE = st.lists(st.integers(3, 8), max_size=8)
IMAGES = st.lists(st.lists(SENTENCE, min_size=1, max_size=4), min_size=1, max_size=4)


def rows(sentences, width=12):
    """Samples as a decoder writes them: words, END, zeros."""
    return np.array([[*words, END, *[0] * (width - len(words) - 1)] for words in sentences])


def written(words):
    return " ".join(map(str, [*words, END]))


def by_text(images, sentences, references):
    """CIDEr-D of the same sentences written as ids, END appended."""
    frequencies = DocumentFrequencies.of([[written(words) for words in of] for of in references])
    hypotheses = {str(i): written(words) for i, words in enumerate(sentences)}
    heard = {str(i): [written(words) for words in references[image]] for i, image in enumerate(images)}
    return [s["CIDEr"] for s in score(CIDErD(frequencies), hypotheses, heard).per_image.values()]


@st.composite
def batches(draw):
    references = draw(IMAGES)
    sentences = draw(st.lists(SENTENCE, min_size=1, max_size=6))
    images = draw(st.lists(st.integers(0, len(references) - 1), min_size=len(sentences), max_size=len(sentences)))
    return references, images, sentences


@given(batches())
def test_the_reward_is_cider_d_over_id_strings_with_end(batch):
    references, images, sentences = batch
    reward = CiderDReward(references)
    assert reward(images, rows(sentences)).tolist() == by_text(images, sentences, references)


@given(batches())
def test_a_batch_scores_like_its_samples_one_by_one(batch):
    references, images, sentences = batch
    reward = CiderDReward(references)
    alone = [float(reward([i], rows([words]))[0]) for i, words in zip(images, sentences, strict=True)]
    assert reward(images, rows(sentences)).tolist() == alone


def test_a_sample_that_was_cut_off_has_no_end():
    references = [[[5, 6, 7]], [[8, 9]]]
    reward = CiderDReward(references)
    df = DocumentFrequencies.of([[written(words) for words in of] for of in references])
    expected = score(CIDErD(df), {"1": "5 6 7"}, {"1": ["5 6 7 2"]}).corpus["CIDEr"]
    assert reward([0], [[5, 6, 7]])[0] == reward([0], [[5, 6, 7, 0]])[0] == expected
    assert reward([0], [[5, 6, 7, END]])[0] > expected


def test_the_tables_never_grow():
    reward = CiderDReward([[[4, 5, 6]], [[4, 7]]])
    arrays = [getattr(o, name) for o in reward.orders for name in ("table", "idf", "gram", "reference", "count")]
    before = [array.copy() for array in arrays]
    for unseen in range(100, 200):
        reward([0, 1], [[unseen, 4, unseen + 1, unseen, END], [unseen] * 5])
    after = [getattr(o, name) for o in reward.orders for name in ("table", "idf", "gram", "reference", "count")]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_words_beyond_every_table_count_as_unseen():
    references = [[[4, 5]], [[6, 7]]]
    sentences = [[4, 2**30, 5], [2**31 - 1]]
    assert CiderDReward(references)([0, 1], rows(sentences)).tolist() == by_text([0, 1], sentences, references)


def test_an_empty_batch_and_empty_sentences_score():
    reward = CiderDReward([[[], [4]], [[5]]])
    assert reward(np.zeros(0, int), np.zeros((0, 5), int)).shape == (0,)
    assert reward([0, 1], np.zeros((2, 0), int)).tolist() == [0.0, 0.0]


def test_impossible_input_is_refused_by_name():
    reward = CiderDReward([[[4, 5]]])
    with pytest.raises(CountError, match=r"\(2, 3\)"):
        reward([0], [[4, 5, END], [4, 5, END]])
    with pytest.raises(ConfigError, match="of 1 images"):
        reward([1], [[4, END]])
    with pytest.raises(DataError, match="word id -1"):
        reward([0], [[4, -1]])
    with pytest.raises(DataError, match="image index 1"):
        CiderDReward([[[4]], []])
    with pytest.raises(DataError, match="a reference holds the word id -4"):
        CiderDReward([[[-4]]])
