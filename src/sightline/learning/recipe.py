"""Recipes on disk: one YAML per table of a paper, a `base` and named `rows` of changes to it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from sightline.config import load_yaml, merge
from sightline.errors import ConfigError
from sightline.files import PathLike

SHIPPED = Path(str(files("sightline.learning"))) / "recipes"


def shipped(folder: Path = SHIPPED) -> Iterator[Path]:
    """The recipe files in `folder`: those that come with Sightline."""
    yield from sorted(folder.rglob("*.yaml"))


def read_rows(path: PathLike) -> dict[str, dict[str, Any]]:
    """Every row of a recipe file, each its base with the row's changes; a file without rows has one, called `base`."""
    values = load_yaml(path)
    unknown = sorted(set(values) - {"about", "base", "rows"})
    if unknown:
        raise ConfigError(f"unknown key `{unknown[0]}`", where=path, fix="a recipe has about, base and rows")
    base, rows = values.get("base") or {}, values.get("rows") or {"base": {}}
    for name, part in {"base": base, **rows}.items():
        if not isinstance(part, dict):
            raise ConfigError(f"`{name}` is {part!r}", where=path, fix="give a mapping of keys to values")
    return {str(name): merge(base, changes) for name, changes in rows.items()}
