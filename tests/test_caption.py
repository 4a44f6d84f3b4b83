import numpy as np
import pytest

from sightline import Caption, Concept, PhotoCaption, Scene, WordTrace
from sightline.errors import CountError, MissingPartError

BOXES = np.array([[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]], dtype=np.float32)


def test_every_word_points_at_the_region_it_attends_to_most():
    scene = Scene("1", boxes=BOXES, size=(200, 100))
    trace = (WordTrace(), WordTrace(-0.5, regions=np.array([0.2, 0.8]), gates={"sentinel": 0.1}))
    caption = Caption(("a", "dog"), -1.5, trace).with_boxes(scene)
    assert caption.trace[0].box is None
    assert caption.trace[1].box == (0.5, 0.5, 1.0, 1.0)
    assert caption.to_json() == {
        "caption": "a dog",
        "log_prob": -1.5,
        "words": [
            {"word": "a", "box": None, "boxes": [], "score": None},
            {
                "word": "dog",
                "box": [0.5, 0.5, 1.0, 1.0],
                "boxes": [[0.5, 0.5, 1.0, 1.0]],
                "score": 0.8,
                "gates": {"sentinel": 0.1},
            },
        ],
    }


def test_a_caption_without_trace_has_words_without_boxes():
    caption = Caption(("two", "cats"))
    assert str(caption) == "two cats"
    assert len(caption) == 2
    assert [word["box"] for word in caption.to_json()["words"]] == [None, None]


def test_grounding_without_boxes_is_refused():
    with pytest.raises(MissingPartError, match="boxes"):
        Caption(("a",), 0.0, (WordTrace(regions=np.ones(1)),)).with_boxes(Scene("1"))


def test_a_trace_of_another_length_is_refused():
    with pytest.raises(CountError, match="2 words with 1 traces"):
        Caption(("a", "dog"), 0.0, (WordTrace(),))


def test_the_json_of_a_photo_has_boxes_in_its_pixels():
    trace = (WordTrace(-0.25), WordTrace(-0.5, box=(0.1, 0.2, 0.5, 1.0), score=0.123456, others=((0, 0, 0.1, 0.1),)))
    things = (Concept("dog", 0.98765, (0.0, 0.25, 0.333, 0.5)), Concept("park", 0.5))
    said = PhotoCaption(("a", "dogs"), -1.23456, trace, "x.jpg", (200, 100), 0.456789, True, things)
    assert said.to_json() == {
        "path": "x.jpg",
        "caption": "a dogs",
        "log_prob": -1.2346,
        "confidence": 0.4568,
        "low_confidence": True,
        "words": [
            {"word": "a", "box": None, "boxes": [], "score": None},
            {
                "word": "dogs",
                "box": [20.0, 20.0, 100.0, 100.0],
                "boxes": [[20.0, 20.0, 100.0, 100.0], [0.0, 0.0, 20.0, 10.0]],
                "score": 0.1235,
            },
        ],
        "concepts": [
            {"name": "dog", "score": 0.9877, "box": [0.0, 25.0, 66.6, 50.0]},
            {"name": "park", "score": 0.5, "box": None},
        ],
        "size": [200, 100],
    }
    assert str(said) == "a dogs"
