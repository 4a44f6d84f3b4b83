"""The measurement of captions that tell photos apart runs from end to end and keeps what was said."""

import shutil
import sys
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.bundle import save_bundle

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import measure_distinct

torch.set_num_threads(1)


def test_shared_captions_are_counted():
    assert measure_distinct.duplicates(["a", "b", "a", "c", "a"]) == 3


def test_duplicates_go_and_every_number_is_told(tmp_path):
    bundle, data = tiny_bundle(), tmp_path / "flickr8k"
    with torch.no_grad():
        for layer in bundle.captioner.model.layers:
            layer.cross_attention.output.weight.mul_(1e-3)  # so that it says the same about everything
    save_bundle(tmp_path / "model.safetensors", bundle)
    (data / "images").mkdir(parents=True)
    names = []
    for number, photo in enumerate(sorted(EXAMPLES.glob("*.jpg")), 1000):
        names.append(f"{number}_abc.jpg")
        shutil.copy(photo, data / "images" / names[-1])
    (data / "Flickr_8k.testImages.txt").write_text("\n".join(names) + "\n")
    lines = [f"{name}#{i}\tA red dog number {i} sits on the table ." for name in names for i in range(5)]
    (data / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    options = ["--data", tmp_path, "--out", tmp_path / "out", "--model", tmp_path / "model.safetensors"]
    found = measure_distinct.main([*map(str, options), "--photos", "4", "--weight", "0,0.7"])
    assert found["before"]["duplicates"] == 4
    assert found["weight 0.7"]["duplicates removed, %"] == pytest.approx(100)
    assert found["weight 0.7"]["different captions"] == 4
    for way in ("self-retrieval", "matcher"):
        assert 0 <= found["before"][f"{way} R@1"] <= found["before"][f"{way} R@5"] == 100
    assert (tmp_path / "out" / "distinct.json").is_file()
