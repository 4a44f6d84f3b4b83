from __future__ import annotations

import copy

import pytest
import torch

from captioner_contract import REGION_WIDTH, WORDS, CaptionerContract, random_scenes, random_words
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import CountError
from sightline.models.vsrn import VSRNCaptioner, VSRNConfig
from sightline.text.vocabulary import Vocabulary


def build(words: int = WORDS, **changes) -> VSRNCaptioner:
    """Of regions as VSRN's `size` makes them."""
    sizes = {"size": REGION_WIDTH, "word_size": 16, "hidden_size": 32, "dropout": 0.0}
    return VSRNCaptioner(VSRNConfig(**{**sizes, **changes}), words)


def naive_gru(inputs: list[torch.Tensor], state: list[torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
    """One step of a GRU (reset, update, new) from what the input and the state add to its gates."""
    reset, update = torch.sigmoid(inputs[0] + state[0]), torch.sigmoid(inputs[1] + state[1])
    return (1 - update) * torch.tanh(inputs[2] + reset * state[2]) + update * hidden


def naive_states(model: VSRNCaptioner, regions: list[torch.Tensor]) -> list[torch.Tensor]:
    """The encoder's states over the real regions of one image."""
    rnn, size = model.encoder, model.config.hidden_size
    hidden, states = torch.zeros(size), []
    for region in regions:
        x = model.project.weight @ region + model.project.bias
        inputs = (rnn.weight_ih_l0 @ x + rnn.bias_ih_l0).split(size)
        state = (rnn.weight_hh_l0 @ hidden + rnn.bias_hh_l0).split(size)
        hidden = naive_gru(inputs, state, hidden)
        states.append(hidden)
    return states


def naive_step(model: VSRNCaptioner, states: list[torch.Tensor], word: int, hidden: torch.Tensor):
    """One decoder step of one hypothesis: the state and the attention."""
    joint = torch.cat([model.attend_memory.weight, model.attend_state.weight], 1)  # one Linear from 2h to h
    scores = []
    for state in states:
        energy = torch.tanh(joint @ torch.cat([state, hidden]) + model.attend_memory.bias)
        scores.append((model.score.weight[0] * energy).sum())
    weights = [score.exp() / sum(s.exp() for s in scores) for score in scores]
    context = sum(weight * state for weight, state in zip(weights, states, strict=True))
    gates = torch.cat([model.word_gates.weight, model.context_gates.weight], 1)
    inputs = gates @ torch.cat([model.embed.weight[word], context]) + model.word_gates.bias
    state = model.state_gates.weight @ hidden + model.state_gates.bias
    size = model.config.hidden_size
    return naive_gru(inputs.split(size), state.split(size), hidden), weights


class TestVSRNCaptioner(CaptionerContract):
    overfit_rate = 0.02

    def build(self):
        return build()

    def test_the_encoder_reads_real_regions_and_the_decoder_starts_where_it_ended(self, model, scenes):
        memory = model.encode(scenes)
        for i in range(4):
            states = naive_states(
                model, [r for r, there in zip(scenes.regions[i], scenes.region_mask[i], strict=True) if there]
            )
            torch.testing.assert_close(memory["states"][i, : len(states)], torch.stack(states), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(model.start(memory)["hidden"][i], states[-1], atol=1e-5, rtol=1e-5)

    def test_a_decoder_step_is_additive_attention_and_a_gru(self, model, scenes):
        words = random_words(8)
        output = model(model.encode(scenes), words)
        for i in range(8):
            image = i // 2
            count = int(scenes.region_mask[image].sum())
            states = naive_states(model, list(scenes.regions[image, :count]))
            hidden = states[-1]
            for t in range(words.shape[1] - 1):
                hidden, weights = naive_step(model, states, int(words[i, t]), hidden)
                torch.testing.assert_close(output.hidden[i, t], hidden, atol=1e-5, rtol=1e-4)
                torch.testing.assert_close(
                    output.trace.regions[i, t, :count], torch.stack(weights), atol=1e-5, rtol=1e-4
                )
                logits = model.out.weight @ hidden + model.out.bias
                expected = logits - logits.exp().sum().log()
                torch.testing.assert_close(output.log_probs[i, t], expected, atol=1e-5, rtol=1e-4)

    def test_attention_over_real_regions_sums_to_one(self, model, scenes):
        weights = model(model.encode(scenes), random_words(4)).trace.regions
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))

    def test_an_image_without_regions_starts_from_nothing(self, model, scenes):
        memory = model.encode_regions(scenes.regions, torch.zeros_like(scenes.region_mask))
        assert torch.equal(model.start(memory)["hidden"], torch.zeros(4, 32))
        assert torch.isfinite(model(memory, random_words(4)).log_probs).all()

    def test_saved_and_loaded_it_is_bit_identical(self, scenes, tmp_path):
        """It is saved as a part of VSRN."""
        whole = VSRNConfig(region_width=REGION_WIDTH, size=16, word_size=8, hidden_size=12).build(WORDS).eval()
        vocabulary = Vocabulary([f"word{i}" for i in range(WORDS - 4)])
        save(tmp_path / "model.safetensors", Checkpoint(whole, vocabulary, text_rule="scan"))
        again = load(tmp_path / "model.safetensors").model
        words = random_words(4)
        before, after = (model.generation_log_probs(model.embed_images(scenes), words) for model in (whole, again))
        assert torch.equal(before, after)

    def test_captions_must_divide_among_the_images(self, model, scenes):
        with pytest.raises(CountError, match="7 captions for 4 images"):
            model(model.encode(scenes), random_words(7))


def test_dropout_is_on_projected_regions_words_and_context_and_only_while_training():
    torch.manual_seed(0)
    model, scenes, words = build(dropout=0.5), random_scenes(3), random_words(3)
    memory = model.eval().encode(scenes)
    assert torch.equal(model(memory, words).log_probs, model(memory, words).log_probs)
    model.train()
    assert not torch.equal(model.encode(scenes)["states"], model.encode(scenes)["states"])
    for silent in ("context_gates", "word_gates"):  # the other one is heard alone
        heard = copy.deepcopy(model)
        torch.nn.init.zeros_(getattr(heard, silent).weight)
        assert not torch.equal(heard(memory, words).log_probs, heard(memory, words).log_probs)
    hidden = torch.randn(2, 32)
    assert torch.equal(model.predict(hidden), model.predict(hidden))


def test_without_dropout_training_and_evaluation_agree():
    torch.manual_seed(0)
    model, scenes, words = build(), random_scenes(3), random_words(3)
    trained = model.train()(model.encode(scenes), words).log_probs
    assert torch.equal(trained, model.eval()(model.encode(scenes), words).log_probs)


def test_matrices_start_as_the_released_code_s_do():
    torch.manual_seed(0)
    model = build(400, size=300, hidden_size=200, word_size=100)
    assert model.project.weight.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.05)  # Xavier, normal
    assert model.out.weight.std().item() == pytest.approx((2 / 600) ** 0.5, rel=0.05)
    for part, bound in (
        (model.attend_memory.weight, 400**-0.5),
        (model.attend_memory.bias, 400**-0.5),
        (model.attend_state.weight, 400**-0.5),
        (model.word_gates.weight, 200**-0.5),
        (model.context_gates.weight, 200**-0.5),
        (model.state_gates.weight, 200**-0.5),
    ):
        assert 0.95 * bound < part.abs().max() <= bound
