"""One small, valid file of every caption and annotation format, and strategies for caption sets."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st
from PIL import Image

from sightline.data.format import Format
from sightline.data.formats import FORMATS
from sightline.data.records import CaptionedPhoto, CaptionSet, Sentence

# The formats in the order in which they should be tried.
NAMES = (
    "flickr30k-entities photo-folder cocotalk senticap karpathy gvd-reference gvd-captions split-ids "
    "grounding-submission coco-evaluation coco-instances coco-captions neuraltalk-raw blip-json coco-results "
    "boxes-jsonl captions-json captions-jsonl captions-csv conceptual-captions flickr-token flickr8k-judgements "
    "image-list word-counts class-names clipscore-json corpus"
).split()

KARPATHY = {
    "images": [
        {
            "filepath": "val2014",
            "sentids": [770337, 771687],
            "filename": "COCO_val2014_000000391895.jpg",
            "imgid": 0,
            "split": "test",
            "sentences": [
                {"tokens": ["a", "man"], "raw": "A man.", "imgid": 0, "sentid": 770337},
                {"tokens": ["a", "moped"], "raw": "A moped.", "imgid": 0, "sentid": 771687},
            ],
            "cocoid": 391895,
        },
        {
            "filename": "1000092795.jpg",
            "imgid": 7,
            "split": "train",
            "sentids": [35],
            "sentences": [{"tokens": ["two", "dogs"], "raw": "Two dogs ", "imgid": 7, "sentid": 35}],
        },
    ],
    "dataset": "coco",
}
SENTICAP = {
    "images": [
        {
            "imgid": 5,
            "filename": "a.jpg",
            "split": "test",
            "sentences": [
                {"tokens": ["nice", "food"], "raw": "Nice food.", "sentiment": 1, "word_sentiment": [1, 0.0]},
            ],
        },
        {
            "imgid": 5,
            "filename": "a.jpg",
            "split": "test",
            "sentences": [{"tokens": ["bad", "food"], "raw": "Bad food.", "sentiment": 0, "word_sentiment": [1, 0.0]}],
        },
    ]
}
TALK = {
    "ix_to_word": {"1": "a", "2": "dog", "3": "UNK"},
    "images": [
        {"split": "train", "file_path": "train2014/a.jpg", "id": 11, "width": 4, "height": 3},
        {"split": "val", "file_path": "val2014/b.jpg", "id": 12},
    ],
    "wtol": {"a": "a", "dog": "dog"},
    "wtod": {"dog": 0},
}
LABELS = {
    "labels": [[1, 2, 0, 0], [2, 0, 0, 0], [1, 3, 2, 1]],
    "label_start_ix": [1, 3],
    "label_end_ix": [2, 3],
    "label_length": [2, 1, 4],
}
NEURALTALK = [
    {"file_path": "a/1.jpg", "captions": ["one dog", "a dog"], "id": 4},
    {"file_path": "b.jpg", "captions": ["x"]},
]
COCO = {
    "info": {"year": 2014},
    "images": [
        {"id": 9, "file_name": "COCO_val2014_000000000009.jpg", "width": 640, "height": 480},
        {"id": 4, "file_name": "COCO_val2014_000000000004.jpg", "width": 500, "height": 375},
    ],
    "licenses": [],
    "annotations": [
        {"image_id": 4, "id": 30, "caption": "A bear."},
        {"image_id": 9, "id": 31, "caption": "Some food\n"},
        {"image_id": 4, "id": 32, "caption": "A brown bear"},
    ],
}
INSTANCES = {
    "images": [
        {"id": 9, "file_name": "9.jpg", "width": 200, "height": 100},
        {"id": 4, "file_name": "4.jpg", "width": 50, "height": 50},
    ],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 18, "bbox": [20.0, 10.0, 180.0, 90.0], "iscrowd": 0},
        {"id": 2, "image_id": 9, "category_id": 1, "bbox": [0, 0, 100, 50], "iscrowd": 1},
    ],
    "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
}
RESULTS = [{"image_id": 404464, "caption": "a man"}, {"image_id": 5, "caption": "snow"}]
EVALUATION = {
    "overall": {"CIDEr": 1.1, "Bleu_4": 0.3},
    "imgToEval": {"42": {"CIDEr": 0.9, "SPICE": {"All": {"f": 0.2}}, "caption": "a dog", "image_id": 42}},
}
REFERENCE = {
    "vocab": ["dog", "man"],
    "annotations": [
        {
            "image_id": 1007129816,
            "image_size": [333, 500],
            "captions": [
                {
                    "tokens": ["a", "man", "and", "a", "dog"],
                    "process_clss": ["man", "dog"],
                    "process_idx": [1, 4],
                    "process_bnd_box": [[1, 2, 30, 40], [5, 6, 7, 8]],
                    "process_attr": [],
                }
            ],
        }
    ],
    "lemma2w": {"man": ["men"]},
}
GVD_CAPTIONS = [
    [{"caption": ["a", "dog"], "clss": ["dog"], "bbox": [[1, 2, 3, 4]], "idx": [1]}],
    [{"caption": ["a"], "clss": [], "bbox": [], "idx": []}],
]
SPLIT = {"train": ["1", "2"], "val": ["3"], "test": ["4"]}
SUBMISSION = {
    "results": {
        "1": [{"clss": ["dog"], "idx_in_sent": [2], "bbox": [[1, 2, 3, 4]]}],
        "2": [{"clss": [], "idx_in_sent": [], "bbox": []}],
    },
    "eval_mode": "gen",
    "external_data": {"used": True, "details": "a detector"},
}
BLIP = [
    {"image": "val2014/a.jpg", "caption": ["a dog", "one dog"], "image_id": "coco_1"},
    {"image": "val2014/b.jpg", "caption": "a cat", "image_id": "coco_2"},
    {"image": "val2014/b.jpg", "caption": "the cat", "image_id": "coco_2"},
]
CLIPSCORE = {"photo one": ["a dog runs", "the dog is running"], "photo two": ["two cats"]}
BOXES = '["9",[[50,0.67,403,460,925,1000],[0,0.8,0,0,500,250]]]\n["25",[]]\n'
TOKENS = "1.jpg#0\tA child in pink .\n1.jpg#1\tA girl .\n2.jpg#0\tA dog .\n"
JUDGEMENTS = "1.jpg\t2.jpg#2\t1\t1\t2\n1.jpg\t3.jpg#0\t4\t4\t3\n"
WORD_COUNTS = "<S> 0\n</S> 0\na 900\ndog 12\nman 12\n"
CONCEPTUAL = "a very typical bus station\thttp://lh6.ggpht.com/x.jpg\nsierra looked stunning\thttps://b.org/a\n"
XML = """<annotation>
  <filename>36979.jpg</filename>
  <size><width>100</width><height>50</height><depth>3</depth></size>
  <object><name>1</name><name>2</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>100</xmax><ymax>50</ymax></bndbox></object>
  <object><name>1</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>
  <object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>
  <object><name>4</name><scene>0</scene><nobndbox>1</nobndbox></object>
