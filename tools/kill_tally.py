"""Kill jobs with kill -9, run them again, and count how often the result is that of a job that nobody killed.

    python tools/kill_tally.py --tries 100 [--what train extract caption index ray checkpoint] [--seed 0]

A try is a job with a tiny model that is killed one to three times, then run to its end. It survives if every file can
be read after each kill, and if at the end nothing is lost, nothing is there twice, no temporary file is left, and all
is equal to an undisturbed job: weights, states and logs of training to the bit, captions to the word. Kills come at
random times, and inside a random write (half of whose bytes are on disk then), fsync, rename or SQL statement. Ray
jobs lose a worker, or whoever asked. Prints a JSON object; exit code 1 if a try did not survive.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy as np
import torch

from bundle_samples import draw_photo, tiny_bundle
from loop_samples import assert_same_runs, assert_same_tensors, tiny_run
from objective_samples import VOCABULARY, updown
from sightline.checkpoint.bundle import save_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.cli import commands
from sightline.files import UNFINISHED, sweep
from sightline.search.exact import FILE
from sightline.search.query import open_index
from sightline.training.loop import train
from sightline.training.state import load_state, states
from sightline.vision.feature_store import FeatureStore

PHOTOS = 20
RAY_PHOTOS = 40
COLOURS = ("red", "green", "blue", "black", "orange", "purple", "brown")
FORMATS = ("csv", "jsonl", "json", "html")
MOST_KILLS = 3
PATIENCE = 300  # seconds after which a job hangs


@dataclass(frozen=True)
class Job:
    """What is killed."""

    run: Callable[[Path], None]  # does everything in a folder, or goes on there
    check: Callable[[Path], None]  # raises if something in the folder cannot be read, whenever the job was killed
    # raises if the folder of a killed job is not as that of an undisturbed one, which is given first
    compare: Callable[[Path, Path], None]
    prepare: Callable[[Path], None] = lambda folder: None  # what there is before the job begins


@dataclass
class Tally:
    """How many tries there were, how many survived, and where the kills came."""

    tries: int = 0
    survived: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For people and programs."""
        return {"tries": self.tries, "survived": self.survived, "kills": dict(sorted(self.kills.items()))}


# Where a process dies


