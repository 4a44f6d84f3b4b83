"""Where a caption with little room may end, although the model would go on: after a phrase that is whole.

A captioner that says nine words about every photo never ends by itself within five, and its probability of END there
tells little. What it would say next tells more. Where it goes on with "in", "and" or "standing", a phrase has come to
its end: "a man riding a horse | in". Where it goes on with a noun, an adjective or "of", one has not: "a red fire |
hydrant", "on top | of".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.text.tagger import NOUNS, Tagger
from sightline.text.vocabulary import END, Vocabulary

# In nats; chosen among 2, 5, 10 and more, and 1 to 3, by CIDEr of captions of 5 to 8 words.
BROKEN_OFF = 5.0  # for ending where the model would go on
A_WORD = 3.0  # for each word that there is still room for
DOUBTFUL = 10.0  # "a table covered with" has come to an end, "a snow covered hill" has not
NOT_WHOLE = 1000.0  # the last resort, where no hypothesis has a whole phrase

ENDS_A_PHRASE = NOUNS | {"PRP"}  # tags of words that a whole phrase ends in
CONTINUES_A_PHRASE = NOUNS | {"JJ", "JJR", "JJS", "CD", "POS"}  # tags of words that would belong to the phrase
TIED = frozenset({"of", "to"})  # words that belong to the phrase before them
PARTICIPLES = frozenset({"VBN", "VBD"})  # tags of words that may or may not


def prices(words: Tensor, likeliest: Tensor, may_end: Tensor, vocabulary: Vocabulary, max_words: int) -> Tensor:
    """(N,) what hypotheses pay for ending now: nothing where the model itself ends, infinity where they may not.

    Args:
        words: (N, 1 + t) START and words.
        likeliest: (N,) the most probable next word, END among them.
        may_end: (N,) False where the rules forbid it.
        vocabulary: of the model.
        max_words: the most words a caption has.
    """
    count = words.shape[1] - 1
    costs = torch.where(may_end & (likeliest == END), 0.0, torch.inf)
    rows = (may_end & (likeliest != END)).nonzero().squeeze(1) if count else words.new_zeros(0)
    sentences = [
        [*vocabulary.decode(ids), vocabulary.word(following)]
        for ids, following in zip(words[rows].tolist(), likeliest[rows].tolist(), strict=True)
    ]
    cut = BROKEN_OFF + A_WORD * (max_words - count)
    last_resort = NOT_WHOLE if count == max_words else torch.inf
    costs[rows] = costs.new_tensor([min(last_resort, cut + doubt) for doubt in doubts(sentences)])
    return costs


def doubts(sentences: Sequence[Sequence[str]]) -> list[float]:
    """For each sentence whether a phrase ends before its last word: 0, `DOUBTFUL`, or infinity where none does.

    >>> doubts([line.split() for line in ("a man riding a horse in", "a fire hydrant", "on top of", "a snow covered")])
    [0.0, inf, inf, 10.0]
    """
    costs = []
    for words, tags in zip(sentences, Tagger.default().tag_all(sentences), strict=True):
        goes_on = words[-1] in TIED or (
            tags[-1] in CONTINUES_A_PHRASE and words[-1] != "next"
        )  # "next to" begins something new
        if goes_on or tags[-2] not in ENDS_A_PHRASE:
            costs.append(torch.inf)
        else:
            costs.append(DOUBTFUL if tags[-1] in PARTICIPLES else 0.0)
    return costs
