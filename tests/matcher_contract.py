"""What every matcher must keep. A test file subclasses `MatcherContract` and says how its model is built."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioner_contract import (
    WORDS,
    assert_finite,
    assert_gives_gradients,
    first_regions,
    more_padding,
    other_width,
    random_scenes,
    random_words,
    rows,
    with_one_empty,
)
from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import CountError, MissingPartError
from sightline.models.matcher import Matcher
from sightline.text.vocabulary import PAD, Vocabulary

VOCABULARY = Vocabulary([f"word{i}" for i in range(WORDS - 4)])


def texts_of(ids: torch.Tensor) -> TextBatch:
    """Captions as a batch of texts, every second word tagged."""
    words = tuple(tuple(VOCABULARY.decode(row.tolist())) for row in ids)
    tagged = (ids > 3) & (torch.arange(ids.shape[1]) % 2 == 1)
    return TextBatch(words, ids, ids != PAD, tagged)


class MatcherContract:
    """Subclass it in a test file as `TestX`, and give `build`; override the rest where the model differs."""

    outside_similarity: tuple[str, ...] = ()  # prefixes of parameters that the similarity does not touch
    overfit_steps, overfit_rate = 120, 0.005

    def build(self) -> Matcher:
        """A small model over WORDS ids and REGION_WIDTH features."""
        raise NotImplementedError

    @pytest.fixture
    def model(self) -> Matcher:
        torch.manual_seed(0)
        return self.build().eval()

    @pytest.fixture
    def scenes(self) -> SceneBatch:
        return random_scenes(4)

    def test_a_pair_scores_the_same_alone_and_in_company(self, model, scenes):
        texts = texts_of(random_words(6))
        images, sentences = model.embed_images(scenes), model.embed_texts(texts)
        whole = model.similarity(images, sentences)
        assert whole.shape == (4, 6)
        for i in range(4):
            for j in range(6):
                pair = model(rows(scenes, [i]), texts_of(texts.ids[[j]]))
                torch.testing.assert_close(pair[0, 0], whole[i, j], atol=1e-5, rtol=1e-5)

    def test_padding_never_changes_a_result(self, model, scenes):
        ids = random_words(6)
        longer = torch.cat([ids, torch.full((6, 3), PAD)], 1)
        padded = model(more_padding(scenes), texts_of(longer))
        torch.testing.assert_close(padded, model(scenes, texts_of(ids)), atol=1e-5, rtol=1e-5)

    def test_gradients_reach_every_parameter(self, model, scenes):
        model.train()
        (model(scenes, texts_of(random_words(4))) * torch.randn(4, 4)).sum().backward()
        for name, parameter in model.named_parameters():
            if not name.startswith(self.outside_similarity or "\0"):
                assert parameter.grad is not None, name
                assert parameter.grad.abs().sum() > 0, name

    def test_it_overfits_fifty_pairs_and_finds_each(self):
        torch.manual_seed(0)
        model, scenes, texts = self.build().train(), random_scenes(50, seed=3), texts_of(random_words(50, seed=5))
        optimiser = torch.optim.Adam(model.parameters(), lr=self.overfit_rate)
        own = torch.eye(50, dtype=torch.bool)
        for _ in range(self.overfit_steps):
            scores = model(scenes, texts)
            cost = (0.2 + scores - scores.diagonal()[:, None]).clamp(min=0)
            other = (0.2 + scores - scores.diagonal()[None]).clamp(min=0)
            loss = (cost + other).masked_fill(own, 0).sum() / 50
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            scores = model(scenes, texts)
        assert torch.equal(scores.argmax(1), torch.arange(50))
        assert torch.equal(scores.argmax(0), torch.arange(50))

    def test_saved_and_loaded_it_is_bit_identical(self, model, scenes, tmp_path):
        save(tmp_path / "model.safetensors", Checkpoint(model, VOCABULARY, text_rule="scan"))
        again = load(tmp_path / "model.safetensors")
        assert again.model.config == model.config
        texts = texts_of(random_words(4))
        assert torch.equal(model(scenes, texts), again.model(scenes, texts))

    def test_it_runs_in_bfloat16(self, model, scenes):
        texts = texts_of(random_words(4))
        expected = model(scenes, texts)
        model.to(torch.bfloat16)
        found = model(scenes.to("cpu", torch.bfloat16), texts)
        torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.1)

    def test_a_missing_part_is_named(self, model, scenes):
        for part in model.needs:
            with pytest.raises(MissingPartError, match=f"needs `{part}`"):
                model.embed_images(replace(scenes, **{part: None}))

    def test_features_of_another_width_are_named(self, model, scenes):
        for part in set(model.needs) & {"regions", "vector"}:
            width = getattr(scenes, part).shape[-1]
            with pytest.raises(CountError, match=f"`{part}` of {width} numbers, and these have {width + 1}"):
                model.embed_images(other_width(scenes, part))

    def test_no_image_at_all_is_refused(self, model, scenes):
        with pytest.raises(CountError, match="at least one"):
            model.embed_images(rows(scenes, []))
        images, texts = model.embed_images(scenes), model.embed_texts(texts_of(random_words(2)))
        with pytest.raises(CountError, match="at least one"):
            model.similarity({name: part[:0] for name, part in images.items()}, texts)

    def test_without_masks_everything_is_there(self, model, scenes):
        full, texts = replace(scenes, region_mask=torch.ones_like(scenes.region_mask)), texts_of(random_words(3))
        assert torch.equal(model(replace(scenes, region_mask=None), texts), model(full, texts))

    def test_an_image_without_regions_is_the_same_alone_and_in_company(self, model, scenes):
        texts = texts_of(random_words(3))
        together = model(with_one_empty(scenes, 1), texts)
        alone = model(first_regions(rows(scenes, [1]), 0), texts)
        torch.testing.assert_close(alone, together[[1]], atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("count", [0, 1])
    def test_an_image_of_one_region_or_none_can_be_trained_on(self, model, scenes, count):
        model.train()
        model(first_regions(rows(scenes, [1]), count), texts_of(random_words(2))).sum().backward()
        assert_finite(model)

    def test_evaluation_mode_still_gives_gradients_where_the_recurrence_is_cudnns(self, model):
        assert_gives_gradients(model)
