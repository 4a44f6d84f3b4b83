"""Base forms of inflected words, as WordNet's own `morphy` finds them.

The candidates are the word itself and either its bases in WordNet's lists of irregular forms or what detaching the
regular endings leaves. Only lemmas that WordNet holds count. Where several do, a base that would have doubled its last
consonant gives way (*taping* is from *tape*), then the one seen more often in WordNet's sense-tagged texts wins, then
the earlier one. So *men* gives *man* and *riding* gives *ride*, while *people*, a lemma of its own that no rule leads
to *person*, stays *people*. A word WordNet does not hold comes back lower-cased and otherwise unchanged.
"""

import re
from functools import lru_cache

from sightline.text import wordnet
from sightline.text.wordnet import Pos

# ending, what replaces it, and the inflection it marks
DETACHMENT: dict[Pos, tuple[tuple[str, str, str], ...]] = {
    "n": (
        ("s", "", "s"), ("ses", "s", "s"), ("xes", "x", "s"), ("zes", "z", "s"), ("ches", "ch", "s"),
        ("shes", "sh", "s"), ("men", "man", "s"), ("ies", "y", "s"),
    ),
    "v": (
        ("s", "", "s"), ("ies", "y", "s"), ("es", "e", "s"), ("es", "", "s"), ("ed", "e", "ed"), ("ed", "", "ed"),
        ("ing", "e", "ing"), ("ing", "", "ing"),
    ),
    "a": (("er", "", "er"), ("est", "", "est"), ("er", "e", "er"), ("est", "e", "est")),
    "r": (),
}  # fmt: skip
_DOUBLES = re.compile(r"[^aeiou]*[aeiouy][^aeiouwxy]")  # tap, run, sit: one vowel, then one consonant
_POS_OF_TAG: dict[str, Pos] = {"N": "n", "V": "v", "J": "a", "R": "r"}
_CLITICS = {"n't": "not", "'re": "be", "'m": "be", "'ve": "have", "'ll": "will", "ca": "can", "wo": "will"}
_REGULAR = {"NNS": "s", "NNPS": "s", "VBZ": "s", "VBG": "ing", "VBD": "ed", "VBN": "ed"}
_INFLECTED = frozenset({*_REGULAR, "JJR", "JJS", "RBR", "RBS"})


def lemma(word: str, pos: Pos) -> str:
    """The base form of `word` as a noun "n", verb "v", adjective "a" or adverb "r": see the module for the rule."""
    return _lemma(word.lower(), pos)


@lru_cache(wordnet.CACHE_SIZE)
def _lemma(word: str, pos: Pos) -> str:
    bases = [base for base, _ in _candidates(word, pos)]
    if not bases:
        return word
    return max(bases, key=lambda base: (not _lost_doubling(base, word), wordnet.frequency(base, pos)))


def lemma_of_tag(word: str, tag: str) -> str:
    """The base form of a word with its Penn tag; words of closed classes are only lower-cased.

    The tag tells *saw* VBD (*see*) from *saw* VB. An inflected word WordNet does not hold loses its regular ending:
    *selfies* NNS gives *selfie*.
    """
    word = word.lower()
    if word in _CLITICS:
        return _CLITICS[word]
    if word == "'s" and tag == "VBZ":
        return "be"
    pos = _POS_OF_TAG.get(tag[:1])
    if pos is None or tag == "RP":
        return word
    if tag not in _INFLECTED and wordnet.has(word, pos):
        return word
    if tag in _REGULAR and not _candidates(word, pos):
        return _without_ending(word, _REGULAR[tag])
    return _lemma(word, pos)


@lru_cache(wordnet.CACHE_SIZE)
def inflections(word: str) -> frozenset[str]:
    """What `word` may be according to WordNet: "n" or "v+ing" …, the part of speech and the ending it carries.

    >>> sorted(inflections("swings"))
    ['n+s', 'v+s']
    """
    word = word.lower()
    return frozenset(
        f"{pos}+{ending}" if ending else pos for pos in wordnet.POS for _, ending in _candidates(word, pos)
    )


@lru_cache(wordnet.CACHE_SIZE)
def _candidates(word: str, pos: Pos) -> tuple[tuple[str, str], ...]:
    """Lemmas that `word` may come from, each with the ending it carries ("" for the lemma itself)."""
    bases = [(word, "")]
    irregular = wordnet.exceptions(pos).get(word)
    if irregular:
        ending = _irregular_ending(word, pos)
        bases += [(base, ending) for base in irregular if base != word]
    elif " " in word:
        bases += _of_compound(word, pos)
    elif pos == "n" and word.endswith("ful"):
        bases += [(base + "ful", ending) for base, ending in _candidates(word[:-3], "n") if ending]
    elif not (pos == "n" and (word.endswith("ss") or len(word) <= 2)):
        bases += [(word.removesuffix(old) + new, ending) for old, new, ending in DETACHMENT[pos] if word.endswith(old)]
    return tuple((base, ending) for base, ending in dict.fromkeys(bases) if wordnet.has(base, pos))


def _of_compound(words: str, pos: Pos) -> list[tuple[str, str]]:
    """A compound noun carries its ending on the last word (*fire hydrants*), a phrasal verb on the first."""
    if pos == "v":
        verb, particle = words.split(" ", 1)
        return [(f"{base} {particle}", ending) for base, ending in _candidates(verb, pos) if ending]
    modifier, head = words.rsplit(" ", 1)
    return [(f"{modifier} {base}", ending) for base, ending in _candidates(head, pos) if ending]


def _irregular_ending(word: str, pos: Pos) -> str:
    if pos == "n":
        return "s"
    if pos == "v":
        if word.endswith("ing"):
            return "ing"
        return "s" if word.endswith("s") and not word.endswith("ss") else "ed"
    return "est" if word.endswith("st") else "er"


def _lost_doubling(base: str, word: str) -> bool:
    """Whether `word` only appends an ending in a vowel to a base that would have doubled its last consonant."""
    ending = word.removeprefix(base)
    return ending != word and ending[:1] in ("e", "i") and _DOUBLES.fullmatch(base) is not None


def _without_ending(word: str, ending: str) -> str:
    stem = word.removesuffix(ending)
    if stem == word or not re.search("[aeiouy]", stem):
        return word
    if ending == "s":
        return stem[:-1] if re.search("(s|x|z|ch|sh)e$", stem) else stem
    if _DOUBLES.fullmatch(stem):
        return stem + "e"
    return stem[:-1] if re.search(r"([bdgmnprt])\1$", stem) else stem
