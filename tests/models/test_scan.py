"""SCAN against Eq. 1-6 written out as loops, its variants, masks, gradients and alignment."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from captioner_contract import (
    REGION_WIDTH,
    WORDS,
    first_regions,
    more_padding,
    random_scenes,
    random_words,
    rows,
    with_one_empty,
)
from matcher_contract import MatcherContract, texts_of
from scan_equations import NORMS, double_scenes, naive_attention, naive_regions, naive_similarity, naive_words
from sightline.errors import ConfigError
from sightline.models.layers import WordGRU, l2norm
from sightline.models.scan import SCAN, SCANConfig
from sightline.models.scan_fast import fast_similarity


def config(**choices) -> SCANConfig:
    return SCANConfig(**({"region_width": REGION_WIDTH, "word_size": 8, "size": 16} | choices))


def built(**choices) -> SCAN:
    torch.manual_seed(0)
    return config(**choices).build(WORDS).double().eval()


class TestSCAN(MatcherContract):
    overfit_steps, overfit_rate = 90, 0.03

    def build(self) -> SCAN:
        return config(word_size=16, size=32).build(WORDS)


class TestSCANFromRegionsToWords(MatcherContract):
    overfit_steps, overfit_rate = 90, 0.03

    def build(self) -> SCAN:
        return config(word_size=16, size=32, direction="i2t", aggregate="lse").build(WORDS)


CHOICES = [
    *({"direction": d, "raw_feature_norm": n} for d, n in itertools.product(("t2i", "i2t"), NORMS)),
    *({"direction": d, "aggregate": a} for d, a in itertools.product(("t2i", "i2t"), ("lse", "max", "sum"))),
    *({"clip": "leaky", "raw_feature_norm": n} for n in ("clipped_l2norm", "clipped_l1norm", "clipped")),
    {"bidirectional": False},
    {"lambda_softmax": 20.0, "aggregate": "lse", "lambda_lse": 11.0},
]


@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
def test_every_pair_scores_as_the_equations_say(choices):
    model, scenes, ids = built(**choices), double_scenes(3), random_words(4)
    expected = naive_similarity(model, scenes, ids)
    found = model(scenes, texts_of(ids))
    torch.testing.assert_close(found, expected.to(found.dtype), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "choices",
    [{}, {"direction": "i2t", "aggregate": "lse"}, {"clip": "leaky"}, {"raw_feature_norm": "clipped_l1norm"}],
    ids=str,
)
def test_gradients_are_those_of_the_equations(choices):
    model, scenes, ids = built(**choices), double_scenes(3), random_words(4)
    ids[1] = torch.tensor([1, 5, 2, 0, 0, 0, 0, 0])
    weights = torch.randn(3, 4, dtype=torch.float64)
    expected = torch.autograd.grad((naive_similarity(model, scenes, ids) * weights).sum(), list(model.parameters()))
    found = torch.autograd.grad((model(scenes, texts_of(ids)) * weights).sum(), list(model.parameters()))
    for name, a, b in zip(dict(model.named_parameters()), found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("aggregate", ["mean", "lse", "max", "sum"])
@pytest.mark.parametrize("norm", NORMS)
def test_neither_padding_nor_the_block_changes_a_score_or_a_gradient(direction, aggregate, norm):
    model, scenes, ids = (
        built(direction=direction, aggregate=aggregate, raw_feature_norm=norm),
        double_scenes(4),
        random_words(6),
    )
    texts, longer = texts_of(ids), texts_of(torch.cat([ids, torch.zeros(6, 3, dtype=torch.long)], 1))
    expected = model.plain_similarity(model.embed_images(scenes), model.embed_texts(texts))
    padded = more_padding(scenes)
    found = fast_similarity(model, model.embed_images(padded), model.embed_texts(longer), (3, 2))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    weights = torch.randn(4, 6)
    first = torch.autograd.grad((expected * weights).sum(), list(model.parameters()))
    second = torch.autograd.grad((found * weights).sum(), list(model.parameters()))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("aggregate", ["mean", "lse", "max", "sum"])
@pytest.mark.parametrize("norm", NORMS)
def test_an_image_without_regions_gives_finite_scores_and_gradients(direction, aggregate, norm):
    model = config(direction=direction, aggregate=aggregate, raw_feature_norm=norm).build(WORDS)
    scenes = random_scenes(3)
    scenes.region_mask[1] = False
    scenes.regions[2] = 0  # regions that are there, and say nothing: the bias is 0 at first
    scores = model(scenes, texts_of(random_words(4)))
    assert scores.isfinite().all()
    scores[:2].sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_perfect_match_scores_one():
    model = built()
    vectors = torch.nn.functional.normalize(torch.randn(1, 4, 16), dim=-1)
    mask = torch.ones(1, 4, dtype=torch.bool)
    images = {"regions": vectors[:, :1], "mask": mask[:, :1]}
    texts = {"words": vectors[:, :1].expand(1, 4, 16), "mask": mask}
    assert model.plain_similarity(images, texts).item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("norm", NORMS)
def test_alignment_is_the_attention_of_each_word(direction, norm):
    model = built(direction=direction, raw_feature_norm=norm)
    scenes, ids = double_scenes(4), random_words(4)
    found = model.alignment(model.embed_images(scenes), model.embed_texts(texts_of(ids)))
    assert found.shape == (4, ids.shape[1], 5)
    for b, row in enumerate(ids.tolist()):
        regions, words = naive_regions(model, scenes, b), naive_words(model, [i for i in row if i])
        if direction == "t2i":
            expected = torch.stack([torch.stack(of) for of in naive_attention(model.config, regions, words)])
        else:
            expected = over_regions(model.config, regions, words)
        padded = torch.zeros(ids.shape[1], 5)
        padded[: len(words), : len(regions)] = expected
        torch.testing.assert_close(found[b], padded, atol=1e-5, rtol=1e-5)


def over_regions(config: SCANConfig, regions: list[torch.Tensor], words: list[torch.Tensor]) -> torch.Tensor:
    """The i2t scores, which the softmax over words shifts by a constant of the region, under a softmax over regions."""
    rows = []
    for e in words:
        scores = torch.stack([e @ v for v in regions])
        clipped = scores.clamp(min=0) if config.raw_feature_norm.startswith("clipped") else scores
        if config.raw_feature_norm.endswith("l2norm"):
            clipped = clipped / (clipped.norm() + 1e-8)
        if config.raw_feature_norm.endswith("l1norm"):
            clipped = clipped / (clipped.abs().sum() + 1e-8)
        if config.raw_feature_norm == "softmax":
            clipped = clipped.softmax(0)
        rows.append((config.temperature * clipped).softmax(0))
    return torch.stack(rows)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_rows_of_the_alignment_sum_to_one_on_words_and_to_zero_on_padding(direction):
    model, scenes, ids = built(direction=direction), double_scenes(6), random_words(6)
    texts = texts_of(ids)
    weights = model.alignment(model.embed_images(scenes), model.embed_texts(texts))
    torch.testing.assert_close(weights.sum(2), texts.mask.float())
    assert not weights.masked_select(~scenes.region_mask[:, None, :]).any()


@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
def test_an_image_without_regions_scores_the_same_alone_and_in_company(choices):
    model, scenes, texts = built(**choices), double_scenes(3), texts_of(random_words(4))
    together = model(with_one_empty(scenes, 1), texts)
    alone = first_regions(rows(scenes, [1]), 0)
    torch.testing.assert_close(model(alone, texts), together[[1]])
    one = texts_of(texts.ids[:1])
    weights = model.alignment(model.embed_images(alone), model.embed_texts(one))
    assert weights.shape == (1, texts.ids.shape[1], 0)


def test_rounding_never_makes_a_word_fit_better_than_the_same_vector():
    torch.manual_seed(0)
    vectors = l2norm(torch.randn(200, 1, 6)).bfloat16() * 1.004  # the cosines are rounded, their lengths are not
    there = torch.ones(200, 1, dtype=torch.bool)
    model = config().build(WORDS)
    scores = model.similarity({"regions": vectors, "mask": there}, {"words": vectors, "mask": there}).diagonal()
    assert ((scores > 0.99) & (scores <= 1 + 1e-6)).all()


def test_forcing_words_changes_nothing_where_all_take_part():
    model, scenes, texts = built(), double_scenes(4), texts_of(random_words(4))
    images, sentences = model.embed_images(scenes), model.embed_texts(texts)
    forced = torch.ones_like(texts.mask)
    assert torch.equal(model.alignment(images, sentences, forced), model.alignment(images, sentences))


def test_the_state_of_the_last_word_is_that_of_a_caption_alone():
    torch.manual_seed(0)
    ids = random_words(5)
    for bidirectional in (False, True):
        gru = WordGRU(WORDS, 8, 6, bidirectional)
        last = gru.last(ids, ids != 0)
        for row, found in zip(ids, last, strict=True):
            alone = row[row != 0][None]
            states, _ = gru.gru(gru.embedding(alone))
            expected = (states[0, -1, :6] + states[0, 0, 6:]) / 2 if bidirectional else states[0, -1]
            torch.testing.assert_close(found, expected)


def test_the_pad_row_of_the_embedding_has_no_effect():
    model, scenes, texts = built(), double_scenes(3), texts_of(random_words(4))
    expected = model(scenes, texts)
    with torch.no_grad():
        model.text.embedding.weight[0] = 100
    assert torch.equal(model(scenes, texts), expected)


def test_weights_start_as_the_paper_s_code_starts_them():
    model = SCANConfig(region_width=300, word_size=40, size=200).build(1000)
    bound = math.sqrt(6 / 500)
    assert 0.98 * bound < model.image.weight.abs().max() <= bound
    assert not model.image.bias.any()
    assert 0.099 < model.text.embedding.weight.abs().max() <= 0.1


def test_the_temperature_follows_the_direction_unless_given():
    assert SCANConfig().temperature == 9
    assert SCANConfig(direction="i2t").temperature == 4
    assert SCANConfig(direction="i2t", lambda_softmax=7.0).temperature == 7


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"direction": "both"}, "`direction` is 'both'. To fix: choose one of t2i, i2t"),
        ({"aggregate": "LogSumExp"}, "choose one of mean, lse, max, sum"),
        ({"raw_feature_norm": "l3norm"}, "`raw_feature_norm` is 'l3norm'"),
        ({"clip": "soft"}, "choose one of hard, leaky"),
        ({"size": 0}, "`size` is 0"),
        ({"region_width": -1}, "`region_width` is -1"),
        ({"lambda_lse": 0.0}, "`lambda_lse` is 0.0"),
        ({"lambda_softmax": 100.0}, "`lambda_softmax` is 100.0"),
        ({"lambda_softmax": 0.0}, "`lambda_softmax` is 0.0"),
    ],
)
def test_a_choice_that_cannot_be_built_is_refused(choices, message):
    with pytest.raises(ConfigError, match=message):
        SCANConfig(**choices)
