"""A whole model, tiny and random: it sees, speaks and points, and what it says means nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

import sightline
from sightline.checkpoint.bundle import Bundle
from sightline.grounding.box_chooser import BoxChooser
from sightline.models.end_to_end import Reader
from sightline.models.scene_matcher import SceneMatcherConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.word_pointer import WordPointerConfig
from sightline.text.vocabulary import END, Vocabulary
from sightline.vision.detector import Detector, DetectorConfig
from sightline.vision.images import read_pixels

EXAMPLES = Path(__file__).parents[1] / "examples"
WORDS = "a the dog cat man woman ball park table cup sits runs holds with on in front of red two".split()
NAMES = ("dog", "cat", "person", "ball")
SIZE = 64


def tiny_bundle(seed: int = 3, matcher: bool = True, other_words: bool = False, pointer: bool = False) -> Bundle:
    """A detector of 64 pixels, a captioner of 20 words, and a matcher of the same words, or of others."""
    torch.manual_seed(seed)
    words = Vocabulary(WORDS)
    known = Vocabulary(reversed(WORDS[:-4])) if other_words else words
    vision = DetectorConfig(variant="lite0", size=SIZE, channels=16, region_width=24, names=NAMES, boxes=9).build()
    sizes = {"region_width": 24, "grid_width": 1280, "heads": 2}
    says = SceneTransConfig(hidden_size=32, layers=1, encoder_layers=1, ffn_size=32, tied=False, **sizes).build(
        len(words)
    )
    finds = SceneMatcherConfig(size=16, word_size=16, **sizes).build(len(known))
    points = WordPointerConfig(word_width=16, region_width=24, size=8).build().eval() if pointer else None
    awaken(vision)
    with torch.no_grad():
        says.output.weight[END] = 0  # so that something is said
        for layer in says.layers:
            layer.cross_attention.output.weight.mul_(3)  # and that photos matter to what it is
    return Bundle(
        vision.eval(),
        Reader(says.eval(), words, "self-critical"),
        Reader(finds.eval(), known, "self-critical") if matcher else None,
        points,
        pointing=BoxChooser(least=0.02),
        card={"name": "tiny"},
    )


@torch.no_grad()
def awaken(vision: Detector) -> None:
    """Let a random detector tell photos apart, and find things in them."""
    norms = [module for module in vision.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    photos = [read_pixels(path, SIZE)[0] for path in sorted(EXAMPLES.glob("*.jpg"))]
    vision.train()(torch.from_numpy(np.stack(photos)).permute(0, 3, 1, 2))
    vision.naming.bias.fill_(0)
    for head in vision.heads:
        head.objectness.bias.fill_(1)
        head.objectness.weight.normal_(std=0.3)


def draw_photo(path: Path, size: tuple[int, int] = (160, 120), colour: str = "red") -> Path:
    """A photo of a disc."""
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).ellipse((20, 20, 80, 80), fill=colour)
    image.save(path)
    return path


def package_without_weights(folder: Path) -> Path:
    """The package under another roof, by links, all but its weights: what PYTHONPATH=folder imports."""
    package = folder / "sightline"
    package.mkdir()
    for part in Path(sightline.__file__).parent.iterdir():
        if part.name not in ("weights", "__pycache__"):
            (package / part.name).symlink_to(part)
    return package
