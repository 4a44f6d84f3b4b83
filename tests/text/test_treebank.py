import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.text.treebank import treebank_words

# Recorded from nltk 3.10's word_tokenize(text, preserve_line=True).
RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "treebank_reference.json").read_text())


@pytest.mark.parametrize(("text", "expected"), RECORDED)
def test_words_equal_the_recorded_reference(text, expected):
    assert treebank_words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog. a cat.", ["a", "dog", ".", "a", "cat", "."]),
        ("mr. smith at st. paul. he waves.", ["mr.", "smith", "at", "st.", "paul", ".", "he", "waves", "."]),
        ("the u.s. flag", ["the", "u.s.", "flag"]),
        ("j. doe (a man.) sits", ["j.", "doe", "(", "a", "man", ".", ")", "sits"]),
    ],
)
def test_a_full_stop_inside_a_caption_ends_a_sentence_unless_the_word_is_an_abbreviation(text, expected):
    assert treebank_words(text) == expected


@given(st.text())
def test_nothing_but_white_space_and_quote_marks_is_lost(text):
    plain = str.maketrans("", "", "\"'` ")
    assert "".join(treebank_words(text)).translate(plain) == "".join(text.split()).translate(plain)
