"""Words on boxes: facts about pixels."""

import numpy as np
import pytest
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.canvas import COLOURS, MARGIN, PAPER
from sightline.draw.photo_boxes import Mark, draw_boxes, pixels, word_colours, words_on_boxes
from sightline.errors import BoxError

GREY = Image.new("RGB", (400, 300), (128, 128, 128))


def pointing(*boxes):
    return Caption(tuple(f"word{i}" for i in range(len(boxes))), trace=tuple(WordTrace(box=box) for box in boxes))


def test_each_box_is_outlined_in_its_words_colour_and_only_there():
    caption = pointing((0.1, 0.2, 0.4, 0.8), None, (0.6, 0.1, 0.9, 0.5))
    drawn = words_on_boxes(GREY, caption, width=400).crop((MARGIN, MARGIN, MARGIN + 400, MARGIN + 300))
    assert drawn.getpixel((40, 150)) == COLOURS[0]
    assert drawn.getpixel((159, 150)) == COLOURS[0]
    assert drawn.getpixel((100, 239)) == COLOURS[0]
    assert drawn.getpixel((240, 80)) == COLOURS[1]
    assert drawn.getpixel((100, 150)) == drawn.getpixel((300, 250)) == (128, 128, 128)


def test_all_boxes_of_a_plural_are_outlined_in_its_colour():
    trace = WordTrace(box=(0.1, 0.2, 0.4, 0.8), others=((0.6, 0.1, 0.9, 0.5),))
    caption = Caption(("dogs", "run"), trace=(trace, WordTrace()))
    drawn = words_on_boxes(GREY, caption, width=400).crop((MARGIN, MARGIN, MARGIN + 400, MARGIN + 300))
    assert drawn.getpixel((40, 150)) == drawn.getpixel((240, 80)) == COLOURS[0]


def test_words_of_the_caption_have_the_colours_of_their_boxes():
    caption = pointing((0, 0, 1, 1), None, (0, 0, 0.5, 0.5))
    below = np.asarray(words_on_boxes(GREY, caption, width=400))[MARGIN + 300 :].reshape(-1, 3)
    for colour, said in ((COLOURS[0], True), (COLOURS[1], True), (COLOURS[2], False)):
        assert (below == colour).all(axis=1).any() == said
    assert word_colours(caption) == {0: COLOURS[0], 2: COLOURS[1]}


def test_a_caption_that_points_nowhere_is_drawn_with_its_photo():
    plain = words_on_boxes(GREY, Caption(("a", "dog")), width=400)
    assert (np.asarray(plain)[MARGIN : MARGIN + 300, MARGIN : MARGIN + 400] == 128).all()


def test_after_the_seventh_word_the_colours_come_again():
    colours = word_colours(pointing(*[(0, 0, 1, 1)] * 9))
    assert colours[7] == colours[0]
    assert len(set(colours.values())) == 7


def test_labels_of_words_on_the_same_box_do_not_cover_each_other():
    marks = [Mark((0.2, 0.2, 0.8, 0.8), f"label{i}", COLOURS[i]) for i in range(3)]
    drawn = np.asarray(draw_boxes(GREY, marks))
    areas = [(drawn == COLOURS[i]).all(axis=2).sum() for i in range(3)]
    alone = [(np.asarray(draw_boxes(GREY, [m])) == m.colour).all(axis=2).sum() for m in marks]
    outline = 2 * 3 * (240 + 180)
    assert all(area > only - outline - 50 for area, only in zip(areas, alone, strict=True))


def test_a_box_at_the_border_and_one_without_area_are_drawn():
    edge = np.asarray(draw_boxes(GREY, [Mark((0, 0, 1, 1), "", COLOURS[0]), Mark((1, 1, 1, 1), "", COLOURS[1])]))
    assert tuple(edge[150, 0]) == tuple(edge[150, 399]) == COLOURS[0]
    assert tuple(edge[299, 399]) == COLOURS[1]
    assert pixels((1.0, 1.0, 1.0, 1.0), (10, 10)) == (9, 9, 10, 10)


def test_a_box_outside_the_photo_is_refused():
    with pytest.raises(BoxError, match=r"outside \[0, 1\]"):
        words_on_boxes(GREY, pointing((0.1, 0.1, 30.0, 40.0)))


@pytest.mark.parametrize("size", [(1, 1), (3000, 2), (2, 3000), (90, 160)])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_odd_photos_can_be_drawn_on(size, mode):
    photo = Image.new(mode, size)
    long = "pneumonoultramicroscopicsilicovolcanoconiosis " * 3
    caption = Caption((long, "dog"), trace=(WordTrace(box=(0.9, 0.9, 1, 1)), WordTrace(box=(0, 0, 0, 0))))
    assert words_on_boxes(photo, caption, width=200).width == 200 + 2 * MARGIN or size[0] < size[1]


def test_the_hair_of_white_keeps_an_outline_visible_on_its_own_colour():
    drawn = draw_boxes(Image.new("RGB", (100, 100), COLOURS[0]), [Mark((0.2, 0.2, 0.8, 0.8), "", COLOURS[0])])
    assert drawn.getpixel((19, 50)) == drawn.getpixel((23, 50)) == PAPER
