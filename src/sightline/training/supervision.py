"""What the features of a recipe learned from: tables of results say it, and for R²M it must not be captions.

A store tells it itself where it holds a `supervision.txt`; the stores that recipes name are listed here.
"""

from __future__ import annotations

from pathlib import Path

from sightline.errors import ConfigError
from sightline.training.recipe import Recipe
from sightline.training.vision_config import Cached

CARD = "supervision.txt"  # in a feature store: one line, what its vision model learned from
SHIPPED_VISION = "abea57a550136c18"  # fingerprint of the vision model that comes with Sightline (docs/model.md)
DETECTOR = (
    "ImageNet, COCO training captions, machine boxes in COCO training photos, Flickr30k Entities boxes and names of "
    "Flickr8k training photos"
)
COCO_BOXES = "ImageNet, machine boxes in COCO training photos"
IMAGENET = "ImageNet"
STORES = {  # the end of a store's name to what its vision model learned from
    "-detector": DETECTOR,
    "-coco-boxes": COCO_BOXES,
    "-lite2": IMAGENET,
}
CONCEPTS = {  # files of concepts that recipes name
    "coco/pseudo_boxes.jsonl.gz": "boxes of COCO's classes by a detector trained on COCO's boxes",
    "flickr8k/boxes.jsonl.gz": "boxes of COCO's classes by a detector trained on COCO's boxes",
}


def supervision(recipe: Recipe, fingerprint: str = "", base: Path = Path()) -> str:
    """What the features, and the concepts if they come from a file, learned from; "" where nobody says it.

    Args:
        recipe: one row.
        fingerprint: of its scenes.
        base: what the data's root is relative to.
    """
    data = recipe.data
    if recipe.vision != Cached():
        return "ImageNet, then trained with the row's own photos and captions"
    if data.features is None:
        return ""
    card = data.path(data.features, base) / CARD
    listed = next((said for end, said in STORES.items() if data.features.name.endswith(end)), "")
    features = card.read_text(encoding="utf-8").strip() if card.is_file() else listed
    if fingerprint == SHIPPED_VISION and features != DETECTOR:
        features = DETECTOR  # whatever the store is called
    if data.concepts is None or not features:
        return features
    concepts = CONCEPTS.get(data.concepts.as_posix(), "")
    return f"{features}; concepts: {concepts}" if concepts else ""


def refuse_captions(paper: str, learned_from: str) -> None:
    """Refuse features of R²M, which learns without pairs, that learned from captions or from phrases of them."""
    if paper == "r2m" and any(word in learned_from.lower() for word in ("caption", "entities")):
        raise ConfigError(
            f"R²M learns without a pair of photo and caption, and its features learned from: {learned_from}",
            fix="use features of a backbone that never learned from captions, such as features/coco-lite2",
        )
