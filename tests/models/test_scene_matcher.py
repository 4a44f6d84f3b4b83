"""The scene matcher: the contract, and both read-outs against loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from captioner_contract import GRID_WIDTH, REGION_WIDTH, WORDS, other_width, random_scenes, random_words, rows
from matcher_contract import MatcherContract, texts_of
from objective_samples import VOCABULARY, make_pool
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.data.records import GroundedPhoto, GroundedSentence, GroundedWord
from sightline.errors import ConfigError, CountError, MissingPartError
from sightline.models.matcher import AligningMatcher, GlobalMatcher
from sightline.models.scene_matcher import SceneMatcher, SceneMatcherConfig
from sightline.text.vocabulary import END, PAD, START
from sightline.training.evaluation import Evaluation, evaluate

SIZES = {"region_width": REGION_WIDTH, "grid_width": GRID_WIDTH, "size": 16, "word_size": 12}


def small(**changes) -> SceneMatcher:
    torch.manual_seed(0)
    return SceneMatcherConfig(**{**SIZES, "dropout": 0.0, **changes}).build(WORDS).eval()


class TestSceneMatcher(MatcherContract):
    """Local read-outs are trained by their own loss."""

    outside_similarity = ("local_",)

    def build(self) -> SceneMatcher:
        return SceneMatcherConfig(**SIZES, dropout=0.0).build(WORDS)


class TestSceneMatcherWithUnits(MatcherContract):
    """The shipped one has them."""

    outside_similarity = ("local_",)

    def build(self) -> SceneMatcher:
        return SceneMatcherConfig(**SIZES, ffn_size=20, dropout=0.0).build(WORDS)


@pytest.fixture
def model() -> SceneMatcher:
    return small()


@pytest.fixture
def embedded(model):
    return model.embed_images(random_scenes(4)), model.embed_texts(texts_of(random_words(6)))


def cosine_of(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a @ b / (a.norm() * b.norm())).item()


def test_it_is_searched_by_one_vector_and_aligns_words(model):
    assert isinstance(model, GlobalMatcher)
    assert isinstance(model, AligningMatcher)


def test_the_default_is_small_beside_its_embedding():
    model = SceneMatcherConfig().build(100)
    assert sum(p.numel() for p in model.parameters()) - 100 * 256 <= 1_600_000
    assert model.embed_texts(texts_of(random_words(1)))["vector"].shape == (1, 256)


def test_similarity_is_the_cosine_of_vectors(model, embedded):
    images, texts = embedded
    found = model.similarity(images, texts)
    for i in range(4):
        for j in range(6):
            assert found[i, j].item() == pytest.approx(cosine_of(images["vector"][i], texts["vector"][j]), abs=1e-5)


def naive_local(model, images, texts, i, j) -> float:
    """The score of one pair, word by word and region by region."""
    total = 0.0
    for t in range(texts["words"].shape[1]):
        if not texts["mask"][j, t]:
            continue
        there = [r for r in range(images["regions"].shape[1]) if images["mask"][i, r]]
        cosines = [cosine_of(texts["words"][j, t], images["regions"][i, r]) for r in there]
        strengths = [math.exp(model.config.sharpness * c) for c in cosines]
        found = sum(s * c for s, c in zip(strengths, cosines, strict=True)) / sum(strengths)
        total += texts["importance"][j, t].item() * found
    return total


@pytest.mark.parametrize("block", [128, 3])
def test_local_similarity_is_that_of_loops_in_any_block(model, embedded, block, monkeypatch):
    monkeypatch.setattr("sightline.models.scene_matcher.BLOCK", block)
    images, texts = embedded
    found = model.local_similarity(images, texts)
    expected = [[naive_local(model, images, texts, i, j) for j in range(6)] for i in range(4)]
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=1e-4)


def test_the_importance_of_words_sums_to_one_and_specials_have_none(model):
    ids = random_words(6)
    importance = model.embed_texts(texts_of(ids))["importance"]
    torch.testing.assert_close(importance.sum(1), torch.ones(6))
    special = (ids == PAD) | (ids == START) | (ids == END)
    assert not importance[special].any()
    assert (importance[~special] > 0).all()


def test_grounding_is_the_cosine_of_words_and_regions(model):
    images, texts = model.embed_images(random_scenes(4)), model.embed_texts(texts_of(random_words(4)))
    found = model.grounding(images, texts)
    for b in range(4):
        for t in range(found.shape[1]):
            for n in range(found.shape[2]):
                there = texts["mask"][b, t] and images["mask"][b, n]
                expected = cosine_of(texts["words"][b, t], images["regions"][b, n]) if there else 0.0
                assert found[b, t, n].item() == pytest.approx(expected, abs=1e-5)


def test_alignment_is_the_softmax_of_sharpened_cosines(model):
    images, texts = model.embed_images(random_scenes(4)), model.embed_texts(texts_of(random_words(4)))
    found, cosines = model.alignment(images, texts), model.grounding(images, texts)
    for b in range(4):
        for t in range(found.shape[1]):
            strengths = [
                math.exp(9 * c.item()) * bool(m) for c, m in zip(cosines[b, t], images["mask"][b], strict=True)
            ]
            share = [s / sum(strengths) * bool(texts["mask"][b, t]) for s in strengths]
            torch.testing.assert_close(found[b, t], torch.tensor(share), atol=1e-5, rtol=1e-4)


def test_all_words_take_part_whatever_is_forced(model):
    images, texts = model.embed_images(random_scenes(4)), model.embed_texts(texts_of(random_words(4)))
    forced = torch.ones_like(texts["mask"])
    assert torch.equal(model.alignment(images, texts, forced), model.alignment(images, texts))


def test_a_region_speaks_for_itself_alone(model):
    scenes = random_scenes(4)
    other = scenes.regions.clone()
    other[:, 1:] += 1
    before, after = model.embed_images(scenes), model.embed_images(replace(scenes, regions=other, grid=scenes.grid + 1))
    torch.testing.assert_close(after["regions"][:, 0], before["regions"][:, 0])
    assert not torch.allclose(after["vector"], before["vector"], atol=1e-3)


def test_regions_and_cells_go_through_units_one_by_one_before_they_are_pooled():
    model, plain = small(ffn_size=20), small()
    plain.load_state_dict({name: part for name, part in model.state_dict().items() if "ffn" not in name})
    pooled = {}
    for one in (model, plain):
        one.image_pool.register_forward_pre_hook(lambda _, given, one=one: pooled.update({one: given[0]}))
        one.embed_images(random_scenes(4))
    norm, into, _, out = model.ffn
    for row, changed in zip(pooled[plain].flatten(0, 1), pooled[model].flatten(0, 1), strict=True):
        hidden = into.weight @ norm(row) + into.bias
        active = torch.tensor([h * 0.5 * (1 + math.erf(h / math.sqrt(2))) for h in hidden.tolist()])
        torch.testing.assert_close(changed, row + out.weight @ active + out.bias, atol=1e-5, rtol=1e-4)


def test_a_number_of_units_below_none_is_refused():
    with pytest.raises(ConfigError, match="`ffn_size` is -1"):
        SceneMatcherConfig(ffn_size=-1)


@pytest.mark.parametrize("part", ["regions", "boxes", "grid", "grid_shapes"])
def test_every_part_of_a_scene_reaches_the_photos_vector(model, part):
    scenes = random_scenes(4)
    changed = ((3, 2),) * 4 if part == "grid_shapes" else getattr(scenes, part).flip(0)
    before, after = model.embed_images(scenes), model.embed_images(replace(scenes, **{part: changed}))
    assert not torch.allclose(after["vector"], before["vector"], atol=1e-4)


def test_local_gradients_are_the_same_in_any_block_and_reach_local_parameters(model, monkeypatch):
    gradients = []
    for block in (128, 3):
        monkeypatch.setattr("sightline.models.scene_matcher.BLOCK", block)
        model.zero_grad()
        images, texts = model.embed_images(random_scenes(4)), model.embed_texts(texts_of(random_words(6)))
        (model.local_similarity(images, texts) * torch.arange(24).view(4, 6)).sum().backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-4, rtol=1e-4)
        if name.startswith("local_"):
            assert gradient.abs().sum() > 0, name
    assert {n for n, _ in model.named_parameters() if n.startswith("local_")} <= set(gradients[0])


def test_a_sentence_without_words_finds_nothing(model):
    images, texts = model.embed_images(random_scenes(2)), model.embed_texts(texts_of(torch.tensor([[START, END]])))
    assert not model.local_similarity(images, texts).any()
    assert torch.isfinite(texts["vector"]).all()


def test_cells_are_where_the_grid_has_them():
    scenes = replace(random_scenes(2), grid_shapes=((2, 3), (3, 2)))
    boxes = scenes.cell_boxes()
    torch.testing.assert_close(boxes[0, 4], torch.tensor([1 / 3, 1 / 2, 2 / 3, 1.0]))
    torch.testing.assert_close(boxes[1, 4], torch.tensor([0.0, 2 / 3, 1 / 2, 1.0]))


@pytest.mark.parametrize("shapes", [(), ((2, 3), None)])
def test_grids_without_shapes_are_refused(model, shapes):
    with pytest.raises(MissingPartError, match="shapes of grids"):
        model.embed_images(replace(random_scenes(2), grid_shapes=shapes))


def test_a_grid_of_another_width_is_named(model):
    with pytest.raises(CountError, match=f"`grid` of {GRID_WIDTH} numbers"):
        model.embed_images(other_width(random_scenes(2), "grid"))


def test_no_text_at_all_is_refused_locally(model, embedded):
    images, texts = embedded
    with pytest.raises(CountError, match="at least one"):
        model.local_similarity(images, {name: part[:0] for name, part in texts.items()})


def test_an_empty_photo_has_a_finite_vector_and_no_regions(model):
    scenes = rows(random_scenes(4), [0])
    nothing = replace(scenes, region_mask=scenes.region_mask & False, grid_mask=scenes.grid_mask & False)
    images = model.embed_images(nothing)
    assert torch.isfinite(images["vector"]).all()
    assert not model.grounding(images, model.embed_texts(texts_of(random_words(1)))).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 30}, "`size` is 30 with 4 heads"),
        ({"size": 9, "heads": 3}, "`size` is 9 with 3 heads"),
        ({"sharpness": 0.0}, "`sharpness`"),
        ({"dropout": 1.0}, "`dropout`"),
    ],
)
def test_what_makes_no_model_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        SceneMatcherConfig(**{**SIZES, **changes})


@torch.no_grad()
def test_both_read_outs_together_are_their_weighed_sum(model):
    pool = make_pool(3, 2)
    images, texts = (
        model.embed_images(pool.scenes.batch(torch.arange(3))),
        model.embed_texts(pool.texts.batch(torch.arange(6))),
    )
    expected = torch.empty(3, 6)
    for i in range(3):
        for t in range(6):
            total = float(images["vector"][i] @ texts["vector"][t])
            for word, importance in zip(texts["words"][t], texts["importance"][t], strict=True):
                cosines = (images["regions"][i] @ word)[images["mask"][i]]
                weights = (model.config.sharpness * cosines).softmax(0)
                total += 0.5 * float(importance * (weights * cosines).sum())
            expected[i, t] = total
    torch.testing.assert_close(model.joint_similarity(images, texts), expected)


def test_it_is_measured_by_recalls_and_by_where_its_words_point(model):
    pool = make_pool(6, 2)
    scenes, sentence = pool.scenes.batch(torch.arange(6)), GroundedSentence(("word3",), ())
    images, words = model.embed_images(scenes), texts_of(torch.tensor([VOCABULARY.encode(["word3"])] * 6))
    best = model.alignment(images, model.embed_texts(words))[:, 1].argmax(1).tolist()
    grounded = {}
    for row, id in enumerate(pool.ids):  # the word of every photo but the first is where the model will look
        box = tuple(100 * scenes.boxes[row, best[row]]) if row else (0.0, 0.0, 0.1, 0.1)
        word = GroundedWord(0, "thing", (tuple(map(float, box)),))
        grounded[id] = GroundedPhoto(id, (replace(sentence, words=(word,)),), (100, 100))
    found = evaluate(
        Checkpoint(model, VOCABULARY), pool, Evaluation(grounding=True, folds=2, fold_size=3), grounded=grounded
    ).metrics
    assert found["attention accuracy micro"] == pytest.approx(100 * 5 / 6)
    scores = model(scenes, pool.texts.batch(torch.arange(12)))
    hits = [scores[i, 6 * f : 6 * f + 6].argmax() // 2 == i - 3 * f for f in range(2) for i in range(3 * f, 3 * f + 3)]
    assert found["i2t R@1"] == pytest.approx(100 * sum(map(bool, hits)) / 6)
    assert found["rsum"] == pytest.approx(
        sum(found[f"{strategy} R@{k}"] for strategy in ("i2t", "t2i") for k in (1, 5, 10))
    )
