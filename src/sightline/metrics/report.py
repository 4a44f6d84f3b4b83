"""One self-contained HTML page of scores: systems with intervals, every image sortable, and why it scored as it did."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

from sightline.files import PathLike, write_text
from sightline.metrics.bleu import Bleu
from sightline.metrics.bootstrap import interval, resamples, same_images
from sightline.metrics.cider import CIDErD
from sightline.metrics.language_metric import LanguageMetric
from sightline.metrics.meteor import Meteor
from sightline.metrics.rouge import RougeL
from sightline.metrics.scorecard import ON_REQUEST, TITLES, Scorecard
from sightline.metrics.spice import Spice

_TEMPLATE = Path(__file__).parent / "report.html"


def write_report(path: PathLike, systems: Mapping[str, Scorecard], rounds: int = 1000) -> None:
    """Write the page for one or several systems that were scored on the same images."""
    page = _TEMPLATE.read_text(encoding="utf-8")
    text = json.dumps(report_data(systems, rounds), ensure_ascii=False, separators=(",", ":"))
    write_text(path, page.replace("__DATA__", text.replace("</", "<\\/")))


def report_data(systems: Mapping[str, Scorecard], rounds: int = 1000) -> dict[str, Any]:
    """What the page shows, as JSON-ready data."""
    cards = list(systems.values())
    same_images([list(card.hypotheses) for card in cards])
    ids = list(cards[0].hypotheses)
    per_image = cards[0].scores.per_image[ids[0]]  # what only the corpus has, such as its vocabulary, has no interval
    keys = [key for metric in cards[0].metrics.values() for key in metric.keys if key in per_image]
    weights = resamples(len(ids), rounds)
    drawn = {
        name: {key: row for metric in card.metrics.values() for key, row in metric.resample(weights).items()}
        for name, card in systems.items()
    }
    return {
        "signature": cards[0].signature,
        "notes": sorted({note for card in cards for note in card.notes}),
        "keys": keys,
        "titles": TITLES,
        "systems": [
            {
                "name": name,
                "intervals": {key: asdict(interval(card.scores.corpus[key], drawn[name][key])) for key in keys},
            }
            for name, card in systems.items()
        ],
        "comparisons": [
            {"base": a, "other": b, "scores": {key: _compared(systems, drawn, a, b, key) for key in keys}}
            for a, b in combinations(systems, 2)
        ],
        "images": [_image(id, cards, keys) for id in ids],
    }


def _compared(systems: Mapping[str, Scorecard], drawn: Mapping[str, Any], a: str, b: str, key: str) -> dict[str, Any]:
    """The second minus the first, on the same resampled images; `wins` is the share in which it is ahead."""
    gaps = drawn[b][key] - drawn[a][key]
    observed = systems[b].scores.corpus[key] - systems[a].scores.corpus[key]
    return {**asdict(interval(observed, gaps)), "wins": float((gaps > 0).mean())}


def _image(id: str, cards: Sequence[Scorecard], keys: Sequence[str]) -> dict[str, Any]:
    return {
        "id": id,
        "references": list(cards[0].references[id]),
        "systems": [
            {
                "text": card.hypotheses[id],
                "scores": [round(card.scores.per_image[id][key], 6) for key in keys],
                "why": {
                    name: _why(metric, card.hypotheses[id], card.references[id])
                    for name, metric in card.metrics.items()
                    if name not in ON_REQUEST
                },
                "words": {key: found for key, found in card.scores.words.get(id, {}).items() if found},
            }
            for card in cards
        ],
    }


def _why(metric: LanguageMetric, hypothesis: str, references: Sequence[str]) -> Any:
    """What a metric saw in one image, small enough to be in the page for thousands of images."""
    if isinstance(metric, Bleu):
        matches = metric.explain(hypothesis, references)
        hits = [place for place, word in enumerate(hypothesis.split(" ")) if (word,) in matches]
        longest: list[str] = []  # of two words or more, which no longer match contains
        for text in (" ".join(words) for words in sorted(matches, key=len, reverse=True) if len(words) > 1):
            if not any(f" {text} " in f" {longer} " for longer in longest):
                longest.append(text)
        return {"hits": hits, "longest": longest}
    if isinstance(metric, RougeL):
        return metric.explain(hypothesis, references)
    if isinstance(metric, CIDErD):
        shares = sorted(metric.explain(hypothesis, references).items(), key=lambda item: -item[1])
        return [[" ".join(words), round(share, 4)] for words, share in shares[:6] if share > 0]
    if isinstance(metric, Meteor):
        return {"pairs": metric.explain(hypothesis, references)}
    assert isinstance(metric, Spice)
    comparison = metric.explain(hypothesis, references)
    return {
        "matched": ["-".join(ours) for ours, _ in comparison.matched],
        "unmatched": ["-".join(ours) for ours in comparison.unmatched],
        "missed": ["-".join(theirs) for theirs in comparison.missed[:12]],
    }
