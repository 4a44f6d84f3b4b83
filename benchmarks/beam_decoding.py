"""Beam search over region features with Up-Down, Sightline against the usual loop over images, in the same run.

The usual loop is written here the way self-critical code does it: one image at a time as `beam` rows, its features
repeated, plain LSTM cells, all log-probabilities sorted, candidates in Python lists, no stop before the last step. Both
sides compute the same model (random weights, Up-Down of 512, 36 regions of 2048) and start from the region features.
Two rows: in the first no caption ends by itself, so that all have the full length; in the second END is forbidden
before eight words and its bias chosen so that captions have about ten, as a trained model's have (random weights with a
likely END would say nothing). Times are CPU time on a CPU, wall time elsewhere.

    python benchmarks/beam_decoding.py [--images 500] [--usual 12] [--beam 5] [--words 20] [--threads 1] [--device cpu]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.decoding.decode import decode
from sightline.decoding.decode_result import DecodeResult
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam
from sightline.models.updown import UpDown, UpDownConfig
from sightline.text.vocabulary import END, PAD, START, UNK
from timing import device_seconds, parse_options

VOCABULARY, REGIONS, WIDTH = 9_487, 36, 2048
NEVER = [PAD, START, UNK]


@dataclass
class Hypothesis:
    """Words without START and END, and their log-probability."""

    words: list[int]
    log_prob: float


class UsualUpDown:
    """Up-Down as it is usually written: every input of an LSTM is concatenated, every row has its own features."""

    def __init__(self, model: UpDown) -> None:
        self.model = model

    def prepare(self, regions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, embedded regions and their part in the attention, of all images."""
        embedded = self.model.region_embedding(regions).relu()  # (B, n, h)
        return embedded.mean(1), embedded, self.model.region_attention(embedded)

    def log_probs(
        self, words: Tensor, mean: Tensor, regions: Tensor, keys: Tensor, state: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """One step of the rows of one image."""
        model = self.model
        h1, c1, h2, c2 = state
        embedded = model.word_embedding(words).relu()
        h1, c1 = model.attention_lstm(torch.cat([h2, mean, embedded], 1), (h1, c1))
        hidden = model.hidden_attention(h1).unsqueeze(1).expand_as(keys)
        weights = F.softmax(model.attention_score(torch.tanh(keys + hidden)).squeeze(2), 1)
        seen = torch.bmm(weights.unsqueeze(1), regions).squeeze(1)
        h2, c2 = model.language_lstm(torch.cat([seen, h1], 1), (h2, c2))
        return F.log_softmax(model.output(h2), 1), [h1, c1, h2, c2]


@torch.no_grad()
def usual_beam(model: UpDown, regions: Tensor, beam: int, rules: Rules) -> list[Hypothesis]:
    usual = UsualUpDown(model)
    prepared = usual.prepare(regions)
    return [usual_search(usual, [part[k : k + 1] for part in prepared], beam, rules) for k in range(len(regions))]


def usual_search(usual: UsualUpDown, image: list[Tensor], beam: int, rules: Rules) -> Hypothesis:
    """One image to the last step; one step more counts END for the captions that are cut."""
    mean, regions, keys = (part.expand(beam, *part.shape[1:]).contiguous() for part in image)
    state = [mean.new_zeros(beam, usual.model.config.hidden_size) for _ in range(4)]
    live = [Hypothesis([], 0.0) for _ in range(beam)]
    words = torch.full((beam,), START, device=mean.device)
    finished = []
    for step in range(rules.max_words + 1):
        log_probs, state = usual.log_probs(words, mean, regions, keys, state)
        if step == rules.max_words:
            finished += [Hypothesis(h.words, h.log_prob + log_probs[q, END].item()) for q, h in enumerate(live)]
            break
        log_probs[:, NEVER if step >= rules.min_words else [*NEVER, END]] -= 1000
        values, ids = torch.sort(log_probs, 1, True)
        candidates = []
        for c in range(beam):
            for q in range(1 if step == 0 else beam):
                candidates.append((live[q].log_prob + values[q, c].item(), q, ids[q, c].item()))
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[:beam]
        state = [torch.stack([part[q] for _, q, _ in candidates]) for part in state]
        live = [Hypothesis([*live[q].words, int(word)], total) for total, q, word in candidates]
        for hypothesis in live:
            if hypothesis.words[-1] == END:
                finished.append(Hypothesis(hypothesis.words[:-1], hypothesis.log_prob))
                hypothesis.log_prob = -1000.0
        words = torch.tensor([hypothesis.words[-1] for hypothesis in live], device=mean.device)
    return max(finished, key=lambda hypothesis: hypothesis.log_prob)


def sightline_beam(model: UpDown, regions: Tensor, beam: int, rules: Rules, batch: int) -> list[DecodeResult]:
    found = []
    with torch.no_grad():
        for part in torch.split(regions, batch):
            memory = model.encode(SceneBatch(ids=("",) * len(part), regions=part))
            found.append(decode(model, memory, Beam(beam), rules))
    return found


def make_model(device: torch.device) -> UpDown:
    """Random weights; larger ones before the softmax, so that words differ as much as a trained model's do."""
    torch.manual_seed(0)
    model = UpDownConfig(region_width=WIDTH).build(VOCABULARY).eval()
    with torch.no_grad():
        model.output.weight *= 30
        model.output.bias[END] = -100
    return model.to(device)


@torch.no_grad()
def let_it_end(model: UpDown, regions: Tensor, words: float, beam: int, rules: Rules) -> None:
    """Choose END's bias so that captions have about that many words."""
    low, high = -10.0, 20.0
    for _ in range(8):
        model.output.bias[END] = middle = (low + high) / 2
        (found,) = sightline_beam(model, regions, beam, rules, len(regions))
        if ((found.words > UNK).sum() / len(regions)).item() > words:
            low = middle
        else:
            high = middle


def compare(
    model: UpDown, regions: Tensor, rules: Rules, options: argparse.Namespace, name: str
) -> dict[str, float | str]:
    device = regions.device
    sample = regions[: options.usual]
    settings = options.beam, rules
    usual_beam(model, sample[:1], *settings)  # both warm
    sightline_beam(model, sample[:2], *settings, options.batch)
    peer: list[Hypothesis] = []
    parts: list[DecodeResult] = []
    before = device_seconds(lambda: peer.extend(usual_beam(model, sample, *settings)), device)
    ours = device_seconds(lambda: parts.extend(sightline_beam(model, regions, *settings, options.batch)), device)
    after = device_seconds(lambda: usual_beam(model, sample, *settings), device)
    usual = min(before, after)  # before and after, on a busy machine
    rows = [row for part in parts for row in part.words[:, 0].tolist()]
    words = [[id for id in row if id > UNK] for row in rows]
    scores = torch.cat([part.log_probs[:, 0] for part in parts]).tolist()
    pairs = list(zip(peer, words, scores, strict=False))
    return {
        "captions": name,
        "words": sum(map(len, words)) / len(words),
        "usual_images": len(sample),
        "usual_ms": usual / len(sample) * 1e3,
        "sightline_images": len(regions),
        "sightline_ms": ours / len(regions) * 1e3,
        "sightline_images_per_second": len(regions) / ours,
        "ratio": usual / len(sample) / (ours / len(regions)),
        "same_captions": sum(h.words == said for h, said, _ in pairs) / len(pairs),
        "largest_difference": max(abs(h.log_prob - score) for h, said, score in pairs if h.words == said),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=500, help="images Sightline captions")
    parser.add_argument("--usual", type=int, default=12, help="the first of them, which the usual loop captions")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses an image")
    parser.add_argument("--words", type=int, default=20, help="the most words of a caption")
    parser.add_argument("--batch", type=int, default=100, help="images in a batch of Sightline")
    options, device = parse_options(parser)
    model = make_model(device)
    regions = torch.randn(options.images, REGIONS, WIDTH, generator=torch.Generator().manual_seed(1)).relu().to(device)
    rows = [compare(model, regions, Rules(max_words=options.words), options, "full length")]
    rules = Rules(max_words=options.words, min_words=options.words * 2 // 5)
    let_it_end(model, regions[:20], words=options.words / 2, beam=options.beam, rules=rules)
    rows.append(compare(model, regions, rules, options, "ending"))
    report = {"device": str(device), "threads": options.threads, "beam": options.beam, "batch": options.batch}
    print(json.dumps({**report, "models": rows}) if options.json else table_of(report, rows))


def table_of(report: dict[str, object], rows: list[dict[str, float | str]]) -> str:
    lines = [
        ", ".join(f"{name} {value}" for name, value in report.items()),
        "captions     words  usual/image  Sightline/image  images/s   ratio  same captions  largest difference",
    ]
    for row in rows:
        lines.append(
            f"{row['captions']:<11}{row['words']:7.1f}{row['usual_ms']:10.1f} ms{row['sightline_ms']:14.1f} ms"
            f"{row['sightline_images_per_second']:10.1f}{row['ratio']:7.1f}x{row['same_captions']:14.0%}"
            f"{row['largest_difference']:20.1e}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
