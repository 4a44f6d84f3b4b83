"""`sightline train`: from a recipe to a model; runs resume, folders are not mixed up, errors are sentences."""

import json
import signal
from dataclasses import replace

import pytest
import torch
import yaml
from rich.console import Console

from learning_samples import DATA, MODEL, names, write_dataset, write_recipe, write_store
from sightline.checkpoint.model_checkpoint import load, save
from sightline.cli.commands import main
from sightline.errors import CheckpointError, ConfigError, LearningError
from sightline.metrics.bootstrap import PerImage
from sightline.training import loop
from sightline.training.checkpoint_finder import Finder
from sightline.training.distributed import choose_device, processes
from sightline.training.evaluation import Measurement
from sightline.training.launch import Callbacks, launch, to_yaml
from sightline.training.recipe import read_recipe
from sightline.training.run_log import Reporter, curves, duration
from sightline.training.stage import Stage


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_DATA", str(write_dataset(tmp_path / "tiny")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe(root):
    return write_recipe(root / "table-1.yaml")


def run(*words):
    return main(["train", *map(str, words)])


def told(capsys):
    return capsys.readouterr().err


def test_a_recipe_becomes_a_measured_model(recipe, root, capsys):
    assert run(recipe, "short", "--json", "--device", "cpu") == 0
    printed = json.loads(capsys.readouterr().out)
    out = root / "runs" / "table-1" / "short"
    assert printed["model"] == "runs/table-1/short/model.safetensors"
    assert printed["split"] == "test"
    assert {"loss", "CIDEr"} <= set(printed["metrics"])
    trained = load(out / "model.safetensors")
    card = trained.card
    assert (trained.text_rule, trained.fingerprint) == ("neuraltalk2", "tiny")
    assert card["recipe"]["stages"]["xe"]["epochs"] == 1
    assert card["data"]["counts"]["train"] == {"photos": 13, "captions": 26}
    assert card["metrics"] == printed["metrics"]
    assert {"sightline", "torch", "python"} == set(card["versions"])
    assert read_recipe(out / "recipe.yaml").fingerprint() == card["recipe fingerprint"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["stage"] == "xe"
    assert "val loss" in lines[-1]


def test_what_happens_is_told_on_stderr_and_quiet_is_silent(recipe, root, capsys):
    assert run(recipe, "short", "--device", "cpu", "--out", root / "a") == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Splits: 13 train, 3 val, 3 test" in shown.err
    assert "xe, epoch 1, step 3: val loss" in shown.err
    assert "model.safetensors: loss" in shown.err
    assert run(recipe, "short", "--quiet", "--out", root / "b") == 0
    assert capsys.readouterr() == ("", "")


def test_overrides_and_seed_change_the_recipe(recipe, root):
    assert run(recipe, "short", "stages.xe.batch.size=2", "--seed", 7, "--quiet", "--out", root / "a") == 0
    card = load(root / "a" / "model.safetensors").card
    assert (card["seed"], card["recipe"]["stages"]["xe"]["batch"]["size"]) == (7, 2)


def test_the_same_seed_gives_the_same_model_and_another_another(recipe, root):
    chosen = read_recipe(recipe, "short")
    one, same, other = (
        launch(replace(chosen, seed=seed), root / name, "cpu").model.state_dict()
        for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


def test_a_run_that_was_interrupted_goes_on_to_the_same_model(recipe, root, capsys):
    chosen = read_recipe(recipe, "long")
    whole = launch(chosen, root / "whole", "cpu")

    def interrupt(line):
        if line["step"] == 3 and "loss" in line:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        launch(chosen, root / "cut", "cpu", callbacks=Callbacks(report=interrupt))
    assert not (root / "cut" / "model.safetensors").exists()
    resumed = launch(chosen, root / "cut", "cpu")
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[key])
    steps = [json.loads(line)["step"] for line in (root / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [3, 3, 6, 6]


def test_ctrl_c_says_how_to_go_on(recipe, root, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "report", lambda self, line: signal.raise_signal(signal.SIGINT))
        assert run(recipe, "long", "--device", "cpu") == 130
    assert "run the same command again to go on" in told(capsys)
    assert run(recipe, "long", "--device", "cpu", "--quiet") == 0


def test_a_finished_run_is_not_run_again(recipe, root, capsys):
    assert run(recipe, "short", "--quiet") == 0
    before = (root / "runs/table-1/short/metrics.jsonl").read_text()
    assert run(recipe, "short") == 0
    assert "holds this run already, finished" in told(capsys)
    assert (root / "runs/table-1/short/metrics.jsonl").read_text() == before


def test_a_run_killed_before_its_measurement_is_only_measured(recipe, root, monkeypatch):
    chosen = read_recipe(recipe, "long", ["stages.xe.select.patience=1", "stages.xe.epochs=9"])

    def killed(checkpoint, pool, evaluation, **others):
        if len(pool.references) == 3:
            raise KeyboardInterrupt
        return Measurement({"loss": 1.0}, {}, PerImage(), photos=len(pool))

    with monkeypatch.context() as patch:
        patch.setattr("sightline.training.launch.evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            launch(chosen, root / "a", "cpu")
    lines = (root / "a" / "metrics.jsonl").read_text()
    launch(chosen, root / "a", "cpu")
    assert (root / "a" / "metrics.jsonl").read_text() == lines  # patience was spent; it is not trained further
    assert "CIDEr" in load(root / "a" / "model.safetensors").card["metrics"]


def test_a_folder_of_another_recipe_is_refused(recipe, root, capsys):
    assert run(recipe, "short", "--quiet", "--out", root / "a") == 0
    assert run(recipe, "long", "--out", root / "a") == 2
    assert "a run of another recipe (stages.xe.epochs is 1 there and 2 here)" in told(capsys)
    (root / "a" / "recipe.yaml").unlink()
    assert run(recipe, "short", "--out", root / "a") == 2
    assert "holds a model of something else" in told(capsys)


def test_data_that_changed_during_a_run_is_refused(recipe, root):
    chosen = read_recipe(recipe, "long")

    def stop(line):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        launch(chosen, root / "a", "cpu", callbacks=Callbacks(report=stop))
    captions = root / "tiny" / "captions.token"
    captions.write_text(captions.read_text().replace("dog", "puppy"))
    with pytest.raises(LearningError, match="have changed since this run began"):
        launch(chosen, root / "a", "cpu")


def test_the_recipe_a_run_leaves_can_be_run_again(recipe, root, capsys):
    assert run(recipe, "short", "--quiet", "--out", root / "a") == 0
    assert run(root / "a" / "recipe.yaml") == 0
    assert "finished" in told(capsys)
    assert run(root / "a" / "recipe.yaml", "--quiet", "--out", root / "b") == 0
    one, other = (load(root / name / "model.safetensors").model.state_dict() for name in "ab")
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_recipe_survives_yaml(recipe, tmp_path):
    chosen = read_recipe(recipe, "short")
    (tmp_path / "again.yaml").write_text(to_yaml(chosen, "why"))
    assert read_recipe(tmp_path / "again.yaml") == chosen


def test_training_starts_from_another_row_with_its_words(recipe, root):
    assert run(recipe, "short", "--quiet") == 0
    write_recipe(root / "table-1.yaml", start="row:short")
    captions = root / "tiny" / "captions.token"
    captions.write_text(captions.read_text().replace("stands", "sits"))
    assert run(recipe, "long", "stages.xe.optimiser.lr=1e-9", "--quiet") == 0
    first, second = (load(root / "runs" / "table-1" / row / "model.safetensors") for row in ("short", "long"))
    assert second.vocabulary == first.vocabulary
    theirs = second.model.state_dict()
    assert all(torch.allclose(value, theirs[key], atol=1e-6) for key, value in first.model.state_dict().items())


def test_a_start_that_does_not_fit_is_refused(recipe, root):
    chosen = read_recipe(recipe, "short")
    start = launch(chosen, root / "a", "cpu")
    path = str(root / "a")
    for changes, message in (
        (["model.hidden_size=12"], "is an updown model whose weights do not fit this updown"),
        (["data.rule=contrastive"], "by the rule neuraltalk2, and the recipe by contrastive"),
    ):
        wrong = read_recipe(recipe, "short", [f"start={path}", *changes])
        with pytest.raises((CheckpointError, ConfigError), match=message):
            launch(wrong, root / "b" / changes[0], "cpu")
    save(root / "c.safetensors", replace(start, fingerprint="other"))
    with pytest.raises(ConfigError, match="trained on scenes other, and these are tiny"):
        launch(read_recipe(recipe, "short", [f"start={root / 'c.safetensors'}"]), root / "d", "cpu")


def test_a_missing_row_says_which_command_makes_it(recipe, root, capsys):
    write_recipe(root / "table-1.yaml", start="row:short")
    assert run(recipe, "long") == 2
    message = told(capsys)
    assert "the row short has not been trained" in message
    assert f"sightline train {recipe} short --out {root / 'runs' / 'table-1' / 'short'}" in message


def test_names_in_recipes_find_their_models(recipe, root):
    model = launch(read_recipe(recipe, "short"), root / "runs/paper/table-1/a", "cpu")
    words = model.vocabulary
    here = Finder(root / "runs/paper/table-2/b", "paper/table-2", "recipe:paper/table-1#a")
    assert here("recipe:paper/table-1#a").vocabulary == words
    assert here("start").vocabulary == words
    assert Finder(root / "runs/paper/table-1/b")("row:a").vocabulary == words
    assert here("runs/paper/table-1/a").vocabulary == words
    assert here("runs/paper/table-1/a/model.safetensors").vocabulary == words
    with pytest.raises(CheckpointError, match=r"the row z has not been trained.*sightline train paper/table-9 z --out"):
        here("recipe:paper/table-9#z")
    with pytest.raises(ConfigError, match="names no row"):
        here("recipe:paper/table-1")
    with pytest.raises(ConfigError, match="starts from random weights"):
        Finder(root / "x")("start")
    (root / "runs/paper/table-1/begun").mkdir()
    (root / "runs/paper/table-1/begun/recipe.yaml").write_text("")
    with pytest.raises(CheckpointError, match="the row begun is not finished"):
        Finder(root / "runs/paper/table-1/b")("row:begun")


def test_features_that_are_missing_may_be_allowed(recipe, root, capsys):
    write_store(root / "tiny" / "some", names(20)[1:-1], list(range(1, 19)))
    assert run(recipe, "short", "data.features=some") == 2
    assert "1 of 19 photos have no features: 1000_0000000000.jpg" in told(capsys)
    assert run(recipe, "short", "data.features=some", "--allow-missing", "--quiet", "--out", root / "b") == 0


def test_bad_requests_are_refused_before_anything_is_written(recipe, root, capsys):
    for words, message in (
        (["nowhere/table-1"], "no recipe 'nowhere/table-1'"),
        (["updwn"], "did you mean updown?"),
        (["updown"], "updown is a kind of model, and no data is given"),
        ([recipe], "name one of long, short"),
        ([recipe, "tall"], "no row 'tall'"),
        ([recipe, "short", "long"], "'long' is neither a row nor KEY=VALUE"),
        ([recipe, "short", "modle.kind=updown"], "did you mean `model`?"),
        ([recipe, "short", "--device", "abacus"], "no device is called 'abacus'"),
        ([recipe, "short", "--device", "cuda:77"], "this machine has no cuda:77"),
        ([recipe, "short", "stages.xe=null"], "the recipe has no stage"),
        ([recipe, "short", "stages.xe.batch.pool=corpus"], "draws from corpus, which is empty"),
        ([recipe, "short", "data.val=[]"], "no photo is in it"),
    ):
        assert run(*words) == 2, words
        assert message in told(capsys)
    assert not list(root.rglob("model.safetensors"))


def test_without_a_val_split_the_last_model_is_kept(recipe, root):
    assert run(recipe, "short", "data.val=[]", "stages.xe.select.every=0", "--quiet", "--out", root / "a") == 0
    assert load(root / "a" / "model.safetensors").card["measured on"] == "test"


def test_an_infinite_loss_is_a_sentence(recipe, root, capsys):
    assert run(recipe, "long", "stages.xe.optimiser.lr=1e30", "stages.xe.epochs=50", "--device", "cpu") == 2
    assert "the loss is nan at step" in told(capsys)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("x: can't allocate memory: y")]
)
def test_memory_that_runs_out_is_a_sentence(error):
    stage = Stage(None, name="xe")  # type: ignore[arg-type]
    with (
        pytest.raises(LearningError, match=r"memory ran out in stage `xe`.*stages.xe.batch.size=16"),
        loop._enough_memory(stage),
    ):
        raise error
    with pytest.raises(RuntimeError, match="another"), loop._enough_memory(stage):
        raise RuntimeError("another")


def test_a_disk_that_is_full_is_a_sentence(recipe, root, capsys, monkeypatch):
    def full(path, checkpoint):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(loop, "save", full)
    assert run(recipe, "short", "--device", "cpu") == 2
    assert "No space left on device. Free some space and run the same command again." in told(capsys)


def test_the_device_is_chosen():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")


def test_one_process_needs_no_group(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with processes("cpu") as device:
        assert device.type == "cpu"
        assert not torch.distributed.is_initialized()


def test_the_second_process_of_several_prints_nothing(recipe, root, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert run(recipe, "short", "--device", "cpu") == 0
    assert capsys.readouterr() == ("", "")
    assert not (root / "runs" / "table-1" / "short" / "recipe.yaml").exists()


def test_the_progress_line_is_one_line_that_changes():
    reporter = Reporter()
    reporter.console = Console(force_terminal=True, width=200, highlight=False)
    with reporter, reporter.console.capture() as shown:
        line = {"stage": "xe", "epoch": 0, "step": 50, "steps": 99, "rate": 0.1, "loss": 2.5}
        reporter.report({**line, "images/s": 10.0, "seconds left": 3})
        reporter.report({"stage": "xe", "epoch": 0, "step": 50, "val CIDEr": 33.3})
    assert "val CIDEr 33.300" in shown.get()


def test_where_nobody_watches_lines_are_few():
    reporter = Reporter()
    reporter.console = Console(force_terminal=False, width=200)
    line = {"stage": "xe", "epoch": 0, "step": 50, "steps": 99, "rate": 0.1, "loss": 2.5, "images/s": 1.0}
    with reporter.console.capture() as shown:
        for _ in range(3):
            reporter.report({**line, "seconds left": 3725.0})
    assert shown.get() == "xe, epoch 1, step 50 of 99: loss 2.500; 1 images/s, 1 h 2 min left\n"
    assert duration(59.6) == "1 min 0 s"


def test_curves_are_drawn_where_tensorboard_is(tmp_path):
    draw = curves(tmp_path)
    if draw is None:
        pytest.skip("tensorboard is not installed")
    draw({"stage": "xe", "epoch": 0, "step": 1, "loss": 2.0, "rate": 0.1})
    assert list((tmp_path / "tensorboard").iterdir())


def test_a_model_learns_what_it_can_see(root):
    """The whole way: colours and things of the regions are in the captions of photos it has never seen."""
    stage = {"objective": {"kind": "cross-entropy"}, "batch": {"size": 13, "captions": 2}, "optimiser": {"lr": 0.02},
             "epochs": 100, "select": {"every": 50}}  # fmt: skip
    values = {"model": {**MODEL, "hidden_size": 16}, "data": DATA, "stages": {"xe": stage}}
    values["evaluate"] = {"metrics": ["bleu"], "strategy": {"kind": "greedy"}}
    (root / "r.yaml").write_text(yaml.safe_dump({"base": values}))
    trained = launch(read_recipe(root / "r.yaml"), root / "out", "cpu")
    assert trained.card["metrics"]["BLEU-1"] > 60
