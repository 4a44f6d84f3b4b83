"""Recurrent captioners as CUDA graphs: the losses and gradients of the usual way, and the usual way where it is needed.

There is no GPU here: `Recorder` stands for CUDA's recording, with its one place for inputs, outputs and gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from captioner_contract import GRID_WIDTH, REGION_WIDTH, WORDS, random_scenes, random_words
from graph_samples import Recorder
from jrln_samples import TABLE_1
from loop_samples import FIRST, SECOND, tiny_run
from objective_samples import adaptive, make_batch, make_context, make_pool, updown
from sightline.batch import SceneBatch, TextBatch
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import PooledCaptioner
from sightline.models.jran import JRANConfig
from sightline.models.sim_trans import SimTransConfig
from sightline.models.updown import UpDown
from sightline.text.vocabulary import PAD
from sightline.training import cuda_graphs, loop
from sightline.training.batches import Batch
from sightline.training.cuda_graphs import Graphs
from sightline.training.loop import train
from sightline.training.objective import Objective, Progress, mode
from sightline.training.objectives.contrastive import ContrastiveConfig
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.objectives.distillation import DistillationConfig
from sightline.training.objectives.introspective import IntrospectiveConfig
from sightline.training.objectives.self_critical import SelfCriticalConfig, without_dropout

torch.set_num_threads(1)
Build = Callable[[float], Captioner]


def jran(config: JRANConfig, dropout: float) -> Captioner:
    torch.manual_seed(0)
    jrln = config.jrln and replace(config.jrln, size=16, heads=2, layers=1, dropout=0.0)
    sizes = {"size": 16, "word_size": 12, "hidden_size": 16, "attention_size": 14}
    widths = {"region_width": REGION_WIDTH, "grid_width": GRID_WIDTH}
    return replace(config, jrln=jrln, dropout=dropout, **widths, **sizes).build(WORDS)


def plain_updown(dropout: float) -> Captioner:
    torch.manual_seed(0)
    return UpDown(updown(dropout=dropout).config, WORDS)


CAPTIONERS: dict[str, Build] = {
    "updown": lambda dropout: updown(dropout=dropout),
    "updown as the paper writes it": plain_updown,
    "adaptive-attention": lambda dropout: adaptive(dropout=dropout),
    **{f"jran, line {line}": lambda dropout, c=config: jran(c, dropout) for line, config in TABLE_1.items()},
    "jran, line 6, updown": lambda dropout: jran(replace(TABLE_1[6], decoder="updown"), dropout),
    "jran, line 4, updown": lambda dropout: jran(replace(TABLE_1[4], decoder="updown"), dropout),
}
every_captioner = pytest.mark.parametrize("build", CAPTIONERS.values(), ids=CAPTIONERS)


def caption_batch(longest: int, photos: int = 3, seed: int = 0) -> Batch:
    """Photos with two captions each, of which the longest has `longest` words."""
    ids = random_words(2 * photos, longest, seed)
    ids[0, 1 : longest + 2] = torch.tensor([*range(4, 4 + longest), 2])
    words = tuple(("",) for _ in ids)
    return Batch(torch.arange(photos), random_scenes(photos, seed), TextBatch(words, ids, ids != PAD))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies, since those of a graph are written over by its next run."""
    return {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}


