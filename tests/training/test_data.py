"""From what a recipe says about its data to pools: ids match, splits hold, nothing passes silently."""

import json
import string
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from learning_samples import DATA, names, scene, sentences, write_dataset, write_store
from sightline.config import build
from sightline.data.records import CaptionedPhoto
from sightline.errors import (
    ConfigError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingPartError,
    MissingRecordError,
)
from sightline.models.jran import JRANConfig
from sightline.models.r2m import R2MConfig
from sightline.models.scan import POSSCANConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.updown import UpDownConfig
from sightline.scene import Scene
from sightline.text.vocabulary import Vocabulary
from sightline.training.data import build_data, mark_of, needs_of
from sightline.training.data_config import DataConfig
from sightline.training.features import PhotoScenes, match
from sightline.training.objectives.distillation import DistillationConfig
from sightline.training.objectives.r2m_stages import R2MImageConfig
from sightline.training.recipe_captions import hash_share
from sightline.training.stage import Stage
from sightline.training.tensor_tables import SceneStream, SceneTable
from sightline.vision.feature_store import FeatureStore

UPDOWN = UpDownConfig(region_width=6)
BOXES = Stage(DistillationConfig("boxes"))


@pytest.fixture
def root(tmp_path):
    return write_dataset(tmp_path / "tiny")


def config(**changes):
    return build(DataConfig, {**DATA, **changes})


def test_pools_hold_photos_captions_and_scenes_of_their_split(root):
    data = build_data(config(), UPDOWN, base=root)
    assert {name: len(pool) for name, pool in data.pools.items()} == {"train": 13, "val": 3, "test": 3}
    train = data.pools["train"]
    assert train.ids == tuple(names(20)[:13])
    assert train.first.tolist() == list(range(0, 27, 2))
    assert train.texts.words[2] == ("a", "green", "dog", "stands", "there")
    assert train.references[1] == ("A green dog stands there .", "There is a green dog .")
    scenes = train.scenes.batch(torch.tensor([1, 5]))
    assert scenes.ids == (names(20)[1], names(20)[5])
    assert torch.equal(scenes.regions[1], torch.from_numpy(scene("", 5).regions))
    assert scenes.vector is None  # Up-Down does not read it
    assert (data.fingerprint, data.rule.name) == ("tiny", "neuraltalk2")


def test_photos_with_a_novel_object_are_not_trained_on_and_still_measured(root):
    """Photos 8 to 11 show a bus; those of val and test stay."""
    whole, held = (build_data(config(novel=novel), UPDOWN, base=root) for novel in (False, True))
    assert held.pools["train"].ids == tuple(names(20)[:8] + names(20)[12:13])
    assert not any("bus" in words for words in held.pools["train"].texts.words)
    assert any("bus" in words for words in whole.pools["train"].texts.words)
    assert {name: held.pools[name].ids for name in ("val", "test")} == {
        name: whole.pools[name].ids for name in ("val", "test")
    }
    assert "4 photos of train left out: a caption names a novel object." in held.notes


def test_one_caption_with_a_novel_object_takes_its_photo_along(root):
    lines = (root / "captions.token").read_text().splitlines()
    lines[1] = lines[1].partition("\t")[0] + "\tTwo sofas stand there ."
    (root / "captions.token").write_text("\n".join(lines) + "\n")
    assert names(20)[0] not in build_data(config(novel=True), UPDOWN, base=root).pools["train"].ids


def test_words_are_those_of_the_splits_the_rule_counts(root):
    (root / "captions.token").write_text(
        (root / "captions.token").read_text() + f"{names(20)[-2]}#2\tzebra\n{names(20)[-1]}#2\tgiraffe\n"
    )
    everywhere = build_data(config(), UPDOWN, base=root).vocabulary
    assert "zebra" in everywhere  # of test, which neuraltalk2 counts
    assert "giraffe" not in everywhere  # of a photo in no split
    assert "zebra" not in build_data(config(vocabulary="train"), UPDOWN, base=root).vocabulary
    assert "zebra" not in build_data(config(rule="scan"), UPDOWN, base=root).vocabulary


