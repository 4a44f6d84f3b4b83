"""F1 of the eight held-out objects, CIDEr and METEOR of a run, by how much names count.

    python tools/measure_copying.py RUN [--split val] [--copying 0 2 4] [--include 0.5 0.6]

RUN is a folder of `sightline reproduce` with a captioner that copies names (`scene-trans` with `copy`), such as the row
`held-out-features` of default/captioner; its data lies below the folder that SIGHTLINE_DATA names. Each number is added
to the score of every copied word, as `tools/finish_default.py --copying` does. With --include, where the surest name of
one of the objects has that score or more, a caption that does not say it gives way to one that must: the best of a beam
of 5 with that word (constrained beam search, Anderson et al. 2017), so that decoding is told which words are held out.
Choose both on val, and measure on test once.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from scores_by_concepts import photos_of

from sightline.batch import SceneBatch
from sightline.caption import Caption
from sightline.checkpoint.model_checkpoint import Checkpoint, load
from sightline.decoding.decode import caption_words, decode
from sightline.decoding.strategies import Beam
from sightline.files import model_file
from sightline.metrics.novel import MEAN, NOVEL, novel_objects
from sightline.models.captioner import select
from sightline.models.scene_trans import SceneTrans
from sightline.training.evaluation import Evaluation, evaluate
from sightline.training.recipe import read_run_recipe
from sightline.vision.concept_tokens import token_names

NEVER = 2.0  # the least score of a name that no name has
OBJECTS_OF = {id: objects for id, name in enumerate(token_names()) if (objects := novel_objects(name))}  # of a name
COLUMNS = (MEAN, *(f"F1 {name}" for name in NOVEL), "METEOR", "CIDEr", "BLEU-4")


def objects_of(scenes: SceneBatch, least: float) -> list[str]:
    """The object of each photo whose name is the surest; "" where none has a score of `least`."""
    objects = []
    for names, scores in zip(scenes.part("names").tolist(), scenes.part("name_scores").amax(2).tolist(), strict=True):
        named = [(score, object) for id, score in zip(names, scores, strict=True) for object in OBJECTS_OF.get(id, ())]
        surest = max(named, default=(0.0, ""))
        objects.append(surest[1] if surest[0] >= least else "")
    return objects


def captions_with_names(checkpoint: Checkpoint, how: Evaluation, least: float, scenes: SceneBatch) -> list[Caption]:
    """The caption of each photo, with the object that its names are sure of."""
    model, vocabulary = checkpoint.captioner(), checkpoint.vocabulary
    memory = model.encode(scenes)
    words = [own[0] for own in caption_words(decode(model, memory, how.strategy, how.rules, vocabulary), vocabulary)]
    objects = objects_of(scenes, least)
    lacking = [
        bool(name) and name not in novel_objects(" ".join(own)) for name, own in zip(objects, words, strict=True)
    ]
    for name in sorted({name for name, lacks in zip(objects, lacking, strict=True) if lacks}):
        rows = [row for row, lacks in enumerate(lacking) if lacks and objects[row] == name]
        rules = replace(how.rules, must_include=(name,))
        decoded = decode(model, select(memory, torch.tensor(rows)), Beam(5), rules, vocabulary)
        for row, own in zip(rows, caption_words(decoded, vocabulary), strict=True):
            words[row] = own[0]
    return [Caption(own) for own in words]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", choices=("val", "test"), default="val")
    parser.add_argument("--copying", type=float, nargs="+", default=(0.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    parser.add_argument("--include", type=float, nargs="+", default=(NEVER,))
    options = parser.parse_args(arguments)
    recipe = read_run_recipe(options.run / "recipe.yaml")
    checkpoint = load(model_file(options.run))
    model = checkpoint.model
    if not isinstance(model, SceneTrans) or model.copier is None:
        raise SystemExit(f"{options.run}: its captioner copies nothing")
    pool = replace(photos_of(recipe.data, checkpoint, options.split), texts=None)  # their likelihood is not asked for
    how = replace(recipe.evaluate, novel=True, metrics=("bleu", "meteor", "cider"))
    learned = model.copier.bias.detach().clone()
    print(f"| copying | include | {' | '.join(COLUMNS)} |\n|--:|--:|{'--:|' * len(COLUMNS)}")
    for more, least in itertools.product(options.copying, options.include):
        with torch.no_grad():
            model.copier.bias.copy_(learned + more)
        write = partial(captions_with_names, checkpoint, how, least)
        metrics = evaluate(checkpoint, pool, how, write=write).metrics
        shown = (f"{metrics[name]:.1f}" if name in metrics else "–" for name in COLUMNS)
        print(f"| {more:g} | {'–' if least == NEVER else f'{least:g}'} | {' | '.join(shown)} |", flush=True)
    print(f"\n{len(pool):,} photos of {options.split}")


if __name__ == "__main__":
    main()
