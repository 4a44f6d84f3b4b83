"""Bars, memory cells and judged concepts: facts about pixels."""

import numpy as np
import pytest
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.canvas import COLOURS, LINE, shade
from sightline.draw.concept_stages import ADJECTIVE, INCORRECT, IRRELEVANT, NEW, Judgement, concept_stages
from sightline.draw.gates import VISUAL, VISUAL_SEMANTIC, relationship_gate, sentinel_panels
from sightline.draw.memory_weights import heat_cells, memory_weights
from sightline.errors import ConfigError, DataError, MissingPartError
from sightline.scene import Concept, Scene

GREY = Image.new("RGB", (200, 150), (128, 128, 128))


def gated(name, *values, **parts):
    traces = tuple(WordTrace(gates={name: value}, **parts) for value in values)
    return Caption(tuple(f"w{i}" for i in range(len(values))), trace=traces)


def count(picture, colour):
    return int((np.asarray(picture) == colour).all(axis=2).sum())


def bar_heights(picture, colour):
    """Heights of the bars of a colour from left to right: rows at which each run of columns has it."""
    full = (np.asarray(picture) == colour).all(axis=2)
    columns = np.flatnonzero(full.sum(axis=0) > 20)
    runs = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    return [int(full[:, run[len(run) // 2]].sum()) for run in runs if len(run)]


def test_jran_bars_are_as_high_as_the_gate_and_one_minus_it():
    picture = relationship_gate(GREY, gated("relationship", 0.25, 0.5, 0.75), width=480)
    visual, semantic = bar_heights(picture, VISUAL), bar_heights(picture, VISUAL_SEMANTIC)
    assert visual == [22, 44, 66]
    assert semantic == [66, 44, 22]


def test_jran_visual_part_stands_at_the_bottom():
    picture = np.asarray(relationship_gate(GREY, gated("relationship", 0.5), width=480))[60:]
    rows = {c: np.flatnonzero((picture == c).all(axis=2).any(axis=1)) for c in (VISUAL, VISUAL_SEMANTIC)}
    assert rows[VISUAL].min() == rows[VISUAL_SEMANTIC].max() + 1


def test_sentinel_bars_are_as_high_as_what_was_seen():
    caption = gated("sentinel", 0.75, 0.5, 0.0, 1.0, grid=np.full(4, 0.25))
    picture = sentinel_panels(GREY, caption, Scene("photo"), width=480)
    strip = picture.crop((0, 60, picture.width, 200))
    assert bar_heights(strip, COLOURS[0]) == [22, 44, 88]
    assert bar_heights(strip, LINE) == [66, 44, 88]


def test_sentinel_pictures_work_over_regions_too():
    caption = gated("sentinel", 0.3, regions=np.array([1.0]))
    scene = Scene("photo", boxes=np.array([[0.0, 0.0, 1.0, 1.0]]))
    assert sentinel_panels(GREY, caption, scene, "regions").width > 0


def test_numbers_in_arrays_of_one_are_numbers():
    one, other = (relationship_gate(GREY, gated("relationship", v)) for v in (0.4, np.array([0.4], dtype=np.float32)))
    assert np.array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("value", [1.2, -0.1, float("nan")])
def test_a_gate_that_is_no_share_is_refused(value):
    with pytest.raises(DataError, match=r"not in \[0, 1\]"):
        relationship_gate(GREY, gated("relationship", 0.5, value))


def test_a_missing_gate_names_those_that_are_there():
    with pytest.raises(MissingPartError, match="has sentinel"):
        relationship_gate(GREY, gated("sentinel", 0.5))
    with pytest.raises(MissingPartError, match="no gates"):
        sentinel_panels(GREY, Caption(("dog",)), Scene("photo"))
    with pytest.raises(DataError, match="one number a word"):
        relationship_gate(GREY, gated("relationship", np.array([0.1, 0.2])))


def test_many_long_words_wrap_into_the_width():
    caption = Caption(("extraordinarily" * 4,) * 12, trace=(WordTrace(gates={"relationship": 0.5}),) * 12)
    assert relationship_gate(GREY, caption, width=480).width <= 480 + 48


FUSION, MEMORY = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([[0.2, 0.8], [0.6, 0.4]])


def remembering(words=2, fusion=FUSION, memory=MEMORY):
    return Caption(("word",) * words, trace=(WordTrace(gates={"fusion": fusion, "memory": memory}),) * words)


def test_cells_lie_row_by_row_and_have_the_shade_of_their_weight():
    block = heat_cells(FUSION, cell=20)
    for r in range(2):
        for c in range(2):
            assert block.getpixel((c * 21 + 1, r * 21 + 1)) == shade(FUSION[r, c])


def test_memory_pictures_show_every_weight_of_every_word():
    picture = memory_weights(remembering(3), width=640)
    for weight in (*FUSION.ravel(), *MEMORY.ravel()):
        assert count(picture, shade(weight)) > 3 * 34 * 34 * 0.5


def test_memory_pictures_wrap_and_may_have_their_photo():
    wrapped, plain = memory_weights(remembering(20), width=400), memory_weights(remembering(3), width=400)
    assert wrapped.width <= 400 + 48
    assert wrapped.height > 2 * plain.height
    assert count(memory_weights(remembering(3), GREY, width=400), (128, 128, 128)) > 10000


def test_memory_of_four_heads_has_four_rows():
    four = np.linspace(0.1, 0.8, 8).reshape(4, 2)
    picture = memory_weights(remembering(1, memory=four), width=400)
    assert all(count(picture, shade(weight)) > 500 for weight in four.ravel())


@pytest.mark.parametrize(("held", "missing"), [("fusion", MEMORY), ("memory", FUSION)])
def test_of_a_model_without_one_memory_the_other_is_shown(held, missing):
    caption = gated(held, FUSION if held == "fusion" else MEMORY)
    picture = memory_weights(caption, width=400)
    assert picture.height < memory_weights(remembering(1), width=400).height
    assert not any(count(picture, shade(weight)) for weight in missing.ravel())


def test_memory_weights_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"`fusion` has shape \(3, 2\)"):
        memory_weights(remembering(fusion=np.full((3, 2), 0.5)))
    with pytest.raises(DataError, match=r"`memory` has shape \(2,\)"):
        memory_weights(remembering(memory=np.full(2, 0.5)))
    with pytest.raises(MissingPartError, match="fusion"):
        memory_weights(Caption(()))


JUDGED = Judgement(incorrect={"phone"}, irrelevant={"clothing"}, new={"field"}, adjectives={"young"})
CONCEPTS = [Concept("man", 0.9), Concept("mobile phone", 0.75)]


@pytest.mark.parametrize(
    ("word", "colour"), [("Phone,", INCORRECT), ("clothing", IRRELEVANT), ("field.", NEW), ("young", ADJECTIVE)]
)
def test_judged_words_have_their_colour_whatever_their_case_and_punctuation(word, colour):
    assert JUDGED.span(word).ink == colour
    with_it, without = (concept_stages(GREY, [], {"stage": f"a {w} here"}, JUDGED) for w in (word, "thing"))
    assert count(with_it, colour) > count(without, colour)


def test_no_two_judgements_are_told_by_colour_alone():
    spans = [JUDGED.span(word) for word in ("phone", "clothing", "field", "young")]
    assert len({span.line for span in spans}) == 4


def test_without_a_judgement_there_are_no_colours_and_no_legend():
    picture = concept_stages(GREY, CONCEPTS, {"text": "a man with a phone"})
    assert not any(count(picture, c) for c in (INCORRECT, IRRELEVANT, NEW, ADJECTIVE))


def test_score_bars_grow_with_the_score():
    lengths = [count(concept_stages(GREY, [Concept("man", s)], {}), COLOURS[0]) for s in (0.0, 0.3, 0.9, 7.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[1] < lengths[2]


def test_a_photo_without_concepts_says_so_and_long_captions_wrap():
    long = " ".join(["word"] * 80)
    picture = concept_stages(GREY, [], {"one": long, "two": ""}, width=480)
    assert picture.width <= 480 + 48


def test_pictures_with_text_beside_the_photo_refuse_a_width_without_room_for_it():
    with pytest.raises(ConfigError, match="from 320"):
        concept_stages(GREY, CONCEPTS, {}, width=319)
    assert concept_stages(GREY, CONCEPTS, {"stage": "a man"}, JUDGED, width=320).width <= 320 + 48


def test_a_word_under_two_judgements_is_refused():
    with pytest.raises(ConfigError, match="“dog” is named under two"):
        Judgement(incorrect={"Dog"}, new={"dog"})
