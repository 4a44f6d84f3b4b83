"""Train the word pointer (`sightline.models.word_pointer`) of a finished file, and put it in.

    python tools/train_pointer.py OUT --data DATA [--model FILE] [--photos 6000] [--epochs 8] [--seed 0]

DATA is that of tools/fit_pointing.py, with Flickr_8k.trainImages.txt. The pointer learns from the words of Flickr8k's
training captions that people drew boxes for (Flickr30k Entities), as vision and matcher of the file see them; both stay
as they are. What a training epoch is worth is told of the dev photos: *region*, the share of words whose best region
overlaps one of people's boxes with an IoU above one half, and *box*, the same of the box that is made of it. Test
photos are not read. On two cores it takes ten minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from measured_models import grounded_photos, look
from measured_photos import entities_file, flickr8k
from torch import Tensor, nn

from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.bundle import Bundle, default_bundle, load_bundle, save_bundle
from sightline.checkpoint.checkpoint_file import read_description
from sightline.data.entities import read_photos
from sightline.data.records import GroundedPhoto
from sightline.models.scene_matcher import SceneMatcher
from sightline.models.word_pointer import PointerOutput, WordPointer, WordPointerConfig
from sightline.scene import box_iou
from sightline.text.vocabulary import UNK
from sightline.training.stage import Schedule
from sightline.vision.photo_reader import progress_bar

CHUNK = 100  # photos that are looked at together
BATCH = 40  # photos of a step
RATE, DECAY, WARMUP, CLIP = 3e-3, 0.05, 0.1, 2.0
RIGHT = 0.5  # a region is right above this IoU with one of people's boxes
NEAR = 0.35  # the sides of a region move to those of a box that it overlaps by more than this
SHARPNESS = 3  # of the shares that regions should have, which are IoU to this power
SIDES = 2.0  # what the sides count beside the choice


@dataclass(frozen=True, eq=False)
class PhotoWords:
    """A photo, and the words that people drew boxes for: W words, n regions."""

    scene: SceneBatch  # regions, boxes and scores alone
    regions: Tensor  # (n, d) the matcher's vectors of regions
    words: Tensor  # (W, d) and of words
    overlaps: Tensor  # (W, n) the best IoU of each region with one of the word's boxes, 0 of padding
    targets: Tensor  # (W, n, 4) that box


@torch.no_grad()
def photo_words(bundle: Bundle, data: Path, split: str, count: int, device: torch.device) -> Iterator[PhotoWords]:
    """The photos of a split of Flickr8k that have annotated words of the matcher's vocabulary."""
    matcher = bundle.matcher
    if matcher is None or not isinstance(matcher.model, SceneMatcher):
        raise SystemExit("a word pointer reads what a scene-matcher knows of words, and the file has none")
    photos = flickr8k(data, split)[:count]
    truths = grounded_photos(read_photos(entities_file(data)), photos)
    for start in progress_bar(f"{split}, looking")(range(0, len(photos), CHUNK)):
        chunk = photos[start : start + CHUNK]
        for photo, scene in zip(chunk, look(bundle, chunk, device, "", keep=True).scenes, strict=True):
            truth = truths.get(photo.id)
            if truth is None or truth.size is None or not any(sentence.words for sentence in truth.sentences):
                continue
            sentences = [[token.lower() for token in sentence.tokens] for sentence in truth.sentences]
            texts = TextBatch.collate(sentences, matcher.vocabulary).to(device)
            vectors = matcher.model.embed_texts(texts)["words"]
            places = [(row, word.index) for row, own in enumerate(truth.sentences) for word in own.words]
            known = [int(texts.ids[row, at + 1]) != UNK for row, at in places]
            overlaps, targets = best_boxes(truth, scene)
            images = matcher.model.embed_images(scene)
            yield PhotoWords(
                together([scene]),
                images["regions"][0],
                torch.stack([vectors[row, at + 1] for row, at in places])[known],
                overlaps[known],
                targets[known],
            )


