"""`decode`: captions as ids, in any way, under any rules, by any captioner."""

from __future__ import annotations

import torch

from sightline.decoding.beam import BeamSearch
from sightline.decoding.decoded import Decoded, device_of
from sightline.decoding.rules import Rules, WordRules
from sightline.decoding.walk import drawn, most_probable, walk
from sightline.decoding.ways import Greedy, Sample, Way
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory
from sightline.text.vocabulary import Vocabulary

__all__ = ["Decoded", "decode"]


@torch.no_grad()
def decode(
    model: Captioner, memory: Memory, way: Way, rules: Rules | None = None, vocabulary: Vocabulary | None = None
) -> Decoded:
    """Captions for every image of `memory`, without gradients.

    The model is used in the mode it is in: call `model.eval()` before, unless dropout is meant to act. What its `step`
    returns is written into, so it must be new at each step, as that of `Captioner` is. Rules that name words
    (`must_include`, `must_not`, `bad_endings`) need the vocabulary. Where the rules leave an image without any word to
    say, a ConfigError names it.

    >>> decode(model, model.encode(scenes), Beam(5)).words.shape  # doctest: +SKIP
    torch.Size([8, 1, 13])
    """
    device = device_of(memory)
    compiled = WordRules(rules or Rules(), model.words, vocabulary, device)
    ahead = "`must_include`" if compiled.wanted else "`whole`" if compiled.rules.whole else ""
    if isinstance(way, Greedy | Sample):
        if ahead:
            raise ConfigError(
                f"{ahead} does not work with {way.kind}, which cannot look ahead", fix="decode with a beam"
            )
        if isinstance(way, Greedy):
            return walk(model, memory, compiled, most_probable)
        return walk(model, memory, compiled, drawn(way, device), way.copies)
    if ahead and way.kind != "beam":
        raise ConfigError(f"{ahead} does not work with {way.kind}", fix="decode with a plain beam")
    return BeamSearch(model, memory, compiled, way).run()
