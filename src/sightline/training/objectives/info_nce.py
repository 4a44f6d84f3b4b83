"""InfoNCE: a caption finds its photo, and a photo its caption, among all others of the batch.

van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding" (2018), Eq. 4, in both
directions, as Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021), section
2.3, with their learned temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.training.batches import Batch
from sightline.training.objective import Context, Losses, Objective, Progress
from sightline.training.objectives.triplet import hinge

LEAST, MOST = 0.01, 1.0  # temperatures


def info_nce(logits: Tensor, owner: Tensor, same: Tensor) -> Tensor:
    """(N,) the loss of each caption: the mean of -ln p(photo | caption) and -ln p(caption | photo).

    Args:
        logits: (B, N) scores of photos and captions, over the temperature.
        owner: (N,) each caption's row.
        same: (B, N) True where a caption is of that photo: such pairs are no negatives of each other. So
            p(caption | photo) is among this caption and those of other photos.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])
    >>> owner = torch.tensor([0, 0, 1])
    >>> info_nce(logits, owner, owner == torch.tensor([[0], [1]]))
    tensor([0.1269, 0.5032, 0.1092])
    """
    logits = logits.float()
    pairs = logits.gather(0, owner[None])[0]  # (N,)
    others = logits.masked_fill(same, torch.finfo(logits.dtype).min)
    photo_of_caption = F.softplus(others.logsumexp(0) - pairs)  # -ln(e^pair / (e^pair + Σ e^other)), over photos
    caption_of_photo = F.softplus(others.logsumexp(1)[owner] - pairs)  # the same, over captions
    return (photo_of_caption + caption_of_photo) / 2


@dataclass(frozen=True)
class InfoNCEConfig:
    """The choices of InfoNCE."""

    kind: Literal["info-nce"] = "info-nce"
    temperature: float = 0.05  # that divides cosines; where it is learned, the one it starts from
    learned: bool = True  # whether the temperature is a parameter, `objective.log_scale`; it stays between 0.01 and 1
    local: float = 0.0  # weight of the same loss on the matcher's `local_similarity`, with a temperature of its own
    hardest: float = 0.0  # weight of the triplet loss with the hardest negatives, on the global similarity
    margin: float = 0.2  # of that

    def __post_init__(self) -> None:
        check_ranges(self, local="[0, ∞)", hardest="[0, ∞)", margin="[0, ∞)", temperature=f"[{LEAST}, {MOST:g}]")

    def build(self, context: Context) -> InfoNCE:
        return InfoNCE(self)


class InfoNCE(Objective):
    r"""L = L_global + λ · L_local + μ · L_hardest over photos with their captions, in batches of images or of pairs.

    L_global and L_local are sums of `info_nce` over captions, L_hardest is the sum of `hinge` (`triplet`, Eq. 8 of
    VSRN) over them. Photos and captions are embedded once. Negatives come from the batch of one process.

    The temperatures are parameters of the objective, one each for the global and the local loss: they are trained at
    `optimiser.lrs: {objective: …}`, or else at the rate of all, and kept in the training state.

    Parts: `global`, `local`, `hardest`, those that count, and the mean of the global `temperature`.

    Relations: `triplet` looks at one negative of each pair, this at all of them, the harder the more.
    """

    config: InfoNCEConfig

    def __init__(self, config: InfoNCEConfig) -> None:
        super().__init__(config)
        start = torch.full((2,) if config.local else (1,), -math.log(config.temperature))
        self.log_scale = nn.Parameter(start, requires_grad=config.learned)  # ln(1 / temperature): global, local

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        config, texts = self.config, self.captions(batch)
        model = self.matcher(model)
        if config.local and not hasattr(model, "local_similarity"):
            fix = "set it to 0, or train scene-matcher"
            raise ConfigError(f"`local` is above 0, and a {model.config.kind} model has no local similarity", fix=fix)
        sentences = model.embed_texts(texts)  # first: readers that ask for lengths then wait for no photo
        images = model.embed_images(self.scenes(batch))
        scores = model.similarity(images, sentences)  # (B, N)
        photos = batch.photos.to(scores.device)
        copies = len(texts) // len(photos)
        owner = torch.arange(len(texts), device=scores.device) // copies
        same = photos[:, None] == photos[owner][None]  # (B, N)
        with torch.no_grad():
            self.log_scale.clamp_(-math.log(MOST), -math.log(LEAST))
        scale = self.log_scale.exp()
        parts = {"global": info_nce(scale[0] * scores, owner, same).sum()}
        total = parts["global"]
        if config.local:
            parts["local"] = info_nce(scale[1] * model.local_similarity(images, sentences), owner, same).sum()
            total = total + config.local * parts["local"]
        if config.hardest:
            parts["hardest"] = hinge(scores[owner], config.margin, True, ~same[owner]).sum()
            total = total + config.hardest * parts["hardest"]
        return Losses(total, {**parts, "temperature": len(texts) / scale[0].detach()})
