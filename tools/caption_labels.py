"""Tags for captions from what is certain: closed classes, WordNet's parts of speech, and how captions are built.

`possible` says which Penn tags a word may have. `settle` corrects another tagger's tags where the context leaves no
doubt about a word that may be a noun or a verb (*a dog jumps over*, *a ski jump*), and says which tags to trust.
`variations` makes captions with finite verbs (*a man rides*) of captions with participles (*a man riding*).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from sightline.text import wordnet
from sightline.text.lemmas import inflections, lemma
from sightline.text.tagger import closed_classes

Labelled = tuple[list[str], list[str], list[bool]]  # words, tags, which tags to trust

NOUN = frozenset({"NN", "NNS", "NNP", "NNPS"})
FINITE = frozenset({"VBZ", "VBP", "VBD", "MD"})
LIVING = frozenset({"noun.Tops", "noun.person", "noun.animal", "noun.group"})  # `person` itself is in noun.Tops
TAGS_OF = {
    "n": {"NN", "NNP"}, "n+s": {"NNS", "NNPS"}, "v": {"VB", "VBP"}, "v+s": {"VBZ"}, "v+ing": {"VBG", "NN"},
    "v+ed": {"VBD", "VBN"}, "a": {"JJ"}, "a+er": {"JJR", "RBR"}, "a+est": {"JJS", "RBS"}, "r": {"RB"},
    "r+er": {"RBR"}, "r+est": {"RBS"},
}  # fmt: skip
INVARIANT = frozenset(
    "cut hit put set let shut hurt cost cast burst spread split quit read beat bet rid shed slit thrust upset run come "
    "become overcome broadcast".split()
)  # their past looks like the base form
SINGULAR_IN_S = re.compile(r".*(ss|us|is|as|os|ws|ics)|lens|series|species")
ARTICLES = frozenset("a an the his her their its my your our every another".split())
SINGULAR = frozenset("a an one another each every this that".split())
BE = frozenset("is are was were be been 's 're 'm am".split())
WITH_INFINITIVE = frozenset(
    "help helps helping go goes going let lets make makes making watch watches watching".split()
)
COLOURS = frozenset(word for word, tags in closed_classes().items() if tags == "JJ/NN")
PREPOSITIONS = frozenset(word for word, tags in closed_classes().items() if "IN" in tags.split("/")) - frozenset(
    "like while whilst as than that if because but so".split()
)
STATES = frozenset(
    "topped filled covered parked docked displayed made lined dressed stacked gathered seated perched decorated "
    "surrounded loaded painted arranged attached mounted placed piled packed located tied wrapped crowded stuffed "
    "equipped marked labeled labelled shaped cut sliced served cooked prepared set spread scattered stuck propped hung "
    "plugged chained fenced connected carved written printed drawn designed built taken shown seen reflected".split()
)  # after a noun these are participles: a plate topped with cheese
HANDLING = frozenset(
    "put lay take cut pull knock set hold pick open turn throw show line make hang fill pack dress give lift break "
    "clean tie light wrap stack prop roll mess".split()
)  # with these, up and down before a noun phrase are particles


@cache
def kind(word: str) -> str:
    """The lexicographer file of the word's first sense as a noun."""
    first = wordnet.senses(lemma(word, "n"), "n")[:1]
    return wordnet.lexfile(first[0]) if first else ""


@cache
def counts(word: str) -> tuple[int, int, int]:
    """How often WordNet's texts have the word as noun, verb, adjective or adverb."""
    noun = word if word.endswith("ing") else lemma(word, "n")
    other = wordnet.frequency(word, "a") + wordnet.frequency(word, "r")
    return wordnet.frequency(noun, "n"), wordnet.frequency(lemma(word, "v"), "v"), other


