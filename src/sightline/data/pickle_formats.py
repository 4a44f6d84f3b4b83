"""Two formats that are pickles, read without running them: vocabularies of the SCAN family, CIDEr's frequencies.

- `{"word2idx", "idx2word", "idx"}`, as JSON or as the pickled `vocab.Vocabulary` that VSRN and VSE++ ship. Ids 0 to 3
  are `<pad>`, `<start>`, `<end>`, `<unk>`.
- `coco-train-idxs.p` and `-words.p`: `{'document_frequency': …, 'ref_len': …}`.
"""

import re
from typing import Any, NamedTuple

from sightline.data.caption_format import record_format
from sightline.data.format import Probe, Summary
from sightline.data.records import STRICT, Problems
from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, Inert, describe_value, load_path
from sightline.errors import CountError, DataError
from sightline.files import PathLike, existing_path, open_bytes, read_json

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
NGram = tuple[str, ...]


class Vocabulary(Inert):
    """What a pickled vocabulary object becomes."""


def read_vocabulary(path: PathLike, _: Problems = STRICT) -> list[str]:
    """The words in id order."""
    target = existing_path(path)
    with open_bytes(target) as file:
        is_json = file.read(64).lstrip().startswith(b"{")
    content: Any = read_json(target) if is_json else load_path(target, {**CONTAINERS, "Vocabulary": Vocabulary})
    parts = vars(content) if isinstance(content, Vocabulary) else content
    if not isinstance(parts, dict) or not all(isinstance(parts.get(name), dict) for name in ("word2idx", "idx2word")):
        raise DataError("no vocabulary: word2idx and idx2word are missing", where=target, fix="check the file")
    ids = parts["word2idx"]
    by_id = {str(key): word for key, word in parts["idx2word"].items()}  # JSON has text keys, the pickle numbers
    if len(ids) != len(by_id):
        what = f"word2idx has {len(ids)} words, idx2word {len(by_id)}"
        raise CountError(what, where=target, fix="build the vocabulary again")
    in_order = []
    for number in range(len(by_id)):
        word = by_id.get(str(number))
        if not isinstance(word, str) or ids.get(word) != number:
            why = f"whose id is {describe_value(ids.get(word))}" if isinstance(word, str) else "and no text"
            what = f"id {number} is {describe_value(word)} in idx2word, {why}"
            raise DataError(what, where=target, fix="build the vocabulary again: ids must run from 0 without gaps")
        in_order.append(word)
    return in_order


def _is_vocabulary(probe: Probe) -> bool:
    if probe.json_start == "{":
        return probe.has_any_key("word2idx", "idx2word")
    return b"Vocabulary" in probe.head[:512] and b"word2idx" in probe.head


def _count_words(words: list[str]) -> Summary:
    usual = tuple(words[:4]) == SPECIAL
    notes = [] if usual else [f"the first four words are {', '.join(words[:4])}, not {', '.join(SPECIAL)}"]
    return {"words": len(words)}, notes


class SavedFrequencies(NamedTuple):
    """In how many images' references each n-gram occurs, as the file says it."""

    counts: dict[NGram, float]  # images of each n-gram
    ref_len: float  # as stored: the number of images, of which CIDEr takes the logarithm
    layout: str  # "words", or "ids" where n-grams are word ids as text, with 0 for the end


def read_document_frequencies(path: PathLike, _: Problems = STRICT) -> SavedFrequencies:
    content, fix = load_path(path, {**CONTAINERS, **NUMBERS}), "make it with self-critical's prepro_ngrams.py"
    if not isinstance(content, dict) or not isinstance(content.get("document_frequency"), dict):
        raise DataError("no document_frequency in it", where=path, fix=fix)
    try:
        ref_len = float(content["ref_len"])
        counts = {_ngram(key): float(value) for key, value in content["document_frequency"].items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"not n-grams with numbers: {error}", where=path, fix=fix) from error
    layout = "ids" if counts and all(word.isdigit() for ngram in counts for word in ngram) else "words"
    return SavedFrequencies(counts, ref_len, layout)


def _ngram(key: object) -> NGram:
    if not isinstance(key, tuple) or not key or not all(isinstance(word, str) for word in key):
        raise TypeError(f"the key {describe_value(key)} is no tuple of words")
    return key


VOCABULARY = record_format(
    "scan-vocabulary",
    "The word list of SCAN, VSRN or VSE++: JSON, or a pickle that is read without running it",
    _is_vocabulary,
    read_vocabulary,
    _count_words,
)
FREQUENCIES = record_format(
    "document-frequencies",
    "CIDEr's saved document frequencies, read without running the pickle",
    lambda probe: probe.text is None and re.search(rb"document_frequency|ref_len", probe.head[:512]) is not None,
    read_document_frequencies,
    lambda saved: ({"n-grams": len(saved.counts), "images": f"{saved.ref_len:g}", "of": saved.layout}, ()),
)
