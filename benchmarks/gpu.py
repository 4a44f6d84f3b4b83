"""Training and decoding on a GPU as a share of what the device could do, and SCAN's retrieval of COCO's size.

    python benchmarks/gpu.py [--device cuda] [--quick] [--json]

Rows, with random weights and numbers of the usual sizes (a product costs the same whatever is multiplied):

    Up-Down, training        cross-entropy, 36 regions of 2,048, hidden 512, 9,487 words, 128 images with 5 captions
    Up-Down, beam 3          captions of ten words, from region features
    default captioner, …     the same for Scene-Trans: 36 regions of 512 and 100 grid cells of 1,280; 256 images with 5
    default model, training  the vision model before it learns, too: photos of 256 pixels, boxes, names and captions
    default model, beam 3    from pixels (320) to words

A training step is what a recipe's is: objective, backward, clipping, optimiser, in bfloat16, without waiting for the
device, Up-Down's recurrence as a CUDA graph (its operators are counted without); what data loading takes is not in it.
Decoding computes in float32, as `sightline caption` does. Limits are those of `roofline.py`, with ceilings measured in
the same run. SCAN is `scan_similarity.py`: 5,000 photos of 36 regions, 25,000 captions, 1,024 numbers, beside the usual
loop over captions, timed on some and scaled. All of it takes about a minute.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import scan_similarity
import updown_training
from roofline import Ceilings, count, least_bytes, measure_ceilings, seconds_of, wait
from sightline.batch import SceneBatch, TextBatch
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEndCaptioner
from sightline.models.scan import SCANConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.updown import UpDownConfig
from sightline.text.vocabulary import SPECIALS, Vocabulary
from sightline.training.batches import Batch
from sightline.training.cuda_graphs import Graphs
from sightline.training.objective import Context, Objective, Progress
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.objectives.detect_and_caption import DetectAndCaptionConfig
from sightline.training.stage import Optimiser
from sightline.vision.concept_names import concept_names
from sightline.vision.detector import DetectorConfig

VOCABULARY = updown_training.VOCABULARY
REGIONS, REGION_WIDTH, CELLS, CELL_WIDTH = 36, 512, (10, 10), 1280
SIZE, TRAINED_SIZE = 320, 256  # pixels a side: of captioning, and of the recipe's first stage
THINGS = 7  # boxes a photo of COCO has
CAPTIONS, BEAM, SAID, CLIP = 5, 3, 10, 2.0
Row = dict[str, Any]


def words() -> Vocabulary:
    return Vocabulary([f"word{number}" for number in range(VOCABULARY - len(SPECIALS))])


def regions_of(images: int, device: torch.device) -> SceneBatch:
    """Regions as Up-Down reads them, at random."""
    regions = torch.randn(images, REGIONS, updown_training.WIDTH, device=device).relu()
    mask = torch.ones(images, REGIONS, dtype=torch.bool, device=device)
    return SceneBatch(ids=("",) * images, regions=regions, region_mask=mask)


def scenes_of(images: int, device: torch.device) -> SceneBatch:
    """What the vision model sees in photos, at random."""
    corners = torch.rand(images, REGIONS, 2, 2, device=device).sort(2).values
    return SceneBatch(
        ids=("",) * images,
        regions=torch.randn(images, REGIONS, REGION_WIDTH, device=device),
        region_mask=torch.ones(images, REGIONS, dtype=torch.bool, device=device),
        boxes=corners.flatten(2),
        grid=torch.randn(images, CELLS[0] * CELLS[1], CELL_WIDTH, device=device),
        grid_mask=torch.ones(images, CELLS[0] * CELLS[1], dtype=torch.bool, device=device),
        grid_shapes=(CELLS,) * images,
    )


def photos_of(images: int, side: int, device: torch.device) -> SceneBatch:
    """Random pixels, with random boxes and names to learn."""
    corners = torch.rand(images, THINGS, 2, 2, device=device).sort(2).values
    return SceneBatch(
        ids=("",) * images,
        pixels=torch.randint(0, 256, (images, 3, side, side), dtype=torch.uint8, device=device),
        true_boxes=corners.flatten(2),
        true_box_mask=torch.ones(images, THINGS, dtype=torch.bool, device=device),
        true_box_names=torch.randint(len(concept_names()), (images, THINGS, 1), device=device),
        true_box_weights=torch.full((images, THINGS), 0.5, device=device),
    )


def training_step(model: nn.Module, objective: Objective, batch: Batch, wanted: bool = True) -> Callable[[], None]:
    """A step as `training/loop.py` takes it, in bfloat16; without CUDA graphs, if they are not wanted."""
    model.train()
    device = batch.photos.device
    optimiser = Optimiser(kind="adamw", lr=1e-5, clip=CLIP).build(dict(model.named_parameters()))
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    weight, graphs = objective.weight(batch), Graphs(wanted)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16), graphs.on(model):
            losses = objective(model, batch, Progress())
        torch.autograd.backward(losses.total / weight)
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimiser.step()

    return step


def trained_bytes(model: nn.Module, *inputs: Tensor | None) -> float:
    """What a step moves at least: inputs; weights twice; gradients, written and read; Adam's weights and moments."""
    weights = least_bytes([*model.parameters()])
    return least_bytes(inputs) + (2 + 2 + 6) * weights