@cache
def allowed(word: str) -> frozenset[str]:
    """The tags a lower-cased word may have; empty where nothing is known about it."""
    if word in closed_classes():
        return frozenset(closed_classes()[word].split("/"))
    if word[0].isdigit():
        return frozenset({"CD", "JJ", "NNS"} if word.endswith(("s", "th", "st", "rd", "nd")) else {"CD", "JJ"})
    known = inflections(word)
    if not known and "-" in word:
        last = {tag for reading in inflections(word.rsplit("-", 1)[-1]) for tag in TAGS_OF[reading]}
        return frozenset(last - {"VB", "VBP", "VBD", "VBZ"} | {"JJ", "NN", "NNP"}) if last else frozenset()
    found = {tag for reading in known for tag in TAGS_OF[reading]}
    return frozenset(found | {"VBD", "VBN"} if word in INVARIANT else found)


@cache
def possible(word: str) -> frozenset[str]:
    """The tags among `allowed` that are not too rare to be worth a thought."""
    likely = set(allowed(word))
    if not inflections(word) or word in closed_classes():
        return frozenset(likely)
    as_noun, as_verb, as_other = counts(word)
    if (as_verb * 100 < as_noun and as_noun >= 20) or as_verb * 25 < as_other:
        likely -= {"VB", "VBP", "VBZ"}
    if as_noun * 25 < as_other:
        likely -= {"NN", "NNP"}
    if word.endswith("s") and "NN" in likely and not SINGULAR_IN_S.fullmatch(word):
        likely = likely - {"NN", "NNP"} | {"NNS"}  # pants, glasses, clothes
    return frozenset(likely or allowed(word))


def opens(word: str | None) -> bool:
    """Whether the end of the caption, or a word that starts a new phrase, so that the phrase before is complete."""
    if word is None:
        return True
    starts = {"DT", "IN", "TO", "PRP$", "PRP", "RP", ".", ",", "CC", "WRB", "CD", "WDT", "WP", ":"}
    return not starts.isdisjoint(closed_classes().get(word, "").split("/"))


@dataclass
class Caption:
    """Words and the tags they have so far; the number (one, many, None) of a living subject, and where it ends."""

    words: list[str]
    tags: list[str]
    finite: set[str] = field(default_factory=set)
    number: str | None = None
    end: int = 0

    def word(self, i: int) -> str | None:
        """The i-th word, None outside the caption."""
        return self.words[i] if 0 <= i < len(self.words) else None

    def tag(self, i: int) -> str | None:
        """The i-th tag, None outside the caption."""
        return self.tags[i] if 0 <= i < len(self.tags) else None

    def before_phrase(self, i: int) -> str | None:
        """The word before the noun phrase that ends at i."""
        inside = {"NN", "NNS", "JJ", "JJR", "JJS", "VBN", "VBG", "CD", "NNP", "RB"}
        while i >= 0 and self.tags[i] in inside and self.words[i] not in BE:
            i -= 1
        return self.word(i)

    def find_subject(self) -> None:
        """Set `number` and `end` from the first noun phrase, if it names people or animals."""
        words, tags = self.words, self.tags
        i = next((i for i, tag in enumerate(tags) if tag in NOUN), len(tags))
        if i == len(tags) or any(tags[j] in FINITE or words[j] in PREPOSITIONS for j in range(i)):
            return
        while self.tag(i + 1) in NOUN and (tags_ := possible(words[i + 1])) and not tags_ & {"VBZ", "VBP"}:
            i += 1
        other = i + 2
        while self.tag(other) in ("CD", "JJ", "DT", "PRP$"):
            other += 1
        living = other < len(tags) and kind(words[other]) in LIVING
        if self.word(i + 1) == "of":
            if living and tags[other] == "NNS":
                self.number, self.end = "many", other
        elif kind(words[i]) in LIVING:
            if self.word(i + 1) == "and" and living:
                self.number, self.end = "many", other
            else:
                self.number, self.end = "many" if tags[i] == "NNS" else "one", i


