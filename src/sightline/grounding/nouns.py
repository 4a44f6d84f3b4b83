"""The nouns of a sentence: which name a thing, how many boxes each gets, which two may have the same box; and what
WordNet says of nouns: which may stand for another, which name the same thing, and what kind of thing.
"""

from collections.abc import Sequence
from functools import lru_cache

from sightline.text import wordnet
from sightline.text.grammar import noun_forms
from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS, Tagger
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import concept_names, imagenet_chains, name_of

STEPS = 4  # up from a word: what is further above, such as `object`, could be anything
SENSES = 3  # of a word that may stand for another; rarer ones are seldom meant
USUAL = 2  # senses of a noun that count elsewhere
FAMILIES = ("vehicle", "furniture", "clothing", "building")  # and animals, food, persons, which WordNet calls so
PLURAL = frozenset({"NNS", "NNPS"})
PAIRS = frozenset(  # one thing, whose name is a plural
    "binoculars glasses goggles headphones jeans leggings overalls pajamas pants pliers pyjamas scissors shorts "
    "sunglasses sweatpants tights tongs trousers trunks".split()
)
# How many of the noun after it a word means.
NUMBERS = {"both": 2, "couple": 2, "pair": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}
MANY = 10  # boxes of a plural without a number, at most
BETWEEN = frozenset({"JJ", "JJR", "JJS", "VBG", "VBN", "NN"})  # tags between a number and its noun: "two small dogs"
BEFORE_A_NAME = NOUNS | {"DT", "IN", "JJ", "CD"}  # tags of what stands before a name
NOT_AFTER_A_NAME = ("NN", "NNS", "JJ", "CC")  # and after it: "an orange and white cat"
FAR = 3  # words between the nouns of "a cup of hot coffee", and one more
# Nouns that name no thing in a picture, such as *close* in "a close up of a cat": whether a photo "supports" them is no
# question.
PLACES = frozenset("front back top bottom side middle center centre end".split())
NAME_NO_THING = PLACES | frozenset(
    "picture photo photograph image snapshot shot closeup close-up close view scene background foreground "  # the photo
    "left right edge corner distance area place spot space air way direction position inside outside "  # where
    "couple group bunch bunche pair variety assortment collection amount number kind type sort "  # how many
    "day time night morning afternoon evening noon daytime nighttime moment summer winter "  # when
    "thing something anything everything nothing object item stuff".split()  # anything
)
BEFORE_OF = frozenset("lot set row line piece part half rest series bit".split())  # "a parking lot", but "a lot of"


