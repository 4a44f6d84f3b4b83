"""How VSRN starts: what its untrained GRUs remember, and that hardest negatives then learn instead of collapsing."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch

from grounded_samples import context
from matcher_contract import VOCABULARY, texts_of
from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.model_checkpoint import Checkpoint, load, save
from sightline.config import build
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRN, ResetAfterGRU, ResetBeforeGRU, VSRNConfig
from sightline.text.vocabulary import END, PAD, START
from sightline.training.batches import Batch
from sightline.training.objective import Progress
from sightline.training.objectives.triplet import TripletConfig

WIDTH = 64


def photos(count: int, cells: int) -> torch.Tensor:
    """(count, cells, WIDTH) features of photos whose cells have much in common, as those of a network have."""
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(count, 1, WIDTH, generator=generator)
    return (whole + 0.5 * torch.randn(count, cells, WIDTH, generator=generator)).relu()


def scenes(regions: torch.Tensor) -> SceneBatch:
    return SceneBatch(tuple(map(str, range(len(regions)))), regions=regions)


def cosine_with_replaced(memory: str, reset: str, cells: int, replaced: int) -> float:
    """Between images of untrained GSR: of photos, and of photos whose first cells are another's."""
    torch.manual_seed(0)
    config = VSRNConfig(region_width=WIDTH, size=128, rrr_layers=0, reset=reset, memory=memory, generation=False)
    model, whole = config.build(20).eval(), photos(16, cells)
    mixed = torch.cat([whole.roll(1, 0)[:, :replaced], whole[:, replaced:]], 1)
    with torch.no_grad():
        vectors = [model.embed_images(scenes(regions))["vector"] for regions in (whole, mixed)]
    return float((vectors[0] * vectors[1]).sum(1).mean())


@pytest.mark.parametrize("reset", ["before", "after"])
@pytest.mark.parametrize(("cells", "replaced"), [(49, 42), (36, 30)])
def test_untrained_reasoning_knows_the_first_regions_only_with_a_long_memory(reset, cells, replaced):
    assert cosine_with_replaced("default", reset, cells, replaced) > 0.999
    assert cosine_with_replaced("long", reset, cells, replaced) < 0.95


@pytest.mark.parametrize("kind", [VSRNConfig, VSEPPConfig])
def test_untrained_captions_that_end_alike_are_alike_only_without_a_long_memory(kind):
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(4, len(VOCABULARY), (32, 6), generator=generator)
    ending = torch.randint(4, len(VOCABULARY), (1, 6), generator=generator).expand(32, -1)
    ids = torch.cat([torch.full((32, 1), START), first, ending, torch.full((32, 1), END)], 1)
    cosines = {}
    for memory in ("default", "long"):
        torch.manual_seed(0)
        model = kind(size=128, memory=memory).build(len(VOCABULARY))
        with torch.no_grad():
            vectors = model.embed_texts(texts_of(ids))["vector"]
        cosines[memory] = float((vectors @ vectors.T).fill_diagonal_(0).sum() / (32 * 31))
    assert 1 - cosines["long"] > 5 * (1 - cosines["default"])


def test_a_long_memory_forgets_after_two_to_all_regions():
    """The gate that keeps the old state starts at 1 - 1/u, u uniform from 2 to 36, whichever way it is written."""
    torch.manual_seed(0)
    before, after = ResetBeforeGRU(800, "long"), ResetAfterGRU(800, "long")
    kept = {
        "before": 1 - torch.sigmoid(before.inputs.bias[:800]),
        "after": torch.sigmoid(after.rnn.bias_ih_l0[800:1600] + after.rnn.bias_hh_l0[800:1600]),
    }
    for share in kept.values():
        spans = 1 / (1 - share)
        assert 1.999 < spans.min() < 2.5
        assert 35.5 < spans.max() < 36.001
        assert spans.mean().item() == pytest.approx(19, abs=1.5)


def test_other_gates_start_as_they_did():
    torch.manual_seed(0)
    plain = ResetAfterGRU(64, "default").rnn
    torch.manual_seed(0)
    long = ResetAfterGRU(64, "long").rnn
    for name, old in plain.named_parameters():
        new = dict(long.named_parameters())[name]
        changed = (old != new).view(3, -1).any(1).tolist()  # reset, update, new
        assert changed == [False, name.startswith("bias"), False]


