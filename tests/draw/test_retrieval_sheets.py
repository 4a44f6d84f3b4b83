"""Retrieval sheets, judged concepts and models side by side: facts about pixels and words."""

import numpy as np
import pytest
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.canvas import BAD, COLOURS, GOOD, INK, MARGIN, SOFT
from sightline.draw.retrieval_sheets import (
    LOOKS,
    FoundCaption,
    FoundPhoto,
    Judgement,
    SelfRetrieval,
    caption_results,
    concept_stages,
    photo_results,
    self_retrieval_sheet,
    side_by_side,
)
from sightline.errors import ConfigError, DataError
from sightline.scene import Concept, Scene

GREY = Image.new("RGB", (200, 150), (128, 128, 128))
BOXES = np.array([(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0), (0.25, 0.25, 0.75, 0.75)])
SCENE = Scene("photo", boxes=BOXES)
GLOW = (250, 200, 90)


def count(picture, colour):
    return int((np.asarray(picture) == colour).all(axis=2).sum())


def columns(picture, colour):
    return np.flatnonzero((np.asarray(picture) == colour).all(axis=2).sum(axis=0) > 20)


def attending(words, attention):
    traces = (
        WordTrace(regions=np.asarray(attention[i], dtype=float)) if i in attention else WordTrace()
        for i in range(len(words))
    )
    return Caption(tuple(words), trace=tuple(traces))


def test_a_noun_has_one_colour_in_every_card_and_its_box_is_where_each_model_looks():
    words = ["a", "dog", "and", "cat"]
    captions = {
        "one": attending(words, {1: [0.9, 0.1, 0.0], 3: [0.0, 1.0, 0.0]}),
        "two": attending(words[::-1], {0: [0.0, 1.0, 0.0], 2: [0.0, 0.9, 0.1]}),
    }
    picture = np.asarray(side_by_side(GREY, SCENE, captions, {"one": [1, 3], "two": [2, 0]}, width=416))
    rows, across = np.nonzero((picture == 128).all(axis=2))
    top, left = rows.min(), across.min()
    one, two = (picture[top : top + 150, x : x + 200].astype(int) for x in (left, left + 216))

    def near(part, colour):
        return (np.abs(part - np.array(colour)).sum(axis=2) < 40).sum()

    assert near(one[:75, :100], COLOURS[0]) > 100  # the dog's box
    assert near(one[75:, 100:], COLOURS[1]) > 100
    assert near(two[75:, 100:], COLOURS[0]) > 100
    assert not near(two[:70, :90], COLOURS[0])


def test_bars_rise_with_the_weight_up_to_one_half():
    def inked(weight):
        caption = attending(["dog"], {0: [weight, 0.0, 0.0]})
        return count(side_by_side(GREY, SCENE, {"one": caption}, {"one": [0]}, width=200), SOFT)

    assert inked(0.1) < inked(0.3) < inked(0.5) == inked(0.9)


def test_a_noun_without_any_weight_has_no_box_and_models_without_nouns_are_shown():
    picture = side_by_side(GREY, SCENE, {"one": attending(["dog"], {0: [0, 0, 0]})}, {"one": [0]}, width=200)
    photo = picture.crop((MARGIN, MARGIN + 28, MARGIN + 200, MARGIN + 170))
    assert not count(photo, COLOURS[0])
    assert count(picture, COLOURS[0]) > 100  # the word's chip
    assert side_by_side(GREY, SCENE, {"one": Caption(("a", "dog"))}, {}, width=200).height > 150


def test_side_by_side_refuses_nouns_it_cannot_show():
    with pytest.raises(ConfigError, match="no model"):
        side_by_side(GREY, SCENE, {}, {})
    with pytest.raises(DataError, match="noun 4"):
        side_by_side(GREY, SCENE, {"one": attending(["dog"], {})}, {"one": [4]})
    with pytest.raises(DataError, match="“dog” has no attention"):
        side_by_side(GREY, SCENE, {"one": attending(["dog"], {})}, {"one": [0]})


def test_right_photos_have_green_frames_and_wrong_ones_red():
    picture = photo_results("a dog", [FoundPhoto(GREY, True), FoundPhoto(GREY, False)], width=416)
    assert columns(picture, GOOD).max() < columns(picture, BAD).min()
    assert count(picture, (128, 128, 128)) > 2 * 180 * 130


def test_a_found_photos_attention_stands_below_it():
    glow = Image.new("RGB", (200, 150), GLOW)
    plain, attended = (photo_results("a dog", [FoundPhoto(GREY, True, a)], width=200) for a in (None, glow))
    assert attended.height > plain.height + 140
    assert count(attended, GLOW) > 190 * 140


