"""Matching scores are float32 inside autocast too: bfloat16 cannot tell close vectors apart."""

from __future__ import annotations

import pytest
import torch

from grounded_samples import VOCABULARY, batch, context, matcher
from sightline.models.layers import l2norm
from sightline.models.scan import SCANConfig
from sightline.models.scene_matcher import SceneMatcherConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRNConfig
from sightline.training.objective import Progress
from sightline.training.objectives.info_nce import InfoNCEConfig
from sightline.training.objectives.triplet import TripletConfig

CLOSE = 0.05  # how far vectors of a batch are from each other, of unit length


def close(*shape: int) -> torch.Tensor:
    """Unit vectors that are nearly the same."""
    generator = torch.Generator().manual_seed(len(shape))
    common = torch.randn(shape[-1], generator=torch.Generator().manual_seed(0))
    return l2norm(l2norm(common) + CLOSE * l2norm(torch.randn(shape, generator=generator)))


def embeddings() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """128 close images and 128 close texts, for matchers of any kind."""
    regions, words = close(128, 6, 64), close(128, 5, 64)
    present = {size: torch.ones(128, size, dtype=torch.bool) for size in (5, 6)}
    images = {"vector": close(128, 64), "regions": regions, "mask": present[6]}
    texts = {"vector": close(1, 128, 64)[0], "words": words, "mask": present[5], "tagged": present[5]}
    return images, {**texts, "importance": torch.full((128, 5), 0.2)}


MATCHERS = [
    VSRNConfig(size=64, generation=False, rrr_layers=0),
    VSEPPConfig(size=64),
    SCANConfig(size=64),
    SCANConfig(size=64, direction="i2t", aggregate="lse"),
    SceneMatcherConfig(size=64),
]


@pytest.mark.parametrize("config", MATCHERS, ids=lambda config: f"{config.kind} {getattr(config, 'direction', '')}")
def test_close_vectors_have_scores_of_their_own_under_autocast(config):
    model, (images, texts) = config.build(20).eval(), embeddings()
    expected = model.similarity(images, texts)
    with torch.autocast("cpu", torch.bfloat16):
        found = model.similarity(images, texts)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    distinct = [len(row.unique()) for row in found]
    assert min(distinct) > 100, distinct  # in bfloat16 they are 1 to 4
    if hasattr(model, "local_similarity"):
        expected = model.local_similarity(images, texts)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(model.local_similarity(images, texts), expected)


@pytest.mark.parametrize("config", [SCANConfig(size=64), SceneMatcherConfig(size=64)], ids=lambda config: config.kind)
def test_weights_of_close_regions_are_the_same_under_autocast(config):
    model, (images, texts) = config.build(20).eval(), embeddings()
    expected = model.alignment(images, texts)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model.alignment(images, texts), expected)


def test_unit_vectors_are_float32_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        states = torch.randn(4, 8) @ torch.randn(8, 8)
        assert states.dtype == torch.bfloat16
        found = l2norm(states)
    torch.testing.assert_close(found, states.float() / states.float().norm(dim=1, keepdim=True))


@pytest.mark.parametrize("kind", ["scan", "pos-scan"])
@pytest.mark.parametrize("objective", [TripletConfig(), InfoNCEConfig(learned=False)], ids=lambda config: config.kind)
def test_the_loss_under_autocast_is_that_of_float32_scores(kind, objective):
    """The encoders run in bfloat16; what is made of their vectors is not rounded."""
    model, given = matcher(kind, VOCABULARY).eval(), batch()
    built = objective.build(context())
    with torch.autocast("cpu", torch.bfloat16):
        images, texts = model.embed_images(given.scenes), model.embed_texts(given.texts)
        found = built(model, given, Progress(9, 900)).total

    model.embed_images, model.embed_texts = (lambda _: images), (lambda _: texts)  # the same vectors, now without it
    assert model.similarity(images, texts).dtype == torch.float32
    torch.testing.assert_close(found, built(model, given, Progress(9, 900)).total)
