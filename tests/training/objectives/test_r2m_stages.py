"""R²M's objectives against Eq. 10-13 written as loops, what learns from them, and whole trainings on a tiny corpus."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from captioner_contract import VECTOR_WIDTH, WORDS, more_padding, random_scenes, random_words, rows
from graph_samples import Recorder
from objective_samples import descend, updown
from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.config import build
from sightline.errors import ConfigError, MissingPartError
from sightline.models.r2m import R2M, R2MConfig
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import END, PAD, START, UNK, Vocabulary
from sightline.training import cuda_graphs
from sightline.training.batches import Batch, Batches, Batching
from sightline.training.cuda_graphs import Graphs
from sightline.training.evaluation import token_loss
from sightline.training.loop import Run, train
from sightline.training.objective import Context, Losses, Progress
from sightline.training.objectives.r2m_stages import (
    R2MImage,
    R2MImageConfig,
    R2MText,
    R2MTextConfig,
    released_matching,
    shuffle_concepts,
    text_loss,
)
from sightline.training.stage import Optimiser, Selection, Stage
from sightline.training.tensor_tables import Pool, SceneTable, TextTable

VOCABULARY = Vocabulary([f"word{i}" for i in range(WORDS - 4)])
CONTEXT = Context(VOCABULARY)
SIZE = 16


def small(**choices: object) -> R2M:
    torch.manual_seed(0)
    sizes = {"hidden_size": SIZE, "vector_width": VECTOR_WIDTH, "dropout": 0.0}
    return R2MConfig(**{**sizes, **choices}).build(WORDS)


def text(**choices: object) -> R2MText:
    return R2MTextConfig(**choices).build(CONTEXT)


def image(**choices: object) -> R2MImage:
    """Without text beside the photos, unless asked for."""
    return R2MImageConfig(**{"text": 0, **choices}).build(CONTEXT)


def text_batch(count: int = 5) -> Batch:
    ids = random_words(count)
    words = tuple(tuple(VOCABULARY.decode(row.tolist())) for row in ids)
    photos = torch.arange(count)
    return Batch(photos, random_scenes(count), TextBatch(words, ids, ids != PAD), photos)


def image_batch(count: int = 4, seed: int = 0) -> Batch:
    return Batch(torch.arange(count), random_scenes(count, seed))


def mean_of(losses: Losses, objective: R2MText | R2MImage, batch: Batch) -> tuple[float, dict[str, float]]:
    weight = objective.weight(batch)
    return float(losses.total) / weight, {name: float(part) / weight for name, part in losses.parts.items()}


def read_alone(model: R2M, scenes: SceneBatch, row: int, words: list[int]) -> tuple[float, torch.Tensor, torch.Tensor]:
    """One caption of one image without padding, word by word: ln p, v and ṽ."""
    memory = model.encode(rows(scenes, [row]))
    state, log_prob, memories = model.start(memory), 0.0, []
    for word, following in pairwise(words):
        hidden, state = model.advance(torch.tensor([word]), memory, state)
        log_prob += float(model.predict(hidden).log_softmax(-1)[0, following])
        memories.append(hidden)
    rebuilt = torch.zeros(1, SIZE)
    for hidden in memories:
        rebuilt, _ = model.reconstructor.update(rebuilt, hidden)
    return log_prob, memory["concepts"][0], rebuilt[0]


def naive_square(v: torch.Tensor, rebuilt: torch.Tensor) -> float:
    return sum((float(a) - float(b)) ** 2 for a, b in zip(v, rebuilt, strict=True))


def naive_say(model: R2M, scenes: SceneBatch, row: int, steps: int, never: tuple[int, ...]) -> list[int]:
    """START and the most probable words of one image, up to END or `steps` of them."""
    memory = model.encode(rows(scenes, [row]))
    state, words = model.start(memory), [START]
    while len(words) <= steps and words[-1] != END:
        log_probs, state = model.step(torch.tensor([words[-1]]), memory, state)
        best = max((float(p), -i) for i, p in enumerate(log_probs[0]) if i not in never)
        words.append(-best[1])
    return words


@torch.no_grad()
def test_cross_entropy_is_equation_10_summed_over_sentences():
    model, batch, objective = small().eval(), text_batch(), text()
    losses = objective(model, batch, Progress())
    expected, tokens = 0.0, 0
    for row in range(5):
        words = [id for id in batch.texts.ids[row].tolist() if id != PAD]
        expected -= read_alone(model, batch.scenes, row, words)[0]
        tokens += len(words) - 1
    assert float(losses.total) == pytest.approx(expected, rel=1e-5)
    assert objective.weight(batch) == tokens
    assert list(losses.parts) == ["cross-entropy"]


@pytest.mark.parametrize(("reduce", "scale"), [("mean", 1 / SIZE), ("sum", 1.0)])
@torch.no_grad()
def test_the_text_loss_is_the_mean_over_words_plus_beta_times_the_mean_over_sentences(reduce, scale):
    model, batch = small().eval(), text_batch()
    objective = text(beta=0.7, reconstruction=reduce)
    total, parts = mean_of(objective(model, batch, Progress()), objective, batch)
    cross_entropy, rebuilding, tokens = 0.0, 0.0, 0
    for row in range(5):
        words = [id for id in batch.texts.ids[row].tolist() if id != PAD]
        log_prob, v, rebuilt = read_alone(model, batch.scenes, row, words)
        cross_entropy -= log_prob
        rebuilding += naive_square(v, rebuilt) * scale
        tokens += len(words) - 1
    assert parts["cross-entropy"] == pytest.approx(cross_entropy / tokens, rel=1e-5)
    assert parts["reconstruction"] == pytest.approx(rebuilding / 5, rel=1e-5)  # Eq. 11
    assert total == pytest.approx(cross_entropy / tokens + 0.7 * rebuilding / 5, rel=1e-5)


@torch.no_grad()
def test_padding_changes_no_text_loss():
    model, batch, objective = small().eval(), text_batch(), text(beta=1.0)
    ids = torch.nn.functional.pad(batch.texts.ids, (0, 4), value=PAD)
    padded = replace(batch, scenes=more_padding(batch.scenes), texts=TextBatch(batch.texts.words, ids, ids != PAD))
    first, second = objective(model, batch, Progress()), objective(model, padded, Progress())
    assert float(second.total) == pytest.approx(float(first.total), rel=1e-6)


def learning(model: R2M, objective: R2MText | R2MImage, batch: Batch) -> set[str]:
    """Which parts of the model a loss reaches."""
    model.zero_grad()
    objective(model.train(), batch, Progress()).total.backward()
    return {n.split(".")[0] for n, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}


def test_each_loss_reaches_what_it_should():
    speaking = {"embedding", "encoder", "fusion", "decoder"}
    assert learning(small(), text(), text_batch()) == {*speaking, "output"}
    assert learning(small(), text(beta=1.0), text_batch()) == {*speaking, "output", "reconstructor"}
    assert learning(small(), image(), image_batch()) == {*speaking, "reconstructor", "image"}
    assert learning(small(), image(gamma=1.0), image_batch()) == {*speaking, "reconstructor", "image"}
    assert learning(small(released_code=True), image(), image_batch()) == {*speaking, "reconstructor"}
    both = replace(image_batch(), beside=text_batch())
    assert learning(small(), image(text=5), both) == {*speaking, "reconstructor", "image", "output"}


def test_the_text_stage_without_reconstruction_leaves_the_reconstructor_without_gradients():
    model = small()
    learning(model, text(), text_batch())
    assert all(parameter.grad is None for parameter in model.reconstructor.parameters())


def test_shuffling_keeps_each_rows_concepts_and_puts_padding_last():
    scenes = more_padding(random_scenes(40))
    torch.manual_seed(3)
    shuffled = shuffle_concepts(scenes)
    moved = 0
    for row in range(40):
        real = scenes.concept_mask[row]
        count = int(real.sum())
        assert shuffled.concept_mask[row].tolist() == [True] * count + [False] * (7 - count)
        before = [*zip(scenes.concepts[row][real].tolist(), scenes.concept_scores[row][real].tolist(), strict=True)]
        after = [*zip(shuffled.concepts[row, :count].tolist(), shuffled.concept_scores[row].tolist(), strict=False)]
        assert sorted(before) == sorted(after)
        moved += before != after
    assert 15 < moved < 40
    torch.manual_seed(3)
    assert torch.equal(shuffle_concepts(scenes).concepts, shuffled.concepts)


def test_concepts_are_shuffled_in_training_and_not_in_evaluation():
    model, batch, objective = small(), text_batch(), text()

    @torch.no_grad()
    def totals() -> set[float]:
        return {float(objective(model, batch, Progress()).total) for _ in range(6)}

    model.train()
    assert len(totals()) > 1
    model.eval()
    assert len(totals()) == 1


Sets = list[set[int]]  # the concepts of each image


def naive_hardest(scores: list[list[float]], margin: float, sets: Sets) -> list[float]:
    losses = []
    for i, own in enumerate(sets):
        others = [j for j, other in enumerate(sets) if other != own]
        of_images = [max(0, margin - scores[i][i] + scores[j][i]) for j in others]
        of_captions = [max(0, margin - scores[i][i] + scores[i][j]) for j in others]
        losses.append(max(of_images, default=0) + max(of_captions, default=0))
    return losses


def naive_mean(scores: list[list[float]], margin: float, sets: Sets) -> list[float]:
    losses = []
    for i, own in enumerate(sets):
        total, count = 0.0, 0
        for j, other in enumerate(sets):
            if other != own:
                total += max(0, margin - scores[i][i] + scores[j][i]) + max(0, margin - scores[i][i] + scores[i][j])
                count += 1
        losses.append(total / count if count else 0.0)
    return losses


def naive_released(scores: list[list[float]], margin: float, sets: Sets) -> list[float]:
    count = range(len(scores))
    of_captions = [max(max(0, margin + scores[i][j] - scores[i][i]) for i in count) for j in count]
    of_images = [max(max(0, margin + scores[i][j] - scores[j][j]) for j in count) for i in count]
    return [a + b for a, b in zip(of_captions, of_images, strict=True)]


def concept_sets(scenes: SceneBatch) -> Sets:
    pairs = zip(scenes.concepts, scenes.concept_mask, strict=True)
    return [set(ids[real].tolist()) for ids, real in pairs]


def with_equal_concepts(batch: Batch) -> Batch:
    """Images 1 and 3 show the same things, listed in another order and with the gap elsewhere."""
    scenes = batch.scenes
    concepts, mask = scenes.concepts.clone(), scenes.concept_mask.clone()
    concepts[1, :3], mask[1] = torch.tensor([7, 5, 0]), False
    concepts[3, :3], mask[3] = torch.tensor([5, 0, 7]), False
    mask[1, [0, 1]], mask[3, [0, 2]] = True, True
    equal = replace(batch, scenes=replace(scenes, concepts=concepts, concept_mask=mask))
    assert [len(concept_sets(equal.scenes)[i]) for i in (1, 3)] == [2, 2]
    return equal


@pytest.mark.parametrize("steps", [3, 12])
@pytest.mark.parametrize(
    ("choices", "naive"),
    [
        ({}, naive_mean),
        ({"negatives": "hardest"}, naive_hardest),
        ({"negatives": "hardest", "margin": 0.9}, naive_hardest),
        ({"released_code": True}, naive_released),
    ],
)
@torch.no_grad()
def test_matching_is_equation_12_of_greedy_captions(steps: int, choices: dict[str, object], naive: Callable):
    model, batch = small().eval(), with_equal_concepts(image_batch(5))
    objective = image(max_steps=steps, gamma=0.5, **choices)
    total, parts = mean_of(objective(model, batch, Progress()), objective, batch)
    images = model.image_vector(batch.scenes)
    rebuilt, squares, lengths = [], 0.0, []
    never = (PAD, START) if "released_code" in choices else (PAD, START, UNK)
    for row in range(5):
        words = naive_say(model, batch.scenes, row, steps, never)
        _, v, found = read_alone(model, batch.scenes, row, words)
        rebuilt.append(found)
        squares += naive_square(v, found) / SIZE
        lengths.append(len(words) - 1)
    assert min(lengths) < max(lengths) == steps  # some captions end, some are cut
    scores = [[sum(float(a) * float(b) for a, b in zip(i, c, strict=True)) for c in rebuilt] for i in images]
    matching = sum(naive(scores, choices.get("margin", 0.2), concept_sets(batch.scenes))) / 5
    norms = [sum(float(a) ** 2 for a in found) ** 0.5 for found in rebuilt]
    first = [all(scores[i][i] > scores[i][j] for j in range(5) if {i, j} != {1, 3} and i != j) for i in range(5)]
    assert parts["norm"] == pytest.approx(sum(norms) / 5, rel=1e-4)
    assert parts["R@1"] == pytest.approx(100 * sum(first) / 5)
    assert parts["matching"] == pytest.approx(matching, rel=1e-4)
    assert parts["reconstruction"] == pytest.approx(squares / 5, rel=1e-4)
    assert parts["words"] == pytest.approx(sum(lengths) / 5)
    assert total == pytest.approx(matching + 0.5 * squares / 5, rel=1e-4)  # Eq. 13


def test_perfect_separation_costs_nothing_by_the_paper_and_two_margins_by_the_code():
    scores, sets = torch.eye(4) * 5, [{i} for i in range(4)]
    assert naive_hardest(scores.tolist(), 0.2, sets) == naive_mean(scores.tolist(), 0.2, sets) == [0, 0, 0, 0]
    assert released_matching(scores, 0.2).tolist() == pytest.approx([0.4] * 4)
    barely = torch.eye(4) * 0.01
    barely.requires_grad_()
    released_matching(barely, 0.2).sum().backward()
    assert float(barely.grad.diagonal().sum()) == 0


def test_released_matching_equals_its_loops_on_random_scores():
    scores, sets = torch.randn(6, 6, generator=torch.Generator().manual_seed(2)), [{i} for i in range(6)]
    found = released_matching(scores, 0.2).tolist()
    assert found == pytest.approx(naive_released(scores.tolist(), 0.2, sets), rel=1e-5)
    assert found != pytest.approx(naive_hardest(scores.tolist(), 0.2, sets), rel=1e-2)


@torch.no_grad()
def test_images_that_all_show_the_same_have_no_matching_loss():
    batch = image_batch(3)
    concepts, mask = batch.scenes.concepts[:1].expand(3, -1), batch.scenes.concept_mask[:1].expand(3, -1)
    batch = replace(batch, scenes=replace(batch.scenes, concepts=concepts, concept_mask=mask))
    for negatives in ("mean", "hardest"):
        assert float(image(negatives=negatives)(small().eval(), batch, Progress()).total) == 0


@torch.no_grad()
def test_the_text_beside_photos_adds_its_own_mean_loss():
    model, photos, sentences = small().eval(), image_batch(4), text_batch(5)
    alone, on_text = image(gamma=1.0), text(beta=0.7)
    expected = mean_of(alone(model, photos, Progress()), alone, photos)[0]
    expected += mean_of(on_text(model, sentences, Progress()), on_text, sentences)[0]
    objective, batch = image(gamma=1.0, text=5, beta=0.7), replace(photos, beside=sentences)
    total, parts = mean_of(objective(model, batch, Progress()), objective, batch)
    assert total == pytest.approx(expected, rel=1e-5)
    assert parts["text"] > parts["text cross-entropy"] > 0


@torch.no_grad()
def test_held_out_text_is_measured_by_the_loss_that_is_minimised():
    """L_XE alone would choose a model whose reconstructor has learned nothing."""
    model, pool = small().eval(), corpus_pool(11, 3)
    for config in (R2MTextConfig(), R2MTextConfig(beta=0.7)):
        whole, objective = _first_batch(pool), config.build(CONTEXT)
        total, parts = mean_of(objective(model, whole, Progress()), objective, whole)
        found = text_loss(model, pool, config, batch=2)
        assert found == {"loss": pytest.approx(total, rel=1e-5), **{n: pytest.approx(p) for n, p in parts.items()}}
    assert found["cross-entropy"] == pytest.approx(token_loss(model, pool), rel=1e-5)


def test_photo_stages_are_chosen_by_held_out_text_and_never_by_pairs():
    for stage in STAGES.values():
        assert stage.held_out() == "corpus-val"
        assert replace(stage, select=Selection(metric="CIDEr")).held_out() == "val"


def test_captions_are_said_without_dropout_unless_asked_for(monkeypatch):
    batch, modes = image_batch(), []
    encode = R2M.encode

    def noting(model: R2M, scenes: SceneBatch) -> dict[str, torch.Tensor]:
        modes.append(model.training)
        return encode(model, scenes)

    monkeypatch.setattr(R2M, "encode", noting)
    model = small(dropout=0.5).train()
    image()(model, batch, Progress())
    image(dropout_in_decoding=True)(model, batch, Progress())
    assert modes == [False, True, True, True]
    assert model.training


def test_errors_name_what_is_missing():
    with pytest.raises(ConfigError, match="trains the model r2m, and updown is none"):
        text()(updown(), text_batch(), Progress())
    with pytest.raises(ConfigError, match="5 sentences for 4 lists"):
        text()(small(), replace(text_batch(), scenes=random_scenes(4)), Progress())
    with pytest.raises(ConfigError, match="no negatives"):
        image()(small(), image_batch(1), Progress())
    with pytest.raises(MissingPartError, match="vector"):
        image()(small(), Batch(torch.arange(3), replace(random_scenes(3), vector=None)), Progress())
    for config in ({"kind": "r2m-image", "gamma": -1.0}, {"kind": "r2m-image", "max_steps": 1}):
        with pytest.raises(ConfigError):
            build(R2MImageConfig, config)
    with pytest.raises(ConfigError, match="beta"):
        build(R2MTextConfig, {"kind": "r2m-text", "beta": -0.1})


def gradients(model: R2M) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("objective", [text(beta=1.0), image(gamma=1.0, max_steps=11)])
def test_graphs_change_neither_losses_nor_gradients(objective: R2MText | R2MImage):
    batch = text_batch() if isinstance(objective, R2MText) else image_batch()
    found = []
    for recorder in (None, Recorder()):
        model = small()
        objective._graphs = Graphs(capture=recorder)
        torch.manual_seed(0)
        losses = objective(model.train(), batch, Progress())
        losses.total.backward()
        found.append((losses.total.detach(), gradients(model)))
        assert "forward" not in vars(model.decoder)
        if recorder:
            assert recorder.runs == 2
            assert {shape[1] % cuda_graphs.LENGTHS for shape in recorder.shapes} == {0}
    (first, plain), (second, graphed) = found
    assert float(second) == pytest.approx(float(first), rel=1e-6)
    assert plain.keys() == graphed.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(graphed[name], gradient)


def test_a_graph_is_recorded_once_for_a_shape_and_only_for_a_few_shapes(monkeypatch):
    recorder, model = Recorder(), small()
    many = Graphs(capture=recorder)
    monkeypatch.setattr(cuda_graphs, "SHAPES", 2)
    for steps in (3, 4, 7, 9, 1):
        f = torch.randn(2, steps, SIZE, requires_grad=True)
        expected = model.decoder(f)[0]
        with many.on(model.decoder):
            hidden, weights = model.decoder(f)
        torch.testing.assert_close(hidden, expected)
        assert (weights is None) == (steps != 9)
        hidden.sum().backward()
        model.zero_grad()
    assert recorder.shapes == [(2, 4, SIZE), (2, 8, SIZE)]
    assert recorder.runs == 4


def test_a_graph_records_the_forward_of_the_memorys_own_class(monkeypatch):
    model, called = small(), []
    own = type(model.decoder).forward
    monkeypatch.setattr(type(model.decoder), "forward", lambda self, f: called.append(len(f)) or own(self, f))
    with Graphs(capture=Recorder()).on(model.decoder):
        model.decoder(torch.randn(2, 4, SIZE, requires_grad=True))  # recorded, then run
        with torch.no_grad():
            model.decoder(torch.randn(3, 4, SIZE))  # as usual
    assert called == [2, 2, 3]


def test_graphs_stand_aside_where_they_would_be_wrong():
    recorder, model = Recorder(), small()
    many = Graphs(capture=recorder)
    f = torch.randn(2, 4, SIZE, requires_grad=True)
    with many.on(model.decoder):
        with torch.no_grad():
            model.decoder(f)
        assert recorder.runs == 0
        first, _ = model.decoder(f)
        second, weights = model.decoder(f)  # the first still waits for its backward pass
        assert recorder.runs == 1
        assert weights is not None
        (first.sum() + second.sum()).backward()
        model.decoder(f)  # gradients are there to be added to
        assert recorder.runs == 1
        model.zero_grad()
        model.decoder(f)
        assert recorder.runs == 2


def test_graphs_leave_ablations_and_devices_without_them_alone():
    recorder, model = Recorder(), small(decoder="lstm")
    f = torch.randn(2, 4, SIZE, requires_grad=True)
    with Graphs(capture=recorder).on(model.decoder), Graphs(wanted=False, capture=recorder).on(model.reconstructor):
        model.decoder(f)
        model.reconstructor(f)
    assert recorder.runs == 0
    with Graphs().on(model.reconstructor):
        assert model.reconstructor(f)[1] is not None


def corpus_pool(sentences: int, seed: int) -> Pool:
    """Sentences that follow from their concepts: each concept is said, then the word after it."""
    random = np.random.default_rng(seed)
    names = tuple(str(i) for i in range(sentences))
    scenes, texts = [], []
    for name in names:
        chosen = random.choice(WORDS - 5, size=random.integers(1, 4), replace=False)
        scenes.append(Scene(name, concepts=tuple(Concept(f"word{i}") for i in chosen)))
        texts.append([f"word{i + after}" for i in chosen for after in (0, 1)])
    table = SceneTable.build(scenes, ("concepts",), VOCABULARY)
    return Pool(names, table, TextTable.build(texts, VOCABULARY), np.arange(sentences + 1))


TEXT = Batching("pairs", 16, pool="corpus", by_length=True)
PHOTOS = Batching("photos", 8)
STAGES = {
    "xe": Stage(R2MTextConfig(), "xe", TEXT, Optimiser(lr=0.01, clip=10), steps=20),
    "rec": Stage(R2MTextConfig(beta=1.0), "rec", TEXT, Optimiser(lr=0.01), steps=20),
    "match": Stage(R2MImageConfig(text=16, max_steps=8), "match", PHOTOS, Optimiser(lr=0.01), steps=20),
    "both": Stage(R2MImageConfig(gamma=1.0, text=16, max_steps=8), "both", PHOTOS, Optimiser(lr=0.01), steps=20),
}  # fmt: skip


def run_stages(out: Path, stop_at: int = 0) -> Checkpoint:
    """All four stages, each chosen by held-out text. It is killed at a line of the log, if told so."""
    photos = random_scenes(24, seed=4)
    pools = {
        "train": Pool(photos.ids, SceneTable(photos)),
        "corpus": corpus_pool(64, 0),
        "corpus-val": corpus_pool(8, 1),
    }
    stages = [replace(stage, steps=8, select=Selection(every_steps=4, patience=2)) for stage in STAGES.values()]
    lines = []

    def report(line: dict[str, object]) -> None:
        lines.append(line)
        if len(lines) == stop_at:
            raise KeyboardInterrupt

    def evaluate(checkpoint: Checkpoint, pool: Pool, stage: Stage) -> dict[str, float]:
        assert pool is pools["corpus-val"]
        return {"loss": token_loss(checkpoint.captioner(), pool)}

    start = Checkpoint(small(dropout=0.2), VOCABULARY, "r2m")
    context = replace(CONTEXT, pools=pools)
    return train(Run(out, start, stages, context, evaluate, save_every=3, report=report))


def logged(out: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("images/s", "seconds left")} for line in lines]


def test_the_four_stages_run_and_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    whole = run_stages(tmp_path / "whole")
    for stop in (3, 6, 2):
        with pytest.raises(KeyboardInterrupt):
            run_stages(tmp_path / "killed", stop)
    resumed = run_stages(tmp_path / "killed")
    for name, part in whole.model.state_dict().items():
        assert torch.equal(part, resumed.model.state_dict()[name]), name
    assert logged(tmp_path / "whole") == logged(tmp_path / "killed")
    held_out = [line["val loss"] for line in logged(tmp_path / "whole") if "val loss" in line]
    assert len(held_out) == 8


@pytest.mark.parametrize("name", STAGES)
def test_twenty_steps_of_every_stage_make_its_loss_fall(name: str):
    stage, model = STAGES[name], small()
    objective = stage.objective.build(CONTEXT)
    batch = sentences = _first_batch(corpus_pool(16, 0))
    if stage.batch.of == "photos":
        batch = replace(image_batch(12), beside=sentences)

    def mean() -> float:
        with torch.no_grad():
            return float(objective(model.eval(), batch, Progress()).total) / objective.weight(batch)

    before = mean()
    descend(model, objective, batch)
    assert mean() < 0.9 * before


def seen_photos(count: int) -> SceneTable:
    """Photos of one to three things, whose vectors are the sum of the things' own and some noise."""
    random = np.random.default_rng(4)
    of_word = random.standard_normal((WORDS, VECTOR_WIDTH))
    scenes = []
    for i in range(count):
        chosen = random.choice(WORDS - 5, size=random.integers(1, 4), replace=False)
        vector = of_word[chosen].sum(0) + 0.5 * random.standard_normal(VECTOR_WIDTH)
        concepts = tuple(Concept(f"word{one}") for one in chosen)
        scenes.append(Scene(str(i), vector=vector.astype(np.float32), concepts=concepts))
    return SceneTable.build(scenes, ("concepts", "vector"), VOCABULARY)


