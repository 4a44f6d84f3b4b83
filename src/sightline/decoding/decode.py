"""`decode`: captions as ids, in any way, under any rules, by any captioner."""

from __future__ import annotations

from dataclasses import replace

import torch

from sightline.decoding.beam import BeamSearch
from sightline.decoding.constraints import Rules, WordRules
from sightline.decoding.decode_result import DecodeResult, device_of
from sightline.decoding.sampling import decode_words, most_probable, sampler
from sightline.decoding.strategies import Greedy, Sample, Strategy
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner, Memory, select
from sightline.text.articles import with_right_articles
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
    (`must_include`, `must_not`, `no_repeat_noun`, …) need a vocabulary. Where the rules leave an image without a word
    to say, a ConfigError names it.

    >>> decode(model, model.encode(scenes), Beam(5)).words.shape  # doctest: +SKIP
    torch.Size([8, 1, 13])
    """
    device = device_of(memory)
    compiled = WordRules(rules or Rules(), model.vocab_size, vocabulary, device)
    ahead = "`must_include`" if compiled.wanted else "`whole`" if compiled.rules.whole else ""
    found = _search(model, memory, strategy, compiled, ahead)
    if compiled.rules.right_articles and vocabulary is not None:
        found = _with_right_articles(found, model, memory, vocabulary)
    return found


def _search(model: Captioner, memory: Memory, strategy: Strategy, compiled: WordRules, ahead: str) -> DecodeResult:
    """Captions by a strategy; `ahead` names the rule, if any, for which it must look ahead."""
    device = device_of(memory)
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


def _with_right_articles(found: DecodeResult, model: Captioner, memory: Memory, vocabulary: Vocabulary) -> DecodeResult:
    """The captions, "a" and "an" as suits the words after them; those that change are scored anew."""
    rows: list[tuple[int, int]] = []
    ids = found.words.clone()
    for image, own in enumerate(found.words.tolist()):
        for place, one in enumerate(own):
            words = vocabulary.decode(one)
            right = with_right_articles(words)
            if right != words and all(word in vocabulary for word in right):
                rows.append((image, place))
                ids[image, place, 1 : len(right) + 1] = ids.new_tensor([vocabulary.id(word) for word in right])
    if not rows:
        return found
    images, places = torch.tensor(rows, device=ids.device).T
    log_probs, scores = found.log_probs.clone(), found.scores.clone()
    log_probs[images, places] = model.log_prob(select(memory, images), ids[images, places]).to(log_probs.dtype)
    scores[images, places] += log_probs[images, places] - found.log_probs[images, places]
    return replace(found, words=ids, log_probs=log_probs, scores=scores)
