"""The tokenizer behind every captioning score: Penn Treebank tokens, lower-cased, without punctuation.

The tokens equal those of Stanford CoreNLP 3.4.1 run with `-preserveLines -lowerCase`, as `pycocoevalcap` runs it,
without its Java. One thing differs on purpose. There, all captions go through one file, so that the first word of a
caption can change the last word of the one before (`the letter K.` loses its full stop before a caption that begins
with `The`), and a carriage return or form feed shifts all captions after it by one. Here every caption stands alone
on its line, and line breaks inside it are spaces. `ptb_tokenize_all(..., one_file=True)` lets neighbours touch as they
do there.
"""

import re
from collections.abc import Iterable

from sightline.text.ptb_rules import ABBREVIATIONS, ASSIMILATIONS, scan, shape

PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)

_CACHE_SIZE = 1 << 17  # pieces of text whose tokens are remembered, so that memory is bounded
_PLAIN = re.compile("([A-Za-z]{2,})[.,]?|[A-Za-z]+(?:-[A-Za-z]+)*")
# Where a token may depend on what is beyond a space, or hold one: numbers, sentence ends, tags, spaces of other kinds.
# One class of first characters before the alternatives makes the search twice as fast.
_BEYOND_SPACES = re.compile(
    r"[^ -(*-\-/:;=-~](?:(?<=[0-9)]) [0-9]|(?<=\.) +[0-9A-Z.<]|(?<=[^ -;=-~]))"  # the first class: 0-9 ) . < and others
)


def ptb_tokens(text: str) -> list[str]:
    """Penn Treebank tokens of one caption, lower-cased, without punctuation.

    >>> ptb_tokens("A man's dog isn't here.")
    ['a', 'man', "'s", 'dog', 'is', "n't", 'here']
    """
    tokens = [token.lower() for token in scan(text)]
    return [token for token in tokens if token not in PUNCTUATION]


def ptb_tokenize(text: str) -> str:
    """One caption as the metrics read it: tokens joined by single spaces, lower-cased, punctuation removed.

    Brackets survive as `-lrb-` and `-rrb-`, and so do `!!!` and `?!`: the reference removes punctuation after
    lower-casing, token by token.

    >>> ptb_tokenize("A black-and-white cat; 5:30pm (gonna sleep)!")
    'a black-and-white cat 5:30 pm -lrb- gon na sleep -rrb-'
    """
    if _BEYOND_SPACES.search(text):
        return _tokenize(text)
    return " ".join(filter(None, map(_CHUNKS.__getitem__, text.split(" "))))


def ptb_tokenize_all(texts: Iterable[str], *, one_file: bool = False) -> list[str]:
    """`ptb_tokenize` of each caption.

    With `one_file`, a caption's last word sees the beginning of the next caption, as when the reference reads them all
    from one file: to the last digit what `pycocoevalcap` scores, but dependent on the order of captions. It changes 17
    of COCO's 616,767.

    >>> ptb_tokenize_all(["The letter K.", "The end."])
    ['the letter k.', 'the end']
    >>> ptb_tokenize_all(["The letter K.", "The end."], one_file=True)
    ['the letter k', 'the end']
    """
    if not one_file:
        return [ptb_tokenize(text) for text in texts]
    lines: list[str] = []
    after = ""
    for text in reversed(list(texts)):
        word, stop, rest = text.rstrip().rpartition(" ")[2].rpartition(".")
        # Whether it may be an initial, or an abbreviation that needs a number.
        is_open = stop and not rest and (not word.isalpha() or len(word) == 1 or word.lower() in ABBREVIATIONS)
        lines.append(_tokenize(text, after) if is_open or not after else ptb_tokenize(text))
        after = "\n" + shape(text) + "\n" if text.strip() else "\n\n" + after.lstrip("\n")
    return lines[::-1]


def _tokenize(text: str, after: str = "\n") -> str:
    line = " ".join(scan(text, after)).lower()
    # The reference strips the line before it splits it: a token may end with a character that Python calls a space.
    return " ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION)


class _Chunks(dict[str, str]):
    """Tokens of each piece of text between spaces, remembered; most words of a corpus come again."""

    def __missing__(self, chunk: str) -> str:
        plain = _PLAIN.fullmatch(chunk)
        word = (plain[1] or plain[0]).lower() if plain else ""
        special = not word or word in ASSIMILATIONS or word in ABBREVIATIONS
        tokens = _tokenize(chunk) if special else word
        if len(self) >= _CACHE_SIZE:
            self.clear()
        self[chunk] = tokens
        return tokens


_CHUNKS = _Chunks()
