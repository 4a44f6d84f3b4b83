"""The share of true boxes that a detector's first boxes cover."""

import sys
from pathlib import Path

import numpy as np
import pytest

from box_samples import overlap
from sightline.errors import DataError

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from measured_models import COUNTS, coverage


def random_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    ends = np.sort(random.random((count, 2, 2)), -1)
    return ends.swapaxes(1, 2).reshape(count, 4).astype(np.float32)


def test_every_true_box_weighs_the_same_and_only_the_first_k_boxes_count():
    random = np.random.default_rng(1)
    sizes = ((300, 30), (20, 20), (50, 0), (0, 2))
    photos = [(random_boxes(random, n), random_boxes(random, m)) for n, m in sizes]
    shares = coverage([boxes for boxes, _ in photos], [truth for _, truth in photos])
    assert tuple(shares) == COUNTS
    for k, share in shares.items():
        covered = [
            any(overlap(box, true) > 0.5 for box in boxes[:k].tolist())
            for boxes, truth in photos
            for true in truth.tolist()
        ]
        assert share == sum(covered) / 52
    assert shares[10] < shares[36] < shares[100]


def test_half_an_overlap_is_not_above_one_half_and_points_are_never_covered():
    whole, half, point = np.array([[0, 0, 1, 1]]), np.array([[0, 0, 1, 0.5]]), np.full((1, 4), 0.5)
    assert coverage([half, point], [whole, point]) == dict.fromkeys(COUNTS, 0.0)


def test_photos_without_true_boxes_have_no_share():
    with pytest.raises(DataError, match="no photo has a true box"):
        coverage([np.zeros((3, 4))], [np.zeros((0, 4))])