class Moments:
    """Counts writes, fsyncs, renames and SQL statements of this process, and ends it within one of them."""

    def __init__(self, kind: str = "", number: int = 0) -> None:
        self.kind, self.number, self.counts = kind, number, Counter[str]()

    def come(self, kind: str) -> bool:
        """Whether this is the one."""
        self.counts[kind] += 1
        return kind == self.kind and self.counts[kind] == self.number

    def watch(self) -> None:
        """Put counters in the place of what Python writes with."""
        moments = self

        class TornFile(io.FileIO):
            def write(self, data: Any) -> int:
                if moments.come("write"):
                    super().write(memoryview(data)[: len(data) // 2])
                    die()
                return super().write(data)

        usual = io.open

        def open_file(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any) -> Any:
            if not set(mode) & set("wax") or "+" in mode:
                return usual(file, mode, buffering, *rest, **more)
            raw = TornFile(file, mode.replace("b", "").replace("t", ""))
            if buffering == 0:
                return raw
            writer = io.BufferedWriter(raw)
            return writer if "b" in mode else io.TextIOWrapper(writer, *rest, **more)

        class CountedConnection(sqlite3.Connection):
            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                if moments.come("statement"):
                    die()
                return super().execute(*arguments)

        connect = sqlite3.connect
        sqlite3.connect = lambda *arguments, **more: connect(*arguments, factory=CountedConnection, **more)  # type: ignore[assignment]
        io.open = builtins.open = open_file
        os.fsync = self._die_around("fsync", os.fsync)
        os.replace = self._die_around("rename", os.replace)

    def _die_around(self, kind: str, usual: Callable[..., Any]) -> Callable[..., Any]:
        """Die before the call at odd numbers, after it at even ones."""

        def call(*arguments: Any, **more: Any) -> Any:
            if (mine := self.come(kind)) and self.number % 2:
                die()
            done = usual(*arguments, **more)
            if mine:
                die()
            return done

        return call


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fork(job: Job, folder: Path, kind: str = "", number: int = 0, seconds: float | None = None) -> Counter[str] | None:
    """The job in a process of its own; gives what it wrote, or None where it was killed, after `seconds` perhaps."""
    context = multiprocessing.get_context("fork")  # with all imports done; nothing here has started a thread
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(theirs, job, folder, kind, number))
    child.start()
    theirs.close()
    child.join(PATIENCE if seconds is None else seconds)
    if child.is_alive():
        child.kill()
        child.join()
        if seconds is None:
            raise AssertionError(f"the job did not end within {PATIENCE} s")
    if child.exitcode == -signal.SIGKILL:
        return None
    told = ours.recv() if ours.poll() else f"the job ended with {child.exitcode}"
    if isinstance(told, str):
        raise AssertionError(told)
    counts: Counter[str] = told
    return counts


def _work(told: Connection, job: Job, folder: Path, kind: str, number: int) -> None:
    log = folder.with_suffix(".log")
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    moments = Moments(kind, number)
    moments.watch()
    try:
        job.run(folder)
        told.send(moments.counts)
    except BaseException as error:
        told.send(f"{error}; {log.read_text()}" if isinstance(error, AssertionError) else traceback.format_exc())


# Tries


def count_tries(job: Job, tries: int, home: Path, seed: str) -> Tally:
    """Kill `job` in `tries` folders below `home`."""
    tally, chance = Tally(), random.Random(seed)
    whole = home / "whole"
    job.prepare(whole)
    began = time.monotonic()
    counts = fork(job, whole)
    seconds = time.monotonic() - began
    assert counts is not None, "somebody else killed the undisturbed job"
    job.check(whole)
    for number in range(tries):
        folder = home / f"{number:03d}"
        tally.tries += 1
        try:
            kills = kill_and_go_on(job, whole, folder, chance, counts, seconds)
        except Exception as error:
            tally.lost.append(f"try {number}: {type(error).__name__}: {error}")
            continue
        tally.kills.update(kills)
        tally.survived += 1
        shutil.rmtree(folder)
    return tally


def kill_and_go_on(
    job: Job, whole: Path, folder: Path, chance: random.Random, counts: Counter[str], seconds: float
) -> Counter[str]:
    """One try; gives the moments of its kills."""
    kinds, kills, wanted = ["time", *sorted(counts)], Counter[str](), chance.randint(1, MOST_KILLS)
    job.prepare(folder)
    while kills.total() < wanted:
        kind = chance.choice(kinds)
        if kind == "time":
            ended = fork(job, folder, seconds=chance.uniform(0, seconds))
        else:
            ended = fork(job, folder, kind, chance.randint(1, counts[kind]))
        job.check(folder)
        if ended is None:
            kills[kind] += 1
        elif kills:
            break  # it went on from the kills before, and was done before the next
        else:
            shutil.rmtree(folder)
            job.prepare(folder)
    if fork(job, folder) is None:
        raise AssertionError("somebody else killed the job")
    job.check(folder)
    job.compare(whole, folder)
    left = [str(path) for path in folder.rglob(UNFINISHED)]
    assert not left, f"temporary files are left: {left}"
    return kills


# The jobs


def quiet(line: dict[str, Any]) -> None:
    """A report that nobody reads."""


def check_training(folder: Path) -> None:
    for path in states(folder):
        load_state(path)
    for path in folder.glob("*.safetensors"):
        if not path.name.startswith("state-"):
            load(path)


def two_checkpoints() -> list[Checkpoint]:
    return [Checkpoint(updown(seed=seed), VOCABULARY) for seed in (1, 2)]


def save_in_turn(folder: Path) -> None:
    """One checkpoint over the other, as a run does with its best model."""
    sweep(folder)
    for number in range(8):
        save(folder / "model.safetensors", two_checkpoints()[number % 2])


def check_checkpoint(folder: Path) -> None:
    if (path := folder / "model.safetensors").exists():
        said, known = load(path).model.state_dict(), [one.model.state_dict() for one in two_checkpoints()]
        assert any(all(torch.equal(said[name], one[name]) for name in one) for one in known), (
            "neither the old nor the new"
        )


def same_checkpoint(whole: Path, folder: Path) -> None:
    one, other = (path / "model.safetensors" for path in (whole, folder))
    assert_same_tensors(load(one).model.state_dict(), load(other).model.state_dict())
    assert one.read_bytes() == other.read_bytes()


def folder_of_photos(source: Path) -> Callable[[Path], None]:
    return lambda folder: shutil.copytree(source, folder / "photos")  # type: ignore[return-value]


def draw_photos(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        draw_photo(folder / f"{number:02d} é.png", (100 + number, 120), COLOURS[number % len(COLOURS)])
    return folder


def command(name: str, *arguments: object) -> Callable[[Path], None]:
    """A command with relative paths, in the folder of the try."""

    def run(folder: Path) -> None:
        torch.set_num_threads(1)
        os.chdir(folder)
        code = commands.main([name, *map(str, arguments), "--device", "cpu", "--threads", "1", "--quiet"])
        assert code == 0, f"exit code {code}"

    return run


def check_store(folder: Path) -> None:
    if (folder / "out" / "store.json").exists():
        assert all(len(scene) for scene in FeatureStore(folder / "out"))


def same_stores(whole: Path, folder: Path) -> None:
    one, other = (FeatureStore(path / "out") for path in (whole, folder))
    assert len(one) == len(set(one.ids())) == PHOTOS
    assert sorted(one.ids()) == sorted(other.ids())
    for id in one.ids():
        assert one[id].size == other[id].size
        for part in ("boxes", "regions", "grid", "vector"):
            np.testing.assert_allclose(getattr(one[id], part), getattr(other[id], part), atol=1e-2)


def check_index(folder: Path) -> None:
    """Whole, and each photo once."""
    if (path := folder / "out" / FILE).exists():
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            for table in ("photos", "vectors"):
                ids = [id for (id,) in db.execute(f"SELECT id FROM {table}")]
                assert len(ids) == len(set(ids)) == db.execute("SELECT count(*) FROM photos").fetchone()[0]


def rows_of(folder: Path) -> list[Any]:
    index = open_index(folder / "out")
    return sorted(index.rows(index.states()), key=lambda row: row.path)


def same_indexes(whole: Path, folder: Path) -> None:
    one, other = rows_of(whole), rows_of(folder)
    assert len(one) == len(other) == PHOTOS
    for row, its in zip(one, other, strict=True):
        assert Path(row.path).name == Path(its.path).name
        assert (row.content, row.size, row.caption) == (its.content, its.size, its.caption)
        np.testing.assert_allclose(row.vector, its.vector, atol=1e-5)


def captions_of(folder: Path) -> list[tuple[str, str, list[Any]]]:
    told = json.loads((folder / "out" / "captions.json").read_text())
    return [(Path(one["path"]).name, one["caption"], one["size"]) for one in told]


def check_captions(folder: Path) -> None:
    """What is there by its own name is whole."""
    out = folder / "out"
    for name, read in (("json", json.loads), ("jsonl", lambda text: [json.loads(line) for line in text.splitlines()])):
        if (path := out / f"captions.{name}").exists():
            read(path.read_text())
    if (path := out / "captions.html").exists():
        assert path.read_text().rstrip().endswith("</html>")
    for path in (folder / "photos").glob("*.xmp"):
        assert "dc:description" in path.read_text()


def same_captions(whole: Path, folder: Path) -> None:
    one, other = captions_of(whole), captions_of(folder)
    assert one == other
    for name in FORMATS[:2]:  # a line each
        lines = [len((path / "out" / f"captions.{name}").read_text().splitlines()) for path in (whole, folder)]
        assert lines[0] == lines[1]
    names = [sorted(path.relative_to(top).as_posix() for path in top.rglob("*")) for top in (whole, folder)]
    assert names[0] == names[1]


def jobs(home: Path) -> dict[str, Job]:
    """All but those of Ray, with a tiny model and photos in `home`."""
    torch.set_num_threads(1)
    save_bundle(home / "tiny.safetensors", tiny_bundle())
    put = folder_of_photos(draw_photos(home / "photos", PHOTOS))
    tiny, out = ("--model", home / "tiny.safetensors"), ("--out", "out")
    hard = ("--length", 5, "--beam", 2, "--format", ",".join((*FORMATS, "xmp", "pictures")))
    return {
        "train": Job(
            lambda folder: void(train(tiny_run(folder, report=quiet))), check_training, assert_same_runs, make_folder
        ),
        "extract": Job(command("extract", "photos", *out, "--batch", 4, *tiny), check_store, same_stores, put),
        "caption": Job(command("caption", "photos", *out, *hard, *tiny), check_captions, same_captions, put),
        "index": Job(command("index", "photos", "--store", "out", *tiny), check_index, same_indexes, put),
        "checkpoint": Job(save_in_turn, check_checkpoint, same_checkpoint, make_folder),
    }


def make_folder(folder: Path) -> None:
    folder.mkdir(parents=True)


def void(value: object) -> None:
    """Nothing, whatever it was."""


# Ray


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """The address of two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    memory = 80 << 20
    head = {"num_cpus": 1, "object_store_memory": memory, "include_dashboard": False}
    both = Cluster(initialize_head=True, head_node_args=head)
    both.add_node(num_cpus=1, object_store_memory=memory)
    try:
        yield both.address
    finally:
        both.shutdown()  # type: ignore[no-untyped-call, unused-ignore]


def workers() -> list[int]:
    """The processes of this cluster's workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            if (folder / "cmdline").read_bytes().startswith(b"ray::_Worker") and is_ours(int(folder.name)):
                found.append(int(folder.name))
    return found


def is_ours(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def photos_done(ledger: Path) -> int:
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return sum(len(json.loads(line.partition(" ")[2])) for line in lines if line.endswith("]"))


def count_ray_tries(tries: int, home: Path, seed: str) -> Tally:
    """Kill a worker, or whoever asked, once some photos are done; a lost worker must not even need a second run."""
    tally, chance = Tally(), random.Random(seed)
    photos = draw_photos(home / "ray-photos", RAY_PHOTOS)
    hard = ["--length", "5", "--beam", "2", "--format", "json"]
    options = ["--model", str(home / "tiny.safetensors"), "--device", "cpu", "--threads", "1", "--quiet"]
    job = [sys.executable, "-m", "sightline", "caption", str(photos), "--out", "out", *hard, *options]
    (home / "ray-whole").mkdir()
    subprocess.run(job, cwd=home / "ray-whole", check=True)
    right = captions_of(home / "ray-whole")
    with cluster() as address:
        for number in range(tries):
            folder = home / f"ray-{number:03d}"
            folder.mkdir()
            tally.tries += 1
            victim = chance.choice(("worker", "driver"))
            try:
                killed = lose(victim, [*job, "--ray", address], folder, chance.randrange(RAY_PHOTOS // 2))
                assert captions_of(folder) == right, "captions are lost, doubled or others"
            except Exception as error:
                tally.lost.append(f"try {number}: {type(error).__name__}: {error}")
                continue
            tally.kills[victim] += killed
            tally.survived += 1
    return tally


def lose(victim: str, job: list[str], folder: Path, after: int) -> bool:
    """Kill once more than `after` photos are done, then see the job to its end; whether it was at work still."""
    ledger = folder / "out" / ".sightline" / "ledger.jsonl"
    with subprocess.Popen(job, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asks:
        until = time.monotonic() + PATIENCE
        while photos_done(ledger) <= after and asks.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        victims = [asks.pid] if victim == "driver" else workers()[:1]
        killed = bool(victims) and asks.poll() is None and photos_done(ledger) < RAY_PHOTOS
        if killed:
            os.kill(victims[0], signal.SIGKILL)
        code = asks.wait(timeout=PATIENCE)
    if victim == "driver":
        code = subprocess.run(job, cwd=folder, capture_output=True, check=False).returncode
    assert code == 0, f"exit code {code}"
    return killed


def main(arguments: list[str] | None = None) -> int:
    names = ("train", "extract", "caption", "index", "ray", "checkpoint")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=20, help="of each job")
    parser.add_argument("--what", nargs="+", choices=names, default=names)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["SIGHTLINE_CACHE"] = str(home / "cache")
        known = jobs(home)
        for name in sorted(options.what, key=lambda name: name == "ray"):  # last: Ray starts threads, which no fork has
            seed = f"{options.seed} {name}"
            if name == "ray":
                tallies[name] = count_ray_tries(options.tries, home, seed)
            else:
                tallies[name] = count_tries(known[name], options.tries, home / name, seed)
            for lost in tallies[name].lost:
                print(f"{name}, {lost}", file=sys.stderr)
            print(f"{name}: {tallies[name].as_json()}", file=sys.stderr, flush=True)
    print(json.dumps({name: tally.as_json() for name, tally in tallies.items()}, indent=1))
    return 1 if any(tally.lost for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
