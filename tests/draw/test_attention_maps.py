"""Attention panels and VSRN's attention map: facts about pixels."""

import numpy as np
import pytest
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.attention_maps import (
    attention_panels,
    grid_map,
    overlay,
    rank_scores,
    region_map,
    representation_attention,
)
from sightline.draw.canvas import COLOURS, MARGIN
from sightline.draw.photo_boxes import pixels
from sightline.errors import ConfigError, CountError, DataError, MissingPartError, NonFiniteError
from sightline.scene import Scene

GREY = Image.new("RGB", (400, 300), (128, 128, 128))
BOXES = np.array([(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0), (0.25, 0.25, 0.75, 0.75)])
SCENE = Scene("photo", boxes=BOXES)


def attending(*weights, over="regions"):
    traces = tuple(WordTrace(**{over: None if w is None else np.asarray(w, dtype=float)}) for w in weights)
    return Caption(tuple(f"word{i}" for i in range(len(weights))), trace=traces)


def naive_map(boxes, weights, size):
    width, height = size
    total = np.zeros((height, width))
    for box, weight in zip(boxes, weights, strict=True):
        left, top, right, bottom = pixels(tuple(box), size)
        for y in range(top, bottom):
            for x in range(left, right):
                total[y, x] += weight
    return total


def test_a_region_map_adds_up_the_weights_of_all_regions_over_a_pixel():
    chance = np.random.default_rng(0)
    corners = np.sort(chance.uniform(size=(9, 2, 2)), axis=1).reshape(9, 4)
    weights = chance.uniform(size=9)
    assert region_map(corners, weights, (31, 17)) == pytest.approx(naive_map(corners, weights, (31, 17)))


def test_a_region_map_of_no_regions_is_empty():
    assert (region_map(np.zeros((0, 4)), np.zeros(0), (5, 4)) == np.zeros((4, 5))).all()


