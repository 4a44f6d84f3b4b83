"""Many photos on the page of `sightline serve`, in Chromium: seconds to the first caption and to the last, and memory.

    python benchmarks/page_photos.py --photos PHOTOS --count 100

The server and the browser share the machine. Memory is the proportional share (Pss) of all processes of each, sampled
every half second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

from speed_material import make_photos

MOST_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs; by default the examples, cropped in many ways")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--done", default="#captions [data-state=done]", help="what the page has for each caption")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sightline-") as folder:
        if given.photos:
            photos = sorted(given.photos.glob("*.jpg"))[: given.count]
        else:
            photos = make_photos(Path(folder), given.count, (640, 480))
        print(json.dumps(run(photos, given.done, given.threads), indent=1))


def run(photos: list[Path], done: str, threads: int) -> dict[str, float]:
    """Start a server, and measure."""
    serve = [sys.executable, "-m", "sightline", "serve", "--port", "0", "--no-token", "--json", "--device", "cpu"]
    command = [*serve, "--threads", str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            return measure(address, photos, done, server.pid)
        finally:
            server.terminate()


def measure(address: str, photos: list[Path], done: str, server: int) -> dict[str, float]:
    """Give the photos to the page at once, and watch."""
    most: dict[str, float] = {}
    stop = threading.Event()
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{address}/#caption")
        page.locator("html[data-ready]").wait_for()
        browsers = [pid for pid in below(os.getpid()) if pid not in below(server) and "chrom" in name_of(pid)]
        watch = threading.Thread(target=sample, args=({"server": [server], "browser": browsers}, most, stop))
        watch.start()
        page.set_input_files("#caption-files", [str(photo) for photo in photos])
        began, first = time.perf_counter(), 0.0
        while (count := page.locator(done).count()) < len(photos) and time.perf_counter() - began < MOST_SECONDS:
            first = first or (time.perf_counter() - began if count else 0.0)
            time.sleep(0.02)
        last = time.perf_counter() - began
        time.sleep(1)
        stop.set()
        watch.join()
        browser.close()
    figures = {"photos": len(photos), "first_s": first, "last_s": last, "a_second": len(photos) / last}
    sizes = {f"{name}_most_mb": size for name, size in most.items()}
    return {name: round(value, 2) for name, value in {**figures, **sizes}.items()}


def sample(groups: dict[str, list[int]], most: dict[str, float], stop: threading.Event) -> None:
    """The most memory of groups of processes, and of those that they start."""
    while True:
        for name, pids in groups.items():
            everyone = {one for pid in pids for one in (pid, *below(pid))}
            most[name] = max(most.get(name, 0.0), sum(map(megabytes, everyone)))
        if stop.wait(0.5):
            return


def below(pid: int) -> Iterator[int]:
    """All processes that a process has started, directly or not."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield child
        yield from below(child)


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
