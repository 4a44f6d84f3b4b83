"""`sightline ground`: where in a photo the things are that a sentence names."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sightline.cli.arguments import Arg
from sightline.errors import ConfigError
from sightline.export.caption_tables import box_table
from sightline.files import atomic_write

if TYPE_CHECKING:
    from sightline.grounding.evidence import Grounding

PICTURES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}


def ground(
    photo: Path,
    sentence: str,
    *,
    out: Annotated[Path | None, Arg("FILE")] = None,
    model: Annotated[Path | None, Arg("FILE")] = None,
    device: str = "auto",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Show where in a photo each noun of a sentence is, and how sure that is. Exit code 1 if no noun is anywhere.

        sightline ground photo.jpg "a dog with a red ball"
        sightline ground photo.jpg "a dog with a red ball" --out boxes.jpg

    Args:
        photo: a file.
        sentence: what to look for.
        out: write the photo with its boxes to this file.
        quiet: print nothing: the exit code, and --out, tell.
    """
    if out is not None and out.suffix.lower() not in PICTURES:
        raise ConfigError(f"{out.name!r} has no ending of a picture", where=out, fix=f"use {', '.join(PICTURES)}")
    if not sentence.strip():
        raise ConfigError("the sentence is empty", fix="say what to look for")
    from sightline.pipeline import load

    grounding = load(model, device, threads).ground(photo, sentence)
    if out is not None:
        _draw(grounding, out)
    if json:
        print(json_module.dumps(grounding.to_json(), ensure_ascii=False, allow_nan=False))
    elif not quiet:
        print(box_table(grounding.to_json()["words"], "No noun of the sentence points anywhere.", indent=""))
    return 0 if any(trace.box is not None for trace in grounding.trace) else 1


def _draw(grounding: Grounding, out: Path) -> None:
    from sightline.draw.photo_boxes import words_on_boxes
    from sightline.vision.images import open_image

    picture = words_on_boxes(open_image(grounding.path), grounding)
    with atomic_write(out) as file:
        picture.save(file, PICTURES[out.suffix.lower()], quality=92)
