"""The vision model: from pixels to boxes, regions, names and grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.errors import ConfigError, MissingPartError
from sightline.vision.boxes import pairwise_iou, roi_mean
from sightline.vision.detector import Detector, DetectorConfig
from sightline.vision.fold_batch_norm import fold

SIZE, NAMES = 64, ("dog", "cat", "tree")


def make(**changes) -> Detector:
    torch.manual_seed(0)
    settings = {"variant": "lite0", "size": SIZE, "channels": 8, "region_width": 6, "boxes": 5, "names": NAMES}
    model = DetectorConfig(**{**settings, **changes}).build()
    for module in model.modules():  # so that cells differ, as after training
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 1.5)
    for head in model.heads:
        torch.nn.init.normal_(head.objectness.weight, std=1)
        torch.nn.init.normal_(head.sides.weight, std=0.3)
    return model.eval()


@pytest.fixture(scope="module")
def model() -> Detector:
    return make()


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, SIZE, SIZE), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@torch.no_grad()
def test_a_scene_has_regions_a_grid_and_a_vector(model, pixels):
    scenes = model.scenes(pixels, ["a", "b"])
    assert scenes.regions.shape == (2, 5, 6)
    assert scenes.boxes.shape == (2, 5, 4)
    assert scenes.grid.shape == (2, 4, 1280)
    assert scenes.grid_shapes == ((2, 2), (2, 2))
    torch.testing.assert_close(scenes.vector, scenes.grid.mean(1))
    assert scenes.fingerprint == model.fingerprint()
    assert model.scenes(pixels, ["a", "b"], "in training").fingerprint == "in training"


@torch.no_grad()
def test_boxes_lie_in_the_picture_best_first_and_do_not_repeat_each_other(pixels):
    model = make(overlap=0.5, soft=False)
    scenes = model.scenes(pixels, ["a", "b"])
    assert scenes.boxes.min() >= 0
    assert scenes.boxes.max() <= 1
    assert (scenes.scores.diff(dim=1) <= 0).all()
    for boxes, mask in zip(scenes.boxes, scenes.region_mask, strict=True):
        overlaps = pairwise_iou(boxes[mask], boxes[mask]).fill_diagonal_(0)
        assert overlaps.max() <= model.config.overlap
    softly = make(overlap=0.5).scenes(pixels, ["a", "b"])
    assert (softly.scores.diff(dim=1) <= 0).all()
    assert softly.region_mask.all()
    assert not torch.equal(softly.boxes, scenes.boxes)


@torch.no_grad()
def test_a_cell_tells_how_far_the_sides_of_its_box_are(model, pixels):
    maps = model(pixels)
    levels = model.neck(model.backbone((pixels.float() - 127) / 128))
    row = 0
    for head, level in zip(model.heads, levels, strict=True):
        told = head(level)
        height, width = told.shape[-2:]
        for y in range(height):
            for x in range(width):
                left, top, right, bottom = told[1, :4, y, x].clamp(max=4).exp() / height
                centre_x, centre_y = (x + 0.5) / width, (y + 0.5) / height
                expected = torch.stack([centre_x - left, centre_y - top, centre_x + right, centre_y + bottom])
                torch.testing.assert_close(maps.boxes[1, row], expected, atol=1e-4, rtol=1e-4)
                torch.testing.assert_close(maps.objectness[1, row], told[1, 4, y, x], atol=1e-4, rtol=1e-4)
                row += 1
    assert row == maps.boxes.shape[1]


@torch.no_grad()
def test_a_region_is_what_both_maps_hold_inside_its_box(model, pixels):
    maps, corners = model(pixels), torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(2))
    boxes = torch.cat([corners.amin(2), corners.amax(2)], -1)
    seen = torch.cat([roi_mean(part, boxes, 3) for part in (maps.cells, maps.fine)], -1)
    torch.testing.assert_close(model.describe(maps, boxes), model.region(seen).relu(), atol=1e-4, rtol=1e-4)


def test_gradients_reach_backbone_neck_and_region_but_not_the_choice_of_boxes(pixels):
    model = make().train()
    model.scenes(pixels, ["a", "b"]).regions.square().sum().backward()
    for part in (model.backbone.stem, model.backbone.head, model.neck.lateral[0], model.region):
        assert next(part.parameters()).grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in model.heads.parameters())


@torch.no_grad()
def test_concepts_are_the_names_of_the_surest_regions(model, pixels):
    scenes = model.scenes(pixels, ["a", "b"])
    sure = (model.naming(scenes.regions).sigmoid() * scenes.scores[..., None]).sqrt()
    found = model.concepts(scenes, least=0.0, most=2)
    for photo, concepts in enumerate(found):
        best = {name: float(sure[photo, :, id].max()) for id, name in enumerate(NAMES)}
        expected = sorted(best, key=best.__getitem__, reverse=True)[:2]
        assert [concept.name for concept in concepts] == expected
        for concept in concepts:
            assert concept.score == pytest.approx(best[concept.name], rel=1e-5)
            region = int(sure[photo, :, NAMES.index(concept.name)].argmax())
            np.testing.assert_allclose(concept.box, scenes.boxes[photo, region].numpy(), rtol=1e-6)
    assert model.concepts(scenes, least=1.1) == [(), ()]
    with pytest.raises(MissingPartError, match="regions"):
        model.concepts(type(scenes)(("a",), scores=scenes.scores[:1]))


@torch.no_grad()
def test_the_folded_model_sees_the_same(model, pixels):
    plain, folded = model.scenes(pixels, ["a", "b"]), fold(model).scenes(pixels, ["a", "b"])
    torch.testing.assert_close(folded.boxes, plain.boxes, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(folded.regions, plain.regions, atol=1e-3, rtol=1e-3)
    assert folded.fingerprint == plain.fingerprint


def test_fingerprints_tell_weights_and_choices_apart(model):
    other = make()
    assert other.fingerprint() == model.fingerprint()
    assert make(overlap=0.5).fingerprint() != model.fingerprint()
    with torch.no_grad():
        other.region.weight[0, 0] += 1
    assert other.fingerprint() != model.fingerprint()


@torch.no_grad()
def test_a_picture_with_fewer_cells_than_boxes_has_a_region_for_each_that_is_left():
    model = make(size=32, boxes=36)
    scenes = model.scenes(torch.zeros(1, 3, 32, 32), ["small"])
    assert scenes.boxes.shape[1] == 16 + 4 + 1
    assert scenes.region_mask.any()


@pytest.mark.parametrize(
    ("wrong", "said"), [({"size": 16}, "`vision.size` is 16"), ({"boxes": 0}, "boxes"), ({"overlap": 0.0}, "overlap")]
)
def test_sizes_that_make_no_model_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        DetectorConfig(**wrong)


def copied(source: Detector, **changes) -> Detector:
    return make(**changes).copy_weights(source)


@torch.no_grad()
def test_the_classes_of_imagenet_are_read_from_the_grid_and_change_no_scene(model, pixels):
    reading = make(imagenet=True)
    missing = reading.load_state_dict(model.state_dict(), strict=False).missing_keys
    assert missing == ["backbone.classifier.weight", "backbone.classifier.bias"]
    maps, scenes = reading(pixels), reading.scenes(pixels, ["a", "b"])
    torch.testing.assert_close(reading.classify(maps), reading.backbone.classifier(scenes.vector))
    torch.testing.assert_close(fold(reading).classify(maps), reading.classify(maps))
    assert torch.equal(scenes.regions, model.scenes(pixels, ["a", "b"]).regions)
    assert reading.fingerprint() == model.fingerprint()
    with pytest.raises(ConfigError, match="no classes"):
        model.classify(maps)


def test_sight_is_taken_over_with_and_without_classes(model, tmp_path, monkeypatch):
    downloaded = {"_fc.weight": torch.randn(1000, 1280), "_fc.bias": torch.randn(1000)}
    torch.save(downloaded, tmp_path / "lite0.pth")
    monkeypatch.setattr("sightline.vision.detector.imagenet_weights", lambda variant: tmp_path / "lite0.pth")
    started = copied(model, imagenet=True)
    assert torch.equal(started.backbone.classifier.weight, downloaded["_fc.weight"])
    assert torch.equal(started.backbone.classifier.bias, downloaded["_fc.bias"])
    with torch.no_grad():
        started.backbone.classifier.bias += 1
        started.region.bias += 1
    again, without = copied(started, imagenet=True), copied(started)
    assert torch.equal(again.backbone.classifier.bias, downloaded["_fc.bias"] + 1)
    assert without.backbone.classifier is None
    assert torch.equal(without.region.bias, started.region.bias)


def test_with_fixed_norms_training_changes_no_statistics():
    model = DetectorConfig(variant="lite0", size=64, names=("dog",)).build()
    pixels = torch.randint(0, 256, (2, 3, 64, 64))
    for fixed in (True, False):
        model.fixed_norms = fixed
        before = {name: tensor.clone() for name, tensor in model.named_buffers()}
        model.train()
        model(pixels)
        same = all(torch.equal(tensor, before[name]) for name, tensor in model.named_buffers())
        assert same == fixed
        assert model.training


def test_the_classes_of_cells_have_those_of_the_photo_as_their_mean():
    model = DetectorConfig(variant="lite0", size=64, names=("dog",), imagenet=True).build().eval()
    with torch.no_grad():
        maps = model(torch.randint(0, 256, (2, 3, 64, 64)))
        assert torch.allclose(model.classify_cells(maps).mean(1), model.classify(maps), atol=1e-5)
