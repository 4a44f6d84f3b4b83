"""A first look at every method on Flickr8k: pairs of rows, trained for minutes on one GPU, measured on dev.

    python tools/first_look.py extract --images DATA/flickr8k/images --features STORE [--weights lite2.pth]
    python tools/first_look.py train --data DATA --features STORE --out OUT [--minutes 15] [--rows NAME …]

Each row is a shipped recipe with few changes, run by the launcher that `sightline train` uses. The table says all of
them. OUT gets table.md, results.json and a folder for each row. Run it again to go on: rows that are done are kept, one
that was stopped goes on from its last epoch. Needs torch, numpy, safetensors, PyYAML and Pillow; METEOR is measured
where `pycocoevalcap` is installed.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline import __version__
from sightline.caption import Caption
from sightline.checkpoint import Checkpoint
from sightline.data.entities import read_photos
from sightline.data.entities_classes import ground, read_classes
from sightline.errors import SightlineError
from sightline.files import read_json, write_json, write_text
from sightline.jobs import extraction
from sightline.learning import evaluation
from sightline.learning.corpus import read_corpus
from sightline.learning.launch import Voice, launch
from sightline.learning.recipe import SHIPPED, read_recipe
from sightline.learning.tables import Pool
from sightline.metrics.self_retrieval import self_retrieval
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import PAD
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.reading import left_out
from sightline.vision.store import FeatureStore

CAPTIONS = ("CIDEr", "BLEU-4", "METEOR", "ROUGE-L")
SELF = tuple(f"self-retrieval R@{k}" for k in (1, 5, 10))
GROUNDING = ("attention accuracy", "attention oracle")
RECALLS = tuple(f"{way} R@{k}" for way in ("i2t", "t2i") for k in (1, 5, 10))
SENTENCES = 60_000

FLICKR8K = (
    "data.captions=flickr8k/Flickr8k.token.txt",
    "data.splits={train: flickr8k/Flickr_8k.trainImages.txt, val: flickr8k/Flickr_8k.devImages.txt, "
    "test: flickr8k/Flickr_8k.testImages.txt}",
    "data.test=[]",
)
ENTITIES = ("data.grounding=flickr8k/flickr30k_entities_8091.tar.gz",)
NOT_UNPAIRED = "concepts from Entities, not unpaired"


@dataclass(frozen=True)
class Row:
    """A row of the first look: a recipe's row with changes.

    Attributes:
        name: in the table, and of the folder; other rows name it as `row:NAME`.
        pair: the rows it is compared with.
        recipe: PAPER/TABLE#ROW.
        changes: to it, besides those that all rows share.
        columns: what is looked at.
        needs: rows that must be done before.
        note: what a reader must know.
    """

    name: str
    pair: str
    recipe: str
    changes: tuple[str, ...]
    columns: tuple[str, ...]
    needs: tuple[str, ...] = ()
    note: str = ""


def _rows() -> Iterator[Row]:
    speaking = "stages.cross-entropy.batch.size=50", "stages.cross-entropy.epochs=12"
    pair, columns = "Contrastive learning", (*CAPTIONS, *SELF)
    yield Row("AA", pair, "contrastive/table-4#Base", (*speaking, "evaluate.self_retrieval=true"), columns)
    learned = "start=row:AA", "evaluate.self_retrieval=true", "stages.fine-tune.batch.size=20"
    yield Row(
        "AA+CL", pair, "contrastive/table-4#Full",
        (*learned, "stages.fine-tune.epochs=5", "stages.fine-tune.optimiser.rate=1e-6"), columns, ("AA",),
        "the paper's rate of 1e-6, for 5 epochs instead of 20: little can change",
    )  # fmt: skip
    yield Row(
        "AA+CL-2e-5", pair, "contrastive/table-4#Full",
        (*learned, "stages.fine-tune.epochs=3", "stages.fine-tune.optimiser.rate=2e-5"), columns, ("AA",),
        "20 times the paper's rate",
    )  # fmt: skip
    pair, columns = "Attention from POS-SCAN", (*CAPTIONS, *GROUNDING)
    matching = "stages.matching.epochs=8", "stages.matching.schedule.every=4"
    yield Row(
        "POS-SCAN", pair, "pos-scan/table-1#POS-SCAN", (*matching, "stages.matching.select.every=4"),
        (*GROUNDING, "rsum"), note="the teacher",
    )  # fmt: skip
    yield Row("Up-Down", pair, "pos-scan/table-1#Up-Down", speaking, columns)
    yield Row(
        "Up-Down+KL", pair, "pos-scan/table-1#Up-Down+0.1KL-POS-SCAN", speaking, columns, ("POS-SCAN",)
    )  # fmt: skip
    pair = "Reasoning over regions"
    warmed = (
        "stages.matching.epochs=14", "stages.matching.schedule.every=9", "stages.matching.select.every=2",
        "stages.matching.objective.warmup_epochs=2", "stages.matching.precision=bfloat16", "model.reset=after",
        "model.norm_axis=region", "model.order=stored", "model.region_width=1280",
    )  # fmt: skip
    for name, changes in (("VSRN-mean-pool", ("model.rrr_layers=0", "model.gsr=false")), ("VSRN-4RRR+GSR", ())):
        yield Row(
            name, pair, "vsrn/table-3#VSRN-1", (*warmed, *changes), (*RECALLS, "rsum"),
            note="as the released code for Flickr30k; two epochs of all negatives first, since on 6,000 photos the "
            "hardest ones alone can end at 2 · batch · margin",
        )  # fmt: skip
    pair = "Joint relationships"
    yield Row("JRAN-Baseline", pair, "jran/table-2#Baseline-XE", speaking, CAPTIONS)
    yield Row("JRAN", pair, "jran/table-1#line-6-XE", speaking, CAPTIONS)
    pair = f"R²M ({NOT_UNPAIRED})"
    text = "data.dictionary=entities", "data.allow_missing=true"
    note = f"{NOT_UNPAIRED}; {SENTENCES:,} captions of COCO as the corpus"
    yield Row("R2M-XE", pair, "r2m/table-3#Flickr8k-COCO-XE", (*text, "stages.text.epochs=12"), CAPTIONS, note=note)
    before = "XE"
    for name, changes in (("rec-S", ("stages.text-reconstruction.epochs=6",)), ("M", ()), ("rec-I", ())):
        yield Row(
            f"R2M-{name}", pair, f"r2m/table-3#Flickr8k-COCO-{name}", (*text, f"start=row:R2M-{before}", *changes),
            CAPTIONS, (f"R2M-{before}",), f"{note}; goes on from the row above",
        )  # fmt: skip
        before = name


ROWS = tuple(_rows())


class OutOfTime(Exception):  # noqa: N818 - not an error: the row goes on next time
    """The budget is spent."""


@dataclass(frozen=True)
class Look:
    """Where everything is.

    Attributes:
        data: the folder that has flickr8k/ and coco/.
        features: a feature store of the photos.
        out: gets the table and the runs.
        device: cpu, cuda, or auto.
        minutes: no row is begun, and none goes on, after so long.
        say: is told what happens.
    """

    data: Path
    features: Path
    out: Path
    device: str = "auto"
    minutes: float = 15.0
    say: Callable[[str], None] = print


def look(rows: Sequence[Row], where: Look) -> list[dict[str, Any]]:
    """Train and measure the rows, in order; the table is written after each."""
    deadline = time.monotonic() + 60 * where.minutes
    path = where.out / "results.json"
    held = {result["row"]: result for result in read_json(path)["rows"]} if path.is_file() else {}
    for row in rows:
        result = held.get(row.name, {"row": row.name, "minutes": 0.0})
        held[row.name] = result
        missing = [name for name in row.needs if held.get(name, {}).get("state") != "done"]
        if missing:
            result["state"] = f"not run: {', '.join(missing)} is not done"
        elif result.get("state") != "done":
            _run(row, result, where, deadline)
        where.say(f"{row.name}: {result['state']}, {result['minutes']:.1f} min")
        order = [one.name for one in ROWS]
        found = sorted(held.values(), key=lambda one: order.index(one["row"]) if one["row"] in order else len(order))
        write_json(path, {"about": about(where), "rows": found}, indent=2)
        write_text(where.out / "table.md", table(found, about(where)))
    return list(held.values())


def _run(row: Row, result: dict[str, Any], where: Look, deadline: float) -> None:
    """Run a row, as far as time allows."""
    began, earlier = time.monotonic(), result["minutes"]

    def report(line: dict[str, Any]) -> None:
        where.say(f"  {json.dumps(line)}")
        if time.monotonic() > deadline:
            raise OutOfTime

    try:
        if began > deadline:
            raise OutOfTime
        changes = changes_of(row, where)
        table_name, _, name = row.recipe.partition("#")
        recipe = read_recipe(SHIPPED / f"{table_name}.yaml", name, changes)
        result.update({"pair": row.pair, "recipe": row.recipe, "changes": list(changes), "note": row.note})
        result.update({"columns": list(row.columns), "stages": _stages(recipe.ordered())})
        measure = _with_self_retrieval if recipe.evaluate.self_retrieval else None
        voice = Voice(lambda sentence: where.say(f"  {sentence}"), report)
        found = launch(
            recipe, where.out / "runs" / row.name, where.device, base=where.data, evaluate=measure, voice=voice
        )
        result.update({"state": "done", "data": found.card["data"], "metrics": found.card["metrics"]})
    except OutOfTime:
        result["state"] = "stopped: out of time; run it again to go on"
    except SightlineError as error:
        result["state"] = f"failed: {error}"
    result["minutes"] = earlier + (time.monotonic() - began) / 60


def changes_of(row: Row, where: Look) -> tuple[str, ...]:
    """All changes to the row's recipe; files that it needs besides the data are made on the way."""
    metrics = ["bleu", *(["meteor"] if find_spec("pycocoevalcap") else []), "rouge", "cider"]
    shared = [*FLICKR8K, f"data.features={where.features.absolute()}", f"evaluate.metrics=[{', '.join(metrics)}]"]
    if "attention accuracy" in row.columns:
        shared += ENTITIES
    if NOT_UNPAIRED in row.note:
        shared += [f"data.concepts={entities_concepts(where)}", f"data.corpus={coco_sentences(where)}"]
    return (*shared, *row.changes)


