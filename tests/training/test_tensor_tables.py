"""Scenes and sentences of a whole split, and batches as selections of their rows."""

import numpy as np
import pytest
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import CountError, MissingPartError
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import Vocabulary
from sightline.training.tensor_tables import Pool, SceneStream, SceneTable, TextTable
from sightline.vision.concept_tokens import token_names

WORDS = Vocabulary(["a", "dog", "runs", "home"])
SENTENCES = [["a", "dog"], ["a", "dog", "runs", "home"], ["home"], ["a", "cat", "runs"]]


def scene(i: int, parts: tuple[str, ...] = ("regions", "grid", "vector")) -> Scene:
    random = np.random.default_rng(i)
    regions = 1 + i % 3
    values = {
        "regions": random.standard_normal((regions, 5)).astype(np.float16),
        "grid": random.standard_normal((4, 3)).astype(np.float16),
        "vector": random.standard_normal(6).astype(np.float16),
    }
    return Scene(
        f"photo {i}",
        boxes=np.tile(np.array([[0, 0, 0.5, 0.5]], np.float32), (regions, 1)),
        scores=np.linspace(1, 0.5, regions, dtype=np.float32),
        grid_shape=(2, 2) if "grid" in parts else None,
        concepts=(Concept("dog", 0.9), Concept("zebra", 0.5)),
        size=(10 + i, 20),
        fingerprint="tiny",
        **{name: value for name, value in values.items() if name in parts},
    )


SCENES = [scene(i) for i in range(5)]
SOURCE = {one.id: one for one in SCENES}
IDS = tuple(SOURCE)


def test_a_batch_of_a_table_is_the_collated_scenes_of_its_rows_in_float32():
    table = SceneTable.build(SCENES, ("regions", "grid", "vector"), WORDS)
    rows = torch.tensor([3, 0, 3])
    expected = SceneBatch.collate([SCENES[i] for i in rows], WORDS)
    found = table.batch(rows)
    assert (len(table), len(found)) == (5, 3)
    assert (found.ids, found.fingerprint, found.grid_shapes) == (expected.ids, "tiny", ((2, 2),) * 3)
    assert found.sizes.tolist() == [[13, 20], [10, 20], [13, 20]]
    width = expected.regions.shape[1]
    assert found.regions.dtype == found.grid.dtype == found.vector.dtype == torch.float32
    torch.testing.assert_close(found.regions[:, :width], expected.regions.float())
    assert not found.region_mask[:, width:].any()
    torch.testing.assert_close(found.grid, expected.grid.float())
    torch.testing.assert_close(found.vector, expected.vector.float())
    assert table.scenes.regions.dtype == torch.float16  # as stored: half the memory


def test_only_the_needed_parts_are_kept_and_boxes_come_with_regions():
    regions = SceneTable.build(SCENES, ("regions",)).batch(torch.tensor([0]))
    assert regions.boxes is not None
    assert regions.scores is not None
    assert (regions.grid, regions.vector, regions.concepts, regions.grid_shapes) == (None, None, None, (None,))
    vector = SceneTable.build(SCENES, ("vector",)).batch(torch.tensor([0]))
    assert (vector.boxes, vector.scores, vector.regions) == (None, None, None)
    concepts = SceneTable.build(SCENES, ("concepts",), WORDS).batch(torch.tensor([0, 1]))
    assert concepts.concepts.tolist() == [[WORDS.id("dog")]] * 2


def test_names_come_from_the_concepts_of_a_store():
    names = SceneTable.build(SCENES, ("regions", "names")).batch(torch.tensor([1])).names
    assert [token_names()[place] for place in names[0].tolist() if place >= 0] == ["dog", "zebra"]
    streamed = SceneStream(SOURCE.__getitem__, IDS, ("regions", "names")).batch(torch.tensor([1]))
    assert torch.equal(streamed.names, names)
    assert streamed.name_scores[0, :2].tolist() == [[0.0, pytest.approx(0.9)], [0.0, 0.5]]
    assert SceneTable.build(SCENES, ("regions",)).batch(torch.tensor([1])).names is None


def test_a_stream_gives_the_batches_of_a_table():
    needs = ("regions", "vector", "concepts")
    table, stream = SceneTable.build(SCENES, needs, WORDS), SceneStream(SOURCE.__getitem__, IDS, needs, WORDS)
    rows = torch.tensor([2, 4, 1])
    one, other = table.batch(rows), stream.batch(rows)
    assert len(stream) == 5
    assert (one.ids, one.fingerprint) == (other.ids, other.fingerprint)
    assert other.regions.dtype == torch.float32
    width = other.regions.shape[1]
    for name in ("regions", "region_mask", "boxes", "scores"):
        assert torch.equal(getattr(one, name)[:, :width], getattr(other, name))
    assert torch.equal(one.vector, other.vector)
    assert torch.equal(one.concepts, other.concepts)


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_a_scene_without_a_needed_part_is_named(kind):
    scenes = [*SCENES[:2], scene(7, ("regions",))]
    stream = SceneStream({one.id: one for one in scenes}.__getitem__, ("photo 0", "photo 7"), ("vector",))
    with pytest.raises(MissingPartError, match="photo 7"):
        _ = SceneTable.build(scenes, ("vector",)) if kind == "table" else stream.batch(torch.tensor([0, 1]))


def test_sentences_are_padded_to_the_longest_of_the_batch():
    table = TextTable.build(SENTENCES, WORDS, mark=lambda many: [[w == "dog" for w in words] for words in many])
    assert len(table) == 4
    for rows in ([0, 2], [2], [3, 1, 0]):
        found = table.batch(torch.tensor(rows))
        expected = TextBatch.collate([SENTENCES[row] for row in rows], WORDS)
        assert found.words == expected.words
        assert torch.equal(found.ids, expected.ids)
        assert found.ids.dtype == torch.int64
        assert torch.equal(found.mask, expected.mask)
        marked = [[w == "dog" for w in SENTENCES[row]] for row in rows]
        for row, flags in zip(found.tagged, marked, strict=True):
            assert row.tolist() == [False, *flags, *[False] * (len(row) - 1 - len(flags))]


def test_long_sentences_are_cut():
    table = TextTable.build(SENTENCES, WORDS, max_words=2)
    assert table.words[1] == ("a", "dog")
    assert table.batch(torch.tensor([1])).ids.shape == (1, 4)
    assert table.batch(torch.tensor([1])).tagged is None


def test_a_pool_whose_parts_do_not_agree_is_refused():
    scenes, texts = SceneTable.build(SCENES, ("vector",)), TextTable.build(SENTENCES, WORDS)
    assert len(Pool(IDS, scenes, texts, np.array([0, 1, 2, 3, 4, 4]))) == 5
    with pytest.raises(CountError, match="5 scenes for 2 photos"):
        Pool(IDS[:2], scenes)
    for first in (None, np.array([0, 1, 2, 3, 3, 3])):
        with pytest.raises(CountError, match="4 captions do not follow"):
            Pool(IDS, scenes, texts, first)
