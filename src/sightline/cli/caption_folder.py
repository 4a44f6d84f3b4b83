"""Captions that go to files: made once, kept in a log, and written from it in every format that is asked for.

`OUT/.sightline` holds the log of captions and the ledger of photos; sidecars without an OUT have theirs in the user's
cache. A run does the photos that are new or changed, then writes the files anew, each whole or not at all. It
replaces no file of OUT that Sightline did not write, which a second ledger tells.
"""

import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sightline.caption import PhotoCaption
from sightline.cli.caption_display import CaptionDisplay
from sightline.cli.pipeline_work import BATCH, CaptionWork
from sightline.errors import ConfigError, DataError, NameTooLongError, SightlineError, plural
from sightline.export.caption_tables import TABLES, CaptionJson, caption_of, csv_lines, html_page, sentence
from sightline.export.sidecar import sidecar_of, write_sidecar
from sightline.files import atomic_write, cache_dir, fingerprint, hold_interrupts, lock, sweep
from sightline.jobs.job import Executor, run
from sightline.jobs.job_photos import GONE, PhotoRef, id_of, mark_of, top_of
from sightline.jobs.ledger import CaptionLog, FileLedger, FileRecord, Ledger
from sightline.vision.find_photos import DRAWN, OUTPUT, WRITTEN

PAGE = "html"
SHOWN = 3  # names of pictures that a line has


@dataclass(frozen=True)
class FileOptions:
    """Where captions go, and in what form."""

    formats: frozenset[str]  # of `sightline.cli.caption_command.FORMATS`
    out: Path | None = None  # the folder of all files but sidecars; None where only sidecars are wanted
    force: bool = False  # do again what is done, and replace descriptions that others wrote into sidecars
    distinct: bool = False  # rewrite captions that are alike


@dataclass(eq=False)
class Files:
    """The sink of the job: captions go to the log, and from there to files."""

    filing: FileOptions
    log: CaptionLog  # the captions as they were first said
    rewrites: CaptionLog  # those that `--distinct` rewrote
    own: FileLedger  # the files of the folder that Sightline wrote
    photos: Sequence[PhotoRef]
    display: CaptionDisplay
    _fresh: set[str] = field(default_factory=set)  # captions whose files are to be written, whatever is there
    _written: set[str] = field(default_factory=set)  # photos whose sidecars are written; pictures may be under way

    def __post_init__(self) -> None:
        self._paths = {photo.id: str(photo.path) for photo in self.photos}

    def __contains__(self, id: object) -> bool:
        return id in self.log

    def add(self, caption: PhotoCaption) -> None:
        """Keep a caption, and write the files of its photo at once, unless it may change again."""
        self.log.add(caption)
        self._fresh.add(id_of(caption.path))
        self.display.step()
        if not self.filing.distinct:
            self._write(id_of(caption.path))

    def rewrite(self, caption: PhotoCaption, mark: str) -> None:
        """Keep another caption of a photo; `mark` tells what it depends on."""
        self.rewrites.add(caption, mark)
        self._fresh.add(id_of(caption.path))

    def restore_first(self, ids: Iterable[str]) -> None:
        """Go back to the first captions of photos that were rewritten."""
        dropped = [id for id in ids if id in self.rewrites]
        self.rewrites.drop(dropped)
        self._fresh.update(dropped)

    def drop(self, ids: Iterable[str]) -> None:
        dropped = list(ids)
        self.log.drop(dropped)
        self.rewrites.drop(dropped)

    def flush(self) -> None:
        self.log.flush()
        self.rewrites.flush()

    def caption_json(self, id: str) -> CaptionJson:
        """The present caption of a photo, with the path by which this run knows it."""
        record = self.rewrites[id] if id in self.rewrites else self.log[id]
        return {**record, "path": self._paths.get(id, record["path"])}

    def close(self) -> None:
        """Write the files that are still missing. If the log was deleted meanwhile, raise, and write nothing.

        Pictures take long, and may be interrupted; sidecars and tables are written in any case, and so tell the same.
        """
        self.flush()
        ids = [photo.id for photo in self.photos if photo.id in self.log]
        try:
            for id in ids:
                self._write(id)
        finally:
            with hold_interrupts():
                for id in ids:
                    if id not in self._written:
                        self._describe(id)
                self._write_tables()
        if self.display.form:
            self.display.print_data(map(self.caption_json, ids))

    def _write_tables(self) -> None:
        out, pictures = self.filing.out, "pictures" in self.filing.formats
        if out is None or not len(self.log):
            return
        tables: dict[str, Callable[[Iterator[CaptionJson]], Iterable[str]]] = {
            **TABLES,
            "csv": partial(csv_lines, pictures=pictures),
            PAGE: partial(html_page, folder=out),
        }
        for name, table in tables.items():
            if name in self.filing.formats:
                self.own.record(table_name(name))
                self.own.flush()
                with atomic_write(out / table_name(name)) as file:
                    file.writelines(piece.encode() for piece in table(self._all(pictures)))

    def _all(self, pictures: bool) -> Iterator[CaptionJson]:
        """The captions of this run, and of earlier ones whose photos are still there; and where their pictures are."""
        ids = [id for id in self._paths if id in self.log]
        ids += [id for id in self.log if id not in self._paths and mark_of(id) != GONE]
        for id in ids:
            record, name = self.caption_json(id), picture_name(self.log, id)
            if pictures and self._is_shown(record, name) and _exists(self.own.folder / name):
                record["picture"] = name
            yield record

    def _is_shown(self, record: CaptionJson, name: str) -> bool:
        """True if the picture of that name was drawn with this caption."""
        return name in self.own and self.own[name].caption == caption_mark(record)

    def other_files(self, changed: bool) -> Iterator[str]:
        """Lines about files of earlier runs: tables that lack what has changed, and pictures that show what was."""
        wanted = set(map(table_name, self.filing.formats))
        tables = sorted(name for name in self.own if not self.own[name].photo and name not in wanted)
        if changed and tables:
            yield f"{' and '.join(tables)} stayed as an earlier run wrote {'it' if len(tables) == 1 else 'them'}"
        gone, old = list[str](), list[str]()
        for name in self.own:
            if id := self.own[name].photo:
                if id not in self._paths and mark_of(id) == GONE:
                    gone.append(name)
                elif id not in self.log or not self._is_shown(self.caption_json(id), name):
                    old.append(name)
        for names, what in ((gone, "photos that are gone"), (old, "earlier captions")):
            if names:
                more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
                yield f"{plural(len(names), 'picture')} of {what} stayed: {', '.join(names[:SHOWN])}{more}"

    def _write(self, id: str) -> None:
        """Write the files of one photo: all if its caption is new, else those that are missing."""
        if id in self._written:
            return
        record, fresh = self.caption_json(id), id in self._fresh
        if fresh:
            self.display.caption(record)
        self._describe(id)
        self._written.add(id)
        if "pictures" in self.filing.formats and self.filing.out is not None:
            self._draw(id, record, fresh)

    def _draw(self, id: str, record: CaptionJson, fresh: bool) -> None:
        """Draw a photo, unless its picture is there; a file in its place that Sightline did not write stays."""
        name = picture_name(self.log, id)
        picture = self.own.folder / name
        if not fresh and self._is_shown(record, name) and _exists(picture):
            self.display.pictures.append(picture)
        elif self.own.is_foreign(name):
            what = f"this file is not known to be Sightline's, and stays; {record['path']} has no picture"
            fix = "name another folder with --out, or move this file away"
            self.display.problems.append(DataError(what, where=picture, fix=fix))
        else:
            self.own.record(name, id)
            self.own.flush()
            if draw_picture(caption_of(record), picture, self.display):
                self.own.record(name, id, caption_mark(record))

    def _describe(self, id: str) -> None:
        if "xmp" in self.filing.formats and (id in self._fresh or not _exists(sidecar_of(id))):
            text = sentence(self.caption_json(id)["caption"])
            write_sidecar(id, text, replace=self.filing.force, bad=self.display.problems.append)


