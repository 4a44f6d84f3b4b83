"""Features inside boxes, against single bilinear samples."""

import math

import pytest
import torch

from sightline.vision.roi_align import roi_align, roi_mean

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


def one_by_one(maps: torch.Tensor, boxes: torch.Tensor, size: int, samples: int) -> torch.Tensor:
    out = torch.zeros(*boxes.shape[:2], maps.shape[1], size, size, dtype=maps.dtype)
    for b, image in enumerate(boxes.tolist()):
        for n, (x1, y1, x2, y2) in enumerate(image):
            for row in range(size):
                for column in range(size):
                    for i in range(samples):
                        for j in range(samples):
                            y = y1 + (y2 - y1) / size * (row + (i + 0.5) / samples)
                            x = x1 + (x2 - x1) / size * (column + (j + 0.5) / samples)
                            out[b, n, :, row, column] += sample(maps[b], x, y) / samples**2
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


@pytest.mark.parametrize(("size", "samples"), [(1, 1), (3, 2), (7, 2), (2, 3)])
def test_bins_are_means_of_bilinear_samples(maps, boxes, size, samples):
    got = roi_align(maps, boxes, size, samples)
    assert got.shape == (2, 3, 3, size, size)
    torch.testing.assert_close(got, one_by_one(maps, boxes, size, samples), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "samples"), [(1, 1), (3, 2), (7, 2)])
def test_the_mean_over_bins_needs_no_bins(maps, boxes, size, samples):
    expected = roi_align(maps, boxes, size, samples).mean((-1, -2))
    torch.testing.assert_close(roi_mean(maps, boxes, size, samples), expected, rtol=1e-4, atol=1e-5)


def test_a_map_of_one_cell_is_that_cell(boxes):
    maps = torch.randn(2, 4, 1, 1)
    torch.testing.assert_close(roi_mean(maps, boxes, 3), maps.view(2, 1, 4).expand(2, 3, 4))
    torch.testing.assert_close(roi_align(maps, boxes, 2), maps.view(2, 1, 4, 1, 1).expand(2, 3, 4, 2, 2))


def test_a_ramp_is_read_at_the_middle_of_the_box():
    ramp = ((torch.arange(32) + 0.5) / 32).expand(1, 1, 32, 32)
    box = torch.tensor([[[0.25, 0.1, 0.75, 0.4]]])
    assert roi_mean(ramp, box, 7).item() == pytest.approx(0.5, abs=1e-6)
    assert roi_mean(ramp.mT, box, 7).item() == pytest.approx(0.25, abs=1e-6)
    torch.testing.assert_close(roi_align(ramp, box, 2)[0, 0, 0], torch.tensor([[0.375, 0.625]] * 2))


@pytest.mark.parametrize("pool", [roi_align, roi_mean])
def test_gradients_reach_the_maps_and_not_the_boxes(pool, boxes):
    maps = torch.randn(2, 2, 4, 5, dtype=torch.float32).requires_grad_()
    boxes.requires_grad_()
    weights = torch.randn_like(pool(maps, boxes, 2, 2))
    (pool(maps, boxes, 2, 2) * weights).sum().backward()
    naive = one_by_one(copy := maps.detach().clone().requires_grad_(), boxes, 2, 2)
    ((naive if pool is roi_align else naive.mean((-1, -2))) * weights).sum().backward()
    assert maps.grad is not None
    torch.testing.assert_close(maps.grad, copy.grad, rtol=1e-4, atol=1e-5)
    assert boxes.grad is None


@pytest.mark.parametrize("pool", [roi_align, roi_mean])
def test_half_precision_and_channels_last_give_the_same_features(pool, maps, boxes):
    exact = pool(maps, boxes, 3, 2)
    torch.testing.assert_close(pool(maps.to(memory_format=torch.channels_last), boxes, 3, 2), exact)
    half = pool(maps.bfloat16(), boxes, 3, 2)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0.02, atol=0.05)
