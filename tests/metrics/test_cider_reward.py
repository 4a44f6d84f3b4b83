from collections import defaultdict

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


def rows(sentences, end=END, width=12):
    """Samples as a decoder writes them: words, END, zeros."""
    return np.array([[*words, end, *[0] * (width - len(words) - 1)] for words in sentences])


def written(words, end=END):
    return " ".join(map(str, [*words, end]))


def by_text(images, sentences, references, df=None, write=written):
    """CIDEr-D of the same sentences written as ids, END appended."""
    frequencies = df or DocumentFrequencies.of([[write(words) for words in of] for of in references])
    hypotheses = {str(i): write(words) for i, words in enumerate(sentences)}
    heard = {str(i): [write(words) for words in references[image]] for i, image in enumerate(images)}
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


@given(batches(), IMAGES)
def test_saved_frequencies_of_another_set_take_the_place_of_the_references(batch, others):
    references, images, sentences = batch
    df = DocumentFrequencies.of([[written(words) for words in of] for of in others])
    reward = CiderDReward(references, df)
    assert reward(images, rows(sentences)).tolist() == by_text(images, sentences, references, df)


@given(batches())
def test_a_batch_scores_like_its_samples_one_by_one(batch):
    references, images, sentences = batch
    reward = CiderDReward(references)
    alone = [float(reward([i], rows([words]))[0]) for i, words in zip(images, sentences, strict=True)]
    assert reward(images, rows(sentences)).tolist() == alone


@given(batches())
def test_the_older_layout_with_zero_as_end_scores_the_same(batch):
    references, images, sentences = batch
    older = CiderDReward(references, end_id=0)
    assert older(images, rows(sentences, end=0)).tolist() == CiderDReward(references)(images, rows(sentences)).tolist()


@given(batches())
def test_end_can_be_left_out(batch):
    references, images, sentences = batch
    expected = by_text(images, sentences, references, write=lambda words: " ".join(map(str, words)))
    assert CiderDReward(references, include_end=False)(images, rows(sentences)).tolist() == expected


def test_a_sample_that_was_cut_off_has_no_end():
    references = [[[5, 6, 7]], [[8, 9]]]
    reward = CiderDReward(references)
    df = DocumentFrequencies.of([[written(words) for words in of] for of in references])
    expected = score(CIDErD(df), {"1": "5 6 7"}, {"1": ["5 6 7 2"]}).corpus["CIDEr"]
    assert reward([0], [[5, 6, 7]])[0] == reward([0], [[5, 6, 7, 0]])[0] == expected
    assert reward([0], [[5, 6, 7, END]])[0] > expected


def test_a_padded_reference_ends_where_its_padding_starts():
    padded = CiderDReward([[[5, 6, 7, END, 0, 0], [5, 0, 9]], [[8, 9, 0]]])
    plain = CiderDReward([[[5, 6, 7], [5]], [[8, 9]]])
    samples = rows([[5, 6], [8, 9], [5]])
    assert padded([0, 1, 0], samples).tolist() == plain([0, 1, 0], samples).tolist()


def test_frequencies_over_words_or_foreign_ids_meet_the_references_through_a_map():
    references, sentences, images = [[[4, 5, 6]], [[4, 7]]], [[4, 5, 7], [4, 7]], [0, 1]
    expected = CiderDReward(references)(images, rows(sentences)).tolist()
    ours = DocumentFrequencies.of([[written(words) for words in of] for of in references])
    for names in ({4: "a", 5: "dog", 6: "runs", 7: "cat", END: "<eos>"}, {4: "1", 5: "9", 6: "3", 7: "7", END: "0"}):
        foreign = DocumentFrequencies(
            {tuple(names[int(word)] for word in key): count for key, count in ours.counts.items()}, ours.images
        )
        ids = {name: id for id, name in names.items()}
        assert CiderDReward(references, foreign, ids=ids)(images, rows(sentences)).tolist() == expected


def test_keys_with_words_nobody_uses_here_are_left_out():
    df = DocumentFrequencies({("a",): 2.0, ("a", "zebra"): 1.0, ("zebra",): 1.0}, 4)
    reward = CiderDReward([[[4, 5]]], df, ids={"a": 4})
    same = CiderDReward([[[4, 5]]], DocumentFrequencies({("4",): 2.0}, 4))
    assert reward([0], [[4, 5, END]]).tolist() == same([0], [[4, 5, END]]).tolist()


def test_a_saved_ngram_without_its_beginning_is_still_found():
    df = DocumentFrequencies({("4", "5", "6"): 2.0, ("7", "8"): 3.0}, 9)
    references, sentences = [[[4, 5, 6, 7, 8]]], [[4, 5, 6, 9, 7, 8]]
    assert CiderDReward(references, df)([0], rows(sentences)).tolist() == by_text([0], sentences, references, df)


def test_the_tables_never_grow():
    counts = defaultdict(float, {("4",): 2.0, ("4", "5"): 1.0})
    reward = CiderDReward([[[4, 5, 6]], [[4, 7]]], DocumentFrequencies(counts, 3))
    arrays = [getattr(o, name) for o in reward._orders for name in ("table", "idf", "gram", "reference", "count")]
    before = [array.copy() for array in arrays]
    for unseen in range(100, 200):
        reward([0, 1], [[unseen, 4, unseen + 1, unseen, END], [unseen] * 5])
    after = [getattr(o, name) for o in reward._orders for name in ("table", "idf", "gram", "reference", "count")]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert len(counts) == 2


def test_words_beyond_every_table_count_as_unseen():
    references = [[[4, 5]], [[6, 7]]]
    sentences = [[4, 2**30, 5], [2**31 - 1]]
    assert CiderDReward(references)([0, 1], rows(sentences)).tolist() == by_text([0, 1], sentences, references)


def test_an_empty_batch_and_empty_sentences_score():
    reward = CiderDReward([[[], [4]], [[5]]])
    assert reward(np.zeros(0, int), np.zeros((0, 5), int)).shape == (0,)
    assert reward([0, 1], np.zeros((2, 0), int)).tolist() == [0.0, 0.0]
    assert CiderDReward([[[]]], include_end=False)([0], [[END]]).tolist() == [0.0]


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
    with pytest.raises(DataError, match="give `ids`"):
        CiderDReward([[[4]]], DocumentFrequencies({("dog",): 1.0}, 2))
    with pytest.raises(DataError, match="n-gram of 5 words"):
        CiderDReward([[[4]]], DocumentFrequencies({("1",) * 5: 1.0}, 2))
