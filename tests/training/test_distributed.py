"""Several processes train one model: the gradients and the end of one process, one mind, one writer, no hang."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from loop_samples import FIRST, SECOND, Child, assert_same_tensors, last_state, logged, run_together, tiny_run
from sightline.checkpoint.model_checkpoint import load
from sightline.errors import LearningError
from sightline.training.batches import Batching
from sightline.training.distributed import Distributed
from sightline.training.loop import train
from sightline.training.stage import Optimiser, Selection

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="processes talk through gloo here")
torch.set_num_threads(1)

# Which caption of a photo is drawn must not depend on who draws. Adam divides by a gradient's size, and would make
# rounding errors of a gradient that is almost 0 as large as any other step; a larger eps does not.
STAGES = (
    replace(FIRST, batch=Batching(size=4, captions=1), optimiser=replace(FIRST.optimiser, eps=1e-3)),
    replace(SECOND, batch=Batching("pairs", size=4), optimiser=replace(SECOND.optimiser, eps=1e-3)),
)


def together(out: Path, *stages: Any, run: Callable[..., None] = run_together, world: int = 2) -> list[Child]:
    return [Child(run, out, rank, world, *stages) for rank in range(world)]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load(out / "model.safetensors").model.state_dict()


def test_two_processes_take_the_gradient_of_one(tmp_path):
    stage = replace(STAGES[0], optimiser=Optimiser("sgd", lr=1.0), steps=1)  # the step is the gradient
    train(tiny_run(tmp_path / "one", stage, dropout=0.0))
    assert [child.told() for child in together(tmp_path / "two", stage)] == ["done", "done"]
    for name, value in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], value, atol=1e-6, rtol=0)


def test_two_processes_end_with_the_weights_and_the_log_of_one(tmp_path):
    alone, both = tmp_path / "one", tmp_path / "two"
    train(tiny_run(alone, *STAGES, dropout=0.0))
    assert [child.told() for child in together(both, *STAGES)] == ["done", "done"]
    for name, value in weights(alone).items():
        torch.testing.assert_close(weights(both)[name], value, atol=1e-6, rtol=0)
    assert len(logged(alone)) == len(logged(both))
    for one, two in zip(logged(alone), logged(both), strict=True):
        assert two.pop("stage") == one.pop("stage")
        assert two == pytest.approx(one, rel=1e-5)


def test_only_the_first_process_reports(tmp_path):
    first, second = together(tmp_path / "run", STAGES[0])
    assert first.until(lambda line: "val loss" in line)
    assert first.told() == "done"
    assert second.heard() == "done"


def run_of_two_minds(send: Callable[[Any], None], out: Path, rank: int, world: int) -> None:
    """Each process finds another loss on the val split: the first ever higher ones, the second ever lower ones."""
    seen = []

    def evaluate(*_: Any) -> dict[str, float]:
        seen.append(0)
        return {"loss": float(len(seen)) if rank == 0 else -float(len(seen))}

    stage = replace(STAGES[0], epochs=20, select=Selection(patience=2))
    run_together(send, out, rank, world, stage, evaluate=evaluate)
    send(f"evaluated {len(seen)} times")


def test_processes_that_measure_differently_stop_together(tmp_path):
    both = together(tmp_path / "run", run=run_of_two_minds)
    assert [child.until(lambda message: isinstance(message, str)) for child in both] == ["evaluated 3 times"] * 2
    assert last_state(tmp_path / "run")[0].best_step == 3


def run_slowly(send: Callable[[Any], None], out: Path, rank: int, world: int) -> None:
    def evaluate(*_: Any) -> dict[str, float]:
        send({"rank": rank})
        time.sleep(0.05)
        return {"loss": 1.0}

    stage = replace(STAGES[0], epochs=5, select=Selection(every_steps=1))
    run_together(send, out, rank, world, stage, evaluate=evaluate)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of an undisturbed run of two processes."""
    out = tmp_path_factory.mktemp("two") / "whole"
    assert [child.told() for child in together(out, run=run_slowly)] == ["done", "done"]
    return out


@pytest.mark.parametrize("asked", [0, 1])
def test_a_signal_to_one_process_ends_both_at_the_same_step_and_they_go_on(tmp_path, whole, asked):
    cut = tmp_path / "cut"
    both = together(cut, run=run_slowly)
    for _ in range(3):
        both[asked].heard()
    both[asked].signal(signal.SIGTERM)
    assert [child.told() for child in both] == ["KeyboardInterrupt: "] * 2
    assert 0 < last_state(cut)[0].step < 15
    Path(f"{cut}.meet").unlink()
    assert [child.told() for child in together(cut, run=run_slowly)] == ["done", "done"]
    assert_same_tensors(weights(whole), weights(cut))
    assert_same_tensors(last_state(whole)[1], last_state(cut)[1])


