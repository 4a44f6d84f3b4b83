"""R²M against its equations written as plain loops, against the captioner contract, and in its ablations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from captioner_contract import (
    VECTOR_WIDTH,
    WORDS,
    CaptionerContract,
    greedy,
    more_padding,
    random_scenes,
    random_words,
)
from sightline.config import build
from sightline.errors import ConfigError, CountError, DataError, MissingPartError
from sightline.models.r2m import R2M, MultiHeadAttention, R2MConfig, RecurrentMemory
from sightline.models.r2m_fast import FastRecurrentMemory
from sightline.text.vocabulary import PAD, START

SIZE, HEADS = 32, 2
HEAD = SIZE // HEADS


def small(**choices: object) -> R2M:
    torch.manual_seed(0)
    sizes = {"hidden_size": SIZE, "heads": HEADS, "vector_width": VECTOR_WIDTH, "dropout": 0.0}
    return R2MConfig(**{**sizes, **choices}).build(WORDS).eval()


def distinct_scenes(count: int):
    """Scenes no two of which have the same set of concepts, so that captions can be told apart."""
    generator = torch.Generator().manual_seed(5)
    sets: dict[frozenset[int], list[int]] = {}
    while len(sets) < count:
        size = int(torch.randint(1, 5, (1,), generator=generator))
        chosen = (4 + torch.randperm(WORDS - 4, generator=generator)[:size]).tolist()
        sets[frozenset(chosen)] = chosen + [PAD] * (4 - size)
    concepts = torch.tensor(list(sets.values()))
    return replace(random_scenes(count, seed=3), concepts=concepts, concept_mask=concepts != PAD)


class R2MContract(CaptionerContract):
    outside_likelihood = ("reconstructor.", "image.")
    overfit_rate = 0.02
    choices: dict[str, object] = {}  # noqa: RUF012 - read only

    def build(self):
        return small(**self.choices)

    def overfit_scenes(self):
        return distinct_scenes(50)


class TestR2M(R2MContract):
    overfit_steps, overfit_rate = 240, 0.01


class TestR2MAsReleased(R2MContract):
    choices = {"released_code": True}  # noqa: RUF012
    frozen = ("image.",)
    overfit_rate = 0.01


class TestR2MWithoutFusionMemory(R2MContract):
    choices = {"fusion": False}  # noqa: RUF012


class TestR2MWithoutRecurrentMemory(R2MContract):
    choices = {"decoder": "lstm", "reconstructor": "lstm"}  # noqa: RUF012


def naive_layer_norm(x: torch.Tensor, norm: torch.nn.LayerNorm) -> torch.Tensor:
    mean = x.sum() / len(x)
    variance = ((x - mean) ** 2).sum() / len(x)
    return (x - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


def naive_transformers(x: torch.Tensor, attention: MultiHeadAttention, released: bool) -> list[list[torch.Tensor]]:
    """Query, key and value of a row x (d,), each a list over heads."""
    joint = attention.qkv.weight @ x
    if released:
        joint = naive_layer_norm(joint + attention.qkv.bias, attention.norm)
    return [
        [joint[part * SIZE + head * HEAD : part * SIZE + (head + 1) * HEAD] for head in range(HEADS)]
        for part in range(3)
    ]


def naive_softmax(scores: list[torch.Tensor]) -> list[torch.Tensor]:
    total = sum(math.exp(score) for score in scores)
    return [torch.exp(score) / total for score in scores]


def naive_fusion(model: R2M, v: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eq. 1-4 for one v and one w_{t-1} (d,): f_t (d,) and A (H, 2, 2)."""
    released = model.config.released_code
    scale = math.sqrt(3 * HEAD if released else HEAD)
    rows = [naive_transformers(x, model.fusion.attention, released) for x in (v, w)]  # x_t = [v; w]
    weights = torch.zeros(HEADS, 2, 2)
    joined = [[], []]
    for head in range(HEADS):
        for i in range(2):
            scores = [rows[i][0][head] @ rows[j][1][head] / scale for j in range(2)]
            taken = naive_softmax(scores)
            for j in range(2):
                weights[head, i, j] = taken[j]
            joined[i].append(taken[0] * rows[0][2][head] + taken[1] * rows[1][2][head])
    flat = torch.cat([*joined[0], *joined[1]])
    return model.fusion.fc.weight @ flat + model.fusion.fc.bias, weights


