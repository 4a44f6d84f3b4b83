"""The files of `sightline caption`: which there are, and how they are written from the log of captions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.caption import PhotoCaption
from sightline.cli.caption_pictures import draw_picture
from sightline.errors import ConfigError, SightlineError
from sightline.export.caption_json import CaptionJson, caption_of, sentence
from sightline.export.caption_tables import csv_lines, json_array, json_lines
from sightline.export.gallery import page
from sightline.export.sidecar import sidecar_of, write_sidecar
from sightline.files import atomic_write, cache_dir, fingerprint, sweep
from sightline.jobs.caption_log import CaptionLog
from sightline.jobs.job_photos import GONE, Photo, id_of, mark_of
from sightline.vision.photo_reader import Progress

HIDDEN = ".sightline"
WHOLE = ("csv", "jsonl", "json", "html")  # one file of all captions
EACH = ("pictures", "xmp")  # a file of each photo
FORMATS = (*WHOLE, *EACH)


@dataclass(frozen=True)
class FileOptions:
    """Where captions go, and in what form.

    Attributes:
        formats: of `FORMATS`.
        out: the folder of all files but sidecars; None where only sidecars are wanted.
        force: do again what is done, and replace descriptions that others wrote into sidecars.
        apart: rewrite captions that are alike.
    """

    formats: frozenset[str]
    out: Path | None = None
    force: bool = False
    apart: bool = False

    def sweep(self, photos: Sequence[Photo]) -> None:
        """Remove what killed runs left half-written, in the folder of files and beside the photos."""
        folders = set() if self.out is None else {self.out}
        if "xmp" in self.formats:
            folders |= {Path(photo.id).parent for photo in photos}
        for folder in folders:
            sweep(folder)

    def place(self, made: str, sources: Sequence[str]) -> Path:
        """The folder of the log."""
        if self.out is not None:
            return self.out / HIDDEN
        return cache_dir() / "captions" / fingerprint(made, *map(id_of, sources))


@dataclass(frozen=True)
class Listeners:
    """Who is told what happens.

    Attributes:
        said: each caption that is new or has changed.
        bad: the error of a photo, or of a sidecar, that is left out.
        progress: from a title to a progress bar.
        end: all captions of the photos that were named, in order; also when interrupted.
    """

    said: Callable[[CaptionJson], None]
    bad: Callable[[SightlineError], None]
    progress: Callable[[str], Progress]
    end: Callable[[Iterable[CaptionJson]], None] | None = None


class Files:
    """The sink of the job: captions go to the log, and from there to files.

    Attributes:
        log: captions as they were first said.
        apart: those that were rewritten.
        photos: that were named.
        pictures: of those photos that have one.
    """

    def __init__(
        self, filing: FileOptions, log: CaptionLog, apart: CaptionLog, photos: Sequence[Photo], listeners: Listeners
    ) -> None:
        self.filing, self.log, self.apart, self.photos, self.listeners = filing, log, apart, photos, listeners
        self.pictures: list[Path] = []
        self._given = {photo.id: str(photo.path) for photo in photos}
        self._fresh: set[str] = set()  # captions whose files are to be written, whatever is there
        self._done: set[str] = set()  # photos whose files are written

    def __contains__(self, id: object) -> bool:
        return id in self.log

    def add(self, said: PhotoCaption) -> None:
        """Keep a caption, and write the files of its photo at once, unless it may change again."""
        self.log.add(said)
        self._fresh.add(id_of(said.path))
        if not self.filing.apart:
            self._write(id_of(said.path))

    def rewrite(self, said: PhotoCaption, mark: str) -> None:
        """Keep another caption of a photo; `mark` tells what it depends on."""
        self.apart.add(said, mark)
        self._fresh.add(id_of(said.path))

    def restore_first(self, ids: Iterable[str]) -> None:
        """Forget that captions were rewritten."""
        dropped = [id for id in ids if id in self.apart]
        self.apart.drop(dropped)
        self._fresh.update(dropped)

    def drop(self, ids: Iterable[str]) -> None:
        """Forget captions."""
        dropped = list(ids)
        self.log.drop(dropped)
        self.apart.drop(dropped)

    def flush(self) -> None:
        """Return when all are safe."""
        self.log.flush()
        self.apart.flush()

    def told(self, id: str) -> CaptionJson:
        """The caption that holds, its photo called as it was named now."""
        told = self.apart[id] if id in self.apart else self.log[id]
        return {**told, "path": self._given.get(id, told["path"])}

    def close(self) -> None:
        """Write what is not yet written. Where the log was deleted meanwhile, that is told, and nothing is written."""
        self.flush()
        for photo in self.photos:
            if photo.id in self.log:
                self._write(photo.id)
        if self.listeners.end is not None:
            self.listeners.end(self.told(photo.id) for photo in self.photos if photo.id in self.log)
        out, lines = self.filing.out, {"csv": csv_lines, "jsonl": json_lines, "json": json_array}
        for name in WHOLE:
            if out is not None and len(self.log) and name in self.filing.formats:
                pieces = page(self._all(), out) if name == "html" else lines[name](self._all())
                with atomic_write(out / f"captions.{name}") as file:
                    for piece in pieces:
                        file.write(piece.encode())

    def _all(self) -> Iterator[CaptionJson]:
        """The captions of this run, and of earlier ones whose photos are still there."""
        for id in self._given:
            if id in self.log:
                yield self.told(id)
        for id in self.log:
            if id not in self._given and mark_of(id) != GONE:
                yield self.told(id)

    def _write(self, id: str) -> None:
        """The files of one photo: those that are missing, or all where its caption is fresh."""
        if id in self._done:
            return
        self._done.add(id)
        told, fresh = self.told(id), id in self._fresh
        if fresh:
            self.listeners.said(told)
        picture = None if self.filing.out is None else self.filing.out / picture_name(self.log, id)
        if "pictures" in self.filing.formats and picture is not None:
            here = not fresh and _exists(picture)
            if here or draw_picture(caption_of(told), picture, self.listeners.bad):
                self.pictures.append(picture)
        if "xmp" in self.filing.formats and (fresh or not _exists(sidecar_of(id))):
            write_sidecar(id, sentence(told["caption"]), replace=self.filing.force, bad=self.listeners.bad)


def picture_name(log: CaptionLog, id: str) -> str:
    """What the picture of a photo is called."""
    return f"{log.name(id)}.captioned.jpg"


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where a name is too long


def formats_of(named: Sequence[str]) -> frozenset[str]:
    """Formats from options such as `csv,html`.

    >>> sorted(formats_of(["csv,HTML", "xmp"]))
    ['csv', 'html', 'xmp']
    """
    found = frozenset(name.strip().lower() for some in named for name in some.split(",") if name.strip())
    if unknown := sorted(found - set(FORMATS)):
        raise ConfigError(f"there is no format {unknown[0]!r}", fix=f"choose of {', '.join(FORMATS)}")
    return found