def settle(words: list[str], tags: list[str]) -> Labelled:
    """Corrected tags for a lower-cased caption that another tagger tagged, and which of them to trust."""
    caption, sure = Caption(words, list(tags)), [True] * len(words)
    caption.find_subject()
    for i, word in enumerate(words):
        options = possible(word)
        if not options:
            sure[i] = False
        elif len(options) == 1:
            caption.tags[i] = next(iter(options))
        elif word not in closed_classes():
            sure[i] = _settle_word(caption, i, options)
        if caption.tags[i] in FINITE:
            caption.finite.add(caption.tags[i])
    for i in reversed(range(len(words))):
        sure[i] = _settle_adjective(caption, i) and sure[i]
    for i in range(1, len(words)):
        sure[i] = _settle_participle(caption, i) or sure[i]
    _settle_particles(caption)
    return words, caption.tags, sure


def _settle_word(caption: Caption, i: int, options: frozenset[str]) -> bool:
    word, following = caption.words[i], caption.word(i + 1)
    next_options = possible(following) if following else frozenset()
    as_noun, _, _ = counts(word)
    as_adjective = wordnet.frequency(word, "a")
    if "JJ" in options and options & NOUN and "VBG" not in options:
        premodifier = caption.word(i - 1) in ARTICLES or caption.tag(i - 1) in ("JJ", "CD")
        if premodifier and next_options and (next_options <= NOUN or following in COLOURS):
            if as_adjective >= 2 * as_noun:
                caption.tags[i] = "JJ"
            elif as_noun > as_adjective and "NN" in options:
                caption.tags[i] = "NN"
            return as_adjective >= 2 * as_noun or as_noun >= 2 * as_adjective
    if not (options & NOUN and options & {"VB", "VBP", "VBZ", "VBG"}):
        return True
    decided = _after_colour(caption, i, options) or (
        _ing_form(caption, i) if "VBG" in options else _noun_or_verb(caption, i, options)
    )
    caption.tags[i] = decided or caption.tags[i]
    return decided is not None


def _after_colour(caption: Caption, i: int, options: frozenset[str]) -> str | None:
    """*A girl in red jumps*: the colour is a noun here, what follows is the verb."""
    as_noun, as_verb, _ = counts(caption.words[i])
    bare = caption.word(i - 1) in COLOURS and caption.word(i - 2) in ("in", "wearing")
    if not bare or as_verb < as_noun or not opens(caption.word(i + 1)):
        return None
    verb = "VBG" if "VBG" in options else "VBZ" if "VBZ" in options else "VBP" if caption.number == "many" else None
    if verb in options:
        caption.tags[i - 1] = "NN"
        return verb
    return None


def _ing_form(caption: Caption, i: int) -> str | None:
    word, before, tag_before, after = caption.words[i], caption.word(i - 1), caption.tag(i - 1), caption.word(i + 1)
    as_noun, as_verb, _ = counts(word)
    verbal = as_verb >= 2 * as_noun
    if before in BE or before in ("while", "when", "not") or tag_before == "PRP":
        return "VBG"
    if before is not None and tag_before in NOUN:
        if kind(before) in LIVING and (verbal or after in ARTICLES):
            return "VBG"
        if verbal and tag_before == "NNS":
            return "VBG"
        if tag_before == "NN" and opens(after) and as_noun * 2 >= as_verb:
            return "NN"
    if (before is None or tag_before == "CC") and verbal and opens(after):
        return "VBG"
    in_phrase = before in ARTICLES or tag_before in ("JJ", "PRP$")
    return "NN" if in_phrase and opens(after) and after not in ARTICLES else None


def _noun_or_verb(caption: Caption, i: int, options: frozenset[str]) -> str | None:
    before, tag_before, after = caption.word(i - 1), caption.tag(i - 1), caption.word(i + 1)
    next_options = possible(after) if after else frozenset()
    next_ing = after is not None and "VBG" in next_options and counts(after)[1] >= 2 * counts(after)[0]
    complete = opens(after) or after in BE
    noun = "NNS" if "NNS" in options and "NN" not in options else "NN"
    verb = "VBZ" if "VBZ" in options else "VBP" if "VBP" in options else None
    if before in ARTICLES or tag_before in ("PRP$", "POS"):
        return noun if complete or next_ing or (next_options and next_options <= NOUN) else None
    if complete or next_ing:
        start = caption.word(i - 2) in ARTICLES | PREPOSITIONS or caption.tag(i - 2) in ("JJ", "CD")
        if tag_before == "JJ" and start and before not in COLOURS:
            return noun
        if before in PREPOSITIONS and before not in ("up", "down", "off", "over", "out", "on"):
            return noun
    if tag_before == "MD" or (before == "to" and caption.tags[i] in ("VB", "VBP")):
        return "VB" if "VB" in options else None
    if verb is None or before is None:
        return None
    if tag_before in ("VBZ", "VBP", "VBG") and before not in BE | WITH_INFINITIVE:
        return noun
    follows = complete or next_ing or "RB" in next_options
    return (_singular_verb if verb == "VBZ" else _plural_verb)(caption, i, follows)