def together(scenes: Sequence[SceneBatch]) -> SceneBatch:
    """What the pointer reads of scenes, in one batch."""
    return SceneBatch(
        ids=tuple(id for scene in scenes for id in scene.ids),
        regions=torch.cat([scene.part("regions") for scene in scenes]),
        region_mask=torch.cat([scene.mask("regions") for scene in scenes]),
        boxes=torch.cat([scene.part("boxes") for scene in scenes]),
        scores=torch.cat([scene.part("scores") for scene in scenes]),
    )


def best_boxes(truth: GroundedPhoto, scene: SceneBatch) -> tuple[Tensor, Tensor]:
    """(W, n) and (W, n, 4): for each annotated word and region, the best IoU with one of its boxes, and that box."""
    assert truth.size is not None
    boxes, there = scene.part("boxes")[0].cpu().numpy(), scene.mask("boxes")[0].cpu().numpy()
    scale = np.array(truth.size * 2)
    overlaps, targets = [], []
    for word in (word for sentence in truth.sentences for word in sentence.words):
        real = np.array(word.boxes) / scale
        own = box_iou(boxes, real) * there[:, None]  # (n, boxes of the word)
        overlaps.append(own.max(1))
        targets.append(real[own.argmax(1)])
    return torch.tensor(np.stack(overlaps)).float(), torch.tensor(np.stack(targets)).float()


@dataclass(frozen=True, eq=False)
class WordBatch:
    """B photos with up to W words each, padded."""

    scenes: SceneBatch
    regions: Tensor  # (B, n, d)
    words: Tensor  # (B, W, d)
    there: Tensor  # (B, W) which words there are
    overlaps: Tensor  # (B, W, n)
    targets: Tensor  # (B, W, n, 4)

    @classmethod
    def of(cls, photos: Sequence[PhotoWords], device: torch.device) -> WordBatch:
        """Some photos; all have as many regions, padding included."""
        pad = nn.utils.rnn.pad_sequence
        return cls(
            together([photo.scene for photo in photos]).to(device),
            torch.stack([photo.regions for photo in photos]).to(device),
            pad([photo.words for photo in photos], True).to(device),
            pad([torch.ones(len(photo.words), dtype=torch.bool) for photo in photos], True).to(device),
            pad([photo.overlaps for photo in photos], True).to(device),
            pad([photo.targets for photo in photos], True).to(device),
        )


def loss_of(output: PointerOutput, batch: WordBatch) -> Tensor:
    """How far the pointer is from people's boxes, a mean over words that some region overlaps.

    Half of the choice is that any right region is chosen, half that shares follow the overlaps; the sides of all near
    regions should move to the word's box, as IoU tells.
    """
    log_shares = output.scores.masked_fill(~output.mask.unsqueeze(1), -1e9).log_softmax(2)
    right, near = batch.overlaps > RIGHT, batch.overlaps > NEAR
    found, close = batch.there & right.any(2), batch.there & near.any(2)
    any_right = -log_shares.masked_fill(~right, -1e9).logsumexp(2)[found].mean()
    wanted = batch.overlaps[close] ** SHARPNESS
    shares = wanted / wanted.sum(1, keepdim=True)
    spread = -(shares * log_shares[close].clamp(min=-30)).sum(1).mean()
    sides = 1 - iou(output.boxes, batch.targets)[near & batch.there.unsqueeze(2)].mean()
    return (any_right + spread) / 2 + SIDES * sides


def iou(one: Tensor, other: Tensor) -> Tensor:
    """(…) of boxes (…, 4), with gradients."""
    corners = torch.maximum(one[..., :2], other[..., :2]), torch.minimum(one[..., 2:], other[..., 2:])
    both = (corners[1] - corners[0]).clamp(min=0).prod(-1)
    areas = (one[..., 2:] - one[..., :2]).prod(-1) + (other[..., 2:] - other[..., :2]).prod(-1)
    return both / (areas - both).clamp(min=1e-9)


