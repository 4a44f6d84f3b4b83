"""What each address of the API does: photos are decoded by a few threads, and the worker is asked about them.

The docstrings of public methods are their descriptions in the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import io
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

import torch
from fastapi import Depends, Path, Query, Response
from PIL import Image

from sightline import __version__
from sightline.caption import PhotoCaption
from sightline.decoding.constraints import WordRules
from sightline.decoding.copy_names import rules_with_stand_ins, split_rules
from sightline.decoding.rules import Rules, phrases_of, rules_of
from sightline.errors import ConfigError, DataError, SightlineError
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import Reader
from sightline.photo import Photo
from sightline.pipeline import Pipeline
from sightline.scene import Array
from sightline.search.query import Hit, PhotoIndex, unknown_words
from sightline.serve.limits import Limits
from sightline.serve.refusal import Refusal
from sightline.serve.schemas import (
    MOST_CAPTIONS,
    AuditRequest,
    CaptionRequest,
    ExplainRequest,
    GroundRequest,
    SearchRequest,
    Upload,
    WhyRequest,
)
from sightline.serve.uploads import base_name, body_of, captions_by_name
from sightline.serve.worker import Worker
from sightline.vision.images import open_image, read_pixels

T = TypeVar("T")
LONGEST_SIDE = 2048  # pixels of a photo that is shown
REMEMBERED = 20_000  # hits whose photos can be asked for
HitId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


class Service:
    """The API: a method for each address."""

    def __init__(
        self, pipeline: Pipeline, limits: Limits, index: PhotoIndex | None = None, compare: Pipeline | None = None
    ) -> None:
        self.pipeline, self.limits, self.index = pipeline, limits, index
        self.models = {_name(pipeline): pipeline}
        if compare is not None:
            name = _name(compare)
            self.models[f"{name} (2)" if name in self.models else name] = compare
        self.worker, self.thumbnails = Worker(limits), Thumbnails()
        self._readers = ThreadPoolExecutor((os.cpu_count() or 1) + 1, thread_name_prefix="photos")

    def close(self) -> None:
        """Stop, when what is being worked on is done."""
        self.worker.close()
        self._readers.shutdown(cancel_futures=True)

    async def health(self) -> dict[str, Any]:
        """How the server is, what it can do, and what it takes on."""
        finds, indexed = self.pipeline.bundle.matcher is not None, await self._indexed()
        return {
            "status": "ok",
            "version": __version__,
            "model": _name(self.pipeline),
            "models": list(self.models),
            "queue": self.worker.taken,
            "indexed": indexed,
            "can": ["caption", "ground", *(["audit"] if finds else []), *(["search"] if indexed is not None else [])],
            "limits": {"queue": self.limits.queue, "bytes": self.limits.body, "photos": self.limits.most},
        }

    async def caption(self, ask: Annotated[CaptionRequest, Depends(body_of(CaptionRequest))]) -> dict[str, Any]:
        """Caption photos, with boxes for the nouns that have a place in them."""
        pipeline = self._model(ask.model)
        rules = _rules(ask, pipeline.bundle.captioner)
        run = functools.partial(_caption, pipeline, beam=ask.beam, rules=rules, more=ask.alternatives)
        kind = ("caption", id(pipeline), ask.beam, rules, ask.alternatives)
        with self.worker.room(self._few(ask.photos)):
            read = await self._read(ask.photos, pipeline)
            answers = iter(await self._ask(kind, run, [one for one in read if not isinstance(one, Refusal)]))
        entries = [
            _unread(upload, one) if isinstance(one, Refusal) else _caption_json(next(answers), ask.attention)
            for upload, one in zip(ask.photos, read, strict=True)
        ]
        if all("error" in entry for entry in entries):
            raise next(one for one in read if isinstance(one, Refusal))
        return {"captions": entries}

    async def ground(self, ask: Annotated[GroundRequest, Depends(body_of(GroundRequest))]) -> dict[str, Any]:
        """Find the nouns of a sentence in a photo."""
        with self.worker.room(1):
            return await self._ground(await self._decode(ask.photo.data, ask.photo.name), ask.sentence)

    async def why(self, id: HitId, ask: Annotated[WhyRequest, Depends(body_of(WhyRequest))]) -> dict[str, Any]:
        """Find the nouns of a sentence in a photo that a search has found."""
        self.thumbnails.photo_of(id)  # one that is not there needs no room
        with self.worker.room(1):
            return await self._ground(await self._found_photo(id), ask.sentence)

    async def explain(self, ask: Annotated[ExplainRequest, Depends(body_of(ExplainRequest))]) -> dict[str, Any]:
        """Find the nouns of a sentence in photos that a search has found, all at once."""
        with self.worker.room(self._few_hits(len(ask.ids))):
            return {"hits": await self._explain(ask.ids, ask.sentence)}

    async def search(self, ask: Annotated[SearchRequest, Depends(body_of(SearchRequest))]) -> dict[str, Any]:
        """Find photos of the index by words, by a photo, or by both."""
        if self.index is None:
            raise Refusal(409, "there is no index here", "start it with `sightline serve --store PATH`")
        # To explain a hit is to look at its photo, which takes a place in the queue.
        places = self._few_hits(max(1, min(ask.k, await self._indexed() or 1))) if ask.explain else 1
        with self.worker.room(places):
            photo = None
            if ask.like is not None:
                photo = await self._found_photo(ask.like)
            elif ask.photo is not None:
                photo = await self._decode(ask.photo.data, ask.photo.name)
            (hits,) = await self._ask("search", self._search, [(ask, photo)], status=409)
            sentence = ask.text or ""
            if photo is not None and not sentence:
                run = functools.partial(_caption, self.pipeline, beam=3, rules=None, more=0)
                ((caption, _),) = await self._ask(("caption", id(self.pipeline), 3, None, 0), run, [photo])
                sentence = caption.text
            found = [
                {"id": self.thumbnails.id_of(hit.path, name), **hit.to_json(), "path": _printable(name)}
                for hit, name in hits
            ]
            if ask.explain:
                reasons = await self._explain([hit["id"] for hit in found], sentence)
                found = [{**hit, "why": why} for hit, why in zip(found, reasons, strict=True)]
        unknown = unknown_words(self.pipeline, f"{ask.text or ''} {ask.without or ''}")
        return {"sentence": sentence, "unknown": unknown, "hits": found}

    async def audit(self, ask: Annotated[AuditRequest, Depends(body_of(AuditRequest))]) -> dict[str, Any]:
        """Tell which nouns of captions their photos do not support."""
        wanted = await self._wanted(ask)
        if sum(map(len, wanted)) > MOST_CAPTIONS:
            raise Refusal(413, f"more than {MOST_CAPTIONS} captions at once", "send fewer photos at a time")
        matched = [(upload, own) for upload, own in zip(ask.photos, wanted, strict=True) if own]
        with self.worker.room(max(1, self._few(ask.photos))):
            read = await self._read([upload for upload, _ in matched])
            asks = [(one, own) for one, (_, own) in zip(read, matched, strict=True) if not isinstance(one, Refusal)]
            found = await self._ask("audit", self._audits, asks)
        audits = [audit for own in found for audit in own]
        unread = [_unread(u, one) for (u, _), one in zip(matched, read, strict=True) if isinstance(one, Refusal)]
        if unread and not audits:
            raise next(one for one in read if isinstance(one, Refusal))
        return {
            "audits": audits,
            "flagged": sum(audit["flagged"] for audit in audits),
            "unread": unread,
            "unmatched": [upload.name for upload, own in zip(ask.photos, wanted, strict=True) if not own],
        }

    async def photo(self, id: HitId, side: Annotated[int, Query(ge=16, le=LONGEST_SIDE)] = 1024) -> Response:
        """A photo that a search has found, no side longer than asked for."""
        path, _ = self.thumbnails.photo_of(id)
        try:
            picture = await self._thread(lambda: _thumbnail(path, side, self.limits.pixels))
        except SightlineError as error:
            raise _unreadable() from error
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    async def _wanted(self, ask: AuditRequest) -> list[list[str]]:
        given = ask.captions
        if not isinstance(given, Upload):
            return [list(given)] * len(ask.photos)
        try:
            by_name = await self._thread(lambda: captions_by_name(given.data, given.name))
        except SightlineError as error:
            raise Refusal.of(error, given.name or "captions") from error
        by_stem = {name.rpartition(".")[0] or name: own for name, own in by_name.items()}
        names = [base_name(photo.name) for photo in ask.photos]
        return [by_name.get(name) or by_stem.get(name.rpartition(".")[0] or name, []) for name in names]

    async def _indexed(self) -> int | None:
        """How many photos the index has; None where there is none, or none any more."""
        index = self.index
        try:
            return None if index is None else await self._thread(lambda: len(index))
        except SightlineError:
            return None

    def _model(self, name: str) -> Pipeline:
        if name and name not in self.models:
            raise Refusal(409, f"there is no model {name!r} here", f"ask for {' or '.join(self.models)}")
        return self.models[name] if name else self.pipeline

    def _few_hits(self, count: int) -> int:
        if count > self.limits.queue:
            raise Refusal(413, f"{count} hits to explain at once", f"ask for at most {self.limits.queue}")
        return count

    def _few(self, photos: Sequence[Upload]) -> int:
        if len(photos) > self.limits.most:
            raise Refusal(413, f"{len(photos)} photos at once", f"send at most {self.limits.most} in a request")
        return len(photos)

    async def _thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    async def _decode(self, source: str | bytes, name: str, pipeline: Pipeline | None = None) -> Photo:
        size, most = (pipeline or self.pipeline).size, self.limits.pixels
        try:
            pixels, full = await self._thread(lambda: read_pixels(source, size, max_pixels=most))
        except SightlineError as error:
            raise Refusal.of(error, name) from error
        return Photo(name, name, pixels, full)

    async def _found_photo(self, id: str) -> Photo:
        path, name = self.thumbnails.photo_of(id)
        try:
            return await self._decode(path, name)
        except Refusal as refusal:  # its words are for whoever may know the path
            raise _unreadable() from refusal

    async def _read(self, uploads: Sequence[Upload], pipeline: Pipeline | None = None) -> list[Photo | Refusal]:
        coming = (self._decode(upload.data, upload.name, pipeline) for upload in uploads)
        return list(await asyncio.gather(*map(_or_refusal, coming)))

    async def _ask(self, kind: Any, run: Any, items: Sequence[Any], status: int = 422) -> list[Any]:
        answers = [asyncio.wrap_future(answer) for answer in self.worker.ask(kind, run, items)]
        try:
            return list(await asyncio.gather(*answers))
        except SightlineError as error:
            raise Refusal.of(error, status=status) from error

    async def _ground(self, photo: Photo, sentence: str) -> dict[str, Any]:
        (grounding,) = await self._ask("ground", self._ground_many, [(photo, sentence)])
        return {**grounding.to_json(), "path": _printable(photo.id)}

    async def _explain(self, ids: Sequence[str], sentence: str) -> list[dict[str, Any] | None]:
        """Where a sentence is in photos of the index; None where a photo has gone, or the sentence has no word."""
        photos = await asyncio.gather(*(_or_refusal(self._found_photo(id)) for id in ids))
        asks = [(photo, sentence) for photo in photos if not isinstance(photo, Refusal)]
        answer = await _or_refusal(self._ask("ground", self._ground_many, asks))
        reasons = iter([] if isinstance(answer, Refusal) else [grounding.to_json() for grounding in answer])
        return [None if isinstance(photo, Refusal) else next(reasons, None) for photo in photos]

    def _ground_many(self, asks: list[tuple[Photo, str]]) -> list[Any]:
        return self.pipeline.ground_many([photo for photo, _ in asks], [sentence for _, sentence in asks])

    def _search(self, asks: list[tuple[SearchRequest, Photo | None]]) -> list[list[tuple[Hit, str]]]:
        """For each question hits, with paths below the folder that was indexed: where that is concerns no client."""
        assert self.index is not None
        answers = []
        for ask, photo in asks:
            pixels, avoid = None if photo is None else photo.pixels, ask.without or ""
            itself = () if ask.like is None else (self.thumbnails.photo_of(ask.like)[0],)
            try:
                hits = self.index.search(
                    self.pipeline, ask.text or "", photo=pixels, avoid=avoid, count=ask.k, leave_out=itself
                )
                names = self.index.relative([hit.path for hit in hits])
            except DataError as error:  # the reason of the engine, in brackets, may name files
                print(error, file=sys.stderr)
                raise DataError(error.what.partition(" (")[0], fix=error.fix) from error
            answers.append(list(zip(hits, names, strict=True)))
        return answers

    def _audits(self, asks: list[tuple[Photo, list[str]]]) -> list[list[dict[str, Any]]]:
        found = self.pipeline.audit_photos([photo for photo, _ in asks], [captions for _, captions in asks])
        return [[audit.to_json() for audit in own] for own in found]


class Thumbnails:
    """Ids for paths. A path that no search has found has no id, so nothing else of the disk can be asked for."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(16)
        self._photos: dict[str, tuple[str, str]] = {}  # the last found is the last

    def id_of(self, path: str, name: str) -> str:
        """The id of a photo that was found; clients know it by `name`."""
        raw = path.encode("utf-8", "surrogateescape")
        found = hashlib.blake2b(raw, key=self._secret, digest_size=16).hexdigest()
        self._photos.pop(found, None)
        self._photos[found] = path, name
        if len(self._photos) > REMEMBERED:
            del self._photos[next(iter(self._photos))]
        return found

    def photo_of(self, id: str) -> tuple[str, str]:
        if id not in self._photos:
            raise Refusal(404, "no photo has this id", "search again: ids hold until the server is stopped")
        return self._photos[id]


