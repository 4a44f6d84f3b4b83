"""Finding photos by words or by a photo, by vectors and captions together; where an index is, and whose it is."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from sightline.errors import ConfigError, DataError, SightlineError
from sightline.files import PathLike, fingerprint
from sightline.scene import Array
from sightline.search import exact, lance
from sightline.search.engine import STOP_WORDS, Candidate, keywords
from sightline.search.exact import ExactIndex
from sightline.search.lance import LanceIndex
from sightline.text.vocabulary import Vocabulary, rule
from sightline.vision.images import Source
from sightline.vision.object_storage import is_address

if TYPE_CHECKING:  # PyTorch is imported only once there is an index
    from sightline.checkpoint.bundle import Bundle

NAME = ".sightline-index"
Engine = ExactIndex | LanceIndex
CANDIDATES = 100  # of vectors and of captions, from which the hits are chosen
CAPTION_WEIGHT = 0.1  # what the best caption is worth, in parts of how far apart the nearest candidates are
MATCH_COSINE = 0.38  # of people's captions, 95 % are nearer than this to their own photo (tools/fit_search.py)
NOUN_COSINE = 0.5  # of a single word, to which all photos are nearer: from here on most photos that are found show it
AVOID_WEIGHT = 0.5  # how much of what is not wanted is subtracted: more also loses what is wanted
_MODELS: WeakKeyDictionary[Bundle, str] = WeakKeyDictionary()  # names that were computed


class SearchModel(Protocol):
    """What searching asks of a model: `sightline.Pipeline` has it."""

    bundle: Bundle

    def vectors(self, photos: Sequence[Source]) -> Array: ...
    def text_vectors(self, sentences: Sequence[str]) -> Array: ...
    def ground(self, photo: Source, sentence: str) -> Any: ...


@dataclass(frozen=True)
class Hit:
    """A photo that was found.

    Attributes:
        path: of the photo, absolute.
        score: how well it fits: the cosine of the vectors, and more where the caption says the words too. For words
            that the model does not know, what the caption says of them, as a part of what the best one says.
        caption: None where photos were indexed without.
        weak: whether it is a weaker match: neither its caption nor its concepts say much of the words, and it is less
            near to them than nearly all photos are to what people say of them, or its score is nearer to that of the
            worst candidate than to that of the best.
        why: where in the photo the words are, in the form of `sightline ground`; None unless asked for.
    """

    path: str
    score: float
    caption: str | None
    weak: bool = False
    why: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        fields = {"path": self.path, "score": round(self.score, 4), "caption": self.caption, "weak": self.weak}
        return fields if self.why is None else {**fields, "why": self.why}


class PhotoIndex:
    """The photos of a store, to search in. It may be written to meanwhile; each search sees what is safe there.

    A store is a folder, or an address such as s3://bucket/photos; by default the nearest `.sightline-index`.
    """

    def __init__(self, store: PathLike | None = None) -> None:
        self.store = os.fspath(nearest_store() if store is None else store)
        self._engine: Engine = open_index(self.store)

    def __len__(self) -> int:
        return len(self._current())

    def search(
        self,
        pipeline: SearchModel,
        words: str = "",
        *,
        photo: Source | None = None,
        avoid: str = "",
        count: int = 10,
        captions: bool = True,
        exact: bool | None = None,
        explain: bool = False,
        leave_out: Collection[str] = (),
    ) -> list[Hit]:
        """The photos that fit best, the best first.

        Words of which the model knows none find only photos whose captions say them.

        Args:
            pipeline: the model that the index was made with.
            words: what to look for.
            photo: what to look for; with words, both count alike.
            avoid: what not to find.
            count: photos, at most.
            captions: whether what captions say counts too, besides vectors.
            exact: compare every vector (True), or use the approximate index (False); by default what is usual there.
            explain: look again at the hits, for where in them the words are.
            leave_out: paths of photos that are not wanted, such as the one whose like is looked for.
        """
        if count < 1:
            raise ConfigError(f"{count} photos were asked for", fix="ask for 1 or more")
        engine = self._current()
        if engine.maker != model_of(pipeline.bundle):
            fix = "give that model with --model, or index again with --force"
            raise ConfigError("this index was made with another model", where=self.store, fix=fix)
        by_text = photo is None and bool(words.strip()) and not means_something(pipeline, words)
        query = _query_vector(pipeline, words, photo)
        if avoid.strip() and not by_text and means_something(pipeline, avoid):
            query = without(query, _unit(pipeline.text_vectors([avoid])[0]))
        many = max(CANDIDATES, 2 * count) + len(leave_out)  # the rest tells which hits are weak
        candidates = engine.find(query, keywords(words) if captions else [], many, exact)
        unwanted = set(keywords(avoid)) if captions else set()
        candidates = [
            one
            for one in candidates
            if one.path not in leave_out and not (unwanted and unwanted <= set(keywords(one.caption or "")))
        ]
        ranked = rank_by_text(candidates) if by_text else rank(candidates)
        least = -np.inf  # cosines with a photo, or with words that mean nothing, are of another kind
        if words.strip() and photo is None and not by_text:
            least = NOUN_COSINE if len(keywords(words)) == 1 and not avoid.strip() else MATCH_COSINE
        weak = weaker(ranked, least)
        hits = [
            Hit(one.path, score, one.caption, is_weak)
            for (one, score), is_weak in zip(ranked[:count], weak[:count], strict=True)
        ]
        return [_explain(hit, pipeline, words) for hit in hits] if explain and words.strip() else hits

    def relative(self, paths: Sequence[str]) -> list[str]:
        """Paths of photos as seen from the folder that was indexed; of photos that are not there, the name alone."""
        roots = {row.path: f"{row.root.rstrip('/')}/" for row in self._current().rows(paths)}
        below = {path: path.removeprefix(root) for path, root in roots.items() if path.startswith(root)}
        return [below.get(path) or path.rpartition("/")[2] for path in paths]

    def _current(self) -> Engine:
        """The engine; another one where the index has outgrown the old."""
        engine = engine_at(self.store)
        if engine is None:
            fix = "make it again with `sightline index FOLDER`"
            raise DataError("the photo index is no longer there", where=self.store, fix=fix)
        if engine.kind != self._engine.kind:
            self._engine = engine
        return self._engine


def without(wanted: Array, avoid: Array) -> Array:
    """The vector of a query that stays clear of something.

    What both sentences mean alike is not held against a photo: of `avoid`, only the part that is at right angles to
    `wanted` is subtracted. So the score of a photo v is, but for a constant factor,

        wanted·v − ½ (avoid − (avoid·wanted) wanted)·v

    and one search with one vector does it, exact or approximate.
    """
    apart = avoid - (avoid @ wanted) * wanted
    if np.linalg.norm(apart) < 1e-3:
        raise ConfigError("what to find and what not to find mean the same", fix="change one of them")
    return _unit(wanted - AVOID_WEIGHT * apart)


def rank(candidates: Sequence[Candidate]) -> list[tuple[Candidate, float]]:
    """Candidates with their scores, the best first.

    The score is the cosine, plus what the caption says: BM25 as a part of that of the best caption, which is worth
    `CAPTION_WEIGHT` of the difference between the nearest candidate and the hundredth. It is that of this search,
    because models and queries differ in how far apart they put photos.
    """
    if not candidates:
        return []
    cosines = np.array([one.cosine for one in candidates])
    bm25 = np.array([one.bm25 for one in candidates])
    spread = cosines.max() - np.sort(cosines)[::-1][:CANDIDATES].min()
    scores = cosines + CAPTION_WEIGHT * spread * bm25 / max(bm25.max(), 1e-9)
    order = sorted(range(len(candidates)), key=lambda i: (-scores[i], candidates[i].path))
    return [(candidates[i], float(scores[i])) for i in order]


def weaker(ranked: Sequence[tuple[Candidate, float]], least: float) -> list[bool]:
    """Which of ranked candidates are weaker matches (`Hit.weak`); `least` is the least cosine of a match."""
    if not ranked:
        return []
    middle, most = (ranked[0][1] + ranked[-1][1]) / 2, max(one.bm25 for one, _ in ranked)
    weak = []
    for one, score in ranked:
        says_much = one.bm25 > 0 and one.bm25 >= most / 2
        weak.append(not says_much and (one.cosine < least or score < middle))
    return weak


def rank_by_text(candidates: Sequence[Candidate]) -> list[tuple[Candidate, float]]:
    """Candidates whose captions say something of the words, with their part of what the best says, the best first."""
    saying = sorted((one for one in candidates if one.bm25 > 0), key=lambda one: (-one.bm25, one.path))
    return [(one, one.bm25 / saying[0].bm25) for one in saying]


def unknown_words(pipeline: SearchModel, text: str) -> list[str]:
    """The words of a text that the model never learned, each once, but for those that say nothing."""
    words, vocabulary = _split(pipeline, text)
    return [word for word in dict.fromkeys(words) if word not in vocabulary and word not in STOP_WORDS]


def means_something(pipeline: SearchModel, text: str) -> bool:
    """Whether the model knows a word of a text; *a*, *of* and the like only count where there are no others."""
    words, vocabulary = _split(pipeline, text)
    return any(word in vocabulary for word in [word for word in words if word not in STOP_WORDS] or words)


def _split(pipeline: SearchModel, text: str) -> tuple[list[str], Vocabulary]:
    reader = pipeline.bundle.matcher or pipeline.bundle.captioner
    return rule(reader.text_rule).all_words(text), reader.vocabulary


def _query_vector(pipeline: SearchModel, words: str, photo: Source | None) -> Array:
    parts: list[Array] = []
    if words.strip() and (photo is None or means_something(pipeline, words)):
        parts.append(pipeline.text_vectors([words])[0])
    if photo is not None:
        parts.append(pipeline.vectors([photo])[0])
    if not parts:
        raise ConfigError("nothing to look for", fix="give words, or a photo with --image")
    return _unit(np.sum(parts, axis=0))


def _unit(vector: Array) -> Array:
    unit: Array = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def _explain(hit: Hit, pipeline: SearchModel, words: str) -> Hit:
    try:
        return replace(hit, why={"words": pipeline.ground(hit.path, words).to_json()["words"]})
    except SightlineError as error:  # the file is gone since, or can no longer be read
        return replace(hit, why={"words": [], "error": str(error)})


def default_store() -> Path:
    """Where an index goes if no place is named: a hidden folder in the current one."""
    return Path.cwd() / NAME


def nearest_store() -> Path:
    """Where an index is looked for if no place is named: in the current folder, then in those above it."""
    stores = [folder / NAME for folder in default_store().parents]
    return next((store for store in stores if store.is_dir()), stores[0])


def engine_at(store: PathLike) -> Engine | None:
    """The engine of an index; None where there is none."""
    if is_address(store):
        return LanceIndex(store)
    folder = Path(store)
    if (folder / f"{lance.TABLE}.lance").exists():
        return LanceIndex(folder)
    return ExactIndex(folder) if (folder / exact.FILE).exists() else None


def open_index(store: PathLike) -> Engine:
    engine = engine_at(store)
    if engine is None or not engine.maker:
        fix = "make one with `sightline index FOLDER`"
        raise DataError("there is no photo index here", where=os.fspath(store), fix=fix)
    return engine


def model_of(bundle: Bundle) -> str:
    """A short name for the vision model and the matcher of a bundle; captions may be of any captioner."""
    if bundle not in _MODELS:
        matcher = bundle.matcher
        if matcher is None:
            raise ConfigError("this model has no matcher, and cannot search", fix="use one that has")
        weights = (tensor.detach().float().cpu().numpy().tobytes() for tensor in matcher.model.state_dict().values())
        words = "\n".join(matcher.vocabulary)
        _MODELS[bundle] = fingerprint(bundle.vision.fingerprint(), matcher.text_rule, words, *weights)
    return _MODELS[bundle]
