"""SCAN's scores of every image with every caption, in little memory and time: those of `plain_similarity`, by a test.

No attended vector is ever formed. With unit vectors e_t and v_i, and G = V Vᵀ, the attended a = Σ_i α_i v_i has
e_tᵀ a = Σ_i α_i s_it and |a|² = αᵀ G α; and since a cosine does not change when a is scaled, exp(τ s̄) serves as α.
Vectors of padding are zero, and add nothing to any of these sums. Captions and images of like lengths share a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.models.matcher import Embedding, full_precision, require_rows

if TYPE_CHECKING:
    from sightline.models.scan import SCAN

CPU_BLOCK, GPU_BLOCK = (64, 128), (128, 128)  # images × captions
CACHED = 1 << 19  # cosines that the passes after the product take at a time on a CPU, so that they stay in its cache
EPS = 1e-8  # the least a length counts in a cosine


def fast_similarity(model: SCAN, images: Embedding, texts: Embedding, block: tuple[int, int] | None = None) -> Tensor:
    """(images, texts) scores of a model, `block` images × texts at a time; the default suits the device."""
    require_rows(images, texts)
    regions, region_mask = images["regions"], images["mask"]
    words, word_mask = texts["words"], model.word_mask(texts)
    block = block or (CPU_BLOCK if regions.device.type == "cpu" else GPU_BLOCK)
    image_order, text_order = region_mask.sum(1).argsort(stable=True), word_mask.sum(1).argsort(stable=True)
    image_blocks = _blocks(regions, region_mask, image_order, block[0])
    text_blocks = _blocks(words, word_mask, text_order, block[1])
    with full_precision(regions.device):
        if model.config.direction == "t2i":
            scores = _every_pair(model, image_blocks, text_blocks)
        else:
            scores = _every_pair(model, text_blocks, image_blocks).T
    return scores.index_select(0, image_order.argsort()).index_select(1, text_order.argsort())


def _every_pair(
    model: SCAN, contexts: Iterator[tuple[Tensor, Tensor]], queries: Iterator[tuple[Tensor, Tensor]]
) -> Tensor:
    """(contexts, queries) scores."""
    contexts_with_gram = [(vectors, vectors.float() @ vectors.float().mT) for vectors, _ in contexts]
    columns = []
    for vectors, mask in queries:
        # Positions first: sums over the words of a caption then run over whole rows of captions.
        query = vectors.transpose(0, 1).contiguous()  # (m, Q, d)
        blocks = [_scores(model, context, gram, query, mask.T) for context, gram in contexts_with_gram]
        columns.append(torch.cat(blocks))
    return torch.cat(columns, 1)


def _scores(model: SCAN, context: Tensor, gram: Tensor, query: Tensor, mask: Tensor) -> Tensor:
    """Contexts (A, k, d) with Gram matrices (A, k, k), queries (m, Q, d) with mask (m, Q), to scores (A, Q)."""
    cosines = context.flatten(0, 1).float() @ query.flatten(0, 1).float().T  # Eq. 4
    cosines = cosines.view(*context.shape[:2], *query.shape[:2])  # (A, k, m, Q)
    size = max(1, CACHED // cosines[0].numel()) if cosines.device.type == "cpu" else len(cosines)
    scores = []
    for some_cosines, some_gram in zip(torch.split(cosines, size), torch.split(gram, size), strict=True):
        scores.append(model.aggregate(_relevance(model, some_cosines, some_gram, mask), mask))
    return torch.cat(scores)


def _relevance(model: SCAN, cosines: Tensor, gram: Tensor, mask: Tensor) -> Tensor:
    """Cosines (A, k, m, Q) to R (A, m, Q), how well each query's element fits what it attends to."""
    weights = model.sharpen(cosines, mask, 2).exp_()  # Eq. 5, not divided by the sum
    products = (weights * cosines).sum(1)  # (A, m, Q), eᵀa of Eq. 6
    squares = (weights * (gram @ weights.flatten(2)).view_as(weights)).sum(1)  # (A, m, Q), |a|² of Eq. 6
    # A cosine is at most 1, so that rounding in `squares` cannot make more of it.
    return products * torch.maximum(squares, products.square()).clamp(min=EPS**2).rsqrt()  # R of Eq. 6


def _blocks(vectors: Tensor, mask: Tensor, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of vectors (N, m, d) in `order`, shortest first, `size` at a time, with their mask.

    What takes no part is left out; the rows of a block are padded with zeros to its longest, at least one.
    """
    if not mask.shape[1]:
        vectors, mask = F.pad(vectors, (0, 0, 0, 1)), F.pad(mask, (0, 1))
    if bool(mask.all()):  # and so the order is theirs already
        yield from zip(torch.split(vectors, size), torch.split(mask, size), strict=True)
        return
    front = mask.byte().argsort(dim=1, descending=True, stable=True)
    for rows in torch.split(order, size):
        places = front[rows, : max(1, int(mask[rows[-1]].sum()))]  # (A, longest)
        block_mask = mask[rows].gather(1, places)
        block = vectors.flatten(0, 1).index_select(0, (rows[:, None] * mask.shape[1] + places).flatten())
        yield block.view(*block_mask.shape, -1) * block_mask.unsqueeze(2), block_mask
