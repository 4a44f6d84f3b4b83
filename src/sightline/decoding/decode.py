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
from sightline.models.captioner import Captioner, Memory, Trace, select
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
        decoded = decode_words(model, memory, compiled, most_probable)
    elif isinstance(strategy, Sample):
        decoded = decode_words(model, memory, compiled, sampler(strategy, device), strategy.copies)
    else:
        decoded = BeamSearch(model, memory, compiled, strategy, bias).run()
    if compiled.rules.right_articles and vocabulary is not None:
        decoded = _with_right_articles(decoded, model, memory, vocabulary)
    return decoded


def _check_strategy(strategy: Strategy, compiled: WordRules, bias: Tensor | None) -> None:
    """Refuse rules for which a strategy would have to look ahead, and a bias that only plain beams have."""
    if bias is not None and not isinstance(strategy, Beam):
        raise ConfigError(f"a bias does not work with {strategy.kind}", fix="decode with a plain beam")
    rule = "`must_include`" if compiled.wanted else "`whole`" if compiled.rules.whole else ""
    if rule and isinstance(strategy, Greedy | Sample):
        what = f"{rule} does not work with {strategy.kind}, which cannot look ahead"
        raise ConfigError(what, fix="decode with a beam")
    if rule and strategy.kind != "beam":
        raise ConfigError(f"{rule} does not work with {strategy.kind}", fix="decode with a plain beam")


def _with_right_articles(
    decoded: DecodeResult, model: Captioner, memory: Memory, vocabulary: Vocabulary
) -> DecodeResult:
    """The captions, "a" and "an" as suits the words after them; those that change are scored anew."""
    changed: list[tuple[int, int]] = []  # image and place among its captions
    ids = decoded.words.clone()
    for image, words_of_captions in enumerate(caption_words(decoded, vocabulary)):
        for place, words in enumerate(words_of_captions):
            right = with_right_articles(words)
            if right != list(words) and all(word in vocabulary for word in right):
                changed.append((image, place))
                ids[image, place, 1 : len(right) + 1] = ids.new_tensor([vocabulary.id(word) for word in right])
    if not changed:
        return decoded
    images, places = torch.tensor(changed, device=ids.device).T
    log_probs, scores = decoded.log_probs.clone(), decoded.scores.clone()
    log_probs[images, places] = model.log_prob(select(memory, images), ids[images, places]).to(log_probs.dtype)
    scores[images, places] += log_probs[images, places] - decoded.log_probs[images, places]
    return replace(decoded, words=ids, log_probs=log_probs, scores=scores)


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
    traces = trace_words(model, memory, decoded.words, scenes) if trace else None
    log_probs = decoded.log_probs.tolist()
    captions = []
    for image, words_of_captions in enumerate(caption_words(decoded, vocabulary)):
        captions_of_image = []
        for place, words in enumerate(words_of_captions):
            if log_probs[image][place] > -torch.inf:  # else the rules allow fewer captions
                steps = () if traces is None else tuple(traces[image][place][: len(words)])
                captions_of_image.append(Caption(words, log_probs[image][place], steps))
        captions.append(captions_of_image)
    return captions


@torch.no_grad()
def trace_words(model: Captioner, memory: Memory, words: Tensor, scenes: SceneBatch) -> Traces:
    """Where words (B, K, T), START first, came from: by one forward over as many images as `AT_ONCE` allows.

    A caption has a trace for END too, and for padding one that means nothing.
    """
    count, copies, length = words.shape
    at_once = max(1, AT_ONCE // (copies * length * model.vocab_size))
    traces: Traces = []
    for first in range(0, count, at_once):
        part = slice(first, first + at_once)
        ids = words[part].flatten(0, 1)
        output = model({name: rows[part] for name, rows in memory.items()}, ids)
        log_probs = output.log_probs.gather(2, ids[:, 1:, None]).squeeze(2)
        rows = _word_traces(log_probs, output.trace, copies, scenes, first)
        traces += [rows[start : start + copies] for start in range(0, len(rows), copies)]
    return traces


def _word_traces(log_probs: Tensor, trace: Trace, copies: int, scenes: SceneBatch, first: int) -> list[list[WordTrace]]:
    """For each of the N captions, `copies` an image from image `first` on, the traces of its T words."""
    scores = _array(log_probs)
    regions, grid = (None if part is None else _array(part) for part in (trace.regions, trace.grid))
    gates = {name: _array(gate) for name, gate in trace.gates.items()}
    region_counts, cell_counts = _counts(scenes.region_mask), _counts(scenes.grid_mask)
    captions = []
    for row in range(len(scores)):
        image = first + row // copies
        n = None if region_counts is None else region_counts[image]
        cells = None if cell_counts is None else cell_counts[image]
        steps = []
        for t in range(scores.shape[1]):
            steps.append(
                WordTrace(
                    log_prob=float(scores[row, t]),
                    # Copies, since a view would keep the attention of its whole batch in memory.
                    regions=None if regions is None else regions[row, t, :n].copy(),
                    grid=None if grid is None else grid[row, t, :cells].copy(),
                    gates={name: _value(gate[row, t]) for name, gate in gates.items()},
                )
            )
        captions.append(steps)
    return captions


def _counts(mask: Tensor | None) -> list[int] | None:
    """How many real rows each scene has; None where there is no padding to tell them from."""
    if mask is None:
        return None
    counts: list[int] = mask.sum(1).tolist()
    return counts


def _array(values: Tensor) -> Array:
    array: Array = values.float().cpu().numpy()
    return array


def _value(gate: Array) -> float | Array:
    return float(gate) if gate.ndim == 0 else gate.copy()
