"""SPICE (Anderson et al. 2016): agreement of captions with their references in objects, attributes and relations.

People read it as "SPICE (Sightline parser)": the graphs come from this package's own parser (`scene_graph`), so values
are near those of the Java tool but not equal to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.metrics.scene_graph import SceneGraph, SceneTuple, parse_all
from sightline.metrics.scene_matching import Match, first_hits, merge_graphs
from sightline.metrics.scene_words import COLORS, COUNTS, SIZES

IMAGES_AT_ONCE = 512  # enough for captions to be tagged in large batches; progress is told after each
MOST_CAPTIONS = 1 << 17  # forget parsed captions when there are more, to bound memory

CATEGORIES: dict[str, Callable[[SceneTuple], bool]] = {
    "Object": lambda item: len(item) == 1,
    "Attribute": lambda item: len(item) == 2,
    "Relation": lambda item: len(item) == 3,
    "Color": lambda item: len(item) == 2 and item[1] in COLORS,
    "Cardinality": lambda item: len(item) == 2 and (item[1] in COUNTS or item[1].isdigit()),
    "Size": lambda item: len(item) == 2 and item[1] in SIZES,
}


@dataclass(frozen=True)
class Agreement:
    """How many tuples a hypothesis and its references have, and how many of them match."""

    matched: int
    said: int
    heard: int

    @property
    def precision(self) -> float:
        """The share of the hypothesis' tuples that the references hold; 0 where it has none."""
        return self.matched / self.said if self.said else 0.0

    @property
    def recall(self) -> float:
        """The share of the references' tuples that the hypothesis holds; 0 where they have none."""
        return self.matched / self.heard if self.heard else 0.0

    @property
    def f(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.matched / (self.said + self.heard) if self.matched else 0.0


@dataclass(frozen=True)
class Explanation:
    """Tuples that match (the hypothesis' and the references'), that only the hypothesis has, and that it lacks."""

    matched: tuple[Match, ...]
    unmatched: tuple[SceneTuple, ...]
    missed: tuple[SceneTuple, ...]

    def agreement(self, category: str | None = None) -> Agreement:
        """Counts over all tuples, or over those of one of the `CATEGORIES`.

        A pair counts where either of its tuples is of the category: *crimson* may be matched by *red*.
        """
        if category is None:
            matched = len(self.matched)
            return Agreement(matched, matched + len(self.unmatched), matched + len(self.missed))
        holds = CATEGORIES[category]
        matched = sum(holds(one) or holds(other) for one, other in self.matched)
        return Agreement(matched, matched + sum(map(holds, self.unmatched)), matched + sum(map(holds, self.missed)))


@dataclass(frozen=True)
class Breakdown:
    """Mean F, precision and recall of one category over the `images` where the hypothesis or a reference has it."""

    f: float
    precision: float
    recall: float
    images: int


class Spice(LanguageMetric):
    """F of scene-graph tuples against all references of the image merged into one graph. Corpus: the mean."""

    keys = ("SPICE",)
    title = "SPICE (Sightline parser)"

    def __init__(self) -> None:
        self._graphs: dict[str, SceneGraph] = {}  # outlives reset(): references are often scored again
        super().__init__()

    def reset(self) -> None:
        """Forget every image."""
        super().reset()
        self._explanations: dict[str, Explanation] = {}

    def compute(self) -> Scores:
        """Scores of everything since the last reset; zero for no image at all."""
        scores = {id: {"SPICE": found.agreement().f} for id, found in self._explained().items()}
        corpus = float(np.mean([row["SPICE"] for row in scores.values()])) if scores else 0.0
        return Scores({"SPICE": corpus}, scores)

    def agreements(self) -> dict[str, dict[str, Agreement]]:
        """Counts for every image: of all tuples as "All", and of each category that its captions have."""
        table: dict[str, dict[str, Agreement]] = {}
        for id, found in self._explained().items():
            rows = {category: found.agreement(category) for category in CATEGORIES}
            occurring = {category: row for category, row in rows.items() if row.said or row.heard}
            table[id] = {"All": found.agreement(), **occurring}
        return table

    def breakdown(self) -> dict[str, Breakdown]:
        """Means over the images, for "All" and for each category over the images where it occurs."""
        rows: dict[str, list[Agreement]] = {category: [] for category in ("All", *CATEGORIES)}
        for found in self.agreements().values():
            for category, agreement in found.items():
                rows[category].append(agreement)
        return {category: _mean(agreements) for category, agreements in rows.items()}

    def explain(self, hypothesis: str, references: Sequence[str]) -> Explanation:
        """What the hypothesis says that the references say too, what only it says, and what it leaves unsaid."""
        self._parse([hypothesis, *references])
        return self._matched(hypothesis, references)

    def _explained(self) -> dict[str, Explanation]:
        """Every image's tuples, in the order of `update`; those computed before are kept."""
        fresh = [id for id in self._hypotheses if id not in self._explanations]
        for start in range(0, len(fresh), IMAGES_AT_ONCE):
            ids = fresh[start : start + IMAGES_AT_ONCE]
            self._parse([caption for id in ids for caption in (self._hypotheses[id], *self._references[id])])
            for id in ids:
                self._explanations[id] = self._matched(self._hypotheses[id], self._references[id])
            self.done(len(ids))
        return self._explanations

    def _parse(self, captions: Sequence[str]) -> None:
        if len(self._graphs) > MOST_CAPTIONS:
            self._graphs.clear()
        self._graphs.update(parse_all(caption for caption in captions if caption not in self._graphs))

    def _matched(self, hypothesis: str, references: Sequence[str]) -> Explanation:
        said = merge_graphs([self._graphs[hypothesis]]).tuples()
        heard = merge_graphs(self._graphs[reference] for reference in references).tuples()
        matched = first_hits(said, heard)
        ours, theirs = {one for one, _ in matched}, {other for _, other in matched}
        return Explanation(
            tuple(matched),
            tuple(one for one in said if one not in ours),
            tuple(other for other in heard if other not in theirs),
        )


def _mean(agreements: Sequence[Agreement]) -> Breakdown:
    if not agreements:
        return Breakdown(0.0, 0.0, 0.0, 0)
    table = np.array([(row.f, row.precision, row.recall) for row in agreements])
    f, precision, recall = table.mean(axis=0).tolist()
    return Breakdown(f, precision, recall, len(agreements))
