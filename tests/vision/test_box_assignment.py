"""Which location learns which box, against loops over images, locations and boxes."""

import math
import statistics

import pytest
import torch

from box_samples import overlap
from sightline.vision.box_assignment import assign, assign_by_overlap, distances, locations
from sightline.vision.boxes import pairwise_iou

torch.set_num_threads(1)

SHAPES = ((16, 16), (8, 8), (4, 4))


def scattered(images: int, most: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    middle, side = torch.rand(images, most, 4, generator=random).split(2, -1)
    half = 0.01 + side.square() * 0.45
    mask = torch.rand(images, most, generator=random) < 0.8
    return torch.cat([middle - half, middle + half], -1).clamp(0, 1), mask


def fcos(centres, cells, ranges, boxes, mask, radius) -> list[int]:
    out = []
    for (x, y), cell, (low, high) in zip(centres, cells, ranges, strict=True):
        best, smallest = -1, math.inf
        for number, (x1, y1, x2, y2) in enumerate(boxes):
            sides = (x - x1, y - y1, x2 - x, y2 - y)
            near = max(abs(x - (x1 + x2) / 2), abs(y - (y1 + y2) / 2)) < radius * cell
            size = (x2 - x1) * (y2 - y1)
            if mask[number] and min(sides) > 0 and near and low <= max(sides) <= high and size < smallest:
                best, smallest = number, size
        out.append(best)
    return out


def atss(centres, cells, counts, boxes, mask, nearest, anchor) -> list[int]:
    best = [(0.0, -1)] * len(centres)
    for number, box in enumerate(boxes):
        x1, y1, x2, y2 = box
        candidates, start = [], 0
        for count in counts:
            away = sorted(
                range(start, start + count), key=lambda i: math.dist(centres[i], ((x1 + x2) / 2, (y1 + y2) / 2))
            )
            candidates += away[:nearest]
            start += count
        found = {}
        for i in candidates:
            (x, y), half = centres[i], anchor * cells[i] / 2
            found[i] = overlap(box, (x - half, y - half, x + half, y + half))
        bar = statistics.mean(found.values()) + statistics.stdev(found.values())
        for i, value in found.items():
            x, y = centres[i]
            inside = x1 < x < x2 and y1 < y < y2
            if mask[number] and inside and value >= bar and value > best[i][0]:
                best[i] = (value, number)
    return [number for _, number in best]


def test_locations_are_the_middles_of_cells_row_by_row_map_after_map():
    at = locations(((2, 2), (1, 1)))
    assert at.centres.tolist() == [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75], [0.5, 0.5]]
    assert at.cell.tolist() == [0.5] * 4 + [1]
    assert at.counts == (4, 1)


def test_a_map_is_for_boxes_that_the_finer_one_does_not_reach():
    at = locations(((32, 32), (16, 16), (8, 8)))
    assert at.ranges.unique(dim=0).tolist() == [[0, 0.25], [0.25, 0.5], [0.5, math.inf]]
    assert locations(((32, 32), (16, 16)), reach=4).ranges[0].tolist() == [0, 0.125]


def test_cells_that_are_not_square_count_by_their_longer_side():
    at = locations(((2, 4),))
    assert at.centres[1].tolist() == [0.375, 0.25]
    assert at.cell.tolist() == [0.5] * 8


def test_distances_go_to_the_left_top_right_and_bottom():
    got = distances(torch.tensor([0.5, 0.5]), torch.tensor([[0.25, 0.125, 0.75, 1], [0.75, 0, 1, 1]]))
    assert got.tolist() == [[0.25, 0.375, 0.25, 0.5], [-0.25, 0.5, 0.5, 0.5]]


@pytest.mark.parametrize("radius", [1.5, 0.75, 100.0])
def test_locations_take_the_smallest_box_that_suits_them(radius):
    at, (truth, mask) = locations(SHAPES, reach=4), scattered(4, 9)
    got = assign(at.centres, at.cell, at.ranges, truth, mask, radius)
    lists = at.centres.tolist(), at.cell.tolist(), at.ranges.tolist()
    expected = [fcos(*lists, boxes, real, radius) for boxes, real in zip(truth.tolist(), mask.tolist(), strict=True)]
    assert got.tolist() == expected
    assert (got >= 0).sum() > 20


@pytest.mark.parametrize(("nearest", "anchor"), [(9, 8.0), (3, 4.0), (20, 2.0)])
def test_boxes_take_the_near_locations_whose_anchors_pass_their_own_bar(nearest, anchor):
    at, (truth, mask) = locations(SHAPES), scattered(4, 9, seed=2)
    got = assign_by_overlap(at.centres, at.cell, at.counts, truth, mask, nearest, anchor)
    lists = at.centres.double().tolist(), at.cell.double().tolist(), at.counts
    expected = [
        atss(*lists, boxes, real, nearest, anchor)
        for boxes, real in zip(truth.double().tolist(), mask.tolist(), strict=True)
    ]
    assert got.tolist() == expected
    assert (got >= 0).sum() > 20


def test_of_two_equal_boxes_the_first_is_taken():
    at, box = locations(SHAPES), torch.tensor([[[0.3, 0.3, 0.7, 0.7]] * 2])
    real = torch.ones(1, 2, dtype=torch.bool)
    for got in (
        assign(at.centres, at.cell, at.ranges, box, real),
        assign_by_overlap(at.centres, at.cell, at.counts, box, real),
    ):
        assert set(got.unique().tolist()) == {-1, 0}


@pytest.mark.parametrize("boxes", [0, 3])
def test_an_image_without_boxes_assigns_nothing(boxes):
    at, truth = locations(SHAPES), torch.zeros(2, boxes, 4)
    mask = torch.zeros(2, boxes, dtype=torch.bool)
    nothing = torch.full((2, sum(at.counts)), -1)
    assert torch.equal(assign(at.centres, at.cell, at.ranges, truth, mask), nothing)
    assert torch.equal(assign_by_overlap(at.centres, at.cell, at.counts, truth, mask), nothing)


def test_with_each_a_crowded_box_takes_its_best_location_and_the_others_keep_theirs():
    places = locations([(8, 8), (4, 4)])
    big = [0.1, 0.1, 0.9, 0.9]
    truth = torch.tensor([[big, [0.12, 0.1, 0.9, 0.9], [0.5, 0.5, 0.51, 0.51], [0.0, 0.0, 0.0, 0.0]]])
    mask = torch.tensor([[True, True, True, False]])
    given = places.centres, places.cell, places.counts, truth, mask
    plain = assign_by_overlap(*given, anchor=3.0)
    every = assign_by_overlap(*given, anchor=3.0, each=True)
    lost = {0, 1, 2} - set(plain[0].tolist())
    assert lost
    assert set(every[0].tolist()) == {-1, 0, 1, 2}
    changed = (plain != every)[0].nonzero().squeeze(1).tolist()
    assert sorted(every[0, changed].tolist()) == sorted(lost)
    for cell in changed:
        box = truth[0, every[0, cell]]
        half = 1.5 * places.cell[:, None]
        overlaps = pairwise_iou(torch.cat([places.centres - half, places.centres + half], 1), box[None])[:, 0]
        assert overlaps[cell] == overlaps.max()
