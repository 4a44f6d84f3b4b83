"""What the tools that choose and compare have in common: their options, and how they tell what they found."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sightline.files import write_json


def parser(about: str | None, photos: int, of: str = "") -> argparse.ArgumentParser:
    """For a tool with the docstring `about` that takes so many photos."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("SIGHTLINE_DATA")
    made.add_argument("--data", type=Path, default=data and Path(data), required=not data)
    made.add_argument("--model", type=Path, help="by default the one that comes with the package")
    made.add_argument("--photos", type=int, default=photos, help=of)
    made.add_argument("--out", type=Path, help="write what is told as JSON")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--device", default="cpu")
    return made


def report(results: dict[str, Any], options: argparse.Namespace, tell: Callable[[dict[str, Any]], None]) -> None:
    """Print the results as JSON where that was asked for, else by `tell`; and write them where that was asked for."""
    if options.out is not None:
        write_json(options.out, results, indent=1)
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        tell(results)
