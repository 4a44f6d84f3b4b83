"""Fit the confidence of a bundle on photos it was not trained on, and save the bundle with it.

    python tools/calibrate.py in.safetensors out.safetensors --captions dataset_coco.json --split val --images coco/

A caption is good if its CIDEr-D reaches the median of people's (`human_bar.py`). The calibration error
is told for each half of the photos under the fit on the other half; what is saved is fitted on all.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from human_bar import good

from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.data.convert import read_captions
from sightline.data.inspect import identify
from sightline.devices import choose_device
from sightline.grounding.calibration import Calibration, calibration_error, features, fit
from sightline.pipeline import Pipeline
from sightline.text.tokenizer import ptb_tokenize
from sightline.vision.photo_reader import progress_bar


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="int8", choices=("int8", "float16", "float32"))
    options = parser.parse_args(argv)

    photos = read_captions(identify(options.captions), options.captions, options.split)
    place = {str(options.images / (photo.file or photo.id)): photo for photo in photos}
    references = {photo.id: [ptb_tokenize(s.text) for s in photo.sentences] for photo in photos}
    device = choose_device(options.device)
    bundle = load_bundle(options.bundle, device)
    said = list(Pipeline(bundle, device).caption_many(list(place), progress=progress_bar("captioning")))

    found, bar = good({place[one.path].id: ptb_tokenize(one.text) for one in said}, references)
    x = np.array([features(one) for one in said])
    y = np.array([found[place[one.path].id] for one in said])
    print(f"{len(said):,} captions, {y.mean():.1%} good: CIDEr-D of {bar:.3f} or more")
    half = np.arange(len(y)) % 2 == 0
    for name, use in (("the guess", lambda _: Calibration()), ("fitted", lambda part: fit(x[part], y[part]))):
        said_to_be = np.where(half, use(~half).confidence(x), use(half).confidence(x))
        print(f"calibration error, {name}: {calibration_error(said_to_be, y):.4f}")
    fitted = fit(x, y)
    print(f"{fitted}, low confidence: {(fitted.confidence(x) < fitted.low).mean():.1%}")
    save_bundle(options.out, replace(bundle, calibration=fitted), options.precision)


if __name__ == "__main__":
    main()
