"""The tools that choose numbers, and the one that tells what was learned by heart, on a tiny model and few photos."""

import itertools
import json
import shutil
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from measure_samples import CAPTIONS, ENTITIES
from sightline.caption import Caption, WordTrace
from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.config import build
from sightline.data.records import GroundedPhoto, GroundedSentence, GroundedWord
from sightline.grounding.box_chooser import BoxChooser
from sightline.grounding.calibration import FEATURES, Calibration
from sightline.grounding.choice import Candidate as CaptionCandidate
from sightline.grounding.choice import Choice
from sightline.grounding.evidence import Evidence
from sightline.grounding.nouns import box_counts, noun_tags
from sightline.search import query
from sightline.search.engine import Candidate

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import finish_default
import fit_choice
import fit_confidence
import fit_pointing
import fit_search
import measure_gap
import measure_regions
import train_pointer
from measured_photos import TestPhoto
from measured_words import SentenceEvidence

torch.set_num_threads(1)

ANNOTATION = (
    "<annotation><size><width>200</width><height>120</height><depth>3</depth></size>"
    "<object><name>1</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>90</xmax><ymax>70</ymax></bndbox></object>"
    "<object><name>2</name><bndbox><xmin>60</xmin><ymin>40</ymin><xmax>150</xmax><ymax>110</ymax></bndbox></object>"
    "</annotation>"
)
SPLITS = {"dev": range(1000, 1004), "test": range(1004, 1007), "train": range(1007, 1009)}
COCO = {"train": [30, 9, 700], "val": [25, 42, 5]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four dev, three test and two train photos of Flickr8k; of COCO, three that were trained on, and three others."""
    root, pictures = tmp_path_factory.mktemp("data"), cycle(sorted(EXAMPLES.glob("*.jpg")))
    flickr, coco = root / "flickr8k", root / "coco"
    entities = flickr / "flickr30k_entities"
    for folder in (flickr / "images", entities / "Sentences", entities / "Annotations", coco / "images"):
        folder.mkdir(parents=True)
    said = ""
    for split, ids in SPLITS.items():
        names = [f"{id}_{id:010x}.jpg" for id in ids]
        (flickr / f"Flickr_8k.{split}Images.txt").write_text("".join(f"{name}\n" for name in names))
        said += "".join(f"{name}#{n}\t{text}\n" for name in names for n, text in enumerate(CAPTIONS))
        for id, name in zip(ids, names, strict=True):
            shutil.copy(next(pictures), flickr / "images" / name)
            (entities / "Sentences" / f"{id}.txt").write_text(f"{ENTITIES}\n" * 5)
            (entities / "Annotations" / f"{id}.xml").write_text(ANNOTATION)
    (flickr / "Flickr8k.token.txt").write_text(said)
    ids = [id for own in COCO.values() for id in own]
    for id in ids:
        shutil.copy(next(pictures), coco / "images" / f"{id:012d}.jpg")
    for split, own in COCO.items():
        (coco / f"karpathy_{split}.txt").write_text("".join(f"COCO_val2014_{id:012d}.jpg\n" for id in own))
    with (coco / "karpathy_train.txt").open("a") as file:
        file.write("COCO_train2014_000000000030.jpg\n")
    images = [{"id": id, "file_name": f"COCO_val2014_{id:012d}.jpg"} for id in ids]
    told = [{"image_id": id, "id": 10 * id + n, "caption": text} for id in ids for n, text in enumerate(CAPTIONS)]
    (coco / "captions_val2014.json").write_text(json.dumps({"images": images, "annotations": told}))
    return root


@pytest.fixture(scope="module")
def usual(data, tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_bundle(model, tiny_bundle())
    return ["--data", str(data), "--model", str(model)]


@pytest.mark.parametrize("tool", [fit_pointing, fit_search, measure_gap, measure_regions])
def test_data_has_to_be_named(tool, monkeypatch, capsys):
    monkeypatch.delenv("SIGHTLINE_DATA", raising=False)
    with pytest.raises(SystemExit):
        tool.main([])
    assert "--data" in capsys.readouterr().err


def evidence(looked, told):
    """One word, of which the captioner looked at and the matcher found two boxes; the second one is right."""
    boxes = np.array([[0, 0, 0.4, 0.4], [0.5, 0.5, 1, 1]], np.float32)
    word = GroundedWord(0, "dog", ((100.0, 50.0, 200.0, 100.0),))
    truth = GroundedPhoto("1", (GroundedSentence(("dog",), (word,)),), (200, 100))
    caption = Caption(("dog",), 0.0, (WordTrace(regions=np.array(looked, np.float32)),))
    return SentenceEvidence(truth, (200, 100), boxes, [caption], [np.array([told], np.float32)])


def test_the_matchers_share_is_chosen_where_it_is_right():
    photos = [evidence([0.9, 0.1], [0.1, 0.9]), evidence([0.6, 0.4], [0.3, 0.7])]
    leasts = [0.0, 0.8, 0.95]
    grid = [one for share in (0.0, 0.5, 1.0) for one in fit_pointing.tried(photos, BoxChooser(share), leasts)]
    found = {(one.matcher, one.least): (one.right, one.shown) for one in grid}
    assert found[0.0, 0.0] == (0, 100)
    assert found[0.5, 0.0] == (50, 100)
    assert found[1.0, 0.0] == (100, 100)
    assert found[1.0, 0.8] == (50, 50)
    assert found[1.0, 0.95] == (0, 0)
    assert fit_pointing.chosen(grid).rule == BoxChooser(1.0, 0.0)


def test_boxes_that_are_mostly_wrong_are_better_not_shown():
    photos = [evidence([1, 0], [0.1, 0.9]), *[evidence([1, 0], [0.55, 0.45])] * 4]
    grid = fit_pointing.tried(photos, BoxChooser(1.0), [0.0, 0.6])
    assert [(one.right, one.shown) for one in grid] == [(20, 100), (20, 20)]
    assert fit_pointing.chosen(grid).least == 0.6


def test_pointing_is_chosen_on_dev_and_told_of_test(usual, tmp_path, capsys):
    out = tmp_path / "pointing.json"
    found = fit_pointing.main([*usual, "--photos", "3", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out) == found == json.loads(out.read_text())
    assert found["photos"] == {"dev": 3, "test": 3}
    assert found["words"] == {"dev": 30, "test": 30}
    powers = len(fit_pointing.OBJECTNESS) * len(fit_pointing.NAME)
    assert len(found["dev"]) == powers * len(fit_pointing.MATCHER) * len(fit_pointing.LEAST)
    best = max(found["dev"], key=lambda one: one["f1"])
    assert found["pointing"] == {key: best[key] for key in ("matcher", "least", "objectness", "name")}
    assert {key: found["test"]["chosen"][key] for key in found["pointing"]} == found["pointing"]
    assert found["test"]["the model's own"]["least"] == 0.02


def test_what_is_told_of_the_models_own_rule_is_what_measuring_tells(data, usual):
    from measured_models import grounded_photos, look, pointing
    from measured_photos import entities_file, flickr8k

    from sightline.data.entities import read_photos

    bundle, photos, cpu = tiny_bundle(), flickr8k(data), torch.device("cpu")
    grounded = grounded_photos(read_photos(entities_file(data)), photos)
    told = pointing(bundle, look(bundle, photos, cpu, "", keep=True), photos, grounded)
    evidence = fit_pointing.split_evidence(bundle, data, "test", 3, cpu)
    for name, choosing in (("as shipped", False), ("as shipped, its own nouns", True)):
        own = fit_pointing.tried(evidence, bundle.pointing, [0.02], choosing)[0]
        assert own.right == pytest.approx(told[name])


def test_a_pointer_that_is_trained_is_put_into_the_file(usual, data, tmp_path, capsys):
    model, out = Path(usual[usual.index("--model") + 1]), tmp_path / "out.safetensors"
    train_pointer.main([str(out), "--data", str(data), "--model", str(model), "--epochs", "2"])
    made, before, cpu = load_bundle(out), load_bundle(model), torch.device("cpu")
    assert before.pointer is None
    told = made.card["pointer"]
    assert {**before.card, "pointer": told} == made.card
    assert told["data"].startswith("20 words of captions of 2 training photos")
    for ours, theirs in ((made.vision, before.vision), (made.matcher.model, before.matcher.model)):
        assert all(torch.equal(part, theirs.state_dict()[name]) for name, part in ours.state_dict().items())
    dev = list(train_pointer.photo_words(made, data, "dev", 9, cpu))
    region, box = train_pointer.right_words(made.pointer, dev, cpu)
    assert f"as stored, dev region {region:.1f}, box {box:.1f}" in capsys.readouterr().out
    # The pointer asked here and as `sightline ground` asks it point at the same places.
    evidence = fit_pointing.split_evidence(made, data, "dev", 9, cpu)
    alone = [one.pointed(BoxChooser(least=0)) for one in evidence]
    words = sum(len(sentence.words) for one in evidence for sentence in one.truth.sentences)
    assert sum(len(sentence) for photo in alone for sentence in photo) == words


def test_captions_count_as_much_as_finds_most():
    found = [
        [Candidate("/a.jpg", "", 0.50, 0.0), Candidate("/b.jpg", "", 0.48, 2.0), Candidate("/c.jpg", "", 0.30, 0.0)],
        [Candidate("/a.jpg", "", 0.50, 1.0), Candidate("/b.jpg", "", 0.40, 2.0), Candidate("/c.jpg", "", 0.20, 0.0)],
    ]
    asked, told, usual = [("b.jpg", "dog"), ("a.jpg", "cat")], {}, query.CAPTION_WEIGHT
    for weight in (0.0, 0.2, 0.4, 0.9):
        with fit_search.weighed("CAPTION_WEIGHT", weight):
            told[weight] = fit_search.recalls(asked, found)
    assert usual == query.CAPTION_WEIGHT  # as before
    assert [told[weight]["R@1"] for weight in told] == [50, 100, 100, 50]
    assert told[0.0]["sum"] == 250
    assert fit_search.chosen(told, "sum") == 0.2


def test_nouns_are_paired_where_some_photos_have_both_and_some_only_one():
    photos = {f"{n}.jpg": {"dog", "animal"} | ({"ball"} if n < 10 else set()) for n in range(20)}
    assert fit_search.pairs(photos) == [("animal", "ball"), ("dog", "ball")]
    assert fit_search.pairs(dict(list(photos.items())[:19])) == []


def test_search_is_fitted_on_dev_photos_alone(usual, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fit_search, "ENOUGH", 1)
    token = data / "flickr8k" / "Flickr8k.token.txt"
    before = token.read_text()
    token.write_text(before.replace("cat", "ball", 3))  # so that photos have different nouns
    try:
        found = fit_search.main([*usual, "--captions", "2", "--out", str(tmp_path / "search.json"), "--json"])
    finally:
        token.write_text(before)
    assert json.loads(capsys.readouterr().out) == found == json.loads((tmp_path / "search.json").read_text())
    assert found["photos"] == len(SPLITS["dev"])
    assert found["CAPTION_WEIGHT"]["queries"] == 2 * len(SPLITS["dev"])
    assert found["CAPTION_WEIGHT"]["shipped"] == query.CAPTION_WEIGHT
    assert [row["weight"] for row in found["CAPTION_WEIGHT"]["dev"]] == list(fit_search.CAPTION_WEIGHTS)
    assert [row["weight"] for row in found["AVOID_WEIGHT"]["dev"]] == list(fit_search.AVOID_WEIGHTS)
    for row in found["AVOID_WEIGHT"]["dev"]:
        assert 0 <= row["right"] <= row["with the wanted"] <= 100
    assert [row["weight"] for row in found["NOUN_COSINE"]["dev"]] == list(fit_search.NOUN_COSINES)
    recalls = [row["recall"] for row in found["NOUN_COSINE"]["dev"]]
    assert recalls == sorted(recalls, reverse=True)  # a higher line lets fewer through


def test_photos_without_nouns_in_common_choose_how_much_captions_count_alone(usual, capsys):
    assert fit_search.main(usual)["AVOID_WEIGHT"] is None
    assert "too few photos have the same nouns" in capsys.readouterr().out


def test_the_gap_is_that_of_captions_known_by_heart():
    photos = {
        name: [TestPhoto(f"{name}{n}", Path(f"{n}.jpg"), (CAPTIONS[n], CAPTIONS[n] + " Now.")) for n in range(4)]
        for name in ("train", "val")
    }
    said = {photo.id: photo.references[0] for photo in photos["train"]}
    said |= {photo.id: CAPTIONS[4] for photo in photos["val"]}
    found = measure_gap.gap(said, photos)
    assert found["train"]["CIDEr-D"] > 3 * found["val"]["CIDEr-D"]
    assert found["gap"]["CIDEr-D"] == pytest.approx(found["train"]["CIDEr-D"] - found["val"]["CIDEr-D"])
    same = measure_gap.gap({id: said[id.replace("val", "train")] for id in said}, photos)
    assert same["gap"]["CIDEr-D"] == pytest.approx(0)


def test_the_gap_is_told_of_photos_of_both_splits(usual, tmp_path, capsys):
    found = measure_gap.main([*usual, "--photos", "2", "--out", str(tmp_path / "gap.json")])
    assert json.loads((tmp_path / "gap.json").read_text()) == found
    assert found["train"]["photos"] == found["val"]["photos"] == 2
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["train", "val", "gap"]


def weighed(*captions):
    """A photo with captions of one noun each: its support, the caption's likelihood, whether it is wrong, CIDEr-D."""
    candidates = [
        CaptionCandidate(("dog",), score, score, 0.0, (0,), (support,), (Evidence(),), origin)
        for support, score, _, _, origin in captions
    ]
    return fit_choice.Weighed("1", candidates, [[0] * wrong for *_, wrong, _, _ in captions], [c[3] for c in captions])


def test_doubt_and_a_second_look_change_what_is_chosen():
    photo = weighed((0.4, -1.0, 1, 10.0, "beam"), (0.8, -2.0, 0, 50.0, "beam"), (0.99, -3.0, 0, 80.0, "second"))
    assert fit_choice.picked([photo], 0.0, 0.0, 0.0) == [0]
    assert fit_choice.picked([photo], 0.0, 4.0, 0.0) == [1]
    assert fit_choice.picked([photo], 0.0, 100.0, 0.0) == [1]
    assert fit_choice.picked([photo], 0.0, 100.0, 0.9) == [2]  # the best of the beam is doubtful
    assert fit_choice.picked([photo], 0.0, 100.0, 0.7) == [1]  # it is not


@pytest.fixture
def talking(usual, monkeypatch):
    """Every second noun is wrong, so that there is something to fit whatever a random model says."""
    count = itertools.count()

    def wrong(captions, references, objects=()):
        tags = noun_tags(captions)
        return [
            [at for at, most in enumerate(box_counts(words, own)) if most and next(count) % 2]
            for words, own in zip(captions, tags, strict=True)
        ]

    monkeypatch.setattr(fit_choice, "unsupported", wrong)
    monkeypatch.setattr(fit_confidence, "unsupported", wrong)
    return usual


def test_the_choice_is_fitted_and_goes_into_the_file(talking, tmp_path, capsys):
    found = fit_choice.main([*talking, "--photos", "3", "--flickr", "4", "--out", str(tmp_path / "choice.json")])
    assert json.loads((tmp_path / "choice.json").read_text()) == json.loads(json.dumps(found))
    assert "AUROC of support: COCO val" in capsys.readouterr().out
    assert found["photos"] == {"COCO val": len(COCO["val"]), "Flickr8k dev": len(SPLITS["dev"])}
    assert len(found["grid"]) == len(fit_choice.FITS) * len(fit_choice.DOUBTS) * len(fit_choice.LOOKS)
    worth = [
        np.mean([row[name]["CIDEr-D"] - 20 * row[name]["unsupported nouns"] for name in found["photos"]])
        for row in found["grid"]
    ]
    best = found["chosen"]
    near = [row["second look"] for row, value in zip(found["grid"], worth, strict=True) if value >= max(worth) - 0.1]
    assert worth[found["grid"].index(best)] >= max(worth) - 0.1
    assert best["second look"] == min(near)
    choice = build(Choice, found["choice"])
    assert (choice.doubt, choice.second_look, found["fit"]) == (best["doubt"], best["second look"], best["fit"])
    assert choice.support.nouns > 0
    model = talking[talking.index("--model") + 1]
    finish_default.main([model, str(tmp_path / "out.safetensors"), "--choice", str(tmp_path / "choice.json")])
    made = load_bundle(tmp_path / "out.safetensors")
    assert (made.choice, made.fit) == (choice, found["fit"])


def test_confidence_is_fitted_on_what_speaks_for_captions(talking, tmp_path, monkeypatch, capsys):
    fine, wrong = iter([True, False, False, True, True, False, False]), itertools.cycle([[], [], [0]])
    monkeypatch.setattr(fit_confidence, "good", lambda said, _: ({id: next(fine) for id in said}, 0.5))
    monkeypatch.setattr(fit_confidence, "unsupported", lambda *_: [next(wrong)])
    path = tmp_path / "confidence.json"
    found = fit_confidence.main([*talking, "--photos", "3", "--flickr", "4", "--out", str(path)])
    assert json.loads(path.read_text()) == json.loads(json.dumps(found))
    calibration = build(Calibration, found["calibration"])
    assert calibration.captions == len(COCO["val"]) + len(SPLITS["dev"])
    assert len(calibration.weights) == len(calibration.usual) == len(FEATURES)
    assert "COCO val: captions 3" in capsys.readouterr().out
    model = talking[talking.index("--model") + 1]
    finish_default.main([model, str(tmp_path / "out.safetensors"), "--confidence", str(path)])
    assert load_bundle(tmp_path / "out.safetensors").calibration == calibration


def test_rates_tell_how_many_wrong_captions_are_among_the_least_confident():
    own = fit_confidence.Judged(
        np.zeros((10, 6)), np.array([False, False] + [True] * 8), np.array([True, True] + [False] * 8)
    )
    told = fit_confidence.rates(np.linspace(0, 1, 10), own, low=0.15)
    assert (told["AUROC"], told["AUROC of wrong"]) == (1.0, 1.0)
    assert (told["wrong"], told["wrong in the least confident fifth"]) == (20.0, 100.0)
    assert (told["of low confidence"], told["wrong among those"]) == (20.0, 100.0)
    other = fit_confidence.rates(np.linspace(1, 0, 10), own, low=0.15)
    assert (other["AUROC"], other["wrong in the least confident fifth"]) == (0.0, 0.0)


def test_boxes_that_people_drew_are_counted_in_every_split(usual, tmp_path, capsys):
    found = measure_regions.main([*usual, "--out", str(tmp_path / "regions.json")])
    assert json.loads((tmp_path / "regions.json").read_text()) == found
    assert {split: own["boxes people drew"] for split, own in found.items()} == {"train": 4, "dev": 8, "test": 6}
    for own in found.values():
        assert 0 <= own["10 boxes"] <= own["36 boxes"] <= own["100 boxes"] <= 100
    assert capsys.readouterr().out.count("36 boxes") == 3
