"""Which model made the vectors of an index: those of another one mean something else."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sightline.errors import ConfigError
from sightline.files import fingerprint

if TYPE_CHECKING:  # it brings PyTorch, for which whoever has no index need not wait
    from sightline.checkpoint.bundle import Bundle

_KNOWN: WeakKeyDictionary[Bundle, str] = WeakKeyDictionary()


def model_of(bundle: Bundle) -> str:
    """A short name for the vision model and the matcher of a bundle; captions may be of any captioner."""
    if bundle not in _KNOWN:
        finds = bundle.matcher
        if finds is None:
            raise ConfigError("this model has no matcher, and cannot search", fix="use one that has")
        weights = (tensor.detach().float().cpu().numpy().tobytes() for tensor in finds.model.state_dict().values())
        words = "\n".join(finds.vocabulary)
        _KNOWN[bundle] = fingerprint(bundle.vision.fingerprint(), finds.text_rule, words, *weights)
    return _KNOWN[bundle]
