"""Words that were never captioned in training: the held-out COCO protocol (Hendricks et al. 2016, section 4.1).

Photos that any caption describes with one of eight objects leave the training set. F1 tells for each object whether
captions name it where people do. Different from the paper: photos are those of whatever split is measured (theirs are
half of COCO's val2014), and *buses* counts as bus, which is not in their lists of words.
"""

import re
from collections.abc import Iterable, Mapping

from sightline.errors import MissingRecordError

NOVEL: dict[str, frozenset[str]] = {
    "bottle": frozenset(("bottle", "bottles")),
    "bus": frozenset(("bus", "buses", "busses")),
    "couch": frozenset(("couch", "couches", "sofa", "sofas")),
    "microwave": frozenset(("microwave", "microwaves")),
    "pizza": frozenset(("pizza", "pizzas")),
    "racket": frozenset(("racket", "rackets", "racquet", "racquets")),
    "suitcase": frozenset(("suitcase", "suitcases", "luggage", "luggages")),
    "zebra": frozenset(("zebra", "zebras")),
}
MEAN = "novel F1"


def novel_objects(text: str) -> set[str]:
    """Which of the eight objects a caption names.

    >>> sorted(novel_objects("Two sofas and a Pizza."))
    ['couch', 'pizza']
    """
    words = set(re.sub(r"[^a-z0-9\s]+", "", text.lower()).split())  # as the paper's scorer splits captions
    return {name for name, forms in NOVEL.items() if not forms.isdisjoint(words)}


def novel_f1(captions: Mapping[str, str], references: Mapping[str, Iterable[str]]) -> dict[str, float]:
    """F1 of each object over photos, in percent, and their mean `novel F1`.

    A photo shows an object if one of its references names it. An object that nobody names has no F1 and is no part of
    the mean; where none is named there is no mean either.
    """
    if missing := [id for id in captions if id not in references]:
        raise MissingRecordError(f"photo {missing[0]} has no reference", fix="add references for it or leave it out")
    predicted = {id: novel_objects(text) for id, text in captions.items()}
    true = {id: set().union(*map(novel_objects, references[id])) for id in captions}
    scores: dict[str, float] = {}
    for name in NOVEL:
        positives = sum(name in objects for objects in predicted.values())
        photos = sum(name in objects for objects in true.values())
        hits = sum(name in predicted[id] & true[id] for id in captions)
        if photos:  # 2PR / (P + R) with P = hits / positives, R = hits / photos
            scores[f"F1 {name}"] = 200 * hits / (positives + photos)
    return scores | ({MEAN: sum(scores.values()) / len(scores)} if scores else {})
