"""POS-SCAN: only tagged words attend and are averaged, and the rest is SCAN."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS, random_words
from matcher_contract import MatcherContract, texts_of
from scan_equations import double_scenes, naive_attention, naive_regions, naive_score, naive_words
from sightline.batch import TextBatch
from sightline.errors import ConfigError, MissingPartError
from sightline.models.scan import POSSCAN, POSSCANConfig, SCANConfig
from sightline.text.vocabulary import Vocabulary


def config(**choices) -> POSSCANConfig:
    return POSSCANConfig(**({"region_width": REGION_WIDTH, "word_size": 16, "size": 32} | choices))


def built(**choices) -> POSSCAN:
    torch.manual_seed(0)
    return config(**choices).build(WORDS).double().eval()


class TestPOSSCAN(MatcherContract):
    overfit_steps, overfit_rate = 100, 0.03

    def build(self) -> POSSCAN:
        return config().build(WORDS)


def tagged_words(model: POSSCAN, texts: TextBatch, b: int) -> list[torch.Tensor]:
    """The vectors of a caption's tagged words, or of all its words, the whole caption having been read."""
    words = naive_words(model, texts.ids[b][texts.mask[b]].tolist())
    return [e for e, tagged in zip(words, texts.tagged[b], strict=False) if tagged] or words


@pytest.mark.parametrize("choices", [{}, {"direction": "i2t"}, {"aggregate": "lse"}, {"clip": "leaky"}], ids=str)
def test_a_pair_is_scored_by_its_tagged_words_alone(choices):
    model, scenes, texts = built(**choices), double_scenes(3), texts_of(random_words(5))
    texts.tagged[2] = False  # a caption without nouns
    found = model(scenes, texts)
    for i in range(3):
        for j in range(5):
            expected = naive_score(model.config, naive_regions(model, scenes, i), tagged_words(model, texts, j))
            assert found[i, j].item() == pytest.approx(expected.item(), abs=1e-5)


def test_words_that_are_not_tagged_still_change_the_tagged_ones_through_the_gru():
    model, scenes, texts = built(), double_scenes(2), texts_of(torch.tensor([[1, 5, 6, 7, 2]]))
    other = replace(texts, ids=torch.tensor([[1, 5, 8, 7, 2]]))  # place 2 is not tagged
    assert not texts.tagged[0, 2]
    assert (model(scenes, texts) - model(scenes, other)).abs().min() > 1e-4


def test_with_every_word_tagged_it_is_scan():
    model, scenes, texts = built(), double_scenes(3), texts_of(random_words(4))
    scan = SCANConfig(region_width=REGION_WIDTH, word_size=16, size=32).build(WORDS).double()
    scan.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(scenes, replace(texts, tagged=texts.mask)), scan(scenes, texts))
    torch.testing.assert_close(model(scenes, replace(texts, tagged=texts.mask & False)), scan(scenes, texts))


def test_alignment_is_a_distribution_for_tagged_words_and_zero_for_others():
    model, scenes, texts = built(), double_scenes(4), texts_of(random_words(4))
    texts.tagged[1] = False
    weights = model.alignment(model.embed_images(scenes), model.embed_texts(texts))
    part = texts.tagged.clone()
    part[1] = texts.mask[1]
    torch.testing.assert_close(weights.sum(2), part.float())
    for b in (0, 2, 3):
        regions = naive_regions(model, scenes, b)
        expected = naive_attention(model.config, regions, tagged_words(model, texts, b))
        found = weights[b][texts.tagged[b], : len(regions)]
        expected = torch.stack([torch.stack(row) for row in expected])
        torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)


def test_a_forced_word_joins_the_tagged_ones_and_no_padding_does():
    model, scenes, texts = built(), double_scenes(3), texts_of(random_words(3))
    texts.tagged[2] = False
    images, sentences = model.embed_images(scenes), model.embed_texts(texts)
    forced = torch.zeros_like(texts.mask)
    forced[:, 2] = True  # a word the tags leave out
    forced[:, -1] = ~texts.mask[:, -1]  # padding
    found = model.alignment(images, sentences, forced)
    joined = replace(texts, tagged=(texts.tagged | forced) & texts.mask)
    torch.testing.assert_close(found, model.alignment(images, model.embed_texts(joined)))
    torch.testing.assert_close(found.sum(2), joined.tagged.float())
    assert joined.tagged[2].sum() == 1


def test_texts_that_are_not_tagged_are_refused_with_the_way_to_tag_them():
    texts = replace(texts_of(random_words(2)), tagged=None)
    with pytest.raises(MissingPartError, match=r"not tagged. To fix: .*mark=model.config.mark"):
        built().embed_texts(texts)


SENTENCE = "a man rides the brown horse near a fence".split()


def test_mark_finds_the_nouns():
    marked = POSSCANConfig().mark([SENTENCE, ["UNK", "dog"]])
    assert [w for w, noun in zip(SENTENCE, marked[0], strict=True) if noun] == ["man", "horse", "fence"]
    assert marked[1] == [False, True]


def test_any_parts_of_speech_can_be_marked():
    marked = POSSCANConfig(tags=("JJ", "VBZ")).mark([SENTENCE])
    assert [w for w, chosen in zip(SENTENCE, marked[0], strict=True) if chosen] == ["rides", "brown"]


def test_a_collated_batch_holds_the_marks_and_the_model_reads_them():
    texts = TextBatch.collate([SENTENCE], Vocabulary(sorted(set(SENTENCE))), mark=POSSCANConfig().mark)
    assert texts.tagged.nonzero()[:, 1].tolist() == [2, 6, 9]
    assert torch.equal(built().word_mask(built().embed_texts(texts)), texts.tagged)


def test_a_tag_no_word_can_have_is_refused():
    with pytest.raises(ConfigError, match=r"`tags` has NOUN. To fix: choose from .*NNPS"):
        POSSCANConfig(tags=("NOUN", "NN")).mark([SENTENCE])


def test_no_parts_of_speech_at_all_are_refused():
    with pytest.raises(ConfigError, match="`tags` is empty"):
        POSSCANConfig(tags=())


@pytest.mark.parametrize(("choices", "chosen"), [({}, 1), ({"raw_feature_norm": "clipped", "lambda_softmax": 20.0}, 0)])
def test_the_printed_weights_follow_a_nouns_share_of_a_region_and_clipped_ones_its_cosine(choices, chosen):
    words = torch.eye(3)[None, :2]  # two nouns
    regions = torch.tensor([[[0.9, 0.3, 0.3], [0.05, -0.1, 0.99], [0.1, 0.9, 0.4]]])  # the dog, the sky, the ball
    images = {"regions": regions / regions.norm(dim=2, keepdim=True), "mask": torch.ones(1, 3, dtype=torch.bool)}
    texts = {"words": words, "mask": torch.ones(1, 2, dtype=torch.bool), "tagged": torch.ones(1, 2, dtype=torch.bool)}
    weights = config(**choices).build(WORDS).alignment(images, texts)[0, 0]
    assert int(weights.argmax()) == chosen