def test_a_minimum_count_replaces_the_rules(root):
    thirteen = build_data(config(min_count=13, vocabulary="train"), UPDOWN, base=root).vocabulary
    assert set(thirteen.words) == {"a", "there", "stands", "is"}
    with pytest.raises(CountError, match="no word occurs 999 times"):
        build_data(config(min_count=999), UPDOWN, base=root)


def test_a_vocabulary_that_is_given_is_taken_over(root):
    given = Vocabulary(["a", "dog"])
    data = build_data(config(), UPDOWN, base=root, vocabulary=given)
    assert data.vocabulary is given
    assert data.pools["train"].texts.ids[0, :4].tolist() == [1, 4, 3, 5]


def test_reading_twice_gives_the_same(root):
    one, other = (build_data(config(), UPDOWN, base=root) for _ in range(2))
    assert one.digest() == other.digest()
    (root / "captions.token").write_text((root / "captions.token").read_text().replace("red dog", "pink dog", 1))
    assert build_data(config(), UPDOWN, base=root).digest() != one.digest()


def test_what_was_read_is_told(root):
    told = "\n".join(build_data(config(), UPDOWN, base=root).notes)
    assert "names 20 photos with 40 captions" in told
    assert "Splits: 13 train, 3 val, 3 test; 1 photo in no split that is used." in told
    assert "All 19 photos have features" in told
    assert "kept in memory: about 0.00 GiB, of 16 GiB" in told


def test_features_under_numbers_or_paths_find_their_photos(root):
    listed = names(20)[:-1]
    for path, ids in (("numbers", [n.split("_")[0] for n in listed]), ("paths", [f"some/folder/{n}" for n in listed])):
        write_store(root / path, ids)
        data = build_data(config(features=path), UPDOWN, base=root)
        assert data.pools["val"].scenes.batch(torch.tensor([0])).ids == (names(20)[13],)


def test_coco_names_ids_and_numbers_are_the_same_photo():
    photo = CaptionedPhoto("391895", (), "COCO_val2014_000000391895.jpg")
    for id in ("391895", "COCO_val2014_000000391895.jpg", "COCO_val2014_000000391895", "train2017/000000391895.jpg"):
        assert match([photo], [id, "12"], Path("x")) == {"391895": id}


def test_two_features_of_one_number_are_nobodys():
    assert match([CaptionedPhoto("7.jpg")], ["a/7.jpg", "b/7.jpg"], Path("x")) == {}


def test_one_feature_for_two_photos_is_refused():
    with pytest.raises(
        DuplicateRecordError, match=r"feature 7.jpg would be that of photo a/7.jpg and of photo b/7.jpg"
    ):
        match([CaptionedPhoto("a/7.jpg"), CaptionedPhoto("b/7.jpg")], ["7.jpg"], Path("x"))


def test_a_photo_without_features_is_named(root):
    write_store(root / "some", names(20)[2:-1], list(range(2, 19)))
    with pytest.raises(
        MissingRecordError, match=r"2 of 19 photos have no features: 1000_0000000000.jpg, 1001_"
    ) as told:
        build_data(config(features="some"), UPDOWN, base=root)
    assert "--allow-missing" in str(told.value)
    data = build_data(config(features="some", allow_missing=True), UPDOWN, base=root)
    assert data.pools["train"].ids == tuple(names(20)[2:13])
    assert len(data.pools["train"].texts) == 22
    assert any("2 of 19 photos have no features" in sentence and "left out" in sentence for sentence in data.notes)


def test_features_of_other_photos_are_refused_whatever_is_allowed(root):
    write_store(root / "others", ["x.jpg"])
    with pytest.raises(MissingRecordError, match="19 of 19"):
        build_data(config(features="others", allow_missing=True), UPDOWN, base=root)


def test_a_tiny_run_takes_the_first_photos_and_all_words(root):
    data = build_data(config(max_photos=2), UPDOWN, base=root)
    assert {name: len(pool) for name, pool in data.pools.items()} == {"train": 2, "val": 2, "test": 2}
    assert data.vocabulary == build_data(config(), UPDOWN, base=root).vocabulary


