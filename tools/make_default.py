"""Make the file that captions photos: vision and captioner of one trained model, the matcher of another.

    python tools/make_default.py RUNS/default/captioner/rewarded/model.safetensors \
        RUNS/default/matcher/base/model.safetensors sightline.safetensors --name "Sightline 1"

Afterwards: tools/fit_choice.py and tools/fit_confidence.py fit how captions are chosen and how far they are to be
trusted, tools/finish_default.py puts that into the file, and tools/measure_default.py measures it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

from sightline.checkpoint.bundle import Bundle, save_bundle
from sightline.checkpoint.checkpoint_file import Precision
from sightline.checkpoint.model_checkpoint import Checkpoint, load


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captioner", type=Path)
    parser.add_argument("matcher", type=Path, nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="Sightline")
    parser.add_argument("--precision", default="int8", choices=get_args(Precision))
    options = parser.parse_args(argv)
    says = load(options.captioner)
    finds = None if options.matcher is None else load(options.matcher)
    save_bundle(options.out, Bundle.of(says, finds, card=card(options.name, says, finds)), options.precision)
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.2f} MiB")


def card(name: str, says: Checkpoint, finds: Checkpoint | None) -> dict[str, Any]:
    """What the trained models' cards say that people need; whole recipes stay with the runs."""
    models = {"captioner": says, **({} if finds is None else {"matcher": finds})}
    kept = ("recipe fingerprint", "data", "measured on", "metrics", "versions")
    return {
        "name": name,
        "languages": ["English"],
        **{part: {key: one.card[key] for key in kept if key in one.card} for part, one in models.items()},
    }


if __name__ == "__main__":
    main()
