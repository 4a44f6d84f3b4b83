"""Palette, photos of any kind, wrapping, files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from sightline.caption import Caption
from sightline.draw import canvas, text_layout
from sightline.draw.canvas import COLOURS, INK, MARGIN, PAPER, blank, column, contrast, fitted, heat, ink_on, shade
from sightline.draw.photo_boxes import words_on_boxes
from sightline.draw.text_layout import BODY, Span, lay_out, text_block, text_width, written
from sightline.errors import ConfigError, DataError, ImageError
from sightline.vision.images import open_image, read_pixels


def luminance(colour):
    return float(np.dot(colour, (0.2126, 0.7152, 0.0722)))


def test_heat_grows_lighter_and_shade_darker_with_the_weight():
    steps = np.linspace(0, 1, 21)
    assert (np.diff([luminance(c) for c in heat(steps)]) > 0).all()
    assert (np.diff([luminance(shade(v)) for v in steps]) < 0).all()


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
    fit = fitted(Image.new("RGB", size), 200, 150)
    assert 24 <= fit.width <= 200
    assert 24 <= fit.height <= 150


def test_fitted_photos_keep_their_shape():
    assert fitted(Image.new("RGB", (640, 480)), 320).size == (320, 240)
    assert fitted(Image.new("RGB", (480, 640)), 320).size == (240, 320)


def test_round_corners_are_smooth_and_the_inside_is_filled():
    image = blank(40, 40)
    canvas.rounded(image, (5, 5, 35, 35), (0, 0, 0), 8)
    assert image.getpixel((20, 20)) == (0, 0, 0)
    assert image.getpixel((5, 5)) == PAPER
    assert image.getpixel((4, 20)) == image.getpixel((35, 20)) == PAPER
    between = [v for v in np.asarray(image)[..., 0].ravel() if 0 < v < 255]
    assert between


def test_an_empty_shape_paints_nothing():
    image = blank(4, 4)
    canvas.rounded(image, (2, 2, 2, 2), INK)
    assert (np.asarray(image) == 255).all()


def test_tick_and_cross_differ_in_colour_and_in_shape():
    tick, cross = np.asarray(canvas.badge(True)), np.asarray(canvas.badge(False))
    assert tuple(tick[2, 13]) == canvas.GOOD
    assert tuple(cross[2, 13]) == canvas.BAD
    assert not np.array_equal(tick[..., 0] > 250, cross[..., 0] > 250)


def test_blocks_stand_below_and_beside_each_other():
    red, blue = Image.new("RGB", (2, 3), "red"), Image.new("RGB", (4, 1), "blue")
    down = column([red, blank(3, 0), blue], 5, "end")
    assert down.size == (4, 9)
    assert down.getpixel((3, 0)) == (255, 0, 0)
    assert down.getpixel((0, 8)) == (0, 0, 255)
    assert canvas.row([red, blue], 1, "centre").getpixel((3, 1)) == (0, 0, 255)
    assert column([]).size == (0, 0)


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 100), st.integers(0, 9))
def test_rows_keep_every_item_in_order_and_within_the_limit(widths, limit, gap):
    rows = canvas.rows_of(widths, limit, gap)
    assert [i for items in rows for i in items] == list(range(len(widths)))
    for items in rows:
        assert len(items) == 1 or sum(widths[i] for i in items) + gap * (len(items) - 1) <= limit


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(20, 300))
def test_wrapping_keeps_every_word_inside_the_width(words, width):
    layout = lay_out([Span(word) for word in words], width)
    assert "".join(placed.span.text for placed in layout.placed) == "".join(words)
    for placed in layout.placed:
        assert placed.left >= 0
        assert placed.left + placed.width <= max(width, text_width(placed.span.text, BODY))
    for one, other in zip(layout.placed, layout.placed[1:], strict=False):
        assert other.top > one.top or other.left >= one.left + one.width


def test_a_word_longer_than_the_line_is_broken_and_whole():
    word = "donaudampfschifffahrtsgesellschaft" * 3
    layout = lay_out([Span(word)], 120)
    assert "".join(p.span.text for p in layout.placed) == word
    assert max(p.width for p in layout.placed) <= 120
    assert len({p.top for p in layout.placed}) > 3


@pytest.mark.parametrize("align", ["start", "centre", "end"])
def test_aligned_text_is_where_it_should_be(align):
    block = text_block([Span("word")], 200, align=align)
    inked = np.flatnonzero((np.asarray(block) < 200).any(axis=(0, 2)))
    left, right = inked[0], inked[-1]
    assert {"start": left < 8, "centre": abs(left - (199 - right)) < 6, "end": right > 192}[align]


@pytest.mark.parametrize(
    "text",
    ["café", "naïve Ærø", "😀", "👩‍🚀", "中文", "e\u0301", "\ud83d", "a\nb\tc", "\x00", "", " ", "ﬁ", "❤️", "a\u200db"],
)
def test_any_text_can_be_measured_and_drawn(text):
    assert text_width(text, BODY) >= 0
    text_block([Span.chip(text, COLOURS[0]), Span(text, line="under")], 100)


def test_accents_are_kept_where_a_font_has_them_and_lost_where_none_has(monkeypatch):
    monkeypatch.setattr(text_layout, "_SYSTEM_FONTS", ("no such font",))
    written.cache_clear()
    assert written("café", 18)[0] == "cafe"
    written.cache_clear()


def test_plain_english_is_written_in_the_built_in_font():
    assert written("a dog's day", 18) == ("a dog's day", text_layout.font(18))


def test_lines_under_neighbouring_words_join():
    joined = [Span("two", line="under"), Span("words", line="under"), Span("plain")]
    first, second, _ = lay_out(joined, 300).placed
    assert first.left + first.width + first.reach == second.left
    assert second.reach == 0
    block = np.asarray(text_block(joined, 300))
    full = [r for r in range(block.shape[0]) if (block[r, : second.left + second.width] == INK).all()]
    assert full


def test_struck_and_dashed_lines_are_where_they_should_be():
    plain, struck, dashed = (
        np.asarray(text_block([Span("nnnn", line=kind)], 200)) for kind in ("", "through", "dashed")
    )
    assert (
        np.flatnonzero((struck != plain).any(axis=(1, 2))).max() < np.flatnonzero((plain < 99).any(axis=(1, 2))).max()
    )
    rule = np.flatnonzero((dashed != plain).any(axis=(1, 2)))[0]
    dark = dashed[rule, :, 0] < 99
    assert np.abs(np.diff(dark.astype(int))).sum() > 4


def test_bold_letters_are_heavier():
    plain, bold = (np.asarray(text_block([Span("word", bold=b)], 200)).mean() for b in (False, True))
    assert bold < plain


@pytest.mark.parametrize("width", [0, -5, 159, 8001])
def test_a_width_that_nothing_fits_into_is_refused(width):
    with pytest.raises(ConfigError, match="pixels wide"):
        canvas.checked_width(width)


def test_saved_pictures_are_read_back_the_same(tmp_path):
    image = blank(7, 5)
    ImageDraw.Draw(image).point((3, 2), (1, 2, 3))
    canvas.save_png(image, tmp_path / "new" / "one.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "new" / "one.png")), np.asarray(image))
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["one.png"]