def naive_recurrence(
    rm: RecurrentMemory, memory: torch.Tensor, f: torch.Tensor, released: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Eq. 5-7 for one M_{t-1} and one f_t (d,): M_t (d,) and the weights (H, 2)."""
    scale = math.sqrt(3 * HEAD if released else HEAD)
    (query, key_m, value_m), (_, key_f, value_f) = (naive_transformers(x, rm.attention, released) for x in (memory, f))
    weights, attended = torch.zeros(HEADS, 2), []
    for head in range(HEADS):
        taken = naive_softmax([query[head] @ key_m[head] / scale, query[head] @ key_f[head] / scale])
        weights[head, 0], weights[head, 1] = taken
        attended.append(taken[0] * value_m[head] + taken[1] * value_f[head])
    residual = naive_layer_norm(memory + torch.cat(attended), rm.attended_norm)
    inner, outer = rm.mlp[0], rm.mlp[2]
    perceived = outer.weight @ (inner.weight @ residual + inner.bias).clamp(min=0) + outer.bias
    gain = naive_layer_norm(residual + perceived, rm.gain_norm)
    W_i, W_f = rm.input_gates.weight.split(SIZE)
    b_i, b_f = rm.input_gates.bias.split(SIZE)
    U_i, U_f = rm.memory_gates.weight.split(SIZE)
    g_i = 1 / (1 + torch.exp(-(W_i @ f + U_i @ torch.tanh(memory) + b_i)))
    g_f = 1 / (1 + torch.exp(-(W_f @ f + U_f @ torch.tanh(memory) + b_f)))
    return g_i * torch.tanh(gain) + g_f * memory, weights


def naive_lstm(lstm: torch.nn.LSTM, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    hidden, cell, states = torch.zeros(SIZE), torch.zeros(SIZE), []
    for x in inputs:
        gates = lstm.weight_ih_l0 @ x + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ hidden + lstm.bias_hh_l0
        i, f, g, o = gates.split(SIZE)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        states.append(hidden)
    return states


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.fixture(params=[False, True], ids=["as printed", "as released"])
def model(request) -> R2M:
    built = small(released_code=request.param)
    for name, parameter in built.named_parameters():
        if parameter.dim() == 1:  # biases and norms away from their initial 0 and 1
            torch.nn.init.uniform_(parameter, *((0.5, 1.5) if "norm.weight" in name else (-0.5, 0.5)))
    return built


@torch.no_grad()
def test_the_encoder_is_an_lstm_over_the_concepts_of_unit_length(model):
    scenes = random_scenes(4)
    v = model.encode(scenes)["concepts"]
    for b in range(4):
        embedded = list(model.embedding.weight[scenes.concepts[b, scenes.concept_mask[b]]])
        last = naive_lstm(model.encoder, embedded)[-1]
        close(v[b], last / math.sqrt((last**2).sum()))


@torch.no_grad()
def test_a_gap_between_concepts_is_skipped(model):
    gap = replace(
        random_scenes(1), concepts=torch.tensor([[9, 3, 7, 3]]), concept_mask=torch.tensor([[True, False, True, False]])
    )
    whole = replace(gap, concepts=torch.tensor([[9, 7]]), concept_mask=torch.tensor([[True, True]]))
    close(model.encode(gap)["concepts"], model.encode(whole)["concepts"])


@torch.no_grad()
def test_many_concepts_keep_their_order_when_gaps_are_skipped(model):
    concepts = torch.randint(4, WORDS, (1, 60), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(60)[None] % 3 != 1
    gaps = replace(random_scenes(1), concepts=concepts, concept_mask=mask)
    whole = replace(gaps, concepts=concepts[mask][None], concept_mask=torch.ones(1, 40, dtype=torch.bool))
    close(model.encode(gaps)["concepts"], model.encode(whole)["concepts"])


def test_the_order_of_concepts_is_read(model):
    scenes = replace(
        random_scenes(2), concepts=torch.tensor([[9, 7], [7, 9]]), concept_mask=torch.ones(2, 2, dtype=torch.bool)
    )
    one, other = model.encode(scenes)["concepts"]
    assert not torch.allclose(one, other, atol=1e-4)


@torch.no_grad()
def test_fusion_memory_is_equations_1_to_4(model):
    scenes, words = random_scenes(2), random_words(4)
    memory = model.encode(scenes)
    f, weights = model._fuse(memory, words)
    trace = model(memory, words).trace
    for n in range(4):
        for t in range(words.shape[1]):
            expected, attention = naive_fusion(model, memory["concepts"][n // 2], model.embedding.weight[words[n, t]])
            close(f[n, t], expected)
            close(weights[n, t], attention)
            if t < words.shape[1] - 1:
                close(trace.gates["fusion"][n, t], (attention[0] + attention[1]) / 2)


@torch.no_grad()
def test_recurrent_memory_is_equations_5_to_7(model):
    scenes, words = random_scenes(3), random_words(3)
    f, _ = model._fuse(model.encode(scenes), words)
    memories, weights = model.decoder(f)
    for n in range(3):
        memory = torch.zeros(SIZE)
        for t in range(f.shape[1]):
            memory, attention = naive_recurrence(model.decoder, memory, f[n, t], model.config.released_code)
            close(memories[n, t], memory)
            close(weights[n, t], attention)


@torch.no_grad()
def test_a_step_of_the_fast_memory_takes_inputs_of_16_bits_as_autocast_gives_them():
    decoder = small().decoder
    assert isinstance(decoder, FastRecurrentMemory)
    memory, f = torch.randn(2, SIZE), torch.randn(2, SIZE)
    key, value, gates = decoder._inputs(f)
    expected, _ = decoder._update(memory, key, value, gates.clone(), decoder._weights())
    found, _ = decoder._update(memory, key.bfloat16(), value.bfloat16(), gates.clone(), decoder._weights())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


@torch.no_grad()
def test_words_are_the_softmax_of_equation_8(model):
    scenes, words = random_scenes(2), random_words(2)
    output = model(model.encode(scenes), words)
    for n in range(2):
        for t in range(words.shape[1] - 1):
            M = output.hidden[n, t]
            scores = [model.output.weight[word] @ M + model.output.bias[word] for word in range(WORDS)]
            close(output.log_probs[n, t].exp(), torch.stack(naive_softmax(scores)))


@torch.no_grad()
def test_the_reconstructor_is_a_second_recurrent_memory_read_at_the_last_step(model):
    hidden, lengths = torch.randn(4, 5, SIZE), torch.tensor([1, 3, 5, 2])
    rebuilt = model.reconstruct(hidden, lengths)
    for n in range(4):
        memory = torch.zeros(SIZE)
        for t in range(lengths[n]):
            memory, _ = naive_recurrence(model.reconstructor, memory, hidden[n, t], model.config.released_code)
        close(rebuilt[n], memory)
    assert not torch.equal(model.decoder.mlp[0].weight, model.reconstructor.mlp[0].weight)


@torch.no_grad()
def test_what_follows_the_last_step_is_not_reconstructed(model):
    scenes, words = random_scenes(4), random_words(4)
    lengths = (words[:, 1:] != PAD).sum(1)
    plain = model.reconstruct(model(model.encode(scenes), words).hidden, lengths)
    longer = torch.cat([words, torch.full((4, 3), PAD)], 1)
    close(model.reconstruct(model(model.encode(more_padding(scenes)), longer).hidden, lengths), plain)


def test_a_caption_without_steps_is_refused(model):
    with pytest.raises(RuntimeError, match="out of bounds"):
        model.reconstruct(torch.randn(2, 3, SIZE), torch.tensor([0, 2]))


@torch.no_grad()
def test_the_image_vector_is_projected_to_unit_length(model):
    scenes = random_scenes(3)
    for b, found in enumerate(model.image_vector(scenes)):
        projected = model.image.weight @ scenes.vector[b] + model.image.bias
        close(found, projected / math.sqrt((projected**2).sum()))


@torch.no_grad()
def test_each_row_of_the_fusion_matrix_and_each_memory_weight_sums_to_one(model):
    gates = model(model.encode(random_scenes(2)), random_words(4)).trace.gates
    assert gates["fusion"].shape == (4, 7, 2, 2)
    assert gates["memory"].shape == (4, 7, HEADS, 2)
    for weights in gates.values():
        close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@torch.no_grad()
def test_stacking_the_word_first_only_swaps_the_halves_of_the_last_layer(model):
    v, w = (model.fusion.project(torch.randn(5, SIZE)) for _ in range(2))
    printed, weights = model.fusion(v, w)
    first, second = model.fusion.fc.weight.data.split(SIZE, 1)
    model.fusion.fc.weight.data = torch.cat([second, first], 1)
    swapped, swapped_weights = model.fusion(w, v)
    close(swapped, printed)
    close(swapped_weights, weights.flip(-1, -2))


def test_released_code_scales_by_768_and_normalises_what_the_paper_does_not():
    printed, released = (R2MConfig(released_code=on, vector_width=8).build(10) for on in (False, True))
    for part in ("fusion", "decoder", "reconstructor"):
        one, other = getattr(printed, part).attention, getattr(released, part).attention
        assert one.root**2 == pytest.approx(256)
        assert other.root**2 == pytest.approx(768)
        assert one.qkv.bias is None
        assert other.qkv.bias is not None
        assert other.norm.normalized_shape == (1536,)
    assert printed.image.weight.requires_grad
    assert not any(parameter.requires_grad for parameter in released.image.parameters())


def test_gates_and_lstms_start_with_a_forget_bias_of_one():
    built = small(reconstructor="lstm")
    assert torch.equal(built.decoder.input_gates.bias, torch.cat([torch.zeros(SIZE), torch.ones(SIZE)]))
    for lstm in (built.encoder, built.reconstructor.lstm):
        expected = torch.zeros(4 * SIZE)
        expected[SIZE : 2 * SIZE] = 1
        assert torch.equal(lstm.bias_ih_l0 + lstm.bias_hh_l0, expected)


def test_embeddings_start_small_and_the_output_matrix_is_not_the_input_one():
    built = small()
    for matrix in (built.embedding.weight, built.output.weight):
        assert 0.07 < matrix.abs().max() <= 0.08
    assert not torch.equal(built.embedding.weight, built.output.weight)


@torch.no_grad()
def test_without_fusion_memory_a_linear_layer_reads_concepts_and_word():
    built, scenes, words = small(fusion=False), random_scenes(2), random_words(4)
    memory = built.encode(scenes)
    f, _ = built._fuse(memory, words)
    for n in range(4):
        for t in range(words.shape[1]):
            both = torch.cat([memory["concepts"][n // 2], built.embedding.weight[words[n, t]]])
            close(f[n, t], built.fusion.fc.weight @ both + built.fusion.fc.bias)
    assert set(built(memory, words).trace.gates) == {"memory"}


@torch.no_grad()
def test_without_recurrent_memory_lstms_read_what_it_would_have_read():
    built, scenes, words = small(decoder="lstm", reconstructor="lstm"), random_scenes(3), random_words(3)
    memory = built.encode(scenes)
    output = built(memory, words)
    f, _ = built._fuse(memory, words[:, :-1])
    lengths = (words[:, 1:] != PAD).sum(1)
    rebuilt = built.reconstruct(output.hidden, lengths)
    for n in range(3):
        close(output.hidden[n], torch.stack(naive_lstm(built.decoder.lstm, list(f[n]))))
        states = naive_lstm(built.reconstructor.lstm, list(output.hidden[n, : lengths[n]]))
        close(rebuilt[n], states[-1])
    assert set(output.trace.gates) == {"fusion"}


@pytest.mark.parametrize("choices", [{}, {"fusion": False}, {"decoder": "lstm"}, {"reconstructor": "lstm"}])
def test_losses_on_what_it_said_reach_encoder_decoder_and_reconstructor(choices):
    built, scenes = small(**choices), random_scenes(4)
    with torch.no_grad():
        said = greedy(built, scenes, longest=6)
    words = F.pad(said, (1, 0), value=START)
    lengths = (said != PAD).sum(1)
    memory = built.encode(scenes)
    rebuilt = built.reconstruct(built(memory, words).hidden, lengths)

    built.zero_grad()
    ((memory["concepts"] - rebuilt) ** 2).sum().backward(retain_graph=True)
    reached = {name for name, parameter in built.named_parameters() if parameter.grad is not None}
    untouched = {name for name, _ in built.named_parameters() if name.startswith(("output.", "image."))}
    assert reached == {name for name, _ in built.named_parameters()} - untouched
    for name in ("embedding.weight", "encoder.weight_ih_l0", "fusion.fc.weight"):
        assert built.get_parameter(name).grad.abs().sum() > 0
    for part in (built.decoder, built.reconstructor):
        assert all(parameter.grad.abs().sum() > 0 for parameter in part.parameters())

    built.zero_grad()
    scores = built.image_vector(scenes) @ rebuilt.T
    (0.2 + scores - scores.diag()[:, None]).clamp(min=0).sum().backward()
    for name in ("image.weight", "encoder.weight_ih_l0", "fusion.fc.weight"):
        assert built.get_parameter(name).grad.abs().sum() > 0


def test_v_which_the_reconstructor_rebuilds_has_no_dropout_and_what_the_decoder_reads_has():
    built, scenes = small(dropout=0.5, fusion=False), random_scenes(4)  # without FM, v is read as it is
    v = built.encode(scenes)["concepts"]
    memory = built.train().encode(scenes)
    assert torch.equal(memory["concepts"], v)
    read = memory["projected"]
    kept = read != 0
    assert 0.2 < kept.float().mean() < 0.8
    torch.testing.assert_close(read[kept], 2 * v[kept])


def test_the_released_codes_dropout_is_on_input_and_output_of_the_encoder():
    built, scenes = small(dropout=0.5, released_code=True), random_scenes(4)
    v = built.encode(scenes)["concepts"]
    assert torch.equal(v, built.encode(scenes)["concepts"])
    dropped = built.train().encode(scenes)["concepts"]
    kept = dropped != 0
    assert 0.2 < kept.float().mean() < 0.8  # the output's
    ratios = [(dropped[b] / v[b])[kept[b]] for b in range(4)]
    assert all(ratio.std() > 0.01 for ratio in ratios)  # the input's: what is kept is not a multiple of v


def test_the_decoder_and_the_reconstructor_have_no_dropout():
    built, words = small(dropout=0.5), random_words(4)
    memory = built.encode(random_scenes(4))
    output = built(memory, words)
    rebuilt = built.reconstruct(output.hidden, torch.tensor([1, 2, 3, 4]))
    built.train()
    again = built(memory, words)
    assert torch.equal(again.log_probs, output.log_probs)
    assert torch.equal(built.reconstruct(again.hidden, torch.tensor([1, 2, 3, 4])), rebuilt)


@pytest.mark.parametrize("choices", [{}, {"released_code": True}, {"fusion": False}, {"decoder": "lstm"}])
@torch.no_grad()
def test_it_runs_under_autocast(choices):
    built, scenes, words = small(**choices), random_scenes(4), random_words(8)
    expected = built(built.encode(scenes), words).log_probs
    with torch.autocast("cpu", torch.bfloat16):
        output = built(built.encode(scenes), words)
        built.reconstruct(output.hidden, torch.full((8,), 3))
    torch.testing.assert_close(output.log_probs, expected, atol=0.3, rtol=0.1)


def test_an_image_without_concepts_is_named():
    scenes = random_scenes(3)
    mask = scenes.concept_mask.clone()
    mask[1] = False
    with pytest.raises(DataError, match=r"image 1: .*concepts") as error:
        small().encode(replace(scenes, concept_mask=mask))
    assert "leave such images out" in str(error.value)


def test_the_matching_loss_names_a_missing_vector_and_one_of_another_width():
    scenes = random_scenes(2)
    with pytest.raises(MissingPartError, match="`vector`"):
        small().image_vector(replace(scenes, vector=None))
    with pytest.raises(CountError, match="`vector` of 9 numbers, and these have 10"):
        small().image_vector(replace(scenes, vector=torch.zeros(2, 10)))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"heads": 0}, "heads"),
        ({"vector_width": -1}, "vector_width"),
        ({"hidden_size": 33}, "2 heads"),
        ({"dropout": 1.0}, "dropout"),
        ({"decoder": "gru"}, "decoder"),
        ({"reconstructor": "gru"}, "reconstructor"),
    ],
)
def test_a_bad_choice_is_refused(choices, message):
    with pytest.raises(ConfigError, match=message):
        R2MConfig(**choices)


def test_the_defaults_are_the_papers():
    config = build(R2MConfig, {})
    assert (config.hidden_size, config.heads, config.hidden_size // config.heads) == (512, 2, 256)
    assert (config.fusion, config.decoder, config.reconstructor, config.released_code) == (True, "rm", "rm", False)


@pytest.mark.parametrize("released", [True, False])
def test_the_fast_memory_gives_what_the_plain_one_gives_with_the_same_gradients(released):
    torch.manual_seed(0)
    config = R2MConfig(hidden_size=12, heads=3, released_code=released)
    plain, fast = RecurrentMemory(config).double(), FastRecurrentMemory(config).double()
    fast.load_state_dict(plain.state_dict())
    f = torch.randn(4, 6, 12, dtype=torch.float64)
    found = []
    for memory in (plain, fast):
        memories, weights = memory(f)
        gradients = torch.autograd.grad((memories.square().sum() + weights[..., 0].sum()), list(memory.parameters()))
        found.append((memories, weights, *gradients))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one)
    with torch.no_grad():
        states = plain.start(f[:, 0]), fast.start(f[:, 0])
        for f_t in f.unbind(1):
            (one, first), (other, second) = plain.step(f_t, states[0]), fast.step(f_t, states[1])
            torch.testing.assert_close(other, one)
            states = first, second


def test_a_config_builds_the_fast_model():
    assert isinstance(R2MConfig(hidden_size=4).build(10).decoder, FastRecurrentMemory)
