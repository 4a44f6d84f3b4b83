"""A step of self-critical training of Up-Down, Sightline against the usual implementation, in the same run.

A step samples 5 captions for each of 32 images, rewards them with CIDEr-D, subtracts the greedy caption's reward, and
goes forward, backward and through Adam. The usual implementation is written here the way self-critical code does it:
features are repeated for the five samples, words are drawn step by step with gradients and Python-side masks, all
distributions are kept, the greedy pass runs over the repeated rows too, and the rewards come from the Python CIDEr-D
scorer of `scst_reward.py`. As in `updown_training.py` there is a row for each way to project the regions. Sightline
samples and decodes greedily without gradients, each image once and each caption to its end, and then forwards what was
said; a last column has it with the mean reward of the other samples as the baseline, which needs no greedy pass.

Sizes: 36 regions of 2048 numbers, hidden size 512, 9,487 words, at most 20 words. Weights are random, and END as likely
at each step as for captions of ten words on average. Both draw their own samples, so lengths differ a little: they are
printed. Both rewards of captions like people's, and both log-probabilities of samples, are compared. Times are CPU time
on a CPU, wall time elsewhere, the best of some steps; usual and Sightline take turns.

    python benchmarks/scst_step.py [--images 32] [--steps 3] [--references 5000] [--threads 1] [--device cpu]
"""

from __future__ import annotations

import argparse
import copy
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from captions_for_benchmarks import captions, plain
from scst_reward import make_samples, usual_scorer
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Sample
from sightline.metrics.cider import DocumentFrequencies
from sightline.metrics.cider_reward import CiderDReward
from sightline.models.updown import UpDown
from sightline.text.vocabulary import END, PAD, START, Vocabulary
from sightline.training.batches import Batch
from sightline.training.objective import Context, Progress
from sightline.training.objectives.self_critical import SelfCritical, SelfCriticalConfig
from sightline.training.stage import Optimiser
from sightline.training.tensor_tables import Pool, TextTable
from timing import best_seconds, parse_options
from updown_training import (
    PROJECTED,
    VOCABULARY,
    UsualUpDown,
    frequent_words,
    make_model,
    random_scenes,
)

SAMPLES, MAX_WORDS = 5, 20


@dataclass(frozen=True, eq=False)
class Task:
    """The images of a batch and what people said about them."""

    source: str
    batch: Batch
    pool: Pool
    vocabulary: Vocabulary
    written: list[list[str]]  # references of each photo as the usual scorer reads them: ids and END
    counts: DocumentFrequencies


