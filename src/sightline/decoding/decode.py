"""`decode`: captions as ids, in any way, under any rules, by any captioner."""

from __future__ import annotations

import torch

from sightline.decoding.beam import BeamSearch
from sightline.decoding.constraints import Rules, WordRules
from sightline.decoding.decode_result import DecodeResult, device_of
from sightline.decoding.sampling import decode_words, most_probable, sampler
from sightline.decoding.strategies import Greedy, Sample, Strategy
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory
from sightline.text.vocabulary import Vocabulary

__all__ = ["DecodeResult", "decode"]


@torch.no_grad()
def decode(
    model: Captioner,
    memory: Memory,
    strategy: Strategy,
    rules: Rules | None = None,
    vocabulary: Vocabulary | None = None,
) -> DecodeResult:
    """Captions for every image of `memory`, without gradients.

    The model is used in the mode it is in: call `model.eval()` before, unless dropout is meant to act. What its `step`
    returns is written into, so it must be new at each step, as that of `Captioner` is. Rules that name words
    (`must_include`, `must_not`, `bad_endings`) need the vocabulary. Where the rules leave an image without any word to
    say, a ConfigError names it.

    >>> decode(model, model.encode(scenes), Beam(5)).words.shape  # doctest: +SKIP
    torch.Size([8, 1, 13])
    """
    device = device_of(memory)
    compiled = WordRules(rules or Rules(), model.vocab_size, vocabulary, device)
    ahead = "`must_include`" if compiled.wanted else "`whole`" if compiled.rules.whole else ""
    if isinstance(strategy, Greedy | Sample):
        if ahead:
            raise ConfigError(
                f"{ahead} does not work with {strategy.kind}, which cannot look ahead", fix="decode with a beam"
            )
        if isinstance(strategy, Greedy):
            return decode_words(model, memory, compiled, most_probable)
        return decode_words(model, memory, compiled, sampler(strategy, device), strategy.copies)
    if ahead and strategy.kind != "beam":
        raise ConfigError(f"{ahead} does not work with {strategy.kind}", fix="decode with a plain beam")
    return BeamSearch(model, memory, compiled, strategy).run()
