"""`decode`: captions as ids, by any strategy, under any rules, by any captioner; `captions`: as people read them, with
where each word came from."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.caption import Caption, WordTrace
from sightline.decoding.beam import BeamSearch
from sightline.decoding.constraints import WordRules
from sightline.decoding.decode_result import DecodeResult, device_of
from sightline.decoding.rules import Rules
from sightline.decoding.sampling import decode_words, most_probable, sampler
from sightline.decoding.strategies import Beam, Greedy, Sample, Strategy
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory, select
from sightline.scene import Array
from sightline.text.grammar import with_right_articles
from sightline.text.vocabulary import Vocabulary

AT_ONCE = 2**26  # probabilities that one forward may hold while words are traced: 256 MB

Traces = list[list[list[WordTrace]]]  # of each position of each caption of each image
CaptionWords = list[list[tuple[str, ...]]]  # the words of each caption of each image


@torch.no_grad()
def decode(
    model: Captioner,
    memory: Memory,
    strategy: Strategy,
    rules: Rules | None = None,
    vocabulary: Vocabulary | None = None,
    bias: Tensor | None = None,
) -> DecodeResult:
    """Captions for every image of `memory`, without gradients.

    The model is used in the mode it is in: call `model.eval()` before, unless dropout is meant to act. What its `step`
    returns is written into, so it must be new at each step, as that of `Captioner` is. Rules that name words
    (`must_include`, `must_not`, `no_repeat_noun`, …) need a vocabulary. Where the rules leave an image without a word
    to say, a ConfigError names it. A plain beam may have a `bias` (B, V), 0 or below: what makes words dearer for each
    image. It ranks captions, and is no part of their log-probabilities.

    >>> decode(model, model.encode(scenes), Beam(5)).words.shape  # doctest: +SKIP
    torch.Size([8, 1, 13])
    """
    device = device_of(memory)
    compiled = WordRules(rules or Rules(), model.vocab_size, vocabulary, device)
    _check_strategy(strategy, compiled, bias)
    if isinstance(strategy, Greedy):
        found = decode_words(model, memory, compiled, most_probable)
    elif isinstance(strategy, Sample):
        found = decode_words(model, memory, compiled, sampler(strategy, device), strategy.copies)
    else:
        found = BeamSearch(model, memory, compiled, strategy, bias).run()
    if compiled.rules.right_articles and vocabulary is not None:
        found = _with_right_articles(found, model, memory, vocabulary)
    return found


def _check_strategy(strategy: Strategy, compiled: WordRules, bias: Tensor | None) -> None:
    """Refuse rules for which a strategy would have to look ahead, and a bias that only plain beams have."""
    if bias is not None and not isinstance(strategy, Beam):
        raise ConfigError(f"a bias does not work with {strategy.kind}", fix="decode with a plain beam")
    ahead = "`must_include`" if compiled.wanted else "`whole`" if compiled.rules.whole else ""
    if ahead and isinstance(strategy, Greedy | Sample):
        what = f"{ahead} does not work with {strategy.kind}, which cannot look ahead"
        raise ConfigError(what, fix="decode with a beam")
    if ahead and strategy.kind != "beam":
        raise ConfigError(f"{ahead} does not work with {strategy.kind}", fix="decode with a plain beam")


def _with_right_articles(found: DecodeResult, model: Captioner, memory: Memory, vocabulary: Vocabulary) -> DecodeResult:
    """The captions, "a" and "an" as suits the words after them; those that change are scored anew."""
    rows: list[tuple[int, int]] = []
    ids = found.words.clone()
    for image, own in enumerate(found.words.tolist()):
        for place, one in enumerate(own):
            words = vocabulary.decode(one)
            right = with_right_articles(words)
            if right != words and all(word in vocabulary for word in right):
                rows.append((image, place))
                ids[image, place, 1 : len(right) + 1] = ids.new_tensor([vocabulary.id(word) for word in right])
    if not rows:
        return found
    images, places = torch.tensor(rows, device=ids.device).T
    log_probs, scores = found.log_probs.clone(), found.scores.clone()
    log_probs[images, places] = model.log_prob(select(memory, images), ids[images, places]).to(log_probs.dtype)
    scores[images, places] += log_probs[images, places] - found.log_probs[images, places]
    return replace(found, words=ids, log_probs=log_probs, scores=scores)


@torch.no_grad()
def captions(
    model: Captioner,
    scenes: SceneBatch,
    vocabulary: Vocabulary,
    strategy: Strategy | None = None,
    rules: Rules | None = None,
    trace: bool = True,
) -> list[list[Caption]]:
    """For each scene its captions, best first: one, or as many as `strategy` gives (the best of a beam of 3 by
    default).
    """
    memory = model.encode(scenes)
    decoded = decode(model, memory, strategy or Beam(), rules, vocabulary)
    return trace_captions(model, memory, decoded, scenes, vocabulary, trace)


def caption_words(decoded: DecodeResult, vocabulary: Vocabulary) -> CaptionWords:
    """The words of what was decoded."""
    return [[tuple(vocabulary.decode(ids)) for ids in image] for image in decoded.words.tolist()]


def trace_captions(
    model: Captioner,
    memory: Memory,
    decoded: DecodeResult,
    scenes: SceneBatch,
    vocabulary: Vocabulary,
    trace: bool = True,
) -> list[list[Caption]]:
    """What was decoded, as people read it.

    With `trace`, each word carries its log-probability, its attention over the scene's own regions and grid cells, and
    the model's gates, from one forward over the words chosen.
    """
    words, log_probs = caption_words(decoded, vocabulary), decoded.log_probs.tolist()
    traces: Traces = trace_words(model, memory, decoded.words, scenes) if trace else [[[] for _ in i] for i in words]
    return [
        [
            Caption(said, log_prob, tuple(steps[: len(said)]))
            for said, log_prob, steps in zip(*image, strict=True)
            if log_prob > -torch.inf
        ]
        for image in zip(words, log_probs, traces, strict=True)
    ]


@torch.no_grad()
def trace_words(model: Captioner, memory: Memory, said: Tensor, scenes: SceneBatch) -> Traces:
    """Where the words `said` (B, K, T), START first, came from: by one forward over as many images as `AT_ONCE` allows.

    A caption has a trace for END too, and for padding one that means nothing.
    """
    count, copies, length = said.shape
    images = max(1, AT_ONCE // (copies * length * model.vocab_size))
    regions, cells = _counts(scenes.region_mask, count), _counts(scenes.grid_mask, count)
    traces: Traces = []
    for first in range(0, count, images):
        part = slice(first, first + images)
        words = said[part].flatten(0, 1)
        output = model({name: rows[part] for name, rows in memory.items()}, words)
        log_probs = _array(output.log_probs.gather(2, words[:, 1:, None]).squeeze(2), copies)
        on_regions, on_grid = (
            None if w is None else _array(w, copies) for w in (output.trace.regions, output.trace.grid)
        )
        gates = {name: _array(gate, copies) for name, gate in output.trace.gates.items()}
        for i in range(len(log_probs)):
            n, cell_count = regions[first + i], cells[first + i]
            traces.append(
                [
                    [
                        WordTrace(
                            log_prob=float(log_probs[i, k, t]),
                            # Copies, since a view would keep the attention of its whole batch in memory.
                            regions=None if on_regions is None else on_regions[i, k, t, :n].copy(),
                            grid=None if on_grid is None else on_grid[i, k, t, :cell_count].copy(),
                            gates={name: _value(gate[i, k, t]) for name, gate in gates.items()},
                        )
                        for t in range(length - 1)
                    ]
                    for k in range(copies)
                ]
            )
    return traces


def _counts(mask: Tensor | None, scenes: int) -> list[int] | list[None]:
    """How many real rows each scene has; None where there is no padding to tell them from."""
    if mask is None:
        return [None] * scenes
    counts: list[int] = mask.sum(1).tolist()
    return counts


def _array(values: Tensor, copies: int) -> Array:
    array: Array = values.float().cpu().view(-1, copies, *values.shape[1:]).numpy()
    return array


def _value(gate: Array) -> float | Array:
    return float(gate) if gate.ndim == 0 else gate.copy()
