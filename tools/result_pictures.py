"""Draw the pictures of docs/results.md: what trained rows say of the photos in examples/, in each paper's own form.

    python tools/result_pictures.py RUNS [RUNS …] [--out docs/images/results]

RUNS are folders that `sightline reproduce --out` filled, with rows that read what the shipped detector sees
(features/flickr8k-detector). Three pictures a paper: JRAN's relationship gate (Fig. 8), POS-SCAN's boxes beside those
of Up-Down (Fig. 4), the photos that captions with and without CL find (Fig. 1), the captions that VSRN finds and where
its vector comes from (Fig. 3), R²M's two memories word by word (Fig. 5). A paper whose rows are not there is left out.
Which three of the five photos are drawn was decided before any was.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import torch
from PIL import Image

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption
from sightline.checkpoint.model_checkpoint import Checkpoint, load
from sightline.checkpoint.style_captions import StyleCaptioner, concept_words
from sightline.data.concept_dictionary import ConceptDictionary
from sightline.decoding.decode import captions as decode_captions
from sightline.decoding.likelihood import likelihood
from sightline.decoding.strategies import Beam
from sightline.draw.attention_maps import representation_attention
from sightline.draw.canvas import save_png
from sightline.draw.charts import memory_weights, relationship_gate
from sightline.draw.retrieval_sheets import (
    FoundCaption,
    FoundPhoto,
    SelfRetrieval,
    caption_results,
    self_retrieval_sheet,
    side_by_side,
)
from sightline.files import MODEL, write_text
from sightline.grounding.nouns import box_counts, noun_tags
from sightline.jobs.extract_job import SceneMaker, vision_of
from sightline.models.captioner import Captioner
from sightline.models.r2m import R2M
from sightline.models.vsrn import VSRN
from sightline.photo import Photo
from sightline.scene import Scene
from sightline.text.vocabulary import rule
from sightline.training.feature_cache import POOL
from sightline.vision.concept_tokens import token_names
from sightline.vision.detector import Detector
from sightline.vision.encoder import InferenceEncoder
from sightline.vision.images import read_pixels

ROOT = Path(__file__).parents[1]
PHOTOS = tuple(ROOT / "examples" / f"{name}.jpg" for name in "astronaut cat coffee photographer rocket".split())
DRAWN = (0, 2, 3)  # the photos that are drawn: a person, a thing, a person with a thing
BEAM = 3
WIDTH = 760  # pixels, about as wide as a page shows
Picture = tuple[Image.Image, str]  # and what it shows
Paper = Callable[["Rows"], Iterator[Picture]]


class Rows:
    """The models of rows in folders of runs, and what the shipped detector sees in the examples."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self.runs = runs

    def has(self, *addresses: str) -> bool:
        return all(self._file(address) is not None for address in addresses)

    def model(self, address: str) -> Checkpoint:
        file = self._file(address)
        if file is None:
            raise SystemExit(f"{address} is not in {', '.join(map(str, self.runs))}")
        checkpoint = load(file)
        checkpoint.model.eval()
        return checkpoint

    def _file(self, address: str) -> Path | None:
        table, _, row = address.partition("#")
        return next((file for runs in self.runs if (file := runs / table / row / MODEL).is_file()), None)

    @cached_property
    def scenes(self) -> list[Scene]:
        encoder = InferenceEncoder(vision_of(None), pool=POOL)
        photos = [Photo(path.name, path, *read_pixels(path, encoder.size)) for path in PHOTOS]
        return SceneMaker(encoder, narrow=False)(photos)

    @cached_property
    def batch(self) -> SceneBatch:
        return SceneBatch.collate(self.scenes)

    def captions(self, checkpoint: Checkpoint, captioner: Captioner | None = None) -> list[Caption]:
        """What a captioner says of each photo, with its trace; `captioner` may stand around the checkpoint's own."""
        captioner = captioner or checkpoint.captioner()
        with torch.no_grad():
            said = decode_captions(captioner, self.batch, checkpoint.vocabulary, Beam(BEAM))
        return [best for best, *_ in said]


def jran(rows: Rows) -> Iterator[Picture]:
    captions = rows.captions(rows.model("jran/flickr8k#line-6"))
    for place in DRAWN:
        shows = f"JRAN says “{captions[place].text}”, and how much of each word is visual relationship"
        yield relationship_gate(PHOTOS[place], captions[place]), shows


def pos_scan(rows: Rows) -> Iterator[Picture]:
    models = {"Up-Down": "Up-Down-detector", "Up-Down + 0.1 KL": "Up-Down+0.1KL-POS-SCAN-cosine-detector"}
    captions = {name: rows.captions(rows.model(f"pos-scan/table-1#{row}")) for name, row in models.items()}
    for place in DRAWN:
        chosen = {name: both[place] for name, both in captions.items()}
        nouns = {name: nouns_of(caption.words) for name, caption in chosen.items()}
        shows = "Where Up-Down's nouns attend to most, and where with attention that it learned from a matcher"
        yield side_by_side(PHOTOS[place], rows.scenes[place], chosen, nouns), shows