@pytest.mark.parametrize(("changes", "kind"), [({"cache": "disk"}, SceneStream), ({"cache": "memory"}, SceneTable),
                                               ({"budget": 1e-9}, SceneStream), ({}, SceneTable)])  # fmt: skip
def test_scenes_are_in_memory_where_they_fit(root, changes, kind):
    pool = build_data(config(**changes), UPDOWN, base=root).pools["train"]
    assert isinstance(pool.scenes, kind)
    same = build_data(config(), UPDOWN, base=root).pools["train"]
    rows = torch.tensor([3, 0])
    assert torch.equal(pool.scenes.batch(rows).regions, same.scenes.batch(rows).regions)


def test_a_part_that_features_lack_is_named(root):
    with pytest.raises(MissingPartError, match="`grid`"):
        build_data(config(), JRANConfig(region_width=6, grid_width=6), base=root)


def test_more_parts_are_kept_for_teachers(root):
    data = build_data(config(parts=["vector"]), UPDOWN, base=root)
    assert data.pools["train"].scenes.batch(torch.tensor([0])).vector.shape == (1, 6)


def test_an_empty_caption_is_refused(root):
    text = (root / "captions.token").read_text()
    (root / "captions.token").write_text(text.replace("A red dog stands there .", "  ", 1))
    with pytest.raises(DataError, match=r"a caption of photo 1000_0000000000.jpg is empty"):
        build_data(config(), UPDOWN, base=root)
    (root / "captions.token").write_text(text.replace("A red dog stands there .", "...", 1))
    with pytest.raises(DataError, match=r"the caption '...' of photo 1000_0000000000.jpg has no word"):
        build_data(config(), UPDOWN, base=root)


def test_captions_without_splits_ask_for_them(root):
    with pytest.raises(ConfigError, match=r"no photo has a split.*data.shares"):
        build_data(config(splits={}), UPDOWN, base=root)
    with pytest.raises(ConfigError, match="no photo is in training"):
        build_data(config(train=["training"]), UPDOWN, base=root)


def test_shares_follow_names_alone_and_leave_no_split_empty(root):
    shares = {"train": 0.8, "val": 0.1, "test": 0.1}
    write_store(root / "all", names(20))
    data = build_data(config(splits={}, shares=shares, features="all"), UPDOWN, base=root)
    ranges = {"train": (0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1)}
    for split, (low, high) in ranges.items():
        assert data.pools[split].ids == tuple(name for name in names(20) if low <= hash_share(name) < high)
    small = build_data(
        config(splits={}, shares={"train": 0.98, "val": 0.01, "test": 0.01}, features="all"), UPDOWN, base=root
    )
    assert all(len(pool) >= 1 for pool in small.pools.values())
    assert sum(len(pool) for pool in small.pools.values()) == 20


def test_shares_that_cannot_be_are_refused(root):
    with pytest.raises(ConfigError, match="give shares above 0"):
        build_data(config(splits={}, shares={"train": 0.9, "val": 0.2}), UPDOWN, base=root)
    (root / "one.token").write_text("a.jpg#0\ta dog\n")
    with pytest.raises(ConfigError, match="1 photo cannot be shared by 2 splits"):
        build_data(config(captions="one.token", splits={}, shares={"train": 0.5, "val": 0.5}), UPDOWN, base=root)


def test_several_caption_files_are_one_set(root):
    lines = (root / "captions.token").read_text().splitlines()
    (root / "a.token").write_text("\n".join(lines[:20]) + "\n")
    (root / "b.token").write_text("\n".join(lines[20:]) + "\n")
    both = build_data(config(captions=["a.token", "b.token"]), UPDOWN, base=root)
    assert both.digest() == build_data(config(), UPDOWN, base=root).digest()


