"""The addresses: the API under /v1, the page at /, and a description of the API at /docs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sightline import __version__
from sightline.pipeline import Pipeline
from sightline.search.query import PhotoIndex
from sightline.serve.guard import Door, Guard
from sightline.serve.limits import Limits
from sightline.serve.refusal import Refusal, documented
from sightline.serve.request_schemas import AuditRequest, CaptionRequest, GroundRequest, SearchRequest, WhyRequest, body
from sightline.serve.response_schemas import SHAPES, Audits, Captions, Ground, Health, Hits, schemas
from sightline.serve.service import Service
from sightline.serve.uploads import RequestBody, Upload, read

BAD = (400, 401, 403, 408, 413, 415, 422, 500, 503)
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
LONGEST_SIDE = 2048  # pixels of a photo that is shown
Handler = Callable[..., Awaitable[Response]]
Id = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


def make_app(
    pipeline: Pipeline, *, index: PhotoIndex | None = None, door: Door | None = None, limits: Limits | None = None
) -> FastAPI:
    """The server as an ASGI application.

    Args:
        sight: the model.
        index: of photos; without one, /v1/search is refused.
        door: who may ask; by default this machine.
        limits: how much is taken on.
    """
    bounds, entry = limits or Limits(), door or Door()
    service = Service(pipeline, bounds, index)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Sightline", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    app.state.service = service
    _add_api(app, service)
    _add_photos(app, service)
    _add_page(app, entry)
    app.add_exception_handler(HTTPException, _missed)
    app.add_exception_handler(RequestValidationError, _unfit)
    app.add_middleware(Guard, door=entry, limits=bounds)
    return app


def _asked(
    app: FastAPI, address: str, answer: type, ask: type[RequestBody], *more: int
) -> Callable[[Handler], Handler]:
    """A route that reads an `ask`; `more` are statuses that it has besides the usual ones."""
    return app.post(address, response_model=answer, responses=documented(*BAD, *more), openapi_extra=body(ask))


def _add_api(app: FastAPI, service: Service) -> None:
    @app.get("/v1/health", response_model=Health, responses=documented(401, 403))
    async def health() -> Response:
        """How the server is, what it can do, and what it takes on."""
        return JSONResponse(await service.health())

    @_asked(app, "/v1/caption", Captions, CaptionRequest, 409)
    async def caption(request: Request) -> Response:
        """Caption photos, with a box for every noun."""
        return JSONResponse(await service.caption(await read(request, CaptionRequest)))

    @_asked(app, "/v1/ground", Ground, GroundRequest)
    async def ground(request: Request) -> Response:
        """Find the nouns of a sentence in a photo."""
        return JSONResponse(await service.ground(await read(request, GroundRequest)))

    @_asked(app, "/v1/search", Hits, SearchRequest, 409)
    async def search(request: Request) -> Response:
        """Find photos of the index by words, by a photo, or by both."""
        return JSONResponse(await service.search(await read(request, SearchRequest)))

    @_asked(app, "/v1/audit", Audits, AuditRequest, 409)
    async def audit(request: Request) -> Response:
        """Tell which nouns of captions their photos do not support."""
        return JSONResponse(await service.audit(await read(request, AuditRequest)))


def _add_photos(app: FastAPI, service: Service) -> None:
    shown: dict[int | str, dict[str, Any]] = {200: {"description": "A JPEG.", "content": {"image/jpeg": {}}}}

    @app.get("/v1/photos/{id}", response_class=Response, responses={**shown, **documented(401, 403, 404, 422, 500)})
    async def photo(id: Id, side: Annotated[int, Query(ge=16, le=LONGEST_SIDE)] = 1024) -> Response:
        """A photo that a search has found, no side longer than asked for."""
        picture = await service.picture(id, side)
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @_asked(app, "/v1/photos/{id}/ground", Ground, WhyRequest, 404)
    async def why(request: Request, id: Id) -> Response:
        """Find the nouns of a sentence in a photo that a search has found."""
        ask = await read(request, WhyRequest)
        return JSONResponse(await service.why(id, ask.sentence))


def _add_page(app: FastAPI, door: Door) -> None:
    folder = resources.files("sightline.serve") / "page"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if _ending(file.name) in TYPES}
    document: dict[str, Any] = {}

    def described() -> dict[str, Any]:
        if not document:
            document.update(_described(app, bool(door.token)))
        return document

    async def openapi() -> Response:
        return JSONResponse(described())

    app.openapi = described  # type: ignore[method-assign]
    app.add_api_route("/openapi.json", openapi, include_in_schema=False)
    for name, content in files.items():
        address = {"index.html": "/", "docs.html": "/docs"}.get(name, f"/{name}")
        app.add_api_route(address, _shows(content, name), include_in_schema=False, methods=["GET", "HEAD"])


def _shows(content: bytes, name: str) -> Any:
    kind = TYPES[_ending(name)]

    async def show() -> Response:
        return Response(content, media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"})

    return show


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _described(app: FastAPI, token: bool) -> dict[str, Any]:
    """The OpenAPI document."""
    about = "Captions photos, shows where each word came from, and finds photos by words."
    told = get_openapi(title=app.title, version=app.version, description=about, routes=app.routes)
    asks = (CaptionRequest, GroundRequest, SearchRequest, AuditRequest, WhyRequest, Upload)
    parts = told.setdefault("components", {})
    parts["schemas"] = {**parts.get("schemas", {}), **schemas((*SHAPES, *asks))}
    for unused in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(unused, None)
    if token:
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        told["security"] = [{"token": []}]
    return told


async def _missed(_: Request, error: Exception) -> Response:
    """The answer where there is no such address or method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    what = "this address takes another method" if error.status_code == 405 else "there is nothing at this address"
    return JSONResponse({"error": what, "fix": "`/docs` lists the addresses"}, error.status_code, headers)


async def _unfit(_: Request, error: Exception) -> Response:
    """The answer to a wrong part of an address."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    refusal = Refusal(422, f"{first['loc'][-1]}: {first['msg']}", "`/docs` shows what is expected")
    return JSONResponse(refusal.told(), refusal.status)
