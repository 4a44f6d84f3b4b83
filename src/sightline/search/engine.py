"""What both engines, `exact` and `lance`, know of a photo: its row, the keywords that find it, how well it fits."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sightline.scene import Array
from sightline.text.lemmas import lemma
from sightline.text.tokenizer import ptb_tokens
from sightline.vision.object_storage import Mark

STOP_WORDS = frozenset(
    "a an the this that these those of in on at to by from with for into onto over under near and or but as while "
    "is are be was were been being am has have had do does did it its their his her he she they them him there some "
    "'s n't -lrb- -rrb-".split()
)


def keywords(text: str) -> list[str]:
    """The base forms of the words of a caption or query, each as often as it is said.

    A word has one base form wherever it stands, so that a query of one word and a caption agree: that of the noun, or
    else that of the verb.

    >>> keywords("Two dogs are running on the beach")
    ['two', 'dog', 'run', 'beach']
    """
    return [_base(word) for word in ptb_tokens(text) if word not in STOP_WORDS]


@lru_cache(1 << 16)
def _base(word: str) -> str:
    noun = lemma(word, "n")
    return noun if noun != word else lemma(word, "v")


@dataclass(frozen=True, eq=False)
class Row:
    """A photo in the index."""

    path: str  # absolute, with forward slashes: the row's name
    root: str  # the folder that was indexed when it was found
    mark: Mark  # of the file when it was listed
    content: str  # hash of the file's bytes; "" where they changed while they were looked at
    size: tuple[int, int]  # width and height in pixels, upright
    vector: Array  # (d,) float32 of length 1
    caption: str | None = None  # None where none was asked for
    concepts: tuple[str, ...] = ()  # names of things in the photo

    def keywords(self) -> list[str]:
        """The words that find the photo: those of its caption, and those of concepts that the caption does not say.

        >>> Row("", "", (0, 0), "", (1, 1), None, "a dog on rocks", ("dog", "wild cat")).keywords()
        ['dog', 'rock', 'wild', 'cat']
        """
        words = keywords(self.caption or "")
        others = [word for name in self.concepts for word in keywords(name) if word not in words]
        return [*words, *dict.fromkeys(others)]


class RowState(NamedTuple):
    """What of a row is needed to see whether its photo has to be looked at again."""

    mark: Mark
    content: str
    captioned: bool


class Candidate(NamedTuple):
    """A photo that may be a hit."""

    path: str
    caption: str | None
    cosine: float  # of its vector with the query's
    bm25: float = 0.0  # score of its keywords