def nouns_of(words: Sequence[str]) -> list[int]:
    """The places of the nouns that name a thing."""
    return [place for place, boxes in enumerate(box_counts(words, noun_tags([words])[0])) if boxes]


def contrastive(rows: Rows) -> Iterator[Picture]:
    models = {"AdaptiveAttention": "AA", "with contrastive learning": "AA+CL"}
    checkpoints = {name: rows.model(f"contrastive/flickr8k#{row}") for name, row in models.items()}
    captions = {name: rows.captions(checkpoint) for name, checkpoint in checkpoints.items()}
    for place in DRAWN:
        sheets = []
        for name, checkpoint in checkpoints.items():
            caption = captions[name][place]
            sentences = [caption.words] * len(PHOTOS)
            scored = likelihood(checkpoint.captioner(), rows.batch, checkpoint.vocabulary, sentences)
            order = sorted(range(len(PHOTOS)), key=lambda photo: -scored[photo].caption.log_prob)
            found = [FoundPhoto(PHOTOS[photo], photo == place) for photo in order[:3]]
            sheets.append(SelfRetrieval(name, caption.text, found))
        shows = "A caption, and of the five example photos the three for which its model finds it most probable"
        yield self_retrieval_sheet(PHOTOS[place], sheets), shows


def vsrn(rows: Rows) -> Iterator[Picture]:
    checkpoint = rows.model("vsrn/table-4#Flickr8k-4RRR+GSR-no-LG")
    model = checkpoint.model
    assert isinstance(model, VSRN)
    with (ROOT / "examples" / "captions.csv").open(encoding="utf-8", newline="") as file:
        people = [(row["file"], row["caption"]) for row in csv.DictReader(file)]
    split = rule(checkpoint.text_rule)
    texts = TextBatch.collate([split.words(caption) for _, caption in people], checkpoint.vocabulary)
    with torch.no_grad():
        images = model.embed_images(rows.batch)
        scores = model.similarity(images, model.embed_texts(texts))
        correlations = model.correlations(images)
    for place in DRAWN:
        best = scores[place].argsort(descending=True).tolist()[:4]
        found = [FoundCaption(people[i][1], people[i][0] == PHOTOS[place].name) for i in best]
        weights = correlations[place].numpy()[: len(rows.scenes[place])]
        attention = representation_attention(PHOTOS[place], rows.scenes[place], weights)
        shows = "Of people's captions of five photos those nearest to this one, and the regions nearest to its vector"
        yield caption_results(PHOTOS[place], found, attention), shows


def r2m(rows: Rows) -> Iterator[Picture]:
    """R²M speaks of what the shipped detector names: pictures of what it says, and no measure of unpaired learning."""
    checkpoint, vision = rows.model(R2M_ROW), vision_of(None)
    model = checkpoint.model
    assert isinstance(model, R2M)
    assert isinstance(vision, Detector)
    words = concept_words(token_names(), ConceptDictionary.imagenet(), checkpoint.vocabulary)
    captions = rows.captions(checkpoint, StyleCaptioner(model, vision, words, checkpoint.vocabulary).eval())
    for place in DRAWN:
        shows = f"R²M says “{captions[place].text}” of what the shipped detector names, and what its memories weigh"
        yield memory_weights(captions[place], PHOTOS[place]), shows


R2M_ROW = "r2m/table-3#Flickr8k-COCO-imagenet-rec-I"
PAPERS: dict[str, tuple[Paper, tuple[str, ...]]] = {  # and the rows that it needs
    "jran": (jran, ("jran/flickr8k#line-6",)),
    "pos-scan": (
        pos_scan,
        ("pos-scan/table-1#Up-Down-detector", "pos-scan/table-1#Up-Down+0.1KL-POS-SCAN-cosine-detector"),
    ),
    "cl": (contrastive, ("contrastive/flickr8k#AA", "contrastive/flickr8k#AA+CL")),
    "vsrn": (vsrn, ("vsrn/table-4#Flickr8k-4RRR+GSR-no-LG",)),
    "r2m": (r2m, (R2M_ROW,)),
}


def small(picture: Image.Image) -> Image.Image:
    """The picture at the width of a page, in few colours: a third of the bytes."""
    height = round(picture.height * min(1.0, WIDTH / picture.width))
    return picture.convert("RGB").resize((min(WIDTH, picture.width), height)).quantize(64)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "results")
    options = parser.parse_args(arguments)
    rows = Rows(options.runs)
    for paper, (draw, needed) in PAPERS.items():
        if not rows.has(*needed):
            print(f"{paper}: left out, since not all of {', '.join(needed)} are there")
            continue
        for number, (picture, shows) in enumerate(draw(rows), 1):
            path = options.out / f"{paper}-picture-{number}.png"
            save_png(small(picture), path)
            write_text(path.with_suffix(".txt"), shows + ".\n")
        print(f"{paper}: {number} pictures in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
