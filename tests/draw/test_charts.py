"""Curves, gates, memory cells and matrices: facts about pixels, and about the SVG."""

import math
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.canvas import COLOURS, LINE
from sightline.draw.charts import (
    VISUAL,
    VISUAL_SEMANTIC,
    curves,
    curves_svg,
    memory_weights,
    relationship_gate,
    sentinel_panels,
    word_region_matrix,
)
from sightline.errors import (
    ConfigError,
    CountError,
    DataError,
    MissingExtraError,
    MissingPartError,
    NonFiniteError,
)
from sightline.scene import Scene

ODD = "$5 \\frac{$ _x^ 犬 😀 <b>"

GREY = Image.new("RGB", (200, 150), (128, 128, 128))
BOXES = np.array([(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0), (0.25, 0.25, 0.75, 0.75)])
SCENE = Scene("photo", boxes=BOXES)
LOSS = {"train": [(0, 3.0), (1, 2.0), (2, 1.5)], "val <&>": [(0, 3.1), (2, 2.0)]}


def places(picture, colour):
    return np.nonzero((np.asarray(picture) == colour).all(axis=2))


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (curves, curves_svg):
        with pytest.raises(MissingExtraError, match=r"matplotlib.*pip install 'sightline\[draw\]'"):
            draw(LOSS)


def test_a_rising_curve_rises_from_left_to_right():
    picture = curves({"score": [(x, x**2) for x in range(10)]}, width=400, height=200).crop((0, 0, 448, 190))
    rows, columns = places(picture, COLOURS[0])
    heights = [rows[columns == x].mean() for x in sorted(set(columns))]
    assert heights[0] - heights[-1] > 80
    assert np.diff(heights).max() < 3


def test_a_point_that_is_not_finite_breaks_the_line():
    whole, broken = (curves({"score": [(0, 0), (1, y), (2, 0)]}, width=400, height=200) for y in (0.0, math.nan))
    assert len(places(broken, COLOURS[0])[0]) < len(places(whole, COLOURS[0])[0]) - 200


def test_a_point_between_two_breaks_is_drawn():
    points = [(0, 0), (nan := math.nan, nan), (1, 1), (nan, nan), (2, 0)]
    picture = curves({"score": points}, width=400, height=200).crop((0, 0, 448, 190))
    rows, columns = places(picture, COLOURS[0])
    middle = columns[rows < rows.min() + 5].mean()  # the highest
    assert columns.min() + 100 < middle < columns.max() - 100


def test_every_series_has_its_colour_in_chart_and_legend():
    picture = curves(LOSS, "Loss", "epoch", width=400)
    for colour in COLOURS[:2]:
        assert len(places(picture, colour)[0]) > 100
    assert not len(places(picture, COLOURS[2])[0])


@pytest.mark.parametrize("points", [[(0, 5)], [(3, 2.0), (4, 2.0)], [(0, 1e-9), (1, 2e-9)], [(0, -4e7), (1, 3e8)]])
def test_single_constant_tiny_and_huge_values_are_drawn(points):
    assert len(places(curves({"y": points}), COLOURS[0])[0]) > 30
    assert "nan" not in curves_svg({"y": points})


def test_charts_without_points_or_height_are_refused():
    with pytest.raises(ConfigError, match="no finite point"):
        curves({"loss": [(0, math.nan)]})
    with pytest.raises(ConfigError, match="no finite point"):
        curves_svg({})
    with pytest.raises(ConfigError, match="high"):
        curves(LOSS, height=20)


def test_svg_is_well_formed_escaped_and_goes_through_the_points():
    svg = ElementTree.fromstring(curves_svg(LOSS, "Loss <b>", "epoch"))
    assert svg.find("title").text == svg.get("aria-label") == "Loss <b>"
    assert set(LOSS) <= {text.text for text in svg.iter("text")}
    colour = "#{:02x}{:02x}{:02x}".format(*COLOURS[0])
    lines = [p.get("d").split() for p in svg.iter("path") if f"stroke: {colour}" in (p.get("style") or "")]
    line = next(line for line in lines if line.count("L") == 2)
    (_, x1, y1), (_, x2, y2), (_, x3, y3) = (line[i : i + 3] for i in (0, 3, 6))
    assert float(y1) < float(y2) < float(y3)  # a falling loss: y grows downwards
    assert float(x2) - float(x1) == pytest.approx(float(x3) - float(x2), abs=0.01)


