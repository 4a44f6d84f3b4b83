"""Cross-entropy training of Up-Down, Sightline against the usual loop over words, in the same run.

The usual loop is written here the way tutorials and much published code do it: features are repeated for the five
captions of an image, two `nn.LSTMCell`s read concatenated inputs word by word, every step runs for every caption, the
log-probabilities of all words at all places are one (N, T, V) tensor, and masks are made in Python. Published code
differs in how often it projects the regions, so there are three rows, from slow to fast:

    every step, both    the embedding of Eq. 9 and the attention's projection of Eq. 12 at each step
    every step          the attention's projection at each step, the embedding once
    once                both once, as self-critical code does

All compute the same model from the same weights: 36 regions of 2048 numbers, hidden size 512, 9,487 words, 32 images
with 5 captions. A step is forward, backward and Adam, with the paper's dropout. Losses and gradients are compared
without dropout. Times are CPU time on a CPU, wall time elsewhere, the best of some steps; usual and Sightline take
turns, since other programs may run.

    python benchmarks/updown_training.py [--images 32] [--steps 3] [--threads 1] [--device cpu]
"""

from __future__ import annotations

import argparse
import copy
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from captions_for_benchmarks import captions, plain
from sightline.batch import SceneBatch, TextBatch
from sightline.models.updown import UpDown, UpDownConfig
from sightline.text.vocabulary import SPECIALS, Vocabulary
from sightline.training.batches import Batch
from sightline.training.objective import Context, Progress
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.stage import Optimiser
from timing import best_seconds, parse_options

VOCABULARY, REGIONS, WIDTH, CAPTIONS, MAX_WORDS = 9_487, 36, 2048, 5, 16
PROJECTED = ("every step, both", "every step", "once")


