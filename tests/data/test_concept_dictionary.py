"""The visual dictionary: what sentences mention, what boxes show, and how much of real captions it covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.data import boxes_jsonl, coco
from sightline.data.boxes_jsonl import COCO_80
from sightline.data.concept_dictionary import COCO, ConceptDictionary, Entry
from sightline.data.text_lists import read_sentences
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import rule
from sightline.vision.concept_names import concept_names

DICTIONARY = ConceptDictionary.coco()


@pytest.mark.parametrize(
    ("sentence", "concepts"),
    [
        ("a man rides a horse", ["person", "horse"]),
        ("two men and three women on horses", ["person", "horse"]),
        ("people with bikes and a motorbike", ["person", "bicycle", "motorcycle"]),
        ("a puppy chases the ball", ["dog", "ball"]),
        ("a hot dog on a table", ["hotdog", "table"]),
        ("two hot dogs for a dog", ["hotdog", "dog"]),
        ("hot dogs and hot days", ["hotdog"]),
        ("a teddy bear sits on a bed", ["teddy", "bed"]),
        ("a bear walks in the snow", ["bear"]),
        ("an orange shirt hangs there", []),
        ("he peels oranges slowly", ["orange"]),
        ("a bowl of oranges", ["bowl", "orange"]),
        ("they play table tennis outside", []),
        ("a couple of dogs run", ["dog"]),
        ("a couple walks on the beach", ["person"]),
        ("traffic lights above the street", ["light"]),
        ("a light blue wall", []),
        ("several wine glasses stand there", ["glass"]),
        ("sunglasses and glasses", []),
        ("children eat sandwiches with knives", ["person", "sandwich", "knife"]),
        ("a pair of skis against a wall", ["skis"]),
        ("computer mice near keyboards", ["mouse", "keyboard"]),
        ("scissors", ["scissors"]),
        ("the train leaves the train station", ["train"]),
        ("", []),
        ("snow on the mountain", []),
    ],
)
def test_sentences_mention_concepts(sentence: str, concepts: list[str]):
    assert DICTIONARY.find(sentence.split()) == concepts


def test_many_sentences_give_what_each_gives_alone():
    sentences = [s.split() for s in ("an orange shirt on a bench", "a cat", "", "she eats oranges")]
    assert DICTIONARY.find_all(sentences) == [DICTIONARY.find(words) for words in sentences]


def test_every_coco_class_has_a_concept_word_of_its_own_and_can_be_found_by_its_name():
    words = [DICTIONARY.of_class(name) for name in COCO_80]
    assert len(set(words)) == 80
    assert DICTIONARY.words == tuple(words)
    assert all(" " not in word for word in words)
    for name, word in zip(COCO_80, words, strict=True):
        shown = f"{name}s" if name in ("orange", "remote") else name  # one alone is an adjective to the tagger
        assert DICTIONARY.find(f"there is the {shown}".split()) == [word]


def test_the_file_is_sorted_as_coco_sorts_its_classes():
    names = [line.split("\t")[0] for line in COCO.read_text().splitlines()]
    assert names == [*COCO_80, "-"]


def test_concepts_of_boxes_are_unique_and_at_most_five_of_the_highest_scores():
    found = [("dog", 0.4), ("person", 0.5), ("hot dog", 0.9), ("dog", 0.8), ("cat", 0.29), ("cup", 0.3)]
    found += [("bowl", 0.31), ("fork", 0.7), ("pizza", 0.6)]
    boxes = [(i / 10, 0.0, 1.0, 1.0) for i in range(len(found))]
    scene = Scene("1", concepts=tuple(Concept(n, s, b) for (n, s), b in zip(found, boxes, strict=True)))
    kept = DICTIONARY.of_scene(scene)
    assert [(c.name, c.score) for c in kept] == [
        ("hotdog", 0.9), ("dog", 0.8), ("fork", 0.7), ("pizza", 0.6), ("person", 0.5)
    ]  # fmt: skip
    assert kept[1].box == boxes[3]
    assert [c.name for c in DICTIONARY.of_scene(scene, min_score=0.75)] == ["hotdog", "dog"]


def test_names_of_our_own_detector_go_by_their_words():
    names = {"kid": 0.9, "cloud": 0.8, "dog": 0.7, "man": 0.6}
    scene = Scene("1", concepts=tuple(Concept(name, score) for name, score in names.items()))
    assert [(c.name, c.score) for c in DICTIONARY.of_scene(scene)] == [("person", 0.9), ("dog", 0.7)]
    with pytest.raises(MissingRecordError, match="no class 'quokka'"):
        DICTIONARY.of_scene(Scene("1", concepts=(Concept("quokka", 0.9),)))


def test_the_entities_dictionary_knows_its_head_nouns_for_themselves():
    entities = ConceptDictionary.entities()
    assert entities.find("two dogs and a man in blue shirts".split()) == ["dog", "man", "shirt"]
    assert entities.of_class("man") == "man"
    with pytest.raises(MissingRecordError, match="no class 'toaster'"):
        entities.of_class("toaster")


@pytest.mark.parametrize(
    ("sentence", "concepts"),
    [
        ("a man throws a tennis ball on the beach", ["person", "ball", "beach"]),
        ("a lake below the mountains", ["lake", "mountain"]),
        ("an old water tower", ["tower"]),
        ("towers in a city", ["tower"]),
        ("a mountain bike", ["bicycle"]),  # COCO's words stay COCO's
        ("a beagle on a leash", ["dog"]),
        ("landscapes and clothing", []),  # kinds of classes
    ],
)
def test_the_imagenet_dictionary_knows_cocos_words_and_names_of_classes(sentence, concepts):
    assert ConceptDictionary.imagenet().find(sentence.split()) == concepts


def test_of_the_imagenet_dictionary_only_cocos_words_are_always_in_a_vocabulary():
    assert ConceptDictionary.imagenet().words == DICTIONARY.words


def test_a_concept_without_a_word_in_the_vocabulary_is_none():
    known = ConceptDictionary.imagenet().within({"person", "beach", "animal"})
    assert known.find("two men and a dog on a beach by a lake".split()) == ["person", "beach"]
    names = {"lake": 0.9, "dog": 0.8, "beach": 0.7, "person": 0.6}
    scene = Scene("1", concepts=tuple(Concept(name, score) for name, score in names.items()))
    assert [c.name for c in known.of_scene(scene)] == ["beach", "person"]
    assert known.words == ("person",)


def test_wrong_dictionaries_are_refused(tmp_path):
    path = tmp_path / "d.tsv"
    for line in ("dog\tdog", "dog\tbig dog\tdog", "dog\t\tdog"):
        path.write_text(line + "\n")
        with pytest.raises(DataError, match="line 1"):
            ConceptDictionary.read(path)
    with pytest.raises(DuplicateRecordError, match="'bat' means both bat and animal"):
        ConceptDictionary([Entry("baseball bat", "bat", ("bat/n",)), Entry("animal", "animal", ("bat",))])
    with pytest.raises(DuplicateRecordError, match="class 'dog' appears twice"):
        ConceptDictionary([Entry("dog", "dog", ("dog",)), Entry("dog", "dog", ("puppy",))])


def coverage(sentences: list[str]) -> tuple[int, float, float]:
    """Sentences of 8 words or more, the share that mention a concept, and the share that mention one but person."""
    long = [words for words in map(rule("r2m").words, sentences) if len(words) >= 8]
    found = DICTIONARY.find_all(long)
    others = sum(any(word != "person" for word in row) for row in found)
    return len(long), sum(map(bool, found)) / len(long), others / len(long)


@pytest.mark.data
def test_most_flickr_and_coco_captions_mention_a_concept(data_dir: Path):
    flickr = read_sentences(data_dir / "corpora/flickr30k_captions.txt.gz")[::10]
    long, covered, others = coverage(flickr)
    assert long > 10_000
    assert covered > 0.96
    assert others > 0.26
    captions = [s.text for s in coco.read_captions(data_dir / "coco/captions_val2014.json.gz").sentences()][::20]
    long, covered, others = coverage(captions)
    assert long > 10_000
    assert covered > 0.90
    assert others > 0.77


@pytest.mark.data
def test_most_coco_photos_have_a_concept(data_dir: Path):
    boxes = boxes_jsonl.read(data_dir / "coco/pseudo_boxes.jsonl.gz")
    ids = boxes.ids()[::50]
    assert sum(bool(DICTIONARY.of_scene(boxes[id])) for id in ids) > 0.9 * len(ids)


def test_the_detectors_dictionary_has_a_word_for_every_name_and_for_what_has_none():
    found = ConceptDictionary.detector()
    assert all(found.word_of(name) for name in concept_names())
    assert found.find("two men and an umpire eat a hot dog on the grass".split()) == [
        "man",
        "person",
        "hotdog",
        "grass",
    ]
    assert found.find("they play table tennis".split()) == []
    assert ConceptDictionary.coco().find("two men and an umpire on the grass".split()) == ["person"]
    scene = Scene("1", concepts=(Concept("cell phone", 0.9), Concept("man", 0.8)))
    assert [one.name for one in found.of_scene(scene)] == ["phone", "man"]


def test_names_of_imagenet_go_by_what_they_are_a_kind_of():
    detector = ConceptDictionary.detector()
    assert [detector.word_of(name) for name in ("leopard", "spotted cat", "dog")] == ["animal", "animal", "dog"]
    assert DICTIONARY.word_of("leopard") == ""
    seen = Scene("a", concepts=(Concept("leopard", 0.9), Concept("person", 0.8)))
    assert [concept.name for concept in detector.of_scene(seen)] == ["animal", "person"]
    assert [concept.name for concept in DICTIONARY.of_scene(seen)] == ["person"]
