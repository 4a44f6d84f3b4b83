"""Training from pixels: the backbone behind a model learns at its own rate, or stays as it is, and is saved with it."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from learning_samples import DATA, MODEL, names, write_dataset, write_recipe
from objective_samples import VOCABULARY, make_context, make_pool
from sightline.batch import SceneBatch
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import ConfigError, LearningError, MissingRecordError
from sightline.models.end_to_end import EndToEndCaptioner, EndToEndMatcher, end_to_end, frozen_scenes
from sightline.models.matcher import AligningMatcher
from sightline.models.r2m import R2MConfig
from sightline.models.scan import SCANConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsrn import VSRNConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training import launch as launching
from sightline.training.batches import Batches, Batching
from sightline.training.data import build_data
from sightline.training.evaluation import Evaluation, evaluate
from sightline.training.launch import launch
from sightline.training.loop import Run, train
from sightline.training.new_model import CachedFeatures, Grid, preprocessing
from sightline.training.objective import Progress
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.objectives.triplet import TripletConfig
from sightline.training.recipe import read_recipe
from sightline.training.stage import Optimiser, Selection, Stage
from sightline.training.training_photos import PixelTable
from sightline.vision.efficientnet_lite import HEAD as WIDTH
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.images import read_pixels

torch.set_num_threads(1)
SIZE = 64
SIZES = {"region_width": 1280, "word_size": 8, "hidden_size": 8, "attention_size": 8, "dropout": 0.0}
STEM = "vision.backbone.stem.convolution.weight"
COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0))


def paint(folder, files):
    """A picture of one colour for each file."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, file in enumerate(files):
        pixels = np.random.default_rng(i).integers(0, 40, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(np.maximum(pixels, np.array(COLOURS[i % 4], np.uint8))).save(folder / file)
    return [folder / file for file in files]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    paths = paint(tmp_path_factory.mktemp("photos"), [f"{i}.png" for i in range(6)])
    return replace(make_pool(6, 2), scenes=PixelTable(paths, [str(i) for i in range(6)], SIZE, keep=True))


def backbone(seed: int = 0) -> GridEncoder:
    torch.manual_seed(seed)
    return GridEncoder("lite0", SIZE)


def captioner(seed: int = 0) -> EndToEndCaptioner:
    vision = backbone(seed)
    return end_to_end(UpDownConfig(**SIZES).build(len(VOCABULARY)), vision)


def stage(rate: float, steps: int = 2, name: str = "xe") -> Stage:
    """Vision learns at `rate`, language at 0.01."""
    optimiser = Optimiser(lr=0.01, lrs={"vision": rate})
    return Stage(
        CrossEntropyConfig(), name, Batching(size=6, captions=2), optimiser, steps=steps, select=Selection(every=0)
    )


def run(out, pool, model, *stages, **changes):
    context = replace(make_context(pool), pools={"train": pool, "val": pool})
    return Run(out, Checkpoint(model, VOCABULARY), stages, context, evaluate_loss, **changes)


def evaluate_loss(checkpoint, pool, stage):
    return evaluate(checkpoint, replace(pool, references=()), Evaluation()).metrics


def vision_of(model):
    return {name: value for name, value in model.state_dict().items() if name.startswith("vision.")}


def test_pictures_are_pixels_in_the_order_of_rows(pool, tmp_path):
    batch = pool.scenes.batch(torch.tensor([4, 1]))
    assert batch.ids == ("4", "1")
    assert (batch.pixels.dtype, batch.pixels.shape) == (torch.uint8, (2, 3, SIZE, SIZE))
    expected, size = read_pixels(pool.scenes.paths[1], SIZE)
    assert torch.equal(batch.pixels[1].permute(1, 2, 0), torch.from_numpy(expected.copy()))
    assert batch.sizes.tolist() == [list(size)] * 2
    seen = backbone().eval().scenes(batch.pixels, batch.ids)
    torch.testing.assert_close(seen.boxes, batch.boxes)
    assert (seen.grid_shapes, seen.region_mask.shape) == (batch.grid_shapes, batch.region_mask.shape)
    from_disk = PixelTable(pool.scenes.paths, pool.scenes.ids, SIZE).batch(torch.tensor([4, 1]))
    assert torch.equal(from_disk.pixels, batch.pixels)


def test_pixels_stay_bytes_when_a_batch_is_moved(pool):
    batch = pool.scenes.batch(torch.tensor([0])).to("cpu", torch.bfloat16)
    assert (batch.pixels.dtype, batch.boxes.dtype) == (torch.uint8, torch.bfloat16)


def test_a_model_that_looks_reads_what_the_encoder_would_have_made(pool):
    model = captioner().eval()
    scenes = pool.scenes.batch(torch.arange(3))
    made = model.vision.scenes(scenes.pixels, scenes.ids)
    expected = model.captioner.encode(made)
    for found in (model.encode(scenes), model.encode(made)):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)


