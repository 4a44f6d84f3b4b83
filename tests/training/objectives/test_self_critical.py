"""Self-critical training: rewards, baselines, the policy gradient against its formula, and a run that learns."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from captioner_contract import rows
from grounded_samples import CAPTIONS, THEIR_WORDS, VOCABULARY, batch, context, matcher, pool, scenes, updown
from sightline.batch import TextBatch
from sightline.config import build
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam, Greedy, Sample
from sightline.errors import CheckpointError, ConfigError
from sightline.metrics.bleu import Bleu
from sightline.metrics.cider import CIDErD, DocumentFrequencies
from sightline.metrics.meteor import Meteor
from sightline.metrics.scorecard import default_metrics
from sightline.metrics.spice import Spice
from sightline.text.vocabulary import END, PAD, START, UNK
from sightline.training.batches import Batch
from sightline.training.objective import Context, Progress, no_gradients
from sightline.training.objectives.self_critical import SelfCriticalConfig
from sightline.training.rewards import BleuReward, CiderReward, MatcherReward, MeteorReward, SpiceReward

NOW = Progress()
LONGEST = 7


def photos() -> Batch:
    return Batch(torch.arange(4), batch().scenes)


def said(*captions: str, cut: bool = False) -> torch.Tensor:
    """(4, 1, T) one caption a photo."""
    ids = [VOCABULARY.encode(caption.split())[: -1 if cut else None] for caption in captions]
    longest = max(map(len, ids))
    return torch.tensor([[row + [PAD] * (longest - len(row))] for row in ids])


GUESSES = ("a dog on the grass", "a man in a street", "a cat", "the cat sleeps on a red sofa")


def test_cider_is_that_of_the_metric_with_the_end_as_a_word():
    found = CiderReward().build(context())(photos(), said(*GUESSES))

    def ids(caption: str) -> str:
        return " ".join(map(str, VOCABULARY.encode(caption.split())[1:]))

    references = {str(i): [ids(caption) for caption in captions] for i, captions in enumerate(CAPTIONS)}
    metric = CIDErD(DocumentFrequencies.of(references.values()))
    metric.update({str(i): ids(guess) for i, guess in enumerate(GUESSES)}, references)
    expected = [metric.compute().per_image[str(i)]["CIDEr"] for i in range(4)]
    torch.testing.assert_close(found, torch.tensor(expected)[:, None])
    assert (CiderReward().build(context())(photos(), said(*GUESSES, cut=True)) < found)[[0, 3]].all()


def test_captions_are_scored_by_the_photos_of_the_batch_whatever_their_order():
    reward = CiderReward().build(context())
    turned = Batch(torch.tensor([3, 1, 0, 2]), None)
    torch.testing.assert_close(reward(turned, said(*(GUESSES[i] for i in (3, 1, 0, 2)))),
                               reward(photos(), said(*GUESSES))[[3, 1, 0, 2]])  # fmt: skip


@pytest.mark.parametrize(
    ("config", "metric", "key"),
    [(BleuReward(), Bleu(), "Bleu_4"), (BleuReward(order=1), Bleu(), "Bleu_1"), (SpiceReward(), Spice(), "SPICE")],
)
def test_language_rewards_are_those_of_their_metrics(config, metric, key):
    two = torch.cat([said(*GUESSES), said(*GUESSES)], 1)
    found = config.build(context())(photos(), two)
    references = {str(i): list(captions) for i, captions in enumerate(CAPTIONS)}
    metric.update({str(i): guess for i, guess in enumerate(GUESSES)}, references)
    expected = torch.tensor([[metric.compute().per_image[str(i)][key]] * 2 for i in range(4)])
    assert expected.max() > 0
    torch.testing.assert_close(found, expected.float())


SMALL = {"a", "the", "on", "in", "of", "and", "with", "is"}


def meteor(caption: str, reference: str) -> float:
    """METEOR 1.5, where words match that are the same: α 0.85, β 0.2, γ 0.6, δ 0.75."""
    mine, theirs = caption.split(), reference.split()
    weight = {word: 0.25 if word in SMALL else 0.75 for word in mine + theirs}
    left, matched = Counter(theirs), []
    for word in mine:
        matched.append(left[word] > 0)
        left[word] -= 1
    heavy = sum(weight[word] for word, found in zip(mine, matched, strict=True) if found)
    if not heavy:
        return 0.0
    precision, recall = heavy / sum(weight[word] for word in mine), heavy / sum(weight[word] for word in theirs)
    chunks = sum(matched)
    for place in range(len(mine) - 1):
        follows = (mine[place], mine[place + 1]) in pairwise(theirs)
        chunks -= matched[place] and matched[place + 1] and follows
    penalty = 0.0 if mine == theirs else 0.6 * (chunks / sum(matched)) ** 0.2
    return precision * recall / (0.85 * precision + 0.15 * recall) * (1 - penalty)


def test_meteor_is_that_of_the_best_reference_whatever_the_order():
    turned = [3, 1, 0, 2]
    forms = [
        lambda i: GUESSES[i],
        lambda i: f"{GUESSES[i]} {GUESSES[i]}",  # a word said twice matches one that is there once but once
        lambda i: " ".join(reversed(GUESSES[i].split())),
        lambda i: CAPTIONS[i][0],
    ]
    words = said(*(form(i) for form in forms for i in turned)).view(len(forms), 4, -1).movedim(0, 1)
    found = MeteorReward().build(context())(Batch(torch.tensor(turned), None), words)
    expected = [[max(meteor(form(i), reference) for reference in CAPTIONS[i]) for form in forms] for i in turned]
    torch.testing.assert_close(found, torch.tensor(expected))
    assert (found[:, 3] == 1).all()


@pytest.mark.skipif("meteor" not in default_metrics(), reason="the data of the extra `meteor` is not installed")
def test_meteor_is_the_metrics_where_words_match_only_if_they_are_equal():
    found = MeteorReward().build(context())(photos(), said(*GUESSES))[:, 0]
    metric = Meteor()
    metric.update(
        {str(i): guess for i, guess in enumerate(GUESSES)}, {str(i): list(own) for i, own in enumerate(CAPTIONS)}
    )
    expected = [metric.compute().per_image[str(i)]["METEOR"] for i in range(4)]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_a_word_that_is_not_known_matches_none():
    words = said(*GUESSES)
    unknown = words.masked_fill(words > UNK, UNK)
    assert not MeteorReward().build(context())(photos(), unknown).any()
    assert MeteorReward().build(context())(photos(), words).all()


@pytest.mark.parametrize("kind", ["scan", "pos-scan", "vsepp"])
@pytest.mark.parametrize("stop", [False, True])
def test_a_matcher_rewards_with_the_similarity_of_a_photo_and_its_caption(kind, stop):
    seen, captions = photos(), torch.cat([said(*GUESSES), said(*GUESSES).flip(0)], 1)
    found = MatcherReward(kind, full_stop=stop).build(context())(seen, captions)
    judge = matcher(kind).eval()
    for i in range(4):
        for k, guess in enumerate((GUESSES[i], GUESSES[3 - i])):
            words = [*guess.split(), *(["."] if stop else [])]
            mark = getattr(judge.config, "mark", None)
            texts = TextBatch.collate([words], THEIR_WORDS, mark=mark)
            if texts.tagged is not None:
                texts.tagged[0, 1:-1] &= torch.tensor([word in THEIR_WORDS for word in words])
            torch.testing.assert_close(found[i, k], judge(rows(seen.scenes, [i]), texts)[0, 0], atol=1e-5, rtol=1e-4)


def samples_of(model, seen: Batch, seed: int, copies: int) -> torch.Tensor:
    """What the objective samples first after `seed`; a caption that was cut loses its END."""
    torch.manual_seed(seed)
    rules = Rules(max_words=LONGEST, suppress_unk=False)
    decoded = decode(model.eval(), model.encode(seen.scenes), Sample(copies=copies), rules)
    return without_forced_end(decoded)


def without_forced_end(decoded) -> torch.Tensor:
    words = decoded.words.clone()
    for row, finished in zip(words.flatten(0, 1), decoded.finished.flatten(), strict=True):
        if not finished:
            row[row == END] = PAD
    return words


def naive_loss(model, seen: Batch, words: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """−Σ (r − b) · log p / tokens (Eq. 18), a token at a time."""
    total, tokens = torch.zeros(()), 0
    for i in range(words.shape[0]):
        memory = model.encode(rows(seen.scenes, [i]))
        for k in range(words.shape[1]):
            state = model.start(memory)
            for read, next_word in zip(words[i, k], words[i, k, 1:], strict=False):
                if next_word == PAD:
                    break
                log_probs, state = model.step(read[None], memory, state)
                drawn = 1 - log_probs[0, [PAD, START]].exp().sum()  # the share of what may be said
                total = total - advantage[i, k] * (log_probs[0, next_word] - drawn.log())
                tokens += 1
    return total / tokens


def reward_of(words: torch.Tensor, seen: Batch) -> torch.Tensor:
    return CiderReward().build(context())(seen, words)


def gradients(model, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def warmed() -> torch.nn.Module:
    """A captioner that has begun to learn the captions, so that samples share words with them."""
    model, seen = updown(seed=3).train(), batch()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(25):
        optimiser.zero_grad()
        (-model.log_prob(model.encode(seen.scenes), seen.texts.ids).mean()).backward()
        optimiser.step()
    return model


@pytest.fixture(scope="module")
def learner() -> torch.nn.Module:
    return warmed()


def config(**changes) -> SelfCriticalConfig:
    return SelfCriticalConfig(**{"samples": 3, "max_words": LONGEST, **changes})


@pytest.mark.parametrize("baseline", ["greedy", "mean", "beam"])
def test_the_gradient_is_that_of_reinforce(learner, baseline):
    model, seen = copy.deepcopy(learner).train(), photos()
    rules = Rules(max_words=LONGEST, suppress_unk=False)
    memory = model.encode(seen.scenes)
    if baseline == "beam":
        words = without_forced_end(decode(model.eval(), memory, Beam(3, 3), rules))
    else:
        words = samples_of(model, seen, 11, 3)
    rewards = reward_of(words, seen)
    if baseline == "greedy":
        greedy = without_forced_end(decode(model.eval(), memory, Greedy(), rules))
        base = reward_of(greedy, seen).expand(-1, 3)
    elif baseline == "mean":
        base = torch.stack([(rewards.sum(1) - rewards[:, k]) / 2 for k in range(3)], 1)
    else:
        base = rewards.mean(1, keepdim=True).expand(-1, 3)
    expected = naive_loss(model.train(), seen, words, rewards - base)
    objective = config(baseline=baseline).build(context())
    torch.manual_seed(11)
    losses = objective(model, seen, NOW)
    weight = objective.weight(seen)
    assert weight == 12
    torch.testing.assert_close(losses.total / weight, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(losses.parts["reward"] / weight, rewards.mean())
    torch.testing.assert_close(losses.parts["baseline"] / weight, base.mean())
    torch.testing.assert_close(losses.parts["cider"], losses.parts["reward"])
    assert losses.parts["length"] == sum(int(word > END) for word in words.flatten())
    found, wanted = gradients(model, losses.total / weight), gradients(model, expected)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-3)
    assert model.training


def test_the_greedy_caption_in_its_place_gets_nothing(learner):
    model, seen = copy.deepcopy(learner), photos()
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias[VOCABULARY.id("dog")] = 200.0  # all samples are the greedy caption, cut at the longest
    losses = config().build(context())(model, seen, NOW)
    assert losses.total == 0
    assert losses.parts["length"] == 12 * LONGEST
    torch.testing.assert_close(losses.parts["reward"], losses.parts["baseline"])


def test_rewards_are_added_by_weight(learner):
    model, seen = copy.deepcopy(learner), photos()
    rewards = (CiderReward(weight=0.5), MatcherReward("scan", weight=2.0), BleuReward(weight=3.0, order=1))
    objective = config(rewards=rewards).build(context())
    torch.manual_seed(1)
    parts = objective(model, seen, NOW).parts
    torch.testing.assert_close(parts["reward"], 0.5 * parts["cider"] + 2 * parts["matcher"] + 3 * parts["bleu"])
    assert all(parts[kind] != 0 for kind in ("cider", "matcher", "bleu"))


def test_sampling_leaves_no_trace_on_gradients_in_half_precision(learner):
    seen, objective = photos(), config(baseline="mean").build(context())
    model = copy.deepcopy(learner).train()
    torch.manual_seed(4)
    with torch.autocast("cpu", torch.bfloat16):
        losses = objective(model, seen, NOW)
    found = gradients(model, losses.total)
    torch.manual_seed(4)
    with torch.autocast("cpu", torch.bfloat16):
        words = samples_of(model, seen, 4, 3)
    rewards = reward_of(words, seen)
    advantage = (rewards - (rewards.sum(1, keepdim=True) - rewards) / 2).flatten()
    flat = words.flatten(0, 1)
    with torch.autocast("cpu", torch.bfloat16):  # a block of its own, in which nothing was sampled
        log_probs = model.train().sampled_log_probs(model.encode(seen.scenes), flat)
    wanted = gradients(model, -(advantage * log_probs.sum(1)).sum() / (flat[:, 1:] != PAD).sum() * 12)
    for name, gradient in wanted.items():
        assert gradient.abs().sum() > 0, name
        torch.testing.assert_close(found[name], gradient)


def test_a_pass_without_gradients_keeps_the_precision_and_no_weights():
    weight = torch.nn.Linear(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        with no_gradients(torch.device("cpu")):
            assert weight(torch.ones(1, 2)).dtype == torch.bfloat16
            assert not torch.is_grad_enabled()
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()
        assert weight(torch.ones(1, 2)).requires_grad
    with no_gradients(torch.device("cpu")):
        assert weight(torch.ones(1, 2)).dtype == torch.float32


def test_dropout_acts_on_samples_only_where_asked():
    seen, model = photos(), updown(dropout=0.5).train()
    still = config(samples=2, dropout=False).build(context())
    loose = config(samples=2, dropout=True).build(context())
    expected = samples_of(model, seen, 3, 2)[..., : 1 + LONGEST]  # some were cut there
    model.train()
    assert torch.equal(_sampled(still, model, seen)[:, :2], expected)
    assert not torch.equal(_sampled(loose, model, seen)[:, :2], expected)
    assert model.training
    rules = Rules(max_words=LONGEST, suppress_unk=False)
    greedy = decode(model.eval(), model.encode(seen.scenes), Greedy(), rules).words[..., : 1 + LONGEST]
    assert torch.equal(_sampled(loose, model.train(), seen)[:, 2:, : greedy.shape[2]], greedy)  # the baseline has none


def test_what_is_trained_are_the_probabilities_that_samples_were_drawn_by():
    seen, model = photos(), updown(dropout=0.5)
    with torch.no_grad():
        model.output.bias[PAD], model.output.bias[START] = 3, 2  # much that is never said
    words = samples_of(model, seen, 3, 2)
    rewards = reward_of(words, seen)
    advantage = (rewards - rewards.flip(1)).flatten()  # of two samples, each is the other's baseline
    flat = words.flatten(0, 1)
    probs = model.eval()(model.encode(seen.scenes), flat).log_probs.exp()
    said = probs / (1 - probs[..., [PAD, START]].sum(-1, keepdim=True))  # PAD and START are not drawn
    log_probs = said.gather(2, flat[:, 1:, None]).squeeze(2).log().masked_fill(flat[:, 1:] == PAD, 0)
    expected = -(advantage * log_probs.sum(1)).sum() / (flat[:, 1:] != PAD).sum()
    totals = {}
    for dropout in (False, True):
        objective = config(samples=2, baseline="mean", dropout=dropout).build(context())
        torch.manual_seed(3)
        totals[dropout] = objective(model.train(), seen, NOW).total / 8
    torch.testing.assert_close(totals[False], expected)
    assert abs(totals[True] - expected) > 1e-3
    assert all(module.training for module in model.modules())


def _sampled(objective, model, seen: Batch) -> torch.Tensor:
    """The samples behind a loss and the greedy caption, by a reward that remembers them."""
    kept = []

    def reward(batch: Batch, words: torch.Tensor) -> torch.Tensor:
        kept.append(words)
        return torch.zeros(words.shape[:2])

    objective.rewards = [reward]
    torch.manual_seed(3)
    objective(model, seen, NOW)
    return kept[0][..., : 1 + LONGEST]


def sampled_rewards(model, seen: Batch) -> torch.Tensor:
    """(800,) CIDEr-D of many samples, drawn alike for every model."""
    with torch.no_grad():
        return reward_of(samples_of(model, seen, 99, 200), seen).flatten()


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_twenty_steps_move_the_reward_of_samples_the_way_it_is_weighed(learner, weight):
    model, seen = copy.deepcopy(learner), photos()
    objective = config(samples=8, baseline="mean", rewards=(CiderReward(weight=weight),)).build(context())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    before = sampled_rewards(model, seen)
    model.train()
    for step in range(20):
        torch.manual_seed(step)
        optimiser.zero_grad()
        (objective(model, seen, Progress(0, step)).total / objective.weight(seen)).backward()
        optimiser.step()
    after = sampled_rewards(model, seen)
    error = float((before.var() / len(before) + after.var() / len(after)).sqrt())
    assert float(after.mean() - before.mean()) * weight > 4 * error


def test_a_judge_is_neither_trained_nor_saved(learner):
    model = copy.deepcopy(learner)
    checkpoint = context().checkpoint("pos-scan")
    objective = config(rewards=(MatcherReward("pos-scan"),)).build(replace(context(), find=lambda name: checkpoint))
    objective(model, photos(), NOW).total.backward()
    judge = checkpoint.model
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in judge.parameters())
    assert not objective.state_dict()


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ConfigError, match="`samples` is 1"):
        config(samples=1, baseline="mean")
    with pytest.raises(ConfigError, match="`rewards` is empty"):
        config(rewards=())
    with pytest.raises(ConfigError, match="`max_words` is 0"):
        config(max_words=0)
    with pytest.raises(ConfigError, match="`order` is 5"):
        BleuReward(order=5)
    bare = replace(pool(), first=np.append(pool().first, pool().first[-1]))
    with pytest.raises(ConfigError, match="a training photo has no caption"):
        config().build(Context(VOCABULARY, {"train": bare}))
    with pytest.raises(ConfigError, match="this reward needs captions, and there are none"):
        config().build(Context(VOCABULARY, {"train": replace(pool(), texts=None, first=None)}))
    with pytest.raises(ConfigError, match="needs photos"):
        config().build(context())(updown(), Batch(torch.arange(4)), NOW)
    with pytest.raises(ConfigError, match="scan is none"):
        config().build(context())(matcher("scan"), photos(), NOW)
    with pytest.raises(CheckpointError, match="writes captions"):
        MatcherReward("mine").build(context(mine=updown()))
    foreign = replace(photos(), scenes=scenes("south"))
    with pytest.raises(ConfigError, match="these are south"):
        MatcherReward("scan").build(context(fingerprint="north"))(foreign, said(*GUESSES))


def test_a_recipe_lists_rewards():
    values = {"kind": "self-critical", "rewards": [{"kind": "cider"}, {"kind": "matcher", "model": "row:scan"}]}
    built = build(SelfCriticalConfig, values)
    assert built.rewards == (CiderReward(), MatcherReward("row:scan"))


def test_cross_entropy_of_one_caption_of_each_photo_keeps_the_language():
    model = updown()
    torch.manual_seed(0)
    plain = SelfCriticalConfig(samples=2).build(context())(model, photos(), NOW)
    torch.manual_seed(0)
    mixed = SelfCriticalConfig(samples=2, cross_entropy=0.5).build(context())(model, photos(), NOW)
    weight = len(photos().photos) * 2
    assert torch.allclose(mixed.total, plain.total + 0.5 * mixed.parts["cross-entropy"], atol=1e-4)
    assert float(mixed.parts["cross-entropy"]) / weight > 0
