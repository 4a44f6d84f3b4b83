"""What a row would do, checked without training: its model is built, its files are looked for, steps are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sightline.errors import SightlineError
from sightline.text.vocabulary import SPECIALS
from sightline.training.data_config import DataConfig
from sightline.training.model_size import outline
from sightline.training.recipe import Recipe
from sightline.training.recipe_photos import plural, read_photos
from sightline.training.stage import Stage
from sightline.training.supervision import refuse_captions, supervision


@dataclass(frozen=True)
class Check:
    """What was found out about a row.

    Attributes:
        stages: name to how long it takes, in words.
        missing: files and folders that are not there.
        wrong: what would fail, or leave no record.
    """

    stages: dict[str, str] = field(default_factory=dict)
    missing: tuple[Path, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the row can be run."""
        return not self.missing and not self.wrong


@dataclass
class Checker:
    """Checks rows; captions that several rows share are read once.

    Attributes:
        base: what the data's root is relative to.
    """

    base: Path
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, recipe: Recipe, paper: str) -> Check:
        """Build the model of a row, look for its files, count its steps."""
        paths = dict.fromkeys(recipe.data.path(path, self.base) for path in files_of(recipe))
        missing = tuple(path for path in paths if not path.exists())
        wrong: list[str] = []
        stages: dict[str, str] = {}
        try:
            refuse_captions(paper, supervision(recipe, base=self.base))
            outline(recipe.model, len(SPECIALS))
            read = {recipe.data.path(path, self.base) for path in captions_of(recipe.data)}
            counted = not read.intersection(missing)
            stages = {stage.name: self.length(stage, recipe.data, counted) for stage in recipe.ordered()}
        except SightlineError as error:
            wrong.append(str(error))
        return Check(stages, missing, tuple(wrong))

    def length(self, stage: Stage, data: DataConfig, counted: bool = True) -> str:
        """How long a stage takes. Steps of an epoch are counted before photos without features are left out."""
        if stage.steps:
            return plural(stage.steps, "step")
        epochs = plural(stage.epochs, "epoch")
        if stage.batch.pool != "train" or not counted:
            return epochs
        photos, sentences = self._count(data)
        batches = max(1, (sentences if stage.batch.of == "pairs" else photos) // stage.batch.size)
        return f"{epochs} of {plural(max(1, batches // stage.accumulate), 'step')}"

    def _count(self, data: DataConfig) -> tuple[int, int]:
        """Photos and captions to train on."""
        key = str((data.root, data.captions, data.splits, data.shares, data.images, data.train, data.max_photos))
        if key not in self._counts:
            photos = read_photos(data, self.base, []).get("train", ())[: data.max_photos or None]
            self._counts[key] = len(photos), sum(len(photo.sentences) for photo in photos)
        return self._counts[key]


def captions_of(data: DataConfig) -> Iterator[Path]:
    """The files that tell how many photos and captions there are."""
    yield from data.captions if isinstance(data.captions, tuple) else (data.captions,)
    yield from data.splits.values()


def files_of(recipe: Recipe) -> Iterator[Path]:
    """Every file and folder that a row reads; features that will be made from photos are not needed before."""
    data = recipe.data
    yield from captions_of(data)
    features = None if data.encoder else data.features
    read = (data.images, data.boxes, features, data.concepts, data.corpus, data.grounding)
    boxed = () if data.boxed is None else (data.boxed.images, data.boxed.boxes, data.boxed.photos)
    yield from (path for path in (*read, *boxed) if path is not None)
    if data.dictionary not in ("coco", "entities"):
        yield Path(data.dictionary)
    for name in (recipe.start, *recipe.measure):
        if name and not name.startswith(("row:", "recipe:")):
            yield Path.cwd() / name
