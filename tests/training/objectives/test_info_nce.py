"""InfoNCE against loops: captions of one photo are no negatives, temperatures learn, and local scores count too."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from captioner_contract import GRID_WIDTH, REGION_WIDTH
from grounded_samples import VOCABULARY, batch, context, matcher, updown
from loop_samples import last_state, tiny_run
from objective_samples import VOCABULARY as RANDOM_WORDS
from sightline.batch import SceneBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.config import build
from sightline.errors import ConfigError
from sightline.models.scene_matcher import SceneMatcher, SceneMatcherConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch
from sightline.training.loop import train
from sightline.training.objective import Progress
from sightline.training.objectives.info_nce import InfoNCEConfig, info_nce
from sightline.training.objectives.triplet import TripletConfig
from sightline.training.stage import Optimiser, Selection, Stage

FIRST = Progress()


def scene_matcher(words: Vocabulary = VOCABULARY) -> SceneMatcher:
    torch.manual_seed(4)
    sizes = {"region_width": REGION_WIDTH, "grid_width": GRID_WIDTH, "size": 12, "word_size": 8}
    return SceneMatcherConfig(**sizes, dropout=0.0).build(len(words)).eval()


def naive(scores: torch.Tensor, owners: list[int], photos: list[int], temperature: float) -> list[float]:
    """The loss of each caption, exponential by exponential; `owners` are rows, `photos` what each row shows."""
    table = [[math.exp(float(s) / temperature) for s in row] for row in scores.detach()]
    losses = []
    for j, owner in enumerate(owners):
        own = table[owner][j]
        rivals = [table[i][j] for i in range(len(table)) if photos[i] != photos[owner]]
        others = [table[owner][k] for k in range(len(owners)) if photos[owners[k]] != photos[owner]]
        losses.append((-math.log(own / (own + sum(rivals))) - math.log(own / (own + sum(others)))) / 2)
    return losses


def test_the_loss_is_that_of_loops():
    torch.manual_seed(0)
    scores, owners = torch.randn(3, 6), [0, 0, 1, 1, 2, 2]
    owner = torch.tensor(owners)
    found = info_nce(scores / 0.5, owner, owner == torch.arange(3)[:, None])
    torch.testing.assert_close(found, torch.tensor(naive(scores, owners, [0, 1, 2], 0.5)))


def test_with_one_caption_each_it_is_the_cross_entropy_of_rows_and_columns():
    torch.manual_seed(1)
    scores, own = torch.randn(5, 5), torch.arange(5)
    expected = (nn.functional.cross_entropy(scores, own) + nn.functional.cross_entropy(scores.T, own)) / 2
    torch.testing.assert_close(info_nce(scores, own, torch.eye(5, dtype=torch.bool)).mean(), expected)


def test_its_gradient_is_that_of_differences():
    torch.manual_seed(2)
    owner = torch.tensor([0, 0, 1, 2])
    same = owner == torch.arange(3)[:, None]
    logits = torch.randn(3, 4, requires_grad=True)
    info_nce(logits, owner, same).sum().backward()
    for i in range(3):
        for j in range(4):
            nudge = torch.zeros(3, 4)
            nudge[i, j] = 1e-2
            with torch.no_grad():
                rise = (info_nce(logits + nudge, owner, same) - info_nce(logits - nudge, owner, same)).sum() / 2e-2
            assert logits.grad[i, j].item() == pytest.approx(float(rise), abs=1e-3)


def test_other_captions_of_a_photo_neither_help_nor_harm():
    owner = torch.tensor([0, 0, 1])
    same = owner == torch.arange(2)[:, None]
    logits = torch.zeros(2, 3, requires_grad=True)
    info_nce(logits, owner, same)[0].backward()
    assert logits.grad[0, 1] == 0
    assert logits.grad[0, 0] < 0 < logits.grad[0, 2]


def test_a_batch_without_negatives_costs_nothing():
    logits = torch.ones(1, 2, requires_grad=True)
    losses = info_nce(logits, torch.zeros(2, dtype=torch.long), torch.ones(1, 2, dtype=torch.bool))
    losses.sum().backward()
    assert not losses.any()
    assert not logits.grad.any()


def doubled(seen: Batch) -> Batch:
    """The same captions as pairs: each photo is in the batch once for each of its captions."""
    scenes = seen.scenes
    parts = {n: v.repeat_interleave(2, 0) for n, v in vars(scenes).items() if isinstance(v, torch.Tensor)}
    ids, shapes = ([x for x in xs for _ in range(2)] for xs in (scenes.ids, scenes.grid_shapes))
    twice = SceneBatch(tuple(ids), grid_shapes=tuple(shapes), **parts)
    return Batch(seen.photos.repeat_interleave(2), twice, seen.texts, seen.captions)


@pytest.mark.parametrize("pairs", [False, True])
def test_global_and_local_losses_are_sums_over_captions(pairs):
    model, seen = scene_matcher(), doubled(batch()) if pairs else batch()
    objective = InfoNCEConfig(temperature=0.1, local=0.5).build(context())
    losses = objective(model, seen, FIRST)
    images, texts = model.embed_images(seen.scenes), model.embed_texts(seen.texts)
    owners = list(range(8)) if pairs else [0, 0, 1, 1, 2, 2, 3, 3]
    whole = sum(naive(model.similarity(images, texts), owners, seen.photos.tolist(), 0.1))
    local = sum(naive(model.local_similarity(images, texts), owners, seen.photos.tolist(), 0.1))
    torch.testing.assert_close(losses.parts["global"].item(), whole, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(losses.parts["local"].item(), local, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(losses.total.item(), whole + 0.5 * local, atol=1e-4, rtol=1e-4)
    assert objective.weight(seen) == 8
    assert losses.parts["temperature"].item() / 8 == pytest.approx(0.1)


def test_the_hardest_negatives_add_the_triplet_loss():
    model, seen = scene_matcher(), batch()
    plain = InfoNCEConfig().build(context())(model, seen, FIRST)
    harder = InfoNCEConfig(hardest=0.3, margin=0.4).build(context())(model, seen, FIRST)
    triplet = TripletConfig(margin=0.4).build(context())(model, seen, FIRST).total
    torch.testing.assert_close(harder.parts["hardest"], triplet)
    torch.testing.assert_close(harder.total, plain.total + 0.3 * triplet)
    assert list(plain.parts) == ["global", "temperature"]


def test_any_matcher_can_be_trained_globally():
    model, seen = matcher("scan", VOCABULARY).eval(), batch()
    expected = sum(naive(model(seen.scenes, seen.texts), [0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3], 0.05))
    found = InfoNCEConfig().build(context())(model, seen, FIRST).total
    torch.testing.assert_close(found.item(), expected, atol=1e-3, rtol=1e-4)


def test_every_parameter_of_model_and_objective_learns():
    model, objective = scene_matcher().train(), InfoNCEConfig(local=1.0).build(context())
    objective(model, batch(), FIRST).total.backward()
    for name, parameter in [*model.named_parameters(), *objective.named_parameters()]:
        assert parameter.grad is not None, name
        assert (parameter.grad.abs() > 0).any(), name
    assert (objective.log_scale.grad != 0).all()


def test_the_loss_falls():
    model, objective, seen = scene_matcher().train(), InfoNCEConfig(local=1.0, hardest=0.1).build(context()), batch()
    optimiser = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=0.01)
    losses = []
    for _ in range(40):
        loss = objective(model, seen, FIRST).total / objective.weight(seen)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < 0.5 * losses[0]


def test_a_learned_temperature_stays_within_bounds_and_comes_back():
    model, objective, seen = scene_matcher(), InfoNCEConfig().build(context()), batch()
    with torch.no_grad():
        objective.log_scale.fill_(100.0)
    losses = objective(model, seen, FIRST)
    assert losses.parts["temperature"].item() / 8 == pytest.approx(0.01)
    losses.total.backward()
    assert objective.log_scale.grad.abs() > 0


def test_a_fixed_temperature_is_no_parameter_that_learns_but_is_kept():
    objective = InfoNCEConfig(learned=False).build(context())
    assert not objective.log_scale.requires_grad
    assert objective.state_dict()["log_scale"].exp().item() == pytest.approx(20)


def test_a_half_precision_run_takes_full_precision_scores():
    model, seen = scene_matcher(), batch()
    objective = InfoNCEConfig(local=0.5, hardest=0.5).build(context())
    with torch.autocast("cpu", torch.bfloat16):
        losses = objective(model, seen, FIRST)
        images, texts = model.embed_images(seen.scenes), model.embed_texts(seen.texts)
    scores = images["vector"].float() @ texts["vector"].float().T
    expected = sum(naive(scores, [0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3], 0.05))
    assert losses.parts["global"].item() == pytest.approx(expected, rel=1e-4)
    losses.total.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ConfigError, match="trains matchers, and updown is none"):
        InfoNCEConfig().build(context())(updown(), batch(), FIRST)
    with pytest.raises(ConfigError, match="scan model has no local similarity"):
        InfoNCEConfig(local=1.0).build(context())(matcher("scan", VOCABULARY), batch(), FIRST)


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"temperature": 2.0}, {"local": -1.0}, {"hardest": -1.0}])
def test_numbers_that_make_no_loss_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"`{next(iter(wrong))}`"):
        InfoNCEConfig(**wrong)


def test_recipes_name_it():
    stage = build(Stage, {"objective": {"kind": "info-nce", "local": 0.5}})
    assert stage.objective == InfoNCEConfig(local=0.5)


def test_the_temperature_is_trained_at_its_own_rate_and_kept_in_the_state(tmp_path):
    rates = Optimiser("adamw", lr=0.01, lrs={"objective": 0.1})
    stage = Stage(InfoNCEConfig(local=0.5), optimiser=rates, epochs=1, select=Selection(every=0))
    start = Checkpoint(scene_matcher(RANDOM_WORDS), RANDOM_WORDS)
    train(tiny_run(tmp_path, stage, start=start))
    _, tensors = last_state(tmp_path)
    scales = [tensor for name, tensor in tensors.items() if name.endswith("log_scale")]
    assert any(scale.shape == (2,) and abs(scale[0].item() - math.log(20)) > 0.05 for scale in scales)
