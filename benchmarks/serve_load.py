"""Many clients at once before `sightline serve`: is every answer right, is a refusal only 503, does memory stay?

Each client sends one photo at a time, and waits as Retry-After says where it is refused. Answers are compared with
those of the direct call: name, size, what vision saw and the words of the caption must be the photo's own, whichever
photos of others it was looked at with.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sightline.pipeline import Pipeline, load
from speed_material import make_photos

PIXELS = 1.0  # by which a box may differ


@dataclass
class Seen:
    """What the clients met."""

    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    bare: int = 0  # refusals without Retry-After
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, answer: httpx.Response, seconds: float, right: dict[str, Any]) -> None:
        """Count one answer."""
        with self.lock:
            self.statuses[answer.status_code] += 1
            if answer.status_code == 200:
                self.waits.append(seconds)
                self.kinds[kind_of(answer.json()["captions"][0], right)] += 1
            elif answer.status_code == 503 and "retry-after" not in answer.headers:
                self.bare += 1


def kind_of(told: dict[str, Any], right: dict[str, Any]) -> str:
    if told["size"] != right["size"] or told["path"] != Path(right["path"]).name or not same_things(told, right):
        return "wrong"
    return "same words" if told["caption"] == right["caption"] else "other words"


def same_things(told: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether vision saw the same; scores that are nearly equal may change places."""
    # What the whole photo is called has no box.
    one, other = (sorted((c["name"], c["box"] or ()) for c in said["concepts"]) for said in (told, right))
    return [name for name, _ in one] == [name for name, _ in other] and all(
        abs(a - b) <= PIXELS
        for (_, own), (_, its) in zip(one, other, strict=True)
        for a, b in zip(own, its, strict=True)
    )


def client(address: str, photos: list[Path], right: list[dict[str, Any]], until: float, seed: int, seen: Seen) -> None:
    order = random.Random(seed)
    with httpx.Client(base_url=address, timeout=120, trust_env=False) as ask:
        while time.monotonic() < until:
            chosen = order.randrange(len(photos))
            began = time.monotonic()
            answer = ask.post("/v1/caption", files={"photos": (photos[chosen].name, photos[chosen].read_bytes())})
            seen.add(answer, time.monotonic() - began, right[chosen])
            if answer.status_code == 503:
                time.sleep(float(answer.headers.get("retry-after", 1)) * order.uniform(0.5, 1))


def memory(pid: int) -> dict[str, int]:
    """Resident megabytes of a process: now, and at most."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {words[0].rstrip(":"): int(words[1]) >> 10 for words in lines if words[0] in ("VmRSS:", "VmHWM:")}
    return {"now": found["VmRSS"], "most": found["VmHWM"]}


def direct(pipeline: Pipeline, photos: list[Path]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Right answers; photos a second of two direct loops, one by one and many; in how many of these words differ."""
    began = time.monotonic()
    right = [pipeline.caption(path).to_json() for path in photos]
    single = len(photos) / (time.monotonic() - began)
    began = time.monotonic()
    many = [said.text for said in pipeline.caption_many(photos)]
    speed = len(photos) / (time.monotonic() - began)
    other = sum(text != one["caption"] for text, one in zip(many, right, strict=True)) / len(photos)
    return right, {"one by one": round(single, 1), "many": round(speed, 1), "share of other words": round(other, 3)}


def start(options: argparse.Namespace) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--no-token", "--queue", str(options.queue)]
    command += ["--batch", str(options.batch)]
    command += ["--device", "cpu", "--threads", str(options.threads)]
    command += ["--model", str(options.model)] if options.model else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("Sightline is at "):
        raise SystemExit("the server did not start")
    return process, line.split()[3]


def burden(address: str, photos: list[Path], right: list[dict[str, Any]], options: argparse.Namespace) -> Seen:
    seen, until = Seen(), time.monotonic() + options.seconds
    clients = [
        threading.Thread(target=client, args=(address, photos, right, until, seed, seen))
        for seed in range(options.clients)
    ]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a bundle, instead of the one that comes with Sightline")
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs; by default made from the examples")
    parser.add_argument("--count", type=int, default=64, help="photos that are sent")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--queue", type=int, default=24, help="fewer than clients, so that some are refused")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.photos:
            photos = sorted(options.photos.glob("*.jpg"))[: options.count]
        else:
            photos = make_photos(Path(folder), options.count, (640, 480))
        right, loops = direct(load(options.model, "cpu", options.threads), photos)
        process, address = start(options)
        try:
            burden(address, photos, right, argparse.Namespace(clients=options.clients, seconds=5))  # warm
            before = memory(process.pid)
            began = time.monotonic()
            seen = burden(address, photos, right, options)
            spent, after = time.monotonic() - began, memory(process.pid)
        finally:
            process.terminate()
            process.wait()
    waits = sorted(seen.waits)
    print(
        json.dumps(
            {
                "clients": options.clients,
                "seconds": round(spent, 1),
                "answers": dict(seen.statuses),
                "captions": dict(seen.kinds),
                "refusals without Retry-After": seen.bare,
                "photos a second": round(len(waits) / spent, 1),
                "direct": loops,
                "median wait": round(waits[len(waits) // 2], 2) if waits else None,
                "wait of 95 %": round(waits[int(0.95 * len(waits))], 2) if waits else None,
                "megabytes before": before,
                "megabytes after": after,
            },
            indent=1,
        )
    )
    wrong = seen.kinds["wrong"] + seen.kinds["other words"]
    return 0 if waits and not wrong and not seen.bare and set(seen.statuses) <= {200, 503} else 1


if __name__ == "__main__":
    sys.exit(main())