def _singular_verb(caption: Caption, i: int, follows: bool) -> str | None:
    """VBZ or NNS for a word like *watches*, which comes after word i - 1."""
    before, tag_before = caption.words[i - 1], caption.tags[i - 1]
    as_noun, as_verb, _ = counts(caption.words[i])
    pending = caption.number == "one" and not caption.finite and i > caption.end
    if before in ("who", "that", "which", "he", "she", "it"):
        return "VBZ" if as_verb * 2 >= as_noun else None
    if tag_before in ("NN", "NNP"):
        start, living = caption.before_phrase(i - 1), kind(before) in LIVING
        if start in SINGULAR:
            return "VBZ" if follows or (living and as_verb >= as_noun) else None
        if (start in ARTICLES or start is None) and living and as_verb * 2 >= as_noun and (follows or start is None):
            return "VBZ"
        if pending:
            return "VBZ" if follows and as_verb >= as_noun else None
        return "NNS" if caption.finite or caption.number == "many" or as_noun >= as_verb else None
    if tag_before in ("NNS", "RB", "RP") and pending and follows and as_verb >= 2 * as_noun:
        return "VBZ"
    return "VBZ" if before == "and" and "VBZ" in caption.finite and follows and as_verb >= as_noun else None


def _plural_verb(caption: Caption, i: int, follows: bool) -> str | None:
    """VBP or NN for a word like *watch*, which comes after word i - 1."""
    before, tag_before, after = caption.words[i - 1], caption.tags[i - 1], caption.word(i + 1)
    as_noun, as_verb, _ = counts(caption.words[i])
    likely = as_verb * 2 >= as_noun
    if before == "and" and "VBP" in caption.finite and follows and as_verb >= as_noun:
        return "VBP"
    if tag_before == "NNS" and follows and likely and (kind(before) in LIVING or as_verb > as_noun):
        return "VBP"
    if tag_before in ("NN", "NNS") and caption.number == "many" and after != "of":
        at_once = i == caption.end + 1 and likely
        later = i > caption.end and not caption.finite and follows and as_verb >= as_noun
        if at_once or later:
            return "VBP"
    if tag_before == "NN" and not WITH_INFINITIVE & set(caption.words[:i]):
        return "NN" if caption.number != "many" or caption.finite or as_noun > as_verb else None
    return "VBP" if before in ("they", "who", "we", "you") and likely else None


def _settle_adjective(caption: Caption, i: int) -> bool:
    """Colours, and *open* after a noun; False where a colour could be either."""
    word, before, after, next_tag = caption.words[i], caption.word(i - 1), caption.word(i + 1), caption.tag(i + 1)
    if word == "open" and caption.tag(i - 1) in NOUN and opens(after):
        caption.tags[i] = "JJ"
    if word not in COLOURS:
        return True
    joined = next_tag == "CC" and caption.word(i + 2) in COLOURS and caption.tag(i + 2) == "JJ"
    if next_tag in ("NN", "NNS", "JJ", "NNP") or joined or before in BE or before in ("painted", "colored"):
        caption.tags[i] = "JJ"
    elif before in ("in", "wearing"):
        caption.tags[i] = "NN"
    else:
        return False
    return True


