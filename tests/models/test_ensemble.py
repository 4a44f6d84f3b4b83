"""Ensembles: the mean of probabilities, member by member."""

from __future__ import annotations

import math

import pytest
import torch

from captioner_contract import (
    GRID_WIDTH,
    REGION_WIDTH,
    VECTOR_WIDTH,
    WORDS,
    CaptionerContract,
    random_scenes,
    random_words,
)
from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.errors import ConfigError
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.captioner import expand
from sightline.models.ensemble import Ensemble
from sightline.models.neuraltalk2 import NeuralTalk2Config
from sightline.models.updown import UpDownConfig
from sightline.text.vocabulary import Vocabulary


def updown(hidden_size: int = 16, vocab_size: int = WORDS):
    sizes = {"word_size": 12, "attention_size": 8, "dropout": 0.0}
    return UpDownConfig(region_width=REGION_WIDTH, hidden_size=hidden_size, **sizes).build(vocab_size).eval()


def adaptive():
    sizes = {"word_size": 12, "hidden_size": 20, "attention_size": 8, "dropout": 0.0}
    return AdaptiveAttentionConfig(grid_width=GRID_WIDTH, vector_width=VECTOR_WIDTH, **sizes).build(WORDS).eval()


def neuraltalk2():
    sizes = {"word_size": 12, "hidden_size": 18, "dropout": 0.0}
    return NeuralTalk2Config(vector_width=VECTOR_WIDTH, **sizes).build(WORDS).eval()


class TestEnsemble(CaptionerContract):
    overfit_rate = 0.02
    outside_likelihood = ("members.0.attention_score.bias",)

    def build(self):
        return Ensemble([updown(40), adaptive()])

    def test_it_overfits_fifty_captions_and_says_them(self):
        """Its members are trained, each alone."""

    def test_saved_and_loaded_it_is_bit_identical(self, model, scenes, tmp_path):
        with pytest.raises(ConfigError, match="save its members"):
            save(tmp_path / "model.safetensors", Checkpoint(model, Vocabulary([f"w{i}" for i in range(WORDS - 4)])))
        assert not list(tmp_path.iterdir())


@pytest.fixture
def members():
    torch.manual_seed(0)
    return [updown(), adaptive(), updown(24)]


def naive(members, scenes, words):
    """(N, T, V) log of the mean of probabilities, number by number."""
    probabilities = [member(member.encode(scenes), words).log_probs.exp().tolist() for member in members]
    rows = []
    for row in range(len(words)):
        for step in range(words.shape[1] - 1):
            for word in range(WORDS):
                total = sum(p[row][step][word] for p in probabilities)
                rows.append(math.log(total / len(members)))
    return torch.tensor(rows).view(len(words), -1, WORDS)


def test_a_words_probability_is_the_mean_of_the_members(members):
    model, scenes, words = Ensemble(members), random_scenes(2), random_words(4)
    expected = naive(members, scenes, words)
    torch.testing.assert_close(model(model.encode(scenes), words).log_probs, expected, atol=1e-5, rtol=1e-5)


def test_a_step_is_the_log_of_the_mean_probability_of_the_members_steps(members):
    model, scenes, words = Ensemble(members), random_scenes(2), torch.tensor([5, 6, 7, 5])
    memory = model.encode(scenes)
    log_probs, state = model.step(words, memory, expand(model.start(memory), 4))
    mean = torch.zeros(4, WORDS)
    for number, member in enumerate(members):
        own = member.encode(scenes)
        alone, after = member.step(words, own, expand(member.start(own), 4))
        mean += alone.exp() / 3
        for name, part in own.items():
            assert torch.equal(memory[f"{number}.{name}"], part)
        for name, part in after.items():
            torch.testing.assert_close(state[f"{number}.{name}"], part)
    torch.testing.assert_close(log_probs, mean.log())


def test_an_ensemble_of_one_or_of_twins_is_that_captioner(members):
    scenes, words = random_scenes(2), random_words(4)
    alone = members[0]
    expected = alone(alone.encode(scenes), words)
    for count in (1, 2):
        model = Ensemble([alone] * count)
        output = model(model.encode(scenes), words)
        torch.testing.assert_close(output.log_probs, expected.log_probs)
        torch.testing.assert_close(output.trace.regions, expected.trace.regions)
        assert torch.equal(output.hidden, torch.cat([expected.hidden] * count, -1))


def test_ensembles_nest(members):
    scenes, words = random_scenes(2), random_words(4)
    members = [*members, updown(20)]
    nested, flat = Ensemble([Ensemble(members[:2]), Ensemble(members[2:])]), Ensemble(members)
    torch.testing.assert_close(nested.log_prob(nested.encode(scenes), words), flat.log_prob(flat.encode(scenes), words))


def test_more_than_ten_members_keep_their_memories_apart():
    torch.manual_seed(0)
    members = [neuraltalk2() for _ in range(12)]
    model, scenes, words = Ensemble(members), random_scenes(2), random_words(2, longest=2)
    expected = naive(members, scenes, words)
    torch.testing.assert_close(model(model.encode(scenes), words).log_probs, expected, atol=1e-5, rtol=1e-5)


def test_attention_is_the_members_mean_where_every_member_has_one():
    torch.manual_seed(0)
    one, other, grid = updown(), updown(24), adaptive()
    scenes, words = random_scenes(2), random_words(4)
    model = Ensemble([one, other])
    trace = model(model.encode(scenes), words).trace
    own = [member(member.encode(scenes), words).trace.regions for member in (one, other)]
    torch.testing.assert_close(trace.regions, (own[0] + own[1]) / 2)
    assert trace.grid is None
    mixed = Ensemble([one, grid])
    trace = mixed(mixed.encode(scenes), words).trace
    assert trace.regions is None
    assert trace.grid is None
    sentinel = grid(grid.encode(scenes), words).trace.gates["sentinel"]
    torch.testing.assert_close(trace.gates, {"1.sentinel": sentinel})


def test_it_needs_what_any_member_needs(members):
    assert Ensemble(members).needs == ("regions", "grid", "vector")


def test_what_cannot_be_an_ensemble_is_refused(members):
    with pytest.raises(ConfigError, match="24 and 30 words"):
        Ensemble([members[0], updown(vocab_size=30)])
    with pytest.raises(ConfigError, match="empty"):
        Ensemble([])
