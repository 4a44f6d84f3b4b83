"""R²M's visual dictionary D: the concepts that a detector finds in photos and that sentences speak of (section 2.1).

`concept_dictionary.tsv` has a line for each of COCO's 80 classes: class, concept word, and the words and phrases by
which people mean it, separated by commas. `/n` behind one says that it counts only as a noun: an *orange* shirt is no
orange. The concept word is one word, since it is read as a word of the vocabulary: the last of the class's name, as in
the authors' code, unless that means something else (*hot dog*). The line of class `-` lists phrases that mean none of
the classes, though a word in them does: *table tennis*.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sightline.data.entities import read_classes
from sightline.errors import DataError, DuplicateRecordError, MissingRecordError, about
from sightline.files import PathLike, open_text
from sightline.scene import Concept, Scene
from sightline.text.phrase_table import PhraseTable
from sightline.vision.concept_names import concept_names, imagenet_chains, imagenet_classes

COCO = Path(__file__).parent / "concept_dictionary.tsv"
NONE = "-"
MIN_SCORE = 0.3  # section 3.2
MOST = 5  # concepts of an image, in the authors' code


@dataclass(frozen=True)
class Entry:
    """A class of the detector, the word that stands for it, and how sentences name it."""

    name: str
    concept: str
    phrases: tuple[str, ...]  # with `/n` behind those that count only as nouns
    always: bool = True  # vocabularies hold the word, however rare it is in their text


class ConceptDictionary:
    """From a detector's classes and from sentences to the same concept words.

    >>> coco = ConceptDictionary.coco()
    >>> coco.find("two men ride their bikes past a hot dog stand".split())
    ['person', 'bicycle', 'hotdog']
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)
        self._of_class: dict[str, str] = {}
        self._of_phrase: dict[str, str] = {}
        phrases: list[str] = []
        for entry in self._entries:
            if entry.name in self._of_class:
                raise DuplicateRecordError(f"the class {entry.name!r} appears twice")
            if entry.name != NONE:
                self._of_class[entry.name] = entry.concept
            for phrase in map(_plain, entry.phrases):
                if self._of_phrase.setdefault(phrase, entry.concept) != entry.concept:
                    what = f"{phrase!r} means both {self._of_phrase[phrase]} and {entry.concept}"
                    raise DuplicateRecordError(what, fix="list it for one of them")
            phrases += entry.phrases
        # concept words that vocabularies always hold
        self.words = tuple(dict.fromkeys(e.concept for e in self._entries if e.always and e.concept != NONE))
        self._table = PhraseTable(phrases)

    @classmethod
    def coco(cls) -> ConceptDictionary:
        """The dictionary of COCO's 80 classes that comes with Sightline."""
        return cls.read(COCO)

    @classmethod
    def read(cls, path: PathLike) -> ConceptDictionary:
        with about(path):
            return cls(_entries(path))

    @classmethod
    def entities(cls) -> ConceptDictionary:
        """The head nouns of Flickr30k Entities that Sightline grounds (`data/entities_classes.tsv`), each for itself.

        For detectors trained on Entities. They have seen annotations of Flickr photos: captions of such photos learned
        with them are not unpaired.
        """
        return cls(Entry(name, name, (f"{name}/n",)) for name in read_classes())

    @classmethod
    def detector(cls) -> ConceptDictionary:
        """The names of the detector that comes with Sightline, each for itself, with COCO's words for its 80 classes.

        A man is a *man* here, and an umpire, whom the detector has no name for, is a *person*. For text of one's own:
        every name has a word, while `coco` has one for 160 of the 412.
        """
        names, of_class = concept_names(), {entry.name: entry for entry in _entries(COCO)}
        entries = [of_class[NONE]]
        taken = set(map(_plain, of_class[NONE].phrases))
        for name in names:
            entry = of_class.get(name, Entry(name, name, ()))
            others = [phrase for phrase in entry.phrases if _plain(phrase) not in names]
            phrases = tuple(phrase for phrase in (f"{name}/n", *others) if _plain(phrase) not in taken)
            taken.update(map(_plain, phrases))
            entries.append(Entry(name, entry.concept, phrases))
        return cls(entries)

    @classmethod
    def imagenet(cls) -> ConceptDictionary:
        """COCO's 80 classes and, each for itself, the everyday names of ImageNet's 1,000 that mean none of them.

        For concepts of a COCO detector and of an ImageNet backbone together; neither has seen a caption. A name of
        several words goes by its last one (a water tower is a *tower*). What a class is a kind of (vehicle, clothing)
        has no word: it says little of a photo.
        """
        entries = _entries(COCO)
        taken = {phrase for entry in entries for phrase in (entry.name, *map(_plain, entry.phrases))}
        for name in dict.fromkeys(each.name for each in imagenet_classes()):
            word = name.split()[-1]
            phrases = tuple(f"{phrase}/n" for phrase in dict.fromkeys((name, word)) if phrase not in taken)
            taken.update(map(_plain, phrases))
            if f"{name}/n" in phrases:
                entries.append(Entry(name, word, phrases, always=False))
        return cls(entries)

    def within(self, vocabulary: Container[str]) -> ConceptDictionary:
        """The dictionary without the concepts that a vocabulary has no word for."""
        return ConceptDictionary(
            entry if entry.concept in vocabulary else replace(entry, concept=NONE) for entry in self._entries
        )

    def of_class(self, name: str) -> str:
        if name not in self._of_class:
            fix = "use the dictionary of the detector that found it, or add a line for the class"
            what = f"no class {name!r} among the {len(self._of_class)} of the dictionary"
            raise MissingRecordError(what, fix=fix)
        return self._of_class[name]

    def of_scene(self, scene: Scene, min_score: float = MIN_SCORE) -> tuple[Concept, ...]:
        """The concepts of a scene whose concepts are a detector's classes: each once, by descending score.

        What Sightline's own detector calls things goes by its words (a kid is a person among COCO's classes); where the
        dictionary has none for it, it is left out.
        """
        best: dict[str, Concept] = {}
        for concept in sorted(scene.concepts, key=lambda concept: -concept.score):
            if concept.score < min_score:
                break
            ours = concept.name in concept_names() or concept.name in imagenet_chains()
            word = self.word_of(concept.name) if ours else self.of_class(concept.name)
            if word and word != NONE:
                best.setdefault(word, replace(concept, name=word))
        return tuple(best.values())[:MOST]

    def word_of(self, name: str) -> str:
        """The concept word of a class, or of what a name says (a kid is a person among COCO's); "" without one.

        A name of ImageNet's that has none goes by what it is a kind of: a leopard is an animal.
        """
        if name not in self._of_class and name not in concept_names() and name in imagenet_chains():
            return next((self._of_class[kind] for kind in imagenet_chains()[name] if kind in self._of_class), "")
        return self._of_class.get(name) or next(iter(self.find(name.split())), "")

    def find(self, words: Sequence[str]) -> list[str]:
        """The concept words of a sentence of lower-case words, each once, in the order in which they are mentioned."""
        return self.find_all([words])[0]

    def find_all(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """`find` of many sentences, which is faster."""
        concepts = []
        for mentions in self._table.find_all(sentences):
            words = [self._of_phrase[mention.phrase] for mention in mentions]
            concepts.append(list(dict.fromkeys(word for word in words if word != NONE)))
        return concepts


def _entries(path: PathLike) -> list[Entry]:
    entries = []
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            parts = line.rstrip("\n").split("\t")
            if len(parts) != 3 or not all(parts) or len(parts[1].split()) != 1:
                where, fix = f"{path}, line {number}", "write class<TAB>concept<TAB>word, two words, …"
                raise DataError("not a class, its concept word and the words that mean it", where=where, fix=fix)
            entries.append(Entry(parts[0], parts[1], tuple(word.strip() for word in parts[2].split(","))))
    return entries


def _plain(phrase: str) -> str:
    return phrase.removesuffix("/n")


NAMED = {  # by what a recipe calls them
    "coco": ConceptDictionary.coco,
    "entities": ConceptDictionary.entities,
    "detector": ConceptDictionary.detector,
    "imagenet": ConceptDictionary.imagenet,
}
