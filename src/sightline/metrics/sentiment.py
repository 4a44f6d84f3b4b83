"""How much sentiment captions have: the share of words that carry some, and of captions with such a word.

Which words do is read from SentiCap (`sightline.data.senticap.sentiment_words`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def sentiment_shares(captions: Collection[Sequence[str]], words: Mapping[str, Collection[str]]) -> dict[str, float]:
    """For each sentiment the percentage of words that carry it, and of captions with one at least.

    >>> sentiment_shares([["a", "lovely", "dog"], ["a", "dog"]], {"positive": {"lovely"}})
    {'positive words': 20.0, 'captions with positive words': 50.0}
    """
    total = max(1, sum(map(len, captions)))
    shares: dict[str, float] = {}
    for sentiment, carrying in words.items():
        found = [sum(word in carrying for word in caption) for caption in captions]
        shares[f"{sentiment} words"] = 100 * sum(found) / total
        shares[f"captions with {sentiment} words"] = 100 * sum(map(bool, found)) / max(1, len(captions))
    return shares
