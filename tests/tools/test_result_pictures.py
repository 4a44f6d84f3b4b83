"""Rows that were trained on what the shipped detector sees become three pictures a paper."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from PIL import Image

from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.jran import JRANConfig
from sightline.models.jrln import JRLNConfig
from sightline.models.r2m import R2MConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsrn import VSRNConfig
from sightline.text.vocabulary import END, Vocabulary

TOOL = Path(__file__).parents[2] / "tools" / "result_pictures.py"
SMALL = {"word_size": 8, "hidden_size": 8, "attention_size": 8}
MODELS = {
    "jran/flickr8k#line-6": JRANConfig(
        region_width=512, grid_width=1280, size=8, jrln=JRLNConfig(size=8, heads=2, layers=1), **SMALL
    ),
    "pos-scan/table-1#Up-Down-detector": UpDownConfig(region_width=512, **SMALL),
    "pos-scan/table-1#Up-Down+0.1KL-POS-SCAN-cosine-detector": UpDownConfig(region_width=512, **SMALL),
    "contrastive/flickr8k#AA": AdaptiveAttentionConfig(grid_width=1280, vector_width=1280, **SMALL),
    "contrastive/flickr8k#AA+CL": AdaptiveAttentionConfig(grid_width=1280, vector_width=1280, **SMALL),
    "r2m/table-3#Flickr8k-COCO-imagenet-rec-I": R2MConfig(hidden_size=8, heads=2, vector_width=8),
    "vsrn/table-4#Flickr8k-4RRR+GSR-no-LG": VSRNConfig(region_width=512, size=8, word_size=8, generation=False),
}


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("result_pictures", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_paper_has_three_pictures_of_its_rows_and_what_they_show(tool, tmp_path):
    torch.manual_seed(0)
    vocabulary = Vocabulary("a dog person cat cup runs on grass".split())
    for address, config in MODELS.items():
        model = config.build(len(vocabulary))
        if hasattr(model, "output"):
            model.output.bias.data[END] = -9.0  # random models say nothing otherwise
        table, _, row = address.partition("#")
        path = tmp_path / "runs" / table / row / "model.safetensors"
        path.parent.mkdir(parents=True)
        save(path, Checkpoint(model, vocabulary))
    assert tool.main([str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    for paper in ("jran", "pos-scan", "cl", "vsrn", "r2m"):
        for number in (1, 2, 3):
            path = tmp_path / f"{paper}-picture-{number}.png"
            assert min(Image.open(path).size) > 100
            assert len(path.with_suffix(".txt").read_text()) > 40


def test_a_paper_without_its_rows_is_left_out(tool, tmp_path, capsys):
    assert tool.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("left out") == len(tool.PAPERS) == 5
