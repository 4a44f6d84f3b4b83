"""The triplet loss against loops, its warm-up, and VSRN's generation beside it."""

from __future__ import annotations

import pytest
import torch

from captioner_contract import REGION_WIDTH
from grounded_samples import VOCABULARY, batch, context, matcher, updown
from sightline.config import build
from sightline.errors import ConfigError
from sightline.models.vsrn import VSRN, VSRNConfig
from sightline.text.vocabulary import PAD
from sightline.training.batches import Batch
from sightline.training.objective import Progress
from sightline.training.objectives.triplet import TripletConfig, hinge

LATE = Progress(epoch=5, step=500)


def naive_hinge(scores, margin, hardest, negative, semi=False):
    """Eq. 7 of POS-SCAN and Eq. 8 of VSRN, a pair at a time."""
    scores, losses = scores.detach(), []
    for i in range(len(scores)):
        own = float(scores[i, i])
        queries = []
        for others in (
            [float(scores[i, j]) for j in range(len(scores)) if negative[i][j]],
            [float(scores[j, i]) for j in range(len(scores)) if negative[j][i]],
        ):
            if semi:
                others = [other for other in others if other < own]
            costs = [max(0.0, margin - own + other) for other in others]
            queries.append(max(costs, default=0.0) if hardest else sum(costs))
        losses.append(sum(queries))
    return torch.tensor(losses)


def all_but_diagonal(count):
    return [[i != j for j in range(count)] for i in range(count)]


@pytest.mark.parametrize(("hardest", "semi"), [(True, False), (False, False), (True, True)])
def test_the_hinge_is_that_of_loops(hardest, semi):
    torch.manual_seed(0)
    scores = torch.randn(6, 6)
    expected = naive_hinge(scores, 0.2, hardest, all_but_diagonal(6), semi)
    torch.testing.assert_close(hinge(scores, 0.2, hardest, semi=semi), expected)


def test_only_what_the_mask_allows_is_a_negative():
    torch.manual_seed(1)
    scores, mask = torch.randn(5, 5), torch.rand(5, 5) > 0.5
    torch.testing.assert_close(hinge(scores, 0.3, True, mask), naive_hinge(scores, 0.3, True, mask.tolist()))
    assert not hinge(scores, 0.3, True, torch.zeros(5, 5, dtype=torch.bool)).any()


def test_the_hardest_negative_alone_has_a_gradient():
    scores = torch.tensor([[0.5, 0.4, 0.45], [0.0, 0.9, 0.0], [0.0, 0.0, 0.9]], requires_grad=True)
    hinge(scores)[0].backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[-1.0, 0, 1], [0, 0, 0], [0, 0, 0]]))


def test_half_precision_scores_are_compared_in_full():
    scores = torch.tensor([[0.5, 0.4], [0.1, 0.5]], dtype=torch.bfloat16)
    torch.testing.assert_close(hinge(scores), hinge(scores.float()))


def pairs() -> Batch:
    """Eight pairs; the two captions of an image are both in it."""
    whole = batch()
    index = torch.arange(8) // 2
    return Batch(index, _repeated(whole.scenes), whole.texts, whole.captions)


def _repeated(scenes):
    parts = {n: v.repeat_interleave(2, 0) for n, v in vars(scenes).items() if isinstance(v, torch.Tensor)}
    return type(scenes)(tuple(i for i in scenes.ids for _ in range(2)), **parts)


