"""Scene-Trans: rows, encoder and attention against loops; the decoder's own loops are in
tests/models/test_sim_trans.py.
"""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from test_sim_trans import naive_attention, naive_layer, naive_norm

from captioner_contract import (
    GRID_WIDTH,
    REGION_WIDTH,
    WORDS,
    CaptionerContract,
    more_padding,
    random_scenes,
    random_words,
    rows,
    stepped,
)
from grounded_samples import SENTENCES, VOCABULARY, batch, context
from sightline.batch import SceneBatch
from sightline.config import build
from sightline.decoding.decode import decode
from sightline.decoding.strategies import Beam
from sightline.errors import ConfigError, MissingPartError
from sightline.models.model_configs import CaptionerConfig
from sightline.models.scene_trans import SceneTrans, SceneTransConfig
from sightline.text.vocabulary import END, PAD, START
from sightline.training.objective import Progress
from sightline.training.objectives.distillation import DistillationConfig

SMALL = SceneTransConfig(
    region_width=REGION_WIDTH, grid_width=GRID_WIDTH, hidden_size=16, layers=2, heads=4, ffn_size=32, dropout=0.0
)
SOURCES = ("both", "regions", "grid")


class SceneTransContract(CaptionerContract):
    overfit_steps, overfit_rate = 100, 0.008


class TestSceneTrans(SceneTransContract):
    def build(self):
        return SMALL.build(WORDS)


class TestRegionsAlone(SceneTransContract):
    def build(self):
        return replace(SMALL, sources="regions").build(WORDS)


class TestGridAlone(SceneTransContract):
    def build(self):
        return replace(SMALL, sources="grid").build(WORDS)


class TestPostNormAndUntied(SceneTransContract):
    def build(self):
        return replace(SMALL, pre_norm=False, tied=False).build(WORDS)


@pytest.fixture
def scenes() -> SceneBatch:
    """Grids of two shapes, the smaller one padded."""
    seen = random_scenes(4)
    mask = seen.grid_mask.clone()
    mask[2, 2:] = False
    return replace(seen, grid_mask=mask, grid_shapes=((2, 3), (3, 2), (1, 2), (2, 3)))


def built(**changes) -> SceneTrans:
    """A small model whose biases and norms are not at their start values, so that forgetting one shows."""
    torch.manual_seed(0)
    model = replace(SMALL, **changes).build(WORDS)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def naive_rows(model: SceneTrans, scenes: SceneBatch, i: int) -> list[torch.Tensor]:
    """The real rows of image i before the encoder: regions, then cells."""
    found = []
    if model.regions is not None:
        for feature, box, there in zip(scenes.regions[i], scenes.boxes[i], scenes.region_mask[i], strict=True):
            if there:
                found.append((model.regions, feature, box.tolist()))
    if model.grid is not None:
        height, width = scenes.grid_shapes[i]
        for cell in range(height * width):
            top, left = divmod(cell, width)
            box = [left / width, top / height, (left + 1) / width, (top + 1) / height]
            found.append((model.grid, scenes.grid[i, cell], box))
    result = []
    for source, feature, (x1, y1, x2, y2) in found:
        place = torch.tensor([x1, y1, x2, y2, (x2 - x1) * (y2 - y1)])
        row = source.features.weight @ feature + source.features.bias + source.boxes.weight @ place
        result.append(naive_norm(model.rows_norm, row))
    return result


def naive_encoder(model: SceneTrans, seen: list[torch.Tensor]) -> list[torch.Tensor]:
    """The rows after every one looked at every one, layer by layer."""
    pre_norm = model.config.pre_norm
    for layer in model.encoder:
        first, last = layer.feed_forward[0], layer.feed_forward[2]
        inputs = [naive_norm(layer.self_norm, row) for row in seen] if pre_norm else seen
        after = []
        for row, inner in zip(seen, inputs, strict=True):
            row = row + naive_attention(layer.self_attention, inner, inputs)[0]
            row = row if pre_norm else naive_norm(layer.self_norm, row)
            inner = naive_norm(layer.feed_norm, row) if pre_norm else row
            row = row + last.weight @ (first.weight @ inner + first.bias).clamp(min=0) + last.bias
            after.append(row if pre_norm else naive_norm(layer.feed_norm, row))
        seen = after
    return [naive_norm(model.encoder_norm, row) for row in seen] if pre_norm else seen


