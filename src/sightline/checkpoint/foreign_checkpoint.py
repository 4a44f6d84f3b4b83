"""Released checkpoints of other projects, recognised by what they hold, as Sightline checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.checkpoint.scan_family import convert_matcher, is_matcher
from sightline.checkpoint.self_critical_checkpoint import convert_updown, is_updown, read_weights
from sightline.errors import CheckpointError
from sightline.files import PathLike

READS = (
    "Up-Down of self-critical.pytorch and Grounded-Image-Captioning (model.pth + infos.pkl); "
    "SCAN, POS-SCAN, VSRN and VSE++ (model_best.pth.tar + vocabulary)"
)


def convert_released(path: PathLike, *, infos: Path | None = None, vocabulary: Path | None = None) -> Checkpoint:
    """Read a released checkpoint without running it.

    Args:
        path: `model.pth` or `model_best.pth.tar`.
        infos: the `infos_<id>.pkl` of an Up-Down model; by default the one that lies beside it.
        vocabulary: the word list of a matcher, JSON or pickle.
    """
    content = read_weights(Path(path))
    if is_matcher(content):
        return convert_matcher(content, Path(path), vocabulary)
    if isinstance(content, Mapping) and is_updown(content):
        return convert_updown(content, Path(path), infos)
    raise CheckpointError("no released model that can be converted", where=path, fix=f"these can: {READS}")
