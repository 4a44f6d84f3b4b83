"""Captions that go to files: made once, kept in a log, and written from it in every format that is asked for.

`OUT/.sightline` holds the log of captions and the ledger of photos; sidecars without an OUT have theirs in the user's
cache. A run does the photos that are new or changed, then writes the files anew, each whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sightline.caption_work import BATCH, CaptionWork
from sightline.cli.caption_files import FileOptions, Files, Listeners, picture_name
from sightline.files import lock
from sightline.jobs.caption_log import CaptionLog
from sightline.jobs.job import Executor, run, run_locally, waiting
from sightline.jobs.job_photos import Photo, id_of
from sightline.jobs.ledger import Ledger


@dataclass
class FolderReport:
    """What a run did.

    Attributes:
        made: captions of this run.
        kept: photos that were done before and have not changed.
        forgot: captions of other settings that were there.
        pictures: of the photos that were named.
    """

    made: int = 0
    kept: int = 0
    forgot: int = 0
    pictures: list[Path] = field(default_factory=list)


def file_captions(
    named: Sequence[Photo],
    sources: Sequence[str],
    work: CaptionWork,
    filing: FileOptions,
    listeners: Listeners,
    executor: Executor = run_locally,
) -> FolderReport:
    """Caption photos, and write the files; also when interrupted, of what is done by then.

    Args:
        named: the photos.
        sources: what people named, in which the photos were found.
        work: makes the captions.
        filing: where they go.
        listeners: are told what happens.
        hands: who looks at the photos.
    """
    made = work.wanted.fingerprint()
    place = filing.place(made, sources)
    with (
        lock(place / "lock"),
        CaptionLog(place / "captions.jsonl", made) as log,
        CaptionLog(place / "distinct.jsonl", made) as apart,
        Ledger(place / "ledger.jsonl") as ledger,
        ExitStack() as at_the_end,
    ):
        photos = _photos(named, filing, log)
        filing.sweep(photos)
        files = Files(filing, log, apart, photos, listeners)
        at_the_end.callback(files.close)
        filed = FolderReport(forgot=log.forgot, pictures=files.pictures)
        if filing.force:
            files.drop(photo.id for photo in photos)
        if not filing.apart:
            files.restore_first(list(apart))
        todo = waiting(photos, files, ledger)
        filed.kept = len(photos) - len(todo)
        if todo:  # else the model is not loaded
            bar = listeners.progress("captioning")
            report = run(photos, work, files, ledger, size=work.size, batch=BATCH, progress=bar, executor=executor)
            for error in report.bad:
                listeners.bad(error)
            filed.made = report.made
        if filing.apart:
            from sightline.cli.caption_rewrite import rewrite

            rewrite(files, work, ledger)
    return filed


def _photos(named: Sequence[Photo], filing: FileOptions, log: CaptionLog) -> list[Photo]:
    """The photos that were named, without the pictures that were drawn of photos before."""
    drawn = set() if filing.out is None else {id_of(filing.out / picture_name(log, id)) for id in log}
    return [photo for photo in named if photo.id not in drawn]
