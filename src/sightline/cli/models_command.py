"""`sightline models`: which there are, and what a model file holds; `sightline convert`: those of other projects."""

import os
import textwrap
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sightline.cli.console import Arg, show
from sightline.errors import CheckpointError, printable
from sightline.files import model_file


class Kind(NamedTuple):
    """A kind of model: what it does, where it comes from, and whose recipes train it."""

    does: str
    paper: str
    recipes: tuple[str, ...]


GROUNDED = "Zhou et al., More Grounded Image Captioning by Distilling Image-Text Matching Model, CVPR 2020"
OWN = "Sightline's own"
LICENCE = "LICENSE"  # beside the model that comes with Sightline, whose card may name none
CARD_KEYS = ("data", "measured on", "metrics")  # what the card of a trained model says of its part
LINE = 100  # characters
ELSEWHERE = ("name", "licence", "license", "model", "data", "measured on")  # keys of a card with lines of their own
KINDS = {
    "neuraltalk2": Kind("captioner", "Vinyals et al., Show and Tell, CVPR 2015", ("contrastive",)),
    "adaptive-attention": Kind("captioner", "Lu et al., Knowing When to Look, CVPR 2017", ("contrastive",)),
    "updown": Kind("captioner", GROUNDED, ("jran", "pos-scan")),
    "jran": Kind("captioner", "Joint Relationship Attention Network, COLING 2022", ("jran",)),
    "sim-trans": Kind("captioner", "the transformer that JRAN is compared with, COLING 2022", ("jran",)),
    "jran-trans": Kind("captioner", "JRAN on that transformer, COLING 2022", ("jran",)),
    "r2m": Kind("captioner", "Guo et al., Recurrent Relational Memory Network, IJCAI 2020", ("r2m",)),
    "scene-trans": Kind("captioner", OWN, ("default",)),
    "scan": Kind("matcher", "Lee et al., Stacked Cross Attention, ECCV 2018", ("pos-scan", "vsrn")),
    "pos-scan": Kind("matcher", GROUNDED, ("pos-scan",)),
    "vsrn": Kind("matcher", "Li et al., Visual Semantic Reasoning, ICCV 2019", ("vsrn",)),
    "vsepp": Kind("matcher", "Faghri et al., VSE++, BMVC 2018", ("vsrn",)),
    "scene-matcher": Kind("matcher", OWN, ("default",)),
}


def models(file: Annotated[Path | None, Arg("[FILE]")] = None, *, json: bool = False, quiet: bool = False) -> None:
    """Tell which models there are, or what a model file holds. Exit code 2 for a file that is damaged or no model.

        sightline models
        sightline models runs/jran/table-1/line-1/model.safetensors

    Args:
        file: a checkpoint or a bundle, or the folder of a run; without one, the model that comes with Sightline is
            described, and the kinds that recipes train are listed.
    """
    if file is not None:
        description = describe(model_file(file))
        show(description, card_text(description), json=json, quiet=quiet, indent=2)
        return
    from sightline.checkpoint.bundle import default_bundle

    shipped = None
    try:
        path = default_bundle()
        shipped, licence = describe(path), path.with_name(LICENCE)
        if shipped["licence"] is None and licence.is_file():
            shipped["licence"] = licence.read_text(encoding="utf-8").strip()
        text = card_text(shipped)
    except CheckpointError as error:
        text = str(error)
    kinds = [{"kind": name, **kind._asdict()} for name, kind in KINDS.items()]
    show({"shipped": shipped, "kinds": kinds}, f"{text}\n\n{kinds_text()}", json=json, quiet=quiet, indent=2)


