"""What was measured, as tables for people (Markdown)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

NAMES = {"coco": "COCO, Karpathy test", "flickr8k": "Flickr8k, official test"}
BARS = {
    ("coco", "captions", "CIDEr-D"): 115,
    ("coco", "captions", "BLEU-4"): 35,
    ("coco", "captions", "METEOR 1.5"): 27,
    ("coco", "matching", "captions R@1"): 60,
    ("coco", "matching", "photos R@1"): 47,
    ("coco", "matching", "captions R@1, both read-outs"): 60,
    ("coco", "matching", "photos R@1, both read-outs"): 47,
    ("flickr8k", "regions", "36 boxes"): 82,
}
TITLES = {
    "captions": "Captions, by Sightline's metrics and by pycocoevalcap",
    "matching": "Matching: captions for photos and photos for captions, mean of the folds, %",
    "regions": "Regions: share of people's boxes that are covered at an IoU of 0.5, %",
    "concepts": "Concepts against the nouns of people's captions, %",
    "pointing": "Pointing: people's words whose box is right, %",
    "boxes of captions": "Boxes of the model's own captions, %",
    "confidence": "Confidence, %",
}
COUNTS = ("folds", "photos of a fold", "boxes people drew", "annotated words")  # numbers that have no decimals


def markdown(results: dict[str, Any]) -> str:
    """The whole page; what was skipped is not in it."""
    model, place, sets = results["model"], results["machine"], results["sets"]
    weights = ", ".join(f"{name} {count / 1e6:.1f} M" for name, count in model["weights"].items())
    lines = [
        f"Measured: `{model['file']}`, {model['mib']:.1f} MiB ({weights}), on {place['device']} "
        f"({place['cores']} cores, {place['threads']} threads, torch {place['torch']}).",
        "",
        *table(("photos", "count", "words a caption", "photos/s of the run"), map(_set_row, sets.items())),
    ]
    for section, title in TITLES.items():
        having = {name: found for name, found in sets.items() if section in found}
        if having:
            lines += ["", f"### {title}", "", *_section(section, having)]
    if results.get("shown"):
        rows = ((row["id"], row["caption"], row["reference"]) for row in results["shown"])
        lines += [
            "",
            f"### The first {len(results['shown'])} COCO test photos by id",
            "",
            *table(("photo", "Sightline", "one of five people"), rows),
        ]
    return "\n".join(lines) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table; what would break it is escaped."""
    shown = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in (heads, *rows)]
    first, *others = (f"| {' | '.join(row)} |" for row in shown)
    return [first, "|" + "---|" * len(heads), *others]


def _set_row(item: tuple[str, dict[str, Any]]) -> tuple[str, str, str, str]:
    name, found = item
    return NAMES[name], f"{found['photos']:,}", f"{found['words']:.1f}", f"{found['photos per second']:.1f}"


def _section(section: str, having: dict[str, dict[str, Any]]) -> list[str]:
    heads: list[str] = [""]
    for name, found in having.items():
        heads += [NAMES[name], *(["pycocoevalcap"] if _peer(section, found) else [])]
    bars = {title: bar for (name, part, title), bar in BARS.items() if part == section and name in having}
    rows = []
    for title in dict.fromkeys(title for found in having.values() for title in found[section]):
        row: list[object] = [title]
        for found in having.values():
            row.append(_number(title, found[section].get(title)))
            if peer := _peer(section, found):
                row.append(_number(title, peer.get(title)))
        rows.append([*row, *([f"≥ {bars[title]}" if title in bars else ""] if bars else [])])
    lines = table([*heads, *(["bar" if len(having) == 1 else f"bar ({_barred(section)})"] if bars else [])], rows)
    for name, found in having.items() if section == "captions" else ():
        if found["largest difference"] is not None:
            same = "the same numbers" if found["largest difference"] < 1e-9 else "not the same numbers"
            lines += ["", f"{NAMES[name]}: {same}, largest difference {found['largest difference']:.1e}."]
        lines += ["", f"`{found['signature']}`"]
    return lines


def _barred(section: str) -> str:
    """The set that a section's bars are about."""
    return next(NAMES[name].split(",")[0] for name, part, _ in BARS if part == section)


def _peer(section: str, found: dict[str, Any]) -> dict[str, float] | None:
    return found["pycocoevalcap"] if section == "captions" else None


def _number(title: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if title in COUNTS else f"{value:.1f}"
