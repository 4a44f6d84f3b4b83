"""Captions to audits: the job behind `sightline audit --out`, which goes on where it was stopped.

The folder holds `audits.log`, a checked line for each photo (`[id, audits]`; later ones hold against earlier ones), and
the ledger. A photo's id is its path and the fingerprint of its captions and of what audits them, so that whatever
changes is audited again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.files import PathLike, fingerprint, lock, unwritable
from sightline.grounding.evidence import Audit
from sightline.jobs.job import Report, run
from sightline.jobs.job_photos import PhotoRef, mark_of
from sightline.jobs.ledger import ChecksumLines, Ledger
from sightline.photo import Photo
from sightline.vision.photo_reader import Progress

LOG, LEDGER, LOCK = "audits.log", "ledger.jsonl", "lock"
Auditor = Callable[[Sequence[Photo], Sequence[Sequence[str]]], Sequence[Sequence[Audit]]]
AuditRecord = tuple[str, list[dict[str, Any]]]


def audit(
    captions: Mapping[str, Sequence[str]],
    folder: PathLike,
    auditor: Auditor,
    made: str,
    *,
    size: int,
    batch: int = 8,
    progress: Progress = iter,
) -> tuple[list[dict[str, Any]], Report]:
    """Audit captions, given by the paths of their photos. Results are JSON; those already in the folder are reused.

    Args:
        captions: of each photo.
        folder: where results are kept.
        auditor: from photos and the captions of each to the audits of each.
        made: what tells the auditor from others: its model and threshold.
        size: photos are squashed to squares of so many pixels.
        batch: photos that are audited together, and that a kill can cost.
        progress: wraps the paths of photos that are audited.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(place, error) from error
    ids = {path: f"{path}#{fingerprint(made, json.dumps(list(own)))}" for path, own in captions.items()}
    texts = {ids[path]: own for path, own in captions.items()}
    photos = [PhotoRef(ids[path], Path(path), mark_of(Path(path))) for path in captions]

    def work(some: Sequence[Photo]) -> list[AuditRecord]:
        found = auditor(some, [texts[photo.id] for photo in some])
        return [(photo.id, [one.to_json() for one in own]) for photo, own in zip(some, found, strict=True)]

    with lock(place / LOCK), AuditLog(place / LOG) as log, Ledger(place / LEDGER) as ledger:
        report = run(photos, work, log, ledger, size=size, batch=batch, progress=progress)
        return [audit for photo in photos for audit in log.get(photo.id)], report


class AuditLog(ChecksumLines):
    """Audits by photo id."""

    def __init__(self, path: PathLike) -> None:
        self._audits: dict[str, list[dict[str, Any]]] = {}
        super().__init__(path)

    def __contains__(self, id: object) -> bool:
        return id in self._audits

    def get(self, id: str) -> list[dict[str, Any]]:
        """The audits of a photo; an empty list if there are none."""
        return self._audits.get(id, [])

    def add(self, result: AuditRecord) -> None:
        """Store the audits of a photo."""
        self._write(result)
        self._audits.update([result])

    def drop(self, ids: Iterable[str]) -> None:
        """Remove the audits of photos, which are about to be audited again."""
        for id in ids:
            self._audits.pop(id, None)

    def _learn(self, row: Any, start: int, size: int) -> None:
        self._audits.update([row])
