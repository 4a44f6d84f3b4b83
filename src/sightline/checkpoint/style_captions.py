"""Captions in the words of somebody's own text: an R²M model that speaks about what a bundle's detector sees.

R²M reads concept words. Those of a photo are the names that the detector gives its regions, put into R²M's words by the
dictionary that it was trained with: a detector that sees a *man* tells a model of COCO's classes of a *person*.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sightline.batch import SceneBatch
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import Bundle
from sightline.data.concept_dictionary import MOST, NAMED, ConceptDictionary
from sightline.errors import CheckpointError
from sightline.files import PathLike, model_file
from sightline.grounding.calibration import Calibration
from sightline.grounding.choice import Choice
from sightline.models.captioner import Captioner, Memory, WrappedCaptioner
from sightline.models.end_to_end import Reader
from sightline.models.r2m import R2M
from sightline.scene import Concept, Scene
from sightline.text.grammar import indefinite_article
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_names import relations
from sightline.vision.concept_tokens import token_names
from sightline.vision.detector import Detector

# The score from which the detector's names are spoken of, chosen by CIDEr: a model of COCO's captions
# (`r2m/table-3#Flickr8k-COCO-imagenet-rec-S`) has 19.5, 20.0, 20.9 and 19.4 on 500 Flickr8k dev photos from 0.3, 0.4,
# 0.5 and 0.6 on, and 34.5, 42.1 and 51.6 on 500 COCO val photos from 0.3, 0.4 and 0.5 on.
SURE = 0.5


def with_style(bundle: Bundle, path: PathLike, device: torch.device | str = "cpu") -> Bundle:
    """The bundle, its captions by the R²M model in `path`; boxes are where the matcher finds the words.

    Confidence is a guess then: nothing was fitted for this model. `path` may be the folder of a run.
    """
    path = model_file(path)
    style, vision = model_checkpoint.load(path, device), bundle.vision
    if not isinstance(style.model, R2M):
        kind = style.model.config.kind
        what = f"a style is an r2m model, and this is {indefinite_article(kind) or 'a'} {kind} model"
        fix = "train one on your text: `sightline train r2m`; models with eyes of their own go to --model"
        raise CheckpointError(what, where=path, fix=fix)
    if not isinstance(vision, Detector):
        what = "a style speaks of named things, and the vision model of this bundle has no names"
        raise CheckpointError(what, fix="use a model with a detector, such as the one that comes with Sightline")
    names = token_names() if vision.config.imagenet else vision.config.names
    words = concept_words(names, dictionary_of(style.card, path), style.vocabulary)
    if not any(words.values()):
        what = "the model knows none of the things that the detector has names for"
        raise CheckpointError(what, where=path, fix="train it with a dictionary of those names (data.dictionary)")
    captioner = StyleCaptioner(style.model, vision, words, style.vocabulary).eval()
    reader = Reader[Captioner](captioner, StyleVocabulary(style.vocabulary), style.text_rule)
    return replace(bundle, captioner=reader, calibration=Calibration(), fit=0.0, choice=Choice())


def dictionary_of(card: dict[str, Any], path: PathLike) -> ConceptDictionary:
    """The dictionary that a model was trained with, by its card; COCO's where it does not say."""
    name = str(card.get("recipe", {}).get("data", {}).get("dictionary", "coco"))
    if name in NAMED:
        return NAMED[name]()
    for file in (Path(name), Path(path).parent / name, Path(path).parent / Path(name).name):
        if file.is_file():
            return ConceptDictionary.read(file)
    what = f"it was trained with the concept dictionary {name}, which is not there"
    raise CheckpointError(what, where=path, fix="put that file beside the model")


def concept_words(names: Sequence[str], dictionary: ConceptDictionary, vocabulary: Vocabulary) -> dict[str, str]:
    """For each name of a detector the concept word that the model knows; "" where there is none.

    >>> concept_words(["hot dog", "man", "cloud"], ConceptDictionary.coco(), Vocabulary(["hotdog", "person"]))
    {'hot dog': 'hotdog', 'man': 'person', 'cloud': ''}
    """
    words = {name: dictionary.word_of(name) for name in names}
    return {name: word if word in vocabulary else "" for name, word in words.items()}


def general_words(words: dict[str, str]) -> dict[str, set[str]]:
    """For each concept word those that say the same of a thing more generally, whatever its name: a man is a person.

    Of an *animal* that stands for a leopard and for what has no name here, no more is said than of both.
    """
    names = [name for name, word in words.items() if word]
    implied, _ = relations(names)
    general: dict[str, set[str]] = {}
    for name, row in zip(names, implied, strict=True):
        kinds = {words[names[other]] for other in row.nonzero()[0]} - {words[name]}
        general[words[name]] = general.get(words[name], kinds) & kinds
    return general


class StyleVocabulary(Vocabulary):
    """The words of a style. The full stop that ends its sentences is no part of a caption: alt text adds its own.

    >>> words = StyleVocabulary(["a", "dog", "."])
    >>> words.decode(words.encode(["a", "dog", "."]))
    ['a', 'dog']
    """

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words up to the first end or pad, without a full stop at the end."""
        words = super().decode(ids)
        return words[:-1] if words[-1:] == ["."] else words


class StyleCaptioner(WrappedCaptioner):
    """R²M behind a detector: the concepts of a scene are made here, all else is R²M's own.

    A photo in which nothing is seen surely speaks of the surest thing all the same: R²M cannot speak of nothing.
    """

    needs = ("regions", "boxes")

    def __init__(self, r2m: R2M, vision: Detector, words: dict[str, str], vocabulary: Vocabulary) -> None:
        super().__init__()
        self._general = general_words(words)
        # No submodules: R²M's loops read the weights of its layers, which 8-bit layers do not have; and the detector is
        # the bundle's.
        self._models = (r2m, vision)
        self.vocab_size, self.config = r2m.vocab_size, r2m.config
        self._concept_words, self._vocabulary = words, vocabulary

    @property
    def reader(self) -> R2M:
        return self._models[0]

    def encode(self, scenes: SceneBatch) -> Memory:
        """What the concepts of each scene say."""
        named = self._models[1].concepts(scenes, 0.0, len(self._concept_words))
        of_words = [Scene(id, concepts=self._concepts(own)) for id, own in zip(scenes.ids, named, strict=True)]
        batch = SceneBatch.collate(of_words, self._vocabulary, by="the style")
        return self.reader.encode(batch.to(scenes.part("regions").device))

    def _concepts(self, named: Sequence[Concept]) -> tuple[Concept, ...]:
        """Concept words, each once, by descending score, as R²M was trained on them.

        A sentence names a thing once: of *man* and *person* the more particular word stays, of two that mean the same
        the surer one.
        """
        best: dict[str, Concept] = {}  # by descending score
        for concept in sorted(named, key=lambda concept: -concept.score):
            word = self._concept_words[concept.name]
            if word and (concept.score >= SURE or not best):
                best.setdefault(word, replace(concept, name=word))
        order = list(best)
        particular = [word for word in order if not any(self._implies(other, word, order) for other in order)]
        return tuple(best[word] for word in particular)[:MOST]

    def _implies(self, other: str, word: str, order: Sequence[str]) -> bool:
        """Whether `word` need not be said beside `other`; `order` is by descending score."""
        if word not in self._general.get(other, ()):
            return False
        same = other in self._general.get(word, ())
        return not same or order.index(other) < order.index(word)