def test_svg_takes_the_pages_colour_and_equal_charts_are_equal():
    svg = curves_svg(LOSS, "Loss", "epoch")
    assert "currentColor" in svg
    assert svg == curves_svg(LOSS, "Loss", "epoch")


def test_a_legend_of_many_names_wraps_inside_the_picture():
    many = {f"a rather long name {i}": [(0, i), (1, i)] for i in range(12)}
    assert curves(many, width=480).width <= 480 + 48
    assert curves(many, width=480).height > curves(dict(list(many.items())[:2]), width=480).height + 60


@pytest.mark.filterwarnings("ignore:Glyph")  # no font here has dogs in Chinese
def test_odd_words_are_drawn_as_words_and_not_as_formulas():
    words = tuple(ODD.split())
    trace = tuple(WordTrace(gates={"relationship": 0.5, "fusion": FUSION}) for _ in words)
    caption = Caption(words, trace=trace)
    relationship_gate(GREY, caption)
    memory_weights(caption)
    word_region_matrix(GREY, SCENE, words, np.full((len(words), 3), 0.5))
    assert "$5" in curves_svg({ODD: [(0, 1), (1, 2)]}, ODD, ODD)


def gated(name, *values, **parts):
    traces = tuple(WordTrace(gates={name: value}, **parts) for value in values)
    return Caption(tuple(f"w{i}" for i in range(len(values))), trace=traces)