def assert_same_gradients(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], **tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        torch.testing.assert_close(other[name], gradient, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


def steps(
    model: Captioner, objective: Objective, batches: list[Batch], graphs: Graphs, bfloat16: bool = False, seed: int = 0
) -> list[tuple[float, dict[str, torch.Tensor]]]:
    """The loss and gradients of each step, which the loop would take so."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    found = []
    for number, batch in enumerate(batches):
        torch.manual_seed(seed + number)
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16), graphs.on(model):
            losses = objective(model, batch, Progress())
        assert "unroll" not in vars(model)
        (losses.total / objective.weight(batch)).backward()
        found.append((float(losses.total.detach()), gradients(model)))
        optimiser.step()
    return found


BATCHES = [caption_batch(6), caption_batch(3, seed=1), caption_batch(5, seed=2), caption_batch(6, photos=2, seed=3)]


@every_captioner
@pytest.mark.parametrize("bfloat16", [False, True])
def test_graphs_change_neither_losses_nor_gradients(build: Build, bfloat16: bool):
    objective, recorder = CrossEntropyConfig().build(make_context(make_pool())), Recorder()
    usual = steps(build(0.0).train(), objective, BATCHES, Graphs(wanted=False), bfloat16)
    graphed = steps(build(0.0).train(), objective, BATCHES, Graphs(capture=recorder), bfloat16)
    assert recorder.shapes == [(6, 8), (6, 4), (4, 8)]  # 7 and 6 words with START are padded to 8
    assert recorder.runs == 4
    tolerance = {"rtol": 0.05, "atol": 0.01} if bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for (loss, one), (other_loss, other) in zip(usual, graphed, strict=True):
        assert other_loss == pytest.approx(loss, rel=1e-2 if bfloat16 else 1e-5)
        assert_same_gradients(one, other, **tolerance)


def read_all(model: Captioner, scenes: SceneBatch, words: torch.Tensor) -> dict[str, torch.Tensor]:
    hidden, trace = model.unroll(model.encode(scenes), words)
    parts = {"hidden": hidden, "regions": trace.regions, "grid": trace.grid, **trace.gates}
    return {name: part for name, part in parts.items() if part is not None}


@every_captioner
def test_the_trace_and_its_gradients_are_the_same_to_every_word(build: Build):
    batch, found, learned = BATCHES[2], [], []
    words = batch.texts.ids[:, :-1].masked_fill(batch.texts.ids[:, 1:] == PAD, PAD)
    said = words != PAD
    for graphs in (Graphs(wanted=False), Graphs(capture=Recorder())):
        model = build(0.0).train()
        with graphs.on(model):
            parts = read_all(model, batch.scenes, words)
        torch.manual_seed(0)
        weights = [torch.randn_like(part[said]) for part in parts.values()]
        sum((part[said] * weight).sum() for part, weight in zip(parts.values(), weights, strict=True)).backward()
        found.append({name: part.detach()[said].clone() for name, part in parts.items()})
        learned.append(gradients(model))
        assert all(part.shape[:2] == words.shape for part in parts.values())
    for name, part in found[0].items():
        torch.testing.assert_close(found[1][name], part)
    assert found[0].keys() == found[1].keys()
    assert_same_gradients(*learned, rtol=1e-4, atol=1e-5)


@every_captioner
def test_no_unroll_waits_for_a_device(build: Build, monkeypatch):
    """Where tensors have no values, asking for one is an error."""
    batch = BATCHES[0]
    model = build(0.5).train()
    memory = {name: part.detach() for name, part in model.encode(batch.scenes).items()}
    model = model.to("meta")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # which knows no such device
    memory = {name: part.to("meta").requires_grad_(part.is_floating_point()) for name, part in memory.items()}
    hidden, _ = model.unroll(memory, batch.texts.ids[:, :-1].to("meta"))
    hidden.sum().backward()
    assert hidden.device.type == "meta"


def boxes(batch: Batch) -> Batch:
    overlaps = torch.rand(*batch.texts.ids.shape, batch.scenes.regions.shape[1], generator=torch.Generator())
    return replace(batch, positives=overlaps)


OBJECTIVES: dict[str, tuple[Any, int]] = {  # how often a graph runs in a step: other batches run as usual meanwhile
    "contrastive": (ContrastiveConfig(reference="start"), 1),
    "introspective": (IntrospectiveConfig(), 1),
    "distillation": (DistillationConfig("boxes", form="nll"), 1),
    "self-critical": (SelfCriticalConfig(samples=2, max_words=5, cross_entropy=0.1), 1),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns_the_same_by_graphs(name: str):
    config, runs = OBJECTIVES[name]
    pool, found = make_pool(), []
    for recorder in (None, Recorder()):
        objective, model = config.build(make_context(pool)), updown().train()
        objective.begin(model)
        batch = boxes(make_batch(pool, objective))
        graphs = Graphs(wanted=recorder is not None, capture=recorder)
        found.append(steps(model, objective, [batch, batch], graphs))
        assert recorder is None or recorder.runs == 2 * runs
    for (loss, one), (other_loss, other) in zip(*found, strict=True):
        assert other_loss == pytest.approx(loss, rel=1e-5)
        assert_same_gradients(one, other, rtol=1e-3, atol=1e-6)


def unroll(model: Captioner, batch: Batch = BATCHES[0]) -> torch.Tensor:
    return model.unroll(model.encode(batch.scenes), batch.texts.ids[:, :-1])[0]


def test_a_module_runs_as_usual_where_a_graph_would_be_wrong():
    recorder, model = Recorder(), updown().train()
    with Graphs(capture=recorder).on(model):
        with torch.no_grad():
            unroll(model)
        assert recorder.runs == 0
        first = unroll(model)
        second = unroll(model)  # the first still waits for its backward pass
        assert recorder.runs == 1
        (first.sum() + second.sum()).backward()
        unroll(model)  # gradients are there to be added to
        assert recorder.runs == 1
        model.zero_grad(set_to_none=True)
        unroll(model)  # and is given up: no loss comes of it
        unroll(model).sum().backward()
        assert recorder.runs == 3
        model.zero_grad(set_to_none=True)
        unroll(model.requires_grad_(False))
        assert recorder.runs == 3


def test_only_recurrent_captioners_on_a_gpu_run_as_graphs_and_only_if_wanted(monkeypatch):
    model, recorder = updown().train(), Recorder()
    torch.manual_seed(0)
    transformer = SimTransConfig(region_width=REGION_WIDTH, hidden_size=16, heads=2, layers=1).build(WORDS).train()
    with Graphs(capture=recorder).on(transformer), Graphs(wanted=False, capture=recorder).on(model):
        unroll(transformer)
        unroll(model)
    with Graphs().on(model):  # on a CPU
        unroll(model)
    monkeypatch.setenv(cuda_graphs.SWITCH, "0")
    with Graphs(capture=recorder).on(model):
        unroll(model)
    assert recorder.runs == 0
    assert "unroll" not in vars(model)


def test_a_captioner_that_another_wraps_runs_as_a_graph():
    recorder, model = Recorder(), updown().train()
    with Graphs(capture=recorder).on(PooledCaptioner(model, side=2)):
        unroll(model)
    assert recorder.runs == 1


def test_few_graphs_are_kept_and_other_shapes_run_as_usual(monkeypatch):
    recorder, model = Recorder(), updown().train()
    monkeypatch.setattr(cuda_graphs, "SHAPES", 2)
    graphs = Graphs(capture=recorder)
    for longest in (2, 3, 6, 9, 10, 5):
        with graphs.on(model):
            hidden = unroll(model, caption_batch(longest))
        hidden.sum().backward()
        model.zero_grad(set_to_none=True)
    assert recorder.shapes == [(6, 4), (6, 8)]
    assert recorder.runs == 4


def test_what_drops_units_and_what_learns_has_a_graph_of_its_own():
    recorder, model = Recorder(), updown(dropout=0.5).train()
    graphs = Graphs(capture=recorder)

    def hidden() -> torch.Tensor:
        with graphs.on(model):
            found = unroll(model)
        found.sum().backward()
        model.zero_grad(set_to_none=True)
        return found.detach().clone()

    with_dropout = hidden()
    with without_dropout(model):  # which leaves the model itself in training mode
        first, again = hidden(), hidden()
    assert torch.equal(first, again)
    assert not torch.equal(first, with_dropout)
    with mode(model, False):
        torch.testing.assert_close(hidden()[0, 0], first[0, 0])
    model.word_embedding.requires_grad_(False)
    hidden()
    assert len(recorder.shapes) == 4


@every_captioner
def test_the_seed_decides_what_dropout_drops_whether_a_graph_is_recorded_or_replayed(build: Build):
    objective = CrossEntropyConfig().build(make_context(make_pool()))
    graphs, model = Graphs(capture=Recorder()), build(0.5).train()
    state = {name: part.clone() for name, part in model.state_dict().items()}
    losses = []
    for seed in (1, 1, 2):
        model.load_state_dict(state)
        losses.append(steps(model, objective, BATCHES[:1], graphs, seed=seed)[0][0])
    assert losses[0] == losses[1] != losses[2]


def test_a_recording_that_fails_is_told_once_and_training_goes_on_as_usual():
    def failing(run: Any, samples: Any, pool: Any) -> Any:
        run(*samples)
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore about it")

    objective = CrossEntropyConfig().build(make_context(make_pool()))
    usual = steps(updown(dropout=0.5).train(), objective, BATCHES, Graphs(wanted=False))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = steps(updown(dropout=0.5).train(), objective, BATCHES, Graphs(capture=failing))
    assert [loss for loss, _ in found] == [loss for loss, _ in usual]  # the same units are dropped
    assert [str(one.message) for one in told] == [
        "CUDA graphs are off, since one of FastUpDown could not be recorded (CUDA error: operation not permitted when "
        "stream is capturing). Training goes on without them, and takes longer."
    ]


def test_the_loop_trains_to_the_same_model_by_graphs(tmp_path, monkeypatch):
    models, recorder = [], Recorder()
    for name, capture in (("usual", None), ("graphs", recorder)):
        monkeypatch.setattr(loop, "Graphs", lambda wanted, capture=capture: Graphs(wanted, capture))
        run = tiny_run(tmp_path / name, FIRST, replace(SECOND, precision="bfloat16"), dropout=0.0)
        models.append(train(run).model.state_dict())
    assert recorder.runs == 12 + 9  # of the two batches of a step, the second adds to gradients
    for name, part in models[0].items():
        if name != "attention_score.bias":  # it changes no softmax: its gradient is rounding, of which Adam makes steps
            torch.testing.assert_close(models[1][name], part, rtol=0.02, atol=0.005)
