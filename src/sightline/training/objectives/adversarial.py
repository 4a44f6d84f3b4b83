"""Adversarial learning (GAN): an evaluator learns to tell people's captions, the captioner learns to pass for one.

The baseline "Base + GAN" of Dai and Lin 2017, Table 4, after Dai, Fidler, Urtasun and Lin, "Towards Diverse and Natural
Image Descriptions via a Conditional GAN", ICCV 2017. The captioner here draws no noise: it is the base model as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.config import check_ranges
from sightline.decoding.constraints import WordRules
from sightline.decoding.decode import decode, sampler
from sightline.decoding.decode_result import DecodeResult
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Sample
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory, State, expand
from sightline.models.layers import WordGRU, masked_mean
from sightline.text.vocabulary import END, PAD
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress, mode, no_gradients


@dataclass(frozen=True)
class AdversarialConfig:
    """The choices of adversarial learning."""

    kind: Literal["adversarial"] = "adversarial"
    # what the evaluator sees of an image: its `vector`, or the mean of its `grid` or `regions`
    part: Literal["vector", "grid", "regions"] = "vector"
    word_size: int = 512  # width of the evaluator's word embedding
    hidden_size: int = 512  # width in which its image and text meet
    generated: float = 1.0  # α, how much generated captions count in its loss
    mismatched: float = 1.0  # β, how much captions of other images count in it
    rollouts: int = 4  # captions drawn to judge each word; 0 gives every word the reward of the whole caption
    depth: int = 0  # the most words of a roll-out; 0 goes to its end. The evaluator judges what was said by then.
    max_words: int = 20  # the most words of a drawn caption
    sample_in: Literal["eval", "train"] = "eval"  # `eval` draws captions without dropout, `train` with it
    # `mean` subtracts the batch's mean reward from each; `none`, as printed, does not
    baseline: Literal["none", "mean"] = "none"
    warmup: int = 0  # steps in which only the evaluator learns

    def __post_init__(self) -> None:
        check_ranges(self, word_size="[1, ∞)", hidden_size="[1, ∞)", max_words="[1, ∞)")
        check_ranges(self, **dict.fromkeys(("rollouts", "depth", "generated", "mismatched", "warmup"), "[0, ∞)"))

    def build(self, context: Context) -> Adversarial:
        """The objective; the width of the evaluator's input is that of the pool `train`."""
        pool = context.pools.get("train")
        if pool is None:
            raise ConfigError("the objective adversarial needs photos", fix="give data.features")
        width = pool.scene_batch(torch.tensor([0])).part(self.part, by="the evaluator").shape[-1]
        with torch.random.fork_rng(devices=[]):  # all processes begin with the same evaluator
            torch.manual_seed(context.seed)
            evaluator = Evaluator(self.part, width, len(context.vocabulary), self.word_size, self.hidden_size)
        return Adversarial(self, evaluator)


class Evaluator(nn.Module):
    """r(I, S) = σ(⟨f(I), h(S)⟩): how much a caption looks like one that a person wrote for the image.

    f is a linear layer on the image's features, h the last state of a GRU over the words.
    """

    def __init__(self, part: str, width: int, vocab_size: int, word_size: int, size: int) -> None:
        super().__init__()
        self.part = part
        self.image = nn.Linear(width, size)
        self.text = WordGRU(vocab_size, word_size, size)

    def embed(self, scenes: SceneBatch) -> Tensor:
        """f(I): (B, size)."""
        rows = scenes.part(self.part, by="the evaluator")
        if self.part != "vector":
            rows = masked_mean(rows, scenes.grid_mask if self.part == "grid" else scenes.region_mask)
        embedded: Tensor = self.image(rows)
        return embedded

    def forward(self, embedded: Tensor, words: Tensor) -> Tensor:
        """⟨f(I), h(S)⟩ (N,) of images (B, size) and captions (N, T), N / B of them for each image."""
        read = self.text.last(words, words != PAD).view(len(embedded), -1, embedded.shape[1])  # (B, C, size)
        return (embedded.unsqueeze(1) * read).sum(-1).flatten().float()


