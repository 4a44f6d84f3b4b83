"""From Flickr30k Entities files and region boxes to the overlaps of each caption's words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from box_samples import pixel_overlap as iou
from sightline.data.entities import ground, read_photos
from sightline.data.records import GroundedPhoto, GroundedSentence, GroundedWord
from sightline.errors import ConfigError, CountError, DataError, MissingPartError
from sightline.scene import Scene
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batches, Batching
from sightline.training.tensor_tables import Pool, SceneTable, TextTable
from sightline.training.word_boxes import align, overlaps, word_overlaps

WIDTH, HEIGHT = 256, 128  # powers of two, so that normalised boxes are exact
XML = f"""<annotation><filename>7.jpg</filename>
<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>
<object><name>1</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>50</xmax><ymax>50</ymax></bndbox></object>
<object><name>1</name><bndbox><xmin>101</xmin><ymin>1</ymin><xmax>150</xmax><ymax>50</ymax></bndbox></object>
<object><name>2</name><bndbox><xmin>1</xmin><ymin>51</ymin><xmax>200</xmax><ymax>100</ymax></bndbox></object>
</annotation>"""
MARKED = """[/EN#2/scene The grass] is where [/EN#1/animals two big-eared dogs] run .
[/EN#1/animals Two dogs] run on [/EN#2/scene the grass] , [/EN#0/notvisual it] is said .
"""
DOGS, GRASS = ((0, 0, 49, 49), (100, 0, 149, 49)), ((0, 50, 199, 99),)
# Normalised: the left dog exactly (its right edge is pixel 49), half of the right dog, the grass, a corner.
PIXELS = np.array([[0, 0, 49, 49], [100, 0, 124, 49], [0, 52, 199, 99], [190, 0, 199, 9]], float)
SENTENCES = ("two dogs run on the grass it is said", "the grass is where two bigeared dogs run", "nobody said this")
WORDS = Vocabulary(sorted({word for sentence in SENTENCES for word in sentence.split()}))


def photos(folder: Path) -> dict[str, GroundedPhoto]:
    for name, text in (("Annotations/7.xml", XML), ("Sentences/7.txt", MARKED)):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    return {id: ground(photo, {"dog": 1, "grass": 1}) for id, photo in read_photos(folder).items()}


def pool(max_words: int | None = None, size: tuple[int, int] | None = (WIDTH // 2, HEIGHT // 2)) -> Pool:
    """Photo 3 without annotations, photo 7 with; features of photo 7 were made from a smaller copy."""
    boxes = (PIXELS / [WIDTH, HEIGHT, WIDTH, HEIGHT]).astype(np.float32)
    scenes = [
        Scene(id, boxes=boxes[:n], regions=np.ones((n, 3), np.float32), size=size) for id, n in (("3", 2), ("7", 4))
    ]
    texts = TextTable.build([["a"], *(s.split() for s in SENTENCES)], WORDS, max_words)
    return Pool(("3", "7"), SceneTable.build(scenes, ["regions"]), texts, np.array([0, 1, 4]))


def test_each_annotated_word_has_its_overlap_with_every_region(tmp_path):
    found = word_overlaps(pool(), photos(tmp_path))
    assert set(found) == {1, 2}  # captions without annotation are left out, whatever their place in the file
    dogs = [max(iou(tuple(box), dog) for dog in DOGS) for box in PIXELS]
    grass = [iou(tuple(box), GRASS[0]) for box in PIXELS]
    expected = torch.full((7, 4), -1.0)  # START two dogs run on the grass
    expected[2], expected[6] = torch.tensor(dogs), torch.tensor(grass)
    torch.testing.assert_close(found[1], expected, atol=1e-5, rtol=0)
    assert dogs[0] == 1
    expected = torch.full((8, 4), -1.0)  # START the grass is where two bigeared dogs
    expected[7], expected[2] = torch.tensor(dogs), torch.tensor(grass)
    torch.testing.assert_close(found[2], expected, atol=1e-5, rtol=0)


def test_a_region_with_half_of_the_pixels_is_not_positive(tmp_path):
    row = word_overlaps(pool(), photos(tmp_path))[1][2]
    assert row[1] == 0.5  # 25 of 50 columns, borders counted
    assert (row > 0.5).tolist() == [True, False, False, False]


def test_words_that_the_length_limit_cuts_off_are_left_out(tmp_path):
    found = word_overlaps(pool(max_words=5), photos(tmp_path))
    assert found[1].shape == (3, 4)  # START two dogs
    assert found[2].shape == (3, 4)  # START the grass
    assert set(word_overlaps(pool(max_words=1), photos_of_dogs_alone())) == set()


def photos_of_dogs_alone() -> dict[str, GroundedPhoto]:
    sentence = GroundedSentence(tuple(SENTENCES[0].split()), (GroundedWord(1, "dog", DOGS),))
    return {"7": GroundedPhoto("7", (sentence,), None)}


def test_a_batch_carries_them_to_the_words_of_its_captions(tmp_path):
    whole = pool()
    whole = replace(whole, positives=word_overlaps(whole, photos(tmp_path)))
    seen = Batches(whole, Batching(of="pairs", size=4), seed=0, positives=True).batch(0, 0)
    for place, row in enumerate(seen.captions.tolist()):
        table = seen.positives[place]
        if row not in whole.positives:
            assert (table == -1).all()
            continue
        for t, word in enumerate(seen.texts.words[place], start=1):
            assert (table[t] >= 0).all() == (word in ("dogs", "grass"))
        assert (table[0] == -1).all()


def test_without_a_size_in_the_annotation_the_scene_must_know_it():
    found = word_overlaps(pool(size=(WIDTH, HEIGHT)), photos_of_dogs_alone())
    assert found[1][2][0] == 1
    with pytest.raises(DataError, match="image 7: its size in pixels is unknown"):
        word_overlaps(pool(size=None), photos_of_dogs_alone())


def test_two_annotated_tokens_in_one_word_share_its_row():
    words = (GroundedWord(0, "two", DOGS[:1]), GroundedWord(1, "dog", DOGS[1:]))
    sentence = GroundedSentence(("gra", "ss", "x"), words)
    texts = TextTable.build([["grass", "x"]], WORDS)
    whole = replace(pool(), ids=("7",), scenes=_second(pool()), texts=texts, first=np.array([0, 1]))
    row = word_overlaps(whole, {"7": GroundedPhoto("7", (sentence,), (WIDTH, HEIGHT))})[0][1]
    torch.testing.assert_close(row[:2], torch.tensor([1.0, 0.5]), atol=1e-5, rtol=0)


def _second(whole: Pool) -> SceneTable:
    return SceneTable(whole.scenes.batch(torch.tensor([1])))


def test_what_is_missing_is_named(tmp_path):
    annotated = photos(tmp_path)
    with pytest.raises(ConfigError, match="grounding needs captions"):
        word_overlaps(Pool(("7",)), annotated)
    bare = SceneTable.build(
        [Scene("3", vector=np.ones(3, np.float32)), Scene("7", vector=np.ones(3, np.float32))], ["vector"]
    )
    with pytest.raises(MissingPartError, match="grounding needs `boxes`"):
        word_overlaps(replace(pool(), scenes=bare), annotated)
    wrong = GroundedSentence(tuple(SENTENCES[0].split()), (GroundedWord(40, "dog", DOGS),))
    with pytest.raises(CountError, match="word 40 is annotated, of 9"):
        word_overlaps(pool(), {"7": GroundedPhoto("7", (wrong,), (WIDTH, HEIGHT))})


def test_overlaps_are_those_of_the_metric():
    random = np.random.default_rng(0)
    corners = random.uniform(0, 50, (30, 2))
    boxes = np.concatenate([corners, corners + random.uniform(0, 40, (30, 2))], 1)
    found = overlaps(boxes[:20], [tuple(box) for box in boxes[20:]])
    expected = [max(iou(tuple(one), tuple(other)) for other in boxes[20:]) for one in boxes[:20]]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("words", "tokens", "places"),
    [
        ("a man 's hat", "A man's hat .", [0, 1, 3, -1]),  # spread over two words: the one with most of it
        ("do n't", "don't", [0]),
        ("tshirt", "T-shirt", [0]),
        ("a t - shirt", "a t-shirt", [0, 3]),
        ("", "a dog", [-1, -1]),
    ],
)
def test_splits_of_one_sentence_are_aligned(words, tokens, places):
    assert align(words.split(), tokens.split()) == places


def test_other_sentences_are_not_aligned():
    assert align(["a", "cat"], ["a", "dog"]) is None
    assert align(["a", "dog", "runs"], ["a", "dog"]) is None


@given(st.lists(st.text("ab,'.", min_size=1, max_size=4), max_size=8), st.integers(0, 8))
def test_a_sentence_is_aligned_with_itself_however_it_is_cut(tokens, length):
    places = align(tokens[:length], tokens)
    for place, (token, found) in enumerate(zip(tokens, places, strict=True)):
        assert found == (place if place < length and any(c.isalnum() for c in token) else -1)
