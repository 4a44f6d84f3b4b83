"""Contrastive learning against Eq. 5-10 written out pair by pair, and what may not move: the reference."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from objective_samples import (
    CAPTIONERS,
    VOCABULARY,
    adaptive,
    checkpoint,
    descend,
    ids_of,
    make_batch,
    make_context,
    make_pool,
    matcher,
    mean_loss,
    naive_log_prob,
    neuraltalk2,
    updown,
)
from sightline.batch import SceneBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import CheckpointError, ConfigError
from sightline.models.updown import UpDown
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch, Batches, Batching
from sightline.training.objective import Progress
from sightline.training.objectives.contrastive import Contrastive, ContrastiveConfig
from sightline.training.state import Counters, load_state, restore, save_state
from sightline.training.tensor_tables import Pool, SceneTable


@pytest.fixture
def pool() -> Pool:
    return make_pool()


def objective(pool, reference=None, **choices) -> Contrastive:
    """With a reference model, or with the copy that `begin` makes."""
    choices = {"negatives": 2, **choices}
    if reference is None:
        return ContrastiveConfig(**choices).build(make_context(pool))
    find = {"base": checkpoint(reference)}.__getitem__
    return ContrastiveConfig(reference="base", **choices).build(make_context(pool, find))


def pair_probabilities(target, reference, pool, batch):
    """(ln p_m, ln p_n) of each true pair, and of each mismatched pair."""
    true, mismatched = [], []
    for found, texts in [(true, batch.texts), *((mismatched, texts) for texts in batch.negatives)]:
        for row, words in enumerate(ids_of(texts)):
            photo = int(batch.photos[row // 2])
            found.append([naive_log_prob(model, pool, photo, words).item() for model in (target, reference)])
    return true, mismatched


@pytest.mark.parametrize("nu", [1.0, 3.0])
@pytest.mark.parametrize(("make", "make_reference"), [(updown, updown), (updown, adaptive), (adaptive, adaptive)])
def test_it_is_minus_j_of_equation_10(pool, make, make_reference, nu):
    target, reference = make(seed=1), make_reference(seed=2).eval()
    loss = objective(pool, reference, nu=nu)
    batch = make_batch(pool, loss)
    true, mismatched = pair_probabilities(target, reference, pool, batch)
    expected = 0.0
    for p_m, p_n in true:
        expected -= math.log(1 / (1 + nu * math.exp(-(p_m - p_n))))
    for p_m, p_n in mismatched:
        expected -= math.log(1 - 1 / (1 + nu * math.exp(-(p_m - p_n)))) / 2
    assert loss.weight(batch) == len(true) == 6
    assert len(mismatched) == 12
    assert mean_loss(target, loss, batch) == pytest.approx(expected / 6, rel=1e-4)

    parts = loss(target, batch, Progress()).parts
    assert parts["G true"].item() == pytest.approx(sum(m - n for m, n in true), abs=1e-3)
    assert parts["G mismatched"].item() == pytest.approx(sum(m - n for m, n in mismatched) / 2, abs=1e-3)
    pull = sum(1 - 1 / (1 + nu * math.exp(n - m)) for m, n in true)
    push = sum(1 / (1 + nu * math.exp(n - m)) for m, n in mismatched) / 2
    assert parts["pull"].item() == pytest.approx(pull, rel=1e-4)
    assert parts["push"].item() == pytest.approx(push, rel=1e-4)


def test_the_terms_alone_are_its_two_parts(pool):
    target, reference = updown(seed=1), updown(seed=2)
    full = objective(pool, reference)
    batch = make_batch(pool, full)
    whole = full(target, batch, Progress())

    positive = objective(pool, reference, terms="positive")
    assert positive.negatives == 0
    only_true = Batch(batch.photos, batch.scenes, batch.texts, batch.captions)
    alone = positive(target, only_true, Progress())
    torch.testing.assert_close(alone.total, whole.parts["positive"])
    assert set(alone.parts) == {"positive", "G true", "pull"}

    negative = objective(pool, reference, terms="negative")
    assert negative.negatives == 2
    alone = negative(target, batch, Progress())
    torch.testing.assert_close(alone.total, whole.parts["negative"])
    assert set(alone.parts) == {"negative", "G mismatched", "push"}
    torch.testing.assert_close(whole.total, whole.parts["positive"] + whole.parts["negative"])


def test_without_ratio_it_is_the_difference_of_equation_6_times_the_scale(pool):
    target, reference = updown(seed=1), updown(seed=2)
    loss = objective(pool, reference, ratio=False, scale=1e6)
    batch = make_batch(pool, loss)
    true, mismatched = pair_probabilities(target, reference, pool, batch)
    expected = -sum(math.exp(m) - math.exp(n) for m, n in true)
    expected += sum(math.exp(m) - math.exp(n) for m, n in mismatched) / 2
    assert loss(target, batch, Progress()).total.item() == pytest.approx(1e6 * expected, rel=1e-3)


def test_without_ratio_the_reference_has_no_effect_on_the_gradient(pool):
    target = updown(seed=1)
    gradients = []
    for reference in (updown(seed=2), updown(seed=3)):
        loss = objective(pool, reference, ratio=False)
        batch = make_batch(pool, loss)
        gradients.append(torch.autograd.grad(loss(target, batch, Progress()).total, list(target.parameters())))
    assert sum(float(part.abs().sum()) for part in gradients[0]) > 0
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("ratio", [True, False])
def test_pairs_that_are_certain_or_impossible_give_finite_losses_and_gradients(pool, ratio):
    target = updown(seed=1)
    with torch.no_grad():
        target.output.weight *= 3000
    loss = objective(pool, updown(seed=2), ratio=ratio)
    batch = make_batch(pool, loss)
    losses = loss(target, batch, Progress())
    assert losses.parts["G true"] < -1000
    assert losses.total.isfinite()
    losses.total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in target.parameters())


def test_equal_models_lose_two_ln_2_and_still_learn(pool):
    target = updown()
    loss = objective(pool)
    loss.begin(target)
    batch = make_batch(pool, loss)
    assert mean_loss(target, loss, batch) == pytest.approx(2 * math.log(2), rel=1e-5)
    loss(target, batch, Progress()).total.backward()
    assert target.output.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("make", [*CAPTIONERS, neuraltalk2])
def test_a_copy_of_the_target_pulls_and_pushes_alike_without_dropout_and_not_with_it(pool, make):
    target = make(dropout=0.5).train()
    with torch.no_grad():
        target.output.weight *= 20  # an opinion that dropout can disturb
    found = {}
    for dropout in (False, True):
        torch.manual_seed(0)
        loss = objective(pool, target_dropout=dropout)
        loss.begin(target)
        batch = make_batch(pool, loss)
        parts = loss(target, batch, Progress()).parts
        found[dropout] = [parts[name].item() / loss.weight(batch) for name in ("pull", "push")]
        assert target.training
    assert found[False] == pytest.approx([0.5, 0.5], abs=1e-5)
    assert all(abs(value - 0.5) > 0.02 for value in found[True]), found


def test_without_dropout_the_gradient_is_that_of_the_evaluated_target(pool):
    target, reference = adaptive(seed=1, dropout=0.5), adaptive(seed=2)
    loss = objective(pool, reference)
    batch = make_batch(pool, loss)
    gradients = []
    for training in (True, False):
        target.train(training)
        gradients.append(torch.autograd.grad(loss(target, batch, Progress()).total, list(target.parameters())))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_in_bfloat16_log_probabilities_are_summed_in_float32(pool):
    target, reference = adaptive(seed=1), adaptive(seed=2)
    loss = objective(pool, reference)
    batch = make_batch(pool, loss)
    precise = loss(target, batch, Progress())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = loss(target, batch, Progress())
    assert {part.dtype for part in [rounded.total, *rounded.parts.values()]} == {torch.float32}
    for name, part in precise.parts.items():
        assert rounded.parts[name].item() == pytest.approx(part.item(), abs=0.2), name


def test_the_difference_has_neither_pull_nor_push(pool):
    loss = objective(pool, updown(seed=2), ratio=False)
    assert set(loss(updown(), make_batch(pool, loss), Progress()).parts) & {"pull", "push"} == set()


@pytest.mark.parametrize("make", CAPTIONERS)
def test_true_pairs_become_likelier_and_mismatched_ones_less_likely_than_under_the_reference(pool, make):
    target = make(dropout=0.1)
    loss = objective(pool)
    loss.begin(target)
    batch = make_batch(pool, loss)
    target.eval()
    before = mean_loss(target, loss, batch)
    descend(target, loss, batch)
    target.eval()
    after = loss(target, batch, Progress())
    assert after.total.item() / loss.weight(batch) < 0.9 * before
    assert after.parts["G true"] > 0
    assert after.parts["G mismatched"] < 0


@pytest.mark.parametrize("terms", ["positive", "negative"])
def test_each_term_alone_moves_its_own_pairs(pool, terms):
    target = updown()
    loss = objective(pool, terms=terms)
    loss.begin(target)
    batch = make_batch(pool, loss)
    descend(target, loss, batch, steps=10)
    parts = loss(target, batch, Progress()).parts
    assert parts["G true"] > 0 if terms == "positive" else parts["G mismatched"] < 0


def test_the_difference_too_can_be_learnt(pool):
    target, loss = updown(), objective(pool, ratio=False)
    loss.begin(target)
    batch = make_batch(pool, loss)
    before = mean_loss(target, loss, batch)
    descend(target, loss, batch)
    assert mean_loss(target, loss, batch) < before


@pytest.mark.parametrize("named", [True, False])
def test_the_reference_gets_no_gradient_and_no_update_and_no_dropout(pool, named):
    target = updown(seed=1, dropout=0.5)
    base = updown(seed=2, dropout=0.5) if named else target
    loss = objective(pool, base if named else None)
    loss.begin(target)
    batch = make_batch(pool, loss)
    reference = loss.reference.get(batch.scenes)
    assert reference is not target
    before = copy.deepcopy(reference.state_dict())
    descend(target, loss, batch, steps=3)
    loss.train()
    assert loss.reference.get(batch.scenes) is reference
    assert not reference.training
    assert all(p.grad is None and not p.requires_grad for p in reference.parameters())
    assert not any(parameter.requires_grad for parameter in loss.parameters())
    for name, part in reference.state_dict().items():
        assert torch.equal(part, before[name]), name
    assert any(not torch.equal(part, before[name]) for name, part in target.state_dict().items())


class Counting(UpDown):
    """Counts the images it encodes."""

    encoded = 0

    def encode(self, scenes: SceneBatch):
        self.encoded += len(scenes)
        return super().encode(scenes)


def test_each_image_is_encoded_once_by_the_target_and_once_by_the_reference(pool):
    target, base = updown(seed=1), updown(seed=2)
    target.__class__ = base.__class__ = Counting
    loss = objective(pool, base, negatives=5)
    loss(target, make_batch(pool, loss), Progress())
    assert target.encoded == base.encoded == 3


def test_batches_of_pairs_have_one_mismatched_caption_for_each_k(pool):
    target, reference = updown(seed=1), updown(seed=2).eval()
    loss = objective(pool, reference)
    batch = Batches(pool, Batching(of="pairs", size=4), 0, loss.negatives).batch(0, 0)
    expected = 0.0
    for texts, sign, share in [(batch.texts, 1, 1.0), *((texts, -1, 0.5) for texts in batch.negatives)]:
        for photo, words in zip(batch.photos.tolist(), ids_of(texts), strict=True):
            gap = naive_log_prob(target, pool, photo, words) - naive_log_prob(reference, pool, photo, words)
            expected -= share * math.log(1 / (1 + math.exp(-sign * gap.item())))
    assert loss(target, batch, Progress()).total.item() == pytest.approx(expected, rel=1e-4)


def test_a_copied_reference_is_part_of_the_state_and_resuming_is_exact(pool, tmp_path):
    target, loss = updown(seed=1), objective(pool)
    loss.begin(target)
    batch = make_batch(pool, loss)
    descend(target, loss, batch, steps=3)
    optimiser = torch.optim.SGD(target.parameters())
    path = save_state(tmp_path, Counters(), target, loss, optimiser, {})

    resumed, again = updown(seed=5), objective(pool)
    tensors = load_state(path)[1]
    restore(tensors, resumed, "model/")
    again.begin(resumed, epoch=1)
    restore(tensors, again, "objective/")
    assert mean_loss(resumed, again, batch) == mean_loss(target, loss, batch)
    descend(target, loss, batch, steps=3)
    descend(resumed, again, batch, steps=3)
    assert mean_loss(resumed, again, batch) == mean_loss(target, loss, batch)


def test_a_checkpoint_as_reference_is_left_out_of_the_state(pool):
    loss = objective(pool, updown(seed=2))
    loss.begin(updown(seed=1))
    assert not loss.state_dict()
    objective(pool, updown(seed=2)).load_state_dict(loss.state_dict())


def test_the_reference_is_replaced_by_the_latest_target_every_so_many_epochs(pool):
    target, base = updown(seed=1), adaptive(seed=2)
    loss = objective(pool, base, replace_every=2)
    loss.begin(target)
    batch = make_batch(pool, loss)
    loss.after_epoch(target, 0)
    assert loss.reference.get(batch.scenes) is base
    loss.after_epoch(target, 1)
    copied = loss.reference.get(batch.scenes)
    assert isinstance(copied, UpDown)
    assert copied is not target
    assert mean_loss(target, loss, batch) == pytest.approx(2 * math.log(2), rel=1e-5)
    descend(target, loss, batch, steps=2)
    loss.after_epoch(target, 2)
    assert loss.reference.get(batch.scenes) is copied

    again = objective(pool, base, replace_every=2)
    again.begin(target, epoch=3)
    again.load_state_dict(loss.state_dict())
    assert mean_loss(target, again, batch) == mean_loss(target, loss, batch)
    assert mean_loss(target, again, batch) != pytest.approx(2 * math.log(2), rel=1e-3)
    loss.after_epoch(target, 3)
    assert mean_loss(target, loss, batch) == pytest.approx(2 * math.log(2), rel=1e-5)


def test_a_reference_with_other_words_is_refused(pool):
    context = make_context(pool, lambda name: checkpoint(updown(), Vocabulary(reversed(VOCABULARY.words))))
    with pytest.raises(ConfigError, match="row:NT: the reference knows 24 words") as caught:
        ContrastiveConfig(reference="row:NT").build(context)
    assert "one word list" in str(caught.value)


def test_a_reference_that_is_a_matcher_is_refused(pool):
    context = make_context(pool, lambda name: Checkpoint(matcher(), VOCABULARY))
    with pytest.raises(CheckpointError, match="cannot write captions"):
        ContrastiveConfig(reference="scan.safetensors").build(context)


def test_a_reference_that_was_trained_on_other_features_is_refused(pool):
    scenes = pool.scenes.scenes
    marked = SceneTable(SceneBatch(**{**vars(scenes), "fingerprint": "resnet"}))
    pool = Pool(pool.ids, marked, pool.texts, pool.first)
    for fingerprint, fits in (("resnet", True), ("", True), ("vgg", False)):
        found = checkpoint(updown(), fingerprint=fingerprint)
        loss = ContrastiveConfig(reference="base").build(make_context(pool, lambda name, found=found: found))
        batch = make_batch(pool, loss)
        if fits:
            assert loss(updown(), batch, Progress()).total.isfinite()
        else:
            with pytest.raises(ConfigError, match="trained on scenes vgg, and these are resnet"):
                loss(updown(), batch, Progress())


def test_bad_choices_are_refused():
    for choice in ({"negatives": 0}, {"nu": 0.0}, {"scale": math.inf}, {"replace_every": -1}, {"reference": ""}):
        with pytest.raises(ConfigError, match=f"`{next(iter(choice))}` is"):
            ContrastiveConfig(**choice)


def test_models_that_write_no_captions_are_refused(pool):
    with pytest.raises(ConfigError, match="trains captioners"):
        objective(pool).begin(matcher())
