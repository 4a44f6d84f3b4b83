"""How often people hallucinate objects and make faults of language: COCO's captions, each against the other four.

Photos are those of Karpathy's split that `pseudo_boxes.jsonl.gz` has boxes of. Each photo's first five captions are
scored in five turns, as `sightline score --metrics chair language diversity --instances pseudo_boxes.jsonl.gz` scores
them; the mean of the turns is printed, and beside it CHAIR without boxes.

    SIGHTLINE_DATA=... python benchmarks/captions_of_people.py [--split test]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from sightline.data import boxes_jsonl, coco
from sightline.data.image_list import read_names
from sightline.metrics.scorecard import TITLES, scorecard

CAPTIONS = 5  # of every photo; a few have more
METRICS = ["chair", "language", "diversity"]


def coco_id(name: str) -> str:
    """The id in a file name: COCO_val2014_000000391895.jpg is 391895."""
    return str(int(Path(name).stem.rsplit("_", 1)[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--split", choices=("val", "test"), default="val", help="of Karpathy's (default: val)")
    options = parser.parse_args()
    folder = Path(os.environ.get("SIGHTLINE_DATA", "")) / "coco"
    if "SIGHTLINE_DATA" not in os.environ or not (folder / "pseudo_boxes.jsonl.gz").exists():
        print(
            "left out: needs captions_val2014.json.gz, Karpathy's lists and pseudo_boxes.jsonl.gz "
            "in $SIGHTLINE_DATA/coco"
        )
        return
    boxes = boxes_jsonl.read(folder / "pseudo_boxes.jsonl.gz")
    captions = coco.read_captions(folder / "captions_val2014.json.gz")
    ids = [id for name in read_names(folder / f"karpathy_{options.split}.txt.gz") if (id := coco_id(name)) in boxes]
    said = {id: [sentence.text for sentence in captions[id].sentences[:CAPTIONS]] for id in ids}
    objects = {id: {one.name for one in boxes[id].concepts} for id in ids}
    with_boxes, without = [], []
    for turn in range(CAPTIONS):
        one = {id: texts[turn] for id, texts in said.items()}
        others = {id: texts[:turn] + texts[turn + 1 :] for id, texts in said.items()}
        with_boxes.append(scorecard(one, others, METRICS, objects=objects).scores.corpus)
        without.append(scorecard(one, others, ["chair"]).scores.corpus)
    print(f"People, {len(ids):,} photos of COCO {options.split}, {CAPTIONS} captions each against the other four")
    for key in with_boxes[0]:
        beside = f"   references alone {np.mean([row[key] for row in without]):.2f}" if key in without[0] else ""
        print(f"{TITLES[key]:32s}{np.mean([row[key] for row in with_boxes]):10.2f}{beside}")


if __name__ == "__main__":
    main()
