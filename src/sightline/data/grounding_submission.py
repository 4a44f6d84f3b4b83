"""Grounding submissions: for each image and sentence, the object words with their class and box.

`{"results": {"<id>": [{"clss", "idx_in_sent", "bbox"}, …]}, "eval_mode": …, "external_data": {"used", "details"}}`;
five sentences per image in GT mode (the references), one in gen mode (the generated caption).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.caption_format import collect
from sightline.data.format import Format, Probe, Report
from sightline.data.grounding_records import GroundedPrediction
from sightline.data.gvd_reference import object_words
from sightline.data.json_records import Record, parse_each, read_object, report_repeated_keys, told
from sightline.data.records import Problems
from sightline.errors import ConfigError, CountError, DataError
from sightline.files import write_json

SENTENCES = {"GT": 5, "gen": 1}


@dataclass(frozen=True)
class Submission:
    """Predictions by image id, a tuple of object words for each sentence.

    `mode` is `GT` or `gen`; `external_data` says what else was learnt from, if anything.
    """

    results: Mapping[str, tuple[tuple[GroundedPrediction, ...], ...]]
    mode: str = "gen"
    external_data: str = ""

    def __post_init__(self) -> None:
        if self.mode not in SENTENCES:
            raise ConfigError(
                f"the mode {self.mode!r} is neither GT nor gen", fix="GT grounds references, gen captions"
            )


def matches(probe: Probe) -> bool:
    """A JSON object with `results` of `idx_in_sent`, or with `results` and `eval_mode`."""
    return (
        probe.json_start == "{"
        and probe.has_key("results")
        and (probe.has_key("idx_in_sent") or probe.has_key("eval_mode") or probe.has_key("external_data"))
    )


def read_submission(path: Path, problems: Problems | None = None) -> Submission:
    """A checked submission. Where `eval_mode` is missing, the number of sentences tells it."""
    met = Problems() if problems is None else problems
    whole = read_object(path)
    results = whole.mapping("results")
    report_repeated_keys(path, met)
    mode = whole.text("eval_mode") if whole.has("eval_mode") else _mode_of(results)
    if mode not in SENTENCES:
        raise whole.error(f"'eval_mode' is {mode!r}", fix="write GT (references grounded) or gen (captions generated)")
    found = {}
    for id, sentences in results.items():
        try:
            found[id] = _sentences(id, sentences, mode, path, met)
        except DataError as error:
            met.report(error)
    return Submission(found, mode, _details(whole))


def write_submission(path: Path, submission: Submission) -> int:
    """Write a submission, checked like one that is read; returns the number of images."""
    results = {id: [_to_json(sentence) for sentence in sentences] for id, sentences in submission.results.items()}
    for id, sentences in results.items():
        _sentences(id, sentences, submission.mode, path, Problems())
    external = {"used": bool(submission.external_data), "details": submission.external_data}
    write_json(path, {"results": results, "eval_mode": submission.mode, "external_data": external})
    return len(results)


def inspect(path: Path) -> Report:
    """Counts of images and predicted words."""
    submission, problems = collect(path, read_submission)
    if submission is None:
        return Report.of(path, FORMAT, {}, problems)
    words = sum(len(sentence) for sentences in submission.results.values() for sentence in sentences)
    counts: dict[str, int | str] = {"photos": len(submission.results), "object words": words, "mode": submission.mode}
    return Report.of(path, FORMAT, counts, problems)


def _sentences(
    id: str, sentences: Any, mode: str, path: Path, problems: Problems
) -> tuple[tuple[GroundedPrediction, ...], ...]:
    where = f"{path}, image {id}"
    if not isinstance(sentences, list):
        raise DataError(f"a list of sentences was expected, not {told(sentences)}", where=where)
    if len(sentences) != SENTENCES[mode]:
        raise CountError(f"{len(sentences)} sentences, {mode} mode has {SENTENCES[mode]} per image", where=where)
    names = ("clss", "idx_in_sent", "bbox")
    return tuple(parse_each(sentences, path, f"image {id}", problems, lambda record: object_words(record, names)))


def _mode_of(results: dict[str, Any]) -> str:
    first: Any = next(iter(results.values()), [])
    return "gen" if isinstance(first, list) and len(first) == 1 else "GT"


def _details(whole: Record) -> str:
    if not whole.has("external_data"):
        return ""
    external = Record(whole.mapping("external_data"), whole.path, "external_data")
    return external.text("details") if external.has("details") else ""


def _to_json(sentence: tuple[GroundedPrediction, ...]) -> dict[str, Any]:
    return {
        "clss": [word.label for word in sentence],
        "idx_in_sent": [word.index for word in sentence],
        "bbox": [list(word.box) for word in sentence],
    }


FORMAT = Format(
    "grounding-submission",
    "Predicted boxes of object words, for GVD's grounding evaluation",
    matches,
    inspect,
)
