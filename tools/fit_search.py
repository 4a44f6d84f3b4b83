"""Choose the numbers of search on the dev photos of Flickr8k.

    python tools/fit_search.py --data DATA [--photos 500] [--captions 1] [--store FOLDER] [--model FILE]
        [--out search.json] [--json]

DATA holds `flickr8k/` (images, Flickr8k.token.txt, Flickr_8k.devImages.txt). Photos of other splits choose nothing. An
index that is kept (`--store`) is gone on with.

`CAPTION_WEIGHT` of sightline.search.query is what captions count besides vectors. Queries are the first captions that
people wrote of each photo; what is chosen has the largest sum of R@1, R@5 and R@10, the shares of photos that are found
among so many.

`AVOID_WEIGHT` is what `--not` counts. Queries are two nouns that the model knows, one wanted and one not, and that are
no kinds of each other: at least 10 photos have both in people's five captions, and at least 10 only the first. Hits
with the first and without the second are *right*; what is chosen has the largest share of them among the first 10.

`MATCH_COSINE` is the cosine below which a hit is a weaker match: 95 % of people's captions are nearer to their own
photo. `NOUN_COSINE` is that of a single word. Queries are nouns that the model knows and at least 10 photos have; of
the first 20 hits, those that are no weaker match are compared with those whose people say the noun, and what is chosen
has the best F1. *nothing there* is how many of 20 are no weaker match for a name that no caption says.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measured_options import parser, report
from measured_photos import TestPhoto, flickr8k
from measured_scores import named_by_people

from sightline.grounding.nouns import may_name_the_same
from sightline.pipeline import Pipeline, load
from sightline.search import query
from sightline.search.engine import Candidate, keywords
from sightline.search.query import PhotoIndex, open_index
from sightline.text.lemmas import lemma
from sightline.vision.concept_tokens import token_names
from sightline.vision.photo_reader import progress_bar

CAPTION_WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.7)
AVOID_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
NOUN_COSINES = (0.3, 0.34, 0.38, 0.42, 0.46, 0.48, 0.5, 0.52, 0.55)
RANKS = (1, 5, 10)
SHOWN = 20  # hits of a noun
MOST = max(RANKS)
OWN = 0.05  # of people's captions, this share may be further from their photo than a match is
ENOUGH = 10  # photos with both nouns, and with the first alone

Scores = dict[str, float]


def candidates(pipeline: Pipeline, store: str, asked: Sequence[tuple[str, str]]) -> list[list[Candidate]]:
    """What each search finds before it is ranked; `asked` are photos' names and words."""
    engine, found = open_index(store), []
    for _, words in progress_bar("searching")(asked):
        vector = pipeline.text_vectors([words])[0]
        found.append(engine.find(vector / np.linalg.norm(vector), keywords(words), query.CANDIDATES))
    return found


def recalls(asked: Sequence[tuple[str, str]], found: Sequence[Sequence[Candidate]]) -> Scores:
    """Shares of photos that are among the first of their candidates, and the sum of the shares, in per cent."""
    places = []
    for (name, _), own in zip(asked, found, strict=True):
        names = [Path(one.path).name for one, _ in query.rank(own)[:MOST]]
        places.append(names.index(name) if name in names else MOST)
    scores = {f"R@{rank}": 100 * float(np.mean([place < rank for place in places])) for rank in RANKS}
    return {**scores, "sum": sum(scores.values())}


