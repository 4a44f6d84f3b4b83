"""Words after which a caption is not whole."""

from __future__ import annotations

from collections.abc import Sequence

# The two lists of self-critical code together.
BAD_ENDINGS = tuple("a an the in for at of with before after on upon near to is are am this his her that".split())

# These end whole captions, too: "with the light on", "looking at her".
_MAY_END = frozenset("before after on this her that".split())
_AFTER_A_VERB = frozenset({"in", "near"})  # "as the tide comes in", but "a field with a mountain in"
_OTHERS = (
    "and or but nor while as from into onto toward towards against between among during without than if because "
    "which whose their its my your our these those every"
).split()
DANGLING = frozenset([*BAD_ENDINGS, *_OTHERS]) - _MAY_END
NEVER_LAST = (*BAD_ENDINGS, *_OTHERS)  # after which decoding does not stop under the rule `bad_endings`


def dangles(words: Sequence[str], tags: Sequence[str]) -> bool:
    """Whether a caption ends in an article, a preposition, a conjunction or the like; `tags` are Penn's.

    >>> from sightline.text.tagger import Tagger
    >>> captions = "a man in the".split(), "the tide comes in".split()
    >>> [dangles(words, Tagger.default().tag(words)) for words in captions]
    [True, False]
    """
    if not words or words[-1] not in DANGLING:
        return False
    return not (words[-1] in _AFTER_A_VERB and len(words) > 1 and tags[-2].startswith("V"))
