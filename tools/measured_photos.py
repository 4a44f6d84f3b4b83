"""The test photos that the default model is measured on, and what it says about them, kept so that a run can go on."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.image_list import photo_number, read_names
from sightline.errors import ConfigError, DataError
from sightline.files import existing_path
from sightline.pipeline import Pipeline
from sightline.training.recipe_captions import read_captions
from sightline.vision.photo_reader import progress_bar

REFERENCES = 5  # captions of a photo that take part, as published


@dataclass(frozen=True)
class TestPhoto:
    """A photo, where it is, and what people said about it."""

    __test__ = False  # it is no test class

    id: str
    path: Path
    references: tuple[str, ...]


def coco(data: Path, images: Path, split: str = "test") -> list[TestPhoto]:
    """Photos of one of Karpathy's splits that are in the folder, as 000000391895.jpg or by their full names; by id.

    Of the split `train`, they are those of val2014, as all photos of the others are.
    """
    folder = existing_path(data / "coco")
    said = read_captions(_file(folder, "captions_val2014.json"))
    names = [name for name in read_names(_file(folder, f"karpathy_{split}.txt")) if "train2014" not in name]
    wanted = {photo_number(name): name for name in names}
    place = {id: path for id, name in wanted.items() if (path := _photo(images, id, name)) is not None}
    found = [TestPhoto(id, path, _texts(said[id])) for id, path in place.items()]
    if not found:
        raise DataError(
            f"it has no photo of Karpathy's {split} split", where=images, fix="name the folder of COCO's photos"
        )
    return sorted(found, key=lambda photo: int(photo.id))


def flickr8k(data: Path, split: str = "test") -> list[TestPhoto]:
    """Photos of one of Flickr8k's official splits that are there, in its order; ids are those of Flickr30k Entities."""
    folder = existing_path(data / "flickr8k")
    names = read_names(_file(folder, f"Flickr_8k.{split}Images.txt"))
    said = {photo.file: photo for photo in read_captions(_file(folder, "Flickr8k.token.txt"))}
    images = existing_path(folder / "images")
    return [
        TestPhoto(photo_number(name), images / name, _texts(said[name])) for name in names if (images / name).is_file()
    ]


def entities_file(data: Path) -> Path:
    """The annotations of Flickr8k's photos, an archive or a folder."""
    found = sorted((data / "flickr8k").glob("flickr30k_entities*"))
    if not found:
        raise ConfigError(
            "there is no flickr30k_entities*",
            where=data / "flickr8k",
            fix="put Flickr30k Entities there (or, to measure the rest of a model, use --skip regions,pointing)",
        )
    return found[0]


class CaptionLog:
    """What the model said, a line of JSON for each photo in `captions.jsonl`; photos that are there are not captioned
    again. The first line names the model's file, and captions of another are refused.
    """

    def __init__(self, out: Path, model: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / "captions.jsonl"
        head = {"model": hashlib.sha256(model.read_bytes()).hexdigest()}
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        lines = _whole_lines(self.path)
        if not lines:
            self.path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return
        if json.loads(lines[0]) != head:
            raise ConfigError(
                "it holds captions of another model", where=self.path, fix="remove it, or choose another --out"
            )
        for line in lines[1:]:
            record = json.loads(line)
            self._known[record["set"], record["id"]] = record

    def caption(self, pipeline: Pipeline, name: str, photos: Sequence[TestPhoto]) -> dict[str, dict[str, Any]]:
        """What `sightline caption --json` tells about each photo, and the `seconds` it took, by id."""
        missing = [photo for photo in photos if (name, photo.id) not in self._known]
        ids = {str(photo.path): photo.id for photo in missing}
        with self.path.open("a", encoding="utf-8") as file:
            start = time.perf_counter()
            for said in pipeline.caption_many([p.path for p in missing], bad=refuse, progress=progress_bar(name)):
                now = time.perf_counter()
                record = {"set": name, "id": ids[said.path], "seconds": now - start, **said.to_json()}
                record["path"] = Path(said.path).name
                start = now
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                file.flush()
                self._known[name, record["id"]] = record
        return {photo.id: self._known[name, photo.id] for photo in photos}


def photos_per_second(said: dict[str, dict[str, Any]]) -> float:
    """Of the whole run, in which files are read and captions are written."""
    seconds: float = sum(record["seconds"] for record in said.values())
    return len(said) / seconds


def refuse(error: Exception) -> None:
    """For `bad`: a photo that cannot be read ends the measurement."""
    raise error


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file; one that an interruption cut is removed from it."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, encoding="utf-8")
    return text.splitlines()


def _file(folder: Path, name: str) -> Path:
    """The file, or its gzip."""
    return folder / name if (folder / name).is_file() else existing_path(folder / f"{name}.gz")


def _photo(images: Path, id: str, name: str) -> Path | None:
    names: Iterator[str] = iter((f"{int(id):012d}.jpg", name))
    return next((images / name for name in names if (images / name).is_file()), None)


def _texts(photo: Any) -> tuple[str, ...]:
    return tuple(sentence.text for sentence in photo.sentences)
