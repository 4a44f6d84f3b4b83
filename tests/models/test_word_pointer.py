"""Which region a word means: against the formula in loops, and that it ignores what is not there."""

import math

import pytest
import torch

from sightline.batch import SceneBatch
from sightline.errors import CountError, MissingPartError
from sightline.models.word_pointer import WordPointer, WordPointerConfig

torch.set_num_threads(1)
WORD, REGION, N = 6, 10, 5


@pytest.fixture(scope="module")
def pointer() -> WordPointer:
    torch.manual_seed(2)
    made = WordPointerConfig(word_width=WORD, region_width=REGION, size=8).build().eval()
    torch.nn.init.normal_(made.sides[-1].weight)  # as after training
    return made


def scene(count: int = N, padding: int = 0) -> SceneBatch:
    draw = torch.Generator().manual_seed(1)
    corners = torch.rand(1, N, 2, 2, generator=draw).sort(2).values
    boxes = torch.cat([corners[:, :, 0], corners[:, :, 1]], 2)[:, :count]
    parts = {
        "regions": torch.rand(1, N, REGION, generator=draw)[:, :count],
        "boxes": boxes,
        "scores": torch.rand(1, N, generator=draw)[:, :count],
    }
    padded = {name: torch.cat([part, part.new_zeros(1, padding, *part.shape[2:])], 1) for name, part in parts.items()}
    return SceneBatch(("1",), region_mask=torch.arange(count + padding)[None] < count, **padded)


def words_and_regions(count: int = N, padding: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit vectors of two words, and the matcher's of regions, zeros on padding."""
    draw = torch.Generator().manual_seed(3)
    words = torch.nn.functional.normalize(torch.randn(1, 2, WORD, generator=draw), dim=2)
    regions = torch.nn.functional.normalize(torch.randn(1, N, WORD, generator=draw), dim=2)[:, :count]
    return words, torch.cat([regions, regions.new_zeros(1, padding, WORD)], 1)


@torch.no_grad()
def test_one_word_and_region_at_a_time(pointer):
    scenes, (words, regions) = scene(), words_and_regions()
    output = pointer.point({"regions": regions}, words, scenes)
    for t in range(2):
        scores = []
        for i in range(N):
            x1, y1, x2, y2 = scenes.boxes[0, i].tolist()
            wide, high, score = x2 - x1, y2 - y1, float(scenes.scores[0, i])
            fit = 5 * float(words[0, t] @ regions[0, i])
            known = [x1, y1, x2, y2, wide, high, math.log(wide * high) / 2, math.log(score), i / 36, fit]
            by_place, by_look = pointer.word(words[0, t] * math.sqrt(WORD)).split(8)
            look = pointer.region(pointer.region_norm(scenes.regions[0, i]))
            both = pointer.norm(pointer.place(torch.tensor(known)) * by_place + look * by_look)
            scores.append(pointer.score(both) + pointer.fit(torch.tensor(known)))
            left, top, right, bottom = (0.5 * math.tanh(move) for move in pointer.sides(both).tolist())
            moved = (x1 + left * wide, y1 + top * high, x2 + right * wide, y2 + bottom * high)
            assert output.boxes[0, t, i].tolist() == pytest.approx([min(1, max(0, side)) for side in moved], abs=1e-5)
        assert output.weights[0, t].tolist() == pytest.approx(torch.cat(scores).softmax(0).tolist(), abs=1e-5)


def test_before_training_no_side_moves():
    torch.manual_seed(0)
    untrained = WordPointerConfig(word_width=WORD, region_width=REGION, size=8).build().eval()
    words, regions = words_and_regions()
    boxes = untrained.point({"regions": regions}, words, scene()).boxes
    assert torch.equal(boxes, scene().boxes[:, None].expand(-1, 2, -1, -1))


@torch.no_grad()
def test_padding_has_no_weight_and_changes_nothing(pointer):
    words, regions = words_and_regions(3)
    alone = pointer.point({"regions": regions}, words, scene(3))
    words, regions = words_and_regions(3, padding=2)
    padded = pointer.point({"regions": regions}, words, scene(3, padding=2))
    assert (padded.weights[..., 3:] == 0).all()
    torch.testing.assert_close(padded.weights[..., :3], alone.weights)
    torch.testing.assert_close(padded.boxes[:, :, :3], alone.boxes)


@torch.no_grad()
def test_one_scene_serves_several_sentences(pointer):
    words, regions = words_and_regions()
    together = pointer.point({"regions": regions}, words.mT.reshape(1, 2, WORD).repeat(3, 1, 1), scene())
    assert together.weights.shape == (3, 2, N)
    assert together.boxes.shape == (3, 2, N, 4)


def test_scenes_it_cannot_read_are_refused(pointer):
    words, regions = words_and_regions()
    whole = scene()
    without = SceneBatch(("1",), regions=whole.regions, boxes=whole.boxes)
    with pytest.raises(MissingPartError, match="the word pointer needs `scores`"):
        pointer.point({"regions": regions}, words, without)
    other = SceneBatch(("1",), regions=whole.regions[..., :4], boxes=whole.boxes, scores=whole.scores)
    with pytest.raises(CountError, match="reads `regions` of 10 numbers, and these have 4"):
        pointer.point({"regions": regions}, words, other)