def naive_decoder(model: SceneTrans, seen: list[torch.Tensor], words: torch.Tensor):
    """Logits (T, V) and attention (T, rows) of one caption."""
    size, pre_norm = model.config.hidden_size, model.config.pre_norm
    caption = []
    for t, word in enumerate(words.tolist()):
        angles = [t / 10000 ** (c / (size // 2 - 1)) for c in range(size // 2)]
        place = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)])
        caption.append(model.embedding.weight[word] * math.sqrt(size) + place)
    for layer in model.layers:
        caption, weights = naive_layer(layer, caption, seen, pre_norm)
    if pre_norm:
        caption = [naive_norm(model.norm, row) for row in caption]
    scoring = model.embedding.weight if model.config.tied else model.output.weight
    return torch.stack([scoring @ row for row in caption]), torch.stack(weights)


@pytest.mark.parametrize("sources", SOURCES)
@pytest.mark.parametrize(("pre_norm", "tied"), [(True, True), (False, False)])
@torch.no_grad()
def test_the_whole_model_equals_loops_over_rows_heads_and_words(scenes, sources, pre_norm, tied):
    model, words = built(sources=sources, pre_norm=pre_norm, tied=tied), random_words(8, longest=4)
    output = model(model.encode(scenes), words)
    for n in (0, 5):
        i = n // 2
        seen = naive_encoder(model, naive_rows(model, scenes, i))
        logits, weights = naive_decoder(model, seen, words[n, :-1])
        torch.testing.assert_close(output.log_probs[n], logits.log_softmax(-1), atol=1e-4, rtol=1e-4)
        regions = int(scenes.region_mask[i].sum()) if sources != "grid" else 0
        if sources != "grid":
            torch.testing.assert_close(output.trace.regions[n, :, :regions], weights[:, :regions], atol=1e-5, rtol=1e-4)
        if sources != "regions":
            cells = weights.shape[1] - regions
            torch.testing.assert_close(output.trace.grid[n, :, :cells], weights[:, regions:], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_a_word_divides_one_attention_between_regions_and_cells(scenes):
    trace = built()(built().encode(scenes), random_words(8)).trace
    regions, grid = trace.regions.sum(-1), trace.grid.sum(-1)
    torch.testing.assert_close(regions + grid, torch.ones_like(regions))
    assert ((regions > 0) & (regions < 1)).all()


@pytest.mark.parametrize(
    ("sources", "needs", "unread"),
    [
        ("both", ("regions", "boxes", "grid"), ()),
        ("regions", ("regions", "boxes"), ("grid", "grid_mask")),
        ("grid", ("grid",), ("regions", "boxes", "region_mask")),
    ],
)
@torch.no_grad()
def test_only_the_sources_chosen_are_needed_and_traced(scenes, sources, needs, unread):
    model, words = built(sources=sources), random_words(4)
    assert model.needs == needs
    output = model(model.encode(replace(scenes, **dict.fromkeys(unread))), words)
    assert torch.equal(output.log_probs, model(model.encode(scenes), words).log_probs)
    assert (output.trace.regions is None) == (sources == "grid")
    assert (output.trace.grid is None) == (sources == "regions")


@torch.no_grad()
def test_a_scene_without_regions_is_described_by_its_grid(scenes):
    mask = scenes.region_mask.clone()
    mask[1] = False
    bare = replace(scenes, region_mask=mask)
    model, words = built(), random_words(4)
    output = model(model.encode(bare), words)
    assert (output.trace.regions[1] == 0).all()
    torch.testing.assert_close(output.trace.grid[1].sum(-1), torch.ones(words.shape[1] - 1))
    torch.testing.assert_close(stepped(model, bare, words), output.log_probs, atol=1e-4, rtol=1e-4)
    none = {name: getattr(scenes, name)[:, :0] for name in ("regions", "boxes", "scores", "region_mask")}
    alone = model(model.encode(rows(replace(scenes, **none), [1])), words[[1]])
    assert alone.trace.regions.shape[2] == 0
    torch.testing.assert_close(alone.log_probs, output.log_probs[[1]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("part", ["regions", "grid"])
def test_padding_never_gets_a_gradient_and_every_real_row_does(scenes, part):
    padded = more_padding(scenes)
    features, mask = getattr(padded, part).clone().requires_grad_(), padded.mask(part)
    model = built()
    model.log_prob(model.encode(replace(padded, **{part: features})), random_words(4)).sum().backward()
    assert (features.grad[~mask] == 0).all()
    assert (features.grad[mask].abs().sum(-1) > 0).all()


@torch.no_grad()
def test_a_region_and_a_cell_of_the_same_feature_and_box_are_told_apart(scenes):
    model = built(region_width=GRID_WIDTH)
    whole = replace(scenes, regions=scenes.grid, boxes=scenes.cell_boxes(), region_mask=scenes.grid_mask)
    model.grid.features.weight.copy_(model.regions.features.weight)
    model.grid.boxes.weight.copy_(model.regions.boxes.weight)
    trace = model(model.encode(whole), random_words(4)).trace
    assert not torch.allclose(trace.regions, trace.grid, atol=1e-4)
    model.grid.features.bias.copy_(model.regions.features.bias)
    trace = model(model.encode(whole), random_words(4)).trace
    torch.testing.assert_close(trace.regions, trace.grid)


def test_the_cells_of_grids_of_different_shape_are_where_they_are(scenes):
    boxes = scenes.cell_boxes()
    assert boxes.shape == (4, 6, 4)
    for box, expected in (
        (boxes[0, 4], [1 / 3, 1 / 2, 2 / 3, 1]),
        (boxes[1, 4], [0, 2 / 3, 1 / 2, 1]),
        (boxes[2, 1], [1 / 2, 0, 1, 1]),
    ):
        torch.testing.assert_close(box, torch.tensor(expected))


def test_a_grid_without_its_shape_is_refused(scenes):
    for shapes in ((), ((2, 3), None, (1, 2), (2, 3))):
        with pytest.raises(MissingPartError, match=r"images 0 … 3: Scene-Trans needs `grid_shape`"):
            built().encode(replace(scenes, grid_shapes=shapes))
        assert "keys" in built(sources="regions").encode(replace(scenes, grid_shapes=shapes))


def test_a_tied_model_has_one_matrix_for_words_read_and_words_said(scenes):
    tied, untied = SMALL.build(WORDS), replace(SMALL, tied=False).build(WORDS)
    names = set(untied.state_dict()) - set(tied.state_dict())
    assert names == {"output.weight"}
    hidden = torch.randn(3, 16)
    torch.testing.assert_close(tied.predict(hidden), hidden @ tied.embedding.weight.T)
    torch.testing.assert_close(untied.predict(hidden), hidden @ untied.output.weight.T)
    tied.log_prob(tied.encode(scenes), random_words(4)).sum().backward()
    assert (tied.embedding.weight.grad.abs().sum(1) > 0).all()  # every word is scored, PAD too


def test_at_the_start_words_that_are_read_and_scores_are_both_of_size_one():
    torch.manual_seed(0)
    model = SceneTransConfig(hidden_size=64, heads=4, dropout=0.0).build(2000)
    assert model.embedding.weight[PAD].abs().sum() == 0
    read = model.embedding(torch.arange(4, 2000)) * math.sqrt(64)
    scores = model.predict(torch.nn.functional.layer_norm(torch.randn(50, 64), (64,)))
    assert read.std().item() == pytest.approx(1, abs=0.05)
    assert scores.std().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("form", ["kl", "kl-reversed", "nll"])
def test_a_matcher_teaches_where_to_look_among_the_regions(form):
    torch.manual_seed(0)
    model, seen = SMALL.build(len(VOCABULARY)), batch()
    objective = DistillationConfig("pos-scan", form=form, weight=1.0).build(context())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    terms = []
    for _ in range(25):
        losses = objective(model, seen, Progress())
        terms.append(losses.parts["attention"].item())
        optimiser.zero_grad()
        losses.total.backward()
        optimiser.step()
    assert terms[-1] < 0.5 * terms[0] if form != "nll" else terms[-1] < 0.8 * terms[0]
    if form != "nll":
        assert min(terms) >= 0  # a divergence of distributions, however much the cells get


def test_a_teachers_divergence_is_that_of_the_share_each_region_has_of_all_regions():
    torch.manual_seed(0)
    model, seen = SMALL.build(len(VOCABULARY)).eval(), batch()
    objective = DistillationConfig("pos-scan").build(context())
    target, counted = objective._target(seen, seen.texts)
    trace = model(model.encode(seen.scenes), seen.texts.ids).trace
    expected = []
    for n, t in counted.nonzero().tolist():
        total = sum(trace.regions[n, t].tolist())
        assert total < 0.99
        shares = [weight / total for weight in trace.regions[n, t].tolist()]
        pairs = [(b, max(a, 1e-8)) for b, a in zip(shares, target[n, t].tolist(), strict=True) if b > 0]
        expected.append(sum(b * math.log(b / a) for b, a in pairs))
    assert len(expected) >= len(SENTENCES)
    found = objective(model, seen, Progress()).parts["attention"] / objective.weight(seen)
    assert found.item() == pytest.approx(sum(expected) / len(expected), rel=1e-4)


@torch.no_grad()
def test_beam_search_gives_the_log_probability_of_what_it_says(scenes):
    model = built()
    memory = model.encode(scenes)
    found = decode(model, memory, Beam(3, keep=3))
    expected = model.log_prob(memory, found.words.flatten(0, 1)).view(4, 3)
    torch.testing.assert_close(found.log_probs, expected, atol=1e-4, rtol=1e-4)


def test_it_learns_under_autocast(scenes):
    model, words = built().train(), random_words(4)
    expected = model.log_prob(model.encode(scenes), words)
    with torch.autocast("cpu", torch.bfloat16):
        found = model.log_prob(model.encode(scenes), words)
        stepped(model, scenes, words)
    torch.testing.assert_close(found, expected, atol=0.5, rtol=0.1)
    found.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@torch.no_grad()
def test_every_tensor_is_made_on_the_device_of_the_inputs(scenes):
    model, words = built().to("meta"), random_words(8).to("meta")
    memory = model.encode(scenes.to("meta"))
    trace = model(memory, words).trace
    assert {trace.regions.device.type, trace.grid.device.type, memory["bias"].device.type} == {"meta"}


def test_recipes_name_it_and_the_defaults_are_those_of_the_shipped_model():
    config = SceneTransConfig()
    assert SceneTransConfig in get_args(CaptionerConfig)
    assert build(SceneTransConfig, {"kind": "scene-trans"}) == config
    assert (config.region_width, config.grid_width, config.hidden_size, config.heads) == (512, 1280, 384, 6)
    assert (config.encoder_layers, config.layers, config.ffn_size, config.dropout) == (2, 3, 1024, 0.1)
    assert (config.pre_norm, config.tied, config.sources) == (True, True, "both")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_layers": 0}, "`encoder_layers` is 0"),
        ({"grid_width": 0}, "`grid_width` is 0"),
        ({"sources": "pixels"}, "choose one of both, regions, grid"),
        ({"hidden_size": 18}, "18 with 4 heads"),
    ],
)
def test_bad_choices_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(SMALL, **changes)


NAMED = replace(SMALL, concepts=3)


def with_names(scenes: SceneBatch, names: list[list[int]]) -> SceneBatch:
    ids = torch.tensor(names)
    torch.manual_seed(5)
    return replace(
        scenes, names=ids, name_scores=torch.rand(*ids.shape, 2), name_boxes=torch.rand(*ids.shape, 4).sort(-1).values
    )


def reading(model: SceneTrans) -> SceneTrans:
    words = [VOCABULARY.word(id) for id in (4, 5, 6)]
    assert model.names is not None
    model.names.set_words([words[0], f"{words[1]} {words[2]}", "a b c"], VOCABULARY)
    return model


class TestNames(SceneTransContract):
    outside_likelihood = "names"  # the contract's scenes have none

    def build(self):
        return NAMED.build(WORDS)


def test_names_are_rows_of_their_words_own_embeddings():
    torch.manual_seed(0)
    model = reading(NAMED.build(len(VOCABULARY)).eval())
    assert model.names is not None
    scenes = with_names(random_scenes(2), [[0, 1], [2, -1]])
    rows, words = model.names(scenes, model.embedding)
    assert words.tolist() == [[4, PAD, 5, 6], [PAD] * 4]  # of three words, or none: not read
    box = scenes.name_boxes[0, 1]
    area = (box[2] - box[0]) * (box[3] - box[1])
    about = model.names.features(torch.cat([scenes.name_scores[0, 1], box, area[None]]))
    scale = math.sqrt(NAMED.hidden_size)
    assert torch.allclose(rows[0, 2], model.embedding.weight[5] * scale + about, atol=1e-6)
    assert torch.allclose(rows[0, 3], model.embedding.weight[6] * scale + about + model.names.second, atol=1e-6)


def test_names_change_what_is_said_and_attention_on_them_is_left_out_of_the_trace():
    torch.manual_seed(0)
    model, scenes = reading(NAMED.build(len(VOCABULARY)).eval()), random_scenes(2)
    words = random_words(2)
    without = model(model.encode(scenes), words)
    named = model(model.encode(with_names(scenes, [[0, 1], [-1, -1]])), words)
    assert not torch.allclose(named.log_probs[0], without.log_probs[0])
    assert torch.allclose(named.log_probs[1], without.log_probs[1], atol=1e-5)
    assert named.trace.regions.shape == without.trace.regions.shape
    assert named.trace.grid.shape == without.trace.grid.shape
    assert float((named.trace.regions.sum(-1) + named.trace.grid.sum(-1))[0].detach().max()) < 1


COPYING = replace(NAMED, copy=True)


class TestCopying(SceneTransContract):
    outside_likelihood = ("names", "copier")  # the contract's scenes have no names

    def build(self):
        return COPYING.build(WORDS)


def copying() -> SceneTrans:
    """A model whose name 0 is word 4, name 1 words 5 and 6, name 2 word 6: one word in two rows."""
    torch.manual_seed(0)
    model = COPYING.build(WORDS)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.names.words[:] = torch.tensor([[4, PAD], [5, 6], [6, PAD]])
    return model.eval()


@torch.no_grad()
def test_a_word_is_generated_or_copied_from_any_name_that_has_it():
    model, plain = copying(), replace(NAMED, copy=False).build(WORDS).eval()
    plain.load_state_dict({n: w for n, w in model.state_dict().items() if not n.startswith("copier")})
    scenes, words = with_names(random_scenes(2), [[0, 1, 2], [2, -1, -1]]), random_words(4, longest=4)
    memory, found = model.encode(scenes), model(model.encode(scenes), words)
    hidden = plain.unroll(plain.encode(scenes), words[:, :-1])[0]
    copier = model.copier
    for n, t in ((0, 0), (1, 2), (3, 1)):
        i = n // 2
        spoken = [4, PAD, 5, 6, 6, PAD] if i == 0 else [6, PAD, PAD, PAD, PAD, PAD]
        scores = (plain.embedding.weight @ hidden[n, t]).tolist()
        query = copier.query.weight @ hidden[n, t] + copier.query.bias
        weights = [math.exp(score) for score in scores]
        for row, word in enumerate(spoken):
            if word != PAD:
                key = memory["copy_keys"][i, row]
                weights[word] += math.exp(float(query @ key) / math.sqrt(64) + float(copier.bias))
        expected = torch.tensor(weights).log() - math.log(sum(weights))
        torch.testing.assert_close(found.log_probs[n, t], expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_stepping_copies_as_teacher_forcing_does_and_a_beam_keeps_each_photos_names():
    model, scenes = copying(), with_names(random_scenes(3), [[0, 1], [2, -1], [-1, -1]])
    words = random_words(6)
    torch.testing.assert_close(
        stepped(model, scenes, words), model(model.encode(scenes), words).log_probs, atol=1e-4, rtol=1e-4
    )
    memory = model.encode(scenes)
    found = decode(model, memory, Beam(3, keep=3))
    expected = model.log_prob(memory, found.words.flatten(0, 1)).view(3, 3)
    torch.testing.assert_close(found.log_probs, expected, atol=1e-4, rtol=1e-4)


def test_copying_learns_under_autocast_also_where_a_photo_has_no_name():
    model, scenes = copying().train(), with_names(random_scenes(3), [[0, 1], [2, -1], [-1, -1]])
    with torch.autocast("cpu", torch.bfloat16):
        model.log_prob(model.encode(scenes), random_words(3)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
    assert model.copier.query.weight.grad.abs().sum() > 0


def test_it_learns_to_say_a_name_that_no_caption_of_its_training_had():
    """Photos that look alike say "4 <their name>"; word 15 is nobody's name until the end."""
    torch.manual_seed(0)
    model = replace(COPYING, concepts=12).build(WORDS)
    model.names.words[:] = torch.stack([torch.arange(4, 16), torch.full((12,), PAD)], 1)
    seen = random_scenes(1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.004)

    def batch_of(names: torch.Tensor) -> tuple[SceneBatch, torch.Tensor]:
        scenes = rows(seen, [0] * len(names))
        words = torch.stack([torch.tensor([START, 4, 4 + int(name), END]) for name in names])
        return with_names(scenes, names[:, None].tolist()), words

    for _ in range(150):
        scenes, words = batch_of(torch.randint(1, 11, (16,)))  # all words but 15
        optimiser.zero_grad()
        (-model.log_prob(model.encode(scenes), words).mean()).backward()
        optimiser.step()
    model.eval()
    scenes, words = batch_of(torch.tensor([11]))
    assert decode(model, model.encode(scenes), Beam(3)).words[0, 0, :4].tolist() == words[0].tolist()


def test_copying_without_names_is_refused():
    with pytest.raises(ConfigError, match="reads no names"):
        replace(SMALL, copy=True)
