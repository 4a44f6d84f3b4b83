"""R²M trained whole: L_XE, L_S, L_M and L_I, from cached image vectors and a text corpus, by the loop recipes use.

The paper says 35 minutes (MSCOCO images, Shutterstock sentences). Here: as many images as Karpathy's training split has
among train2017 (random vectors of 1,280 numbers, 1 to 5 concepts each), and the sentences of `--corpus`, or as many
made up ones with the lengths of Flickr30k captions. The schedule is that of the authors' code: L_XE for 5,000 steps,
L_S for 6,000, L_M for 50, L_I for 100. Batches are of 256, sentences of a batch of similar length, as in the recipes.
With `--patience N` a text stage ends sooner, when its held-out loss has not improved for N epochs. Reading the corpus
is timed apart; evaluating and saving count as training.

On a CPU a small share of the steps is run, and what all would take is told. On CUDA, 60 steps of L_S are first run with
and without CUDA graphs, from the same weights, to compare losses and speed.

    python benchmarks/r2m_training.py --corpus flickr30k_captions.txt.gz
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline.batch import SceneBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.data.concept_dictionary import ConceptDictionary
from sightline.models.r2m import R2M, R2MConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batches, Batching
from sightline.training.data import Data, build_data
from sightline.training.data_config import DataConfig
from sightline.training.evaluation import token_loss
from sightline.training.loop import Run, train
from sightline.training.objective import Context, Progress
from sightline.training.objectives.r2m_stages import R2MImageConfig, R2MTextConfig
from sightline.training.stage import Optimiser, Selection, Stage
from sightline.training.tensor_tables import Pool, SceneTable

PAPER_MINUTES = 35
SENTENCES = 118_460
WIDTH = 1280
TEXT = Batching("pairs", 256, pool="corpus", by_length=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpus", type=Path, help="sentences, one per line; made up where none are given")
    parser.add_argument("--images", type=int, default=109_488, help="images of the image stages")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--share", type=float, default=0.0, help="of the steps; 1 on CUDA, 0.0006 elsewhere")
    parser.add_argument("--patience", type=int, default=0, help="epochs without a better held-out loss; 0: no limit")
    parser.add_argument("--threads", type=int, default=1, help="threads on a CPU")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    share = options.share or (1.0 if device.type == "cuda" else 0.0006)
    began = time.perf_counter()
    dictionary = ConceptDictionary.coco()
    corpus = read(options.corpus)
    images = make_images(options.images, dictionary, corpus.vocabulary)
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else str(device),
        "torch": torch.__version__,
        "images": len(images),
        "corpus": " ".join(corpus.notes),
        "share of the steps": share,
        "reading, s": time.perf_counter() - began,
    }
    if device.type == "cuda":
        report["graphs"] = compare_graphs(corpus, device)
    report["stages"] = train_all(corpus, images, device, share, options.patience)
    report["seconds"] = sum(stage["seconds"] for stage in report["stages"])
    report["all steps, minutes"] = sum(stage["all, s"] for stage in report["stages"]) / 60
    report["paper, minutes"] = PAPER_MINUTES
    print(json.dumps(report) if options.json else table_of(report))


def read(path: Path | None) -> Data:
    """The sentences of a file, of the datasets at hand, or made up ones, as recipes read them."""
    folder = os.environ.get("SIGHTLINE_DATA")
    if path is None and folder:
        path = Path(folder) / "corpora/flickr30k_captions.txt.gz"
    with tempfile.TemporaryDirectory() as made:
        if path is None:
            path = Path(made) / "sentences.txt"
            path.write_text("\n".join(make_sentences(SENTENCES)) + "\n", encoding="utf-8")
        config = DataConfig(corpus=path.absolute(), rule="r2m", vocabulary="corpus")
        return build_data(config, R2MConfig(vector_width=WIDTH))


def make_sentences(count: int) -> list[str]:
    """Words by Zipf's law; lengths are log-normal with the median and spread of Flickr30k captions."""
    random = np.random.default_rng(0)
    things = ["man", "woman", "people", "dog", "bicycle", "ball", "table", "car", "boat", "chair", "bench", "horse"]
    words = np.array([*things, *(f"w{i}" for i in range(7000))])
    weights = 1 / (np.arange(len(words)) + 2.7)
    lengths = np.exp(random.normal(math.log(13), 0.36, count)).astype(int).clip(4, 80)
    drawn = words[random.choice(len(words), size=int(lengths.sum()), p=weights / weights.sum())]
    return [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]


def make_images(count: int, dictionary: ConceptDictionary, vocabulary: Vocabulary) -> Pool:
    """Random vectors; concepts by Zipf's law, since a person is in every second photo."""
    random = np.random.default_rng(1)
    ids = np.array([vocabulary.id(word) for word in dictionary.words])
    weights = 1 / (np.arange(len(ids)) + 1)
    concepts = ids[random.choice(len(ids), size=(count, 5), p=weights / weights.sum())]
    mask = np.arange(5) < random.integers(1, 6, size=(count, 1))
    names = tuple(map(str, range(count)))
    scenes = SceneBatch(
        names,
        grid_shapes=(None,) * count,
        vector=torch.rand(count, WIDTH, generator=torch.Generator().manual_seed(1)).half(),
        concepts=torch.from_numpy(concepts * mask),
        concept_mask=torch.from_numpy(mask),
        concept_scores=torch.from_numpy(mask.astype(np.float32)),
    )
    return Pool(names, SceneTable(scenes))


