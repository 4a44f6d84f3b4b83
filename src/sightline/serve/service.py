"""What each address of the API does: photos are decoded by a few threads, and the worker is asked about them.

The docstrings of public methods are their descriptions in the OpenAPI document.
"""

import asyncio
import functools
import hashlib
import io
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Hashable, Sequence
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
from sightline.grounding.evidence import Grounding
from sightline.jobs.job import MOST_WORKERS
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import Reader
from sightline.photo import Photo
from sightline.pipeline import BEAM, Pipeline
from sightline.scene import Array
from sightline.search.query import Hit, PhotoIndex, unknown_words
from sightline.serve.limits import Limits, Refusal
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
from sightline.serve.worker import Run, Worker
from sightline.vision.images import open_image, read_pixels

T = TypeVar("T")
LONGEST_SIDE = 2048  # pixels of a photo that is shown
REMEMBERED = 20_000  # hits whose photos can be asked for
UNREADABLE = (404, "the photo can no longer be read", "index its folder again")  # of one that a search has found
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
        batches = min(MOST_WORKERS, torch.get_num_threads()) if pipeline.device.type == "cpu" else 1
        self.worker, self.found_photos = Worker(limits, batches), FoundPhotos()
        self._readers = ThreadPoolExecutor((os.cpu_count() or 1) + 1, thread_name_prefix="photos")

    def close(self) -> None:
        """Stop, when what is being worked on is done."""
        self.worker.close()
        self._readers.shutdown(cancel_futures=True)

    async def health(self) -> dict[str, Any]:
        """How the server is, what it can do, and what it takes on."""
        indexed = await self._indexed()
        has = {"audit": self.pipeline.bundle.matcher is not None, "search": indexed is not None}
        can, limits = ["caption", "ground", *(verb for verb in has if has[verb])], self.limits
        return {
            "status": "ok",
            "version": __version__,
            "model": _name(self.pipeline),
            "models": list(self.models),
            "queue": self.worker.reserved,
            "indexed": indexed,
            "can": can,
            "limits": {"queue": limits.queue, "bytes": limits.body, "photos": limits.photos_at_once},
        }

    async def caption(self, request: Annotated[CaptionRequest, Depends(body_of(CaptionRequest))]) -> dict[str, Any]:
        """Caption photos, with boxes for the nouns that have a place in them."""
        if request.model and request.model not in self.models:
            known = " or ".join(self.models)
            raise Refusal(409, f"there is no model {request.model!r} here", f"ask for {known}")
        pipeline = self.models[request.model] if request.model else self.pipeline
        rules = _rules(request, pipeline.bundle.captioner)
        self._check_photo_count(request.photos)
        with self.worker.reserve(len(request.photos)):
            photos = await self._read(request.photos, pipeline)
            readable = [photo for photo in photos if isinstance(photo, Photo)]
            captions = iter(await self._caption(readable, pipeline, request.beam, rules, request.alternatives))
        entries: list[dict[str, Any]] = []
        for upload, photo in zip(request.photos, photos, strict=True):
            if isinstance(photo, Refusal):
                entries.append(_unread(upload, photo))
            else:
                caption, others = next(captions)
                entries.append(_caption_json(caption, request.attention))
                if request.alternatives:
                    entries[-1]["alternatives"] = others
        if not readable:
            raise next(photo for photo in photos if isinstance(photo, Refusal))
        return {"captions": entries}

    async def ground(self, request: Annotated[GroundRequest, Depends(body_of(GroundRequest))]) -> dict[str, Any]:
        """Find the nouns of a sentence in a photo."""
        with self.worker.reserve(1):
            return await self._ground(await self._decode(request.photo.data, request.photo.name), request.sentence)

    async def why(self, id: HitId, request: Annotated[WhyRequest, Depends(body_of(WhyRequest))]) -> dict[str, Any]:
        """Find the nouns of a sentence in a photo that a search has found."""
        self.found_photos.by_id(id)  # one that is not there needs no room
        with self.worker.reserve(1):
            return await self._ground(await self._decode_found(id), request.sentence)

    async def explain(self, request: Annotated[ExplainRequest, Depends(body_of(ExplainRequest))]) -> dict[str, Any]:
        """Find the nouns of a sentence in photos that a search has found, all at once."""
        self._check_hit_count(len(request.ids))
        with self.worker.reserve(len(request.ids)):
            return {"hits": await self._explain(request.ids, request.sentence)}

    async def search(self, request: Annotated[SearchRequest, Depends(body_of(SearchRequest))]) -> dict[str, Any]:
        """Find photos of the index by words, by a photo, or by both."""
        if self.index is None:
            raise Refusal(409, "there is no index here", "start it with `sightline serve --store PATH`")
        places = 1
        if request.explain:  # to explain a hit is to look at its photo, which takes a place in the queue
            places = max(1, min(request.k, await self._indexed() or 1))
            self._check_hit_count(places)
        with self.worker.reserve(places):
            photo = None
            if request.like is not None:
                photo = await self._decode_found(request.like)
            elif request.photo is not None:
                photo = await self._decode(request.photo.data, request.photo.name)
            (answer,) = await self._run("search", self._search_many, [(request, photo)], status=409)
            sentence = request.text or ""
            if photo is not None and not sentence:
                ((caption, _),) = await self._caption([photo], self.pipeline, BEAM, None, 0)
                sentence = caption.text
            ids = [self.found_photos.add(hit.path, name) for hit, name in answer]
            found = zip(ids, answer, strict=True)
            hits = [{"id": id, **hit.to_json(), "path": _printable(name)} for id, (hit, name) in found]
            if request.explain:
                reasons = await self._explain(ids, sentence)
                hits = [{**hit, "why": why} for hit, why in zip(hits, reasons, strict=True)]
        unknown = unknown_words(self.pipeline, f"{request.text or ''} {request.without or ''}")
        return {"sentence": sentence, "unknown": unknown, "hits": hits}

    async def audit(self, request: Annotated[AuditRequest, Depends(body_of(AuditRequest))]) -> dict[str, Any]:
        """Tell which nouns of captions their photos do not support."""
        captions = await self._captions_of_photos(request)
        if sum(map(len, captions)) > MOST_CAPTIONS:
            raise Refusal(413, f"more than {MOST_CAPTIONS} captions at once", "send fewer photos at a time")
        matched = [(upload, own) for upload, own in zip(request.photos, captions, strict=True) if own]
        self._check_photo_count(request.photos)
        with self.worker.reserve(len(request.photos)):
            photos = await self._read([upload for upload, _ in matched])
            items = [(photo, own) for photo, (_, own) in zip(photos, matched, strict=True) if isinstance(photo, Photo)]
            audits = [audit for own in await self._run("audit", self._audit_many, items) for audit in own]
        answers = zip(matched, photos, strict=True)
        unread = [_unread(upload, photo) for (upload, _), photo in answers if isinstance(photo, Refusal)]
        if unread and not audits:
            raise next(photo for photo in photos if isinstance(photo, Refusal))
        return {
            "audits": audits,
            "flagged": sum(audit["flagged"] for audit in audits),
            "unread": unread,
            "unmatched": [upload.name for upload, own in zip(request.photos, captions, strict=True) if not own],
        }

    async def photo(self, id: HitId, side: Annotated[int, Query(ge=16, le=LONGEST_SIDE)] = 1024) -> Response:
        """A photo that a search has found, no side longer than asked for."""
        path, _ = self.found_photos.by_id(id)
        try:
            picture = await self._thread(lambda: _thumbnail(path, side, self.limits.pixels))
        except SightlineError as error:
            raise Refusal(*UNREADABLE) from error
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    async def _captions_of_photos(self, request: AuditRequest) -> list[list[str]]:
        """The captions of each photo: all sentences, or those of a file that names the photo."""
        file = request.captions
        if not isinstance(file, Upload):
            return [list(file)] * len(request.photos)
        try:
            by_name = await self._thread(lambda: captions_by_name(file.data, file.name))
        except SightlineError as error:
            raise Refusal.of(error, file.name or "captions") from error
        by_stem = {_stem(name): captions for name, captions in by_name.items()}
        names = [base_name(photo.name) for photo in request.photos]
        return [by_name.get(name) or by_stem.get(_stem(name), []) for name in names]

    async def _indexed(self) -> int | None:
        """How many photos the index has; None where there is none, or none any more."""
        index = self.index
        try:
            return None if index is None else await self._thread(lambda: len(index))
        except SightlineError:
            return None

    def _check_hit_count(self, count: int) -> None:
        if count > self.limits.queue:
            raise Refusal(413, f"{count} hits to explain at once", f"ask for at most {self.limits.queue}")

    def _check_photo_count(self, photos: Sequence[Upload]) -> None:
        most = self.limits.photos_at_once
        if len(photos) > most:
            raise Refusal(413, f"{len(photos)} photos at once", f"send at most {most} in a request")

    async def _thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    async def _decode(self, source: str | bytes, name: str, pipeline: Pipeline | None = None) -> Photo:
        side, most = (pipeline or self.pipeline).size, self.limits.pixels
        try:
            pixels, size = await self._thread(lambda: read_pixels(source, side, max_pixels=most))
        except SightlineError as error:
            raise Refusal.of(error, name) from error
        return Photo(name, name, pixels, size)

    async def _decode_found(self, id: str) -> Photo:
        path, name = self.found_photos.by_id(id)
        try:
            return await self._decode(path, name)
        except Refusal as refusal:  # its words are for whoever may know the path
            raise Refusal(*UNREADABLE) from refusal

    async def _read(self, uploads: Sequence[Upload], pipeline: Pipeline | None = None) -> list[Photo | Refusal]:
        photos = (self._decode(upload.data, upload.name, pipeline) for upload in uploads)
        return list(await asyncio.gather(*map(_or_refusal, photos)))

    async def _run(self, kind: Hashable, run: Run, items: Sequence[Any], status: int = 422) -> list[Any]:
        """What the worker makes of items; an error of Sightline's becomes a refusal of this status."""
        results = [asyncio.wrap_future(result) for result in self.worker.submit(kind, run, items)]
        try:
            return list(await asyncio.gather(*results))
        except SightlineError as error:
            raise Refusal.of(error, status=status) from error

    async def _caption(
        self, photos: Sequence[Photo], pipeline: Pipeline, beam: int, rules: Rules | None, alternatives: int
    ) -> list[tuple[PhotoCaption, list[str]]]:
        run = functools.partial(_caption_many, pipeline, beam=beam, rules=rules, alternatives=alternatives)
        return await self._run(("caption", id(pipeline), beam, rules, alternatives), run, photos)

    async def _ground(self, photo: Photo, sentence: str) -> dict[str, Any]:
        (grounding,) = await self._run("ground", self._ground_many, [(photo, sentence)])
        return {**grounding.to_json(), "path": _printable(photo.id)}

    async def _explain(self, ids: Sequence[str], sentence: str) -> list[dict[str, Any] | None]:
        """Where a sentence is in photos of the index; None where a photo has gone, or the sentence has no word."""
        photos = await asyncio.gather(*(_or_refusal(self._decode_found(id)) for id in ids))
        items = [(photo, sentence) for photo in photos if isinstance(photo, Photo)]
        answer = await _or_refusal(self._run("ground", self._ground_many, items))
        reasons = iter([] if isinstance(answer, Refusal) else [grounding.to_json() for grounding in answer])
        return [None if isinstance(photo, Refusal) else next(reasons, None) for photo in photos]

    def _ground_many(self, items: list[tuple[Photo, str]]) -> list[Grounding]:
        return self.pipeline.ground_many([photo for photo, _ in items], [sentence for _, sentence in items])

    def _search_many(self, items: list[tuple[SearchRequest, Photo | None]]) -> list[list[tuple[Hit, str]]]:
        """For each request hits, with paths below the folder that was indexed: where that is concerns no client."""
        assert self.index is not None
        answers = []
        for request, photo in items:
            words, avoid, pixels = request.text or "", request.without or "", None if photo is None else photo.pixels
            like = () if request.like is None else (self.found_photos.by_id(request.like)[0],)
            try:
                hits = self.index.search(
                    self.pipeline, words, photo=pixels, avoid=avoid, count=request.k, leave_out=like
                )
                names = self.index.relative([hit.path for hit in hits])
            except DataError as error:  # the reason of the engine, in brackets, may name files
                print(error, file=sys.stderr)
                raise DataError(error.what.partition(" (")[0], fix=error.fix) from error
            answers.append(list(zip(hits, names, strict=True)))
        return answers

    def _audit_many(self, items: list[tuple[Photo, list[str]]]) -> list[list[dict[str, Any]]]:
        audits = self.pipeline.audit_photos([photo for photo, _ in items], [captions for _, captions in items])
        return [[audit.to_json() for audit in own] for own in audits]


