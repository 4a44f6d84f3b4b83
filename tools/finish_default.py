"""Put what was fitted and measured into the file that captions photos.

    python tools/finish_default.py in.safetensors out.safetensors [--audit audit.json | --place audit.json]
        [--measured results.json] [--choice choice.json] [--confidence confidence.json]
        [--matcher 0.9 --least 0.1 --objectness 1 --name 0.5] [--copying 4.5]

The audit is that of tools/measure_audit.py; `place` takes from it only how sure boxes are, which changes no caption.
The choice is that of tools/fit_choice.py, the confidence that of tools/fit_confidence.py (on a file that has the
choice), what was measured that of tools/measure_default.py; `matcher`, `least`, `objectness` and `name` are those of
`sightline.grounding.box_chooser.BoxChooser` (tools/fit_pointing.py).
`copying` is added to what copied words count (`scene_trans.Copier.bias`): photos that a captioner learned from show
what its vocabulary names anyway, and others do not (tools/measure_names.py). What is not given stays as it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from sightline.checkpoint.bundle import Bundle, load_bundle, save_bundle
from sightline.config import build
from sightline.grounding.box_chooser import BoxChooser
from sightline.grounding.calibration import Calibration, SupportModel
from sightline.grounding.choice import Choice
from sightline.models.scene_trans import SceneTrans


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--audit", type=Path)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--measured", type=Path)
    for name in (numbers := [one.name for one in fields(BoxChooser)]):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--choice", type=Path)
    parser.add_argument("--confidence", type=Path)
    parser.add_argument("--copying", type=float, default=0.0)
    options = parser.parse_args(argv)
    bundle = load_bundle(options.bundle)
    rule = {name: value for name in numbers if (value := getattr(options, name)) is not None}
    bundle = replace(bundle, pointing=replace(bundle.pointing, **rule))
    if options.choice:
        fitted = json.loads(options.choice.read_text("utf-8"))
        choice = build(Choice, fitted["choice"], where=str(options.choice))
        bundle = replace(bundle, fit=float(fitted["fit"]), choice=choice)
    if options.confidence:
        fitted = json.loads(options.confidence.read_text("utf-8"))["calibration"]
        bundle = replace(bundle, calibration=build(Calibration, fitted, where=str(options.confidence)))
    if path := options.audit or options.place:
        auditing = build(SupportModel, json.loads(path.read_text("utf-8"))["auditing"], where=str(path))
        kept = bundle.auditing if options.place else auditing
        bundle = replace(bundle, auditing=replace(kept, place=auditing.place))
    if options.measured:
        bundle = measured(bundle, json.loads(options.measured.read_text("utf-8"))["sets"])
    if options.copying:
        speaks = bundle.captioner.model
        if not isinstance(speaks, SceneTrans) or speaks.copier is None:
            raise SystemExit(f"{options.bundle}: its captioner copies nothing")
        with torch.no_grad():
            speaks.copier.bias.add_(options.copying)
    save_bundle(options.out, bundle)
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.2f} MiB")


def measured(bundle: Bundle, sets: Mapping[str, Any]) -> Bundle:
    """The bundle with its metrics in the card."""
    coco, flickr8k = sets["coco"], sets["flickr8k"]
    metrics = {name: round(value, 2) for name, value in coco["captions"].items()} | {
        "caption R@1": round(coco["matching"]["captions R@1"], 1),
        "photo R@1": round(coco["matching"]["photos R@1"], 1),
        "boxes covered by 36": round(flickr8k["regions"]["36 boxes"], 1),
    }
    told = (
        f"{coco['photos']:,} photos of COCO's Karpathy test split; "
        f"R@1 by vectors in {coco['matching']['folds']:.0f} folds of {coco['matching']['photos of a fold']:,.0f}; "
        f"boxes: {flickr8k['photos']:,} test photos of Flickr8k"
    )
    return replace(bundle, card={**bundle.card, "metrics": metrics, "measured on": told})


if __name__ == "__main__":
    main()
