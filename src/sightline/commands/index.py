"""`sightline index`: photos to an index that `sightline search` finds them in."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sightline.commands.reporting import as_json, tell
from sightline.errors import ConfigError
from sightline.search.store import Kind, default_store

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a folder to index
    from sightline.api import Sightline
    from sightline.jobs.photos import LoadedPhoto
    from sightline.look import Look
    from sightline.search.sync import Synced

TOGETHER = {"cpu": 8}  # photos that are looked at at once
TOGETHER_ELSEWHERE = 64


def index(
    folder: Annotated[Path, tyro.conf.Positional],
    *,
    store: Annotated[str | None, tyro.conf.arg(metavar="PLACE")] = None,
    captions: bool = True,
    engine: Kind | None = None,
    force: bool = False,
    model: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    device: str = "auto",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Index photos, so that `sightline search` finds them. Exit code 1 if none of the folder is in the index.

    Run it again after photos were added, changed, moved or deleted: only new and changed ones are looked at. One index
    may hold several folders.

    sightline index photos/
    sightline search "a dog on a beach"

    Args:
        folder: of photos, and of folders of them.
        store: where the index is, a folder or s3://bucket/name; by default .sightline-index in the current folder.
        captions: also caption the photos, to search what captions say; --no-captions is faster.
        engine: exact compares every vector, lance is for millions (needs LanceDB); by default what fits.
        force: look at all photos again; with another model, begin the whole index again.
        model: a model file, instead of the one that comes with Sightline.
        device: auto, cpu, cuda, cuda:1 or mps.
        threads: that the CPU computes with.
        json: print one JSON object.
        quiet: no progress bar, no summary.
    """
    place, began = str(default_store()) if store is None else store, time.monotonic()
    if not folder.is_dir():
        raise ConfigError("this is no folder", where=folder, fix="name the folder that the photos are in")
    from sightline.api import load
    from sightline.search.maker import maker_of
    from sightline.search.sync import sync
    from sightline.vision.reading import progress_bar

    sight = load(model, device, threads)
    report = sync(
        folder,
        place,
        Looker(sight, captions),
        maker=maker_of(sight.bundle),
        size=sight.bundle.vision.size,
        captions=captions,
        engine=engine,
        force=force,
        progress=iter if quiet else progress_bar("indexing"),
    )
    seconds = time.monotonic() - began
    if json:
        print(
            json_module.dumps(
                {"store": place, **as_json(report, seconds, "moved", "gone", "total", "engine")}, ensure_ascii=False
            )
        )
    elif not quiet:
        print(f"{place}: {summary(report)}")
    tell(report)
    return 0 if report.made or report.kept else 1


class Looker:
    """A model that looks at photos of a job, a few at a time."""

    def __init__(self, sight: Sightline, captions: bool) -> None:
        self.sight, self.captions = sight, captions
        self.together = TOGETHER.get(sight.device.type, TOGETHER_ELSEWHERE)

    def __call__(self, photos: Sequence[LoadedPhoto]) -> list[Look]:
        """What it makes of them, in their order."""
        read = [(str(photo.path), photo.pixels, photo.size) for photo in photos]
        groups = (read[start : start + self.together] for start in range(0, len(read), self.together))
        return [look for group in groups for look in self.sight.look(group, captions=self.captions)]


def summary(report: Synced) -> str:
    """What a run did.

    >>> from sightline.search.sync import Synced
    >>> summary(Synced(photos=12, made=10, kept=2, moved=1, gone=3, total=12))
    '12 photos; 10 looked at now, 2 were there (1 moved), 3 are gone'
    """
    photos = f"{report.total:,} {'photo' if report.total == 1 else 'photos'}"
    looked = f"{report.made:,} looked at now" if report.made else "none new"
    moved = f" ({report.moved:,} moved)" if report.moved else ""
    gone = f", {report.gone:,} are gone" if report.gone else ""
    return f"{photos}; {looked}, {report.kept:,} were there{moved}{gone}"
