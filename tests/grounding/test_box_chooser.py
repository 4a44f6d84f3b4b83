"""Which words point, where, and how sure that is: against the rule written out in loops."""

import numpy as np
import pytest

from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError
from sightline.grounding.box_chooser import BoxChooser, WordBoxes

BOXES = np.array([(0, 0, 0.5, 0.5), (0.05, 0, 0.5, 0.5), (0.5, 0.5, 1, 1), (0, 0, 1, 1)], np.float32)


def said(words, attention):
    traces = [WordTrace(-1.0, None if a is None else np.array(a, np.float32)) for a in attention]
    return Caption(tuple(words.split()), -2.0, tuple(traces))


def iou(a, b):
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - wide * high
    return wide * high / area


@pytest.mark.parametrize("seed", range(8))
def test_the_rule_against_loops(seed):
    random = np.random.default_rng(seed)
    corners = np.sort(random.random((7, 2, 2)), 1)
    boxes = np.concatenate([corners[:, 0], corners[:, 1]], 1).astype(np.float32)
    attention, found, scores, named = random.random((1, 7)), random.random((1, 7)), random.random(7), random.random(7)
    rule = BoxChooser(matcher=0.25, least=0.0)
    pointed = rule.point(said("dog", attention), [1], boxes, found, scores=scores, named=named[None]).trace[0]
    mixed = [0.75 * attention[0, i] / attention.sum() + 0.25 * found[0, i] / found.sum() for i in range(7)]
    weighed = [mixed[i] * scores[i] * named[i] ** 0.5 for i in range(7)]
    best = max(range(7), key=lambda i: weighed[i])
    near = [j for j in range(7) if j == best or iou(boxes[best], boxes[j]) >= 0.5]
    assert pointed.box == tuple(float(v) for v in boxes[best])
    assert pointed.score == pytest.approx(sum(weighed[j] for j in near) / sum(weighed), abs=1e-6)


def test_the_surest_region_gets_the_word_and_not_the_middle_of_many_overlapping_ones():
    # The first two show the same thing, and have more evidence together than the third, which is more of a thing.
    caption, evidence = said("dog", [[0.35, 0.3, 0.3, 0.05]]), [0.2, 0.2, 0.9, 0.2]
    pointed = BoxChooser(least=0).point(caption, [1], BOXES, scores=np.array(evidence)).trace[0]
    assert pointed.box == (0.5, 0.5, 1.0, 1.0)


def test_a_region_with_the_words_name_gets_the_word():
    caption, named = said("dog", [[0.4, 0.1, 0.3, 0.2]]), np.array([[0.01, 0.01, 0.9, 0.2]])
    assert BoxChooser(least=0).point(caption, [1], BOXES).trace[0].box == (0.0, 0.0, 0.5, 0.5)
    assert BoxChooser(least=0).point(caption, [1], BOXES, named=named).trace[0].box == (0.5, 0.5, 1.0, 1.0)


def test_powers_of_nought_leave_the_evidence_alone():
    caption, other = said("dog", [[0.4, 0.1, 0.3, 0.2]]), np.array([0.01, 0.01, 0.9, 0.2])
    rule = BoxChooser(least=0, objectness=0, name=0)
    assert rule.point(caption, [1], BOXES, scores=other, named=other[None]).trace[0].box == (0.0, 0.0, 0.5, 0.5)


def test_words_that_may_have_no_box_have_none():
    caption = said("dog in front", [[1, 0, 0, 0]] * 3)
    boxes = [word.box for word in BoxChooser().point(caption, [1, 0, 0], BOXES).trace]
    assert boxes == [(0.0, 0.0, 0.5, 0.5), None, None]


def test_boxes_of_one_thing_count_together():
    # The first two show the same thing: the score is what they have together.
    caption = said("dog", [[0.4, 0.25, 0.05, 0.3]])
    pointed = BoxChooser().point(caption, [True], BOXES).trace[0]
    assert pointed.box == (0.0, 0.0, 0.5, 0.5)
    assert pointed.score == pytest.approx(0.65)


def test_two_different_words_have_different_boxes_and_the_surer_one_the_better():
    caption = said("man dog", [[0.5, 0.1, 0.3, 0.1], [0.8, 0.05, 0.1, 0.05]])
    man, dog = BoxChooser(least=0).point(caption, [1, 1], BOXES).trace
    assert (man.box, dog.box) == ((0.5, 0.5, 1.0, 1.0), (0.0, 0.0, 0.5, 0.5))
    alone = BoxChooser(least=0.5).point(caption, [1, 1], BOXES).trace[0]
    assert alone.box is None  # what is left to it is too weak


def test_boxes_that_are_nearly_the_same_are_one_box():
    caption = said("man dog", [[0.45, 0.4, 0.1, 0.05], [0.8, 0.1, 0.05, 0.05]])
    assert iou(BOXES[0], BOXES[1]) > 0.7
    assert BoxChooser(least=0).point(caption, [1, 1], BOXES).trace[0].box == (0.5, 0.5, 1.0, 1.0)


def test_words_that_may_share_have_the_same_box_and_so_has_a_word_said_twice():
    attention = [[0.5, 0.1, 0.3, 0.1], [0.8, 0.05, 0.1, 0.05]]
    for words in ("man shirt", "dog dog"):
        one, other = BoxChooser(least=0).point(said(words, attention), [1, 1], BOXES).trace
        assert one.box == other.box == (0.0, 0.0, 0.5, 0.5)


ROW = np.array([(0, 0, 0.2, 0.5), (0.3, 0, 0.5, 0.5), (0.6, 0, 0.8, 0.5), (0.02, 0, 0.22, 0.5)], np.float32)


