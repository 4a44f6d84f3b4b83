"""What is a good caption: one that agrees with people as well as the median of people's own captions does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sightline.errors import CountError
from sightline.metrics.cider import CIDErD, DocumentFrequencies


def human_bar(references: Mapping[str, Sequence[str]]) -> float:
    """The median CIDEr-D of people's captions, each against the other references of its photo.

    References are PTB-tokenised. Document frequencies are those of all of them, as for the captions to be compared;
    photos with a single reference say nothing.
    """
    frequencies, scores = DocumentFrequencies.of(references.values()), list[float]()
    for place in range(max(map(len, references.values()), default=0)):
        said = {id: known[place] for id, known in references.items() if place < len(known) > 1}
        others = {id: [*references[id][:place], *references[id][place + 1 :]] for id in said}
        scores += cider(said, others, frequencies).values()
    if not scores:
        raise CountError("no photo has two references, to compare people with people", fix="give more references")
    return float(np.median(scores))


def good(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> tuple[dict[str, bool], float]:
    """For each photo whether its caption, PTB-tokenised, reaches the bar; and the bar."""
    bar = human_bar(references)
    scores = cider(captions, references, DocumentFrequencies.of(references.values()))
    return {id: score >= bar for id, score in scores.items()}, bar


def cider(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], frequencies: DocumentFrequencies
) -> dict[str, float]:
    """The CIDEr-D of each caption."""
    metric = CIDErD(frequencies)
    metric.update(captions, references)
    return {id: scores["CIDEr"] for id, scores in metric.compute().per_image.items()}