class UsualStep:
    """Sample, score, and train, as it is usually written."""

    def __init__(self, model: UpDown, task: Task, projected: str) -> None:
        self.model, self.task, self.usual = model, task, UsualUpDown(model, projected)
        self.table: defaultdict[tuple[str, ...], float] = defaultdict(float, task.counts.counts)
        self.optimiser = torch.optim.Adam(model.parameters(), lr=5e-5)
        self.words = 0.0

    def __call__(self) -> None:
        """One step."""
        model, scenes = self.model, self.task.batch.scenes
        assert scenes is not None
        assert scenes.regions is not None
        features = scenes.regions.repeat_interleave(SAMPLES, 0)
        model.eval()
        with torch.no_grad():
            greedy, _ = self.say(features, sample=False)
        model.train()
        model.zero_grad(set_to_none=True)
        said, log_probs = self.say(features, sample=True)
        rewards = self.score(said) - self.score(greedy)
        mask = torch.zeros(said.shape)
        for row, words in enumerate(said.tolist()):
            mask[row, : words.index(END) + 1 if END in words else len(words)] = 1
        mask = mask.to(features.device)
        self.words = float(mask.sum()) / len(said)
        chosen = log_probs.gather(2, said.unsqueeze(2)).squeeze(2)
        loss = -(chosen * torch.from_numpy(rewards).float().to(features.device).unsqueeze(1) * mask).sum() / mask.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def say(self, features: Tensor, sample: bool) -> tuple[Tensor, Tensor]:
        """(N, T) words after START, and all distributions (N, T, V)."""
        model, usual = self.model, self.usual
        regions = usual.embed(features)
        keys = model.region_attention(regions)
        mean = regions.mean(1)
        state = [features.new_zeros(len(features), model.config.hidden_size) for _ in range(4)]
        word = torch.full((len(features),), START, device=features.device)
        unfinished = torch.ones(len(features), dtype=torch.bool, device=features.device)
        said, steps = [], []
        for t in range(MAX_WORDS + 1):
            if t and usual.projected == "every step, both":
                regions = usual.embed(features)
            if t and usual.projected != "once":
                keys = model.region_attention(regions)
            logits, state = usual.step(word, mean, regions, keys, state)
            logits = logits + forbidden(logits)
            log_probs = F.log_softmax(logits, 1)
            word = torch.multinomial(log_probs.detach().exp(), 1).squeeze(1) if sample else log_probs.argmax(1)
            word = word * unfinished
            said.append(word)
            steps.append(log_probs)
            unfinished = unfinished & (word != END)
            if unfinished.sum() == 0:
                break
        return torch.stack(said, 1), torch.stack(steps, 1)

    def score(self, said: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """CIDEr-D of each caption, from text."""
        written = []
        for words in said.cpu().tolist():
            ended = words[: words.index(END) + 1] if END in words else words
            written.append(" ".join(str(word) for word in ended))
        heard = [self.task.written[row // SAMPLES] for row in range(len(written))]
        return np.array(usual_scorer(self.table, len(self.task.pool), written, heard))


def forbidden(logits: Tensor) -> Tensor:
    """Padding and START are never said."""
    never = torch.zeros_like(logits[:1])
    never[0, [PAD, START]] = -1e9
    return never


class SightlineStep:
    """The same through the objective that recipes use."""

    def __init__(self, model: UpDown, task: Task, objective: SelfCritical) -> None:
        self.model, self.task, self.objective = model, task, objective
        self.optimiser = Optimiser(lr=5e-5).build(dict(model.named_parameters()))
        self.words = 0.0

    def __call__(self) -> None:
        """One step."""
        self.model.zero_grad(set_to_none=True)
        losses = self.objective(self.model, self.task.batch, Progress())
        weight = self.objective.weight(self.task.batch)
        (losses.total / weight).backward()
        self.optimiser.step()
        self.words = float(losses.parts["length"]) / weight


@torch.no_grad()
def differences(model: UpDown, task: Task) -> tuple[float, float]:
    """Of the same samples: how far rewards are apart, and log-probabilities of captions."""
    scenes = task.batch.scenes
    assert scenes is not None
    assert scenes.regions is not None
    model.eval()
    memory = model.encode(scenes)
    words = decode(model, memory, Sample(copies=SAMPLES), Rules(max_words=MAX_WORDS, suppress_unk=False)).words
    words = words.flatten(0, 1)
    usual = UsualStep(model, task, "once")
    texts, first = task.pool.texts, task.pool.first
    assert texts is not None
    assert first is not None
    ids = [row[1 : length - 1] for row, length in zip(texts.ids.tolist(), texts.lengths.tolist(), strict=True)]
    by_photo = [ids[first[i] : first[i + 1]] for i in range(len(task.pool))]
    photos = np.repeat(np.arange(len(scenes)), SAMPLES)
    like_people = make_samples(np.random.default_rng(0), by_photo, photos)  # random weights say nothing worth a reward
    rewards = np.abs(CiderDReward(by_photo)(photos, like_people) - usual.score(torch.from_numpy(like_people))).max()
    features = scenes.regions.repeat_interleave(SAMPLES, 0)
    theirs = usual.usual.log_probs(features, words).gather(2, words[:, 1:].unsqueeze(2)).squeeze(2)
    apart = ((theirs * (words[:, 1:] != PAD)).sum(1) - model.log_prob(memory, words)).abs().max()
    model.train()
    return float(rewards), float(apart)


def compare(task: Task, projected: str, steps: int, device: torch.device) -> dict[str, Any]:
    model = speaking_model(device)
    rewards, apart = differences(model, task)
    context = Context(task.vocabulary, {"train": task.pool}, device=device)
    calls: dict[str, UsualStep | SightlineStep] = {"usual": UsualStep(copy.deepcopy(model), task, projected)}
    for baseline in ("greedy", "mean"):
        config = SelfCriticalConfig(samples=SAMPLES, baseline=baseline, max_words=MAX_WORDS)
        calls[baseline] = SightlineStep(copy.deepcopy(model), task, config.build(context))
    best = best_seconds(calls, steps, device)
    return {
        "regions projected": projected,
        "usual_ms": best["usual"] * 1e3,
        "sightline_ms": best["greedy"] * 1e3,
        "sightline_mean_ms": best["mean"] * 1e3,
        "ratio": best["usual"] / best["greedy"],
        "ratio_mean": best["usual"] / best["mean"],
        "usual_words": calls["usual"].words,
        "sightline_words": calls["greedy"].words + 1,  # END counted, as by the other
        "reward_difference": rewards,
        "log_prob_difference": apart,
    }


def speaking_model(device: torch.device) -> UpDown:
    """Random weights with an END that comes after ten words on average."""
    model = make_model(device)
    with torch.no_grad():
        model.output.bias[END] = float(np.log(VOCABULARY / 10))
    return model


def make_task(images: int, references: int, device: torch.device) -> Task:
    source, raw = captions(max(images, references))
    texts = [[plain(caption).split()[:MAX_WORDS] for caption in of] for of in raw]
    vocabulary = frequent_words(texts)
    table = TextTable.build([words for of in texts for words in of], vocabulary)
    first = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    pool = Pool(tuple(map(str, range(len(texts)))), texts=table, first=first)
    ids = [[" ".join(map(str, vocabulary.encode(words)[1:])) for words in of] for of in texts]
    batch = Batch(torch.arange(images), random_scenes(images)).to(device)
    return Task(source, batch, pool, vocabulary, ids, DocumentFrequencies.of(ids))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=32, help="images in a batch, each with five samples")
    parser.add_argument("--steps", type=int, default=3, help="steps of which the best is taken, after one to warm up")
    parser.add_argument("--references", type=int, default=5_000, help="images whose captions are references")
    options, device = parse_options(parser)
    task = make_task(options.images, options.references, device)
    rows = [compare(task, projected, options.steps, device) for projected in PROJECTED]
    report = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, threads {options.threads}",
        "torch": torch.__version__,
        "captions": task.source,
        "images": options.images,
        "samples": options.images * SAMPLES,
        "references of": len(task.pool),
    }
    print(json.dumps({**report, "rows": rows}) if options.json else table_of(report, rows))


def table_of(report: dict[str, object], rows: list[dict[str, Any]]) -> str:
    lines = [
        ", ".join(f"{name} {value}" for name, value in report.items()),
        "                                  greedy baseline        mean of others",
        "regions projected   usual/step   Sightline  ratio   Sightline  ratio   words: usual  Sightline   "
        "apart: rewards  log-probabilities",
    ]
    for row in rows:
        lines.append(
            f"{row['regions projected']:<18}{row['usual_ms']:9.0f} ms{row['sightline_ms']:9.0f} ms{row['ratio']:6.1f}x"
            f"{row['sightline_mean_ms']:9.0f} ms{row['ratio_mean']:6.1f}x{row['usual_words']:15.1f}"
            f"{row['sightline_words']:11.1f}{row['reward_difference']:17.1e}{row['log_prob_difference']:19.1e}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