</annotation>
"""
MARKED = (
    "[/EN#1/people/other Two men] in [/EN#3/scene a park] .\n"
    "[/EN#0/notvisual It] shows [/EN#2/people a man] with [/EN#4/other style] .\n"
)


def put(value: Any, *keys: Any) -> Callable[[Any], None]:
    """Replace the value under a path of keys."""

    def change(whole: Any) -> None:
        for key in keys[:-1]:
            whole = whole[key]
        whole[keys[-1]] = value

    return change


def drop(*keys: Any) -> Callable[[Any], None]:
    """Remove what is under a path of keys."""

    def change(whole: Any) -> None:
        for key in keys[:-1]:
            whole = whole[key]
        del whole[keys[-1]]

    return change


def repeat(*keys: Any) -> Callable[[Any], None]:
    """Append the first item of the list under a path of keys once more."""

    def change(whole: Any) -> None:
        for key in keys:
            whole = whole[key]
        whole.append(whole[0])

    return change


def format_of(name: str) -> Format:
    """The format of that name."""
    return next(format for format in FORMATS if format.name == name)


def write_labels(path: Path, **changes: object) -> Path:
    """A label file, with some datasets replaced (or left out, where None); lists are written as uint32."""
    with h5py.File(path, "w") as file:
        for name, value in {**LABELS, **changes}.items():
            if value is not None:
                file[name] = value if isinstance(value, np.ndarray) else np.asarray(value, "uint32")
    return path


def write_tar(path: Path, files: dict[str, str]) -> Path:
    """A gzipped tar archive."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def write_photo(path: Path) -> None:
    """A tiny picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), "red").save(path)


def write_samples(folder: Path) -> dict[str, Path]:
    """A valid file or folder of every format, by its name."""
    texts = {
        "karpathy": ("dataset_coco.json", json.dumps(KARPATHY)),
        "senticap": ("senticap.json", json.dumps(SENTICAP)),
        "cocotalk": ("talk/flickrtalk.json", json.dumps(TALK)),
        "neuraltalk-raw": ("coco_raw.json", json.dumps(NEURALTALK)),
        "coco-captions": ("captions_val2014.json", json.dumps(COCO)),
        "coco-instances": ("instances_val2014.json", json.dumps(INSTANCES)),
        "coco-results": ("results.json", json.dumps(RESULTS)),
        "coco-evaluation": ("eval.json", json.dumps(EVALUATION)),
        "gvd-reference": ("flickr30k_cleaned_class.json", json.dumps(REFERENCE)),
        "gvd-captions": ("gvd/cap_flickr30k.json", json.dumps(GVD_CAPTIONS)),
        "split-ids": ("split_ids_flickr30k_entities.json", json.dumps(SPLIT)),
        "grounding-submission": ("submission.json", json.dumps(SUBMISSION)),
        "blip-json": ("coco_karpathy_val.json", json.dumps(BLIP)),
        "clipscore-json": ("refs.json", json.dumps(CLIPSCORE)),
        "boxes-jsonl": ("boxes.jsonl", BOXES),
        "flickr-token": ("Flickr8k.token.txt", TOKENS),
        "flickr8k-judgements": ("ExpertAnnotations.txt", JUDGEMENTS),
        "image-list": ("Flickr_8k.trainImages.txt", "1.jpg\n2.jpg\n"),
        "word-counts": ("word_counts.txt", WORD_COUNTS),
        "class-names": ("flickr30k_class_name.txt", "dog\nman\n"),
        "conceptual-captions": ("Train_GCC-training.tsv", CONCEPTUAL),
        "corpus": ("sentences.txt", "Two dogs run .\nA man , 2 dogs and a cat .\n"),
        "captions-csv": ("table/open_clip.csv", "filepath\ttitle\na.jpg\tA dog\nb.jpg\tA cat\na.jpg\tThe dog\n"),
        "captions-json": ("table/said.json", '[{"path": "a.jpg", "caption": "A dog", "confidence": 0.5}]\n'),
        "captions-jsonl": (
            "table/rows.jsonl",
            '{"image": "a.jpg", "text": "A dog"}\n{"image": "b.jpg", "text": ["x", "y"]}\n',
        ),
    }
    paths = {}
    for module, (name, text) in texts.items():
        paths[module] = folder / name
        paths[module].parent.mkdir(parents=True, exist_ok=True)
        paths[module].write_text(text, encoding="utf-8")
    (folder / "gvd/dic_flickr30k.json").write_text(json.dumps(TALK))
    write_labels(folder / "talk/flickrtalk_label.h5")
    for name in ("table/a.jpg", "table/b.jpg", "photos/a.jpg", "photos/sub/b.PNG"):
        write_photo(folder / name)
    (folder / "photos/captions.csv").write_text("File,Caption\na.jpg,A dog\n")
    paths["photo-folder"] = folder / "photos"
    paths["flickr30k-entities"] = write_tar(
        folder / "entities.tar.gz", {"Annotations/36979.xml": XML, "Sentences/36979.txt": MARKED}
    )
    return paths


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda t: not t.startswith(("b'", 'b"')))
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
ID = st.one_of(st.integers(0, 10**12).map(str), st.sampled_from(["007", "0", "00"]), WORD)


def caption_sets(tokens: bool = False, most: int | None = None) -> st.SearchStrategy[CaptionSet]:
    """Sets of photos with one to `most` captions."""
    sentence = st.builds(Sentence, TEXT, st.lists(WORD, min_size=1).map(tuple) if tokens else st.none())
    photo = st.builds(
        CaptionedPhoto,
        ID,
        st.lists(sentence, min_size=1, max_size=most or 4).map(tuple),
        st.one_of(st.none(), WORD, st.tuples(WORD, WORD).map("/".join)),
        st.one_of(st.none(), st.sampled_from(["train", "restval", "val", "test"])),
        st.one_of(st.none(), st.tuples(st.integers(1, 9999), st.integers(1, 9999))),
    )
    return st.lists(photo, min_size=1, max_size=20, unique_by=lambda p: p.id).map(lambda p: CaptionSet(tuple(p)))
