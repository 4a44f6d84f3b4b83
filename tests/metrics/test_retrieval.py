import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sightline.errors import ConfigError, CountError, MissingRecordError, NonFiniteError
from sightline.metrics.retrieval import consecutive_folds, evaluate_retrieval, mean_similarity, self_retrieval


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
    found = evaluate_retrieval(blocks_of(matrix), owner, ks=(1, 2, 5), block=(rows, columns)).metrics
    for way, ranks in zip(("i2t", "t2i"), naive_ranks(matrix, owner), strict=True):
        for k in (1, 2, 5):
            assert found[f"{way}_R@{k}"] == pytest.approx(100 * np.mean(ranks <= k))
        assert found[f"{way}_median_rank"] == np.floor(np.median(ranks))
        assert found[f"{way}_mean_rank"] == pytest.approx(np.mean(ranks))


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
    found = evaluate_retrieval(blocks_of(np.zeros((20, 100))), np.arange(100) // 5).metrics
    assert found["rsum"] == 0
    assert (found["i2t_mean_rank"], found["t2i_mean_rank"]) == (96, 20)


def test_a_perfect_model_finds_everything():
    owner = np.arange(60) // 3
    found = evaluate_retrieval(blocks_of(owner == np.arange(20)[:, None]), owner).metrics
    assert found["rsum"] == 600
    assert found["i2t_median_rank"] == found["t2i_mean_rank"] == 1


def test_folds_are_ranked_by_themselves_and_averaged():
    rng = np.random.default_rng(1)
    owner = rng.permutation(np.arange(120) // 5)
    matrix = rng.normal(size=(24, 120)) + 2 * (owner == np.arange(24)[:, None])
    found = evaluate_retrieval(blocks_of(matrix), owner, folds=consecutive_folds(6, 3)).metrics
    alone = []
    for fold in consecutive_folds(6, 3):
        captions = np.flatnonzero(np.isin(owner, fold))
        alone.append(evaluate_retrieval(blocks_of(matrix[np.ix_(fold, captions)]), owner[captions] - fold[0]).metrics)
    assert (found["folds"], found["images"]) == (3, 6)
    for name in found.keys() - {"folds"}:
        assert found[name] == pytest.approx(np.mean([one[name] for one in alone])), name


def test_the_first_folds_leave_later_images_out():
    assert [fold.tolist() for fold in consecutive_folds(3, 2)] == [[0, 1, 2], [3, 4, 5]]


def test_an_ensemble_averages_scores():
    rng = np.random.default_rng(2)
    one, other = rng.normal(size=(2, 10, 50)).astype(np.float32)
    owner = np.arange(50) // 5
    together = evaluate_retrieval(mean_similarity([blocks_of(one), blocks_of(other)]), owner)
    mean = evaluate_retrieval(blocks_of((one.astype(np.float64) + other) / 2), owner)
    assert together.metrics == mean.metrics


def test_rsum_is_the_sum_of_all_recalls():
    matrix = np.random.default_rng(3).normal(size=(8, 16))
    found = evaluate_retrieval(blocks_of(matrix), np.arange(16) // 2, ks=(1, 3)).metrics
    assert (found["images"], found["folds"]) == (8, 1)
    assert found["rsum"] == pytest.approx(sum(found[f"{way}_R@{k}"] for way in ("i2t", "t2i") for k in (1, 3)))


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


PAD, START, END = 0, 1, 2


class BigramCaptioner(nn.Module):
    """Predicts each word from the one before and from the photo's vector."""

    def __init__(self, vocab_size: int = 12, width: int = 5) -> None:
        super().__init__()
        self.before = nn.Embedding(vocab_size, width)
        self.out = nn.Linear(width, vocab_size)
        self.encoded: list[int] = []
        self.batches: list[int] = []

    def encode(self, scenes: Tensor) -> dict[str, Tensor]:
        self.encoded.append(len(scenes))
        return {"vector": torch.tanh(scenes), "mask": torch.ones(len(scenes), 1, dtype=torch.bool)}

    def log_prob(self, memory: dict[str, Tensor], words: Tensor) -> Tensor:
        self.batches.append(len(words))
        seen = (memory["vector"] * memory["mask"]).repeat_interleave(len(words) // len(memory["mask"]), 0)
        hidden = self.before(words[:, :-1]) + seen[:, None]
        steps = self.out(hidden).log_softmax(-1).gather(2, words[:, 1:, None])[..., 0]
        return (steps * (words[:, 1:] != PAD)).sum(1)


@pytest.fixture
def captioned():
    torch.manual_seed(0)
    model = BigramCaptioner().double().eval()
    photos = torch.randn(11, 5, dtype=torch.double)
    words = torch.full((11, 8), PAD)
    for row in words:
        length = int(torch.randint(1, 6, ()))
        row[0], row[1 : length + 1], row[length + 1] = START, torch.randint(3, 12, (length,)), END
    return model, photos, words


def naive_self_ranks(model, photos, words, chosen):
    """One caption and one photo at a time."""
    ranks = []
    for own in chosen:
        scores = {
            i: float(model.log_prob(model.encode(photos[i : i + 1]), words[own : own + 1])[0].detach()) for i in chosen
        }
        ranks.append(1 + sum(score >= scores[own] for i, score in scores.items() if i != own))
    return np.array(ranks)


@pytest.mark.parametrize("block", [(4, 5), (11, 11), (1, 1), (100, 3)])
def test_recalls_equal_those_of_one_pair_at_a_time(captioned, block):
    model, photos, words = captioned
    ranks = naive_self_ranks(model, photos, words, range(11))
    found = self_retrieval(model, lambda i: photos[i], words, ks=(1, 3, 5), block=block)
    assert found.recalls == pytest.approx({k: 100 * np.mean(ranks <= k) for k in (1, 3, 5)})
    assert list(found.ranks) == ranks.tolist()


def test_chance_is_given_beside_each_recall(captioned):
    model, photos, words = captioned
    found = self_retrieval(model, lambda i: photos[i], words, ks=(1, 5, 500))
    assert found.pool == 11
    assert found.chance == pytest.approx({1: 100 / 11, 5: 500 / 11, 500: 100.0})


def test_images_are_encoded_once_and_batches_stay_within_the_block(captioned):
    model, photos, words = captioned
    self_retrieval(model, lambda i: photos[i], words, block=(4, 6))
    assert sum(model.encoded) == 11
    assert max(model.batches) == 24


def test_a_model_blind_to_photos_finds_none(captioned):
    model, photos, words = captioned
    nn.init.zeros_(model.out.weight)
    found = self_retrieval(model, lambda i: photos[i], words, ks=(1, 10))
    assert found.recalls == {1: 0.0, 10: 0.0}


def test_no_gradient_is_kept(captioned):
    model, photos, words = captioned
    self_retrieval(model, lambda i: photos[i], words)
    assert all(p.grad is None for p in model.parameters())
