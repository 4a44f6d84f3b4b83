"""The whole scorecard of captions against references: tokenise once, run every metric, say exactly what was done."""

import importlib.util
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sightline import __version__
from sightline.errors import ConfigError, DataError, MissingRecordError, some
from sightline.metrics.bleu import Bleu
from sightline.metrics.caption_style import Diversity, LanguageErrors
from sightline.metrics.chair import Chair
from sightline.metrics.cider import CIDErD, DocumentFrequencies
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
    installed = importlib.util.find_spec("pycocoevalcap") is not None
    return tuple(name for name in METRICS if name not in ON_REQUEST and (name != "meteor" or installed))


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
    names = tuple(metrics) if metrics is not None else default_metrics()
    unknown = next((name for name in names if name not in METRICS), None)
    if unknown is not None:
        raise ConfigError(f"there is no metric {unknown!r}", fix=f"choose among {', '.join(METRICS)}")
    _check_ids(hypotheses, references)
    ids = [id for id in references if id in hypotheses]
    # As the reference tools do: hypotheses in one file, references in another, in the references' order.
    captions = ptb_tokenize_all([hypotheses[id] for id in ids], one_file=True)
    others = iter(ptb_tokenize_all([text for id in ids for text in references[id]], one_file=True))
    tokenised = dict(zip(ids, captions, strict=True))
    tokenised_references = {id: tuple(next(others) for _ in references[id]) for id in ids}
    scores = Scores({}, {id: {} for id in ids})
    computed: dict[str, LanguageMetric] = {}
    for name in names:
        metric = CIDErD(frequencies) if name == "cider" else Chair(objects) if name == "chair" else METRICS[name]()
        metric.progress = partial(tell, name)
        metric.update(tokenised, tokenised_references)
        tell(name, 0)
        own = metric.compute()
        scores.corpus.update(own.corpus)
        for id, row in own.per_image.items():
            scores.per_image[id].update(row)
        for id, words in own.words.items():
            scores.words.setdefault(id, {}).update(words)
        tell(name, len(ids))
        computed[name] = metric
    notes = _notes(hypotheses, references, tokenised) + [metric.note() for metric in computed.values()]
    signature = _signature(computed, [len(references[id]) for id in ids])
    return Scorecard(scores, signature, tuple(filter(None, notes)), tokenised, tokenised_references, computed)


def _check_ids(hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not hypotheses:
        raise DataError("there is no caption to score", fix="give at least one")
    extra = [id for id in hypotheses if not references.get(id)]
    if extra:
        what = f"{len(extra):,} of {len(hypotheses):,} captioned images have no reference: {some(extra)}"
        fix = "give their references or remove their captions; ids must be spelled alike in both files"
        raise MissingRecordError(what, fix=fix)


def _notes(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]], tokenised: Mapping[str, str]
) -> list[str]:
    missing = [id for id in references if id not in hypotheses]
    empty = [id for id, text in tokenised.items() if not text]
    emojis = [
        id for id, text in hypotheses.items() if any(c > "\u2190" and unicodedata.category(c) == "So" for c in text)
    ]
    uncaptioned = f"{len(missing):,} of {len(references):,} images with references have no caption and were not scored"
    notes = {
        uncaptioned: missing,
        f"{len(empty):,} captions are empty after tokenisation and score as such": empty,
        f"{len(emojis):,} captions hold emojis, which the PTB tokenizer drops": emojis,
    }
    return [f"{note}: {some(ids)}" for note, ids in notes.items() if ids]


def _signature(metrics: Mapping[str, LanguageMetric], reference_counts: Sequence[int]) -> str:
    """What was computed, on what, by which version, in one line."""
    fewest, most = min(reference_counts), max(reference_counts)
    parts = [
        f"metrics:{'+'.join(metrics)}",
        f"images:{len(reference_counts)}",
        f"refs:{fewest}" if fewest == most else f"refs:{fewest}-{most}",
        "tok:ptb-3.4.1-lower-nopunct",
        *sorted(metric.variant for metric in metrics.values()),
        f"sightline:{__version__}",
    ]
    return "|".join(filter(None, parts))
