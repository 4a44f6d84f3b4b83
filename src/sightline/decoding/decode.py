"""`decode`: captions as ids, by any strategy, under any rules, by any captioner; `captions`: as people read them, with
where each word came from."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.caption import Caption, WordTrace
from sightline.decoding.beam import BeamSearch
from sightline.decoding.constraints import WordRules
from sightline.decoding.decode_result import (
    BLOCK,
    DecodeResult,
    device_of,
    empty,
    no_caption,
    not_a_number,
    should_drop,
    top,
)
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam, Greedy, Sample, Strategy
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory, Trace, expand, images, select
from sightline.scene import Array
from sightline.text.grammar import with_right_articles
from sightline.text.vocabulary import END, PAD, Vocabulary

AT_ONCE = 2**26  # probabilities that one forward may hold while words are traced: 256 MB

Traces = list[list[list[WordTrace]]]  # of each position of each caption of each image
WordChoice = Callable[[Tensor], Tensor]  # (N, V) log-probabilities to (N, 1) words


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


def decode_words(model: Captioner, memory: Memory, rules: WordRules, pick: WordChoice, copies: int = 1) -> DecodeResult:
    """`copies` captions for each image of `memory`, each its own way, a word a step, which `pick` chooses."""
    count, max_words, device = images(memory) * copies, rules.rules.max_words, device_of(memory)
    words = empty(count, max_words=max_words, device=device)
    words[:, 1] = PAD
    log_probs, scores = torch.zeros(2, count, device=device)
    in_state = torch.arange(count, device=device)  # the captions that the state has rows for
    live = in_state  # rows of the state whose captions have not ended
    state = expand(model.start(memory), count)
    for step in range(max_words + 1):
        values, state = model.step(words[in_state, step], memory, state, live)  # (n, V)
        captions = in_state[live]
        penalties = rules.apply(values, words[captions, : step + 1])
        chosen = pick(values)  # (n, 1)
        chosen_values = values.gather(1, chosen)
        words[captions, step + 1] = chosen.squeeze(1)
        log_probs[captions] += (chosen_values + penalties.of(chosen)).squeeze(1)
        scores[captions] += chosen_values.squeeze(1)
        if not chosen_values.isfinite().all():
            raise not_a_number() if values.isnan().any() else no_caption(int(scores.isinf().nonzero()[0]) // copies)
        live = live[chosen.squeeze(1) != END]
        if not len(live):
            break
        live_images, rows = _live_images(live, len(in_state), images(memory))
        if should_drop(len(rows), len(in_state)):
            live = torch.isin(rows, live).nonzero().squeeze(1)
            in_state, memory, state = in_state[rows], select(memory, live_images), select(state, rows)
    by_image = (part.unflatten(0, (-1, copies)) for part in (words, log_probs, scores))
    return DecodeResult.of(*by_image)


def _live_images(live: Tensor, rows: int, image_count: int) -> tuple[Tensor, Tensor]:
    """The images with live captions, and the fewest of `rows` that have these and are as many of each image."""
    is_live = torch.zeros(rows, dtype=torch.bool, device=live.device).index_fill_(0, live, True).view(image_count, -1)
    counts = is_live.sum(1)
    live_images = counts.nonzero().squeeze(1)
    order = is_live[live_images].int().argsort(dim=1, descending=True, stable=True)  # each image's live ones first
    places = order[:, : int(counts.max())]
    return live_images, (live_images.unsqueeze(1) * is_live.shape[1] + places).flatten()


def most_probable(log_probs: Tensor) -> Tensor:
    """(N, 1) the best word of each row; of equal ones, the lowest id."""
    return log_probs.max(1, keepdim=True).indices


def sampler(strategy: Sample, device: torch.device) -> WordChoice:
    """A `pick` that draws words as `strategy` says."""
    generator = None if strategy.seed is None else torch.Generator(device).manual_seed(strategy.seed)

    def pick(log_probs: Tensor) -> Tensor:
        if strategy.temperature != 1:
            log_probs = log_probs / strategy.temperature
        if not strategy.top_k and strategy.top_p == 1:
            return draw(log_probs.softmax(1), generator)
        values, words = top(log_probs.clone(), strategy.top_k or log_probs.shape[1])
        probabilities = values.softmax(1)
        before = probabilities.cumsum(1) - probabilities
        probabilities.masked_fill_(before >= strategy.top_p, 0)
        return words.gather(1, draw(probabilities, generator))

    return pick


def draw(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    """(N, 1) places drawn from (N, V): first a block of places, then one in it.

    `torch.multinomial` makes a random number for every entry, which over a whole vocabulary costs more than the model.
    A row of NaN, which has no word to say, draws one all the same: its log-probability of -inf tells.
    """
    in_blocks = probabilities.shape[1] // BLOCK * BLOCK  # places in full blocks
    if in_blocks == 0:
        return probabilities.nan_to_num(1).multinomial(1, generator=generator)
    sums = probabilities[:, :in_blocks].view(len(probabilities), -1, BLOCK).sum(-1)  # (N, blocks)
    sums = torch.cat([sums, probabilities[:, in_blocks:].sum(1, keepdim=True)], 1)
    block = sums.nan_to_num_(1).multinomial(1, generator=generator)  # (N, 1)
    members = block * BLOCK + torch.arange(BLOCK, device=block.device)
    outside = members >= probabilities.shape[1]
    weights = probabilities.gather(1, members.masked_fill(outside, 0)).masked_fill_(outside, 0)
    return members.gather(1, weights.nan_to_num_(1).multinomial(1, generator=generator))


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
    rows, places = torch.tensor(changed, device=ids.device).T
    at = (rows, places)
    log_probs, scores = decoded.log_probs.clone(), decoded.scores.clone()
    log_probs[at] = model.log_prob(select(memory, rows), ids[at]).to(log_probs.dtype)
    scores[at] += log_probs[at] - decoded.log_probs[at]
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


def caption_words(decoded: DecodeResult, vocabulary: Vocabulary) -> list[list[tuple[str, ...]]]:
    """The words of each caption of each image."""
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
    masks = scenes.region_mask, scenes.grid_mask
    region_counts, cell_counts = (None if mask is None else mask.sum(1).tolist() for mask in masks)
    captions = []
    for row in range(len(scores)):
        image = first + row // copies
        n, cells = (None if counts is None else counts[image] for counts in (region_counts, cell_counts))
        steps = [
            WordTrace(
                log_prob=float(scores[row, t]),
                # Copies, since a view would keep the attention of its whole batch in memory.
                regions=None if regions is None else regions[row, t, :n].copy(),
                grid=None if grid is None else grid[row, t, :cells].copy(),
                gates={
                    name: gate[row, t].copy() if gate.ndim > 2 else float(gate[row, t]) for name, gate in gates.items()
                },
            )
            for t in range(scores.shape[1])
        ]
        captions.append(steps)
    return captions


def _array(values: Tensor) -> Array:
    array: Array = values.float().cpu().numpy()
    return array
