"""Matrices, models side by side and retrieval sheets: facts about pixels."""

import numpy as np
import pytest
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.alignment_matrix import word_region_matrix
from sightline.draw.canvas import BAD, COLOURS, GOOD, MARGIN, shade
from sightline.draw.retrieval_sheets import FoundCaption, FoundPhoto, captions_found, photos_found
from sightline.draw.self_retrieval_sheet import SelfRetrieval, self_retrieval_sheet
from sightline.draw.side_by_side import side_by_side, strip
from sightline.errors import ConfigError, CountError, DataError, MissingPartError, NonFiniteError
from sightline.scene import Scene

GREY = Image.new("RGB", (200, 150), (128, 128, 128))
BOXES = np.array([(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0), (0.25, 0.25, 0.75, 0.75)])
SCENE = Scene("photo", boxes=BOXES)


def count(picture, colour):
    return int((np.asarray(picture) == colour).all(axis=2).sum())


def test_matrix_cells_have_the_shade_of_their_weight_in_the_order_of_words_and_regions():
    weights = np.array([[0.1, 0.2, 0.4], [0.3, 0.8, 0.6]])
    picture = np.asarray(word_region_matrix(GREY, SCENE, ["dog", "cat"], weights, width=400))
    places = {}
    for (word, region), weight in np.ndenumerate(weights):
        rows, columns = np.nonzero((picture == shade(weight / 0.8)).all(axis=2))
        places[word, region] = (np.median(rows), np.median(columns))
    assert places[0, 0][0] == places[0, 1][0] < places[1, 0][0]
    assert places[0, 0][1] < places[0, 1][1] < places[0, 2][1]
    assert places[1, 0][1] == places[0, 0][1]


def test_matrix_cells_darken_with_cosines_that_may_be_negative():
    weights = np.array([[-0.4, 0.0, 0.6]])
    picture = word_region_matrix(GREY, SCENE, ["dog"], weights, width=400)
    for weight in weights[0]:
        assert count(picture, shade((weight + 0.4) / 1.0)) > 500


def test_matrix_columns_show_what_is_in_each_region():
    photo = Image.new("RGB", (200, 150), (10, 200, 30))
    photo.paste((200, 10, 220), (100, 75, 200, 150))
    scene = Scene("photo", boxes=np.array([(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0)]))
    picture = np.asarray(word_region_matrix(photo, scene, ["dog"], np.array([[0.5, 0.5]]), width=400))
    thumbnails = picture[MARGIN + 150 + 16 :]
    green, purple = ((thumbnails == c).all(axis=2) for c in ((10, 200, 30), (200, 10, 220)))
    assert np.nonzero(green)[1].max() < np.nonzero(purple)[1].min()


def test_only_the_most_attended_regions_are_shown_in_stored_order():
    boxes = np.tile(BOXES[:1], (40, 1))
    weights = np.zeros((2, 40))
    weights[0, [30, 3]] = 0.5, 0.25
    weights[1, 7] = 1.0
    picture = word_region_matrix(GREY, Scene("photo", boxes=boxes), ["a", "b"], weights, most=3, width=400)
    table = np.asarray(picture)
    at = [np.median(np.nonzero((table == shade(w)).all(axis=2))[1]) for w in (0.25, 1.0, 0.5)]
    assert at == sorted(at)
    assert word_region_matrix(GREY, Scene("photo", boxes=boxes), ["a", "b"], weights, most=40, width=400).width < 700


def test_a_matrix_of_zeros_and_of_one_pixel_photos_is_drawn():
    picture = word_region_matrix(Image.new("L", (1, 1)), SCENE, ["dog"], np.zeros((1, 3)), width=200)
    assert count(picture, shade(0.0)) > 500


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(CountError, match=r"1 words and 3 regions with weights of shape \(3, 1\)"):
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


def reading(words, attention):
    traces = (
        WordTrace(regions=np.asarray(attention[i], dtype=float)) if i in attention else WordTrace()
        for i in range(len(words))
    )
    return Caption(tuple(words), trace=tuple(traces))


def test_a_noun_has_one_colour_in_every_card_and_its_box_is_where_each_model_looks():
    words = ["a", "dog", "and", "cat"]
    captions = {
        "one": reading(words, {1: [0.9, 0.1, 0.0], 3: [0.0, 1.0, 0.0]}),
        "two": reading(words[::-1], {0: [0.0, 1.0, 0.0], 2: [0.0, 0.9, 0.1]}),
    }
    picture = side_by_side(GREY, SCENE, captions, {"one": [1, 3], "two": [2, 0]}, width=416)
    top = MARGIN + 27 + 10  # below the model's name
    left, right = (picture.crop((x, top, x + 200, top + 150)) for x in (MARGIN, MARGIN + 216))
    assert left.getpixel((0, 60)) == COLOURS[0]
    assert left.getpixel((150, 149)) == COLOURS[1]
    assert right.getpixel((150, 149)) == COLOURS[0]
    assert not count(right.crop((0, 0, 90, 70)), COLOURS[0])


