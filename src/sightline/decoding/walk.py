"""Greedy decoding and sampling: every hypothesis goes its own way, one word a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sightline.decoding.decoded import Decoded, device_of, empty, no_caption, not_a_number, worth_dropping
from sightline.decoding.rules import WordRules
from sightline.decoding.top import BLOCK, top
from sightline.decoding.ways import Sample
from sightline.models.captioner import Captioner, Memory, expand, images, select
from sightline.text.vocabulary import END, PAD

Pick = Callable[[Tensor], Tensor]  # (N, V) log-probabilities to (N, 1) words


def walk(model: Captioner, memory: Memory, rules: WordRules, pick: Pick, copies: int = 1) -> Decoded:
    """`copies` captions for each image of `memory`, each word chosen by `pick`."""
    count, longest, device = images(memory), rules.rules.max_words, device_of(memory)
    words = empty(count, copies, max_words=longest, device=device)
    words[..., 1] = PAD
    log_probs = torch.zeros(count, copies, device=device)
    scores = torch.zeros(count, copies, device=device)
    going = torch.ones(count, copies, dtype=torch.bool, device=device)
    active = torch.arange(count, device=device)  # the images that memory and state hold
    state = expand(model.start(memory), count * copies)
    for step in range(longest + 1):
        said = words[active, :, : step + 1].flatten(0, 1)  # (N, 1 + step)
        values, state = model.step(said[:, -1], memory, state)
        penalties = rules.apply(values, said)
        chosen = pick(values)  # (N, 1)
        paid = values.gather(1, chosen)
        own = (paid + penalties.of(chosen)).view(-1, copies)  # (b, copies)
        here, chosen, paid = going[active], chosen.view(-1, copies), paid.view(-1, copies)
        words[active, :, step + 1] = chosen.masked_fill(~here, PAD)
        log_probs[active] += own.masked_fill(~here, 0)
        scores[active] += paid.masked_fill(~here, 0)
        still = here & (chosen != END)
        going[active] = still
        busy = still.any(1)
        left, broken = torch.stack([busy.sum(), (here & ~paid.isfinite()).sum()]).tolist()
        if broken:
            raise not_a_number() if values.isnan().any() else no_caption(int(scores.isinf().any(1).nonzero()[0]))
        if not left:
            break
        if worth_dropping(left, len(active)):
            kept = busy.nonzero().squeeze(1)
            within = torch.arange(copies, device=device)
            active, memory = active[kept], select(memory, kept)
            state = select(state, (kept[:, None] * copies + within).flatten())
    return Decoded.of(words, log_probs, scores)


def most_probable(log_probs: Tensor) -> Tensor:
    """(N, 1) the best word of each row; of equal ones, the lowest id."""
    return log_probs.max(1, keepdim=True).indices


def drawn(way: Sample, device: torch.device) -> Pick:
    """A `pick` that draws words as `way` says."""
    generator = None if way.seed is None else torch.Generator(device).manual_seed(way.seed)

    def pick(log_probs: Tensor) -> Tensor:
        if not way.top_k and way.top_p == 1:
            return draw(_probabilities(log_probs, way.temperature), generator)
        values, words = top(log_probs.clone(), way.top_k or log_probs.shape[1])
        probabilities = _probabilities(values, way.temperature)
        before = probabilities.cumsum(1) - probabilities
        probabilities.masked_fill_(before >= way.top_p, 0)
        return words.gather(1, draw(probabilities, generator))

    return pick


def _probabilities(log_probs: Tensor, temperature: float) -> Tensor:
    probabilities = (log_probs if temperature == 1 else log_probs / temperature).softmax(1)
    # A row without any word to say draws one all the same: its log-probability of -inf tells.
    return probabilities.masked_fill_(probabilities[:, :1].isnan(), 1)


def draw(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    """(N, 1) places drawn from (N, V): first a block of places, then one in it.

    `torch.multinomial` makes a random number for every entry, which over a whole vocabulary costs more than the model.
    """
    whole = probabilities.shape[1] // BLOCK * BLOCK
    if whole == 0:
        return probabilities.multinomial(1, generator=generator)
    sums = probabilities[:, :whole].view(len(probabilities), -1, BLOCK).sum(-1)  # (N, blocks)
    sums = torch.cat([sums, probabilities[:, whole:].sum(1, keepdim=True)], 1)
    block = sums.multinomial(1, generator=generator)  # (N, 1)
    members = block * BLOCK + torch.arange(BLOCK, device=block.device)
    outside = members >= probabilities.shape[1]
    weights = probabilities.gather(1, members.masked_fill(outside, 0)).masked_fill_(outside, 0)
    return members.gather(1, weights.multinomial(1, generator=generator))
