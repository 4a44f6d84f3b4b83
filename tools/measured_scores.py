"""How good captions, concepts and confidence are: everything that is told from what the model said, without the model.

All shares are percentages, CIDEr-D and SPICE too (times 100).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from human_bar import good
from logistic_fits import calibration_error
from measured_photos import TestPhoto

from sightline.data.entities import read_classes
from sightline.data.records import GroundedPhoto, GroundedPrediction
from sightline.metrics.grounding_accuracy import GroundingF1
from sightline.metrics.scorecard import TITLES, default_metrics, scorecard
from sightline.text import wordnet
from sightline.text.lemmas import lemma
from sightline.text.tagger import NOUNS, Tagger
from sightline.text.tokenizer import ptb_tokenize_all

CaptionRecords = Mapping[str, Mapping[str, Any]]
PEERS = {"bleu.bleu.Bleu": 4, "meteor.meteor.Meteor": 1, "rouge.rouge.Rouge": 1, "cider.cider.Cider": 1}
PEER_KEYS = ("Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "METEOR", "ROUGE_L", "CIDEr")


def caption_scores(
    photos: Sequence[TestPhoto], said: CaptionRecords, spice: bool = True
) -> tuple[dict[str, float], str]:
    """Sightline's scores by their titles, and their signature."""
    metrics = [name for name in default_metrics() if spice or name != "spice"]
    heard = {photo.id: photo.references for photo in photos}
    card = scorecard({photo.id: said[photo.id]["caption"] for photo in photos}, heard, metrics)
    return {TITLES[key]: 100 * value for key, value in card.scores.corpus.items()}, card.signature


def peer_scores(photos: Sequence[TestPhoto], said: CaptionRecords) -> dict[str, float] | None:
    """pycocoevalcap's scores of the same captions by its own tokenizer; None where it or Java is not installed."""
    if importlib.util.find_spec("pycocoevalcap") is None or shutil.which("java") is None:
        return None
    tokenizer = importlib.import_module("pycocoevalcap.tokenizer.ptbtokenizer").PTBTokenizer()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ours = tokenizer.tokenize({photo.id: [{"caption": said[photo.id]["caption"]}] for photo in photos})
        theirs = tokenizer.tokenize({p.id: [{"caption": text} for text in p.references] for p in photos})
        values: list[float] = []
        for name, count in PEERS.items():
            module, _, kind = f"pycocoevalcap.{name}".rpartition(".")
            scorer = getattr(importlib.import_module(module), kind)()
            score, _ = scorer.compute_score(theirs, ours)
            values += [*score] if count > 1 else [score]
            del scorer  # METEOR's Java process ends with it
    return {TITLES[key]: 100 * float(value) for key, value in zip(PEER_KEYS, values, strict=True)}


def confidence(photos: Sequence[TestPhoto], said: CaptionRecords) -> dict[str, float]:
    """Does the confidence tell how often a caption is good (`sightline.grounding.calibration`)?"""
    ids = [photo.id for photo in photos]
    spoken = ptb_tokenize_all([said[id]["caption"] for id in ids])
    heard = {photo.id: ptb_tokenize_all(list(photo.references)) for photo in photos}
    was, bar = good(dict(zip(ids, spoken, strict=True)), heard)
    low = [id for id in ids if said[id]["low_confidence"]]
    return {
        "CIDEr-D of a good caption": 100 * bar,
        "good captions": 100 * sum(was.values()) / len(ids),
        "mean confidence": 100 * sum(said[id]["confidence"] for id in ids) / len(ids),
        "calibration error": 100 * calibration_error([said[id]["confidence"] for id in ids], [was[id] for id in ids]),
        "captions of low confidence": 100 * len(low) / len(ids),
        "good among those": 100 * sum(was[id] for id in low) / max(1, len(low)),
    }