class UsualUpDown:
    """Up-Down as it is usually written, with the weights of a Sightline model."""

    def __init__(self, model: UpDown, projected: str) -> None:
        self.model, self.projected = model, projected

    def log_probs(self, features: Tensor, words: Tensor) -> Tensor:
        """(N, T, V) from a row of features for each caption (N, n, width) and words (N, T + 1), START first."""
        model = self.model
        regions = self.embed(features)
        keys = model.region_attention(regions)
        mean = regions.mean(1)
        state = [features.new_zeros(len(words), model.config.hidden_size) for _ in range(4)]
        steps = []
        for t in range(words.shape[1] - 1):
            if t and self.projected == "every step, both":
                regions = self.embed(features)
            if t and self.projected != "once":
                keys = model.region_attention(regions)
            logits, state = self.step(words[:, t], mean, regions, keys, state)
            steps.append(F.log_softmax(logits, 1))
        return torch.stack(steps, 1)

    def embed(self, features: Tensor) -> Tensor:
        """Eq. 9."""
        embedded: Tensor = self.model.dropout(self.model.region_embedding(features).relu())
        return embedded

    def step(
        self, words: Tensor, mean: Tensor, regions: Tensor, keys: Tensor, state: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """One word of each caption."""
        model = self.model
        h1, c1, h2, c2 = state
        embedded = model.dropout(model.word_embedding(words).relu())
        h1, c1 = model.attention_lstm(torch.cat([h2, mean, embedded], 1), (h1, c1))
        hidden = model.hidden_attention(h1).unsqueeze(1).expand_as(keys)
        weights = F.softmax(model.attention_score(torch.tanh(keys + hidden)).squeeze(2), 1)
        seen = torch.bmm(weights.unsqueeze(1), regions).squeeze(1)
        h2, c2 = model.language_lstm(torch.cat([seen, h1], 1), (h2, c2))
        return model.output(model.dropout(h2)), [h1, c1, h2, c2]

    def loss(self, features: Tensor, words: Tensor, lengths: list[int]) -> Tensor:
        """The mean over words and ENDs; the mask is made in Python."""
        log_probs = self.log_probs(features, words)
        mask = torch.zeros(log_probs.shape[:2])
        for row, length in enumerate(lengths):
            mask[row, : length - 1] = 1
        mask = mask.to(features.device)
        chosen = log_probs.gather(2, words[:, 1:].unsqueeze(2)).squeeze(2)
        return -(chosen * mask).sum() / mask.sum()


def usual_step(
    model: UpDown, batch: Batch, projected: str, optimiser: torch.optim.Optimizer | None
) -> Callable[[], Tensor]:
    """A training step; without an optimiser only loss and gradients."""
    assert batch.scenes is not None
    assert batch.texts is not None
    assert batch.scenes.regions is not None
    regions, words = batch.scenes.regions, batch.texts.ids
    lengths = [len(row) + 2 for row in batch.texts.words]
    usual = UsualUpDown(model, projected)

    def step() -> Tensor:
        model.zero_grad(set_to_none=True)
        features = regions.repeat_interleave(CAPTIONS, 0)
        loss = usual.loss(features, words, lengths)
        loss.backward()  # type: ignore[no-untyped-call]
        if optimiser is not None:
            optimiser.step()
        return loss.detach()

    return step


def sightline_step(model: UpDown, batch: Batch, optimiser: torch.optim.Optimizer | None) -> Callable[[], Tensor]:
    """The same through the objective that recipes use."""
    objective = CrossEntropyConfig().build(Context(Vocabulary([])))

    def step() -> Tensor:
        model.zero_grad(set_to_none=True)
        loss: Tensor = objective(model, batch, Progress()).total / objective.weight(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if optimiser is not None:
            optimiser.step()
        return loss.detach()

    return step


def differences(model: UpDown, batch: Batch, projected: str) -> tuple[float, float, float]:
    """Without dropout: the loss, how far the losses are apart, and the gradients (relative to the largest).

    Random weights call all words about equally likely whatever they saw, so those before the softmax are larger here.
    """
    model = copy.deepcopy(model)  # in training mode, as it is timed
    model.dropout.p = 0.0
    with torch.no_grad():
        model.output.weight *= 30
    ours = sightline_step(model, batch, None)()
    mine = [p.grad for p in model.parameters()]
    theirs = usual_step(model, batch, projected, None)()
    pairs = [(a, p.grad) for a, p in zip(mine, model.parameters(), strict=True) if a is not None and p.grad is not None]
    apart = max(float((a - b).abs().max()) for a, b in pairs) / max(float(b.abs().max()) for _, b in pairs)
    return float(ours), abs(float(ours) - float(theirs)), apart


def compare(model: UpDown, batch: Batch, projected: str, steps: int) -> dict[str, Any]:
    assert batch.texts is not None
    device = batch.texts.ids.device
    loss, apart, gradients = differences(model, batch, projected)
    twin = copy.deepcopy(model)
    usual = usual_step(twin, batch, projected, torch.optim.Adam(twin.parameters(), lr=5e-4))
    ours = sightline_step(model, batch, Optimiser(lr=5e-4).build(dict(model.named_parameters())))
    best = best_seconds({"usual": usual, "sightline": ours}, steps, device)
    tokens = float(batch.texts.mask[:, 1:].sum())
    return {
        "regions projected": projected,
        "usual_ms": best["usual"] * 1e3,
        "sightline_ms": best["sightline"] * 1e3,
        "usual_tokens_per_second": tokens / best["usual"],
        "sightline_tokens_per_second": tokens / best["sightline"],
        "ratio": best["usual"] / best["sightline"],
        "loss": loss,
        "loss_difference": apart,
        "gradient_difference": gradients,
    }


def make_batch(images: int, device: torch.device) -> tuple[str, Batch]:
    """Random regions; captions whose words are numbered by how often they occur, cut as self-critical code cuts."""
    source, raw = captions(max(images, 2000))
    texts = [[plain(caption).split() for caption in of] for of in raw]
    chosen = [words for of in texts[:images] for words in of]
    batch = TextBatch.collate(chosen, frequent_words(texts), max_words=MAX_WORDS)
    return source, Batch(torch.arange(images), random_scenes(images), batch).to(device)


def frequent_words(texts: list[list[list[str]]]) -> Vocabulary:
    """The most frequent words, and unsaid ones up to `VOCABULARY`."""
    counts = Counter(word for of in texts for words in of for word in words)
    words = [word for word, _ in counts.most_common(VOCABULARY - len(SPECIALS))]
    words += [f"unsaid{i}" for i in range(VOCABULARY - len(SPECIALS) - len(words))]
    return Vocabulary(words)


def random_scenes(images: int) -> SceneBatch:
    """Regions as a detector's, not negative."""
    regions = torch.randn(images, REGIONS, WIDTH, generator=torch.Generator().manual_seed(1)).relu()
    mask = torch.ones(images, REGIONS, dtype=torch.bool)
    return SceneBatch(ids=tuple(map(str, range(images))), regions=regions, region_mask=mask)


def make_model(device: torch.device) -> UpDown:
    torch.manual_seed(0)
    return UpDownConfig(region_width=WIDTH).build(VOCABULARY).train().to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=32, help="images in a batch, each with five captions")
    parser.add_argument("--steps", type=int, default=3, help="steps of which the best is taken, after one to warm up")
    options, device = parse_options(parser)
    source, batch = make_batch(options.images, device)
    assert batch.texts is not None
    rows = [compare(make_model(device), batch, projected, options.steps) for projected in PROJECTED]
    report = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, threads {options.threads}",
        "torch": torch.__version__,
        "captions": source,
        "images": options.images,
        "tokens": int(batch.texts.mask[:, 1:].sum()),
        "places": batch.texts.ids[:, 1:].numel(),
    }
    print(json.dumps({**report, "rows": rows}) if options.json else table_of(report, rows))


def table_of(report: dict[str, object], rows: list[dict[str, Any]]) -> str:
    lines = [
        ", ".join(f"{name} {value}" for name, value in report.items()),
        "regions projected     usual/step  Sightline/step  usual tokens/s  Sightline tokens/s  ratio  loss apart"
        "  gradients apart",
    ]
    for row in rows:
        lines.append(
            f"{row['regions projected']:<20}{row['usual_ms']:9.0f} ms{row['sightline_ms']:13.0f} ms"
            f"{row['usual_tokens_per_second']:16.0f}{row['sightline_tokens_per_second']:20.0f}{row['ratio']:6.1f}x"
            f"{row['loss_difference']:12.1e}{row['gradient_difference']:17.1e}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
