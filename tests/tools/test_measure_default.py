"""`tools/measure_default.py` on a tiny model and six photos of each set."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, NAMES, tiny_bundle
from measure_samples import CAPTIONS, ENTITIES
from sightline.batch import TextBatch
from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.errors import ConfigError, DataError
from sightline.text.vocabulary import rule

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import measure_default as tool
from measured_models import BOTH, COUNTS, look, matching, regions
from measured_photos import TestPhoto, coco, flickr8k
from measured_scores import caption_scores, concept_scores, named_by_people, peer_scores
from measured_tables import BARS, markdown, table

torch.set_num_threads(1)

BOXES = "".join(
    f"<object><name>{chain}</name><bndbox><xmin>{x}</xmin><ymin>{y}</ymin><xmax>{x + 90}</xmax><ymax>{y + 70}</ymax>"
    "</bndbox></object>"
    for chain, x, y in ((1, 1, 1), (2, 60, 40), (1, 100, 20))
)
ANNOTATION = f"<annotation><size><width>200</width><height>120</height><depth>3</depth></size>{BOXES}</annotation>"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder like that of the datasets: six test photos of each; a seventh of COCO is not at hand."""
    root = tmp_path_factory.mktemp("data")
    examples = sorted(EXAMPLES.glob("*.jpg"))
    coco, images = root / "coco", root / "coco" / "images"
    images.mkdir(parents=True)
    ids = [700, 30, 9, 25, 42, 36, 5]
    names = {id: f"COCO_val2014_{id:012d}.jpg" for id in ids}
    for number, id in enumerate(ids[:-1]):
        shutil.copy(examples[number % len(examples)], images / f"{id:012d}.jpg")
    said = [{"image_id": id, "id": 10 * id + n, "caption": text} for id in ids for n, text in enumerate(CAPTIONS)]
    entries = [{"id": id, "file_name": name} for id, name in names.items()]
    (coco / "captions_val2014.json").write_text(json.dumps({"images": entries, "annotations": said}))
    (coco / "karpathy_test.txt").write_text("".join(f"{name}\n" for name in names.values()))
    flickr = root / "flickr8k"
    annotated = flickr / "flickr30k_entities"
    for folder in (flickr / "images", annotated / "Sentences", annotated / "Annotations"):
        folder.mkdir(parents=True)
    files = [f"{1000 + n}_{n:010x}.jpg" for n in range(6)]
    for n, name in enumerate(files):
        shutil.copy(examples[n % len(examples)], flickr / "images" / name)
        (annotated / "Sentences" / f"{1000 + n}.txt").write_text(f"{ENTITIES}\n" * 5)
        (annotated / "Annotations" / f"{1000 + n}.xml").write_text(ANNOTATION)
    lines = [f"{name}#{n}\t{text}\n" for name in files for n, text in enumerate(CAPTIONS)]
    (flickr / "Flickr8k.token.txt").write_text("".join(lines))
    (flickr / "Flickr_8k.testImages.txt").write_text("".join(f"{name}\n" for name in files))
    return root


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_bundle(path, tiny_bundle())
    return path


