"""What requests bring: JSON with photos in base64, or a form with files. Both become the same checked objects."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, TypeVar, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sightline.serve.refusal import Refusal

M = TypeVar("M", bound=BaseModel)
LONGEST_NAME = 300
FIELDS = 1000  # of a form: captions may come as one field each


def _bytes(given: object) -> object:
    """Bytes of base64, with or without the beginning of a data URL."""
    if not isinstance(given, str):
        return given
    coded = given.partition(",")[2] if given.startswith("data:") else given
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not base64") from error


def as_whole(given: object) -> object:
    """JSON knows one kind of numbers: 3.0 is a whole one."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


Whole = Annotated[int, BeforeValidator(as_whole)]


class RequestBody(BaseModel):
    """Base of what is asked: nothing is guessed, and an unknown name is an error."""

    model_config = ConfigDict(extra="forbid")


Coded = Annotated[bytes, BeforeValidator(_bytes)]


def _coded(what: str) -> Any:
    about: dict[str, JsonValue] = {
        "type": "string",
        "format": f"base64-{what}",
        "description": f"The {what} file in base64.",
    }
    return Field(json_schema_extra=about)


class Upload(RequestBody):
    """A file in a JSON body."""

    name: str = Field("", max_length=LONGEST_NAME, description="Comes back as `path`.")
    data: Coded = _coded("photo")


class CaptionsUpload(Upload):
    """A file of captions in a JSON body; the end of its name, such as .csv, helps to tell its format."""

    name: str = Field("", max_length=LONGEST_NAME)
    data: Coded = _coded("captions")


async def read(request: Request, kind: type[M]) -> M:
    """The body as `kind`, or a refusal that names the field."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if sent == "application/json":
            return kind.model_validate_json(await request.body(), strict=True)
        if sent == "multipart/form-data":
            async with request.form(max_files=FIELDS, max_fields=FIELDS) as form:
                return kind.model_validate(await _fields(form, kind), strict=True)
    except ValidationError as error:
        raise _refused(error) from error
    except HTTPException as error:  # a form that is cut or has no boundary
        raise Refusal(400, f"the form cannot be read ({error.detail})", "send multipart/form-data") from error
    raise Refusal(415, "the body is neither JSON nor a form", "send application/json or multipart/form-data")


async def _fields(form: FormData, kind: type[BaseModel]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys(form.keys()):
        field = kind.model_fields.get(name)
        wanted = None if field is None else field.annotation
        values = [await _value(value, wanted) for value in form.getlist(name)]
        several = get_origin(wanted) is list or ("list" in str(wanted) and isinstance(values[0], str))
        found[name] = values if several or len(values) > 1 else values[0]
    return found


async def _value(value: str | UploadFile, wanted: object) -> object:
    if not isinstance(value, str):
        kind = CaptionsUpload if "CaptionsUpload" in str(wanted) else Upload
        return kind(name=(value.filename or "")[-LONGEST_NAME:], data=await value.read())
    if wanted is Upload or wanted == list[Upload]:  # a file without a name is not told from a field of text
        return Upload(name="", data=value.encode("latin-1", "replace"))
    if wanted is bool:
        return {"true": True, "false": False}.get(value, value)
    return int(value) if wanted is int and value.isdecimal() and len(value) < 10 else value


def _refused(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not valid JSON ({first['msg'].partition(': ')[2]})", "correct it there")
    where = ".".join(str(part) for part in first["loc"] if part not in ("function-before", "str"))
    told = first["msg"].removeprefix("Value error, ")
    return Refusal(422, f"{where}: {told}" if where else told, "`/docs` shows what is expected")
