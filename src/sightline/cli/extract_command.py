"""`sightline extract`: photos to scenes, in a feature store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sightline.cli.console import RayAddress, show
from sightline.errors import ConfigError, plural, printable

if TYPE_CHECKING:
    from sightline.jobs.job import Report


def extract(
    folder: str,
    *,
    out: Path,
    model: str | None = None,
    boxes: str | None = None,
    device: str = "auto",
    batch: int | None = None,
    threads: int | None = None,
    dtype: Literal["float16", "float32"] | None = None,
    ray: RayAddress = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Write what vision sees in photos to a feature store: regions, grid, vector, named things with boxes.

    Run it again to go on, or after photos were added or changed: what is done is kept. Exit code 1 if the store has the
    scene of no photo.

        sightline extract photos/ --out scenes/
        sightline extract photos/ --out scenes/ --boxes 10..100 --device cuda
        sightline extract s3://bucket/photos --out scenes/ --ray auto

    Args:
        folder: of photos, and of folders of them; also s3://bucket/photos, or a parquet file.
        out: the store's folder.
        model: a model file, instead of the one that comes with Sightline, or imagenet.
        boxes: regions of a photo, such as 36; or 10..100, as many as it has things.
        batch: photos that are looked at together.
    """
    if batch is not None and batch < 1:
        raise ConfigError(f"`batch` is {batch}", fix="give 1 or more")
    from sightline.devices import choose_device, set_threads
    from sightline.jobs import extract_job
    from sightline.jobs.cluster import executor_of
    from sightline.jobs.extract_job import vision_of
    from sightline.vision.encoder import BoxRule, InferenceEncoder
    from sightline.vision.feature_store import FeatureStore
    from sightline.vision.photo_reader import progress_bar

    rule = None if boxes is None else BoxRule.parse(boxes)
    if threads is not None:
        set_threads(threads)
    choose_device(device)  # a wrong one is refused before anything is done
    bar = iter if quiet else progress_bar("extracting")
    encoder = InferenceEncoder(vision_of(model), rule)
    began = time.monotonic()
    with executor_of(ray, threads, device) as executor:
        report = extract_job.extract(
            folder, out, encoder, device=device, batch=batch, dtype=dtype, progress=bar, executor=executor
        )
    seconds = time.monotonic() - began
    as_json = {"store": str(out), "fingerprint": encoder.fingerprint(), **report.to_json(seconds)}
    text = f"{printable(out)}: {_summary(len(FeatureStore(out)), report, seconds)}"
    show(as_json, text, json=json, quiet=quiet)
    report.print_problems()
    return 0 if report.made or report.kept else 1


def _summary(scenes: int, report: Report, seconds: float) -> str:
    """What a run did.

    >>> from sightline.jobs.job import Report
    >>> _summary(12, Report(photos=12, made=10, kept=2), 4.0)
    '12 scenes; 10 made now (2.5 a second), 2 were there'
    """
    made = f"{report.made:,} made now ({report.made / max(seconds, 1e-3):.1f} a second)" if report.made else "none new"
    return f"{plural(scenes, 'scene')}; {made}, {report.kept:,} were there"
