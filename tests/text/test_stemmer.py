"""The stemmer against stems that METEOR 1.5 confirmed."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.text.stemmer import stem

# Confirmed by the Java tool itself (record_meteor_reference.py), not by a newer Snowball.
RECORDED = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "fixtures" / "meteor_reference.json.gz").read_bytes())
)


def test_every_confirmed_stem_is_equal():
    stems = RECORDED["stems"]
    assert len(stems) > 2000
    assert {word: stem(word) for word in stems} == stems


@pytest.mark.parametrize(
    ("word", "expected", "newer"),
    [
        ("theologist", "theologist", "theolog"),
        ("erring", "er", "err"),
        ("adding", "ad", "add"),
        ("organism", "organ", "organism"),
    ],
)
def test_rules_that_snowball_added_later_are_not_used(word, expected, newer):
    assert stem(word) == expected != newer


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"), ("ties", "tie"), ("cries", "cri"), ("gas", "gas"), ("gaps", "gap"), ("this", "this"),
        ("hopping", "hop"), ("hoping", "hope"), ("luxuriated", "luxuri"), ("agreed", "agre"), ("bleed", "bleed"),
        ("cry", "cri"), ("by", "by"), ("say", "say"), ("sensational", "sensat"), ("generalization", "general"),
        ("hopefulness", "hope"), ("analogi", "analog"), ("quickly", "quick"), ("formative", "format"),
        ("relative", "relat"), ("adoption", "adopt"), ("replacement", "replac"), ("rate", "rate"), ("roll", "roll"),
        ("controll", "control"), ("'tis", "tis"), ("dog's", "dog"), ("dogs's'", "dog"), ("yes", "yes"), ("a", "a"),
    ],
)  # fmt: skip
def test_each_step_does_what_its_description_says(word, expected):
    assert stem(word) == expected


@given(st.text())
def test_any_text_has_a_stem_that_is_no_longer_than_one_letter_more(text):
    assert len(stem(text)) <= len(text) + 1


@given(st.text(alphabet="0123456789éяß犬🐕-", min_size=1))
def test_words_without_english_letters_stay_as_they_are(text):
    assert stem(text) == text
