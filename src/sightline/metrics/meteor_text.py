"""Words as METEOR 1.5 sees them: its `-norm` normaliser, and Java's hash, by which it compares words.

Found by experiment on the tool's output. The normaliser parts punctuation from words in the manner of the Moses
tokenizer; each rule consumes the characters around its match, which is why `a-b-c` becomes `a b-c`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

import numpy as np

_LETTERS = "A-Za-zÀ-ÖØ-öø-ž\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e\ua67e-\ua697"
_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_EDGES = "".join(map(chr, range(33)))

_PLAIN = re.compile(r"[a-z0-9 ]*")
_QUOTES = str.maketrans("‘’“”", "''\"\"")
_SYMBOL = re.compile(rf"([^{_LETTERS}0-9 \t\n\x0b\f\r.'`,\-])")
_DOTS = re.compile(r"(\.\.+)")
_COMMAS = (
    re.compile(r"([^0-9]),([^0-9])"),
    re.compile(r"([0-9]),([^0-9])"),
    re.compile(r"([^0-9]),([0-9])"),
)
_APOSTROPHES = (
    (re.compile(rf"([^{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([^{_LETTERS}0-9])'([{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTERS}])'([{_LETTERS}])"), r"\1 '\2"),
    (re.compile(r"([0-9])'(s)"), r"\1 '\2"),
)
_HYPHEN = re.compile(rf"([{_LETTERS}0-9.])-([{_LETTERS}0-9])")
_LETTER = re.compile(f"[{_LETTERS}]")
_SPACE = re.compile(_SPACES)
_BETWEEN = re.compile(r"[ \t\n\f\r]+")


def normalise(sentence: str, prefixes: Mapping[str, bool]) -> list[str]:
    """The words of a sentence after `-norm`, in lower case.

    Args:
        sentence: any text.
        prefixes: words that keep a full stop behind them; True for those that keep it only before a number.
    """
    if _PLAIN.fullmatch(sentence):
        return sentence.split()
    text = f" {sentence.translate(_QUOTES).strip(_EDGES)} "
    text = _DOTS.sub(r" \1 ", _SYMBOL.sub(r" \1 ", text))
    for comma in _COMMAS:
        text = comma.sub(r"\1 , \2", text)
    text = text.replace("--", "-").replace("`", "'").replace("''", ' " ')
    for apostrophe, parted in _APOSTROPHES:
        text = apostrophe.sub(parted, text)
    text = _HYPHEN.sub(r"\1 \2", text.replace("–", "-"))
    text = " ".join(_full_stops(_split(text), prefixes))
    return _split(_SPACE.sub(" ", text).strip(_EDGES).lower())


def _split(text: str) -> list[str]:
    return [word for word in _BETWEEN.split(text) if word]


def _full_stops(words: list[str], prefixes: Mapping[str, bool]) -> list[str]:
    """Part the full stop that ends a sentence; abbreviations with inner ones lose them all."""
    parted: list[str] = []
    for word, following in pairwise([*words, ""]):
        stem = word[:-1]
        if not word.endswith(".") or not stem.strip("."):
            parted.append(word)
        elif "." in stem and _LETTER.search(stem):
            parted.append(word.replace(".", ""))
        elif _keeps_full_stop(stem, following, prefixes):
            parted.append(word)
        else:
            parted += (stem, ".")
    return parted


def _keeps_full_stop(stem: str, following: str, prefixes: Mapping[str, bool]) -> bool:
    if "a" <= following[:1] <= "z":
        return True
    if prefixes.get(stem):
        return "0" <= following[:1] <= "9"
    return stem in prefixes


@lru_cache(maxsize=1 << 16)
def java_hash(word: str) -> int:
    """Java's `String.hashCode`, unsigned. METEOR takes words with equal hashes for the same word: `2n` and `40`."""
    value = 0
    for unit in np.frombuffer(word.encode("utf-16-le", "surrogatepass"), "<u2").tolist():
        value = value * 31 + unit & 0xFFFFFFFF
    return value