def test_gradients_reach_the_first_convolution(pool):
    model, objective = captioner().train(), CrossEntropyConfig().build(None)
    batch = Batches(pool, Batching(size=6, captions=2), 0).batch(0, 0)
    objective(model, batch, Progress()).total.backward()
    assert model.vision.backbone.stem.convolution.weight.grad.abs().sum() > 0


def test_a_backbone_that_learns_changes_and_the_loss_falls(pool, tmp_path):
    start = captioner()
    trained = train(run(tmp_path, pool, start, stage(1e-3, steps=8))).model
    before, after = start.state_dict(), trained.state_dict()
    assert not torch.equal(before[STEM], after[STEM])
    assert not torch.equal(before["vision.backbone.stem.norm.running_mean"], after["vision.backbone.stem.norm.running_mean"])  # noqa: E501  # fmt: skip
    first, last = (evaluate_loss(Checkpoint(m.eval(), VOCABULARY), pool, None)["loss"] for m in (start, trained))
    assert last < first - 0.1


def test_the_rate_of_vision_is_its_own(pool, tmp_path):
    start = captioner()
    trained = train(run(tmp_path, pool, start, stage(1e-5, steps=1))).model
    before = start.state_dict()
    step = {name: float((value - before[name]).abs().max()) for name, value in trained.state_dict().items()}
    assert step[STEM] == pytest.approx(1e-5, rel=0.01)  # Adam's first step is the rate
    assert step["captioner.output.weight"] == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("how", ["rate", "train"])
def test_a_frozen_backbone_stays_to_the_bit_with_its_batch_norms(pool, tmp_path, how):
    start = captioner()
    if how == "train":
        start.vision.requires_grad_(False)
    trained = train(run(tmp_path, pool, start, stage(0.0 if how == "rate" else 1e-3))).model
    for name, value in vision_of(start).items():
        assert torch.equal(value, trained.state_dict()[name]), name
    assert not torch.equal(start.captioner.output.weight, trained.captioner.output.weight)


def test_a_backbone_frozen_in_one_stage_learns_in_the_next(pool, tmp_path):
    start = captioner()
    trained = train(run(tmp_path, pool, start, stage(0.0, 1, "language"), stage(1e-4, 1, "both"))).model
    assert not torch.equal(start.state_dict()[STEM], trained.state_dict()[STEM])
    assert trained.vision.training


def test_a_killed_run_goes_on_to_the_same_bits(pool, tmp_path):
    def killed(line):
        raise KeyboardInterrupt

    whole = train(run(tmp_path / "whole", pool, captioner(), stage(1e-4, 3))).model
    cut = run(tmp_path / "cut", pool, captioner(), stage(1e-4, 3), save_every=2)
    with pytest.raises(KeyboardInterrupt):
        train(replace(cut, report=killed))
    resumed = train(cut).model
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_modes_follow_whether_the_backbone_is_frozen():
    model = captioner()
    assert model.train().vision.training
    assert not model.eval().vision.training
    model.vision.requires_grad_(False)
    model.train()
    assert (model.captioner.training, model.vision.training) == (True, False)
    assert not any(module.training for module in model.vision.modules())


