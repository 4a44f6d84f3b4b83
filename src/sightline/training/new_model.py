"""The model a run begins with: refused where it would take all memory, its output bias set to word frequencies.

A bias of zeros makes all words equally likely, and the first gradients then teach how often each word occurs through
whatever the words are predicted from, the image among it. A bias that knows it from the start leaves the image to tell
what is in it.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from sightline.checkpoint.checkpoint_file import meta_init
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.matcher import Matcher
from sightline.models.model_configs import ModelConfig
from sightline.text.vocabulary import PAD, START

FIX = "check the numbers under `model` in the recipe"


def outline(config: ModelConfig, vocab_size: int) -> Captioner | Matcher:
    """The model without weights: what it needs and how large it is."""
    try:
        with meta_init():
            return config.build(vocab_size)
    except (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"no {config.kind} model can have these sizes ({reason})", where="model", fix=FIX) from error


def build_model(config: ModelConfig, vocab_size: int) -> Captioner | Matcher:
    """The model, unless its weights alone are more than this machine's memory."""
    size = sum(part.numel() * part.element_size() for part in outline(config, vocab_size).parameters())
    if size > (memory := _memory()):
        raise ConfigError(
            f"the weights of a {config.kind} model of these sizes take {size / 1e9:,.0f} GB; "
            f"this machine has {memory / 1e9:,.0f}",
            where="model",
            fix=FIX,
        )
    return config.build(vocab_size)


def _memory() -> int:
    """Bytes of memory of this machine; a large number where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 40


UNSEEN = 1.0  # occurrences that an id without any is given, so that its logarithm is finite and it can be learned
NEVER = 1e-3  # the same for PAD and START, which no caption predicts: e⁷ times less likely than an unseen word


def log_frequencies(captions: Tensor, vocab_size: int) -> Tensor:
    """(vocab_size,) log of the share of each id among all predicted ones.

    `captions` (M, T) are START, words, END and padding: words, unknown ones and END are predicted.
    """
    counts = torch.bincount(captions[:, 1:].flatten(), minlength=vocab_size).double()
    counts[[PAD, START]] = 0
    total = counts.sum()
    counts.clamp_(min=UNSEEN)
    counts[[PAD, START]] = NEVER
    return (counts / total).log().float()


@torch.no_grad()
def start_output_bias(model: Captioner | Matcher, captions: Tensor | None) -> None:
    """Set the output bias of a captioner, or of the captioner in a matcher (VSRN), to log frequencies in `captions`.

    Without captions it is set to zero. Models that write nothing and captioners without an output bias stay as they
    are.
    """
    captioner = model if isinstance(model, Captioner) else getattr(model, "captioner", None)
    bias = captioner.output_bias() if isinstance(captioner, Captioner) else None
    if bias is not None:
        bias.copy_(torch.zeros_like(bias) if captions is None else log_frequencies(captions, len(bias)))
