"""`sightline search`: indexed photos by words, or by a photo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sightline.cli.arguments import Arg, ModelFile
from sightline.errors import ConfigError, printable

if TYPE_CHECKING:  # what brings PyTorch is imported once there is something to look for
    from sightline.pipeline import Pipeline
    from sightline.search.query import Hit


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
        vectors_only: pay no heed to what captions say.
        exact: compare every vector.
        ann: use the approximate index of LanceDB.
        explain: look again at the photos found, for where in them the words are.
        model: the model file that the index was made with, if not the one that comes with Sightline.
        json: print one JSON array: path, score and caption of each, and whether it is a weaker match.
    """
    if not words.strip() and image is None:
        raise ConfigError("nothing to look for", fix='say what: `sightline search "a dog on a beach"`, or use --image')
    if exact and ann:
        raise ConfigError("--exact and --ann exclude each other", fix="leave one of them out")
    if explain and not words.strip():
        raise ConfigError("only words can be explained", fix="leave out --explain, or give words")
    from sightline.export.caption_tables import json_array
    from sightline.search.query import PhotoIndex, unknown_words

    index = PhotoIndex(store)  # before PyTorch is imported: a place without an index is refused at once
    from sightline.pipeline import load

    pipeline = load(model, device, threads)
    hits = index.search(
        pipeline,
        words,
        photo=image,
        avoid=avoid,
        count=count,
        captions=not vectors_only,
        exact=True if exact else False if ann else None,
        explain=explain,
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
        nothing = _nothing(index.store, pipeline, words if image is None else "", not vectors_only)
        print(printable(nothing), file=sys.stderr)
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


def _nothing(place: str, pipeline: Pipeline, words: str, captions: bool) -> str:
    """Why nothing was found, and what to try."""
    from sightline.search.query import means_something, unknown_words

    if not words.strip() or means_something(pipeline, words):
        return f"No photo was found in {place}."
    unknown = ", ".join(unknown_words(pipeline, words)) or repr(words)
    unsaid = ", and no caption or concept says it" if captions else ""
    return f"Nothing was found: the model does not know {unknown}{unsaid}. To fix: try other words, or --image PHOTO."
