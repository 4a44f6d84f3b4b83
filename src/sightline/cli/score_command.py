"""`sightline score`: the scorecard of generated captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.console import plain_console, print_table, show
from sightline.errors import (
    ConfigError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingRecordError,
    UnknownFormatError,
    printable,
)
from sightline.files import existing_path, refuse_to_replace, write_json

if TYPE_CHECKING:  # help needs neither numpy nor rich
    from rich.console import Console

    from sightline.data.records import CaptionSet
    from sightline.metrics.scorecard import Scorecard


def score(
    *,
    refs: Path,
    hyps: tuple[Path, ...],
    metrics: tuple[str, ...] = (),
    split: str | None = None,
    df: Path | None = None,
    instances: Path | None = None,
    out: Path | None = None,
    html: Path | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Score captions against references: BLEU, METEOR, ROUGE-L, CIDEr and SPICE (Sightline parser), without Java.

    Files may be what `sightline caption --out` wrote, COCO captions or results, a Karpathy split, or JSON objects of id
    to caption(s). Photos are matched by id, path, name or COCO number. Several files of captions are compared with each
    other; give them together.

        sightline score --refs captions_val2014.json --hyps results.json
        sightline score --refs dataset_coco.json --split test --hyps mine.json theirs.json --html page.html
        sightline score --refs captions_val2014.json --hyps results.json --metrics chair language

    Args:
        refs: references: COCO captions json, {"id": ["…"]} json, a Karpathy file, or any format with captions.
        hyps: captions to score, one file a system: csv, jsonl or json of `caption`, COCO results, {"id": "…"} json.
        metrics: bleu meteor rouge cider spice, by default all that are installed; and, when named, chair (objects that
            the photo does not have), language (wrong articles, dangling ends, words said twice) and diversity.
        split: the split of the references to use, such as test.
        df: saved document frequencies for CIDEr, instead of those of the references.
        instances: what is in the photos, for chair: COCO instances_*.json, or boxes of a detector (boxes-jsonl).
        out: write corpus and per-image scores to this file, as JSON.
        html: write a page that shows every image and why it scored as it did.
        json: print one JSON object, with corpus and per-image scores.
    """
    from rich.console import Console

    from sightline.data.convert import any_captions
    from sightline.data.pickle_formats import read_document_frequencies
    from sightline.metrics.cider import DocumentFrequencies
    from sightline.metrics.scorecard import scorecard

    for target in filter(None, (out, html)):
        refuse_to_replace(target, filter(None, (refs, *hyps, df, instances)))
    photos = any_captions(existing_path(refs), split)
    references = {photo.id: [sentence.text for sentence in photo.sentences] for photo in photos}
    frequencies = None
    if df is not None:
        saved = read_document_frequencies(df)
        if saved.layout == "ids":
            what = "these document frequencies are of word ids, and captions are scored as words"
            raise DataError(what, where=df, fix="give the file of words, such as coco-train-words.p")
        frequencies = DocumentFrequencies(saved.counts, saved.ref_len)
    if instances is not None and "chair" not in metrics:
        raise ConfigError("--instances is for the metric chair alone", fix="add --metrics chair")
    objects = None if instances is None else _objects(existing_path(instances), photos)
    console = Console(stderr=True, quiet=quiet)
    systems: dict[str, Scorecard] = {}
    for path in hyps:
        hypotheses = _hypotheses(any_captions(existing_path(path)), photos, path)
        name = path.stem if [other.stem for other in hyps].count(path.stem) == 1 else str(path)
        with _bar(f"scoring {name}", len(hypotheses), console) as tell:
            systems[name] = scorecard(hypotheses, references, metrics or None, frequencies, tell, objects)
    as_json = _as_json(systems)
    if out is not None:
        write_json(out, as_json)
    if html is not None:
        from sightline.metrics.report import write_report

        with console.status("writing the page"):
            write_report(html, systems)
    show(as_json, lambda: _print(systems, metrics), json=json, quiet=quiet)  # last: its reader may stop early


