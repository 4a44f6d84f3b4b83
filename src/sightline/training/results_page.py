"""What was measured beside what a paper prints: a table as Markdown, and a page that needs nothing but itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from sightline.web_page import PAGE_END, page_start

Points = list[tuple[float, float]]
BESIDE = {  # a number that means little without others
    "attention accuracy": ("attention oracle", "forced words"),
    "self-retrieval R@500": ("self-retrieval pool",),
}
MAIN = ("CIDEr", "i2t R@1", "attention accuracy")  # of these, the first that a table has orders its rows


@dataclass(frozen=True)
class Line:
    """A row of a table."""

    name: str  # of the row
    paper: Mapping[str, float]  # what the paper prints, by metric
    results: Mapping[str, float] = field(default_factory=dict)  # what was measured; empty before it was run
    split: str = ""  # on which
    photos: int = 0  # on how many
    changes: tuple[str, ...] = ()  # what was changed in the recipe, as key=value
    note: str = ""  # what there is to say, such as why it failed


@dataclass(frozen=True)
class Table:
    """A table of a paper."""

    title: str  # PAPER/TABLE
    about: str  # what its recipe says of it
    lines: Sequence[Line]  # its rows
    charts: Mapping[str, str] = field(default_factory=dict)  # inline SVG of training curves, by what they show

    @property
    def metrics(self) -> list[str]:
        """What the paper prints of any row, with what must stand beside it; for rows alone, all that was measured."""
        printed = dict.fromkeys(name for line in self.lines for name in line.paper)
        if not printed:
            return list(dict.fromkeys(name for line in self.lines for name in line.results))
        measured = {name for line in self.lines for name in line.results}
        beside = [other for name, others in BESIDE.items() if name in printed for other in others if other in measured]
        return [*printed, *beside]


def markdown(tables: Sequence[Table]) -> str:
    """The tables; each row has a line of what was measured here and a line of the paper's."""
    parts = []
    for table in tables:
        head = ["row", "", *table.metrics]
        lines = [head, ["---", "---", *["--:"] * len(table.metrics)]]
        lines += [cells for line in table.lines for cells in _cells(line, table.metrics)]
        text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)
        parts.append("\n\n".join([f"## {table.title}", table.about.strip(), text, *notes(table)]))
    return "\n\n".join(parts) + "\n"


def html(title: str, tables: Sequence[Table]) -> str:
    body = "\n".join(_section(table) for table in tables)
    return f"{page_start(title, _STYLE)}{body}\n{PAGE_END}"


def notes(table: Table) -> list[str]:
    """What numbers alone do not tell: the order of rows, chance, what was measured on, what was changed or failed."""
    sentences = []
    main = next((name for name in MAIN if name in table.metrics), None)
    both = [line for line in table.lines if main in line.paper and main in line.results]
    if main is not None and len(both) > 1:
        ours = _order({line.name: line.results[main] for line in both})
        theirs = _order({line.name: line.paper[main] for line in both})
        sentences.append(
            f"By {main} the rows come in the paper's order: {ours}."
            if ours == theirs
            else f"By {main}, here: {ours}. In the paper: {theirs}."
        )
    pool = max((line.results.get("self-retrieval pool", 0.0) for line in table.lines), default=0.0)
    if pool:
        chances = ", ".join(f"R@{k} {100 * min(1.0, k / pool):.2f}" for k in (1, 5, 50, 500))
        sentences.append(f"Chance, in a pool of {pool:,.0f}: {chances}.")
    measured = _grouped({line.name: f"{line.photos:,} photos of {line.split}" for line in table.lines if line.split})
    sentences += [f"Measured on {what}{names}." for what, names in measured.items()]
    changed = _grouped({line.name: ", ".join(line.changes) for line in table.lines if line.changes})
    sentences += [f"Not as in the recipe: {what}{names}." for what, names in changed.items()]
    return sentences + [f"{line.name}: {line.note}" for line in table.lines if line.note]


def _order(values: Mapping[str, float]) -> str:
    """Names by falling value; those that print alike are equal."""
    names = sorted(values, key=lambda name: -round(values[name], 2))
    order = names[0]
    for before, name in pairwise(names):
        order += (" = " if round(values[before], 2) == round(values[name], 2) else " > ") + name
    return order


def _grouped(remarks: Mapping[str, str]) -> dict[str, str]:
    """Each remark, and the rows it is about; "" where it is about all of them."""
    rows: dict[str, list[str]] = {}
    for name, what in remarks.items():
        rows.setdefault(what, []).append(name)
    return {what: "" if len(rows) == 1 else f" ({', '.join(names)})" for what, names in rows.items()}


def curves_of(folder: Path) -> dict[tuple[str, str], Points]:
    """(stage, quantity) to points over steps, from a run's metrics.jsonl: the loss, and what was measured on val."""
    log = folder / "metrics.jsonl"
    curves: dict[tuple[str, str], Points] = {}
    for text in log.read_text(encoding="utf-8").splitlines() if log.is_file() else ():
        try:
            line: dict[str, Any] = json.loads(text)
        except ValueError:
            continue  # the last line of a run that was killed
        for name, value in line.items():
            if name == "loss" or name.startswith("val "):
                curves.setdefault((line["stage"], name), []).append((float(line["step"]), float(value)))
    return curves


def _cells(line: Line, metrics: Sequence[str]) -> list[list[str]]:
    """One or two lines of cells: here, and in the paper where it prints something."""

    def numbers(values: Mapping[str, float]) -> list[str]:
        return [f"{values[name]:.2f}" if name in values else "–" for name in metrics]

    rows = [[line.name, "here", *numbers(line.results)]]
    if line.paper:
        rows.append(["", "paper", *numbers(line.paper)])
    return rows


def _section(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("row", "", *table.metrics))
    rows = []
    for line in table.lines:
        for name, *cells in _cells(line, table.metrics):
            kind = ' class="paper"' if cells[0] == "paper" else ""
            data = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            rows.append(f'<tr{kind}><th scope="row">{escape(name)}</th>{data}</tr>')
    about = "".join(f"<p>{escape(part.strip())}</p>" for part in table.about.strip().split("\n\n"))
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes(table))
    charts = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{chart}</figure>" for name, chart in table.charts.items()
    )
    return (
        f"<section>\n<h2>{escape(table.title)}</h2>\n<details><summary>About this table</summary>{about}</details>\n"
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n' + "\n".join(rows) + "\n</tbody>\n"
        f'</table></div>\n<ul>{listed}</ul>\n<div class="charts">{charts}</div>\n</section>'
    )


_STYLE = """
h2 { font-size: 21px; margin: 40px 0 8px; }
details, ul { color: var(--soft); max-width: 80ch; }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 12px; text-align: right; white-space: nowrap; }
th:first-child, td:nth-child(2) { text-align: left; }
thead th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--line); }
tbody tr:not(.paper) > * { border-top: 1px solid var(--line); }
tr.paper { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 16px; }
figure { padding: 12px; }
figcaption { font-weight: 600; }
svg { width: 100%; height: auto; }
@media print { section { break-inside: avoid; } }
"""
