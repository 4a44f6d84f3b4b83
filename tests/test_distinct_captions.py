"""Captions that tell similar photos apart."""

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.batch import TextBatch
from sightline.caption import PhotoCaption
from sightline.checkpoint.bundle import save_bundle
from sightline.cli import commands
from sightline.decoding.rules import Rules
from sightline.distinct_captions import Contrast, _scores, alike, choose, gist, tell_apart, tell_group_apart
from sightline.errors import ConfigError
from sightline.pipeline import Pipeline

torch.set_num_threads(1)
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))
BRIEF = Rules(max_words=5, min_words=4)
SAME = ("a", "dog", "sits", "on", "the", "table")


@pytest.fixture(scope="module")
def pipeline():
    return Pipeline(tiny_bundle())


@pytest.fixture(scope="module")
def same(pipeline):
    """The examples, as if the model had said the same about all."""
    return [PhotoCaption(SAME, -9.0, (), str(path), pipeline.caption(path, beam=1).size) for path in PHOTOS]


def test_small_words_make_no_difference():
    said = ["a dog on the beach", "two dogs", "the dog is on a beach", "a cat", "two dogs", "a dog on a bed"]
    assert alike([text.split() for text in said]) == [[0, 2], [1, 4]]


def test_no_two_photos_have_the_same_caption_afterwards_and_those_alone_keep_theirs(pipeline, same):
    alone = PhotoCaption(("two", "cats"), -3.0, (), str(PHOTOS[0]), (9, 9))
    found = tell_apart(pipeline, [same[0], alone, *same[1:]], rules=BRIEF)
    assert found[1] is alone
    assert len({gist(one.words) for one in found}) == len(found)
    assert [one.path for one in found if one is not alone] == [one.path for one in same]
    assert [one.size for one in found[2:]] == [one.size for one in same[1:]]


def test_rewritten_captions_are_as_complete_as_others(pipeline, same):
    for one in tell_apart(pipeline, same, rules=BRIEF):
        ids = TextBatch.collate([one.words], pipeline.bundle.captioner.vocabulary).ids
        with torch.no_grad():
            memory = pipeline.captioner.encode(pipeline.scenes([pipeline.read(one.path)]))
            assert one.log_prob == pytest.approx(float(pipeline.captioner.log_prob(memory, ids)), abs=0.05)
        assert len(one.trace) == len(one.words)
        assert one.confidence == pytest.approx(pipeline.bundle.calibration.of(one))
        assert any(word.box is not None for word in one.trace) or not {"dog", "cat", "man"} & set(one.words)


def test_captions_that_others_have_are_not_taken(pipeline, same):
    free = tell_group_apart(pipeline, same, set(), BRIEF)
    taken = {gist(one.words) for one in free}
    other = tell_group_apart(pipeline, same, set(taken), BRIEF, Contrast(candidates=20))
    assert not {gist(one.words) for one in other} & taken


def test_the_score_is_likelihood_here_less_the_mean_likelihood_there(pipeline):
    scenes = pipeline.scenes([pipeline.read(path) for path in PHOTOS[:4]])
    memory = pipeline.captioner.encode(scenes)
    choices = [("a", "dog"), ("two", "cats", "in", "front"), ("red", "ball")]
    ids = TextBatch.collate(choices, pipeline.bundle.captioner.vocabulary).ids
    with torch.inference_mode():
        rows = [
            pipeline.captioner.log_prob({k: v[i : i + 1] for k, v in memory.items()}, ids).numpy() for i in range(4)
        ]
        found = _scores(pipeline, memory, choices, 1, Contrast(weight=0.7, neighbours=2))
    naive = rows[1] - 0.7 * np.log((np.exp(rows[2]) + np.exp(rows[3])) / 2)
    np.testing.assert_allclose(found, naive, atol=0.05)  # products are of 8 bits


def test_who_loses_most_chooses_first_and_nothing_is_chosen_twice():
    scores = [np.array([5.0, 4.9]), np.array([5.0, 1.0]), np.array([0.0, -1.0, -2.0])]
    gists = [[("x",), ("y",)], [("x",), ("z",)], [("taken",), ("x",), ("free",)]]
    taken = {("taken",)}
    assert choose(scores, gists, taken) == [1, 0, 2]
    assert taken == {("x",), ("y",), ("free",), ("taken",)}


def test_a_photo_without_a_free_choice_has_none_and_keeps_what_it_had(pipeline, same):
    assert choose([np.array([1.0, 2.0])], [[("x",), ("y",)]], {("x",), ("y",)}) == [None]
    only = Rules(max_words=1, must_include=("dog",))
    assert [one.words for one in tell_apart(pipeline, same[:3], rules=only)].count(SAME) == 2


def test_where_the_captions_of_a_photo_are_taken_more_are_asked_for(pipeline, same):
    found = tell_apart(pipeline, same, rules=BRIEF, contrast=Contrast(candidates=2))
    assert len({gist(one.words) for one in found}) == len(found)


