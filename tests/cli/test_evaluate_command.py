"""`sightline evaluate` gives the numbers of the recipe, and captions that `sightline score` scores alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from learning_samples import write_dataset, write_recipe
from sightline.checkpoint.model_checkpoint import load
from sightline.cli.commands import main
from sightline.training.launch import launch
from sightline.training.recipe import read_recipe

MATCHER = {"kind": "scan", "region_width": 6, "word_size": 8, "size": 8}
MATCHING = {
    "objective": {"kind": "triplet"},
    "batch": {"of": "pairs", "size": 4},
    "optimiser": {"lr": 0.01},
    "epochs": 1,
    "select": {"metric": "rsum"},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Data, a captioner `captioner/` that beams, and a matcher `matcher/`."""
    root = tmp_path_factory.mktemp("world")
    write_dataset(root)
    strategy = {"kind": "beam", "size": 2, "length_penalty": {"kind": "average"}}
    captioner = write_recipe(
        root / "captioner.yaml", evaluate={"metrics": ["bleu", "rouge", "cider"], "strategy": strategy}
    )
    launch(read_recipe(captioner, "long", ["stages.xe.epochs=6"]), root / "captioner", "cpu", base=root)
    matcher = write_recipe(root / "matcher.yaml", model=MATCHER, stages={"matching": MATCHING})
    values = read_recipe(matcher, "long", ["stages.xe=null"])
    launch(values, root / "matcher", "cpu", base=root)
    return root


def evaluate(world: Path, capsys: pytest.CaptureFixture[str], *arguments: str, models: str = "captioner") -> dict:
    data = ["--captions", str(world / "captions.token"), "--features", str(world / "features")]
    paths = [str(world / model) for model in models.split()]
    code = main(["evaluate", *paths, *data, "--device", "cpu", "--json", *arguments])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out)


def test_a_captioner_gets_the_numbers_of_its_recipe(world, capsys):
    found = evaluate(world, capsys, "--photos", str(world / "test.txt"))
    card = load(world / "captioner" / "model.safetensors").card
    assert found == {"split": "test", "photos": 3, "metrics": card["metrics"]}


def test_a_matcher_gets_the_numbers_of_its_recipe(world, capsys):
    found = evaluate(world, capsys, "--photos", str(world / "test.txt"), models="matcher")
    assert found["metrics"] == load(world / "matcher" / "model.safetensors").card["metrics"]
    assert {"i2t R@1", "t2i R@10", "rsum"} <= set(found["metrics"])


def test_score_gives_the_same_numbers_for_the_captions_written(world, tmp_path, capsys):
    said, scores = tmp_path / "captions.json", tmp_path / "scores.json"
    found = evaluate(world, capsys, "--photos", str(world / "test.txt"), "--out", str(said))["metrics"]
    listed = (world / "test.txt").read_text().split()
    lines = [line for line in (world / "captions.token").read_text().splitlines() if line.split("#")[0] in listed]
    references = tmp_path / "references.token"
    references.write_text("\n".join(lines) + "\n")
    command = ["score", "--refs", str(references), "--hyps", str(said), "--out", str(scores), "--quiet"]
    assert main([*command, "--metrics", "bleu", "rouge", "cider"]) == 0
    corpus = json.loads(scores.read_text())["corpus"]
    assert {entry["image_id"] for entry in json.loads(said.read_text())} == set(listed)
    for ours, theirs in {"BLEU-1": "Bleu_1", "BLEU-4": "Bleu_4", "ROUGE-L": "ROUGE_L", "CIDEr": "CIDEr"}.items():
        assert found[ours] == pytest.approx(100 * corpus[theirs], abs=1e-9)


def test_another_way_of_decoding_and_other_metrics_are_taken(world, capsys):
    options = ["--photos", str(world / "test.txt"), "--metrics", "cider"]
    greedy = evaluate(world, capsys, *options, "--beam", "1", "--self-retrieval")["metrics"]
    assert set(greedy) == {
        "loss",
        "CIDEr",
        *(f"self-retrieval R@{k}" for k in (1, 5, 50, 500)),
        "self-retrieval pool",
    }
    assert set(evaluate(world, capsys, *options, "--beam", "4")["metrics"]) == {"loss", "CIDEr"}


def test_captions_without_splits_are_all_used(world, tmp_path, capsys):
    listed = [line for line in (world / "captions.token").read_text().splitlines() if int(line[:4]) < 1004]
    (tmp_path / "few.token").write_text("\n".join(listed) + "\n")
    data = ["--captions", str(tmp_path / "few.token"), "--features", str(world / "features")]
    command = ["evaluate", str(world / "captioner" / "model.safetensors"), *data, "--device", "cpu", "--split", "all"]
    assert main([*command, "--self-retrieval", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["photos"], found["metrics"]["self-retrieval pool"]) == ("all", 4, 4)
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Measured on 4 photos; the captions have no splits." in shown
    assert shown.split()[0] == "all"  # the column's title
    assert "test" not in shown


def test_a_split_of_the_captions_is_chosen(world, tmp_path, capsys):
    images = [
        {
            "filename": name,
            "imgid": i,
            "split": split,
            "sentences": [{"raw": "a red dog", "tokens": ["a", "red", "dog"]}],
        }
        for i, (split, name) in enumerate(
            (split, name) for split in ("val", "test") for name in (world / f"{split}.txt").read_text().split()
        )
    ]
    (tmp_path / "dataset.json").write_text(json.dumps({"images": images, "dataset": "tiny"}))
    data = ["--captions", str(tmp_path / "dataset.json"), "--features", str(world / "features"), "--device", "cpu"]
    assert main(["evaluate", str(world / "captioner"), *data, "--split", "val"]) == 0
    printed = capsys.readouterr().out
    assert "CIDEr" in printed
    assert "Measured on 3 photos of val." in printed
    assert main(["evaluate", str(world / "captioner"), *data, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["evaluate", str(world / "captioner"), *data, "--split", "dev"]) == 2
    assert "no photo is in dev" in capsys.readouterr().err


def test_several_models_are_measured_together(world, capsys):
    test = ["--photos", str(world / "test.txt")]
    for model in ("matcher", "captioner"):
        alone = evaluate(world, capsys, *test, models=model)["metrics"]
        assert evaluate(world, capsys, *test, models=f"{model} {model}")["metrics"] == pytest.approx(alone)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["captioner", "--captions", "features"], "holds no captions"),
        (["matcher", "--captions", "captions.token", "--out", "x.json"], "a matcher writes no captions"),
        (["matcher", "--captions", "captions.token", "--split", "all"], "there are no features"),
        (["captioner", "--captions", "captions.token", "--split", "all"], "has learned from other features"),
        (["--captions", "captions.token"], "1000_0000000000.jpg"),
        (["captions.token", "--captions", "captions.token"], "not a Sightline model"),
    ],
)
def test_what_cannot_be_measured_is_told(world, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(world)
    assert main(["evaluate", *arguments, "--device", "cpu"]) == 2
    assert words in capsys.readouterr().err
