"""What tests of boxes share."""

from collections.abc import Sequence


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """IoU of two boxes, 0 where neither has an area."""
    wide = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    high = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - wide * high
    return wide * high / either if either else 0


def pixel_overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """IoU of two boxes in pixels that hold their last row and column."""
    return overlap((a[0], a[1], a[2] + 1, a[3] + 1), (b[0], b[1], b[2] + 1, b[3] + 1))