def _thumbnail(path: str, side: int, most_pixels: int) -> bytes:
    """A JPEG of a photo, upright, no side longer than `side`; made anew, so that no byte of the file itself leaves."""
    image = open_image(path, max_pixels=most_pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()


def _rules(ask: CaptionRequest, says: Reader[Captioner]) -> Rules | None:
    """The rules of a request, None where captions are free; a refusal where nobody could keep them."""
    phrases = phrases_of(ask.must_include)
    if phrases and ask.beam == 1:
        what = "`must_include` can only be kept with a beam, which looks ahead"
        raise Refusal(409, what, "ask for a beam of 3 or more")
    rules = rules_of(str(ask.length), phrases)
    try:
        plain, names = split_rules(rules, says.vocabulary)
        WordRules(rules_with_stand_ins(plain, names), len(says.vocabulary), says.vocabulary, torch.device("cpu"))
    except ConfigError as error:
        raise Refusal.of(error, status=409) from error
    return rules


async def _or_refusal(work: Awaitable[T]) -> T | Refusal:
    """What comes of some work, also where it is a refusal: one photo stops no other."""
    try:
        return await work
    except Refusal as refusal:
        return refusal


def _unreadable() -> Refusal:
    return Refusal(404, "the photo can no longer be read", "index its folder again")


def _name(pipeline: Pipeline) -> str:
    return str(pipeline.bundle.card.get("name", "unnamed"))


def _caption(
    pipeline: Pipeline, photos: list[Photo], beam: int, rules: Rules | None, more: int
) -> list[tuple[PhotoCaption, list[str] | None]]:
    """The captions of photos; with `more`, so many others of each that read differently."""
    captions = pipeline.caption([*photos], beam=beam, rules=rules)
    if not more:
        return [(one, None) for one in captions]
    several = [pipeline.alternatives(photo, more + 1, rules=rules) for photo in photos]
    others = [[o.text for o in own if o.text != one.text][:more] for one, own in zip(captions, several, strict=True)]
    return list(zip(captions, others, strict=True))


def _caption_json(answer: tuple[PhotoCaption, list[str] | None], attention: bool) -> dict[str, Any]:
    caption, others = answer
    entry = caption.to_json() if others is None else {**caption.to_json(), "alternatives": others}
    if attention:
        for word, trace in zip(entry["words"], caption.trace, strict=True):
            word["attention"] = _grid(trace.grid)
    return entry


def _grid(weights: Array | None) -> list[list[float]] | None:
    """Rows of a square grid, as shares of its largest weight."""
    side = 0 if weights is None else round(len(weights) ** 0.5)
    if weights is None or side * side != len(weights) or not weights.max() > 0:
        return None
    rows: list[list[float]] = (weights / weights.max()).reshape(side, side).astype(float).round(3).tolist()
    return rows


def _unread(upload: Upload, refusal: Refusal) -> dict[str, Any]:
    return {"path": upload.name, **refusal.to_json()}


def _printable(path: str) -> str:
    """A path that JSON can hold: bytes that are no UTF-8 are shown with escapes."""
    return path.encode("utf-8", "backslashreplace").decode()
