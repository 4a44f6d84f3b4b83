"""What commands print: one JSON value where --json asks for it, else text for people, unless --quiet."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def show(value: Any, text: str | Callable[[], object], *, json: bool, quiet: bool, indent: int | None = None) -> None:
    """Print `value` as JSON, or the text; a text that takes work is a function that prints it."""
    if json:
        print(json_module.dumps(value, ensure_ascii=False, indent=indent), flush=True)
    elif not quiet:
        print(text, flush=True) if isinstance(text, str) else text()


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns under their heads: the first to the left, numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    Console(soft_wrap=True).print(table)
