"""What Up-Down does faster gives what the plain model gives."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS, random_scenes, random_words
from sightline.errors import CountError
from sightline.models.captioner import expand
from sightline.models.updown import UpDown, UpDownConfig
from sightline.models.updown_fast import FastUpDown, PackedCaptions
from sightline.text.vocabulary import END, PAD, START

torch.set_num_threads(1)

SMALL = UpDownConfig(region_width=REGION_WIDTH, word_size=12, hidden_size=16, attention_size=14, dropout=0.0)


def make_model() -> FastUpDown:
    torch.manual_seed(0)
    return FastUpDown(SMALL, WORDS)


def plain_of(fast: FastUpDown) -> UpDown:
    """The plain model with the weights of the fast one, in its mode."""
    plain = UpDown(fast.config, fast.vocab_size)
    plain.load_state_dict(fast.state_dict())
    return plain.train(fast.training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("choices", [{}, {"mean_of": "raw", "relu": False}, {"batch_norm": 2}])
def test_the_fast_model_gives_what_the_plain_one_gives_with_the_same_gradients(choices, training):
    torch.manual_seed(0)
    fast = FastUpDown(replace(SMALL, **choices), WORDS).train(training).double()
    plain = plain_of(fast).double()
    scenes, words = random_scenes(4).to("cpu", torch.float64), random_words(12)
    found = []
    for model in (plain, fast):
        memory = model.encode(scenes)
        hidden, trace = model.unroll(memory, words[:, :-1])
        real = words[:, 1:] != PAD  # after the end of a caption, nothing is promised
        gradients = torch.autograd.grad(model.log_prob(memory, words).sum(), list(model.parameters()))
        found.append((hidden[real], trace.regions[real], *gradients))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one)


def test_the_fast_model_steps_as_the_plain_one():
    fast = make_model().eval()
    plain, words = plain_of(fast), random_words(6)
    scenes = random_scenes(3)
    with torch.no_grad():
        memories = plain.encode(scenes), fast.encode(scenes)
        states = [expand(plain.start(memories[0]), 6), expand(fast.start(memories[1]), 6)]
        for column in words[:, :5].T:
            one, states[0] = plain.step(column, memories[0], states[0])
            other, states[1] = fast.step(column, memories[1], states[1])
            torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(states[1], states[0], atol=1e-5, rtol=1e-5)


def test_a_config_builds_the_fast_model():
    assert type(SMALL.build(WORDS)) is FastUpDown


def stepping_gradients(model: UpDown, words: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Log-probabilities (N, T) of words by `step`, 0 on padding, and the gradients of their sum."""
    memory = model.encode(random_scenes(4))
    state = {name: part.repeat_interleave(len(words) // 4, 0) for name, part in model.start(memory).items()}
    found = []
    for column, following in zip(words[:, :-1].T, words[:, 1:].T, strict=True):
        log_probs, state = model.step(column, memory, state)
        found.append(log_probs.gather(1, following[:, None]).squeeze(1) * (following != PAD))
    total = torch.stack(found, 1)
    return total.detach(), list(torch.autograd.grad(total.sum(), list(model.parameters())))


def own_words(words: torch.Tensor) -> torch.Tensor:
    """Captions in which a word was replaced by END, as a model that reads its own words may have it."""
    words = words.clone()
    words[(words[:, 3] != PAD) & (words[:, 3] != END), 2] = END
    return words


def padded(words: torch.Tensor) -> torch.Tensor:
    """Captions with padding behind the longest, too."""
    return torch.nn.functional.pad(words, (0, 2), value=PAD)


@pytest.mark.parametrize("change", [lambda words: words, own_words, padded])
def test_captions_that_end_early_are_learned_as_by_stepping(change):
    model, words = make_model().train(), change(random_words(12))
    expected, gradients = stepping_gradients(copy.deepcopy(model).eval(), words)
    found = model.word_log_probs(model.encode(random_scenes(4)), words)
    torch.testing.assert_close(found.detach(), expected, atol=1e-5, rtol=1e-5)
    for one, other in zip(torch.autograd.grad(found.sum(), list(model.parameters())), gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


MEMORY = {"gates": torch.tensor([[100.0], [200.0]])}
CAPTIONS = torch.tensor([[START, 11, 12, PAD], [START, 21, PAD, PAD], [START, 31, 32, 33], [START, 41, PAD, 43]])


def read(words: torch.Tensor, to_end: bool) -> tuple[PackedCaptions, list[torch.Tensor]]:
    """A model whose state is the sum of the words it read, and that says this and its image's number."""
    reading = PackedCaptions(words, MEMORY, to_end)
    state, said = {"sum": torch.zeros(len(words), 1)}, []
    for step, rows in zip(reading.words, reading.rows, strict=True):
        state = {"sum": rows.of(state)["sum"] + step.unsqueeze(1)}
        met = rows.per_image(state["sum"], MEMORY) + MEMORY["gates"].unsqueeze(1)
        torch.testing.assert_close(rows.flat(met), rows.plus_image(state["sum"].clone(), MEMORY, "gates"))
        said.append(rows.flat(met))
    return reading, said


def test_each_caption_is_read_to_its_last_word_by_its_own_state_and_image():
    reading, said = read(CAPTIONS, to_end=True)
    assert [len(step) for step in said] == [4, 4, 3, 2]
    found = reading.join(said).squeeze(2)
    for row in range(4):
        last = max(t for t in range(4) if CAPTIONS[row, t] != PAD)
        for t in range(4):
            expected = CAPTIONS[row, : t + 1].sum() + (100 if row < 2 else 200) if t <= last else 0
            assert found[row, t] == expected


def test_reading_everything_gives_the_same_where_there_are_words():
    whole, said = read(CAPTIONS, to_end=False)
    assert [len(step) for step in said] == [4] * 4
    shorter, less = read(CAPTIONS, to_end=True)
    going = shorter.join(less) != 0
    torch.testing.assert_close(whole.join(said)[going], shorter.join(less)[going])


def test_an_image_has_only_as_many_places_as_its_captions_that_go_on():
    reading = PackedCaptions(CAPTIONS, MEMORY, to_end=True)
    assert reading.rows[2].per_image(torch.ones(3, 1), MEMORY).squeeze(2).tolist() == [[1, 0], [1, 1]]
    assert reading.rows[3].per_image(torch.ones(2, 1), MEMORY).squeeze(2).tolist() == [[0, 0], [1, 1]]


def test_steps_of_padding_alone_have_no_rows():
    reading, said = read(torch.tensor([[START, PAD], [START, PAD]]), to_end=True)
    assert [len(step) for step in said] == [2, 0]
    assert reading.join(said).squeeze(2).tolist() == [[101, 0], [201, 0]]


def test_captions_that_end_together_are_all_computed_at_every_step():
    assert all(rows[:2] == (None, None) for rows in PackedCaptions(torch.full((4, 3), 7), MEMORY, to_end=True).rows)


def test_captions_that_the_images_cannot_share_are_refused():
    with pytest.raises(CountError, match="3 captions for 2 images"):
        PackedCaptions(CAPTIONS[:3], MEMORY, to_end=True)
