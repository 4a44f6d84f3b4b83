"""What is asked and what is answered. A form has the same names as the JSON, with files in place of uploads.

FastAPI checks every answer against its schema (`response_model`), and writes both into the OpenAPI document.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

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

from sightline.decoding.rules import LEAST_WORDS, LENGTHS, MOST_WORDS, word_limits
from sightline.errors import ConfigError

MOST_CAPTIONS = 500  # of one request to audit
MOST_HITS = 200
MOST_EXPLAINED = 50  # hits of one request
MOST_PHRASES = 10  # that a caption must have
MOST_ALTERNATIVES = 8
LONGEST_SENTENCE = 1000  # letters
LONGEST_PHRASE = 100
LONGEST_NAME = 300


def _decode(value: object) -> object:
    """Bytes of base64, with or without the beginning of a data URL."""
    if not isinstance(value, str):
        return value
    encoded = value.partition(",")[2] if value.startswith("data:") else value
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("this is not base64") from error


def _whole(value: object) -> object:
    """JSON knows one kind of numbers: 3.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _length(value: object) -> object:
    """JSON may give the number of words as a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = str(_whole(value)) if is_number else value
    if isinstance(text, str):
        try:
            word_limits(text)
        except ConfigError as error:
            raise ValueError(f"{text[:20]!r} is no length; {error.fix}") from error
    return text


_NUMBERS = "|".join(map(str, range(LEAST_WORDS, MOST_WORDS + 1)))
_LENGTH_SCHEMA: dict[str, JsonValue] = {
    "anyOf": [
        {"type": "string", "pattern": f"^({'|'.join(LENGTHS)}|{_NUMBERS})$"},
        {"type": "integer", "minimum": LEAST_WORDS, "maximum": MOST_WORDS},
    ]
}
Whole = Annotated[int, BeforeValidator(_whole)]
Length = Annotated[str, BeforeValidator(_length), WithJsonSchema(_LENGTH_SCHEMA)]
Sentence = Annotated[str, StringConstraints(max_length=LONGEST_SENTENCE, pattern="[A-Za-z]")]
Phrase = Annotated[str, StringConstraints(max_length=LONGEST_PHRASE, pattern="[A-Za-z0-9]")]
PhotoId = Annotated[str, StringConstraints(max_length=64)]
Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]
Box = list[float]  # x1 y1 x2 y2 in pixels of the upright photo


class RequestBody(BaseModel):
    """Base of what is asked: nothing is guessed, and an unknown name is an error."""

    model_config = ConfigDict(extra="forbid")


def _file(what: str) -> dict[str, JsonValue]:
    return {"type": "string", "format": f"base64-{what}", "description": f"The {what} file in base64."}


class Upload(RequestBody):
    """A file in a JSON body."""

    name: Name = Field("", description="Comes back as `path`.")
    data: Annotated[bytes, BeforeValidator(_decode)] = Field(json_schema_extra=_file("photo"))


class CaptionsUpload(Upload):
    """A file of captions in a JSON body; the end of its name, such as .csv, helps to tell its format."""

    name: Name = ""
    data: Annotated[bytes, BeforeValidator(_decode)] = Field(json_schema_extra=_file("captions"))


class CaptionRequest(RequestBody):
    """Photos to be captioned."""

    photos: list[Upload] = Field(min_length=1)
    beam: Whole = Field(5, ge=1, le=10, description="Hypotheses that are followed at once; 1 is fastest.")
    length: Length = Field(
        "normal", description=f"short, normal, long, or the most words, {LEAST_WORDS} to {MOST_WORDS}."
    )
    must_include: list[Phrase] = Field(
        default_factory=list,
        max_length=MOST_PHRASES,
        description="Words and phrases that every caption has; needs a beam of more than 1.",
    )
    attention: bool = Field(False, description="Give for each word a grid of where the model looked.")
    alternatives: Whole = Field(0, ge=0, le=MOST_ALTERNATIVES, description="Other captions that are wanted as well.")
    model: Name = Field("", description="One of `models` of /v1/health; by default the first.")


class WhyRequest(RequestBody):
    """A sentence to be found in a photo of the index."""

    sentence: Sentence


class GroundRequest(WhyRequest):
    """A sentence to be found in a photo."""

    photo: Upload


class ExplainRequest(WhyRequest):
    """A sentence to be found in several photos of the index."""

    ids: list[PhotoId] = Field(min_length=1, max_length=MOST_EXPLAINED)


class SearchRequest(RequestBody):
    """What photos of the index should be like: words, a photo, or both. The photo is sent, or is a hit."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"type": kind}}}
                for name, kind in (("text", "string"), ("photo", "object"), ("like", "string"))
            ]
        }
    )

    text: Sentence | None = None
    photo: Upload | None = None
    like: PhotoId | None = Field(None, description="The id of a hit, in place of `photo`; itself is not found.")
    without: Sentence | None = Field(None, description="Words for what should not be there.")
    k: Whole = Field(10, ge=1, le=MOST_HITS, description="Hits that are wanted.")
    explain: bool = Field(False, description="Give for each hit where the words are.")

    @model_validator(mode="after")
    def _something(self) -> SearchRequest:
        if self.text is None and self.photo is None and self.like is None:
            raise ValueError("give `text`, `photo` or `like`")
        return self


