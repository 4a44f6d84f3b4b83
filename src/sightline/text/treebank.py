"""Treebank words with punctuation kept, as SCAN, VSRN, VSE++ and R2M split captions.

Their code calls `nltk.word_tokenize`; this gives the same words without a download. The full stop that ends a sentence
inside a caption is found by a short list of abbreviations instead of a trained model.
"""

import re

# What stands alone wherever it appears. `,` and `:` do so unless a digit follows; `--` and runs of dots are one word.
_ALONE = re.compile(r"(\.{2,}|--|''|``|[;@#$%&?!()\[\]{}<>*\"`“”«»„‘’–—]|[:,](?!\d))")
_CLITIC = re.compile(r"(?i)(.+)('s|'m|'d|'ll|'re|'ve|n't)|(.+)(')", re.DOTALL)
_LONE_CLITIC = frozenset(("'n", "'s", "'m", "'d", "'t", "'ll", "'re", "'ve"))
# Words that Treebank writes as two, and how many letters the first has.
_TWO_WORDS = {"cannot": 3, "gimme": 3, "gonna": 3, "gotta": 3, "lemme": 3, "wanna": 3, "d'ye": 1, "more'n": 4}
_SENTENCE_END = re.compile(r"([^\s.])\.(?=[\])}>\"'»”]*(\s|$))")
_ABBREVIATIONS = frozenset("mr mrs ms dr prof st jr sr vs etc inc co corp ltd no ave blvd rd mt ft dept approx".split())
_OPENS = frozenset(" ([{<")


def treebank_words(text: str) -> list[str]:
    """Split one caption into Treebank words.

    >>> treebank_words("a man's dog isn't here, is it?")
    ['a', 'man', "'s", 'dog', 'is', "n't", 'here', ',', 'is', 'it', '?']
    """
    words: list[str] = []
    for chunk in _SENTENCE_END.sub(_part_full_stop, text).split():
        previous = " "
        for piece in _ALONE.split(chunk):
            if not piece:
                continue
            if piece in ('"', "''"):
                piece = "``" if previous in _OPENS and (piece == '"' or words) else "''"
                words.append(piece)
            elif _ALONE.fullmatch(piece):
                words.append(piece)
            else:
                words.extend(_part_word(piece))
            previous = piece[-1]
    return words


def _part_full_stop(match: re.Match[str]) -> str:
    """Part a full stop from its word at the end of the text, and inside it unless the word is an abbreviation."""
    text, at = match.string, match.start() + 1
    last = text[at + 1 :].strip(" ])}>\"'»”\t\n\r") == ""
    word = re.split(r"[\s(\[{<\"]", text[:at])[-1].lower()
    abbreviation = len(word) == 1 or "." in word or word in _ABBREVIATIONS
    return f"{match[1]} ." if last or not abbreviation else match[0]


def _part_word(word: str) -> list[str]:
    """Part clitics and the few words Treebank writes as two."""
    lower = word.lower()
    if lower in _TWO_WORDS:
        at = _TWO_WORDS[lower]
        return [word[:at], word[at:]]
    if word[0] == "'" and len(word) > 1 and lower not in _LONE_CLITIC and "'" not in word[1:2]:
        if lower[:-1] in _LONE_CLITIC and word[-1] == "'":
            return [word[:-1], "'"]
        return ["'", *_part_word(word[1:])]
    if lower in _LONE_CLITIC or lower == "n't":
        return [word]
    if match := _CLITIC.fullmatch(word):
        stem, tail = (match[1], match[2]) if match[2] else (match[3], match[4])
        return [*_part_word(stem), tail] if tail == "'" else [stem, tail]
    return [word]
