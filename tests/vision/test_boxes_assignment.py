"""Which location learns which box, against loops over images, locations and boxes."""

import math
import statistics

import pytest
import torch

from box_samples import overlap
from sightline.vision.boxes import assign_by_overlap, locations, pairwise_iou

torch.set_num_threads(1)

SHAPES = ((16, 16), (8, 8), (4, 4))


def scattered(images: int, most: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    middle, side = torch.rand(images, most, 4, generator=random).split(2, -1)
    half = 0.01 + side.square() * 0.45
    mask = torch.rand(images, most, generator=random) < 0.8
    return torch.cat([middle - half, middle + half], -1).clamp(0, 1), mask


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


def test_cells_that_are_not_square_count_by_their_longer_side():
    at = locations(((2, 4),))
    assert at.centres[1].tolist() == [0.375, 0.25]
    assert at.cell.tolist() == [0.5] * 8


def has_no_location(assigned: list[int], mask: list[bool]) -> set[int]:
    return {number for number, real in enumerate(mask) if real} - set(assigned)


@pytest.mark.parametrize(("nearest", "anchor"), [(9, 8.0), (3, 4.0), (20, 2.0)])
def test_boxes_take_the_near_locations_whose_anchors_pass_their_own_bar(nearest, anchor):
    at, (truth, mask) = locations(SHAPES), scattered(4, 9, seed=2)
    got = assign_by_overlap(at, truth, mask, nearest, anchor)
    lists = at.centres.double().tolist(), at.cell.double().tolist(), at.counts
    for row, boxes, real in zip(got.tolist(), truth.double().tolist(), mask.tolist(), strict=True):
        expected = atss(*lists, boxes, real, nearest, anchor)
        lonely = has_no_location(expected, real)
        differ = [(mine, theirs) for mine, theirs in zip(row, expected, strict=True) if mine != theirs]
        assert {mine for mine, _ in differ} <= lonely
        assert len(differ) <= len(lonely)
    assert (got >= 0).sum() > 20


def test_of_two_equal_boxes_the_first_has_all_locations_but_one():
    at, box = locations(SHAPES), torch.tensor([[[0.3, 0.3, 0.7, 0.7]] * 2])
    got = assign_by_overlap(at, box, torch.ones(1, 2, dtype=torch.bool))
    assert (got == 1).sum() == 1
    assert (got == 0).sum() > 1


@pytest.mark.parametrize("boxes", [0, 3])
def test_an_image_without_boxes_assigns_nothing(boxes):
    at, truth = locations(SHAPES), torch.zeros(2, boxes, 4)
    mask = torch.zeros(2, boxes, dtype=torch.bool)
    assert torch.equal(assign_by_overlap(at, truth, mask), torch.full((2, sum(at.counts)), -1))


def test_a_crowded_box_takes_its_best_location_and_the_others_keep_theirs():
    places = locations([(8, 8), (4, 4)])
    big = [0.1, 0.1, 0.9, 0.9]
    truth = torch.tensor([[big, [0.12, 0.1, 0.9, 0.9], [0.5, 0.5, 0.51, 0.51], [0.0, 0.0, 0.0, 0.0]]])
    mask = torch.tensor([[True, True, True, False]])
    every = assign_by_overlap(places, truth, mask, anchor=3.0)[0].tolist()
    lists = places.centres.double().tolist(), places.cell.double().tolist(), places.counts
    plain = atss(*lists, truth[0].double().tolist(), mask[0].tolist(), 9, 3.0)
    lonely = has_no_location(plain, mask[0].tolist())
    assert lonely
    assert set(every) == {-1, 0, 1, 2}
    changed = [cell for cell in range(len(every)) if plain[cell] != every[cell]]
    assert sorted(every[cell] for cell in changed) == sorted(lonely)
    for cell in changed:
        half = 1.5 * places.cell[:, None]
        box = truth[0, every[cell]]
        overlaps = pairwise_iou(torch.cat([places.centres - half, places.centres + half], 1), box[None])[:, 0]
        assert overlaps[cell] == overlaps.max()
