"""Rules of the Penn Treebank tokenizer.

They restate what CoreNLP 3.4.1's `PTBTokenizer` was seen to do, run as a black box. It behaves as a lexer: at
each position the rule that reads farthest wins, what it looks ahead at included, and of equals the first; then what was
only looked at is read again. Nothing here is tidier than the tool: scores are comparable only if its oddities are kept.

Patterns are written on the `shape` of the text, of equal length over a small alphabet: ASCII stands for itself, and one
stand-in stands for each class of other characters. The tool sorts characters by the tables of one old Unicode
version; `assets/ptb_characters.txt` was recorded from its output, so that it does not move with the Unicode version of
the Python that runs here: a class a line, its name and then runs of code points. The token is cut from the text itself.
"""

import re
from bisect import bisect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


ASSIMILATIONS = ("cannot", "gonna", "gotta", "wanna", "gimme", "lemme")  # cut after three letters

# Abbreviations keep their full stop: these always,
_TITLES = """adj adm adv alex assoc asst atty attys ave brig capt cf cie cmdr col comdr cpl dept det dr drs elec ens ft
    gen gov govs hon insp invt jos lieut lt maj messrs mlle mme mr mrs ms msgr mt natl pfc ph pres prof profs pvt rep
    reps rev sen sens sfc sgt spc st ste supt supts treas vs wm"""
# these too, but where it also ends the sentence it is there twice,
_ENDINGS = """al ala apr ariz assn aug bhd bldg blvd bros calif co cos colo conn corp ct dak dec esq est etc ext feb fla
    fri ga inc ind intl jan jr jul jun kan kans ky ltd mar md mich minn mo mon mont neb nev nov oct okla penn plc rd rt
    sep sept seq sq sr sys tel tenn thu thurs tue tues univ va vt wed wis wisc wyo"""
_CAPITALISED_ENDINGS = "Ark Az Del Ill La Mass Miss Ore Pa Tex Wash"
# and these before digits.
_BEFORE_DIGITS = "art ca fig figs no nos op pp prop"
_ODD_CASED = "mfg mtg ppte pptes ppty pptys pte ptes pty ptys"  # some of their letters must be small
ABBREVIATIONS = frozenset(
    " ".join([_TITLES, _ENDINGS, _CAPITALISED_ENDINGS, _BEFORE_DIGITS, _ODD_CASED]).lower().split()
)

# After an initial, these words show that its full stop ended a sentence.
_SENTENCE_STARTS = r"""A About According Additionally After An As At But Earlier He Her Here However If In It Last Many
    More Mr\. Ms\. Now Once One Other Our She Since So Some Such That The Their Then There These They This We What
    When While Yet You"""

_FILE_ENDINGS = """bat bmp c class cgi cpp dll docx? exe gif gz h html? jar java jpe?g mov mp3 pdf php pl png ppt ps py
    sql tar txt wav x xml zip"""

_L = f"A-Za-z{LETTER}{CAPITAL}"
_D = f"0-9{DIGIT}"
_SPACES = r" \t\xa0\u3000"
_SPACE = rf"[{_SPACES}\n\x85]"
_APOSTROPHE = "(?:['’]|&apos;)"
_ANY_APOSTROPHE = "(?:['’`‘]|&apos;)"
_SUFFIX = f"{_APOSTROPHE}(?i:[sdm]|ll|re|ve)"


def _any(words: str, *, capitalised: bool = False) -> str:
    """One of the words in any case, or in any that begins with a capital. Longer words come before their beginnings."""
    ordered = sorted(words.split(), reverse=True)
    cut = 1 if capitalised else 0
    return "(?:" + "|".join(f"{word[:cut]}(?i:{word[cut:]})" for word in ordered) + ")"


_ENTITY_LETTER = "&(?i:[aeiou](?:acute|grave|uml));"
_WORD_LETTER = rf"(?:[{_L}{MARK}\xad]|{_ENTITY_LETTER})"
_WORD_SIGNS = rf"(?:[{_L}{_D}{MARK}\xad]++|{_ENTITY_LETTER})"
_WORD = f"{_WORD_LETTER}{_WORD_SIGNS}*+(?:[.!?]{_WORD_LETTER}{_WORD_SIGNS}*+)*+"
_ACRONYM = r"[A-Za-z](?:\.[A-Za-z])+\."
_PART = f"(?:[dDoOlL]{_ANY_APOSTROPHE}[{_L}{_D}])?[{_L}{_D}]+"
_COMPOUND = f"{_PART}(?:[-_‐]{_PART})*"
_POINTED_COMPOUND = rf"[A-Za-z0-9][A-Za-z0-9.,\xad]*+(?:-(?:{_ACRONYM}|[A-Za-z0-9\xad]+))+"
_SLASH_PART = "[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
_COMPANY = "[A-Z]+(?:(?:&amp;|[&+])[A-Z]+)+"