def test_a_table_of_captions_may_lie_elsewhere_than_its_photos(root):
    (root / "photos").mkdir()
    rows = ["file,caption"]
    for i, name in enumerate(names(20)[:-1]):
        (root / "photos" / name).write_bytes(b"\xff\xd8\xff")
        rows += [f"{name},{text}" for text in sentences(i)]
    (root / "captions.csv").write_text("\n".join(rows) + "\n")
    data = build_data(config(captions="captions.csv", images="photos"), UPDOWN, base=root)
    assert len(data.pools["train"]) == 13
    (root / "photos" / names(20)[4]).unlink()
    with pytest.raises(MissingRecordError, match=r"there is no photo '1004_0000000004.jpg' in"):
        build_data(config(captions="captions.csv", images="photos"), UPDOWN, base=root)


def test_photos_without_captions_among_captioned_ones_are_named(root):
    images = [{"id": i, "file_name": f"{i}.jpg"} for i in range(3)]
    whole = {"images": [{**one, "split": "train", "filename": one["file_name"], "imgid": one["id"], "sentids": [],
                         "sentences": []} for one in images], "dataset": "x"}  # fmt: skip
    whole["images"][0]["sentences"] = [{"raw": "a dog", "tokens": ["a", "dog"], "sentid": 0, "imgid": 0}]
    whole["images"][0]["sentids"] = [0]
    (root / "dataset_x.json").write_text(json.dumps(whole))
    with pytest.raises(DataError):
        build_data(config(captions="dataset_x.json", splits={}), UPDOWN, base=root)


def test_nouns_are_marked_only_where_somebody_looks(root):
    assert mark_of(UPDOWN) is None
    assert build_data(config(), UPDOWN, base=root).pools["train"].texts.tagged is None
    stage = Stage(DistillationConfig("teacher"))
    tagged = build_data(config(), UPDOWN, [stage], base=root).pools["train"].texts.tagged
    assert tagged[0, :7].tolist() == [False, False, False, True, False, False, False]  # a red DOG stands there
    assert mark_of(POSSCANConfig(tags=("VBZ",)))([["it", "stands"]]) == [[False, True]]


def test_what_is_read_of_scenes_follows_from_model_and_objectives():
    assert needs_of(UPDOWN) == ("regions",)
    assert needs_of(R2MConfig()) == ("concepts",)
    assert needs_of(SceneTransConfig()) == ("regions", "boxes", "grid")
    assert needs_of(SceneTransConfig(concepts=3)) == ("regions", "boxes", "grid", "names")
    assert needs_of(R2MConfig(), [Stage(R2MImageConfig())]) == ("concepts", "vector")


def test_a_corpus_gives_sentences_with_concepts(root):
    text = [
        "a dog stands on the green grass today",
        "a bus and a dog are in the street",
        "nothing is here at all today my friends",
        "too short dog",
        "zyx zyy zyz dog zyw zyv zyu zyt",
    ]
    (root / "text.txt").write_text("\n".join(text) + "\n")
    data = build_data(
        config(corpus="text.txt", vocabulary="corpus", rule="r2m", min_words=6, unknown=0.5, held_out=0.0),
        R2MConfig(vector_width=6), [Stage(R2MImageConfig())], base=root,
    )  # fmt: skip
    corpus, held_out = data.pools["corpus"], data.pools["corpus-val"]
    assert len(corpus) + len(held_out) == 4  # `friends` are persons; one sentence is short
    assert len(held_out) == 1
    scenes = corpus.scenes.batch(torch.tensor([1]))
    assert [data.vocabulary.word(i) for i in scenes.concepts[0].tolist()] == ["bus", "dog"]
    train = data.pools["train"].scenes.batch(torch.tensor([0, 4]))
    assert [data.vocabulary.word(i) for i in train.concepts[:, 0].tolist()] == ["dog", "cat"]
    assert train.vector.shape == (2, 6)
    assert train.regions is None
    assert "umbrella" in data.vocabulary  # concept words are always there


def test_unknown_words_and_equal_sentences_of_a_corpus(root):
    text = ["a dog stands on the green grass today"] * 9 + ["zyx zyy zyz dog zyw zyv zyu zyt"]
    (root / "text.txt").write_text("\n".join(text) + "\n")
    changes = {"corpus": "text.txt", "vocabulary": "corpus", "rule": "r2m", "min_count": 2, "held_out": 0.5}
    data = build_data(config(captions=[], splits={}, **changes), R2MConfig(), base=root)
    assert any("1 with too many unknown words" in sentence for sentence in data.notes)
    assert set(data.pools) == {"corpus", "corpus-val"}
    assert {len(data.pools["corpus"]), len(data.pools["corpus-val"])} == {8, 1}  # on one side but for the one it needs


