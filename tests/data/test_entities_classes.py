from collections import Counter

import pytest

from sightline.data import entities
from sightline.data.entities import NOT_VISUAL, EntitiesPhoto, ground, head, parse_sentence, read_classes
from sightline.data.records import GroundedWord

LINE = "[/EN#1/people Two young women] and [/EN#2/animals a Dog] near [/EN#0/notvisual the edge] and [/EN#3/other it]"


def photo(id: str = "7") -> EntitiesPhoto:
    boxes = {"1": ((0.0, 0.0, 9.0, 9.0), (20.0, 0.0, 29.0, 9.0)), "2": ((5.0, 5.0, 8.0, 8.0),)}
    return EntitiesPhoto(id, (40, 30), (parse_sentence(LINE, "x"),), boxes)


def test_the_head_of_a_phrase_is_the_noun_lemma_of_its_last_word():
    assert [head(phrase) for phrase in photo().sentences[0].phrases] == ["woman", "dog", "edge", "it"]


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


def test_the_list_has_classes_in_order_of_count():
    classes = read_classes()
    assert list(classes)[:3] == ["dog", "man", "boy"]
    assert list(classes.values()) == sorted(classes.values(), reverse=True)
    assert min(classes.values()) == 20


@pytest.mark.data
def test_the_class_list_comes_from_the_training_photos_alone(data_dir):
    folder = data_dir / "flickr8k"
    photos = entities.read_photos(folder / "flickr30k_entities_8091.tar.gz")

    def visual_phrases(listed):
        ids = {name.split("_")[0] for name in (folder / listed).read_text().split()}
        pairs = ((photo, phrase) for photo in photos.values() for s in photo.sentences for phrase in s.phrases)
        return [(photo, phrase) for photo, phrase in pairs if photo.id in ids and phrase.chain != NOT_VISUAL]

    heads = (head(phrase) for _, phrase in visual_phrases("Flickr_8k.trainImages.txt") if phrase.words[-1].isalpha())
    assert read_classes() == {name: count for name, count in Counter(heads).items() if count >= 20}
    test = visual_phrases("Flickr_8k.testImages.txt")
    assert len(test) == 14788
    drawn = [phrase for photo, phrase in test if phrase.chain in photo.boxes]
    assert sum(head(phrase) in read_classes() for phrase in drawn) / len(drawn) > 0.85
