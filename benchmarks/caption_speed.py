"""From photos to grounded captions on this CPU, beside BLIP-base and GIT-base of Hugging Face transformers.

    python benchmarks/caption_speed.py [--model FILE] [--threads 1 2] [--folder 64] [--blip 8] [--json]

Sightline works as `sightline caption` does: JPEGs of 640 × 480 in, captions with boxes, concepts and confidence out,
beam 5. Every measurement runs in a process of its own. Where the package has no model yet, one of the same sizes with
random weights is measured, which is told to say ten words: it takes the same time, since a product costs the same
whatever is multiplied, and END, which ends a trained model's captions, would come at random.

The peers are built from their default configurations, in float32, with random weights for the same reason: BLIP-base
(ViT-B/16 at 384 pixels, 224 M weights) and GIT-base (ViT-B/16 at 224 pixels, a decoder of six layers that reads the
picture's 197 places as a prefix). They have the same beam, and say as many words (pieces of words) as Sightline's
captions have on average, by min_length = max_length. Their prompt, their END and their boxes (they have none) are not
counted, in their favour; photos are read, resized and normalised on all sides. Each is measured one by one and in
batches, and the faster counts. All sides take turns in the same run; the best turn of each counts for photos/s. CPU
time stands beside, in which threads that spin while they wait count too: compare that of one thread. Measure on an idle
machine: where other jobs want the cores, two threads wait for each other many times in a caption, and all sides become
several times slower. Peers are left out where transformers is not installed (`make bench` installs it).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SMALL, TWELVE_MEGAPIXELS = (640, 480), (4000, 3000)
BEAM, BATCH = 5, 8  # of `sightline caption`
SAID = 10  # words, where weights are random
BARS = {"one_ms": "<= 60", "photos_per_s": ">= 40", "cold_s": "<= 3", "peak_mb": "<= 900", "ratio": ">= 15"}
# BLIP with ViT-B and CapFilt-L on COCO's Karpathy test photos: Li et al. 2022 (arXiv 2201.12086), table 7. The weights
# of its successor LAVIS get 133.5 (salesforce/LAVIS, docs/benchmark.rst).
BLIP_CIDER = 133.3
ROWS = {  # key of a thread setting's results: what people read, decimals
    "one_ms": ("one photo, median, ms", 0),
    "one_p90_ms": ("one photo, 90th percentile, ms", 0),
    "one_cpu_ms": ("one photo, CPU time, ms", 0),
    "photos_per_s": ("a folder, photos/s", 1),
    "folder_cpu_ms": ("a folder, CPU time a photo, ms", 0),
    "peak_mb": ("peak memory of the folder, MB", 0),
    "cold_s": ("cold command, median, s", 2),
    "large_ms": ("one 12-megapixel photo, median, ms", 0),
    "large_per_s": ("a folder of 12-megapixel photos, photos/s", 1),
    "blip_per_s": ("BLIP-base, photos/s", 2),
    "blip_cpu_ms": ("BLIP-base, CPU time a photo, ms", 0),
    "ratio": ("Sightline : BLIP-base, photos/s", 1),
    "cpu_ratio": ("BLIP-base : Sightline, CPU time", 1),
    "git_per_s": ("GIT-base, photos/s", 2),
    "git_cpu_ms": ("GIT-base, CPU time a photo, ms", 0),
    "git_ratio": ("Sightline : GIT-base, photos/s", 1),
}
PEERS = {"blip": ("BLIP-base", 384), "git": ("GIT-base", 224)}  # names, and pixels a side
Result = dict[str, Any]


def one(task: Result) -> Result:
    """One photo after the other, warm."""
    pipeline, rules = _sightline(task)
    paths = task["photos"]
    for path in paths[:3]:
        pipeline.caption(path, beam=BEAM, rules=rules)
    wall, cpu = [], []
    for path in paths:
        start, used = time.perf_counter(), time.process_time()
        pipeline.caption(path, beam=BEAM, rules=rules)
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - used))
    return {"median": statistics.median(wall), "p90": percentile(wall, 0.9), "cpu": statistics.median(cpu)}


def folder(task: Result) -> Result:
    """All photos, read ahead and looked at in batches; `peak_mb` is that of the whole process."""
    pipeline, rules = _sightline(task)
    for _ in pipeline.caption_many(task["photos"][:BATCH], beam=BEAM, rules=rules):
        pass
    start, used = time.perf_counter(), time.process_time()
    said = [len(caption) for caption in pipeline.caption_many(task["photos"], beam=BEAM, rules=rules)]
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    status = Path("/proc/self/status")
    peak = int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024 if status.is_file() else None
    return {"per_s": len(said) / wall, "cpu": 1e3 * cpu / len(said), "words": statistics.mean(said), "peak_mb": peak}


def peer(task: Result) -> Result:
    """BLIP-base or GIT-base, one by one and in batches: the better photos/s and CPU time of each."""
    import torch

    torch.set_num_threads(task["threads"])
    say, paths = _peer(task["peer"], task["words"]), task["photos"]
    found = []
    with torch.inference_mode():
        for size in (1, BATCH):
            say(paths[:1])
            start, used = time.perf_counter(), time.process_time()
            for first in range(0, len(paths), size):
                say(paths[first : first + size])
            cpu = 1e3 * (time.process_time() - used) / len(paths)
            found.append((len(paths) / (time.perf_counter() - start), cpu))
    return {"per_s": max(speed for speed, _ in found), "cpu": min(cpu for _, cpu in found)}


def _peer(name: str, words: int) -> Callable[[Sequence[str]], None]:
    """A peer's way from some photos to so many words each, with random weights."""
    import torch

    torch.manual_seed(0)
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    length, side = words + 1, PEERS[name][1]  # START is counted
    if name == "blip":
        model = transformers.BlipForConditionalGeneration(transformers.BlipConfig()).eval()
    else:
        model = transformers.GitForCausalLM(transformers.GitConfig()).eval()

    def say(paths: Sequence[str]) -> None:
        given = {"pixel_values": peer_pixels(paths, side)}
        if name == "git":  # which has no START of its own
            given["input_ids"] = torch.full((len(paths), 1), model.config.bos_token_id)
        said = model.generate(**given, num_beams=BEAM, min_length=length, max_length=length)
        assert said.shape[1] == length

    return say


