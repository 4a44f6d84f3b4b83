from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioner_contract import REGION_WIDTH, VECTOR_WIDTH, WORDS, random_scenes, random_words
from matcher_contract import MatcherContract, texts_of
from sightline.errors import MissingPartError
from sightline.models.vsepp import VSEPP, VSEPPConfig
from sightline.text.vocabulary import END


def config(**changes) -> VSEPPConfig:
    sizes = {"region_width": REGION_WIDTH, "vector_width": VECTOR_WIDTH, "size": 32, "word_size": 16}
    return VSEPPConfig(**{**sizes, **changes})


def naive_sentence(model: VSEPP, ids: list[int]) -> torch.Tensor:
    """The state after END of a GRU written out, at unit length."""
    rnn = model.text.rnn
    size = rnn.hidden_size
    h = torch.zeros(size)
    for id in ids:
        x = model.text.embed.weight[id]
        i = [
            rnn.weight_ih_l0[k * size : (k + 1) * size] @ x + rnn.bias_ih_l0[k * size : (k + 1) * size]
            for k in range(3)
        ]
        s = [
            rnn.weight_hh_l0[k * size : (k + 1) * size] @ h + rnn.bias_hh_l0[k * size : (k + 1) * size]
            for k in range(3)
        ]
        r, z = torch.sigmoid(i[0] + s[0]), torch.sigmoid(i[1] + s[1])
        h = (1 - z) * torch.tanh(i[2] + r * s[2]) + z * h
    return h / h.norm()


class TestVSEPP(MatcherContract):
    overfit_rate = 0.02

    def build(self):
        return config().build(WORDS)

    def test_an_image_is_the_projected_mean_of_its_real_regions(self, model, scenes):
        found = model.embed_images(scenes)["vector"]
        for i in range(4):
            real = [scenes.regions[i, j] for j in range(5) if scenes.region_mask[i, j]]
            image = model.fc.weight @ (sum(real) / len(real)) + model.fc.bias
            torch.testing.assert_close(found[i], image / image.norm(), atol=1e-6, rtol=1e-5)

    def test_a_sentence_is_the_state_at_end(self, model):
        ids = random_words(5)
        found = model.embed_texts(texts_of(ids))["vector"]
        for row, vector in zip(ids.tolist(), found, strict=True):
            torch.testing.assert_close(vector, naive_sentence(model, row[: row.index(END) + 1]), atol=1e-6, rtol=1e-5)

    def test_it_starts_as_the_released_code_does(self):
        model = config(region_width=100, size=200).build(500)
        bound = (6 / 300) ** 0.5
        assert 0.9 * bound < model.fc.weight.abs().max() <= bound
        assert not model.fc.bias.any()
        assert 0.099 < model.text.embed.weight.abs().max() <= 0.1


class TestVSEPPOnTheGlobalVector(MatcherContract):
    overfit_rate = 0.02

    def build(self):
        return config(image="vector").build(WORDS)

    def test_it_reads_the_vector_and_nothing_else(self, model, scenes):
        assert model.needs == ("vector",)
        alone = replace(scenes, regions=None, region_mask=None, boxes=None, grid=None, concepts=None)
        found = model.embed_images(alone)["vector"]
        for i in range(4):
            image = model.fc.weight @ scenes.vector[i] + model.fc.bias
            torch.testing.assert_close(found[i], image / image.norm(), atol=1e-6, rtol=1e-5)
        with pytest.raises(MissingPartError, match="vector"):
            model.embed_images(replace(scenes, vector=None))


def test_a_text_without_words_or_marks_has_no_vector():
    model = config().build(WORDS)
    texts = texts_of(torch.zeros(2, 3, dtype=torch.long))
    assert torch.equal(model.embed_texts(texts)["vector"], torch.zeros(2, 32))


def test_the_paper_s_sizes_are_the_defaults():
    assert (VSEPPConfig().size, VSEPPConfig().word_size, VSEPPConfig().image) == (1024, 300, "regions")


def test_scenes_without_regions_have_a_vector_that_fits_nothing_better():
    scenes = random_scenes(2)
    empty = replace(scenes, region_mask=torch.zeros_like(scenes.region_mask))
    model = config().build(WORDS)
    assert torch.isfinite(model(empty, texts_of(random_words(3)))).all()
