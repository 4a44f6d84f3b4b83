"""Palette, photos of any kind, wrapping, files."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from sightline.caption import Caption
from sightline.draw import canvas
from sightline.draw.canvas import (
    BODY,
    COLOURS,
    MARGIN,
    PAPER,
    Sheet,
    Span,
    contrast,
    fit_photo,
    ink_on,
    lay_out,
    letter,
    writable,
)
from sightline.draw.photo_boxes import words_on_boxes
from sightline.errors import ConfigError, DataError, ImageError
from sightline.vision.images import open_image, read_pixels


@pytest.mark.parametrize("colour", [*COLOURS, canvas.GOOD, canvas.BAD])
def test_letters_on_every_chip_have_the_contrast_that_text_needs(colour):
    assert contrast(ink_on(colour), colour) >= 4.5


def test_contrast_of_black_and_white_is_that_of_wcag():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)


def test_no_two_colours_of_words_are_near_each_other():
    for i, one in enumerate(COLOURS):
        for other in COLOURS[i + 1 :]:
            assert np.abs(np.subtract(one, other)).sum() > 90


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F", "YCbCr"])
def test_photos_of_any_mode_become_rgb(mode):
    photo = Image.new(mode, (5, 3))
    assert (open_image(photo).mode, open_image(photo).size) == ("RGB", (5, 3))


def test_a_sixteen_bit_photo_is_drawn_with_the_pixels_that_the_model_sees(tmp_path):
    path = tmp_path / "deep.png"
    Image.fromarray(np.linspace(1000, 30000, 720 * 720).reshape(720, 720).astype(np.uint16)).save(path)
    drawn = np.asarray(words_on_boxes(path, Caption(("a", "dog")), width=720))[MARGIN:, MARGIN:][:720, :720]
    assert np.array_equal(drawn, read_pixels(path, 720)[0])


def test_pictures_are_drawn_of_no_file_that_the_model_would_refuse(tmp_path, monkeypatch):
    Image.new("RGB", (40, 30)).save(tmp_path / "odd.pcx")  # Pillow would read it; it is no kind of photo
    with pytest.raises(ImageError, match=r"odd\.pcx"):
        words_on_boxes(tmp_path / "odd.pcx", Caption(("a", "dog")))
    Image.new("RGB", (40, 30)).save(tmp_path / "large.png")
    monkeypatch.setenv("SIGHTLINE_MAX_PIXELS", "1000")
    with pytest.raises(ImageError, match="declares 40 × 30 pixels"):
        words_on_boxes(tmp_path / "large.png", Caption(("a", "dog")))


def test_transparent_pixels_show_the_paper():
    assert open_image(Image.new("RGBA", (1, 1), (10, 20, 30, 0))).getpixel((0, 0)) == PAPER


def test_photos_are_turned_as_their_camera_says(tmp_path):
    photo = Image.new("RGB", (4, 2))
    exif = photo.getexif()
    exif[0x0112] = 6
    photo.save(tmp_path / "turned.jpg", exif=exif)
    assert open_image(tmp_path / "turned.jpg").size == (2, 4)


def test_a_file_that_is_no_picture_is_named(tmp_path):
    path = tmp_path / "notes.png"
    path.write_bytes(b"not a picture")
    with pytest.raises(ImageError, match=r"notes\.png.*To fix"):
        open_image(path)
    with pytest.raises(DataError, match="no such file"):
        open_image(tmp_path / "gone.png")


def test_a_cut_off_picture_is_an_error_and_not_half_a_picture(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:1500])
    with pytest.raises(ImageError, match=r"cut\.png"):
        open_image(tmp_path / "cut.png")


def test_a_picture_without_pixels_is_refused():
    with pytest.raises(ImageError, match="0 × 4"):
        open_image(Image.new("RGB", (0, 4)))


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (640, 480), (480, 640), (5000, 4000)])
def test_fitted_photos_stay_inside_and_stay_visible(size):
    fit = fit_photo(Image.new("RGB", size), 200)
    assert 24 <= min(fit.size) <= max(fit.size) <= 200


def test_fitted_photos_keep_their_shape():
    assert fit_photo(Image.new("RGB", (640, 480)), 320).size == (320, 240)
    assert fit_photo(Image.new("RGB", (480, 640)), 320).size == (240, 320)


def test_chips_have_smooth_corners_and_are_filled():
    image = Image.new("RGB", (60, 40), PAPER)
    letter(image, 5, 5, Span("l", (0, 0, 0)), BODY)
    right, bottom = 5 + Span("l", (0, 0, 0)).width(BODY), 5 + round(BODY * 1.5)
    assert image.getpixel((7, 20)) == (0, 0, 0)
    assert image.getpixel((5, 5)) == image.getpixel((4, 20)) == image.getpixel((right, bottom)) == PAPER
    corner = np.asarray(image)[5:9, 5:9, 0]
    assert ((corner > 0) & (corner < 255)).any()


def test_a_sheet_grows_with_what_is_set_on_it_and_has_a_margin_around():
    page = Sheet()
    assert page.photo(Image.new("RGB", (2, 3), "red"), 0, 0) == 3
    page.bar(0, 8, 4, 1, (0, 0, 255))
    picture = page.image()
    assert picture.size == (4 + 2 * MARGIN, 9 + 2 * MARGIN)
    assert picture.getpixel((MARGIN, MARGIN)) == (255, 0, 0)
    assert picture.getpixel((MARGIN + 3, MARGIN + 8)) == (0, 0, 255)


def test_lines_tell_words_apart_and_ticks_are_no_crosses():
    drawn = set()
    for line in ("", "under", "dashed", "through"):
        page = Sheet()
        page.words([Span("dog", line=line)], 0, 0, 100)
        drawn.add(page.image().tobytes())
    assert len(drawn) == 4
    shapes = []
    for correct in (True, False):
        page = Sheet()
        page.mark(correct, 0, 0)
        shapes.append(np.asarray(page.image().convert("L")) < 200)
    assert not np.array_equal(*shapes)


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(20, 300))
def test_wrapping_keeps_every_word_inside_the_width(words, width):
    places, area = lay_out([Span(word) for word in words], width, BODY)
    assert "".join(span.text for span, _, _ in places) == "".join(words)
    for span, left, top in places:
        assert left >= 0
        assert left + span.width(BODY) <= max(width, span.width(BODY))
        assert left + span.width(BODY) <= area[0]
        assert top < area[1]
    for (one, left, top), (_, right, below) in pairwise(places):
        assert below > top or right >= left + one.width(BODY)


def test_a_word_longer_than_the_line_is_broken_and_whole():
    word = "donaudampfschifffahrtsgesellschaft" * 3
    places, _ = lay_out([Span(word)], 120, BODY)
    assert "".join(span.text for span, _, _ in places) == word
    assert max(span.width(BODY) for span, _, _ in places) <= 120
    assert len({top for _, _, top in places}) > 3


@pytest.mark.parametrize(
    "text",
    ["café", "naïve Ærø", "😀", "👩‍🚀", "中文", "e\u0301", "\ud83d", "a\nb\tc", "\x00", "", " ", "ﬁ", "❤️", "a\u200db"],
)
def test_any_text_can_be_measured_and_drawn(text):
    assert Span(text).width(BODY) >= 0
    Sheet().words([Span(text, COLOURS[0]), Span(text)], 0, 0, 100)


def test_accents_are_kept_where_a_font_has_them_and_lost_where_none_has(monkeypatch):
    monkeypatch.setattr(canvas, "_SYSTEM_FONTS", ("no such font",))
    writable.cache_clear()
    assert writable("café", 18)[0] == "cafe"
    writable.cache_clear()


def test_plain_english_is_writable_in_the_built_in_font():
    assert writable("a dog's day", 18) == ("a dog's day", canvas.font(18))


@pytest.mark.parametrize("width", [0, -5, 159, 8001])
def test_a_width_that_nothing_fits_into_is_refused(width):
    with pytest.raises(ConfigError, match="pixels wide"):
        canvas.checked_width(width)


def test_saved_pictures_are_read_back_the_same(tmp_path):
    image = Image.new("RGB", (7, 5), PAPER)
    ImageDraw.Draw(image).point((3, 2), (1, 2, 3))
    canvas.save_png(image, tmp_path / "new" / "one.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "new" / "one.png")), np.asarray(image))
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["one.png"]
