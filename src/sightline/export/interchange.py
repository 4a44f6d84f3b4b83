"""Results in the forms of other libraries: supervision's `Detections`, pandas tables, COCO results, and the folder of
photos that Hugging Face's `datasets` loads. None of these libraries is needed, nor imported, until it is asked for.

    captions = pipeline.caption(["photos/cat.jpg", "photos/coffee.jpg"])
    caption_frame(captions).sort_values("confidence")      a pandas table, a row a photo
    box_frame(captions).groupby("word").size()             a row a box
    to_detections(captions[0])                             boxes for supervision's annotators and metrics
    coco_results(captions)                                 what COCO's evaluation reads
    write_image_folder("photos", captions)                 load_dataset("imagefolder", data_dir="photos")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from sightline.caption import PhotoCaption, WordTrace
from sightline.data.caption_table import IMAGE_FOLDER, write_jsonl
from sightline.data.image_list import photo_number
from sightline.data.json_records import json_id
from sightline.data.records import CaptionedPhoto, CaptionSet, Sentence
from sightline.errors import ConfigError, DataError, DuplicateRecordError
from sightline.files import PathLike
from sightline.scene import Box

if TYPE_CHECKING:
    import pandas as pd
    import supervision as sv


class BoxedSentence(Protocol):
    """A sentence whose words point at boxes: a `PhotoCaption` or a `Grounding`."""

    @property
    def words(self) -> tuple[str, ...]: ...
    @property
    def trace(self) -> tuple[WordTrace, ...]: ...
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> tuple[int, int]: ...


class _NamedBox(NamedTuple):
    name: str
    position: int  # of the word in its sentence, or of the concept among the others
    corners: tuple[float, ...]  # x1 y1 x2 y2, pixels
    score: float


def to_detections(sentence: BoxedSentence, *, concepts: bool = False) -> sv.Detections:
    """The boxes of one photo as supervision's `Detections`, in pixels, to draw, filter and measure.

    Names are in `data["class_name"]`, and are numbered as they come in `class_id`. `confidence` is the score of a box;
    the further boxes of a plural have that of their word.

    Args:
        sentence: a caption (`Pipeline.caption`), or a sentence of yours (`Pipeline.ground`).
        concepts: the named things that were seen in the photo of a caption, instead of the words that point somewhere.
    """
    boxes = list(_concept_boxes(sentence) if concepts else _word_boxes(sentence))
    names = [box.name for box in boxes]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return _library("supervision").Detections(
        xyxy=np.array([box.corners for box in boxes], np.float32).reshape(-1, 4),
        confidence=np.array([box.score for box in boxes], np.float32),
        class_id=np.array([number[name] for name in names], np.int64),
        data={"class_name": np.array(names, np.str_)},
    )


def caption_frame(captions: Iterable[PhotoCaption]) -> pd.DataFrame:
    """A pandas table with a row for each photo, whose columns are named as `PhotoCaption.to_json` names them.

    `objects` are the names of what was seen, the surest first; `width` and `height` are the photo's, upright.
    """
    columns = ("path", "caption", "confidence", "low_confidence", "log_prob", "objects", "width", "height")
    rows = []
    for caption in captions:
        objects = [concept.name for concept in caption.concepts]
        certainty = (caption.confidence, caption.low_confidence, caption.log_prob)
        rows.append((caption.path, caption.text, *certainty, objects, *caption.size))
    return _library("pandas").DataFrame(rows, columns=list(columns))


def box_frame(sentences: Iterable[BoxedSentence]) -> pd.DataFrame:
    """A pandas table with a row for each box: path, word, its position in the sentence, x1 to y2 in pixels, score."""
    columns = ("path", "word", "position", "x1", "y1", "x2", "y2", "score")
    rows = [
        (sentence.path, box.name, box.position, *box.corners, box.score)
        for sentence in sentences
        for box in _word_boxes(sentence)
    ]
    return _library("pandas").DataFrame(rows, columns=list(columns))


def coco_results(captions: Iterable[PhotoCaption]) -> list[dict[str, Any]]:
    """COCO's form of results, `[{"image_id": 30034, "caption": "…"}]`, to write with `json.dump`.

    The id is the number in the name of a file of COCO or Flickr, else the name without its suffix.
    """
    captions_by_id: dict[int | str, str] = {}
    for caption in captions:
        id = json_id(photo_number(_path_of(caption)))
        if id in captions_by_id:
            raise DuplicateRecordError(f"two captions are of image {id}", where=caption.path, fix="keep one")
        captions_by_id[id] = caption.text
    return [{"image_id": id, "caption": text} for id, text in captions_by_id.items()]


def write_image_folder(folder: PathLike, captions: Iterable[PhotoCaption]) -> Path:
    """Write `metadata.jsonl` into a folder of photos, for `load_dataset("imagefolder", data_dir=folder)`.

    The photos must be below the folder. `sightline data inspect`, `train` and `audit` read such a folder too. Returns
    the file that was written.
    """
    photos = [CaptionedPhoto(_path_of(caption), (Sentence(caption.text),), caption.path) for caption in captions]
    path = Path(folder) / IMAGE_FOLDER[1]
    write_jsonl(path, CaptionSet(tuple(photos)))
    return path


def _word_boxes(sentence: BoxedSentence) -> Iterator[_NamedBox]:
    for position, (word, trace) in enumerate(zip(sentence.words, sentence.trace, strict=False)):
        for box in trace.boxes:
            yield _NamedBox(word, position, _pixels(box, sentence.size), trace.score or 0.0)


def _concept_boxes(sentence: BoxedSentence) -> Iterator[_NamedBox]:
    if not isinstance(sentence, PhotoCaption):
        raise ConfigError("only captions have concepts", fix="give what `Pipeline.caption` returns")
    for position, concept in enumerate(sentence.concepts):
        if concept.box is not None:
            yield _NamedBox(concept.name, position, _pixels(concept.box, sentence.size), concept.score)


def _pixels(box: Box, size: tuple[int, int]) -> tuple[float, ...]:
    return tuple(v * side for v, side in zip(box, (*size, *size), strict=True))


def _path_of(caption: PhotoCaption) -> str:
    if not caption.path:
        raise DataError("this photo came as pixels and has no name", where=caption.text, fix="caption it by its path")
    return caption.path


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(f"{name} is not installed", fix=f"pip install {name}") from error
