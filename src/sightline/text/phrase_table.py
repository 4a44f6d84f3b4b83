"""Words and phrases of a list, found in sentences: *fire hydrants*, *hot dog*, *men*."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS, Tagger


class Mention(NamedTuple):
    """A phrase of the list in a sentence: the places of its first and last word, and how the list writes it."""

    first: int
    last: int
    phrase: str


class PhraseTable:
    """Phrases in lower case; `/n` behind one says that it counts only as a noun: an *orange* shirt is no orange.

    Sentences are read from left to right, and of the phrases that begin together the longest is taken. Its last word
    may be in either number.

    >>> table = PhraseTable(["dog", "hot dog", "orange/n"])
    >>> [mention.phrase for mention in table.find_all(["two hot dogs and dogs in orange shirts".split()])[0]]
    ['hot dog', 'dog']
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases: set[str] = set()
        self._nouns: set[str] = set()
        self._most: dict[str, int] = {}  # by first word, the most words that such a phrase has
        for phrase in phrases:
            key = phrase.removesuffix("/n")
            self._phrases.add(key)
            if key != phrase:
                self._nouns.add(key)
            first, *more = key.split()
            self._most[first] = max(self._most.get(first, 1), 1 + len(more))

    def find_all(self, sentences: Sequence[Sequence[str]]) -> list[list[Mention]]:
        """The phrases in each sentence; sentences with a word that need not be a noun there are tagged together."""
        mentions = [self._mentions(words) for words in sentences]
        unsure = [row for row, own in enumerate(mentions) if any(mention.phrase in self._nouns for mention in own)]
        for row, tags in zip(unsure, Tagger.default().tag_all([sentences[row] for row in unsure]), strict=True):
            mentions[row] = [
                mention for mention in mentions[row] if mention.phrase not in self._nouns or tags[mention.last] in NOUNS
            ]
        return mentions

    def _mentions(self, words: Sequence[str]) -> list[Mention]:
        """The phrases in a sentence, whatever the parts of speech."""
        mentions, place = [], 0
        while place < len(words):
            last, phrase = self._longest_from(words, place)
            if phrase:
                mentions.append(Mention(place, last, phrase))
            place = last + 1
        return mentions

    def _longest_from(self, words: Sequence[str], place: int) -> tuple[int, str]:
        """The longest phrase that begins at `place`, its last word in any number; "" where none does."""
        for count in range(self._most.get(words[place], 1), 0, -1):
            last = place + count - 1
            if last >= len(words):
                continue
            start = words[place:last]
            for form in (words[last], lemma(words[last], "n")):
                if (phrase := " ".join([*start, form])) in self._phrases:
                    return last, phrase
        return place, ""
