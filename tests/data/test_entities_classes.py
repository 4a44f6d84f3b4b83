import pytest

from sightline.data import entities
from sightline.data.entities import EntitiesPhoto, build_classes, ground, parse_sentence, read_classes
from sightline.data.records import GroundedWord
from sightline.errors import DataError

LINE = "[/EN#1/people Two young women] and [/EN#2/animals a Dog] near [/EN#0/notvisual the edge] and [/EN#3/other it]"


def photo(id: str = "7") -> EntitiesPhoto:
    boxes = {"1": ((0.0, 0.0, 9.0, 9.0), (20.0, 0.0, 29.0, 9.0)), "2": ((5.0, 5.0, 8.0, 8.0),)}
    return EntitiesPhoto(id, (40, 30), (parse_sentence(LINE, "x"),), boxes)


def test_a_class_is_the_noun_lemma_of_the_last_word_of_enough_phrases():
    assert build_classes([photo()] * 3, min_count=3) == {"dog": 3, "it": 3, "woman": 3}
    assert build_classes([photo()] * 2, min_count=3) == {}


def test_grounded_words_are_heads_with_boxes_and_a_class():
    grounded = ground(photo(), {"woman": 30, "dog": 20, "it": 99})
    assert grounded.size == (40, 30)
    (sentence,) = grounded.sentences
    assert sentence.words == (
        GroundedWord(2, "woman", ((0.0, 0.0, 9.0, 9.0), (20.0, 0.0, 29.0, 9.0))),
        GroundedWord(5, "dog", ((5.0, 5.0, 8.0, 8.0),)),
    )
    assert sentence.tokens[5] == "Dog"
    assert ground(photo(), {}).sentences[0].words == ()


def test_the_frozen_list_has_classes_in_order_of_count():
    classes = read_classes()
    assert list(classes)[:3] == ["dog", "man", "boy"]
    assert list(classes.values()) == sorted(classes.values(), reverse=True)
    assert min(classes.values()) == 20


def test_a_broken_class_list_is_told_with_its_line(tmp_path):
    (tmp_path / "c.tsv").write_text("dog\t3\ncat three\n")
    with pytest.raises(DataError, match="line 2"):
        read_classes(tmp_path / "c.tsv")


@pytest.mark.data
def test_the_frozen_list_comes_from_the_training_photos_alone(data_dir):
    folder = data_dir / "flickr8k"
    train = {name.split("_")[0] for name in (folder / "Flickr_8k.trainImages.txt").read_text().split()}
    test = {name.split("_")[0] for name in (folder / "Flickr_8k.testImages.txt").read_text().split()}
    photos = entities.read_photos(folder / "flickr30k_entities_8091.tar.gz")
    classes = build_classes(p for p in photos.values() if p.id in train)
    assert classes == read_classes()
    phrases = [ph for p in photos.values() if p.id in test for s in p.sentences for ph in s.phrases if ph.visual]
    words = [w for p in photos.values() if p.id in test for s in ground(p, classes).sentences for w in s.words]
    assert (
        len(words)
        / sum(ph.chain in p.boxes for p in photos.values() if p.id in test for s in p.sentences for ph in s.phrases)
        > 0.85
    )
    assert len(phrases) == 14788
