"""METEOR, Sightline against the Java tool as pycocoevalcap runs it: whole processes, start to end.

    python benchmarks/meteor.py [--images 5000] [--json]

CPU seconds and peak memory count each process with its children. Sightline compiles its index once into the user's
cache; that is measured too, in a folder of its own. Without Java only Sightline is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

Run = dict[str, Any]


def prepare(corpus: Path, images: int) -> dict[str, Any]:
    from captions_for_benchmarks import captions, plain

    source, raw = captions(images)
    texts = [[plain(text) for text in of] for of in raw]
    said = {str(i): of[0] for i, of in enumerate(texts)}
    heard = {str(i): of[1:] for i, of in enumerate(texts)}
    corpus.write_text(json.dumps([said, heard]), encoding="utf-8")
    return {"captions": source, "images": len(said), "references": sum(map(len, heard.values()))}


def compile_index(corpus: Path) -> None:
    os.environ["SIGHTLINE_CACHE"] = str(corpus.parent / "cache")
    from sightline.metrics.meteor_data import open_data

    open_data()


def sightline(corpus: Path) -> list[float]:
    from sightline.metrics.meteor import Meteor

    said, heard = json.loads(corpus.read_text(encoding="utf-8"))
    metric = Meteor()
    metric.update(said, heard)
    scores = metric.compute()
    return [scores.corpus["METEOR"], *(scores.per_image[id]["METEOR"] for id in said)]


def java(corpus: Path) -> list[float]:
    from pycocoevalcap.meteor.meteor import Meteor

    said, heard = json.loads(corpus.read_text(encoding="utf-8"))
    tool = Meteor()
    whole, images = tool.compute_score(heard, {id: [text] for id, text in said.items()})
    del tool  # ends the Java process
    return [whole, *images]


def run(part: str, corpus: Path, images: int = 0) -> Run:
    """One of the functions above, in a process of its own.

    Its peak memory counts what this process holds when it begins: this one stays small and imports little.
    """
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        command = [sys.executable, __file__, "--images", str(images), "--part", part, str(corpus)]
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        if status:
            raise SystemExit(f"{part} failed")
        out.seek(0)
        result = json.load(out)
    cpu = usage.ru_utime + usage.ru_stime
    return {"cpu_s": cpu, "wall_s": wall, "peak_mb": usage.ru_maxrss / 1024, "result": result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=3, help="runs of Sightline's side, the best counts")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, corpus = options.part[0], Path(options.part[1])
        result = prepare(corpus, options.images) if part == "prepare" else globals()[part](corpus)
        print(json.dumps(result))
        return
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.json"
        report = run("prepare", corpus, options.images)["result"]
        report["compiling"] = run("compile_index", corpus)
        run("sightline", corpus)  # compiles the user's own index where it is missing
        runs = [run("sightline", corpus) for _ in range(options.repeats)]
        report["sightline"] = min(runs, key=lambda run: float(run["cpu_s"]))
        report["java"] = run("java", corpus) if shutil.which("java") else None
    if report["java"]:
        both = zip(report["sightline"]["result"], report["java"]["result"], strict=True)
        report["largest_difference"] = max(abs(a - b) for a, b in both)
    for part in ("compiling", "sightline", "java"):
        (report[part] or {}).pop("result", None)
    print(json.dumps(report) if options.json else printed(report))


def printed(report: dict[str, Any]) -> str:
    mine, peer, compiling = report["sightline"], report["java"], report["compiling"]
    lines = [
        f"METEOR, {report['captions']}: {report['images']} images, {report['references']} references",
        f"{'':18}{'Java':>10}{'Sightline':>11}{'ratio':>8}   compiling the index, once",
    ]
    for key, name in {"cpu_s": "CPU seconds", "wall_s": "wall seconds", "peak_mb": "peak memory, MB"}.items():
        other = f"{peer[key]:.2f}" if peer else "not here"
        ratio = f"{peer[key] / mine[key]:.1f}x" if peer else ""
        lines.append(f"{name:18}{other:>10}{mine[key]:11.2f}{ratio:>8}{compiling[key]:11.2f}")
    if peer:
        lines.append(f"largest difference of a score: {report['largest_difference']:.1e}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
