"""Features inside boxes, against single bilinear samples."""

import math

import pytest
import torch

from sightline.vision.boxes import roi_mean

torch.set_num_threads(1)


def sample(plane: torch.Tensor, x: float, y: float) -> torch.Tensor:
    """(C, H, W) at a normalised point; cell centres are at (i + 0.5) / W, outside them the nearest cell counts."""
    height, width = plane.shape[1:]
    x = min(max(x * width - 0.5, 0), width - 1)
    y = min(max(y * height - 0.5, 0), height - 1)
    left, top = math.floor(x), math.floor(y)
    value = torch.zeros(len(plane), dtype=plane.dtype)
    for i, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for j, right in ((left, 1 - (x - left)), (left + 1, x - left)):
            if i < height and j < width:
                value += down * right * plane[:, i, j]
    return value


def one_by_one(maps: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    """The mean of `size` · `size` bins, each the mean of 2 · 2 samples."""
    steps = [(bin + (i + 0.5) / 2) / size for bin in range(size) for i in range(2)]
    out = torch.zeros(*boxes.shape[:2], maps.shape[1], dtype=maps.dtype)
    for b, image in enumerate(boxes.tolist()):
        for n, (x1, y1, x2, y2) in enumerate(image):
            for down in steps:
                for right in steps:
                    out[b, n] += sample(maps[b], x1 + (x2 - x1) * right, y1 + (y2 - y1) * down) / len(steps) ** 2
    return out


@pytest.fixture
def maps() -> torch.Tensor:
    return torch.randn(2, 3, 6, 9, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def boxes() -> torch.Tensor:
    """Ordinary, at the border, within one cell, the whole picture, beyond it, and a point."""
    return torch.tensor(
        [
            [[0.2, 0.3, 0.7, 0.6], [0.0, 0.0, 0.05, 0.1], [0.4, 0.4, 0.42, 0.43]],
            [[0.0, 0.0, 1.0, 1.0], [-0.3, 0.5, 0.2, 1.4], [0.55, 0.5, 0.55, 0.5]],
        ]
    )


@pytest.mark.parametrize("size", [1, 3, 7])
def test_features_are_means_of_bilinear_samples(maps, boxes, size):
    got = roi_mean(maps, boxes, size)
    assert got.shape == (2, 3, 3)
    torch.testing.assert_close(got, one_by_one(maps, boxes, size), rtol=1e-4, atol=1e-5)


def test_a_map_of_one_cell_is_that_cell(boxes):
    maps = torch.randn(2, 4, 1, 1)
    torch.testing.assert_close(roi_mean(maps, boxes, 3), maps.view(2, 1, 4).expand(2, 3, 4))


def test_a_ramp_is_read_at_the_middle_of_the_box():
    ramp = ((torch.arange(32) + 0.5) / 32).expand(1, 1, 32, 32)
    box = torch.tensor([[[0.25, 0.1, 0.75, 0.4]]])
    assert roi_mean(ramp, box, 7).item() == pytest.approx(0.5, abs=1e-6)
    assert roi_mean(ramp.mT, box, 7).item() == pytest.approx(0.25, abs=1e-6)


def test_gradients_reach_the_maps_and_not_the_boxes(boxes):
    maps = torch.randn(2, 2, 4, 5, dtype=torch.float32).requires_grad_()
    boxes.requires_grad_()
    weights = torch.randn(2, 3, 2)
    (roi_mean(maps, boxes, 2) * weights).sum().backward()
    naive = one_by_one(copy := maps.detach().clone().requires_grad_(), boxes, 2)
    (naive * weights).sum().backward()
    assert maps.grad is not None
    torch.testing.assert_close(maps.grad, copy.grad, rtol=1e-4, atol=1e-5)
    assert boxes.grad is None


def test_half_precision_and_channels_last_give_the_same_features(maps, boxes):
    exact = roi_mean(maps, boxes, 3)
    torch.testing.assert_close(roi_mean(maps.to(memory_format=torch.channels_last), boxes, 3), exact)
    half = roi_mean(maps.bfloat16(), boxes, 3)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0.02, atol=0.05)
