"""Character classes of the Penn Treebank tokenizer.

The reference tool sorts characters by the tables of one old Unicode version. `assets/ptb_characters.txt` was recorded
from its output, so that it does not move with the Unicode version of the Python that runs here: a class a line, its
name and then runs of code points.

`shape` maps a text to one of equal length over a small alphabet, on which the rules are written: ASCII stands for
itself, and one stand-in stands for each class of other characters.
"""

from __future__ import annotations

from bisect import bisect
from functools import cache
from pathlib import Path

LETTER = "\u00e9"
CAPITAL = "\u00c9"
MARK = "\u0301"
DIGIT = "\u0660"
SYMBOL = "\u00a4"
NOTHING = "\0"

LINE_BREAKS = "\n\r\x0b\x0c\u2028\u2029"

TABLES = Path(__file__).parent / "assets" / "ptb_characters.txt"
_STAND_INS = {"letter": LETTER, "mark": MARK, "digit": DIGIT, "symbol": SYMBOL}
# Classes of few members: the first character of each line stands for the others.
_ALIKE = (
    "\u2018\x91\u201b",  # single quotes that may be apostrophes, opening
    "\u2019\x92",  # and closing
    "\u201c\u201d\xab\xbb\u201a\u201e\u201f\u2039\u203a\x93\x94",  # quotes that may not
    "\u2013\u2014\u2015\x96\x97",  # dashes
    "\u2010\u2011\u058a",  # hyphens
    "\xb2\xb3\xb9\u2070\u2074\u2075\u2076\u2077\u2078\u2079",  # superscript digits
    "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089",  # subscript digits
    "\u207a\u207b\u208a\u208b",  # signs of both
    "\u066b\u066c",  # separators inside Arabic numbers
    "\u3000\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a",  # wide spaces
    SYMBOL + "\x80\u20a0\u20ac",  # currencies
    " " + LINE_BREAKS,
    "\t",
    "\x85",  # an ellipsis that also counts as a line break
    "\xa0",  # no-break space
    "\xad",  # soft hyphen
    "\u2026",  # ellipsis
    "\u2044",  # fraction slash
    "\u3001",  # ideographic comma
)


@cache
def _runs() -> list[tuple[int, int, str]]:
    """The first and last code point of each run, and its stand-in; in order."""
    runs = []
    for line in TABLES.read_text("ascii").splitlines():
        name, *row = line.split()
        for run in row:
            first, _, last = run.partition("-")
            runs.append((int(first, 16), int(last or first, 16), _STAND_INS[name]))
    return sorted(runs)


class _Shapes(dict[int, str]):
    """Stand-in of each code point, found when first asked for."""

    def __init__(self) -> None:
        super().__init__({ord(char): alike[0] for alike in _ALIKE for char in alike})
        self.update({code: chr(code) for code in range(ord(" "), ord("~") + 1)})

    def __missing__(self, code: int) -> str:
        if code > 0xFFFF:  # the reference tool reads UTF-16 units, none of which it knows
            return NOTHING
        first, last, stand_in = _runs()[bisect(_runs(), (code, 0x10FFFF, "")) - 1]
        if not first <= code <= last:
            stand_in = NOTHING
        elif stand_in == LETTER and chr(code).isupper():
            stand_in = CAPITAL
        self[code] = stand_in
        return stand_in


_SHAPES = _Shapes()


def shape(text: str) -> str:
    """The text with every character replaced by the stand-in of its class."""
    return text if text.isascii() and text.isprintable() else text.translate(_SHAPES)
