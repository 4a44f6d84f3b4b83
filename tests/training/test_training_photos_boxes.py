"""True boxes: from Entities, from COCO and from machines to padded tensors, with names that people use."""

import json

import numpy as np
import pytest
import torch

from caption_samples import write_tar
from sightline.errors import ConfigError
from sightline.training.training_photos import NO_BOXES, BoxTable, PhotoBoxes, read_boxes
from sightline.vision.concept_names import concept_names

NAMES = concept_names()

SENTENCES = (
    "[/EN#1/people A man] rides [/EN#2/vehicles a red bike] in [/EN#0/notvisual the air] .",
    "[/EN#1/people A man] on [/EN#2/vehicles a bicycle] wears [/EN#3/clothing red] .",
    "[/EN#1/people A biker] on [/EN#2/vehicles his bike] .",
    "[/EN#1/people A guy] and [/EN#4/other a thingamajig] .",
    "[/EN#1/people A rider] , [/EN#5/scene outside] .",
)


def thing(chains: tuple[int, ...], *corners: int) -> str:
    names = "".join(f"<name>{chain}</name>" for chain in chains)
    if not corners:
        return f"<object>{names}<scene>1</scene></object>"
    sides = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
    return f"<object>{names}<bndbox>{''.join(f'<{s}>{v}</{s}>' for s, v in sides)}</bndbox></object>"


@pytest.fixture
def entities(tmp_path):
    objects = (
        thing((1,), 1, 1, 100, 50)
        + thing((2,), 51, 26, 100, 50)
        + thing((2,), 1, 1, 2, 2)
        + thing((3, 4), 11, 11, 20, 20)
        + thing((5,))
    )
    size = "<size><width>200</width><height>50</height><depth>3</depth></size>"
    files = {
        "Annotations/17.xml": f"<annotation>{size}{objects}</annotation>",
        "Sentences/17.txt": "\n".join(SENTENCES) + "\n",
        "Annotations/18.xml": f"<annotation>{size}{thing((9,))}</annotation>",
        "Sentences/18.txt": "[/EN#9/scene A beach] .\n",
    }
    return write_tar(tmp_path / "entities.tar.gz", files)


def called(ids):
    return [[NAMES[id] for id in row if id >= 0] for row in ids]


def test_boxes_of_entities_are_shares_of_the_original_size(entities):
    _, boxes_of = read_boxes(entities)
    drawn = boxes_of("17")
    expected = [[0, 0, 0.5, 1], [0.25, 0.5, 0.5, 1], [0, 0, 0.01, 0.04], [0.05, 0.2, 0.1, 0.4]]
    np.testing.assert_allclose(drawn.boxes, expected, atol=1e-6)
    assert drawn.weights.tolist() == [1, 1, 1, 1]


def test_boxes_of_entities_are_named_by_all_captions_most_frequent_first(entities):
    _, boxes_of = read_boxes(entities)
    names = called(boxes_of("17").names)
    assert names == [["man", "biker", "guy"], ["bike", "bicycle"], ["bike", "bicycle"], []]  # red is no thing


def test_a_photo_of_entities_may_have_no_box(entities):
    ids, boxes_of = read_boxes(entities)
    assert ids == ("17", "18")
    drawn = boxes_of("18")
    assert (drawn.boxes.shape, drawn.names.shape, drawn.weights.shape) == ((0, 4), (0, 3), (0,))


def test_a_machines_boxes_weigh_their_score(tmp_path):
    path = tmp_path / "boxes.jsonl"
    path.write_text('["9",[[16,0.75,100,200,500,1000],[0,0.5,0,0,1000,1000]]]\n["25",[]]\n')
    _, boxes_of = read_boxes(path)
    drawn = boxes_of("9")
    np.testing.assert_allclose(drawn.boxes, [[0.1, 0.2, 0.5, 1], [0, 0, 1, 1]])
    assert called(drawn.names) == [["dog"], ["person"]]
    assert drawn.weights.tolist() == [0.75, 0.5]
    assert boxes_of("25").boxes.shape == (0, 4)