def beam_search(model: Captioner, scenes: SceneBatch) -> Callable[[], None]:
    """Captions of ten words, each."""
    model.eval()
    rules = Rules(min_words=SAID, max_words=SAID)

    def call() -> None:
        with torch.no_grad():
            decode(model, model.encode(scenes), Beam(BEAM), rules)

    return call


@dataclass(frozen=True, eq=False)
class Measuring:
    """Where it is measured, how far that goes, and captions to train on: five for each image."""

    device: torch.device
    quick: bool
    ceilings: Ceilings
    texts: TextBatch

    def batch(self, images: int, scenes: SceneBatch) -> Batch:
        """Scenes with the first of the captions."""
        count = images * CAPTIONS
        texts = TextBatch(self.texts.words[:count], self.texts.ids[:count], self.texts.mask[:count])
        return Batch(torch.arange(images, device=self.device), scenes, texts)

    def row(
        self, name: str, call: Callable[[], None], images: int, least: float, counted: Callable[[], None] | None = None
    ) -> Row:
        """Images a second, and both limits of `roofline.py`; `least` bytes have to be moved.

        Operators are those of `counted`, where the call itself hides them in a graph.
        """
        print(name, file=sys.stderr, flush=True)
        seconds = seconds_of(call, self.device, 0.0 if self.quick else 3.0, warm=1 if self.quick else 3)
        work = count(counted or call)
        wait(self.device)
        roof, operators = self.ceilings.seconds(work.flops, least), work.operators_seconds(self.ceilings)
        return {
            "name": name,
            "images": images,
            "ms": seconds * 1e3,
            "images_per_s": images / seconds,
            "flops": work.flops,
            "bytes": work.bytes,
            "least_bytes": least,
            "operators": len(work.operators),
            "roofline_images_per_s": images / roof,
            "operators_images_per_s": images / operators,
            "share_of_roofline": roof / seconds,
            "share_of_operators": operators / seconds,
        }


def updown_rows(at: Measuring) -> Iterator[Row]:
    images, decoded = (4, 4) if at.quick else (128, 512)
    torch.manual_seed(0)
    model = UpDownConfig().build(VOCABULARY).to(at.device)
    objective = CrossEntropyConfig().build(Context(words())).to(at.device)
    scenes = regions_of(images, at.device)
    batch = at.batch(images, scenes)
    step, counted = (training_step(model, objective, batch, wanted) for wanted in (True, False))
    yield at.row("Up-Down, training", step, images, trained_bytes(model, scenes.regions), counted)
    scenes = regions_of(decoded, at.device)
    least = least_bytes([*model.parameters(), scenes.regions])
    yield at.row(f"Up-Down, beam {BEAM}", beam_search(model, scenes), decoded, least)


def captioner_rows(at: Measuring) -> Iterator[Row]:
    images, decoded = (4, 4) if at.quick else (256, 512)
    torch.manual_seed(0)
    model = SceneTransConfig().build(VOCABULARY).to(at.device)
    objective = CrossEntropyConfig(smoothing=0.1).build(Context(words())).to(at.device)
    scenes = scenes_of(images, at.device)
    step = training_step(model, objective, at.batch(images, scenes))
    yield at.row("default captioner, training", step, images, trained_bytes(model, scenes.regions, scenes.grid))
    scenes = scenes_of(decoded, at.device)
    least = least_bytes([*model.parameters(), scenes.regions, scenes.grid])
    yield at.row(f"default captioner, beam {BEAM}", beam_search(model, scenes), decoded, least)


