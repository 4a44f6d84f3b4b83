"""The loop in one process: what a step does, how stages follow one another, when it stops, what it refuses."""

import errno
import json
import math
import signal
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from loop_samples import (
    FIRST,
    POOLS,
    SECOND,
    assert_same_runs,
    assert_same_tensors,
    last_state,
    logged,
    tiny_run,
)
from objective_samples import updown
from sightline.checkpoint.model_checkpoint import load
from sightline.errors import CheckpointError, DataError, LearningError
from sightline.files import lock
from sightline.training import loop, run_log
from sightline.training.batches import Batches, Batching
from sightline.training.loop import train
from sightline.training.objective import Losses, Objective, Progress
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.stage import Optimiser, Schedule, Selection, Stage
from sightline.training.state import load_state, states

torch.set_num_threads(1)
UNJUDGED = Selection(every=0)
ALL = Batching(size=12, captions=2)  # every photo with all its captions: nothing is drawn but the order


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of an undisturbed run of both stages."""
    out = tmp_path_factory.mktemp("whole")
    train(tiny_run(out))
    return out


def simple(steps: int = 1, batch: Batching = ALL, **changes) -> Stage:
    return Stage(CrossEntropyConfig(), "xe", batch, Optimiser("sgd", lr=1.0), steps=steps, select=UNJUDGED, **changes)


def moved(run: loop.Run) -> dict[str, torch.Tensor]:
    """What plain descent at rate 1 subtracted from the weights: the gradient of one step."""
    before, after = run.start.model.state_dict(), train(run).model.state_dict()
    return {name: before[name] - after[name] for name in before}


def gradients() -> dict[str, torch.Tensor]:
    """The gradient of the mean cross-entropy of the whole pool, by itself."""
    model, objective = updown(seed=3), CrossEntropyConfig().build(None)
    batch = Batches(POOLS["train"], ALL, 0).batch(0, 0)
    (objective(model, batch, Progress()).total / objective.weight(batch)).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_close(one, other, tolerance=1e-6):
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], atol=tolerance, rtol=1e-4)


def test_a_step_moves_weights_by_the_gradient_of_the_mean_loss(tmp_path):
    assert_close(gradients(), moved(tiny_run(tmp_path, simple(), dropout=0)))


def test_two_accumulated_batches_are_one_of_twice_the_size(tmp_path):
    halves = simple(batch=replace(ALL, size=6), accumulate=2)
    assert_close(gradients(), moved(tiny_run(tmp_path, halves, dropout=0)))
    losses = logged(tmp_path)[-1]["loss"], 0.0
    train(tiny_run(tmp_path / "whole", simple(), dropout=0))
    assert losses[0] == pytest.approx(logged(tmp_path / "whole")[-1]["loss"], rel=1e-6)


def test_more_accumulated_batches_than_an_epoch_has_begin_it_again(tmp_path):
    assert_close(gradients(), moved(tiny_run(tmp_path, simple(accumulate=3), dropout=0)))


def test_clamping_bounds_each_number_and_clipping_the_norm(tmp_path):
    wanted = gradients()
    clamped = replace(simple(), optimiser=Optimiser("sgd", lr=1.0, clamp=0.01))
    found = moved(tiny_run(tmp_path / "a", clamped, dropout=0))
    assert_close({name: value.clamp(-0.01, 0.01) for name, value in wanted.items()}, found)
    norm = math.sqrt(sum(float((value**2).sum()) for value in wanted.values()))
    clipped = replace(simple(), optimiser=Optimiser("sgd", lr=1.0, clip=norm / 2))
    found = moved(tiny_run(tmp_path / "b", clipped, dropout=0))
    assert_close({name: value / 2 for name, value in wanted.items()}, found)


def test_bfloat16_trains_float32_weights(tmp_path):
    run = tiny_run(tmp_path, replace(FIRST, precision="bfloat16", epochs=6), dropout=0)
    trained = train(run).model
    assert {parameter.dtype for parameter in trained.parameters()} == {torch.float32}
    losses = [line["loss"] for line in logged(tmp_path) if "loss" in line]
    assert losses[-1] < losses[0] - 0.1
    train(replace(run, out=tmp_path / "b", stages=[replace(run.stages[0], precision="float32")]))
    precise = [line["loss"] for line in logged(tmp_path / "b") if "loss" in line]
    assert losses == pytest.approx(precise, abs=0.05)
    assert losses != precise


def test_the_rate_of_each_step_is_the_schedules(tmp_path):
    stage = replace(simple(steps=6, batch=replace(ALL, size=6)), schedule=Schedule("cosine", warmup=2))
    train(tiny_run(tmp_path, stage))
    expected = [stage.schedule.at(step // 2, step, 6) for step in (1, 3, 5)]
    assert [line["rate"] for line in logged(tmp_path)] == pytest.approx(expected)


def test_the_model_one_starts_from_is_left_as_it_was(tmp_path):
    run = tiny_run(tmp_path)
    before = {name: value.clone() for name, value in run.start.model.state_dict().items()}
    train(run)
    assert_same_tensors(before, run.start.model.state_dict())


def test_frozen_parameters_stay_and_the_next_stage_may_train_them(tmp_path):
    frozen = replace(simple(2), name="frozen", optimiser=Optimiser(lr=0.1, lrs={"word_embedding": 0.0}))
    run = tiny_run(tmp_path, frozen, simple(2))
    name = next(name for name in run.start.model.state_dict() if name.startswith("word_embedding"))
    alone = train(replace(run, out=tmp_path / "alone", stages=[frozen])).model
    assert torch.equal(alone.state_dict()[name], run.start.model.state_dict()[name])
    assert all(parameter.requires_grad for parameter in alone.parameters())
    assert not torch.equal(train(run).model.state_dict()[name], run.start.model.state_dict()[name])


def test_the_logged_loss_is_the_mean_over_the_steps_since_the_last_line(tmp_path, monkeypatch):
    train(tiny_run(tmp_path / "a", replace(simple(8), batch=replace(ALL, size=3)), save_every=3))
    monkeypatch.setattr(loop, "LOG_EVERY", 1)
    train(tiny_run(tmp_path / "b", replace(simple(8), batch=replace(ALL, size=3)), save_every=3))
    means, each = ([line["loss"] for line in logged(tmp_path / name)] for name in "ab")
    assert means == pytest.approx([sum(each[:4]) / 4, sum(each[4:]) / 4])
    assert len(each) == 8


def test_states_are_written_after_each_epoch_and_no_more_often_than_asked(tmp_path, monkeypatch):
    written, write = [], loop.save_state
    monkeypatch.setattr(loop, "save_state", lambda out, at, *rest: written.append(at.step) or write(out, at, *rest))
    epochs_of_4 = replace(simple(11), batch=replace(ALL, size=3))
    train(tiny_run(tmp_path / "long", epochs_of_4, save_every=5))
    assert written == [4, 8, 11]
    written.clear()
    train(tiny_run(tmp_path / "short", epochs_of_4, save_every=3))
    assert written == [3, 4, 7, 8, 11]


# which model is chosen, and when training stops


def scripted(values: list[float], metric: str = "loss"):
    """Evaluation that gives the next of `values`; `seen` keeps the weights it was shown."""
    seen: list[dict[str, torch.Tensor]] = []

    def evaluate(checkpoint, pool, stage):
        assert not checkpoint.model.training
        assert pool is POOLS["val"]
        seen.append({name: value.clone() for name, value in checkpoint.model.state_dict().items()})
        return {metric: values[len(seen) - 1], "other": 0.0}

    return evaluate, seen


def test_the_model_of_the_lowest_val_loss_is_kept(tmp_path):
    evaluate, seen = scripted([3.0, 1.0, 2.0])
    chosen = train(tiny_run(tmp_path, FIRST, evaluate=evaluate))
    assert_same_tensors(chosen.model.state_dict(), seen[1])
    assert_same_tensors(load(tmp_path / "model.safetensors").model.state_dict(), seen[1])
    assert [line["val loss"] for line in logged(tmp_path) if "val loss" in line] == [3.0, 1.0, 2.0]


def test_the_model_of_the_highest_metric_is_kept_and_the_first_of_equals(tmp_path):
    evaluate, seen = scripted([3.0, 5.0, 5.0], "CIDEr")
    chosen = train(tiny_run(tmp_path, replace(FIRST, select=Selection("CIDEr")), evaluate=evaluate))
    assert_same_tensors(chosen.model.state_dict(), seen[1])
    assert last_state(tmp_path)[0].best_step == 8


def test_without_evaluation_the_last_model_is_kept(tmp_path):
    chosen = train(tiny_run(tmp_path, simple(3)))
    weights = {f"model/{name}": value for name, value in chosen.model.state_dict().items()}
    tensors = last_state(tmp_path)[1]
    assert_same_tensors(weights, {name: tensors[name] for name in weights})
    assert not (tmp_path / "stage-0.safetensors").exists()


def test_a_stage_starts_from_the_best_model_of_the_one_before(tmp_path):
    evaluate, seen = scripted([1.0, 2.0, 3.0])
    still = replace(SECOND, optimiser=Optimiser(lr=1e-30), select=UNJUDGED)
    chosen = train(tiny_run(tmp_path, FIRST, still, evaluate=evaluate))
    assert_same_tensors(chosen.model.state_dict(), seen[0])


FROM_START = replace(FIRST, select=Selection("CIDEr", start=True))


def test_a_stage_that_evaluates_its_start_never_gives_a_worse_model(tmp_path):
    evaluate, seen = scripted([5.0, 3.0, 4.0, 4.5], "CIDEr")
    run = tiny_run(tmp_path, FROM_START, evaluate=evaluate)
    chosen = train(run)
    assert_same_tensors(seen[0], run.start.model.state_dict())
    assert_same_tensors(chosen.model.state_dict(), seen[0])
    assert [line["step"] for line in logged(tmp_path) if "val CIDEr" in line] == [0, 4, 8, 12]
    assert last_state(tmp_path)[0].best_step == 0


def test_the_start_is_one_model_of_several_and_patience_counts_from_it(tmp_path):
    evaluate, seen = scripted([5.0, 6.0, 4.0, 4.5], "CIDEr")
    assert_same_tensors(train(tiny_run(tmp_path / "a", FROM_START, evaluate=evaluate)).model.state_dict(), seen[1])
    evaluate, _ = scripted([5.0, 4.0, 3.0], "CIDEr")
    patient = replace(FROM_START, epochs=50, select=Selection("CIDEr", patience=2, start=True))
    train(tiny_run(tmp_path / "b", patient, evaluate=evaluate))
    assert last_state(tmp_path / "b")[0].step == 8


@pytest.mark.parametrize(("stage", "step"), [(0, 0), (0, 4), (1, 0), (1, 3)])
def test_a_run_that_evaluates_its_start_goes_on_to_the_same_bits(tmp_path, stage, step):
    stages = replace(FIRST, select=Selection(start=True)), replace(SECOND, select=Selection(every_steps=3, start=True))
    whole, cut = (tiny_run(tmp_path / name, *stages) for name in ("whole", "cut"))
    train(whole)
    assert [line["step"] for line in logged(whole.out) if "val loss" in line] == [0, 4, 8, 12, 0, 3, 6, 9]

    def interrupt(line):
        if (line["stage"], line["step"]) == (stages[stage].name, step) and "val loss" in line:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(replace(cut, report=interrupt))
    train(cut)
    assert_same_runs(whole.out, cut.out)


AVERAGED = replace(SECOND, select=UNJUDGED, average=0.25)


def test_a_stage_may_give_the_mean_of_the_weights_before_and_after_it(tmp_path):
    first = train(tiny_run(tmp_path / "first", FIRST)).model.state_dict()
    second = train(tiny_run(tmp_path / "second", FIRST, replace(AVERAGED, average=0.0))).model.state_dict()
    mean = train(tiny_run(tmp_path / "mean", FIRST, AVERAGED)).model.state_dict()
    assert_close(mean, {name: 0.25 * first[name] + 0.75 * second[name] for name in mean})
    assert any((mean[name] != second[name]).any() for name in mean)


def test_a_mean_starts_the_next_stage_and_may_be_of_the_best(tmp_path):
    evaluate, seen = scripted([1.0, 2.0, 3.0])
    best = replace(AVERAGED, select=SECOND.select)
    still = replace(SECOND, optimiser=Optimiser(lr=1e-30), select=UNJUDGED)
    start = tiny_run(tmp_path).start.model.state_dict()
    chosen = train(tiny_run(tmp_path, best, still, evaluate=evaluate)).model.state_dict()
    assert_close(chosen, {name: 0.25 * start[name] + 0.75 * seen[0][name] for name in start})


@pytest.mark.parametrize("step", [3, 9])
def test_a_run_interrupted_in_a_stage_that_averages_goes_on_to_the_same_bits(tmp_path, step):
    judged = replace(AVERAGED, select=SECOND.select)
    undisturbed = train(tiny_run(tmp_path / "whole", FIRST, judged)).model.state_dict()
    cut = tiny_run(tmp_path / "cut", FIRST, judged)
    with pytest.raises(KeyboardInterrupt):
        train(stop_at(cut, step))
    assert_same_tensors(train(cut).model.state_dict(), undisturbed)


def test_patience_ends_a_stage_and_the_next_begins(tmp_path):
    evaluate, seen = scripted([1.0, 2.0, 0.5, 0.6, 0.7, 9.0])
    patient = replace(FIRST, epochs=50, select=Selection(patience=2))
    train(tiny_run(tmp_path, patient, replace(simple(2), name="next"), evaluate=evaluate))
    assert len(seen) == 5
    assert [line["stage"] for line in logged(tmp_path)][-1] == "next"
    assert max(line["step"] for line in logged(tmp_path) if line["stage"] == "first") == 5 * 4


def test_evaluation_comes_every_few_steps_if_asked_and_at_the_end(tmp_path):
    train(tiny_run(tmp_path, replace(FIRST, select=Selection(every_steps=5))))
    assert [line["step"] for line in logged(tmp_path) if "val loss" in line] == [5, 10, 12]


def test_every_line_is_reported_and_has_a_speed_after_the_first_step(tmp_path):
    told = []
    train(tiny_run(tmp_path, report=told.append))
    assert told == [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in told if "loss" in line]
    assert all(line["images/s"] > 0 and line["seconds left"] >= 0 for line in steps)
    assert steps[-1]["seconds left"] == 0
    assert any("val loss" in line for line in told)


def test_the_clock_leaves_out_the_first_step_and_pauses(monkeypatch):
    times = iter([10.0, 12.0, 15.0, 16.0])  # first step ends; pause begins, ends; asked
    monkeypatch.setattr(run_log.time, "perf_counter", lambda: next(times))
    one = run_log.Clock()
    one.count(1000)
    assert one.speed(5) == {}
    one.count(30)
    with one.pause():
        pass
    assert one.speed(2) == {"images/s": 10.0, "seconds left": 12.0}


# going on


def stop_at(run: loop.Run, step: int, number: int = signal.SIGINT, stage: str = "second") -> loop.Run:
    """The run, with a signal after a line of the log."""

    def report(line):
        if (line["stage"], line["step"]) == (stage, step) and "loss" not in line:
            signal.raise_signal(number)

    return replace(run, report=report)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_has_saved_and_goes_on_to_the_same_bits(tmp_path, whole, number):
    before = signal.getsignal(number)
    cut = tiny_run(tmp_path / "cut", save_every=100)
    with pytest.raises(KeyboardInterrupt):
        train(stop_at(cut, 3, number))
    assert signal.getsignal(number) is before
    counters = last_state(tmp_path / "cut")[0]
    assert (counters.step, counters.summed) == (3, 1)  # within an epoch, a loss was not yet logged
    train(cut)
    assert_same_runs(whole, tmp_path / "cut")


def test_a_second_interruption_ends_at_once(tmp_path):
    def report(line):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(tiny_run(tmp_path, report=report))
    assert states(tmp_path) == [tmp_path / "state-00-00000002.safetensors"]


@pytest.mark.parametrize(("stage", "step"), [("first", 12), ("second", 9)])
def test_an_interruption_at_the_end_of_a_stage_repeats_nothing(tmp_path, whole, stage, step):
    cut = tiny_run(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        train(stop_at(cut, step, stage=stage))
    told = []
    train(replace(cut, report=told.append))
    assert {line["stage"] for line in told} == ({"second"} if stage == "first" else set())
    assert_same_runs(whole, tmp_path / "cut")


def test_a_finished_run_trains_no_further(tmp_path):
    train(tiny_run(tmp_path))
    told = []
    again = train(tiny_run(tmp_path, report=told.append))
    assert told == []
    assert_same_tensors(again.model.state_dict(), load(tmp_path / "model.safetensors").model.state_dict())


def test_lines_that_no_state_knows_are_cut(tmp_path):
    def killed(line):
        if line["step"] == 2:
            raise MemoryError("stands for a kill")

    train(tiny_run(tmp_path / "whole", replace(FIRST, select=Selection(every_steps=1)), save_every=100))
    cut = tiny_run(tmp_path / "cut", replace(FIRST, select=Selection(every_steps=1)), save_every=100)
    with pytest.raises(MemoryError):
        train(replace(cut, report=killed))
    assert len(logged(tmp_path / "cut")) == 2
    assert states(tmp_path / "cut") == []
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"half a li')
    train(cut)
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


def test_a_log_that_was_deleted_begins_again(tmp_path):
    cut = tiny_run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(stop_at(cut, 3))
    (tmp_path / "metrics.jsonl").unlink()
    train(cut)
    assert last_state(tmp_path)[0].lines == len(logged(tmp_path))


def test_only_the_newest_states_are_kept(tmp_path):
    train(tiny_run(tmp_path, FIRST))
    assert [load_state(path)[0].step for path in states(tmp_path)] == [10, 12]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def one_bit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)


def another_step(path: Path) -> None:
    raw = path.read_bytes()
    at = raw.index(rb"\"step\": ") + len(rb"\"step\": ")
    path.write_bytes(raw[:at] + (b"3" if raw[at : at + 1] != b"3" else b"4") + raw[at + 1 :])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_short, one_bit, another_step, emptied])
def test_a_damaged_state_falls_back_to_the_one_before(tmp_path, whole, damage):
    cut = tiny_run(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        train(stop_at(cut, 6))
    damage(states(tmp_path / "cut")[-1])
    train(cut)
    assert_same_runs(whole, tmp_path / "cut")


def test_states_that_are_all_damaged_are_not_overwritten(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(stop_at(tiny_run(tmp_path), 6))
    for path in states(tmp_path):
        cut_short(path)
    with pytest.raises(CheckpointError, match=r"none of the states here can be read.*remove them to begin anew"):
        train(tiny_run(tmp_path))
    assert len(states(tmp_path)) == 2


def test_what_a_killed_process_left_half_written_is_cleared_away(tmp_path):
    left = tmp_path / ".state-00-00000002.safetensors.12ab.tmp"
    left.write_bytes(b"half")
    train(tiny_run(tmp_path, simple()))
    assert not left.exists()


def test_a_folder_of_another_recipe_is_refused(tmp_path):
    train(tiny_run(tmp_path, simple()))
    with pytest.raises(LearningError, match=r"a run of another recipe.*choose another --out"):
        train(tiny_run(tmp_path, simple(), recipe="another"))


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path):
    with lock(tmp_path / "lock"), pytest.raises(DataError, match="another process is writing here"):
        train(tiny_run(tmp_path))


def test_it_runs_in_a_thread_that_gets_no_signals(tmp_path, whole):
    thread = threading.Thread(target=train, args=(tiny_run(tmp_path / "thread"),))
    thread.start()
    thread.join()
    assert_same_runs(whole, tmp_path / "thread")


# what goes wrong


@dataclass(frozen=True)
class Spoiled:
    """Cross-entropy that at one step gives a bad loss, or bad gradients, or runs out of memory."""

    kind: Literal["spoiled"] = "spoiled"
    step: int = 7
    how: str = "loss"

    def build(self, context):
        return SpoiledLoss(self)


class SpoiledLoss(Objective):
    def __init__(self, config):
        super().__init__()
        self.config, self.inner = config, CrossEntropyConfig().build(None)
        self.drawn = torch.nn.Parameter(torch.rand(3))

    def weight(self, batch):
        return self.inner.weight(batch)

    def forward(self, model, batch, progress):
        losses = self.inner(model, batch, progress)
        extra = (self.drawn**2).sum()
        if progress.step == self.config.step:
            if self.config.how == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory")
            if self.config.how == "error":
                raise RuntimeError("sizes do not fit")
            spoil = torch.tensor(math.inf) if self.config.how == "loss" else torch.zeros(())
            if self.config.how == "gradient":  # its value is 0, and its gradient is no number
                spoil = (model.encode(batch.scenes)["regions"].sum() * 0).sqrt()
            losses = replace(losses, total=losses.total + spoil)
        return Losses(losses.total + extra, {"extra": extra} if progress.step % 2 else {})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("loss", r"the loss is inf at step 8 of stage `first`.*lower the learning rate.*last good state is kept"),
        ("gradient", r"weights are not finite after step 8 of stage `first`"),
        ("memory", r"memory ran out in stage `first`, with batches of 3.*batch.size=1 stages.first.accumulate=2"),
    ],
)
def test_a_spoiled_step_is_a_sentence_and_the_last_good_state_is_kept(tmp_path, how, message):
    spoiled = replace(FIRST, objective=Spoiled(how=how))
    with pytest.raises(LearningError, match=message):
        train(tiny_run(tmp_path, spoiled))
    counters, tensors = last_state(tmp_path)
    assert counters.step == 6
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    train(tiny_run(tmp_path, replace(FIRST, objective=Spoiled(step=-1))))
    train(tiny_run(tmp_path / "whole", replace(FIRST, objective=Spoiled(step=-1))))
    assert_same_runs(tmp_path, tmp_path / "whole")


def test_what_an_objective_trains_and_tells_is_saved_and_logged(tmp_path):
    train(tiny_run(tmp_path, replace(FIRST, objective=Spoiled(step=-1))))
    drawn = last_state(tmp_path)[1]["objective/drawn"]
    torch.manual_seed(loop._seed(5, 0))
    begun = torch.rand(3)
    assert not torch.equal(drawn, begun)  # it was trained, from where the seed of the stage put it
    torch.testing.assert_close(drawn, begun, atol=0.2, rtol=0)
    assert "optimiser/objective.drawn/exp_avg" in last_state(tmp_path)[1]
    assert all("extra" in line for line in logged(tmp_path) if "loss" in line)


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path):
    with pytest.raises(RuntimeError, match="sizes do not fit"):
        train(tiny_run(tmp_path, replace(FIRST, objective=Spoiled(how="error"))))


def test_memory_that_runs_out_in_evaluation_names_its_batch(tmp_path):
    def evaluate(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(LearningError, match=r"while it was evaluated.*evaluate.batch=16"):
        train(tiny_run(tmp_path, evaluate=evaluate))


def test_a_batch_in_which_nothing_counts_changes_nothing(tmp_path):
    class Weightless(SpoiledLoss):
        def weight(self, batch):
            return 0.0

        def forward(self, model, batch, progress):
            return Losses(0 * sum(parameter.sum() for parameter in model.parameters()))

    @dataclass(frozen=True)
    class Config(Spoiled):
        def build(self, context):
            return Weightless(self)

    run = tiny_run(tmp_path, replace(simple(2), objective=Config()))
    assert_same_tensors(train(run).model.state_dict(), run.start.model.state_dict())


def test_a_metric_that_is_not_there_or_no_number_is_a_sentence(tmp_path):
    wrong = replace(FIRST, select=Selection("CIDer"))
    with pytest.raises(LearningError, match=r"evaluation gives no `CIDer`.*one of loss"):
        train(tiny_run(tmp_path / "a", wrong))
    with pytest.raises(LearningError, match="`loss` of the val split is nan after step 4"):
        train(tiny_run(tmp_path / "b", FIRST, evaluate=lambda *_: {"loss": math.nan}))
    assert last_state(tmp_path / "b")[0].step == 2


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path, whole, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_log.os, "fsync", full)
    with pytest.raises(DataError, match=r"metrics.jsonl: cannot write: No space left"):
        train(tiny_run(tmp_path, save_every=100))
    monkeypatch.undo()
    train(tiny_run(tmp_path))
    assert_same_runs(tmp_path, whole)


def test_a_checkpoint_is_no_state(tmp_path):
    run = tiny_run(tmp_path, simple())
    train(run)
    with pytest.raises(CheckpointError, match="not a training state"):
        load_state(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a training state"):
        load_state(tmp_path / "state-99-00000000.safetensors")
