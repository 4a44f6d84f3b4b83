"""How much of what is in photos their boxes find: the share of true boxes that some box overlaps well enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sightline.errors import DataError
from sightline.scene import box_iou

Floats = npt.NDArray[np.floating]


def covered_share(boxes: Floats, truth: Floats, iou: float = 0.5) -> npt.NDArray[np.bool_]:
    """(m,) which of the boxes `truth` (m, 4) one of `boxes` (n, 4) overlaps with an IoU strictly above `iou`."""
    return np.asarray(_overlaps(boxes, truth).max(0, initial=0) > iou)


def coverage(
    photos: Iterable[tuple[Floats, Floats]], first: Sequence[int] = (10, 36, 100), iou: float = 0.5
) -> dict[int, float]:
    """For each k of `first`, the share of all true boxes that the first k boxes of their photo cover.

    `photos` gives each photo's boxes (n, 4), best first, and true boxes (m, 4). Every true box weighs the same.
    """
    found, total = dict.fromkeys(first, 0), 0
    for boxes, truth in photos:
        overlaps = _overlaps(boxes, truth)
        total += len(truth)
        for k in first:
            found[k] += int((overlaps[:k].max(0, initial=0) > iou).sum())
    if not total:
        raise DataError("no photo has a true box, so there is no share of them", fix="give photos with annotated boxes")
    return {k: count / total for k, count in found.items()}


def _overlaps(boxes: Floats, truth: Floats) -> Floats:
    """(n, m) IoU, in double precision."""
    one, other = (np.asarray(part, np.float64).reshape(-1, 4) for part in (boxes, truth))
    return box_iou(one, other)
