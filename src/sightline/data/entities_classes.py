"""From Flickr30k Entities to grounded words: which class a phrase belongs to.

The rule: the head of a phrase is its last word, lower-cased and reduced to its noun lemma; it is a class if at least 20
phrases of the TRAINING photos have it as head. The list is built once from training photos alone and kept in
`entities_classes.tsv` (class, tab, phrases), so that no evaluation depends on the photos it evaluates.
A grounded word is the head of a phrase whose chain has boxes and whose class is in the list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from sightline.data.entities import EntitiesPhoto
from sightline.data.entities_sentence import EntitiesSentence, Phrase
from sightline.data.grounding_records import GroundedPhoto, GroundedSentence, GroundedWord
from sightline.errors import DataError
from sightline.files import open_text
from sightline.text.lemmas import lemma

FROZEN = Path(__file__).parent / "entities_classes.tsv"
MIN_COUNT = 20


def head(phrase: Phrase) -> str:
    """The class a phrase would have: the noun lemma of its last word."""
    return lemma(phrase.words[-1].lower(), "n")


def count_heads(photos: Iterable[EntitiesPhoto]) -> Counter[str]:
    """How often each head occurs among phrases that name something one could point at."""
    return Counter(
        head(phrase)
        for photo in photos
        for sentence in photo.sentences
        for phrase in sentence.phrases
        if phrase.visual and phrase.words[-1].isalpha()
    )


def build_classes(photos: Iterable[EntitiesPhoto], min_count: int = MIN_COUNT) -> dict[str, int]:
    """Classes with their counts, most frequent first, ties in alphabetical order."""
    counts = count_heads(photos)
    kept = [name for name, count in counts.items() if count >= min_count]
    return {name: counts[name] for name in sorted(kept, key=lambda name: (-counts[name], name))}


def read_classes(path: Path = FROZEN) -> dict[str, int]:
    """A frozen class list, by default the one that comes with Sightline (Flickr8k training photos)."""
    classes: dict[str, int] = {}
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            name, tab, count = line.rstrip("\n").partition("\t")
            if not tab or not count.isdigit():
                raise DataError(
                    "not a class and its count", where=f"{path}, line {number}", fix="write class<TAB>count"
                )
            classes[name] = int(count)
    return classes


def ground(photo: EntitiesPhoto, classes: Mapping[str, int]) -> GroundedPhoto:
    """The photo's captions with their grounded words; boxes stay in pixels of the original photo."""
    sentences = tuple(_ground_sentence(sentence, photo, classes) for sentence in photo.sentences)
    return GroundedPhoto(photo.id, sentences, photo.size)


def _ground_sentence(sentence: EntitiesSentence, photo: EntitiesPhoto, classes: Mapping[str, int]) -> GroundedSentence:
    words = tuple(
        GroundedWord(phrase.first + len(phrase.words) - 1, head(phrase), photo.boxes[phrase.chain])
        for phrase in sentence.phrases
        if phrase.chain in photo.boxes and head(phrase) in classes
    )
    return GroundedSentence(sentence.tokens, words)
