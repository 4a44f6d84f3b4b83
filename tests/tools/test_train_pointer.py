"""The word pointer's training: its loss against loops, and that it learns which region a word means, and how far."""

import math
import sys
from pathlib import Path

import pytest
import torch

from sightline.batch import SceneBatch
from sightline.models.word_pointer import PointerOutput, WordPointerConfig

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import train_pointer
from train_pointer import PhotoWords, WordBatch, loss_of

torch.set_num_threads(1)
CPU = torch.device("cpu")
N = 4


def iou(a, b):
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - wide * high
    return wide * high / area


def boxes(*shape: int) -> torch.Tensor:
    corners = torch.rand(*shape, 2, 2).sort(-2).values
    return torch.cat([corners[..., 0, :], corners[..., 1, :]], -1)


def test_the_loss_against_loops():
    torch.manual_seed(0)
    batch = WordBatch(
        scenes=SceneBatch(("a", "b")),
        regions=torch.zeros(2, N, 3),
        words=torch.zeros(2, 3, 3),
        there=torch.tensor([[True, True, True], [True, False, False]]),
        overlaps=torch.tensor([[[0.9, 0.6, 0.4, 0], [0.1, 0.2, 0.3, 0], [0.4, 0.1, 0, 0]], [[0.5, 0.7, 0, 0]] * 3]),
        targets=boxes(2, 3, N),
    )
    output = PointerOutput(torch.randn(2, 3, N), boxes(2, 3, N), torch.tensor([[True] * 4, [True, True, True, False]]))
    any_right, spread, sides = [], [], []
    for b, w in ((0, 0), (0, 1), (0, 2), (1, 0)):
        scores = [s for s, there in zip(output.scores[b, w].tolist(), output.mask[b], strict=True) if there]
        shares = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
        overlaps = batch.overlaps[b, w].tolist()
        if max(overlaps) > 0.5:
            any_right.append(-math.log(sum(p for p, o in zip(shares, overlaps, strict=False) if o > 0.5)))
        if max(overlaps) > 0.35:
            cubes = [o**3 for o in overlaps]
            spread.append(-sum(c / sum(cubes) * math.log(p) for c, p in zip(cubes, shares, strict=False)))
        for i in range(N):
            if overlaps[i] > 0.35:
                sides.append(1 - iou(output.boxes[b, w, i].tolist(), batch.targets[b, w, i].tolist()))
    mean = [sum(part) / len(part) for part in (any_right, spread, sides)]
    assert float(loss_of(output, batch)) == pytest.approx((mean[0] + mean[1]) / 2 + 2 * mean[2], rel=1e-5)


def photo(index: int) -> PhotoWords:
    """A man and his shirt, two regions of one thing; people draw the shirt's box lower than the detector does."""
    draw = torch.Generator().manual_seed(index)
    x, y = (0.4 * torch.rand(2, generator=draw)).tolist()
    man, shirt = (x, y, x + 0.3, y + 0.5), (x, y + 0.1, x + 0.3, y + 0.3)
    seen = [man, shirt] if index % 2 else [shirt, man]  # neither comes first
    true_shirt = (x, y + 0.15, x + 0.3, y + 0.35)
    true = torch.tensor([[man] * 2, [true_shirt] * 2])  # (words, regions, 4)
    overlaps = [[iou(region, word) for region in seen] for word in (man, true_shirt)]
    same = torch.nn.functional.normalize(torch.rand(1, 3, generator=draw), dim=1)
    return PhotoWords(
        SceneBatch(
            (str(index),),
            regions=torch.ones(1, 2, 5),  # both look alike: only where they are tells
            region_mask=torch.ones(1, 2, dtype=torch.bool),
            boxes=torch.tensor([seen]),
            scores=torch.full((1, 2), 0.5),
        ),
        regions=same.repeat(2, 1),
        words=torch.eye(3)[:2],  # "man" and "shirt"
        overlaps=torch.tensor(overlaps),
        targets=true,
    )


def test_it_learns_which_region_a_word_means_and_how_far_the_thing_reaches(capsys):
    photos, others = [photo(index) for index in range(200)], [photo(index) for index in range(200, 260)]
    config = WordPointerConfig(word_width=3, region_width=5, size=16, dropout=0.1)
    untrained = config.build()
    assert train_pointer.right_words(untrained, others, CPU)[0] < 80
    pointer = train_pointer.train(photos, others, config, 30, 0, CPU)
    assert train_pointer.right_words(pointer, others, CPU) == (100, 100)
    batch = WordBatch.of(others, CPU)
    output = pointer.point({"regions": batch.regions}, batch.words, batch.scenes)
    shirts = output.weights[:, 1].argmax(1)
    rows = torch.arange(len(others))
    moved = train_pointer.iou(output.boxes[rows, 1, shirts], batch.targets[rows, 1, shirts]).detach()
    assert float(batch.overlaps[rows, 1, shirts].mean()) == pytest.approx(0.6, abs=0.01)  # of the detector's boxes
    assert float(moved.mean()) > 0.8
    assert "epoch 30 of 30" in capsys.readouterr().out


def test_padded_words_count_neither_as_right_nor_as_wrong():
    first, second = photo(0), photo(1)
    everywhere = torch.ones(2, 2), second.scene.boxes.repeat(2, 1, 1)  # any region is right
    one = PhotoWords(second.scene, second.regions, second.words[:1], *(part[:1] for part in everywhere))
    two = PhotoWords(first.scene, first.regions, first.words, torch.zeros(2, 2), torch.ones(2, 2, 4))
    batch = WordBatch.of([one, two], CPU)
    assert batch.there.tolist() == [[True, False], [True, True]]
    pointer = WordPointerConfig(word_width=3, region_width=5, size=16).build()
    assert train_pointer.right_words(pointer, [one, two], CPU) == pytest.approx((100 / 3, 100 / 3))
