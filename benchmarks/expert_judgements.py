"""How well each metric orders captions as people do: Kendall's tau-c with Flickr8k's expert judgements.

Each of the three experts' scores counts on its own; a caption written for the photo itself is left out, which leaves
5,664 x 3 judgements; references are the photo's five captions. The halves are the photos whose names have an even and
an odd CRC-32. Rules of SPICE's parser were compared on the even half with the odd half printed beside it: neither is an
unseen test for SPICE.

    SIGHTLINE_DATA=... python benchmarks/expert_judgements.py [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightline.data.text_lists import Judgement, read_judgements
from sightline.data.text_lists import read_flickr as read_captions
from sightline.errors import DataError
from sightline.metrics.scorecard import METRICS, default_metrics
from sightline.text.tokenizer import ptb_tokenize_all

# Flickr8K-Expert column of Table 1 in CLIPScore (Hessel et al. 2021), measured there with coco-caption.
PUBLISHED = {"Bleu_1": 0.323, "Bleu_4": 0.308, "ROUGE_L": 0.323, "METEOR": 0.418, "CIDEr": 0.439, "SPICE": 0.449}
BASELINE = "IDF overlap"


@dataclass(frozen=True)
class Judged:
    """Captions with the references they are scored against and the experts' scores."""

    rows: list[Judgement]
    hypotheses: dict[str, str]
    references: dict[str, list[str]]


def load(folder: Path) -> Judged:
    photos = read_captions(folder / "Flickr8k.token.txt")
    rows = [r for r in read_judgements(folder / "ExpertAnnotations.txt") if not r.caption.startswith(f"{r.image}#")]
    texts = {str(sentence.id): sentence.text for photo in photos for sentence in photo.sentences}
    names = {row.image: [str(sentence.id) for sentence in photos[row.image].sentences] for row in rows}
    needed = sorted({row.caption for row in rows}.union(*names.values()))
    tokenised = dict(zip(needed, ptb_tokenize_all([texts[id] for id in needed]), strict=True))
    hypotheses = {str(place): tokenised[row.caption] for place, row in enumerate(rows)}
    references = {str(place): [tokenised[id] for id in names[row.image]] for place, row in enumerate(rows)}
    return Judged(rows, hypotheses, references)


def idf_overlap(judged: Judged) -> list[float]:
    """The baseline: the share of a caption's words, weighed by inverse document frequency, that a reference has."""
    photos = {row.image: judged.references[str(place)] for place, row in enumerate(judged.rows)}
    found = Counter(word for captions in photos.values() for word in {w for text in captions for w in text.split()})
    scores = []
    for id, hypothesis in judged.hypotheses.items():
        heard = {word for reference in judged.references[id] for word in reference.split()}
        weights = {word: math.log(len(photos) / max(1, found[word])) for word in hypothesis.split()}
        total = sum(weights.values())
        scores.append(sum(weight for word, weight in weights.items() if word in heard) / total if total else 0.0)
    return scores


def tau_c(scores: npt.ArrayLike, judgements: npt.ArrayLike) -> float:
    """Kendall's tau-c (Stuart 1953) of two rows of numbers, from -1 to 1; nan where one of them has a single value.

    Pairs are counted from running sums over the table of distinct values, so time and memory grow with
    `distinct scores x distinct judgements`: the scale of one of the two should have few steps.
    """
    x, y = np.asarray(scores, np.float64), np.asarray(judgements, np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise DataError(
            f"tau-c of rows of shapes {x.shape} and {y.shape}", fix="give one score and one judgement for each item"
        )
    if np.isnan(x).any() or np.isnan(y).any():
        raise DataError("tau-c of numbers that are not all known", fix="leave out the items without a score")
    _, rows = np.unique(x, return_inverse=True)
    _, columns = np.unique(y, return_inverse=True)
    steps = min(rows.max(initial=0), columns.max(initial=0)) + 1
    if steps < 2:
        return float("nan")
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    above = table.sum(axis=0) - table.cumsum(axis=0)  # items with a higher score, by judgement
    up_to = above.cumsum(axis=1)
    concordant = (table * (up_to[:, -1:] - up_to)).sum()
    discordant = (table * (up_to - above)).sum()
    return float(2 * steps * (concordant - discordant) / (len(x) ** 2 * (steps - 1)))


def measure(judged: Judged) -> list[dict[str, float | str | None]]:
    scores: dict[str, tuple[str, list[float], float]] = {}
    start = time.process_time()
    scores[BASELINE] = (BASELINE, idf_overlap(judged), time.process_time() - start)
    for name in default_metrics():
        metric = METRICS[name]()
        start = time.process_time()
        metric.update(judged.hypotheses, judged.references)
        per_image = metric.compute().per_image
        seconds = time.process_time() - start
        for key in metric.keys:
            title = metric.title if len(metric.keys) == 1 else key
            scores[key] = (title, [per_image[id][key] for id in judged.hypotheses], seconds)
    odd = np.array([zlib.crc32(row.image.encode()) % 2 == 1 for row in judged.rows])
    experts = np.array([row.scores for row in judged.rows])
    return [
        {
            "metric": title,
            "tau_c": tau_c(np.repeat(values, 3), experts.ravel()),
            "tau_c_even": tau_c(np.repeat(np.array(values)[~odd], 3), experts[~odd].ravel()),
            "tau_c_odd": tau_c(np.repeat(np.array(values)[odd], 3), experts[odd].ravel()),
            "published": PUBLISHED.get(key),
            "cpu_seconds": seconds,
        }
        for key, (title, values, seconds) in scores.items()
    ]


def table(rows: list[dict[str, float | str | None]], count: int) -> str:
    lines = [
        f"Flickr8k expert judgements, {count:,} captions x 3 experts; published: Table 1 of Hessel et al. 2021",
        f"{'':26s}{'tau-c':>8s}{'published':>11s}{'even half':>11s}{'odd half':>10s}{'CPU time':>11s}",
    ]
    for row in rows:
        published = f"{row['published']:.3f}" if row["published"] else ""
        lines.append(
            f"{row['metric']:26s}{row['tau_c']:8.4f}{published:>11s}{row['tau_c_even']:11.4f}"
            f"{row['tau_c_odd']:10.4f}{row['cpu_seconds']:9.1f} s"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    folder = Path(os.environ.get("SIGHTLINE_DATA", "")) / "flickr8k"
    if "SIGHTLINE_DATA" not in os.environ or not (folder / "ExpertAnnotations.txt").exists():
        print("left out: needs Flickr8k's ExpertAnnotations.txt and Flickr8k.token.txt in $SIGHTLINE_DATA/flickr8k")
        return
    judged = load(folder)
    rows = measure(judged)
    print(json.dumps({"captions": len(judged.rows), "rows": rows}) if options.json else table(rows, len(judged.rows)))


if __name__ == "__main__":
    main()
