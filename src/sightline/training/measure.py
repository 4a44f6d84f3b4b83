"""Trained models measured on a split of any data: one, or several together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sightline.caption import Caption
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import ConfigError
from sightline.metrics.per_image import PerImage
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import EndToEnd
from sightline.models.ensemble import Ensemble
from sightline.models.matcher import Matcher
from sightline.training.data import Data, DataConfig, build_data
from sightline.training.evaluation import Evaluation, Watch, evaluate, retrieval
from sightline.training.recipe_photos import plural
from sightline.training.vision_config import Cached, config_of


@dataclass(frozen=True)
class Measurement:
    """What came out.

    Attributes:
        split: `test`, or `val` where the data names no test split.
        photos: how many.
        metrics: by name.
        captions: by photo; none of matchers.
        told: on how many photos, and which are left out.
        per_image: what each photo adds to the metrics.
        fingerprint: of the scenes; "" where unknown.
    """

    split: str
    photos: int
    metrics: dict[str, float]
    captions: dict[str, Caption] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    per_image: PerImage = field(default_factory=PerImage)
    fingerprint: str = ""


def measure(
    members: Sequence[Checkpoint], config: DataConfig, how: Evaluation, *, base: Path = Path(), watch: Watch = iter
) -> Measurement:
    """Measure models on the test split of the data, or on val without one; captions are split by the models' rule."""
    first = members[0]
    _check(members)
    split, names = ("test", config.test) if config.test else ("val", config.val)
    needs = (need for member in members for need in member.model.needs if need != "pixels")
    parts = tuple(dict.fromkeys((*config.parts, *needs)))
    vision = config_of(first.model.vision) if isinstance(first.model, EndToEnd) else Cached()
    config = replace(config, rule=first.text_rule, vocabulary="rule", corpus=None, sentiment="", parts=parts)
    alone = replace(config, train=(), val=(), test=names)  # no other photo is read
    data = build_data(alone, first.model.config, base=base, vocabulary=first.vocabulary, vision=vision)
    _refuse_other_scenes(members, data)
    pool = data.pools["test"]
    left_out = (sentence for sentence in data.told if "left out" in sentence or "concept" in sentence)
    which = ": all, as the captions have no splits" if config.shares == {names[0]: 1} else f" of {' and '.join(names)}"
    told = (f"Measured on {plural(len(pool), 'photo')}{which}.", *left_out)
    matchers = [member.model for member in members if isinstance(member.model, Matcher)]
    kept = PerImage(pool.ids)
    if len(matchers) > 1:
        recalls = retrieval(matchers, pool, how, kept)
        return Measurement(split, len(pool), recalls, told=told, per_image=kept, fingerprint=data.fingerprint)
    captioners = [member.model for member in members if isinstance(member.model, Captioner)]
    model = Ensemble(captioners).eval() if len(captioners) > 1 else first.model
    grounded = {id: data.grounded[id] for id in pool.ids if id in data.grounded}
    said: dict[str, Caption] = {}
    whole = replace(first, model=model)
    metrics = evaluate(
        whole, pool, how, grounded=grounded, sentiment=data.sentiment, watch=watch, said=said, per_image=kept
    )
    return Measurement(split, len(pool), metrics, said, told, kept, data.fingerprint)


def _check(members: Sequence[Checkpoint]) -> None:
    """Refuse models that cannot be measured together."""
    first = members[0]
    for other in members[1:]:
        if isinstance(other.model, Matcher) != isinstance(first.model, Matcher):
            raise ConfigError("a captioner and a matcher cannot be measured together", fix="give models of one sort")
        if other.vocabulary != first.vocabulary or other.text_rule != first.text_rule:
            raise ConfigError(
                "models with different words cannot be measured together", fix="train them on the same captions"
            )


def _refuse_other_scenes(members: Sequence[Checkpoint], data: Data) -> None:
    for member in members:
        if member.fingerprint and data.fingerprint and member.fingerprint != data.fingerprint:
            raise ConfigError(
                f"the model was trained on scenes {member.fingerprint}, and these are {data.fingerprint}",
                fix="use features of the same vision model",
            )
