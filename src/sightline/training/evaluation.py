"""How a trained model is measured on a split: captions by the scorecard, matching by recalls, words by their boxes.

All shares are percentages, CIDEr and SPICE too (times 100), as papers print them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sightline.batch import SceneBatch
from sightline.caption import Caption
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.data.records import GroundedPhoto
from sightline.decoding.decode import captions as decode_captions
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam, Greedy, Strategy
from sightline.errors import ConfigError, plural
from sightline.metrics.bootstrap import PerImage
from sightline.metrics.caption_style import sentiment_shares
from sightline.metrics.ngrams import IntArray
from sightline.metrics.novel import novel_f1
from sightline.metrics.retrieval import (
    KS,
    Similarity,
    consecutive_folds,
    evaluate_retrieval,
    mean_similarity,
    self_retrieval,
)
from sightline.metrics.scorecard import METRICS, scorecard
from sightline.models.captioner import Captioner, select
from sightline.models.end_to_end import EndToEnd
from sightline.models.ensemble import Ensemble
from sightline.models.matcher import AligningMatcher, Embedding, Matcher
from sightline.text.vocabulary import PAD
from sightline.text.vocabulary import rule as named_rule
from sightline.training.data import build_data
from sightline.training.data_config import DataConfig
from sightline.training.new_model import CachedFeatures, config_of
from sightline.training.objective import mode, refuse_other_vision
from sightline.training.tensor_tables import Pool
from sightline.training.word_boxes import attention_accuracy, f1_of_captions

Progress = Callable[[Sequence[int]], "Iterator[int] | Sequence[int]"]
WriteCaptions = Callable[[SceneBatch], Sequence[Caption]]  # from photos, as pixels, to the caption of each


@dataclass(frozen=True)
class Evaluation:
    """How a model is measured."""

    strategy: Strategy = field(default_factory=lambda: Beam(size=3))  # how captions are decoded
    rules: Rules = field(default_factory=Rules)  # what they may and may not hold
    # of the scorecard: bleu, meteor, rouge, cider, spice; () takes all that are installed
    metrics: tuple[str, ...] = ()
    while_training: tuple[str, ...] = ("cider",)  # the metrics by which a stage may choose its best model
    # captions by which it is chosen are decoded greedily, which is quicker; otherwise by `strategy`
    greedy_in_training: bool = True
    self_retrieval: bool = False  # whether captions find their own photo again (CL, Table 1)
    novel: bool = False  # F1 of the eight words of the held-out COCO protocol (`metrics.novel`), for `data.novel`
    grounding: bool = False  # whether words point at the right boxes; needs grounding annotations
    folds: int = 0  # matching is the mean of so many folds of `fold_size` photos; 0 ranks among all
    fold_size: int = 1000  # photos in a fold
    batch: int = 64  # photos at a time

    def in_training(self) -> Evaluation:
        """The quick form, for choosing a model while it is trained."""
        strategy = Greedy() if self.greedy_in_training else self.strategy
        return Evaluation(strategy, self.rules, self.while_training, batch=self.batch)


@torch.no_grad()
def evaluate(
    checkpoint: Checkpoint,
    pool: Pool,
    evaluation: Evaluation,
    *,
    grounded: Mapping[str, GroundedPhoto] | None = None,
    sentiment: Mapping[str, frozenset[str]] | None = None,
    progress: Progress = iter,
    write: WriteCaptions | None = None,
) -> Measurement:
    """Measure a model on a split.

    `grounded` are annotations by photo; `sentiment` are words that carry one, by its name, and captions are measured by
    their share. `progress` wraps the photos that are captioned, `write` gives the captions instead of the evaluation's
    strategy and rules.
    """
    model, rule, words = checkpoint.model, named_rule(checkpoint.text_rule), checkpoint.vocabulary
    measured = Measurement({}, {}, PerImage(pool.ids), photos=len(pool))
    metrics, captions, per_image = measured.metrics, measured.captions, measured.per_image  # filled in below
    annotated = {id: grounded[id] for id in pool.ids if id in grounded} if grounded else {}

    def accuracy(model: Captioner | AligningMatcher) -> dict[str, float]:
        if not annotated:
            raise ConfigError("grounding is measured with annotations, and there are none", fix="give data.grounding")
        return attention_accuracy(model, words, rule, pool, annotated, per_image)

    with mode(model, False):
        if isinstance(model, Matcher):
            metrics |= retrieval([model], pool, evaluation, per_image)
            if evaluation.grounding and isinstance(model, AligningMatcher):
                metrics |= accuracy(model)
            return measured
        metrics |= {"loss": token_loss(model, pool, evaluation.batch)} if pool.texts is not None else {}
        if not (pool.references and any(pool.references)):
            return measured  # a pool of texts alone has nothing to score captions against
        trace = evaluation.grounding
        captions |= write_captions(checkpoint, pool, evaluation, trace=trace, progress=progress, write=write)
        references = dict(zip(pool.ids, pool.references, strict=True))
        texts = {id: " ".join(caption.words) for id, caption in captions.items()}
        scores = scorecard(texts, references, evaluation.metrics or None).scores
        for name, value in scores.corpus.items():
            metrics[_NAMES.get(name, name)] = value if name in _AS_READ else 100 * value
            if name not in _OF_THE_CORPUS:
                per_image.add(_NAMES.get(name, name), [scores.per_image[id][name] for id in pool.ids])
        if evaluation.novel:
            metrics |= novel_f1(texts, references)
        if evaluation.self_retrieval:
            metrics |= _self_retrieval(checkpoint, model, pool, captions, per_image)
        if evaluation.grounding:
            metrics |= accuracy(model) | f1_of_captions(captions, pool, annotated, per_image)
        metrics |= sentiment_shares([caption.words for caption in captions.values()], sentiment or {})
        return measured


# What papers call the keys of the scorecard.
_NAMES = {f"Bleu_{n}": f"BLEU-{n}" for n in range(1, 5)} | {"ROUGE_L": "ROUGE-L"}
_AS_READ = {key for metric in METRICS.values() if not metric.fraction for key in metric.keys}  # percentages, counts
_OF_THE_CORPUS = {*(f"Bleu_{n}" for n in range(1, 5)), "METEOR", *_AS_READ}  # no means over photos


@torch.no_grad()
def write_captions(
    checkpoint: Checkpoint,
    pool: Pool,
    how: Evaluation,
    *,
    trace: bool = False,
    progress: Progress = iter,
    write: WriteCaptions | None = None,
) -> dict[str, Caption]:
    """The best caption of every photo of a split, or what `write` gives for it."""
    model = checkpoint.captioner()
    device = next(model.parameters()).device

    def decode(scenes: SceneBatch) -> Sequence[Caption]:
        beams = decode_captions(model, scenes, checkpoint.vocabulary, how.strategy, how.rules, trace)
        return [beam[0] for beam in beams]

    best: dict[str, Caption] = {}
    for first in progress(range(0, len(pool), how.batch)):
        scenes = pool.scene_batch(torch.arange(first, min(first + how.batch, len(pool)))).to(device)
        best.update(zip(scenes.ids, (write or decode)(scenes), strict=True))
    return best


@torch.no_grad()
def token_loss(model: Captioner, pool: Pool, batch: int = 64) -> float:
    """The mean negative log-probability of the split's words and ENDs. Captions of one photo share its encoding."""
    texts, first = pool.captions("the loss")
    owner = torch.repeat_interleave(first.diff())  # (M,) the photo of each caption
    device = next(model.parameters()).device
    total, tokens = 0.0, 0
    for rows in torch.split(torch.arange(len(texts)), 2 * batch):
        photos, places = torch.unique(owner[rows], return_inverse=True)
        memory = model.encode(pool.scene_batch(photos).to(device))
        memory = select(memory, places.to(device))
        ids = texts.batch(rows).ids.to(device)
        total -= float(model.log_prob(memory, ids).double().sum())
        tokens += int((ids[:, 1:] != PAD).sum())
    return total / max(1, tokens)


