"""The share of true boxes that are found."""

import numpy as np
import pytest

from box_samples import overlap
from sightline.errors import DataError
from sightline.vision.coverage import coverage, covered_share


def random_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    ends = np.sort(random.random((count, 2, 2)), -1)
    return ends.swapaxes(1, 2).reshape(count, 4).astype(np.float32)


@pytest.mark.parametrize("iou", [0.3, 0.5])
def test_a_true_box_is_covered_if_any_box_overlaps_it_enough(iou):
    random = np.random.default_rng(0)
    boxes, truth = random_boxes(random, 40), random_boxes(random, 25)
    expected = [any(overlap(box, true) > iou for box in boxes.tolist()) for true in truth.tolist()]
    assert covered_share(boxes, truth, iou).tolist() == expected
    assert 0 < sum(expected) < 25


def test_half_an_overlap_is_not_above_one_half():
    whole, half = np.array([[0, 0, 1, 1]]), np.array([[0, 0, 1, 0.5]])
    assert covered_share(half, whole).tolist() == [False]
    assert covered_share(half, whole, 0.49).tolist() == [True]


def test_empty_boxes_cover_nothing_and_are_never_covered():
    point, none = np.full((1, 4), 0.5), np.zeros((0, 4))
    assert covered_share(point, point).tolist() == [False]
    assert covered_share(none, np.array([[0, 0, 1, 1]])).tolist() == [False]
    assert covered_share(point, none).shape == (0,)


def test_every_true_box_weighs_the_same_and_only_the_first_k_boxes_count():
    random = np.random.default_rng(1)
    photos = [(random_boxes(random, n), random_boxes(random, m)) for n, m in ((120, 3), (5, 9), (50, 0), (0, 2))]
    shares = coverage(iter(photos), first=(1, 10, 100), iou=0.3)
    for k, share in shares.items():
        found = sum(int(covered_share(boxes[:k], truth, 0.3).sum()) for boxes, truth in photos)
        assert share == found / 14
    assert list(shares) == [1, 10, 100]
    assert shares[1] < shares[10] < shares[100]


def test_photos_without_true_boxes_have_no_share():
    with pytest.raises(DataError, match="no photo has a true box"):
        coverage([(np.zeros((3, 4)), np.zeros((0, 4)))])
