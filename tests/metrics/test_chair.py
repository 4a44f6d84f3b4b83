"""CHAIR: which words of captions name objects, which objects a photo does not have, and the two rates."""

import json
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_samples import score
from sightline.cli import commands
from sightline.data import coco
from sightline.data.boxes_jsonl import COCO_80
from sightline.metrics.chair import TABLE, Chair, mentions_all
from sightline.metrics.scorecard import scorecard


def said(caption: str) -> list[tuple[str, ...]]:
    return [(one.words, *sorted(one.objects)) for one in mentions_all([caption])[0]]


@pytest.mark.parametrize(
    ("caption", "mentions"),
    [
        ("two men ride bicycles", [("men", "person"), ("bicycles", "bicycle")]),
        ("a red fire hydrant on fire", [("fire hydrant", "fire hydrant")]),
        ("three hot dogs for the dogs", [("hot dogs", "hot dog"), ("dogs", "dog")]),
        ("a teddy bear and a bear", [("teddy bear", "teddy bear"), ("bear", "bear")]),
        ("an empty train track", []),
        ("a train on train tracks", [("train", "train")]),
        ("people train for the race", [("people", "person")]),
        ("a baby elephant and a baby", [("baby elephant", "elephant"), ("baby", "person")]),
        ("an adult giraffe with a mother zebra", [("adult giraffe", "giraffe"), ("mother zebra", "zebra")]),
        ("a bear cub eats bear food", [("bear cub", "bear"), ("bear", "bear")]),
        ("an orange shirt", []),
        ("he peels oranges", [("oranges", "orange")]),
        ("a van parked outside", [("van", "bus", "car", "truck")]),
        ("a glass of wine beside wine glasses", [("glass of wine", "wine glass"), ("wine glasses", "wine glass")]),
        ("she wears glasses", []),
        ("a couple of cats", [("cats", "cat")]),
        ("a couple on a couch", [("couple", "person"), ("couch", "couch")]),
        ("women with knives and scissors", [("women", "person"), ("knives", "knife"), ("scissors", "scissors")]),
        ("geese calves mice and oxen", [("geese", "bird"), ("calves", "cow"), ("mice", "mouse"), ("oxen", "cow")]),
        ("a toilet with toilet paper", [("toilet", "toilet")]),
        ("a pony tail and a pony", [("pony", "horse")]),
        ("a bowl of broccoli on the desk", [("bowl", "bowl"), ("broccoli", "broccoli"), ("desk", "dining table")]),
        ("a flower bed near the bed", [("bed", "bed")]),
        ("a sky full of clouds", []),
        ("", []),
    ],
)
def test_words_name_objects(caption, mentions):
    assert said(caption) == mentions


def test_the_table_has_cocos_80_objects_in_cocos_order_and_each_is_found_by_its_own_name():
    assert tuple(line.split("\t")[0] for line in TABLE.read_text().splitlines() if line[0] != "-") == COCO_80
    for name in COCO_80:
        shown = f"{name}s" if name in ("orange", "remote") else name  # one alone is an adjective to the tagger
        assert [name in one.objects for one in mentions_all([f"there is the {shown}"])[0]] == [True], name


REFERENCES = {
    "1": ["a dog runs on the grass", "a puppy with a ball"],
    "2": ["a man wears a hat", "a person on a bench"],
    "3": ["a kitchen", "a clean room"],
}
SAID = {"1": "a dog and a cat chase a frisbee", "2": "a woman on a bench", "3": "a white wall"}


def test_the_rates_are_those_of_hand_counted_captions():
    scores = score(Chair(), SAID, REFERENCES)
    # Mentions: dog, cat, frisbee; woman, bench; none. Hallucinated: cat, frisbee.
    assert scores.corpus == pytest.approx({"CHAIRi": 100 * 2 / 5, "CHAIRs": 100 / 3})
    assert scores.per_image["1"] == pytest.approx({"CHAIRi": 100 * 2 / 3, "CHAIRs": 100.0})
    assert scores.per_image["2"] == scores.per_image["3"] == {"CHAIRi": 0.0, "CHAIRs": 0.0}
    assert scores.words["1"] == {"mentioned": ["dog", "cat", "frisbee"], "hallucinated": ["cat", "frisbee"]}
    assert scores.words["3"] == {"mentioned": [], "hallucinated": []}


def test_boxes_add_objects_that_no_reference_names():
    scores = score(Chair({"1": ["cat"], "9": ["frisbee"]}), SAID, REFERENCES)
    assert scores.words["1"]["hallucinated"] == ["frisbee"]
    assert scores.corpus["CHAIRi"] == pytest.approx(100 / 5)


def test_a_word_of_several_objects_is_hallucinated_only_where_the_photo_has_none_of_them():
    refs = {"1": ["a truck on the road"], "2": ["a dog on the road"]}
    found = score(Chair(), {"1": "a van", "2": "a van"}, refs).words
    assert [found[id]["hallucinated"] for id in refs] == [[], ["van"]]


def test_kin_of_animals_are_no_people_but_people_beside_them_are():
    refs = {"1": ["elephants in the mud"], "2": ["elephants in the mud"]}
    found = score(Chair(), {"1": "a mother elephant and her baby", "2": "a man and an elephant"}, refs).words
    assert found["1"] == {"mentioned": ["mother elephant"], "hallucinated": []}
    assert found["2"]["hallucinated"] == ["man"]