@pytest.fixture(scope="module")
def measured(data, model, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    arguments = ["--data", str(data), "--model", str(model), "--out", str(out), "--skip", "peer"]
    return tool.main(arguments), out, arguments


def numbers(value):
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    return [value] if isinstance(value, int | float) else []


def test_every_section_gives_finite_numbers(measured):
    sets = measured[0]["sets"]
    common = {"captions", "confidence", "concepts", "matching"}
    assert common <= set(sets["coco"])
    assert common | {"regions", "pointing", "boxes of captions"} <= set(sets["flickr8k"])
    for name, found in sets.items():
        assert found["photos"] == 6, name
        for section, part in found.items():
            assert all(map(math.isfinite, numbers(part))), section


def test_matching_is_by_vectors_and_by_both_read_outs(data, model):
    bundle, photos, here = load_bundle(model), flickr8k(data), torch.device("cpu")
    looked = look(bundle, photos, here, "photos")
    found = matching(bundle, looked, photos, here)
    finds = bundle.matcher
    words = [rule(finds.text_rule).words(text) for photo in photos for text in photo.references[:5]]
    with torch.inference_mode():
        texts = finds.model.embed_texts(TextBatch.collate(words, finds.vocabulary))
        for title, score in (("", finds.model.similarity), (BOTH, finds.model.joint_similarity)):
            scores = score(looked.images, texts)
            for k in (1, 5):
                for photo, row in enumerate(scores):
                    own = row[5 * photo : 5 * photo + 5].max()
                    others = torch.cat([row[: 5 * photo], row[5 * photo + 5 :]])
                    found[f"captions R@{k}{title}"] -= 100 / len(photos) * float((others >= own).sum() < k)
                assert found[f"captions R@{k}{title}"] == pytest.approx(0, abs=1e-6)
    assert not torch.equal(finds.model.similarity(looked.images, texts), scores)


def test_shares_are_percentages(measured):
    for found in measured[0]["sets"].values():
        for section in ("matching", "concepts", "pointing", "boxes of captions"):
            for title, value in found.get(section, {}).items():
                if "a photo" not in title and "annotated" not in title:
                    assert 0 <= value <= 100, title


def test_coco_photos_are_those_at_hand_by_id(data):
    assert [photo.id for photo in coco(data, data / "coco" / "images")] == ["9", "25", "30", "36", "42", "700"]
    assert [photo.id for photo in flickr8k(data)] == [str(1000 + n) for n in range(6)]


def test_a_folder_without_test_photos_is_refused(data, tmp_path):
    with pytest.raises(DataError, match="no photo of Karpathy's test split"):
        coco(data, tmp_path)


def test_the_page_has_a_row_for_every_number_and_every_shown_photo(measured):
    results, out, _ = measured
    page = (out / "results.md").read_text().splitlines()
    for found in results["sets"].values():
        for section in ("captions", "matching", "concepts", "regions", "pointing", "boxes of captions", "confidence"):
            for title in found.get(section, {}):
                assert any(line.startswith(f"| {title} |") for line in page), title
    shown = [line for line in page if line.endswith(f"| {CAPTIONS[0]} |")]
    assert len(shown) == len(results["shown"]) == 6
    assert shown[0].startswith(f"| 9 | {results['shown'][0]['caption']} |")


def test_every_bar_stands_in_the_page(measured):
    results, _, _ = measured
    page = markdown(results).splitlines()
    for (_, _, title), bar in BARS.items():
        assert any(line.startswith(f"| {title} |") and line.endswith(f"| ≥ {bar} |") for line in page), title


def test_what_is_kept_is_not_captioned_again(measured):
    results, out, arguments = measured
    before = (out / "captions.jsonl").read_text()
    again = tool.main(arguments)
    assert (out / "captions.jsonl").read_text() == before
    assert again["sets"]["coco"]["captions"] == results["sets"]["coco"]["captions"]
    assert json.loads((out / "results.json").read_text())["sets"].keys() == results["sets"].keys()


def test_a_run_goes_on_after_a_line_that_was_cut(measured, tmp_path):
    _, out, arguments = measured
    lines = (out / "captions.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "captions.jsonl").write_text("".join(lines[:4]) + lines[4][:30])
    skip = "flickr8k,peer,spice,confidence,concepts,matcher"
    tool.main([*arguments[:4], "--out", str(tmp_path), "--skip", skip])
    found = (tmp_path / "captions.jsonl").read_text().splitlines()
    assert found[:4] == [line.strip() for line in lines[:4]]
    assert [json.loads(line)["caption"] for line in found[1:]] == [json.loads(line)["caption"] for line in lines[1:7]]


def test_captions_of_another_model_are_refused(measured, data, tmp_path):
    _, out, _ = measured
    other = tmp_path / "other.safetensors"
    save_bundle(other, tiny_bundle(seed=4))
    with pytest.raises(ConfigError, match="another model"):
        tool.main(["--data", str(data), "--model", str(other), "--out", str(out)])


def test_a_section_that_does_not_exist_cannot_be_skipped(data, model, tmp_path, capsys):
    with pytest.raises(SystemExit):
        tool.main(["--data", str(data), "--model", str(model), "--out", str(tmp_path), "--skip", "flickr9k"])
    assert "flickr9k" in capsys.readouterr().err


def test_asking_for_more_boxes_keeps_the_first_ones(data):
    bundle, photos = tiny_bundle(), flickr8k(data)[:2]
    looked = look(bundle, photos, torch.device("cpu"), "", keep=True)
    for scene, boxes in zip(looked.scenes, looked.boxes, strict=True):
        own = scene.boxes[0][scene.region_mask[0]].numpy()
        assert len(own) == 9
        assert len(boxes) > len(own)
        assert (boxes[: len(own)] == own).all()
    assert max(map(len, looked.boxes)) <= max(COUNTS)


def test_regions_count_the_boxes_people_drew(data):
    from sightline.data.entities import read_photos

    annotated = read_photos(data / "flickr8k" / "flickr30k_entities")
    photos = flickr8k(data)
    looked = look(tiny_bundle(), photos, torch.device("cpu"), "", keep=True)
    found = regions(looked.boxes, [annotated[photo.id] for photo in photos])
    assert found["boxes people drew"] == 18
    assert 0 <= found["10 boxes"] <= found["36 boxes"] <= found["100 boxes"] <= 100


def photo(id, *references):
    return TestPhoto(id, Path(f"{id}.jpg"), references)


def said(**captions):
    return {id: {"caption": text, "concepts": []} for id, text in captions.items()}


def concepts(*names):
    return {"a": {"concepts": [{"name": name} for name in names]}}


def test_nouns_are_lemmas_and_compounds_are_one():
    found = list(named_by_people([photo("a", "Two men eat hot dogs.", "A man near a dog.")], ["hot dog", "dog", "man"]))
    assert found == [{"man", "hot dog", "dog"}]


def test_concepts_are_right_by_word_synonym_or_kind():
    photos, names = [photo("a", "A man sits on a sofa near a bike.")], ("man", "couch", "person", "bicycle", "zebra")
    found = concept_scores(photos, concepts("couch", "person", "zebra"), names)
    assert found["precision"] == pytest.approx(100 / 3)  # a couch is a sofa
    assert found["precision, kinds too"] == pytest.approx(200 / 3)  # a man is a person
    assert found["recall"] == pytest.approx(100 / 3)  # of man, sofa and bike, all of which could be told
    assert found["concepts a photo"] == 3


def test_nouns_that_no_name_can_tell_lower_only_the_recall_of_all():
    found = concept_scores([photo("a", "A dog in the sunshine.")], concepts("dog"), NAMES)
    assert found["recall"] == 100
    assert found["recall of all nouns"] == 50


def test_without_concepts_shares_are_nothing():
    found = concept_scores([photo("a", "A dog.")], concepts(), NAMES)
    assert found["precision"] == found["recall"] == 0


def test_captions_that_people_wrote_get_the_same_numbers_from_both_scorers():
    pytest.importorskip("pycocoevalcap")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    photos = [photo(str(n), *CAPTIONS[n + 1 :], *CAPTIONS[:n]) for n in range(5)]
    spoken = said(**{str(n): CAPTIONS[n].replace("man", "woman") for n in range(5)})
    ours, _ = caption_scores(photos, spoken)
    theirs = peer_scores(photos, spoken)
    assert len(theirs) == 7
    assert theirs["BLEU-1"] > 0
    assert {title: ours[title] for title in theirs} == pytest.approx(theirs, rel=1e-12)


def test_a_table_survives_bars_and_line_breaks():
    assert table(("a", "b"), [("x|y", "one\ntwo")]) == ["| a | b |", "|---|---|", "| x\\|y | one two |"]