_NAME = "[A-Za-z][A-Za-z0-9_:.-]*"
_ATTRIBUTE = rf"""{_NAME}(?: *= *(?:"[^"\n]*"|'[^'\n]*'))?"""
_TAG = rf"<(?:[!?][A-Za-z-][^>\n]*|/{_NAME}|{_NAME}(?: +{_ATTRIBUTE})* *(?:/ *)?)>"
_SENTENCE_START = f"{_SPACE}+(?:{_any(_SENTENCE_STARTS, capitalised=True)}|{_TAG}){_SPACE}"

_TITLE = rf"(?:{_any(_TITLES)}|[Mm][ft][Gg])\."
_ENDING = (
    rf"(?:{_any(_ENDINGS)}|[Pp][Hh]\.[Dd]|{_any(_CAPITALISED_ENDINGS, capitalised=True)}|[Pp]{{1,2}}[Tt][ey][Ss]?)\."
)

_URL_SIGN = r'[^ \t\n"<>|(){}]'
_URL_END = r'[^ \t\n"<>|.!?(){},-]'
_URL_PATH = rf'(?:/[^ \t\n"<>|()]+{_URL_END})?'
_HOST = f"(?:[^ \\t\\n\"`'<>|.!?(){{}},-_$]++\\.)+(?i:com|net|org|edu){_URL_PATH}"  # `,-_` is a range
_MAIL_SIGN = r'[^ \t\n"<>|(){}\xa0.]'
_NAME_SIGN = _MAIL_SIGN.replace(".]", "]")
_MAIL = rf"(?:&lt;|<)?[A-Za-z0-9]{_NAME_SIGN}*@(?:{_MAIL_SIGN}++\.(?={_MAIL_SIGN}))*+{_MAIL_SIGN}++>?"

_GAP = r"[- \xa0]"
_AREA = rf"\([0-9]{{2,3}}\)[ \xa0]?|(?:\+\+?)?(?:[0-9]{{2,4}}{_GAP})?[0-9]{{2,4}}{_GAP}"
_PHONE = f"(?:{_AREA})[0-9]{{3,4}}{_GAP}?[0-9]{{3,5}}"
_FRACTION = rf"(?:[{_D}]{{1,4}}{_GAP})?[{_D}]{{1,4}}(?:\\?/|⁄)[{_D}]{{1,4}}"
_EYES = "[-x=~<>'^]"

_BRACKETS = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_QUOTES = str.maketrans(
    dict.fromkeys("\x91‘‛‹", "`")
    | dict.fromkeys("\x92’›", "'")
    | dict.fromkeys("\x93“«", "``")
    | dict.fromkeys("\x94”»", "''")
)
_SYMBOLS = {"¢": "cents", "£": "#", "¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"} | dict.fromkeys(
    "\x80¤₠€", "$"
)


def _apostrophes(token: str) -> str:
    return token.replace("&apos;", "'").translate(_QUOTES)


def _without_soft_hyphens(token: str) -> str:
    return token.replace("\xad", "") or "-"


def _company(token: str) -> str:
    return _without_soft_hyphens(token.replace("&amp;", "&"))


def _joined(token: str) -> str:
    return token.replace(" ", "\xa0")


def _bracketed(token: str) -> str:
    return _joined(token).replace("(", "-LRB-").replace(")", "-RRB-")


class Rule(NamedTuple):
    """One kind of token."""

    starts: str  # the characters it can begin with, as the inside of a character class; they only save time
    token: str  # what it looks like
    ahead: str = ""  # what must follow
    write: Callable[[str], str] | str | None = None  # what it is written as: None leaves it as it is, "" drops it
    again: int = 0  # how many characters at its end are read once more


_LETTERS = rf"{_L}{MARK}\xad&"
_APOSTROPHES = "'’&"

