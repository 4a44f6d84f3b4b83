"""The measurement of captions that tell photos apart runs from end to end and keeps what was said."""

import shutil
import sys
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint.bundle import save_bundle

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import measure_distinct

torch.set_num_threads(1)


def test_shared_captions_are_counted():
    assert measure_distinct.duplicates(["a", "b", "a", "c", "a"]) == 3


def test_the_weight_is_chosen_by_the_matcher_and_then_by_cider():
    def told(first, fifth, cider):
        return {"matcher R@1": first, "matcher R@5": fifth, "matcher R@10": 90, "CIDEr": cider}

    assert measure_distinct.chosen({0.0: told(40, 80, 50), 0.5: told(45, 80, 40), 1.2: told(46, 78, 60)}) == 0.5
    assert measure_distinct.chosen({0.0: told(40, 80, 40), 0.5: told(40, 80, 50)}) == 0.5


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
    for split, own in (("test", names), ("dev", names[2:])):
        (data / f"Flickr_8k.{split}Images.txt").write_text("\n".join(own) + "\n")
    lines = [f"{name}#{i}\tA red dog number {i} sits on the table ." for name in names for i in range(5)]
    (data / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    options = ["--data", tmp_path, "--out", tmp_path / "out", "--model", tmp_path / "model.safetensors"]
    found = measure_distinct.main([*map(str, options), "--photos", "4", "--weight", "0,0.7"])
    assert found["before"]["duplicates"] == 4
    assert found["weight 0.7"]["duplicates removed, %"] == pytest.approx(100)
    assert found["weight 0.7"]["different captions"] == 4
    for strategy in ("self-retrieval", "matcher"):
        assert 0 <= found["before"][f"{strategy} R@1"] <= found["before"][f"{strategy} R@5"] == 100
    assert (tmp_path / "out" / "distinct.json").is_file()
    weights = measure_distinct.main([*map(str, options), "--split", "dev", "--weights", "0,0.3,1.2"])
    assert weights["photos"] == len(names[2:])
    assert {"weight 0", "weight 0.3", "weight 1.2"} < set(weights)
    assert weights["chosen"] in (0, 0.3, 1.2)
    assert "chosen" not in found  # test photos choose nothing
