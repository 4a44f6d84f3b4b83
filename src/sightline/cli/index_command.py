"""`sightline index`: photos to an index; `sightline search`: finding them in it, by words or by a photo."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from sightline.cli.console import Arg, ModelFile, RayAddress, show
from sightline.errors import ConfigError, plural, printable

if TYPE_CHECKING:  # what brings PyTorch is imported once there is a folder to index, or something to look for
    from sightline.search.query import Hit
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
    from sightline.search.query import default_store, model_of
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
    as_json = {"store": place, **report.to_json(time.monotonic() - began)}
    show(as_json, f"{printable(place)}: {summary(report)}", json=json, quiet=quiet)
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


def search(
    words: str = "",
    *,
    image: Annotated[Path | None, Arg("PHOTO")] = None,
    avoid: Annotated[str, Arg(name="not", metavar="WORDS")] = "",
    store: Annotated[str | None, Arg("PLACE")] = None,
    count: Annotated[int, Arg(name="k", short="-k", metavar="N")] = 10,
    vectors_only: bool = False,
    exact: bool = False,
    ann: bool = False,
    explain: bool = False,
    model: ModelFile = None,
    device: str = "auto",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Find photos by words, or by a photo. Exit code 1 if nothing was found.

        sightline search "a dog on a beach"
        sightline search "a dog" --not "a beach" -k 20 --json
        sightline search --image photo.jpg

    Args:
        words: what to look for.
        image: a photo like those to look for; with words, both count alike.
        avoid: what not to find.
        store: where the index is; by default .sightline-index in the current folder, or in the nearest above it.
        count: photos to find, at most.
        vectors_only: ignore what captions say.
        exact: compare every vector.
        ann: use the approximate index of LanceDB.
        explain: look again at the photos found, for where in them the words are.
        model: the model file that the index was made with, if not the one that comes with Sightline.
        json: print one JSON array: path, score and caption of each, and whether it is a weaker match.
        quiet: print nothing: the exit code tells whether something was found.
    """
    if not words.strip() and image is None:
        raise ConfigError("nothing to look for", fix='say what: `sightline search "a dog on a beach"`, or use --image')
    if exact and ann:
        raise ConfigError("--exact and --ann exclude each other", fix="leave one of them out")
    if explain and not words.strip():
        raise ConfigError("only words can be explained", fix="leave out --explain, or give words")
    from sightline.export.caption_tables import json_array
    from sightline.search.query import PhotoIndex, means_something, unknown_words

    index = PhotoIndex(store)  # before PyTorch is imported: a place without an index is refused at once
    from sightline.pipeline import load

    pipeline = load(model, device, threads)
    how, captions = True if exact else False if ann else None, not vectors_only
    hits = index.search(
        pipeline, words, photo=image, avoid=avoid, count=count, captions=captions, exact=how, explain=explain
    )
    if quiet:
        return 0 if hits else 1
    if hits and (unknown := unknown_words(pipeline, f"{words} {avoid}")):
        print(f"The model does not know: {', '.join(unknown)}.", file=sys.stderr)
    if json:
        sys.stdout.writelines(json_array(hit.to_json() for hit in hits))
    else:
        good, weak = [hit for hit in hits if not hit.weak], [hit for hit in hits if hit.weak]
        for hit in good:
            print(line(hit))
        if weak:
            print("Weaker matches:" if good else "No photo matches well. Weaker matches:")
        for hit in weak:
            print(line(hit))
    if not hits:
        why = f"No photo was found in {index.store}."
        if words.strip() and image is None and not means_something(pipeline, words):
            what = ", ".join(unknown_words(pipeline, words)) or repr(words)
            what += "" if vectors_only else ", and no caption or concept says it"
            why = f"Nothing was found: the model does not know {what}. To fix: try other words, or --image PHOTO."
        print(printable(why), file=sys.stderr)
    return 0 if hits else 1


def line(hit: Hit) -> str:
    """A hit for people: its score, where it is, what it shows, and where the words are.

    >>> from sightline.search.query import Hit
    >>> why = {"words": [{"word": "a", "box": None}, {"word": "dog", "box": [1.0, 2.0, 30.0, 40.0], "score": 0.7}]}
    >>> print(line(Hit("/photos/dog.jpg", 0.5, "a dog runs", why=why)))
    0.500  /photos/dog.jpg: a dog runs
           dog at 1 2 30 40 (0.70)
    """
    lines = [printable(f"{hit.score:.3f}  {hit.path}" + ("" if hit.caption is None else f": {hit.caption}"))]
    for word in (hit.why or {}).get("words", []):
        if word["box"] is not None:
            box = " ".join(str(round(value)) for value in word["box"])
            lines.append(f"{word['word']} at {box} ({word['score']:.2f})")
    return "\n       ".join(lines)
