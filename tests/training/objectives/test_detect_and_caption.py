"""The vision model learns boxes, names and captions from one look."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from box_samples import overlap
from sightline.batch import SceneBatch, TextBatch
from sightline.errors import ConfigError
from sightline.models.end_to_end import end_to_end
from sightline.models.sim_trans import SimTransConfig
from sightline.text.vocabulary import Vocabulary
from sightline.training.batches import Batch
from sightline.training.objective import Context, Progress
from sightline.training.objectives.detect_and_caption import (
    ANCHOR,
    DetectAndCaptionConfig,
    TrueBoxes,
    box_losses,
    hide_parts,
    jitter,
    join_batches,
    mirror_words,
    name_loss,
    soft_target_loss,
)
from sightline.training.tensor_tables import Pool
from sightline.training.training_photos import cut_windows, recolour
from sightline.vision.boxes import assign_by_overlap, locations, pairwise_iou
from sightline.vision.concept_names import concept_names
from sightline.vision.detector import DetectorConfig, Maps
from sightline.vision.grid_encoder import ImageNetClassifier

SIZE = 64
WORDS = Vocabulary(["a", "dog", "left", "right", "of", "tree"])
DOG = concept_names().index("dog")


def true_boxes(boxes, names=None, weights=None, mask=None) -> TrueBoxes:
    boxes = torch.tensor(boxes, dtype=torch.float)
    count, most = boxes.shape[:2]
    return TrueBoxes(
        boxes,
        torch.ones(count, most, dtype=torch.bool) if mask is None else torch.tensor(mask),
        torch.full((count, most, 3), -1) if names is None else torch.tensor(names),
        torch.ones(count, most) if weights is None else torch.tensor(weights),
    )


def random_maps(count: int = 2) -> Maps:
    torch.manual_seed(3)
    places = locations([(8, 8), (4, 4), (2, 2)])
    cells = len(places.cell)
    corners = places.centres + 0.3 * torch.rand(count, cells, 2)
    boxes = torch.cat([places.centres - 0.3 * torch.rand(count, cells, 2), corners], -1).requires_grad_()
    objectness = torch.randn(count, cells).requires_grad_()
    return Maps(torch.zeros(count, 1, 2, 2), torch.zeros(count, 1, 8, 8), objectness, boxes, places)


TRUE = [[[0.1, 0.1, 0.6, 0.7], [0.5, 0.4, 0.9, 0.9]], [[0.2, 0.3, 0.8, 0.6], [0.0, 0.0, 0.1, 0.1]]]


@pytest.mark.parametrize("weights", [[[1.0, 1.0], [1.0, 1.0]], [[0.6, 0.4], [1.0, 1.0]]])
def test_objectness_learns_how_well_its_box_fits_and_boxes_learn_by_giou(weights):
    maps, true = random_maps(), true_boxes(TRUE, weights=weights, mask=[[True, True], [True, False]])
    objectness, box = box_losses(maps, true, doubt=0.25)
    chosen = assign_by_overlap(maps.places, true.boxes, true.mask, anchor=ANCHOR)
    focal = off = count = 0.0
    for photo in range(2):
        people = all(w == 1 for w, real in zip(weights[photo], true.mask[photo].tolist(), strict=True) if real)
        for cell, thing in enumerate(chosen[photo].tolist()):
            logit = float(maps.objectness[photo, cell].detach())
            sure = 1 / (1 + math.exp(-logit))
            mine = maps.boxes[photo, cell].tolist()
            belief = weights[photo][thing] if thing >= 0 else 0.0
            target = overlap([min(max(side, 0), 1) for side in mine], TRUE[photo][thing]) if thing >= 0 else 0.0
            entropy = -target * math.log(sure) - (1 - target) * math.log(1 - sure)
            focal += entropy * abs(target - sure) ** 2 * (belief if thing >= 0 else 1.0 if people else 0.25)
            if thing >= 0:
                off += (1 - naive_giou(mine, TRUE[photo][thing])) * belief * max(target, 0.1)
                count += belief
    assert count > 1
    assert objectness.item() == pytest.approx(focal / count, rel=1e-4)
    assert box.item() == pytest.approx(2 * off / count, rel=1e-4)
    (objectness + box).backward()
    assert maps.boxes.grad[chosen >= 0].abs().sum() > 0
    assert maps.boxes.grad[chosen < 0].abs().sum() == 0


def naive_giou(a, b) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(wide, 0) * max(high, 0)
    either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return both / either - (hull - either) / hull


def test_photos_without_a_thing_learn_that_there_is_little():
    maps = random_maps()
    objectness, box = box_losses(maps, true_boxes(TRUE, mask=[[False, False], [False, False]]), doubt=0.5)
    assert float(box) == 0
    objectness.backward()
    assert (maps.objectness.grad > 0).all()


def test_names_that_hold_are_learned_and_undecided_ones_left_alone():
    """A man (0) is a person (1), a person may be a man or a boy (2); a dog (3) is neither."""
    implied = torch.eye(4, dtype=torch.bool)
    implied[0, 1] = implied[2, 1] = True
    undecided = torch.zeros(4, 4, dtype=torch.bool)
    undecided[1, 0] = undecided[1, 2] = True
    names = [[[0, -1, -1], [1, -1, -1]], [[-1, -1, -1], [3, 1, -1]]]
    weights = [[1.0, 0.5], [1.0, 1.0]]
    true = true_boxes(TRUE, names, weights, mask=[[True, True], [True, True]])
    logits = torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = name_loss(logits, true, implied, undecided)
    expected = {  # (photo, thing): the names that hold, those that count
        (0, 0): ({0, 1}, {0, 1, 2, 3}),
        (0, 1): ({1}, {1, 3}),
        (1, 1): ({3, 1}, {1, 3}),
    }
    total = 0.0
    for (photo, thing), (holds, counted) in expected.items():
        for name in counted:
            sure = 1 / (1 + math.exp(-float(logits[photo, thing, name])))
            target = float(name in holds)
            cost = -math.log(sure if target else 1 - sure)
            total += cost * abs(target - sure) * weights[photo][thing]
    assert float(loss) == pytest.approx(total / 2.5, rel=1e-4)
    loss.backward()
    assert logits.grad[1, 0].abs().sum() == 0  # a box that nobody named
    assert logits.grad[0, 1, 0] == 0  # whether the person is a man


def test_jittered_boxes_stay_near_and_inside():
    boxes = torch.tensor([[0.2, 0.4, 0.6, 0.6], [0.0, 0.0, 1.0, 1.0]]).repeat(50, 1)
    moved = jitter(boxes)
    reach = 0.1 * torch.tensor([[0.4, 0.2, 0.4, 0.2], [1.0, 1.0, 1.0, 1.0]]).repeat(50, 1)
    assert ((moved - boxes).abs() <= reach + 1e-6).all()
    assert (moved != boxes).any()
    assert moved.min() >= 0
    assert moved.max() <= 1


@pytest.mark.parametrize("flipped", [False, True])
def test_a_window_is_what_pillow_would_crop_and_mirror(flipped):
    random = np.random.default_rng(0)
    smooth = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize(
        (64, 64), Image.Resampling.BICUBIC
    )
    pixels = torch.from_numpy(np.array(smooth)).permute(2, 0, 1)[None]
    windows = torch.tensor([[0.25, 0.125, 0.75, 1.0]])
    found = cut_windows(windows, torch.tensor([flipped]), pixels, 32)[0]
    expected = smooth.resize((32, 32), Image.Resampling.BILINEAR, box=(16, 8, 48, 64))
    if flipped:
        expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    gap = (found.permute(1, 2, 0) - torch.from_numpy(np.array(expected)).float()).abs()
    assert gap.mean() < 2


def test_colours_change_within_bounds_and_stay_where_they_are():
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (6, 3, 8, 8)).float()
    assert torch.equal(recolour(pixels, 0.0), pixels)
    found = recolour(pixels, 0.4)
    assert found.min() >= 0
    assert found.max() <= 255
    assert len((found.mean((1, 2, 3)) / pixels.mean((1, 2, 3))).unique()) == 6
    grey = torch.full((40, 3, 4, 4), 100.0)
    light = recolour(grey, 0.4)  # contrast and saturation leave an even grey as it is
    assert torch.allclose(light, light[:, :1, :1, :1].expand_as(light))
    assert 60 <= float(light.min()) < 80 < 120 < float(light.max()) <= 140


def test_hidden_regions_and_cells_are_masked_and_the_first_is_always_shown():
    torch.manual_seed(0)
    mask = torch.ones(50, 40, dtype=torch.bool)
    mask[:, 30:] = False
    scenes = SceneBatch(
        tuple(map(str, range(50))),
        regions=torch.zeros(50, 40, 2),
        region_mask=mask,
        grid=torch.zeros(50, 9, 2),
        grid_mask=torch.ones(50, 9, dtype=torch.bool),
    )
    seen = hide_parts(scenes, 0.25)
    assert seen.region_mask[:, 0].all()
    assert not seen.region_mask[:, 30:].any()
    assert 0.7 < float(seen.region_mask[:, 1:30].float().mean()) < 0.8
    assert 0.65 < float(seen.grid_mask[:, 1:].float().mean()) < 0.85


def test_left_and_right_change_places_in_a_mirrored_world():
    ids = mirror_words(WORDS)
    left, right, dog = WORDS.id("left"), WORDS.id("right"), WORDS.id("dog")
    assert (int(ids[left]), int(ids[right]), int(ids[dog])) == (right, left, dog)
    assert mirror_words(Vocabulary(["left"])).tolist() == list(range(5))


def test_things_of_several_batches_are_padded_to_the_most():
    one, more = true_boxes([[[0.1, 0.1, 0.2, 0.2]]], [[[4, -1, -1]]]), true_boxes(TRUE)
    both = join_batches([one, more])
    assert both.boxes.shape == (3, 2, 4)
    assert both.mask.tolist() == [[True, False], [True, True], [True, True]]
    assert both.names[0].tolist() == [[4, -1, -1], [-1, -1, -1]]
    assert both.weights[0].tolist() == [1, 0]


class Squares:
    """Photos with one bright square each on noise, called dog; `batch` is what a pool asks of scenes."""

    def __init__(self, count: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.pixels = random.integers(0, 90, (count, 3, SIZE, SIZE), dtype=np.uint8)
        self.boxes = np.zeros((count, 1, 4), np.float32)
        for photo, box in zip(self.pixels, self.boxes, strict=True):
            x, y = random.integers(0, 32, 2)
            side = random.integers(18, 32)
            photo[:, y : y + side, x : x + side] += 150
            box[0] = np.array([x, y, x + side, y + side]) / SIZE

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, rows: torch.Tensor) -> SceneBatch:
        names = torch.full((len(rows), 1, 3), -1)
        names[..., 0] = DOG
        return SceneBatch(
            ids=tuple(map(str, rows.tolist())),
            pixels=torch.from_numpy(self.pixels[rows.numpy()]),
            true_boxes=torch.from_numpy(self.boxes[rows.numpy()]),
            true_box_mask=torch.ones(len(rows), 1, dtype=torch.bool),
            true_box_names=names,
            true_box_weights=torch.ones(len(rows), 1),
        )


def make_model(imagenet=False):
    torch.manual_seed(0)
    names = concept_names()
    vision = DetectorConfig(
        variant="lite0", size=SIZE, channels=16, region_width=16, names=names, boxes=5, imagenet=imagenet
    ).build()
    captioner = SimTransConfig(region_width=16, hidden_size=16, heads=2, layers=1).build(len(WORDS))
    return end_to_end(captioner, vision)


def make_batch(squares: Squares, rows: list[int]) -> Batch:
    index = torch.tensor(rows)
    texts = TextBatch.collate([["a", "dog"], ["dog", "left", "of", "tree"]] * len(rows), WORDS)
    return Batch(index, squares.batch(index), texts, index)


def test_all_parts_have_gradients_and_are_means_times_photos():
    model, squares = make_model().train(), Squares(4, 0)
    objective = DetectAndCaptionConfig(boxed=3, captions=0.5, names=2.0).build(
        Context(WORDS, {"boxed": Pool(tuple("abcd"), Squares(4, 1))})
    )
    batch = make_batch(squares, [0, 2])
    losses = objective(model, batch, Progress())
    assert objective.weight(batch) == 2
    parts = losses.parts
    expected = parts["objectness"] + parts["box"] + 2 * parts["names"] + 0.5 * parts["cross-entropy"]
    torch.testing.assert_close(losses.total, expected)
    losses.total.backward()
    vision = model.vision
    for part in (
        vision.backbone.stem,
        vision.neck,
        vision.heads[0].sides,
        vision.naming,
        vision.region,
        model.captioner,
    ):
        assert next(part.parameters()).grad.abs().sum() > 0


def test_without_captions_the_captioner_learns_nothing_and_needs_no_text():
    model, squares = make_model().train(), Squares(4, 0)
    objective = DetectAndCaptionConfig(captions=0.0).build(Context(WORDS))
    index = torch.tensor([0, 1])
    losses = objective(model, Batch(index, squares.batch(index)), Progress())
    assert "cross-entropy" not in losses.parts
    losses.total.backward()
    assert all(parameter.grad is None for parameter in model.captioner.parameters())


def test_in_evaluation_nothing_is_random_and_cross_entropy_is_that_of_the_model():
    model, squares = make_model().eval(), Squares(4, 0)
    objective = DetectAndCaptionConfig(smoothing=0.0).build(Context(WORDS))
    batch = make_batch(squares, [1, 3])
    first, second = (objective(model, batch, Progress()) for _ in range(2))
    assert float(first.total) == float(second.total)
    log_probs = model.log_prob(model.encode(batch.scenes), batch.texts.ids)
    words = batch.texts.mask[:, 1:].sum()
    assert float(first.parts["cross-entropy"]) == pytest.approx(2 * float(-log_probs.sum() / words), rel=1e-4)


def test_squares_are_found_after_some_steps():
    model, squares = make_model().train(), Squares(48, 0)
    objective = DetectAndCaptionConfig(captions=0.0, window=0.9).build(Context(WORDS))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.1
    for step in range(60):
        torch.manual_seed(step)
        index = torch.randperm(48)[:12]
        losses = objective(model, Batch(index, squares.batch(index)), Progress())
        optimiser.zero_grad()
        (losses.total / 12).backward()
        optimiser.step()
    unseen = Squares(16, 1)
    scenes = model.eval().vision.scenes(torch.from_numpy(unseen.pixels), list(map(str, range(16)))[:16])
    first = pairwise_iou(scenes.boxes.detach()[:, :5], torch.from_numpy(unseen.boxes))  # (16, 5, squares)
    assert (first.amax(1) > 0.5).float().mean() >= 0.7
    assert model.vision.concepts(scenes, least=0.1)[0][0].name in ("dog", "animal")


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_what_is_kept_is_the_divergence_from_the_downloaded_answers(temperature):
    torch.manual_seed(0)
    ours, known = 3 * torch.randn(2, 6), 3 * torch.randn(2, 6)
    total = 0.0
    for mine, theirs in zip(ours.tolist(), known.tolist(), strict=True):
        q = [math.exp(x / temperature) for x in mine]
        p = [math.exp(x / temperature) for x in theirs]
        total += sum(a / sum(p) * math.log(a / sum(p) * sum(q) / b) for a, b in zip(p, q, strict=True))
    assert float(soft_target_loss(ours, known, temperature)) == pytest.approx(temperature**2 * total / 2, rel=1e-4)
    assert float(soft_target_loss(known, known, temperature)) == pytest.approx(0, abs=1e-6)


@pytest.fixture
def downloaded(monkeypatch):
    """A tiny backbone in the place of the downloaded one, whose answers differ from photo to photo."""
    torch.manual_seed(5)
    known = ImageNetClassifier("lite0").train()
    for module in known.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        known(torch.from_numpy(Squares(64, 9).pixels))  # so that batch norms know their inputs
        known.backbone.classifier.weight *= 10
    monkeypatch.setattr(ImageNetClassifier, "from_package", classmethod(lambda cls, variant: known.eval()))
    return known


def test_boxed_photos_take_part_in_what_is_kept_and_the_downloaded_backbone_does_not_learn(downloaded):
    model, squares = make_model(imagenet=True).train(), Squares(4, 0)
    pool = {"boxed": Pool(tuple("abcd"), Squares(4, 1))}
    objective = DetectAndCaptionConfig(boxed=3, captions=0.0, imagenet=0.5, imagenet_temperature=2.0).build(
        Context(WORDS, pool)
    )
    losses = objective(model, make_batch(squares, [0, 2]), Progress())
    parts = losses.parts
    torch.testing.assert_close(
        losses.total, parts["objectness"] + parts["box"] + parts["names"] + 0.5 * parts["imagenet"]
    )
    losses.total.backward()
    assert model.vision.backbone.classifier.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in downloaded.parameters())
    assert not any(name.startswith("_downloaded") for name, _ in objective.named_parameters())


def test_a_detector_that_is_taught_so_keeps_the_answers_it_began_with(downloaded):
    """Boxes and names are learned with and without; without, the same steps change what is seen in new photos.

    Batch norms of the backbone keep their statistics: those of a dozen photos would change the answers of a backbone
    that was never trained more than any step does.
    """
    squares, unseen = Squares(48, 0), torch.from_numpy(Squares(24, 1).pixels)
    gaps = {}
    for weight in (0.0, 3.0):
        model = make_model(imagenet=True)
        model.vision.backbone.load_state_dict(downloaded.backbone.state_dict())
        model.train()
        for module in model.vision.backbone.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.eval()
        objective = DetectAndCaptionConfig(captions=0.0, imagenet=weight).build(Context(WORDS))
        optimiser = torch.optim.Adam(model.vision.parameters(), lr=3e-4)
        for step in range(20):
            torch.manual_seed(step)
            index = torch.randperm(48)[:12]
            losses = objective(model, Batch(index, squares.batch(index)), Progress())
            optimiser.zero_grad()
            (losses.total / 12).backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            known, kept = downloaded(unseen), model.vision.classify(model.vision(unseen))
        gaps[weight] = float(soft_target_loss(kept, known, 1.0))
    assert gaps[3.0] < 0.5 * gaps[0.0]


def test_a_detector_without_classes_has_nothing_to_keep(downloaded):
    objective = DetectAndCaptionConfig(captions=0.0, imagenet=1.0).build(Context(WORDS))
    with pytest.raises(ConfigError, match=r"vision\.imagenet"):
        objective(make_model(), make_batch(Squares(2, 0), [0, 1]), Progress())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"imagenet": -1.0}, "`imagenet`"),
        ({"imagenet_temperature": 0.0}, "`imagenet_temperature`"),
        ({"boxes": -1.0}, "`boxes` is -1"),
        ({"window": 0.0}, "`window`"),
        ({"doubt": -0.1}, "`doubt`"),
        ({"hide": 1.0}, "`hide`"),
    ],
)
def test_settings_without_meaning_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        DetectAndCaptionConfig(**wrong)


def test_what_is_missing_is_named():
    with pytest.raises(ConfigError, match="boxes alone"):
        DetectAndCaptionConfig(boxed=4).build(Context(WORDS))
    objective = DetectAndCaptionConfig().build(Context(WORDS))
    blind = SimTransConfig(region_width=16, hidden_size=16, heads=2, layers=1).build(len(WORDS))
    with pytest.raises(ConfigError, match=r"vision\.kind=detector"):
        objective(blind, make_batch(Squares(2, 0), [0, 1]), Progress())
