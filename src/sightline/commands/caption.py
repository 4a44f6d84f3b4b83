"""`sightline caption`: what photos show, in a sentence each, with a box for every noun."""

from __future__ import annotations

import gc
import json as json_module
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import tyro

from sightline.commands.captioned_pictures import Pictures, boxes_told, open_with, viewer
from sightline.errors import ConfigError
from sightline.files import write_json
from sightline.vision.walk import Walk, find_photos

if TYPE_CHECKING:  # everything that brings PyTorch is imported once there is a photo to look at
    from sightline.caption import PhotoCaption


def caption(
    paths: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH …")],
    *,
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    show: bool = False,
    beam: int = 3,
    model: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    device: str = "auto",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Caption photos, and show where each noun is. Exit code 1 if no photo could be captioned.

    sightline caption photo.jpg
    sightline caption holiday/ 'more/*.jpg' --out captioned/

    Args:
        paths: photos, folders, patterns, or - for a list on standard input.
        out: write each photo with its boxes, and captions.json, to this folder.
        show: open the photos with their boxes; where there is no screen, print the boxes.
        beam: hypotheses that are followed at once; 1 is fastest.
        model: a model file, instead of the one that comes with Sightline.
        device: auto, cpu, cuda, cuda:1 or mps.
        threads: that the CPU computes with.
        json: print one JSON array, an object for each photo.
        quiet: print no captions and no progress.
    """
    if not paths:
        raise ConfigError("no photo was named", fix="name photos or folders: `sightline caption photo.jpg`")
    if beam < 1:
        raise ConfigError(f"`beam` is {beam}", fix="give 1 or more")
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError("this is a file, and pictures go to a folder", where=out, fix="name another with --out")
    found, opener, done = find_photos(paths), viewer() if show else None, list["PhotoCaption"]()
    pictures = None
    if out is not None or opener is not None:
        pictures = Pictures(Path(tempfile.mkdtemp(prefix="sightline-")) if out is None else out)
    with ExitStack() as at_the_end:  # also when interrupted: what is done is kept
        if json:
            at_the_end.callback(_print_json, done, sys.stdout)
        if out is not None:
            at_the_end.callback(_write_json, done, out / "captions.json")
        lines = None if json or quiet else sys.stdout  # as it is now: a progress bar takes its place
        tables = sys.stderr if json else sys.stdout
        for said in _captions(found, model, device, threads, beam, bar=_wants_bar(json, quiet)):
            done.append(said)
            if pictures is not None:
                pictures.draw(said, bad=found.problems.append)
            if lines is not None:
                print(f"{said.path}: {said}", file=lines, flush=True)
            if show and opener is None:
                print(boxes_told(said), file=tables, flush=True)
    if opener is not None and pictures is not None and pictures.written:
        open_with(opener, pictures.to_open())
    _tell(found, len(done), pictures, quiet)
    return 0 if done else 1


def _captions(
    found: Walk, model: Path | None, device: str, threads: int | None, beam: int, bar: bool
) -> Iterator[PhotoCaption]:
    if not found.photos:
        return
    gc.disable()  # what imports make is there to stay, and looking for garbage in it takes a tenth of the start
    try:
        from sightline.api import load
        from sightline.vision.reading import progress_bar

        sight = load(model, device, threads)
    finally:
        gc.freeze()
        gc.enable()
    progress = progress_bar("captioning") if bar else iter
    yield from sight.caption_many(found.photos, beam=beam, bad=found.problems.append, progress=progress)


def _wants_bar(json: bool, quiet: bool) -> bool:
    """Lines that appear on a terminal are progress enough."""
    return sys.stderr.isatty() and not quiet and (json or not sys.stdout.isatty())


def _print_json(done: list[PhotoCaption], stdout: TextIO) -> None:
    told = [json_module.dumps(said.to_json(), ensure_ascii=False, allow_nan=False) for said in done]
    print("[" + ",\n ".join(told) + "]", file=stdout, flush=True)


def _write_json(done: list[PhotoCaption], path: Path) -> None:
    if done:
        write_json(path, [said.to_json() for said in done], indent=1)


def _tell(found: Walk, done: int, pictures: Pictures | None, quiet: bool) -> None:
    """At the end, on standard error: what was left out and why, and where pictures are."""
    if found.problems:
        from sightline.vision.reading import left_out

        print(left_out(found.problems), file=sys.stderr)
    elif not found.photos:
        print("No photo was found there. To fix: name photos, or a folder that has some.", file=sys.stderr)
    if pictures is not None and done and not quiet:
        many = "1 picture is" if len(pictures.written) == 1 else f"{len(pictures.written):,} pictures are"
        print(f"{many} in {pictures.folder}", file=sys.stderr)
