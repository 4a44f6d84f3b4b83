"""Articles by sound, and words that no caption ends in."""

import pytest

from sightline.text.grammar import BAD_ENDINGS, DANGLING, indefinite_article, wrong_articles

A = """dog unicorn uniform union unit university unique united used useful user usual utensil utility urinal ukulele
european euro eucalyptus ewe one one-way one-eyed once house horse hot-dog helmet yellow young wii woman tv dvd cd pc
1 10 12 100 2-door 180 usb ufo u-turn bmx gps ninth oneself""".split()
AN = """umbrella apple orange elephant airplane oven old open ugly urban urn unusual unidentified uninhabited unmade
under upside usher onion only oncoming hour hourglass honest honor honour heir heirloom 8 80 8th 11 18 18-wheeler
suv x-ray xbox mp3 lcd hdtv rv nba l-shaped élégant ipod eighteen""".split()


@pytest.mark.parametrize("word", A)
def test_a_stands_before_consonant_sounds(word):
    assert indefinite_article(word) == "a"


@pytest.mark.parametrize("word", AN)
def test_an_stands_before_vowel_sounds(word):
    assert indefinite_article(word) == "an"


@pytest.mark.parametrize("word", ["herb", "historic", "mrs", "", "&", "犬"])
def test_where_both_are_said_or_nobody_knows_neither_is_wrong(word):
    assert indefinite_article(word) is None
    assert wrong_articles(["a", word]) == wrong_articles(["an", word]) == []


def test_nearly_all_that_decoding_forbids_at_the_end_dangles():
    assert set(BAD_ENDINGS) - DANGLING == {"before", "after", "on", "this", "her", "that"}
