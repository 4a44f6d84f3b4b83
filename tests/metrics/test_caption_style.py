"""How varied captions are, by plain counting."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_samples import SENTENCE, score
from sightline.cli import commands
from sightline.metrics.caption_style import Diversity
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
