"""Attention that follows a teacher or boxes, each form against loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from captioner_contract import rows
from grounded_samples import SENTENCES, THEIR_WORDS, VOCABULARY, batch, context, matcher, scenes, updown
from sightline.batch import TextBatch
from sightline.config import build
from sightline.errors import CheckpointError, ConfigError
from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.captioner import captions_read
from sightline.models.scan import POSSCANConfig
from sightline.text.vocabulary import PAD
from sightline.training.batches import Batch
from sightline.training.objective import Progress
from sightline.training.objectives.cross_entropy import CrossEntropyConfig, ScheduledSampling, words_read
from sightline.training.objectives.distillation import DistillationConfig

NOUNS = POSSCANConfig().mark(SENTENCES)
NOW = Progress()


def attention(model, seen: Batch, row: int) -> torch.Tensor:
    """(T, n) of one caption alone, step t predicting word t + 1."""
    length = len(SENTENCES[row]) + 2
    memory = model.encode(rows(seen.scenes, [row // 2]))
    return model(memory, seen.texts.ids[[row], :length]).trace.regions[0]


def taught(kind: str, seen: Batch, row: int, stop: bool = False) -> torch.Tensor:
    """(words, n) the teacher's weights for one caption alone, by its own table of words."""
    teacher, words = matcher(kind).eval(), SENTENCES[row]
    flags = [noun and word in THEIR_WORDS for noun, word in zip(NOUNS[row], words, strict=True)]
    end = ["."] if stop else []
    texts = TextBatch.collate([[*words, *end]], THEIR_WORDS, mark=lambda _: [[*flags, *[False for _ in end]]])
    weights = teacher.alignment(teacher.embed_images(rows(seen.scenes, [row // 2])), teacher.embed_texts(texts))
    return weights[0, 1 : len(words) + 1].detach()


def term(form: str, beta: torch.Tensor, alpha: torch.Tensor) -> float:
    """Eq. 15's last part, a region at a time."""
    if form == "nll":
        return -math.log(beta[int(alpha.argmax())])
    one, other = (beta, alpha) if form == "kl" else (alpha, beta)
    return sum(p * math.log(p / max(q, 1e-8)) for p, q in zip(one.tolist(), other.tolist(), strict=True) if p > 0)


def naive_attention(form: str, kind: str, model, seen: Batch, stop: bool = False) -> float:
    terms = []
    for row, words in enumerate(SENTENCES):
        beta, alpha = attention(model, seen, row).detach(), taught(kind, seen, row, stop)
        for t, word in enumerate(words):
            if NOUNS[row][t] and word in VOCABULARY and word in THEIR_WORDS:
                terms.append(term(form, beta[t], alpha[t]))
    assert len(terms) == sum(map(sum, NOUNS)) - 2  # one unknown to each model
    return sum(terms) / len(terms)


@pytest.mark.parametrize("kind", ["pos-scan", "scan"])
@pytest.mark.parametrize("form", ["kl", "kl-reversed", "nll"])
def test_a_matcher_teaches_nouns_that_both_models_know(form, kind):
    model, seen = updown().eval(), batch()
    objective = DistillationConfig(kind, form=form, weight=0.3).build(context())
    losses, tokens = objective(model, seen, NOW), objective.weight(seen)
    plain = CrossEntropyConfig().build(context())
    expected = naive_attention(form, kind, model, seen)
    torch.testing.assert_close(losses.parts["attention"] / tokens, torch.tensor(expected), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(losses.parts["cross-entropy"], plain(model, seen, NOW).total)
    assert tokens == plain.weight(seen) == sum(len(words) + 1 for words in SENTENCES)
    total = plain(model, seen, NOW).total / tokens + 0.3 * expected
    torch.testing.assert_close(losses.total / tokens, total, atol=1e-5, rtol=1e-4)


def test_a_full_stop_is_read_by_the_teacher_alone():
    model, seen = updown().eval(), batch()
    objective = DistillationConfig("scan", full_stop=True).build(context())
    found = objective(model, seen, NOW).parts["attention"] / objective.weight(seen)
    torch.testing.assert_close(
        found, torch.tensor(naive_attention("kl", "scan", model, seen, True)), atol=1e-5, rtol=1e-4
    )


def test_untagged_captions_are_tagged():
    model, objective = updown().eval(), DistillationConfig("pos-scan").build(context())
    torch.testing.assert_close(objective(model, batch(nouns=False), NOW).total, objective(model, batch(), NOW).total)


OVERLAPS = {0: {1: [0.9, 0.6, 0.2, 0.0, 0.1]}, 3: {3: [0.1, 0.7, 0.0, 0.0, 0.3], 1: [0.5, 0.2, 0.3, 0.1, 0.4]}}


def boxed() -> Batch:
    """Caption 0 has one annotated word, caption 3 two; of the second, no region is above 0.5."""
    seen = batch(seen=whole_scenes())
    table = torch.full((8, seen.texts.ids.shape[1], 5), -1.0)
    for row, words in OVERLAPS.items():
        for word, values in words.items():
            table[row, word + 1] = torch.tensor(values)
    return replace(seen, positives=table)


def whole_scenes():
    seen = scenes()
    return replace(seen, region_mask=torch.ones_like(seen.region_mask))


def naive_boxes(form: str, beta: list[float], overlaps: list[float]) -> float:
    positive = [i for i, value in enumerate(overlaps) if value > 0.5]
    if form == "nll":
        return -math.log(beta[overlaps.index(max(overlaps))])
    if form in ("sum", "extend-nll"):  # Eq. 16
        total = sum(-math.log(beta[i]) for i in positive)
        return total if form == "sum" else total / len(positive)
    scale = sum(math.exp(value / 0.5) for value in overlaps)
    alpha = [math.exp(value / 0.5) / scale for value in overlaps]
    one, other = (beta, alpha) if form == "kl" else (alpha, beta)
    return sum(p * math.log(p / q) for p, q in zip(one, other, strict=True))


@pytest.mark.parametrize("form", ["kl", "kl-reversed", "nll", "sum", "extend-nll"])
def test_boxes_teach_words_that_some_region_shows(form):
    model, seen = updown().eval(), boxed()
    objective = DistillationConfig("boxes", form=form).build(context())
    assert objective.positives
    expected = []
    for row, word in ((0, 1), (3, 3)):
        expected.append(naive_boxes(form, attention(model, seen, row)[word].tolist(), OVERLAPS[row][word]))
    found = objective(model, seen, NOW).parts["attention"] / objective.weight(seen)
    torch.testing.assert_close(found, torch.tensor(sum(expected) / 2), atol=1e-5, rtol=1e-4)


def test_regions_that_are_not_there_take_no_part():
    model, objective = updown().eval(), DistillationConfig("boxes", form="kl-reversed").build(context())
    seen = batch()
    seen.scenes.region_mask[0] = torch.tensor([True, True, True, False, False])
    table = torch.full((8, seen.texts.ids.shape[1], 5), -1.0)
    table[0, 2, :3] = torch.tensor([0.8, 0.1, 0.2])
    beta = attention(model, seen, 0)[1].tolist()
    expected = naive_boxes("kl-reversed", beta[:3], [0.8, 0.1, 0.2])
    found = objective(model, replace(seen, positives=table), NOW).parts["attention"] / objective.weight(seen)
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=1e-4)


def test_a_batch_without_nouns_is_plain_cross_entropy():
    model, seen = updown().eval(), batch()
    unmarked = replace(seen, texts=replace(seen.texts, tagged=torch.zeros_like(seen.texts.mask)))
    losses = DistillationConfig("pos-scan").build(context())(model, unmarked, NOW)
    torch.testing.assert_close(losses.total, CrossEntropyConfig().build(context())(model, seen, NOW).total)
    losses.total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_teacher_is_neither_trained_nor_saved():
    model, seen = updown().train(), batch()
    objective = DistillationConfig("pos-scan").build(context())
    objective(model, seen, NOW).total.backward()
    assert all(parameter.grad is None for parameter in objective.teacher.model.parameters())
    assert not objective.teacher.model.training
    assert not list(objective.parameters())
    assert not objective.state_dict()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_attention_term_moves_attention_towards_the_teacher():
    seen, moved = batch(), {}
    for weight in (0.0, 5.0):
        model = updown().train()
        objective = DistillationConfig("pos-scan", weight=weight).build(context())
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(20):
            optimiser.zero_grad()
            (objective(model, seen, NOW).total / objective.weight(seen)).backward()
            optimiser.step()
        moved[weight] = objective(model, seen, NOW).parts["attention"].item()
    assert moved[5.0] < 0.5 * moved[0.0]


def test_scheduled_sampling_reads_words_of_the_model_and_predicts_the_caption():
    seen = batch()
    plan = ScheduledSampling(start=0, increase=1.0, every=1, limit=1.0)
    objective = DistillationConfig("pos-scan", scheduled_sampling=plan).build(context())
    plain = DistillationConfig("pos-scan").build(context())
    model = updown().train()
    torch.testing.assert_close(objective(model, seen, Progress(0)).total, plain(model, seen, Progress(0)).total)
    model = _sure_of("snow")  # what it draws is always the same
    losses = objective(model, seen, Progress(1))
    read = seen.texts.ids[:, :-1].clone()
    read[:, 1:] = VOCABULARY.id("snow")
    hidden, _ = model.unroll(model.encode(seen.scenes), read)
    targets = seen.texts.ids[:, 1:]
    log_probs = torch.log_softmax(model.predict(hidden), -1).gather(2, targets[..., None]).squeeze(2)
    torch.testing.assert_close(losses.parts["cross-entropy"], -(log_probs * (targets != PAD)).sum())
    torch.testing.assert_close(objective(model.eval(), seen, Progress(1)).total, plain(model, seen, Progress(1)).total)


def test_scheduled_sampling_never_reads_padding_in_place_of_a_word():
    plan = ScheduledSampling(start=0, increase=1.0, every=1, limit=1.0)
    model, seen = updown().train(), batch()
    with torch.no_grad():
        model.output.bias[PAD] = 100.0
    read = words_read(plan, model, model.encode(seen.scenes), seen.texts.ids, Progress(1))
    assert torch.equal(read == PAD, captions_read(seen.texts.ids) == PAD)
    assert not torch.equal(read, captions_read(seen.texts.ids))


def _sure_of(word: str):
    model = updown().train()
    with torch.no_grad():
        model.output.bias[VOCABULARY.id(word)] = 100.0
    return model


def test_in_half_precision_too_every_weight_learns():
    model, seen = updown().train(), batch()
    plan = ScheduledSampling(start=0, increase=1.0, every=1, limit=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        losses = DistillationConfig("pos-scan", scheduled_sampling=plan).build(context())(model, seen, Progress(1))
    losses.total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_teacher_and_captioner_must_have_seen_with_the_same_eyes():
    model = updown()
    objective = DistillationConfig("pos-scan").build(context(fingerprint="north"))
    with pytest.raises(ConfigError, match="trained on scenes north, and these are south"):
        objective(model, batch(seen=scenes("south")), NOW)
    objective(model, batch(seen=scenes("north")), NOW)
    objective(model, batch(seen=scenes("")), NOW)


def test_what_cannot_teach_or_learn_is_refused():
    sizes = {"word_size": 8, "hidden_size": 8, "attention_size": 8, "grid_width": 7, "vector_width": 9}
    blind = AdaptiveAttentionConfig(**sizes).build(len(VOCABULARY))
    with pytest.raises(ConfigError, match="vsepp model and does not align"):
        DistillationConfig("vsepp").build(context())
    with pytest.raises(CheckpointError, match="does not match texts"):
        DistillationConfig("mine").build(context(mine=updown()))
    with pytest.raises(ConfigError, match="needs boxes"):
        DistillationConfig("scan", form="sum")
    with pytest.raises(ConfigError, match="`weight` is -1"):
        DistillationConfig("scan", weight=-1)
    with pytest.raises(ConfigError, match="no attention over regions"):
        DistillationConfig("scan").build(context())(blind, batch(), NOW)
    with pytest.raises(ConfigError, match="`teacher` is missing"):
        build(DistillationConfig, {"kind": "distillation"})
