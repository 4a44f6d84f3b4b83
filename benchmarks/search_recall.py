"""How often a photo is found by what a person said about it: photos with captions, indexed and searched.

    python benchmarks/search_recall.py IMAGES CAPTIONS LIST [--model FILE] [--photos 500] [--json]

    python benchmarks/search_recall.py flickr8k/images flickr8k/Flickr8k.token.txt flickr8k/Flickr_8k.testImages.txt

CAPTIONS has a line a caption, `name.jpg#0<tab>words`; LIST has a name a line, of which the first `--photos` are taken.
Queries are a person's first caption of each photo, and the caption that the model itself gives. Hits are those of
`sightline search`, with vectors alone, and with what captions say. An index that is kept (`--store`) is gone on with.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.pipeline import Pipeline, load
from sightline.search.query import PhotoIndex, open_index
from sightline.vision.photo_reader import progress_bar

RANKS = (1, 5, 10)


def recalls(
    index: PhotoIndex, pipeline: Pipeline, asked: Sequence[tuple[str, str]], captions: bool
) -> dict[str, float]:
    """Shares of (path, words) whose path is among the first hits of the words."""
    places = []
    for path, words in asked:
        found = [hit.path for hit in index.search(pipeline, words, count=max(RANKS), captions=captions)]
        places.append(found.index(path) if path in found else max(RANKS))
    return {f"R@{rank}": sum(place < rank for place in places) / len(places) for rank in RANKS}


def run(photos: Sequence[Path], said: dict[str, str], pipeline: Pipeline, store: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        for photo in photos:
            (Path(folder) / photo.name).symlink_to(photo.absolute())
        pipeline.index(folder, store, progress=progress_bar("indexing"))
        engine, index = open_index(store), PhotoIndex(store)
        rows = engine.rows(list(engine.states()))
        by_person = [(row.path, said[Path(row.path).name]) for row in rows]
        by_model = [(row.path, row.caption or "") for row in rows]
        return {
            "photos": len(rows),
            "a person's caption, vectors only": recalls(index, pipeline, by_person, captions=False),
            "a person's caption, hybrid": recalls(index, pipeline, by_person, captions=True),
            "its own caption, vectors only": recalls(index, pipeline, by_model, captions=False),
            "its own caption, hybrid": recalls(index, pipeline, by_model, captions=True),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("captions", type=Path)
    parser.add_argument("list", type=Path)
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--store", help="keep the index here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = [line.partition("\t") for line in options.captions.read_text("utf-8").splitlines()]
    said = {key.removesuffix("#0"): words for key, _, words in lines if key.endswith("#0")}
    names = [name for name in options.list.read_text("utf-8").split() if (options.images / name).exists()]
    photos = [options.images / name for name in names[: options.photos]]
    pipeline = load(options.model, "cpu", options.threads)
    with tempfile.TemporaryDirectory() as folder:
        told = run(photos, said, pipeline, options.store or folder)
    if options.json:
        print(json.dumps(told, indent=2))
        return
    print(f"{told.pop('photos')} photos")
    for name, found in told.items():
        print(f"{name:36}" + "".join(f"{rank:>6} {share:6.1%}" for rank, share in found.items()))


if __name__ == "__main__":
    main()