def test_concepts_may_come_from_a_file_of_boxes(root):
    rows = [
        [name.split("_")[0], [[16, 0.9, 0, 0, 500, 500], [0, 0.2, 0, 0, 9, 9]] if i else [[16, 0.2, 0, 0, 9, 9]]]
        for i, name in enumerate(names(20))
    ]
    del rows[2]
    rows[2][1] = []
    (root / "boxes.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (root / "text.txt").write_text("\n".join(["a dog stands on the green grass today"] * 4) + "\n")
    changes = {"corpus": "text.txt", "vocabulary": "corpus", "rule": "r2m", "concepts": "boxes.jsonl"}
    data = build_data(config(**changes), R2MConfig(vector_width=6), [Stage(R2MImageConfig())], base=root)
    used = (names(20)[1], *names(20)[4:13])
    assert data.pools["train"].ids == used  # the others: a box that is unsure, no line, no box
    assert any("3 photos of train left out" in sentence for sentence in data.notes)
    scenes = data.pools["train"].scenes.batch(torch.tensor([0]))
    assert [data.vocabulary.word(i) for i in scenes.concepts[0].tolist()] == ["dog"]
    assert torch.equal(scenes.vector[0], torch.from_numpy(scene("", 1).vector))
    alone = build_data(config(**changes, features=None), R2MConfig(), base=root)
    assert alone.pools["train"].ids == used


def test_concepts_of_several_files_are_a_photos_together(root):
    first, second = (
        [[name.split("_")[0], [[number, score, 0, 0, 500, 500]]] for name in names(20)]
        for number, score in ((16, 0.5), (0, 0.9))  # a dog, a person
    )
    (root / "dogs.jsonl").write_text("\n".join(map(json.dumps, first)) + "\n")
    (root / "people.jsonl").write_text("\n".join(map(json.dumps, second)) + "\n")
    (root / "nothing.jsonl").write_text("\n".join(json.dumps([name, []]) for name, _ in first) + "\n")
    (root / "text.txt").write_text("\n".join(["a dog stands on the green grass today"] * 4) + "\n")
    changes = {"corpus": "text.txt", "vocabulary": "corpus", "rule": "r2m"}
    both = config(**changes, concepts=("dogs.jsonl", "people.jsonl", "nothing.jsonl"))
    data = build_data(both, R2MConfig(vector_width=6), [Stage(R2MImageConfig())], base=root)
    scenes = data.pools["train"].scenes.batch(torch.tensor([0]))
    assert [data.vocabulary.word(i) for i in scenes.concepts[0].tolist()] == ["person", "dog"]  # the surest first
    sure = build_data(replace(both, min_score=0.6), R2MConfig(vector_width=6), [Stage(R2MImageConfig())], base=root)
    scenes = sure.pools["train"].scenes.batch(torch.tensor([0]))
    assert [sure.vocabulary.word(i) for i in scenes.concepts[0].tolist()] == ["person"]
    warnings = [note for note in data.notes if note.startswith("Warning")]
    assert len(warnings) == 1
    assert "nothing.jsonl names nothing in 19 photos" in warnings[0]


def test_photos_that_are_measured_get_the_surest_concept_and_are_never_left_out(root):
    """Unsure boxes, no box and no line: such photos are no training, but they are part of a test."""
    every = names(20)
    boxes = {name: [[16, 0.9, 0, 0, 500, 500], [0, 0.8, 0, 0, 9, 9]] for name in every}  # dogs, and people
    boxes[every[13]] = [[0, 0.1, 0, 0, 9, 9], [17, 0.2, 0, 0, 9, 9]]  # a person, and more likely a horse
    boxes[every[16]] = []
    del boxes[every[17]]
    boxes[every[0]] = [[16, 0.9, 0, 0, 500, 500]]
    boxes[every[1]] = [[16, 0.2, 0, 0, 500, 500]]
    rows = [[name.split("_")[0], found] for name, found in boxes.items()]
    (root / "boxes.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (root / "text.txt").write_text("\n".join(["a dog stands on the green grass today"] * 4) + "\n")
    changes = {"corpus": "text.txt", "vocabulary": "corpus", "rule": "r2m", "concepts": "boxes.jsonl"}
    data = build_data(config(**changes), R2MConfig(vector_width=6), [Stage(R2MImageConfig())], base=root)
    concepts = {}
    for pool in (data.pools["val"], data.pools["test"]):
        for row, id in enumerate(pool.ids):
            scene = pool.scenes.batch(torch.tensor([row]))
            concepts[id] = [data.vocabulary.word(i) for i in scene.concepts[scene.concept_mask].tolist()]
    assert list(concepts) == every[13:19]  # all of val and test
    assert concepts[every[13]] == ["horse"]
    assert concepts[every[16]] == concepts[every[17]] == ["dog"]  # the most frequent one of the training photos
    assert every[1] not in data.pools["train"].ids
    told = " ".join(data.notes)
    assert "without a sure concept: the surest one is taken" in told
    assert "in which nothing was found: taken to show the most frequent concept, dog" in told


def test_concepts_of_other_photos_are_refused(root):
    (root / "boxes.jsonl").write_text(json.dumps(["elsewhere_7", [[16, 0.9, 0, 0, 500, 500]]]) + "\n")
    with pytest.raises(MissingRecordError, match=rf"none of 19 photos, such as {names(20)[0]}, is among its 1.*alike"):
        build_data(config(concepts="boxes.jsonl"), R2MConfig(vector_width=6), [Stage(R2MImageConfig())], base=root)


def test_annotated_words_find_their_regions(root):
    folder = root / "entities"
    (folder / "Sentences").mkdir(parents=True)
    (folder / "Annotations").mkdir()
    (folder / "Sentences" / "1000.txt").write_text("[/EN#1/animals A red dog] stands there .\n")
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>50</xmax><ymax>100</ymax></bndbox>"
    (folder / "Annotations" / "1000.xml").write_text(
        f"<annotation><size><width>100</width><height>200</height></size><object><name>1</name>{box}</object></annotation>"
    )
    assert build_data(config(grounding="entities"), UPDOWN, base=root).pools["train"].positives is None
    data = build_data(config(grounding="entities"), UPDOWN, [BOXES], base=root)
    assert set(data.grounded) == {names(20)[0]}
    positives = data.pools["train"].positives
    assert set(positives) == {0}
    assert positives[0].shape == (4, 2)  # START a red dog
    assert positives[0][3, 0] > 0.9
    assert positives[0][3, 1] == pytest.approx(0, abs=1e-3)
    (folder / "Sentences" / "1000.txt").rename(folder / "Sentences" / "9.txt")
    (folder / "Annotations" / "1000.xml").rename(folder / "Annotations" / "9.xml")
    with pytest.raises(ConfigError, match="none of its photos"):
        build_data(config(grounding="entities"), UPDOWN, base=root)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rule": "mine"}, "no vocabulary rule 'mine'"),
        ({"shares": {"train": 1.0}}, "both data.splits and data.shares"),
        ({"vocabulary": "corpus"}, "there is no data.corpus"),
        ({"max_photos": -1}, "`data.max_photos` is -1"),
        ({"budget": 0}, "`data.budget` is 0"),
        ({"views": 0}, "`data.views` is 0"),
        ({"window": 0}, "`data.window` is 0"),
        ({"window": 1.5}, "`data.window` is 1.5"),
        ({"encoder": "lite2"}, "give data.images and data.features"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(changes, told):
    with pytest.raises(ConfigError, match=told):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"features": None}, "there are no features"),
        ({"features": "captions.token"}, "flickr-token holds no features"),
        ({"captions": "features"}, "holds no captions"),
        ({"captions": []}, "nothing to train on"),
        ({"corpus": "features"}, "holds no sentences"),
    ],
)
def test_files_of_another_kind_are_refused(root, changes, told):
    with pytest.raises((ConfigError, DataError), match=told):
        build_data(config(**changes), UPDOWN, base=root)


