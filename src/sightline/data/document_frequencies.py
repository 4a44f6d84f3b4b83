"""CIDEr's saved document frequencies, `coco-train-idxs.p` and `-words.p`: a pickle, read without running it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sightline.data.format import Format, Probe, Report
from sightline.data.records import Problems
from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, load_path, shown
from sightline.errors import DataError
from sightline.files import PathLike

NGram = tuple[str, ...]


class DocumentFrequencies(NamedTuple):
    """In how many images' references each n-gram occurs.

    Attributes:
        counts: n-gram to number of images.
        ref_len: as stored: the number of images, of which CIDEr takes the logarithm.
        layout: "words", or "ids" where n-grams are word ids as text, with 0 for the end.
    """

    counts: dict[NGram, float]
    ref_len: float
    layout: str


def read_document_frequencies(path: PathLike) -> DocumentFrequencies:
    """The document frequencies of a pickle `{'document_frequency': ..., 'ref_len': ...}`."""
    whole = load_path(path, {**CONTAINERS, **NUMBERS})
    if not isinstance(whole, dict) or not isinstance(whole.get("document_frequency"), dict):
        raise DataError("no document_frequency in it", where=path, fix="make it with self-critical's prepro_ngrams.py")
    try:
        ref_len = float(whole["ref_len"])
        counts = {_ngram(key): float(value) for key, value in whole["document_frequency"].items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"not n-grams with numbers: {error}", where=path, fix="make it with self-critical's prepro_ngrams.py"
        ) from error
    layout = "ids" if counts and all(word.isdigit() for ngram in counts for word in ngram) else "words"
    return DocumentFrequencies(counts, ref_len, layout)


def _ngram(key: object) -> NGram:
    if not isinstance(key, tuple) or not key or not all(isinstance(word, str) for word in key):
        raise TypeError(f"the key {shown(key)} is no tuple of words")
    return key


def matches(probe: Probe) -> bool:
    """A pickle whose first key is `document_frequency` or `ref_len`."""
    return probe.text is None and any(key in probe.head[:512] for key in (b"document_frequency", b"ref_len"))


def inspect(path: Path) -> Report:
    """Count the n-grams."""
    problems = Problems(collect=True)
    try:
        found = read_document_frequencies(path)
    except DataError as error:
        problems.report(error)
        return Report.of(path, FORMAT, {}, problems)
    counts: dict[str, int | str] = {"n-grams": len(found.counts), "images": f"{found.ref_len:g}", "of": found.layout}
    return Report.of(path, FORMAT, counts, problems)


FORMAT = Format(
    name="document-frequencies",
    about="CIDEr's saved document frequencies, read without running the pickle",
    matches=matches,
    inspect=inspect,
)
