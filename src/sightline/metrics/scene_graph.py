"""Scene graphs of captions: objects, their attributes, and relations between them, as tuples of lemmas.

The rules follow the description in the SPICE paper (Anderson et al. 2016, section 3.1): every noun is an object;
adjectives, counts, nouns before a noun and verbs without an object are attributes; prepositions and verbs with an
object are relations. A verb before a preposition gives both: *a girl standing on a court* is (girl, stand) and
(girl, on, court). The words are read from left to right once, by rules instead of a dependency parser.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sightline.metrics.caption_phrases import COLORS, PLACED, Action, Phrase, Thing, Word, is_alive, read_phrases
from sightline.text.tagger import Tagger

SceneTuple = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SceneGraph:
    """What a caption says: (object,), (object, attribute) and (subject, relation, object), each once."""

    objects: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    relations: tuple[tuple[str, str, str], ...] = ()

    def tuples(self) -> list[SceneTuple]:
        """Objects, then attributes, then relations, in the order in which they are said."""
        return [*((thing,) for thing in self.objects), *self.attributes, *self.relations]


def parse(words: Sequence[str]) -> SceneGraph:
    """The scene graph of one caption, given as PTB tokens without punctuation.

    >>> parse("a black dog and a girl standing on a court".split()).relations
    (('dog', 'on', 'court'), ('girl', 'on', 'court'))
    """
    return parse_with_tags(words, Tagger.default().tag(words))


def parse_all(captions: Iterable[str]) -> dict[str, SceneGraph]:
    """The scene graphs of PTB-tokenised captions, each different one parsed once; tagged together, which is faster."""
    distinct = {caption: caption.split() for caption in captions}
    tags = Tagger.default().tag_all(list(distinct.values()))
    return {caption: parse_with_tags(words, of) for (caption, words), of in zip(distinct.items(), tags, strict=True)}


def parse_with_tags(words: Sequence[str], tags: Sequence[str]) -> SceneGraph:
    reader = _Reader(read_phrases([word.lower() for word in words], tags))
    return SceneGraph(tuple(reader.objects), tuple(reader.attributes), tuple(reader.relations))


class _Reader:
    """Reads phrases from left to right and keeps whom the next verb or preposition may speak of."""

    def __init__(self, row: list[Phrase]) -> None:
        self.objects: dict[str, None] = {}  # dicts keep what was said in order, once
        self.attributes: dict[tuple[str, str], None] = {}
        self.relations: dict[tuple[str, str, str], None] = {}
        self.subjects: list[str] = []  # of the clause
        self.nearest: list[str] = []  # the last things named, several where joined by *and*
        self.role = ""  # theirs: "subject", "object", or the preposition before them
        self.link: tuple[list[str], str] = ([], "")  # what ties them to others; so are the things joined to them
        self.actors: list[str] = []  # who does the last verb
        self.verb = ""  # a verb still waiting for its object
        self.passive = ""  # a verb that *by* may turn around
        self.relation = ""  # a preposition still waiting for its object
        self.related: list[str] = []  # what the last preposition speaks of
        self.described: list[str] = []  # what the last adjective speaks of
        self.before: tuple[Phrase | None, Phrase | None] = (None, None)  # the last but one phrase, the last phrase
        for place, phrase in enumerate(row):
            self.read(phrase, row[place + 1] if place + 1 < len(row) else None)
            self.before = self.before[1], phrase
        self.end_verb()

    def read(self, phrase: Phrase, after: Phrase | None) -> None:
        if isinstance(phrase, Thing):
            self.name(phrase)
            self.place(phrase.head, speaks=self.speaks(phrase.head, after))
        elif isinstance(phrase, Action):
            self.act(phrase)
        elif phrase.kind == "relation":
            self.relate(phrase.text)
        elif phrase.kind == "adjective":
            self.describe(phrase.text)
        elif phrase.kind == "pronoun":
            self.refer(phrase.text, speaks=isinstance(after, Action) or _is(after, "be"))
        elif phrase.kind in ("be", "clause", "there"):
            self.start(phrase.kind)

    def name(self, thing: Thing | None) -> None:
        """Note a thing, what stands before its noun, and its owners."""
        while thing is not None:
            self.objects[thing.head] = None
            for attribute in (*thing.attributes, *thing.nouns):
                self.attributes[thing.head, attribute] = None
            for noun in thing.nouns:
                if noun not in COLORS:
                    self.objects[noun] = None
            if thing.owner is not None:
                self.tie([thing.owner.head], "have", thing.head)
            thing = thing.owner

    def place(self, head: str, speaks: bool) -> None:
        """Find a thing's part in the clause; `speaks` where a verb follows, so that it may be a subject."""
        joined = _is(self.before[1], "and")
        listed = isinstance(self.before[0] if joined else self.before[1], Thing)  # two in a row: a comma was lost
        if listed and (self.role == "subject" or not (speaks or self.stands_apart(head))):
            self.tie(*self.link, head)
            self.nearest.append(head)  # for a subject this is the list of subjects, too
        elif joined or listed:
            self.set_subject(head)
        elif self.relation:
            self.place_after_preposition(head)
        elif self.verb:
            self.set_nearest(head, "object", self.actors, self.verb)
        elif _is(self.before[1], "be") and self.subjects:
            self.actors = self.subjects
            self.set_nearest(head, "object", self.subjects, "be")
        else:
            self.set_subject(head)

    def speaks(self, head: str, after: Phrase | None) -> bool:
        """Whether a thing with `after` behind it may start a clause: *holding* suits a woman rather than a bat."""
        if isinstance(after, Action) and after.tag == "VBG" and not after.helped:
            return is_alive(head) or not any(is_alive(subject) for subject in self.subjects)
        return isinstance(after, Action) or _is(after, "be")

    def stands_apart(self, head: str) -> bool:
        """Whether a thing joined to a preposition's is rather a second subject: *a woman in a hat and a man*."""
        alive = is_alive(head) and any(is_alive(subject) for subject in self.subjects)
        return alive and self.role != "object" and not is_alive(self.nearest[-1])

    def place_after_preposition(self, head: str) -> None:
        if self.passive and self.relation == "by" and (is_alive(head) or self.passive not in PLACED):
            for thing in self.related:
                self.tie([head], self.passive, thing)
            self.set_nearest(head, "by", [], "")
        else:
            self.set_nearest(head, self.relation, self.related, self.relation)

    def set_nearest(self, head: str, role: str, sources: list[str], relation: str) -> None:
        self.nearest, self.role, self.link = [head], role, (sources, relation)
        self.tie(sources, relation, head)
        self.verb = self.passive = self.relation = ""

    def set_subject(self, head: str) -> None:
        self.end_verb()
        self.set_nearest(head, "subject", [], "")
        self.subjects, self.actors = self.nearest, []

    def tie(self, sources: list[str], relation: str, head: str) -> None:
        for source in sources:
            if source != head:
                self.relations[source, relation, head] = None

    def act(self, action: Action) -> None:
        """Read a verb: find who does it, and wait for its object."""
        actors = self.doers(action)
        self.end_verb()
        self.actors, self.verb, self.relation = actors, action.verb, ""
        self.passive = action.verb if action.tag in ("VBN", "VBD") else ""  # it may be: *parked*, *eaten*

    def doers(self, action: Action) -> list[str]:
        before = self.before[1]
        if _is(before, "that"):
            return self.nearest
        if self.actors and (_is(before, "and") or _is(before, "to")):
            return self.actors
        if action.helped or action.tag in ("VBZ", "VBP") or _is(before, "clause"):
            return self.subjects
        if action.tag == "VBN" and action.verb not in ("dress", "seat"):
            return self.nearest
        if self.nearest and is_alive(self.nearest[-1]):
            return self.nearest
        if self.subjects and is_alive(self.subjects[-1]):
            return self.subjects
        return self.nearest if self.role in ("object", "with") else self.subjects

    def end_verb(self) -> None:
        """Make a verb without an object an attribute of who does it."""
        if self.verb:
            for actor in self.actors:
                self.attributes[actor, self.verb] = None
        self.verb = ""

    def relate(self, preposition: str) -> None:
        """Read a preposition: find the things that it relates to the next one."""
        if self.verb:
            self.related = self.actors
            if preposition == "by" and self.passive:
                self.verb = ""
            self.end_verb()
        elif preposition == "of":
            self.related = self.nearest
        elif self.role == "object" and self.actors:
            self.related = self.actors
        elif self.role in ("object", "subject", "") or not self.related:
            self.related = self.nearest
        self.passive = self.passive if preposition == "by" else ""
        self.relation = preposition

    def describe(self, adjective: str) -> None:
        """Read an adjective that stands before no noun: find what it describes."""
        if _is(self.before[1], "be"):
            self.described = self.subjects
        elif not (_is(self.before[1], "adjective") or _is(self.before[0], "adjective")):
            self.described = self.actors if self.verb else self.nearest
        for thing in self.described:
            self.attributes[thing, adjective] = None

    def refer(self, pronoun: str, speaks: bool) -> None:
        """A pronoun: as a subject it stands for one named before; elsewhere it only ends what waits for an object."""
        self.end_verb()
        self.relation = ""
        if speaks:
            named = self.subjects[:1] if pronoun == "it" else [thing for thing in self.objects if is_alive(thing)][:1]
            self.subjects = self.nearest = named or self.subjects
            self.role = "subject"

    def start(self, kind: str) -> None:
        """*Is* without a second verb, or a word that opens a clause."""
        self.end_verb()
        self.relation = ""
        if kind == "be" and _is(self.before[1], "that"):
            self.subjects = self.nearest
        elif kind == "there":
            self.subjects, self.nearest, self.role = [], [], ""


def _is(phrase: Phrase | None, kind: str) -> bool:
    return isinstance(phrase, Word) and phrase.kind == kind