def peer_pixels(paths: Sequence[str], side: int) -> Any:
    """(B, 3, side, side), as the peers' processors make them: squashed, normalised by CLIP's mean and deviation."""
    import numpy as np
    import torch
    from PIL import Image

    mean, deviation = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    photos = []
    for path in paths:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC), np.float32)
        photos.append((pixels / 255 - mean) / deviation)
    return torch.from_numpy(np.stack(photos).astype(np.float32)).permute(0, 3, 1, 2)


WORKERS: dict[str, Callable[[Result], Result]] = {"one": one, "folder": folder, "peer": peer}


def _sightline(task: Result) -> tuple[Any, Any]:
    import sightline
    from sightline.decoding.rules import Rules

    words = task["words"]
    rules = None if words is None else Rules(min_words=words, max_words=words)
    return sightline.load(task["model"], "cpu", task["threads"]), rules


def in_a_process(name: str, task: Result) -> Result:
    """The result of a worker in a new process."""
    run = subprocess.run(
        [sys.executable, __file__, "--worker", name, json.dumps(task)],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise SystemExit(f"measuring {name!r} failed:\n{run.stderr}")
    found: Result = json.loads(run.stdout)
    return found


def cold(model: Path, photo: Path, threads: int, rounds: int) -> list[float]:
    """Wall seconds of the whole command, one run after the other."""
    command = [sys.executable, "-m", "sightline", "caption", str(photo), "--model", str(model)]
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        run = subprocess.run([*command, "--threads", str(threads)], capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - start)
        if run.returncode:
            raise SystemExit(f"`sightline caption` failed:\n{run.stderr}")
    return seconds


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def measure(options: argparse.Namespace, model: Path, trained: bool, photos: Result) -> Result:
    """The rows of each number of threads."""
    columns: Result = {}
    for threads in options.threads:
        task = {"model": str(model), "threads": threads, "words": None if trained else SAID}
        tell(f"{threads} thread(s): one photo, then 12 megapixels")
        alone = in_a_process("one", {**task, "photos": photos["small"][: options.one]})
        large = in_a_process("one", {**task, "photos": photos["large"]})
        large_folder = in_a_process("folder", {**task, "photos": photos["large"]})
        turns: list[Result] = []
        peers: dict[str, list[Result]] = {name: [] for name in PEERS}
        for _ in range(options.turns):
            tell(f"{threads} thread(s): the folder")
            turns.append(in_a_process("folder", {**task, "photos": photos["small"]}))
            words, some = round(turns[-1]["words"]), photos["small"][: options.blip]
            for name, (title, _) in PEERS.items() if some else ():
                tell(f"{threads} thread(s): {title}")
                given = {"peer": name, "threads": threads, "photos": some, "words": words}
                peers[name].append(in_a_process("peer", given))
        tell(f"{threads} thread(s): cold command")
        started = cold(model, Path(photos["small"][0]), threads, options.cold)
        columns[str(threads)] = column(alone, turns, peers, started, large, large_folder)
    return columns


def column(
    alone: Result,
    turns: Sequence[Result],
    peers: dict[str, list[Result]],
    started: Sequence[float],
    large: Result,
    many: Result,
) -> Result:
    """What was measured with one number of threads, under the keys of `ROWS`."""
    peaks = [turn["peak_mb"] for turn in turns if turn["peak_mb"] is not None]
    found: Result = {
        "one_ms": alone["median"],
        "one_p90_ms": alone["p90"],
        "one_cpu_ms": alone["cpu"],
        "photos_per_s": max(turn["per_s"] for turn in turns),
        "folder_cpu_ms": min(turn["cpu"] for turn in turns),
        "words": statistics.mean(turn["words"] for turn in turns),
        "peak_mb": max(peaks) if peaks else None,
        "cold_s": statistics.median(started),
        "large_ms": large["median"],
        "large_per_s": many["per_s"],
    }
    for name, theirs in peers.items():
        if theirs:
            found[f"{name}_per_s"] = max(turn["per_s"] for turn in theirs)
            found[f"{name}_cpu_ms"] = min(turn["cpu"] for turn in theirs)
    if peers.get("blip"):
        found["ratio"] = found["photos_per_s"] / found["blip_per_s"]
        found["cpu_ratio"] = found["blip_cpu_ms"] / found["folder_cpu_ms"]
    if peers.get("git"):
        found["git_ratio"] = found["photos_per_s"] / found["git_per_s"]
    return found


def machine() -> Result:
    """Where and with what this runs."""
    import torch

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    peer = "transformers"
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.import_module(peer).__version__ if importlib.util.find_spec(peer) else None,
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
    }


