"""Keys of recipes that have new names: old ones are refused with the new one, what was saved before is still read."""

import json

import pytest

from learning_samples import write_recipe
from sightline.config import build, with_new_names, with_old_names
from sightline.decoding.strategies import Greedy
from sightline.errors import ConfigError
from sightline.training import recipe as recipe_module
from sightline.training.evaluation import Evaluation
from sightline.training.launch import plain, refuse_other_run, to_yaml
from sightline.training.recipe import read_recipe, read_rows, read_run_recipe
from sightline.training.stage import Optimiser

PAIRS = [({"lr": 0.1}, {"rate": 0.1}), ({"lrs": {"vision": 0.0}}, {"rates": {"vision": 0.0}})]


@pytest.mark.parametrize(("new", "old"), PAIRS)
def test_an_old_key_is_refused_with_its_new_name(new, old):
    ((name, _),) = new.items()
    with pytest.raises(ConfigError, match=rf"unknown key `{next(iter(old))}`.*it is called `{name}` now"):
        build(Optimiser, old)
    assert build(Optimiser, new) == build(Optimiser, with_new_names(old))


def test_old_names_of_an_evaluation_and_of_a_kind_are_refused_too(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown key `way`.*it is called `strategy` now"):
        build(Evaluation, {"way": {"kind": "greedy"}})
    recipe = write_recipe(tmp_path / "recipe.yaml")
    with pytest.raises(ConfigError, match=r"is 'looking'.*it is called `detect-and-caption` now"):
        read_recipe(recipe, next(iter(read_rows(recipe))), ["stages.xe.objective={kind: looking}"])


def test_what_was_saved_under_old_names_is_read():
    saved = {"way": {"kind": "greedy"}, "metrics": ["bleu"]}
    assert build(Evaluation, with_new_names(saved)) == Evaluation(strategy=Greedy(), metrics=("bleu",))


def test_a_folder_of_a_run_with_old_names_is_gone_on_with(tmp_path):
    recipe = write_recipe(tmp_path / "recipe.yaml")
    recipe = read_recipe(recipe, next(iter(read_rows(recipe))))
    text = to_yaml(recipe)
    old = text.replace(" lr: ", " rate: ").replace(" lrs: ", " rates: ").replace(" strategy:", " way:")
    assert old != text
    (tmp_path / "recipe.yaml").write_text(old)
    assert read_run_recipe(tmp_path / "recipe.yaml") == recipe
    refuse_other_run(recipe, tmp_path)  # it is the same


def test_fingerprints_are_taken_of_the_old_names(tmp_path, monkeypatch):
    """Finished runs and published results keep their marks."""
    taken = []
    monkeypatch.setattr(recipe_module, "fingerprint", lambda text: taken.append(json.loads(text)) or "")
    recipe = write_recipe(tmp_path / "recipe.yaml")
    read_recipe(recipe, next(iter(read_rows(recipe)))).fingerprint()
    optimiser, evaluate = taken[0]["stages"]["xe"]["optimiser"], taken[0]["evaluate"]
    assert optimiser["rate"] == 0.01
    assert evaluate["way"]["kind"] == "greedy"
    assert not {"lr", "lrs", "strategy"} & {*optimiser, *evaluate}


def test_new_and_old_names_are_each_others_opposite(tmp_path):
    recipe = write_recipe(tmp_path / "recipe.yaml")
    values = plain(read_recipe(recipe, next(iter(read_rows(recipe)))))
    assert with_new_names(with_old_names(values)) == values
