"""F1 of the eight held-out objects, CIDEr and METEOR of a run, by how much names count.

    python tools/measure_copying.py RUN [--split val] [--copying 0 2 4] [--include 0.5 0.6]

RUN is a folder of `sightline reproduce` with a captioner that copies names (`scene-trans` with `copy`), such as the row
`held-out-features` of default/captioner; its data lies below the folder that SIGHTLINE_DATA names. Each number is added
to the score of every copied word, as `tools/finish_default.py --copying` does. With --include, where the surest name
that no training caption says has that score or more, a caption that does not say it gives way to one that must: the
best of a beam of 5 with that word (constrained beam search, Anderson et al. 2017). Choose both on val, and measure on
test once.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
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
from sightline.metrics.novel import MEAN, NOVEL
from sightline.models.captioner import select
from sightline.models.scene_trans import SceneTrans
from sightline.text.vocabulary import rule
from sightline.training.data_config import DataConfig
from sightline.training.evaluation import Evaluation, evaluate
from sightline.training.launch import data_root
from sightline.training.recipe import read_run_recipe
from sightline.training.recipe_captions import read_photos
from sightline.vision.concept_tokens import token_names

NEVER = 2.0  # the least score of a name that no name has
COLUMNS = (MEAN, *(f"F1 {name}" for name in NOVEL), "METEOR", "CIDEr", "BLEU-4")


def unsaid_names(data: DataConfig, checkpoint: Checkpoint) -> dict[int, str]:
    """The names, by their places, of one word that the captioner knows and no caption of its training photos has."""
    split, config = rule(checkpoint.text_rule).words, replace(data, root=data_root() / data.root)
    photos = read_photos(config, Path(), []).get("train", ())
    said = {word for photo in photos for sentence in photo.sentences for word in split(sentence.text)}
    known = set(checkpoint.vocabulary.words) - said
    return {place: name for place, name in enumerate(token_names()) if name in known}


def surest(scenes: SceneBatch, names: Mapping[int, str], least: float) -> list[str]:
    """The surest of `names` of each photo; "" where none has a score of `least`."""
    found = []
    for places, scores in zip(scenes.part("names").tolist(), scenes.part("name_scores").amax(2).tolist(), strict=True):
        own = [(score, names[place]) for place, score in zip(places, scores, strict=True) if place in names]
        score, name = max(own, default=(0.0, ""))
        found.append(name if score >= least else "")
    return found


def captions_with_names(
    checkpoint: Checkpoint, how: Evaluation, names: Mapping[int, str], least: float, scenes: SceneBatch
) -> list[Caption]:
    """The caption of each photo, with the surest of `names` where it has a score of `least`."""
    model, vocabulary = checkpoint.captioner(), checkpoint.vocabulary
    memory = model.encode(scenes)
    words = [own[0] for own in caption_words(decode(model, memory, how.strategy, how.rules, vocabulary), vocabulary)]
    lacking = ["" if name in own else name for name, own in zip(surest(scenes, names, least), words, strict=True)]
    for name in sorted(set(lacking) - {""}):
        rows = [row for row, lacks in enumerate(lacking) if lacks == name]
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
    names = unsaid_names(recipe.data, checkpoint) if min(options.include) < NEVER else {}
    learned = model.copier.bias.detach().clone()
    print(f"| copying | include | {' | '.join(COLUMNS)} |\n|--:|--:|{'--:|' * len(COLUMNS)}")
    for more, least in itertools.product(options.copying, options.include):
        with torch.no_grad():
            model.copier.bias.copy_(learned + more)
        write = partial(captions_with_names, checkpoint, how, names, least)
        metrics = evaluate(checkpoint, pool, how, write=write).metrics
        shown = (f"{metrics[name]:.1f}" if name in metrics else "–" for name in COLUMNS)
        print(f"| {more:g} | {'–' if least == NEVER else f'{least:g}'} | {' | '.join(shown)} |", flush=True)
    print(f"\n{len(pool):,} photos of {options.split}")


if __name__ == "__main__":
    main()
