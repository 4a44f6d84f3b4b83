"""A captioner small enough to enumerate, and decoding written out naively in plain Python."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.models.captioner import Captioner, Memory, State, Trace, expand, images, per_image
from sightline.text.vocabulary import END, PAD, START, UNK, Vocabulary

torch.set_num_threads(1)

Words = tuple[int, ...]
VOCABULARY = Vocabulary("a dog cat on".split())  # ids 4 to 7
A, DOG, CAT, ON = 4, 5, 6, 7
SIZE = len(VOCABULARY)
_PRIME = 1_000_003


class HashCaptioner(Captioner):
    """Every prefix of every image has its own distribution: the logits are sines of a hash of image and words."""

    def __init__(self, vocab_size: int = SIZE, sharpness: float = 2.0, end: float = 0.0, levels: int = 0) -> None:
        super().__init__()
        self.vocab_size, self.sharpness, self.end, self.levels = vocab_size, sharpness, end, levels
        self.rows_stepped: list[int] = []
        self.images_stepped: list[int] = []

    def encode(self, scenes: SceneBatch) -> Memory:
        return memory_of([int(id) for id in scenes.ids])

    def start(self, memory: Memory) -> State:
        return {"code": memory["image"] * 7 + 3}

    def advance(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        assert len(state["code"]) == len(words)
        image = (per_image(words, memory) * 0 + memory["image"][:, None]).flatten()  # (N,)
        code = (state["code"] * 7919 + words * 104_729 + image * 31 + 1) % _PRIME
        self.rows_stepped.append(len(words))
        self.images_stepped.append(images(memory))
        return self.logits(code), {"code": code}

    def logits(self, code: Tensor) -> Tensor:
        places = torch.arange(1, self.vocab_size + 1, dtype=torch.float64)
        logits = torch.sin(code[:, None] * places * 0.6180339887) * self.sharpness
        if self.levels:
            logits = (logits * self.levels).round() / self.levels  # so that words tie
        logits[:, END] += self.end
        return logits.float()

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        state, steps = expand(self.start(memory), len(words)), []
        for column in words.T:
            hidden, state = self.advance(column, memory, state)
            steps.append(hidden)
        return torch.stack(steps, 1), Trace()

    def predict(self, hidden: Tensor) -> Tensor:
        return hidden


def memory_of(numbers: Iterable[int]) -> Memory:
    """The memory of the images with these numbers."""
    return {"image": torch.tensor(list(numbers))}


class Naive:
    """One image of a captioner, a prefix at a time."""

    def __init__(self, model: Captioner, image: int) -> None:
        self.model, self.image = model, image
        self.next_log_probs = functools.cache(self._next_log_probs)

    def _next_log_probs(self, words: Words) -> list[float]:
        memory = memory_of([self.image])
        state = self.model.start(memory)
        for word in (START, *words):
            log_probs, state = self.model.step(torch.tensor([word]), memory, state)
        return log_probs[0].tolist()

    def log_prob(self, words: Words) -> float:
        """Of words and END."""
        ids = (*words, END)
        return sum(self.next_log_probs(ids[:t])[id] for t, id in enumerate(ids))

    def greedy(self, longest: int) -> Words:
        words: Words = ()
        while len(words) < longest:
            log_probs = self.next_log_probs(words)
            best = max([END, *range(UNK + 1, self.model.vocab_size)], key=lambda id: (log_probs[id], -id))
            if best == END:
                break
            words = (*words, best)
        return words

    def beam(self, size: int, longest: int, score: Callable[[float, int], float]) -> list[tuple[float, Words]]:
        """All finished hypotheses, best first, by a search to the last step."""
        return self.group_beams([size], 0.0, longest, score)[0]

    def group_beams(
        self, sizes: list[int], strength: float, longest: int, score: Callable[[float, int], float]
    ) -> list[list[tuple[float, Words]]]:
        """The finished hypotheses of each group, best first."""
        live: list[list[tuple[float, Words]]] = [[(0.0, ())] for _ in sizes]
        done: list[list[tuple[float, Words]]] = [[] for _ in sizes]
        for step in range(longest + 1):
            earlier: list[int] = []
            for group, size in enumerate(sizes):
                candidates = []
                for total, words in live[group]:
                    log_probs = self.next_log_probs(words)
                    for id in [END] if step == longest else [END, *range(UNK + 1, self.model.vocab_size)]:
                        candidates.append((total + log_probs[id] - strength * earlier.count(id), (*words, id)))
                candidates.sort(key=lambda item: -item[0])
                best = candidates[:size]
                done[group] += [(score(s, len(w)), w[:-1]) for s, w in best if w[-1] == END]
                done[group].sort(key=lambda item: -item[0])
                live[group] = [item for item in best if item[1][-1] != END]
                earlier += [words[-1] for _, words in best]
        return done


def all_captions(longest: int, words: Iterable[int] = (A, DOG, CAT, ON)) -> list[Words]:
    """Every caption of at most `longest` words."""
    return [c for n in range(longest + 1) for c in itertools.product(tuple(words), repeat=n)]


def said(row: Tensor) -> Words:
    """The words of a row of ids, which must be START, words, END, padding."""
    ids = row.tolist()
    end = ids.index(END)
    assert ids[0] == START
    assert set(ids[end + 1 :]) <= {PAD}
    assert not {PAD, START, END} & set(ids[1:end])
    return tuple(ids[1:end])