def test_scenes_of_a_store_keep_the_ids_of_captions(root):
    source = {"7": scene("7", 1)}
    view = PhotoScenes(source, {"a.jpg": "7"})
    assert view["a.jpg"].id == "a.jpg"
    assert np.array_equal(view["a.jpg"].regions, source["7"].regions)
    assert view.concepts_of("a.jpg") == ()
    assert replace(view, features=None)["a.jpg"] == Scene("a.jpg")


@pytest.mark.data
def test_flickr8ks_phantom_photo_is_in_no_pool(data_dir, tmp_path):
    flickr = data_dir / "flickr8k"
    lists = {split: (flickr / f"Flickr_8k.{name}Images.txt").read_text().split() for split, name in
             {"train": "train", "val": "dev", "test": "test"}.items()}  # fmt: skip
    write_store(tmp_path / "features", [name for part in lists.values() for name in part], [0] * 8000)
    changes = {
        "root": str(flickr),
        "captions": "Flickr8k.token.txt",
        "splits": {split: f"Flickr_8k.{name}Images.txt" for split, name in
                   {"train": "train", "val": "dev", "test": "test"}.items()},
        "grounding": "flickr30k_entities_8091.tar.gz",
        "features": str(tmp_path / "features"),
        "min_count": 0,
    }  # fmt: skip
    data = build_data(config(**changes), UPDOWN, [BOXES])
    assert {name: len(pool) for name, pool in data.pools.items()} == {"train": 6000, "val": 1000, "test": 1000}
    assert not any("2258277193_586949ec62.jpg.1" in pool.ids for pool in data.pools.values())
    assert len(data.grounded) == 8000
    assert len(data.pools["train"].positives) > 25_000
    listed = {name for part in lists.values() for name in part}
    lines = [line.split("\t") for line in (flickr / "Flickr8k.token.txt").read_text().splitlines()]
    said = [text.lower() for name, text in lines if name.split("#")[0] in listed]
    plain = str.maketrans("", "", string.punctuation)
    counts = Counter(word for text in said for word in text.translate(plain).split())
    assert set(data.vocabulary.words) == {word for word, count in counts.items() if count > 5}


