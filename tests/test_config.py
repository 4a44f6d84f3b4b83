import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from sightline.config import build, check_ranges, load_yaml, merge, override
from sightline.errors import ConfigError
from sightline.training.recipe import read_rows, shipped_recipes


@dataclass
class UpDown:
    kind: Literal["updown"] = "updown"
    hidden: int = 512


@dataclass
class Transformer:
    kind: Literal["transformer"] = "transformer"
    layers: int = 6


@dataclass
class Recipe:
    model: UpDown | Transformer
    rate: float = 5e-4
    name: str | None = None
    splits: tuple[str, ...] = ("train",)
    size: tuple[int, int] = (224, 224)
    weights: dict[str, float] = field(default_factory=dict)
    out: Path | None = None
    order: Literal["confidence", "random"] = "confidence"
    extra: Any = None
    steps: list[int] = field(default_factory=list)
    shuffle: bool = True


def test_plain_values_become_the_tree_of_dataclasses():
    recipe = build(
        Recipe,
        {
            "model": {"kind": "transformer", "layers": 2},
            "rate": 1,
            "splits": ["train", "restval"],
            "size": [1, 2],
            "weights": {"cider": 1},
            "out": "runs",
            "steps": [1, 2],
            "extra": {"x": []},
        },
    )
    assert recipe.model == Transformer(layers=2)
    assert isinstance(recipe.rate, float)
    assert recipe.splits == ("train", "restval")
    assert recipe.size == (1, 2)
    assert recipe.weights == {"cider": 1.0}
    assert recipe.out == Path("runs")
    assert recipe.steps == [1, 2]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": {"kind": "updwn"}}, "did you mean `updown`"),
        ({"model": {"kind": "updown", "hiden": 3}}, "unknown key `model.hiden`.*did you mean `hidden`"),
        ({"model": {"kind": "updown", "hidden": "big"}}, "`model.hidden` is 'big'.*a whole number"),
        ({"model": {"kind": "updown", "hidden": True}}, "`model.hidden` is True"),
        ({"model": {"kind": "updown"}, "rate": "fast"}, "`rate` is 'fast'.*a number"),
        ({"model": {"kind": "updown"}, "size": [1]}, "a list of 2"),
        ({"model": {"kind": "updown"}, "splits": "train"}, "`splits` is 'train'.*a list"),
        ({"model": {"kind": "updown"}, "splits": ["a", 3]}, r"`splits\[1\]` is 3"),
        ({"model": {"kind": "updown"}, "order": "confidense"}, "did you mean `confidence`"),
        ({"model": {"kind": "updown"}, "weights": [1]}, "a mapping"),
        ({"model": {"kind": "updown"}, "name": 3}, "`name` is 3.*text"),
        ({"model": 7}, "`model` is 7"),
        ({}, "`model` is missing"),
        ({"modle": {}}, "unknown key `modle`.*did you mean `model`"),
    ],
)
def test_a_wrong_key_or_type_is_refused_with_the_nearest_valid_one(values, words):
    with pytest.raises(ConfigError, match=words) as caught:
        build(Recipe, values, "recipe.yaml")
    assert "recipe.yaml" in str(caught.value)


def test_a_value_that_must_be_a_mapping_is_told():
    with pytest.raises(ConfigError, match="with keys"):
        build(Recipe, [])  # type: ignore[arg-type]


def test_merging_goes_key_by_key_but_another_kind_replaces_all():
    base = {"model": {"kind": "updown", "hidden": 8}, "rate": 1}
    assert merge(base, {"model": {"hidden": 9}}) == {"model": {"kind": "updown", "hidden": 9}, "rate": 1}
    assert merge(base, {"model": {"kind": "transformer"}})["model"] == {"kind": "transformer"}
    assert base["model"]["hidden"] == 8


def test_overrides_are_yaml_values_at_dotted_keys():
    values = override(
        {"model": {"kind": "updown"}}, ["model.hidden=64", "rate=1e-4", "splits=[train, val]", "name=null"]
    )
    assert values == {"model": {"kind": "updown", "hidden": 64}, "rate": 1e-4, "splits": ["train", "val"], "name": None}
    with pytest.raises(ConfigError, match="not key=value"):
        override({}, ["rate"])
    with pytest.raises(ConfigError, match="not valid"):
        override({}, ["rate=[1"])


def test_yaml_mistakes_are_told_with_their_place(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("a: 1\nb: [1\nc: 2\n")
    with pytest.raises(ConfigError, match="line 3"):
        load_yaml(path)
    path.write_text("a: 1\na: 2\n")
    with pytest.raises(ConfigError, match="'a' is given twice"):
        load_yaml(path)
    for broken in ("? [a]\n: b\n", 'a: "\\x"\n', "a: 2024-13-45\n", "a: \x07\n"):
        path.write_text(broken)
        with pytest.raises(ConfigError, match="not valid YAML"):
            load_yaml(path)
    path.write_text("- a\n")
    with pytest.raises(ConfigError, match="mapping"):
        load_yaml(path)
    path.write_text("rate: 1e-4\n")
    assert load_yaml(path) == {"rate": 1e-4}


def test_a_recipe_is_a_base_with_rows(tmp_path):
    path = tmp_path / "table-1.yaml"
    path.write_text("about: x\nbase: {rate: 1, model: {kind: a}}\nrows:\n  full: {}\n  half: {rate: 0.5}\n")
    assert read_rows(path) == {
        "full": {"rate": 1, "model": {"kind": "a"}},
        "half": {"rate": 0.5, "model": {"kind": "a"}},
    }
    path.write_text("base: {rate: 1}\n")
    assert read_rows(path) == {"base": {"rate": 1}}
    path.write_text("bse: {rate: 1}\n")
    with pytest.raises(ConfigError, match="unknown key `bse`"):
        read_rows(path)
    path.write_text("rows: {full: 3}\n")
    with pytest.raises(ConfigError, match="`full` is 3"):
        read_rows(path)
    assert list(shipped_recipes(tmp_path)) == [path]


def test_every_shipped_recipe_loads():
    for path in shipped_recipes():
        assert read_rows(path), path


@dataclass(frozen=True)
class Numbers:
    share: float = 0.5
    count: int = 1


@pytest.mark.parametrize(
    ("value", "interval", "fix"),
    [
        (-0.1, "[0, ∞)", "give 0 or more"),
        (0.0, "(0, ∞)", "give more than 0"),
        (math.inf, "(0, ∞)", "give more than 0"),
        (math.nan, "[0, ∞)", "give 0 or more"),
        (1.0, "[0, 1)", "give 0 or more, and less than 1"),
        (1.1, "(0, 1]", "give more than 0, and 1 at most"),
    ],
)
def test_a_number_outside_its_range_is_refused_with_the_range(value, interval, fix):
    with pytest.raises(ConfigError, match=rf"`data.share` is {value}. To fix: {fix}\.$"):
        check_ranges(Numbers(share=value), "data.", count="[1, 1]", share=interval)


def test_ends_of_a_range_belong_to_it_as_mathematics_writes():
    check_ranges(Numbers(share=0.0), share="[0, 1]", count="[1, ∞)")
    check_ranges({"a.b": 1.0}, **{"a.b": "(0, 1]"})


def test_null_empties_a_mapping_that_a_recipe_has():
    @dataclass(frozen=True)
    class Lists:
        splits: dict[str, str] = field(default_factory=dict)

    values = {"splits": {"train": "train.txt"}}
    assert build(Lists, override(values, ["splits={}"])).splits == {"train": "train.txt"}
    assert build(Lists, override(values, ["splits=null"])).splits == {}
