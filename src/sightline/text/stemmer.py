"""The Snowball English stemmer (Porter 2), as it stood when METEOR 1.5 was made.

Later Snowball releases added rules (`-ogist`, short doubles such as `erring`, more stems that begin R1); METEOR scores
depend on the older ones. Words are expected in lower case; letters outside a-z count as consonants.
"""

import re
from functools import lru_cache

_WHOLE_WORDS = {
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl",
    "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl",
    "sky": "sky", "news": "news", "howe": "howe", "atlas": "atlas", "cosmos": "cosmos", "bias": "bias",
    "andes": "andes",
}  # fmt: skip
_FINISHED_BY_STEP_1A = {"inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"}

_REGION = re.compile(r"[aeiouy][^aeiouy]")  # R1 begins after the first such pair, R2 after the next one
_REGION_PREFIX = re.compile(r"gener|commun|arsen")
_VOWEL = re.compile(r"[aeiouy]")
_SHORT_SYLLABLE = re.compile(r"(?:[^aeiouy][aeiouy][^aeiouywxY]|^[aeiouy][^aeiouy])$")
_VOWEL_Y = re.compile(r"([aeiouy])y")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "abli": "able", "entli": "ent", "izer": "ize",
    "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al", "aliti": "al", "alli": "al", "fulness": "ful",
    "ousli": "ous", "ousness": "ous", "iveness": "ive", "iviti": "ive", "biliti": "ble", "bli": "ble", "fulli": "ful",
    "lessli": "less", "ogi": "og", "li": "",
}  # fmt: skip
_STEP_3 = {
    "ational": "ate", "tional": "tion", "alize": "al", "icate": "ic", "iciti": "ic", "ical": "ic", "ful": "",
    "ness": "", "ative": "",
}  # fmt: skip
_STEP_4 = dict.fromkeys("al ance ence er ic able ible ant ement ment ent ism ate iti ous ive ize ion".split(), "")
_BEFORE = {"ogi": ("l",), "li": tuple("cdeghkmnrt"), "ion": ("s", "t")}  # one of which these suffixes need
_IN_R2 = frozenset({*_STEP_4, "ative"})  # suffixes that begin in R2; the others in R1
_POSSESSIVES = ("'s'", "'s", "'")
_STEP_1B_SUFFIXES = ("eedly", "ingly", "edly", "eed", "ing", "ed")  # longest first
_STEPS_2_TO_4 = [(step, tuple(sorted(step, key=len, reverse=True))) for step in (_STEP_2, _STEP_3, _STEP_4)]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case English word.

    >>> stem("generously"), stem("horses"), stem("riding")
    ('generous', 'hors', 'ride')
    """
    if word in _WHOLE_WORDS:
        return _WHOLE_WORDS[word]
    if len(word) <= 2:
        return word
    word = word.removeprefix("'")
    word = _VOWEL_Y.sub(r"\1Y", "Y" + word[1:] if word.startswith("y") else word)  # Y is a consonant
    start = _REGION_PREFIX.match(word) or _REGION.search(word)
    r1 = start.end() if start else len(word)
    following = _REGION.search(word, r1)
    r2 = following.end() if following else len(word)
    word = _step_1a(word.removesuffix(_ending(word, _POSSESSIVES)))
    if word not in _FINISHED_BY_STEP_1A:
        word = _step_1b(word, r1)
        if len(word) > 2 and word[-1] in "yY" and word[-2] not in "aeiouy":  # step 1c
            word = word[:-1] + "i"
        for replacements, suffixes in _STEPS_2_TO_4:
            word = _without_suffix(word, replacements, suffixes, r1, r2)
        word = _step_5(word, r1, r2)
    return word.replace("Y", "y")


def _step_1a(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _VOWEL.search(word, 0, len(word) - 2):
        return word[:-1]
    return word


def _ending(word: str, suffixes: tuple[str, ...]) -> str:
    if not word.endswith(suffixes):
        return ""
    return next(suffix for suffix in suffixes if word.endswith(suffix))


def _step_1b(word: str, r1: int) -> str:
    suffix = _ending(word, _STEP_1B_SUFFIXES)
    if not suffix:
        return word
    rest = word.removesuffix(suffix)
    if suffix.startswith("eed"):
        return rest + "ee" if len(rest) >= r1 else word
    if not _VOWEL.search(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        return rest[:-1]
    return rest + "e" if len(rest) <= r1 and _SHORT_SYLLABLE.search(rest) else rest


def _without_suffix(word: str, replacements: dict[str, str], suffixes: tuple[str, ...], r1: int, r2: int) -> str:
    suffix = _ending(word, suffixes)
    rest = word.removesuffix(suffix)
    if not suffix or len(rest) < (r2 if suffix in _IN_R2 else r1):
        return word
    return rest + replacements[suffix] if rest.endswith(_BEFORE.get(suffix, "")) else word


def _step_5(word: str, r1: int, r2: int) -> str:
    rest = word[:-1]
    if word.endswith("e") and (len(rest) >= r2 or (len(rest) >= r1 and not _SHORT_SYLLABLE.search(rest))):
        return rest
    if word.endswith("ll") and len(rest) >= r2:
        return rest
    return word
