"""For mkdocs: examples in docstrings (`>>> …`) become blocks of code; as plain Markdown they would be quotations."""

from __future__ import annotations

from typing import Any

import griffe


def with_fences(text: str) -> str:
    """The text with a fence around each example, which goes on to the next empty line.

    >>> print(with_fences("Adds.\\n\\n>>> add(1, 2)\\n3"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> add(1, 2)
    3
    ```
    """
    lines, inside = list[str](), ""
    for line in [*text.split("\n"), ""]:
        start = line[: len(line) - len(line.lstrip())]
        if not inside and line.startswith(f"{start}>>>"):
            inside = f"{start}```"
            lines.append(f"{inside}pycon")
        elif inside and not line.strip():
            lines.append(inside)
            inside = ""
        lines.append(line)
    return "\n".join(lines[:-1])


class DoctestFences(griffe.Extension):
    """Every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_fences(obj.docstring.value)
