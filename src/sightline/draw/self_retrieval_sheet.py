"""Self-retrieval (CL, Fig. 1 and 2): what models say of a photo, and which photos each caption finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from sightline.draw.canvas import BESIDE, SOFT, Photo, checked_width, column, fitted, row, sheet
from sightline.draw.retrieval_sheets import FoundPhoto, photo_row
from sightline.draw.text_layout import SMALL, text_block, words_of
from sightline.errors import ConfigError
from sightline.vision.images import open_image


@dataclass(frozen=True)
class SelfRetrieval:
    """What a model said of a photo, and the photos that its caption finds, best first."""

    model: str
    caption: str
    found: Sequence[FoundPhoto]


def self_retrieval_sheet(photo: Photo, said: Sequence[SelfRetrieval], width: int = 960) -> Image.Image:
    """The photo, and for each model its caption and the photos that caption finds; the right one has a green frame."""
    if not said:
        raise ConfigError("no model said anything", fix="give the caption of at least one model")
    fit = fitted(open_image(photo), checked_width(width, BESIDE) * 3 // 8)
    room = width - fit.width - 24
    told = [
        column(
            [
                text_block(words_of(one.model, SOFT), room, SMALL),
                text_block(words_of(one.caption), room),
                photo_row(one.found, room),
            ],
            6,
        )
        for one in said
    ]
    return sheet(row([fit, column(told, 24)], 24))
