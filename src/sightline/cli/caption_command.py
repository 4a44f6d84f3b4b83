"""`sightline caption`: what photos show, in a sentence each, with a box for every noun."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from sightline.cli.arguments import Arg
from sightline.cli.caption_display import CaptionDisplay
from sightline.cli.pipeline_work import FORMATS, CaptionOptions, CaptionWork, formats_of
from sightline.errors import ConfigError, DataError, SightlineError, printable

if TYPE_CHECKING:  # everything that brings PyTorch is imported once there is a photo to look at
    from sightline.caption import PhotoCaption
    from sightline.export.caption_tables import CaptionJson
    from sightline.jobs.job_photos import PhotoList
    from sightline.vision.photo_reader import Progress

OPENERS = {"Darwin": "open", "Windows": "explorer"}
STREAMS = {"csv": "csv_lines", "jsonl": "json_lines", "json": "json_array"}  # that can go to standard output


def caption(
    paths: Annotated[tuple[str, ...], Arg("PATH …")],
    *,
    out: Annotated[Path | None, Arg("DIR")] = None,
    format: Annotated[tuple[str, ...], Arg("NAME …", choices=FORMATS)] = (),
    length: Annotated[str, Arg("short|normal|long|N")] = "normal",
    must_include: Annotated[tuple[str, ...], Arg("WORD …")] = (),
    distinct: bool = False,
    style: Annotated[Path | None, Arg("FILE")] = None,
    force: bool = False,
    show: bool = False,
    beam: int = 3,
    model: Annotated[Path | None, Arg("FILE")] = None,
    device: str = "auto",
    threads: int | None = None,
    ray: Annotated[str | None, Arg("auto|ADDRESS")] = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Caption photos, and show where each noun is. Exit code 1 if no photo could be captioned.

        sightline caption photo.jpg
        sightline caption holiday/ 'more/*.jpg' --out captioned/
        sightline caption holiday/ --out captioned/ --format csv,html --distinct
        sightline caption holiday/ --format xmp

    Args:
        paths: photos, folders, patterns, or - for a list on standard input; also s3://bucket/photos, or parquet files.
        out: write files to this folder: each photo with its boxes, and captions.json, or what --format names. Run it
            again to go on, or after photos were added or changed.
        format: csv, jsonl, json, html, pictures, xmp (a sidecar beside each photo). csv and jsonl are printed where
            there is no --out.
        length: of captions: short, normal, long, or the most words.
        must_include: a word, phrase or name that every caption has: dog, "red ball", Anna, Rex=dog.
        distinct: rewrite captions that are alike, so that each tells its photo from the others.
        style: an r2m model trained on your own text, whose words are used; or the folder of its run.
        force: do again what is done, and replace descriptions in sidecars that others wrote.
        show: open the photos with their boxes; where there is no screen, print the boxes.
        beam: hypotheses that are followed at once; 1 is fastest.
        model: a model file, or the folder of a run, instead of the one that comes with Sightline.
        threads: that the CPU computes with; with --ray, CPUs of each worker.
        json: print one JSON array, an object for each photo.
        quiet: print no captions and no progress.
    """
    if not paths:
        raise ConfigError("no photo was named", fix="name photos or folders: `sightline caption photo.jpg`")
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError("this is a file, and pictures go to a folder", where=out, fix="name another with --out")
    options = CaptionOptions(model, style, beam, length, must_include)
    named = _formats(format, out, json)
    if ray is not None and out is None and "xmp" not in named:
        raise ConfigError("--ray works on files, which can be gone on with", fix="name a folder for them with --out")
    from sightline.jobs.job_photos import find_named_photos, has_file

    folders = [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 - any text may be a path
    found = find_named_photos(paths)
    beside = sorted(named & {"xmp", "html"})
    if beside and (lone := next((photo for photo in found.photos if not has_file(photo)), None)):
        raise ConfigError(f"{beside[0]} needs photos that are files", where=lone.path, fix="use json, csv or pictures")
    output = _Output(found, CaptionWork(options, device, threads), json, quiet, show)
    if out is None and named <= set(STREAMS):
        done = output.stream(next(iter(named), "json" if json else ""), distinct)
    else:
        done = output.file(paths, named, out, force, distinct, ray)
    output.end()
    if gone := [folder for folder in folders if not os.path.isdir(folder)]:  # noqa: PTH112
        raise DataError("this folder was deleted while its photos were read", where=gone[0], fix="put it back")
    return 0 if done else 1


def _formats(format: tuple[str, ...], out: Path | None, json: bool) -> frozenset[str]:
    """The formats to write. One that has nowhere to go is an error."""
    if not format:
        return frozenset() if out is None else frozenset(("pictures", "json"))
    named = formats_of(format)
    if out is None and (homeless := sorted(named - {"xmp"})) and (len(named) > 1 or homeless[0] not in STREAMS or json):
        raise ConfigError(
            f"{homeless[0]} has no place to go", fix="name a folder with --out, or ask for csv or jsonl alone"
        )
    return named


class _Output:
    """What the command tells while it works: lines on standard output, everything else on standard error."""

    def __init__(self, found: PhotoList, work: CaptionWork, json: bool, quiet: bool, show: bool) -> None:
        self.found, self.work, self.json, self.quiet, self.show = found, work, json, quiet, show
        self.opener = viewer() if show else None
        self.pictures: list[Path] = []
        self.display = CaptionDisplay(quiet)
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.changes: list[tuple[str, str, str]] = []
        self.alike = 0
        self.count = 0
        self.stop: BaseException | None = None

    def stream(self, form: str, distinct: bool) -> int:
        """Print captions as they come, keeping none, and return how many."""
        captions = self._captions(distinct, sys.stderr if form else self.display.stdout)
        try:
            with self.display:
                if form:
                    _print(form, (caption.to_json() for caption in captions), self.display)
                else:
                    for caption in captions:
                        self.display.caption(caption.path, caption.text)
            if self.stop is not None:
                raise self.stop
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Interrupted. With --out DIR, the same command could go on.") from None
        return self.count

    def _captions(self, distinct: bool, tables: TextIO) -> Iterator[PhotoCaption]:
        """The captions, with pictures or tables of their boxes where they are to be shown.

        What stops them ends them, and is kept in `stop`: so what is printed by then is a whole array.
        """
        if not self.found.photos:
            return
        from sightline.cli.caption_folder import Pictures

        pictures = Pictures(Path(tempfile.mkdtemp(prefix="sightline-"))) if self.opener is not None else None
        try:
            pipeline, options, progress = self.work.load(), self.work.options, self.display.progress("captioning")
            paths, bad = [photo.path for photo in self.found.photos], self.found.problems.append
            captions = pipeline.caption_many(
                paths, beam=options.beam, rules=options.rules(), bad=self._leave_out, progress=progress
            )
            for caption in self._told_apart(captions) if distinct else captions:
                self.count += 1
                if not distinct:
                    self.display.step()
                self._warn(caption.path, caption.warning)
                if pictures is not None:
                    pictures.draw(caption, bad)
                    self.pictures = pictures.written
                yield caption
                if self.show and self.opener is None:
                    self._print_boxes(caption.to_json(), tables)
        except GeneratorExit:
            raise
        except BaseException as error:  # also SystemExit, by which a signal ends the command
            self.stop = error

    def _leave_out(self, error: SightlineError) -> None:
        self.found.problems.append(error)
        self.display.step()

    def _told_apart(self, captions: Iterable[PhotoCaption]) -> list[PhotoCaption]:
        from sightline.distinct_captions import alike, tell_apart

        first = []
        for caption in captions:
            self.display.step()
            first.append(caption)
        rules, bad = self.work.options.rules(), self.found.problems.append
        apart = tell_apart(self.work.load(), first, rules=rules, bad=bad)
        self.changes = [(a.path, a.text, b.text) for a, b in zip(first, apart, strict=True) if a.text != b.text]
        self.alike = sum(map(len, alike([() if caption.warning else caption.words for caption in first])))
        return apart

    def file(
        self,
        sources: tuple[str, ...],
        named: frozenset[str],
        out: Path | None,
        force: bool,
        distinct: bool,
        ray: str | None,
    ) -> int:
        """Write captions to files, and return how many photos have one."""
        if not self.found.photos:
            if self.json:
                _print("json", (), self.display)
            return 0
        from sightline.cli.caption_folder import FileOptions, Listeners, file_captions
        from sightline.jobs.cluster import executor_of

        tables = sys.stderr if self.json else self.display.stdout

        def show(record: CaptionJson) -> None:
            self._warn(record["path"], record.get("warning", ""))
            if not self.json:
                self.display.caption(record["path"], record["caption"])
            if self.show and self.opener is None:
                self._print_boxes(record, tables)

        def bar(title: str) -> Progress:
            return self.display.progress(title, by_path=title != "captioning")

        end = (lambda records: _print("json", records, self.display)) if self.json else None
        listeners = Listeners(show, self.found.problems.append, bar, self.display.step, end)
        filing = FileOptions(named | ({"pictures"} if self.opener else set()), out, force, distinct)
        with self.display, executor_of(ray, self.work.threads, self.work.device) as executor:
            files = file_captions(self.found.photos, sources, self.work, filing, listeners, executor)
        self.pictures, report, forgot = files.pictures, files.report, files.log.forgot
        self.changes, self.alike = files.changes, files.alike
        if report.kept:
            self.notes.append(f"{report.made:,} captioned now, {report.kept:,} done before")
        if forgot:
            many = "caption" if forgot == 1 else "captions"
            self.notes.append(f"dropped {forgot:,} {many} of another model or other settings")
        return report.made + report.kept

    def _warn(self, path: str, warning: str) -> None:
        if warning:
            self.warnings.append(f"{path}: {warning}")

    def _print_boxes(self, caption: CaptionJson, tables: TextIO) -> None:
        from sightline.export.caption_tables import box_table

        self.display.print(box_table(caption["words"]), tables)

    def end(self) -> None:
        """Print what was left out and why, and where the pictures are; open them if asked to."""
        if self.opener is not None and self.pictures:
            open_with(self.opener, self.pictures[0] if len(self.pictures) == 1 else self._folder())
        if self.found.problems:
            from sightline.vision.photo_reader import left_out

            print(left_out(self.found.problems), file=sys.stderr)
        elif not self.found.photos:
            print("No photo was found there. To fix: name photos, or a folder that has some.", file=sys.stderr)
        for line in self.warnings:
            print(f"Warning: {printable(line)}.", file=sys.stderr)
        if self.quiet:
            return
        for line in (*self._changes(), *self.notes):
            print(printable(line), file=sys.stderr)
        if self.pictures:
            many = "1 picture is" if len(self.pictures) == 1 else f"{len(self.pictures):,} pictures are"
            print(f"{many} in {printable(self._folder())}", file=sys.stderr)

    def _changes(self) -> Iterator[str]:
        """What `--distinct` rewrote, a line a photo."""
        if self.alike:
            yield f"{self.alike:,} captions were alike; rewritten: {len(self.changes):,}"
        for path, before, after in self.changes:
            yield f"  {path}: {before} -> {after}"

    def _folder(self) -> Path:
        """The folder that the pictures are in, or in folders of."""
        return Path(os.path.commonpath([picture.parent for picture in self.pictures]))


def _print(form: str, captions: Iterable[CaptionJson], display: CaptionDisplay) -> None:
    from sightline.export import caption_tables

    begun = ""
    for piece in getattr(caption_tables, STREAMS[form])(captions):
        whole, newline, begun = f"{begun}{piece}".rpartition("\n")
        if newline:
            display.print(whole)


def viewer() -> str | None:
    """The program that opens a picture or folder on the screen; None where there is no screen."""
    system = platform.system()
    if system not in OPENERS and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    return shutil.which(OPENERS.get(system, "xdg-open"))


def open_with(program: str, path: Path) -> None:
    """Open a picture or folder, and do not wait for it."""
    nowhere = subprocess.DEVNULL
    subprocess.Popen([program, str(path)], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
