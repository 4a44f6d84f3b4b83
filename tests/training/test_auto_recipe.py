"""One's own photos in one line: every choice is made from the data, told, and written down to be run again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from learning_samples import THINGS, names, sentences, write_store
from sightline.checkpoint.model_checkpoint import load
from sightline.cli.commands import main
from sightline.errors import ConfigError, CountError
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import end_to_end
from sightline.models.updown import UpDownConfig
from sightline.training.auto_recipe import KINDS, OwnData, auto_recipe
from sightline.training.checkpoint_finder import Finder
from sightline.training.data import build_data
from sightline.training.data_config import DataConfig
from sightline.training.feature_cache import extract
from sightline.training.recipe import read_recipe
from sightline.vision.detector import DetectorConfig
from sightline.vision.feature_store import FeatureStore

COUNT = 40


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder of small pictures with captions.csv beside it, and features of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIGHTLINE_DATA", raising=False)
    (tmp_path / "photos").mkdir()
    rows = ["file,caption"]
    for i, name in enumerate(names(COUNT)):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / "photos" / name)
        rows += [f"{name},{text}" for text in sentences(i)]
    (tmp_path / "captions.csv").write_text("\n".join(rows) + "\n")
    write_store(tmp_path / "features", names(COUNT))
    return tmp_path


@pytest.fixture
def corpus(photos):
    lines = [f"a {thing} and another {thing} stand on the grass number {i % 3}" for i in range(30) for thing in THINGS]
    (photos / "text.txt").write_text("\n".join(lines) + "\n")
    return photos / "text.txt"


def own(folder, **changes):
    given = {"images": folder / "photos", "captions": folder / "captions.csv", "features": folder / "features"}
    return OwnData(**{**given, **changes})


def train(*words):
    return main(["train", *map(str, words)])


def test_one_line_trains_a_captioner_and_says_what_it_decided(photos, capsys):
    words = ["updown", "--images", "photos", "--captions", "captions.csv", "--features", "features", "--device", "cpu"]
    assert train(*words, "stages.cross-entropy.epochs=2") == 0
    told = capsys.readouterr().err
    for sentence in (
        "Photos are shared out by a hash of their names: 90 %",
        "There are 80 sentences; words that occur at least once are learned.",
        "The model is updown with 128 units a layer.",
        "With your changes, training takes 2 epochs of cross-entropy in batches of 4 photos with 2 captions each.",
        "model.safetensors: loss",
    ):
        assert sentence in told
    assert "40 epochs" not in told
    out = photos / "runs" / "updown-photos"
    trained = load(out / "model.safetensors")
    assert trained.model.config.region_width == 6
    assert "BLEU-4" in trained.card["metrics"]
    recipe = read_recipe(out / "recipe.yaml")
    assert recipe.stages["cross-entropy"].epochs == 2
    assert "shared out by a hash" in (out / "recipe.yaml").read_text()
    assert train(out / "recipe.yaml", "--quiet", "--out", photos / "again") == 0
    again = load(photos / "again" / "model.safetensors")
    assert again.card["metrics"] == trained.card["metrics"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_captioner_gets_a_recipe_that_can_be_built(photos, corpus, kind):
    recipe, told = auto_recipe(kind, own(photos, corpus=corpus if kind == "r2m" else None), photos / "out")
    assert isinstance(recipe.model.build(20), Captioner)
    assert recipe.stage_list()
    assert all(sentence.endswith(".") for sentence in told)
    sizes = {
        getattr(recipe.model, name) for name in ("size", "hidden_size", "word_size") if hasattr(recipe.model, name)
    }
    assert sizes == {128}


def test_captions_inside_the_folder_are_found(photos):
    (photos / "captions.csv").rename(photos / "photos" / "captions.csv")
    recipe, _ = auto_recipe("updown", own(photos, captions=None), photos / "out")
    assert recipe.data.captions == photos / "photos" / "captions.csv"
    data = build_data(recipe.data, recipe.model, recipe.stage_list())
    assert sum(map(len, data.pools.values())) == COUNT


def test_without_features_they_are_those_of_the_shipped_detector(photos):
    recipe, told = auto_recipe("jran", own(photos, features=None), photos / "out")
    assert recipe.data.encoder == "detector"
    assert recipe.data.features == photos / "out" / "features"
    assert (recipe.model.region_width, recipe.model.grid_width) == (512, 1280)
    assert any("by the detector that comes with Sightline" in sentence for sentence in told)


def test_photos_become_features_once(photos, monkeypatch, capsys):
    from sightline.training import feature_cache

    loaded, vision = [], feature_cache._vision
    monkeypatch.setattr(feature_cache, "_vision", lambda name, find: loaded.append(name) or vision(name, find))
    words = [
        "updown",
        "--images",
        "photos",
        "--captions",
        "captions.csv",
        "stages.cross-entropy.epochs=1",
        "--device",
        "cpu",
    ]
    assert train(*words) == 0
    out = photos / "runs" / "updown-photos"
    trained = load(out / "model.safetensors")
    assert trained.preprocessing == {"encoder": "detector", "pool": 2, "resize": "squash"}
    assert trained.fingerprint
    assert train(out / "recipe.yaml", "--quiet", "--out", photos / "again") == 0
    assert loaded == ["detector"]


def test_a_recipe_without_encoder_extracts_nothing(photos):
    recipe, _ = auto_recipe("updown", own(photos), photos / "out")
    assert extract(recipe.data, photos, "cpu", find=Finder(photos)) == {}


def test_more_data_gets_larger_models_and_fewer_rare_words(tmp_path):
    found = []
    write_store(tmp_path / "features", ["0.jpg"])
    for count, each in ((30, 1), (1_000, 3), (1_000, 30)):
        lines = ["file,caption", *(f"{i}.jpg,a dog" for i in range(count) for _ in range(each))]
        (tmp_path / "captions.csv").write_text("\n".join(lines) + "\n")
        (tmp_path / "photos").mkdir(exist_ok=True)
        for i in range(count):
            (tmp_path / "photos" / f"{i}.jpg").touch()
        recipe, _ = auto_recipe("updown", own(tmp_path), tmp_path / "out")
        stage = recipe.stages["cross-entropy"]
        sizes = (recipe.model.hidden_size, recipe.data.min_count, stage.batch.size, stage.batch.captions)
        found.append((*sizes, stage.select.every, stage.select.metric))
    assert found == [(128, 1, 4, 1, 0, "loss"), (256, 2, 32, 3, 1, "CIDEr"), (512, 3, 32, 5, 1, "CIDEr")]


def test_r2m_learns_from_text_and_photos_without_captions(photos, corpus, capsys):
    short = ("text.epochs=1", "text-reconstruction.epochs=1", "photos.steps=2", "photos-reconstruction.steps=2")
    judged = ("text.select.every=1", "text-reconstruction.select.every=1")
    steps = [f"stages.{change}" for change in (*short, *judged)]
    assert (
        train("r2m", "--images", "photos", "--corpus", corpus, "--features", "features", *steps, "--device", "cpu") == 0
    )
    told = capsys.readouterr().err
    assert "sentences of 8 to 28 words are used" in told
    assert "Of 120 sentences of the corpus 120 are used" in told
    assert "there is nothing to measure it on" in told
    model = load(photos / "runs" / "r2m-photos" / "model.safetensors")
    assert "dog" in model.vocabulary
    assert (model.model.config.hidden_size, model.model.config.vector_width) == (128, 6)
    lines = [json.loads(line) for line in (photos / "runs/r2m-photos/metrics.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in lines} == {"text", "text-reconstruction", "photos", "photos-reconstruction"}
    held_out = {line["stage"]: line for line in lines if "val loss" in line}
    assert "val reconstruction" in held_out["text-reconstruction"]  # L_S is chosen by the reconstructor too
    rebuilt = held_out["text-reconstruction"]["val loss"] - held_out["text-reconstruction"]["val cross-entropy"]
    assert rebuilt == pytest.approx(held_out["text-reconstruction"]["val reconstruction"])
    assert "val loss" in held_out["photos"]  # held-out text: no photo has a caption here
    steps = {line["stage"]: line for line in lines if "loss" in line}
    assert {"norm", "R@1", "text", "text cross-entropy"} <= steps["photos"].keys()


def test_r2m_learns_a_style_from_text_alone(photos, corpus, capsys):
    """No photo takes part: the names are those of the detector that comes with Sightline, and so it can caption."""
    corpus.write_text(corpus.read_text().replace("and another", "verily besides a man and another"))
    short = ("stages.text.epochs=2", "stages.text-reconstruction.epochs=2")
    assert train("r2m", "--corpus", corpus, *short, "--device", "cpu") == 0
    told = capsys.readouterr().err
    assert "There are no photos: it learns to speak of what Sightline's own detector has names for" in told
    assert "Of 120 sentences of the corpus 120 are used" in told
    assert "there is nothing to measure it on" in told
    out = photos / "runs" / "r2m-text"
    trained = load(out / "model.safetensors")
    recipe = read_recipe(out / "recipe.yaml")
    assert list(recipe.stages) == ["text", "text-reconstruction"]
    assert recipe.data.dictionary == "detector"
    assert {"man", "dog", "grass", "verily"} <= set(trained.vocabulary)
    shutil.copy(Path(__file__).parents[2] / "examples" / "coffee.jpg", photos / "photo.jpg")
    told = main(["caption", str(photos / "photo.jpg"), "--model", str(out), "--json", "--device", "cpu"])
    assert told == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert set(said["caption"].split()) <= set(trained.vocabulary)
    assert main(["caption", str(photos / "photo.jpg"), "--style", str(out), "--json", "--device", "cpu"]) == 0
    (styled,) = json.loads(capsys.readouterr().out)
    assert styled["caption"] == said["caption"]


def test_r2m_reads_the_names_that_the_shipped_detector_gives_photos(photos, corpus, capsys):
    """Of photos that nobody captioned, no file of boxes is needed."""
    examples = Path(__file__).parents[2] / "examples"
    corpus.write_text(corpus.read_text().replace("another dog", "a cup beside a man"))
    short = ("text.epochs=1", "text-reconstruction.epochs=1", "photos.steps=2", "photos-reconstruction.steps=2")
    steps = [f"stages.{change}" for change in short]
    assert train("r2m", "--images", examples, "--corpus", corpus, *steps, "--device", "cpu", "--quiet") == 0
    trained = load(photos / "runs" / "r2m-examples" / "model.safetensors")
    assert trained.card["recipe"]["data"]["dictionary"] == "detector"
    (photos / "photo").mkdir()
    shutil.copy(examples / "coffee.jpg", photos / "photo")
    assert main(["caption", "photo", "--model", "runs/r2m-examples", "--json", "--device", "cpu"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert set(said["caption"].split()) <= set(trained.vocabulary)


def test_r2m_with_captions_is_measured_by_them(photos, corpus):
    recipe, _ = auto_recipe("r2m", own(photos, corpus=corpus), photos / "out")
    data = build_data(recipe.data, recipe.model, recipe.stage_list())
    assert data.pools["test"].references
    assert "stands" not in data.vocabulary  # a word of the captions alone


def test_few_sentences_choose_no_model(photos, corpus):
    few, told = auto_recipe("r2m", OwnData(corpus=corpus), photos / "out")
    assert [(stage.epochs, stage.select.every) for stage in few.stages.values()] == [(30, 0), (5, 0)]
    assert any("The last model is kept: 120 sentences are few" in sentence for sentence in told)
    corpus.write_text(corpus.read_text() * 20)
    many, _ = auto_recipe("r2m", OwnData(corpus=corpus), photos / "out")
    assert [(stage.select.every, stage.select.patience) for stage in many.stages.values()] == [(1, 3), (1, 3)]


def test_what_is_told_of_stages_is_what_was_asked_for(photos, corpus):
    given = own(photos, corpus=corpus, captions=None)
    _, told = auto_recipe("r2m", given, photos / "out", ["stages.photos.steps=7", "stages.text-reconstruction=null"])
    expected = (
        "With your changes, training takes 30 epochs of text in batches of 8 sentences, then at most 7 steps of photos "
        "in batches of 36 photos, then at most 100 steps of photos-reconstruction in batches of 36 photos."
    )
    assert expected in told
    assert not any("The text stages take" in sentence for sentence in told)


def test_one_sentence_is_counted_as_one(photos):
    (photos / "text.txt").write_text("a dog and a cat stand on the grass\n")
    _, told = auto_recipe("r2m", OwnData(corpus=photos / "text.txt"), photos / "out")
    assert "There is 1 sentence; words that occur at least once are learned." in told
    assert any("1 sentence is too little to choose by." in sentence for sentence in told)


def test_short_sentences_are_kept_where_most_are_short(photos):
    (photos / "short.txt").write_text("a dog stands here\n" * 20)
    recipe, told = auto_recipe("r2m", own(photos, captions=None, corpus=photos / "short.txt"), photos / "out")
    assert recipe.data.min_words == 4
    assert "Of the corpus, sentences of 4 to 28 words are used." in told


def test_what_is_missing_is_asked_for(photos, corpus):
    for kind, given, message in (
        ("updown", own(photos, captions=None), r"updown learns from captions.*train r2m"),
        ("updown", OwnData(captions=photos / "captions.csv"), "neither photos nor features"),
        ("updown", OwnData(corpus=corpus), "neither photos nor features"),
        ("r2m", own(photos, captions=None), "r2m learns to speak from text"),
    ):
        with pytest.raises(ConfigError, match=message):
            auto_recipe(kind, given, photos / "out")


def test_features_that_hold_nothing_are_refused(photos):
    write_store(photos / "none", [])
    with pytest.raises(CountError, match="holds no features"):
        auto_recipe("updown", own(photos, features=photos / "none"), photos / "out")


def test_requests_that_make_no_sense_are_refused(photos, capsys):
    for words, message in (
        (["scan", "--images", "photos"], "'scan' is no kind of model"),
        (["updown", "row", "--images", "photos"], "'row' is not KEY=VALUE"),
        (["updown", "--images", "nowhere"], "no such file or folder"),
    ):
        assert train(*words) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(ConfigError, match="did you mean `epochs`"):
        auto_recipe("updown", own(photos), photos / "out", ["stages.cross-entropy.epoch=2"])


def test_the_shipped_detector_makes_regions_and_a_smaller_grid(photos):
    config = DataConfig(images=Path("photos"), features=Path("made"), encoder="detector")
    assert extract(config, photos, torch.device("cpu"), Finder(photos))["encoder"] == "detector"
    scene = FeatureStore(photos / "made")[names(COUNT)[0]]
    assert scene.regions.shape == (36, 512)
    assert scene.grid_shape == (5, 5)
    assert not np.array_equal(scene.regions[0], scene.grid[0][:512])


def test_a_trained_vision_model_makes_features_by_its_name(photos):
    torch.manual_seed(0)
    vision = DetectorConfig(variant="lite0", size=64, channels=8, region_width=6, names=("dog",), boxes=5).build()
    model = end_to_end(UpDownConfig(region_width=6).build(9), vision.eval())
    asked = []

    def find(name):
        asked.append(name)
        return SimpleNamespace(model=model)

    config = DataConfig(images=Path("photos"), features=Path("made"), encoder="recipe:default/vision#coco-boxes")
    extract(config, photos, torch.device("cpu"), find)
    assert asked == ["recipe:default/vision#coco-boxes"]
    assert len(FeatureStore(photos / "made")) == COUNT
    model = UpDownConfig(region_width=6).build(9)
    with pytest.raises(ConfigError, match="has no vision model"):
        extract(replace(config, features=Path("other")), photos, torch.device("cpu"), find)


def test_an_unknown_encoder_is_refused():
    with pytest.raises(ConfigError, match=r"data\.encoder is lite9"):
        DataConfig(images=Path("photos"), features=Path("made"), encoder="lite9")
