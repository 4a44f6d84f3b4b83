"""`sightline ground`: where in a photo the things are that a sentence names."""

from pathlib import Path
from typing import Annotated

from sightline.cli.console import Arg, ModelFile, show
from sightline.errors import ConfigError
from sightline.files import atomic_write, refuse_to_replace

PICTURES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}


def ground(
    photo: Path,
    sentence: str,
    *,
    out: Annotated[Path | None, Arg("FILE")] = None,
    model: ModelFile = None,
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
    """
    if out is not None and out.suffix.lower() not in PICTURES:
        raise ConfigError(f"{out.name!r} has no ending of a picture", where=out, fix=f"use {', '.join(PICTURES)}")
    if out is not None:
        refuse_to_replace(out, [photo])
    if not sentence.strip():
        raise ConfigError("the sentence is empty", fix="say what to look for")
    from sightline.draw.photo_boxes import words_on_boxes
    from sightline.export.caption_tables import box_table
    from sightline.pipeline import load

    grounding = load(model, device, threads).ground(photo, sentence)
    if out is not None:
        picture = words_on_boxes(photo, grounding)
        with atomic_write(out) as file:
            picture.save(file, PICTURES[out.suffix.lower()], quality=92)
    as_json = grounding.to_json()
    text = box_table(as_json["words"], "No noun of the sentence points anywhere.", indent="")
    show(as_json, text, json=json, quiet=quiet)
    return 0 if any(trace.box is not None for trace in grounding.trace) else 1
