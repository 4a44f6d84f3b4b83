"""The feature store against a folder of .npz files, 36×2048 float16 regions with boxes; and a COCO-sized store.

    python benchmarks/store.py [--scenes 2000] [--coco 123287] [--folder DIR] [--json]

Both sides are measured in the same run on the same disk, with files in the page cache, and both give `Scene`s, checks
included. The .npz side is what captioning code does: `np.savez` a file per image, `np.load` by name. It is measured as
it is and with the wait for the disk (fsync) that the store pays for. The COCO-sized store is made sparse (17 GB in
length, little on disk) and read from end to end in a process of its own, whose peak resident memory is told. So are
safetensors files of the same scenes, a thousand a file, which have no checksums.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from sightline.files import checksum
from sightline.scene import Scene
from sightline.vision.feature_store import FLUSH_EVERY, SHARD_BYTES, FeatureStore
from sightline.vision.store_layout import INDEX, Entry, Settings, encode, index_line, shard_name

REGIONS, WIDTH, MAKER = 36, 2048, "benchmark"
A_FILE = 1000  # scenes of a safetensors file
MEGABYTES = REGIONS * (WIDTH * 2 + 16) / 1e6  # float16 regions and float32 boxes of one scene


def a_scene(number: int) -> Scene:
    rng = np.random.default_rng(number)
    boxes = np.sort(rng.random((REGIONS, 2, 2), dtype=np.float32), axis=1).reshape(REGIONS, 4)
    regions = rng.standard_normal((REGIONS, WIDTH), dtype=np.float32).astype(np.float16)
    return Scene(f"{number:012d}", boxes=boxes, regions=regions, fingerprint=MAKER)


def write_store(folder: Path, scenes: Iterable[Scene]) -> None:
    with FeatureStore.writer(folder, fingerprint=MAKER) as writer:
        for scene in scenes:
            writer.add(scene)


def write_npz(folder: Path, scenes: Iterable[Scene], sync: bool = False) -> None:
    folder.mkdir()
    for scene in scenes:
        with (folder / f"{scene.id}.npz").open("wb") as file:
            np.savez(file, regions=scene.regions, boxes=scene.boxes)  # type: ignore[arg-type]
            if sync:
                file.flush()
                os.fsync(file.fileno())


def read_npz(folder: Path, ids: Iterable[str]) -> float:
    total = 0.0
    for id in ids:
        with np.load(folder / f"{id}.npz") as file:
            total += use(Scene(id, boxes=file["boxes"], regions=file["regions"], fingerprint=MAKER))
    return total


def read_store(folder: Path, ids: Iterable[str], verify: bool = True) -> float:
    store = FeatureStore(folder, verify=verify)
    return sum(use(store[id]) for id in ids)


def write_safetensors(folder: Path, scenes: list[Scene]) -> None:
    folder.mkdir()
    for start in range(0, len(scenes), A_FILE):
        group = scenes[start : start + A_FILE]
        parts = {f"{s.id}/{name}": part for s in group for name, part in (("regions", s.regions), ("boxes", s.boxes))}
        save_file(parts, folder / f"{start // A_FILE}.safetensors")  # type: ignore[arg-type]


def read_safetensors(folder: Path, ids: Iterable[str]) -> float:
    files: dict[int, Any] = {}
    total = 0.0
    for id in ids:
        number = int(id) // A_FILE
        if number not in files:
            files[number] = safe_open(folder / f"{number}.safetensors", framework="np")
        boxes, regions = (files[number].get_tensor(f"{id}/{name}") for name in ("boxes", "regions"))
        total += use(Scene(id, boxes=boxes, regions=regions, fingerprint=MAKER))
    return total


def use(scene: Scene) -> float:
    """Touch every page of the features, as copying them into a batch would."""
    assert scene.regions is not None
    return float(np.copy(scene.regions)[0, 0])


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(folder: Path, count: int, rounds: int = 5) -> dict[str, float]:
    """Scenes a second of every way; the best of `rounds` in turn for reading, which other work disturbs easily."""
    scenes = [a_scene(n) for n in range(count)]
    ids = [scene.id for scene in scenes]
    store, npz, tensors = folder / "store", folder / "npz", folder / "safetensors"
    write_safetensors(tensors, scenes)
    seconds = {
        "store write": timed(lambda: write_store(store, scenes)),
        "npz write": timed(lambda: write_npz(npz, scenes)),
        "npz write, synced": timed(lambda: write_npz(folder / "synced", scenes[: count // 4], sync=True)) * 4,
    }
    ways = {}
    for name, order in (("in order", ids), ("random", random.Random(0).sample(ids, count))):
        ways[f"store {name}"] = partial(read_store, store, order)
        ways[f"store {name}, unverified"] = partial(read_store, store, order, verify=False)
        ways[f"npz {name}"] = partial(read_npz, npz, order)
        ways[f"safetensors {name}"] = partial(read_safetensors, tensors, order)
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name] = min(seconds.get(name, float("inf")), timed(way))
    return {name: count / spent for name, spent in seconds.items()}


def make_sparse(folder: Path, count: int) -> int:
    """A store of `count` scenes of zeros, of which the disk holds only the JSON of each record; return its length."""
    scene = Scene("", boxes=np.zeros((REGIONS, 4), np.float32), regions=np.zeros((REGIONS, WIDTH), np.float16))
    record, meta = encode(scene, "float16")
    crc, size = checksum(record), len(record)
    each = SHARD_BYTES // size
    folder.mkdir()
    Settings("float16", "").write(folder)
    with (folder / INDEX).open("wb") as index:
        for shard in range(-(-count // each)):
            held = min(each, count - shard * each)
            entries = []
            with (folder / shard_name(shard)).open("wb") as data:
                for row in range(held):
                    data.seek(row * size)
                    data.write(record[:meta])
                    entries.append(Entry(f"{shard * each + row:012d}", shard, row * size, meta, size, crc))
                data.truncate(held * size)
            for start in range(0, held, FLUSH_EVERY):
                index.write(index_line(entries[start : start + FLUSH_EVERY]))
    return count * size


def make_sparse_safetensors(folder: Path, count: int) -> None:
    """Files of `count` scenes of zeros, of which the disk holds only the headers."""
    folder.mkdir()
    for start in range(0, count, A_FILE):
        header: dict[str, Any] = {}
        end = 0
        for number in range(start, min(count, start + A_FILE)):
            for name, kind, width, size in (("regions", "F16", WIDTH, 2), ("boxes", "F32", 4, 4)):
                begin, end = end, end + REGIONS * width * size
                header[f"{number:012d}/{name}"] = {
                    "dtype": kind, "shape": [REGIONS, width], "data_offsets": [begin, end],
                }  # fmt: skip
        text = json.dumps(header).encode()
        with (folder / f"{start // A_FILE}.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + end)


def read_whole_safetensors(folder: Path) -> dict[str, float]:
    """As `read_whole`, in order; `use` touches the pages, which comparing checksums does for the store."""
    count = json.loads((folder / "count.json").read_text())
    seconds = timed(lambda: read_safetensors(folder, (f"{number:012d}" for number in range(count))))
    return {"scenes": count, "open_s": 0.0, "scenes_per_s": count / seconds, "peak_mb": peak_resident()}


def read_whole(folder: Path, in_order: bool) -> dict[str, float]:
    """Open a store and read all of it; seconds, and peak resident memory in MB. To be called in a fresh process."""
    start = time.perf_counter()
    store = FeatureStore(folder)
    opened = time.perf_counter() - start
    ids = list(store.ids())
    if not in_order:
        random.Random(0).shuffle(ids)
    seconds = timed(lambda: [None for id in ids if len(store[id]) != REGIONS])
    return {"scenes": len(ids), "open_s": opened, "scenes_per_s": len(ids) / seconds, "peak_mb": peak_resident()}


def peak_resident() -> float:
    """MB. Linux's getrusage also counts the parent's memory at the time of the fork; VmHWM does not."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS


