"""What JRAN's relationships cost (the paper's Fig. 6a): parameters and the time of a training step, row by row.

The models are those of the shipped recipes: Sim-Trans and JRAN-Trans of Table 4, which Fig. 6 compares, and below them
the LSTM models, Baseline and JRAN of Tables 2 and 1. X-Transformer and SC of the figure are not in Sightline. A step is
forward, backward and Adam with cross-entropy, dropout on, over photos with 36 regions of 512 numbers, 25 grid cells of
1,280, and 5 captions of 10 words each; the numbers themselves are random. Times are CPU time on a CPU, wall time
elsewhere, the best of some steps; the models take turns, since other programs may run.

    python benchmarks/jran_cost.py [--images 50] [--steps 10] [--threads 1] [--device auto] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.devices import choose_device
from sightline.models.captioner import Captioner
from sightline.text.vocabulary import END, SPECIALS, START
from sightline.training.recipe import SHIPPED, read_recipe
from timing import best_seconds

WORDS, LENGTH, CAPTIONS = 9_490, 10, 5  # ids of COCO by the rule `self-critical`; words of a caption; of a photo
REGIONS, CELLS = 36, 25  # of the detector: 320 pixels are 10 × 10 cells, averaged 2 × 2
ROWS = {
    "Sim-Trans": ("table-4", "Sim-Trans-XE"),
    "JRAN-Trans": ("table-4", "JRAN-Trans-BS3-XE"),
    "Baseline": ("table-2", "Baseline-XE"),
    "JRAN": ("table-1", "line-6-XE"),
}


def models() -> dict[str, Captioner]:
    """The captioner of each row."""
    found: dict[str, Captioner] = {}
    for name, (table, row) in ROWS.items():
        built = read_recipe(SHIPPED / "jran" / f"{table}.yaml", row).model.build(WORDS)
        assert isinstance(built, Captioner)
        found[name] = built
    return found


def make_batch(images: int) -> tuple[SceneBatch, Tensor]:
    """Random scenes and captions (images · CAPTIONS, LENGTH + 2)."""
    torch.manual_seed(0)
    scenes = SceneBatch(
        tuple(map(str, range(images))),
        regions=torch.rand(images, REGIONS, 512),
        grid=torch.rand(images, CELLS, 1280),
        grid_shapes=((5, 5),) * images,
    )
    count = images * CAPTIONS
    said = torch.randint(len(SPECIALS), WORDS, (count, LENGTH))
    return scenes, torch.cat([torch.full((count, 1), START), said, torch.full((count, 1), END)], 1)


def training_step(model: Captioner, scenes: SceneBatch, words: Tensor) -> Callable[[], None]:
    """A step of cross-entropy."""
    optimiser = torch.optim.Adam(model.train().parameters(), lr=3e-4)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss = -model.log_prob(model.encode(scenes), words).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def measure(images: int, steps: int, device: torch.device) -> list[dict[str, Any]]:
    """A row for each model."""
    scenes, words = make_batch(images)
    scenes, words = scenes.to(device), words.to(device)
    built = {name: model.to(device) for name, model in models().items()}
    calls = {name: training_step(model, scenes, words) for name, model in built.items()}
    seconds = best_seconds(calls, steps, device)
    return [
        {
            "model": name,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "step_ms": 1e3 * seconds[name],
        }
        for name, model in built.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    device = choose_device(given.device)
    found = measure(given.images, given.steps, device)
    if given.json:
        print(json.dumps({"device": str(device), "images": given.images, "rows": found}, indent=2))
        return
    print(f"{given.images} photos with {CAPTIONS} captions a step, {device}, PyTorch {torch.__version__}")
    for row in found:
        print(f"{row['model']:<12}{row['parameters'] / 1e6:8.1f} M parameters{row['step_ms']:10.1f} ms a step")


if __name__ == "__main__":
    main()
