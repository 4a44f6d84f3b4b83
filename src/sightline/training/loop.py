"""The loop: from a recipe's stages and data to a chosen model. `StageTrainer.train` is the way of a batch to its step.

Everything a step does follows from (seed, stage, step): which rows it sees, which units dropout drops. So a run that
was killed goes on from its last state as if nothing had happened, to the same bits on a CPU.

Several processes (`torchrun`) take every step together, each with its part of the batch. They wait for one another
wherever `distributed` is called, so no such call may depend on what one process alone knows. Only process 0 writes; all
see the same folder.
"""

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
from sightline.training.cuda_graphs import Graphs
from sightline.training.distributed import Distributed, interruptible
from sightline.training.objective import Context, Progress
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
    context: Context  # what objectives need: vocabulary, pools, device, the seed of everything random
    evaluate: Evaluate  # gives the metrics by which the best model is chosen
    recipe: str = ""  # fingerprint of what is run; a folder that holds another run is refused
    save_every: int = 500  # the most steps between states; they are written at the end of each epoch too
    report: Callable[[dict[str, Any]], None] = field(default=lambda line: None)  # gets each line of metrics.jsonl


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
        distributed.broadcast_tensors([*model.state_dict().values()])
        for number in range(counters.stage, len(run.stages)):
            if number > counters.stage:
                counters, tensors = Counters(number, lines=counters.lines, recipe=run.recipe), {}
            if not counters.done:
                learns = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
                StageTrainer(run, model, counters, tensors, distributed).train(interrupted)
                for name, parameter in model.named_parameters():  # what this stage froze, the next may train
                    parameter.requires_grad_(learns[name])
            if distributed.first and counters.best is not None:  # the next stage starts from the best of this one
                model.load_state_dict(load(run.out / BEST.format(number)).model.state_dict())
            if distributed.first and run.stages[number].average:
                _average(model, load(run.out / BEFORE.format(number)).model, run.stages[number].average)
            distributed.broadcast_tensors([*model.state_dict().values()])
        chosen = replace(run.start, model=model)
        if distributed.first:
            save(run.out / "model.safetensors", chosen)
        if any(distributed.gather(interrupted())):
            raise KeyboardInterrupt
        return chosen