@torch.no_grad()
def retrieval(
    models: Sequence[Matcher], pool: Pool, evaluation: Evaluation, per_image: PerImage | None = None
) -> dict[str, float]:
    """Recalls both ways, the sum of all six, and median ranks. Every photo's first five captions take part.

    Several models score together, by the mean of their scores. What each photo adds is put into `per_image`.
    """
    _, first = pool.captions("matching")
    if evaluation.folds * evaluation.fold_size > len(pool):
        raise ConfigError(
            f"{evaluation.folds} folds of {evaluation.fold_size:,} photos are more than the {len(pool):,} of the split",
            fix="set evaluate.folds to 0, which ranks among all, or evaluate.fold_size to less",
        )
    photo = torch.repeat_interleave(first.diff())  # (M,) of each caption
    place = torch.arange(len(photo)) - first[photo]  # among the captions of its photo
    chosen = (place < 5).nonzero()[:, 0]
    owner = photo[chosen].numpy()
    scores_of = tuple(_similarity(model, pool, evaluation, chosen) for model in models)
    folds = consecutive_folds(evaluation.fold_size, evaluation.folds) if evaluation.folds else None
    scores = evaluate_retrieval(mean_similarity(scores_of), owner, folds=folds)
    if per_image is not None:  # recalls by photo; its captions count together, and folds are consecutive
        photos = len(per_image.ids)
        text_ranks = np.concatenate([fold.image_to_text for fold in scores.ranks])
        image_ranks = np.concatenate([fold.text_to_image for fold in scores.ranks])
        ranked = np.arange(photos) < len(text_ranks)
        captions = np.bincount(owner[: len(image_ranks)], minlength=photos)
        for k in KS:
            per_image.add(f"i2t R@{k}", np.pad(text_ranks <= k, (0, photos - len(text_ranks))), ranked)
            hits = np.bincount(owner[: len(image_ranks)], image_ranks <= k, minlength=photos)
            per_image.add(f"t2i R@{k}", hits, captions)
    return {name.replace("_", " "): value for name, value in scores.metrics.items()}


