"""Greedy decoding and sampling: every hypothesis goes its own way, one word a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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
from sightline.decoding.strategies import Sample
from sightline.models.captioner import Captioner, Memory, expand, images, select
from sightline.text.vocabulary import END, PAD

WordChoice = Callable[[Tensor], Tensor]  # (N, V) log-probabilities to (N, 1) words


def decode_words(model: Captioner, memory: Memory, rules: WordRules, pick: WordChoice, copies: int = 1) -> DecodeResult:
    """`copies` captions for each image of `memory`, each word chosen by `pick`."""
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
