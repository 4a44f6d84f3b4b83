"""Which nouns of a caption people, or boxes, say are in the photo."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from sightline.data import boxes_jsonl
from sightline.grounding.nouns import box_counts, may_name_the_same, noun_tags
from sightline.metrics.chair import mentions_all
from sightline.text import wordnet
from sightline.text.tagger import NOUNS
from sightline.text.tokenizer import ptb_tokenize_all


def boxed_objects(path: Path, ids: Iterable[str]) -> dict[str, set[str]]:
    """COCO's names of what a detector found in photos (`boxes-jsonl`), of those that are in its file."""
    boxes = boxes_jsonl.read(path)
    return {id: {one.name for one in boxes[id].concepts} for id in ids if id in boxes}


def unsupported(
    captions: Sequence[Sequence[str]], references: Sequence[str], objects: Collection[str] = ()
) -> list[list[int]]:
    """The places of the nouns of captions of one photo that nobody says: those that name a thing and get a box.

    One of COCO's 80 objects (`sightline.metrics.chair`) is supported if the references or `objects` have it. Any other
    noun is if one of the references' nouns may name the same thing: a synonym, what it is a kind of, or a kind of it.
    """
    people = ptb_tokenize_all(list(references))
    every = [" ".join(words) for words in captions]
    mentions = mentions_all([*every, *people])
    there = {name for own in mentions[len(every) :] for one in own for name in one.objects} | set(objects)
    sentences = [text.split() for text in people]
    heard = {
        word
        for words, tags in zip(sentences, noun_tags(sentences), strict=True)
        for word, tag in zip(words, tags, strict=True)
        if tag in NOUNS
    }
    found = []
    for words, tags, own in zip(captions, noun_tags(captions), mentions, strict=False):
        objects_of = {one.words.split()[-1]: one.objects for one in own}
        found.append(
            [
                at
                for at, count in enumerate(box_counts(words, tags))
                if count
                and (
                    there.isdisjoint(objects_of[words[at]])
                    if words[at] in objects_of
                    else not any(_same(words[at], other) for other in heard)
                )
            ]
        )
    return found


@lru_cache(wordnet.CACHE_SIZE)
def _same(one: str, other: str) -> bool:
    return may_name_the_same(one, other)
