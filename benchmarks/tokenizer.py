"""The PTB tokenizer against the Java tool it equals: one new process each, from a file of captions to their tokens.

    python benchmarks/tokenizer.py [--captions 20014 100000] [--rounds 3] [--json]

Starting Python and starting the JVM are counted; nothing is remembered from one run to the next. `tokens only` is
Sightline's time without its start and its files. `different` counts captions whose words are not the same. Without Java
and pycocoevalcap only Sightline is measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from captions_for_benchmarks import captions
from sightline.text.tokenizer import PUNCTUATION, ptb_tokenize_all

OURS = """
import sys, time
from pathlib import Path
from sightline.text.tokenizer import ptb_tokenize_all
texts = Path(sys.argv[1]).read_text(encoding="utf-8").split("\\n")
start = time.perf_counter()
lines = ptb_tokenize_all(texts)
print(time.perf_counter() - start, file=sys.stderr)
sys.stdout.reconfigure(encoding="utf-8")
sys.stdout.write("\\n".join(lines))
"""


def java_command() -> list[str] | None:
    spec = importlib.util.find_spec("pycocoevalcap")
    if not shutil.which("java") or spec is None or not spec.submodule_search_locations:
        return None
    jar = Path(spec.submodule_search_locations[0]) / "tokenizer" / "stanford-corenlp-3.4.1.jar"
    return ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]


def best_run(command: list[str], rounds: int) -> tuple[float, float, str, str]:
    """Wall and CPU seconds of the fastest of some runs, and what it printed."""
    runs = []
    for _ in range(rounds):
        start, before = time.perf_counter(), os.times()
        done = subprocess.run(command, check=True, capture_output=True)
        wall, after = time.perf_counter() - start, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        runs.append((wall, cpu, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")))
    return min(runs)


def measure(texts: list[str], rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "captions.txt"
        path.write_text("\n".join(texts), encoding="utf-8")
        wall, cpu, _, seconds = best_run([sys.executable, "-c", OURS, str(path)], rounds)
        row: dict[str, Any] = {
            "captions": len(texts),
            "sightline": {"wall_s": wall, "cpu_s": cpu, "captions_per_s": len(texts) / wall},
            "tokens_only": {"wall_s": float(seconds), "captions_per_s": len(texts) / float(seconds)},
        }
        if java := java_command():
            wall, cpu, printed, _ = best_run([*java, str(path)], rounds)
            row["java"] = {"wall_s": wall, "cpu_s": cpu, "captions_per_s": len(texts) / wall}
            row["ratio_wall"] = wall / row["sightline"]["wall_s"]
            row["ratio_cpu"] = cpu / row["sightline"]["cpu_s"]
            theirs = [
                " ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION)
                for line in printed.split("\n")
            ]
            mine = ptb_tokenize_all(texts, one_file=True)
            row["different"] = sum(a != b for a, b in zip(mine, theirs[: len(mine)], strict=True))
    return row


def printed(source: str, rows: list[dict[str, Any]]) -> str:
    lines = [source, f"{'captions':>10}{'':4}{'side':<14}{'wall s':>8}{'CPU s':>8}{'captions/s':>12}"]
    for row in rows:
        for side in ("java", "sightline", "tokens_only"):
            if side in row:
                seconds = row[side]
                cpu = f"{seconds['cpu_s']:.2f}" if "cpu_s" in seconds else ""
                lines.append(
                    f"{row['captions']:>10,}{'':4}{side.replace('_', ' '):<14}{seconds['wall_s']:>8.2f}{cpu:>8}"
                    f"{seconds['captions_per_s']:>12,.0f}"
                )
        if "java" in row:
            lines.append(
                f"{'':14}Sightline is {row['ratio_wall']:.1f} times as fast by the clock, {row['ratio_cpu']:.1f} times "
                f"by CPU; {row['different']} captions different"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--captions", type=int, nargs="+", default=[20_014, 100_000])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, the best counts")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    source, images = captions(-(-max(options.captions) // 5))
    texts = [" ".join(text.split("\n")) for of in images for text in of]
    rows = [measure(texts[:count], options.rounds) for count in options.captions]
    print(json.dumps({"source": source, "rows": rows}) if options.json else printed(source, rows))


if __name__ == "__main__":
    main()
