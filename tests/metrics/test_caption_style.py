"""How varied captions are, by plain counting; faults of language."""

import json
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_samples import SENTENCE, score
from sightline.cli import commands
from sightline.metrics.caption_style import Diversity, LanguageErrors, faults_all
from sightline.metrics.report import report_data
from sightline.metrics.scorecard import scorecard


@given(st.lists(SENTENCE, min_size=1))
def test_the_statistics_equal_plain_counting(captions):
    said = {str(place): caption for place, caption in enumerate(captions)}
    scores = score(Diversity(), said, {id: ["x"] for id in said})
    words = [caption.split() for caption in captions]
    lengths = [len(one) for one in words]
    assert scores.corpus["length"] == pytest.approx(statistics.fmean(lengths))
    assert scores.corpus["vocabulary"] == len({word for one in words for word in one})
    for n in (1, 2):
        grams = [tuple(one[i : i + n]) for one in words for i in range(len(one) - n + 1)]
        assert scores.corpus[f"distinct_{n}"] == pytest.approx(100 * len(set(grams)) / max(1, len(grams)))
    alone = sum(words.count(one) == 1 for one in words)
    assert scores.corpus["unique"] == pytest.approx(100 * alone / len(captions))
    assert [row["length"] for row in scores.per_image.values()] == lengths


def test_no_image_scores_zero():
    assert set(Diversity().compute().corpus.values()) == {0}


def test_the_page_shows_only_what_has_an_interval():
    said = {"1": "a dog runs", "2": "a cat"}
    card = scorecard(said, {id: ["x"] for id in said}, ["diversity"])
    data = report_data({"ours": card}, rounds=20)
    assert data["keys"] == ["length"]
    drawn = card.metrics["diversity"].resample(np.array([[1.0, 1.0], [2.0, 0.0]]))
    assert drawn["length"] == pytest.approx([2.5, 3.0])


def test_the_command_prints_counts_as_whole_numbers(tmp_path, capsys):
    (tmp_path / "r.json").write_text('{"1": ["a dog"], "2": ["a dog"]}')
    (tmp_path / "h.json").write_text('{"1": "a dog", "2": "a dog"}')
    files = ["--refs", str(tmp_path / "r.json"), "--hyps", str(tmp_path / "h.json")]
    assert commands.main(["score", *files, "--metrics", "diversity"]) == 0
    rows = {" ".join(words): value for *words, value in map(str.split, capsys.readouterr().out.splitlines()[1:-1])}
    assert rows == {
        "Words a caption": "2.00",
        "Vocabulary": "2",
        "Distinct-1 (%)": "50.00",
        "Distinct-2 (%)": "50.00",
        "Captions no other image has (%)": "0.00",
    }


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
