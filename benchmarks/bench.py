"""Every benchmark, each beside its peer in the same run, gathered into benchmarks/report.md and report.json with plots.

    make bench                     # all of it: hours on two cores
    make bench ONLY=metrics        # one part; records of the others stay as they were
    python benchmarks/bench.py --only text startup --quick
    python benchmarks/bench.py --only roofline --printed gpu.json  # by gpu.py --json on a machine that has one

A part that cannot run here (no Java, no dataset, no GPU) is told and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import bench_records as records
from bench_records import Record, Report

HERE = Path(__file__).parent
MINUTES = 60


@dataclass(frozen=True)
class Benchmark:
    """A script, what it is given, what it is given to be quick, and how its JSON becomes records.

    `needs` are files under SIGHTLINE_DATA without which it is left out; they are given to it as arguments.
    """

    script: str
    records: Callable[[Report], Iterator[Record]]
    arguments: str = ""
    quick: str = ""
    needs: tuple[str, ...] = ()


FLICKR8K = ("flickr8k/images", "flickr8k/Flickr8k.token.txt", "flickr8k/Flickr_8k.testImages.txt")


def search_recall(report: Report) -> Iterator[Record]:
    """Photos that people's captions find; the peer is guessing."""
    chance = 10 / report["photos"]
    for name, goal in (("a person's caption, vectors only", 0.798), ("a person's caption, hybrid", 0.792)):
        yield Record(f"R@10, {name}", report[name]["R@10"], chance, "", "guessing", more=True, goal=goal)


PARTS: dict[str, tuple[Benchmark, ...]] = {
    "startup": (Benchmark("startup.py", records.startup, quick="--rounds 1"),),
    "text": (
        Benchmark("tokenizer.py", records.tokenizer, quick="--captions 2000 --rounds 1"),
        Benchmark("tagger.py", records.tagger, quick="--captions 2000 --rounds 1"),
    ),
    "metrics": (
        Benchmark("language_metrics.py", records.language_metrics, quick="--images 300 --repeats 1 --without-java"),
        Benchmark("meteor.py", records.meteor, quick="--images 300 --repeats 1"),
        Benchmark("spice.py", records.spice, quick="--images 200"),
        Benchmark("scst_reward.py", records.scst_reward, quick="--images 500 --captions 50"),
        Benchmark("expert_judgements.py", records.expert_judgements),
    ),
    "captions": (
        Benchmark("caption_speed.py", records.caption_speed, quick="--one 4 --folder 8 --large 1 --blip 0 --cold 1"),
        Benchmark("busy_machine.py", records.busy_machine, quick="--photos 3 --rounds 1"),
    ),
    "decoding": (Benchmark("beam_decoding.py", records.beam_decoding, quick="--images 8 --usual 2"),),
    "training": (
        Benchmark("updown_training.py", records.training_step("Up-Down, cross-entropy"), quick="--images 4 --steps 1"),
        Benchmark("scst_step.py", records.training_step("Up-Down, self-critical"), quick="--images 2 --steps 1"),
        Benchmark("jran_cost.py", records.jran_cost, quick="--images 2 --steps 1"),
        Benchmark("attention_gradients.py", records.attention_gradients, quick="--images 2 --repeats 1"),
        Benchmark("r2m_training.py", records.r2m_training, quick="--images 2000 --share 0.0001"),
    ),
    "matching": (
        Benchmark("scan_similarity.py", records.scan_similarity, quick="--images 60 --captions 200 --sample 8"),
    ),
    "search": (
        Benchmark("index_million.py", records.index_million, quick="--vectors 20000 --queries 20"),
        Benchmark("search_recall.py", search_recall, quick="--photos 20", needs=FLICKR8K),
    ),
    "data": (
        Benchmark("store.py", records.store, "--coco 20000", quick="--scenes 100 --coco 200"),
        Benchmark("memory.py", records.memory, quick="--images 500 --mapped-images 500"),
        Benchmark("tsv.py", records.tsv, quick="--images 20 --rounds 1"),
    ),
    "jobs": (Benchmark("ray_driver.py", records.ray_driver, quick="--photos 1000 --results 500"),),
    "serving": (
        Benchmark("serve_load.py", records.serve_load, quick="--seconds 5 --count 4 --clients 4"),
        Benchmark("page_photos.py", records.page_photos, quick="--count 8"),
    ),
    "gpu": (
        Benchmark("updown_training.py", records.training_step("Up-Down, cross-entropy"), "--device cuda --images 128"),
        Benchmark("scst_step.py", records.training_step("Up-Down, self-critical"), "--device cuda --images 64"),
        Benchmark("beam_decoding.py", records.beam_decoding, "--device cuda --images 2000"),
        Benchmark("r2m_training.py", records.r2m_training, "--device cuda"),
    ),
    "roofline": (Benchmark("gpu.py", records.gpu, quick="--device cpu --quick"),),
    "scaling": (Benchmark("scaling.py", records.scaling, quick="captions vocabulary --quick"),),
}
ALWAYS_JSON = {"serve_load.py", "page_photos.py"}


def run(benchmark: Benchmark, quick: bool, printed: Path | None = None) -> tuple[list[Record], Report]:
    """Run a script in a process of its own; its records, each with its command, and what it printed.

    Where it ran on another machine, `printed` is the file of what it printed there.
    """
    data = Path(os.environ.get("SIGHTLINE_DATA", ""))
    missing = [name for name in benchmark.needs if not (data / name).exists()]
    if missing:
        raise LookupError(f"needs {missing[0]} in SIGHTLINE_DATA")
    arguments = (benchmark.quick if quick else benchmark.arguments).split()
    given = [*(str(data / name) for name in benchmark.needs), *arguments]
    switch = [] if benchmark.script in ALWAYS_JSON else ["--json"]
    if printed is None:
        command = [sys.executable, str(HERE / benchmark.script), *given, *switch]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=180 * MINUTES)
        text, failed = done.stdout, done.returncode
    else:
        text, failed = printed.read_text("utf-8"), 0
    start = text.find("{")
    if failed or start < 0:
        raise LookupError(text.strip() or f"ended with exit code {failed}")
    report = json.loads(text[start:])
    named = " ".join([*benchmark.needs, *arguments])
    made = list(benchmark.records(report))
    for record in made:
        record.command = f"python benchmarks/{benchmark.script} {named}".strip()
    return made, report