def test_a_grid_map_peaks_in_the_cell_with_the_largest_weight_and_is_smooth():
    weights = np.zeros(49)
    weights[2 * 7 + 5] = 1.0
    enlarged = grid_map(weights, (7, 7), (140, 70))
    y, x = np.unravel_index(enlarged.argmax(), enlarged.shape)
    assert (y // 10, x // 20) == (2, 5)
    assert enlarged.min() >= 0
    assert np.abs(np.diff(enlarged, axis=1)).max() < 0.1


def test_the_brightest_glow_lies_on_the_attended_region():
    shown = np.asarray(overlay(GREY, region_map(BOXES, np.array([0.05, 0.9, 0.05]), GREY.size))).mean(axis=2)
    y, x = np.unravel_index(shown.argmax(), shown.shape)
    assert (x >= 200) & (y >= 150)
    assert shown[225, 350] > shown[20, 20] > shown[20, 390]


@pytest.mark.parametrize("level", [0, 90, 128, 255])
def test_a_pixel_is_the_brighter_the_larger_its_weight_on_any_photo(level):
    photo = Image.new("RGB", (50, 1), (level, level, level))
    shown = np.asarray(overlay(photo, np.linspace(0, 1, 50)[None])) @ np.array([0.2126, 0.7152, 0.0722])
    assert (np.diff(shown[0]) > 0).all()


def test_weight_zero_only_dims_the_photo():
    dimmed = np.asarray(overlay(GREY, np.zeros((300, 400))))
    assert len(np.unique(dimmed)) == 1
    assert dimmed.max() < 128


def panel(picture, place, columns=2):
    """The inside of a panel's photo, by its place from left to right: the sheet's grey and glowing parts in columns."""
    inner = np.asarray(picture)[MARGIN:-MARGIN, MARGIN:-MARGIN].astype(int)
    photos = inner.max(axis=2) < 250
    rows = np.flatnonzero(photos.mean(axis=1) > 0.6)  # photos are far denser than words
    band = inner[rows.min() : rows.max() + 1]
    columns_with = np.flatnonzero(photos[rows].mean(axis=0) > 0.9)
    parts = np.split(columns_with, np.flatnonzero(np.diff(columns_with) > 4) + 1)
    assert len(parts) == columns
    return band[:, parts[place]]


def blue(part):
    """(height, width): where the outline's colour is, or nearly so, as pictures in figures are resampled."""
    return np.abs(part - np.array(COLOURS[0])).sum(axis=2) < 60


def test_every_word_has_a_panel_and_its_most_attended_region_is_outlined():
    picture = attention_panels(GREY, attending([0.8, 0.1, 0.1], [0.1, 0.8, 0.1]), SCENE, width=400, columns=2)
    first, second = panel(picture, 0), panel(picture, 1)
    half = first.shape[0] // 2, first.shape[1] // 2
    assert blue(first[: half[0], : half[1]]).sum() > 50
    assert not blue(first[half[0] + 4 :, half[1] + 4 :]).any()
    assert blue(second[half[0] :, half[1] :]).sum() > 50
    assert not blue(second[: half[0] - 4, : half[1] - 4]).any()


def test_words_without_attention_have_a_dimmed_panel_without_outline():
    picture = attention_panels(GREY, attending([0.2, 0.3, 0.5], None), SCENE, width=400, columns=2)
    nothing = panel(picture, 1)[3:-3, 3:-3]
    assert np.ptp(nothing) <= 1
    zero = attention_panels(GREY, attending([0.2, 0.3, 0.5], [0, 0, 0]), SCENE, width=400, columns=2)
    assert np.array_equal(panel(zero, 1)[3:-3, 3:-3], nothing)


def test_on_one_scale_faint_attention_is_faint():
    caption = attending([0.9, 0.05, 0.05], [0.1, 0.0, 0.0])
    own, shared = (
        panel(attention_panels(GREY, caption, SCENE, width=400, columns=2, one_scale=s), 1)[20:40, 20:40].mean()
        for s in (False, True)
    )
    assert shared < own - 20


def test_grid_attention_takes_the_scenes_shape_or_a_square():
    weights = np.zeros(8)
    weights[7] = 1.0
    scene = Scene("photo", grid=np.zeros((8, 1)), grid_shape=(2, 4))
    shown = panel(attention_panels(GREY, attending(weights, over="grid"), scene, "grid", 400, 1), 0, 1).mean(axis=2)
    y, x = np.unravel_index(shown.argmax(), shown.shape)
    assert (y >= shown.shape[0] / 2) & (x >= shown.shape[1] * 3 / 4)
    with pytest.raises(MissingPartError, match="make no square"):
        attention_panels(GREY, attending(weights, over="grid"), Scene("photo"), "grid")


def test_attention_that_does_not_fit_the_scene_is_refused():
    with pytest.raises(CountError, match="3 weights were expected"):
        attention_panels(GREY, attending([0.5, 0.5]), SCENE)
    gridded = Scene("photo", grid=np.zeros((8, 1)), grid_shape=(2, 4))
    with pytest.raises(CountError, match="8 weights were expected"):
        attention_panels(GREY, attending(np.ones(49), over="grid"), gridded, "grid")
    with pytest.raises(NonFiniteError, match="word0"):
        attention_panels(GREY, attending([0.5, np.nan, 0.5]), SCENE)
    with pytest.raises(DataError, match="negative"):
        attention_panels(GREY, attending([0.5, -0.5, 1]), SCENE)
    with pytest.raises(MissingPartError, match="boxes"):
        attention_panels(GREY, attending([1.0]), Scene("photo"))
    with pytest.raises(MissingPartError, match="over grid"):
        attention_panels(GREY, attending([0.2, 0.3, 0.5]), SCENE, "grid")
    with pytest.raises(MissingPartError, match="over regions"):
        attention_panels(GREY, Caption(("no", "trace")), SCENE)
    with pytest.raises(ConfigError, match="fewer columns"):
        attention_panels(GREY, attending([0.2, 0.3, 0.5]), SCENE, columns=40)


def test_a_scene_of_no_regions_gives_panels_without_attention():
    picture = attention_panels(GREY, attending([]), Scene("photo", boxes=np.zeros((0, 4))), width=200, columns=1)
    assert np.ptp(panel(picture, 0, 1)[3:-3, 3:-3]) <= 1


def test_vsrn_scores_follow_the_papers_formula():
    correlations = [0.2, 0.9, -0.4, 0.5]
    k = len(correlations)
    naive = []
    for own in correlations:
        rank = sum(other > own for other in correlations)
        naive.append(50 * (k - rank) ** 2)
    assert rank_scores(np.array(correlations)).tolist() == naive
    assert rank_scores(np.zeros(0)).tolist() == []


def test_vsrn_attention_glows_where_the_best_ranked_regions_lie():
    shown = np.asarray(representation_attention(GREY, SCENE, np.array([0.1, 0.3, 0.2]), width=400)).mean(axis=2)
    y, x = np.unravel_index(shown.argmax(), shown.shape)
    assert (200 <= x < 300) & (150 <= y < 225)  # where the first and the second region overlap
    assert shown[280, 390] > shown[10, 10] > shown[10, 390]


def test_vsrn_attention_refuses_correlations_of_another_scene():
    with pytest.raises(CountError, match="3 weights"):
        representation_attention(GREY, SCENE, np.zeros(36))
    with pytest.raises(MissingPartError, match="boxes"):
        representation_attention(GREY, Scene("photo"), np.zeros(0))


@pytest.mark.parametrize("size", [(1, 1), (3000, 2), (2, 3000)])
@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_odd_photos_have_panels(size, mode):
    photo = Image.new(mode, size)
    assert attention_panels(photo, attending([0.1, 0.2, 0.7]), SCENE, width=300).width > 60
    attention_panels(photo, attending([0.1, 0.2, 0.3, 0.4], over="grid"), Scene("photo"), "grid", width=300)
