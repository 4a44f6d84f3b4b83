"""Where in a photo the nouns of a sentence are."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bundle_samples import EXAMPLES, SIZE, tiny_bundle
from sightline.errors import ConfigError, CountError
from sightline.grounding.synonyms import stand_in
from sightline.pipeline import Pipeline
from sightline.text.vocabulary import Vocabulary

torch.set_num_threads(1)
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


@pytest.fixture(scope="module")
def pipeline(bundle):
    return Pipeline(bundle)


def test_every_noun_of_a_sentence_has_a_box_and_a_score_and_no_other_word_has(pipeline):
    found = pipeline.ground(PHOTOS[0], "A dog sits on the red table.")
    assert found.words == ("a", "dog", "sits", "on", "the", "red", "table")
    assert [trace.box is not None for trace in found.trace] == [False, True, False, False, False, False, True]
    for trace in found.trace:
        assert (trace.box is None) == (trace.score is None)
        assert trace.score is None or 0 <= trace.score <= 1


def test_the_json_form_is_that_of_the_documentation(pipeline):
    told = pipeline.ground(PHOTOS[1], "A dog, and a cat!").to_json()
    assert list(told) == ["path", "sentence", "size", "words"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["path"], told["sentence"]) == (str(PHOTOS[1]), "A dog, and a cat!")
    assert told["size"] == list(Image.open(PHOTOS[1]).size)
    assert [word["word"] for word in told["words"]] == ["a", "dog", "and", "a", "cat"]
    for word in told["words"]:
        assert set(word) == {"word", "box", "boxes", "score"}
        assert word["boxes"][:1] == ([] if word["box"] is None else [word["box"]])
        if word["box"] is not None:
            x1, y1, x2, y2 = word["box"]
            assert 0 <= x1 <= x2 <= told["size"][0]
            assert 0 <= y1 <= y2 <= told["size"][1]


def test_boxes_are_in_pixels_of_the_upright_photo(pipeline, tmp_path):
    turn = Image.Exif()
    turn[0x0112] = 6  # shown turned by 270 degrees
    Image.open(PHOTOS[2]).resize((SIZE, 2 * SIZE)).save(tmp_path / "lying.png", exif=turn)
    found = pipeline.ground(tmp_path / "lying.png", "a dog")
    assert found.size == (2 * SIZE, SIZE)
    scale = (2 * SIZE, SIZE, 2 * SIZE, SIZE)
    assert found.to_json()["words"][1]["box"] == pytest.approx(np.array(found.trace[1].box) * scale, abs=0.06)


def test_many_photos_are_grounded_as_each_is_alone(pipeline):
    sentences = ["a dog", "two cats in the park", "a man holds a ball", "a cup", "the woman", "a cat"]
    photos = [PHOTOS[i % len(PHOTOS)] for i in range(len(sentences))] * 2
    together = pipeline.ground_many(photos, sentences * 2)
    for photo, sentence, many in zip(photos, sentences * 2, together, strict=True):
        one = pipeline.ground(photo, sentence)
        assert many.words == one.words
        assert [t.box for t in many.trace] == [t.box if t.box is None else pytest.approx(t.box) for t in one.trace]
    assert pipeline.ground_many([], []) == []


def test_a_caption_is_grounded_where_it_points_by_itself(pipeline):
    """The same rule and the same attention: the words, said again, are where they were."""
    said = pipeline.caption(PHOTOS[0])
    again = pipeline.ground(PHOTOS[0], said.text)
    for own, other in zip(said.trace, again.trace, strict=True):
        assert own.box is None or own.box == pytest.approx(other.box, abs=1e-4)


@pytest.mark.parametrize("options", [{"matcher": False}, {"other_words": True}], ids=["no matcher", "other words"])
def test_a_matcher_may_be_missing_or_know_other_words(options):
    found = Pipeline(tiny_bundle(**options)).ground(PHOTOS[0], "a dog and a man")
    assert found.trace[1].box is not None


def test_the_matcher_has_a_say(bundle, pipeline):
    alone = Pipeline(replace(bundle, matcher=None))
    assert alone.ground(PHOTOS[0], "a dog").trace[1].score != pipeline.ground(PHOTOS[0], "a dog").trace[1].score


def test_a_word_that_nobody_knows_is_looked_for_as_what_it_is_a_kind_of():
    known = Vocabulary(["dog", "person", "cup"])
    assert [stand_in(word, known) for word in ("dog", "dogs", "terrier", "teacup", "mountain")] == [
        *("dog", "dog", "dog", "cup", "mountain")
    ]


@pytest.mark.parametrize("sentence", ["a zyzzyva", "x" * 300, "a dog " * 60, "naïve façade 犬", "a\ndog"])
def test_strange_sentences_are_grounded_too(pipeline, sentence):
    assert pipeline.ground(PHOTOS[0], sentence).words


def test_a_noun_that_no_model_knows_has_no_box(pipeline):
    dog, zyzzyva = pipeline.ground(PHOTOS[0], "a dog and a zyzzyva").trace[1::3]
    assert dog.box is not None
    assert (zyzzyva.box, zyzzyva.score) == (None, None)


@pytest.mark.parametrize("sentence", ["", "  ", "!?"])
def test_a_sentence_without_words_is_an_error(pipeline, sentence):
    with pytest.raises(ConfigError, match="no word"):
        pipeline.ground(PHOTOS[0], sentence)


def test_photos_and_sentences_must_be_as_many(pipeline):
    with pytest.raises(CountError):
        pipeline.ground_many(PHOTOS[:2], ["a dog"])
