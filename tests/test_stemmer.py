import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.text.stemmer import stem

# Recorded from the Snowball English stemmer (snowballstemmer 3.1): the algorithm's own examples, and words of captions.
RECORDED = json.loads((Path(__file__).parent / "fixtures" / "stems.json").read_text())


def test_every_recorded_stem_is_equal():
    assert {word: stem(word) for word in RECORDED} == RECORDED


@pytest.mark.parametrize(("word", "expected"), [("skis", "ski"), ("dying", "die"), ("news", "news"), ("sky", "sky")])
def test_the_exceptions_hold(word, expected):
    assert stem(word) == expected


@given(st.text())
def test_any_text_has_a_stem_that_is_no_longer_than_one_letter_more(text):
    assert len(stem(text)) <= len(text) + 1
