"""What Up-Down does faster in training gives what it gives otherwise."""

from __future__ import annotations

import copy

import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS, random_scenes, random_words
from sightline.models.blocked_scores import blocked_scores
from sightline.models.updown import UpDown, UpDownConfig
from sightline.text.vocabulary import END, PAD

torch.set_num_threads(1)


def make_model() -> UpDown:
    torch.manual_seed(0)
    return UpDownConfig(region_width=REGION_WIDTH, word_size=12, hidden_size=16, attention_size=14, dropout=0.0).build(
        WORDS
    )


def stepping_gradients(model: UpDown, words: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Log-probabilities (N, T) of words by `step`, 0 on padding, and the gradients of their sum."""
    memory = model.encode(random_scenes(4))
    state = {name: part.repeat_interleave(len(words) // 4, 0) for name, part in model.start(memory).items()}
    found = []
    for column, following in zip(words[:, :-1].T, words[:, 1:].T, strict=True):
        log_probs, state = model.step(column, memory, state)
        found.append(log_probs.gather(1, following[:, None]).squeeze(1) * (following != PAD))
    total = torch.stack(found, 1)
    return total.detach(), list(torch.autograd.grad(total.sum(), list(model.parameters())))


def own_words(words: torch.Tensor) -> torch.Tensor:
    """Captions in which a word was replaced by END, as a model that reads its own words may have it."""
    words = words.clone()
    words[(words[:, 3] != PAD) & (words[:, 3] != END), 2] = END
    return words


def padded(words: torch.Tensor) -> torch.Tensor:
    """Captions with padding behind the longest, too."""
    return torch.nn.functional.pad(words, (0, 2), value=PAD)


@pytest.mark.parametrize("change", [lambda words: words, own_words, padded])
def test_captions_that_end_early_are_learned_as_by_stepping(change):
    model, words = make_model().train(), change(random_words(12))
    expected, gradients = stepping_gradients(copy.deepcopy(model).eval(), words)
    found = model.word_log_probs(model.encode(random_scenes(4)), words)
    torch.testing.assert_close(found.detach(), expected, atol=1e-5, rtol=1e-5)
    for one, other in zip(torch.autograd.grad(found.sum(), list(model.parameters())), gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("block", [1, 400, 1 << 21])
def test_attention_scores_in_blocks_have_the_values_and_gradients_of_the_formula(block):
    torch.manual_seed(0)
    shapes = ((3, 5, 7), (3, 2, 7), (7,))  # keys, queries, weight
    keys, query, weight = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(lambda *given: blocked_scores(*given, block), (keys, query, weight))
    found = blocked_scores(keys, query, weight, block)
    for b in range(3):
        for k in range(2):
            for n in range(5):
                score = sum(weight[i] * torch.tanh(keys[b, n, i] + query[b, k, i]) for i in range(7))
                torch.testing.assert_close(found[b, k, n], score)