RULES = (
    # words, and what is cut off them
    *(Rule("cgwlCGWL", f"(?i:{word[:3]})", f"(?i:{word[3:]})") for word in ASSIMILATIONS),
    Rule(r"A-Za-z\xad", r"[A-Za-z\xad]*[A-MO-Za-mo-z]\xad*", f"[nN]{_ANY_APOSTROPHE}[tT]", _without_soft_hyphens),
    Rule("nN", f"[nN]{_ANY_APOSTROPHE}[tT]", write=_apostrophes),
    Rule(_LETTERS, _WORD, _SUFFIX, _without_soft_hyphens),
    Rule(_LETTERS, _WORD, write=_without_soft_hyphens),
    Rule(_APOSTROPHES, _SUFFIX, "[^A-Za-z]", _apostrophes),
    # words with apostrophes or hyphens of their own
    Rule("'", "'[tT]", "(?i:is|was)"),
    Rule(_APOSTROPHES, f"{_APOSTROPHE}(?:[nN]{_APOSTROPHE}?|(?i:em|till?|cause)|[2-9]0[sS])"),
    Rule(_APOSTROPHES, f"{_APOSTROPHE}[0-9][0-9]", _SPACE),
    Rule("lLdDjJ", f"[lLdDjJ]{_APOSTROPHE}"),
    Rule("yY", f"[yY]{_APOSTROPHE}", f"[{_L}]"),
    Rule("A-HJ-XZn", f"[A-HJ-XZn]{_ANY_APOSTROPHE}[{_L}]{{2,}}"),
    Rule(_L, f"[{_L}]+[aeiouyAEIOUY]{_ANY_APOSTROPHE}[aeiouA-Z][{_L}]*"),
    Rule("oO", f"[oO]{_ANY_APOSTROPHE}[oO]"),
    Rule("cCeElLnNsS", "(?i:c'mon|e'er|ev'ry|li'l|nat'l|s'mores)"),
    Rule("aApP", "(?i:anti|pro)-"),
    Rule("cCdDoOsS", f"(?i:cap{_APOSTROPHE}n|c{_APOSTROPHE}est|(?:dunkin|ol|somethin){_APOSTROPHE})"),
    # addresses
    Rule("hH", f"(?i:https?)://{_URL_SIGN}+{_URL_END}"),
    Rule("wW", rf'(?i:www)\.(?:[^ \t\n"<>|.!?(){{}},]+\.)+[A-Za-z]{{2,4}}{_URL_PATH}'),
    Rule("^ \\t\\n\"`'<>|.!?(){},-_$", _HOST),
    Rule("A-Za-z0-9<&", _MAIL),
    Rule("@", "@[A-Za-z_][A-Za-z_0-9]*"),
    Rule("#", f"#{_WORD_LETTER}+"),
    # numbers
    Rule(rf"-+.,:\xad٫{_D}", rf"[-+]?(?:[.,:\xad٫]?[{_D}]+)+", write=_without_soft_hyphens),
    Rule(_D, f"[{_D}]{{1,2}}[-/][{_D}]{{1,2}}[-/][{_D}]{{2,4}}"),
    Rule(_D, _FRACTION, write=_joined),
    Rule("(+0-9", _PHONE, write=_bracketed),
    # abbreviations
    Rule("A-Za-z", rf"{_any(_BEFORE_DIGITS)}\.", f"{_SPACE}?[{_D}]"),
    Rule("cCpP", r"(?:[Cc][Oo]|[Pp][Tt][ey])\.", f"{_SPACE}(?i:ltd|lim)"),
    Rule("A-Za-z", _ENDING, rf"(?:{_SPACE}*\Z|{_SPACE}{{2}}|{_SPACE}+(?:[A-Z{CAPITAL}]|{_TAG}))", again=1),
    Rule("A-Za-z", _ENDING, "(?s:.{0,2})"),
    Rule("A-Za-z", _TITLE),
    Rule("A-Za-z", _ACRONYM, _SENTENCE_START, again=1),
    Rule("A-Za-z", "[A-Za-z]", rf"\.{_SENTENCE_START}"),
    Rule("A-Za-z", r"[A-Za-z]\."),
    Rule("A-Za-z", _ACRONYM),
    # words of several parts
    Rule(f"{_L}{_D}", _COMPOUND, write=_without_soft_hyphens),
    Rule("A-Za-z0-9", _POINTED_COMPOUND, write=_without_soft_hyphens),
    Rule("A-Za-z0-9", rf"{_SLASH_PART}(?:\\?/{_SLASH_PART}){{1,2}}"),
    Rule(f"{_LETTERS}{_D}", rf"(?:{_WORD_SIGNS}++\.)+{_any(_FILE_ENDINGS)}", rf"[!,.?{_SPACES}\n]"),
    Rule("A-Z", _COMPANY, write=_company),
    *(
        Rule(f"{_LETTERS}{_D}", rf"(?:{longer})\.", "[,;:、]", _company)
        for longer in (_WORD, _COMPOUND, _POINTED_COMPOUND, _COMPANY)
    ),
    Rule("cCfF", r"[cC]\+\+|[cCfF]#"),
    Rule("A-Z", r"[A-Z]+\$"),
    # punctuation and symbols
    Rule(r".\x85…", r"\.{3,5}|\.(?:[ \xa0]\.){2,4}|\x85|…", write="..."),
    Rule("!?", "[!?]+"),
    Rule(".,;:", "[.,;:]"),
    Rule(r"\-–", "-{2,4}|–", write="--"),
    Rule(r"\-", "-{5,}|-"),
    Rule(r"()\[\]{}", r"[()\[\]{}]", write=_BRACKETS.__getitem__),
    Rule("<>:;=", r"[<>]?[:;=][-o*']?[()DPdpO\\{@|\[\]]", "[^A-Za-z0-9]", _bracketed),
    Rule("-x=~<>'^", f"{_EYES}_{_EYES}"),
    Rule("(", rf"\({_EYES}[._]?{_EYES}\)|\([x=~<>'^]-[x=~<>'^`]\)", write=_bracketed),
    Rule("<", _TAG, write=_joined),
    Rule(r"_@#*<>\\", r"_+|@+|#+|\*+|<<|>>|(?:\\\*)+"),
    Rule(
        rf"+/%&$^|~=\\<>⁄⁺、{SYMBOL}", rf"[+/%&$^|~=\\<>⁄⁺、{SYMBOL}]", write=lambda token: _SYMBOLS.get(token, token)
    ),
    Rule("⁺²₀", "⁺?(?:²+|₀+)"),
    Rule('"&', '"|&quot;', "[A-Za-z0-9$]", "``"),
    Rule('"&', '"|&quot;', write="''"),
    Rule("'", "'", r"[A-Za-z][^ \t\n\xa0]", "`"),
    Rule(_APOSTROPHES, _SUFFIX, write=_apostrophes),
    Rule("`‘’“'&", "[`‘’“]{1,2}|''?|&apos;", write=_apostrophes),
    # escapes and spaces
    Rule(r"\-", "-(?i:[lr][rsc]b)-"),
    Rule(_SPACES, f"[{_SPACES}]+", write=""),
    Rule("&", "&(?i:nbsp);", write=""),
    Rule("&", "&(?i:amp);", write="&"),
    Rule("&", "&(?i:lt);", write="<"),
    Rule("&", "&(?i:gt);", write=">"),
    Rule("&", "&(?i:md|mdash|ndash);", write="--"),
    Rule("&", "&(?i:apos|cdq|ht|lr|odq|qc|ql|qr|quot|tl|ur|#[0-9]+);"),
    Rule(r"\xad", r"\xad", write="-"),
)