def concept_scores(photos: Sequence[TestPhoto], said: CaptionRecords, names: Collection[str]) -> dict[str, float]:
    """Are the concepts of a photo what people name in it? Micro precision and recall over photos.

    What people name are the nouns of the photo's captions, by the tagger, as lemmas, each once; two words that are one
    name, such as *hot dog*, are one noun. A concept is right if one of them is the same word or shares a noun sense of
    WordNet with it, or, for the precision "kinds too", is a kind of it (a man is a person). Recall counts the nouns
    that some name of the detector could tell, by the same rule of synonyms; "of all nouns" counts every noun.
    """
    senses = {name: frozenset(wordnet.senses(name, "n")) for name in names}
    known = frozenset().union(*senses.values())
    right = kinds = told = found = sayable = nouns = 0
    for photo, heard in zip(photos, named_by_people(photos, names), strict=True):
        concepts = {concept["name"] for concept in said[photo.id]["concepts"]}
        of_people = {noun: frozenset(wordnet.senses(noun, "n")) for noun in heard}
        said_senses = frozenset().union(*(senses.get(name, frozenset()) for name in concepts))
        heard_senses = frozenset().union(*of_people.values())
        above = frozenset().union(*(wordnet.hypernym_closure(noun, "n") for noun in heard))
        told += len(concepts)
        for name in concepts:
            same = name in heard or bool(senses.get(name, frozenset()) & heard_senses)
            right += same
            kinds += same or bool(senses.get(name, frozenset()) & above)
        nouns += len(heard)
        for noun, own in of_people.items():
            if noun in senses or own & known:
                sayable += 1
                found += noun in concepts or bool(own & said_senses)
    return {
        "precision": 100 * right / max(1, told),
        "precision, kinds too": 100 * kinds / max(1, told),
        "recall": 100 * found / max(1, sayable),
        "recall of all nouns": 100 * found / max(1, nouns),
        "concepts a photo": told / len(photos),
        "nouns a photo": nouns / len(photos),
    }


def named_by_people(photos: Sequence[TestPhoto], names: Collection[str]) -> Iterator[set[str]]:
    """The lemmas of the nouns in each photo's captions; the words of a compound that is one of `names` are one noun."""
    compounds = {name for name in names if " " in name}
    sentences = [text.split() for photo in photos for text in ptb_tokenize_all(list(photo.references))]
    tagged = zip(sentences, Tagger.default().tag_all(sentences), strict=True)
    for photo in photos:
        found: set[str] = set()
        for _ in photo.references:
            words, tags = next(tagged)
            lemmas = [lemma(word, "n") if tag in NOUNS else "" for word, tag in zip(words, tags, strict=True)]
            for at in range(len(words) - 1):
                pair = f"{words[at]} {lemmas[at + 1]}"
                if pair in compounds:
                    lemmas[at], lemmas[at + 1] = "", pair
            found.update(filter(None, lemmas))
        yield found


def pointed_captions(
    photos: Sequence[TestPhoto], said: CaptionRecords, grounded: Mapping[str, GroundedPhoto]
) -> dict[str, float]:
    """Do the boxes of the model's own captions show what their nouns name? The F1 of GVD, as published and micro."""
    classes, metric, boxes, nouns = read_classes(), GroundingF1(), 0, 0
    tagger = Tagger.default()
    for photo in photos:
        record, truth = said[photo.id], grounded.get(photo.id)
        words = [word["word"] for word in record["words"]]
        nouns += sum(tagger.nouns(words)) if words else 0
        boxes += sum(word["box"] is not None for word in record["words"])
        if truth is None or truth.size is None or not truth.sentences:
            continue
        scale = [full / own for full, own in zip((*truth.size, *truth.size), (*record["size"],) * 2, strict=True)]
        predictions = [
            GroundedPrediction(i, name, tuple(v * s for v, s in zip(word["box"], scale, strict=True)))
            for i, word in enumerate(record["words"])
            if word["box"] is not None and (name := lemma(word["word"], "n")) in classes
        ]
        metric.update(truth, predictions)
    scores = metric.compute()
    return {
        **scores.f1(),
        "right boxes of right nouns": 100 * scores.precision_loc.micro,
        "nouns with a box": 100 * boxes / max(1, nouns),
    }