def pairs(nouns: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Nouns to look for, and nouns to avoid with them; `nouns` are those of each photo."""
    with_noun: dict[str, set[str]] = {}
    for name, own in nouns.items():
        for noun in own:
            with_noun.setdefault(noun, set()).add(name)
    often = sorted(noun for noun, names in with_noun.items() if len(names) >= ENOUGH)
    return [
        (one, other)
        for one, other in itertools.permutations(often, 2)
        if len(with_noun[one] & with_noun[other]) >= ENOUGH <= len(with_noun[one] - with_noun[other])
        and not may_name_the_same(one, other)
    ]


def clear_of(
    index: PhotoIndex, pipeline: Pipeline, asked: Sequence[tuple[str, str]], nouns: Mapping[str, set[str]]
) -> Scores:
    """What the first hits of `one --not other` have: the one without the other, the one, the other; in per cent."""
    right, wanted, avoided = list[bool](), list[bool](), list[bool]()
    for one, other in progress_bar("avoiding")(asked):
        for hit in index.search(pipeline, one, avoid=other, count=MOST):
            own = nouns[Path(hit.path).name]
            wanted.append(one in own)
            avoided.append(other in own)
            right.append(wanted[-1] and not avoided[-1])
    shares = {"right": right, "with the wanted": wanted, "with the unwanted": avoided}
    return {name: 100 * float(np.mean(values)) if values else 0.0 for name, values in shares.items()}


def matches(
    index: PhotoIndex, pipeline: Pipeline, present: Sequence[str], absent: Sequence[str], nouns: Mapping[str, set[str]]
) -> Scores:
    """How hits that are no weaker matches agree with people, in per cent; how many there are of what is not there."""
    strong = right = true = 0
    for noun in progress_bar("looking for nouns")(present):
        for hit in index.search(pipeline, f"a {noun}", count=SHOWN):
            has = noun in nouns[Path(hit.path).name]
            strong, right, true = strong + (not hit.weak), right + (has and not hit.weak), true + has
    none = [sum(not hit.weak for hit in index.search(pipeline, f"a {name}", count=SHOWN)) for name in absent]
    return {
        "precision": 100 * right / max(strong, 1),
        "recall": 100 * right / max(true, 1),
        "F1": 200 * right / max(strong + true, 1),
        "nothing there": float(np.mean(none)) if none else 0.0,
    }


def chosen(told: Mapping[float, Scores], criterion: str) -> float:
    """The weight with the best score; of equals, the smallest."""
    return max(sorted(told), key=lambda weight: told[weight][criterion])


@contextlib.contextmanager
def weighed(name: str, value: float) -> Iterator[None]:
    """Search with another weight."""
    usual = getattr(query, name)
    setattr(query, name, value)
    try:
        yield
    finally:
        setattr(query, name, usual)


def fit(pipeline: Pipeline, photos: Sequence[TestPhoto], store: str, captions: int) -> dict[str, Any]:
    """Both weights, each with the other as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for photo in photos:
            (Path(folder) / photo.path.name).symlink_to(photo.path.resolve())
        pipeline.index(folder, store, progress=progress_bar("indexing"))
    saying, avoiding = dict[float, Scores](), dict[float, Scores]()
    asked = [(photo.path.name, text) for photo in photos for text in photo.references[:captions]]
    found = candidates(pipeline, store, asked)
    for weight in CAPTION_WEIGHTS:
        with weighed("CAPTION_WEIGHT", weight):
            saying[weight] = recalls(asked, found)
    known = set(pipeline.bundle.matcher.vocabulary) if pipeline.bundle.matcher is not None else set()
    named = zip(photos, named_by_people(photos, ()), strict=True)
    nouns = {photo.path.name: own & known for photo, own in named}
    two, index = pairs(nouns), PhotoIndex(store)
    for weight in AVOID_WEIGHTS if two else ():
        with weighed("AVOID_WEIGHT", weight):
            avoiding[weight] = clear_of(index, pipeline, two, nouns)
    often = Counter(noun for own in nouns.values() for noun in own)
    present = sorted(noun for noun, count in often.items() if count >= ENOUGH)
    said = {lemma(word, "n") for photo in photos for text in photo.references for word in text.lower().split()}
    names = set(token_names()) & known
    absent = [
        name
        for name in sorted(names - said)
        if not any(may_name_the_same(name, noun) for noun in names.intersection(present))
    ]
    finding = dict[float, Scores]()
    for cosine in NOUN_COSINES if present else ():
        with weighed("NOUN_COSINE", cosine):
            finding[cosine] = matches(index, pipeline, present, absent, nouns)
    vectors = pipeline.vectors([photo.path for photo in photos])
    texts = pipeline.text_vectors([photo.references[0] for photo in photos])
    own = (vectors * texts).sum(1) / np.linalg.norm(texts, axis=1)
    return {
        "photos": len(photos),
        "MATCH_COSINE": {"chosen": round(float(np.quantile(own, OWN)), 2), "shipped": query.MATCH_COSINE},
        "CAPTION_WEIGHT": _told(saying, "sum", query.CAPTION_WEIGHT, len(asked)),
        "AVOID_WEIGHT": _told(avoiding, "right", query.AVOID_WEIGHT, len(two)) if two else None,
        "NOUN_COSINE": _told(finding, "F1", query.NOUN_COSINE, len(present)) if present else None,
    }


def _told(scores: Mapping[float, Scores], criterion: str, shipped: float, queries: int) -> dict[str, Any]:
    rows = [{"weight": weight, **own} for weight, own in scores.items()]
    return {"queries": queries, "chosen": chosen(scores, criterion), "shipped": shipped, "dev": rows}


def _tell(results: dict[str, Any]) -> None:
    print(f"{results['photos']:,} dev photos")
    print(f"MATCH_COSINE: chosen {results['MATCH_COSINE']['chosen']:g}, shipped {results['MATCH_COSINE']['shipped']:g}")
    for name in ("CAPTION_WEIGHT", "AVOID_WEIGHT", "NOUN_COSINE"):
        part = results[name]
        if part is None:
            print(f"{name}: too few photos have the same nouns")
            continue
        print(f"{name}: {part['queries']:,} queries; chosen {part['chosen']:g}, shipped {part['shipped']:g}")
        for row in part["dev"]:
            print(f"{row['weight']:8g}  " + "  ".join(f"{key} {row[key]:5.1f}" for key in row if key != "weight"))


def main(argv: list[str] | None = None) -> dict[str, Any]:
    asked = parser(__doc__, 500)
    asked.add_argument("--captions", type=int, default=1, help="of each photo that are queries, up to 5")
    asked.add_argument("--store", help="keep the index here")
    options = asked.parse_args(argv)
    photos, pipeline = flickr8k(options.data, "dev")[: options.photos], load(options.model, options.device)
    with tempfile.TemporaryDirectory() as folder:
        results = fit(pipeline, photos, options.store or folder, options.captions)
    report(results, options, _tell)
    return results


if __name__ == "__main__":
    main()