@contextmanager
def _bar(title: str, images: int, console: Console) -> Iterator[Callable[[str, int], None]]:
    """A bar that starts again with each metric, on a terminal; yields what moves it."""
    from rich.markup import escape
    from rich.progress import Progress

    title = escape(printable(title))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(title, total=images)
        yield lambda metric, done: progress.update(bar, description=f"{title}: {metric}", completed=done)


def _hypotheses(captions: CaptionSet, references: CaptionSet, path: Path) -> dict[str, str]:
    """The caption of each photo, by the id that the references have for it."""
    from sightline.data.image_list import match_photos

    reference_ids = match_photos(captions, references)
    by_id: dict[str, str] = {}
    for photo in captions:
        if len(photo.sentences) != 1:
            what = f"image {photo.id} has {len(photo.sentences)} captions, and one is scored per image"
            raise CountError(what, where=path, fix="keep one caption per image; give several systems as several files")
        id = reference_ids.get(photo.id, photo.id)
        if id in by_id:
            raise DuplicateRecordError(f"two captions are of image {id} of the references", where=path, fix="keep one")
        by_id[id] = photo.sentences[0].text
    return by_id


def _objects(path: Path, references: CaptionSet) -> dict[str, set[str]]:
    """COCO's names of the objects in the photos with references; those that the file does not have are left out."""
    from sightline.data import boxes_jsonl, coco
    from sightline.data.formats import identify
    from sightline.data.image_list import match_photos
    from sightline.data.records import CaptionedPhoto

    format = identify(path)
    if format is coco.INSTANCES:
        annotated = coco.read_instances(path)
        others = [CaptionedPhoto(id, (), photo.file) for id, photo in annotated.items()]
        matches = match_photos(references, others)
        objects = {id: {instance.name for instance in annotated[other].instances} for id, other in matches.items()}
    elif format is boxes_jsonl.FORMAT:
        boxes = boxes_jsonl.read(path)
        matches = match_photos(references, map(CaptionedPhoto, boxes.ids()))
        objects = {id: {concept.name for concept in boxes[other].concepts} for id, other in matches.items()}
    else:
        fix = "give instances_*.json or a detector's boxes (`sightline data formats`)"
        raise UnknownFormatError(f"{format.name} names no objects of COCO", where=path, fix=fix)
    if not objects:
        fix = "ids must be spelled alike in both"
        raise MissingRecordError("none of the photos with references is in this file", where=path, fix=fix)
    return objects


def _as_json(systems: dict[str, Scorecard]) -> dict[str, Any]:
    cards = {
        name: {
            "corpus": card.scores.corpus,
            "per_image": {id: {**row, **card.scores.words.get(id, {})} for id, row in card.scores.per_image.items()},
            "signature": card.signature,
            "notes": list(card.notes),
        }
        for name, card in systems.items()
    }
    return next(iter(cards.values())) if len(cards) == 1 else {"systems": cards}


def _print(systems: dict[str, Scorecard], metrics: tuple[str, ...]) -> None:
    from sightline.metrics.scorecard import METRICS, ON_REQUEST, TITLES, default_metrics

    def number(value: float, fraction: bool) -> str:
        return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if fraction else f"{value:.2f}"

    cards, console = systems.values(), plain_console()
    print_table(
        ["", *systems],
        [
            [TITLES[key], *(number(card.scores.corpus[key], metric.fraction) for card in cards)]
            for metric in next(iter(cards)).metrics.values()
            for key in metric.keys
        ],
    )
    missing = [] if metrics else [name for name in METRICS if name not in (*default_metrics(), *ON_REQUEST)]
    for name in missing:
        print(f"note: {name} was left out; to have it: pip install 'sightline[{name}]'")
    for name, card in systems.items():
        for note in card.notes:
            console.print(printable(f"note ({name}): {note}"))
        console.print(card.signature, style="dim")
