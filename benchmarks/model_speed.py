"""How large each kind of model is, and how long it takes for a photo on this CPU, at the sizes of its recipe.

    python benchmarks/model_speed.py [--photos 16] [--repeat 3] [--threads 1] [--out docs/results/speed.json]

Weights and features are random: a product takes as long whatever is multiplied. Captions are made by beam 3 and have
exactly ten words, since a random END would end them at random. Matchers make the vectors of the photo. Photos are taken
one by one, as a person with one photo does; the median counts, and the best of the repeats. Times are CPU time, which
other jobs change less than wall time; measure on an idle machine all the same. The vision model is no part: its time is
the same for all, and `benchmarks/caption_speed.py` measures it.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from sightline.batch import SceneBatch
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam
from sightline.files import write_json
from sightline.models.captioner import Captioner
from sightline.models.model_configs import ModelConfig
from sightline.training.recipe import SHIPPED, read_recipe
from sightline.training.results import hardware

VOCABULARY = 9_490  # ids of COCO's words in the usual split, as in docs/methods
REGIONS, CELLS, CONCEPTS = 36, (7, 7), 5
BEAM, WORDS = 3, 10
ROWS = {  # the row whose sizes stand for a kind of model
    "neuraltalk2": "contrastive/table-5#NT",
    "adaptive-attention": "contrastive/table-4#Base",
    "updown": "pos-scan/table-1#Up-Down",
    "jran": "jran/table-1#line-6-XE",
    "sim-trans": "jran/table-4#Sim-Trans-XE",
    "jran-trans": "jran/table-4#JRAN-Trans-BS3-XE",
    "r2m": "r2m/table-1#COCO-Flickr30k",
    "scan": "pos-scan/table-1#SCAN",
    "pos-scan": "pos-scan/table-1#POS-SCAN",
    "vsepp": "vsrn/table-3#VSE++",
    "vsrn": "vsrn/table-4#4RRR+GSR",
}


def scene(config: ModelConfig) -> SceneBatch:
    """One photo with all that any model reads, as wide as `config` says."""
    region, grid, vector = (getattr(config, f"{name}_width", 512) for name in ("region", "grid", "vector"))
    corner = torch.rand(1, REGIONS, 2) * 0.5
    cells = CELLS[0] * CELLS[1]
    return SceneBatch(
        ids=("photo",),
        regions=torch.randn(1, REGIONS, region),
        region_mask=torch.ones(1, REGIONS, dtype=torch.bool),
        boxes=torch.cat([corner, corner + 0.1 + torch.rand(1, REGIONS, 2) * 0.4], -1),
        scores=torch.rand(1, REGIONS).sort(descending=True).values,
        grid=torch.randn(1, cells, grid),
        grid_mask=torch.ones(1, cells, dtype=torch.bool),
        grid_shapes=(CELLS,),
        vector=torch.randn(1, vector),
        concepts=torch.randint(4, VOCABULARY, (1, CONCEPTS)),
        concept_mask=torch.ones(1, CONCEPTS, dtype=torch.bool),
        concept_scores=torch.rand(1, CONCEPTS),
        sizes=torch.tensor([[640, 480]]),
    )


@torch.inference_mode()
def measure(kind: str, photos: int = 16, repeat: int = 3) -> dict[str, Any]:
    """Parameters and milliseconds of a kind of model."""
    table, _, row = ROWS[kind].partition("#")
    config = read_recipe(SHIPPED / f"{table}.yaml", row).model
    torch.manual_seed(0)
    model = config.build(VOCABULARY).eval()
    scenes = [scene(config) for _ in range(photos)]
    rules = Rules(min_words=WORDS, max_words=WORDS)
    medians = []
    for _ in range(repeat):
        times = []
        for one in scenes:
            start = time.process_time()
            if isinstance(model, Captioner):
                decode(model, model.encode(one), Beam(size=BEAM), rules)
            else:
                model.embed_images(one)
            times.append(1e3 * (time.process_time() - start))
        medians.append(statistics.median(times))
    return {
        "kind": kind,
        "does": "captions" if isinstance(model, Captioner) else "matching",
        "parameters": sum(part.numel() for part in model.parameters()),
        "ms": round(min(medians), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the measurements as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = []
    for kind in ROWS:
        found.append(measure(kind, options.photos, options.repeat))
        print("{kind:20} {parameters:>12,} parameters {ms:8.2f} ms a photo".format(**found[-1]), flush=True)
    if options.out is not None:
        values = {
            "hardware": hardware("cpu"),
            "date": datetime.date.today().isoformat(),
            "threads": options.threads,
            "vocabulary": VOCABULARY,
            "regions": REGIONS,
            "beam": BEAM,
            "words": WORDS,
            "models": found,
        }
        write_json(options.out, values, indent=1)


if __name__ == "__main__":
    main()