def test_a_config_from_before_there_was_a_choice_builds_the_model_it_was_saved_with(tmp_path):
    """Old files list every field they knew: no batch norm, regions as stored under the name of confidence."""
    torch.manual_seed(0)
    old = asdict(VSRNConfig(region_width=WIDTH, size=16, word_size=8, hidden_size=8, order="confidence"))
    del old["memory"]
    again = build(VSRNConfig, old)
    assert (again.batch_norm, again.order) == (False, "confidence")
    model = again.build(len(VOCABULARY)).eval()
    save(tmp_path / "old.safetensors", Checkpoint(model, VOCABULARY, text_rule="scan"))
    loaded, regions = load(tmp_path / "old.safetensors").model, scenes(photos(3, 5))
    assert regions.scores is None  # as in the features of the released code
    assert torch.equal(loaded.embed_images(regions)["vector"], model.embed_images(regions)["vector"])
    assert VSEPPConfig().batch_norm is False


EARLY, LATE_ROWS, PAIRS = 6, 30, 32


def early_pairs(generator: torch.Generator) -> Batch:
    """Photos that differ in their first 6 of 36 regions, captions that differ in their first 4 of 10 words."""
    told = torch.randint(4, 24, (PAIRS, 4), generator=torch.Generator().manual_seed(1))
    things = torch.randn(24, 16, generator=torch.Generator().manual_seed(2))
    background = torch.randn(LATE_ROWS, 16, generator=torch.Generator().manual_seed(3)).expand(PAIRS, -1, -1)
    regions = torch.cat([things[told].repeat(1, 2, 1)[:, :EARLY], background], 1)
    regions = regions + 0.2 * torch.randn(regions.shape, generator=generator)
    ending = torch.arange(24, 30).expand(PAIRS, -1)
    ids = torch.cat([torch.full((PAIRS, 1), START), told, ending, torch.full((PAIRS, 1), END)], 1)
    texts = TextBatch(((),) * PAIRS, ids, ids != PAD)
    return Batch(torch.arange(PAIRS), scenes(regions), texts, torch.arange(PAIRS))


def trained(model: VSRN, warmup: int, steps: int = 120) -> tuple[float, float, float]:
    """The last loss over 2 · batch · margin, which it is after a collapse, and R@1 both ways on photos seen anew."""
    generator = torch.Generator().manual_seed(0)
    objective = TripletConfig(warmup=warmup).build(context())
    optimiser = torch.optim.Adam(model.train().parameters(), lr=0.005)
    for step in range(steps):
        loss = objective(model, early_pairs(generator), Progress(0, step)).total
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimiser.step()
    unseen = early_pairs(generator)
    with torch.no_grad():
        scores = model.eval()(unseen.scenes, unseen.texts)
    own = torch.arange(PAIRS)
    recalls = [float((scores.argmax(dim) == own).float().mean()) for dim in (1, 0)]
    return loss.item() / (2 * PAIRS * 0.2), *recalls


def test_reasoning_learns_from_early_regions_and_collapses_as_it_used_to_start():
    sizes = {"region_width": 16, "size": 32, "word_size": 16, "rrr_layers": 0, "generation": False}
    torch.manual_seed(0)
    loss, *recalls = trained(VSRNConfig(**sizes, memory="long", batch_norm=True).build(30), warmup=50)
    assert loss < 0.3
    assert sum(recalls) / 2 > 0.5
    torch.manual_seed(0)
    loss, *recalls = trained(VSRNConfig(**sizes, memory="default").build(30), warmup=0, steps=60)
    assert loss == pytest.approx(1, abs=0.02)
    assert max(recalls) < 0.2


def test_vsepp_with_a_batch_norm_is_its_formula():
    torch.manual_seed(0)
    model = VSEPPConfig(region_width=WIDTH, size=16, batch_norm=True).build(len(VOCABULARY)).eval()
    torch.nn.init.normal_(model.norm.running_mean)
    regions = photos(4, 5)
    found = model.embed_images(scenes(regions))["vector"]
    for row, vector in zip(regions, found, strict=True):
        mapped = model.fc.weight @ row.mean(0) + model.fc.bias
        mapped = (mapped - model.norm.running_mean) / (model.norm.running_var + model.norm.eps).sqrt()
        torch.testing.assert_close(vector, mapped / mapped.norm())
    plain = replace(model.config, batch_norm=False).build(len(VOCABULARY))
    assert not any(name.startswith("norm") for name in plain.state_dict())
