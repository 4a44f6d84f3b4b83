"""Karpathy's split files `dataset_{coco,flickr30k,flickr8k}.json`: captions, their tokens, and each photo's split."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from sightline.data.caption_format import caption_set, checked, each_captioned, report_captions, sentence_numbers
from sightline.data.format import Format, Probe
from sightline.data.json_records import Record, json_id, parse_each, read_object
from sightline.data.records import CaptionedPhoto, CaptionSet, Problems, Sentence, check_caption_count
from sightline.errors import CountError
from sightline.files import write_json

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def matches(probe: Probe) -> bool:
    """A JSON object whose images hold `sentences`, without SentiCap's word sentiments."""
    holds_sentences = probe.has_key("sentences") or probe.has_key("sentids")
    return probe.json_start == "{" and holds_sentences and not probe.has_key("word_sentiment")


def read(path: Path, problems: Problems | None = None) -> CaptionSet:
    """Photos with captions and splits. The id is `cocoid` where there is one, else `imgid`."""
    met = Problems() if problems is None else problems
    images = read_object(path).items("images")
    return caption_set(parse_each(images, path, "images", met, lambda r: parse_photo(r, met)), path, met)


def parse_photo(image: Record, problems: Problems) -> CaptionedPhoto:
    """One entry of `images`."""
    id = image.identity("cocoid" if image.has("cocoid") else "imgid")
    entries = image.items("sentences")
    sentences = tuple(
        parse_each(entries, image.path, f"image {id}, sentences", problems, lambda r: parse_sentence(r, problems))
    )
    if image.has("sentids"):
        _check_sentids(image, entries)
    check_caption_count(id, len(entries), str(image.path), problems)
    return CaptionedPhoto(
        id, sentences, file_of(image), image.text("split") if image.has("split") else None, image.size()
    )


def parse_sentence(record: Record, problems: Problems) -> Sentence:
    """One sentence: `tokens`, `raw` (the joined tokens where a file leaves it out) and `sentid`."""
    tokens = record.texts("tokens")
    text = record.text("raw") if record.has("raw") else " ".join(tokens)
    id = record.identity("sentid") if record.has("sentid") else None
    return Sentence(checked(text, record, problems), tokens, id=id)


def write(path: Path, captions: CaptionSet) -> int:
    """Write photos so that `read` gives the same ids, files, splits, texts and tokens.

    The id becomes `cocoid`, `imgid` counts. Sentences without tokens get Karpathy's: lower case, no punctuation.
    """
    numbers = sentence_numbers(captions)
    images = []
    for position, photo in enumerate(each_captioned(captions)):
        sentences = [
            {"tokens": _tokens(sentence), "raw": sentence.text, "imgid": position, "sentid": next(numbers)}
            for sentence in photo.sentences
        ]
        image: dict[str, Any] = {"imgid": position, "cocoid": json_id(photo.id), "sentences": sentences}
        image["sentids"] = [sentence["sentid"] for sentence in sentences]
        if photo.file is not None:
            folder, slash, image["filename"] = photo.file.rpartition("/")
            image |= {"filepath": folder} if slash else {}
        if photo.split is not None:
            image["split"] = photo.split
        if photo.size is not None:
            image["width"], image["height"] = photo.size
        images.append(image)
    write_json(path, {"images": images, "dataset": "sightline"})
    return len(images)


def _tokens(sentence: Sentence) -> list[str]:
    return list(sentence.tokens or sentence.text.lower().translate(_PUNCTUATION).split())


def file_of(image: Record) -> str | None:
    """`filepath/filename`, or what there is of it."""
    if not image.has("filename"):
        return None
    name = image.text("filename")
    return f"{image.text('filepath')}/{name}" if image.has("filepath") else name


def _check_sentids(image: Record, entries: list[Any]) -> None:
    listed = image.items("sentids")
    held = [
        entry.get("sentid", number) for entry, number in zip(entries, listed, strict=False) if isinstance(entry, dict)
    ]
    if len(listed) != len(entries) or held != listed:
        raise CountError(
            f"`sentids` lists {len(listed)} sentences, `sentences` holds {len(entries)}"
            if len(listed) != len(entries)
            else "`sentids` and the `sentid` of `sentences` differ",
            where=image.where,
            fix="make the two agree",
        )


FORMAT: Format = Format(
    "karpathy",
    "Karpathy's split of COCO or Flickr: captions, tokens and splits (dataset_*.json)",
    matches,
    inspect=lambda path: report_captions(path, FORMAT, read),
    captions=read,
    write_captions=write,
)
