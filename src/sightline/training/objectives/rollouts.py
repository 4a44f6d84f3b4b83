"""Monte-Carlo roll-outs: beginnings of captions carried on to their end by a captioner's own draws."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.decoding.constraints import WordRules
from sightline.decoding.sampling import sampler
from sightline.decoding.strategies import Sample
from sightline.models.captioner import Captioner, Memory, State
from sightline.text.vocabulary import END, PAD


@torch.no_grad()
def roll_out(model: Captioner, memory: Memory, said: Tensor, state: State, rules: WordRules, depth: int = 0) -> Tensor:
    """Complete captions (N, …) from their beginnings.

    Args:
        model: in the mode in which it is to draw.
        memory: of the images.
        said: (N, 1 + t) START and t words; a row that has its END already is left alone.
        state: N rows, after all of `said` but its last word was read.
        rules: what may be said; a caption that reaches `max_words` ends there.
        depth: the most words that are drawn, END counted; what is not ended by then gets its END there. 0: no limit.
    """
    pick = sampler(Sample(), said.device)
    going = (said[:, -1] != END) & (said[:, -1] != PAD)
    left = rules.rules.max_words + 2 - said.shape[1]
    for _ in range(min(depth, left) if depth else left):
        rows = going.nonzero().squeeze(1)
        if not len(rows):
            break
        values, state = model.step(said[:, -1], memory, state, rows)  # (n, V)
        rules.apply(values, said[rows])
        chosen = torch.full_like(said[:, -1], PAD).index_copy(0, rows, pick(values).squeeze(1))
        said = torch.cat([said, chosen.unsqueeze(1)], 1)
        going = going & (chosen != END)
    if not going.any():
        return said
    return torch.cat([said, torch.full_like(said[:, :1], PAD).masked_fill(going.unsqueeze(1), END)], 1)
