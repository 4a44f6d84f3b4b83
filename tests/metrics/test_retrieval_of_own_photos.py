import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sightline.metrics.retrieval import self_retrieval

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
def problem():
    torch.manual_seed(0)
    model = BigramCaptioner().double().eval()
    photos = torch.randn(11, 5, dtype=torch.double)
    words = torch.full((11, 8), PAD)
    for row in words:
        length = int(torch.randint(1, 6, ()))
        row[0], row[1 : length + 1], row[length + 1] = START, torch.randint(3, 12, (length,)), END
    return model, photos, words


def naive_ranks(model, photos, words, chosen):
    """One caption and one photo at a time."""
    ranks = []
    for own in chosen:
        scores = {
            i: float(model.log_prob(model.encode(photos[i : i + 1]), words[own : own + 1])[0].detach()) for i in chosen
        }
        ranks.append(1 + sum(score >= scores[own] for i, score in scores.items() if i != own))
    return np.array(ranks)


@pytest.mark.parametrize("block", [(4, 5), (11, 11), (1, 1), (100, 3)])
def test_recalls_equal_those_of_one_pair_at_a_time(problem, block):
    model, photos, words = problem
    ranks = naive_ranks(model, photos, words, range(11))
    found = self_retrieval(model, lambda i: photos[i], words, ks=(1, 3, 5), block=block)
    assert found.recalls == pytest.approx({k: 100 * np.mean(ranks <= k) for k in (1, 3, 5)})
    assert found.mean_rank == pytest.approx(ranks.mean())
    assert found.median_rank == np.floor(np.median(ranks))


def test_chance_is_given_beside_each_recall(problem):
    model, photos, words = problem
    found = self_retrieval(model, lambda i: photos[i], words, ks=(1, 5, 500))
    assert found.pool == 11
    assert found.chance == pytest.approx({1: 100 / 11, 5: 500 / 11, 500: 100.0})


def test_images_are_encoded_once_and_batches_stay_within_the_block(problem):
    model, photos, words = problem
    self_retrieval(model, lambda i: photos[i], words, block=(4, 6))
    assert sum(model.encoded) == 11
    assert max(model.batches) == 24


def test_a_model_blind_to_photos_finds_none(problem):
    model, photos, words = problem
    nn.init.zeros_(model.out.weight)
    found = self_retrieval(model, lambda i: photos[i], words, ks=(1, 10))
    assert found.recalls == {1: 0.0, 10: 0.0}


def test_no_gradient_is_kept(problem):
    model, photos, words = problem
    self_retrieval(model, lambda i: photos[i], words)
    assert all(p.grad is None for p in model.parameters())
