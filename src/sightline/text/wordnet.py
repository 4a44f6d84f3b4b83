"""WordNet 3.0 without its glosses: senses, hypernyms, lexicographer files, compounds. Loaded on first use.

A synset's id is its offset in Debian's build of the database (verbs differ from Princeton's by a few bytes), prefixed
by 1 to 4 for noun, verb, adjective and adverb: 102084071 is the noun *dog, domestic dog, Canis familiaris*.
Lemmas are looked up as given, lower-cased, with a space or an underscore between the words of a compound; inflected
forms are the business of `sightline.text.lemmas`. A part of speech is "n", "v", "a" or "r".
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import compress
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from sightline.errors import ConfigError, DataError

Pos = Literal["n", "v", "a", "r"]
POS: tuple[Pos, ...] = get_args(Pos)
ASSET = Path(__file__).parent / "assets" / "wordnet.npz"
CACHE_SIZE = 1 << 16  # answers of each cache: more than captions have words

LEXFILES = (
    "adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute",
    "noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling", "noun.food", "noun.group",
    "noun.location", "noun.motive", "noun.object", "noun.person", "noun.phenomenon", "noun.plant", "noun.possession",
    "noun.process", "noun.quantity", "noun.relation", "noun.shape", "noun.state", "noun.substance", "noun.time",
    "verb.body", "verb.change", "verb.cognition", "verb.communication", "verb.competition", "verb.consumption",
    "verb.contact", "verb.creation", "verb.emotion", "verb.motion", "verb.perception", "verb.possession",
    "verb.social", "verb.stative", "verb.weather", "adj.ppl",
)  # fmt: skip

Ints = npt.NDArray[np.integer[Any]]


class _PartOfSpeech(NamedTuple):
    """Senses of word i are `senses[starts[i]:starts[i + 1]]`; `seen[i]` counts it in the sense-tagged texts."""

    starts: Ints
    senses: Ints
    seen: Ints


class _Lexicon(NamedTuple):
    words: list[str]  # sorted
    parts: dict[Pos, _PartOfSpeech]
    ids: Ints  # of synsets, sorted; the other arrays name synsets by their row here


class _Hierarchy(NamedTuple):
    """Parents of synset row i are `parents[starts[i]:starts[i + 1]]`."""

    parents: Ints
    starts: Ints
    lexfiles: Ints


def _starts(counts: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int32)))


@cache
def _lexicon() -> _Lexicon:
    with np.load(ASSET, allow_pickle=False) as stored:
        words = stored["words"].tobytes().decode("utf-8").split("\n")
        parts: dict[Pos, _PartOfSpeech] = {}
        for pos in POS:
            places = np.cumsum(stored[f"{pos}_words"])
            counts, seen = np.zeros(len(words), dtype=np.uint8), np.zeros(len(words), dtype=np.uint16)
            counts[places], seen[places] = stored[f"{pos}_counts"], stored[f"{pos}_seen"]
            parts[pos] = _PartOfSpeech(_starts(counts), stored[f"{pos}_senses"], seen)
        return _Lexicon(words, parts, np.cumsum(stored["ids"], dtype=np.int32))


@cache
def _hierarchy() -> _Hierarchy:
    with np.load(ASSET, allow_pickle=False) as stored:
        counts = stored["parent_counts"]
        children = np.repeat(np.arange(len(counts), dtype=np.int32), counts)  # parents are stored as distances
        return _Hierarchy(children + stored["parents"], _starts(counts), stored["lexfiles"])


def _row(synset: int) -> int:
    ids = _lexicon().ids
    row = int(np.searchsorted(ids, synset))
    if row == len(ids) or ids[row] != synset:
        what = f"{synset} is not the id of a synset"
        raise DataError(what, where="WordNet 3.0", fix="take ids from senses() or synsets()")
    return row


@cache
def exceptions(pos: Pos) -> dict[str, tuple[str, ...]]:
    """Irregular inflected forms of a part of speech and their base forms: `exceptions("n")["men"]` is ("man",)."""
    _part(pos)  # refuses what is none
    with np.load(ASSET, allow_pickle=False) as stored:
        lines = stored[f"{pos}_exceptions"].tobytes().decode("utf-8").split("\n")
    rows = ([word.replace("_", " ") for word in line.split()] for line in lines)
    return {form: tuple(bases) for form, *bases in rows}


def _part(pos: Pos) -> _PartOfSpeech:
    if pos not in POS:
        raise ConfigError(f"{pos!r} is not a part of speech", fix='use "n", "v", "a" or "r"')
    return _lexicon().parts[pos]


@lru_cache(CACHE_SIZE)
def _place(lemma: str) -> int | None:
    words, word = _lexicon().words, lemma.lower().replace("_", " ")
    place = bisect_left(words, word)  # a dict would double the time it takes to load
    return place if place < len(words) and words[place] == word else None


@lru_cache(CACHE_SIZE)
def senses(lemma: str, pos: Pos) -> tuple[int, ...]:
    """The synsets of `lemma` as one part of speech, most frequent sense first; () where WordNet has none."""
    place, part = _place(lemma), _part(pos)
    if place is None:
        return ()
    rows = part.senses[part.starts[place] : part.starts[place + 1]]
    return tuple(_lexicon().ids[rows].tolist())


@lru_cache(CACHE_SIZE)
def synsets(lemma: str, pos: Pos | None = None) -> frozenset[int]:
    """The synsets of `lemma`, of one part of speech or of all."""
    return frozenset(synset for part in (POS if pos is None else (pos,)) for synset in senses(lemma, part))


def share_synset(a: str, b: str, pos: Pos | None = None) -> bool:
    """Whether two lemmas have a synset in common. A word WordNet does not hold shares none, not even with itself."""
    return not synsets(a, pos).isdisjoint(synsets(b, pos))


def has(lemma: str, pos: Pos) -> bool:
    """True if WordNet holds this lemma, a compound too ("fire hydrant"), as this part of speech."""
    place, part = _place(lemma), _part(pos)
    return place is not None and bool(part.starts[place] != part.starts[place + 1])


def frequency(lemma: str, pos: Pos) -> int:
    """How often `lemma` was seen, in all its senses, in WordNet's sense-tagged texts."""
    place, part = _place(lemma), _part(pos)
    return 0 if place is None else int(part.seen[place])


def hypernyms(synset: int) -> tuple[int, ...]:
    """The direct hypernyms of a noun or verb synset (for a name, what it is an instance of); () at the top."""
    row, tree = _row(synset), _hierarchy()
    return tuple(_lexicon().ids[tree.parents[tree.starts[row] : tree.starts[row + 1]]].tolist())


@lru_cache(CACHE_SIZE)
def ancestors(synset: int) -> frozenset[int]:
    """The synset and all its hypernyms, up to the top."""
    above, level = {synset}, [synset]
    while level:
        level = [parent for child in level for parent in hypernyms(child) if parent not in above]
        above.update(level)
    return frozenset(above)


def hypernym_closure(lemma: str, pos: Pos) -> frozenset[int]:
    """The synsets of `lemma` in all its senses, and everything above them."""
    return frozenset().union(*(ancestors(synset) for synset in senses(lemma, pos)))


def lexfile(synset: int) -> str:
    """The lexicographer file a synset belongs to: "noun.person", "noun.food", "verb.motion" …"""
    return LEXFILES[int(_hierarchy().lexfiles[_row(synset)])]


def lemmas(pos: Pos) -> Iterator[str]:
    """Every lemma of a part of speech, in alphabetical order."""
    return compress(_lexicon().words, np.diff(_part(pos).starts).tolist())
