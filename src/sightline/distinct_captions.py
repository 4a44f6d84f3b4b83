"""Captions that tell similar photos apart.

Photos of one folder often get the same caption. For each photo of such a group the captioner gives its best captions,
and the one is chosen that is likely for this photo and unlikely for its neighbours, the others of the group:

    log p(c | photo) - weight · log mean over neighbours of p(c | neighbour)

which is the contrastive idea of Dai and Lin (NIPS 2017), where training pushes a caption's probability up for its own
image and down for others, applied to choosing. No two photos get the same caption while there are others to choose.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from sightline.grounding.box_chooser import choose_boxes
from sightline.models.captioner import Captioner, Memory, select
from sightline.photo import Photo
from sightline.scene import Array
from sightline.vision.images import Source

AT_ONCE = 16  # photos of a group that are looked at together
MORE = 4  # times as many candidates, where all are taken
SMALL = frozenset("a an the is are was were be being some this that his her its their there".split())
Words = tuple[str, ...]


class CaptionModel(Protocol):
    """The part of a `sightline.Pipeline` that is used here."""

    bundle: Bundle
    captioner: Captioner
    device: torch.device

    def read(self, photo: Source) -> Photo: ...
    def scenes(self, photos: Sequence[Photo]) -> SceneBatch: ...


@dataclass(frozen=True)
class Contrast:
    """How captions are told apart."""

    weight: float = 0.7  # of the neighbours in the score above: 0 is the likeliest caption that no other photo has
    candidates: int = 10  # captions of a photo to choose among
    neighbours: int = 6  # photos of its group that a caption is compared on

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
    """Captions of a folder, made by a pipeline by such rules, in their order, those that are alike rewritten.

    Their photos are looked at again. `bad` is given the error of one that can no longer be read, whose caption stays.
    """
    results = list(captions)
    groups = alike([() if caption.warning else caption.words for caption in captions])
    grouped = {place for group in groups for place in group}
    taken = {gist(caption.words) for place, caption in enumerate(captions) if place not in grouped}
    for group in groups:
        rewritten = tell_group_apart(pipeline, [captions[place] for place in group], taken, rules, contrast, bad)
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
    results = list(captions)
    photos: dict[int, Photo] = {}
    for place, caption in enumerate(captions):
        try:
            photos[place] = pipeline.read(caption.path)
        except SightlineError as error:
            taken.add(gist(caption.words))
            if bad is not None:
                bad(error)
    parts = -(-len(photos) // AT_ONCE)
    for part in range(parts):
        places = list(photos)[part::parts]
        group = [(captions[place], photos[place]) for place in places]
        rewritten = _rewrite(pipeline, group, taken, rules or CAREFUL, contrast or Contrast())
        for place, caption in zip(places, rewritten, strict=True):
            results[place] = caption
    return results


@torch.inference_mode()
def _rewrite(
    pipeline: CaptionModel,
    group: Sequence[tuple[PhotoCaption, Photo]],
    taken: set[Words],
    rules: Rules,
    contrast: Contrast,
) -> list[PhotoCaption]:
    """The captions of photos that are compared with each other. Copies of one picture share theirs."""
    first: dict[bytes, int] = {}
    originals = [first.setdefault(photo.pixels.tobytes(), place) for place, (_, photo) in enumerate(group)]
    distinct = sorted(set(originals))
    bundle, captioner = pipeline.bundle, pipeline.captioner
    rules, names = split_rules(rules, bundle.captioner.vocabulary)
    scenes = pipeline.scenes([group[place][1] for place in distinct])
    memory = captioner.encode(scenes)
    words = [without_names(group[place][0].words, names) for place in distinct]
    _choose_words(pipeline, memory, words, rules_with_stand_ins(rules, names), taken, contrast)
    results = likelihood(captioner, scenes, bundle.captioner.vocabulary, words)
    captions = choose_boxes(bundle, [result.caption for result in results], scenes)
    captions = [write_names(caption, names, rules.must_include) for caption in captions]
    by_place = dict(zip(distinct, captions, strict=True))
    rewritten = []
    for place, (before, _) in zip(originals, group, strict=True):
        caption, confidence = by_place[place], bundle.calibration.of(by_place[place])
        said = replace(before, words=caption.words, log_prob=caption.log_prob, trace=caption.trace)
        low = confidence < bundle.calibration.low
        rewritten.append(replace(said, confidence=confidence, low_confidence=low))
    return rewritten


def _choose_words(
    pipeline: CaptionModel, memory: Memory, words: list[Words], rules: Rules, taken: set[Words], contrast: Contrast
) -> None:
    """Replace the caption of each photo in `words`; one keeps its caption where all its candidates are taken."""
    waiting = list(range(len(words)))  # rows of `memory`
    for count in (contrast.candidates, MORE * contrast.candidates):
        if not waiting:
            return
        candidates = _candidates(pipeline, memory, {row: words[row] for row in waiting}, rules, count)
        scores = [_scores(pipeline, memory, candidates[row], row, contrast) for row in waiting]
        choices = choose(scores, [list(map(gist, candidates[row])) for row in waiting], taken)
        for row, choice in zip(waiting, choices, strict=True):
            if choice is not None:
                words[row] = candidates[row][choice]
        waiting = [row for row, choice in zip(waiting, choices, strict=True) if choice is None]


def _candidates(
    pipeline: CaptionModel, memory: Memory, captions: Mapping[int, Words], rules: Rules, count: int
) -> dict[int, list[Words]]:
    """The best captions of each photo, by its row in `memory`, after the one that it has."""
    vocabulary, rows = pipeline.bundle.captioner.vocabulary, torch.tensor([*captions], device=pipeline.device)
    best = decode(pipeline.captioner, select(memory, rows), Beam(count, count), rules, vocabulary)
    candidates = {}
    for row, ids, log_probs in zip(captions, best.words.tolist(), best.log_probs.tolist(), strict=True):
        others = [tuple(vocabulary.decode(one)) for one, p in zip(ids, log_probs, strict=True) if p > -torch.inf]
        candidates[row] = list(dict.fromkeys([captions[row], *filter(None, others)]))
    return candidates


def _scores(pipeline: CaptionModel, memory: Memory, candidates: Sequence[Words], row: int, contrast: Contrast) -> Array:
    """(candidates,) how well each tells the photo of a row of `memory` from its neighbours."""
    count = len(next(iter(memory.values())))
    neighbours = [(row + step) % count for step in range(1, min(contrast.neighbours, count - 1) + 1)]
    ids = TextBatch.collate(candidates, pipeline.bundle.captioner.vocabulary).ids.to(pipeline.device)
    rows = torch.tensor([row, *neighbours], device=pipeline.device)
    log_probs = pipeline.captioner.log_prob(select(memory, rows), ids.repeat(len(rows), 1)).view(len(rows), -1)
    score = log_probs[0]
    if neighbours:
        score = score - contrast.weight * (log_probs[1:].logsumexp(0) - np.log(len(neighbours)))
    scores: Array = score.double().cpu().numpy()
    return scores


def choose(scores: Sequence[Array], gists: Sequence[Sequence[Words]], taken: set[Words]) -> list[int | None]:
    """For each photo a candidate whose gist is not yet taken, the best where possible; None where there is none.

    The photo that would lose most by its second-best candidate chooses first. What is chosen is added to `taken`.
    """
    chosen: list[int | None] = [None] * len(scores)
    waiting = set(range(len(scores)))
    while waiting:
        free = {
            photo: [at for at in np.argsort(-scores[photo], kind="stable") if gists[photo][at] not in taken]
            for photo in waiting
        }
        loss = {
            photo: scores[photo][places[0]] - scores[photo][places[1]] if len(places) > 1 else np.inf
            for photo, places in free.items()
        }
        photo = max(sorted(waiting), key=lambda photo: loss[photo])
        waiting.remove(photo)
        if free[photo]:
            chosen[photo] = best = int(free[photo][0])
            taken.add(gists[photo][best])
    return chosen
