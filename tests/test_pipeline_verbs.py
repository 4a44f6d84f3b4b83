"""The verbs of the command line on one loaded object: index, search, distinct."""

import doctest
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint.bundle import save_bundle
from sightline.cli import commands
from sightline.decoding.rules import Rules
from sightline.distinct_captions import Contrast, gist, tell_apart
from sightline.errors import ConfigError, DataError
from sightline.pipeline import Pipeline, load
from sightline.search.engine import keywords
from sightline.search.query import NAME

torch.set_num_threads(1)
NAMES = sorted(photo.name for photo in EXAMPLES.glob("*.jpg"))
SAME = Rules(max_words=1)  # so that captions are alike


@pytest.fixture(scope="module")
def pipeline():
    return Pipeline(tiny_bundle())


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """The example photos in a folder; the current folder is the one above."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name in NAMES:
        shutil.copy(EXAMPLES / name, tmp_path / "photos")
    return tmp_path / "photos"


def names(hits) -> list[str]:
    return [Path(hit.path).name for hit in hits]


@pytest.mark.parametrize("verb", ["load", "caption", "__call__", "index", "search", "distinct"])
@pytest.mark.usefixtures("photos")
def test_the_example_of_a_verb_runs(verb, pipeline, tiny_model, monkeypatch):
    monkeypatch.setattr("sightline.checkpoint.bundle.default_bundle", lambda: tiny_model)
    text = load.__doc__ if verb == "load" else getattr(Pipeline, verb).__doc__
    test = doctest.DocTestParser().get_doctest(text, {"pipeline": pipeline, "Path": Path}, verb, None, None)
    told = []
    done = doctest.DocTestRunner().run(test, out=told.append)
    assert done.attempted
    assert not done.failed, "".join(told)


def test_photos_are_indexed_beside_the_current_folder_and_found_from_below_it(pipeline, photos, monkeypatch):
    report = pipeline.index(photos)
    assert (report.made, report.total) == (len(NAMES), len(NAMES))
    assert (photos.parent / NAME).is_dir()
    monkeypatch.chdir(photos)
    assert len(pipeline.search("a dog", k=2)) == 2
    assert pipeline.index(photos, photos.parent / NAME).kept == len(NAMES)


def test_a_photo_of_any_form_finds_itself(pipeline, tmp_path):
    (tmp_path / "pictures").mkdir()
    for name in NAMES:  # not as JPEGs, of which a file is decoded at a reduced scale
        with Image.open(EXAMPLES / name) as image:
            image.resize((160, 120)).save((tmp_path / "pictures" / name).with_suffix(".png"))
    pipeline.index(tmp_path / "pictures", tmp_path / "store", captions=False)
    for path in sorted((tmp_path / "pictures").iterdir())[:2]:
        with Image.open(path) as image:
            forms = [path, path.read_bytes(), image.convert("RGB"), np.asarray(image.convert("RGB"))]
        found = [pipeline.search(form, store=tmp_path / "store", k=1) for form in forms]
        assert [names(hits) for hits in found] == [[path.name]] * len(forms)


def test_python_and_the_command_line_find_the_same(pipeline, photos, tmp_path, capsys):
    model = tmp_path / "model.safetensors"
    save_bundle(model, tiny_bundle(), "float32")
    pipeline.index(photos, "store")
    options = ["--store", "store", "--not", "a red cup", "-k", "3", "--explain", "--json"]
    assert commands.main(["search", "a dog", "--image", str(photos / NAMES[0]), *options, "--model", str(model)]) == 0
    found = pipeline.search("a dog", image=photos / NAMES[0], avoid="a red cup", store="store", k=3, explain=True)
    assert json.loads(json.dumps([hit.to_json() for hit in found])) == json.loads(capsys.readouterr().out)


def test_words_may_be_searched_by_vectors_alone_and_without_a_thing(pipeline, photos):
    pipeline.index(photos, "store")
    asked = "a dog with a ball"
    scores = [hit.score for hit in pipeline.search(asked, store="store", captions=False)]
    vectors = np.stack(
        [look.vector for look in pipeline.embed_photos(map(pipeline.read, sorted(photos.iterdir())), captions=False)]
    )
    assert scores == pytest.approx(sorted(vectors @ pipeline.text_vectors([asked])[0], reverse=True), abs=1e-5)
    said = {hit.path: hit.caption for hit in pipeline.search(asked, store="store")}
    unwanted = next(caption for caption in said.values() if keywords(caption))
    for hit in pipeline.search("two women", avoid=unwanted, store="store"):
        assert hit.caption != unwanted


def test_a_string_that_names_a_photo_is_not_taken_for_words(pipeline, photos):
    pipeline.index(photos, "store", captions=False)
    with pytest.raises(ConfigError, match="a string is words") as refused:
        pipeline.search(f"./photos/{NAMES[0]}", store="store")
    assert "pathlib.Path" in str(refused.value)
    assert pipeline.search("nothing.jpg", store="store") == []  # words, as there is no such photo, and unknown ones


def test_two_photos_are_not_looked_for_at_once(pipeline, photos):
    pipeline.index(photos, "store", captions=False)
    with pytest.raises(ConfigError, match="two photos"):
        pipeline.search(photos / NAMES[0], image=photos / NAMES[1], store="store")


def test_a_place_without_an_index_and_a_folder_that_is_none_are_told(pipeline, photos):
    with pytest.raises(DataError, match="no photo index"):
        pipeline.search("a dog", store="nowhere")
    with pytest.raises(DataError):
        pipeline.index("nowhere", "store")


def test_captions_of_a_folder_are_told_apart_as_the_command_does(pipeline, photos):
    paths = sorted(photos.iterdir())
    before = list(pipeline.caption_many(paths, rules=SAME))
    assert len({gist(one.words) for one in before}) < len(before)
    found = pipeline.distinct(paths, rules=SAME)
    assert [one.path for one in found] == list(map(str, paths))
    assert len({gist(one.words) for one in found}) == len(found)
    assert [one.text for one in found] == [one.text for one in tell_apart(pipeline, before, rules=SAME)]
    assert pipeline.distinct(paths, rules=SAME, contrast=Contrast(weight=0))[0].path == str(paths[0])


def test_no_photos_are_no_captions(pipeline):
    assert pipeline.distinct([]) == []


def test_photos_that_cannot_be_read_are_told_and_left_out(pipeline, photos):
    broken = photos / "broken.jpg"
    broken.write_bytes(b"no picture")
    bad = []
    found = pipeline.distinct([broken, photos / NAMES[0]], rules=SAME, bad=bad.append)
    assert ([one.path for one in found], len(bad)) == ([str(photos / NAMES[0])], 1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        pipeline.distinct([broken], rules=SAME)
    assert "broken.jpg" in str(told[0].message)
    assert len(pipeline.index(photos, "store").bad) == 1