@pytest.mark.parametrize(("most", "boxes"), [(1, [0]), (2, [0, 1]), (9, [0, 1, 2])])
def test_a_plural_has_as_many_boxes_as_it_may_none_of_the_same_thing(most, boxes):
    caption = said("dogs", [[0.3, 0.25, 0.2, 0.25]])
    pointed = BoxChooser(least=0).point(caption, [most], ROW).trace[0]
    assert [list(box) for box in pointed.boxes] == [pytest.approx(ROW[at]) for at in boxes]
    assert pointed.box == pointed.boxes[0]


def test_a_plurals_further_boxes_are_not_weak_and_not_those_of_another_word():
    weak = BoxChooser(least=0).point(said("dogs", [[0.6, 0.2, 0.1, 0.1]]), [9], ROW).trace[0]
    assert len(weak.boxes) == 1
    caption = said("dogs man", [[0.3, 0.25, 0.2, 0.25], [0, 1, 0, 0]])
    dogs, man = BoxChooser(least=0).point(caption, [9, 1], ROW).trace
    assert man.box == pytest.approx(ROW[1])
    assert [list(box) for box in dogs.boxes] == [pytest.approx(ROW[0]), pytest.approx(ROW[2])]


def test_the_matcher_decides_where_the_captioner_looks_everywhere():
    caption = said("dog", [[0.25, 0.25, 0.25, 0.25]])
    pointed = BoxChooser(matcher=0.9).point(caption, [True], BOXES, np.array([[0.0, 0, 1, 0]])).trace[0]
    assert pointed.box == (0.5, 0.5, 1.0, 1.0)


def test_a_word_the_matcher_does_not_know_has_the_captioners_attention_alone():
    caption = said("dog", [[0, 0, 2.0, 0]])
    alone = BoxChooser().point(caption, [True], BOXES).trace[0]
    unknown = BoxChooser().point(caption, [True], BOXES, np.zeros((1, 4))).trace[0]
    assert (unknown.box, unknown.score) == (alone.box, alone.score) == ((0.5, 0.5, 1.0, 1.0), 1.0)


def test_a_captioner_without_region_attention_has_the_matchers_word():
    pointed = BoxChooser().point(said("dog", [None]), [True], BOXES, np.array([[0.0, 0, 1, 0]])).trace[0]
    assert pointed.box == (0.5, 0.5, 1.0, 1.0)
    assert BoxChooser().point(said("dog", [None]), [True], BOXES).trace[0].box is None


def test_weak_evidence_points_nowhere():
    spread = np.tile(np.linspace(0, 0.9, 10, dtype=np.float32)[:, None], (1, 4))
    spread[:, 2:] += 0.05  # ten small boxes that do not touch
    caption = said("dog", [[0.1] * 10])
    assert BoxChooser(least=0.15).point(caption, [True], spread).trace[0].box is None
    assert BoxChooser(least=0.05).point(caption, [True], spread).trace[0].box is not None


def test_a_scene_without_boxes_leaves_the_caption_as_it_is():
    caption = said("dog", [[]])
    assert BoxChooser().point(caption, [True], np.zeros((0, 4), np.float32)) is caption


@pytest.mark.parametrize("name", ["matcher", "least", "objectness", "name"])
def test_a_number_out_of_range_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        BoxChooser(**{name: 1.5})


MOVED = BOXES + np.array([0, 0, -0.1, -0.2], np.float32)


def learned(*weights):
    return WordBoxes(np.array(weights, np.float32), MOVED)


def test_what_was_learned_of_a_word_takes_the_place_of_evidence_and_moves_its_box():
    caption, evidence = said("dog", [[0.9, 0.05, 0.05, 0]]), {"scores": np.ones(4), "named": np.ones((1, 4))}
    known = {0: learned(0.1, 0.1, 0.7, 0.1)}
    pointed = BoxChooser(least=0).point(caption, [1], BOXES, learned=known, **evidence).trace[0]
    assert pointed.box == tuple(MOVED[2].tolist())
    assert pointed.score == pytest.approx(0.7)
    assert BoxChooser(least=0.8).point(caption, [1], BOXES, learned=known).trace[0].box is None


def test_a_word_that_was_not_learned_has_its_evidence():
    caption = said("dog wug", [[0, 0, 1, 0], [0.9, 0.05, 0.05, 0]])
    dog, wug = BoxChooser(least=0).point(caption, [1, 1], BOXES, learned={0: learned(0, 0, 1, 0)}).trace
    assert (dog.box, wug.box) == (tuple(MOVED[2].tolist()), tuple(BOXES[0].tolist()))


def test_learned_words_that_may_have_no_box_have_none_and_take_nobodys():
    caption = said("a dog", [[1, 0, 0, 0], [0.6, 0.1, 0.3, 0]])
    a, dog = BoxChooser(least=0).point(caption, [0, 1], BOXES, learned={0: learned(1, 0, 0, 0)}).trace
    assert (a.box, dog.box) == (None, (0.0, 0.0, 0.5, 0.5))


def test_further_boxes_of_a_learned_plural_are_its_own():
    moved = ROW + np.array([0, 0, -0.05, 0], np.float32)
    known = {0: WordBoxes(np.array([0.4, 0.3, 0.2, 0.1], np.float32), moved)}
    pointed = BoxChooser(least=0).point(said("dogs", [[1, 0, 0, 0]]), [9], ROW, learned=known).trace[0]
    assert (pointed.box, *pointed.others) == tuple(tuple(box.tolist()) for box in moved[:3])
