"""The vision model with a captioner behind it, end to end: boxes, their names, and captions from one pass.

Objectness learns the overlap of its own box (quality focal loss, Li et al. 2020, "Generalized Focal Loss", Eq. 1),
boxes by generalised IoU (Rezatofighi et al. 2019), cells are chosen by ATSS (Zhang et al. 2020). A region may have
several names at once, so names are learned one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.models.end_to_end import EndToEndCaptioner
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress
from sightline.training.objectives.name_variation import NameVariation
from sightline.training.training_photos import cut_windows, random_windows, recolour
from sightline.vision.boxes import assign_by_overlap, clip, crop, flip, giou, pairwise_iou
from sightline.vision.concept_names import concept_names, relations
from sightline.vision.concept_tokens import token_names
from sightline.vision.detector import Detector, Maps
from sightline.vision.grid_encoder import ImageNetClassifier

NAME: Final = "detect-and-caption"
POOL = "boxed"  # photos that have boxes and no captions
VISIBLE = 0.4  # of a true box's area must stay in a window for the box to count
ANCHOR = 4.0  # cells: 32, 64 and 128 pixels of the maps at strides 8, 16 and 32
FOCUS = 2.0  # β of the quality focal loss
BOX = 2.0  # weight of boxes beside objectness
JITTER = 0.1  # of a box's sides, so that names are learned for boxes that are a little off


@dataclass(frozen=True)
class DetectAndCaptionConfig:
    """What is learned at each look, and how photos are varied."""

    kind: Literal["detect-and-caption"] = NAME
    boxes: float = 1.0  # weight of objectness and boxes
    names: float = 1.0  # weight of what regions are called
    captions: float = 1.0  # weight of cross-entropy; with 0 no caption is ever read (R²M asks for such a backbone)
    smoothing: float = 0.1  # of cross-entropy
    boxed: int = 0  # so many photos of the pool `boxed`, chosen at random, are looked at beside each batch
    doubt: float = 0.3  # how much a place without a box counts where boxes are machine-made
    size: int = 0  # photos are seen at this size; 0 is the vision model's own
    window: float = 0.9  # the least share of a photo's width, and of its height, that is looked at
    boxed_window: float = 0.6  # the same for photos of `boxed`
    mirror: bool = True  # every second photo is mirrored; *left* and *right* change places in its captions
    colour: float = 0.0  # brightness, contrast and saturation are each multiplied by 1 ± `colour` at most
    hide: float = 0.0  # the share of regions and of cells, chosen at random, that the captioner is not shown
    # weight of keeping what the backbone knew: the classes of ImageNet that its weights as downloaded see in the same
    # pixels. Needs `vision.imagenet`.
    imagenet: float = 0.0
    imagenet_temperature: float = 1.0  # both sides' logits are divided by it, so that unlikely classes count too
    imagenet_cells: float = 0.0  # the same for each grid cell alone, which also keeps what is in parts of photos
    leave_out: float = 0.0  # the share of names that a captioner which reads names is not shown (`name_variation`)
    rename: float = 0.0  # the share of photos in which a name, and the captions with it, become another of its kind

    def __post_init__(self) -> None:
        check_ranges(self, boxes="[0, ∞)", names="[0, ∞)", captions="[0, ∞)", smoothing="[0, ∞)", boxed="[0, ∞)")
        check_ranges(self, doubt="[0, ∞)", size="[0, ∞)", imagenet="[0, ∞)", imagenet_cells="[0, ∞)")
        check_ranges(self, imagenet_temperature="(0, ∞)")
        check_ranges(self, colour="[0, 1)", hide="[0, 1)", window="(0, 1]", boxed_window="(0, 1]")
        check_ranges(self, leave_out="[0, 1)", rename="[0, 1]")

    def build(self, context: Context) -> DetectAndCaption:
        return DetectAndCaption(self, context)


class DetectAndCaption(Objective):
    """boxes · (L_objectness + L_box) + names · L_names + captions · L_XE + imagenet · L_KD + imagenet_cells · L_cells.

    The sum is over photos. L_objectness and L_box are per cell that has a true box, L_names per true box with
    a name; L_XE is per word and END; L_KD is per photo, L_cells per grid cell (`soft_target_loss`).
    Photos of the pool `boxed` take part in all but L_XE.

    Relations: L_XE is `cross-entropy`. Parts: `objectness`, `box`, `names`, `cross-entropy`, `imagenet`, `cells`.
    """

    config: DetectAndCaptionConfig
    implied: Tensor
    undecided: Tensor
    mirrored: Tensor

    def __init__(self, config: DetectAndCaptionConfig, context: Context) -> None:
        super().__init__(config)
        self.pools = context.pools
        self._downloaded: tuple[ImageNetClassifier, ...] = ()  # one, once it is needed; no submodule
        if config.boxed and POOL not in context.pools:
            raise ConfigError("there are no photos with boxes alone", fix="give data.boxed, or set `boxed` to 0")
        for name, table in zip(("implied", "undecided"), relations(concept_names()), strict=True):
            self.register_buffer(name, torch.as_tensor(table), persistent=False)
        self.register_buffer("mirrored", mirror_words(context.vocabulary), persistent=False)
        self.variation = NameVariation(token_names(), context.vocabulary) if config.rename or config.leave_out else None

    def weight(self, batch: Batch) -> float:
        return float(len(self.scenes(batch)))  # photos, those of `boxed` not counted

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        vision, config = self._vision(model), self.config
        scenes = self.scenes(batch)
        count = len(scenes)
        pixels, truth, window = self._with_boxed(scenes)
        flipped = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
        if model.training:
            pixels, truth, flipped = self._augment(pixels, truth, window, config.size or vision.size)
        maps: Maps = vision(pixels)
        objectness, box = box_losses(maps, truth, config.doubt)
        boxes = jitter(truth.boxes) if model.training else truth.boxes
        names = name_loss(vision.naming(vision.describe(maps, boxes)), truth, self.implied, self.undecided)
        parts = {"objectness": objectness, "box": box, "names": names}
        total = config.boxes * (objectness + box) + config.names * names
        if config.imagenet or config.imagenet_cells:
            logits, targets = vision.classify_cells(maps), self._imagenet_logits(vision, pixels)  # (B, L, 1000)
            temperature = config.imagenet_temperature
            parts["imagenet"] = soft_target_loss(logits.float().mean(1), targets.float().mean(1), temperature)
            parts["cells"] = soft_target_loss(logits.flatten(0, 1), targets.flatten(0, 1), temperature)
            total = total + config.imagenet * parts["imagenet"] + config.imagenet_cells * parts["cells"]
        if config.captions:
            parts["cross-entropy"] = self._cross_entropy(model, maps, scenes, self.captions(batch), flipped[:count])
            total = total + config.captions * parts["cross-entropy"]
        return Losses(total * count, {name: part * count for name, part in parts.items()})

    def _vision(self, model: Any) -> Detector:
        if isinstance(model, EndToEndCaptioner) and isinstance(model.vision, Detector):
            return model.vision
        what = f"the objective {NAME} trains a captioner with the detector"
        raise ConfigError(what, fix="set vision.kind=detector")

    @torch.no_grad()
    def _imagenet_logits(self, vision: Detector, pixels: Tensor) -> Tensor:
        """(B, L, 1000) logits of the backbone as downloaded, for each cell of the pixels that the vision model sees."""
        if not self._downloaded:
            downloaded = ImageNetClassifier.from_package(vision.variant).to(pixels.device)
            self._downloaded = (downloaded.eval().requires_grad_(False),)
        return self._downloaded[0].cells(pixels)

    def _with_boxed(self, scenes: SceneBatch) -> tuple[Tensor, TrueBoxes, Tensor]:
        """Pixels, true boxes and the least window of the batch's photos and of those of `boxed`."""
        pixels, truth = scenes.part("pixels", by=NAME), true_boxes_of(scenes)
        window = pixels.new_full((len(pixels),), self.config.window, dtype=torch.float)
        if not self.config.boxed:
            return pixels, truth, window
        pool = self.pools[POOL]
        boxed = pool.scene_batch(torch.randint(len(pool), (self.config.boxed,))).to(pixels.device)
        pixels = torch.cat([pixels, boxed.part("pixels", by=NAME)])
        window = torch.cat([window, window.new_full((len(boxed),), self.config.boxed_window)])
        return pixels, join_batches([truth, true_boxes_of(boxed)]), window

    def _augment(self, pixels: Tensor, truth: TrueBoxes, least: Tensor, size: int) -> tuple[Tensor, TrueBoxes, Tensor]:
        """A random window of each photo at `size`, some mirrored, and what of the true boxes is left in it."""
        windows = random_windows(least)
        flipped = torch.rand(len(pixels), device=pixels.device) < (0.5 if self.config.mirror else 0)
        boxes, visible = crop(truth.boxes, windows)
        boxes = torch.where(flipped[:, None, None], flip(boxes), boxes)
        truth = replace(truth, boxes=boxes, mask=truth.mask & (visible > VISIBLE))
        pixels = cut_windows(windows, flipped, pixels, size)
        return recolour(pixels, self.config.colour) if self.config.colour else pixels, truth, flipped

    def _cross_entropy(
        self, model: EndToEndCaptioner, maps: Maps, scenes: SceneBatch, texts: TextBatch, flipped: Tensor
    ) -> Tensor:
        count, words = len(scenes), texts.ids
        scenes = self._vision(model).scenes_of(maps.first(count), scenes.ids)
        if model.training and self.config.hide:
            scenes = hide_parts(scenes, self.config.hide)
        turned = flipped.repeat_interleave(len(words) // count)[:, None]
        words = torch.where(turned, self.mirrored[words], words)
        if model.training and self.variation is not None:
            scenes = self.variation.leave_out(scenes, self.config.leave_out)
            scenes, words = self.variation.rename(scenes, words, self.config.rename)
        memory = model.captioner.encode(scenes)
        log_probs = model.captioner.word_log_probs(memory, words, self.config.smoothing)
        return -log_probs.sum() / texts.mask[:, 1:].sum()


def soft_target_loss(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """T² · KL(softmax(targets / T) ‖ softmax(logits / T)), a mean over rows (Hinton et al. 2015)."""
    ours = (logits.float() / temperature).log_softmax(-1)
    theirs = (targets.float() / temperature).log_softmax(-1)
    return temperature**2 * F.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def true_boxes_of(scenes: SceneBatch) -> TrueBoxes:
    return TrueBoxes(
        scenes.part("true_boxes", by=NAME),
        scenes.mask("true_boxes", by=NAME),
        scenes.part("true_box_names", by=NAME),
        scenes.part("true_box_weights", by=NAME),
    )


def join_batches(parts: list[TrueBoxes]) -> TrueBoxes:
    """The true boxes of several batches as one, padded to the photo with most."""
    most = max(part.boxes.shape[1] for part in parts)

    def cat(name: str, empty: float) -> Tensor:
        rows = [getattr(part, name) for part in parts]
        pads = [(0, 0) * (row.dim() - 2) + (0, most - row.shape[1]) for row in rows]
        return torch.cat([F.pad(row, pad, value=empty) for row, pad in zip(rows, pads, strict=True)])

    return TrueBoxes(cat("boxes", 0), cat("mask", False), cat("names", -1), cat("weights", 0))


def hide_parts(scenes: SceneBatch, share: float) -> SceneBatch:
    """The scenes with a share of regions and cells masked; the first of each is always shown."""

    def hide(mask: Tensor) -> Tensor:
        shown = torch.rand(mask.shape, device=mask.device) >= share
        shown[:, 0] = True
        return mask & shown

    regions, grid = scenes.mask("regions", by=NAME), scenes.mask("grid", by=NAME)
    return replace(scenes, region_mask=hide(regions), grid_mask=hide(grid))


def mirror_words(vocabulary: Vocabulary) -> Tensor:
    """(V,) each word's id in a mirrored world, where *left* and *right* change places."""
    ids = torch.arange(len(vocabulary))
    if "left" in vocabulary and "right" in vocabulary:
        left, right = vocabulary.id("left"), vocabulary.id("right")
        ids[left], ids[right] = right, left
    return ids


@dataclass(frozen=True, eq=False)
class TrueBoxes:
    """The ground truth of a batch: boxes (B, m, 4), which of them are real (B, m), names (B, m, k), belief (B, m)."""

    boxes: Tensor
    mask: Tensor
    names: Tensor
    weights: Tensor


def box_losses(maps: Maps, truth: TrueBoxes, doubt: float) -> tuple[Tensor, Tensor]:
    """Objectness and box loss, both per cell that has a true box.

    A cell without one counts in full where people drew the boxes. Machine-made ones (belief below 1) miss much of what
    is there, so beside them it counts `doubt` times.
    """
    with torch.no_grad():
        chosen = assign_by_overlap(maps.places, truth.boxes, truth.mask, anchor=ANCHOR)
        has = chosen >= 0  # (B, L)
        index = chosen.clamp(min=0)
        target = truth.boxes.gather(1, index[..., None].expand(-1, -1, 4))
        belief = truth.weights.gather(1, index) * has
        machine = (truth.mask & (truth.weights < 1)).any(1, keepdim=True) | ~truth.mask.any(1, keepdim=True)
        background = torch.where(machine, doubt, 1.0)
        boxes = clip(maps.boxes)
        quality = pairwise_iou(boxes[..., None, :], target[..., None, :])[..., 0, 0] * has  # box by box
        count = belief.sum().clamp(min=1)
    sure = maps.objectness.sigmoid()
    cost = F.binary_cross_entropy_with_logits(maps.objectness, quality, reduction="none")
    cost = cost * (quality - sure).abs().pow(FOCUS)
    objectness = (cost * torch.where(has, belief, background)).sum() / count
    off = (1 - giou(maps.boxes, target)) * belief * quality.clamp(min=0.1)
    return objectness, BOX * off.sum() / count


def jitter(boxes: Tensor) -> Tensor:
    """Boxes (…, 4) whose sides are moved at random by a share of the box."""
    sides = (boxes[..., 2:] - boxes[..., :2]).repeat(*(1,) * (boxes.dim() - 1), 2)
    return clip(boxes + JITTER * sides * (2 * torch.rand_like(boxes) - 1))


def name_loss(logits: Tensor, truth: TrueBoxes, implied: Tensor, undecided: Tensor) -> Tensor:
    """The loss of names, by the logits (B, m, K) of the true boxes' regions, per box that has a name.

    `implied` (K, K) says which names hold of what has a name (a man is a person), `undecided` which may or may not (a
    person may be a man); of all others it is none.
    """
    called = truth.names >= 0  # (B, m, k)
    ids = truth.names.clamp(min=0)
    holds = (implied[ids] & called[..., None]).any(2)  # (B, m, K)
    open_ = (undecided[ids] & called[..., None]).any(2) & ~holds
    known = truth.mask & called.any(2)
    weight = (~open_ & known[..., None]) * truth.weights[..., None]
    cost = F.binary_cross_entropy_with_logits(logits.float(), holds.float(), reduction="none")
    focus = (holds.float() - logits.detach().float().sigmoid()).abs()  # most names are plainly wrong
    return (cost * focus * weight).sum() / (known * truth.weights).sum().clamp(min=1)
