"""A tiny run of the loop, in this process or in others that can be killed, and what it leaves behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from objective_samples import VOCABULARY, make_pool, updown
from sightline.checkpoint.model_checkpoint import Checkpoint, load
from sightline.training.batches import Batching
from sightline.training.evaluation import token_loss
from sightline.training.loop import Run, train
from sightline.training.objective import Context
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.stage import Optimiser, Schedule, Selection, Stage
from sightline.training.state import Counters, load_state, states
from sightline.training.tensor_tables import Pool

CLOCK = ("images/s", "seconds left")
POOLS = {"train": make_pool(12, 2, seed=1), "val": make_pool(4, 2, seed=2)}

FIRST = Stage(
    CrossEntropyConfig(smoothing=0.1),
    "first",
    Batching(size=3, captions=2),
    Optimiser(lr=0.01, clamp=0.1),
    Schedule("decay", every=1),
    epochs=3,
)
SECOND = Stage(
    CrossEntropyConfig(),
    "second",
    Batching("pairs", size=5),
    Optimiser("adamw", lr=0.02, weight_decay=0.01, clip=1.0, lrs={"output": 0.005}),
    Schedule("inverse_sqrt", warmup=3),
    steps=9,
    accumulate=2,
    select=Selection(every_steps=3),
)


def loss_of(checkpoint: Checkpoint, pool: Pool, stage: Stage) -> dict[str, float]:
    return {"loss": token_loss(checkpoint.captioner(), pool)}


def tiny_run(out: Path, *stages: Stage, dropout: float = 0.3, **changes: Any) -> Run:
    start = Checkpoint(updown(seed=3, dropout=dropout), VOCABULARY)
    context = Context(VOCABULARY, POOLS, seed=5)
    run = Run(out, start, stages or (FIRST, SECOND), context, loss_of, "tiny", save_every=2)
    return replace(run, **changes)


def logged(out: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what the clock says."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def last_state(out: Path) -> tuple[Counters, dict[str, torch.Tensor]]:
    return load_state(states(out)[-1])


def assert_same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def assert_same_runs(one: Path, other: Path) -> None:
    """Two folders hold the same run to the last bit: log, weights, optimiser, counters, best models."""
    assert logged(one) == logged(other)
    (counters, tensors), (theirs, their_tensors) = last_state(one), last_state(other)
    assert counters == theirs
    assert_same_tensors(tensors, their_tensors)
    for name in ("model", "stage-0", "stage-1"):
        paths = [folder / f"{name}.safetensors" for folder in (one, other)]
        assert paths[0].exists() == paths[1].exists()
        if paths[0].exists():
            assert_same_tensors(*(load(path).model.state_dict() for path in paths))


class Child:
    """A function in another process: what it sends, how it ends."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")  # which imports torch once
        context.set_forkserver_preload(
            ["pytest", "torch._dynamo", "sightline.training.evaluation", "sightline.training.loop"]
        )
        self.messages, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_call, args=(theirs, function, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def heard(self, timeout: float = 60) -> Any:
        """The next thing it sends; None after it has ended."""
        try:
            return self.messages.recv() if self.messages.poll(timeout) else "nothing was heard"
        except EOFError:
            return None

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        """Read what it sends until something is wanted, or None when it ends before."""
        while (message := self.heard()) is not None:
            if wanted(message):
                return message
        return None

    def told(self) -> str:
        """How it ended: `done`, an error's name and sentence, or nothing where it was killed."""
        said = ""
        while (message := self.heard()) is not None:
            said = message if isinstance(message, str) else said
        self.process.join(60)
        return said

    def signal(self, number: int) -> None:
        os.kill(self.process.pid or 0, number)


def _call(messages: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        function(messages.send, *arguments)
        messages.send("done")
    except BaseException as error:
        messages.send(f"{type(error).__name__}: {error}")


def run_tiny(send: Callable[[Any], None], out: Path) -> None:
    train(tiny_run(out, report=send))


def run_together(send: Callable[[Any], None], out: Path, rank: int, world: int, *stages: Stage, **changes: Any) -> None:
    """One of several processes of a run without dropout."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    out.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo", init_method=f"file://{out.parent}/{out.name}.meet", rank=rank, world_size=world)
    train(tiny_run(out, *stages, dropout=0.0, report=send, **changes))
