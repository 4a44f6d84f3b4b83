"""The whole scorecard of captions against references: tokenise once, run every metric, say exactly what was done."""

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sightline import __version__
from sightline.errors import ConfigError, DataError, MissingRecordError
from sightline.metrics.bleu import Bleu
from sightline.metrics.caption_style import Diversity, LanguageErrors
from sightline.metrics.chair import Chair
from sightline.metrics.cider import ONE_IMAGE, CIDErD, DocumentFrequencies
from sightline.metrics.language_metric import LanguageMetric, Scores
from sightline.metrics.meteor import Meteor
from sightline.metrics.rouge import RougeL
from sightline.metrics.spice import Spice
from sightline.text.tokenizer import ptb_tokenize_all

METRICS: dict[str, type[LanguageMetric]] = {
    "bleu": Bleu,
    "meteor": Meteor,
    "rouge": RougeL,
    "cider": CIDErD,
    "spice": Spice,
    "chair": Chair,
    "language": LanguageErrors,
    "diversity": Diversity,
}
ON_REQUEST = ("chair", "language", "diversity")  # they do not measure agreement with references: only when named

# What people read for each key.
TITLES = {
    key: title
    for metric in METRICS.values()
    for key, title in zip(metric.keys, metric.titles or (metric.title,), strict=True)
}


@dataclass(frozen=True)
class Scorecard:
    """Scores of one system, what they were made from, and what the reader should know about them."""

    scores: Scores
    signature: str
    notes: tuple[str, ...]
    hypotheses: dict[str, str]  # tokenised
    references: dict[str, tuple[str, ...]]  # tokenised
    metrics: dict[str, LanguageMetric] = field(repr=False)


def default_metrics() -> tuple[str, ...]:
    """The metrics that run by default: METEOR needs the data of its extra."""
    found = importlib.util.find_spec("pycocoevalcap") is not None
    return tuple(name for name in METRICS if name not in ON_REQUEST and (name != "meteor" or found))


def scorecard(
    hypotheses: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    metrics: Sequence[str] | None = None,
    frequencies: DocumentFrequencies | None = None,
    tell: Callable[[str, int], None] = lambda metric, images: None,
    objects: Mapping[str, Collection[str]] | None = None,
) -> Scorecard:
    """Score raw captions against raw references, by image id.

    Args:
        hypotheses: one caption an image. Every one must have references; references may cover more images.
        references: one or more captions an image.
        metrics: names of `METRICS`; by default `default_metrics()`.
        frequencies: document frequencies for CIDEr; by default counted on the references scored.
        tell: called with a metric's name and the number of images it has scored: 0 before it runs, all at its end.
        objects: COCO's names of what boxes show in each image, for CHAIR, beside what the references name.
    """
    chosen = tuple(metrics) if metrics is not None else default_metrics()
    unknown = next((name for name in chosen if name not in METRICS), None)
    if unknown is not None:
        raise ConfigError(f"there is no metric {unknown!r}", fix=f"choose among {', '.join(METRICS)}")
    _check_ids(hypotheses, references)
    ids = [id for id in references if id in hypotheses]
    said, heard = _tokenised(ids, hypotheses, references)
    scores = Scores({}, {id: {} for id in ids})
    made: dict[str, LanguageMetric] = {}
    for name in chosen:
        metric = CIDErD(frequencies) if name == "cider" else Chair(objects) if name == "chair" else METRICS[name]()
        metric.update(said, heard)
        own = _compute(metric, partial(tell, name), len(ids))
        scores.corpus.update(own.corpus)
        for id, row in own.per_image.items():
            scores.per_image[id].update(row)
        for id, found in own.words.items():
            scores.words.setdefault(id, {}).update(found)
        made[name] = metric
    notes = _notes(hypotheses, references, said, "cider" in chosen and frequencies is None)
    if "chair" in chosen and objects is not None and (missing := [id for id in ids if id not in objects]):
        share = f"{len(missing):,} of {len(ids):,} images are not in the file of boxes"
        notes.append(f"{share}; CHAIR knows their objects from references alone: {_some(missing)}")
    signature = _signature(chosen, references, ids, frequencies, objects is not None)
    return Scorecard(scores, signature, tuple(notes), said, heard, made)


def _compute(metric: LanguageMetric, tell: Callable[[int], None], images: int) -> Scores:
    """The scores, telling on the way how many images have theirs."""
    so_far = 0

    def done(more: int) -> None:
        nonlocal so_far
        so_far += more
        tell(so_far)

    tell(0)
    metric.done = done
    scores = metric.compute()
    del metric.done
    tell(images)
    return scores


def _tokenised(
    ids: Sequence[str], hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Tokenise as the reference tools do: hypotheses in one file, references in another, in the references' order."""
    said = dict(zip(ids, ptb_tokenize_all([hypotheses[id] for id in ids], one_file=True), strict=True))
    all_heard = iter(ptb_tokenize_all([text for id in ids for text in references[id]], one_file=True))
    return said, {id: tuple(next(all_heard) for _ in references[id]) for id in ids}


def _check_ids(hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not hypotheses:
        raise DataError("there is no caption to score", fix="give at least one")
    extra = [id for id in hypotheses if not references.get(id)]
    if extra:
        raise MissingRecordError(
            f"{len(extra):,} of {len(hypotheses):,} captioned images have no reference: {_some(extra)}",
            fix="give their references or remove their captions; ids must be spelled alike in both files",
        )


def _notes(
    hypotheses: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    tokenised: Mapping[str, str],
    corpus_frequencies: bool,
) -> list[str]:
    missing = [id for id in references if id not in hypotheses]
    empty = [id for id, text in tokenised.items() if not text]
    pictured = [id for id, text in hypotheses.items() if any(_is_emoji(c) for c in text)]
    uncaptioned = f"{len(missing):,} of {len(references):,} images with references have no caption and were not scored"
    notes = [
        f"{what}: {_some(ids)}"
        for ids, what in (
            (missing, uncaptioned),
            (empty, f"{len(empty):,} captions are empty after tokenisation and score as such"),
            (pictured, f"{len(pictured):,} captions hold emojis, which the PTB tokenizer drops"),
        )
        if ids
    ]
    return notes + [ONE_IMAGE] * (corpus_frequencies and len(hypotheses) == 1)


def _is_emoji(character: str) -> bool:
    return ord(character) > 0x2190 and unicodedata.category(character) == "So"


def _signature(
    chosen: Sequence[str],
    references: Mapping[str, Sequence[str]],
    ids: Sequence[str],
    frequencies: DocumentFrequencies | None,
    boxes: bool,
) -> str:
    counts = sorted({len(references[id]) for id in ids})
    refs = str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    parts = [f"metrics:{'+'.join(chosen)}", f"images:{len(ids)}", f"refs:{refs}", "tok:ptb-3.4.1-lower-nopunct"]
    if "cider" in chosen:
        parts.append("df:corpus" if frequencies is None else f"df:saved-{frequencies.images:g}-images")
    if "meteor" in chosen:
        parts.append("meteor:1.5-en-norm")
    if "spice" in chosen:
        parts.append("spice:sightline-parser")
    if "chair" in chosen:
        parts.append(f"chair:coco80-sightline-synonyms-refs{'+boxes' if boxes else ''}")
    return "|".join([*parts, f"sightline:{__version__}"])


def _some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(ids[:most]) + (" …" if len(ids) > most else "")
