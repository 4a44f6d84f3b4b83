"""The one vocabulary layout of Sightline, and the rules by which papers build theirs.

Inside, every model uses the same layout: 0 pad, 1 start, 2 end, 3 unknown, then the words. Other conventions exist only
in readers and converters, which permute weight rows to this one.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from sightline.errors import ConfigError, DataError, DuplicateRecordError
from sightline.text.treebank import treebank_words

PAD, START, END, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")


class Vocabulary:
    """Words and their ids. Ids 0–3 are the specials; `words` are the others, in id order."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: id for id, word in enumerate(self.words, start=len(SPECIALS))}
        if len(self._ids) != len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise DuplicateRecordError(f"the word {twice!r} is in the vocabulary twice", fix="remove one of them")
        for special in SPECIALS:
            if special in self._ids:
                raise DataError(f"{special} is a special and cannot be a word", fix="leave specials out of the list")

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words):,} words)"

    def id(self, word: str) -> int:
        """The id of `word`; unknown words are 3."""
        return self._ids.get(word, UNK)

    def word(self, id: int) -> str:
        """The word of `id`, or the special's name."""
        if not 0 <= id < len(self):
            raise DataError(f"no word has id {id}", fix=f"ids run from 0 to {len(self) - 1}")
        return SPECIALS[id] if id < len(SPECIALS) else self.words[id - len(SPECIALS)]

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids of start, the words, end."""
        return [START, *(self._ids.get(word, UNK) for word in words), END]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words up to the first end or pad; a leading start is skipped, unknowns read `<unk>`."""
        words: list[str] = []
        for id in ids:
            if id in (END, PAD):
                break
            if id != START:
                words.append(self.word(int(id)))
        return words


@dataclass(frozen=True)
class Rule:
    """How one line of work turns captions into words and chooses which to keep."""

    name: str  # what recipes call it
    split: Callable[[str], list[str]]  # raw caption to words
    min_count: int  # words seen less often become unknown
    max_words: int | None = None  # longer captions are cut to this
    counts: tuple[str, ...] = ("all",)  # the splits whose captions are counted; "all" is every one, test included
    given_tokens: bool = False  # tokens that a file provides (Karpathy's) are used instead of splitting the raw text

    def all_words(self, text: str, tokens: Sequence[str] | None = None) -> list[str]:
        """The words of one caption, uncut: what is counted."""
        return list(tokens) if self.given_tokens and tokens is not None else self.split(text)

    def words(self, text: str, tokens: Sequence[str] | None = None) -> list[str]:
        """The words of one caption, cut to the rule's length: what is learned."""
        return self.all_words(text, tokens)[: self.max_words]

    def counts_split(self, split: str | None) -> bool:
        """Whether captions of `split` take part in counting (a caption without a split always does)."""
        return "all" in self.counts or split is None or split in self.counts

    def build(self, captions: Iterable[str], always: Iterable[str] = ()) -> Vocabulary:
        """The vocabulary of raw captions that `counts_split` lets through."""
        return build_vocabulary(map(self.all_words, captions), self.min_count, always)


_PUNCTUATION = str.maketrans("", "", string.punctuation)


def split_plain(text: str) -> list[str]:
    """Lower-case, ASCII punctuation removed, split at white space: neuraltalk2 and Karpathy's tokens."""
    return text.lower().translate(_PUNCTUATION).split()


def split_treebank(text: str) -> list[str]:
    """Lower-case Treebank words, punctuation kept: SCAN, VSRN and R2M."""
    return treebank_words(text.lower())


# An emoji: a pictograph with its modifiers, joined sequences, a flag or a keycap, as one word.
_PICTURE = "[\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff\u231a-\u23ff\u2600-\u27bf\u2b00-\u2bff]"
_MODIFIER = "[\U0001f3fb-\U0001f3ff\ufe0f\U000e0020-\U000e007f]"
_EMOJI = f"[\U0001f1e6-\U0001f1ff]{{2}}|[0-9#*]\ufe0f?\u20e3|{_PICTURE}{_MODIFIER}*(?:\u200d{_PICTURE}{_MODIFIER}*)*"
_WORD_OR_EMOJI = re.compile(rf"({_EMOJI})|((?:[^\W\d_][\u0300-\u036f]*)+)")


def split_letters_and_emojis(text: str) -> list[str]:
    """Lower-case words of letters alone, and emojis, each a word of its own (contrastive paper, section 4).

    Other characters are removed, not replaced by a space: `don't` is one word, `dont`.
    """
    words: list[str] = []
    for chunk in unicodedata.normalize("NFC", text.lower()).split():
        letters = ""
        for emoji, run in _WORD_OR_EMOJI.findall(chunk):
            letters += run
            if emoji:
                words.extend([letters, emoji] if letters else [emoji])
                letters = ""
        if letters:
            words.append(letters)
    return words


_RULES = (
    # self-critical.pytorch: Karpathy's tokens, more than 5 occurrences over all splits, 16 words.
    Rule("self-critical", split_plain, min_count=6, max_words=16, given_tokens=True),
    # neuraltalk2: the same of the raw text. AdaptiveAttention differs in its 18 words.
    Rule("neuraltalk2", split_plain, min_count=6, max_words=16),
    Rule("adaptive-attention", split_plain, min_count=6, max_words=18),
    # SCAN and VSRN: at least 4 occurrences in train and dev, no cut.
    Rule("scan", split_treebank, min_count=4, counts=("train", "restval", "dev", "val")),
    # R2M: at least 5 occurrences in the text corpus, no cut.
    Rule("r2m", split_treebank, min_count=5, counts=("train",)),
    # The contrastive paper: at least 5 occurrences, 18 words.
    Rule("contrastive", split_letters_and_emojis, min_count=5, max_words=18, counts=("train", "restval")),
)
RULES = {rule.name: rule for rule in _RULES}


def rule(name: str) -> Rule:
    if name not in RULES:
        raise ConfigError(f"no vocabulary rule {name!r}", fix=f"choose one of {', '.join(RULES)}")
    return RULES[name]


def build_vocabulary(captions: Iterable[Sequence[str]], min_count: int, always: Iterable[str] = ()) -> Vocabulary:
    """Words seen at least `min_count` times, most frequent first (ties in alphabetical order), then `always`.

    `captions` are lists of words, as `Rule.words` gives them; `always` are kept at any count (R2M's concept words).
    """
    counts = Counter(chain.from_iterable(captions))
    frequent = [word for word, count in counts.items() if count >= min_count and word not in SPECIALS]
    frequent.sort(key=lambda word: (-counts[word], word))
    return Vocabulary(dict.fromkeys([*frequent, *always]))
