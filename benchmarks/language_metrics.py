"""BLEU, ROUGE-L and CIDEr-D, Sightline against pycocoevalcap and torchmetrics: CPU seconds, the largest difference.

    python benchmarks/language_metrics.py [--images 5000] [--without-java] [--json]

The PTB tokenizer and METEOR, which pycocoevalcap runs in Java (counted: its child processes' time too), take part where
Java is installed. torchmetrics has two of the metrics, and less of each: BLEU-4 of the corpus alone, and ROUGE-L as the
best F1, where captioning takes the best precision and recall with β = 1.2. So its BLEU-4 is compared, and its ROUGE-L
is not. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.util
import io
import json
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from captions_for_benchmarks import captions, plain
from sightline.metrics.bleu import Bleu
from sightline.metrics.cider import CIDErD
from sightline.metrics.language_metric import LanguageMetric
from sightline.metrics.rouge import RougeL

PEERS = {
    "BLEU-1…4": "bleu.bleu.Bleu",
    "ROUGE-L": "rouge.rouge.Rouge",
    "CIDEr-D": "cider.cider.Cider",
    "METEOR": "meteor.meteor.Meteor",
}
IN_TORCHMETRICS = ("BLEU-1…4", "ROUGE-L")
Table = list[list[float]]


def cpu_seconds() -> float:
    """Of this process and its finished children."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def measured(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The fewest CPU seconds of some runs, and what the last one gave."""
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        start = cpu_seconds()
        result = call()
        best = min(best, cpu_seconds() - start)
    return best, result


def ours(metric: LanguageMetric, said: dict[str, str], heard: dict[str, list[str]]) -> Table:
    """Update and compute; a row for the corpus, then one for each image."""
    metric.reset()
    metric.update(said, heard)
    scores = metric.compute()
    return [list(scores.corpus.values()), *(list(row.values()) for row in scores.per_image.values())]


def peer(name: str, said: dict[str, str], heard: dict[str, list[str]]) -> Table:
    """The same of pycocoevalcap."""
    module, _, kind = f"pycocoevalcap.{PEERS[name]}".rpartition(".")
    with contextlib.redirect_stdout(io.StringIO()):
        scorer = getattr(importlib.import_module(module), kind)()
        corpus, images = scorer.compute_score(heard, {id: [text] for id, text in said.items()})
        del scorer  # METEOR's Java process ends with it
    rows = np.array(images, np.float64)
    return [np.atleast_1d(corpus).tolist(), *(rows.T if rows.ndim == 2 else rows[:, None]).tolist()]


def torchmetrics_score(name: str, said: dict[str, str], heard: dict[str, list[str]]) -> float:
    """What torchmetrics gives the corpus."""
    text: Any = importlib.import_module("torchmetrics.text")
    score = text.BLEUScore(n_gram=4) if name == "BLEU-1…4" else text.ROUGEScore(rouge_keys="rougeL", accumulate="best")
    score.update([*said.values()], [*heard.values()])
    found = score.compute()
    return float(found["rougeL_fmeasure"] if isinstance(found, dict) else found)


def tokenise_peer(raw: list[list[str]]) -> list[list[str]]:
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    with contextlib.redirect_stderr(io.StringIO()):
        found = PTBTokenizer().tokenize({i: [{"caption": text} for text in of] for i, of in enumerate(raw)})
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--without-java", action="store_true", help="leave the tokenizer and METEOR out")
    parser.add_argument("--repeats", type=int, default=5, help="runs of Sightline's side, the best counts")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()

    source, raw = captions(options.images)
    texts = [[plain(text) for text in of] for of in raw]
    said = {str(i): of[0] for i, of in enumerate(texts)}
    heard = {str(i): of[1:] for i, of in enumerate(texts)}
    has_peer, has_torchmetrics = (
        importlib.util.find_spec(name) is not None for name in ("pycocoevalcap", "torchmetrics")
    )
    rows: list[dict[str, Any]] = []

    metrics: dict[str, LanguageMetric] = {"BLEU-1…4": Bleu(), "ROUGE-L": RougeL(), "CIDEr-D": CIDErD()}
    if shutil.which("java") and not options.without_java:
        tokenise = importlib.import_module("sightline.text.tokenizer").ptb_tokenize_all
        metrics["METEOR"] = importlib.import_module("sightline.metrics.meteor").Meteor()
        mine, words = measured(lambda: tokenise([text for of in raw for text in of]), options.repeats)
        other, theirs = measured(lambda: tokenise_peer(raw), 1) if has_peer else (None, [])
        differ = sum(a != b for a, b in zip(words, (t for of in theirs for t in of), strict=False))
        rows.append(row("PTB tokenizer", mine, other, float(differ) if has_peer else None))
    for name, metric in metrics.items():
        mine, table = measured(lambda m=metric: ours(m, said, heard), options.repeats)  # type: ignore[misc]
        other, expected = measured(lambda n=name: peer(n, said, heard), 1) if has_peer else (None, None)  # type: ignore[misc]
        difference = float(np.abs(np.array(table) - np.array(expected)).max()) if has_peer else None
        rows.append(row(name, mine, other, difference))
        if has_torchmetrics and name in IN_TORCHMETRICS:
            torchmetrics_score(name, {"0": said["0"]}, {"0": heard["0"]})  # imports are no part of it
            seconds, score = measured(lambda n=name: torchmetrics_score(n, said, heard), 1)  # type: ignore[misc]
            apart = abs(score - table[0][3]) if name == "BLEU-1…4" else None  # the fourth of the corpus is BLEU-4
            rows[-1] |= {"torchmetrics_s": seconds, "torchmetrics_difference": apart}
    total = sum(r["sightline_s"] for r in rows)
    rows.append(row("together", total, sum(r["pycocoevalcap_s"] for r in rows) if has_peer else None, None))
    report = {"captions": source, "images": len(said), "references": sum(map(len, heard.values())), "rows": rows}
    print(json.dumps(report) if options.json else printed(report))


def row(name: str, mine: float, other: float | None, difference: float | None) -> dict[str, Any]:
    ratio = None if other is None else other / mine
    found = {"metric": name, "sightline_s": mine, "pycocoevalcap_s": other, "ratio": ratio, "difference": difference}
    return {**found, "torchmetrics_s": None, "torchmetrics_difference": None}


def printed(report: dict[str, Any]) -> str:
    lines = [
        f"{report['captions']}: {report['images']} images, {report['references']} references; CPU seconds",
        f"{'':14}{'torchmetrics':>13}{'pycocoevalcap':>14}{'Sightline':>11}{'ratio':>8}  largest difference to "
        "pycocoevalcap (tokenizer: sentences)",
    ]
    for r in report["rows"]:
        other = f"{r['pycocoevalcap_s']:.2f}" if r["pycocoevalcap_s"] is not None else "not here"
        third = f"{r['torchmetrics_s']:.2f}" if r["torchmetrics_s"] is not None else ""
        ratio = f"{r['ratio']:.1f}x" if r["ratio"] is not None else ""
        difference = f"{r['difference']:.1e}" if r["difference"] is not None else ""
        lines.append(f"{r['metric']:14}{third:>13}{other:>14}{r['sightline_s']:11.3f}{ratio:>8}  {difference}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