def learn(model: R2M, objective: R2MText | R2MImage, batches: Batches, steps: int, rate: float) -> None:
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        batch = batches.batch(*divmod(step, len(batches)))
        torch.manual_seed(step)
        optimiser.zero_grad()
        (objective(model.train(), batch, Progress()).total / objective.weight(batch)).backward()
        optimiser.step()
    model.eval()


@torch.no_grad()
def state_of(model: R2M, photos: SceneTable, held_out: Pool) -> dict[str, float]:
    """How far scores spread, how long ṽ is, and how likely held-out text is."""
    objective, everything = image(max_steps=8), torch.arange(len(photos))
    batch = Batch(everything, photos.batch(everything))
    words = objective._greedy_captions(model, batch.scenes)
    hidden, _ = model.unroll(model.encode(batch.scenes), words[:, :-1])
    rebuilt = model.reconstruct(hidden, (words[:, 1:] != PAD).sum(1))
    scores = model.image_vector(batch.scenes) @ rebuilt.T
    return {
        "spread": float(scores.std()),
        "norm": float(rebuilt.norm(dim=1).mean()),
        "text": token_loss(model, held_out),
    }


def test_photo_stages_neither_collapse_nor_break_the_language():
    """With the hardest negatives, and no text beside the photos, all scores become equal and the language breaks."""
    photos, held_out, model = seen_photos(96), corpus_pool(64, 1), small()
    texts = Batches(corpus_pool(256, 0), Batching("pairs", 32, pool="corpus", by_length=True), 0)
    learn(model, text(beta=1.0), texts, 150, 0.01)
    before, found = state_of(model, photos, held_out), {}
    for name, choices in {"default": {"text": 32}, "paper": {"negatives": "hardest"}}.items():
        tuned = copy.deepcopy(model)
        beside = texts if "text" in choices else None
        batches = Batches(Pool(photos.scenes.ids, photos), Batching("photos", 48), 0, beside=beside)
        learn(tuned, image(max_steps=8, **choices), batches, 60, 0.003)
        found[name] = state_of(tuned, photos, held_out)
    assert found["default"]["spread"] > 0.8 * before["spread"]
    assert found["default"]["norm"] > 0.8 * before["norm"]
    assert found["default"]["text"] < before["text"]
    assert found["paper"]["spread"] < 0.2 * before["spread"]
    assert found["paper"]["norm"] < 0.8 * before["norm"]
    assert found["paper"]["text"] > before["text"] + 0.5


def _first_batch(pool: Pool) -> Batch:
    everything = torch.arange(len(pool))
    return Batch(everything, pool.scenes.batch(everything), pool.texts.batch(everything), everything)
