"""The rows of JRAN's tables as configs, a JRLN that has learned something, and features like those of photos."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.models.jran import JRANConfig
from sightline.models.jrln import JRLNConfig
from sightline.text.vocabulary import END, START
from sightline.training.new_model import start_output_bias

M = TypeVar("M", bound=nn.Module)

PHOTOS, REGIONS, CELLS, WIDTH, WORDS = 6, 36, 16, 512, 200

TABLE_1 = {  # by the number of the line
    1: JRANConfig(grid=False, jrln=JRLNConfig("none"), relationship_attention=False),
    2: JRANConfig(regions=False, jrln=JRLNConfig("none"), relationship_attention=False),
    3: JRANConfig(jrln=None, relationship_attention=False),
    4: JRANConfig(relationship_attention=False),
    5: JRANConfig(jrln=None),
    6: JRANConfig(),
}
SCHEMES = {  # of Fig. 5, all with relationship attention
    "none": JRANConfig(grid=False, jrln=JRLNConfig("none")),
    "concat": JRANConfig(jrln=JRLNConfig("concat")),
    "no-gate": JRANConfig(jrln=JRLNConfig("no-gate")),
    "rc": JRANConfig(),
}
BASELINE = JRANConfig(grid=False, jrln=None)  # of Table 2: soft attention over regions, without JRLN


def awake(model: M) -> M:
    """The model with numbers where a new JRLN has zeros, so that relationships have a part in V_J."""
    for name, parameter in model.named_parameters():
        if "jrln" in name and not parameter.any():
            nn.init.normal_(parameter, std=0.2)
    return model


def photo_like(count: int = PHOTOS, width: int = WIDTH) -> SceneBatch:
    """Positive features, much of which all photos share, some of which all regions of a photo do, the rest a region's.

    A post-norm JRLN that is new makes rows of them of which six tenths of the energy are shared by all photos; with
    features of a detector it is four.
    """
    generator = torch.Generator().manual_seed(0)

    def part(rows: int) -> Tensor:
        shared = 0.6 * torch.randn(width, generator=generator)
        photo = 0.6 * torch.randn(count, 1, width, generator=generator)
        return (shared + photo + torch.randn(count, rows, width, generator=generator)).relu()

    ids = tuple(str(i) for i in range(count))
    return SceneBatch(ids, regions=part(REGIONS), grid=part(CELLS), grid_shapes=((4, CELLS // 4),) * count)


def captions_by_frequency(count: int, length: int = 8) -> Tensor:
    """(count, length + 2) captions of words that are as frequent as those of a language (Zipf)."""
    generator = torch.Generator().manual_seed(1)
    shares = 1 / torch.arange(1, WORDS - 3, dtype=torch.float)
    words = torch.multinomial(shares, count * length, replacement=True, generator=generator).view(count, length) + 4
    return torch.cat([torch.full((count, 1), START), words, torch.full((count, 1), END)], 1)


def variation_after(model: Any, steps: int, rate: float) -> float:
    """The rms by which rows of V_J differ from the mean of their photo, after steps of Adam on `photo_like`.

    What all rows share is left out: to the layers that read V_J it is a bias.
    """
    scenes, words = photo_like(), captions_by_frequency(2 * PHOTOS)
    start_output_bias(model, words)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        loss = -model.log_prob(model.encode(scenes), words).sum() / (words[:, 1:] > 0).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    joint: list[Tensor] = []
    model.eval()
    model.jrln.register_forward_hook(lambda module, given, result: joint.append(result[0]))
    with torch.no_grad():
        model.encode(scenes)
    own = joint[0] - joint[0].mean(1, keepdim=True)
    return float((own**2).mean().sqrt())
