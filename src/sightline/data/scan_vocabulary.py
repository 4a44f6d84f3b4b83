"""Vocabularies of the SCAN family: `{"word2idx", "idx2word", "idx"}` as JSON, or a pickled `vocab.Vocabulary`.

VSRN and VSE++ ship the pickle; it is read without running it. Ids 0 to 3 are `<pad>`, `<start>`, `<end>`, `<unk>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sightline.data.format import Format, Probe, Report
from sightline.data.records import Problems
from sightline.data.restricted_pickle import CONTAINERS, Inert, load_path, shown
from sightline.errors import CountError, DataError
from sightline.files import PathLike, existing, open_bytes, read_json

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
_PARTS = ("word2idx", "idx2word", "idx")


class Vocabulary(Inert):
    """What a pickled vocabulary object becomes."""


def read_vocabulary(path: PathLike) -> list[str]:
    """The words in id order."""
    target = existing(path)
    with open_bytes(target) as file:
        is_json = file.read(64).lstrip().startswith(b"{")
    whole: Any = read_json(target) if is_json else load_path(target, {**CONTAINERS, "Vocabulary": Vocabulary})
    parts = vars(whole) if isinstance(whole, Vocabulary) else whole
    if not isinstance(parts, dict) or not all(isinstance(parts.get(name), dict) for name in _PARTS[:2]):
        raise DataError("no vocabulary: word2idx and idx2word are missing", where=target, fix="check the file")
    return _in_order(parts["word2idx"], parts["idx2word"], target)


def _in_order(ids: dict[Any, Any], words: dict[Any, Any], where: Path) -> list[str]:
    by_id = {str(key): word for key, word in words.items()}  # JSON has text keys, the pickle numbers
    if len(ids) != len(by_id):
        raise CountError(
            f"word2idx has {len(ids)} words, idx2word {len(by_id)}", where=where, fix="build the vocabulary again"
        )
    found = [by_id.get(str(number)) for number in range(len(by_id))]
    for number, word in enumerate(found):
        if not isinstance(word, str) or ids.get(word) != number:
            raise DataError(
                f"id {number} is {shown(word)} in idx2word"
                + (f", whose id in word2idx is {shown(ids.get(word))}" if isinstance(word, str) else ", and no text"),
                where=where,
                fix="build the vocabulary again: ids must run from 0 without gaps",
            )
    return [str(word) for word in found]


def matches(probe: Probe) -> bool:
    """JSON or a pickle with `word2idx`; a pickle names the class `Vocabulary`."""
    if probe.json_start == "{":
        return probe.has_key("word2idx") or probe.has_key("idx2word")
    return b"Vocabulary" in probe.head[:512] and b"word2idx" in probe.head


def inspect(path: Path) -> Report:
    """Count the words."""
    problems = Problems(collect=True)
    counts: dict[str, int | str] = {}
    notes: tuple[str, ...] = ()
    try:
        words = read_vocabulary(path)
    except DataError as error:
        problems.report(error)
    else:
        counts = {"words": len(words)}
        if tuple(words[:4]) != SPECIAL:
            notes = (f"the first four words are {', '.join(words[:4])}, not {', '.join(SPECIAL)}",)
    return Report.of(path, FORMAT, counts, problems, notes)


FORMAT = Format(
    name="scan-vocabulary",
    about="The word list of SCAN, VSRN or VSE++: JSON, or a pickle that is read without running it",
    matches=matches,
    inspect=inspect,
)
