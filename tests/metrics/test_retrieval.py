import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import ConfigError, CountError, MissingRecordError, NonFiniteError
from sightline.metrics.retrieval import consecutive_folds, evaluate_retrieval, mean_similarity


def blocks_of(matrix):
    return lambda images, captions: matrix[np.ix_(images, captions)]


def naive_ranks(matrix, owner):
    """Ranks from a full sort; among equal scores the wrong items come first."""
    i2t, t2i = [], []
    for image in range(len(matrix)):
        order = sorted(range(len(owner)), key=lambda c: (-matrix[image, c], owner[c] == image))
        i2t.append(1 + next(rank for rank, c in enumerate(order) if owner[c] == image))
    for caption, image in enumerate(owner):
        order = sorted(range(len(matrix)), key=lambda i: (-matrix[i, caption], i == image))
        t2i.append(1 + order.index(image))
    return np.array(i2t), np.array(t2i)


@st.composite
def problems(draw):
    """A score matrix with ties, and owners in any order with at least one caption an image."""
    images = draw(st.integers(1, 6))
    owner = draw(st.permutations([*range(images), *draw(st.lists(st.integers(0, images - 1), max_size=8))]))
    scores = draw(st.lists(st.integers(-3, 3), min_size=images * len(owner), max_size=images * len(owner)))
    return np.array(scores, np.float64).reshape(images, len(owner)), np.array(owner)


@given(problems(), st.integers(1, 4), st.integers(1, 7))
def test_every_number_equals_that_of_a_full_sort(problem, rows, columns):
    matrix, owner = problem
    found = evaluate_retrieval(blocks_of(matrix), owner, ks=(1, 2, 5), block=(rows, columns))
    for way, ranks in zip((found.image_to_text, found.text_to_image), naive_ranks(matrix, owner), strict=True):
        assert way.recalls == pytest.approx({k: 100 * np.mean(ranks <= k) for k in (1, 2, 5)})
        assert way.median_rank == np.floor(np.median(ranks))
        assert way.mean_rank == pytest.approx(np.mean(ranks))


def test_no_block_is_larger_than_asked_for():
    matrix = np.random.default_rng(0).normal(size=(30, 150))
    asked = []

    def similarity(images, captions):
        asked.append((len(images), len(captions)))
        return matrix[np.ix_(images, captions)]

    evaluate_retrieval(similarity, np.arange(150) // 5, block=(7, 20))
    assert max(rows for rows, _ in asked) == 7
    assert max(columns for _, columns in asked) == 20


def test_a_model_that_scores_everything_the_same_finds_nothing():
    found = evaluate_retrieval(blocks_of(np.zeros((20, 100))), np.arange(100) // 5)
    assert found.rsum == 0
    assert (found.image_to_text.mean_rank, found.text_to_image.mean_rank) == (96, 20)


def test_a_perfect_model_finds_everything():
    owner = np.arange(60) // 3
    found = evaluate_retrieval(blocks_of(owner == np.arange(20)[:, None]), owner, ks=(1, 5, 10))
    assert found.rsum == 600
    assert found.image_to_text.median_rank == found.text_to_image.mean_rank == 1


def test_folds_are_ranked_by_themselves_and_averaged():
    rng = np.random.default_rng(1)
    owner = rng.permutation(np.arange(120) // 5)
    matrix = rng.normal(size=(24, 120)) + 2 * (owner == np.arange(24)[:, None])
    found = evaluate_retrieval(blocks_of(matrix), owner, folds=consecutive_folds(6, 3))
    alone = []
    for fold in consecutive_folds(6, 3):
        captions = np.flatnonzero(np.isin(owner, fold))
        alone.append(evaluate_retrieval(blocks_of(matrix[np.ix_(fold, captions)]), owner[captions] - fold[0]))
    assert (found.folds, found.images) == (3, 6)
    assert found.rsum == pytest.approx(np.mean([one.rsum for one in alone]))
    assert found.text_to_image.mean_rank == pytest.approx(np.mean([one.text_to_image.mean_rank for one in alone]))
    assert found.image_to_text.median_rank == pytest.approx(np.mean([one.image_to_text.median_rank for one in alone]))


def test_the_first_folds_leave_later_images_out():
    assert [fold.tolist() for fold in consecutive_folds(3, 2)] == [[0, 1, 2], [3, 4, 5]]


def test_an_ensemble_averages_scores():
    rng = np.random.default_rng(2)
    one, other = rng.normal(size=(2, 10, 50)).astype(np.float32)
    owner = np.arange(50) // 5
    together = evaluate_retrieval(mean_similarity([blocks_of(one), blocks_of(other)]), owner)
    mean = evaluate_retrieval(blocks_of((one.astype(np.float64) + other) / 2), owner)
    assert (together.image_to_text, together.text_to_image) == (mean.image_to_text, mean.text_to_image)


def test_the_flat_form_holds_every_number():
    matrix = np.random.default_rng(3).normal(size=(8, 16))
    found = evaluate_retrieval(blocks_of(matrix), np.arange(16) // 2, ks=(1, 3))
    flat = found.as_dict()
    assert (flat["images"], flat["folds"]) == (8, 1)
    assert flat["rsum"] == pytest.approx(sum(flat[f"{way}_R@{k}"] for way in ("i2t", "t2i") for k in (1, 3)))
    assert flat["t2i_mean_rank"] == found.text_to_image.mean_rank


def test_impossible_input_is_refused_by_name():
    owner = np.array([0, 1, 1])
    with pytest.raises(NonFiniteError, match="image index 1, caption index 2"):
        evaluate_retrieval(blocks_of(np.array([[0, 0, 0], [0, 0, np.nan]])), owner)
    with pytest.raises(CountError, match=r"shape \(3,\)"):
        evaluate_retrieval(lambda images, captions: np.zeros(len(captions)), owner)
    with pytest.raises(MissingRecordError, match="image index 2"):
        evaluate_retrieval(blocks_of(np.zeros((3, 3))), owner, folds=[[0, 2]])
    with pytest.raises(CountError, match="twice"):
        evaluate_retrieval(blocks_of(np.zeros((3, 3))), owner, folds=[[0, 0]])
    for folds in ([], [[]]):
        with pytest.raises(ConfigError, match="nothing to rank"):
            evaluate_retrieval(blocks_of(np.zeros((3, 3))), owner, folds=folds)
    with pytest.raises(ConfigError, match="negative"):
        evaluate_retrieval(blocks_of(np.zeros((3, 3))), owner, folds=[[-1, 0]])
