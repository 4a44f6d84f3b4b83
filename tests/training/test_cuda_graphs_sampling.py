"""What the graph records, tried on a CPU: the greedy captions of `decode`, and samples by the model's probabilities.

There is no GPU here: that a replay gives what was recorded is CUDA's part.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
import torch

from captioner_contract import GRID_WIDTH, REGION_WIDTH, WORDS, random_scenes
from objective_samples import adaptive, make_context, make_pool, updown
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Greedy
from sightline.models.scene_trans import SceneTransConfig
from sightline.text.vocabulary import END, PAD, START
from sightline.training import cuda_graphs
from sightline.training.cuda_graphs import SamplingGraphs, sample
from sightline.training.objectives.self_critical import SelfCriticalConfig

torch.set_num_threads(1)
MOST = 6  # words of a caption


def scene_trans():
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "heads": 2, "ffn_size": 16, "layers": 2, "encoder_layers": 1}
    return SceneTransConfig(region_width=REGION_WIDTH, grid_width=GRID_WIDTH, **sizes).build(WORDS)


captioners = pytest.mark.parametrize("build", [updown, adaptive, scene_trans])


def speaking(build):
    """A captioner whose captions end now and then."""
    model = build().eval()
    bias = model.output_bias()
    with torch.no_grad():
        if bias is not None:
            bias[END] += 1.5
    return model, model.encode(random_scenes(5))


@captioners
@torch.no_grad()
def test_greedy_captions_are_those_of_decode(build):
    model, memory = speaking(build)
    decoded = decode(model, memory, Greedy(), Rules(max_words=MOST, suppress_unk=False))
    cut = ~decoded.finished.unsqueeze(2) & (decoded.words == END)
    expected = decoded.words.masked_fill(cut, PAD)
    words = sample(model, memory, MOST, greedy=True)
    assert words.shape == (5, 1, MOST + 1)
    width = min(words.shape[2], expected.shape[2])
    assert torch.equal(words[..., :width], expected[..., :width])
    assert (words[..., width:] == PAD).all()
    assert (expected[..., width:] == PAD).all()


@torch.no_grad()
def test_self_critical_training_scores_the_captions_of_graphs_like_decoded_ones():
    model, scenes = updown().eval(), random_scenes(5)
    objective = SelfCriticalConfig(samples=3, max_words=MOST).build(make_context(make_pool()))
    decoded = objective._captions(model, scenes)
    objective._graphs = sample  # as on a GPU, where a graph replays it
    replayed = objective._captions(model, scenes)
    assert replayed.shape == (5, 4, MOST + 1)
    width = min(decoded.shape[2], replayed.shape[2])
    assert torch.equal(replayed[:, 3, :width], decoded[:, 3, :width])  # greedy ones
    assert not torch.equal(replayed[:, 0], replayed[:, 1])
    objective.config = SelfCriticalConfig(samples=3, max_words=MOST, baseline="mean")
    assert objective._captions(model, scenes).shape == (5, 3, MOST + 1)


@captioners
@torch.no_grad()
def test_first_words_come_as_often_as_they_are_probable(build):
    model, memory = speaking(build)
    copies = 4000
    words = sample(model, memory, 1, copies)[..., 1]  # (5, copies)
    log_probs, _ = model.step(torch.full((5,), START), memory, model.start(memory))
    log_probs[:, [PAD, START]] = -torch.inf
    expected = log_probs.softmax(1)
    often = torch.stack([(words == id).float().mean(1) for id in range(WORDS)], 1)
    assert (often - expected).abs().max() < 5 * (0.25 / copies) ** 0.5  # five standard deviations


@torch.no_grad()
def test_captions_have_nothing_behind_their_end_and_never_padding_or_start_before():
    model, memory = speaking(updown)
    words = sample(model, memory, MOST, 200).flatten(0, 1)
    assert (words[:, 0] == START).all()
    ended = (words == END).cumsum(1) - (words == END).long() > 0  # behind END
    assert (words[ended] == PAD).all()
    assert not ((words[:, 1:] == PAD) & ~ended[:, 1:]).any()
    assert not (words[:, 1:] == START).any()
    assert ended.any()
    assert (words != END).all(1).any()  # some were cut


def on_cuda():
    return {"regions": SimpleNamespace(is_cuda=True, shape=(1, 2, 3), dtype=torch.float32)}


@pytest.mark.parametrize(("error", "kept"), [(RuntimeError, True), (torch.OutOfMemoryError, False)])
def test_a_failed_recording_frees_the_others_and_keeps_no_memory_that_ran_out(monkeypatch, error, kept):
    # The traceback of an error holds what the frames hold: of a broken recording CUDA asks for it, else it is waste.
    def fail(*_):
        raise error("no")

    model, graphs = updown(), SamplingGraphs()
    graphs._graphs["another shape"] = ({}, torch.zeros(1), lambda: None)
    monkeypatch.setattr(cuda_graphs, "_record_samples", fail)
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        assert graphs(model, on_cuda(), MOST) is None
    assert graphs(model, on_cuda(), MOST) is None  # and it is not tried again
    assert not graphs._graphs
    assert (graphs._failure is not None) == kept


def test_a_graph_of_one_captioner_never_answers_for_another(monkeypatch):
    # A captioner that is gone leaves its `id` to the next one; the graph would read weights that are freed.
    monkeypatch.setattr(cuda_graphs, "_record_samples", lambda *_: ({}, torch.full((1, 1, 2), START), lambda: None))
    graphs = SamplingGraphs()
    model = updown()
    graphs(model, on_cuda(), MOST)
    gone = weakref.ref(model)
    del model
    assert gone() is not None


def test_off_cuda_there_is_no_graph():
    model, memory = speaking(updown)
    assert SamplingGraphs()(model, memory, MOST, 2) is None
