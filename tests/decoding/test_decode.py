"""`captions`, and decoding with real captioners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from captioner_contract import REGION_WIDTH, VECTOR_WIDTH, WORDS, greedy, random_scenes
from decoding_samples import VOCABULARY, HashCaptioner, Naive, said
from sightline.decoding.decode import caption_words, captions, decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Beam, DiverseBeam, Greedy, Sample
from sightline.models.captioner import Captioner, Memory, Trace
from sightline.models.ensemble import Ensemble
from sightline.models.neuraltalk2 import NeuralTalk2Config
from sightline.models.sim_trans import SimTransConfig
from sightline.models.updown import UpDownConfig
from sightline.text.grammar import wrong_articles
from sightline.text.vocabulary import PAD, Vocabulary


class TracingCaptioner(HashCaptioner):
    """Its attention and gates tell image, caption and step, so that a test knows whose they are."""

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        hidden, _ = super().unroll(memory, words)
        rows, steps = words.shape
        image = memory["image"].repeat_interleave(rows // len(memory["image"]))[:, None, None]  # (N, 1, 1)
        step = torch.arange(steps)[None, :, None]
        regions = (image * 100 + step).float().expand(rows, steps, 5)
        gates = {"sentinel": words.float(), "fusion": words.float()[:, :, None, None].expand(-1, -1, 2, 2)}
        return hidden, Trace(regions, -regions[..., :4], gates)


def scenes_of(count: int):
    scenes = random_scenes(count)
    return replace(scenes, region_mask=torch.arange(5) < torch.arange(count)[:, None] % 5 + 1)


def test_a_caption_that_is_kept_keeps_nothing_of_the_other_photos_in_memory():
    for of in captions(TracingCaptioner(), scenes_of(7), VOCABULARY, Beam(3, keep=2), Rules(5)):
        for word in of[0].trace:
            assert all(array.base is None for array in (word.regions, word.grid, word.gates["fusion"]))


def test_articles_suit_the_words_after_them_where_the_rules_ask_for_it():
    vocabulary = Vocabulary("a an dog umbrella".split())
    model, scenes = TracingCaptioner(len(vocabulary)), scenes_of(7)
    free = captions(model, scenes, vocabulary, Beam(3, keep=3), Rules(5))
    right = captions(model, scenes, vocabulary, Beam(3, keep=3), Rules(5, right_articles=True))
    assert any(wrong_articles(one.words) for of in free for one in of)
    assert not any(wrong_articles(one.words) for of in right for one in of)
    for image, of in enumerate(right):
        for one in of:
            ids = tuple(map(vocabulary.id, one.words))
            assert one.log_prob == pytest.approx(Naive(model, image).log_prob(ids), abs=1e-5)


@pytest.mark.parametrize("at_once", [1, 2**26])
def test_every_word_has_the_trace_of_its_own_step(at_once, monkeypatch):
    monkeypatch.setattr("sightline.decoding.decode.AT_ONCE", at_once)
    model = TracingCaptioner()
    found = captions(model, scenes_of(7), VOCABULARY, Beam(3, keep=2), Rules(5))
    assert [len(of) for of in found] == [2] * 7
    for i, of in enumerate(found):
        naive = Naive(model, i)
        for caption in of:
            ids = [VOCABULARY.id(word) for word in caption.words]
            assert caption.log_prob == pytest.approx(naive.log_prob(tuple(ids)), abs=1e-5)
            assert len(caption.trace) == len(ids)
            for t, word in enumerate(caption.trace):
                assert word.log_prob == pytest.approx(naive.next_log_probs(tuple(ids[:t]))[ids[t]], abs=1e-5)
                assert word.regions.tolist() == [100 * i + t] * (i % 5 + 1)
                assert word.grid.tolist() == [-100 * i - t] * 4
                read = ([1, *ids])[t]
                assert word.gates["sentinel"] == read
                assert isinstance(word.gates["sentinel"], float)
                assert np.array_equal(word.gates["fusion"], np.full((2, 2), read))


def test_without_a_trace_the_words_are_the_same_and_no_forward_is_made(monkeypatch):
    model, scenes = TracingCaptioner(), scenes_of(5)
    traced = captions(model, scenes, VOCABULARY, Sample(copies=3, seed=1))
    monkeypatch.setattr(model, "unroll", None)
    plain = captions(model, scenes, VOCABULARY, Sample(copies=3, seed=1), trace=False)
    assert [[c.words for c in of] for of in plain] == [[c.words for c in of] for of in traced]
    assert all(c.trace == () for of in plain for c in of)


def test_the_words_of_captions_are_those_decoded():
    model, scenes = TracingCaptioner(), scenes_of(4)
    found = captions(model, scenes, VOCABULARY, Beam(3, keep=3), Rules(5))
    decoded = decode(model, model.encode(scenes), Beam(3, keep=3), Rules(5), VOCABULARY)
    assert caption_words(decoded, VOCABULARY) == [[caption.words for caption in of] for of in found]


def test_captions_that_do_not_exist_are_left_out():
    model, vocabulary = TracingCaptioner(vocab_size=5), Vocabulary(["dog"])
    found = captions(model, scenes_of(2), vocabulary, Beam(6, keep=6), Rules(1))
    assert [sorted(c.text for c in of) for of in found] == [["", "dog"]] * 2


def test_scenes_without_masks_keep_all_attention():
    scenes = replace(random_scenes(2), region_mask=None, grid_mask=None)
    for of in captions(TracingCaptioner(), scenes, VOCABULARY, rules=Rules(5, min_words=1)):
        assert of[0].trace[0].regions.shape == (5,)
        assert of[0].trace[0].grid.shape == (4,)


def real_models() -> list[Captioner]:
    torch.manual_seed(0)
    sizes = {"word_size": 16, "hidden_size": 16}
    models: list[Captioner] = [
        UpDownConfig(region_width=REGION_WIDTH, attention_size=16, **sizes).build(WORDS),
        NeuralTalk2Config(vector_width=VECTOR_WIDTH, **sizes).build(WORDS),
        SimTransConfig(region_width=REGION_WIDTH, hidden_size=16, layers=2, heads=4, ffn_size=32).build(WORDS),
    ]
    for model in models:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    return [model.eval() for model in (*models, Ensemble(models[:2]))]


WAYS = (Greedy(), Sample(copies=2, seed=0), Beam(4, keep=3), DiverseBeam(4, 2))


@pytest.mark.parametrize("model", real_models(), ids=lambda model: type(model).__name__)
class TestRealCaptioners:
    """What holds for the enumerated model holds for trained ones."""

    def test_scores_are_those_of_teacher_forcing(self, model):
        memory = model.encode(random_scenes(9))
        for strategy in WAYS:
            found = decode(model, memory, strategy, Rules(6))
            forced = model.log_prob(memory, found.words.flatten(0, 1)).view_as(found.log_probs)
            torch.testing.assert_close(found.log_probs, forced, atol=1e-4, rtol=1e-4)

    def test_greedy_is_the_loop_a_reader_would_write(self, model):
        scenes = random_scenes(9)
        found = decode(model, model.encode(scenes), Greedy(), Rules(6, suppress_unk=False)).words[:, 0, 1:]
        expected = greedy(model, scenes, longest=6)
        assert found.shape[1] > 2
        for row, other in zip(found, expected, strict=True):
            words = row[row > 2]
            assert torch.equal(words, other[: len(words)])
            assert other[len(words)] == 2 or len(words) == 6

    def test_a_batch_equals_one_by_one(self, model):
        memory = model.encode(random_scenes(9))
        together = decode(model, memory, Beam(4, keep=3), Rules(6))
        for i in range(9):
            alone = decode(model, {n: part[i : i + 1] for n, part in memory.items()}, Beam(4, keep=3), Rules(6))
            assert [said(row) for row in alone.words[0]] == [said(row) for row in together.words[i]]

    def test_it_runs_in_bfloat16(self, model):
        import copy

        half = copy.deepcopy(model).to(torch.bfloat16)
        memory = half.encode(random_scenes(3).to("cpu", torch.bfloat16))
        for strategy in WAYS:
            found = decode(half, memory, strategy, Rules(6, repeat_penalty=1.0))
            assert found.log_probs.dtype == torch.float32
            assert (found.words[:, :, 1:2] != PAD).all()


def test_captions_of_up_down_say_where_each_word_came_from():
    scenes = random_scenes(4)
    vocabulary = Vocabulary([f"word{i}" for i in range(WORDS - 4)])
    for i, of in enumerate(captions(real_models()[0], scenes, vocabulary, rules=Rules(6, min_words=2))):
        for word in of[0].trace:
            assert len(word.regions) == scenes.region_mask[i].sum()
            assert word.regions.sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_captions_are_those_of_the_cpu():
    model, scenes = real_models()[0], random_scenes(9)
    expected = decode(model, model.encode(scenes), Beam(4, keep=3), Rules(6, repeat_penalty=1.0))
    model.to("cuda")
    found = decode(model, model.encode(scenes.to("cuda")), Beam(4, keep=3), Rules(6, repeat_penalty=1.0))
    assert torch.equal(found.words.cpu(), expected.words)
    drawn = [decode(model, model.encode(scenes.to("cuda")), Sample(seed=3), Rules(6)).words for _ in range(2)]
    assert torch.equal(*drawn)
