import numpy as np
import pytest
import torch

from sightline import Concept, Scene, SceneBatch, TextBatch
from sightline.errors import CountError, DataError, MissingPartError
from sightline.text.vocabulary import END, PAD, START, UNK, Vocabulary


def scene(id: str, regions: int, **parts) -> Scene:
    rng = np.random.default_rng(regions)
    boxes = np.sort(rng.random((regions, 2, 2), dtype=np.float32), axis=1).reshape(regions, 4)
    return Scene(id, boxes=boxes, regions=rng.random((regions, 5), dtype=np.float32), **parts)


def test_scenes_of_different_length_are_padded_and_masked():
    scenes = [scene("a", 3), scene("b", 1)]
    batch = SceneBatch.collate(scenes)
    assert batch.regions.shape == (2, 3, 5)
    assert batch.region_mask.tolist() == [[True, True, True], [True, False, False]]
    assert torch.equal(batch.regions[1, 0], torch.from_numpy(scenes[1].regions[0]))
    assert not batch.regions[1, 1:].any()
    assert not batch.boxes[1, 1:].any()


def test_a_part_that_one_scene_lacks_is_left_out_or_demanded():
    scenes = [scene("a", 2, vector=np.ones(4)), scene("b", 2)]
    batch = SceneBatch.collate(scenes)
    assert batch.vector is None
    with pytest.raises(MissingPartError, match="`vector`"):
        batch.part("vector")
    with pytest.raises(MissingPartError, match="image b"):
        SceneBatch.collate(scenes, needs=["vector"], by="R2M")


def test_a_part_of_another_width_than_the_model_reads_is_refused():
    batch = SceneBatch.collate([scene("a", 2), scene("b", 1)])
    assert batch.part("regions", width=5) is batch.regions
    with pytest.raises(CountError, match="images a … b: Up-Down reads `regions` of 2048 numbers, and these have 5"):
        batch.part("regions", by="Up-Down", width=2048)


def test_a_part_of_no_scenes_is_refused():
    with pytest.raises(CountError, match="at least one scene"):
        SceneBatch((), regions=torch.zeros(0, 3, 5)).part("regions")


def test_a_mask_tells_what_is_there_and_all_is_there_without_one():
    grid = {"grid": np.ones((4, 2)), "grid_shape": (2, 2)}
    batch = SceneBatch.collate([scene("a", 3, **grid), scene("b", 1, **grid)])
    for part in ("regions", "boxes"):
        assert batch.mask(part) is batch.region_mask
    assert batch.mask("grid").tolist() == [[True] * 4] * 2
    bare = SceneBatch(("a", "b"), regions=batch.regions, concepts=torch.zeros(2, 3))
    assert bare.mask("regions").tolist() == [[True] * 3] * 2
    assert bare.mask("concepts").dtype == torch.bool
    assert bare.mask("concepts").shape == (2, 3)
    with pytest.raises(MissingPartError, match="JRAN needs `grid`"):
        bare.mask("grid", by="JRAN")


def test_grid_vector_and_sizes_are_stacked():
    scenes = [
        Scene(
            str(i),
            grid=np.full((6, 3), i, np.float16),
            grid_shape=(2, 3),
            vector=np.full(4, i, np.float32),
            size=(9, i),
        )
        for i in (1, 2)
    ]
    batch = SceneBatch.collate(scenes)
    assert batch.grid.shape == (2, 6, 3)
    assert batch.grid.dtype == torch.float16
    assert batch.grid_mask.all()
    assert batch.part("vector").tolist() == [[1.0] * 4, [2.0] * 4]
    assert batch.sizes.tolist() == [[9, 1], [9, 2]]


def test_concepts_become_word_ids_and_unknown_ones_are_left_out():
    vocabulary = Vocabulary(["dog", "ball"])
    scenes = [
        Scene("1", concepts=(Concept("ball", 0.9), Concept("unicorn", 0.8), Concept("dog", 0.7))),
        Scene("2", concepts=(Concept("dog", 0.5),)),
    ]
    batch = SceneBatch.collate(scenes, vocabulary)
    assert batch.concepts.tolist() == [[vocabulary.id("ball"), vocabulary.id("dog")], [vocabulary.id("dog"), PAD]]
    assert batch.concept_mask.tolist() == [[True, True], [True, False]]
    assert torch.allclose(batch.concept_scores, torch.tensor([[0.9, 0.7], [0.5, 0.0]]))


def test_scenes_of_two_vision_models_do_not_mix():
    with pytest.raises(DataError, match="different vision models"):
        SceneBatch.collate([scene("a", 1, fingerprint="x"), scene("b", 1, fingerprint="y")])


def test_features_of_two_widths_do_not_mix():
    with pytest.raises(CountError, match="different width"):
        SceneBatch.collate([Scene("a", regions=np.ones((1, 2))), Scene("b", regions=np.ones((1, 3)))])


def test_moving_changes_floating_point_tensors_only():
    batch = SceneBatch.collate([scene("a", 2)]).to("cpu", torch.float64)
    assert batch.regions.dtype == torch.float64
    assert batch.region_mask.dtype == torch.bool
    assert batch.ids == ("a",)


def test_sentences_become_start_words_end_and_padding():
    vocabulary = Vocabulary(["a", "dog"])
    batch = TextBatch.collate([["a", "dog"], ["unicorn"]], vocabulary)
    assert batch.ids.tolist() == [[START, 4, 5, END], [START, UNK, END, PAD]]
    assert batch.mask.tolist() == [[True] * 4, [True, True, True, False]]
    assert batch.lengths.tolist() == [4, 3]
    assert len(batch) == 2


def test_marked_words_are_decided_on_the_whole_sentence_and_then_cut():
    seen = []

    def mark(sentences):
        seen.extend(map(len, sentences))
        return [[word == "dog" for word in sentence] for sentence in sentences]

    batch = TextBatch.collate([["a", "dog", "and", "dog"], ["dog"]], Vocabulary(["dog"]), max_words=2, mark=mark)
    assert seen == [4, 1]
    assert batch.words == (("a", "dog"), ("dog",))
    assert batch.tagged.tolist() == [[False, False, True, False], [False, True, False, False]]


def test_an_empty_batch_is_refused():
    with pytest.raises(CountError):
        SceneBatch.collate([])
    with pytest.raises(CountError):
        TextBatch.collate([], Vocabulary([]))
