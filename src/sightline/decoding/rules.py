"""What captions may and must say, and how people ask for it. Nothing here needs PyTorch."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from sightline.errors import ConfigError

LENGTHS = {"short": (1, 7), "normal": (0, 20), "long": (13, 20)}  # the fewest and the most words
LEAST_WORDS, MOST_WORDS = 5, 40  # with fewer, hardly a sentence is whole


@dataclass(frozen=True)
class Rules:
    """What captions may and must say.

    Words and phrases are surface text. A word forbidden by a rule gets no probability, and the others keep theirs: the
    score of a caption stays the model's own log-probability. A caption that reaches `max_words` ends there, and END's
    log-probability is counted as in any other, so that long and short captions compare.
    """

    max_words: int = 20  # the most words a caption has, END not counted
    min_words: int = 0  # the fewest
    suppress_unk: bool = True  # never say the unknown word
    no_repeat_ngram: int = 0  # no run of that many words comes twice; 0 allows all
    # Subtracted from a word for each earlier use of the trigram it would end (self-critical: 2 · 0.693).
    repeat_penalty: float = 0.0
    no_repeat_word: bool = False  # no word comes twice in a row
    # No noun comes twice, in either number, but after *another* or *other*, and in *side by side*
    # (`sightline.text.grammar`). What must be included may come again.
    no_repeat_noun: bool = False
    bad_endings: bool = False  # no caption ends in an article, preposition or the like (`sightline.text.grammar`)
    right_articles: bool = False  # *a* and *an* suit the words after them: they are set right once the words are found
    # No caption is cut: the model ends it, or, where it does not within `max_words`, it stops after a whole phrase,
    # rather a longer one (`sightline.decoding.sentence_end`). Needs a beam.
    whole: bool = False
    must_include: tuple[str, ...] = ()  # words and phrases that every caption has; needs a beam
    must_not: tuple[str, ...] = ()  # words and phrases that no caption has

    def __post_init__(self) -> None:  # without `config.check_ranges`, whose file reads YAML: --help would wait for it
        if self.max_words < 1:
            raise ConfigError(f"`max_words` is {self.max_words}", fix="give 1 or more")
        if not 0 <= self.min_words <= self.max_words:
            raise ConfigError(f"`min_words` is {self.min_words}", fix=f"give 0 to max_words, {self.max_words}")
        for name in ("no_repeat_ngram", "repeat_penalty"):
            if getattr(self, name) < 0:
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="give 0 (off) or more")
        for name in ("must_include", "must_not"):
            phrases = getattr(self, name)
            if isinstance(phrases, str) or not all(phrase.split() for phrase in phrases):
                raise ConfigError(f"`{name}` is {phrases!r}", fix="give a list of words or phrases, none empty")

    @property
    def name_words(self) -> bool:
        """Whether some rule can be read only with a vocabulary."""
        grammar = self.no_repeat_noun or self.bad_endings or self.right_articles or self.whole
        return bool(grammar or self.must_include or self.must_not)


# A captioner that doubts the table says that a dog sits on top of the room.
ROOMS = ("room", "bathroom", "bedroom", "dining room", "kitchen", "living room", "office", "restaurant")
INSIDE = tuple(f"{where} a {room}" for where in ("on top of", "next to") for room in ROOMS)
# What the captions keep to that people read, where nothing else is asked for.
CAREFUL = Rules(no_repeat_word=True, no_repeat_noun=True, bad_endings=True, right_articles=True, must_not=INSIDE)


def word_limits(length: str) -> tuple[int, int]:
    """The fewest and the most words of captions of a length: a name, or a number, the most.

    >>> word_limits("short"), word_limits("12")
    ((1, 7), (1, 12))
    """
    if length in LENGTHS:
        return LENGTHS[length]
    if length in map(str, range(LEAST_WORDS, MOST_WORDS + 1)):
        return 1, int(length)
    what = f"`length` is {length!r}"
    raise ConfigError(what, fix=f"give {', '.join(LENGTHS)}, or {LEAST_WORDS} to {MOST_WORDS} words")


def phrases_of(given: Collection[str]) -> tuple[str, ...]:
    """Words and phrases that captions must have, as people give them: one by one, or several by commas.

    >>> phrases_of(["dog, red ball", "cup"])
    ('dog', 'red ball', 'cup')
    """
    phrases = tuple(phrase.strip() for text in given for phrase in text.split(",") if phrase.strip())
    if given and not phrases:
        raise ConfigError("no word to include was given", fix="give one, or leave the option out")
    return phrases


def rules_of(length: str, must_include: tuple[str, ...] = ()) -> Rules:
    """What captions of a length may and must say.

    >>> rules_of("5").max_words, rules_of("5").whole, rules_of("long").whole
    (5, True, False)
    """
    fewest, most = word_limits(length)
    unwanted = tuple(phrase for phrase in INSIDE if not any(phrase in wanted for wanted in must_include))
    rules = replace(CAREFUL, must_include=must_include, must_not=unwanted)
    if length == "normal":
        return rules
    whole = length != "long"  # that leaves room to end in
    return replace(rules, max_words=most, min_words=fewest, no_repeat_ngram=3, whole=whole)
