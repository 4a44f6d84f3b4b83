"""SPICE (Sightline parser): captions parsed a second, one by one and in batches, and the time of the whole metric.

The Java tool cannot stand beside it: its parser needs models that no package registry carries. One core is used.

    python benchmarks/spice.py [--images 5000] [--json]
"""

from __future__ import annotations

import argparse
import json

from captions_for_benchmarks import captions, plain
from sightline.metrics.scene_graph import parse, parse_all
from sightline.metrics.spice import Spice
from timing import cpu_seconds

PER_IMAGE = 5  # one is taken as the hypothesis, the others as references


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()

    source, raw = captions(options.images, PER_IMAGE)
    texts = [[plain(caption) for caption in of] for of in raw]
    start_up = cpu_seconds(lambda: parse(["a", "dog"]))  # reads WordNet and the tagger's weights
    distinct = list({text for of in texts for text in of})
    some = distinct[: max(1, len(distinct) // 10)]
    one_by_one = len(some) / cpu_seconds(lambda: [parse(text.split()) for text in some])
    batch = len(distinct) / cpu_seconds(lambda: parse_all(distinct))
    metric = Spice()
    metric.update(
        {str(place): of[0] for place, of in enumerate(texts)},
        {str(place): of[1:] for place, of in enumerate(texts)},
    )
    first = cpu_seconds(metric.compute)
    again = cpu_seconds(metric.compute)
    report: dict[str, float | str] = {
        "captions": source,
        "images": len(texts),
        "start_up_seconds": start_up,
        "one_by_one_captions_a_second": one_by_one,
        "batch_captions_a_second": batch,
        "batch_ratio": batch / one_by_one,
        "metric_seconds": first,
        "metric_again_seconds": again,
    }
    print(json.dumps(report) if options.json else table(report))


def table(report: dict[str, float | str]) -> str:
    return (
        f"{report['captions']}, {report['images']:,} images, a caption against {PER_IMAGE - 1} references; CPU time\n"
        f"start-up (WordNet, tagger)  {report['start_up_seconds']:10.2f} s\n"
        f"parse, one by one           {report['one_by_one_captions_a_second']:10,.0f} captions a second\n"
        f"parse, in batches           {report['batch_captions_a_second']:10,.0f} captions a second"
        f"  ({report['batch_ratio']:.1f}x)\n"
        f"whole metric                {report['metric_seconds']:10.2f} s\n"
        f"computed again              {report['metric_again_seconds']:10.2f} s"
    )


if __name__ == "__main__":
    main()