def printed(report: Result) -> str:
    """The report as people read it."""
    place, columns = report["machine"], report["threads"]
    said = " and ".join(dict.fromkeys(f"{found['words']:.1f}" for found in columns.values()))
    lines = [
        f"{place['cpu']}, {place['cores']} cores, load {place['load']:.1f} before; torch {place['torch']}, "
        f"transformers {place['transformers'] or 'not here'}",
        f"{report['model']}, {report['mib']:.1f} MiB, {'trained' if report['trained'] else 'random weights'}; "
        f"beam {BEAM}, captions of {said} words; JPEGs of 640 x 480",
        "",
        f"{'threads':44}" + "".join(f"{threads:>10}" for threads in columns) + "       bar",
    ]
    for key, (title, digits) in ROWS.items():
        values = [found.get(key) for found in columns.values()]
        if any(value is not None for value in values):
            cells = "".join(f"{'' if value is None else f'{value:.{digits}f}':>10}" for value in values)
            lines.append(f"{title:44}{cells}{BARS.get(key, ''):>10}")
    if any("ratio" in found for found in columns.values()):
        ours = report["cider"]
        lines += [
            "",
            f"CIDEr on COCO's Karpathy test photos: BLIP-base {BLIP_CIDER} as published "
            f"(Li et al. 2022, table 7), Sightline {'not measured yet' if ours is None else f'{ours:.1f}'}",
        ]
    return "\n".join(lines)


def tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def chosen_model(given: Path | None, scratch: Path) -> tuple[Path, bool]:
    """The file that is measured, and whether it is trained: the one named, the package's, or a random one."""
    from sightline.checkpoint.bundle import DEFAULT, default_bundle, save_bundle
    from sightline.errors import CheckpointError

    if given is not None:
        return given, True
    try:
        return default_bundle(), True
    except CheckpointError:
        from speed_material import random_bundle

        path = scratch / DEFAULT[-1]
        save_bundle(path, random_bundle())
        return path, False


def cider_of(model: Path) -> float | None:
    """What the model's card says about COCO's test photos, times 100."""
    from sightline.checkpoint.bundle import load_bundle

    value = load_bundle(model).card.get("metrics", {}).get("CIDEr-D")
    return None if value is None else float(value)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a trained bundle; by default the package's, else random weights")
    parser.add_argument("--random", action="store_true", help="the file of --model has random weights: say ten words")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--one", type=int, default=40, help="photos that are captioned one by one")
    parser.add_argument("--folder", type=int, default=64, help="photos of the folder")
    parser.add_argument("--large", type=int, default=8, help="12-megapixel photos")
    parser.add_argument("--blip", type=int, default=8, help="photos that peers caption in a turn; 0 leaves them out")
    parser.add_argument("--turns", type=int, default=2, help="of folder and peers")
    parser.add_argument("--cold", type=int, default=5, help="runs of the cold command")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "TASK"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        name, task = options.worker
        print(json.dumps(WORKERS[name](json.loads(task))))
        return
    if options.blip and importlib.util.find_spec("transformers") is None:
        tell("transformers is not installed, so peers are left out: pip install -c constraints.txt -e '.[bench]'")
        options.blip = 0
    from speed_material import make_photos

    with tempfile.TemporaryDirectory() as scratch:
        model, trained = chosen_model(options.model, Path(scratch))
        photos = {
            "small": [*map(str, make_photos(Path(scratch) / "small", max(options.folder, options.one), SMALL))],
            "large": [*map(str, make_photos(Path(scratch) / "large", options.large, TWELVE_MEGAPIXELS))],
        }
        report: Result = {
            "machine": machine(),
            "model": model.name,
            "mib": model.stat().st_size / 2**20,
            "trained": trained and not options.random,
            "cider": cider_of(model),
            "blip_cider": BLIP_CIDER,
        }
        report["threads"] = measure(options, model, report["trained"], photos)
    print(json.dumps(report) if options.json else printed(report))


if __name__ == "__main__":
    main()
