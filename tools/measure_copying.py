"""F1 of the eight held-out objects, CIDEr and METEOR of a run, by how much copied words count.

    python tools/measure_copying.py RUN [--split val] [--copying 0 2 4]

RUN is a folder of `sightline reproduce` with a captioner that copies names (`scene-trans` with `copy`), such as the row
`held-out-features` of default/captioner; its data lies below the folder that SIGHTLINE_DATA names. Each number is added
to the score of every copied word, as `tools/finish_default.py --copying` does. Choose it on val, measure on test once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from scores_by_concepts import photos_of

from sightline.checkpoint.model_checkpoint import load
from sightline.files import model_file
from sightline.metrics.novel import MEAN, NOVEL
from sightline.models.scene_trans import SceneTrans
from sightline.training.evaluation import evaluate
from sightline.training.recipe import read_run_recipe

COLUMNS = (MEAN, *(f"F1 {name}" for name in NOVEL), "METEOR", "CIDEr", "BLEU-4")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", choices=("val", "test"), default="val")
    parser.add_argument("--copying", type=float, nargs="+", default=(0.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    options = parser.parse_args(arguments)
    recipe = read_run_recipe(options.run / "recipe.yaml")
    checkpoint = load(model_file(options.run))
    model = checkpoint.model
    if not isinstance(model, SceneTrans) or model.copier is None:
        raise SystemExit(f"{options.run}: its captioner copies nothing")
    pool = photos_of(recipe.data, checkpoint, options.split)
    how = replace(recipe.evaluate, novel=True, metrics=("bleu", "meteor", "cider"))
    learned = model.copier.bias.detach().clone()
    print(f"| copying | {' | '.join(COLUMNS)} |\n|--:|{'--:|' * len(COLUMNS)}")
    for more in options.copying:
        with torch.no_grad():
            model.copier.bias.copy_(learned + more)
        metrics = evaluate(checkpoint, pool, how).metrics
        shown = (f"{metrics[name]:.1f}" if name in metrics else "–" for name in COLUMNS)
        print(f"| {more:g} | {' | '.join(shown)} |", flush=True)
    print(f"\n{len(pool):,} photos of {options.split}")


if __name__ == "__main__":
    main()