WORDS = st.lists(st.sampled_from("dog cat kitten car truck bench man sky runs red".split()), max_size=6).map(" ".join)
OBJECT = {
    "dog": "dog",
    "cat": "cat",
    "kitten": "cat",
    "car": "car",
    "truck": "truck",
    "bench": "bench",
    "man": "person",
}


@given(st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_the_rates_equal_the_definition(images):
    hypotheses = {str(i): one for i, (one, _) in enumerate(images)}
    references = {str(i): others for i, (_, others) in enumerate(images)}
    metric = Chair()
    metric.update(hypotheses, references)
    mentioned, hallucinated, sentences = 0, 0, 0
    for one, others in images:
        there = {OBJECT[word] for other in others for word in other.split() if word in OBJECT}
        objects = [OBJECT[word] for word in one.split() if word in OBJECT]
        wrong = [name for name in objects if name not in there]
        mentioned, hallucinated = mentioned + len(objects), hallucinated + len(wrong)
        sentences += bool(wrong)
    corpus = metric.compute().corpus
    assert corpus["CHAIRi"] == pytest.approx(100 * hallucinated / mentioned if mentioned else 0.0)
    assert corpus["CHAIRs"] == pytest.approx(100 * sentences / len(images))


def test_resamples_score_as_if_the_images_drawn_had_been_scored():
    metric = Chair()
    metric.update(SAID, REFERENCES)
    drawn = metric.resample(np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0], [2.0, 1.0, 0.0]]))
    assert drawn["CHAIRi"] == pytest.approx([40.0, 0.0, 100 * 4 / 8])
    assert drawn["CHAIRs"] == pytest.approx([100 / 3, 0.0, 200 / 3])


def test_no_image_has_no_hallucination():
    assert Chair().compute().corpus == {"CHAIRi": 0.0, "CHAIRs": 0.0}


@pytest.fixture
def files(tmp_path):
    refs, hyps = tmp_path / "refs.json", tmp_path / "hyps.json"
    refs.write_text(json.dumps(REFERENCES))
    hyps.write_text(json.dumps(SAID))
    return ["score", "--refs", str(refs), "--hyps", str(hyps), "--metrics", "chair"]


def test_the_command_reads_objects_from_both_kinds_of_boxes(tmp_path, files, capsys):
    machine, drawn = tmp_path / "boxes.jsonl", tmp_path / "instances_val.json"
    machine.write_text(f'["1", [[{COCO_80.index("cat")}, 0.9, 0, 0, 500, 500]]]\n["2", []]\n')
    drawn.write_text(
        json.dumps(
            {
                "images": [{"id": 1, "width": 10, "height": 10}, {"id": 2, "width": 10, "height": 10}],
                "annotations": [{"id": 1, "image_id": 1, "category_id": 17, "bbox": [0, 0, 5, 5], "iscrowd": 0}],
                "categories": [{"id": 17, "name": "cat"}],
            }
        )
    )
    for path in (machine, drawn):
        assert commands.main([*files, "--instances", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["corpus"] == pytest.approx({"CHAIRi": 20.0, "CHAIRs": 100 / 3})
        assert found["per_image"]["1"]["hallucinated"] == ["frisbee"]
        assert "refs+boxes" in found["signature"]
        assert found["notes"] == [
            "1 of 3 images are not in the file of boxes; CHAIR knows their objects from references alone: 3"
        ]
    assert commands.main(files) == 0
    shown = capsys.readouterr().out
    assert "CHAIRi (%)  40.00" in shown
    assert "CHAIRs (%)  33.33" in shown


def test_files_that_cannot_help_are_refused(tmp_path, files, capsys):
    strange = tmp_path / "boxes.jsonl"
    strange.write_text('["77", []]\n')
    assert commands.main([*files, "--instances", str(strange)]) == 2
    assert "none of the photos with references is in this file" in capsys.readouterr().err
    assert commands.main([*files[:-1], "bleu", "--instances", str(strange)]) == 2
    assert "for the metric chair alone" in capsys.readouterr().err
    captions = tmp_path / "captions.json"
    captions.write_text(json.dumps([{"image_id": 1, "caption": "a"}]))
    assert commands.main([*files, "--instances", str(captions)]) == 2
    assert "names no objects of COCO" in capsys.readouterr().err


@pytest.mark.data
def test_people_seldom_hallucinate_and_captions_of_other_photos_mostly_do(data_dir):
    photos = list(coco.read_captions(data_dir / "coco" / "captions_val2014.json.gz"))[:2000]
    texts = {photo.id: [sentence.text for sentence in photo.sentences] for photo in photos}
    others = {id: rest for id, (_, *rest) in texts.items()}
    own = scorecard({id: first for id, (first, *_) in texts.items()}, others, ["chair"]).scores.corpus
    shifted = dict(zip(texts, [first for first, *_ in [*texts.values()][1:] + [*texts.values()][:1]], strict=True))
    strange = scorecard(shifted, others, ["chair"]).scores
    assert own["CHAIRs"] < 10
    assert own["CHAIRi"] < 7
    assert strange.corpus["CHAIRs"] > 50
    assert statistics.fmean(row["CHAIRs"] for row in strange.per_image.values()) == pytest.approx(
        strange.corpus["CHAIRs"]
    )