def entities_concepts(where: Look) -> Path:
    """A store of what people named in each photo: the Entities classes of its captions, the most frequent first."""
    path = where.out.absolute() / "entities-concepts"
    if not path.exists():
        classes = read_classes()
        annotated = read_photos(where.data / "flickr8k" / "flickr30k_entities_8091.tar.gz")
        begun = path.with_name(f"{path.name}.part")
        shutil.rmtree(begun, ignore_errors=True)
        with FeatureStore.writer(begun, fingerprint="entities") as writer:
            for id, photo in annotated.items():
                sentences = ground(photo, classes).sentences
                named = Counter(label for one in sentences for label in {word.label for word in one.words})
                ordered = sorted(named, key=lambda label: (-named[label], label))
                concepts = tuple(Concept(label, 1.0) for label in ordered)
                writer.add(Scene(id, concepts=concepts, fingerprint="entities"))
        begun.rename(path)
    return path


def coco_sentences(where: Look) -> Path:
    """Some captions of COCO, spread over the whole file, as a text file."""
    path = where.out.absolute() / "coco-sentences.txt"
    if not path.exists():
        every = read_corpus(where.data / "coco" / "captions_train2014.json.gz")
        chosen = every[:: max(1, len(every) // SENTENCES)][:SENTENCES]
        write_text(path, "".join(" ".join(sentence.split()) + "\n" for sentence in chosen))
    return path


def _with_self_retrieval(checkpoint: Checkpoint, pool: Pool, how: evaluation.Evaluation) -> dict[str, float]:
    """The evaluation of recipes, with recalls at 1, 5 and 10 instead of the paper's 1, 5, 50 and 500."""
    said: dict[str, Caption] = {}
    found = evaluation.evaluate(checkpoint, pool, replace(how, self_retrieval=False), said=said)
    if not how.self_retrieval:
        return found
    encoded = [checkpoint.vocabulary.encode(said[id].words) for id in pool.ids]
    words = torch.full((len(encoded), max(map(len, encoded))), PAD)
    for row, ids in zip(words, encoded, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    model = checkpoint.captioner().eval()
    device = next(model.parameters()).device

    def scenes(rows: Sequence[int]) -> Any:
        assert pool.scenes is not None
        return pool.scenes.batch(torch.tensor(rows)).to(device)

    scores = self_retrieval(model, scenes, words, ks=(1, 5, 10), progress=False)
    shares = {f"self-retrieval R@{k}": value for k, value in scores.recalls.items()}
    chance = {f"self-retrieval chance@{k}": value for k, value in scores.chance.items()}
    return {**found, **shares, **chance}


def _stages(stages: Iterable[Any]) -> list[str]:
    """What decides a stage's result, in a line each."""
    told = []
    for stage in stages:
        length = f"{stage.steps} steps" if stage.steps else f"{stage.epochs} epochs"
        size = f"{stage.batch.size} {stage.batch.of}"
        size += f" with {stage.batch.captions} captions" if stage.batch.of == "images" else ""
        chosen = f"best {stage.select.metric}" if stage.select.every or stage.select.every_steps else "last model"
        told.append(
            f"{stage.name} ({stage.objective.kind}): {length}, batches of {size}, {stage.optimiser.kind} "
            f"{stage.optimiser.rate:g}, {stage.schedule.kind}, {stage.precision}, {chosen}"
        )
    return told


def about(where: Look) -> dict[str, str]:
    """What all rows share."""
    gpu = where.device != "cpu" and torch.cuda.is_available()
    scene = next(iter(FeatureStore(where.features)))
    regions = np.zeros((0, 0)) if scene.regions is None else scene.regions
    made = _beside(where.features)
    how = read_json(made)["encoder"] if made.is_file() else "made elsewhere"
    return {
        "photos": "Flickr8k, the official split; measured on dev, by which the best epochs are chosen too",
        "features": f"{how}; {len(regions)} regions of {regions.shape[-1]} numbers, fingerprint {scene.fingerprint}",
        "seeds": "one (0)",
        "METEOR": "measured" if find_spec("pycocoevalcap") else "not measured: pycocoevalcap is not installed",
        "device": torch.cuda.get_device_name() if gpu else f"CPU, {torch.get_num_threads()} threads",
        "versions": f"Sightline {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }


def table(results: Sequence[dict[str, Any]], shared: dict[str, str]) -> str:
    """The Markdown of the first look: what all share, a table for each pair, and every row's settings."""
    lines = ["# A first look at every method on Flickr8k", ""]
    lines += [f"- {name}: {value}" for name, value in shared.items()]
    lines.append(f"- minutes: {sum(result['minutes'] for result in results):.1f} in all, reading data included")
    for pair in dict.fromkeys(result["pair"] for result in results if "pair" in result):
        own = [result for result in results if result.get("pair") == pair]
        columns = list(dict.fromkeys(name for result in own for name in result["columns"]))
        columns = [name for name in columns if any(name in result.get("metrics", {}) for result in own)]
        lines += ["", f"## {pair}", "", f"| row | {' | '.join([*columns, 'minutes', 'state'])} |"]
        lines.append("|" + "---|" * (len(columns) + 3))
        for result in own:
            metrics = result.get("metrics", {})
            values = [f"{metrics[name]:.2f}" if name in metrics else "" for name in columns]
            minutes = f"{result['minutes']:.1f}"
            lines.append(f"| {' | '.join([result['row'], *values, minutes, result['state']])} |")
        lines.append("")
        for result in own:
            note = f" {result['note']}." if result["note"] else ""
            counts = result.get("data", {}).get("counts", {})
            photos = ", ".join(f"{name} {count['photos']:,}" for name, count in counts.items())
            words = f"; {photos}; {result['data']['words']:,} words" if counts else ""
            lines.append(f"- {result['row']}: {result['recipe']}{words}.{note} {'; '.join(result['stages'])}. Changes:")
            lines.append(f"  `{' '.join(result['changes'])}`")
    waiting = [result for result in results if "pair" not in result]
    lines += ["", *(f"- {result['row']}: {result['state']}" for result in waiting)]
    return "\n".join(lines).rstrip() + "\n"


def extract(images: Path, features: Path, weights: Path | None, device: str, say: Callable[[str], None] = print) -> int:
    """Features of all photos, those that are not there yet; how many there are."""
    if weights is None:
        encoder = GridEncoder.imagenet("lite2")
    else:
        encoder = GridEncoder("lite2")
        encoder.backbone.load_imagenet(torch.load(weights, map_location="cpu", weights_only=True))
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    began = time.monotonic()

    def progress(paths: Sequence[Path]) -> Iterator[Path]:
        for number, path in enumerate(paths):
            if number and number % 1000 == 0:
                say(f"{number:,} of {len(paths):,} photos, {number / (time.monotonic() - began):.0f} a second")
            yield path

    told = f"EfficientNet-{encoder.variant} as trained on ImageNet, {encoder.size} px, grid cells as regions"
    write_json(_beside(features), {"encoder": told})
    report = extraction.extract(images, features, encoder, device=place, batch=128, progress=progress)
    if report.bad:
        say(left_out(report.bad))
    count = len(FeatureStore(features))
    say(f"{count:,} photos in {features}, {time.monotonic() - began:.0f} s")
    return count


def _beside(features: Path) -> Path:
    """The file that says how a feature store was made."""
    return features.with_name(f"{features.name}.json")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    seen = commands.add_parser("extract", help="make the feature store of the photos")
    seen.add_argument("--images", type=Path, required=True, help="folder of the photos")
    seen.add_argument("--weights", type=Path, help="EfficientNet-Lite2's .pth file; by default its package's")
    trained = commands.add_parser("train", help="train and measure the rows")
    trained.add_argument("--data", type=Path, required=True, help="folder with flickr8k/ and coco/")
    trained.add_argument("--out", type=Path, required=True, help="gets table.md, results.json and the runs")
    trained.add_argument("--minutes", type=float, default=15.0, help="the budget of this call")
    trained.add_argument("--rows", nargs="+", choices=[row.name for row in ROWS], help="only these")
    for command in (seen, trained):
        command.add_argument("--features", type=Path, required=True, help="the feature store")
        command.add_argument("--device", default="auto", help="cpu, cuda or auto")
    options = parser.parse_args(arguments)
    if options.command == "extract":
        extract(options.images, options.features, options.weights, options.device)
        return 0
    rows = [row for row in ROWS if options.rows is None or row.name in options.rows]
    where = Look(options.data, options.features, options.out, options.device, options.minutes)
    found = look(rows, where)
    print((options.out / "table.md").read_text(encoding="utf-8"))
    return int(any(result["state"] != "done" for result in found))


if __name__ == "__main__":
    sys.exit(main())