def gather(parts: Sequence[str], quick: bool, out: Path, printed: Path | None = None) -> dict[str, Any]:
    """Run parts and put their records in the place of those that the report had of them."""
    path = out / "report.json"
    report: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {"records": [], "curves": {}}
    for part in parts:
        found: list[Record] = []
        for benchmark in PARTS[part]:
            print(f"{part}: {benchmark.script}", file=sys.stderr, flush=True)
            try:
                made, measured = run(benchmark, quick, printed)
            except (LookupError, KeyError, subprocess.TimeoutExpired) as error:
                print(f"  left out: {error}", file=sys.stderr, flush=True)
                continue
            found += made
            if part == "scaling":
                report["curves"] |= measured
        if found:
            others = [record for record in report["records"] if record["part"] != part]
            report["records"] = others + [{"part": part, **record.as_json()} for record in found]
    report["records"].sort(key=lambda record: list(PARTS).index(record["part"]))
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return report


def figure_of(value: float) -> str:
    """A number in three digits or more, as people write it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown(report: dict[str, Any]) -> str:
    """The report as people read it."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Every figure stands beside a peer, or a limit, that was measured in the same run:",
        "ratio says how many times better Sightline is, and goal is what README or the docs promise.",
        "",
        "![How many times better than its peer each figure is](report-ratios.png)",
        "",
    ]
    for part, group in groupby(report["records"], key=lambda record: record["part"]):
        rows = list(group)
        lines += [f"## {part.capitalize()}", "", f"{rows[0]['machine']}, {rows[0]['date']}.", ""]
        lines += ["| | ours | peer | | ratio | goal | command |", "|---|---|---|---|---|---|---|"]
        for row in rows:
            goal = "" if row["goal"] is None else f"{row['goal']:g} {'✓' if row['reached'] else '✗'}"
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}×"
            peer = "not here" if row["peer"] is None else f"{figure_of(row['peer'])} ({row['against']})"
            cells = (row["name"], figure_of(row["ours"]), peer, row["unit"], ratio, goal, f"`{row['command']}`")
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    if report["curves"]:
        lines += ["![Time and memory against size](report-scaling.png)", ""]
        lines += ["| | sizes | time ~ size^ | memory ~ size^ |", "|---|---|---|---|"]
        for name, curve in report["curves"].items():
            sizes = f"{curve['sizes'][0]:,} to {curve['sizes'][-1]:,}"
            lines.append(f"| {name} | {sizes} | {curve['time_exponent']:.2f} | {curve['memory_exponent']:.2f} |")
        lines.append("")
    return "\n".join(lines)


def draw(report: dict[str, Any], out: Path) -> None:
    """The plots: ratios as bars, and the curves of scaling."""
    from matplotlib.figure import Figure

    rows = [row for row in report["records"] if row["ratio"]][::-1]
    figure = Figure((10, 1 + 0.24 * len(rows)), layout="constrained")
    axes = figure.subplots()
    colours = ["#007a5a" if row["ratio"] >= 1 else "#bd4a00" for row in rows]
    ratios = [row["ratio"] for row in rows]
    axes.hlines(range(len(rows)), 1, ratios, colors=colours, lw=5)
    axes.scatter(ratios, range(len(rows)), c=colours, s=30)
    axes.axvline(1, color="#1d2430", lw=1)
    axes.set(xscale="log", xlabel="times better than the peer of the same run", ylim=(-1, len(rows)))
    axes.set_yticks(range(len(rows)), [f"{row['name']} : {row['against']}" for row in rows], fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out / "report-ratios.png", dpi=110)
    if not report["curves"]:
        return
    curves = report["curves"]
    figure = Figure((2.4 * len(curves), 5), layout="constrained")
    grid = figure.subplots(2, len(curves), squeeze=False)
    for column, (name, curve) in zip(grid.T, curves.items(), strict=True):
        for axes, key, unit in zip(column, ("seconds", "mb"), ("CPU s", "MB"), strict=True):
            exponent = curve["time_exponent" if key == "seconds" else "memory_exponent"]
            axes.loglog(curve["sizes"], curve[key], "o-", color="#0072b2")
            axes.set(xlabel=name, ylabel=unit, title=f"~ size^{exponent:.2f}")
            for axis, values in ((axes.xaxis, curve["sizes"]), (axes.yaxis, curve[key])):
                ends = [min(values), max(values)]
                axis.set_ticks(ends, labels=[figure_of(end) for end in ends])
                axis.set_ticks([], minor=True)
    figure.savefig(out / "report-scaling.png", dpi=110)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="few images and rounds: does it run?")
    parser.add_argument("--out", type=Path, default=HERE, help="where the report is")
    parser.add_argument("--printed", type=Path, help="what the one script of --only printed, with --json, elsewhere")
    options = parser.parse_args(argv)
    if options.printed and sum(len(PARTS[part]) for part in options.only) != 1:
        parser.error("--printed is of one script: give --only a part that has one")
    report = gather(options.only, options.quick, options.out, options.printed)
    (options.out / "report.md").write_text(markdown(report), "utf-8")
    draw(report, options.out)
    print(f"{len(report['records'])} records in {options.out / 'report.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