def model_rows(at: Measuring) -> Iterator[Row]:
    images, decoded = (2, 2) if at.quick else (256, 256)
    torch.manual_seed(0)
    vision = DetectorConfig(size=SIZE, names=concept_names()).build()
    model = EndToEndCaptioner(SceneTransConfig().build(VOCABULARY), vision).to(at.device)
    objective = DetectAndCaptionConfig(size=TRAINED_SIZE).build(Context(words())).to(at.device)
    photos = photos_of(images, TRAINED_SIZE, at.device)
    step = training_step(model, objective, at.batch(images, photos))
    yield at.row("default model, training", step, images, trained_bytes(model, photos.pixels))
    photos = photos_of(decoded, SIZE, at.device)
    least = least_bytes([*model.parameters(), photos.pixels])
    yield at.row(f"default model, beam {BEAM}", beam_search(model, photos), decoded, least)


def scan_row(at: Measuring) -> Row:
    """Retrieval by SCAN; its limits are those of a part, scaled."""
    print("SCAN", file=sys.stderr, flush=True)
    images, captions, sample = (60, 200, 4) if at.quick else (5000, 25_000, 60)
    options = argparse.Namespace(images=images, captions=captions, sample=sample, block=None, device=at.device.type)
    row: Row = scan_similarity.measure(options)
    part = min(images, 256), min(captions, 1280)  # whole blocks
    seen, read = scan_similarity.features(*part, at.device)
    model = SCANConfig(region_width=1, word_size=1, size=scan_similarity.SIZE).build(1)
    with torch.no_grad():
        work = count(lambda: model.similarity(seen, read))
    scale = images * captions / (part[0] * part[1])
    moved = least_bytes([seen["regions"]]) * images / part[0] + least_bytes([read["words"]]) * captions / part[1]
    flops = {kind: number * scale for kind, number in work.flops.items()}
    roof = at.ceilings.seconds(flops, moved + 4 * images * captions)
    operators = scale * work.operators_seconds(at.ceilings)
    seconds = row["sightline_seconds"]
    shares = {"share_of_roofline": roof / seconds, "share_of_operators": operators / seconds}
    return {**row, "roofline_seconds": roof, "operators_seconds": operators, **shares}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to compute")
    parser.add_argument("--quick", action="store_true", help="few images: does it run?")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args(argv)
    if options.device == "cpu" and not options.quick:
        raise SystemExit("There is no GPU here, and its sizes are too large for a CPU: --device cpu --quick tries it.")
    start, device = time.perf_counter(), torch.device(options.device)
    ceilings = measure_ceilings(device, options.quick)
    _, material = updown_training.make_batch(4 if options.quick else 256, device)
    assert material.texts is not None
    at = Measuring(device, options.quick, ceilings, material.texts)
    rows = [row for rows in (updown_rows, captioner_rows, model_rows) for row in rows(at)]
    report = {
        "device": device_name(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "tflops": {kind: rate / 1e12 for kind, rate in ceilings.flops.items()},
        "gigabytes_per_s": ceilings.bandwidth / 1e9,
        "rows": rows,
        "scan": scan_row(at),
    }
    report["seconds"] = time.perf_counter() - start
    print(json.dumps(report) if options.json else table_of(report))


def table_of(report: Row) -> str:
    rates = ", ".join(f"{kind} {rate:.1f}" for kind, rate in report["tflops"].items())
    lines = [
        f"{report['device']}, torch {report['torch']}: {rates} TFLOP/s, copies {report['gigabytes_per_s']:,.0f} GB/s",
        f"{'':30}{'images/s':>10}{'ms':>9}{'GFLOP':>9}{'operators':>11}{'roofline':>10}{'share':>8}{'by each':>9}",
    ]
    for row in report["rows"]:
        gigaflop, share, alone = sum(row["flops"].values()) / 1e9, row["share_of_roofline"], row["share_of_operators"]
        lines.append(
            f"{row['name']:30}{row['images_per_s']:10,.0f}{row['ms']:9.1f}{gigaflop:9,.0f}{row['operators']:11,}"
            f"{row['roofline_images_per_s']:10,.0f}{share:8.1%}{alone:9.1%}"
        )
    scan = report["scan"]
    lines += [
        f"SCAN, {scan['images']:,} photos x {scan['captions']:,} captions: {scan['sightline_seconds']:.2f} s "
        f"({scan['share_of_roofline']:.0%} of the roofline, {scan['share_of_operators']:.0%} of its operators); "
        f"the usual loop {scan['usual_seconds']:.1f} s, {scan['ratio']:.1f} times; "
        f"scores at most {scan['largest_difference']:.0e} apart",
        f"measured in {report['seconds']:.0f} s",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
