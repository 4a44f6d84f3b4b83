"""How likely a captioner finds sentences that others wrote: log p(c | I), word by word, and where it looked."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption, WordTrace
from sightline.decoding.decode import trace_words
from sightline.decoding.decode_result import device_of
from sightline.errors import CountError
from sightline.files import PathLike, atomic_write
from sightline.models.captioner import Captioner
from sightline.scene import Array
from sightline.text.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Likelihood:
    """One sentence under one model."""

    caption: Caption  # the words as written, each with its log-probability, attention and gates; the sum counts END
    end: WordTrace  # where END came from
    unknown: tuple[str, ...] = ()  # words the model does not know; UNK was scored in their place

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability of words and END; infinite where a float cannot hold it."""
        try:
            return math.exp(-self.caption.log_prob / (len(self.caption.words) + 1))
        except OverflowError:
            return math.inf


@torch.no_grad()
def likelihood(
    model: Captioner, scenes: SceneBatch, vocabulary: Vocabulary, sentences: Sequence[Sequence[str]]
) -> list[Likelihood]:
    """log p(sentence | scene) of as many sentences, already split into words, as there are scenes or a multiple of it.

    The sentences of one scene are next to each other.
    """
    if not sentences or not len(scenes) or len(sentences) % len(scenes):
        what = f"{len(sentences)} sentences for {len(scenes)} scenes"
        raise CountError(what, fix="give each scene the same number of sentences")
    memory = model.encode(scenes)
    ids = TextBatch.collate(sentences, vocabulary).ids.to(device_of(memory))
    traces = trace_words(model, memory, ids.reshape(len(scenes), -1, ids.shape[1]), scenes)
    results = []
    for words, steps in zip(sentences, itertools.chain.from_iterable(traces), strict=True):
        trace, end = steps[: len(words)], steps[len(words)]
        log_prob = sum(step.log_prob or 0.0 for step in (*trace, end))
        unknown = tuple(word for word in words if word not in vocabulary)
        results.append(Likelihood(Caption(tuple(words), log_prob, tuple(trace)), end, unknown))
    return results


def save_attention(path: PathLike, result: Likelihood, boxes: Array | None = None) -> None:
    """Write words, log-probabilities, attention and gates (END last) as one npz that numpy opens without pickle.

    A name without `.npz` gets it, as numpy's own `savez` does.
    """
    target = Path(path)
    target = target if target.suffix == ".npz" else target.with_name(f"{target.name}.npz")
    steps = (*result.caption.trace, result.end)
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {
        "words": np.array([*result.caption.words, "<end>"]),
        "log_probs": np.array([step.log_prob for step in steps]),
    }
    for name in ("regions", "grid"):
        rows = [getattr(step, name) for step in steps]
        if all(row is not None for row in rows):
            arrays[name] = np.stack(rows)
    for gate in steps[0].gates:
        arrays[f"gate_{gate}"] = np.stack([np.asarray(step.gates[gate]) for step in steps])
    if boxes is not None:
        arrays["boxes"] = boxes
    with atomic_write(target) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
