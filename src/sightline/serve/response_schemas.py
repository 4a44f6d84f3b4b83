"""What is answered, for the OpenAPI document. Answers are built elsewhere; tests hold them against these shapes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Box = list[float]  # x1 y1 x2 y2 in pixels of the upright photo


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


class Hit(BaseModel):
    """A photo of the index; `id` asks for it at /v1/photos."""

    id: str
    path: str
    score: float
    caption: str | None
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
    queue: int = Field(description="Photos that are waiting or worked on.")
    indexed: int | None = Field(description="Photos of the index; null without one.")
    can: list[str]
    limits: dict[str, int]


SHAPES: tuple[type[BaseModel], ...] = (Problem, Captions, Ground, Hits, Audits, Health)


def schemas(kinds: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    """The schemas of shapes, and of all that they hold, by name."""
    found: dict[str, Any] = {}
    for kind in kinds:
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        found |= schema.pop("$defs", {})
        found[kind.__name__] = schema
    return found
