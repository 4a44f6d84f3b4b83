"""The pictures take what the models give: real traces, alignments and correlations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from captioner_contract import GRID_WIDTH, REGION_WIDTH, VECTOR_WIDTH, WORDS, random_scenes, random_words
from matcher_contract import VOCABULARY, texts_of
from sightline.caption import Caption
from sightline.decoding.decode import captions
from sightline.decoding.rules import Rules
from sightline.draw.attention_maps import attention_panels, representation_attention
from sightline.draw.charts import memory_weights, relationship_gate, sentinel_panels, word_region_matrix
from sightline.draw.photo_boxes import words_on_boxes
from sightline.draw.retrieval_sheets import side_by_side
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.jran import JRANConfig
from sightline.models.jrln import JRLNConfig
from sightline.models.r2m import R2MConfig
from sightline.models.scan import SCANConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsrn import VSRNConfig
from sightline.scene import Scene

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))
SCENES = random_scenes(1, seed=4)


def scene() -> Scene:
    count = int(SCENES.region_mask.sum())
    return Scene(
        "photo",
        boxes=SCENES.boxes[0, :count].numpy(),
        regions=SCENES.regions[0, :count].numpy(),
        grid=SCENES.grid[0].numpy(),
        grid_shape=SCENES.grid_shapes[0],
        size=(80, 60),
    )


def said(config) -> Caption:
    torch.manual_seed(0)
    rules = Rules(max_words=4, min_words=3)
    return captions(config.build(WORDS).eval(), SCENES, VOCABULARY, rules=rules)[0][0]


UPDOWN = UpDownConfig(region_width=REGION_WIDTH, word_size=8, hidden_size=8, attention_size=8)
ADAPTIVE = AdaptiveAttentionConfig(
    grid_width=GRID_WIDTH, vector_width=VECTOR_WIDTH, word_size=8, hidden_size=8, attention_size=8
)
JRAN = JRANConfig(
    region_width=REGION_WIDTH,
    grid_width=GRID_WIDTH,
    size=8,
    jrln=JRLNConfig(size=8, heads=2, layers=1),
    word_size=8,
    hidden_size=8,
    attention_size=8,
)
R2M = R2MConfig(hidden_size=8, vector_width=VECTOR_WIDTH)

PICTURES = {
    "words on boxes": lambda: words_on_boxes(PHOTO, said(UPDOWN).with_boxes(scene())),
    "attention over regions": lambda: attention_panels(PHOTO, said(UPDOWN), scene()),
    "attention over the grid": lambda: attention_panels(PHOTO, said(ADAPTIVE), scene(), over="grid"),
    "sentinel": lambda: sentinel_panels(PHOTO, said(ADAPTIVE), scene()),
    "relationship gate": lambda: relationship_gate(PHOTO, said(JRAN)),
    "memories": lambda: memory_weights(said(R2M), PHOTO),
    "two models": lambda: side_by_side(PHOTO, scene(), {"A": said(UPDOWN), "B": said(UPDOWN)}, {"A": [0, 1], "B": [0]}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_models_own_trace_can_be_drawn(name):
    picture = PICTURES[name]()
    assert min(picture.size) > 60
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 50


def test_scans_alignment_can_be_drawn():
    torch.manual_seed(0)
    model = SCANConfig(region_width=REGION_WIDTH, size=8, word_size=8).build(WORDS).eval()
    texts = texts_of(random_words(1, seed=9))
    weights = model.alignment(model.embed_images(SCENES), model.embed_texts(texts))[0].detach().numpy()
    words = texts.words[0]
    picture = word_region_matrix(PHOTO, scene(), words, weights[1 : len(words) + 1, : len(scene())])
    assert min(picture.size) > 60


def test_vsrns_correlations_can_be_drawn():
    torch.manual_seed(0)
    config = VSRNConfig(region_width=REGION_WIDTH, size=8, word_size=8, rrr_layers=1, hidden_size=8)
    model = config.build(WORDS).eval()
    found = model.correlations(model.embed_images(SCENES))[0, : len(scene())].detach().numpy()
    assert representation_attention(PHOTO, scene(), found).size[0] >= 80
