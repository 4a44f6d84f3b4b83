"""SentiCap: Karpathy's layout with a sentiment per sentence; a photo with both sentiments is listed twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from sightline.data.caption_format import CaptionCollector, caption_report, collect
from sightline.data.format import Format, Probe, Report
from sightline.data.json_records import Record, parse_each, read_object
from sightline.data.karpathy import file_of, parse_sentence
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence

SENTIMENTS = {1: "positive", 0: "negative"}


def matches(probe: Probe) -> bool:
    """A JSON object whose sentences have `word_sentiment`."""
    return probe.json_start == "{" and probe.has_key("sentences", "word_sentiment")


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """Every photo once, with all its captions. A sentence's id is `<imgid>/<positive|negative>/<k>`."""
    met = Problems() if problems is None else problems
    gathering = CaptionCollector()
    for photo in parse_each(read_object(path).items("images"), path, "images", met, lambda r: _photo(r, met)):
        gathering.add(photo)
    return CaptionSet(tuple(gathering.photos()), str(path))


def sentiment_of(sentence: Sentence) -> str:
    """`positive` or `negative`, for a sentence that `read` gave."""
    return (sentence.id or "").split("/")[1]


def sentiment_words(path: Path) -> dict[str, frozenset[str]]:
    """The words that make sentences `positive` or `negative`.

    SentiCap marks pairs of adjective and noun. A word makes a sentence positive if, of all times that it occurs in
    positive ones, it is more often than not the marked adjective.
    """
    marked: dict[str, Counter[str]] = {name: Counter() for name in SENTIMENTS.values()}
    counted: dict[str, Counter[str]] = {name: Counter() for name in SENTIMENTS.values()}
    for image in parse_each(read_object(path).items("images"), path, "images", Problems(), lambda r: r):
        for one in parse_each(image.items("sentences"), path, image.where, Problems(), lambda r: r):
            tokens, marks = one.texts("tokens"), [*one.items("word_sentiment"), 0]
            sentiment = SENTIMENTS.get(one.integer("sentiment"), "negative")
            pairs = zip(tokens, pairwise(marks), strict=False)
            marked[sentiment].update(token for token, (mark, following) in pairs if mark and following)
            counted[sentiment].update(tokens)
    return {
        name: frozenset(word for word, count in found.items() if 2 * count > counted[name][word])
        for name, found in marked.items()
    }


def inspect(path: Path) -> Report:
    """Counts of photos, captions and sentiments."""
    captions, problems = collect(path, read)
    report = caption_report(path, FORMAT, captions, problems)
    found = Counter(map(sentiment_of, captions.sentences() if captions else ()))
    return replace(report, counts={**report.counts, **{f"{name} captions": n for name, n in found.items()}})


def _photo(image: Record, problems: Problems) -> CaptionedPhoto:
    id = image.identity("imgid")
    entries, place = image.items("sentences"), f"image {id}, sentences"
    sentences = tuple(parse_each(entries, image.path, place, problems, lambda r: _sentence(id, r, problems)))
    return CaptionedPhoto(id, sentences, file_of(image), image.text("split") if image.has("split") else None)


def _sentence(photo: str, record: Record, problems: Problems) -> Sentence:
    sentiment = SENTIMENTS.get(record.integer("sentiment"))
    if sentiment is None:
        raise record.error("'sentiment' must be 1 (positive) or 0 (negative)")
    return replace(parse_sentence(record, problems), id=f"{photo}/{sentiment}/{record.index}")


FORMAT = Format(
    "senticap",
    "SentiCap: COCO captions with a positive or negative sentiment",
    matches,
    inspect,
    captions=read,
)
