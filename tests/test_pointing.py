"""Which words point, where, and how sure that is: against the rule written out in loops."""

import numpy as np
import pytest

from sightline.caption import Caption, WordTrace
from sightline.errors import ConfigError
from sightline.trust.pointing import Pointing

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
    attention, found = random.random((1, 7)), random.random((1, 7))
    pointed = Pointing(matcher=0.25, least=0.0).point(said("dog", attention), [True], boxes, found).trace[0]
    mixed = [0.75 * attention[0, i] / attention.sum() + 0.25 * found[0, i] / found.sum() for i in range(7)]
    together = [sum(mixed[j] for j in range(7) if j == i or iou(boxes[i], boxes[j]) >= 0.5) for i in range(7)]
    best = max(range(7), key=lambda i: together[i] + 1e-3 * mixed[i])
    assert pointed.box == tuple(float(v) for v in boxes[best])
    assert pointed.score == pytest.approx(together[best], abs=1e-6)


def test_only_nouns_point_and_those_that_name_a_place_do_not():
    caption = said("dog in front", [[1, 0, 0, 0]] * 3)
    boxes = [word.box for word in Pointing().point(caption, [True, False, True], BOXES).trace]
    assert boxes == [(0.0, 0.0, 0.5, 0.5), None, None]


def test_boxes_of_one_thing_count_together():
    # alone, the last box has most; the first two show the same thing and have more together
    caption = said("dog", [[0.3, 0.25, 0.05, 0.4]])
    pointed = Pointing().point(caption, [True], BOXES).trace[0]
    assert pointed.box == (0.0, 0.0, 0.5, 0.5)
    assert pointed.score == pytest.approx(0.55)


def test_the_matcher_decides_where_the_captioner_looks_everywhere():
    caption = said("dog", [[0.25, 0.25, 0.25, 0.25]])
    pointed = Pointing(matcher=0.9).point(caption, [True], BOXES, np.array([[0.0, 0, 1, 0]])).trace[0]
    assert pointed.box == (0.5, 0.5, 1.0, 1.0)


def test_a_word_the_matcher_does_not_know_has_the_captioners_attention_alone():
    caption = said("dog", [[0, 0, 2.0, 0]])
    alone = Pointing().point(caption, [True], BOXES).trace[0]
    unknown = Pointing().point(caption, [True], BOXES, np.zeros((1, 4))).trace[0]
    assert (unknown.box, unknown.score) == (alone.box, alone.score) == ((0.5, 0.5, 1.0, 1.0), 1.0)


def test_a_captioner_without_region_attention_has_the_matchers_word():
    pointed = Pointing().point(said("dog", [None]), [True], BOXES, np.array([[0.0, 0, 1, 0]])).trace[0]
    assert pointed.box == (0.5, 0.5, 1.0, 1.0)
    assert Pointing().point(said("dog", [None]), [True], BOXES).trace[0].box is None


def test_weak_evidence_points_nowhere():
    spread = np.tile(np.linspace(0, 0.9, 10, dtype=np.float32)[:, None], (1, 4))
    spread[:, 2:] += 0.05  # ten small boxes that do not touch
    caption = said("dog", [[0.1] * 10])
    assert Pointing(least=0.15).point(caption, [True], spread).trace[0].box is None
    assert Pointing(least=0.05).point(caption, [True], spread).trace[0].box is not None


def test_a_scene_without_boxes_leaves_the_caption_as_it_is():
    caption = said("dog", [[]])
    assert Pointing().point(caption, [True], np.zeros((0, 4), np.float32)) is caption


@pytest.mark.parametrize("name", ["matcher", "least"])
def test_a_number_out_of_range_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        Pointing(**{name: 1.5})
