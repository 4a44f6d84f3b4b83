"""Introspective learning against its formula written out caption by caption, and the other image of each caption."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from objective_samples import (
    CAPTIONERS,
    adaptive,
    descend,
    ids_of,
    make_batch,
    make_context,
    make_pool,
    matcher,
    mean_loss,
    naive_log_prob,
    updown,
)
from sightline.errors import ConfigError, CountError
from sightline.training.batches import Batch, Batches, Batching
from sightline.training.objective import Context, Progress
from sightline.training.objectives.introspective import IntrospectiveConfig, draw_mismatches
from sightline.training.tensor_tables import Pool, SceneTable


@pytest.fixture
def pool() -> Pool:
    return make_pool()


def objective(pool, seed=0, **choices):
    return IntrospectiveConfig(**choices).build(make_context(pool, seed=seed))


def gaps(model, pool, batch, others):
    """ln p(c | I) - ln p(c | I′) of each caption of a batch of two captions an image."""
    found = []
    for row, words in enumerate(ids_of(batch.texts)):
        own, other = int(batch.photos[row // 2]), int(others[batch.captions[row]])
        assert own != other
        found.append(naive_log_prob(model, pool, own, words) - naive_log_prob(model, pool, other, words))
    return found


@pytest.mark.parametrize("make", CAPTIONERS)
def test_it_is_the_mean_log_sigmoid_of_the_gap(pool, make):
    model, loss, batch = make(), objective(pool), make_batch(pool)
    found = [gap.item() for gap in gaps(model, pool, batch, loss.others)]
    expected = sum(-math.log(1 / (1 + math.exp(-gap))) for gap in found)
    assert loss.weight(batch) == 6
    assert mean_loss(model, loss, batch) == pytest.approx(expected / 6, rel=1e-4)
    assert loss(model, batch, Progress()).parts["gap"].item() == pytest.approx(sum(found), abs=1e-4)


def test_with_a_margin_it_is_what_the_gap_lacks(pool):
    model, batch = updown(), make_batch(pool)
    loss = objective(pool, loss="max-margin", margin=0.02)
    found = [gap.item() for gap in gaps(model, pool, batch, loss.others)]
    assert any(gap > 0.02 for gap in found)
    assert any(gap < 0.02 for gap in found)
    expected = sum(max(0.0, 0.02 - gap) for gap in found)
    assert mean_loss(model, loss, batch) == pytest.approx(expected / 6, rel=1e-3, abs=1e-6)


def test_gradients_go_through_both_images_since_the_target_is_its_own_reference(pool):
    model, loss, batch = updown(), objective(pool), make_batch(pool)
    expected = sum(-torch.nn.functional.logsigmoid(gap) for gap in gaps(model, pool, batch, loss.others))
    found = loss(model, batch, Progress()).total
    parameters = list(model.parameters())
    for one, other in zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_two_equal_images_are_equally_likely_without_dropout_and_not_with_it(pool):
    same = pool.scenes.batch(torch.zeros(len(pool), dtype=torch.long))
    pool = Pool(pool.ids, SceneTable(same), pool.texts, pool.first)
    model, batch = adaptive(dropout=0.5).train(), make_batch(pool)
    with torch.no_grad():
        model.output.weight *= 20  # an opinion that dropout can disturb
    found = {}
    for dropout in (False, True):
        torch.manual_seed(0)
        found[dropout] = mean_loss(model, objective(pool, target_dropout=dropout), batch)
        assert model.training
    assert found[False] == pytest.approx(math.log(2), abs=1e-5)  # -ln σ(0)
    assert abs(found[True] - math.log(2)) > 0.02


def test_the_other_image_of_a_caption_is_kept_from_batch_to_batch_and_run_to_run(pool):
    loss, again = objective(pool, seed=3), objective(pool, seed=3)
    assert torch.equal(loss.others, again.others)
    assert not torch.equal(loss.others, objective(pool, seed=4).others)
    assert not loss.state_dict()
    model = updown()
    one, two = (make_batch(pool, size=6, seed=seed) for seed in (0, 1))
    assert one.photos.tolist() != two.photos.tolist()
    assert mean_loss(model, loss, one) == pytest.approx(mean_loss(model, loss, two), rel=1e-5)


def test_any_other_image_is_as_likely_and_never_the_captions_own():
    pool = make_pool(photos=5, captions=400)
    others = draw_mismatches(pool, 0).numpy()
    own = np.repeat(np.arange(5), 400)
    counts = np.zeros((5, 5), int)
    np.add.at(counts, (own, others), 1)
    assert (counts.diagonal() == 0).all()
    assert counts[~np.eye(5, dtype=bool)].min() > 60
    assert counts[~np.eye(5, dtype=bool)].max() < 140


def test_photos_may_have_different_numbers_of_captions(pool):
    uneven = Pool(pool.ids, pool.scenes, pool.texts, np.array([0, 1, 4, 4, 8, 10, 12]))
    own = [0, 1, 1, 1, 3, 3, 3, 3, 4, 4, 5, 5]
    assert all(other != photo for other, photo in zip(draw_mismatches(uneven, 0).tolist(), own, strict=True))


@pytest.mark.parametrize("loss", ["log-sigmoid", "max-margin"])
@pytest.mark.parametrize("make", CAPTIONERS)
def test_twenty_steps_lower_it(pool, make, loss):
    model, loss, batch = make(dropout=0.1), objective(pool, loss=loss), make_batch(pool)
    model.eval()
    before = loss(model, batch, Progress())
    descend(model, loss, batch)
    model.eval()
    after = loss(model, batch, Progress())
    assert after.total < before.total
    assert after.parts["gap"] > before.parts["gap"]


def test_pairs_work_like_images(pool):
    model, loss = updown(), objective(pool)
    batch = Batches(pool, Batching(of="pairs", size=4), 0).batch(0, 0)
    expected = 0.0
    for photo, row, words in zip(batch.photos.tolist(), batch.captions.tolist(), ids_of(batch.texts), strict=True):
        other = int(loss.others[row])
        gap = naive_log_prob(model, pool, photo, words) - naive_log_prob(model, pool, other, words)
        expected -= math.log(1 / (1 + math.exp(-gap.item())))
    assert loss(model, batch, Progress()).total.item() == pytest.approx(expected, rel=1e-4)


def test_bad_choices_are_refused():
    for margin in (0.0, -1.0, math.inf):
        with pytest.raises(ConfigError, match="`margin` is"):
            IntrospectiveConfig(margin=margin)


def test_pools_that_have_no_other_image_are_refused(pool):
    with pytest.raises(ConfigError, match="training split"):
        IntrospectiveConfig().build(Context(make_context(pool).vocabulary))
    with pytest.raises(ConfigError, match="needs captions"):
        objective(Pool(pool.ids, pool.scenes))
    with pytest.raises(CountError, match="there is one photo"):
        objective(make_pool(photos=1))


def test_matchers_and_batches_without_captions_are_refused(pool):
    loss, batch = objective(pool), make_batch(pool)
    with pytest.raises(ConfigError, match="trains captioners"):
        loss(matcher(), batch, Progress())
    with pytest.raises(ConfigError, match="needs captions"):
        loss.weight(Batch(batch.photos, batch.scenes))
