"""Faults of language: articles by sound, ends that dangle, nouns and words said twice."""

import json

import pytest

from language_samples import score
from sightline.cli import commands
from sightline.metrics.caption_style import LanguageErrors, faults_all
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


@pytest.mark.parametrize(
    ("caption", "wrong"),
    [
        ("a umbrella on an beach", ["a umbrella", "an beach"]),
        ("an dog with a orange", ["an dog", "a orange"]),
        ("an hour at a university with a european", []),
        ("a a apple", ["a apple"]),  # the article twice is another fault
        ("the umbrella", []),
        ("a mountain in a", []),
        ("", []),
    ],
)
def test_wrong_articles_are_found_in_captions(caption, wrong):
    assert faults_all([caption])[0]["wrong_article"] == wrong


@pytest.mark.parametrize(
    ("caption", "last"),
    [
        ("a field with a mountain in the", ["the"]),
        ("a man sitting on top of", ["of"]),
        ("a dog and", ["and"]),
        ("a bowl filled with", ["with"]),
        ("a boat floating next to", ["to"]),
        ("a woman holding his", ["his"]),
        ("a field with a mountain in", ["in"]),
        ("a bird on the shore as the tide comes in", []),
        ("a kitchen with the sink light on", []),
        ("a man looking at her", []),
        ("two dogs lying down", []),
        ("a city street with people walking by", []),
        ("a dog", []),
        ("in", ["in"]),
        ("", []),
    ],
)
def test_ends_that_dangle(caption, last):
    assert faults_all([caption])[0]["dangling_end"] == last


def test_nearly_all_that_decoding_forbids_at_the_end_dangles():
    assert set(BAD_ENDINGS) - DANGLING == {"before", "after", "on", "this", "her", "that"}


@pytest.mark.parametrize(
    ("caption", "nouns"),
    [
        ("a lighthouse with a lighthouse on top of a lighthouse", ["lighthouse"]),
        ("a boat in the water with a body of water", ["water"]),
        ("a man with a dog and two dogs", ["dog"]),
        ("a woman and women near a bus stop and a bus", ["woman", "bus"]),
        ("two giraffes standing side by side", []),
        ("a man next to another man", []),
        ("a zebra beside the other small zebra", []),
        ("a red car and a red truck", []),
        ("a man riding a ride", []),
        ("", []),
    ],
)
def test_nouns_said_twice(caption, nouns):
    assert faults_all([caption])[0]["noun_twice"] == nouns


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("a a dog on the the grass", ["a", "the"]),
        ("a dog dog", ["dog"]),
        ("a dog and a dog", []),
        ("a choo choo train", []),
    ],
)
def test_words_that_follow_themselves(caption, words):
    assert faults_all([caption])[0]["word_twice"] == words


def test_shares_are_of_captions_in_percent():
    said = {"1": "a umbrella and a umbrella", "2": "a dog on the the", "3": "a dog", "4": "an hour"}
    scores = score(LanguageErrors(), said, {id: ["x"] for id in said})
    assert scores.corpus == {"wrong_article": 25.0, "dangling_end": 25.0, "noun_twice": 25.0, "word_twice": 25.0}
    assert scores.per_image["1"] == {"wrong_article": 100, "dangling_end": 0, "noun_twice": 100, "word_twice": 0}
    assert scores.words["1"]["wrong_article_words"] == ["a umbrella", "a umbrella"]
    assert set(LanguageErrors().compute().corpus.values()) == {0.0}


def test_the_command_prints_shares_and_writes_the_words(tmp_path, capsys):
    (tmp_path / "r.json").write_text('{"1": ["an umbrella"], "2": ["a dog"]}')
    (tmp_path / "h.json").write_text('{"1": "A umbrella.", "2": "a dog"}')
    arguments = ["score", "--refs", str(tmp_path / "r.json"), "--hyps", str(tmp_path / "h.json")]
    page = tmp_path / "page.html"
    assert commands.main([*arguments, "--metrics", "language", "--html", str(page)]) == 0
    assert "Wrong article (%)          50.00" in capsys.readouterr().out
    assert '"wrong_article_words":["a umbrella"]' in page.read_text()
    assert commands.main([*arguments, "--metrics", "language", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["per_image"]["1"]["wrong_article_words"] == ["a umbrella"]
