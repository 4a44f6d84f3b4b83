"""What an image's representation attends to (VSRN, section 4.5): its correlation with each region, as a heat map."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.draw.attention_maps import check_weights, overlay, region_map
from sightline.draw.canvas import Photo, checked_width, fitted
from sightline.scene import Array, Scene
from sightline.vision.images import open_image


def rank_scores(correlations: Array, emphasis: float = 50.0) -> Array:
    """(n,) scores: regions ranked by correlation (0 is best) score emphasis · (n - rank)²."""
    order = np.argsort(-np.asarray(correlations, dtype=np.float64), kind="stable")
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order))
    scores: Array = emphasis * (len(order) - rank) ** 2
    return scores


def representation_attention(photo: Photo, scene: Scene, correlations: Array, width: int = 720) -> Image.Image:
    """The photo, glowing where the regions lie that correlate most with the image's vector; without a margin.

    Args:
        photo: the photo.
        scene: its boxes.
        correlations: (n,) inner product of each region with the image's vector.
        width: of the picture, in pixels.
    """
    scene.require("boxes", by="the attention of a representation")
    assert scene.boxes is not None
    checked = check_weights(correlations, len(scene), f"correlations of {scene.where}")
    fit = fitted(open_image(photo), checked_width(width))
    return overlay(fit, region_map(scene.boxes, rank_scores(checked), fit.size))
