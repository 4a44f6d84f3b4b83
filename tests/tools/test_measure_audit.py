"""tools/measure_audit.py: captions with a noun replaced, and how many of them are caught."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint.bundle import save_bundle
from sightline.errors import CountError
from sightline.grounding.calibration import SupportModel
from sightline.grounding.nouns import may_name_the_same

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import measure_audit as tool
from logistic_fits import fit_place
from measured_photos import TestPhoto
from measured_swaps import noun_counts, swapped

torch.set_num_threads(1)
SAID = (
    "a man with a dog in the park",
    "a dog runs after a ball",
    "the man throws a ball",
    "two dogs and a man",
    "a man plays with his dogs",
)
TRAINING = [*SAID * 5, *["a cat on a table with a cup", "a woman holds a cup", "two cats on the tables"] * 8]


@pytest.fixture
def photos():
    return [TestPhoto(str(number), Path(f"{number}.jpg"), SAID) for number in range(20)]


def test_half_of_the_captions_have_a_noun_that_nobody_said(photos):
    counts = noun_counts(TRAINING)
    captions = list(swapped(photos, counts, seed=1))
    assert len(captions) == 100
    changed = [caption for caption in captions if caption.at is not None]
    assert 40 <= len(changed) <= 50  # of those chosen, some have no noun that could be replaced
    for caption in changed:
        words = caption.text.split()
        new = words[caption.at]
        assert not any(may_name_the_same(new, word) for text in SAID for word in text.split())
        original = [*words[: caption.at], caption.was, *words[caption.at + 1 :]]
        assert " ".join(original) in SAID
        plural = new.endswith("s")
        assert plural == caption.was.endswith("s")
        assert counts[caption.was, plural] / 2 <= counts[new, plural] <= 2 * counts[caption.was, plural]
    assert all(caption.text in SAID for caption in captions if caption.at is None)


def test_the_same_seed_replaces_the_same_nouns(photos):
    counts = noun_counts(TRAINING)
    one, again, other = (list(swapped(photos, counts, seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_auroc_is_that_of_all_pairs():
    real, wrong = np.array([0.1, 0.5, 0.5, 0.9]), np.array([0.1, 0.2, 0.5, np.inf])
    pairs = [float(r > w) + 0.5 * float(r == w) for r in real for w in wrong]
    assert tool.auroc(real, wrong) == pytest.approx(np.mean(pairs))


def test_boxes_are_as_sure_as_their_shares_say():
    rng = np.random.default_rng(0)
    share = rng.uniform(0.05, 1, 20_000)
    right = rng.random(len(share)) < 1 / (1 + np.exp(-(1.5 * np.log(share) + 1)))
    slope, bias = fit_place(share, right)
    assert (slope, bias) == (pytest.approx(1.5, abs=0.1), pytest.approx(1, abs=0.1))
    sure = SupportModel(place=(slope, bias)).place_probability([0.0, 0.1, 0.5, 1.0])
    assert (np.diff(sure) > 0).all()
    with pytest.raises(CountError):
        fit_place([0.5], [1])


def test_the_tool_fits_on_dev_and_tells_of_test(tmp_path, capsys):
    folder = tmp_path / "flickr8k"
    (folder / "images").mkdir(parents=True)
    names = {split: [f"{split}{number}.jpg" for number in range(5)] for split in ("train", "dev", "test")}
    lines = []
    for split, own in names.items():
        (folder / f"Flickr_8k.{split}Images.txt").write_text("".join(f"{name}\n" for name in own))
        for name, photo in zip(own, sorted(EXAMPLES.glob("*.jpg")), strict=True):
            shutil.copy(photo, folder / "images" / name)
            texts = SAID if split != "train" else [*SAID, *TRAINING[-3:], *TRAINING[-3:]]
            lines += [f"{name}#{number}\t{text}\n" for number, text in enumerate(texts)]
    (folder / "Flickr8k.token.txt").write_text("".join(lines))
    save_bundle(tmp_path / "tiny.safetensors", tiny_bundle())
    out = tmp_path / "audit.json"
    tool.main(["--data", str(tmp_path), "--model", str(tmp_path / "tiny.safetensors"), "--out", str(out), "--quick"])
    told = json.loads(out.read_text())
    assert told["nouns"]["replaced"] in range(8, 13)
    assert told["dev"]["flagged"] <= 20
    assert 0 <= told["test"]["AUROC"] <= 1
    SupportModel(**{k: tuple(v) if isinstance(v, list) else v for k, v in told["auditing"].items()})
    assert "caught" in capsys.readouterr().out
