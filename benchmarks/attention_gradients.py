"""Attention with its gradients, as transformer captioners train, Sightline's against PyTorch's in the same run.

`sightline.models.transformer_decoder.attend` is PyTorch's own attention, but where gradients in bfloat16 are wanted on
a CPU. The rows are the three attentions of a training step of Scene-Trans: 5 captions a photo read their own words,
words read the photo, and the photo's regions and cells read each other; 6 heads of 64 numbers. Times are CPU time on a
CPU, the best of some turns.

    python benchmarks/attention_gradients.py [--images 64] [--repeats 5] [--threads 1] [--device cpu] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.models.transformer_decoder import attend
from timing import best_seconds, parse_options

HEADS, SIZE, CAPTIONS, LENGTH, CELLS = 6, 64, 5, 15, 77  # of a photo: 36 regions, 25 cells, 16 words of names
KINDS = {  # rows a photo, queries of each, keys of each, whether later keys are hidden
    "words read words": (CAPTIONS, LENGTH, LENGTH, True),
    "words read the photo": (1, CAPTIONS * LENGTH, CELLS, False),
    "the photo reads itself": (1, CELLS, CELLS, False),
}


def there_and_back(attention: Callable[..., Tensor], given: tuple[Tensor, ...], **options: bool) -> None:
    found = attention(*given, **options)
    torch.autograd.grad(found, given, torch.ones_like(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options, device = parse_options(parser)
    torch.manual_seed(0)
    rows = []
    for precision in (torch.bfloat16, torch.float32):
        for name, (each, queries, keys, causal) in KINDS.items():
            shapes = [(options.images * each, HEADS, length, SIZE) for length in (queries, keys, keys)]
            given = tuple(torch.randn(shape, dtype=precision, device=device, requires_grad=True) for shape in shapes)
            calls = {
                "ours": partial(there_and_back, attend, given, causal=causal),
                "PyTorch": partial(there_and_back, F.scaled_dot_product_attention, given, is_causal=causal),
            }
            best = best_seconds(calls, options.repeats, device)
            times = {f"{who}_ms": round(1e3 * seconds, 1) for who, seconds in best.items()}
            rows.append({"attention": name, "precision": str(precision).removeprefix("torch."), **times})
    report = {"device": str(device), "threads": options.threads, "images": options.images, "rows": rows}
    if options.json:
        print(json.dumps(report))
        return
    print("| attention | precision | Sightline, ms | PyTorch, ms |\n|---|---|--:|--:|")
    for row in rows:
        print(f"| {row['attention']} | {row['precision']} | {row['ours_ms']} | {row['PyTorch_ms']} |")


if __name__ == "__main__":
    main()
