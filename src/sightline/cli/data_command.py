"""`sightline data …`: inspect and convert the files people have."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape

from sightline.cli.arguments import Arg
from sightline.data import convert as converting
from sightline.data import inspect as inspecting
from sightline.data.format import Report
from sightline.data.records import SceneSource
from sightline.errors import ConfigError, printable
from sightline.scene import Scene
from sightline.vision.feature_store import FeatureStore


def inspect(paths: tuple[Path, ...], *, json: bool = False, quiet: bool = False) -> int:
    """Tell what files or folders are, how much they hold and what is wrong with them.

    A folder in no format of its own is walked. Exit code 1 if a problem was found or a file you named is unknown.

    Args:
        paths: files or folders.
        json: print one JSON array, an object per file.
        quiet: print only what has problems.
    """
    if not paths:
        raise ConfigError("no file was named", fix="sightline data inspect FILE…")
    console = Console(soft_wrap=True)
    reports: list[Report] = []
    for path in paths:
        for report in inspecting.inspect(path):
            reports.append(report)
            if not json and (report.problem_count or not quiet):
                _print_report(console, report)
    if json:
        print(json_module.dumps([report.to_json() for report in reports], indent=2))
    named = {str(path) for path in paths}
    return 1 if any(r.problem_count or (r.format == "unknown" and r.path in named) for r in reports) else 0


def convert(
    source: Path,
    destination: Path,
    *,
    to: Annotated[str | None, Arg("FORMAT")] = None,
    split: str | None = None,
    dtype: Literal["float16", "float32"] | None = None,
    force: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Convert features or captions to another format. Every record is checked; nothing is half-written.

    A destination without suffix becomes a Sightline feature store, which a second run continues where it stopped.

    Args:
        source: a file or folder in any format that `sightline data formats` lists.
        destination: where to write.
        to: the format to write; by default the destination's name tells.
        split: keep the photos of this split only.
        dtype: the numbers a new feature store holds; by default float16.
        force: write over an existing file.
        quiet: no progress bar, no summary.
    """
    converting.refuse_overwrite(destination, force)
    bar: converting.Progress = iter if quiet or json else _progress
    done = converting.convert(source, destination, to, split=split, dtype=dtype, progress=bar)
    if json:
        print(json_module.dumps(asdict(done)))
    elif not quiet:
        unit = "scenes" if done.kind == "scenes" else "photos with captions"
        place, formats = printable(done.destination), f"{done.destination_format}, from {done.source_format}"
        print(f"{place}: {done.records:,} {unit} as {formats}")
        if done.left_out:
            print(f"note: {done.destination_format} does not hold {', '.join(done.left_out)}; they were left out")


def repair(store: Path, *, json: bool = False, quiet: bool = False) -> None:
    """Drop damaged records from a feature store, so that their photos can be extracted or converted again.

    Args:
        store: the folder of the store.
        quiet: print nothing.
    """
    dropped = FeatureStore.repair(store)
    if json:
        print(json_module.dumps({"store": str(store), **dropped._asdict()}))
    elif not quiet:
        lines = f", and {dropped.index_lines:,} damaged lines of the index (up to 64 records each)"
        print(f"{printable(store)}: {dropped.records:,} damaged records dropped{lines if dropped.index_lines else ''}")


def formats(*, json: bool = False, quiet: bool = False) -> None:
    """List the formats that can be read and written.

    Args:
        json: print one JSON array.
        quiet: print the names only.
    """
    from sightline.data.formats import FORMATS

    rows: list[dict[str, Any]] = [
        {
            "name": format.name,
            "about": format.about,
            "reads": [kind for kind, f in (("scenes", format.scenes), ("captions", format.captions)) if f],
            "writes": [k for k, f in (("scenes", format.write_scenes), ("captions", format.write_captions)) if f],
        }
        for format in FORMATS
    ]
    if json:
        print(json_module.dumps(rows, ensure_ascii=False, indent=2))
        return
    for row in rows:
        written = f" [writes {', '.join(row['writes'])}]" if row["writes"] else ""
        print(row["name"] if quiet else f"{row['name']:<22}{row['about']}{written}")


def _print_report(console: Console, report: Report) -> None:
    colour = "red" if report.problem_count else "yellow" if report.format == "unknown" else "green"
    path, about = _text(report.path), _text(report.about)
    console.print(f"[bold]{path}[/bold]  [{colour}]{report.format}[/{colour}]: {about}")
    if report.counts:
        told = ", ".join(f"{n:,} {name}" if isinstance(n, int) else f"{name} {n}" for name, n in report.counts.items())
        console.print(f"  {_text(told)}", highlight=False)
    for note in report.notes:
        console.print(f"  note: {_text(note)}", highlight=False)
    for problem in report.problems:
        console.print(f"  [red]problem[/red]: {_text(problem)}", highlight=False)
    if report.problem_count > len(report.problems):
        console.print(f"  [red]… and {report.problem_count - len(report.problems):,} more problems[/red]")


def _text(raw: str) -> str:
    """Text of a file or its name, as it is shown: without markup, and without codes that steer the terminal."""
    return escape(printable(raw))


def _progress(scenes: SceneSource) -> Iterable[Scene]:
    from rich.progress import track

    return track(scenes, description="converting", total=len(scenes), console=Console(stderr=True))
