"""What every captioner must keep. A test file subclasses `CaptionerContract` and says how its model is built."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sightline.batch import SceneBatch
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.errors import CountError, MissingPartError
from sightline.models.captioner import Captioner, expand, select
from sightline.text.vocabulary import END, PAD, START, Vocabulary

torch.set_num_threads(1)

WORDS = 24  # ids, specials included
REGION_WIDTH, GRID_WIDTH, VECTOR_WIDTH = 10, 7, 9


def random_scenes(count: int, seed: int = 0, regions: int = 5, grid: tuple[int, int] = (2, 3)) -> SceneBatch:
    """Scenes with every part; image i has between 1 and `regions` regions and between 1 and 4 concepts."""
    torch.manual_seed(seed)
    cells = grid[0] * grid[1]
    region_mask = torch.arange(regions) < torch.randint(1, regions + 1, (count, 1))
    concept_mask = torch.arange(4) < torch.randint(1, 5, (count, 1))
    corner = torch.rand(count, regions, 2) * 0.5
    return SceneBatch(
        ids=tuple(str(i) for i in range(count)),
        regions=torch.randn(count, regions, REGION_WIDTH) * region_mask[..., None],
        region_mask=region_mask,
        boxes=torch.cat([corner, corner + 0.1 + torch.rand(count, regions, 2) * 0.4], -1) * region_mask[..., None],
        scores=torch.rand(count, regions).sort(descending=True).values * region_mask,
        grid=torch.randn(count, cells, GRID_WIDTH),
        grid_mask=torch.ones(count, cells, dtype=torch.bool),
        grid_shapes=(grid,) * count,
        vector=torch.randn(count, VECTOR_WIDTH),
        concepts=torch.randint(4, WORDS, (count, 4)) * concept_mask,
        concept_mask=concept_mask,
        concept_scores=torch.rand(count, 4) * concept_mask,
        sizes=torch.full((count, 2), 100),
    )


def random_words(count: int, longest: int = 6, seed: int = 1) -> torch.Tensor:
    """(count, longest + 2) captions of different length: START, words, END, padding."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((count, longest + 2), PAD)
    for row in ids:
        length = int(torch.randint(1, longest + 1, (1,), generator=generator))
        row[0] = START
        row[1 : length + 1] = torch.randint(4, WORDS, (length,), generator=generator)
        row[length + 1] = END
    return ids


def rows(batch: SceneBatch, chosen: list[int]) -> SceneBatch:
    """Some scenes of a batch."""
    parts = {n: v[chosen] for n, v in vars(batch).items() if isinstance(v, torch.Tensor)}
    shapes = tuple(batch.grid_shapes[i] for i in chosen)
    return replace(batch, ids=tuple(batch.ids[i] for i in chosen), grid_shapes=shapes, **parts)


def more_padding(batch: SceneBatch, by: int = 3) -> SceneBatch:
    """The same scenes with padding of rubbish after regions, grid cells and concepts."""

    def longer(part: torch.Tensor, fill: float) -> torch.Tensor:
        return torch.cat([part, torch.full((part.shape[0], by, *part.shape[2:]), fill, dtype=part.dtype)], 1)

    assert batch.regions is not None
    names = ("regions", "boxes", "scores", "grid", "concepts", "concept_scores")
    parts = {name: longer(getattr(batch, name), 3) for name in names}
    masks = {name: longer(getattr(batch, name), False) for name in ("region_mask", "grid_mask", "concept_mask")}
    return replace(batch, **parts, **masks)


def first_regions(batch: SceneBatch, count: int) -> SceneBatch:
    """The same scenes with `count` regions, all there, and as many grid cells."""
    parts = ("regions", "boxes", "scores", "grid", "region_mask", "grid_mask")
    kept = {name: getattr(batch, name)[:, :count] for name in parts}
    return replace(batch, **{n: torch.ones_like(v) if n.endswith("mask") else v for n, v in kept.items()})


def with_one_empty(batch: SceneBatch, chosen: int) -> SceneBatch:
    """The same scenes, one of which has neither regions nor grid cells."""
    masks = {name: getattr(batch, name).clone() for name in ("region_mask", "grid_mask")}
    for mask in masks.values():
        mask[chosen] = False
    return replace(batch, **masks)


def other_width(batch: SceneBatch, part: str) -> SceneBatch:
    """The same scenes with one number more in each feature of a part."""
    return replace(batch, **{part: F.pad(getattr(batch, part), (0, 1))})


def assert_finite(model: nn.Module) -> None:
    """No gradient, and no running statistic, is NaN or infinite."""
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name
    for name, statistic in model.named_buffers():
        assert torch.isfinite(statistic).all(), name