def bar_heights(picture, colour):
    """Heights of the bars of a colour from left to right: rows at which each run of columns has it."""
    full = (np.asarray(picture) == colour).all(axis=2)
    columns = np.flatnonzero(full.sum(axis=0) > 16)
    runs = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    return [int(full[:, run[len(run) // 2]].sum()) for run in runs if len(run)]


def test_jran_bars_are_as_high_as_the_gate_and_one_minus_it():
    picture = relationship_gate(GREY, gated("relationship", 0.25, 0.5, 0.75), width=640)
    visual, semantic = bar_heights(picture, VISUAL), bar_heights(picture, VISUAL_SEMANTIC)
    assert visual[-3:] == pytest.approx([semantic[-1], semantic[-2], semantic[-3]], abs=2)
    assert visual[-2] == pytest.approx(2 * visual[-3], abs=3)
    assert visual[-1] == pytest.approx(3 * visual[-3], abs=3)


def test_jran_visual_part_stands_at_the_bottom():
    picture = np.asarray(relationship_gate(GREY, gated("relationship", 0.5), width=640))[:, 400:]
    rows = {c: np.flatnonzero((picture == c).all(axis=2).sum(axis=1) > 60) for c in (VISUAL, VISUAL_SEMANTIC)}
    assert 0 < rows[VISUAL].min() - rows[VISUAL_SEMANTIC].max() <= 2


def test_sentinel_bars_are_as_high_as_what_was_seen():
    caption = gated("sentinel", 0.75, 0.5, 0.25, grid=np.full(4, 0.25))
    picture = sentinel_panels(GREY, caption, Scene("photo"), width=640).crop((0, 40, 688, 200))
    seen, rest = bar_heights(picture, COLOURS[0]), bar_heights(picture, LINE)
    assert seen[-3:] == pytest.approx(rest[-3:][::-1], abs=2)
    assert seen[-2] == pytest.approx(2 * seen[-3], abs=3)


def test_sentinel_pictures_work_over_regions_too():
    caption = gated("sentinel", 0.3, regions=np.array([1.0]))
    scene = Scene("photo", boxes=np.array([[0.0, 0.0, 1.0, 1.0]]))
    assert sentinel_panels(GREY, caption, scene, "regions").width > 0


def test_numbers_in_arrays_of_one_are_numbers():
    one, other = (relationship_gate(GREY, gated("relationship", v)) for v in (0.4, np.array([0.4], dtype=np.float64)))
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


def test_many_long_words_stay_inside_the_width():
    caption = Caption(("extraordinarily" * 4,) * 12, trace=(WordTrace(gates={"relationship": 0.5}),) * 12)
    assert relationship_gate(GREY, caption, width=480).width <= 480 + 48


FUSION, MEMORY = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([[0.2, 0.8], [0.6, 0.4]])


def remembering(words=2, fusion=FUSION, memory=MEMORY):
    return Caption(("word",) * words, trace=(WordTrace(gates={"fusion": fusion, "memory": memory}),) * words)


def shade(weight):
    """The colour of a cell."""
    red, green, blue, _ = colormaps["Blues"](float(weight), bytes=True)
    return int(red), int(green), int(blue)


def test_memory_pictures_show_every_weight_of_every_word_in_its_shade():
    one, three = (memory_weights(remembering(n), width=640) for n in (1, 3))
    for weight in (*FUSION.ravel(), *MEMORY.ravel()):
        assert len(places(three, shade(weight))[0]) > 2 * len(places(one, shade(weight))[0]) > 1000


def test_memory_pictures_wrap_and_may_have_their_photo():
    many, few = memory_weights(remembering(20), width=400), memory_weights(remembering(3), width=400)
    assert many.width <= 400 + 48
    assert many.height > 2 * few.height
    assert len(places(memory_weights(remembering(3), GREY, width=400), (128, 128, 128))[0]) > 10000


def test_memory_of_four_heads_has_four_rows():
    four = np.linspace(0.1, 0.8, 8).reshape(4, 2)
    assert memory_weights(remembering(1, memory=four)).height > memory_weights(remembering(1)).height + 60


@pytest.mark.parametrize("name", ["fusion", "memory"])
def test_of_a_model_without_one_memory_the_other_is_shown(name):
    picture = memory_weights(gated(name, FUSION), width=400)
    assert picture.height < memory_weights(remembering(1), width=400).height
    assert all(len(places(picture, shade(weight))[0]) > 500 for weight in FUSION.ravel())


def test_memory_weights_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"`fusion` has shape \(3, 2\)"):
        memory_weights(remembering(fusion=np.full((3, 2), 0.5)))
    with pytest.raises(DataError, match=r"`memory` has shape \(2,\)"):
        memory_weights(remembering(memory=np.full(2, 0.5)))
    with pytest.raises(MissingPartError, match="fusion"):
        memory_weights(Caption(()))


def test_matrix_cells_darken_with_their_weight_in_the_order_of_words_and_regions():
    weights = np.array([[-0.4, 0.21, 0.36], [0.31, 0.8, 0.61]])  # cosines may be negative
    picture = word_region_matrix(GREY, SCENE, ["dog", "cat"], weights, width=400)
    at = {}
    for place, weight in np.ndenumerate(weights):
        rows, columns = places(picture, shade((weight + 0.4) / 1.2))
        assert len(rows) > 500
        at[place] = np.median(rows), np.median(columns)
    assert at[0, 0][0] == pytest.approx(at[0, 1][0], abs=3)
    assert at[0, 0][0] + 20 < at[1, 0][0]
    assert at[0, 0][1] < at[0, 1][1] < at[0, 2][1]
    assert at[1, 0][1] == pytest.approx(at[0, 0][1], abs=3)


def test_matrix_columns_show_what_is_in_each_region():
    photo = Image.new("RGB", (200, 150), (10, 200, 30))
    photo.paste((200, 10, 220), (100, 75, 200, 150))
    scene = Scene("photo", boxes=np.array([(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0)]))
    picture = np.asarray(word_region_matrix(photo, scene, ["dog"], np.array([[0.5, 0.5]]), width=400))
    thumbnails = picture[200:]
    green, purple = ((thumbnails == c).all(axis=2) for c in ((10, 200, 30), (200, 10, 220)))
    assert np.nonzero(green)[1].max() < np.nonzero(purple)[1].min()


def test_a_matrix_of_zeros_of_one_pixel_photos_and_of_many_regions_is_drawn():
    word_region_matrix(Image.new("L", (1, 1)), SCENE, ["dog"], np.zeros((1, 3)), width=200)
    many = Scene("photo", boxes=np.tile(BOXES[:1], (40, 1)))
    assert word_region_matrix(GREY, many, ["a"], np.full((1, 40), 0.5), most=40, width=400).width < 460


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(CountError, match=r"1 × 3 weights were expected, and the array has shape \(3, 1\)"):
        word_region_matrix(GREY, SCENE, ["dog"], np.zeros((3, 1)))
    with pytest.raises(NonFiniteError):
        word_region_matrix(GREY, SCENE, ["dog"], np.full((1, 3), np.inf))
    with pytest.raises(DataError, match="no words"):
        word_region_matrix(GREY, SCENE, [], np.zeros((0, 3)))
    with pytest.raises(DataError, match="no regions"):
        word_region_matrix(GREY, Scene("photo", boxes=np.zeros((0, 4))), ["dog"], np.zeros((1, 0)))
    with pytest.raises(MissingPartError, match="boxes"):
        word_region_matrix(GREY, Scene("photo"), ["dog"], np.zeros((1, 0)))
    with pytest.raises(ConfigError, match="most"):
        word_region_matrix(GREY, SCENE, ["dog"], np.zeros((1, 3)), most=0)
