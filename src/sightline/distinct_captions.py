"""Captions that tell similar photos apart.

Photos of one folder often get the same caption. For each photo of such a group the captioner gives its best captions,
and the one is chosen that is likely for this photo and unlikely for its neighbours, the others of the group:

    log p(c | photo) - weight · log mean over neighbours of p(c | neighbour)

which is the contrastive idea of Dai and Lin (NIPS 2017), where training pushes a caption's probability up for its own
image and down for others, applied to choosing. No two photos get the same caption while there are others to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import PhotoCaption
from sightline.checkpoint.bundle import Bundle
from sightline.config import check_ranges
from sightline.decoding.copy_names import rules_with_stand_ins, split_rules, without_names, write_names
from sightline.decoding.decode import decode
from sightline.decoding.likelihood import likelihood
from sightline.decoding.rules import CAREFUL, Rules
from sightline.decoding.strategies import Beam
from sightline.errors import SightlineError
from sightline.grounding.caption_boxes import choose_boxes
from sightline.models.captioner import Captioner, Memory, select
from sightline.photo import Photo
from sightline.scene import Array
from sightline.vision.images import Source

AT_ONCE = 16  # photos of a group that are looked at together
MORE = 4  # times as many candidates, where all are taken
SMALL = frozenset("a an the is are was were be being some this that his her its their there".split())
Words = tuple[str, ...]


class CaptionModel(Protocol):
    """What is asked of a `sightline.Pipeline` here."""

    bundle: Bundle
    captioner: Captioner
    device: torch.device

    def read(self, photo: Source) -> Photo: ...

    def scenes(self, photos: Sequence[Photo]) -> SceneBatch: ...


@dataclass(frozen=True)
class Contrast:
    """How captions are told apart.

    Attributes:
        weight: of the neighbours in the score above: 0 is the likeliest caption that no other photo has.
        candidates: captions of a photo to choose among.
        neighbours: photos of its group that a caption is compared on.
    """

    weight: float = 0.7
    candidates: int = 10
    neighbours: int = 6

    def __post_init__(self) -> None:
        check_ranges(self, weight="[0, ∞)", candidates="[2, ∞)", neighbours="[1, ∞)")


def gist(words: Sequence[str]) -> Words:
    """What makes two captions nearly the same: their words but for the smallest.

    >>> gist("a dog is on the beach".split()) == gist("the dog on a beach".split())
    True
    """
    return tuple(word for word in words if word not in SMALL)


def alike(captions: Sequence[Sequence[str]]) -> list[list[int]]:
    """Which captions, each a list of words, are the same or nearly: their places, for each group of two or more.

    Empty ones are in no group.
    """
    groups: dict[Words, list[int]] = {}
    for place, words in enumerate(captions):
        if words:
            groups.setdefault(gist(words), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def tell_apart(
    pipeline: CaptionModel,
    captions: Sequence[PhotoCaption],
    *,
    rules: Rules | None = None,
    contrast: Contrast | None = None,
    bad: Callable[[SightlineError], None] | None = None,
) -> list[PhotoCaption]:
    """Captions of a folder, in their order, those that are alike rewritten.

    Args:
        pipeline: the model that made them.
        captions: with the paths of their photos, which are looked at again.
        rules: that they were made with.
        contrast: how to choose.
        bad: is given the error of a photo that can no longer be read, whose caption stays.
    """
    results, groups = list(captions), alike([() if caption.warning else caption.words for caption in captions])
    grouped = {place for group in groups for place in group}
    taken = {gist(caption.words) for place, caption in enumerate(captions) if place not in grouped}
    for group in groups:
        rewritten = tell_group_apart(pipeline, [captions[at] for at in group], taken, rules, contrast, bad)
        for place, caption in zip(group, rewritten, strict=True):
            results[place] = caption
    return results


def tell_group_apart(
    pipeline: CaptionModel,
    captions: Sequence[PhotoCaption],
    taken: set[Words],
    rules: Rules | None = None,
    contrast: Contrast | None = None,
    bad: Callable[[SightlineError], None] | None = None,
) -> list[PhotoCaption]:
    """Captions of one group, rewritten; `taken` are the gists of captions that are not to be used, and grows."""
    results, readable = list(captions), list[tuple[int, Photo]]()
    for place, caption in enumerate(captions):
        try:
            readable.append((place, pipeline.read(caption.path)))
        except SightlineError as error:
            taken.add(gist(caption.words))
            if bad is not None:
                bad(error)
    parts = max(1, -(-len(readable) // AT_ONCE))
    for part in range(parts):
        some = readable[part::parts]
        group = [(captions[at], photo) for at, photo in some]
        for (place, _), caption in zip(
            some, _rewrite(pipeline, group, taken, rules, contrast or Contrast()), strict=True
        ):
            results[place] = caption
    return results


@torch.inference_mode()
def _rewrite(
    pipeline: CaptionModel,
    group: Sequence[tuple[PhotoCaption, Photo]],
    taken: set[Words],
    rules: Rules | None,
    contrast: Contrast,
) -> list[PhotoCaption]:
    """The captions of photos that are compared with each other. Copies of one picture share theirs."""
    first: dict[bytes, int] = {}
    copy_of = [first.setdefault(photo.pixels.tobytes(), place) for place, (_, photo) in enumerate(group)]
    distinct = sorted(set(copy_of))
    if not distinct:
        return []
    plain, names = split_rules(rules or CAREFUL, pipeline.bundle.captioner.vocabulary)
    rules = rules_with_stand_ins(plain, names)
    scenes = pipeline.scenes([group[at][1] for at in distinct])
    memory, words = pipeline.captioner.encode(scenes), [without_names(group[at][0].words, names) for at in distinct]
    waiting = list(range(len(words)))
    for count in (contrast.candidates, MORE * contrast.candidates):  # more, where all captions of a photo are taken
        choices = _choices(pipeline, memory, {at: words[at] for at in waiting}, rules, count) if waiting else []
        scores = [_scores(pipeline, memory, own, at, contrast) for at, own in zip(waiting, choices, strict=True)]
        chosen = choose(scores, [[gist(one) for one in own] for own in choices], taken)
        for at, own, choice in zip(waiting, choices, chosen, strict=True):
            words[at] = words[at] if choice is None else own[choice]  # at last a photo keeps its caption
        waiting = [at for at, choice in zip(waiting, chosen, strict=True) if choice is None]
    bundle = pipeline.bundle
    judged = likelihood(pipeline.captioner, scenes, bundle.captioner.vocabulary, words)
    captions = dict(zip(distinct, choose_boxes(bundle, [one.caption for one in judged], scenes), strict=True))
    results = []
    for original, (before, _) in zip(copy_of, group, strict=True):
        caption = write_names(captions[original], names, plain.must_include)
        sure = bundle.calibration.of(caption)
        low = sure < bundle.calibration.low
        results.append(
            PhotoCaption(
                caption.words, caption.log_prob, caption.trace, before.path, before.size, sure, low, before.concepts
            )
        )
    return results


def _choices(
    pipeline: CaptionModel, memory: Memory, captions: Mapping[int, Words], rules: Rules | None, count: int
) -> list[list[Words]]:
    """What can be said about each photo, by its row in `memory`: first the caption that it has."""
    vocabulary, rows = pipeline.bundle.captioner.vocabulary, torch.tensor([*captions], device=pipeline.device)
    best = decode(pipeline.captioner, select(memory, rows), Beam(count, count), rules or CAREFUL, vocabulary)
    choices = []
    for own, several, log_probs in zip(captions.values(), best.words.tolist(), best.log_probs.tolist(), strict=True):
        others = [tuple(vocabulary.decode(ids)) for ids, p in zip(several, log_probs, strict=True) if p > -torch.inf]
        choices.append(list(dict.fromkeys([own, *filter(None, others)])))
    return choices


def _scores(pipeline: CaptionModel, memory: Memory, choices: Sequence[Words], place: int, contrast: Contrast) -> Array:
    """(choices,) how well each tells the photo at `place` from its neighbours."""
    count = len(next(iter(memory.values())))
    near = [(place + step) % count for step in range(1, min(contrast.neighbours, count - 1) + 1)]
    ids = TextBatch.collate(choices, pipeline.bundle.captioner.vocabulary).ids.to(pipeline.device)
    rows = torch.tensor([place, *near], device=pipeline.device)
    log_probs = pipeline.captioner.log_prob(select(memory, rows), ids.repeat(len(rows), 1)).view(len(rows), -1)
    score = log_probs[0]
    if near:
        score = score - contrast.weight * (log_probs[1:].logsumexp(0) - np.log(len(near)))
    scores: Array = score.double().cpu().numpy()
    return scores


def choose(scores: Sequence[Array], gists: Sequence[Sequence[Words]], taken: set[Words]) -> list[int | None]:
    """For each photo a choice whose gist is not yet taken, the best where possible; None where there is none.

    The photo that would lose most by its second-best choice chooses first. What is chosen is added to `taken`.
    """
    chosen: list[int | None] = [None] * len(scores)
    waiting = set(range(len(scores)))
    while waiting:
        free = {
            photo: [at for at in np.argsort(-scores[photo], kind="stable") if gists[photo][at] not in taken]
            for photo in waiting
        }
        loss = {
            photo: scores[photo][own[0]] - scores[photo][own[1]] if len(own) > 1 else np.inf
            for photo, own in free.items()
        }
        photo = max(sorted(waiting), key=lambda one: loss[one])
        waiting.remove(photo)
        if free[photo]:
            chosen[photo] = best = int(free[photo][0])
            taken.add(gists[photo][best])
    return chosen
