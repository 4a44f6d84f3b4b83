"""What requests bring: JSON with photos in base64, or a form with files. Both become the same checked objects.

FastAPI's own `Form` takes forms only; here every address takes both, so that the reading is a dependency.
"""

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar, get_origin

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from sightline.data.convert import any_captions
from sightline.errors import DataError
from sightline.serve.limits import Refusal
from sightline.serve.schemas import LONGEST_NAME, CaptionsUpload, Upload

M = TypeVar("M", bound=BaseModel)
FIELDS = 1000  # of a form: captions may come as one field each
SHORT = 50  # letters of a file's name, of up to four bytes each
PARTS = {"captions": "text/csv", "sentence": "text/plain"}  # what parts of a form are, commonly
PHOTO = "image/jpeg, image/png, image/webp"
COMPLAINTS = {  # what pydantic finds wrong, for people
    "missing": "this is needed, and was not sent",
    "extra_forbidden": "there is no such field",
    "string_pattern_mismatch": "give at least one word",
    "string_too_long": "give at most {max_length} letters",
    "too_short": "give at least {min_length}",
    "too_long": "give at most {max_length}",
    "greater_than_equal": "give {ge} or more",
    "less_than_equal": "give {le} or less",
    "int_type": "give a whole number",
    "bool_type": "give true or false",
    "string_type": "give text",
    "list_type": "give a list",
}


def body_of(kind: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency: the body as `kind`, or a refusal that names the field."""

    async def read(request: Request) -> M:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if content_type == "application/json":
                return kind.model_validate_json(await request.body(), strict=True)
            if content_type == "multipart/form-data":
                async with request.form(max_files=FIELDS, max_fields=FIELDS) as form:
                    return kind.model_validate(await _fields(form, kind), strict=True)
        except ValidationError as error:
            raise _refusal(error) from error
        except HTTPException as error:  # a form that is cut or has no boundary
            raise Refusal(400, f"the form cannot be read ({error.detail})", "send multipart/form-data") from error
        raise Refusal(415, "the body is neither JSON nor a form", "send application/json or multipart/form-data")

    return read


async def _fields(form: FormData, kind: type[BaseModel]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in dict.fromkeys(form.keys()):
        field = kind.model_fields.get(name)
        annotation = None if field is None else field.annotation
        values = [await _value(value, annotation) for value in form.getlist(name)]
        is_list = get_origin(annotation) is list or ("list" in str(annotation) and isinstance(values[0], str))
        fields[name] = values if is_list or len(values) > 1 else values[0]
    return fields


async def _value(value: str | UploadFile, annotation: object) -> object:
    if not isinstance(value, str):
        kind = CaptionsUpload if "CaptionsUpload" in str(annotation) else Upload
        return kind(name=(value.filename or "")[-LONGEST_NAME:], data=await value.read())
    if annotation is Upload or annotation == list[Upload]:  # a file without a name is not told from a field of text
        return Upload(name="", data=value.encode("latin-1", "replace"))
    if annotation is bool:
        return {"true": True, "false": False}.get(value, value)
    return int(value) if annotation is int and value.isdecimal() and len(value) < 10 else value


def _refusal(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not valid JSON ({first['msg'].partition(': ')[2]})", "correct it there")
    where = ".".join(str(part) for part in first["loc"] if part not in ("function-before", "str"))
    what = COMPLAINTS.get(first["type"], first["msg"].removeprefix("Value error, ")).format(**first.get("ctx", {}))
    return Refusal(422, f"{where}: {what}" if where else what, "`/docs` shows what is expected")


def describe_body(kind: type[BaseModel]) -> dict[str, Any]:
    """The part of an OpenAPI document about a body that is JSON or a form, for `openapi_extra`."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    fields, encoding = schema["properties"], dict[str, Any]()
    for name, field in fields.items():
        if "Upload" in str(field):
            file = {"type": "string", "format": "binary"}
            fields[name] = {**file} if name != "photos" else {"type": "array", "items": file, "minItems": 1}
            encoding[name] = {"contentType": PARTS.get(name, PHOTO)}
        elif name in PARTS:
            encoding[name] = {"contentType": PARTS[name]}
        elif "anyOf" in field:  # a form has no null: what is not there is left out
            rest = {key: value for key, value in field.items() if key not in ("anyOf", "default")}
            fields[name] = {**field["anyOf"][0], **rest}
    if "anyOf" in schema:
        schema["anyOf"] = [{"required": option["required"]} for option in schema["anyOf"]]
    json = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    content = {"application/json": json, "multipart/form-data": {"schema": schema, "encoding": encoding}}
    return {"requestBody": {"required": True, "content": content}}


def captions_by_name(data: bytes, name: str) -> dict[str, list[str]]:
    """The captions of a file by the name of their photo, without folders; by its id where a file gives no names."""
    shown = name or "the captions"
    if b"\0" in data[:4096] or data[:2] == b"\x1f\x8b":  # unpacking could take any amount of memory
        raise DataError("this is no text", where=shown, fix="send captions as text: JSON, CSV or lines")
    with tempfile.TemporaryDirectory(prefix="sightline-") as folder:
        path = Path(folder) / _disk_name(base_name(name), data)
        path.write_bytes(data)
        try:
            photos = any_captions(path)
        except DataError as error:
            what, fix = (text.replace(str(path), shown) for text in (error.what, error.fix or "check it"))
            raise type(error)(what, where=shown, fix=fix) from error
    return {base_name(photo.file or photo.id): [s.text for s in photo.sentences] for photo in photos}


def base_name(name: str) -> str:
    r"""The name of a file without its folders, whichever system wrote them.

    >>> base_name("a/b.jpg"), base_name("C:\\photos\\b.jpg"), base_name("..")
    ('b.jpg', 'b.jpg', '')
    """
    last = PureWindowsPath(PurePosixPath(name).name).name
    return "" if last in (".", "..") else last.replace("\0", "")


def _disk_name(name: str, data: bytes) -> str:
    """A name that every disk takes, with an ending that tells what is in the file where it has none."""
    name = name[-SHORT:]
    if "." in name:
        return name
    return f"{name or 'captions'}.{'json' if data.lstrip()[:1] in (b'{', b'[') else 'csv'}"
