"""Every model's config refuses choices, sizes and dropout shares that make no model, in the same words."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from sightline.errors import ConfigError
from sightline.models.jrln import JRLNConfig
from sightline.models.model_configs import ModelConfig
from sightline.models.scene_matcher import SceneMatcherConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.vsrn import VSRNConfig

CONFIGS = (*get_args(ModelConfig), JRLNConfig)
MAY_BE_ZERO = ((VSRNConfig, "rrr_layers"), (SceneMatcherConfig, "ffn_size"), (SceneTransConfig, "concepts"))
FIELDS = [
    (config, item.name, get_type_hints(config)[item.name])
    for config in CONFIGS
    for item in fields(config)
    if (config, item.name) not in MAY_BE_ZERO
]
CHOICES = [(config, name, get_args(hint)) for config, name, hint in FIELDS if get_origin(hint) is Literal]
SIZES = [(config, name) for config, name, hint in FIELDS if hint is int]
SHARES = [(config, name) for config, name, _ in FIELDS if name == "dropout"]


def test_every_config_is_looked_at():
    assert {config for config, *_ in CHOICES} == {config for config, _ in SIZES} == set(CONFIGS)
    assert len(SHARES) == 11


@pytest.mark.parametrize(("config", "name", "choices"), CHOICES)
def test_a_typo_in_a_choice_is_refused_and_the_choices_are_told(config, name, choices):
    told = ", ".join(map(str, choices))
    with pytest.raises(ConfigError) as error:
        config(**{name: "befor"})
    assert str(error.value) == f"`{name}` is 'befor'. To fix: choose one of {told}."


@pytest.mark.parametrize("value", [0, -3, 2.5])
@pytest.mark.parametrize(("config", "name"), SIZES)
def test_a_size_is_a_whole_number_of_at_least_one(config, name, value):
    with pytest.raises(ConfigError) as error:
        config(**{name: value})
    assert str(error.value) == f"`{name}` is {value}. To fix: give a whole number of at least 1."


@pytest.mark.parametrize("value", [1.0, -0.1, float("nan")])
@pytest.mark.parametrize(("config", "name"), SHARES)
def test_a_dropout_is_a_share_below_one(config, name, value):
    with pytest.raises(ConfigError) as error:
        config(**{name: value})
    assert str(error.value) == f"`{name}` is {value}. To fix: give a share from 0 up to, not including, 1."


def test_relationship_reasoning_may_be_left_out():
    assert VSRNConfig(rrr_layers=0).rrr_layers == 0
    with pytest.raises(ConfigError, match=r"`rrr_layers` is -1\. To fix: give a whole number of at least 0"):
        VSRNConfig(rrr_layers=-1)
