"""Work that travels without its model, and loads it where it says so."""

import pickle
from types import SimpleNamespace

import pytest

from sightline.cli.pipeline_work import CaptionWork, EmbedWork
from sightline.errors import ConfigError


@pytest.fixture
def loads(monkeypatch):
    """The arguments of each time a model is loaded."""
    calls = []

    def load(model, device, threads, *, style):
        calls.append((model, device, threads, style))
        return SimpleNamespace(
            caption_photos=lambda photos, beam, rules: [(photo, beam, rules) for photo in photos],
            embed_photos=lambda photos, captions: [(photo, captions) for photo in photos],
        )

    monkeypatch.setattr("sightline.pipeline.load", load)
    return calls


def test_a_model_is_loaded_once_in_each_process_and_only_when_it_is_asked_for(loads, tmp_path):
    work = CaptionWork(tmp_path / "model", "cpu", 3, tmp_path / "style", beam=2)
    assert (work.device, work.threads, work.beam, loads) == ("cpu", 3, 2, [])
    assert work.load() is work.load()
    assert work(["photo"]) == [("photo", 2, work.rules())]
    assert loads == [(tmp_path / "model", "cpu", 3, tmp_path / "style")]
    there = pickle.loads(pickle.dumps(work))
    assert len(loads) == 1
    assert there(["photo"])
    assert loads == [loads[0]] * 2


def test_vectors_come_with_captions_where_they_are_wanted(loads):
    for captions in (True, False):
        assert pickle.loads(pickle.dumps(EmbedWork(captions=captions)))(["photo"]) == [("photo", captions)]
    assert loads == [(None, "auto", None, None)] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beam": 0}, "`beam` is 0"),
        ({"beam": 1, "must_include": ("dog",)}, "--must-include needs a beam"),
        ({"length": "huge"}, "huge"),
    ],
)
def test_captions_that_cannot_be_are_refused_before_a_model_is_loaded(options, words):
    with pytest.raises(ConfigError, match=words):
        CaptionWork(**options)
