"""Beam search over a batch of images: plain, with words that must be said, and in diverse groups.

At every step the best `size` continuations are taken; those that end are set aside, the others go on (so does the
search of self-critical code). An image leaves the search when no hypothesis going on can overtake those kept: each
word only lowers a score. What comes back is therefore what a search to the last step would give.

With words that must be said, hypotheses compete only with those that have come as far with these words (Hokamp & Liu
2017, grid beam search), and only one that has said them all may end.

Where captions are to be whole, ends do not compete: each is set aside with its price (`sentence_end.prices`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.decoding.constraints import WordRules, progress
from sightline.decoding.decode_result import (
    DecodeResult,
    device_of,
    empty,
    no_caption,
    not_a_number,
    should_drop,
    top,
)
from sightline.decoding.sentence_end import prices
from sightline.decoding.strategies import Beam, DiverseBeam
from sightline.models.captioner import Captioner, Memory, State, expand, images, select
from sightline.text.vocabulary import END, PAD, START, UNK


@dataclass(frozen=True, eq=False)
class Live:
    """Hypotheses that have not ended: w for each of b images. A score of -inf marks an empty place."""

    image: Tensor  # (b,) which image of the batch
    memory: Memory  # b rows
    state: State  # b · w rows
    prefixes: Tensor  # (b, w, 1 + t) START and the words so far
    group: Tensor  # (b, w)
    scores: Tensor  # (b, w)
    log_probs: Tensor  # (b, w)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Continuations by one word: c for each of the b images, `each` from every hypothesis."""

    words: Tensor  # (b, c)
    scores: Tensor  # (b, c)
    log_probs: Tensor  # (b, c)
    each: int


@dataclass(frozen=True, eq=False)
class CompleteHypotheses:
    """The best finished hypotheses of every image and group, best first; missing ones score -inf."""

    words: Tensor  # (B, groups, keep, max_words + 2)
    scores: Tensor  # (B, groups, keep)
    log_probs: Tensor  # (B, groups, keep)

    @classmethod
    def none(cls, count: int, groups: int, keep: int, max_words: int, device: torch.device) -> CompleteHypotheses:
        lowest = torch.full((count, groups, keep), -torch.inf, device=device)
        return cls(empty(count, groups, keep, max_words=max_words, device=device), lowest, lowest.clone())

    def add(self, image: Tensor, captions: Tensor, scores: Tensor, log_probs: Tensor) -> None:
        """Take in new ones (b, p, …) of the images `image` where their score is above -inf; of equals, the older."""
        if scores.device.type == "cpu" and (scores == -torch.inf).all():  # an accelerator would be waited for
            return
        groups, keep, longest = self.words.shape[1:]
        by_group = (len(image), groups, -1)
        new = torch.nn.functional.pad(captions, (0, longest - captions.shape[2]), value=PAD).view(*by_group, longest)
        all_scores = torch.cat([self.scores[image], scores.view(by_group)], 2)
        ranked = all_scores.sort(dim=2, descending=True, stable=True)
        order = ranked.indices[..., :keep]
        all_words = torch.cat([self.words[image], new], 2)
        all_log_probs = torch.cat([self.log_probs[image], log_probs.view(by_group)], 2)
        self.words[image] = all_words.take_along_dim(order.unsqueeze(3), 2)
        self.scores[image] = ranked.values[..., :keep]
        self.log_probs[image] = all_log_probs.gather(2, order)

    def result(self) -> DecodeResult:
        """All groups together, best first."""
        ranked = self.scores.flatten(1).sort(dim=1, descending=True, stable=True)
        if ranked.values.isnan().any():
            raise not_a_number()
        if ranked.values[:, 0].isinf().any():
            raise no_caption(int(ranked.values[:, 0].isinf().nonzero()[0]))
        words = self.words.flatten(1, 2).take_along_dim(ranked.indices.unsqueeze(2), 1)
        return DecodeResult.of(words, self.log_probs.flatten(1).gather(1, ranked.indices), ranked.values)


