"""Where a caption with little room may end, although the model would go on: after a phrase that is whole.

A captioner that says nine words about every photo never ends by itself within five, and its probability of END there
tells little. What it would say next tells more. Where it goes on with "in", "and" or "standing", a phrase has come to
its end: "a man riding a horse | in". Where it goes on with a noun, an adjective or "of", one has not: "a red fire |
hydrant", "on top | of".

Nor is a caption whole into whose last place a noun was crammed: "a man flying through the air bicycle", "a dog on top
of rock".
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.text import wordnet
from sightline.text.tagger import NOUNS, Tagger
from sightline.text.vocabulary import END, Vocabulary

# In nats; chosen among 2, 5, 10 and more, and 1 to 3, by CIDEr of captions of 5 to 8 words.
BROKEN_OFF = 5.0  # for ending where the model would go on
A_WORD = 3.0  # for each word that there is still room for
DOUBTFUL = 10.0  # "a table covered with" has come to an end, "a snow covered hill" has not
CRAMMED = 8.0  # for a last noun without its article, or after a phrase that was whole
NOT_WHOLE = 1000.0  # the last resort, where no hypothesis has a whole phrase

ENDS_A_PHRASE = NOUNS | {"PRP"}  # tags of words that a whole phrase ends in
CONTINUES_A_PHRASE = NOUNS | {"JJ", "JJR", "JJS", "CD", "POS"}  # tags of words that would belong to the phrase
TIED = frozenset({"of", "to"})  # words that belong to the phrase before them
BEFORE_A_BARE_NOUN = frozenset({"", "IN", "TO", "VBG"})  # tags of what is not its determiner
COUNTED = frozenset(f"noun.{kind}" for kind in "animal artifact object person".split())  # in WordNet's files
# Nouns that need no article, or not always: in bed, on stage, playing ball.
NEED_NONE = frozenset("ball bed clothing frisbee furniture grass luggage midair plate sand sheep stage".split())
# After these, a place is told and a new phrase begins: "in the air", "on a couch".
WHERE = frozenset("air back beach couch field floor front grass ground ocean rain room snow street table top".split())
PARTICIPLES = frozenset({"VBN", "VBD"})  # tags of words that may or may not


def prices(words: Tensor, likeliest: Tensor, may_end: Tensor, vocabulary: Vocabulary, max_words: int) -> Tensor:
    """(N,) what hypotheses pay for ending now: infinity where they may not.

    Where the model itself ends they pay nothing, unless their last noun was crammed in.

    Args:
        words: (N, 1 + t) START and words.
        likeliest: (N,) the most probable next word, END among them.
        may_end: (N,) False where the rules forbid it.
        vocabulary: of the model.
        max_words: the most words a caption has.
    """
    count = words.shape[1] - 1
    costs = torch.where(may_end & (likeliest == END), 0.0, torch.inf)
    ends = (may_end & (likeliest == END)).nonzero().squeeze(1) if count else words.new_zeros(0)
    costs[ends] = CRAMMED * costs.new_tensor(ends_badly([vocabulary.decode(ids) for ids in words[ends].tolist()]))
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
        begins_anew = words[-1] == "next"  # "next to" begins something new
        goes_on = words[-1] in TIED or (tags[-1] in CONTINUES_A_PHRASE and not begins_anew)
        if goes_on or tags[-2] not in ENDS_A_PHRASE:
            costs.append(torch.inf)
        else:
            costs.append(DOUBTFUL if tags[-1] in PARTICIPLES else 0.0)
    return costs


def ends_badly(sentences: Sequence[Sequence[str]]) -> list[bool]:
    """For each sentence whether its last noun lacks an article, or stands where a phrase has come to its end.

    >>> ends_badly([line.split() for line in ("a dog on top of rock", "in the air bicycle", "a dog on a tennis court")])
    [True, True, False]
    """
    return [
        tags[-1] == "NN" and _is_crammed(words, tags)
        for words, tags in zip(sentences, Tagger.default().tag_all(sentences), strict=True)
    ]


def _is_crammed(words: Sequence[str], tags: Sequence[str]) -> bool:
    *_, third, before, noun = "", "", *words
    if before in WHERE and third in ("a", "in", "on", "the") and not wordnet.has(f"{before} {noun}", "n"):
        return True
    first = len(words) - 1
    while first and tags[first - 1] in CONTINUES_A_PHRASE:
        first -= 1
    if tuple(words[first - 2 : first]) in (("piece", "of"), ("slice", "of"), ("pair", "of")):
        return False
    senses = wordnet.senses(noun, "n")
    counted = bool(senses) and wordnet.lexfile(senses[0]) in COUNTED and noun not in NEED_NONE
    return counted and "CD" not in tags[first:] and (tags[first - 1] if first else "") in BEFORE_A_BARE_NOUN
