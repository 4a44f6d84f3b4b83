"""CIDEr of a run's captions by what was found in the photos: what R²M says is made of concepts alone.

    python tools/scores_by_concepts.py RUN BOXES

RUN is a folder of `sightline reproduce`, whose captions are read, and below the folder that SIGHTLINE_DATA names the
captions of people; BOXES is the file that concepts came from. Photos are told apart by their concepts: a person alone,
a person and more, something else, nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from collect_results import references_of

from sightline.data.concept_dictionary import MIN_SCORE, ConceptDictionary
from sightline.files import read_json
from sightline.metrics.scorecard import scorecard
from sightline.training.features import match_some, open_scenes
from sightline.training.launch import CAPTIONS, data_root
from sightline.training.recipe import read_run_recipe
from sightline.training.recipe_captions import read_captions


def kind(concepts: Iterable[str]) -> str:
    """What a photo shows, by its concepts."""
    names = set(concepts)
    if names == {"person"}:
        return "a person alone"
    if "person" in names:
        return "a person and more"
    return "something else" if names else "nothing"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("boxes", type=Path)
    options = parser.parse_args(arguments)
    captions = read_json(options.run / CAPTIONS)
    data = read_run_recipe(options.run / "recipe.yaml").data
    files = tuple(data.path(path, data_root()) for path in data.caption_files)
    people = references_of(files)
    scores = scorecard(captions, {id: people[id] for id in captions}, ("cider",)).scores.per_image
    photos = [photo for path in files for photo in read_captions(path) if photo.id in captions]
    scenes, dictionary = open_scenes(options.boxes), ConceptDictionary.coco()
    place = match_some(photos, scenes.ids(), options.boxes, fix="give the boxes of these photos")
    groups: dict[str, list[float]] = {}
    for photo in photos:
        found = dictionary.of_scene(scenes[place[photo.id]], MIN_SCORE) if photo.id in place else ()
        groups.setdefault(kind(one.name for one in found), []).append(100 * scores[photo.id]["CIDEr"])
    print("| found in the photo | photos | CIDEr |\n|---|--:|--:|")
    for name, values in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"| {name} | {len(values):,} | {fmean(values):.1f} |")
    said = Counter(captions.values())
    (text, times), *_ = said.most_common(1)
    print(f"\n{len(said):,} different captions of {len(captions):,} photos; {times:,} are “{text}”")


if __name__ == "__main__":
    main()