def file_captions(
    named: Sequence[PhotoRef],
    sources: Sequence[str],
    work: CaptionWork,
    filing: FileOptions,
    display: CaptionDisplay,
    executor: Executor,
) -> int:
    """Caption photos found in `sources`, write the files, also when interrupted, and return how many have a caption."""
    maker, out = work.fingerprint(), filing.out
    place = out / OUTPUT if out else cache_dir() / "captions" / fingerprint(maker, *map(id_of, sources))
    if out and not place.exists():  # nothing is made in the folder of something else
        _refuse_tables(filing, out, ())
    with (
        lock(place / "lock"),
        CaptionLog(place / "captions.jsonl", maker, top_of(sources)) as log,
        CaptionLog(place / "distinct.jsonl", maker) as rewrites,
        Ledger(place / "ledger.jsonl") as ledger,
        FileLedger(place / WRITTEN, out or place) as own,
    ):
        if out and not own.has_lines:
            own.adopt(_files_of_before(own, log, rewrites))
        _refuse_tables(filing, own.folder, own)
        drawn = {id_of(own.folder / name) for name in own}
        photos = [photo for photo in named if photo.id not in drawn]  # no pictures that an earlier run drew there
        _sweep(photos, filing, log)
        try:
            with closing(Files(filing, log, rewrites, own, photos, display)) as files:
                if filing.force:
                    files.drop(photo.id for photo in photos)
                if not filing.distinct:
                    files.restore_first(list(rewrites))
                bar, size = display.progress("captioning"), lambda: work.load().size
                report = run(photos, work, files, ledger, size=size, batch=BATCH, progress=bar, executor=executor)
                display.problems += report.bad
                if filing.distinct:
                    _rewrite(files, work, ledger)
        except KeyboardInterrupt:
            count = sum(photo.id in log for photo in photos)
            done = f"{count:,} of {len(photos):,} photos are done and written"
            raise KeyboardInterrupt(f"Interrupted. {done}; run the same command again to go on.") from None
        if report.kept:
            display.notes.append(f"{report.made:,} captioned now, {report.kept:,} done before")
        if log.forgot:
            display.notes.append(f"dropped {plural(log.forgot, 'caption')} of another model or other settings")
        display.notes += files.other_files(changed=bool(report.made or log.forgot))
    return report.made + report.kept


