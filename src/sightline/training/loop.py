"""The loop: from a recipe's stages and data to a chosen model. Read it from top to bottom.

Everything a step does follows from (seed, stage, step): which rows it sees, which units dropout drops. So a run that
was killed goes on from its last state as if nothing had happened, to the same bits on a CPU.

Several processes (`torchrun`) take every step together, each with its part of the batch. They wait for one another
wherever `team` is called, so no such call may depend on what one process alone knows. Only process 0 writes; all
see the same folder.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import ConfigError, LearningError
from sightline.files import lock, unwritable
from sightline.training.batches import Batch, Batches, Batching, prefetch
from sightline.training.distributed import Distributed, interruptible
from sightline.training.objective import Context, Losses, Objective, Progress
from sightline.training.run_log import Clock
from sightline.training.stage import Stage
from sightline.training.state import Counters, cut, load_state, newest, restore, restore_optimiser, save_state
from sightline.training.tensor_tables import Pool

Evaluate = Callable[[Checkpoint, Pool, Stage], dict[str, float]]
LOG_EVERY = 50  # steps


@dataclass(frozen=True, eq=False)
class Run:
    """What one run of the loop needs.

    Attributes:
        out: the folder of the run: `model.safetensors` when it is done, states, metrics.jsonl, best models of stages,
            and what stages that average began with.
        start: the model to train, with its words. It is copied.
        stages: one after the other.
        pools: `train`, `val` and, for R2M, `corpus`.
        context: what objectives need.
        evaluate: gives the metrics by which the best model is chosen.
        seed: of everything random.
        recipe: fingerprint of what is run; a folder that holds another run is refused.
        save_every: the most steps between states; they are written at the end of each epoch too.
        keep: states that are kept.
        report: is told each line of metrics.jsonl.
    """

    out: Path
    start: Checkpoint
    stages: Sequence[Stage]
    pools: dict[str, Pool]
    context: Context
    evaluate: Evaluate
    seed: int = 0
    recipe: str = ""
    save_every: int = 500
    keep: int = 2
    report: Callable[[dict[str, Any]], None] = field(default=lambda line: None)


@dataclass(frozen=True, eq=False)
class _Work:
    """What a stage works with."""

    run: Run
    stage: Stage
    model: Any
    objective: Objective
    optimiser: torch.optim.Optimizer
    parameters: dict[str, nn.Parameter]
    batches: Batches
    counters: Counters
    distributed: Distributed
    clock: Clock = field(default_factory=Clock)
    unread: list[dict[str, Tensor]] = field(default_factory=list)  # losses of steps, left on the device

    @property
    def per_epoch(self) -> int:
        return max(1, len(self.batches) // self.stage.accumulate)

    @property
    def steps(self) -> int:
        return self.stage.steps or self.stage.epochs * self.per_epoch


def train(run: Run) -> Checkpoint:
    """Run all stages, or go on where a killed run stopped, and give the chosen model."""
    distributed = Distributed()
    run.out.mkdir(parents=True, exist_ok=True)
    alone = lock(run.out / "lock") if distributed.first else contextlib.nullcontext()
    with alone, interruptible() as interrupted:
        counters, tensors = _resume(run, distributed)
        model = copy.deepcopy(run.start.model).to(run.context.device)
        if tensors:
            restore(tensors, model)
        distributed.share([*model.state_dict().values()])
        for number in range(counters.stage, len(run.stages)):
            if number > counters.stage:
                counters, tensors = Counters(number, lines=counters.lines, recipe=run.recipe), {}
            if not counters.done:
                trained = {name: part.requires_grad for name, part in model.named_parameters()}
                _stage(_begin(run, model, counters, tensors, distributed), interrupted)
                for name, part in model.named_parameters():  # what this stage froze, the next may train
                    part.requires_grad_(trained[name])
            if counters.best is not None:  # the next stage starts from the best of this one
                if distributed.first:
                    model.load_state_dict(load(_best(run, number)).model.state_dict())
                distributed.share([*model.state_dict().values()])
            if run.stages[number].average:
                if distributed.first:
                    _average(model, load(_before(run, number)).model, run.stages[number].average)
                distributed.share([*model.state_dict().values()])
        chosen = replace(run.start, model=model)
        if distributed.first:
            save(run.out / "model.safetensors", chosen)
        if any(distributed.gather(interrupted())):
            raise KeyboardInterrupt
        return chosen


def _begin(run: Run, model: Any, counters: Counters, tensors: dict[str, Tensor], distributed: Distributed) -> _Work:
    """Make what the stage needs, with what a state says of it."""
    stage, number = run.stages[counters.stage], counters.stage
    torch.manual_seed(_seed(run.seed, number))  # what the objective draws for itself is the same in every process
    objective = stage.objective.build(run.context).to(run.context.device)
    if tensors:
        restore(tensors, objective=objective)
    else:
        objective.begin(model)
        if stage.average and distributed.first:
            save(_before(run, number), replace(run.start, model=model))
    pool, seed = run.pools[stage.batch.pool], run.seed + 1000 * number
    beside = None if objective.beside is None else _beside(run, objective.beside, seed)
    batches = Batches(pool, stage.batch, seed, objective.negatives, objective.positives, beside)
    parameters = {**dict(model.named_parameters()), **{f"objective.{n}": p for n, p in objective.named_parameters()}}
    optimiser = stage.optimiser.build(parameters)
    restore_optimiser(tensors, optimiser, parameters)
    model.train()
    return _Work(run, stage, model, objective, optimiser, parameters, batches, counters, distributed)


def _beside(run: Run, batching: Batching, seed: int) -> Batches:
    """The second batches that an objective asks for."""
    if batching.pool not in run.pools:
        raise ConfigError(
            f"a batch of {batching.pool} goes beside every step, and there is no {batching.pool}",
            fix="give data.corpus, or set the objective's `text` to 0",
        )
    return Batches(run.pools[batching.pool], batching, seed)


def _stage(work: _Work, interrupted: Callable[[], bool]) -> None:
    """Take the steps from `counters` on; they tell afterwards how it went."""
    run, stage, counters, distributed = work.run, work.stage, work.counters, work.distributed
    todo, saved = range(counters.step, work.steps), counters.step
    batches_of = prefetch(work.batches, stage.accumulate, todo, distributed.rank, distributed.world)
    with _products(stage.precision), batches_of as feed:
        if stage.select.start and not counters.step:  # no state is written before the first step: it is not done twice
            _evaluate(work, 0)
        for step, batches in zip(todo, feed, strict=True):
            weight, asked = distributed.sum(sum(map(work.objective.weight, batches)), interrupted())
            if asked:  # by anybody: all stop here
                if saved < step:
                    _save(work)
                raise KeyboardInterrupt
            epoch = step // work.per_epoch
            torch.manual_seed(_seed(run.seed, counters.stage, step, distributed.rank))
            factor = stage.schedule.at(epoch, step, work.steps)
            for group in work.optimiser.param_groups:
                group["lr"] = group["base_rate"] * factor
            with _enough_memory(stage):
                work.unread.append(_step(work, batches, weight or 1.0, Progress(epoch, step, step / work.steps)))
            counters.step = step + 1
            work.clock.count(sum(len(batch.photos) for batch in batches) * distributed.world)
            ended, last = counters.step % work.per_epoch == 0, counters.step == work.steps
            if ended:
                work.objective.after_epoch(work.model, epoch)
            if ended or last or counters.step % LOG_EVERY == 0:
                line = {
                    "epoch": epoch,
                    "step": counters.step,
                    "steps": work.steps,
                    "rate": stage.optimiser.lr * factor,
                }
                _log(work, {**line, **_means(work), **work.clock.told(work.steps - counters.step)})
            with work.clock.paused():
                if stage.select.due(counters.step, work.per_epoch, last):
                    _evaluate(work, epoch)
                counters.done = last or stage.select.spent(counters.without_better)
                if ended or counters.done or counters.step - saved >= run.save_every:
                    _save(work)
                    saved = counters.step
            if counters.done:
                break


def _step(work: _Work, batches: Sequence[Batch], weight: float, progress: Progress) -> dict[str, Tensor]:
    """Accumulate gradients over the batches, sum them over processes, clip, and step: the losses of this process.

    Nothing here waits for the device.
    """
    optimiser, settings, device = work.optimiser, work.stage.optimiser, work.run.context.device
    optimiser.zero_grad(set_to_none=True)
    found: dict[str, Tensor] = {}
    for batch in batches:
        with torch.autocast(device.type, torch.bfloat16, enabled=work.stage.precision == "bfloat16"):
            losses: Losses = work.objective(work.model, batch.to(device), progress)
        torch.autograd.backward(losses.total / weight)
        for name, value in {"loss": losses.total, **losses.parts}.items():
            found[name] = found.get(name, 0) + value.detach() / weight
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    work.distributed.add_gradients(parameters)
    if settings.clamp:
        nn.utils.clip_grad_value_(parameters, settings.clamp)
    if settings.clip:
        nn.utils.clip_grad_norm_(parameters, settings.clip)
    optimiser.step()
    work.distributed.share([*work.model.buffers(), *work.objective.buffers()])  # statistics of batch norms
    return found


def _read(work: _Work) -> None:
    """Add the losses that were left on the device to the counters; stop where they or the weights are no numbers."""
    counters, stage = work.counters, work.stage.name
    if not work.unread:
        return
    rows = [{name: float(value) for name, value in step.items()} for step in work.unread]
    first = counters.step - len(rows) + 1
    work.unread.clear()
    fix = "lower the learning rate or clip gradients (optimiser.clip); the last good state is kept"
    for number, shares in enumerate(zip(*work.distributed.gather(rows), strict=True), first):
        losses = {name: sum(share.get(name, 0.0) for share in shares) for share in shares for name in share}
        if not math.isfinite(losses["loss"]):
            raise LearningError(f"the loss is {losses['loss']} at step {number} of stage `{stage}`", fix=fix)
        counters.sums |= {name: counters.sums.get(name, 0.0) + value for name, value in losses.items()}
        counters.summed += 1
    if not torch.stack([parameter.isfinite().all() for parameter in work.parameters.values()]).all():
        raise LearningError(f"weights are not finite after step {counters.step} of stage `{stage}`", fix=fix)


def _means(work: _Work) -> dict[str, float]:
    """The loss and its parts, averaged over the steps since they were last asked for."""
    _read(work)
    means = {name: value / work.counters.summed for name, value in work.counters.sums.items()}
    work.counters.sums, work.counters.summed = {}, 0
    return means


def _evaluate(work: _Work, epoch: int) -> None:
    """Evaluate on the val split, and keep the model if it is the best so far.

    Every process evaluates, so that none waits long for another, and what process 0 found counts.
    """
    run, stage, counters = work.run, work.stage, work.counters
    _read(work)
    work.model.eval()
    checkpoint = replace(run.start, model=work.model)
    with torch.no_grad(), _enough_memory(stage, evaluating=True):
        found = run.evaluate(checkpoint, run.pools[stage.held_out()], stage)
    work.model.train()
    metrics: dict[str, float] = work.distributed.tell(found)
    metric = stage.select.metric
    if metric not in metrics:
        raise LearningError(f"evaluation gives no `{metric}`", fix=f"select.metric: one of {', '.join(metrics)}")
    if not math.isfinite(metrics[metric]):
        what = f"`{metric}` of the val split is {metrics[metric]} after step {counters.step}"
        raise LearningError(what, fix="lower the learning rate; the last good state is kept")
    value = metrics[metric] * (-1 if metric == "loss" else 1)
    if counters.best is None or value > counters.best:
        counters.best, counters.best_step, counters.without_better = value, counters.step, 0
        if work.distributed.first:
            save(_best(run, counters.stage), checkpoint)
    else:
        counters.without_better += 1
    _log(work, {"epoch": epoch, "step": counters.step, **{f"val {name}": value for name, value in metrics.items()}})


def _best(run: Run, number: int) -> Path:
    return run.out / f"stage-{number}.safetensors"


def _before(run: Run, number: int) -> Path:
    return run.out / f"before-{number}.safetensors"


def _average(model: nn.Module, before: nn.Module, share: float) -> None:
    """Move a model's weights and statistics towards those it had `before` by a share of the way."""
    own, theirs = model.state_dict(), before.state_dict()
    mixed = {n: part.lerp(theirs[n].to(part), share) for n, part in own.items() if part.is_floating_point()}
    model.load_state_dict({**own, **mixed})