def test_crowds_of_coco_are_left_out(tmp_path):
    note = {"id": 1, "image_id": 7, "category_id": 18, "bbox": [10, 20, 30, 40], "iscrowd": 0}
    whole = {
        "images": [{"id": 7, "file_name": "000000000007.jpg", "width": 100, "height": 200}],
        "annotations": [note, {**note, "id": 2, "iscrowd": 1}, {**note, "id": 3, "category_id": 99}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 99, "name": "gizmo"}],
    }
    path = tmp_path / "instances_train2017.json"
    path.write_text(json.dumps(whole))
    _, boxes_of = read_boxes(path)
    drawn = boxes_of("7")
    np.testing.assert_allclose(drawn.boxes, [[0.1, 0.1, 0.4, 0.3]] * 2)
    assert called(drawn.names) == [["dog"], []]
    assert drawn.weights.tolist() == [1, 1]


def test_a_file_without_boxes_is_refused(tmp_path):
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n")
    with pytest.raises(ConfigError, match="image-list holds no boxes with names"):
        read_boxes(tmp_path / "list.txt")


def drawn(weights, sides):
    boxes = np.array([[0, 0, side, side] for side in sides], np.float32).reshape(-1, 4)
    names = np.full((len(boxes), 3), -1, np.int16)
    names[:, 0] = range(len(boxes))
    return PhotoBoxes(boxes, names, np.array(weights, np.float32))


def test_a_batch_is_padded_to_the_photo_with_most_boxes():
    photos = [drawn([1], [0.5]), NO_BOXES, drawn([0.4, 0.5, 0.6], [0.1, 0.2, 0.3]), drawn([0.7, 0.8], [0.1, 0.2])]
    table = BoxTable.build(photos)
    assert (len(table), table.cut, table.counts.tolist()) == (4, 0, [1, 0, 3, 2])
    batch = table.batch(torch.tensor([3, 1]))
    assert batch["true_box_mask"].tolist() == [[True, True], [False, False]]
    assert batch["true_box_names"].tolist() == [[[0, -1, -1], [1, -1, -1]], [[-1, -1, -1]] * 2]
    assert batch["true_box_names"].dtype == torch.long
    torch.testing.assert_close(batch["true_box_weights"], torch.tensor([[0.7, 0.8], [0, 0]]))
    torch.testing.assert_close(batch["true_boxes"][0, 1], torch.tensor([0, 0, 0.2, 0.2]))
    assert table.batch(torch.tensor([2, 0]))["true_boxes"].shape == (2, 3, 4)
    nothing = table.batch(torch.tensor([1]))
    assert nothing["true_boxes"].shape == (1, 1, 4)
    assert not nothing["true_box_mask"].any()


def test_of_too_many_boxes_the_heaviest_then_the_largest_stay_in_their_order():
    table = BoxTable.build([drawn([0.3, 1, 1, 0.5, 1], [0.9, 0.1, 0.2, 0.9, 0.3])], most=3)
    assert table.names[0, :, 0].tolist() == [1, 2, 4]
    table = BoxTable.build([drawn([0.3, 1, 1, 0.5, 1], [0.9, 0.1, 0.2, 0.9, 0.3])], most=2)
    assert (table.names[0, :, 0].tolist(), table.cut) == ([2, 4], 3)


def test_boxes_without_area_are_no_things():
    table = BoxTable.build([drawn([1, 1], [0, 0.5])])
    assert (table.counts.tolist(), table.names[0, 0, 0].item(), table.cut) == ([1], 1, 0)


def test_a_split_without_any_photo_or_box_has_a_table_too():
    assert BoxTable.build([]).boxes.shape == (0, 1, 4)
    assert BoxTable.build([NO_BOXES]).batch(torch.tensor([0, 0]))["true_box_mask"].tolist() == [[False], [False]]


@pytest.mark.data
def test_entities_of_flickr8k_are_read_whole(data_dir):
    ids, boxes_of = read_boxes(data_dir / "flickr8k" / "flickr30k_entities_8091.tar.gz")
    found = [boxes_of(id) for id in ids]
    assert (len(found), sum(len(one.boxes) for one in found)) == (8091, 52_311)
    named = sum(int((one.names[:, 0] >= 0).sum()) for one in found)
    assert named / 52_311 > 0.85
    assert all((one.boxes >= 0).all() and (one.boxes <= 1).all() for one in found)