@pytest.mark.data
def test_cocos_two_files_and_karpathys_lists_are_one_set(data_dir, tmp_path):
    write_store(
        tmp_path / "features",
        ["train2017/000000184613.jpg", "train2017/000000057870.jpg", "train2017/000000391895.jpg"],
    )
    changes = {
        "root": str(data_dir / "coco"),
        "captions": ["captions_train2014.json.gz", "captions_val2014.json.gz"],
        "splits": {split: f"karpathy_{split}.txt.gz" for split in ("train", "val", "test")},
        "features": str(tmp_path / "features"),
        "allow_missing": True,
        "min_count": 0,
    }
    data = build_data(config(**changes), UPDOWN)
    assert data.pools["val"].ids == ("184613",)
    assert any("Splits: 113,287 train, 5,000 val, 5,000 test." in sentence for sentence in data.notes)
    assert len(data.vocabulary.words) > 9_000


@pytest.mark.parametrize("alike", [True, False])
def test_regions_that_are_the_grid_are_warned_of_where_a_model_relates_the_two(root, alike):
    with FeatureStore.writer(root / "both", fingerprint="both", dtype="float32") as writer:
        for i, id in enumerate(names(20)[:-1]):
            seen = scene(id, i)
            grid = seen.regions if alike else seen.regions + 1
            writer.add(replace(seen, grid=grid, grid_shape=(1, 2), fingerprint="both"))
    told = {
        model.kind: " ".join(build_data(config(features="both"), model, base=root).notes)
        for model in (JRANConfig(region_width=6, grid_width=6), UPDOWN)
    }
    assert ("regions and grid of these photos are the same numbers" in told["jran"]) == alike
    assert "same numbers" not in told["updown"]
