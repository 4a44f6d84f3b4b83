"""Data augmentation of photos: random crops, mirroring, colour jitter."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def random_windows(least: Tensor) -> Tensor:
    """(B, 4) random crops; each side is a random share of the photo's, `least` (B,) or more."""
    sides = least[:, None] + (1 - least[:, None]) * torch.rand(len(least), 2, device=least.device)
    corner = torch.rand(len(least), 2, device=least.device) * (1 - sides)
    return torch.cat([corner, corner + sides], 1)


def cut_windows(windows: Tensor, flipped: Tensor, pixels: Tensor, size: int) -> Tensor:
    """The windows (B, 4) of photos (B, 3, H, W) as squares (B, 3, size, size), mirrored where `flipped`."""
    steps = (torch.arange(size, device=pixels.device) + 0.5) / size
    x1, y1, x2, y2 = windows.unbind(1)
    across = torch.where(flipped[:, None], 1 - steps, steps)
    x = x1[:, None] + across * (x2 - x1)[:, None]  # (B, size)
    y = y1[:, None] + steps * (y2 - y1)[:, None]
    grid = torch.stack([x[:, None].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)], -1)
    photos = pixels.float().contiguous(memory_format=torch.channels_last)
    return F.grid_sample(photos, 2 * grid - 1, padding_mode="border", align_corners=False)


def recolour(pixels: Tensor, most: float) -> Tensor:
    """Photos (B, 3, H, W) of 0 to 255 whose brightness, contrast and saturation are multiplied by 1 ± `most`."""
    light, contrast, colour = (1 + most * (2 * torch.rand(3, len(pixels), 1, 1, 1, device=pixels.device) - 1)).unbind()
    grey = pixels.mean(1, keepdim=True)
    pixels = grey + colour * (pixels - grey)
    middle = grey.mean((2, 3), keepdim=True)
    return (light * (middle + contrast * (pixels - middle))).clamp(0, 255)