def test_strips_darken_with_the_weight():
    line = strip(np.array([0.0, 0.1, 0.3, 0.5, 0.9]), cell=6)
    levels = [sum(line.getpixel((i * 6 + 1, 4))) for i in range(5)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > levels[1] > levels[2] > levels[3] == levels[4]


def test_a_noun_without_any_weight_has_a_strip_and_no_box():
    picture = side_by_side(GREY, SCENE, {"one": reading(["dog"], {0: [0, 0, 0]})}, {"one": [0]}, width=200)
    photo = picture.crop((MARGIN, MARGIN + 37, MARGIN + 200, MARGIN + 187))
    assert not count(photo, COLOURS[0])
    assert count(picture, COLOURS[0]) > 100  # the word's chip


def test_models_without_nouns_are_shown_with_their_caption():
    assert side_by_side(GREY, SCENE, {"one": Caption(("a", "dog"))}, {}, width=200).height > 150


def test_side_by_side_refuses_nouns_it_cannot_show():
    with pytest.raises(ConfigError, match="no model"):
        side_by_side(GREY, SCENE, {}, {})
    with pytest.raises(DataError, match="noun 4"):
        side_by_side(GREY, SCENE, {"one": reading(["dog"], {})}, {"one": [4]})
    with pytest.raises(DataError, match="“dog” has no attention"):
        side_by_side(GREY, SCENE, {"one": reading(["dog"], {})}, {"one": [0]})


def test_right_photos_have_green_frames_and_wrong_ones_red():
    found = [FoundPhoto(GREY, True), FoundPhoto(GREY, False)]
    picture = photos_found("a dog", found, width=416)
    top = MARGIN + 27 + 16
    assert picture.getpixel((MARGIN + 2, top + 60)) == GOOD
    assert picture.getpixel((MARGIN + 197, top + 60)) == GOOD
    assert picture.getpixel((MARGIN + 218, top + 60)) == BAD
    assert picture.getpixel((MARGIN + 100, top + 60)) == (128, 128, 128)


def test_a_found_photos_attention_stands_below_it():
    glow = Image.new("RGB", (200, 150), (250, 200, 90))
    plain, attended = (photos_found("a dog", [FoundPhoto(GREY, True, a)], width=200) for a in (None, glow))
    assert attended.height > plain.height + 140
    assert count(attended, (250, 200, 90)) == 200 * 150


def test_right_captions_have_a_tick_and_similar_ones_a_grey_line():
    def drawn(**how):
        return captions_found(GREY, [FoundCaption("a dog runs", **how)], width=400)

    right, wrong, similar = drawn(correct=True), drawn(correct=False), drawn(correct=False, similar=True)
    assert count(right, GOOD) > 100
    assert not count(wrong, GOOD)
    assert not count(wrong, BAD)
    assert count(similar, (150, 158, 170)) > 100
    assert np.array_equal(np.asarray(drawn(correct=True, similar=True)), np.asarray(right))


def test_captions_found_show_the_attention_below_the_photo():
    glow = Image.new("RGB", (200, 150), (250, 200, 90))
    picture = captions_found(GREY, [FoundCaption("a dog", True)], glow, width=400)
    assert count(picture, (250, 200, 90)) > 10000


def test_long_found_captions_wrap():
    long = [FoundCaption(" ".join(["dog"] * 100), True)]
    assert captions_found(GREY, long, width=400).width <= 400 + 2 * MARGIN


def test_nothing_found_and_too_many_photos_are_refused():
    with pytest.raises(ConfigError, match="nothing was found"):
        photos_found("a dog", [])
    with pytest.raises(ConfigError, match="nothing was found"):
        captions_found(GREY, [])
    with pytest.raises(ConfigError, match="50 photos do not fit"):
        photos_found("a dog", [FoundPhoto(GREY, True)] * 50)
    with pytest.raises(ConfigError, match="no model said"):
        self_retrieval_sheet(GREY, [])


def test_self_retrieval_frames_the_photo_itself_where_each_caption_finds_it():
    other = Image.new("RGB", (200, 150), (20, 20, 20))
    said = [
        SelfRetrieval("plain", "a dog", [FoundPhoto(other, False), FoundPhoto(GREY, True)]),
        SelfRetrieval("contrastive", "a grey dog", [FoundPhoto(GREY, True), FoundPhoto(other, False)]),
    ]
    picture = np.asarray(self_retrieval_sheet(GREY, said, width=640))
    green = (picture == GOOD).all(axis=2)
    half = picture.shape[0] // 2
    above, below = np.flatnonzero(green[:half].sum(axis=0) > 30), np.flatnonzero(green[half:].sum(axis=0) > 30)
    assert above.min() > below.max()