@pytest.mark.parametrize("same_image", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_captions_of_one_image_are_negatives_only_where_asked(same_image, reduce):
    model, seen = matcher("scan", VOCABULARY).eval(), pairs()
    objective = TripletConfig(same_image=same_image, reduce=reduce).build(context())
    negative = [[i != j and (same_image or i // 2 != j // 2) for j in range(8)] for i in range(8)]
    expected = naive_hinge(model(seen.scenes, seen.texts), 0.2, True, negative).sum()
    losses = objective(model, seen, LATE)
    torch.testing.assert_close(losses.total, expected)
    assert objective.weight(seen) == (1 if reduce == "sum" else 8)
    assert list(losses.parts) == ["matching"]


def test_images_with_their_captions_are_the_same_as_pairs():
    model, objective = matcher("pos-scan", VOCABULARY).eval(), TripletConfig().build(context())
    torch.testing.assert_close(objective(model, batch(), LATE).total, objective(model, pairs(), LATE).total)


@pytest.mark.parametrize(
    ("config", "progress", "hardest", "semi"),
    [
        (TripletConfig(warmup=10), Progress(0, 9), False, False),
        (TripletConfig(warmup=10), Progress(0, 10), True, False),
        (TripletConfig(warmup_epochs=2), Progress(1, 500), False, False),
        (TripletConfig(warmup_epochs=2), Progress(2, 500), True, False),
        (TripletConfig(warmup=10, warmup_by="semi-hard"), Progress(0, 0), True, True),
        (TripletConfig(hardest=False), LATE, False, False),
    ],
)
def test_the_warm_up_is_milder_and_ends(config, progress, hardest, semi):
    model, seen = matcher("scan", VOCABULARY).eval(), pairs()
    negative = [[i // 2 != j // 2 for j in range(8)] for i in range(8)]
    expected = naive_hinge(model(seen.scenes, seen.texts), 0.2, hardest, negative, semi).sum()
    torch.testing.assert_close(config.build(context())(model, seen, progress).total, expected)


def vsrn(generation: bool = True) -> VSRN:
    torch.manual_seed(2)
    sizes = {"region_width": REGION_WIDTH, "size": 12, "word_size": 8, "rrr_layers": 1, "hidden_size": 10}
    return VSRNConfig(**sizes, generation=generation).build(len(VOCABULARY)).eval()


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_generation_adds_the_likelihood_of_captions_a_caption(reduce):
    model, seen = vsrn(), batch()
    objective = TripletConfig(generation=0.5, reduce=reduce).build(context())
    losses = objective(model, seen, LATE)
    images = model.embed_images(seen.scenes)
    memory = model.captioner.encode_regions(images["regions"], images["region_mask"])
    output = model.captioner(memory, seen.texts.ids)
    likelihood = 0.0
    for i, row in enumerate(seen.texts.ids):
        for t, word in enumerate(row[1:]):
            if word != PAD:
                likelihood -= output.log_probs[i, t, word].item()
    matching = TripletConfig(reduce=reduce).build(context())(model, seen, LATE).total
    weight = objective.weight(seen)
    torch.testing.assert_close(losses.total / weight, matching / weight + 0.5 * likelihood / 8)
    torch.testing.assert_close(losses.parts["generation"] / weight, torch.tensor(likelihood / 8))
    torch.testing.assert_close(losses.parts["matching"], matching)


def test_both_losses_train_the_regions():
    model, seen = vsrn(), batch()
    TripletConfig(generation=1.0).build(context())(model, seen, LATE).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
    assert model.captioner is not None
    assert next(model.captioner.parameters()).grad.abs().sum() > 0


def test_what_cannot_be_trained_is_refused():
    objective = TripletConfig(generation=1.0).build(context())
    with pytest.raises(ConfigError, match="a scan model writes no captions"):
        objective(matcher("scan", VOCABULARY), batch(), LATE)
    with pytest.raises(ConfigError, match="`generation: true`"):
        objective(vsrn(generation=False), batch(), LATE)
    with pytest.raises(ConfigError, match="updown is none"):
        objective(updown(), batch(), LATE)
    with pytest.raises(ConfigError, match="needs captions"):
        objective(vsrn(), Batch(torch.arange(4), batch().scenes), LATE)
    with pytest.raises(ConfigError, match="`margin` is -1"):
        TripletConfig(margin=-1)


def test_a_recipe_names_it():
    assert build(TripletConfig, {"kind": "triplet", "margin": 0.1}) == TripletConfig(margin=0.1)


def test_training_parts_pairs_from_the_others():
    model, seen = vsrn().train(), batch()
    objective = TripletConfig(generation=1.0, warmup=5).build(context())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    before = objective(model, seen, LATE).parts["matching"].item()
    for step in range(25):
        optimiser.zero_grad()
        objective(model, seen, Progress(0, step)).total.backward()
        optimiser.step()
    assert objective(model, seen, LATE).parts["matching"].item() < 0.5 * before
