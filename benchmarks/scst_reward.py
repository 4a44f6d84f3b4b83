"""The SCST reward: CIDEr-D of a batch of samples, Sightline against the usual scorer, in the same run.

The usual scorer is written here the way self-critical code does it: ids become text, references are counted again at
every call, document frequencies are read through a `defaultdict`, vectors are dictionaries.

    python benchmarks/scst_reward.py [--images 20000] [--captions 250] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict

import numpy as np

from captions_for_benchmarks import captions, plain
from sightline.metrics.cider import DocumentFrequencies
from sightline.metrics.cider_reward import CiderDReward
from timing import cpu_seconds

END = 2
Counts = dict[tuple[str, ...], int]


def usual_scorer(
    df: defaultdict[tuple[str, ...], float], images: int, samples: list[str], refs: list[list[str]]
) -> list[float]:
    scores = []
    for sample, sentences in zip(samples, refs, strict=True):
        said = vectors(ngrams(sample), df, images)
        total = np.zeros(4)
        for sentence in sentences:
            total += similarity(said, vectors(ngrams(sentence), df, images))
        scores.append(float(np.mean(total) / len(sentences) * 10.0))
    return scores


def ngrams(sentence: str) -> Counts:
    words = sentence.split()
    counts: Counts = defaultdict(int)
    for n in range(1, 5):
        for i in range(len(words) - n + 1):
            counts[tuple(words[i : i + n])] += 1
    return counts


Vectors = tuple[list[dict[tuple[str, ...], float]], list[float], int]


def vectors(counts: Counts, df: defaultdict[tuple[str, ...], float], images: int) -> Vectors:
    weights: list[dict[tuple[str, ...], float]] = [defaultdict(float) for _ in range(4)]
    squares = [0.0] * 4
    length = 0
    for words, count in counts.items():
        n = len(words) - 1
        weights[n][words] = float(count) * (np.log(float(images)) - np.log(max(1.0, df[words])))
        squares[n] += pow(weights[n][words], 2)
        length += count if n == 1 else 0
    return weights, [np.sqrt(s) for s in squares], length


def similarity(said: Vectors, heard: Vectors) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.zeros(4)
    for n in range(4):
        for words in said[0][n]:
            values[n] += min(said[0][n][words], heard[0][n][words]) * heard[0][n][words]
        if said[1][n] and heard[1][n]:
            values[n] /= said[1][n] * heard[1][n]
        values[n] *= math.e ** (-(float(said[2] - heard[2]) ** 2) / 72.0)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=20_000, help="images the document frequencies come from")
    parser.add_argument("--captions", type=int, default=250, help="samples in a batch")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()

    source, raw = captions(options.images)
    texts = [[plain(caption) for caption in of] for of in raw]
    number: dict[str, int] = {}
    ids = [[[number.setdefault(word, len(number) + 4) for word in text.split()] for text in of] for of in texts]
    written = [[" ".join(map(str, [*sentence, END])) for sentence in of] for of in ids]
    df = DocumentFrequencies.of(written)
    start = time.process_time()
    reward = CiderDReward(ids)
    cook = time.process_time() - start
    rows = []
    for samples_an_image in (5, 1):
        rng = np.random.default_rng(samples_an_image)
        chosen = rng.choice(len(ids), -(-options.captions // samples_an_image), replace=False)
        image = np.repeat(chosen, samples_an_image)[: options.captions]
        samples = make_samples(rng, ids, image)
        said = [" ".join(map(str, row[: row.tolist().index(END) + 1])) for row in samples]
        heard = [written[i] for i in image]
        table: defaultdict[tuple[str, ...], float] = defaultdict(float, df.counts)
        peer_scores = usual_scorer(table, len(ids), said, heard)
        difference = float(np.abs(reward(image, samples) - peer_scores).max())
        peer = cpu_seconds(lambda t=table, s=said, h=heard: usual_scorer(t, len(ids), s, h), 5)  # type: ignore[misc]
        ours = cpu_seconds(lambda i=image, s=samples: reward(i, s), 30)  # type: ignore[misc]
        rows.append(
            {
                "images": len(set(image.tolist())),
                "captions": len(image),
                "usual_ms": peer * 1e3,
                "sightline_ms": ours * 1e3,
                "ratio": peer / ours,
                "largest_difference": difference,
                "usual_table_grew_by": len(table) - len(df.counts),
            }
        )
    report = {"captions": source, "document_frequency_images": len(ids), "cook_seconds": cook, "batches": rows}
    print(json.dumps(report) if options.json else table_of(report, rows))


def make_samples(
    rng: np.random.Generator, ids: list[list[list[int]]], image: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Samples like those of training: a reference of the image with a third of its words drawn anew."""
    samples = np.zeros((len(image), 21), np.int64)
    for row, i in zip(samples, image, strict=True):
        words = [w if rng.random() < 0.67 else int(rng.choice(ids[rng.integers(len(ids))][0])) for w in ids[i][0][:20]]
        row[: len(words)] = words
        row[len(words)] = END
    return samples


def table_of(report: dict[str, object], rows: list[dict[str, float]]) -> str:
    lines = [
        f"{report['captions']}, document frequencies of {report['document_frequency_images']} images, CPU time; "
        f"cooking the references once: {report['cook_seconds']:.2f} s",
        "  captions  images     usual  Sightline   ratio  largest difference  usual table grew by",
    ]
    for row in rows:
        lines.append(
            f"{row['captions']:10d}{row['images']:8d}{row['usual_ms']:8.1f} ms{row['sightline_ms']:8.2f} ms"
            f"{row['ratio']:7.0f}x{row['largest_difference']:20.1e}{row['usual_table_grew_by']:21d}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
