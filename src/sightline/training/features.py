"""The scenes of a recipe's photos: features matched with captions by id, kept in memory or read from disk."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from sightline.data.concept_dictionary import MIN_SCORE, ConceptDictionary
from sightline.data.formats import identify
from sightline.data.image_list import match_photos
from sightline.data.records import CaptionedPhoto, SceneSource
from sightline.errors import ConfigError, CountError, DataError, DuplicateRecordError, MissingRecordError, plural, some
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import Vocabulary
from sightline.training.data_config import DataConfig, way_to_make
from sightline.training.tensor_tables import PARTS, Pool, SceneStream, SceneTable, parts_of

SAMPLES = 16  # scenes by which the memory of all is estimated
ENOUGH = 100  # photos, in one of which something must be named


@dataclass(frozen=True, eq=False)
class PhotoScenes:
    """Scenes by the ids that captions use, whatever ids the files of features and concepts have."""

    features: SceneSource | None  # where scenes come from; None where photos have concepts alone
    feature_of: Mapping[str, str]  # the id of a photo there
    # where concepts come from, if not from the features, and the id of a photo there; of several, a photo has all
    named: tuple[tuple[SceneSource, Mapping[str, str]], ...] = ()
    dictionary: ConceptDictionary | None = None  # from what is named there to concepts; None leaves scenes as they are
    min_score: float = MIN_SCORE  # of a sure concept
    unsure: Mapping[str, Concept] = field(default_factory=dict)  # the concept of photos that have no sure one

    def __getitem__(self, id: str) -> Scene:
        scene = Scene(id) if self.features is None else self.features[self.feature_of[id]]
        if self.dictionary is not None:
            return replace(scene, id=id, concepts=self.concepts_of(id))
        return scene if scene.id == id else replace(scene, id=id)

    def concepts_of(self, id: str) -> tuple[Concept, ...]:
        """The concepts of a photo: the sure ones, else what `unsure` says, else none."""
        return self.rank_concepts(id, self.min_score) or ((self.unsure[id],) if id in self.unsure else ())

    def rank_concepts(self, id: str, min_score: float = 0.0) -> tuple[Concept, ...]:
        """The concepts of a photo with this score or more, the surest first."""
        if self.dictionary is None:
            return ()
        sources = self.named or (() if self.features is None else ((self.features, self.feature_of),))
        concepts = [concept for scenes, of in sources if id in of for concept in scenes[of[id]].concepts]
        return self.dictionary.of_scene(Scene(id, concepts=tuple(concepts)), min_score)


def feature_pools(
    config: DataConfig,
    photos: Mapping[str, Sequence[CaptionedPhoto]],
    needs: Sequence[str],
    dictionary: ConceptDictionary | None,
    vocabulary: Vocabulary,
    notes: list[str],
) -> dict[str, Pool]:
    """The scenes of each split, with concepts where a `dictionary` names them; captions come later.

    Photos without features are an error, unless the config says otherwise.
    """
    if not photos:
        return {}
    if config.features is None and (not config.concept_files or set(needs) != {"concepts"}):
        what = f"the model reads {', '.join(needs)} of photos, and there are no features"
        raise ConfigError(what, fix="give data.features; `sightline data formats` lists the formats that hold features")
    source = _source(config, photos, dictionary, notes)
    kept = {role: _keep(config, part, source, notes, role) for role, part in photos.items()}
    ids = [id for part in kept.values() for id in part]
    if not ids:
        raise CountError("no photo is left", fix="check the features, the concepts and the splits")
    in_memory = _fits(config, source, ids, needs, notes)
    words = None if dictionary is None else vocabulary
    pools: dict[str, Pool] = {}
    for role, part in kept.items():
        if part and in_memory:
            pools[role] = Pool(part, SceneTable.build((source[id] for id in part), needs, words))
        elif part:
            pools[role] = Pool(part, SceneStream(source.__getitem__, part, tuple(needs), words))
    return pools


def _source(
    config: DataConfig,
    photos: Mapping[str, Sequence[CaptionedPhoto]],
    dictionary: ConceptDictionary | None,
    notes: list[str],
) -> PhotoScenes:
    """Features and concepts of all photos, matched with them by their names."""
    listed = [photo for part in photos.values() for photo in part]
    ids = {photo.id: photo.id for photo in listed}
    source = PhotoScenes(None, ids, dictionary=dictionary, min_score=config.min_score)
    if config.features is not None:
        path = config.path(config.features)
        if not path.exists() and (way := way_to_make(path)):
            raise DataError("no such file or folder", where=path, fix=f"add {way}, and it is made on the way")
        features = open_scenes(path)
        fix = "check that captions and features name photos alike, extract the missing ones, or say --allow-missing"
        feature_of, missing = match_all(config, listed, features.ids(), path, "have no features", fix)
        source = replace(source, features=features, feature_of=feature_of)
        all_there = f"All {plural(len(listed), 'photo')} have features in {path}."
        notes.append(f"{missing}. They are left out." if missing else all_there)
    if dictionary is not None:
        named = []
        for path in map(config.path, config.concept_files):
            scenes = open_scenes(path)
            named_of = match_some(listed, scenes.ids(), path, fix="captions and concepts must name photos alike")
            if not any(scenes[id].concepts for id in islice(named_of.values(), ENOUGH)):
                notes.append(f"Warning: {path} names nothing in {plural(min(len(named_of), ENOUGH), 'photo')}.")
            named.append((scenes, named_of))
        source = replace(source, named=tuple(named))
        source = replace(source, unsure=_unsure(photos, source, notes))
    return source


def open_scenes(path: Path) -> SceneSource:
    kind = identify(path)
    if kind.scenes is None:
        raise ConfigError(f"{kind.name} holds no features", where=path, fix="`sightline data formats` lists what does")
    return kind.scenes(path)


def match(photos: Sequence[CaptionedPhoto], ids: Sequence[str], where: Path) -> dict[str, str]:
    """Photo id to feature id, as `match_photos` finds it; one feature of two photos is an error."""
    feature_of = match_photos(photos, map(CaptionedPhoto, ids))
    photo_of: dict[str, str] = {}
    for photo, feature in feature_of.items():
        if photo_of.setdefault(feature, photo) != photo:
            what = f"the feature {feature} would be that of photo {photo_of[feature]} and of photo {photo}"
            fix = "give features whose ids are the photos' file names, folders included"
            raise DuplicateRecordError(what, where=where, fix=fix)
    return feature_of


def match_some(photos: Sequence[CaptionedPhoto], ids: Sequence[str], where: Path, fix: str) -> dict[str, str]:
    """`match`; an error where no photo has one."""
    if not (id_of := match(photos, ids, where)):
        what = f"none of {plural(len(photos), 'photo')}, such as {photos[0].id}, is among its {len(ids):,}"
        raise MissingRecordError(what, where=where, fix=fix)
    return id_of


def match_all(
    config: DataConfig, photos: Sequence[CaptionedPhoto], ids: Sequence[str], where: Path, lack: str, fix: str
) -> tuple[dict[str, str], str]:
    """`match`, and a sentence on the photos that have no match; they are an error unless the config allows it.

    `lack` says what they lack, as in `have no features`.
    """
    feature_of = match(photos, ids, where)
    missing = [photo.id for photo in photos if photo.id not in feature_of]
    what = f"{len(missing):,} of {plural(len(photos), 'photo')} {lack}: {some(missing)}" if missing else ""
    if missing and (not feature_of or not (config.allow_missing or config.max_photos)):
        raise MissingRecordError(what, where=where, fix=fix)
    return feature_of, what


def _unsure(
    photos: Mapping[str, Sequence[CaptionedPhoto]], source: PhotoScenes, notes: list[str]
) -> dict[str, Concept]:
    """A concept for each photo without a sure one that models are measured by, so that none is left out there.

    It is the surest that the detector found; where it found nothing, the most frequent of the training photos, or of
    all where none is trained on.
    """
    listed = {role: [photo.id for photo in part if photo.id in source.feature_of] for role, part in photos.items()}
    concept_of: dict[str, Concept] = {}
    for role, ids in listed.items():
        bare = [id for id in ids if role != "train" and not source.concepts_of(id)]
        surest = {id: ranked[0] for id in bare if (ranked := source.rank_concepts(id))}
        nothing = [id for id in bare if id not in surest]
        concept_of |= surest
        if surest:
            notes.append(f"{plural(len(surest), 'photo')} of {role} without a sure concept: the surest one is taken.")
        counted = listed.get("train") or [id for part in listed.values() for id in part]
        counts = Counter(concept.name for id in counted for concept in source.concepts_of(id)) if nothing else Counter()
        for name, _ in counts.most_common(1):
            concept_of |= dict.fromkeys(nothing, Concept(name))
            notes.append(
                f"{plural(len(nothing), 'photo')} of {role} in which nothing was found: taken to show the most "
                f"frequent concept, {name}."
            )
    return concept_of


def _keep(
    config: DataConfig, photos: Sequence[CaptionedPhoto], source: PhotoScenes, notes: list[str], role: str
) -> tuple[str, ...]:
    """The ids of a split's photos that have features and, where needed, a concept; at most `max_photos`."""
    kept: list[str] = []
    without = 0
    for photo in photos:
        if len(kept) == (config.max_photos or len(photos)):
            break
        if photo.id in source.feature_of and source.dictionary is not None and not source.concepts_of(photo.id):
            without += 1
        elif photo.id in source.feature_of:
            kept.append(photo.id)
    if without:
        notes.append(f"{plural(without, 'photo')} of {role} left out: nothing that has a name was seen there.")
    if len(kept) < len(photos) and config.max_photos:
        notes.append(f"Of {role}, the first {plural(len(kept), 'photo')} are used.")
    if not kept and role == "train":
        raise CountError("no photo is left to train on", fix="check the features, the concepts and the splits")
    return tuple(kept)


def _fits(config: DataConfig, source: PhotoScenes, ids: Sequence[str], needs: Sequence[str], notes: list[str]) -> bool:
    """True where all scenes are kept in memory; every scene is taken to be as large as the largest of a few."""
    if config.cache != "auto":
        notes.append("Scenes are kept in memory." if config.cache == "memory" else "Scenes are read from disk.")
        return config.cache == "memory"
    places = np.linspace(0, len(ids) - 1, min(SAMPLES, len(ids))).astype(int)
    size = max(_bytes(source[ids[place]], needs) for place in places) * len(ids) / (1 << 30)
    fits = size <= config.budget
    what = "are kept in memory" if fits else "are read from disk as they are needed"
    notes.append(f"Scenes {what}: about {size:.2f} GiB, of {config.budget:g} GiB allowed.")
    return fits


def _bytes(scene: Scene, needs: Sequence[str]) -> int:
    parts = [getattr(scene, name) for name in PARTS if name in parts_of(needs)]
    return sum(int(part.nbytes) for part in parts if part is not None) + 64 * len(scene.concepts)
