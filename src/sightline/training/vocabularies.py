"""The words of a recipe: captions split once, and the vocabulary that its rule chooses from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from sightline.data.records import CaptionedPhoto, Sentence
from sightline.errors import CountError, DataError
from sightline.text.vocabulary import Rule, Vocabulary, build_vocabulary


class Splitter:
    """A rule that remembers what it split: Treebank words take longer than everything else that reading does."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._known: dict[tuple[str, tuple[str, ...] | None], tuple[str, ...]] = {}

    def words(self, text: str, tokens: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """The words of a caption, uncut."""
        key = (text, tokens if self.rule.given_tokens else None)
        if key not in self._known:
            self._known[key] = tuple(self.rule.all_words(text, tokens))
        return self._known[key]

    def sentences(self, photo: CaptionedPhoto) -> list[tuple[str, ...]]:
        """The words of each caption of a photo; a caption of no words is an error."""
        return [self._checked(sentence, photo) for sentence in photo.sentences]

    def _checked(self, sentence: Sentence, photo: CaptionedPhoto) -> tuple[str, ...]:
        words = self.words(sentence.text, sentence.tokens)
        if not words:
            raise DataError(
                f"the caption {sentence.text[:40]!r} of photo {photo.id} has no word",
                fix="write one, or remove it",
            )
        return words


def choose_vocabulary(
    source: Literal["rule", "train", "corpus"],
    splitter: Splitter,
    photos: Mapping[str, Sequence[CaptionedPhoto]],
    corpus: Sequence[str],
    always: Iterable[str],
    told: list[str],
) -> Vocabulary:
    """The words that occur often enough where `source` says, then `always`."""
    rule = splitter.rule
    if source == "corpus":
        counted: Iterable[Sequence[str]] = (splitter.words(sentence) for sentence in corpus)
        where = "the corpus"
    else:
        roles = [role for role in photos if (role == "train" if source == "train" else rule.counted(role))]
        counted = (words for role in roles for photo in photos[role] for words in splitter.sentences(photo))
        where = ", ".join(roles)
    vocabulary = build_vocabulary(counted, rule.min_count, always)
    if not vocabulary.words:
        raise CountError(
            f"no word occurs {times(rule.min_count)} in {where}",
            fix="give more captions, or lower data.min_count",
        )
    told.append(
        f"The vocabulary has {len(vocabulary.words):,} words: those that occur at least {times(rule.min_count)} in "
        f"{where} (rule {rule.name})."
    )
    return vocabulary


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"