def _save(work: _Work) -> None:
    _read(work)
    if work.distributed.first:
        names = {parameter: name for name, parameter in work.parameters.items()}
        out, keep = work.run.out, work.run.keep
        save_state(out, work.counters, work.model, work.objective, work.optimiser, names, keep)


def _resume(run: Run, distributed: Distributed) -> tuple[Counters, dict[str, Tensor]]:
    """The newest readable state of this run, or the beginning; metrics.jsonl is cut to what it knows."""
    name = distributed.tell(newest(run.out) if distributed.first else None)
    counters, tensors = load_state(run.out / name) if name else (Counters(recipe=run.recipe), {})
    if counters.recipe != run.recipe:
        raise LearningError(
            "this folder holds a run of another recipe", where=run.out, fix="choose another --out, or remove it"
        )
    if distributed.first:
        counters.lines = cut(run.out / "metrics.jsonl", counters.lines)
    return counters, tensors


def _log(work: _Work, line: dict[str, Any]) -> None:
    """Add a line to metrics.jsonl. It is on disk before a state that counts it."""
    work.counters.lines += 1
    if work.distributed.first:
        line = {"stage": work.stage.name, **line}
        path = work.run.out / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(path, error) from error
        work.run.report(line)


@contextlib.contextmanager
def _products(precision: str) -> Iterator[None]:
    """How float32 matrices are multiplied within."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def _enough_memory(stage: Stage, evaluating: bool = False) -> Iterator[None]:
    """Say what to do where memory runs out."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if type(error) is RuntimeError and "can't allocate memory" not in str(error):  # how a CPU says it
            raise
        size, key = stage.batch.size, f"stages.{stage.name}"
        smaller = f"{key}.batch.size={max(1, size // 2)} {key}.accumulate={2 * stage.accumulate}"
        what, fix = f"with batches of {size}", f"take several smaller ones for a step, in another --out: {smaller}"
        if evaluating:
            what, fix = "while it was evaluated", "take fewer photos at once, in another --out: evaluate.batch=16"
        raise LearningError(f"memory ran out in stage `{stage.name}`, {what}", fix=fix) from error


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
