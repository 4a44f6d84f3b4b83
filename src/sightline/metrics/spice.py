"""SPICE (Anderson et al. 2016): agreement of captions with their references in objects, attributes and relations.

People read it as "SPICE (Sightline parser)": the graphs come from this package's own parser (`scene_graph`), so values
are near those of the Java tool but not equal to them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sightline.metrics.caption_phrases import general_name
from sightline.metrics.language_metric import LanguageMetric, Scores, mean_scores
from sightline.metrics.scene_graph import SceneGraph, SceneTuple, parse_all
from sightline.text import wordnet

Match = tuple[SceneTuple, SceneTuple]


def same_object(a: str, b: str) -> bool:
    """Whether two objects are the same string, share a noun synset, or one is the other's general name.

    The last is for compounds, which are one object here: a *tennis court* is matched by *court*, not by *clay court*.
    """
    if a == b or wordnet.share_synset(a, b, "n"):
        return True
    return (" " in a and general_name(a) == b) or (" " in b and general_name(b) == a)


def same_word(a: str, b: str) -> bool:
    """Whether two attributes or relations are the same string or share a synset of any part of speech."""
    return a == b or wordnet.share_synset(a, b)


def same_tuple(a: SceneTuple, b: SceneTuple) -> bool:
    if len(a) != len(b) or not same_object(a[0], b[0]):
        return False
    if len(a) == 3:
        return same_object(a[2], b[2]) and same_word(a[1], b[1])
    return len(a) == 1 or same_word(a[1], b[1])


def merge_graphs(graphs: Iterable[SceneGraph]) -> SceneGraph:
    """One graph of several: an object joins the first it matches, and what is said of both is said once.

    No two tuples of a merged graph match each other, so a caption agrees fully with itself.
    """
    name: dict[str, str] = {}  # of each object, the object it joined
    objects: list[str] = []
    attributes: dict[str, list[str]] = {}
    relations: dict[tuple[str, str], list[str]] = {}
    for graph in graphs:
        for thing in graph.objects:
            if thing not in name:
                name[thing] = next((other for other in objects if same_object(thing, other)), thing)
                if name[thing] is thing:
                    objects.append(thing)
        for thing, attribute in graph.attributes:
            _add(attributes.setdefault(name[thing], []), attribute)
        for subject, relation, thing in graph.relations:
            if name[subject] != name[thing]:
                _add(relations.setdefault((name[subject], name[thing]), []), relation)
    return SceneGraph(
        tuple(objects),
        tuple((thing, word) for thing, words in attributes.items() for word in words),
        tuple((subject, word, thing) for (subject, thing), words in relations.items() for word in words),
    )


def _add(words: list[str], word: str) -> None:
    if not any(same_word(word, other) for other in words):
        words.append(word)


def match_tuples(hypothesis: Sequence[SceneTuple], references: Sequence[SceneTuple]) -> list[Match]:
    """Give each tuple of the hypothesis, in order, the first of the references that matches it and is still free."""
    free = list(references)
    matches: list[Match] = []
    for ours in hypothesis:
        for place, theirs in enumerate(free):
            if same_tuple(ours, theirs):
                matches.append((ours, theirs))
                del free[place]
                break
    return matches


IMAGES_AT_ONCE = 512  # enough for captions to be tagged in large batches; progress is reported after each
MOST_CAPTIONS = 1 << 17  # forget parsed captions when there are more, to bound memory


@dataclass(frozen=True)
class Explanation:
    """Tuples that match (the hypothesis' and the references'), that only the hypothesis has, and that it lacks."""

    matched: tuple[Match, ...]
    unmatched: tuple[SceneTuple, ...]
    missed: tuple[SceneTuple, ...]

    @property
    def f(self) -> float:
        """The harmonic mean of precision and recall: of the hypothesis' tuples and of the references' that match."""
        matched = len(self.matched)
        return 2 * matched / (2 * matched + len(self.unmatched) + len(self.missed)) if matched else 0.0


class Spice(LanguageMetric):
    """F of scene-graph tuples against all references of the image merged into one graph. Corpus: the mean."""

    keys = ("SPICE",)
    title = "SPICE (Sightline parser)"
    variant = "spice:sightline-parser"

    def __init__(self) -> None:
        self._graphs: dict[str, SceneGraph] = {}  # outlives reset(): references are often scored again
        super().__init__()

    def reset(self) -> None:
        super().reset()
        self._scores: dict[str, float] = {}

    def compute(self) -> Scores:
        """Score the images that were not scored before."""
        new = [id for id in self._hypotheses if id not in self._scores]
        for start in range(0, len(new), IMAGES_AT_ONCE):
            ids = new[start : start + IMAGES_AT_ONCE]
            self._parse([caption for id in ids for caption in (self._hypotheses[id], *self._references[id])])
            for id in ids:
                self._scores[id] = self._compare(self._hypotheses[id], self._references[id]).f
            self.progress(len(self._scores))
        return mean_scores("SPICE", self._scores)

    def explain(self, hypothesis: str, references: Sequence[str]) -> Explanation:
        """What the hypothesis says that the references say too, what only it says, and what it leaves unsaid."""
        self._parse([hypothesis, *references])
        return self._compare(hypothesis, references)

    def _parse(self, captions: Sequence[str]) -> None:
        if len(self._graphs) > MOST_CAPTIONS:
            self._graphs.clear()
        self._graphs.update(parse_all(caption for caption in captions if caption not in self._graphs))

    def _compare(self, hypothesis: str, references: Sequence[str]) -> Explanation:
        ours = merge_graphs([self._graphs[hypothesis]]).tuples()
        theirs = merge_graphs(self._graphs[reference] for reference in references).tuples()
        matches = match_tuples(ours, theirs)
        our_matches, their_matches = {one for one, _ in matches}, {other for _, other in matches}
        return Explanation(
            tuple(matches),
            unmatched=tuple(one for one in ours if one not in our_matches),
            missed=tuple(other for other in theirs if other not in their_matches),
        )