def test_copies_of_one_picture_share_their_caption(pipeline, same, tmp_path):
    copy = tmp_path / "copy.jpg"
    copy.write_bytes(PHOTOS[0].read_bytes())
    again = PhotoCaption(SAME, -9.0, (), str(copy), same[0].size)
    first, second, third = tell_apart(pipeline, [same[0], again, same[1]], rules=BRIEF)
    assert first.words == second.words != third.words
    assert second.path == str(copy)


def test_a_photo_that_is_gone_keeps_its_caption_and_is_told(pipeline, same, tmp_path):
    gone, bad = PhotoCaption(SAME, -9.0, (), str(tmp_path / "gone.jpg")), []
    found = tell_apart(pipeline, [*same[:2], gone], rules=BRIEF, bad=bad.append)
    assert found[2] is gone
    assert SAME not in [one.words for one in found[:2]]
    assert [Path(error.where).name for error in bad] == ["gone.jpg"]


def test_groups_larger_than_what_is_looked_at_together_are_told_apart(pipeline, same, monkeypatch):
    monkeypatch.setattr("sightline.distinct_captions.AT_ONCE", 2)
    found = tell_apart(pipeline, same, rules=BRIEF)
    assert len({gist(one.words) for one in found}) == len(found)


@pytest.mark.parametrize("wrong", [{"weight": -1}, {"candidates": 1}, {"neighbours": 0}, {"weight": float("nan")}])
def test_numbers_that_make_no_sense_are_told(wrong):
    with pytest.raises(ConfigError):
        Contrast(**wrong)


@pytest.fixture
def caption(tmp_path, capsys):
    """The command with a model that says the same about everything, its weights being dead to photos."""
    bundle = tiny_bundle()
    with torch.no_grad():
        for layer in bundle.captioner.model.layers:
            layer.cross_attention.output.weight.mul_(1e-3)
    save_bundle(tmp_path / "model.safetensors", bundle)
    options = ["--model", str(tmp_path / "model.safetensors"), "--device", "cpu", "--length", "5"]

    def run(*arguments):
        assert commands.main(["caption", *map(str, arguments), *options]) == 0
        shown = capsys.readouterr()
        run.err = shown.err
        return shown.out

    return run


def test_the_command_tells_photos_apart_on_standard_output_and_in_files(caption, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    plain = [one["caption"] for one in json.loads(caption(EXAMPLES, "--json"))]
    apart = [one["caption"] for one in json.loads(caption(EXAMPLES, "--json", "--distinct"))]
    assert len(set(plain)) == 1
    assert len(set(apart)) == len(plain)
    assert not list((tmp_path / "temporary").iterdir())
    asked = (EXAMPLES, "--out", tmp_path / "out", "--format", "jsonl")
    assert len({line.split(": ")[1] for line in caption(*asked).splitlines()}) == 1
    lines = caption(*asked, "--distinct").splitlines()
    assert sorted(line.split(": ")[1] for line in lines) == sorted(apart)
    told = [json.loads(line)["caption"] for line in (tmp_path / "out" / "captions.jsonl").read_text().splitlines()]
    assert told == apart


def test_a_second_run_keeps_groups_that_are_as_they_were_and_plain_captions_come_back(caption, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in PHOTOS[:2]:
        (folder / path.name).write_bytes(path.read_bytes())
    asked = (folder, "--out", tmp_path / "out", "--format", "pictures,jsonl")
    first = caption(*asked, "--distinct")
    assert first
    assert caption(*asked, "--distinct") == ""
    drawn = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.jpg")}
    assert len(drawn) == 2
    (folder / PHOTOS[2].name).write_bytes(PHOTOS[2].read_bytes())
    assert len(caption(*asked, "--distinct").splitlines()) == 3
    plain = caption(*asked).splitlines()
    assert len({line.split(": ")[1] for line in plain}) == 1
    assert all((tmp_path / "out" / name).stat().st_mtime_ns > before for name, before in drawn.items())


@pytest.mark.parametrize("to_files", [False, True])
def test_the_command_says_what_it_rewrote(caption, tmp_path, to_files):
    out = ["--out", tmp_path / "out", "--format", "csv"] if to_files else []
    plain = caption(EXAMPLES)
    apart = caption(EXAMPLES, "--distinct", *out)
    err = caption.err
    before, after = (dict(line.split(": ", 1) for line in lines.splitlines()) for lines in (plain, apart))
    changed = {path for path in before if before[path] != after[path]}
    head, *lines = err.splitlines()
    assert re.fullmatch(rf"\d+ captions were alike; rewritten: {len(changed)}", head)
    assert changed
    assert lines[: len(changed)] == [f"  {path}: {before[path]} -> {after[path]}" for path in before if path in changed]
    if to_files:
        caption(EXAMPLES, "--distinct", *out)
        assert "alike" not in caption.err  # the second run has rewritten nothing