@cache
def _compiled(rule: Rule) -> re.Pattern[str]:
    return re.compile(f"({rule.token}){rule.ahead}")


@cache
def _rules_from(char: str) -> tuple[tuple[re.Pattern[str], Rule], ...]:
    """The rules whose token can begin with this character of the shape."""
    return tuple((_compiled(rule), rule) for rule in RULES if re.match(f"[{rule.starts}]", char))


_PLAIN_WORD = re.compile(rf"([A-Za-z]+)[ \n][{_SPACES}]*")
_LINE_BREAKS = str.maketrans(dict.fromkeys(LINE_BREAKS, " "))


def scan(text: str, after: str = "\n") -> list[str]:
    """The tokens of a text, punctuation and case kept. Line breaks count as spaces.

    `after` is what follows the text in the file the tool would read; a token may depend on it.
    """
    if not text.isprintable():
        text = text.translate(_LINE_BREAKS)
    signs = shape(text) + after
    tokens = []
    at = 0
    while at < len(text):
        plain = _PLAIN_WORD.match(signs, at)
        if plain and plain[1].lower() not in ASSIMILATIONS:
            tokens.append(plain[1])
            at = plain.end()
            continue
        farthest, end, best = at, at + 1, None
        for pattern, rule in _rules_from(signs[at]):
            match = pattern.match(signs, at)
            if match and match.end() > farthest:
                farthest, end, best = match.end(), match.end(1), rule
        token, at = text[at:end], end
        if best is None:
            continue
        if best.write is not None:
            token = best.write if isinstance(best.write, str) else best.write(token)
        if token:
            tokens.append(token)
        at = end - best.again
    return tokens
