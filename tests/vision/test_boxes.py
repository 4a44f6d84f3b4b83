"""Arithmetic of boxes, against loops over single boxes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.vision.boxes import area, clip, crop, flip, giou, pairwise_iou

torch.set_num_threads(1)

SIDE = 16
_corners = st.tuples(*[st.integers(0, SIDE)] * 4).map(
    lambda c: [min(c[0], c[2]) / SIDE, min(c[1], c[3]) / SIDE, max(c[0], c[2]) / SIDE, max(c[1], c[3]) / SIDE]
)
boxes_on_a_raster = st.lists(_corners, min_size=1, max_size=5)  # 1/16 is exact in floats, so comparisons may be


def random_boxes(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    ends = torch.rand(*shape, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=dtype).sort(-1).values
    return ends.mT.flatten(-2)


def pixels(box) -> set[tuple[int, int]]:
    x1, y1, x2, y2 = (round(float(side) * SIDE) for side in box)
    return {(x, y) for x in range(x1, x2) for y in range(y1, y2)}


@given(boxes_on_a_raster)
def test_area_counts_the_cells_inside(boxes):
    assert area(torch.tensor(boxes)).tolist() == [len(pixels(box)) / SIDE**2 for box in boxes]


def test_a_box_inside_out_has_no_area():
    assert area(torch.tensor([[0.5, 0.1, 0.2, 0.9], [0.5, 0.9, 0.2, 0.1]])).tolist() == [0, 0]


@given(boxes_on_a_raster, boxes_on_a_raster)
def test_iou_is_shared_cells_over_all_cells(a, b):
    expected = [[len(pixels(p) & pixels(q)) / max(len(pixels(p) | pixels(q)), 1) for q in b] for p in a]
    torch.testing.assert_close(pairwise_iou(torch.tensor(a), torch.tensor(b)), torch.tensor(expected))


def test_iou_of_a_batch_is_that_of_each_image_and_broadcasts():
    a, b = random_boxes(3, 5), random_boxes(3, 7, seed=1)
    together = pairwise_iou(a, b)
    assert together.shape == (3, 5, 7)
    for image in range(3):
        torch.testing.assert_close(together[image], pairwise_iou(a[image], b[image]))
    torch.testing.assert_close(pairwise_iou(a, b[0]), torch.stack([pairwise_iou(one, b[0]) for one in a]))


def test_half_precision_boxes_are_compared_in_full():
    boxes = random_boxes(6).bfloat16()
    assert pairwise_iou(boxes, boxes).dtype == giou(boxes, boxes).dtype == torch.float32
    torch.testing.assert_close(pairwise_iou(boxes, boxes).diagonal(), torch.ones(6))


@given(boxes_on_a_raster)
def test_giou_follows_the_papers_algorithm(boxes):
    a = torch.tensor(boxes)
    b = a.flip(0)
    for got, p, q in zip(giou(a, b).tolist(), boxes, reversed(boxes), strict=True):
        hull = [min(p[0], q[0]), min(p[1], q[1]), max(p[2], q[2]), max(p[3], q[3])]
        union = len(pixels(p) | pixels(q))
        around = max(len(pixels(hull)), 1)
        wasted = len(pixels(hull)) - union
        assert got == pytest.approx(len(pixels(p) & pixels(q)) / max(union, 1) - wasted / around, abs=1e-5)
        assert -1 <= got <= 1


def test_giou_pulls_boxes_together_that_do_not_touch():
    still = torch.tensor([0.7, 0.7, 0.9, 0.9])
    moving = torch.tensor([0.1, 0.1, 0.3, 0.3], requires_grad=True)
    giou(moving, still).backward()
    assert moving.grad is not None
    assert moving.grad[2] > 0
    assert moving.grad[3] > 0


def test_gradients_of_iou_and_giou_are_right():
    a = random_boxes(6, dtype=torch.float64).requires_grad_()
    b = random_boxes(6, seed=1, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(giou, (a, b))
    assert torch.autograd.gradcheck(pairwise_iou, (a, b))


@pytest.mark.parametrize("other", [[0.5, 0.5, 0.5, 0.5], [0.2, 0.2, 0.2, 0.6], [0.1, 0.1, 0.4, 0.4]])
def test_a_box_without_area_gives_finite_values_and_gradients(other):
    point = torch.tensor([0.5, 0.5, 0.5, 0.5], requires_grad=True)
    value = giou(point, torch.tensor(other))
    value.backward()
    assert point.grad is not None
    assert value.isfinite()
    assert point.grad.isfinite().all()
    assert pairwise_iou(point[None], torch.tensor([other])).tolist() == [[0]]


@given(boxes_on_a_raster)
def test_flipping_mirrors_each_box_and_twice_is_nothing(boxes):
    flipped = flip(torch.tensor(boxes))
    for box, mirrored in zip(boxes, flipped, strict=True):
        assert pixels(mirrored) == {(SIDE - 1 - x, y) for x, y in pixels(box)}
    assert torch.equal(flip(flipped), torch.tensor(boxes))


@given(boxes_on_a_raster, _corners)
def test_cropping_keeps_what_the_window_shows(boxes, window):
    if not pixels(window):
        return
    inside, visible = crop(torch.tensor(boxes), torch.tensor(window))
    x, y, right, bottom = window
    for box, cut, share in zip(boxes, inside.tolist(), visible.tolist(), strict=True):
        back = [cut[i] * (right - x, bottom - y)[i % 2] + (x, y)[i % 2] for i in range(4)]
        assert pixels(back) == pixels(box) & pixels(window)
        assert share == pytest.approx(len(pixels(box) & pixels(window)) / max(len(pixels(box)), 1), abs=1e-5)


def test_a_batch_is_cropped_by_a_window_for_each_image():
    boxes, windows = random_boxes(3, 5), random_boxes(3, seed=4)
    inside, visible = crop(boxes, windows)
    for image in range(3):
        alone = crop(boxes[image], windows[image])
        torch.testing.assert_close(inside[image], alone[0])
        torch.testing.assert_close(visible[image], alone[1])


def test_a_window_beyond_the_picture_shrinks_the_boxes():
    inside, visible = crop(torch.tensor([[0.0, 0.0, 1.0, 0.5]]), torch.tensor([-0.5, -0.5, 1.5, 1.5]))
    torch.testing.assert_close(inside, torch.tensor([[0.25, 0.25, 0.75, 0.5]]))
    torch.testing.assert_close(visible, torch.ones(1))


def test_no_more_of_a_box_is_visible_than_there_was():
    _, visible = crop(random_boxes(500), torch.tensor([-0.1, -0.3, 1.3, 1.2]))
    assert visible.max() <= 1
    torch.testing.assert_close(visible, torch.ones(500), rtol=0, atol=1e-2)


def test_clipping_cuts_what_lies_outside():
    assert clip(torch.tensor([[-0.5, 0.25, 1.5, 0.75]])).tolist() == [[0, 0.25, 1, 0.75]]
