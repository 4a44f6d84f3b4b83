"""Sightline captions photos, shows where each word came from, and finds photos by words.

Public names are imported on first use, so that `import sightline` costs milliseconds and no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# How threads that compute together wait for each other. Unless told otherwise they spin, which takes the processor from
# whichever thread they wait for as soon as another program is busy: captions then take ten times as long. OpenMP reads
# this when PyTorch is first imported, so it is set here, before any of our modules can import it.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ["OMP_WAIT_POLICY"] = "passive"

if TYPE_CHECKING:
    from sightline.batch import SceneBatch, TextBatch
    from sightline.caption import Caption, PhotoCaption, WordTrace
    from sightline.errors import SightlineError
    from sightline.pipeline import Pipeline, load
    from sightline.scene import Concept, Scene
    from sightline.vision.feature_store import FeatureStore

_HOMES = {
    "Caption": "sightline.caption",
    "Concept": "sightline.scene",
    "FeatureStore": "sightline.vision.feature_store",
    "PhotoCaption": "sightline.caption",
    "Scene": "sightline.scene",
    "SceneBatch": "sightline.batch",
    "Pipeline": "sightline.pipeline",
    "SightlineError": "sightline.errors",
    "TextBatch": "sightline.batch",
    "WordTrace": "sightline.caption",
    "load": "sightline.pipeline",
}

__all__ = [  # noqa: RUF022 - what people call first, then currency
    "load", "Pipeline", "PhotoCaption", "Scene", "Concept", "Caption", "WordTrace", "SceneBatch", "TextBatch",
    "FeatureStore", "SightlineError", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sightline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
