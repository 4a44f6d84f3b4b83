"""`sightline index`: photos to an index that `sightline search` finds them in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from sightline.cli.arguments import Arg, ModelFile, RayAddress
from sightline.cli.output import show
from sightline.errors import ConfigError, plural, printable

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a folder to index
    from sightline.search.sync import SyncReport


def index(
    folder: str,
    *,
    store: Annotated[str | None, Arg("PLACE")] = None,
    captions: bool = True,
    engine: Literal["exact", "lance"] | None = None,
    force: bool = False,
    model: ModelFile = None,
    device: str = "auto",
    threads: int | None = None,
    ray: RayAddress = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Index photos, so that `sightline search` finds them. Exit code 1 if none of the folder is in the index.

    Run it again after photos were added, changed, moved or deleted: only new and changed ones are looked at. One index
    may hold several folders.

        sightline index photos/
        sightline search "a dog on a beach"
        sightline index s3://bucket/photos --store s3://bucket/index --ray auto

    Args:
        folder: of photos, and of folders of them; also s3://bucket/photos, or a parquet file.
        store: where the index is, a folder or s3://bucket/name; by default .sightline-index in the current folder.
        captions: do not caption the photos; that is faster, but what captions say is not searched.
        engine: exact compares every vector, lance is for millions (needs LanceDB); by default what fits.
        force: look at all photos again; with another model, begin the whole index again.
    """
    from sightline.cli.pipeline_work import EmbedWork
    from sightline.jobs.cluster import executor_of
    from sightline.jobs.job_photos import is_elsewhere
    from sightline.search.index_store import default_store, model_of
    from sightline.search.sync import sync
    from sightline.vision.photo_reader import progress_bar

    if not (Path(folder).is_dir() or is_elsewhere(folder)):
        raise ConfigError("this is no folder", where=folder, fix="name the folder that the photos are in")
    place, began = str(default_store()) if store is None else store, time.monotonic()
    work = EmbedWork(model, device, threads, captions=captions)
    pipeline = work.load()
    with executor_of(ray, threads, device) as executor:
        report = sync(
            folder,
            place,
            work,
            maker=model_of(pipeline.bundle),
            size=pipeline.size,
            captions=captions,
            engine=engine,
            force=force,
            progress=iter if quiet else progress_bar("indexing"),
            executor=executor,
        )
    as_json = report.to_json(time.monotonic() - began, "copied", "moved", "gone", "total", "engine")
    show({"store": place, **as_json}, f"{printable(place)}: {summary(report)}", json=json, quiet=quiet)
    report.print_problems()
    return 0 if report.made or report.kept else 1


def summary(report: SyncReport) -> str:
    """What a run did.

    >>> from sightline.search.sync import SyncReport
    >>> summary(SyncReport(photos=12, made=10, kept=2, moved=1, gone=3, total=12))
    '12 photos; 10 looked at now, 2 were there (1 moved), 3 are gone'
    >>> summary(SyncReport(photos=12, made=1, kept=11, copied=1, total=12))
    '12 photos; 1 is a copy, 11 were there'
    """
    copies = "1 is a copy" if report.copied == 1 else f"{report.copied:,} are copies"
    new = [f"{report.made - report.copied:,} looked at now"] if report.made > report.copied else []
    new += [copies] if report.copied else []
    moved = f" ({report.moved:,} moved)" if report.moved else ""
    gone = f", {report.gone:,} {'is' if report.gone == 1 else 'are'} gone" if report.gone else ""
    return f"{plural(report.total, 'photo')}; {', '.join(new) or 'none new'}, {report.kept:,} were there{moved}{gone}"