def _files_of_before(own: FileLedger, log: CaptionLog, rewrites: CaptionLog) -> dict[str, FileRecord]:
    """What a Sightline that kept no ledger of files wrote: where photos have names, so have pictures."""
    names, files = list(log.names()), dict[str, FileRecord]()
    for id, _ in names:
        if own.is_foreign(name := picture_name(log, id)):
            said = rewrites if id in rewrites else log
            files[name] = FileRecord(id, caption_mark(said[id]) if id in said else "")
    tables = map(table_name, (*TABLES, PAGE))
    return files | {name: FileRecord() for name in tables if names and own.is_foreign(name)}


def _refuse_tables(filing: FileOptions, folder: Path, own: Container[str]) -> None:
    """Refuse to replace a table that is there and is none of Sightline's `own`."""
    for name in map(table_name, sorted(filing.formats.intersection((*TABLES, PAGE)))):
        if name not in own and os.path.lexists(folder / name):
            what = "this file is not known to be Sightline's, and would be replaced"
            fix = "name another folder with --out, or move this file away"
            raise ConfigError(what, where=folder / name, fix=fix)


def _sweep(photos: Sequence[PhotoRef], filing: FileOptions, log: CaptionLog) -> None:
    """Remove what killed runs left half-written, in the folders of files and beside the photos."""
    folders = set() if filing.out is None else {filing.out}
    if filing.out is not None and "pictures" in filing.formats:
        folders |= {(filing.out / picture_name(log, photo.id)).parent for photo in photos}
    if "xmp" in filing.formats:
        folders |= {Path(photo.id).parent for photo in photos}
    for folder in folders:
        sweep(folder)


def _rewrite(files: Files, work: CaptionWork, ledger: Ledger) -> None:
    """The second pass of `--distinct`: rewrite captions that are alike. Groups that have not changed keep theirs."""
    from sightline.distinct_captions import alike, gist, tell_group_apart

    display = files.display
    ids = [photo.id for photo in files.photos if photo.id in files.log]
    records = (files.log[id] for id in ids)  # what shows nothing has a warning, and is not rewritten
    words = ["" if "warning" in record else record["caption"] for record in records]
    groups = [[ids[place] for place in group] for group in alike([text.split() for text in words])]
    marks: dict[str, str] = {}  # fingerprints of the photos of each group, which change when one of them does
    for group in groups:
        marks |= dict.fromkeys(group, fingerprint(*(f"{id} {ledger.get(id)}" for id in sorted(group))))
    files.restore_first(id for id in list(files.rewrites) if files.rewrites.mark(id) != marks.get(id))
    groups = [group for group in groups if not all(id in files.rewrites for id in group)]
    again = {id for group in groups for id in group}
    if not again:
        return
    files.restore_first(again)
    display.alike = len(again)
    display.begin("telling apart", len(again))
    taken = {gist(files.caption_json(id)["caption"].split()) for id in files.log if id not in again}
    for group in groups:
        captions = [caption_of(files.caption_json(id)) for id in group]
        rewritten = tell_group_apart(work.load(), captions, taken, work.rules(), bad=display.problems.append)
        with hold_interrupts():
            for before, after in zip(captions, rewritten, strict=True):
                files.rewrite(after, marks[group[0]])
                if after.text != before.text:
                    display.changes.append((before.path, before.text, after.text))
                display.step()
            files.flush()


def draw_picture(caption: PhotoCaption, path: Path, display: CaptionDisplay) -> bool:
    """Draw a photo with its boxes; False, and a problem, if it cannot be read or its picture has too long a name."""
    from sightline.draw.photo_boxes import words_on_boxes
    from sightline.vision.images import open_image

    try:
        photo = open_image(caption.path)
    except SightlineError as error:
        display.problems.append(error)
        return False
    picture = words_on_boxes(photo, caption)
    try:
        with atomic_write(path) as file:
            picture.save(file, "JPEG", quality=92, subsampling=0)  # PNG would take longer than the caption
    except NameTooLongError as error:
        display.problems.append(error)
        return False
    display.pictures.append(path)
    return True


def picture_name(log: CaptionLog, id: str) -> str:
    return f"{log.name(id)}{DRAWN}jpg"


def table_name(format: str) -> str:
    return f"captions.{format}"


def caption_mark(record: CaptionJson) -> str:
    """By which another caption of a photo is noticed, or other boxes, but not another way to the photo."""
    return fingerprint(json.dumps({**record, "path": "", "picture": ""}))


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where a name is too long