class StageTrainer:
    """One stage of a run: its objective, batches and optimiser, restored where a state (`tensors`) holds them."""

    def __init__(
        self, run: Run, model: Any, counters: Counters, tensors: dict[str, Tensor], distributed: Distributed
    ) -> None:
        self.run, self.model, self.counters, self.distributed = run, model, counters, distributed
        self.stage = stage = run.stages[counters.stage]
        # what the objective draws is the same in every process
        torch.manual_seed(_seed(run.context.seed, counters.stage))
        self.objective = stage.objective.build(run.context).to(run.context.device)
        self.batches = self._batches()
        self.steps_per_epoch = max(1, len(self.batches) // stage.accumulate)
        self.objective.begin(model, counters.step // self.steps_per_epoch)
        if tensors:
            restore(tensors, self.objective, "objective/")
        elif stage.average and distributed.first:
            save(run.out / BEFORE.format(counters.stage), replace(run.start, model=model))
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        self.parameters |= {f"objective.{name}": part for name, part in self.objective.named_parameters()}
        self.optimiser = stage.optimiser.build(self.parameters)
        restore_optimiser(tensors, self.optimiser, self.parameters)
        self.trained = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        self.graphs = Graphs(wanted=distributed.world == 1)
        self.log = StageLog(run.out / METRICS, stage.name, counters, distributed, self.trained, run.report)
        model.train()

    def _batches(self) -> Batches:
        pools, objective = self.run.context.pools, self.objective
        seed = self.run.context.seed + 1000 * self.counters.stage
        beside = None
        if objective.beside is not None:
            if (name := objective.beside.pool) not in pools:
                what = f"a batch of {name} goes beside every step, and there is no {name}"
                raise ConfigError(what, fix="give data.corpus, or set the objective's `text` to 0")
            beside = Batches(pools[name], objective.beside, seed)
        pool = pools[self.stage.batch.pool]
        return Batches(pool, self.stage.batch, seed, objective.negatives, objective.positives, beside)

    def train(self, interrupted: Callable[[], bool]) -> None:
        """Take the steps from the counters on: batches, loss, gradients, optimiser step; then log, evaluate, save.

        Until it logs, nothing here waits for the device.
        """
        stage, counters, log, distributed = self.stage, self.counters, self.log, self.distributed
        model, objective, optimiser, device = self.model, self.objective, self.optimiser, self.run.context.device
        last_step = stage.steps or stage.epochs * self.steps_per_epoch
        steps = range(counters.step, last_step)
        saved_step = counters.step
        autocast = torch.autocast(device.type, torch.bfloat16, enabled=stage.precision == "bfloat16")
        batches_of_steps = prefetch(self.batches, stage.accumulate, steps, distributed.rank, distributed.world)
        with _matmul_precision(stage.precision), contextlib.closing(batches_of_steps):
            if stage.select.start and counters.step == 0:  # no state is written before step 1: it is not done twice
                self.evaluate(epoch=0)
            for step, batches in zip(steps, batches_of_steps, strict=True):
                # whoever was interrupted, all processes stop here
                weight, stop = distributed.sum(sum(map(objective.weight, batches)), interrupted())
                if stop:
                    if saved_step < step:
                        self.save()
                    raise KeyboardInterrupt
                weight = weight or 1.0
                progress = Progress(step // self.steps_per_epoch, step)
                torch.manual_seed(_seed(self.run.context.seed, counters.stage, step, distributed.rank))
                factor = stage.schedule.at(progress.epoch, step, last_step)
                for group in optimiser.param_groups:
                    group["lr"] = group["base_lr"] * factor

                with _enough_memory(stage):
                    optimiser.zero_grad(set_to_none=True)
                    for batch in batches:
                        with autocast, self.graphs.on(model):
                            losses = objective(model, batch.to(device), progress)
                        torch.autograd.backward(losses.total / weight)
                        log.add({"loss": losses.total, **losses.parts}, weight)
                    distributed.add_gradients(self.trained)
                    if stage.optimiser.clamp:
                        nn.utils.clip_grad_value_(self.trained, stage.optimiser.clamp)
                    if stage.optimiser.clip:
                        nn.utils.clip_grad_norm_(self.trained, stage.optimiser.clip)
                    optimiser.step()
                    distributed.broadcast_tensors([*model.buffers(), *objective.buffers()])  # statistics of batch norms

                counters.step = step + 1
                log.end_step(sum(len(batch.photos) for batch in batches) * distributed.world)
                epoch_ends = counters.step % self.steps_per_epoch == 0
                stage_ends = counters.step == last_step
                if epoch_ends:
                    objective.after_epoch(model, progress.epoch)
                if epoch_ends or stage_ends or counters.step % LOG_EVERY == 0:
                    log.write_step(progress.epoch, last_step, stage.optimiser.lr * factor)
                with log.clock.pause():
                    if stage.select.due(counters.step, self.steps_per_epoch, stage_ends):
                        self.evaluate(progress.epoch)
                    counters.done = stage_ends or stage.select.spent(counters.without_better)
                    if epoch_ends or counters.done or counters.step - saved_step >= self.run.save_every:
                        self.save()
                        saved_step = counters.step
                if counters.done:
                    break

    def evaluate(self, epoch: int) -> None:
        """Evaluate on the val split, and keep the model if it is the best so far.

        Every process evaluates, so that none waits long for another, and the metrics of process 0 count.
        """
        run, stage, counters, model = self.run, self.stage, self.counters, self.model
        self.log.read()
        model.eval()
        checkpoint = replace(run.start, model=model)
        with torch.no_grad(), _enough_memory(stage, evaluating=True):
            metrics = run.evaluate(checkpoint, run.context.pools[stage.held_out()], stage)
        model.train()
        metrics = self.distributed.broadcast(metrics)
        metric = stage.select.metric
        if metric not in metrics:
            raise LearningError(f"evaluation gives no `{metric}`", fix=f"select.metric: one of {', '.join(metrics)}")
        if not math.isfinite(metrics[metric]):
            what = f"`{metric}` of the val split is {metrics[metric]} after step {counters.step}"
            raise LearningError(what, fix="lower the learning rate; the last good state is kept")
        value = -metrics[metric] if metric == "loss" else metrics[metric]
        if counters.best is None or value > counters.best:
            counters.best, counters.best_step, counters.without_better = value, counters.step, 0
            if self.distributed.first:
                save(run.out / BEST.format(counters.stage), checkpoint)
        else:
            counters.without_better += 1
        of_val = {f"val {name}": value for name, value in metrics.items()}
        self.log.write({"epoch": epoch, "step": counters.step, **of_val})

    def save(self) -> None:
        self.log.read()
        if self.distributed.first:
            save_state(self.run.out, self.counters, self.model, self.objective, self.optimiser, self.parameters)


def _resume(run: Run, distributed: Distributed) -> tuple[Counters, dict[str, Tensor]]:
    """The newest readable state of this run, or the beginning; metrics.jsonl is cut to what it knows."""
    name = distributed.broadcast(newest(run.out) if distributed.first else None)
    counters, tensors = load_state(run.out / name) if name else (Counters(recipe=run.recipe), {})
    if counters.recipe != run.recipe:
        fix = "choose another --out, or remove it"
        raise LearningError("this folder holds a run of another recipe", where=run.out, fix=fix)
    if distributed.first:
        counters.lines = cut(run.out / METRICS, counters.lines)
    return counters, tensors


def _average(model: nn.Module, before: nn.Module, share: float) -> None:
    """Average weights and statistics with those from `before`, which count by `share`."""
    weights, old = model.state_dict(), before.state_dict()
    for name, part in weights.items():
        if part.is_floating_point():
            weights[name] = part.lerp(old[name].to(part), share)
    model.load_state_dict(weights)


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
