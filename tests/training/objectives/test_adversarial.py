"""Adversarial learning: both losses written out with loops, roll-outs against an enumeration, two learners apart."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS
from objective_samples import (
    CAPTIONERS,
    VOCABULARY,
    adaptive,
    descend,
    ids_of,
    make_batch,
    make_context,
    make_pool,
    matcher,
    naive_log_prob,
    scene_of,
    updown,
)
from sightline.decoding.constraints import WordRules
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Sample
from sightline.errors import ConfigError, MissingPartError
from sightline.models.captioner import expand
from sightline.models.sim_trans import SimTransConfig
from sightline.models.updown import UpDown
from sightline.text.vocabulary import END, PAD, START, UNK
from sightline.training.objective import Context, Progress
from sightline.training.objectives.adversarial import Adversarial, AdversarialConfig, roll_out
from sightline.training.tensor_tables import Pool, SceneTable

SMALL = AdversarialConfig(word_size=6, hidden_size=6, max_words=6, rollouts=2)


@pytest.fixture
def pool() -> Pool:
    return make_pool()


def objective(pool, **choices) -> Adversarial:
    loss = replace(SMALL, **choices).build(make_context(pool))
    with torch.no_grad():  # so that its opinions differ from caption to caption
        loss.evaluator.image.weight *= 3
        loss.evaluator.text.embedding.weight *= 20
    return loss


def naive_score(loss: Adversarial, pool: Pool, photo: int, words: list[int]) -> torch.Tensor:
    """⟨f(I), h(S)⟩ of one pair."""
    scene = scene_of(pool, photo)
    part = loss.config.part
    if part == "vector":
        raw = scene.vector[0]
    else:
        mask = {"regions": scene.region_mask, "grid": scene.grid_mask}[part][0]
        rows = getattr(scene, part)[0]
        raw = sum(rows[i] for i in range(len(rows)) if mask[i]) / int(mask.sum())
    f = loss.evaluator.image.weight @ raw + loss.evaluator.image.bias
    _, h = loss.evaluator.text.gru(loss.evaluator.text.embedding(torch.tensor([words])))
    return sum(f[i] * h[0, 0, i] for i in range(len(f)))


def sigmoid(score: torch.Tensor) -> float:
    return 1 / (1 + math.exp(-score.item()))


def drawn_captions(loss, model, batch, seed):
    """The captions that the objective draws after this seed, as lists of ids."""
    found = []

    class Noting(type(model)):
        def sampled_log_probs(self, memory, words):
            found.append(words)
            return super().sampled_log_probs(memory, words)

    kind, model.__class__ = type(model), Noting
    torch.manual_seed(seed)
    losses = loss(model, batch, Progress())
    model.__class__ = kind
    return losses, [row[row != PAD].tolist() for row in found[0]]


@pytest.mark.parametrize("part", ["vector", "grid", "regions"])
def test_the_evaluator_is_the_sigmoid_of_an_inner_product_and_its_loss_that_of_three_kinds_of_captions(pool, part):
    loss = objective(pool, part=part, generated=0.5, mismatched=0.25)
    batch = make_batch(pool, loss)
    losses, drawn = drawn_captions(loss, updown(), batch, seed=1)
    expected, means = 0.0, {"r true": 0.0, "reward": 0.0, "r mismatched": 0.0}
    for row in range(6):
        photo = int(batch.photos[row // 2])
        kinds = zip(means, (ids_of(batch.texts), drawn, ids_of(batch.negatives[0])), (1, 0.5, 0.25), strict=True)
        for name, captions, share in kinds:
            r = sigmoid(naive_score(loss, pool, photo, captions[row]))
            expected -= share * math.log(r if name == "r true" else 1 - r)
            means[name] += r
    assert losses.parts["evaluator"].item() == pytest.approx(expected, rel=1e-4)
    for name, value in means.items():
        assert losses.parts[name].item() == pytest.approx(value, rel=1e-4)
    assert loss.weight(batch) == 6


@pytest.mark.parametrize("make", CAPTIONERS)
@pytest.mark.parametrize("baseline", ["none", "mean"])
def test_the_generator_weighs_the_log_probability_of_each_word_with_its_reward(pool, make, baseline):
    loss = objective(pool, rollouts=0, max_words=30, baseline=baseline)
    batch, model = make_batch(pool, loss), make()
    with torch.no_grad():
        model.output.bias[END] += 2  # so that no caption is cut
    losses, drawn = drawn_captions(loss, model, batch, seed=2)
    assert max(map(len, drawn)) < 32
    pairs = [(int(batch.photos[row // 2]), words) for row, words in enumerate(drawn)]
    rewards = [sigmoid(naive_score(loss, pool, photo, words)) for photo, words in pairs]
    counts = [len(words) - 1 for _, words in pairs]
    mean = sum(r * n for r, n in zip(rewards, counts, strict=True)) / sum(counts) if baseline == "mean" else 0.0
    expected = 0.0
    for (photo, words), reward in zip(pairs, rewards, strict=True):
        expected -= (reward - mean) * naive_log_prob(model, pool, photo, words, (PAD, START)).item()
    assert losses.parts["generator"].item() == pytest.approx(expected, rel=1e-3)
    torch.testing.assert_close(losses.total, losses.parts["generator"] + losses.parts["evaluator"])


def test_an_end_that_the_length_limit_brought_is_not_rewarded(pool):
    loss = objective(pool, rollouts=0, max_words=1)
    batch, model = make_batch(pool, loss), updown()
    with torch.no_grad():
        model.output.bias[END] -= 50
    losses, drawn = drawn_captions(loss, model, batch, seed=3)
    assert all(len(words) == 3 for words in drawn)  # START, a word, END
    expected = 0.0
    for row, words in enumerate(drawn):
        photo = int(batch.photos[row // 2])
        reward = sigmoid(naive_score(loss, pool, photo, words))
        expected -= reward * naive_log_prob(model, pool, photo, words[:2], (PAD, START)).item()
    assert losses.parts["generator"].item() == pytest.approx(expected, rel=1e-3)


def transformer(seed):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "layers": 2, "heads": 2, "ffn_size": 8}
    return SimTransConfig(region_width=REGION_WIDTH, dropout=0.0, **sizes).build(WORDS)


def decided(make=updown):
    """A captioner that is sure at every step, so that a draw is a greedy choice."""
    model = make(seed=4)
    with torch.no_grad():
        model.output.weight *= 3000
    return model.eval()


def continued(model, pool, photo, words, most, depth):
    """`words` with the most probable ones after them, as roll-outs of a decided captioner."""
    words = list(words)
    while words[-1] != END and len(words) <= most and depth > 0:
        memory = model.encode(scene_of(pool, photo))
        state = model.start(memory)
        for word in words:
            log_probs, state = model.step(torch.tensor([word]), memory, state)
        log_probs[:, [PAD, START]] = -math.inf  # never said
        words.append(int(log_probs.argmax()))
        depth -= 1
    return words if words[-1] == END else [*words, END]


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("make", [*CAPTIONERS, transformer])
def test_a_word_is_worth_the_mean_reward_of_what_roll_outs_make_of_it(pool, make, depth):
    loss, model = objective(pool, depth=depth, max_words=7), decided(make)
    batch = make_batch(pool, loss)
    memory = model.encode(batch.scenes)
    found = loss.rewards(model, memory, batch.scenes, batch.texts.ids)
    differ = False
    for row, words in enumerate(ids_of(batch.texts)):
        photo = int(batch.photos[row // 2])
        for t in range(1, len(words)):
            whole = continued(model, pool, photo, words[: t + 1], most=7, depth=depth or 99)
            differ |= whole != words
            expected = sigmoid(naive_score(loss, pool, photo, whole))
            assert found[row, t - 1].item() == pytest.approx(expected, rel=1e-3), (row, t)
    assert differ


def test_many_roll_outs_come_near_the_expected_reward(pool):
    loss, model = objective(pool, rollouts=4000, max_words=2), updown().eval()
    with torch.no_grad():
        model.output.weight *= 8
    scenes = scene_of(pool, 0)
    memory = model.encode(scenes)
    _, state = model.step(torch.tensor([START]), memory, model.start(memory))
    log_probs, _ = model.step(torch.tensor([5]), memory, state)
    possible = [word for word in range(WORDS) if word not in (PAD, START)]
    captions = {word: [START, 5, END] if word == END else [START, 5, word, END] for word in possible}
    scores = {word: sigmoid(naive_score(loss, pool, 0, captions[word])) for word in possible}
    chances = {word: math.exp(log_probs[0, word].item()) for word in possible}
    expected = sum(chances[word] * scores[word] for word in possible) / sum(chances.values())

    worst = min(scores, key=scores.get)
    torch.manual_seed(0)
    found = loss.rewards(model, memory, scenes, torch.tensor([captions[worst]]))[0]
    assert found[0].item() == pytest.approx(expected, abs=0.01)
    assert expected - scores[worst] > 0.05
    for value in found[1:]:  # after two words END must follow, so there is nothing to draw
        assert value.item() == pytest.approx(scores[worst], rel=1e-4)


def test_captions_that_have_ended_are_not_carried_on(pool):
    model, scenes = decided(), make_batch(pool).scenes
    memory = model.encode(scenes)
    said = torch.tensor([[START, 5, END, PAD], [START, 6, 7, END], [START, 6, 7, 8]])
    state = expand(model.start(memory), 3)
    for column in said[:, :-1].T:
        _, state = model.advance(column, memory, state)
    rules = WordRules(Rules(max_words=5), WORDS, None, said.device)
    whole = roll_out(model, memory, said, state, rules)
    assert torch.equal(whole[:2, :4], said[:2])
    assert (whole[:2, 4:] == PAD).all()
    assert (whole[2] == END).sum() == 1
    done = roll_out(model, memory, said[:2], {name: part[:2] for name, part in state.items()}, rules)
    assert torch.equal(done, said[:2])


def gradients(total, modules):
    names = [p for module in modules for p in module.parameters()]
    return torch.autograd.grad(total, names, retain_graph=True, allow_unused=True)


def test_neither_learner_gets_a_gradient_of_the_others_loss(pool):
    loss, model = objective(pool), updown()
    losses = loss(model, make_batch(pool, loss), Progress())
    assert all(part is None for part in gradients(losses.parts["evaluator"], [model]))
    assert all(part is None for part in gradients(losses.parts["generator"], [loss]))
    assert all(part is not None for part in gradients(losses.total, [loss]))
    assert gradients(losses.total, [model.output])[0].abs().sum() > 0


def test_in_the_warm_up_only_the_evaluator_learns(pool):
    loss, model = objective(pool, warmup=20), updown()
    batch = make_batch(pool, loss)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    torch.manual_seed(0)
    first = loss(model, batch, Progress(step=0))
    descend(model, loss, batch, rate=0.02)
    torch.manual_seed(0)
    last = loss(model, batch, Progress(step=19))
    assert "generator" not in last.parts
    assert last.total < 0.7 * first.total
    assert last.parts["r true"] > first.parts["r true"]
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert "generator" in loss(model, batch, Progress(step=20)).parts


@pytest.mark.parametrize("rollouts", [0, 2])
@pytest.mark.parametrize("make", CAPTIONERS)
def test_twenty_steps_against_a_fixed_evaluator_raise_the_reward(make, rollouts):
    pool = make_pool(photos=3)
    loss, model = objective(pool, rollouts=rollouts, baseline="mean", max_words=3), make()
    batch = make_batch(pool, loss, size=3, captions=12)
    loss.requires_grad_(False)

    def rewards() -> torch.Tensor:
        torch.manual_seed(0)
        memory = model.encode(batch.scenes)
        drawn = decode(model, memory, Sample(copies=2000), Rules(max_words=3, suppress_unk=False)).words.flatten(0, 1)
        return loss.evaluator(loss.evaluator.embed(batch.scenes), drawn).sigmoid()

    before = rewards()
    descend(model, loss, batch, rate=0.02)
    after = rewards()
    error = float((before.var() / len(before) + after.var() / len(after)).sqrt())
    assert after.mean() - before.mean() > 3 * error


@pytest.mark.parametrize(("rollouts", "baseline"), [(0, "none"), (0, "mean"), (1, "none"), (2, "mean")])
def test_its_gradient_is_that_of_the_expected_reward(pool, rollouts, baseline):
    loss = objective(pool, rollouts=rollouts, baseline=baseline, max_words=2)
    model = updown()
    with torch.no_grad():
        model.output.bias[[PAD, START]] -= 50  # which are never drawn
    batch = make_batch(pool, loss, size=1, captions=20_000)

    memory = model.encode(batch.scenes)
    log_probs, state = model.step(torch.tensor([START]), memory, model.start(memory))
    first = log_probs[0].exp()
    second = model.step(torch.arange(WORDS), memory, expand(state, WORDS))[0].exp()
    expected = first[END] * score_of(loss, batch, [START, END])
    for one in range(UNK, WORDS):
        expected = expected + first[one] * second[one, END] * score_of(loss, batch, [START, one, END])
        for two in range(UNK, WORDS):
            expected = expected + first[one] * second[one, two] * score_of(loss, batch, [START, one, two, END])
    exact = torch.autograd.grad(expected, model.output.bias)[0]

    torch.manual_seed(0)
    generator = loss(model, batch, Progress()).parts["generator"] / loss.weight(batch)
    found = -torch.autograd.grad(generator, model.output.bias)[0]
    assert (found - exact).norm() < 0.15 * exact.norm()


def score_of(loss, batch, words):
    return loss.evaluator(loss.evaluator.embed(batch.scenes), torch.tensor([words])).sigmoid().item()


@pytest.mark.parametrize(("sample_in", "training"), [("eval", False), ("train", True)])
def test_captions_are_drawn_in_the_mode_that_was_chosen_and_scored_in_training_mode(pool, sample_in, training):
    modes = {"step": set(), "unroll": set()}

    class Telling(UpDown):
        def step(self, *inputs):
            modes["step"].add(self.training)
            return super().step(*inputs)

        def unroll(self, *inputs):
            modes["unroll"].add(self.training)
            return super().unroll(*inputs)

    loss, model = objective(pool, sample_in=sample_in), updown().train()
    model.__class__ = Telling
    loss(model, make_batch(pool, loss), Progress())
    assert modes == {"step": {training}, "unroll": {True}}
    assert model.training


def test_the_evaluator_is_in_the_state_and_among_what_the_optimiser_trains(pool):
    loss, again = objective(pool), SMALL.build(make_context(pool))
    again.load_state_dict(loss.state_dict())
    assert {name.split(".")[0] for name, _ in loss.named_parameters()} == {"evaluator"}
    batch, model = make_batch(pool, loss), adaptive()
    results = []
    for one in (loss, again):
        torch.manual_seed(0)
        results.append(one(model, batch, Progress()).total.item())
    assert results[0] == results[1]


def test_the_evaluator_begins_as_the_seed_says_whatever_was_drawn_before(pool):
    torch.manual_seed(1)
    one = SMALL.build(make_context(pool, seed=3)).state_dict()
    after = torch.rand(())
    two = SMALL.build(make_context(pool, seed=3)).state_dict()
    other = SMALL.build(make_context(pool, seed=4)).state_dict()
    assert all(torch.equal(part, two[name]) for name, part in one.items())
    assert any(not torch.equal(part, other[name]) for name, part in one.items())
    torch.manual_seed(1)
    assert torch.rand(()) == after


def test_bad_choices_are_refused():
    for choice in ({"rollouts": -1}, {"depth": -1}, {"max_words": 0}, {"hidden_size": 0}, {"generated": -0.5},
                   {"mismatched": -1.0}, {"warmup": -1}, {"word_size": 0}):  # fmt: skip
        with pytest.raises(ConfigError, match=f"`{next(iter(choice))}` is"):
            AdversarialConfig(**choice)


def test_what_the_evaluator_cannot_see_is_named(pool):
    with pytest.raises(ConfigError, match="needs photos"):
        SMALL.build(Context(VOCABULARY))
    blind = Pool(pool.ids, SceneTable(replace(pool.scenes.scenes, vector=None)), pool.texts, pool.first)
    with pytest.raises(MissingPartError, match="the evaluator needs `vector`"):
        SMALL.build(make_context(blind))


def test_matchers_are_refused(pool):
    loss = objective(pool)
    with pytest.raises(ConfigError, match="trains captioners"):
        loss(matcher(), make_batch(pool, loss), Progress())


def test_in_bfloat16_every_weight_still_gets_the_gradient_of_what_was_drawn(pool):
    """They are drawn without gradients in the same autocast block: weights cast there must not serve the loss."""
    loss, model = objective(pool), updown().train()
    batch = make_batch(pool, loss)
    with torch.autocast("cpu", torch.bfloat16):
        losses = loss(model, batch, Progress())
    losses.total.backward()
    for name, parameter in [*model.named_parameters(), *loss.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
