"""SCAN's similarity of every photo with every caption: Sightline against the usual loop over captions, in the same run.

The usual way is written here as the method's public code goes about it: for one caption after the other, its words are
repeated for every photo, attended vectors are formed by batched products, and cosines are taken of whole vectors.
Features are random unit vectors. The loop is timed on some of the captions, spread evenly, and scaled to all of them.

    python benchmarks/scan_similarity.py [--images 1000] [--captions 5000] [--sample 40] [--device cuda] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.models.matcher import Embedding
from sightline.models.scan import SCANConfig
from sightline.models.scan_fast import CPU_BLOCK, GPU_BLOCK, fast_similarity

REGIONS, SIZE, SHORTEST, LONGEST = 36, 1024, 8, 16
LINUX = sys.platform == "linux"


def usual_loop(regions: Tensor, words: Tensor, lengths: list[int], temperature: float) -> Tensor:
    columns = []
    for caption, length in zip(words, lengths, strict=True):
        query = caption[:length].repeat(len(regions), 1, 1)  # (images, words, d)
        scores = torch.bmm(regions, query.transpose(1, 2)).clamp(min=0)  # (images, regions, words)
        scores = scores / (scores.pow(2).sum(2, keepdim=True).sqrt() + 1e-8)
        weights = (scores.transpose(1, 2).contiguous() * temperature).softmax(2)  # (images, words, regions)
        weights = weights.transpose(1, 2).contiguous()
        attended = torch.bmm(regions.transpose(1, 2), weights).transpose(1, 2).contiguous()  # (images, words, d)
        lengths_of_both = torch.norm(query, 2, 2) * torch.norm(attended, 2, 2)
        relevance = (query * attended).sum(2) / lengths_of_both.clamp(min=1e-8)
        columns.append(relevance.mean(1, keepdim=True))
    return torch.cat(columns, 1)


def features(images: int, captions: int, device: torch.device | str = "cpu") -> tuple[Embedding, Embedding]:
    torch.manual_seed(0)
    with torch.device(device):
        regions = F.normalize(torch.randn(images, REGIONS, SIZE), dim=2)
        mask = torch.arange(LONGEST) < torch.randint(SHORTEST, LONGEST + 1, (captions, 1))
        words = F.normalize(torch.randn(captions, LONGEST, SIZE), dim=2) * mask.unsqueeze(2)
        all_regions = torch.ones(images, REGIONS, dtype=torch.bool)
    return {"regions": regions, "mask": all_regions}, {"words": words, "mask": mask}


@dataclass(frozen=True)
class Run:
    """What a call gave and took."""

    result: Tensor
    seconds: float
    cpu_seconds: float
    megabytes: float
    """Peak resident memory above that before the call; nan where the system is not Linux."""


def run(call: Callable[[], Tensor]) -> Run:
    gc.collect()
    if LINUX:
        with contextlib.suppress(OSError):  # not every container lets it
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    before = resident("VmRSS")
    _wait()
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    _wait()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Run(result, wall, cpu, resident("VmHWM") - before)


def _wait() -> None:
    """Until a GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def resident(name: str) -> float:
    if not LINUX:
        return math.nan
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


@torch.inference_mode()
def measure(options: argparse.Namespace) -> dict[str, Any]:
    images, texts = features(options.images, options.captions, options.device)
    block = tuple(options.block) if options.block else CPU_BLOCK if options.device == "cpu" else GPU_BLOCK
    model = SCANConfig(region_width=1, word_size=1, size=SIZE).build(1)
    sample = torch.linspace(0, options.captions - 1, min(options.sample, options.captions)).long()

    def usual(part: Tensor) -> Tensor:
        lengths = texts["mask"][part].sum(1).tolist()
        return usual_loop(images["regions"], texts["words"][part], lengths, model.config.temperature)

    def sightline(captions: int) -> Tensor:
        some = {name: part[:captions] for name, part in texts.items()}
        return fast_similarity(model, images, some, (block[0], block[1]))

    usual(sample[:1])
    tenth = run(lambda: sightline(max(1, options.captions // 10)))
    # The loop runs before and after, so that other work on the machine slows both sides alike.
    before = run(lambda: usual(sample[: len(sample) // 2]))
    ours = run(lambda: sightline(options.captions))
    after = run(lambda: usual(sample[len(sample) // 2 :]))
    scale = options.captions / len(sample)
    peer, peer_cpu = scale * (before.seconds + after.seconds), scale * (before.cpu_seconds + after.cpu_seconds)
    pairs = options.images * options.captions
    peer_scores = torch.cat([before.result, after.result], 1)
    return {
        "images": options.images,
        "captions": options.captions,
        "block": block,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "threads": torch.get_num_threads(),
        "usual_timed_on_captions": len(sample),
        "usual_seconds": peer,
        "sightline_seconds": ours.seconds,
        "usual_pairs_per_second": pairs / peer,
        "sightline_pairs_per_second": pairs / ours.seconds,
        "ratio": peer / ours.seconds,
        "cpu_time_ratio": peer_cpu / ours.cpu_seconds,
        "largest_difference": float((ours.result.cpu()[:, sample] - peer_scores.cpu()).abs().max()),
        "usual_megabytes": after.megabytes,
        "sightline_megabytes_for_a_tenth": tenth.megabytes,
        "sightline_megabytes": ours.megabytes,
        "result_megabytes": pairs * 4 / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--captions", type=int, default=5000)
    parser.add_argument("--sample", type=int, default=40, help="captions the usual loop is timed on")
    parser.add_argument("--block", type=int, nargs=2, help="images and captions in a block")
    parser.add_argument("--device", default="cpu", help="where both compute")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    report = measure(options)
    print(json.dumps(report) if options.json else table_of(report))


def table_of(report: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"{report['images']} photos x {REGIONS} regions x {SIZE}, {report['captions']} captions of {SHORTEST} to "
            f"{LONGEST} words, {report['threads']} threads, blocks of {report['block'][0]} x {report['block'][1]}",
            f"the usual loop was timed on {report['usual_timed_on_captions']} captions spread evenly, then scaled",
            "                  usual   Sightline   ratio",
            f"seconds    {report['usual_seconds']:12.1f}{report['sightline_seconds']:12.1f}{report['ratio']:7.1f}x"
            f"  (by CPU time {report['cpu_time_ratio']:.1f}x)",
            f"pairs/s    {report['usual_pairs_per_second']:12,.0f}{report['sightline_pairs_per_second']:12,.0f}",
            f"extra MB   {report['usual_megabytes']:12.0f}{report['sightline_megabytes']:12.0f}"
            f"          (the result alone is {report['result_megabytes']:.0f} MB; the first tenth of the captions took "
            f"{report['sightline_megabytes_for_a_tenth']:.0f} MB: memory goes by the block, not by the captions)",
            f"largest difference {report['largest_difference']:.1e}",
        ]
    )


if __name__ == "__main__":
    main()