def test_one_file_holds_the_model_and_its_backbone(pool, tmp_path):
    model = captioner(seed=4)
    save(tmp_path / "model.safetensors", Checkpoint(model, VOCABULARY, fingerprint="of the beginning"))
    loaded = load(tmp_path / "model.safetensors")
    assert isinstance(loaded.model, EndToEndCaptioner)
    assert loaded.captioner() is loaded.model
    assert (loaded.model.vision.variant, loaded.model.vision.size) == ("lite0", SIZE)
    assert loaded.fingerprint == model.vision.fingerprint()
    assert not loaded.model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, loaded.model.state_dict()[name]), name
    a_copy = copy.deepcopy(loaded.model)
    scenes = pool.scenes.batch(torch.arange(2))
    assert torch.equal(a_copy.encode(scenes)["regions"], loaded.model.encode(scenes)["regions"])


def test_matchers_look_too(pool):
    vision = backbone().eval()
    batch = SceneBatch(("a", "b"), pixels=pool.scenes.batch(torch.tensor([0, 1])).pixels, fingerprint="")
    texts = pool.texts.batch(torch.arange(2))
    made = vision.scenes(batch.pixels, batch.ids)
    for config in (SCANConfig(region_width=1280, word_size=8, size=8), VSRNConfig(region_width=1280, word_size=8, size=8)):  # noqa: E501  # fmt: skip
        matcher = config.build(len(VOCABULARY)).eval()
        model = end_to_end(matcher, vision)
        assert isinstance(model, EndToEndMatcher)
        assert isinstance(model, AligningMatcher) == isinstance(matcher, AligningMatcher)
        torch.testing.assert_close(model(batch, texts), matcher(made, texts))
        embedded = (model.embed_images(batch), model.embed_texts(texts))
        torch.testing.assert_close(model.similarity(*embedded), matcher.similarity(*embedded))
        if isinstance(model, AligningMatcher):
            torch.testing.assert_close(model.alignment(*embedded), matcher.alignment(*embedded))
    generation = model.generation_log_probs(embedded[0], texts.ids)
    torch.testing.assert_close(generation, matcher.generation_log_probs(embedded[0], texts.ids))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = model.nothing


def test_a_matcher_is_trained_from_pixels(pool, tmp_path):
    model = end_to_end(VSRNConfig(region_width=1280, word_size=8, size=8).build(len(VOCABULARY)), backbone())
    optimiser = Optimiser(lr=1e-3, lrs={"vision": 1e-4})
    one = Stage(TripletConfig(generation=1.0), "t", Batching(size=6, captions=1), optimiser, steps=2, select=Selection(every=0))  # noqa: E501  # fmt: skip
    trained = train(run(tmp_path, pool, model, one)).model
    assert not torch.equal(trained.state_dict()[STEM], model.state_dict()[STEM])
    assert isinstance(load(tmp_path / "model.safetensors").matcher(), EndToEndMatcher)


def test_frozen_eyes_look_once_and_learning_ones_at_every_pass():
    model = end_to_end(UpDownConfig(region_width=WIDTH, hidden_size=6).build(9), backbone()).eval()
    pixels = SceneBatch(("a",), pixels=torch.randint(0, 256, (1, 3, SIZE, SIZE)))
    assert frozen_scenes(model, pixels) is pixels
    model.vision.requires_grad_(False)
    seen = frozen_scenes(model, pixels)
    assert seen.pixels is None
    torch.testing.assert_close(model.encode(seen)["regions"], model.encode(pixels)["regions"])
    assert frozen_scenes(model.captioner, pixels) is pixels


def test_a_model_that_reads_concepts_cannot_look_for_itself():
    with pytest.raises(ConfigError, match="a r2m model reads concepts, which a backbone does not see"):
        end_to_end(R2MConfig().build(9), backbone())


# recipes