@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_is_killed_ends_the_other_with_a_sentence(tmp_path, killed):
    both = together(tmp_path / "run", run=run_slowly)
    for _ in range(3):
        both[killed].heard()
    both[killed].process.kill()
    told = both[1 - killed].told()
    assert told.startswith("LearningError: another process of this run has stopped. To fix: see what it said")


def run_with_an_error(send: Callable[[Any], None], out: Path, rank: int, world: int) -> None:
    def evaluate(*_: Any) -> dict[str, float]:
        if rank == 1:
            raise ValueError("only here")
        return {"loss": 1.0}

    run_together(send, out, rank, world, STAGES[0], evaluate=evaluate)


def test_an_error_in_one_process_ends_the_other_with_a_sentence(tmp_path):
    first, second = together(tmp_path / "run", run=run_with_an_error)
    assert second.told() == "ValueError: only here"
    second.process.join()
    assert first.told().startswith("LearningError: another process of this run has stopped")


def test_a_batch_too_small_for_all_processes_is_refused_by_all(tmp_path):
    small = replace(STAGES[0], batch=Batching(size=1))
    told = [child.told() for child in together(tmp_path / "run", small)]
    assert told == ["ConfigError: 2 processes share a batch of 1. To fix: set batch.size to 2 or more."] * 2


@contextlib.contextmanager
def joined(folder: Path, rank: int, world: int) -> Iterator[Distributed]:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    try:
        yield Distributed()
    finally:
        dist.destroy_process_group()


def talk(send: Callable[[Any], None], folder: Path, rank: int) -> None:
    with joined(folder, rank, 3) as distributed:
        norm = nn.BatchNorm1d(2)
        norm(torch.randn(4, 2, generator=torch.Generator().manual_seed(rank)))
        distributed.broadcast_tensors([*norm.buffers()])
        parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
        parameters[0].grad = torch.full((2,), 10.0**rank)
        if rank == 1:
            parameters[1].grad = torch.tensor([1.0, 2.0])
        distributed.add_gradients(parameters)
        found = [None if parameter.grad is None else parameter.grad.tolist() for parameter in parameters]
        told = (
            distributed.first,
            distributed.sum(1.0, rank),
            distributed.gather(rank),
            distributed.broadcast(f"from {rank}"),
        )
        send((*told, found, norm.running_mean.tolist(), int(norm.num_batches_tracked)))


def test_a_team_adds_agrees_and_shares(tmp_path):
    children, here = [Child(talk, tmp_path, rank) for rank in (1, 2)], []
    talk(here.append, tmp_path, 0)
    assert here[0][:5] == (True, [3.0, 3.0], [0, 1, 2], "from 0", [[111.0] * 2, [1.0, 2.0], None])
    for child in children:
        heard = child.heard()
        assert not heard[0]
        assert heard[1:] == here[0][1:]  # the statistics of batch norms are those of process 0


def leave(send: Callable[[Any], None], folder: Path) -> None:
    with joined(folder, 1, 2) as distributed:
        distributed.sum(1.0)


@pytest.mark.parametrize("how", ["sum", "gather", "broadcast", "broadcast_tensors", "add_gradients"])
def test_a_process_that_has_left_is_told_by_whatever_waits_for_it(tmp_path, how):
    child = Child(leave, tmp_path)
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    waits = {
        "sum": 1.0,
        "gather": 1,
        "broadcast": 1,
        "broadcast_tensors": [torch.zeros(1)],
        "add_gradients": [parameter],
    }
    with joined(tmp_path, 0, 2) as distributed:
        distributed.sum(1.0)
        assert child.told() == "done"
        with pytest.raises(LearningError, match="another process of this run has stopped"):
            getattr(distributed, how)(waits[how])


def test_a_team_of_one_changes_nothing():
    distributed, parameter = Distributed(), nn.Parameter(torch.zeros(2))
    distributed.add_gradients([parameter])
    distributed.broadcast_tensors([parameter])
    assert (distributed.rank, distributed.world, distributed.first, parameter.grad) == (0, 1, True, None)
    assert (distributed.sum(2.0), distributed.gather("a"), distributed.broadcast("b")) == ([2.0], ["a"], "b")