@torch.inference_mode()
def right_words(pointer: WordPointer, photos: Sequence[PhotoWords], device: torch.device) -> tuple[float, float]:
    """The shares of words, in per cent, whose best region is right, and whose box is."""
    pointer.eval()
    regions, boxes = [], []
    for start in range(0, len(photos), BATCH):
        batch = WordBatch.of(photos[start : start + BATCH], device)
        output = pointer.point({"regions": batch.regions}, batch.words, batch.scenes)
        best = output.weights.argmax(2, keepdim=True)  # (B, W, 1)
        at = best.unsqueeze(3).expand(-1, -1, -1, 4)
        made, real = output.boxes.gather(2, at).squeeze(2), batch.targets.gather(2, at).squeeze(2)
        regions.append((batch.overlaps.gather(2, best).squeeze(2) > RIGHT)[batch.there])
        boxes.append((iou(made, real) > RIGHT)[batch.there])
    return 100 * float(torch.cat(regions).float().mean()), 100 * float(torch.cat(boxes).float().mean())


def train(
    photos: Sequence[PhotoWords],
    dev: Sequence[PhotoWords],
    config: WordPointerConfig,
    epochs: int,
    seed: int,
    device: torch.device,
) -> WordPointer:
    """A pointer that learned from photos; dev tells how it goes, and chooses nothing."""
    torch.manual_seed(seed)
    pointer = config.build().to(device)
    optimiser = torch.optim.AdamW(pointer.parameters(), lr=RATE, weight_decay=DECAY)
    steps = epochs * -(-len(photos) // BATCH)
    schedule = Schedule("cosine", warmup=int(WARMUP * steps))
    step = 0
    for epoch in range(epochs):
        pointer.train()
        order = torch.randperm(len(photos)).tolist()
        for first in range(0, len(photos), BATCH):
            batch = WordBatch.of([photos[row] for row in order[first : first + BATCH]], device)
            loss = loss_of(pointer.point({"regions": batch.regions}, batch.words, batch.scenes), batch)
            if not loss.isfinite():  # no region is right for any word of the batch
                continue
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(pointer.parameters(), CLIP)
            for group in optimiser.param_groups:
                group["lr"] = RATE * schedule.at(epoch, step, steps)
            optimiser.step()
            step += 1
        region, box = right_words(pointer, dev, device)
        print(f"epoch {epoch + 1} of {epochs}: loss {loss:.3f}, dev region {region:.1f}, box {box:.1f}", flush=True)
    return pointer.eval()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="by default the one that comes with the package")
    parser.add_argument("--photos", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    bundle = load_bundle(options.model or default_bundle(), device)
    dev = list(photo_words(bundle, options.data, "dev", options.photos, device))
    photos = list(photo_words(bundle, options.data, "train", options.photos, device))
    assert bundle.matcher is not None
    read = bundle.matcher.model.config
    config = WordPointerConfig(word_width=read.size, region_width=read.region_width)
    pointer = train(photos, dev, config, options.epochs, options.seed, device)
    region, box = right_words(pointer, dev, device)
    words = sum(len(photo.words) for photo in photos)
    told = {
        "data": f"{words:,} words of captions of {len(photos):,} training photos of Flickr8k, and the boxes "
        "that people drew for them (Flickr30k Entities)",
        "measured on": "Flickr8k's dev photos",
        "metrics": {"words whose region is right": region, "words whose box is right": box},
    }
    precision = read_description(options.model or default_bundle(), "bundle")["precision"]
    save_bundle(options.out, replace(bundle, pointer=pointer, card={**bundle.card, "pointer": told}), precision)
    stored = load_bundle(options.out, device).pointer
    assert stored is not None
    region, box = right_words(stored, dev, device)
    size = options.out.stat().st_size / 2**20
    print(f"{options.out}: {size:.2f} MiB; as stored, dev region {region:.1f}, box {box:.1f}")


if __name__ == "__main__":
    main()