def noun_tags(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """The tags of sentences, that of a name which no noun follows a noun's: "remote" in "a wii remote", "an animal".

    >>> noun_tags([["a", "wii", "remote"], ["a", "remote", "village"], "an animal standing on an orange".split()])
    [['DT', 'NNP', 'NN'], ['DT', 'JJ', 'NN'], ['DT', 'NN', 'VBG', 'IN', 'DT', 'NN']]
    """
    all_tags = Tagger.default().tag_all(sentences)
    for words, tags in zip(sentences, all_tags, strict=True):
        for at in range(1, len(tags)):
            if tags[at] != "JJ" or tags[at - 1] not in BEFORE_A_NAME:
                continue
            after, behind = [*tags[at + 1 : at + 3], "", ""][:2]
            if after == "NN" and behind not in NOUNS and _is_act(words[at + 1]):  # "standing", taken for a noun
                after = tags[at + 1] = "VBG"
            if after not in NOT_AFTER_A_NAME and _is_name(words[at], tags[at - 1]):
                tags[at] = "NN"
    return all_tags


def _is_name(word: str, tag_before: str) -> bool:
    """Whether a word names a thing; that of a fruit and a colour does after "an", and does not in "a man in orange"."""
    return name_of([word], concept_names()) is not None or (tag_before == "DT" and word in concept_names())


@lru_cache(wordnet.CACHE_SIZE)
def _is_act(word: str) -> bool:
    """Whether a word is a participle whose meaning as a noun is no thing: *standing*, not *building*."""
    return word.endswith("ing") and lemma(word, "v") != word and not noun_forms(word)


def names_thing(words: Sequence[str], at: int) -> bool:
    """Whether the noun at a place of a sentence, in one number or the other, names something that a photo shows.

    >>> [names_thing("a close up of a lot of cats".split(), at) for at in (1, 5, 7)]
    [False, False, True]
    """
    word = words[at].lower()
    forms = {word, word.removesuffix("s")}
    if forms & BEFORE_OF:
        return [other.lower() for other in words[at + 1 : at + 2]] != ["of"]
    return not forms & NAME_NO_THING


def box_counts(words: Sequence[str], tags: Sequence[str]) -> list[int]:
    """How many boxes each word may have: none if it is no noun, names no thing, or only says what the next noun is.

    A singular has one. A plural has as many as its number says.

    >>> words = "a group of people and two dogs with a beach ball".split()
    >>> tags = "DT NN IN NNS CC CD NNS IN DT NN NN".split()
    >>> [(word, count) for word, count in zip(words, box_counts(words, tags)) if count]
    [('people', 10), ('dogs', 2), ('ball', 1)]
    """
    return [_box_count(words, tags, at) for at in range(len(tags))]


def may_share(words: Sequence[str], one: int, other: int) -> bool:
    """Whether two nouns of a sentence, by their places, may have the same box: one thing contains the other.

    So do "a cup of coffee", and a being and what it wears or a part of it. Words that may name one thing may, too.

    >>> words = "a man with a shirt and a woman with a cup of hot coffee".split()
    >>> [may_share(words, one, other) for one, other in ((1, 4), (1, 7), (7, 10), (10, 13))]
    [True, False, False, True]
    """
    first, last = sorted((one, other))
    if words[first + 1] == "of" and last - first <= FAR:
        return True
    return _belong_together(words[one], words[other])


@lru_cache(wordnet.CACHE_SIZE)
def _belong_together(one: str, other: str) -> bool:
    if may_name_the_same(one, other):
        return True
    return (is_being(one) and is_of_being(other)) or (is_being(other) and is_of_being(one))


def _box_count(words: Sequence[str], tags: Sequence[str], at: int) -> int:
    if tags[at] not in NOUNS or not names_thing(words, at) or _modifies_next(words, tags, at):
        return 0
    if tags[at] not in PLURAL or words[at].lower() in PAIRS:
        return 1
    for before in range(at - 1, -1, -1):
        word = words[before].lower()
        if word in NUMBERS:
            return NUMBERS[word]
        if tags[before] not in BETWEEN and word != "of":
            break
    return MANY


def _modifies_next(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a noun says what kind of thing the next one is: *beach* in "beach ball".

    Where a being is followed by a noun, that is more often a list, or a verb taken for a noun ("a dog jump"), unless
    WordNet has both as one lemma ("dog house").
    """
    if at + 1 >= len(tags) or tags[at + 1] not in NOUNS:
        return False
    return not is_being(words[at]) or is_one_name(words[at], words[at + 1])


@lru_cache(wordnet.CACHE_SIZE)
def is_one_name(first: str, second: str) -> bool:
    """Whether two words are one name, by WordNet or among the names of concepts.

    >>> [is_one_name(*phrase.split()) for phrase in ("cell phone", "snow leopards", "red phone")]
    [True, True, False]
    """
    name = f"{first.lower()} {lemma(second, 'n')}"
    return name in concept_names() or wordnet.has(name, "n")


def known_nouns(words: Sequence[str], nouns: Sequence[bool], vocabulary: Vocabulary) -> list[str]:
    """The words, their unknown nouns replaced by known ones where there are any."""
    return [stand_in(word, vocabulary) if noun else word for word, noun in zip(words, nouns, strict=True)]


def stand_in(noun: str, vocabulary: Vocabulary) -> str:
    """The noun itself where it is known; else its lemma, a synonym, or the nearest word for what it is a kind of.

    One for which there is none of them stays as it is. A model that does not know `terrier` is asked about a `dog`.

    >>> [stand_in(word, Vocabulary(["dog", "sofa", "glass"])) for word in ("terriers", "couch", "wineglass", "xyzzy")]
    ['dog', 'sofa', 'glass', 'xyzzy']
    """
    if noun in vocabulary:
        return noun
    base = lemma(noun, "n")
    if base in vocabulary:
        return base
    word_of = _words_by_synset(vocabulary)
    for sense in wordnet.senses(base, "n")[:SENSES]:
        level: list[int] = [sense]
        for _ in range(STEPS + 1):
            for synset in level:
                if synset in word_of:
                    return word_of[synset]
            level = [above for synset in level for above in wordnet.hypernyms(synset)]
    return noun


@lru_cache(4)
def _words_by_synset(vocabulary: Vocabulary) -> dict[int, str]:
    """Synsets, and the word of the vocabulary of which each is the most usual meaning; of several, the first."""
    words: dict[int, str] = {}
    for rank in range(SENSES):
        for word in vocabulary:
            for synset in wordnet.senses(word, "n")[rank : rank + 1]:
                words.setdefault(synset, word)
    return words


def may_name_the_same(one: str, other: str) -> bool:
    """Whether two nouns may name the same thing: the same word, synonyms, or one a kind of the other, in any sense.

    >>> [may_name_the_same("dog", other) for other in ("dogs", "terrier", "animal", "cat")]
    [True, True, True, False]
    """
    a, b = lemma(one, "n"), lemma(other, "n")
    if a == b:
        return True
    b_may_be_a = not wordnet.synsets(a, "n").isdisjoint(_hypernyms(b))
    a_may_be_b = not wordnet.synsets(b, "n").isdisjoint(_hypernyms(a))
    return b_may_be_a or a_may_be_b


@lru_cache(wordnet.CACHE_SIZE)
def _hypernyms(noun: str) -> frozenset[int]:
    return wordnet.hypernym_closure(noun, "n")


@lru_cache(wordnet.CACHE_SIZE)
def implies(concept: str, noun: str) -> bool:
    """Whether what is called by the name of a concept is what the noun names: the same, or a kind of it."""
    base, chain = lemma(noun, "n"), imagenet_chains().get(concept, (concept,))
    if any(base in (name, name.rpartition(" ")[2]) for name in chain):
        return True
    senses = frozenset(wordnet.senses(base, "n")[:USUAL])
    return any(not senses.isdisjoint(wordnet.ancestors(sense)) for sense in _senses(concept))


@lru_cache(wordnet.CACHE_SIZE)
def excludes(concept: str, noun: str) -> bool:
    """Whether what is called by the name of a concept cannot be what the noun names: two animals, or two vehicles."""
    base = lemma(noun, "n")
    if implies(concept, noun):
        return False
    if may_name_the_same(concept.rpartition(" ")[2], base) or may_name_the_same(concept, base):
        return False
    return _family(concept) is not None and _family(concept) == _family(base)


@lru_cache(wordnet.CACHE_SIZE)
def _family(name: str) -> str | None:
    family = imagenet_chains()[name][-1] if name in imagenet_chains() else family_of(name)
    return family if family in ("animal", "vehicle") and name != family else None


@lru_cache(wordnet.CACHE_SIZE)
def usual_kind(name: str) -> str:
    """What WordNet's lexicographers file the usual meaning of a noun under: animal, artifact, person, …; "" for none.

    >>> [usual_kind(name) for name in ("spotted cat", "people", "bench", "xyzzy")]
    ['animal', 'group', 'artifact', '']
    """
    return next((wordnet.lexfile(sense).removeprefix("noun.") for sense in _senses(lemma(name, "n"))), "")


@lru_cache(wordnet.CACHE_SIZE)
def concept_kind(name: str) -> str:
    """`usual_kind` of a concept's name; one that ImageNet has for a kind of animal, plant or food is that.

    To WordNet, a tiger is first of all a fierce person, a leopard fur, and a hot dog a show-off.

    >>> [(usual_kind(name), concept_kind(name)) for name in ("tiger", "hot dog", "bench")]
    [('person', 'animal'), ('person', 'food'), ('artifact', 'artifact')]
    """
    first, *above = imagenet_chains().get(lemma(name, "n"), (name,))
    return above[-1] if above and above[-1] in ("animal", "food", "plant") else usual_kind(first)


@lru_cache(wordnet.CACHE_SIZE)
def _ancestors(noun: str) -> frozenset[int]:
    """What the usual meaning of a noun is a kind of."""
    senses = _senses(lemma(noun, "n"))
    return frozenset(wordnet.ancestors(senses[0])) if senses else frozenset()


@lru_cache(wordnet.CACHE_SIZE)
def is_thing(name: str) -> bool:
    """Whether the usual meaning of a noun is something people use, and no place.

    >>> [is_thing(name) for name in ("suitcase", "parking meter", "kitchen", "street", "dog")]
    [True, True, False, False, False]
    """
    return not _used().isdisjoint(_ancestors(name))


@lru_cache(1)
def _used() -> frozenset[int]:
    """What people use: the senses of these words that are artifacts."""
    senses = [sense for kind in ("instrumentality", "covering", "commodity") for sense in wordnet.senses(kind, "n")]
    return frozenset(sense for sense in senses if wordnet.lexfile(sense) == "noun.artifact")


def _senses(name: str) -> Sequence[int]:
    """The usual meanings of a name, or of its last word where WordNet does not have it whole."""
    return wordnet.senses(name, "n")[:USUAL] or wordnet.senses(lemma(name.rpartition(" ")[2], "n"), "n")[:USUAL]


@lru_cache(wordnet.CACHE_SIZE)
def family_of(name: str) -> str:
    """What a thing is one of, so that it is no other of these: an animal, food, a person, a vehicle, …; else "".

    >>> [family_of(name) for name in ("zebra", "giraffe", "couch", "sky")]
    ['animal', 'animal', 'furniture', '']
    """
    senses = _senses(name)
    if not senses:
        return ""
    kind = wordnet.lexfile(senses[0]).removeprefix("noun.")
    if kind in ("animal", "food", "person"):
        return kind
    above = wordnet.ancestors(senses[0])
    return next((family for family in FAMILIES if wordnet.senses(family, "n")[0] in above), "")


def is_being(noun: str) -> bool:
    """Whether it is a person or an animal."""
    return noun.lower() == "people" or usual_kind(noun) in ("person", "animal")


def is_of_being(noun: str) -> bool:
    """Whether it is worn, or part of a body."""
    return usual_kind(noun) == "body" or wordnet.senses("clothing", "n")[0] in _ancestors(noun)
