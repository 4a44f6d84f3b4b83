"""The loop: from a recipe's stages and data to a chosen model. `train_stage` goes from a batch to its optimiser step.

Everything a step does follows from (seed, stage, step): which rows it sees, which units dropout drops. So a run that
was killed goes on from its last state as if nothing had happened, to the same bits on a CPU.

Several processes (`torchrun`) take every step together, each with its part of the batch. They wait for one another
wherever `distributed` is called, so no such call may depend on what one process alone knows. Only process 0 writes; all
see the same folder.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import ConfigError, LearningError
from sightline.files import lock
from sightline.training.batches import Batches, prefetch
from sightline.training.distributed import Distributed, interruptible
from sightline.training.objective import Context, Objective, Progress
from sightline.training.run_log import StageLog
from sightline.training.stage import Stage
from sightline.training.state import Counters, cut, load_state, newest, restore, restore_optimiser, save_state
from sightline.training.tensor_tables import Pool

Evaluate = Callable[[Checkpoint, Pool, Stage], dict[str, float]]
LOG_EVERY = 50  # steps
METRICS = "metrics.jsonl"
BEST, BEFORE = "stage-{}.safetensors", "before-{}.safetensors"  # of a stage: its best model, what it began with


@dataclass(frozen=True, eq=False)
class Run:
    """What one run of the loop needs."""

    # the folder of the run: `model.safetensors` when it is done, states, metrics.jsonl, best models of stages, and what
    # stages that average began with
    out: Path
    start: Checkpoint  # the model to train, with its words. It is copied.
    stages: Sequence[Stage]  # one after the other
    pools: dict[str, Pool]  # `train`, `val` and, for R2M, `corpus`
    context: Context  # what objectives need
    evaluate: Evaluate  # gives the metrics by which the best model is chosen
    seed: int = 0  # of everything random
    recipe: str = ""  # fingerprint of what is run; a folder that holds another run is refused
    save_every: int = 500  # the most steps between states; they are written at the end of each epoch too
    keep: int = 2  # states that are kept
    # is called with each line of metrics.jsonl
    report: Callable[[dict[str, Any]], None] = field(default=lambda line: None)


def train(run: Run) -> Checkpoint:
    """Run all stages, or go on where a killed run stopped, and give the chosen model."""
    distributed = Distributed()
    run.out.mkdir(parents=True, exist_ok=True)
    alone = lock(run.out / "lock") if distributed.first else contextlib.nullcontext()
    with alone, interruptible() as interrupted:
        counters, tensors = _resume(run, distributed)
        model = copy.deepcopy(run.start.model).to(run.context.device)
        if tensors:
            restore(tensors, model, "model/")
        distributed.share([*model.state_dict().values()])
        for number in range(counters.stage, len(run.stages)):
            if number > counters.stage:
                counters, tensors = Counters(number, lines=counters.lines, recipe=run.recipe), {}
            if not counters.done:
                learns = {name: part.requires_grad for name, part in model.named_parameters()}
                train_stage(_begin(run, model, counters, tensors, distributed), interrupted)
                for name, part in model.named_parameters():  # what this stage froze, the next may train
                    part.requires_grad_(learns[name])
            if distributed.first and counters.best is not None:  # the next stage starts from the best of this one
                model.load_state_dict(load(run.out / BEST.format(number)).model.state_dict())
            if distributed.first and run.stages[number].average:
                _average(model, load(run.out / BEFORE.format(number)).model, run.stages[number].average)
            distributed.share([*model.state_dict().values()])
        chosen = replace(run.start, model=model)
        if distributed.first:
            save(run.out / "model.safetensors", chosen)
        if any(distributed.gather(interrupted())):
            raise KeyboardInterrupt
        return chosen


@dataclass(frozen=True, eq=False)
class _Work:
    """The parts of a stage that is being trained."""

    run: Run
    stage: Stage
    model: Any
    objective: Objective
    optimiser: torch.optim.Optimizer
    parameters: dict[str, nn.Parameter]
    batches: Batches
    counters: Counters
    distributed: Distributed
    log: StageLog


def train_stage(work: _Work, interrupted: Callable[[], bool]) -> None:
    """Take the steps of a stage from its counters on: batches, loss, gradients, step; then log, evaluate, save.

    Until it logs, nothing here waits for the device.
    """
    run, stage, counters, distributed, log = work.run, work.stage, work.counters, work.distributed, work.log
    model, objective, optimiser, device = work.model, work.objective, work.optimiser, run.context.device
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    per_epoch = max(1, len(work.batches) // stage.accumulate)
    steps = stage.steps or stage.epochs * per_epoch
    todo, saved = range(counters.step, steps), counters.step
    batches_of_steps = prefetch(work.batches, stage.accumulate, todo, distributed.rank, distributed.world)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=stage.precision == "bfloat16")
    with _matmul_precision(stage.precision), batches_of_steps as feed:
        if stage.select.start and not counters.step:  # no state is written before the first step: it is not done twice
            _evaluate(work, 0)
        for step, batches in zip(todo, feed, strict=True):
            weight, stop = distributed.sum(sum(map(objective.weight, batches)), interrupted())
            if stop:  # whoever was asked to: all processes stop here
                if saved < step:
                    _save(work)
                raise KeyboardInterrupt
            progress = Progress(step // per_epoch, step, step / steps)
            torch.manual_seed(_seed(run.seed, counters.stage, step, distributed.rank))
            factor = stage.schedule.at(progress.epoch, step, steps)
            for group in optimiser.param_groups:
                group["lr"] = group["base_lr"] * factor

            with _enough_memory(stage):
                optimiser.zero_grad(set_to_none=True)
                for batch in batches:
                    with autocast:
                        losses = objective(model, batch.to(device), progress)
                    torch.autograd.backward(losses.total / (weight or 1.0))
                    log.add({"loss": losses.total, **losses.parts}, weight or 1.0)
                distributed.add_gradients(parameters)
                if stage.optimiser.clamp:
                    nn.utils.clip_grad_value_(parameters, stage.optimiser.clamp)
                if stage.optimiser.clip:
                    nn.utils.clip_grad_norm_(parameters, stage.optimiser.clip)
                optimiser.step()
                distributed.share([*model.buffers(), *objective.buffers()])  # statistics of batch norms

            counters.step = step + 1
            log.end_step(sum(len(batch.photos) for batch in batches) * distributed.world)
            ended, last = counters.step % per_epoch == 0, counters.step == steps
            if ended:
                objective.after_epoch(model, progress.epoch)
            if ended or last or counters.step % LOG_EVERY == 0:
                log.write_step(progress.epoch, steps, stage.optimiser.lr * factor)
            with log.clock.pause():
                if stage.select.due(counters.step, per_epoch, last):
                    _evaluate(work, progress.epoch)
                counters.done = last or stage.select.spent(counters.without_better)
                if ended or counters.done or counters.step - saved >= run.save_every:
                    _save(work)
                    saved = counters.step
            if counters.done:
                break


def _begin(run: Run, model: Any, counters: Counters, tensors: dict[str, Tensor], distributed: Distributed) -> _Work:
    """Build objective, batches and optimiser of a stage, and restore them where a state holds them."""
    stage, number = run.stages[counters.stage], counters.stage
    torch.manual_seed(_seed(run.seed, number))  # what the objective draws for itself is the same in every process
    objective = stage.objective.build(run.context).to(run.context.device)
    if tensors:
        restore(tensors, objective, "objective/")
    else:
        objective.begin(model)
        if stage.average and distributed.first:
            save(run.out / BEFORE.format(number), replace(run.start, model=model))
    pool, seed = run.pools[stage.batch.pool], run.seed + 1000 * number
    beside = None
    if objective.beside is not None:
        if (name := objective.beside.pool) not in run.pools:
            what = f"a batch of {name} goes beside every step, and there is no {name}"
            raise ConfigError(what, fix="give data.corpus, or set the objective's `text` to 0")
        beside = Batches(run.pools[name], objective.beside, seed)
    batches = Batches(pool, stage.batch, seed, objective.negatives, objective.positives, beside)
    parameters = {**dict(model.named_parameters()), **{f"objective.{n}": p for n, p in objective.named_parameters()}}
    optimiser = stage.optimiser.build(parameters)
    restore_optimiser(tensors, optimiser, parameters)
    model.train()
    log = StageLog(run.out / METRICS, stage.name, counters, distributed, parameters.values(), run.report)
    return _Work(run, stage, model, objective, optimiser, parameters, batches, counters, distributed, log)


def _evaluate(work: _Work, epoch: int) -> None:
    """Evaluate on the val split, and keep the model if it is the best so far.

    Every process evaluates, so that none waits long for another, and the metrics of process 0 count.
    """
    run, stage, counters = work.run, work.stage, work.counters
    work.log.read()
    work.model.eval()
    checkpoint = replace(run.start, model=work.model)
    with torch.no_grad(), _enough_memory(stage, evaluating=True):
        own = run.evaluate(checkpoint, run.pools[stage.held_out()], stage)
    work.model.train()
    metrics: dict[str, float] = work.distributed.tell(own)
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
            save(run.out / BEST.format(counters.stage), checkpoint)
    else:
        counters.without_better += 1
    work.log.write({"epoch": epoch, "step": counters.step, **{f"val {name}": value for name, value in metrics.items()}})


def _save(work: _Work) -> None:
    work.log.read()
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
        counters.lines = cut(run.out / METRICS, counters.lines)
    return counters, tensors


def _average(model: nn.Module, before: nn.Module, share: float) -> None:
    """Average weights and statistics with those from `before`, which count by `share`."""
    own, theirs = model.state_dict(), before.state_dict()
    mixed = {n: part.lerp(theirs[n].to(part), share) for n, part in own.items() if part.is_floating_point()}
    model.load_state_dict({**own, **mixed})


@contextlib.contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    """Multiply float32 matrices in tf32 where the stage says so."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def _enough_memory(stage: Stage, evaluating: bool = False) -> Iterator[None]:
    """Turn running out of memory into an error that says which setting to lower."""
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
