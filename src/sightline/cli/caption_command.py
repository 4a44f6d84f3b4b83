"""`sightline caption`: what photos show, in a sentence each, with a box for every noun."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sightline.cli.caption_display import STREAMS, CaptionDisplay
from sightline.cli.console import Arg, Folder, ModelFile, RayAddress
from sightline.cli.pipeline_work import CaptionWork
from sightline.errors import ConfigError, DataError, SightlineError

if TYPE_CHECKING:  # everything that brings PyTorch is imported once there is a photo to look at
    from sightline.export.caption_tables import CaptionJson
    from sightline.jobs.job_photos import PhotoRef

FORMATS = ("csv", "jsonl", "json", "html", "pictures", "xmp")
OPENERS = {"Darwin": "open", "Windows": "explorer"}


def caption(
    paths: Annotated[tuple[str, ...], Arg("PATH …")],
    *,
    out: Folder = None,
    format: Annotated[tuple[str, ...], Arg("NAME …", choices=FORMATS)] = (),
    length: Annotated[str, Arg("short|normal|long|N")] = "normal",
    must_include: Annotated[tuple[str, ...], Arg("WORD …")] = (),
    distinct: bool = False,
    style: ModelFile = None,
    force: bool = False,
    show: bool = False,
    beam: int = 5,
    model: ModelFile = None,
    device: str = "auto",
    threads: int | None = None,
    ray: RayAddress = None,
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
        json: print one JSON array, an object for each photo.
    """
    if not paths:
        raise ConfigError("no photo was named", fix="name photos or folders: `sightline caption photo.jpg`")
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError("this is a file, and pictures go to a folder", where=out, fix="name another with --out")
    work = CaptionWork(model, device, threads, style, beam, length, must_include)
    formats = _formats(format, out, json)
    if ray is not None and out is None and "xmp" not in formats:
        raise ConfigError("--ray works on files, which can be gone on with", fix="name a folder for them with --out")
    from sightline.jobs.job_photos import find_named_photos, has_file

    folders = [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 - any text may be a path
    photos, problems = find_named_photos(paths)
    beside = sorted(formats & {"xmp", "html"})
    if beside and (lone := next((photo for photo in photos if not has_file(photo)), None)):
        raise ConfigError(f"{beside[0]} needs photos that are files", where=lone.path, fix="use json, csv or pictures")
    streams = out is None and formats <= set(STREAMS)
    opener = viewer() if show else None
    form = "json" if json else "".join(formats) if streams else ""
    display = CaptionDisplay(problems, form, quiet, boxes=show and opener is None, files=not streams)
    try:
        if not photos or (streams and opener is None and not distinct):
            count = _stream(photos, work, display)
        else:
            from sightline.cli.caption_folder import FileOptions, file_captions
            from sightline.jobs.cluster import executor_of

            with ExitStack() as stack:
                if streams:  # a folder for this run alone, which stays where pictures in it are opened
                    out, formats = Path(tempfile.mkdtemp(prefix="sightline-")), frozenset()
                    if opener is None:
                        stack.callback(shutil.rmtree, out, ignore_errors=True)
                filing = FileOptions(formats | ({"pictures"} if opener else set()), out, force, distinct)
                executor = stack.enter_context(executor_of(ray, threads, device))
                with display:
                    count = file_captions(photos, paths, work, filing, display, executor)
    except KeyboardInterrupt:
        if streams:
            raise KeyboardInterrupt("Interrupted. With --out DIR, the same command could go on.") from None
        raise
    if opener is not None and display.pictures:  # it is not waited for
        shown, nowhere = display.pictures[0] if len(display.pictures) == 1 else display.folder, subprocess.DEVNULL
        subprocess.Popen([opener, shown], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    display.end(len(photos))
    if gone := [folder for folder in folders if not os.path.isdir(folder)]:  # noqa: PTH112
        raise DataError("this folder was deleted while its photos were read", where=gone[0], fix="put it back")
    return 0 if count else 1


def _formats(names: tuple[str, ...], out: Path | None, json: bool) -> frozenset[str]:
    """The formats to write, in whatever case they are named. One that has nowhere to go is an error."""
    if not names:
        return frozenset() if out is None else frozenset(("pictures", "json"))
    formats = frozenset(map(str.lower, names))
    if unknown := sorted(formats - set(FORMATS)):
        raise ConfigError(f"there is no format {unknown[0]!r}", fix=f"choose of {', '.join(FORMATS)}")
    files = sorted(formats - {"xmp"})  # sidecars go beside the photos, and one table may go to standard output
    if out is None and files and (len(formats) > 1 or files[0] not in STREAMS or json):
        fix = "name a folder with --out, or ask for csv or jsonl alone"
        raise ConfigError(f"{files[0]} has no place to go", fix=fix)
    return formats


def _stream(photos: Sequence[PhotoRef], work: CaptionWork, display: CaptionDisplay) -> int:
    """Print each caption once it is made, without keeping any, and return how many there were."""
    records = _records(photos, work, display)
    with display:
        if display.form:
            display.print_data(records)
        for _ in records:  # each is shown as it comes
            pass
    return display.count


def _records(photos: Sequence[PhotoRef], work: CaptionWork, display: CaptionDisplay) -> Iterator[CaptionJson]:
    """Load the model and caption the photos; each caption is shown, then yielded as JSON."""
    if not photos:
        return

    def leave_out(error: SightlineError) -> None:
        display.problems.append(error)
        display.step()

    paths, bar = [photo.path for photo in photos], display.progress("captioning")
    for caption in work.load().caption_many(paths, beam=work.beam, rules=work.rules(), bad=leave_out, progress=bar):
        display.step()
        record = caption.to_json()
        display.caption(record)
        yield record


def viewer() -> str | None:
    """The program that opens a picture or folder on the screen; None where there is no screen."""
    system = platform.system()
    if system not in OPENERS and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    return shutil.which(OPENERS.get(system, "xdg-open"))
