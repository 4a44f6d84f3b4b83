"""Mutate small valid files and requests of every kind that Sightline reads, and count what becomes of them.

    python tools/fuzz_readers.py [--minutes 5] [--seed 0] [--only NAME …] [--out tally.json] [--keep FOLDER]
    python tools/fuzz_readers.py --case NAME:NUMBER [--seed 0]     # one case again, with its traceback

A reader may give what it read, or an error of Sightline's (`refused`); the server may answer 2xx, or 4xx with a
sentence (`refused`). Anything else is a finding: another exception or status, more than 20 seconds, a gigabyte of
memory, the end of the process. Cases run in a child process, so that one that kills Python is a finding too and the
rest goes on. A case follows from the seed, its target's name and its number alone. The files of findings are kept in
--keep.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import pickle
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from PIL import Image
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fuzz_http import mutate_request, samples, send
from fuzz_mutations import mutate_sealed, mutate_text, mutation_for

from bundle_samples import tiny_bundle
from caption_samples import write_samples
from feature_samples import sample_scenes
from learning_samples import write_recipe
from search_samples import row
from sightline.caption import PhotoCaption, WordTrace
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import load_bundle, save_bundle
from sightline.checkpoint.foreign_checkpoint import convert_foreign
from sightline.checkpoint.torch_file import read_torch
from sightline.data.formats import FORMATS, identify, inspect
from sightline.errors import SightlineError
from sightline.export.caption_tables import caption_of
from sightline.export.sidecar import write_sidecar
from sightline.jobs.ledger import CaptionLog, Entry, Ledger
from sightline.models.updown import UpDownConfig
from sightline.search.exact import FILE, ExactIndex
from sightline.text.lemmas import lemma
from sightline.text.tagger import Tagger
from sightline.text.tokenizer import ptb_tokens
from sightline.text.vocabulary import RULES, build_vocabulary
from sightline.text.vocabulary import Vocabulary as Words  # the name itself stands for a pickled class below
from sightline.training.recipe import read_recipe, read_rows
from sightline.training.state import Counters, load_state, save_state
from sightline.vision.images import open_image
from sightline.vision.parquet_photos import PhotoTable

SLOW = 20.0  # seconds a case may take
LARGE = 1 << 30  # bytes by which a case may make the process grow
ENDLESS = 120.0  # seconds after which a case is given up


@dataclass(frozen=True)
class Target:
    """What is mutated, and what reads it."""

    files: tuple[str, ...]  # of the sample, relative to its folder; one or two of them are mutated a case
    folder: Path  # of the valid sample
    read: Callable[[Path], object]  # reads the (mutated) copy of the folder
    mutate: Callable[[bytes, random.Random], bytes]


def targets(folder: Path) -> dict[str, Target]:
    """Everything there is to read, as valid samples below `folder`."""
    made: dict[str, Target] = {}

    def add(name: str, path: Path, read: Callable[[Path], object] | None = None, mutate: Any = None) -> None:
        home = path if path.is_dir() else path.parent
        inside = sorted(file.relative_to(home).as_posix() for file in home.rglob("*") if file.is_file())
        files = tuple(inside) if path.is_dir() else (path.name,)
        inner = "" if path.is_dir() else path.name
        made[name] = Target(files, home, lambda top: (read or read_data)(top / inner), mutate or mutation_for(files[0]))

    for module, path in write_samples(folder / "captions").items():
        alone = folder / f"captions-{module}"
        if path.is_dir():
            shutil.copytree(path, alone)
            add(module, alone)
        else:
            alone.mkdir()
            for file in path.parent.iterdir() if path.parent != folder / "captions" else [path]:
                shutil.copy(file, alone)
            add(module, alone / path.name)
    for form in FORMATS:
        if form.write_scenes is not None:
            suffix = {"bottom-up-tsv": ".tsv", "m2-hdf5": ".h5", "lmdb": ".lmdb"}.get(form.name, "")
            (home := folder / f"scenes-{form.name}").mkdir()
            with contextlib.suppress(SightlineError):
                form.write_scenes(home / f"x{suffix}", sample_scenes(3, regions=20, width=32))
                add(form.name, home / f"x{suffix}")
    for name, path in write_pickles(folder / "pickles").items():
        add(name, path)
    labels = folder / "labels"
    shutil.copytree(folder / "captions-cocotalk", labels)
    add("cocotalk labels", labels / "flickrtalk_label.h5")
    for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "AVIF"):
        (home := folder / f"picture-{kind}").mkdir()
        noise = np.random.default_rng(1).integers(0, 256, (24, 32, 3), np.uint8)
        with contextlib.suppress(OSError, KeyError):
            Image.fromarray(noise).save(home / f"x.{kind.lower()}", kind)
            add(f"picture {kind}", home / f"x.{kind.lower()}", open_image)
    write_models(folder / "models")
    add("bundle", folder / "models/bundle/x.safetensors", load_bundle, mutate_sealed)
    add("checkpoint", folder / "models/checkpoint/x.safetensors", model_checkpoint.load, mutate_sealed)
    add("pth", folder / "models/pth/x.pth", read_torch)
    add("legacy pth", folder / "models/legacy/x.pth", read_torch)
    add("released", folder / "models/released/model_best.pth.tar", read_released)
    (folder / "recipe").mkdir()
    add("recipe", write_recipe(folder / "recipe/table.yaml"), read_table, mutate_text)
    (index := ExactIndex(folder / "index")).clear("eyes")
    index.write([row("a.jpg", [1, 0, 0], "a dog"), row("b.jpg", [0, 1, 0], "a cat")])
    add("photo index", folder / "index" / FILE, search)
    (folder / "text").mkdir()
    (folder / "text/x.txt").write_text(
        "A dog's owner, Mr. O'Neil, can't pay $3.50 (U.S.)... \u00e9\U0001f600 don't\n" * 3
    )
    add("tokenizers and vocabulary", folder / "text/x.txt", tokenise, mutate_text)
    for name, (path, read) in write_work(folder / "work").items():
        add(name, path, read)
    for number, (name, request) in enumerate(samples().items()):
        (home := folder / f"request-{number}").mkdir()
        (home / "x.http").write_bytes(request)
        add(f"http {name}", home / "x.http", send, mutate_request)
    return made


def write_pickles(folder: Path) -> dict[str, Path]:
    """A vocabulary as JSON and as a pickle, and document frequencies."""
    folder.mkdir()
    words = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog"]
    ids = {word: number for number, word in enumerate(words)}
    parts = {"word2idx": ids, "idx2word": {str(n): word for word, n in ids.items()}, "idx": len(ids)}
    made = {name: folder / name.replace(" ", "-") for name in ("vocabulary.json", "vocabulary.pkl", "frequencies.p")}
    for path in made.values():
        path.mkdir()
    (made["vocabulary.json"] / "x.json").write_text(json.dumps(parts))
    kind = type("Vocabulary", (), {})
    kind.__module__ = "__main__"
    sys.modules["__main__"].Vocabulary = kind  # type: ignore[attr-defined]
    (thing := kind()).__dict__.update({**parts, "idx2word": {n: word for word, n in ids.items()}})
    (made["vocabulary.pkl"] / "x.pkl").write_bytes(pickle.dumps(thing, 2))
    counts = {("a", "dog"): 2.0, ("dog",): np.float64(1)}
    (made["frequencies.p"] / "x.p").write_bytes(pickle.dumps({"document_frequency": counts, "ref_len": 2.0}, 2))
    return {name: next(path.iterdir()) for name, path in made.items()}


def write_work(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """What jobs leave for the next run of theirs, sidecars that others wrote, and photos in a table."""
    for name in ("state", "log", "ledger", "sidecar", "parquet"):
        (folder / name).mkdir(parents=True)
    layer = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    parameters = dict(layer.named_parameters())
    state = save_state(folder / "state", Counters(step=3), layer, torch.nn.Identity(), optimiser, parameters)
    with CaptionLog(folder / "log/captions.jsonl", "made") as log:
        for photo in ("a.jpg", "b/c.jpg"):
            log.add(PhotoCaption(("a", "dog"), -1.5, (WordTrace(), WordTrace()), photo, (9, 9), 0.5, False, ()), "mark")
    with Ledger(folder / "ledger/ledger.jsonl") as ledger:
        ledger.record({"a.jpg": Entry((9, 1)), "b.jpg": Entry((8, 2), "this is text")})
    write_sidecar(folder / "sidecar/x.jpg", "A dog.")
    noise = np.random.default_rng(1).integers(0, 256, (9, 9, 3), np.uint8)
    Image.fromarray(noise).save(picture := io.BytesIO(), "PNG")
    rows = {"id": ["a", "b"], "image": [picture.getvalue()] * 2, "caption": ["a dog", None]}
    parquet.write_table(pyarrow.table(rows), folder / "parquet/x.parquet")
    return {
        "training state": (state, load_state),
        "caption log": (folder / "log/captions.jsonl", read_log),
        "ledger": (folder / "ledger/ledger.jsonl", read_ledger),
        "sidecar": (folder / "sidecar/x.jpg.xmp", lambda path: write_sidecar(path.with_suffix(""), "Two cats.")),
        "parquet": (folder / "parquet/x.parquet", read_parquet),
    }


def write_models(folder: Path) -> None:
    for name in ("bundle", "checkpoint", "pth", "legacy", "released"):
        (folder / name).mkdir(parents=True)
    save_bundle(folder / "bundle/x.safetensors", tiny_bundle())
    vocabulary = Words(["a", "dog"])
    model = UpDownConfig(region_width=4, word_size=5, hidden_size=6, attention_size=3).build(len(vocabulary))
    model_checkpoint.save(folder / "checkpoint/x.safetensors", model_checkpoint.Checkpoint(model, vocabulary))
    content = {"epoch": 3, "opt": argparse.Namespace(lr=0.1), "model": [{"a": torch.ones(2, 3)}, {"b": torch.ones(4)}]}
    torch.save(content, folder / "pth/x.pth")
    torch.save(content, folder / "legacy/x.pth", _use_new_zipfile_serialization=False)
    text = {
        "embed.weight": torch.ones(6, 4),
        "rnn.weight_ih_l0": torch.ones(9, 4),
        "rnn.weight_hh_l0": torch.ones(9, 3),
    }
    text |= {"rnn.bias_ih_l0": torch.ones(9), "rnn.bias_hh_l0": torch.ones(9)}
    image = {"fc.weight": torch.ones(3, 5), "fc.bias": torch.ones(3)}
    torch.save({"model": [image, text], "opt": argparse.Namespace()}, folder / "released/model_best.pth.tar")
    words = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog"]
    parts = {"word2idx": {w: n for n, w in enumerate(words)}, "idx2word": dict(enumerate(words)), "idx": 6}
    (folder / "released/vocab.json").write_text(json.dumps(parts))


# Readers


def read_data(path: Path) -> None:
    """`data inspect`, which may raise nothing; then the strict readers."""
    for report in inspect(path):
        if any("Please report this" in problem for problem in report.problems):
            raise AssertionError(report.problems)
        report.to_json()
    form, refused = identify(path), list[SightlineError]()
    for reader in (form.scenes, form.captions):
        try:
            for one in reader(path) if reader is not None else ():
                repr(one)[:100]
        except SightlineError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def read_released(path: Path) -> None:
    convert_foreign(path, vocabulary=path.parent / "vocab.json")


def read_table(path: Path) -> None:
    for name in read_rows(path):
        with contextlib.suppress(SightlineError):
            read_recipe(path, name, ["seed=1"]).fingerprint()


def search(path: Path) -> None:
    index = ExactIndex(path.parent)
    refused = list[SightlineError]()
    for ask in (lambda: index.maker, index.states, lambda: index.find(np.ones(3, np.float32), ["dog"], 2)):
        try:
            ask()
        except SightlineError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def read_log(path: Path) -> None:
    with CaptionLog(path, "made") as log:
        for id in log:
            caption_of(log[id])
            log.name(id)


def read_ledger(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.get("a.jpg")


def read_parquet(path: Path) -> None:
    table = PhotoTable(str(path))
    refused = list(table.problems)
    for name in table.names:
        try:
            open_image(table.read(name) if table.holds_bytes else name)
        except SightlineError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def tokenise(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "surrogateescape" if path.stat().st_size % 2 else "replace")
    words = ptb_tokens(text)
    Tagger.default().tag(words[:50])
    for one in words[:20]:
        lemma(one, "n")
    split = [rule.words(text) for rule in RULES.values()]
    vocabulary = build_vocabulary(split, 1)
    for sentence in split:
        vocabulary.decode(vocabulary.encode(sentence))


# Running


def prepare(target: Target, name: str, number: int, seed: int, place: Path) -> None:
    """The files of a case, in `place`."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(target.folder, place)
    rng = random.Random(f"{seed}:{name}:{number}")
    for file in rng.sample(target.files, min(len(target.files), rng.choice((1, 1, 1, 2)))):
        (place / file).write_bytes(target.mutate((target.folder / file).read_bytes(), rng))


