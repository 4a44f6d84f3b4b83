"""`sightline audit`: which nouns of existing captions their photos do not support.

The folder of results holds `audits.log`, a checked line for each photo (`[id, audits]`; later ones hold against earlier
ones), and the ledger. A photo's id is its path and the fingerprint of its captions and of what audits them, so that
whatever changes is audited again.
"""

from __future__ import annotations

import contextlib
import json as json_module
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.console import Folder, ModelFile
from sightline.cli.pipeline_work import BATCH
from sightline.errors import ConfigError, DataError, UnknownFormatError, about, printable
from sightline.files import cache_dir, existing_path, fingerprint, lock, model_file, write_json

if TYPE_CHECKING:  # everything that brings PyTorch is imported once there are captions to audit
    from sightline.jobs.job import Report
    from sightline.photo import Photo
    from sightline.pipeline import Pipeline
    from sightline.vision.photo_reader import Progress

AuditJson = dict[str, Any]


def audit(
    captions: Path,
    *,
    images: Folder = None,
    split: str | None = None,
    threshold: float | None = None,
    out: Folder = None,
    model: ModelFile = None,
    device: str = "auto",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Find nouns in captions that their photos do not support, and tell what is seen instead.

    Exit code 0 if there is none, 1 if there is one, or if no photo could be audited. A stopped run goes on when the
    same command is given again.

        sightline audit captions.json --images photos/
        sightline audit captions.csv --images photos/ --out audited/ --threshold 0.5

    Args:
        captions: COCO captions, a Flickr token file, a Karpathy split, .jsonl or .csv of file and caption, …; or a
            folder of photos with captions.csv or .jsonl in it.
        images: the folder in which photos are; by default that of the captions.
        split: audit this split alone, such as test.
        threshold: flag nouns with less support than this, from 0 to 1; by default the model's own.
        out: keep results in this folder, as audits.json at the end; a later run audits only what is new.
        json: print one JSON array, an object for each caption.
    """
    if threshold is not None and not 0 <= threshold <= 1:
        raise ConfigError(f"`threshold` is {threshold}", fix="give a number from 0 to 1")
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError("this is a file, and results go to a folder", where=out, fix="name another with --out")
    texts = _captions(existing_path(captions), images and existing_path(images), split)
    with _result_folder(out, captions.absolute(), images and images.absolute(), split, threshold, model) as folder:
        from sightline.checkpoint.bundle import default_bundle
        from sightline.export.caption_tables import json_array
        from sightline.pipeline import load
        from sightline.vision.photo_reader import progress_bar

        pipeline = load(model, device, threads)
        least = pipeline.auditing.least if threshold is None else threshold
        auditor = fingerprint(model_file(model or default_bundle()).read_bytes(), repr(pipeline.auditing), repr(least))
        audits, report = _audit(texts, folder, pipeline, least, auditor, iter if quiet else progress_bar("auditing"))
    if out is not None:
        write_json(out / "audits.json", audits, indent=1)
    flagged = [audit for audit in audits if audit["flagged"]]
    if json:
        sys.stdout.writelines(json_array(audits))
    elif not quiet:
        for audit in flagged:
            print(_lines(audit))
    if report.bad:
        from sightline.vision.photo_reader import left_out

        print(left_out(report.bad), file=sys.stderr)
    if not audits:
        print("No caption was audited. To fix: name a file of captions, and with --images its photos.", file=sys.stderr)
    elif not quiet:
        count = f"{len(flagged):,} of {len(audits):,} captions"
        print(f"{count} name something that their photos do not support", file=sys.stderr)
    return 0 if audits and not flagged else 1


@contextlib.contextmanager
def _result_folder(out: Path | None, *made_of: object) -> Iterator[Path]:
    """Where results are kept: in `out`, else in the user's cache until all is done, for a stopped run to go on from."""
    if out is not None:
        yield out
        return
    place = cache_dir() / "audits" / fingerprint(*map(str, made_of))
    try:
        place.mkdir(parents=True, exist_ok=True)
        writable = os.access(place, os.W_OK)
    except OSError:
        writable = False
    if not writable:  # then a stopped run begins again
        with tempfile.TemporaryDirectory(prefix="sightline-") as passing:
            yield Path(passing)
        return
    yield place
    shutil.rmtree(place, ignore_errors=True)


def _captions(path: Path, images: Path | None, split: str | None) -> dict[str, list[str]]:
    """Captions by the paths of their photos. Photos that are not there are reported when they are read.

    A photo is in the folder `images`; by default beside its captions, or where its path leads from here.
    """
    from sightline.data.convert import any_captions
    from sightline.data.photo_finder import PhotoFinder, is_file

    folder = images or (path if path.is_dir() else path.parent)
    finder = PhotoFinder(folder)

    def place_of(name: str) -> Path:
        from_here = images is None and not is_file(folder / name) and is_file(Path(name))
        return Path(name) if from_here else folder / (finder.find(name) or name)

    by_photo: dict[str, list[str]] = {}
    try:
        with about(path):
            for photo in any_captions(path, split):
                if photo.sentences:
                    texts = by_photo.setdefault(str(place_of(photo.file or photo.id)), [])
                    texts.extend(sentence.text for sentence in photo.sentences)
    except UnknownFormatError:
        if not path.is_dir():
            raise
    if not by_photo:
        what = f"this {'folder' if path.is_dir() else 'file'} holds no captions"
        fix = "name a file of captions, and with --images its photos; `sightline caption` makes captions"
        raise DataError(what, where=path, fix=fix)
    return by_photo


def _audit(
    captions: Mapping[str, Sequence[str]],
    folder: Path,
    pipeline: Pipeline,
    least: float,
    auditor: str,  # tells this one from others: its model and threshold
    progress: Progress,
) -> tuple[list[AuditJson], Report]:
    """Audit captions, given by the paths of their photos; results that are in the folder already are reused."""
    from sightline.jobs.job import run
    from sightline.jobs.job_photos import PhotoRef, mark_of
    from sightline.jobs.ledger import Ledger, RecordLog

    photos, texts_of = [], {}
    for path, texts in captions.items():
        id = f"{path}#{fingerprint(auditor, json_module.dumps(list(texts)))}"
        photos.append(PhotoRef(id, Path(path), mark_of(Path(path))))
        texts_of[id] = texts

    def work(batch: Sequence[Photo]) -> list[tuple[str, list[AuditJson]]]:
        audits = pipeline.audit_photos(batch, [texts_of[photo.id] for photo in batch], least=least)
        return [(photo.id, [audit.to_json() for audit in some]) for photo, some in zip(batch, audits, strict=True)]

    with lock(folder / "lock"), RecordLog(folder / "audits.log") as log, Ledger(folder / "ledger.jsonl") as ledger:
        report = run(photos, work, log, ledger, size=pipeline.size, batch=BATCH, progress=progress)
        return [audit for photo in photos for audit in log.records.get(photo.id, ())], report


def _lines(audit: AuditJson) -> str:
    """A caption, and a line for each noun that is not supported."""
    lines = [printable(f"{audit['path']}: {audit['caption']}")]
    for noun in audit["nouns"]:
        if not noun["supported"]:
            instead = f"; seen there: {', '.join(noun['instead'])}" if noun["instead"] else ""
            lines.append(f"  {printable(noun['word'])}: {noun['verdict']}{instead}")
    return "\n".join(lines)
