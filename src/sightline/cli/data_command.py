"""`sightline data …`: inspect and convert the files people have."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sightline.cli.console import Arg, show
from sightline.errors import ConfigError, plural, printable

if TYPE_CHECKING:  # help needs neither numpy nor rich
    from sightline.data.format import Report

_SINGULAR = {"boxes": "box", "classes": "class", "categories": "category"}  # what does not only lose its s


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
    from sightline.data import formats as known_formats

    reports: list[Report] = []
    for path in paths:
        for report in known_formats.inspect(path):
            reports.append(report)
            if not json and (report.problem_count or not quiet):
                _print_report(report)
    show([report.to_json() for report in reports], "", json=json, quiet=True, indent=2)
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
        to: the format to write; by default the one that the destination's name ends like.
        split: keep the photos of this split only.
        force: write over an existing file.
    """
    from sightline.data import convert as converting
    from sightline.vision import photo_reader

    converting.refuse_overwrite(destination, force)
    bar: Any = iter if quiet or json else photo_reader.progress_bar("converting")
    report = converting.convert(source, destination, to, split=split, dtype=dtype, progress=bar)
    records = _count(report.records, "scenes" if report.kind == "scenes" else "photos with captions")
    text = f"{printable(report.destination)}: {records} as {report.destination_format}, from {report.source_format}"
    if report.left_out:
        text += f"\nnote: {report.destination_format} does not hold {', '.join(report.left_out)}; they were left out"
    show(asdict(report), text, json=json, quiet=quiet)


def repair(store: Path, *, json: bool = False, quiet: bool = False) -> None:
    """Drop damaged records from a feature store, so that their photos can be extracted or converted again.

    Args:
        store: the folder of the store.
    """
    from sightline.vision.feature_store import FeatureStore

    dropped = FeatureStore.repair(store)
    lines = f", and {plural(dropped.index_lines, 'damaged line')} of the index (up to 64 records each)"
    records = plural(dropped.records, "damaged record")
    text = f"{printable(store)}: {records} dropped{lines if dropped.index_lines else ''}"
    show({"store": str(store), **dropped._asdict()}, text, json=json, quiet=quiet)


def formats(*, json: bool = False, quiet: bool = False) -> None:
    """List the formats that can be read and written.

    Args:
        json: print one JSON array.
        quiet: print the names only.
    """
    from sightline.data.formats import FORMATS

    rows, lines = list[dict[str, Any]](), list[str]()
    for format in FORMATS:
        readers = {"scenes": format.scenes, "captions": format.captions}
        writers = {"scenes": format.write_scenes, "captions": format.write_captions}
        reads = [kind for kind, reader in readers.items() if reader]
        writes = [kind for kind, writer in writers.items() if writer]
        rows.append({"name": format.name, "about": format.about, "reads": reads, "writes": writes})
        note = f" [writes {', '.join(writes)}]" if writes else ""
        lines.append(format.name if quiet else f"{format.name:<22}{format.about}{note}")
    show(rows, "\n".join(lines), json=json, quiet=False, indent=2)


def _count(number: int, name: str) -> str:
    """`2 photos of split val`, `1 photo of split val`, `1 with boxes`."""
    plurals = [] if number != 1 or name.startswith("with ") else [word for word in name.split() if word.endswith("s")]
    for noun in plurals[:1]:
        name = name.replace(noun, _SINGULAR.get(noun, noun[:-1]), 1)
    return f"{number:,} {name}"


def _print_report(report: Report) -> None:
    from rich.console import Console
    from rich.markup import escape

    def plain(text: str) -> str:  # without markup, and without codes that steer the terminal
        return escape(printable(text))

    console = Console(soft_wrap=True, emoji=False)
    colour = "red" if report.problem_count else "yellow" if report.format == "unknown" else "green"
    path, about = plain(report.path), plain(report.about)
    console.print(f"[bold]{path}[/bold]  [{colour}]{report.format}[/{colour}]: {about}")
    if report.counts:
        counts = [_count(n, name) if isinstance(n, int) else f"{name} {n}" for name, n in report.counts.items()]
        console.print(f"  {plain(', '.join(counts))}", highlight=False)
    for note in report.notes:
        console.print(f"  note: {plain(note)}", highlight=False)
    for problem in report.problems:
        console.print(f"  [red]problem[/red]: {plain(problem)}", highlight=False)
    if report.problem_count > len(report.problems):
        console.print(f"  [red]… and {report.problem_count - len(report.problems):,} more problems[/red]")
