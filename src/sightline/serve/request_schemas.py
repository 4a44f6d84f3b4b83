"""What can be asked. A form has the same names as the JSON, with files in place of uploads."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from sightline.decoding.length_options import LEAST_WORDS, LENGTHS, MOST_WORDS, words_of
from sightline.errors import ConfigError
from sightline.serve.uploads import CaptionsUpload, RequestBody, Upload, Whole, as_whole

MOST_CAPTIONS, MOST_HITS, LONGEST = 500, 200, 1000
MOST_PHRASES, LONGEST_PHRASE = 10, 100
Sentence = Annotated[str, StringConstraints(max_length=LONGEST, pattern="[A-Za-z]")]
Phrase = Annotated[str, StringConstraints(max_length=LONGEST_PHRASE, pattern="[A-Za-z0-9]")]
PhotoId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]


def _length(given: object) -> object:
    """JSON may give the number of words as a number."""
    number = isinstance(given, int | float) and not isinstance(given, bool)
    text = str(as_whole(given)) if number else given
    if isinstance(text, str):
        try:
            words_of(text)
        except ConfigError as error:
            raise ValueError(f"{text[:20]!r} is no length; {error.fix}") from error
    return text


_NUMBERS = "|".join(map(str, range(LEAST_WORDS, MOST_WORDS + 1)))
Length = Annotated[
    str,
    BeforeValidator(_length),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^({'|'.join(LENGTHS)}|{_NUMBERS})$"},
                {"type": "integer", "minimum": LEAST_WORDS, "maximum": MOST_WORDS},
            ]
        }
    ),
]


def _given(name: str, kind: str) -> JsonValue:
    return {"required": [name], "properties": {name: {"type": kind}}}


class CaptionRequest(RequestBody):
    """Photos to be captioned."""

    photos: list[Upload] = Field(min_length=1)
    beam: Whole = Field(3, ge=1, le=10, description="Hypotheses that are followed at once; 1 is fastest.")
    length: Length = Field(
        "normal", description=f"short, normal, long, or the most words, {LEAST_WORDS} to {MOST_WORDS}."
    )
    must_include: list[Phrase] = Field(
        default_factory=list,
        max_length=MOST_PHRASES,
        description="Words and phrases that every caption has; needs a beam of more than 1.",
    )
    attention: bool = Field(False, description="Give for each word a grid of where the model looked.")


class GroundRequest(RequestBody):
    """A sentence to be found in a photo."""

    sentence: Sentence
    photo: Upload


class WhyRequest(RequestBody):
    """A sentence to be found in a photo of the index."""

    sentence: Sentence


class SearchRequest(RequestBody):
    """What photos of the index should be like: words, a photo, or both."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_given("text", "string"), _given("photo", "object")]})

    text: Sentence | None = None
    photo: Upload | None = None
    without: Sentence | None = Field(None, description="Words for what should not be there.")
    k: Whole = Field(10, ge=1, le=MOST_HITS, description="Hits that are wanted.")
    explain: bool = Field(False, description="Give for each hit where the words are.")

    @model_validator(mode="after")
    def _something(self) -> SearchRequest:
        if self.text is None and self.photo is None:
            raise ValueError("give `text`, `photo` or both")
        return self


class AuditRequest(RequestBody):
    """Photos and captions of them: a file of captions, or sentences that are held against every photo.

    The file may be of any format that Sightline reads; names of photos tell which captions are whose.
    """

    photos: list[Upload] = Field(min_length=1)
    captions: CaptionsUpload | Annotated[list[Sentence], Field(min_length=1, max_length=MOST_CAPTIONS)]


PARTS = {"captions": "text/csv", "sentence": "text/plain"}  # what parts of a form are, commonly
PHOTO = "image/jpeg, image/png, image/webp"


def body(kind: type[BaseModel]) -> dict[str, Any]:
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
            kept = {key: value for key, value in field.items() if key not in ("anyOf", "default")}
            fields[name] = {**field["anyOf"][0], **kept}
    if "anyOf" in schema:
        schema["anyOf"] = [{"required": one["required"]} for one in schema["anyOf"]]
    json = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    content = {"application/json": json, "multipart/form-data": {"schema": schema, "encoding": encoding}}
    return {"requestBody": {"required": True, "content": content}}
