"""How much of ImageNet a vision model still knows, on photos where the downloaded backbone is sure."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint.bundle import save_bundle
from sightline.errors import ConfigError
from sightline.vision.grid_encoder import ImageNetClassifier

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import measure_forgetting
from measure_forgetting import agreement

torch.set_num_threads(1)
LEOPARD, JAGUAR, LION, GOLDEN, POODLE, BUS = 288, 290, 291, 207, 267, 779


def sure(*classes: int, of: float = 0.9) -> torch.Tensor:
    rows = torch.full((len(classes), 1000), (1 - of) / 999)
    rows[torch.arange(len(classes)), torch.tensor(classes)] = of
    return rows.log()


def test_classes_names_and_hedged_names_are_counted_where_the_downloaded_backbone_is_sure():
    downloaded = torch.cat([sure(LEOPARD, GOLDEN, LEOPARD, LEOPARD), sure(BUS, of=0.4)])
    ours = torch.cat([sure(LEOPARD, POODLE, LION, LION), sure(LEOPARD)])
    ours[2, [LEOPARD, JAGUAR]] = ours[2, LION] - 0.1  # in doubt: a wild cat
    found = agreement(downloaded, ours)
    assert found == {"photos": 4, "class": 25, "name": 50, "hedged": 75}


def test_without_a_sure_photo_nothing_is_told():
    assert agreement(sure(BUS, of=0.4), sure(BUS)) == {"photos": 0}


def test_a_name_on_another_branch_and_no_name_at_all_disagree():
    assert agreement(sure(LEOPARD), sure(BUS))["hedged"] == 0
    assert agreement(sure(LEOPARD), torch.zeros(1, 1000))["hedged"] == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root, pictures = tmp_path_factory.mktemp("data"), sorted(EXAMPLES.glob("*.jpg"))[:2]
    for folder in ("flickr8k", "coco"):
        (root / folder / "images").mkdir(parents=True)
    ids = [30, 9]
    for id, picture in zip(ids, pictures, strict=True):
        shutil.copy(picture, root / "flickr8k" / "images" / f"{id}_a.jpg")
        shutil.copy(picture, root / "coco" / "images" / f"{id:012d}.jpg")
    (root / "flickr8k" / "Flickr_8k.testImages.txt").write_text("".join(f"{id}_a.jpg\n" for id in ids))
    (root / "flickr8k" / "Flickr8k.token.txt").write_text("".join(f"{id}_a.jpg#0\ta dog\n" for id in ids))
    names = [f"COCO_val2014_{id:012d}.jpg" for id in ids]
    (root / "coco" / "karpathy_test.txt").write_text("\n".join(names))
    images = [{"id": id, "file_name": name} for id, name in zip(ids, names, strict=True)]
    said = [{"image_id": id, "id": id, "caption": "a dog"} for id in ids]
    (root / "coco" / "captions_val2014.json").write_text(json.dumps({"images": images, "annotations": said}))
    return root


@pytest.fixture
def knowing(monkeypatch):
    """A tiny classifier in the place of the downloaded one, sure of one class for every photo."""
    torch.manual_seed(0)
    model = ImageNetClassifier("lite0").eval()
    with torch.no_grad():
        model.backbone.classifier.bias[LEOPARD] += 20
    monkeypatch.setattr(ImageNetClassifier, "from_package", classmethod(lambda cls, variant="lite2": model))
    return model


def bundle_file(path, imagenet: bool):
    bundle = tiny_bundle()
    vision = replace(bundle.vision.config, imagenet=imagenet).build()
    vision.load_state_dict(bundle.vision.state_dict(), strict=False)
    if imagenet:
        with torch.no_grad():
            vision.backbone.classifier.bias[LION] += 20
    save_bundle(path, replace(bundle, vision=vision.eval()))
    return str(path)


@pytest.mark.usefixtures("knowing")
def test_a_detector_with_classes_is_measured_on_both_sets(data, tmp_path, capsys):
    model, out = bundle_file(tmp_path / "keeps.safetensors", imagenet=True), tmp_path / "found.json"
    found = measure_forgetting.main(["--data", str(data), "--model", model, "--out", str(out)])
    assert found == {name: {"of": 2, "photos": 2, "class": 0, "name": 0, "hedged": 0} for name in ("COCO", "Flickr8k")}
    assert json.loads(out.read_text()) == found
    assert "2 of 2 photos class 0.0 %" in capsys.readouterr().out


@pytest.mark.usefixtures("knowing")
def test_a_second_backbone_as_downloaded_agrees_with_itself(data):
    found = measure_forgetting.main(["--data", str(data), "--second", "lite0", "--photos", "1", "--json"])
    assert found["COCO"] == {"of": 1, "photos": 1, "class": 100, "name": 100, "hedged": 100}


def test_a_model_without_classes_is_refused(data, tmp_path):
    model = bundle_file(tmp_path / "forgot.safetensors", imagenet=False)
    with pytest.raises(ConfigError, match=r"vision\.imagenet=true"):
        measure_forgetting.main(["--data", str(data), "--model", model])
