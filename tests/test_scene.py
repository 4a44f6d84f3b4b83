from dataclasses import replace

import numpy as np
import pytest

from box_samples import overlap
from sightline import Concept, Scene
from sightline.errors import BoxError, CountError, DataError, MissingPartError, NonFiniteError
from sightline.scene import box_iou, normalise_boxes

BOXES = np.array([[0.1, 0.1, 0.5, 0.6], [0.0, 0.0, 1.0, 1.0]], dtype=np.float32)


def test_scores_out_of_order_are_refused_not_sorted_silently():
    with pytest.raises(DataError, match="not in descending order"):
        Scene("1", boxes=BOXES, scores=np.array([0.2, 0.9]))


@pytest.mark.parametrize(
    ("parts", "kind", "words"),
    [
        ({"regions": np.array([[1.0, np.nan]])}, NonFiniteError, r"`regions` holds NaN or infinity at \[0, 1\]"),
        ({"vector": np.array([np.inf])}, NonFiniteError, "vector"),
        ({"boxes": BOXES, "regions": np.ones((3, 4))}, CountError, "2 boxes, 3 regions"),
        ({"boxes": np.array([[0.5, 0.1, 0.4, 0.2]])}, BoxError, "x y width height"),
        ({"boxes": np.array([[10.0, 10.0, 20.0, 20.0]])}, BoxError, r"outside \[0, 1\]"),
        ({"boxes": np.ones((2, 5))}, BoxError, r"\(n, 4\)"),
        ({"regions": np.ones(4)}, DataError, "2 dimensions"),
        ({"grid": np.ones((6, 2)), "grid_shape": (2, 2)}, CountError, "2×2 grid with 6 cells"),
        ({"grid": np.ones((6, 2))}, DataError, "go together"),
    ],
)
def test_a_bad_part_is_refused_by_name_and_image(parts, kind, words):
    with pytest.raises(kind, match=words) as caught:
        Scene("42", source="feats.tsv", **parts)
    assert "feats.tsv, image 42" in str(caught.value)


def test_a_missing_part_is_named_with_what_would_supply_it():
    scene = Scene("1", regions=np.ones((2, 3)))
    with pytest.raises(MissingPartError, match=r"JRAN needs `grid`.*only regions.*default vision model"):
        scene.require("regions", "grid", by="JRAN")
    assert scene.require("regions") is scene


def test_parts_and_length_tell_what_there_is():
    scene = Scene("1", boxes=BOXES, concepts=(Concept("dog"),))
    assert scene.parts() == ("boxes", "concepts")
    assert len(scene) == 2
    assert len(Scene("1", concepts=(Concept("dog"),))) == 0


def test_pixel_boxes_normalise_and_come_back():
    pixels = np.array([[10, 20, 30, 40], [0, 0, 100, 50]], dtype=np.float32)
    scene = Scene("1", boxes=normalise_boxes(pixels, (100, 50)), size=(100, 50))
    assert np.allclose(scene.pixel_boxes(), pixels)


def test_a_pixel_over_the_border_is_the_border_and_two_are_an_error():
    assert normalise_boxes(np.array([[-0.5, 0, 100.7, 50]]), (100, 50))[0].tolist() == [0, 0, 1, 1]
    with pytest.raises(BoxError, match=r"box 0 is .* outside the 100×50 image"):
        normalise_boxes(np.array([[0, 0, 102, 50]]), (100, 50), "x.tsv")
    with pytest.raises(BoxError, match="pixels were expected"):
        normalise_boxes(np.array([[0.1, 0.1, 0.5, 0.5]]), (100, 50))
    with pytest.raises(BoxError, match="size is 0×50"):
        normalise_boxes(np.zeros((1, 4)), (0, 50))


def test_scenes_are_equal_when_all_their_parts_are():
    one = Scene("1", boxes=BOXES, regions=np.ones((2, 3)), fingerprint="a")
    assert one == Scene("1", boxes=BOXES.copy(), regions=np.ones((2, 3)), fingerprint="a", source="elsewhere")
    assert one == replace(one, source="x")
    assert one != Scene("1", boxes=BOXES, regions=np.zeros((2, 3)), fingerprint="a")
    assert one != Scene("1", boxes=BOXES, fingerprint="a")
    assert one != "1"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_no_kind_of_number_hides_what_is_not_finite(bad, dtype, order):
    largest = np.finfo(dtype).max
    Scene("1", regions=np.array([[largest, -largest], [0, -0.0]], dtype=dtype, order=order))
    with pytest.raises(NonFiniteError, match=r"\[1, 0\]"):
        Scene("1", regions=np.array([[largest, 1], [bad, 2]], dtype=dtype, order=order))


def test_box_iou_of_every_pair_equals_one_at_a_time_and_boxes_without_area_share_nothing():
    corners = np.sort(np.random.default_rng(0).uniform(size=(12, 2, 2)), axis=1).reshape(12, 4)
    corners[3, 2:] = corners[3, :2]
    found = box_iou(corners[:5], corners[3:])
    assert found == pytest.approx(np.array([[overlap(a, b) for b in corners[3:]] for a in corners[:5]]))
    assert found[3, 0] == 0
