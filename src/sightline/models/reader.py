"""A model with its words: what bundles are made of, and what grounding asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from sightline.errors import CheckpointError
from sightline.models.captioner import Captioner
from sightline.models.end_to_end import VISION_PARTS
from sightline.models.matcher import Matcher
from sightline.text.vocabulary import Vocabulary

Model = TypeVar("Model", Captioner, Matcher)


@dataclass(frozen=True, eq=False)
class Reader(Generic[Model]):
    """A model that reads scenes, its words, and the name of the rule that splits captions into them."""

    model: Model
    vocabulary: Vocabulary
    text_rule: str

    def __post_init__(self) -> None:
        kind, vocab_size = self.model.config.kind, self.model.vocab_size
        if vocab_size != len(self.vocabulary):
            raise CheckpointError(
                f"a {kind} model of {vocab_size} ids with a vocabulary of {len(self.vocabulary)}",
                fix="give the vocabulary it was built with",
            )
        if missing := [part for part in self.model.needs if part not in VISION_PARTS]:
            raise CheckpointError(
                f"a {kind} model reads {missing[0]}, which vision does not give", fix="bundle one that reads scenes"
            )
