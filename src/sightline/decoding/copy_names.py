"""Names that a captioner has no word for: a word that it knows stands in for each while it decodes, and gives its
place to the name afterwards.

*Anna* is a person, so "a woman holding a cat" becomes "Anna holding a cat". What a name stands for can be said:
`Rex=dog`. A common noun needs no saying where WordNet knows what it is a kind of, or a compound's last word is known:
a selfie-stick is a stick.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from sightline.caption import Caption, WordTrace
from sightline.decoding.constraints import near_words
from sightline.decoding.rules import Rules
from sightline.errors import ConfigError
from sightline.text import wordnet
from sightline.text.grammar import with_right_articles
from sightline.text.tagger import NOUNS, Tagger
from sightline.text.vocabulary import Vocabulary

PEOPLE = tuple("woman man girl boy person child lady guy kid".split())  # that say nothing of a person but who it may be
DETERMINERS = frozenset({"DT", "PRP$", "WDT"})  # tags
DESCRIBING = NOUNS | {"JJ", "JJR", "JJS", "VBG", "VBN", "CD"}  # tags of what stands between a determiner and its noun
Words = tuple[str, ...]


@dataclass(frozen=True)
class CopyName:
    """A name, and the words of a vocabulary of which one stands in for it, the likeliest first."""

    name: Words
    stand_ins: Words

    @property
    def is_proper(self) -> bool:
        """Whether it is somebody's or something's own name, which has no article."""
        return self.name[0][:1].isupper()

    def places(self, words: Sequence[str], strict: bool = True) -> list[int]:
        """The places in a caption where the name may replace a word; `strict`: nouns alone, no parts of compounds."""
        tags = Tagger.default().tag(list(words))
        heads = [tag in NOUNS and after not in NOUNS for tag, after in pairwise([*tags, ""])]
        return [at for at, word in enumerate(words) if word in self.stand_ins and (heads[at] or not strict)]


def split_rules(rules: Rules, vocabulary: Vocabulary) -> tuple[Rules, tuple[CopyName, ...]]:
    """The rules without what `must_include` names and the vocabulary does not have, and these names."""
    phrases, names = [], []
    for phrase in rules.must_include:
        name, equals, kind = phrase.partition("=")
        words = tuple(name.split())
        if not equals and all(_is_known(word, vocabulary) for word in words):
            phrases.append(phrase)
        elif not words or (equals and not kind.strip()):
            raise ConfigError(f"`must_include` has {phrase!r}", fix="write a name, or NAME=KIND such as Rex=dog")
        elif equals:
            names.append(CopyName(words, (_kind(kind.strip(), vocabulary),)))
        else:
            names.append(CopyName(words, _stand_ins(words, vocabulary)))
    return replace(rules, must_include=tuple(phrases)), tuple(names)


def _is_known(word: str, vocabulary: Vocabulary) -> bool:
    """Whether the vocabulary has a word, as it is or in small letters.

    *Ben* is a name even where it has the *ben* of Big Ben, which as a noun nobody writes.
    """
    small = word.lower()
    return word in vocabulary or (small in vocabulary and (word == small or wordnet.frequency(small, "n") > 0))


def _kind(kind: str, vocabulary: Vocabulary) -> str:
    if kind.lower() not in vocabulary:
        near = near_words(kind.lower(), vocabulary)
        hint = f"near words it knows: {near}" if near else "choose a noun that it knows"
        raise ConfigError(f"the model does not know the word {kind!r}, which was to stand in for a name", fix=hint)
    return kind.lower()


def _stand_ins(name: Words, vocabulary: Vocabulary) -> Words:
    """Words that may stand in for a name without a KIND: its last word, a person, or what WordNet says it is."""
    last, is_proper = name[-1].lower(), name[-1][:1].isupper()
    heads = (last, last.rpartition("-")[2]) if len(name) > 1 or not is_proper else ()
    for head in heads:
        senses = wordnet.senses(head, "n") if head in vocabulary else ()
        # "Tower" stands in for the Eiffel Tower, but not "smith" for Anna Smith.
        if senses and not (is_proper and wordnet.lexfile(senses[0]) == "noun.person"):
            return (head,)
    people = tuple(word for word in PEOPLE if word in vocabulary)
    if is_proper and people:
        return people
    hypernym = _hypernym(last, vocabulary)
    if hypernym is not None:
        return (hypernym,)
    unknown = next(word for word in name if not _is_known(word, vocabulary))
    near = near_words(unknown, vocabulary)
    hint = f", or use a word it knows: {near}" if near else ""
    what = f"the model does not know the word {unknown!r} of `must_include`"
    raise ConfigError(what, fix=f"say what it is, such as {' '.join(name)}=dog{hint}")


@lru_cache
def _hypernym(word: str, vocabulary: Vocabulary) -> str | None:
    """The word of a vocabulary whose usual meaning is nearest above the usual meaning of a noun."""
    senses = wordnet.senses(word, "n")
    if not senses:
        return None
    ancestors = wordnet.ancestors(senses[0])
    depths = {}
    for candidate in vocabulary.words:
        candidate_senses = wordnet.senses(candidate, "n")
        if candidate_senses and candidate_senses[0] in ancestors:
            depths[candidate] = len(wordnet.ancestors(candidate_senses[0]))
    return max(depths, key=lambda candidate: depths[candidate], default=None)


def rules_with_stand_ins(rules: Rules, names: Sequence[CopyName], turn: int = 0) -> Rules:
    """The rules with a stand-in for each name; `turn` tells which, so that names of one kind have different ones."""
    words = [name.stand_ins[(turn + at) % len(name.stand_ins)] for at, name in enumerate(names)]
    return replace(rules, must_include=(*rules.must_include, *dict.fromkeys(words)))


def turns(names: Sequence[CopyName]) -> range:
    """How many different stand-ins there are to try."""
    return range(max((len(name.stand_ins) for name in names), default=0))


def has_places(words: Sequence[str], names: Sequence[CopyName]) -> bool:
    """Whether every name has a place of its own in a caption."""
    return _assign(words, names, strict=True) is not None


def _assign(words: Sequence[str], names: Sequence[CopyName], strict: bool) -> dict[int, CopyName] | None:
    taken: dict[int, CopyName] = {}
    for name in names:
        free = [at for at in name.places(words, strict) if at not in taken]
        if not free:
            return None
        taken[free[0]] = name
    return taken


def write_names(caption: Caption, names: Sequence[CopyName], keep: Sequence[str] = ()) -> Caption:
    """The caption with the names in the places of their stand-ins, whose boxes and probabilities they have.

    What describes a stand-in gives way to a proper name, but for the words of phrases to `keep`.

    >>> anna = CopyName(("Anna",), ("woman",))
    >>> write_names(Caption(tuple("a young woman holding an umbrella".split())), [anna]).text
    'Anna holding an umbrella'
    >>> write_names(Caption(("a", "big", "dog")), [CopyName(("airedale",), ("dog",))]).text
    'a big airedale'
    """
    if not names:
        return caption
    places = _assign(caption.words, names, strict=True) or _assign(caption.words, names, strict=False) or {}
    trace = caption.trace or tuple(WordTrace() for _ in caption.words)
    tags = Tagger.default().tag(list(caption.words))
    keep_words = {word for phrase in keep for word in phrase.split()}
    words: list[tuple[str, WordTrace]] = []
    name_end = 0  # where in `words` the last name ended
    for at, (word, word_trace) in enumerate(zip(caption.words, trace, strict=True)):
        if at not in places:
            words.append((word, word_trace))
            continue
        if places[at].is_proper:
            first = _phrase_start(tags, at)
            keep_places = [place for place in range(first, at) if place in places or caption.words[place] in keep_words]
            first = keep_places[-1] + 1 if keep_places else first
            del words[len(words) - (at - first) :]
        if words and len(words) == name_end:
            words.append(("and", WordTrace()))  # of "a woman man", and of "a woman a man"
        words += [(part, word_trace) for part in places[at].name]
        name_end = len(words)
    right = with_right_articles([word for word, _ in words])
    new_trace = tuple(word_trace for _, word_trace in words) if caption.trace else ()
    return replace(caption, words=tuple(right), trace=new_trace)


def _phrase_start(tags: Sequence[str], noun: int) -> int:
    """Where the phrase of a noun begins: at its determiner, or else at the adjectives right before it."""
    first = noun
    while first and (tags[first - 1] in DESCRIBING or (tags[first - 1] == "CC" and tags[first].startswith("JJ"))):
        first -= 1
    if first and tags[first - 1] in DETERMINERS:
        return first - 1
    first = noun
    while first and tags[first - 1].startswith("JJ"):
        first -= 1
    return first


def without_names(words: Sequence[str], names: Sequence[CopyName]) -> Words:
    """The caption with stand-ins in the places of names, as the captioner can read it.

    >>> without_names("Anna holding an umbrella".split(), [CopyName(("Anna",), ("woman",))])
    ('a', 'woman', 'holding', 'an', 'umbrella')
    """
    plain = tuple(words)
    for name in names:
        size = len(name.name)
        for at in range(len(plain) - size + 1):
            if plain[at : at + size] == name.name:
                stand_in = ("a", name.stand_ins[0]) if name.is_proper else name.stand_ins[:1]
                plain = (*plain[:at], *stand_in, *plain[at + size :])
                break
    return tuple(with_right_articles(plain))