class FoundPhotos:
    """Ids for paths. A path that no search has found has no id, so nothing else of the disk can be asked for."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(16)
        self._photos: dict[str, tuple[str, str]] = {}  # the last found is the last

    def add(self, path: str, name: str) -> str:
        """The id of a photo that was found; clients know it by `name`."""
        raw = path.encode("utf-8", "surrogateescape")
        id = hashlib.blake2b(raw, key=self._secret, digest_size=16).hexdigest()
        self._photos.pop(id, None)
        self._photos[id] = path, name
        if len(self._photos) > REMEMBERED:
            del self._photos[next(iter(self._photos))]
        return id

    def by_id(self, id: str) -> tuple[str, str]:
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


def _rules(request: CaptionRequest, captioner: Reader[Captioner]) -> Rules | None:
    """The rules of a request, None where captions are free; a refusal where nobody could keep them."""
    phrases = phrases_of(request.must_include)
    if phrases and request.beam == 1:
        what = "`must_include` can only be kept with a beam, which looks ahead"
        raise Refusal(409, what, "ask for a beam of 2 or more")
    rules, vocabulary = rules_of(str(request.length), phrases), captioner.vocabulary
    try:
        plain, names = split_rules(rules, vocabulary)
        WordRules(rules_with_stand_ins(plain, names), len(vocabulary), vocabulary, torch.device("cpu"))
    except ConfigError as error:
        raise Refusal.of(error, status=409) from error
    return rules


async def _or_refusal(work: Awaitable[T]) -> T | Refusal:
    """What comes of some work, also where it is a refusal: one photo stops no other."""
    try:
        return await work
    except Refusal as refusal:
        return refusal


def _name(pipeline: Pipeline) -> str:
    return str(pipeline.bundle.card.get("name", "unnamed"))


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _caption_many(
    pipeline: Pipeline, photos: list[Photo], beam: int, rules: Rules | None, alternatives: int
) -> list[tuple[PhotoCaption, list[str]]]:
    """The captions of photos, each with so many others that read differently."""
    answers = []
    for photo, caption in zip(photos, pipeline.caption([*photos], beam=beam, rules=rules), strict=True):
        likely = pipeline.alternatives(photo, alternatives + 1, rules=rules) if alternatives else []
        others = [other.text for other in likely if other.text != caption.text]
        answers.append((caption, others[:alternatives]))
    return answers


def _caption_json(caption: PhotoCaption, attention: bool) -> dict[str, Any]:
    entry = caption.to_json()
    if attention:
        traces = caption.trace or [None] * len(caption.words)  # what is said of a plain photo comes from no model
        for word, trace in zip(entry["words"], traces, strict=True):
            word["attention"] = None if trace is None else _grid(trace.grid)
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
