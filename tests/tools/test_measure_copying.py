"""tools/measure_copying.py: what a captioner names by how much copied words count."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from feature_samples import sample_scenes
from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.models.scene_trans import SceneTransConfig
from sightline.scene import Concept
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_tokens import token_names
from sightline.vision.feature_store import FeatureStore

TOOLS = Path(__file__).parents[2] / "tools"
SIZES = {"region_width": 4, "grid_width": 4, "hidden_size": 12, "layers": 1, "encoder_layers": 1}
RECIPE = """base:
  model: {kind: scene-trans, region_width: 4, grid_width: 4, hidden_size: 12, concepts: %d, copy: true}
  data: {captions: captions.json, splits: {train: train.txt, val: val.txt}, features: store, novel: false}
  stages: {}
  evaluate: {strategy: {kind: greedy}, rules: {max_words: 3}}
"""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("measure_copying", TOOLS / "measure_copying.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved(run: Path, *, copies: bool) -> None:
    run.mkdir(exist_ok=True)
    torch.manual_seed(0)
    vocabulary = Vocabulary(["a", "street", "with", "bus", "pizza"])
    concepts = len(token_names()) if copies else 0
    model = SceneTransConfig(concepts=concepts, copy=copies, **SIZES).build(len(vocabulary))
    if model.names is not None:
        model.names.set_words(token_names(), vocabulary)
    (run / "recipe.yaml").write_text(RECIPE % len(token_names()))
    save(run / "model.safetensors", Checkpoint(model, vocabulary, "self-critical"))


def test_names_are_said_where_copied_words_count_more(tool, tmp_path, monkeypatch, capsys):
    people = {"1.jpg": "a bus", "2.jpg": "a pizza", "3.jpg": "a street"}
    images = [{"id": number, "file_name": name} for number, name in enumerate(people)]
    texts = [{"id": number, "image_id": number, "caption": text} for number, text in enumerate(people.values())]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": texts}))
    (tmp_path / "val.txt").write_text("1.jpg\n2.jpg\n")
    (tmp_path / "train.txt").write_text("3.jpg\n")
    with FeatureStore.writer(tmp_path / "store", fingerprint="tiny", dtype="float32") as writer:
        for scene, (name, text) in zip(
            sample_scenes(3, grid=np.ones((1, 4), np.float32), grid_shape=(1, 1)), people.items(), strict=True
        ):
            writer.add(replace(scene, id=name, fingerprint="tiny", concepts=(Concept(text.split()[1], 0.9),)))
    saved(tmp_path / "run", copies=True)
    monkeypatch.setenv("SIGHTLINE_DATA", str(tmp_path))
    tool.main([str(tmp_path / "run"), "--copying", "-100", "100"])
    _, _, without, with_copies, *_ = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert without[:3] == ["| -100", "–", "0.0"]
    assert with_copies[:3] == ["| 100", "–", "100.0"]  # each photo's own name, and no other's
    tool.main([str(tmp_path / "run"), "--copying", "-100", "--include", "0.8", "0.95"])
    _, _, sure, unsure, *_ = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert (sure[1], float(sure[2]) > 60) == ("0.8", True)  # a random model may say the other object, too
    assert unsure[1:3] == ["0.95", "0.0"]  # the names have a score of 0.9
    (tmp_path / "captions.json").write_text((tmp_path / "captions.json").read_text().replace("a street", "bus pizza"))
    tool.main([str(tmp_path / "run"), "--copying", "-100", "--include", "0.8"])
    left = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert left[1:3] == ["0.8", "0.0"]  # what training captions say is left to the captioner


def test_a_captioner_that_copies_nothing_is_refused(tool, tmp_path):
    saved(tmp_path / "run", copies=False)
    with pytest.raises(SystemExit, match="copies nothing"):
        tool.main([str(tmp_path / "run")])
