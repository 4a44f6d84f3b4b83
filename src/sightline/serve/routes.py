"""The addresses of the API, under /v1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from sightline.serve.refusal import STATUS
from sightline.serve.schemas import (
    AuditRequest,
    Audits,
    CaptionRequest,
    Captions,
    ExplainRequest,
    Ground,
    GroundRequest,
    Health,
    Hits,
    Problem,
    SearchRequest,
    WhyRequest,
    Whys,
)
from sightline.serve.service import Service
from sightline.serve.uploads import body_of, describe_body

LONGEST_SIDE = 2048  # pixels of a photo that is shown
USUAL = (400, 401, 403, 408, 413, 415, 422, 500, 503)
Handler = Callable[..., Awaitable[Any]]
router = APIRouter(prefix="/v1")


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem, "description": STATUS[status]} for status in statuses}


def _post(path: str, answer: type[BaseModel], ask: type[BaseModel], *more: int) -> Callable[[Handler], Handler]:
    """A route that reads an `ask`; `more` are statuses that it has besides the usual ones."""
    return router.post(
        path,
        response_model=answer,
        response_model_exclude_unset=True,
        responses=_problems(*USUAL, *more),
        openapi_extra=describe_body(ask),
    )


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Api = Annotated[Service, Depends(_service)]
PhotoId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


@router.get("/health", response_model=Health, responses=_problems(401, 403))
async def health(api: Api) -> Any:
    """How the server is, what it can do, and what it takes on."""
    return await api.health()


@_post("/caption", Captions, CaptionRequest, 409)
async def caption(api: Api, ask: Annotated[CaptionRequest, Depends(body_of(CaptionRequest))]) -> Any:
    """Caption photos, with boxes for the nouns that have a place in them."""
    return await api.caption(ask)


@_post("/ground", Ground, GroundRequest)
async def ground(api: Api, ask: Annotated[GroundRequest, Depends(body_of(GroundRequest))]) -> Any:
    """Find the nouns of a sentence in a photo."""
    return await api.ground(ask)


@_post("/search", Hits, SearchRequest, 404, 409)
async def search(api: Api, ask: Annotated[SearchRequest, Depends(body_of(SearchRequest))]) -> Any:
    """Find photos of the index by words, by a photo, or by both."""
    return await api.search(ask)


@_post("/audit", Audits, AuditRequest, 409)
async def audit(api: Api, ask: Annotated[AuditRequest, Depends(body_of(AuditRequest))]) -> Any:
    """Tell which nouns of captions their photos do not support."""
    return await api.audit(ask)


JPEG: dict[int | str, dict[str, Any]] = {200: {"description": "A JPEG.", "content": {"image/jpeg": {}}}}


@router.get("/photos/{id}", response_class=Response, responses={**JPEG, **_problems(401, 403, 404, 422, 500)})
async def photo(api: Api, id: PhotoId, side: Annotated[int, Query(ge=16, le=LONGEST_SIDE)] = 1024) -> Response:
    """A photo that a search has found, no side longer than asked for."""
    picture = await api.picture(id, side)
    return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})


@_post("/explain", Whys, ExplainRequest)
async def explain(api: Api, ask: Annotated[ExplainRequest, Depends(body_of(ExplainRequest))]) -> Any:
    """Find the nouns of a sentence in photos that a search has found, all at once."""
    return await api.explain(ask)


@_post("/photos/{id}/ground", Ground, WhyRequest, 404)
async def why(api: Api, id: PhotoId, ask: Annotated[WhyRequest, Depends(body_of(WhyRequest))]) -> Any:
    """Find the nouns of a sentence in a photo that a search has found."""
    return await api.why(id, ask.sentence)