def convert(
    checkpoint: Path,
    out: Path,
    *,
    infos: Path | None = None,
    vocabulary: Path | None = None,
    force: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Convert a released checkpoint; it is read without running it. (`sightline data convert` is for features.)

    Reads Up-Down of self-critical.pytorch and Grounded-Image-Captioning (model.pth with infos.pkl), and SCAN, POS-SCAN,
    VSRN and VSE++ (model_best.pth.tar with a vocabulary).

    Args:
        checkpoint: the released file.
        out: where to write, such as updown.safetensors.
        infos: the infos_<id>.pkl of an Up-Down model, if it does not lie beside it.
        vocabulary: the word list of a matcher (.json or .pkl).
        force: write over an existing file.
    """
    from sightline.data.convert import refuse_overwrite

    refuse_overwrite(out, force)
    from sightline.checkpoint.foreign_checkpoint import convert_foreign
    from sightline.checkpoint.model_checkpoint import save

    converted = convert_foreign(checkpoint, infos=infos, vocabulary=vocabulary)
    save(out, converted)
    model = converted.model
    summary = {
        "path": str(out),
        "kind": model.config.kind,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "words": len(converted.vocabulary.words),
    }
    text = f"{printable(out)}: {summary['kind']}, {summary['parameters']:,} parameters, {summary['words']:,} words"
    show(summary, text, json=json, quiet=quiet)


def describe(path: Path) -> dict[str, Any]:
    """Everything `models` tells about a file, JSON-ready. It is read whole, so that damage is noticed.

    The keys are `file`, `holds` (checkpoint or bundle), `name`, `bytes`, `precision`, `parameters`, `parts` (for each
    `part`, `kind`, `parameters`, `words`, `data`, `measured on`, `metrics`; null where unknown), `licence` and `card`.
    Metrics of a part are those at the end of its training; those of a bundle as it is are in its `card`.
    """
    from sightline.checkpoint import model_checkpoint
    from sightline.checkpoint.bundle import load_bundle
    from sightline.checkpoint.checkpoint_file import kind_of_file, read_description
    from sightline.models.captioner import Captioner
    from sightline.models.end_to_end import EndToEnd

    parts, card, precision = list[dict[str, Any]](), dict[str, Any](), "float32"
    if kind_of_file(path) == "bundle":
        loaded_bundle = load_bundle(path)
        card, precision = loaded_bundle.card, read_description(path, "bundle")["precision"]
        parts.append(_part("vision", loaded_bundle.vision))
        for part, reader in (("captioner", loaded_bundle.captioner), ("matcher", loaded_bundle.matcher)):
            if reader is not None:
                parts.append(_part(part, reader.model, card.get(part), reader.vocabulary))
        if loaded_bundle.pointer is not None:
            parts.append(_part("pointer", loaded_bundle.pointer, card.get("pointer")))
    else:
        loaded = model_checkpoint.load(path)
        card, model = loaded.card, loaded.model
        part = "captioner" if isinstance(model, Captioner) else "matcher"
        if isinstance(model, EndToEnd):
            parts.append(_part("vision", model.vision))
        parts.append(_part(part, getattr(model, "reader", model), card, loaded.vocabulary))
    return {
        "file": os.fspath(path),
        "holds": kind_of_file(path),
        "name": card.get("name"),
        "bytes": path.stat().st_size,
        "precision": precision,
        "parameters": sum(part["parameters"] for part in parts),
        "parts": parts,
        "licence": card.get("licence", card.get("license")),
        "card": card,
    }


def _part(part: str, model: Any, card: Any = None, vocabulary: Any = None) -> dict[str, Any]:
    values = card if isinstance(card, dict) else {}
    return {
        "part": part,
        "kind": model.config.kind,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "words": None if vocabulary is None else len(vocabulary.words),
        **{key: values.get(key) for key in CARD_KEYS},
    }


def kinds_text() -> str:
    name_width = max(map(len, KINDS)) + 2
    recipe_width = max(len(", ".join(kind.recipes)) for kind in KINDS.values()) + 2
    lines = ["Kinds that recipes train (`sightline train RECIPE`), and whose:"]
    for does in ("captioner", "matcher"):
        lines.append(f"{does}s")
        for name, kind in KINDS.items():
            if kind.does == does:
                lines.append(f"  {name:<{name_width}}{', '.join(kind.recipes):<{recipe_width}}{kind.paper}")
    return "\n".join(lines)


def card_text(description: dict[str, Any]) -> str:
    """A model file for people, as `describe` describes it. Cards hold what strangers wrote: controls are escaped."""
    card, size = description["card"], description["bytes"] / 2**20
    rows = [("size", f"{size:.1f} MiB, {description['precision']}, {description['parameters']:,} parameters")]
    when = "at the end of training"
    if description["holds"] == "bundle" and (metrics := _metrics(card)):
        rows.append(("measured", f"this file, {metrics}"))
        when += ", before it was packed into this file"
    for part in description["parts"]:
        words = "" if part["words"] is None else f", {part['words']:,} words"
        rows.append((part["part"], f"{part['kind']}, {part['parameters']:,} parameters{words}"))
        if data := _data(part):
            rows.append(("", data))
        if metrics := _metrics(part):
            rows.append(("", f"{when}, {metrics}"))
    for key, value in card.items():
        if key not in ELSEWHERE and isinstance(value, str | int | float):
            rows.append((key, str(value)))
    rows.append(("licence", str(description["licence"] or "not named in the file")))
    width = max(len(printable(title)) for title, _ in rows) + 2
    name = description["name"] or "a model without a name"
    lines = [printable(f"{name}: {description['file']}, a {description['holds']}")]
    for title, text in rows:
        for line in text.splitlines() or [""]:
            for part in textwrap.wrap(printable(line), LINE) or [""]:
                lines.append(f"  {printable(title):<{width}}{part}".rstrip())
                title = ""
    return "\n".join(lines)


def _data(part: dict[str, Any]) -> str:
    """The data a model learned from, if its card says so."""
    data = part["data"]
    try:
        learned = data["counts"]["train"]
        return f"trained on {learned['photos']:,} photos with {learned['captions']:,} captions"
    except (KeyError, TypeError, ValueError):  # a card may say anything
        return f"trained on {data}" if isinstance(data, str) else ""


def _metrics(card: dict[str, Any]) -> str:
    """The metrics of a model and the split they were measured on, if its card has them."""
    metrics = card.get("metrics")
    values = metrics.items() if isinstance(metrics, dict) else ()
    numbers = [f"{name} {round(value, 2):g}" for name, value in values if isinstance(value, int | float)]
    return f"on {card.get('measured on') or 'photos that are not named'}: {', '.join(numbers)}" if numbers else ""