def stages_of(share: float, patience: int) -> list[Stage]:
    """The four stages; text stages are judged by held-out loss after each epoch if all steps are run."""
    photos = Batching("photos", 256)
    judged = Selection("loss", every=1 if share == 1 else 0, patience=patience)
    unjudged = Selection(every=0)
    fast, slow = Optimiser(lr=1e-4, clip=10.0), Optimiser(lr=1e-5, clip=10.0)

    def steps(count: int) -> int:
        return max(1, round(count * share))

    return [
        Stage(R2MTextConfig(), "L_XE", TEXT, fast, steps=steps(5000), precision="tf32", select=judged),
        Stage(R2MTextConfig(beta=1.0), "L_S", TEXT, fast, steps=steps(6000), precision="tf32", select=judged),
        Stage(R2MImageConfig(), "L_M", photos, slow, steps=steps(50), select=unjudged),
        Stage(R2MImageConfig(gamma=1.0), "L_I", photos, slow, steps=steps(100), select=unjudged),
    ]


def make_model(vocabulary: Vocabulary) -> R2M:
    torch.manual_seed(0)
    return R2MConfig(vector_width=WIDTH).build(len(vocabulary))


def train_all(corpus: Data, images: Pool, device: torch.device, share: float, patience: int) -> list[dict[str, Any]]:
    """Run the loop; what each stage took, by the times of its log lines."""
    stages, whole = stages_of(share, patience), stages_of(1.0, patience)
    rows: dict[str, dict[str, Any]] = {stage.name: {"stage": stage.name} for stage in stages}
    last = time.perf_counter()
    begun: dict[str, float] = {}

    def report(line: dict[str, Any]) -> None:
        nonlocal last
        row = rows[line["stage"]]
        begun.setdefault(line["stage"], last)
        last = time.perf_counter()
        row.update({"steps": line["step"], "seconds": last - begun[line["stage"]]})
        row.update({name: line[name] for name in ("loss", "val loss") if name in line})

    def evaluate(checkpoint: Checkpoint, pool: Pool, stage: Stage) -> dict[str, float]:
        return {"loss": token_loss(checkpoint.captioner(), pool, 128)}

    pools = {"train": images, "val": corpus.pools["corpus-val"], **corpus.pools}
    start = Checkpoint(make_model(corpus.vocabulary), corpus.vocabulary, "r2m")
    context = Context(corpus.vocabulary, pools, device=device)
    with tempfile.TemporaryDirectory() as folder:
        train(Run(Path(folder), start, stages, context, evaluate, report=report))
    for row, stage in zip(rows.values(), whole, strict=True):
        row["ms/step"] = row["seconds"] / row["steps"] * 1e3
        row["all, s"] = row["seconds"] if share == 1 else row["ms/step"] / 1e3 * stage.steps
    return list(rows.values())


def compare_graphs(corpus: Data, device: torch.device, steps: int = 60) -> dict[str, float]:
    """The same steps of L_S with and without CUDA graphs; the first half is for recording and is not timed."""
    batches = Batches(corpus.pools["corpus"], TEXT, seed=0)
    losses: dict[bool, list[float]] = {}
    took: dict[bool, float] = {}
    for graphs in (False, True):
        model = make_model(corpus.vocabulary).to(device).train()
        objective = R2MTextConfig(beta=1.0, graphs=graphs).build(Context(corpus.vocabulary))
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
        losses[graphs], began = [], 0.0
        for step in range(steps):
            if step == steps // 2:
                torch.cuda.synchronize()
                began = time.perf_counter()
            torch.manual_seed(step)
            batch = batches.batch(0, step)
            optimiser.zero_grad(set_to_none=True)
            total = objective(model, batch.to(device), Progress()).total / objective.weight(batch)
            total.backward()
            optimiser.step()
            losses[graphs].append(float(total.detach()))
        took[graphs] = (time.perf_counter() - began) / (steps - steps // 2) * 1e3
    gaps = [abs(a - b) / abs(a) for a, b in zip(losses[False], losses[True], strict=True)]
    return {
        "without, ms/step": took[False],
        "with, ms/step": took[True],
        "ratio": took[False] / took[True],
        "largest relative difference of losses": max(gaps),
    }


def table_of(report: dict[str, Any]) -> str:
    plain = {name: value for name, value in report.items() if name not in ("stages", "graphs")}
    lines = [
        f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}" for name, value in plain.items()
    ]
    if "graphs" in report:
        lines.append("CUDA graphs, " + ", ".join(f"{name} {value:.3g}" for name, value in report["graphs"].items()))
    lines.append("stage   steps  seconds  ms/step     loss  held-out  all steps")
    for row in report["stages"]:
        held_out = f"{row['val loss']:10.3f}" if "val loss" in row else f"{'':10}"
        lines.append(
            f"{row['stage']:<6}{row['steps']:7d}{row['seconds']:9.1f}{row['ms/step']:9.1f}{row['loss']:9.3f}"
            f"{held_out}{row['all, s']:9.1f} s"
        )
    lines.append(f"all    {'':7}{report['seconds']:8.1f}   {report['all steps, minutes']:.1f} min for all steps")
    lines.append(f"paper: {PAPER_MINUTES} min, {PAPER_MINUTES / report['all steps, minutes']:.3g} times as long")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
