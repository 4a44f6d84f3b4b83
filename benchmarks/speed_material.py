"""What speed is measured with: photos made from the examples, and a whole model of the default sizes, untrained."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn

from sightline.checkpoint.bundle import Bundle
from sightline.models.end_to_end import Reader
from sightline.models.scene_matcher import SceneMatcherConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.text import wordnet
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import concept_names
from sightline.vision.detector import Detector, DetectorConfig

EXAMPLES = Path(__file__).parents[1] / "examples"
WORDS = 9_487  # a vocabulary of COCO's captions has about so many
QUALITY = 90
CROPS = (0.95, 0.85, 0.75, 0.65)  # of a side
CORNERS = ((0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5))


def make_photos(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """`count` different JPEGs of one size: the examples, mirrored and cropped in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(EXAMPLES.glob("*.jpg"))
    ways = itertools.product(CROPS, CORNERS, (False, True), sources)
    made = []
    for number, (crop, corner, mirror, source) in enumerate(itertools.islice(ways, count)):
        with Image.open(source) as opened:
            image = opened.convert("RGB")
        width, height = (round(side * crop) for side in image.size)
        left, top = ((side - kept) * at for side, kept, at in zip(image.size, (width, height), corner, strict=True))
        image = image.resize(size, Image.Resampling.BICUBIC, (left, top, left + width, top + height))
        path = folder / f"{number:04d}.jpg"
        (ImageOps.mirror(image) if mirror else image).save(path, quality=QUALITY)
        made.append(path)
    if len(made) < count:
        raise ValueError(f"{count} photos were asked for, and the examples give {len(made)}")
    return made


def random_bundle(seed: int = 0) -> Bundle:
    """A model of the default sizes whose weights are random. It says nothing, and takes as long about it."""
    torch.manual_seed(seed)
    words = Vocabulary(itertools.islice((word for word in wordnet.lemmas("n") if word.isalpha()), WORDS))
    vision = DetectorConfig(size=320, names=concept_names()).build()
    _settle(vision)
    return Bundle(
        vision.eval(),
        Reader(SceneTransConfig().build(len(words)).eval(), words, "self-critical"),
        Reader(SceneMatcherConfig().build(len(words)).eval(), words, "self-critical"),
        card={"name": "random"},
        fit=30.0,
    )


@torch.no_grad()
def _settle(vision: Detector) -> None:
    """Norms that fit the random weights, and objectness that differs: tiny numbers would take a CPU longer."""
    for module in vision.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    with Image.open(EXAMPLES / "cat.jpg") as opened:
        pixels = np.array(opened.convert("RGB").resize((vision.size, vision.size)))
    vision.train()(torch.from_numpy(pixels).permute(2, 0, 1)[None].repeat(2, 1, 1, 1))
    for head in vision.heads:
        nn.init.normal_(head.objectness.weight, std=0.3)  # type: ignore[arg-type, union-attr]
