"""Captions that tell similar photos apart.

Photos of one folder often get the same caption. For each photo of such a group the captioner gives its best captions,
and the one is chosen that is likely for this photo and unlikely for its neighbours, the others of the group:

    log p(c | photo) - weight · log mean over neighbours of p(c | neighbour)

which is the contrastive idea of Dai and Lin (NIPS 2017), where training pushes a caption's probability up for its own
image and down for others, applied to choosing. No two photos get the same caption while there are others to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import PhotoCaption
from sightline.checkpoint.bundle import Bundle
from sightline.config import check_ranges
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

    def read(self, photo: Source) -> Photo:
        """A photo, read."""

    def scenes(self, photos: Sequence[Photo]) -> SceneBatch:
        """What vision sees in photos."""


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


def alike(said: Sequence[Sequence[str]]) -> list[list[int]]:
    """Which captions are the same or nearly: places in `said`, for each group of two or more."""
    groups: dict[Words, list[int]] = {}
    for place, words in enumerate(said):
        groups.setdefault(gist(words), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def tell_apart(
    pipeline: CaptionModel,
    said: Sequence[PhotoCaption],
    *,
    rules: Rules | None = None,
    contrast: Contrast | None = None,
    bad: Callable[[SightlineError], None] | None = None,
) -> list[PhotoCaption]:
    """Captions of a folder, in their order, those that are alike rewritten.

    Args:
        pipeline: the model that made them.
        said: captions with the paths of their photos, which are looked at again.
        rules: that they were made with.
        contrast: how to choose.
        bad: is given the error of a photo that can no longer be read, whose caption stays.
    """
    found, groups = list(said), alike([one.words for one in said])
    grouped = {place for group in groups for place in group}
    taken = {gist(one.words) for place, one in enumerate(said) if place not in grouped}
    for group in groups:
        apart = tell_group_apart(pipeline, [said[at] for at in group], taken, rules, contrast, bad)
        for place, one in zip(group, apart, strict=True):
            found[place] = one
    return found


def tell_group_apart(
    pipeline: CaptionModel,
    said: Sequence[PhotoCaption],
    taken: set[Words],
    rules: Rules | None = None,
    contrast: Contrast | None = None,
    bad: Callable[[SightlineError], None] | None = None,
) -> list[PhotoCaption]:
    """Captions of one group, rewritten; `taken` are the gists of captions that are not to be used, and grows."""
    found, readable = list(said), list[tuple[int, Photo]]()
    for place, one in enumerate(said):
        try:
            readable.append((place, pipeline.read(one.path)))
        except SightlineError as error:
            taken.add(gist(one.words))
            if bad is not None:
                bad(error)
    parts = max(1, -(-len(readable) // AT_ONCE))
    for part in range(parts):
        some = readable[part::parts]
        apart = _chosen(pipeline, [(said[at], photo) for at, photo in some], taken, rules, contrast or Contrast())
        for (place, _), one in zip(some, apart, strict=True):
            found[place] = one
    return found


@torch.inference_mode()
def _chosen(
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
    scenes = pipeline.scenes([group[at][1] for at in distinct])
    words = _apart(
        pipeline, pipeline.captioner.encode(scenes), [group[at][0].words for at in distinct], taken, rules, contrast
    )
    told = _told(pipeline, scenes, [group[at][0] for at in distinct], words)
    by_place = dict(zip(distinct, told, strict=True))
    return [
        replace(by_place[original], path=own.path, size=own.size)
        for original, (own, _) in zip(copy_of, group, strict=True)
    ]


def _apart(
    pipeline: CaptionModel,
    memory: Memory,
    said: Sequence[Words],
    taken: set[Words],
    rules: Rules | None,
    contrast: Contrast,
) -> list[Words]:
    """What to say of each photo. Where all captions of one are taken, more are asked for; at last it keeps its own."""
    found, waiting = list(said), list(range(len(said)))
    for count in (contrast.candidates, MORE * contrast.candidates):
        choices = _choices(pipeline, memory, waiting, [said[at] for at in waiting], rules, count)
        scores = [_scores(pipeline, memory, own, at, contrast) for at, own in zip(waiting, choices, strict=True)]
        picked = choose(scores, [[gist(words) for words in own] for own in choices], taken)
        for at, own, pick in zip(waiting, choices, picked, strict=True):
            found[at] = found[at] if pick is None else own[pick]
        waiting = [at for at, pick in zip(waiting, picked, strict=True) if pick is None]
        if not waiting:
            break
    return found


def _choices(
    pipeline: CaptionModel,
    memory: Memory,
    places: Sequence[int],
    said: Sequence[Words],
    rules: Rules | None,
    count: int,
) -> list[list[Words]]:
    """For each photo what can be said about it, what was said first."""
    vocabulary, rows = pipeline.bundle.captioner.vocabulary, torch.tensor(places, device=pipeline.device)
    best = decode(pipeline.captioner, select(memory, rows), Beam(count, count), rules or CAREFUL, vocabulary)
    found = []
    for own, several, log_probs in zip(said, best.words.tolist(), best.log_probs.tolist(), strict=True):
        others = [tuple(vocabulary.decode(ids)) for ids, p in zip(several, log_probs, strict=True) if p > -torch.inf]
        found.append(list(dict.fromkeys([own, *filter(None, others)])))
    return found


def _scores(pipeline: CaptionModel, memory: Memory, choices: Sequence[Words], place: int, contrast: Contrast) -> Array:
    """(choices,) how well each tells the photo at `place` from its neighbours."""
    count = len(next(iter(memory.values())))
    near = [(place + step) % count for step in range(1, min(contrast.neighbours, count - 1) + 1)]
    ids = TextBatch.collate(choices, pipeline.bundle.captioner.vocabulary).ids.to(pipeline.device)
    rows = torch.tensor([place, *near], device=pipeline.device)
    log_probs = pipeline.captioner.log_prob(select(memory, rows), ids.repeat(len(rows), 1)).view(len(rows), -1)
    score = log_probs[0]
    if near:
        others = log_probs[1:].logsumexp(0) - np.log(len(near))
        score = score - contrast.weight * others
    found: Array = score.double().cpu().numpy()
    return found


def choose(scores: Sequence[Array], gists: Sequence[Sequence[Words]], taken: set[Words]) -> list[int | None]:
    """For each photo a choice whose gist is not yet taken, the best where possible; None where there is none.

    The photo that would lose most by its second-best choice chooses first. What is chosen is added to `taken`.
    """
    picked: list[int | None] = [None] * len(scores)
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
            picked[photo] = best = int(free[photo][0])
            taken.add(gists[photo][best])
    return picked


def _told(
    pipeline: CaptionModel, scenes: SceneBatch, before: Sequence[PhotoCaption], words: Sequence[Words]
) -> list[PhotoCaption]:
    """The photos' captions with other words, which point where they point."""
    bundle = pipeline.bundle
    found = likelihood(pipeline.captioner, scenes, bundle.captioner.vocabulary, words)
    results = []
    for one, said in zip(before, choose_boxes(bundle, [each.caption for each in found], scenes), strict=True):
        sure = bundle.calibration.of(said)
        results.append(
            replace(
                one,
                words=said.words,
                log_prob=said.log_prob,
                trace=said.trace,
                confidence=sure,
                low_confidence=sure < bundle.calibration.low,
            )
        )
    return results
