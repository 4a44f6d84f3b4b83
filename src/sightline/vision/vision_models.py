"""The vision models there are, and their configs: what a checkpoint that looks for itself can hold."""

from __future__ import annotations

from sightline.vision.detector import Detector, DetectorConfig
from sightline.vision.grid_encoder import GridConfig, GridEncoder

VisionConfig = GridConfig | DetectorConfig
VisionModel = GridEncoder | Detector