def test_right_captions_have_a_tick_and_similar_ones_a_grey_line():
    def drawn(**how):
        return caption_results(GREY, [FoundCaption("a dog runs", **how)], width=480)

    right, wrong, similar = drawn(correct=True), drawn(correct=False), drawn(correct=False, similar=True)
    assert count(right, GOOD)
    assert not count(wrong, GOOD)
    assert not count(wrong, BAD)
    assert count(wrong, INK) > count(similar, INK)
    assert np.array_equal(np.asarray(drawn(correct=True, similar=True)), np.asarray(right))


def test_captions_found_show_the_attention_below_the_photo():
    glow = Image.new("RGB", (200, 150), GLOW)
    assert count(caption_results(GREY, [FoundCaption("a dog", True)], glow, width=400), GLOW) > 10000


def test_a_dollar_in_a_caption_is_a_dollar():
    one, other = (captions_found_of(text) for text in ("a $5 bill or $", "a  5 bill or "))
    assert count(one, INK) > count(other, INK)


def captions_found_of(text):
    return caption_results(GREY, [FoundCaption(text, False)], width=640)


def test_long_found_captions_wrap():
    long = [FoundCaption(" ".join(["dog"] * 100), True)]
    assert caption_results(GREY, long, width=400).width <= 400 + 2 * MARGIN


def test_nothing_found_and_too_many_photos_are_refused():
    with pytest.raises(ConfigError, match="nothing was found"):
        photo_results("a dog", [])
    with pytest.raises(ConfigError, match="nothing was found"):
        caption_results(GREY, [])
    with pytest.raises(ConfigError, match="50 photos do not fit"):
        photo_results("a dog", [FoundPhoto(GREY, True)] * 50)
    with pytest.raises(ConfigError, match="no model said"):
        self_retrieval_sheet(GREY, [])


def test_self_retrieval_frames_the_photo_itself_where_each_caption_finds_it():
    other = Image.new("RGB", (200, 150), (20, 20, 20))
    said = [
        SelfRetrieval("plain", "a dog", [FoundPhoto(other, False), FoundPhoto(GREY, True)]),
        SelfRetrieval("contrastive", "a grey dog", [FoundPhoto(GREY, True), FoundPhoto(other, False)]),
    ]
    picture = self_retrieval_sheet(GREY, said, width=640)
    half = picture.height // 2
    above = columns(picture.crop((0, 0, picture.width, half)), GOOD)
    below = columns(picture.crop((0, half, picture.width, picture.height)), GOOD)
    assert above.min() > below.max()


JUDGED = Judgement(incorrect={"phone"}, irrelevant={"clothing"}, new={"field"}, adjectives={"young"})
CONCEPTS = [Concept("man", 0.9), Concept("mobile phone", 0.75)]


@pytest.mark.parametrize(
    ("word", "kind"),
    [("Phone,", "incorrect"), ("clothing", "irrelevant"), ("field.", "new"), ("young", "adjectives")],
)
def test_judged_words_have_their_looks_whatever_their_case_and_punctuation(word, kind):
    words = JUDGED.words(f"a {word} here")
    assert [(span.ink, span.line) for span in words] == [(INK, ""), LOOKS[kind], (INK, "")]
    with_it, without = (concept_stages(GREY, [], {"stage": f"a {w} here"}, JUDGED) for w in (word, "thing"))
    assert count(with_it, LOOKS[kind][0]) > count(without, LOOKS[kind][0])


def test_no_two_judgements_are_told_by_colour_alone():
    assert len({line for _, line in LOOKS.values()}) == len(LOOKS)


def test_without_a_judgement_there_are_no_colours_and_no_legend():
    picture = concept_stages(GREY, CONCEPTS, {"text": "a man with a phone"})
    assert not any(count(picture, colour) for colour, _ in LOOKS.values())


def test_score_bars_grow_with_the_score():
    lengths = [count(concept_stages(GREY, [Concept("man", s)], {}), COLOURS[0]) for s in (0.0, 0.3, 0.9, 7.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[1] < lengths[2]


def test_long_captions_wrap_and_too_little_room_is_refused():
    picture = concept_stages(GREY, [], {"one": " ".join(["word"] * 80), "two": ""}, width=480)
    assert picture.width <= 480 + 48
    with pytest.raises(ConfigError, match="from 320"):
        concept_stages(GREY, CONCEPTS, {}, width=319)
    assert concept_stages(GREY, CONCEPTS, {"stage": "a man"}, JUDGED, width=320).width <= 320 + 48


def test_a_word_under_two_judgements_is_refused():
    with pytest.raises(ConfigError, match="“dog” is named under two"):
        Judgement(incorrect={"Dog"}, new={"dog"})
