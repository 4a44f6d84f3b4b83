"""Models of recipes are built only where their sizes can be had: a typing mistake must not take all memory."""

from __future__ import annotations

import os

from sightline.checkpoint.checkpoint_file import meta_init
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.matcher import Matcher
from sightline.models.model_configs import ModelConfig

FIX = "check the numbers under `model` in the recipe"


def outline(config: ModelConfig, words: int) -> Captioner | Matcher:
    """The model without weights: what it needs and how large it is."""
    try:
        with meta_init():
            return config.build(words)
    except (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"no {config.kind} model can have these sizes ({reason})", where="model", fix=FIX) from error


def build_model(config: ModelConfig, words: int) -> Captioner | Matcher:
    """The model, unless its weights alone are more than this machine's memory."""
    size = sum(part.numel() * part.element_size() for part in outline(config, words).parameters())
    if size > (memory := _memory()):
        raise ConfigError(
            f"the weights of a {config.kind} model of these sizes take {size / 1e9:,.0f} GB; "
            f"this machine has {memory / 1e9:,.0f}",
            where="model",
            fix=FIX,
        )
    return config.build(words)


def _memory() -> int:
    """Bytes of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 40
