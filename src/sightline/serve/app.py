"""The server as an ASGI application: the API, the page at /, and a description of the API at /docs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sightline import __version__
from sightline.pipeline import Pipeline
from sightline.search.query import PhotoIndex
from sightline.serve import schemas
from sightline.serve.limits import STATUS, Limits
from sightline.serve.middleware import Access, Guard
from sightline.serve.service import Service
from sightline.serve.uploads import describe_body

USUAL = (400, 401, 403, 408, 413, 415, 422, 500, 503)  # refusals that every address may answer with
JPEG: dict[int | str, dict[str, Any]] = {200: {"description": "A JPEG.", "content": {"image/jpeg": {}}}}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "jpg": "image/jpeg"}
# Path: method of the service, body, answer, and statuses of refusals besides the usual ones.
ROUTES: dict[str, tuple[str, type[BaseModel], type[BaseModel], tuple[int, ...]]] = {
    "/caption": ("caption", schemas.CaptionRequest, schemas.Captions, (409,)),
    "/ground": ("ground", schemas.GroundRequest, schemas.Ground, ()),
    "/search": ("search", schemas.SearchRequest, schemas.Hits, (404, 409)),
    "/audit": ("audit", schemas.AuditRequest, schemas.Audits, (409,)),
    "/explain": ("explain", schemas.ExplainRequest, schemas.Whys, ()),
    "/photos/{id}/ground": ("why", schemas.WhyRequest, schemas.Ground, (404,)),
}


def make_app(
    pipeline: Pipeline,
    *,
    index: PhotoIndex | None = None,  # without one, /v1/search is refused
    compare: Pipeline | None = None,  # another model, whose captions can be asked for as well
    access: Access | None = None,  # by default this machine's
    limits: Limits | None = None,
) -> FastAPI:
    """The application."""
    limits, access = limits or Limits(), access or Access()
    service = Service(pipeline, limits, index, compare)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Sightline",
        version=__version__,
        description="Captions photos, shows where each word came from, and finds photos by words.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(_routes(service))
    for file in (resources.files("sightline.serve") / "page").iterdir():
        _add_file(app, file.name, file.read_bytes())
    _complete_document(app.openapi(), bool(access.token))  # which FastAPI keeps until there are further routes
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_middleware(Guard, access=access, limits=limits)
    return app


def _routes(service: Service) -> APIRouter:
    """The addresses under /v1."""

    def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
        return {status: {"model": schemas.Problem, "description": STATUS[status]} for status in statuses}

    router = APIRouter(prefix="/v1")
    router.get("/health", response_model=schemas.Health, responses=problems(401, 403))(service.health)
    for path, (method, body, answer, statuses) in ROUTES.items():
        router.post(
            path,
            response_model=answer,
            response_model_exclude_unset=True,
            responses=problems(*USUAL, *statuses),
            openapi_extra=describe_body(body),
        )(getattr(service, method))
    responses = {**JPEG, **problems(401, 403, 404, 422, 500)}
    router.get("/photos/{id}", response_class=Response, responses=responses)(service.photo)
    return router


def _add_file(app: FastAPI, name: str, content: bytes) -> None:
    kind = TYPES.get(name.rpartition(".")[2])
    if kind is None:
        return

    async def show() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    address = {"index.html": "/", "docs.html": "/docs"}.get(name, f"/{name}")
    app.add_api_route(address, show, include_in_schema=False, methods=["GET", "HEAD"])


def _complete_document(document: dict[str, Any], token: bool) -> None:
    """Add to FastAPI's OpenAPI document what it cannot know: what is asked, because bodies are read by us."""
    bodies = [(body, "validation") for _, body, _, _ in ROUTES.values()]
    _, requests = models_json_schema(bodies, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    document["components"]["schemas"] |= requests["$defs"]
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    what = "this address takes another method" if error.status_code == 405 else "there is nothing at this address"
    return JSONResponse({"error": what, "fix": "`/docs` lists the addresses"}, error.status_code, headers)


async def _bad_parameter(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    problem = {"error": f"{first['loc'][-1]}: {first['msg']}", "fix": "`/docs` shows what is expected"}
    return JSONResponse(problem, 422)
