"""Cross-entropy against sums written out word by word, with smoothing and scheduled sampling."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from captioner_contract import GRID_WIDTH, REGION_WIDTH, VECTOR_WIDTH, WORDS, random_scenes
from objective_samples import (
    CAPTIONERS,
    descend,
    ids_of,
    make_batch,
    make_context,
    make_pool,
    matcher,
    mean_loss,
    naive_log_prob,
    scene_of,
    updown,
)
from sightline.batch import TextBatch
from sightline.config import build
from sightline.errors import ConfigError
from sightline.models import captioner as captioner_module
from sightline.models.captioner import captions_read
from sightline.models.jran import JRANConfig
from sightline.models.jran_trans import JRANTransConfig
from sightline.models.jrln import JRLNConfig
from sightline.models.neuraltalk2 import NeuralTalk2Config
from sightline.models.r2m import R2MConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.sim_trans import SimTransConfig
from sightline.models.updown import UpDown
from sightline.text.vocabulary import PAD, Vocabulary
from sightline.training.batches import Batch, Batches, Batching
from sightline.training.objective import Progress
from sightline.training.objectives.cross_entropy import CrossEntropyConfig, ScheduledSampling
from sightline.training.objectives.name_variation import NameVariation
from sightline.vision.concept_tokens import token_names

ALWAYS = ScheduledSampling(increase=1.0, every=1, limit=1.0)
SECOND_EPOCH = Progress(epoch=1)
FAVOURITE = 7  # the one word that `sure_of_a_word` ever draws


@pytest.fixture
def pool():
    return make_pool()


@pytest.fixture
def batch(pool):
    return make_batch(pool)


def objective(pool, **choices):
    return CrossEntropyConfig(**choices).build(make_context(pool))


def sure_of_a_word() -> UpDown:
    model = updown()
    with torch.no_grad():
        model.output.bias[FAVOURITE] = 60.0
    return model


@pytest.mark.parametrize("make", CAPTIONERS)
def test_it_is_the_mean_over_words_and_ends(pool, batch, make):
    model = make()
    total, tokens = 0.0, 0
    for row, words in enumerate(ids_of(batch.texts)):
        total -= naive_log_prob(model, pool, int(batch.photos[row // 2]), words).item()
        tokens += len(words) - 1
    loss = objective(pool)
    assert loss.weight(batch) == tokens
    assert mean_loss(model, loss, batch) == pytest.approx(total / tokens, rel=1e-5)


def naive_divergence(model, pool, batch, smoothing):
    """Σ over words and ENDs of KL(q ‖ p), q and p over the whole vocabulary."""
    total = torch.zeros(())
    for row, words in enumerate(ids_of(batch.texts)):
        memory = model.encode(scene_of(pool, int(batch.photos[row // 2])))
        state = model.start(memory)
        for word, following in itertools.pairwise(words):
            log_probs, state = model.step(torch.tensor([word]), memory, state)
            for other in range(WORDS):
                q = 1 - smoothing if other == following else smoothing / (WORDS - 1)
                total = total + q * (math.log(q) - log_probs[0, other])
    return total


@pytest.mark.parametrize("make", CAPTIONERS)
def test_smoothing_is_the_divergence_from_the_smoothed_word_and_so_is_its_gradient(pool, batch, make):
    model = make()
    expected = naive_divergence(model, pool, batch, 0.1)
    found = objective(pool, smoothing=0.1)(model, batch, Progress()).total
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    parameters = list(model.parameters())
    for one, other in zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_model_that_predicts_the_smoothed_word_loses_nothing(pool):
    model, batch = updown(), make_batch(pool, size=1, captions=1)
    words = batch.texts.ids
    real = words[:, 1:][words[:, 1:] != PAD]

    class Perfect(UpDown):
        def predict(self, hidden):
            q = torch.full((len(hidden), WORDS), 0.1 / (WORDS - 1))
            return q.scatter(1, real[:, None], 0.9).log() + 0 * hidden.sum()

    model.__class__ = Perfect
    assert mean_loss(model, objective(pool, smoothing=0.1), batch) == pytest.approx(0, abs=1e-5)


def test_distributions_over_the_vocabulary_exist_for_a_chunk_at_a_time(pool, batch, monkeypatch):
    monkeypatch.setattr(captioner_module, "CHUNK", 5)
    model, seen = updown(), []
    model.output.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    loss = objective(pool, smoothing=0.1)
    (loss(model, batch, Progress()).total / loss.weight(batch)).backward()
    assert len(seen) > 2
    assert all(shape[:-1].numel() <= 5 for shape in seen)


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, 0.0), (4, 0.0), (5, 0.05), (9, 0.05), (10, 0.1), (25, 0.25), (29, 0.25), (100, 0.25)]
)
def test_the_probability_grows_as_in_self_critical_code(epoch, expected):
    assert ScheduledSampling().at(epoch) == pytest.approx(expected)


def test_the_probability_counts_from_its_first_epoch():
    plan = ScheduledSampling(start=10, increase=0.2, every=2, limit=0.5)
    assert [plan.at(epoch) for epoch in (0, 11, 12, 14, 16, 18)] == pytest.approx([0, 0, 0.2, 0.4, 0.5, 0.5])


def test_words_from_the_second_on_are_read_as_drawn_and_gradients_flow_through_all_steps(pool, batch):
    model, words = sure_of_a_word().train(), batch.texts.ids
    assert not (words == FAVOURITE).any()
    found = objective(pool, scheduled_sampling=ALWAYS)(model, batch, SECOND_EPOCH).total

    read = torch.full_like(words[:, :-1], FAVOURITE)
    read[:, 0] = words[:, 0]
    hidden, _ = model.unroll(model.encode(batch.scenes), read)
    log_probs = torch.log_softmax(model.predict(hidden), -1)
    expected = torch.zeros(())
    for row in range(len(words)):
        for t in range(words.shape[1] - 1):
            if words[row, t + 1] != PAD:
                expected = expected - log_probs[row, t, words[row, t + 1]]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)
    weights = [model.attention_lstm.weight_hh, model.language_lstm.weight_hh, model.region_embedding.weight]
    for one, other in zip(torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights), strict=True):
        assert other.abs().sum() > 0
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_as_many_words_are_replaced_as_the_probability_says_each_on_its_own():
    pool = make_pool(photos=100, captions=5)
    batch = make_batch(pool, size=100, captions=5)
    model, reads = sure_of_a_word().train(), []

    class Listening(UpDown):
        def unroll(self, memory, words):
            reads.append(words)
            return super().unroll(memory, words)

    model.__class__ = Listening
    torch.manual_seed(0)
    plan = ScheduledSampling(increase=0.25, every=1, limit=1.0)
    objective(pool, scheduled_sampling=plan)(model, batch, SECOND_EPOCH)
    true, (read,) = captions_read(batch.texts.ids), reads
    assert torch.equal(read[:, 0], true[:, 0])
    replaced = (read != true)[:, 1:]
    assert (read[:, 1:][replaced] == FAVOURITE).all()
    possible = ((true != FAVOURITE) & (true != PAD))[:, 1:]
    assert float(replaced.sum() / possible.sum()) == pytest.approx(0.25, abs=0.03)
    per_row = replaced.float().mean(1)
    assert per_row.min() == 0
    assert per_row.max() > 0.5


def test_without_probability_and_in_evaluation_all_words_are_the_captions_own(pool, batch):
    plain, sampling = objective(pool), objective(pool, scheduled_sampling=ALWAYS)
    model = updown().train()
    assert mean_loss(model, sampling, batch, Progress(epoch=0)) == mean_loss(model, plain, batch)
    assert mean_loss(model, sampling, batch, SECOND_EPOCH) != mean_loss(model, plain, batch)
    model.eval()
    assert mean_loss(model, sampling, batch, SECOND_EPOCH) == mean_loss(model, plain, batch)


def test_a_rare_draw_may_replace_nothing(pool, batch):
    torch.manual_seed(0)
    rare = ScheduledSampling(increase=1e-9, every=1)
    model = updown().train()
    assert mean_loss(model, objective(pool, scheduled_sampling=rare), batch, SECOND_EPOCH) == pytest.approx(
        mean_loss(model, objective(pool), batch), rel=1e-5
    )


RELATIONS = JRLNConfig(size=8, heads=2, layers=1, dropout=0.0)
BOTH = {"region_width": REGION_WIDTH, "grid_width": GRID_WIDTH, "jrln": RELATIONS}
OTHERS = (
    NeuralTalk2Config(vector_width=VECTOR_WIDTH, word_size=8, hidden_size=8),
    JRANConfig(**BOTH, size=8, word_size=8, hidden_size=8, attention_size=8),
    SimTransConfig(region_width=REGION_WIDTH, hidden_size=8, layers=2, heads=2, ffn_size=8),
    JRANTransConfig(**BOTH, hidden_size=8, layers=2, heads=2, ffn_size=8),
    R2MConfig(hidden_size=8, heads=2, vector_width=VECTOR_WIDTH),
)


@pytest.mark.parametrize("config", OTHERS, ids=lambda config: config.kind)
@pytest.mark.parametrize("plan", [None, ScheduledSampling(increase=0.5, every=1, limit=0.5)], ids=["plain", "sampling"])
def test_every_captioner_learns_by_it(pool, batch, config, plan):
    torch.manual_seed(0)
    model = replace(config, dropout=0.0).build(WORDS).train()
    loss = objective(pool, scheduled_sampling=plan, smoothing=0.1)
    before = mean_loss(model, loss, batch)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for step in range(10):
        torch.manual_seed(step)
        optimiser.zero_grad()
        (loss(model, batch, SECOND_EPOCH).total / loss.weight(batch)).backward()
        optimiser.step()
    assert mean_loss(model, loss, batch) < before


@pytest.mark.parametrize("make", CAPTIONERS)
def test_twenty_steps_lower_it(pool, batch, make):
    model, loss = make(dropout=0.1), objective(pool)
    before = mean_loss(model.eval(), loss, batch)
    descend(model, loss, batch)
    assert mean_loss(model.eval(), loss, batch) < 0.8 * before


def test_pairs_work_like_images(pool):
    batch = Batches(pool, Batching(of="pairs", size=4), 0).batch(0, 0)
    model = updown()
    total = sum(
        -naive_log_prob(model, pool, int(photo), words).item()
        for photo, words in zip(batch.photos, ids_of(batch.texts), strict=True)
    )
    assert objective(pool)(model, batch, Progress()).total.item() == pytest.approx(total, rel=1e-5)


def test_bad_choices_are_refused():
    with pytest.raises(ConfigError, match="smoothing"):
        CrossEntropyConfig(smoothing=0.5)
    with pytest.raises(ConfigError, match="smoothing"):
        CrossEntropyConfig(smoothing=-0.1)
    for choice in ({"start": -1}, {"every": 0}, {"increase": 1.5}, {"limit": -0.1}):
        with pytest.raises(ConfigError, match=f"`scheduled_sampling.{next(iter(choice))}` is"):
            ScheduledSampling(**choice)


def test_a_recipe_can_write_it():
    plain = {"kind": "cross-entropy", "smoothing": 0.1, "scheduled_sampling": {"limit": 0.5}}
    built = build(CrossEntropyConfig, plain)
    assert built == CrossEntropyConfig(smoothing=0.1, scheduled_sampling=ScheduledSampling(limit=0.5))
    assert build(CrossEntropyConfig, {"scheduled_sampling": None}).scheduled_sampling is None


def test_matchers_and_batches_without_captions_or_photos_are_refused(pool, batch):
    loss = objective(pool)
    with pytest.raises(ConfigError, match="trains captioners, and scan is none"):
        loss(matcher(), batch, Progress())
    with pytest.raises(ConfigError, match="needs captions"):
        loss.weight(Batch(batch.photos, batch.scenes))
    with pytest.raises(ConfigError, match="needs photos"):
        loss(updown(), Batch(batch.photos, None, batch.texts, batch.captions), Progress())


def test_names_vary_in_training_alone_and_renamed_captions_are_what_is_learned():
    """All photos are renamed: what is learned is what `NameVariation.rename` gives for the same draw."""
    vocabulary = Vocabulary(["a", "an", "dog", "cat", "wallaby", "owl", "dogs", "cats", "owls", "runs"])
    names = token_names()
    config = SceneTransConfig(
        region_width=REGION_WIDTH, grid_width=GRID_WIDTH, hidden_size=16, layers=1, heads=4, ffn_size=16, dropout=0.0,
        concepts=len(names), copy=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = config.build(len(vocabulary))
    model.names.set_words(names, vocabulary)
    scenes = replace(
        random_scenes(2),
        names=torch.full((2, 2), names.index("dog")),
        name_scores=torch.full((2, 2, 2), 0.5),
        name_boxes=torch.rand(2, 2, 4),
    )
    texts = TextBatch.collate([["a", "dog", "runs"]] * 2, vocabulary)
    batch = Batch(torch.arange(2), scenes, texts)
    context = replace(make_context(make_pool()), vocabulary=vocabulary)
    plain, varied = (CrossEntropyConfig(rename=share).build(context) for share in (0.0, 1.0))
    with torch.no_grad():
        model.eval()
        assert varied(model, batch, Progress()).total == plain(model, batch, Progress()).total
        model.train()
        torch.manual_seed(3)
        found = varied(model, batch, Progress()).total
        torch.manual_seed(3)
        variation = NameVariation(names, vocabulary)
        renamed, words = variation.rename(variation.leave_out(scenes, 0.0), texts.ids, 1.0)
        assert not torch.equal(words, texts.ids)
        torch.testing.assert_close(found, -model.log_prob(model.encode(renamed), words).sum())