def judged(target: Target, place: Path) -> tuple[str, str]:
    """What became of a case: `read`, `refused`, or a finding with its story."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        target.read(place)
        outcome = "read", ""
    except SightlineError as error:
        outcome = "refused", str(error)
    except Exception:
        outcome = "crash", traceback.format_exc()
    seconds = time.monotonic() - began
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if outcome[0] != "crash" and (seconds > SLOW or grown > LARGE):
        return "cost", f"{seconds:.1f} s, {grown / 1e6:.0f} MB: {outcome[1]}"
    return outcome


def work(folder: Path, seed: int, place: Path, pipe: Connection) -> None:
    """The child: does the cases it is told, and answers what became of each."""
    found = targets(folder)
    pipe.send(list(found))
    while (case := pipe.recv()) is not None:
        name, number = case
        prepare(found[name], name, number, seed, place)
        pipe.send(judged(found[name], place))


class Child:
    """A process that does cases, and is replaced when it dies."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.count = folder, seed, 0
        self.place = folder / "case"
        self.start()

    def start(self) -> None:
        """Begin anew, with samples of its own: whoever died may have left some half-written."""
        self.count += 1
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        (home := self.folder / f"samples-{self.count}").mkdir()
        self.process = context.Process(target=work, args=(home, self.seed, self.place, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.names: list[str] = self.pipe.recv()

    def judge(self, name: str, number: int) -> tuple[str, str]:
        """What becomes of a case."""
        self.pipe.send((name, number))
        with contextlib.suppress(EOFError):
            if self.pipe.poll(ENDLESS):
                return self.pipe.recv()  # type: ignore[no-any-return]
            self.process.kill()
        self.process.join()
        code = self.process.exitcode
        self.start()
        return ("endless", f"more than {ENDLESS:.0f} s") if code == -9 else ("killed", f"exit code {code}")


def cases(names: list[str], minutes: float) -> Iterator[tuple[str, int]]:
    """Cases in turn, one of every target, until the time is over."""
    end, number = time.monotonic() + 60 * minutes, 0
    while True:
        for name in names:
            if time.monotonic() > end:
                return
            yield name, number
        number += 1


def fuzz(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    child, tally, findings = Child(folder, options.seed), dict[str, Counter[str]](), list[dict[str, Any]]()
    for name, number in cases([n for n in child.names if not options.only or n in options.only], options.minutes):
        outcome, story = child.judge(name, number)
        tally.setdefault(name, Counter())[outcome] += 1
        if outcome not in ("read", "refused"):
            findings.append({"case": f"{name}:{number}", "outcome": outcome, "story": story})
            print(f"{outcome}: {name}:{number}\n{story[-1500:]}", file=sys.stderr, flush=True)
            if options.keep is not None:
                shutil.copytree(child.place, options.keep / f"{name}-{number}".replace(" ", "-"), dirs_exist_ok=True)
    child.pipe.send(None)
    calls = sum(counts.total() for counts in tally.values())
    return {
        "seed": options.seed,
        "minutes": options.minutes,
        "calls": calls,
        "findings": findings,
        "targets": {name: dict(counts) for name, counts in tally.items()},
    }


def one_case(case: str, seed: int, folder: Path) -> int:
    name, _, number = case.rpartition(":")
    found = targets(folder)
    prepare(found[name], name, int(number), seed, folder / "case")
    outcome, story = judged(found[name], folder / "case")
    print(f"{outcome}\n{story}")
    return 0 if outcome in ("read", "refused") else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--case")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        if options.case:
            return one_case(options.case, options.seed, Path(home))
        told = fuzz(options, Path(home))
    if options.out is not None:
        options.out.write_text(json.dumps(told, indent=2) + "\n")
    for name, counts in told["targets"].items():
        print(f"{name:<28}" + ", ".join(f"{outcome} {count:,}" for outcome, count in sorted(counts.items())))
    print(
        f"{told['calls']:,} calls, {len(told['findings'])} findings (seed {told['seed']}, {told['minutes']:g} minutes)"
    )
    return 1 if told["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