@pytest.fixture
def root(tmp_path, monkeypatch):
    write_dataset(tmp_path / "tiny")
    paint(tmp_path / "tiny" / "photos", names(19))
    monkeypatch.setenv("SIGHTLINE_DATA", str(tmp_path / "tiny"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


SEES = {
    "model": {**MODEL, "region_width": 1280},
    "data": {**{name: value for name, value in DATA.items() if name != "features"}, "images": "photos"},
    "vision": {"kind": "grid", "variant": "lite0", "size": SIZE, "weights": "random"},
}


def test_recipes_see_by_features_unless_they_say_otherwise(root):
    chosen = read_recipe(write_recipe(root / "plain.yaml"), "short")
    assert chosen.vision == CachedFeatures()
    assert preprocessing(chosen.vision) == {}
    sees = replace(chosen, vision=Grid())
    assert sees.vision.train
    assert sees.fingerprint() != chosen.fingerprint() != replace(sees, vision=Grid(train=False)).fingerprint()
    with pytest.raises(ConfigError, match=r"`vision.size` is 16"):
        Grid(size=16)
    assert not any(parameter.requires_grad for parameter in Grid(size=SIZE, train=False, weights="random").build().parameters())  # noqa: E501  # fmt: skip


def test_a_recipe_trains_from_photos_and_its_model_is_measured_and_goes_on(root):
    path = write_recipe(root / "sees.yaml", **SEES)
    changes = ["stages.xe.optimiser.lrs.vision=1e-4", "data.max_photos=4"]
    first = launch(read_recipe(path, "short", changes), root / "a", "cpu")
    assert isinstance(first.model, EndToEndCaptioner)
    assert {"loss", "CIDEr"} <= set(first.card["metrics"])
    assert first.preprocessing == {"encoder": "grid", "variant": "lite0", "size": SIZE, "resize": "squash"}
    still = [*changes[1:], f"start={root / 'a'}", "stages.xe.optimiser.lrs.vision=0", "stages.xe.optimiser.lr=1e-9"]
    second = launch(read_recipe(path, "short", still), root / "b", "cpu")
    for name, value in vision_of(first.model).items():
        assert torch.equal(value, vision_of(second.model)[name]), name


def test_memory_that_runs_out_while_photos_are_looked_at_is_said_with_what_helps(root, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(launching, "cache_features", full)
    path = write_recipe(root / "sees.yaml", **SEES)
    with pytest.raises(LearningError, match=r"while photos of \w+ were looked at.*data\.views=1"):
        launch(read_recipe(path, "short", ["vision.train=false"]), root / "full", "cpu")


def test_a_model_trained_on_features_starts_one_that_sees_if_the_backbone_is_the_same(root, monkeypatch):
    trained = launch(read_recipe(write_recipe(root / "c.yaml", model=MODEL), "short"), root / "a", "cpu")
    vision = backbone()
    words = Vocabulary(trained.vocabulary.words)
    language = UpDownConfig(**SIZES).build(len(words))
    for print_, name in ((vision.fingerprint(), "same"), ("another", "other")):
        save(root / f"{name}.safetensors", replace(trained, model=language, fingerprint=print_))
    monkeypatch.setattr(Grid, "build", lambda self: vision)
    path = write_recipe(root / "sees.yaml", **SEES)
    changes = ["data.max_photos=4", "stages.xe.optimiser.lr=1e-9", "stages.xe.optimiser.lrs.vision=0"]
    found = launch(read_recipe(path, "short", [*changes, f"start={root / 'same.safetensors'}"]), root / "b", "cpu")
    torch.testing.assert_close(found.model.captioner.state_dict(), language.state_dict(), atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match="was trained on scenes another, and these are"):
        launch(read_recipe(path, "short", [*changes, f"start={root / 'other.safetensors'}"]), root / "c", "cpu")
    back = read_recipe(write_recipe(root / "back.yaml"), "short", [f"start={root / 'b'}"])
    with pytest.raises(ConfigError, match=r"and these are tiny. To fix: use features of the same vision model"):
        launch(back, root / "d", "cpu")


def test_photos_that_are_not_there_are_named(root):
    path = write_recipe(root / "sees.yaml", **SEES)
    (root / "tiny" / "photos" / names(1)[0]).unlink()
    with pytest.raises(MissingRecordError, match=r"1 of 19 photos are not there: 1000_0000000000.jpg"):
        launch(read_recipe(path, "short"), root / "a", "cpu")
    allowed = read_recipe(path, "short", ["data.allow_missing=true", "data.cache=disk"])
    data = build_data(allowed.data, allowed.model, allowed.stage_list(), base=root / "tiny", vision=allowed.vision)
    told = " ".join(data.notes)
    assert "1 of 19 photos are not there: 1000_0000000000.jpg. They are left out." in told
    assert f"read at {SIZE} × {SIZE} pixels, from disk" in told
    assert len(data.pools["train"]) == 12
    with pytest.raises(ConfigError, match=r"needs them. To fix: give data.images"):
        launch(read_recipe(path, "short", ["data.images=null"]), root / "b", "cpu")
