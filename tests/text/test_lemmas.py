"""Lemmas: WordNet's own exceptions, the rules for regular endings, and what happens to words it does not hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import ConfigError
from sightline.text import wordnet
from sightline.text.lemmas import inflections, lemma, lemma_of_tag
from sightline.text.wordnet import POS, Pos


@pytest.mark.parametrize(
    ("word", "pos", "expected"),
    [
        ("men", "n", "man"),
        ("women", "n", "woman"),
        ("children", "n", "child"),
        ("people", "n", "people"),
        ("knives", "n", "knife"),
        ("buses", "n", "bus"),
        ("boxes", "n", "box"),
        ("benches", "n", "bench"),
        ("dishes", "n", "dish"),
        ("ladies", "n", "lady"),
        ("firemen", "n", "fireman"),
        ("dogs", "n", "dog"),
        ("bus", "n", "bus"),
        ("grass", "n", "grass"),
        ("tennis", "n", "tennis"),
        ("pants", "n", "pants"),
        ("boxesful", "n", "boxful"),
        ("fire hydrants", "n", "fire hydrant"),
        ("men of letters", "n", "man of letters"),
        ("riding", "v", "ride"),
        ("dressed", "v", "dress"),
        ("taping", "v", "tape"),
        ("tapes", "v", "tape"),
        ("swinging", "v", "swing"),
        ("singing", "v", "sing"),
        ("running", "v", "run"),
        ("lying", "v", "lie"),
        ("saw", "v", "see"),
        ("wore", "v", "wear"),
        ("is", "v", "be"),
        ("has", "v", "have"),
        ("tries", "v", "try"),
        ("looks up", "v", "look up"),
        ("bigger", "a", "big"),
        ("nicest", "a", "nice"),
        ("better", "a", "good"),
        ("better", "r", "well"),
        ("quickly", "r", "quickly"),
    ],
)
def test_base_forms(word: str, pos: Pos, expected: str) -> None:
    assert lemma(word, pos) == expected
    assert lemma(word.upper(), pos) == expected


@pytest.mark.parametrize(
    ("word", "tag", "expected"),
    [
        ("Dogs", "NNS", "dog"),
        ("saw", "VBD", "see"),
        ("saw", "VB", "saw"),
        ("lay", "VB", "lay"),
        ("lay", "VBD", "lie"),
        ("better", "JJR", "good"),
        ("'s", "VBZ", "be"),
        ("'s", "POS", "'s"),
        ("n't", "RB", "not"),
        ("ca", "MD", "can"),
        ("The", "DT", "the"),
        ("up", "RP", "up"),
        ("selfies", "NNS", "selfie"),
        ("flatscreenboxes", "NNS", "flatscreenbox"),
        ("wakeboarding", "VBG", "wakeboard"),
        ("vaping", "VBG", "vape"),
        ("blogged", "VBD", "blog"),
        ("wheelies", "NN", "wheelies"),
        ("pfft", "VBD", "pfft"),
        ("zs", "NNS", "zs"),
    ],
)
def test_base_forms_of_tagged_words(word: str, tag: str, expected: str) -> None:
    assert lemma_of_tag(word, tag) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("swings", {"n+s", "v+s"}),
        ("building", {"n", "v+ing"}),
        ("men", {"n", "n+s"}),
        ("rode", {"v+ed"}),
        ("Riding", {"n", "v+ing"}),
        ("worst", {"n", "a", "r", "v", "a+est"}),
        ("best", {"n", "a", "r", "v", "a+est", "r+est"}),
        ("older", {"a", "a+er"}),
        ("goes", {"n+s", "v+s"}),
        ("zzqx", set()),
    ],
)
def test_what_a_form_may_be(word: str, expected: set[str]) -> None:
    assert inflections(word) == expected


@given(st.sampled_from(POS), st.text(max_size=12))
def test_a_lemma_is_in_wordnet_or_is_the_word_itself(pos: Pos, word: str) -> None:
    found = lemma(word, pos)
    assert found == word.lower() or wordnet.has(found, pos)


@pytest.mark.parametrize("pos", POS)
def test_irregular_forms_lead_to_a_listed_base_or_stay(pos: Pos) -> None:
    for form, bases in wordnet.exceptions(pos).items():
        assert lemma(form, pos) in {*bases, form}


def test_regular_endings_of_lemmas_lead_back_to_a_lemma_that_has_them() -> None:
    verbs = [verb for verb in wordnet.lemmas("v") if verb.isalpha()][::40]
    assert len(verbs) > 150
    for verb in verbs:
        assert "v+ing" in inflections(verb.removesuffix("e") + "ing") or verb.endswith(("ee", "oe", "ye")), verb
        assert "v+s" in inflections(verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh")) else "s")), verb


def test_an_unknown_part_of_speech_is_refused() -> None:
    with pytest.raises(ConfigError, match="'noun' is not a part of speech"):
        lemma("dogs", "noun")  # type: ignore[arg-type]