class BeamSearch:
    """One search over the images of a memory."""

    def __init__(
        self,
        model: Captioner,
        memory: Memory,
        rules: WordRules,
        strategy: Beam | DiverseBeam,
        bias: Tensor | None = None,
    ) -> None:
        self.model, self.rules, self.size, self.bias = model, rules, strategy.size, bias
        self.groups, self.strength = (
            (strategy.groups, strategy.strength) if isinstance(strategy, DiverseBeam) else (1, 0.0)
        )
        keep = strategy.keep if isinstance(strategy, Beam) else strategy.size // strategy.groups
        self.last = rules.rules.max_words + 1  # the length at which END is forced
        self.length_penalty = strategy.length_penalty
        self.finished = CompleteHypotheses.none(
            images(memory), self.groups, keep, rules.rules.max_words, device_of(memory)
        )
        self.memory = memory
        self._unsaid = torch.tensor([PAD, START, UNK], device=device_of(memory))

    def run(self) -> DecodeResult:
        live: Live | None = self._start()
        while live is not None:
            live = self._advance(live)
        return self.finished.result()

    def _start(self) -> Live:
        count, device = images(self.memory), device_of(self.memory)
        zeros = torch.zeros(count, self.groups, device=device)
        return Live(
            image=torch.arange(count, device=device),
            memory=self.memory,
            state=expand(self.model.start(self.memory), count * self.groups),
            prefixes=torch.full((count, self.groups, 1), START, device=device),
            group=torch.arange(self.groups, device=device).expand(count, -1),
            scores=zeros,
            log_probs=zeros,
        )

    def _advance(self, live: Live) -> Live | None:
        """Extend every hypothesis by one word; None when all have ended."""
        values, state = self.model.step(live.prefixes[..., -1].flatten(), live.memory, live.state)
        candidates = self._candidates(live, values)
        scores, places = self._choose(live, candidates)  # (b, p), the groups one after the other
        words, log_probs = candidates.words.gather(1, places), candidates.log_probs.gather(1, places)
        parents = places // candidates.each
        before = live.prefixes.take_along_dim(parents.unsqueeze(2), 1)
        prefixes = torch.cat([before, words.unsqueeze(2)], 2)  # (b, p, 2 + t)
        ending = words == END
        length = prefixes.shape[2] - 1
        final = self.length_penalty.score(scores, length).masked_fill(~ending, -torch.inf)
        self.finished.add(live.image, prefixes, final, log_probs)
        scores = self._able_to_win(live.image, scores.masked_fill(ending, -torch.inf))
        return self._go_on(live, state, prefixes, scores, log_probs, parents)

    def _go_on(
        self, live: Live, state: State, prefixes: Tensor, scores: Tensor, log_probs: Tensor, parents: Tensor
    ) -> Live | None:
        """The hypotheses (b, p, …) that have not ended, in as few places as the image with most of them needs."""
        going = scores > -torch.inf
        counts = going.sum(1)  # (b,)
        widest, busy, broken = torch.stack([counts.max(), (counts > 0).sum(), scores.isnan().sum()]).tolist()
        if broken:
            raise not_a_number()
        if not busy:
            return None
        image, memory = live.image, live.memory
        first = live.scores.shape[1] * torch.arange(len(counts), device=counts.device)  # row of an image's first one
        if should_drop(busy, len(counts)):
            kept = (counts > 0).nonzero().squeeze(1)
            image, memory, first = image[kept], select(memory, kept), first[kept]
            going, parents, prefixes, scores, log_probs = (
                part[kept] for part in (going, parents, prefixes, scores, log_probs)
            )
        order = (~going).sort(dim=1, stable=True).indices[:, :widest]  # those that go on first, in rank order
        rows = first.unsqueeze(1) + parents.gather(1, order)
        return Live(
            image=image,
            memory=memory,
            state=select(state, rows.flatten()),
            prefixes=prefixes.take_along_dim(order.unsqueeze(2), 1),
            group=order // (scores.shape[1] // self.groups),
            scores=scores.gather(1, order),
            log_probs=log_probs.gather(1, order),
        )

    def _candidates(self, live: Live, values: Tensor) -> Candidates:
        """The best words of each hypothesis, and those that take the wanted phrases on."""
        prefixes = live.prefixes.flatten(0, 1)  # (N, 1 + t)
        likely = values.index_fill(1, self._unsaid, -torch.inf).argmax(1) if self.rules.rules.whole else None
        bias = None
        if self.bias is not None:
            bias = self.bias[live.image].repeat_interleave(live.scores.shape[1], 0)  # (N, V)
            values += bias
        penalties = self.rules.apply(values, prefixes)
        if likely is not None:
            self._set_ends_aside(live, values, likely)
        wanted = progress(prefixes, self.rules.wanted)[1] if self.rules.wanted else prefixes[:, :0]
        wanted_values = values.gather(1, wanted)
        # As many as the whole size even in groups: the words that earlier groups make dearer may be the first ones.
        paid, words = top(values, self.size)  # (N, k)
        if self.rules.wanted:
            words, paid = torch.cat([words, wanted], 1), torch.cat([paid, wanted_values], 1)
            same = words.unsqueeze(2) == words.unsqueeze(1)
            paid = paid.masked_fill(same.tril(-1).any(2), -torch.inf)  # each word once
        own = paid + penalties.of(words) if penalties.words.shape[1] else paid
        if bias is not None:
            own = own - bias.gather(1, words)
        shape = (*live.scores.shape, words.shape[1])
        return Candidates(
            words=words.view(shape).flatten(1),
            scores=(live.scores.unsqueeze(2) + paid.view(shape)).flatten(1),
            log_probs=(live.log_probs.unsqueeze(2) + own.view(shape)).flatten(1),
            each=words.shape[1],
        )

    def _set_ends_aside(self, live: Live, values: Tensor, likely: Tensor) -> None:
        """Take the ends of all hypotheses out of `values` (N, V), and those that may be in among the finished."""
        ends = values[:, END].clone()
        values[:, END] = -torch.inf
        prefixes, count = live.prefixes.flatten(0, 1), live.prefixes.shape[2] - 1
        able = (ends > -torch.inf) & (live.scores.flatten() > -torch.inf)
        price = prices(prefixes, likely, able, self.rules.vocabulary, self.rules.rules.max_words).view_as(live.scores)
        # Where the model would go on, how unlikely END is tells nothing of the words.
        own = ends.masked_fill(likely != END, 0).view_as(live.scores)
        self.finished.add(
            live.image,
            torch.nn.functional.pad(live.prefixes, (0, 1), value=END),
            self.length_penalty.score(live.scores + own, count + 1) - price,
            live.log_probs + own,
        )

    def _choose(self, live: Live, candidates: Candidates) -> tuple[Tensor, Tensor]:
        """Scores and places (b, p) of the candidates that stay."""
        if self.rules.wanted:
            return self._choose_by_progress(live, candidates)
        if self.groups > 1:
            return self._choose_by_group(live, candidates)
        return _best(candidates.scores, self.size)

    def _choose_by_progress(self, live: Live, candidates: Candidates) -> tuple[Tensor, Tensor]:
        parents = live.prefixes.repeat_interleave(candidates.each, 1)  # (b, c, 1 + t)
        prefixes = torch.cat([parents, candidates.words.unsqueeze(2)], 2)
        met = progress(prefixes.flatten(0, 1), self.rules.wanted)[0].view_as(candidates.words)
        banks = [
            _best(candidates.scores.masked_fill(met != words, -torch.inf), self.size)
            for words in range(self.rules.wanted_words + 1)
        ]
        return torch.cat([scores for scores, _ in banks], 1), torch.cat([places for _, places in banks], 1)

    def _choose_by_group(self, live: Live, candidates: Candidates) -> tuple[Tensor, Tensor]:
        group = live.group.repeat_interleave(candidates.each, 1)  # (b, c)
        uses = torch.zeros_like(candidates.scores)  # how often earlier groups chose each candidate's word
        chosen = []
        for number in range(self.groups):
            own = (candidates.scores - self.strength * uses).masked_fill(group != number, -torch.inf)
            scores, places = _best(own, self.size // self.groups)
            chosen.append((scores, places))
            words = candidates.words.gather(1, places).masked_fill(scores == -torch.inf, PAD)
            uses = uses + (candidates.words.unsqueeze(2) == words.unsqueeze(1)).sum(2)
        return torch.cat([scores for scores, _ in chosen], 1), torch.cat([places for _, places in chosen], 1)

    def _able_to_win(self, image: Tensor, scores: Tensor) -> Tensor:
        """The scores (b, p), -inf in groups where not even the best could get ahead of the last one kept."""
        by_group = scores.view(len(scores), self.groups, -1)  # (b, groups, p / groups)
        # Scores are at most 0, only fall, and both length penalties are mildest at the greatest length.
        bound = self.length_penalty.score(by_group.amax(2), self.last)
        lost = bound <= self.finished.scores[image, :, -1]
        if self.strength:  # what a group says makes words dearer for the groups after it: it goes on while they do
            lost = lost.flip(1).cumprod(1).flip(1).bool()
        return by_group.masked_fill(lost.unsqueeze(2), -torch.inf).flatten(1)


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    ranked = scores.sort(dim=1, descending=True, stable=True)
    return ranked.values[:, :count], ranked.indices[:, :count]