class Adversarial(Objective):
    r"""The mean over captions of the evaluator's loss and the generator's.

    Inputs: scenes, their captions S, as many captions S_/ of other images, and as many drawn captions Ŝ.

        evaluator:  -ln r(I, S) - α ln(1 - r(I, Ŝ)) - β ln(1 - r(I, S_/))
        generator:  -Σ_t (V_t - b) ln π(ŵ_t | I, ŵ_<t),   V_t = the mean over roll-outs R of r(I, ŵ_1 … ŵ_t ⊕ R)

    V of END, which leaves nothing to roll out, is r(I, Ŝ). An END that only `max_words` brought was not the model's
    choice and is not rewarded. The gradient of the generator's loss is the policy gradient; its value says little: see
    `reward` in the log.

    Two learners, one sum: the evaluator reads ids, which carry no gradient to the captioner, and rewards are computed
    without gradients, so none reaches the evaluator through the generator's loss. The evaluator's parameters are the
    objective's; the loop's optimiser trains them at `optimiser.lrs: {objective.evaluator: …}` and the state keeps
    them. `optimiser.clip` measures the norm over both learners together; `optimiser.clamp` keeps them apart.

    A roll-out costs as much as a caption, for each word of each: (words · rollouts) times the drawing.

    Log: `evaluator`, `generator`; means of r: `r true`, `r mismatched`, and of drawn captions, `reward`.

    Relations: `self-critical` has a metric in place of the evaluator; `contrastive` a fixed reference.
    """

    config: AdversarialConfig
    negatives = 1

    def __init__(self, config: AdversarialConfig, evaluator: Evaluator) -> None:
        super().__init__(config)
        self.evaluator = evaluator
        self.rules = Rules(max_words=config.max_words, suppress_unk=False)  # what people wrote has unknown words too

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model = self.captioner(model)
        images, true = self.scenes(batch), self.captions(batch).ids
        learning = progress.step >= self.config.warmup
        with no_gradients(true.device), mode(model, self.config.sample_in == "train"):
            memory = model.encode(images)
            drawn = decode(model, memory, Sample(copies=len(true) // len(images)), self.rules)
            rewards = self.rewards(model, memory, images, drawn.words.flatten(0, 1)) if learning else None
        losses = self._evaluator_loss(images, true, drawn, batch.negatives[0].ids)
        if rewards is None:
            return losses
        generator = self._generator_loss(model, images, drawn, rewards)
        return Losses(losses.total + generator, {**losses.parts, "generator": generator})

    @torch.no_grad()
    def rewards(self, model: Captioner, memory: Memory, images: SceneBatch, words: Tensor) -> Tensor:
        """(N, T) V of each word after START of drawn captions (N, T + 1)."""
        embedded, copies = self.evaluator.embed(images), self.config.rollouts
        reward: Tensor = self.evaluator(embedded, words).sigmoid()  # (N,) of the captions as they are
        values = reward.unsqueeze(1).repeat(1, words.shape[1] - 1)
        if copies == 0:
            return values
        rules = WordRules(self.rules, model.vocab_size, None, words.device)
        state = expand(model.start(memory), len(words))
        for t in range(1, words.shape[1] - 1):  # the last word is END or padding in every row
            _, state = model.advance(words[:, t - 1], memory, state)
            begun = words[:, : t + 1].repeat_interleave(copies, 0)
            ended = roll_out(model, memory, begun, expand(state, len(begun)), rules, self.config.depth)
            mean = self.evaluator(embedded, ended).sigmoid().view(-1, copies).mean(1)
            unfinished = (words[:, t] != END) & (words[:, t] != PAD)
            values[:, t - 1] = torch.where(unfinished, mean, reward)
        return values

    def _evaluator_loss(self, images: SceneBatch, true: Tensor, drawn: DecodeResult, other: Tensor) -> Losses:
        embedded = self.evaluator.embed(images)
        real, generated, mismatched = (
            self.evaluator(embedded, ids) for ids in (true, drawn.words.flatten(0, 1), other)
        )
        loss = (
            -F.logsigmoid(real)
            - self.config.generated * F.logsigmoid(-generated)
            - self.config.mismatched * F.logsigmoid(-mismatched)
        ).sum()
        logits = {"r true": real, "reward": generated, "r mismatched": mismatched}
        return Losses(loss, {"evaluator": loss, **{name: part.sigmoid().sum() for name, part in logits.items()}})

    def _generator_loss(self, model: Captioner, images: SceneBatch, drawn: DecodeResult, rewards: Tensor) -> Tensor:
        words = drawn.words.flatten(0, 1)
        forced = (words[:, 1:] == END) & ~drawn.finished.flatten().unsqueeze(1)
        counted = (words[:, 1:] != PAD) & ~forced  # (N, T)
        if self.config.baseline == "mean":
            rewards = rewards - rewards[counted].mean()
        log_probs = model.sampled_log_probs(model.encode(images), words)
        return -(log_probs * rewards * counted).sum()


@torch.no_grad()
def roll_out(model: Captioner, memory: Memory, words: Tensor, state: State, rules: WordRules, depth: int = 0) -> Tensor:
    """Complete captions (N, …) from their beginnings, `words` (N, 1 + t): START and t words.

    A row that has its END already is left alone. `state` has N rows, after all of `words` but its last word was read.
    A caption ends at the rules' `max_words`; at most `depth` words are drawn, END counted, 0 being no limit.
    """
    pick = sampler(Sample(), words.device)
    unfinished = (words[:, -1] != END) & (words[:, -1] != PAD)
    left = rules.rules.max_words + 2 - words.shape[1]
    for _ in range(min(depth, left) if depth else left):
        rows = unfinished.nonzero().squeeze(1)
        if not len(rows):
            break
        values, state = model.step(words[:, -1], memory, state, rows)  # (n, V)
        rules.apply(values, words[rows])
        chosen = torch.full_like(words[:, -1], PAD).index_copy(0, rows, pick(values).squeeze(1))
        words = torch.cat([words, chosen.unsqueeze(1)], 1)
        unfinished = unfinished & (chosen != END)
    if not unfinished.any():
        return words
    return torch.cat([words, torch.full_like(words[:, :1], PAD).masked_fill(unfinished.unsqueeze(1), END)], 1)
