"""CIDEr of an R²M run's captions by what was found in the photos, and what it would be if people named the concepts.

    python tools/scores_by_concepts.py RUN [--split val] [--min-score 0.5]

RUN is a row's folder of `sightline reproduce`; its data lies below the folder that SIGHTLINE_DATA names. R²M says what
concepts tell it, and nothing else of a photo. So photos are told apart by theirs: a person alone, a person and more,
something else. Then the same model captions the same photos once more, from concepts that at least two people mention
in their captions of a photo, where there are some: what it would say if its detector saw what people see.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from sightline.checkpoint.model_checkpoint import Checkpoint, load
from sightline.data.concept_dictionary import NAMED, ConceptDictionary
from sightline.files import model_file
from sightline.metrics.scorecard import scorecard
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import rule
from sightline.training.data import build_data
from sightline.training.data_config import DataConfig
from sightline.training.evaluation import Evaluation, write_captions
from sightline.training.launch import data_root
from sightline.training.recipe import read_run_recipe
from sightline.training.tensor_tables import Pool, SceneTable

PEOPLE = 2  # who mention a concept: what one alone mentions may be beside the point


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--min-score", type=float, help="of concepts, instead of the recipe's")
    options = parser.parse_args(arguments)
    recipe = read_run_recipe(options.run / "recipe.yaml")
    data = recipe.data if options.min_score is None else replace(recipe.data, min_score=options.min_score)
    checkpoint = load(model_file(options.run))
    pool = photos_of(data, checkpoint, options.split)
    texts, scores = captioned(checkpoint, pool, recipe.evaluate)
    groups: dict[str, list[float]] = {}
    found = concepts_of(pool, checkpoint)
    for id, names in found.items():
        groups.setdefault(kind(names), []).append(scores[id])
    print("| found in the photo | photos | CIDEr |\n|---|--:|--:|")
    for name, values in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"| {name} | {len(values):,} | {fmean(values):.1f} |")
    said = Counter(texts.values())
    (text, times), *_ = said.most_common(1)
    print(f"\n{len(said):,} different captions of {len(texts):,} photos; {times:,} are “{text}”")

    mentioned = mentions(pool, dictionary_of(data).within(checkpoint.vocabulary), checkpoint)
    right = sum(len(set(found[id]) & set(names)) for id, names in mentioned.items())
    print(f"\n{right:,} of {sum(map(len, found.values())):,} concepts found are among {PEOPLE} people's", end="")
    print(f", {right:,} of the {sum(map(len, mentioned.values())):,} that these mention are found.")
    scenes = [Scene(id, concepts=tuple(map(Concept, mentioned[id] or found[id]))) for id in pool.ids]
    table = SceneTable.build(scenes, ("concepts",), checkpoint.vocabulary)
    _, oracle = captioned(checkpoint, replace(pool, scenes=table), recipe.evaluate)
    print(f"CIDEr {fmean(scores.values()):.1f}; from what people mention {fmean(oracle.values()):.1f}.")


def kind(concepts: Iterable[str]) -> str:
    """What a photo shows, by its concepts."""
    names = set(concepts)
    if names == {"person"}:
        return "a person alone"
    return "a person and more" if "person" in names else "something else"


def dictionary_of(data: DataConfig) -> ConceptDictionary:
    named = NAMED.get(data.dictionary)
    return named() if named else ConceptDictionary.read(data.path(Path(data.dictionary), data_root()))


def photos_of(data: DataConfig, checkpoint: Checkpoint, split: str) -> Pool:
    """The photos of a split with their concepts and captions."""
    names = data.test if split == "test" else data.val
    alone = replace(data, train=(), val=(), test=names, corpus=None, sentiment="", vocabulary="rule")
    config = checkpoint.model.config
    return build_data(alone, config, base=data_root(), vocabulary=checkpoint.vocabulary).pools["test"]


def captioned(checkpoint: Checkpoint, pool: Pool, how: Evaluation) -> tuple[dict[str, str], dict[str, float]]:
    """Captions of the photos, and the CIDEr of each."""
    texts = write_texts(checkpoint, pool, how)
    per_image = scorecard(texts, dict(zip(pool.ids, pool.references, strict=True)), ("cider",)).scores.per_image
    return texts, {id: 100 * per_image[id]["CIDEr"] for id in texts}


def write_texts(checkpoint: Checkpoint, pool: Pool, how: Evaluation) -> dict[str, str]:
    return {id: " ".join(caption.words) for id, caption in write_captions(checkpoint, pool, how).items()}


def concepts_of(pool: Pool, checkpoint: Checkpoint) -> dict[str, list[str]]:
    """The concept words of each photo that its model reads."""
    assert isinstance(pool.scenes, SceneTable)
    scenes, word = pool.scenes.scenes, checkpoint.vocabulary.word
    ids, masks = scenes.part("concepts").tolist(), scenes.mask("concepts").tolist()
    return {
        photo: [word(id) for id, there in zip(row, mask, strict=True) if there]
        for photo, row, mask in zip(pool.ids, ids, masks, strict=True)
    }


def mentions(pool: Pool, dictionary: ConceptDictionary, checkpoint: Checkpoint) -> dict[str, list[str]]:
    """The concepts that several people mention in their captions of a photo, the most frequent first."""
    split = rule(checkpoint.text_rule).words
    named = {}
    for id, texts in zip(pool.ids, pool.references, strict=True):
        counts = Counter(name for names in dictionary.find_all([split(text) for text in texts]) for name in names)
        named[id] = [name for name, times in counts.most_common() if times >= PEOPLE]
    return named


if __name__ == "__main__":
    main()
