"""What the part-of-speech tagger looks at: features of word types, and where in its clause a word stands.

Shared by the tagger and by `tools/build_tagger.py`, which learns a weight for each feature and tag.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from sightline.text import wordnet
from sightline.text.lemmas import inflections, lemma

BEFORE = ("<s2>", "<s>")  # stand for the two words, and tags, before the first token
AFTER = ("</s>", "</s2>")
OFFSETS = (0, -1, -2, 1, 2)
CLOSED = Path(__file__).parent / "assets" / "closed_classes.txt"

# Where a word stands in its clause, told from the tags before it. Captions are mostly one clause, and whether its verb
# is still to come, and whether its subject is one or many, decides what *jumps* and *watch* are.
CLAUSES = ("start", "one", "many", "and", "one passed", "many passed", "verb", "verb and")
RESTARTS = frozenset("while whilst as when because that who which where if although since until before after".split())


@cache
def closed_classes() -> dict[str, str]:
    """Function words, numbers, colours and punctuation, each with the tags it may have, joined by `/`."""
    lines = (line.split(" ") for line in CLOSED.read_text("utf-8").splitlines())
    return {word: tags for tags, *words in lines for word in words}


def form(token: str) -> str:
    """The word a token counts as: lower-cased, with years and other numbers made one."""
    if token[:1].isdigit():
        return "!YEAR" if len(token) == 4 and token.isdigit() else "!DIGITS"
    return token.lower()


def shape(token: str) -> str:
    """How a token is written: `0` with digits at an end, `.` without letters, `x`, `Xx` or `XX` by its capitals."""
    if token[:1].isdigit() or token[-1:].isdigit():
        return "0"
    if not any(character.isalpha() for character in token):
        return "."
    if token.islower():
        return "x"
    return "XX" if token.isupper() and len(token) > 1 else "Xx"


@lru_cache(wordnet.REMEMBERED)
def word_class(token: str) -> str:
    """The tags of a function word, else what WordNet says the word (or its last part) may be.

    `n/v+s?`: a noun as it stands, or a verb in -s, which WordNet's texts have less than once in twenty.
    """
    word = form(token)
    if token in BEFORE + AFTER or (word.startswith("!") and word != "!"):
        return word
    if word in closed_classes():
        return closed_classes()[word]
    compound = "-" in word[1:]
    if compound and not inflections(word):
        word = word.rsplit("-", 1)[-1]
    counts = {reading: _frequency(word, reading) for reading in sorted(inflections(word))}
    total = sum(counts.values())
    readings = (reading + ("?" if count * 20 < total else "") for reading, count in counts.items())
    return ("-" if compound else "") + "/".join(readings)


def _frequency(word: str, reading: str) -> int:
    pos = next(pos for pos in wordnet.POS if pos == reading[0])
    return wordnet.frequency(lemma(word, pos) if "+" in reading else word, pos)


def features(token: str, offset: int) -> list[str]:
    """The features of a token seen from a word `offset` places before it: 0 is the word being tagged itself."""
    word, hyphen = form(token), "-" in token[1:]
    if offset == 0:
        own = ["bias", f"w={word}", f"s={token[-3:]}", f"p={token[:1]}", f"x={shape(token)}", f"c={word_class(token)}"]
        return [*own, "w=!HYPHEN"] if hyphen else own
    near = [f"{offset:+d}w={'!HYPHEN' if hyphen else word}"]
    return [*near, f"{offset:+d}s={word[-3:]}", f"{offset:+d}c={word_class(token)}"] if abs(offset) == 1 else near


def clause_after(clause: str, tag: str, restart: bool = False) -> str:
    """Where the next word stands, after a word with `tag` at `clause`; `restart`: that word is one of RESTARTS."""
    if restart and tag in ("IN", "WDT", "WP", "WRB"):
        return "start"
    if tag in ("VBZ", "VBP", "VBD", "MD"):
        return "verb"
    number = {"NN": "one", "NNP": "one", "NNS": "many", "NNPS": "many"}.get(tag)
    if clause == "start":
        return "one" if tag == "PRP" else number or clause
    if clause in ("one", "many"):
        passed = tag in ("IN", "VBG", "VBN", "TO", "WDT", "WP", "RP")
        return "and" if tag == "CC" else f"{clause} passed" if passed else number or clause
    if clause == "and":
        inside = tag in ("DT", "JJ", "CD", "PRP$", "RB")
        return "many" if number else clause if inside else "one passed"
    if clause in ("verb", "verb and"):
        return "verb and" if tag == "CC" and clause == "verb" else "verb"
    return clause