def _similarity(model: Matcher, pool: Pool, evaluation: Evaluation, chosen: Tensor) -> Similarity:
    """The scores of photos and `chosen` captions, which are embedded once."""
    table, _ = pool.captions("matching")
    device = next(model.parameters()).device
    photos = torch.split(torch.arange(len(pool)), evaluation.batch)
    images = _join([model.embed_images(pool.scene_batch(rows).to(device)) for rows in photos])
    width = int(table.lengths[chosen].max())  # of all, so that embeddings can be joined
    batches = torch.split(chosen, 4 * evaluation.batch)
    texts = _join([model.embed_texts(table.batch(rows, width).to(device)) for rows in batches])

    def similarity(rows: IntArray, columns: IntArray) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        left = {name: part[torch.from_numpy(rows).to(part.device)] for name, part in images.items()}
        right = {name: part[torch.from_numpy(columns).to(part.device)] for name, part in texts.items()}
        return model.similarity(left, right).float().cpu().numpy()

    return similarity


def _self_retrieval(
    checkpoint: Checkpoint, model: Captioner, pool: Pool, captions: Mapping[str, Caption], per_image: PerImage
) -> dict[str, float]:
    encoded = [torch.tensor(checkpoint.vocabulary.encode(captions[id].words)) for id in pool.ids]
    words = pad_sequence(encoded, batch_first=True, padding_value=PAD)
    device = next(model.parameters()).device
    scores = self_retrieval(model, lambda rows: pool.scene_batch(torch.tensor(rows)).to(device), words)
    shares = {f"self-retrieval R@{k}": value for k, value in scores.recalls.items()}
    for k in scores.recalls:
        per_image.add(f"self-retrieval R@{k}", np.asarray(scores.ranks) <= k)
    return {**shares, "self-retrieval pool": float(scores.pool)}


def _join(parts: Sequence[Embedding]) -> Embedding:
    """Embeddings of several batches as one; only what similarity needs is kept where a global vector is enough."""
    names = ("vector",) if "vector" in parts[0] else tuple(parts[0])
    return {name: torch.cat([part[name] for part in parts]) for name in names}


@dataclass(frozen=True)
class Measurement:
    """The result of measuring models on a split."""

    metrics: dict[str, float]  # by name
    captions: dict[str, Caption]  # by photo; none of matchers
    per_image: PerImage  # what each photo adds to the metrics
    photos: int  # how many were measured on
    split: str = ""  # `test`, or `val` where the data names no test split
    notes: tuple[str, ...] = ()  # on how many photos, and which are left out
    fingerprint: str = ""  # of the scenes; "" where unknown


def measure(
    members: Sequence[Checkpoint],
    config: DataConfig,
    how: Evaluation,
    *,
    base: Path = Path(),
    progress: Progress = iter,
    write: WriteCaptions | None = None,
) -> Measurement:
    """Measure models on the test split of the data, or on val without one; captions are split by the models' rule.

    `write` gives the captions of a model with its own vision model, where they are not decoded as `how` says.
    """
    first = members[0]
    for other in members[1:]:
        if isinstance(other.model, Matcher) != isinstance(first.model, Matcher):
            raise ConfigError("a captioner and a matcher cannot be measured together", fix="give models of one sort")
        if other.vocabulary != first.vocabulary or other.text_rule != first.text_rule:
            what = "models with different words cannot be measured together"
            raise ConfigError(what, fix="train them on the same captions")
    split, names = ("test", config.test) if config.test else ("val", config.val)
    needs = (need for member in members for need in member.model.needs if need != "pixels")
    parts = tuple(dict.fromkeys((*config.parts, *needs)))
    vision = config_of(first.model.vision) if isinstance(first.model, EndToEnd) else CachedFeatures()
    config = replace(config, rule=first.text_rule, vocabulary="rule", corpus=None, sentiment="", parts=parts)
    alone = replace(config, train=(), val=(), test=names)  # no other photo is read
    data = build_data(alone, first.model.config, base=base, vocabulary=first.vocabulary, vision=vision)
    for member in members:
        refuse_other_vision("the model", member.fingerprint, data.fingerprint)
    pool = data.pools["test"]
    left_out = (sentence for sentence in data.notes if "left out" in sentence or "concept" in sentence)
    which = "; the captions have no splits" if config.shares == {names[0]: 1} else f" of {' and '.join(names)}"
    notes = (f"Measured on {plural(len(pool), 'photo')}{which}.", *left_out)
    matchers = [member.model for member in members if isinstance(member.model, Matcher)]
    if len(matchers) > 1:
        per_image = PerImage(pool.ids)
        measured = Measurement(retrieval(matchers, pool, how, per_image), {}, per_image, len(pool))
    else:
        captioners = [member.model for member in members if isinstance(member.model, Captioner)]
        model = Ensemble(captioners).eval() if len(captioners) > 1 else first.model
        annotated = partial(evaluate, grounded=data.grounded, sentiment=data.sentiment)
        measured = annotated(replace(first, model=model), pool, how, progress=progress, write=write)
    return replace(measured, split=split, notes=notes, fingerprint=data.fingerprint)