def _settle_participle(caption: Caption, i: int) -> bool:
    """VBN, VBD or JJ for past forms; True where this decides."""
    word, before, after = caption.words[i], caption.words[i - 1], caption.word(i + 1)
    tag, tag_before, options = caption.tags[i], caption.tags[i - 1], possible(word)
    if word in STATES and tag in ("VBD", "VBN", "JJ") and tag_before in NOUN:
        if after is None or after in PREPOSITIONS or after == ".":
            caption.tags[i] = "VBN"
            return True
    elif {"VBN", "VBD"} <= options and word not in INVARIANT and caption.tag(i + 1) in ("NN", "NNS"):
        if before in ARTICLES | PREPOSITIONS or tag_before in ("JJ", "CD"):
            caption.tags[i] = "JJ" if "JJ" in options else "VBN"
            return True
    elif tag == "VBD" and (before in BE or before in ("has", "have", "had", "being")):
        caption.tags[i] = "VBN"
        return True
    return False


def _settle_particles(caption: Caption) -> None:
    """*Down*, *up*, *off* … before a noun phrase are prepositions, unless the verb handles the thing."""
    words, tags = caption.words, caption.tags
    for i in range(1, len(words) - 1):
        if words[i] not in ("down", "up", "off", "over", "out", "through", "around", "along", "by", "on", "in"):
            continue
        phrase = words[i + 1] in ARTICLES or tags[i + 1] in ("DT", "PRP$", "CD", "PRP")
        bare = words[i] in ("down", "along", "through") and tags[i + 1] in ("NN", "NNS", "JJ")
        handled = tags[i - 1].startswith("V") and lemma(words[i - 1], "v") in HANDLING
        if tags[i] in ("RP", "RB", "IN") and (phrase or bare):
            tags[i] = "RP" if handled and tags[i] == "RP" and words[i] in ("up", "down", "off", "out", "on") else "IN"


def variations(captions: Iterable[Labelled], seed: int) -> Iterator[Labelled]:
    """Captions in other words: half of those that allow it with a finite verb, and *in a red shirt* as *in red*."""
    chance = random.Random(seed)
    for words, tags, sure in captions:
        changed = _with_finite_verb(words, tags, sure) if chance.random() < 0.5 else None
        if changed:
            yield changed
        coloured = _with_bare_colour(*(changed or (words, tags, sure)))
        if coloured:
            yield coloured


def _with_finite_verb(words: list[str], tags: list[str], sure: list[bool]) -> Labelled | None:
    i = next((i for i, tag in enumerate(tags) if tag.startswith("V")), 0)
    if i == 0 or tags[i] != "VBG" or tags[i - 1] not in ("NN", "NNS") or not sure[i]:
        return None
    base = lemma(words[i], "v")
    if FINITE & set(tags) or "EX" in tags or base in ("be", "have"):
        return None
    caption = Caption(words, tags)
    caption.find_subject()
    number = caption.number if caption.end < i else None
    if number is None and not {"IN", "CC"} & set(tags[:i]):
        number = "many" if tags[i - 1] == "NNS" else "one" if words[0] in ("a", "an") else None
    if number is None:
        return None
    verb, tag = (third_person(base), "VBZ") if number == "one" else (base, "VBP")
    return [*words[:i], verb, *words[i + 1 :]], [*tags[:i], tag, *tags[i + 1 :]], sure


def third_person(verb: str) -> str:
    """A verb in the third person singular, for regular verbs."""
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


def _with_bare_colour(words: list[str], tags: list[str], sure: list[bool]) -> Labelled | None:
    for i in range(1, len(words) - 4):
        dressed = words[i] in ("in", "wearing") and words[i + 1] in ("a", "an") and words[i + 2] in COLOURS
        garment = tags[i + 3] == "NN" and kind(words[i + 3]) == "noun.artifact"
        if dressed and garment and kind(words[i - 1]) in LIVING and tags[i + 4] in ("VBZ", "VBG", "VBP", "IN", "."):
            return (
                [*words[: i + 1], words[i + 2], *words[i + 4 :]],
                [*tags[: i + 1], "NN", *tags[i + 4 :]],
                [*sure[: i + 1], True, *sure[i + 4 :]],
            )
    return None