class AuditRequest(RequestBody):
    """Photos and captions of them: a file of captions, or sentences that are held against every photo.

    The file may be of any format that Sightline reads; names of photos tell which captions are whose.
    """

    photos: list[Upload] = Field(min_length=1)
    captions: CaptionsUpload | Annotated[list[Sentence], Field(min_length=1, max_length=MOST_CAPTIONS)]


class Problem(BaseModel):
    """What is wrong, and what to do."""

    error: str
    fix: str


class Word(BaseModel):
    """A word; box and score are null where it points nowhere. A plural may have several boxes, the first in `box`."""

    word: str
    box: Box | None
    boxes: list[Box]
    score: float | None


class CaptionWord(Word):
    """A word of a caption that Sightline wrote."""

    model_config = ConfigDict(extra="allow")  # values of gates, for models that have some

    attention: list[list[float]] | None = Field(None, description="Rows from the top; shares of the largest.")


class Thing(BaseModel):
    """A named thing in a photo."""

    name: str
    score: float
    box: Box | None


class CaptionResponse(BaseModel):
    """A photo's caption."""

    path: str
    caption: str
    log_prob: float
    confidence: float
    low_confidence: bool
    words: list[CaptionWord]
    concepts: list[Thing]
    size: list[int]
    alternatives: list[str] = Field([], description="Other captions, the most probable first.")


class UnreadablePhoto(Problem):
    """A photo that cannot be used, among others that can."""

    path: str


class Captions(BaseModel):
    """One entry for each photo, in the order they were sent."""

    captions: list[CaptionResponse | UnreadablePhoto]


class Ground(BaseModel):
    """Where the words of a sentence are."""

    path: str
    sentence: str
    size: list[int]
    words: list[Word]


class Why(BaseModel):
    """What of the question is where in a hit."""

    words: list[Word]
    size: list[int]


class Whys(BaseModel):
    """One entry for each photo; null where it has gone, or where nothing of the sentence can be looked for."""

    hits: list[Why | None]


class Hit(BaseModel):
    """A photo of the index; `id` asks for it at /v1/photos.

    `weak` ones are weaker matches: neither caption nor concepts say the words, and the photo is not near to them.
    """

    id: str
    path: str
    score: float
    caption: str | None
    weak: bool
    why: Why | None = None


class Hits(BaseModel):
    """The best first. `sentence` is what was looked for: the text, or the caption of the photo that was sent.

    `unknown` are words of `text` and `without` that the model never learned: they find only captions that say them.
    """

    sentence: str
    unknown: list[str]
    hits: list[Hit]


class Noun(BaseModel):
    """A noun of a caption, and whether the photo supports it."""

    word: str
    index: int
    supported: bool
    support: float
    verdict: str
    box: Box | None
    instead: list[str]


class CaptionAudit(BaseModel):
    """A caption and its nouns."""

    path: str
    caption: str
    size: list[int]
    nouns: list[Noun]
    flagged: int


class Audits(BaseModel):
    """Captions of photos that were sent; `unread` photos, and `unmatched` ones that no caption is about."""

    audits: list[CaptionAudit]
    flagged: int
    unread: list[UnreadablePhoto]
    unmatched: list[str]


class Health(BaseModel):
    """How the server is, what it can do, and what it takes on."""

    status: str
    version: str
    model: str
    models: list[str] = Field(description="That can be asked for a caption; the first is asked by default.")
    queue: int = Field(description="Photos that are waiting or worked on.")
    indexed: int | None = Field(description="Photos of the index; null without one.")
    can: list[str]
    limits: dict[str, int]
