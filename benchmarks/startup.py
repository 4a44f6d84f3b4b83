"""How long a person waits before anything happens: `import sightline` and `sightline --help`, beside `import torch`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

CASES = {
    "python alone": ["-c", "pass"],
    "import sightline": ["-c", "import sightline"],
    "sightline --help": ["-m", "sightline", "--help"],
    "sightline data inspect --help": ["-m", "sightline", "data", "inspect", "--help"],
    "import torch": ["-c", "import torch"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    best = {name: float("inf") for name in CASES}
    for _ in range(options.rounds):
        for name, arguments in CASES.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            best[name] = min(best[name], time.perf_counter() - start)
    if options.json:
        print(json.dumps(best))
        return
    for name, seconds in best.items():
        print(
            f"{name:<32}{1000 * seconds:8.0f} ms{1000 * (seconds - best['python alone']):8.0f} ms beyond Python's start"
        )


if __name__ == "__main__":
    main()
