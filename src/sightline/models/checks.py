"""What every model's config refuses, in the same words."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sightline.errors import ConfigError


def check_config(config: Any, *, may_be_zero: tuple[str, ...] = ()) -> None:
    """Refuse choices that a Literal does not list, whole numbers below 1 (sizes and counts), and dropout of 1 or more.

    Args:
        config: a dataclass.
        may_be_zero: names of whole numbers that may be 0.
    """
    hints = get_type_hints(type(config))
    for item in fields(config):
        name, value, hint = item.name, getattr(config, item.name), hints[item.name]
        least = 0 if name in may_be_zero else 1
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ConfigError(f"`{name}` is {value!r}", fix=f"choose one of {', '.join(map(str, get_args(hint)))}")
        if hint is int and (not isinstance(value, int) or value < least):
            raise ConfigError(f"`{name}` is {value}", fix=f"give a whole number of at least {least}")
        if name == "dropout" and not 0 <= value < 1:
            raise ConfigError(f"`{name}` is {value}", fix="give a share from 0 up to, not including, 1")