def assert_gives_gradients(model: nn.Module) -> None:
    """Its recurrent layers stay in the mode in which cuDNN gives gradients, which changes nothing but that."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            assert module.training
            assert module.dropout == 0


def stepped(model: Captioner, scenes: SceneBatch, words: torch.Tensor) -> torch.Tensor:
    """(N, T, V) by stepping through the words."""
    memory = model.encode(scenes)
    state = expand(model.start(memory), len(words))
    steps = []
    for column in words[:, :-1].T:
        log_probs, state = model.step(column, memory, state)
        steps.append(log_probs)
    return torch.stack(steps, 1)


def greedy(model: Captioner, scenes: SceneBatch, longest: int) -> torch.Tensor:
    """(B, longest + 1) words after START, padded after END; the loop a reader would write."""
    memory = model.encode(scenes)
    state, words = model.start(memory), torch.full((len(scenes),), START)
    said, ended = [], torch.zeros(len(scenes), dtype=torch.bool)
    for _ in range(longest + 1):
        log_probs, state = model.step(words, memory, state)
        words = log_probs.argmax(-1).masked_fill(ended, PAD)
        said.append(words)
        ended |= words == END
    return torch.stack(said, 1)


class CaptionerContract:
    """Subclass it in a test file as `TestX`, and give `build`; override the rest where the model differs."""

    outside_likelihood: tuple[str, ...] = ()  # prefixes of parameters that p(caption | scene) does not touch
    frozen: tuple[str, ...] = ()  # prefixes of parameters the paper does not train
    overfit_steps, overfit_rate = 150, 0.01

    def build(self) -> Captioner:
        """A small model over WORDS ids and the widths above, without dropout, so that it overfits."""
        raise NotImplementedError

    @pytest.fixture
    def model(self) -> Captioner:
        torch.manual_seed(0)
        return self.build().eval()

    @pytest.fixture
    def scenes(self) -> SceneBatch:
        return random_scenes(4)

    def test_forward_equals_stepping(self, model, scenes):
        words = random_words(4)
        output = model(model.encode(scenes), words)
        real = words[:, 1:] != PAD
        torch.testing.assert_close(output.log_probs[real], stepped(model, scenes, words)[real], atol=1e-5, rtol=1e-5)
        assert output.log_probs.shape == (4, words.shape[1] - 1, WORDS)
        assert output.hidden.shape[:2] == (4, words.shape[1] - 1)

    def test_log_probs_are_a_distribution(self, model, scenes):
        log_probs = model(model.encode(scenes), random_words(4)).log_probs
        torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(log_probs.shape[:2]))

    def test_log_prob_is_the_sum_over_words_and_end(self, model, scenes):
        words = random_words(4)
        memory = model.encode(scenes)
        log_probs = model(memory, words).log_probs
        expected = torch.zeros(4)
        for i in range(4):
            for t in range(words.shape[1] - 1):
                if words[i, t + 1] != PAD:
                    expected[i] += log_probs[i, t, words[i, t + 1]]
        torch.testing.assert_close(model.log_prob(memory, words), expected, atol=1e-5, rtol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(model.log_prob(memory, words), expected, atol=1e-5, rtol=1e-5)

    def test_captions_of_one_image_share_its_memory(self, model, scenes):
        words = random_words(12)
        shared = model(model.encode(scenes), words)
        alone = model(model.encode(rows(scenes, [i // 3 for i in range(12)])), words)
        torch.testing.assert_close(shared.log_probs, alone.log_probs, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(stepped(model, scenes, words), shared.log_probs, atol=1e-5, rtol=1e-5)

    def test_padding_never_changes_a_result(self, model, scenes):
        words = random_words(4)
        longer = torch.cat([words, torch.full((4, 3), PAD)], 1)
        plain = model(model.encode(scenes), words)
        padded = model(model.encode(more_padding(scenes)), longer)
        real = words[:, 1:] != PAD
        steps = words.shape[1] - 1
        torch.testing.assert_close(plain.log_probs[real], padded.log_probs[:, :steps][real], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            model.log_prob(model.encode(scenes), words),
            model.log_prob(model.encode(more_padding(scenes)), longer),
            atol=1e-5,
            rtol=1e-5,
        )

    def test_a_batch_equals_one_by_one(self, model, scenes):
        words = random_words(4)
        together = model(model.encode(scenes), words)
        for i in range(4):
            alone = model(model.encode(rows(scenes, [i])), words[[i]])
            torch.testing.assert_close(together.log_probs[[i]], alone.log_probs, atol=1e-5, rtol=1e-5)

    def test_a_reordered_state_goes_on_as_the_hypothesis_it_came_from(self, model, scenes):
        words = random_words(8)
        memory = model.encode(scenes)
        state = expand(model.start(memory), 8)
        _, state = model.step(words[:, 0], memory, state)
        swap = torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])  # within each image
        swapped, _ = model.step(words[:, 1][swap], memory, select(state, swap))
        straight, _ = model.step(words[:, 1], memory, state)
        torch.testing.assert_close(swapped, straight[swap], atol=1e-6, rtol=1e-5)

    def test_attention_is_a_distribution_over_what_is_there(self, model, scenes):
        words = random_words(8)
        trace = model(model.encode(scenes), words).trace
        for weights, mask in ((trace.regions, scenes.region_mask), (trace.grid, scenes.grid_mask)):
            if weights is not None:
                assert weights.shape == (8, words.shape[1] - 1, mask.shape[1])
                assert (weights >= 0).all()
                assert (weights.sum(-1) <= 1 + 1e-5).all()
                assert (weights[~mask.repeat_interleave(2, 0)[:, None].expand_as(weights)] == 0).all()
        for values in trace.gates.values():
            assert values.shape[:2] == (8, words.shape[1] - 1)

    def test_gradients_reach_every_trained_parameter_and_no_frozen_one(self, model, scenes):
        model.train()
        (-model.log_prob(model.encode(scenes), random_words(4)).sum()).backward()
        for name, parameter in model.named_parameters():
            if name.startswith(self.frozen or "\0"):
                assert not parameter.requires_grad, name
                assert parameter.grad is None, name
            elif not name.startswith(self.outside_likelihood or "\0"):
                assert parameter.grad is not None, name
                assert parameter.grad.abs().sum() > 0, name

    def test_log_prob_has_the_gradients_of_forward(self, model, scenes):
        words = random_words(4)
        twin = copy.deepcopy(model)
        model.log_prob(model.encode(scenes), words).sum().backward()
        log_probs = twin(twin.encode(scenes), words).log_probs
        picked = log_probs.gather(-1, words[:, 1:, None]).squeeze(-1)
        (picked * (words[:, 1:] != PAD)).sum().backward()
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            if one.grad is not None:
                torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)

    def overfit_scenes(self) -> SceneBatch:
        return random_scenes(50, seed=3)

    def test_it_overfits_fifty_captions_and_says_them(self):
        torch.manual_seed(0)
        model, scenes, words = self.build().train(), self.overfit_scenes(), random_words(50, seed=2)
        optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=self.overfit_rate)
        tokens = (words[:, 1:] != PAD).sum()
        for _ in range(self.overfit_steps):
            loss = -model.log_prob(model.encode(scenes), words).sum() / tokens
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            assert -model.log_prob(model.encode(scenes), words).sum() / tokens < 0.05
            said = greedy(model, scenes, longest=6)
        assert torch.equal(F.pad(said, (0, words.shape[1] - 1 - said.shape[1])), words[:, 1:])

    def test_saved_and_loaded_it_is_bit_identical(self, model, scenes, tmp_path):
        vocabulary = Vocabulary([f"word{i}" for i in range(WORDS - 4)])
        save(tmp_path / "model.safetensors", Checkpoint(model, vocabulary, card={"name": "a test"}))
        again = load(tmp_path / "model.safetensors")
        assert again.model.config == model.config
        assert again.vocabulary == vocabulary
        words = random_words(4)
        assert torch.equal(
            model(model.encode(scenes), words).log_probs, again.model(again.model.encode(scenes), words).log_probs
        )

    def test_it_runs_in_bfloat16(self, model, scenes):
        words = random_words(4)
        expected = model(model.encode(scenes), words).log_probs
        model.to(torch.bfloat16)
        found = model(model.encode(scenes.to("cpu", torch.bfloat16)), words).log_probs
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, atol=0.3, rtol=0.1)

    def test_a_missing_part_is_named(self, model, scenes):
        for part in model.needs:
            with pytest.raises(MissingPartError, match=part):
                model.encode(replace(scenes, **{part: None}))

    def test_features_of_another_width_are_named(self, model, scenes):
        for part in set(model.needs) & {"regions", "grid", "vector"}:
            width = getattr(scenes, part).shape[-1]
            with pytest.raises(CountError, match=f"`{part}` of {width} numbers, and these have {width + 1}"):
                model.encode(other_width(scenes, part))

    def test_no_image_at_all_is_refused(self, model, scenes):
        with pytest.raises(CountError, match="at least one"):
            model.encode(rows(scenes, []))

    def test_without_masks_everything_is_there(self, model, scenes):
        names = ("region_mask", "grid_mask", "concept_mask")
        full = replace(scenes, **{name: torch.ones_like(getattr(scenes, name)) for name in names})
        bare = replace(scenes, **dict.fromkeys(names))
        words = random_words(4)
        assert torch.equal(model(model.encode(bare), words).log_probs, model(model.encode(full), words).log_probs)

    def test_an_image_with_nothing_in_it_is_the_same_alone_and_in_company(self, model, scenes):
        words = random_words(4)
        together = model(model.encode(with_one_empty(scenes, 1)), words).log_probs
        alone = first_regions(rows(scenes, [1]), 0)
        torch.testing.assert_close(
            model(model.encode(alone), words[[1]]).log_probs, together[[1]], atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(stepped(model, alone, words[[1]]), together[[1]], atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("count", [0, 1])
    def test_an_image_of_one_region_or_none_can_be_trained_on(self, model, scenes, count):
        model.train()
        model.log_prob(model.encode(first_regions(rows(scenes, [1]), count)), random_words(2)).sum().backward()
        assert_finite(model)

    def test_evaluation_mode_still_gives_gradients_where_the_recurrence_is_cudnns(self, model):
        assert_gives_gradients(model)
