"""Suppression of all images at once, against the sequential algorithm."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from box_samples import overlap
from sightline.vision.boxes import non_maximum

torch.set_num_threads(1)


def by_score(scores: list[float], candidates: int) -> list[int]:
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:candidates]
    return [i for i in order if scores[i] > -math.inf]


def greedy(boxes: list[list[float]], scores: list[float], keep: int, iou: float, candidates: int) -> list[int]:
    kept: list[int] = []
    for i in by_score(scores, candidates):
        if len(kept) < keep and all(overlap(boxes[i], boxes[j]) <= iou for j in kept):
            kept.append(i)
    return kept


def softly(boxes: list[list[float]], scores: list[float], keep: int, bar: float, candidates: int) -> list[int]:
    left, kept = {i: scores[i] for i in by_score(scores, candidates)}, []
    while left and len(kept) < keep:
        best = max(left, key=lambda i: left[i])
        kept.append(best)
        del left[best]
        for i in left:
            left[i] *= math.exp(-((overlap(boxes[i], boxes[best]) / bar) ** 6))
    return kept


def crowd(images: int, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes that crowd around a few things, as a detector's do."""
    random = torch.Generator().manual_seed(seed)
    things = torch.rand(images, 6, 4, generator=random)
    one = torch.randint(6, (images, count, 1), generator=random).expand(-1, -1, 4)
    x, y, w, h = (
        things.gather(1, one).add(0.05 * torch.randn(images, count, 4, generator=random)).clamp(0, 1).unbind(-1)
    )
    boxes = torch.stack([x * 0.7, y * 0.7, x * 0.7 + 0.02 + w * 0.28, y * 0.7 + 0.02 + h * 0.28], -1)
    return boxes, torch.rand(images, count, generator=random)


def chosen(boxes, scores, *arguments, **options) -> list[list[int]]:
    indices, kept = non_maximum(boxes, scores, *arguments, **options)
    valid = kept > -torch.inf
    assert indices.dtype == torch.long
    assert not indices[~valid].any()
    assert (kept[:, 1:] <= kept[:, :-1]).all()
    if not options.get("soft"):
        assert torch.equal(kept[valid], scores.gather(1, indices)[valid])
    return [row[real].tolist() for row, real in zip(indices, valid, strict=True)]


@pytest.mark.parametrize("images", [1, 5])
@pytest.mark.parametrize(("keep", "iou", "candidates"), [(10, 0.5, 300), (36, 0.3, 60), (80, 0.7, 300), (100, 0.1, 99)])
def test_every_image_gets_what_the_sequential_algorithm_keeps(images, keep, iou, candidates):
    boxes, scores = crowd(images, 120)
    expected = [
        greedy(b, s, keep, iou, candidates) for b, s in zip(boxes.double().tolist(), scores.tolist(), strict=True)
    ]
    assert chosen(boxes, scores, keep, iou, candidates) == expected


_box = st.tuples(*[st.integers(0, 4)] * 4).map(
    lambda c: [min(c[0], c[2]) / 4, min(c[1], c[3]) / 4, max(c[0], c[2]) / 4, max(c[1], c[3]) / 4]
)
_absent = -math.inf


@given(st.lists(st.tuples(_box, st.sampled_from([0.25, 0.5, 0.75, -1.0, _absent])), min_size=1, max_size=14))
def test_ties_empty_boxes_and_overlaps_at_the_bar_are_as_in_the_sequential_algorithm(found):
    boxes, scores = [box for box, _ in found], [score for _, score in found]
    for keep, candidates in ((3, 300), (20, 5)):
        got = chosen(torch.tensor([boxes]), torch.tensor([scores]), keep, 0.5, candidates)
        assert got == [greedy(boxes, scores, keep, 0.5, candidates)]


def test_of_equal_scores_the_lower_index_comes_first():
    boxes = torch.tensor([[[0.0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]]).repeat(1, 40, 1)
    assert chosen(boxes, torch.ones(1, 120), 5, 0.5) == [[0, 2]]
    assert chosen(boxes, torch.ones(1, 120), 5, 1.0, candidates=4) == [[0, 1, 2, 3]]


def test_what_is_missing_is_never_chosen():
    boxes, scores = crowd(2, 30)
    scores[1] = -torch.inf
    scores[0, 5:] = -torch.inf
    first, second = chosen(boxes, scores, 36, 1.0)
    assert sorted(first) == [0, 1, 2, 3, 4]
    assert second == []


@pytest.mark.parametrize("bar", [0.4, 0.7])
def test_soft_suppression_lowers_scores_steeply_with_the_overlap(bar):
    boxes, scores = crowd(4, 100, seed=3)
    hard = chosen(boxes, scores, 30, bar, 80)
    soft = chosen(boxes, scores, 30, bar, 80, soft=True)
    rows = zip(boxes.double().tolist(), scores.double().tolist(), strict=True)
    assert soft == [softly(b, s, 30, bar, 80) for b, s in rows]
    assert soft != hard


def test_soft_suppression_drops_nothing():
    boxes = torch.tensor([[[0.0, 0, 0.5, 0.5]] * 3 + [[0.5, 0.5, 1, 1]]])
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.1]])
    assert chosen(boxes, scores, 6, 0.8, soft=True) == [[0, 3, 1, 2]]
    lower = math.exp(-(1 / 0.8**6))
    found = non_maximum(boxes, scores, 4, 0.8, soft=True)[1]
    torch.testing.assert_close(found, torch.tensor([[0.9, 0.1, 0.8 * lower, 0.7 * lower**2]]))


def test_soft_suppression_leaves_out_scores_that_are_not_above_zero():
    boxes = torch.tensor([[[0.0, 0, 0.5, 0.5]] * 4] * 2)
    scores = torch.tensor([[0.0, 0.2, -0.3, -torch.inf], [-1.0, 0.0, -2.0, 0.0]])
    assert chosen(boxes, scores, 3, 0.5, soft=True) == [[1], []]


def test_inputs_stay_as_they_were_and_results_can_be_trained_through():
    boxes, scores = crowd(2, 50)
    before = boxes.clone(), scores.clone()
    boxes.requires_grad_()
    indices, _ = non_maximum(boxes, scores.requires_grad_(), 8, 0.5)
    assert torch.equal(boxes, before[0])
    assert torch.equal(scores, before[1])
    scores.gather(1, indices).sum().backward()
    assert scores.grad is not None
    assert int(scores.grad.count_nonzero()) == len({(i, j) for i, row in enumerate(indices.tolist()) for j in row})


def test_half_precision_is_accepted():
    boxes, scores = crowd(2, 50)
    boxes, scores = boxes.bfloat16(), scores.bfloat16()
    assert chosen(boxes, scores, 20, 0.5) == chosen(boxes.float(), scores.float(), 20, 0.5)