def whole_in_child(folder: Path, order: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", order, "--folder", str(folder)]
    told: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return told


def show(result: dict[str, Any]) -> None:
    rates = result["scenes_per_s"]
    print(f"{'36×2048 float16':24}{'store /s':>12}{'MB/s':>8}{'npz /s':>12}{'MB/s':>8}{'ratio':>8}")
    for ours, theirs in result["pairs"]:
        a, b = rates[ours], rates[theirs]
        name = f"{ours.removeprefix('store ')} vs {theirs.removeprefix('npz ')}" if ours[6:] != theirs[4:] else ours[6:]
        print(f"{name:24}{a:12,.0f}{a * MEGABYTES:8,.0f}{b:12,.0f}{b * MEGABYTES:8,.0f}{a / b:7.1f}x")
    for order in ("in order", "random"):
        print(f"safetensors, no checksums, {order}: {rates[f'safetensors {order}']:,.0f} scenes/s")
        print(f"verifying costs {1 - rates[f'store {order}'] / rates[f'store {order}, unverified']:.0%} ({order})")
    for order, told in result["whole"].items():
        print(
            f"{told['scenes']:,} scenes, {result['gigabytes']:.1f} GB, {order}: opened in {told['open_s']:.2f} s, "
            f"{told['scenes_per_s']:,.0f} scenes/s, peak resident {told['peak_mb']:,.0f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=2000)
    parser.add_argument("--coco", type=int, default=123_287)
    parser.add_argument("--folder", type=Path, help="where to work (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=["in order", "random", "safetensors"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        safe = options.child == "safetensors"
        whole = (
            read_whole_safetensors(options.folder) if safe else read_whole(options.folder, options.child == "in order")
        )
        print(json.dumps(whole))
        return
    folder = Path(tempfile.mkdtemp(prefix="sightline-", dir=options.folder))
    try:
        result: dict[str, Any] = {"scenes_per_s": compare(folder, options.scenes)}
        result["pairs"] = [
            ("store write", "npz write"), ("store write", "npz write, synced"),
            ("store in order", "npz in order"), ("store random", "npz random"),
        ]  # fmt: skip
        result["gigabytes"] = make_sparse(folder / "whole", options.coco) / 1e9
        result["whole"] = {order: whole_in_child(folder / "whole", order) for order in ("in order", "random")}
        make_sparse_safetensors(folder / "safe", options.coco)
        (folder / "safe" / "count.json").write_text(str(options.coco))
        result["whole"]["safetensors"] = whole_in_child(folder / "safe", "safetensors")
    finally:
        shutil.rmtree(folder)
    print(json.dumps(result, indent=2)) if options.json else show(result)


if __name__ == "__main__":
    main()
