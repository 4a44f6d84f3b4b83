"""Photos as pixels with boxes: pools for a vision model, in memory or from disk, and bad files that stop nothing."""

import gzip
import json
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from caption_samples import write_tar
from learning_samples import DATA, names, training_photos, write_dataset
from sightline.config import build
from sightline.errors import ConfigError, CountError, ImageError, MissingRecordError
from sightline.models.updown import UpDownConfig
from sightline.training.data import build_data
from sightline.training.data_config import DataConfig
from sightline.training.new_model import CachedFeatures, Grid
from sightline.training.training_photos import GREY, BoxTable, PhotoBoxes, PixelTable
from sightline.vision.concept_names import concept_names

SIZE = 32
UPDOWN = UpDownConfig(region_width=1280)
SIGHT = Grid(size=SIZE)
OTHERS = [f"{5000 + i}_{i:010x}.jpg" for i in range(4)]


def paint(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for i, file in enumerate(files):
        Image.new("RGB", (40, 30), (i * 10, 0, 0)).save(folder / file)
    return [folder / file for file in files]


def one_box(weight=1.0):
    return PhotoBoxes(np.array([[0, 0, 0.5, 0.5]], np.float32), np.array([[3, -1, -1]], np.int16), np.float32([weight]))


@pytest.fixture
def root(tmp_path):
    """Captioned photos with machine boxes of some, and photos with Entities alone."""
    root = write_dataset(tmp_path / "tiny")
    files = names(20)[:-1]
    paint(root / "images", files)
    paint(root / "more", OTHERS)
    rows = [[file.split("_")[0], [[16, 0.5, 0, 0, 500, 500]] * (i % 3)] for i, file in enumerate(files) if i != 4]
    with gzip.open(root / "boxes.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    corners = "<xmin>1</xmin><ymin>1</ymin><xmax>40</xmax><ymax>15</ymax>"
    sides = "<size><width>40</width><height>30</height><depth>3</depth></size>"
    content = {}
    for name in (*OTHERS, *files):
        number = name.split("_")[0]
        content[f"Sentences/{number}.txt"] = "[/EN#1/people A man] .\n"
        content[f"Annotations/{number}.xml"] = (
            f"<annotation>{sides}<object><name>1</name><bndbox>{corners}</bndbox></object></annotation>"
        )
    write_tar(root / "entities.tar.gz", content)
    (root / "some.txt").write_text("\n".join(OTHERS[:3]) + "\n")
    return root


def config(**changes):
    boxed = {"images": "more", "boxes": "entities.tar.gz", "photos": "some.txt"}
    whole = {**DATA, "features": None, "images": "images", "boxes": "boxes.jsonl.gz", "boxed": boxed, **changes}
    return build(DataConfig, whole)


def test_training_photos_come_with_their_boxes(root):
    data = build_data(config(), UPDOWN, base=root, vision=SIGHT)
    assert {name: len(pool) for name, pool in data.pools.items()} == {"train": 13, "val": 3, "test": 3, "boxed": 3}
    batch = data.pools["train"].scenes.batch(torch.tensor([5, 0, 4]))  # two boxes, none, not in the file
    assert batch.true_box_mask.tolist() == [[True, True], [False, False], [False, False]]
    dog = concept_names().index("dog")
    assert batch.true_box_names[0].tolist() == [[dog, -1, -1]] * 2
    assert batch.true_box_weights[0].tolist() == [0.5, 0.5]
    assert batch.pixels.shape == (3, 3, SIZE, SIZE)
    assert any("12 of 13 photos of train are in" in line and "11 boxes" in line for line in data.notes)


def test_photos_with_boxes_alone_are_a_pool_without_captions(root):
    pool = build_data(config(), UPDOWN, base=root, vision=SIGHT).pools["boxed"]
    assert (pool.ids, pool.texts) == (tuple(OTHERS[:3]), None)
    batch = pool.scenes.batch(torch.tensor([2]))
    torch.testing.assert_close(batch.true_boxes, torch.tensor([[[0, 0, 1, 0.5]]]))
    assert batch.true_box_names.tolist() == [[[concept_names().index("man"), -1, -1]]]


def test_boxes_of_photos_that_are_not_trained_on_are_not_there(root):
    pools = build_data(config(), UPDOWN, base=root, vision=SIGHT).pools
    for role in ("val", "test"):
        assert pools[role].scenes.batch(torch.tensor([0])).true_boxes is None


def test_without_a_list_all_photos_of_the_folder_are_used_but_val_and_test(root):
    boxed = {"images": "images", "boxes": "entities.tar.gz"}
    data = build_data(config(boxed=boxed, boxes=None), UPDOWN, base=root, vision=SIGHT)
    assert data.pools["boxed"].ids == data.pools["train"].ids
    assert any("6 photos of data.boxed left out: in val or test" in line for line in data.notes)
    assert data.pools["train"].scenes.batch(torch.tensor([0])).true_boxes is None


def test_the_list_of_training_photos_names_pools_files_and_boxes(root):
    listed = training_photos(config(), root)
    assert [photo.pool for photo in listed] == ["train"] * 13 + ["boxed"] * 3
    assert [photo.id for photo in listed] == names(20)[:13] + OTHERS[:3]
    assert all(photo.file.is_file() for photo in listed)
    assert [photo.boxes for photo in listed] == [0, 1, 2, 0, 0, 2, 0, 1, 2, 0, 1, 2, 0, 1, 1, 1]
    assert all(photo.boxes == 0 for photo in training_photos(config(boxes=None, boxed=None), root))


def test_what_is_missing_or_does_not_fit_is_told(root):
    (root / "foreign.jsonl").write_text('["77777",[[16,0.5,0,0,500,500]]]\n')
    with pytest.raises(MissingRecordError, match=r"none of 13 photos, such as .* is among its 1"):
        training_photos(config(boxes="foreign.jsonl"), root)
    (root / "some.txt").write_text(f"{OTHERS[0]}\nnowhere.jpg\n")
    with pytest.raises(MissingRecordError, match=r"1 of 2 photos of .*some.txt are not there: nowhere.jpg"):
        training_photos(config(), root)
    assert training_photos(config(allow_missing=True), root)[-1].id == OTHERS[0]
    (root / "some.txt").write_text(f"{names(20)[13]}\n")
    held_out = {"images": "images", "boxes": "entities.tar.gz", "photos": "some.txt"}
    with pytest.raises(CountError, match=r"no photo of data.boxed is left"):
        training_photos(config(boxed=held_out), root)
    with pytest.raises(ConfigError, match=r"data.boxes and data.boxed are for vision models that are trained"):
        build_data(config(), UPDOWN, base=root, vision=CachedFeatures())
    with pytest.raises(ConfigError, match="needs them"):
        training_photos(config(images=None), root)


def test_all_photos_are_read_before_training_and_bad_ones_left_out(root):
    (root / "images" / names(20)[3]).write_bytes(b"this is no picture")
    (root / "more" / OTHERS[0]).write_bytes(b"")
    data = build_data(config(cache="memory"), UPDOWN, base=root, vision=SIGHT)
    train, boxed = data.pools["train"], data.pools["boxed"]
    assert (len(train), len(boxed)) == (12, 2)
    assert names(20)[3] not in train.ids
    whole = build_data(config(cache="disk", boxed=None), UPDOWN, base=root, vision=SIGHT).pools["train"]
    for row in (2, 3, 11):  # before and after the bad one
        same = whole.ids.index(train.ids[row])
        mine, theirs = train.scenes.batch(torch.tensor([row])), whole.scenes.batch(torch.tensor([same]))
        assert torch.equal(mine.pixels, theirs.pixels)
        assert mine.true_box_mask.sum() == theirs.true_box_mask.sum()
        assert mine.sizes.tolist() == [[40, 30]]
        assert train.references[row] == whole.references[same]
    told = "\n".join(data.notes)
    assert "12 photos of train read in" in told
    assert "Of train, 1 file was left out" in told
    assert names(20)[3] in told


def test_no_readable_photo_at_all_is_an_error(root):
    for file in (root / "more").iterdir():
        file.write_bytes(b"")
    with pytest.raises(ImageError, match="no photo of boxed can be read"):
        build_data(config(cache="memory"), UPDOWN, base=root, vision=SIGHT)


@pytest.mark.parametrize("keep", [True, False])
def test_a_photo_that_turns_out_bad_is_grey_without_boxes_and_told_once(keep, tmp_path):
    paths = paint(tmp_path, ["a.png", "b.png"])
    paths[1].write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    things = BoxTable.build([one_box(), one_box()])
    pictures = PixelTable(paths, ["a", "b"], SIZE, keep=keep, true_boxes=things)
    with pytest.warns(UserWarning, match=r"b\.png: .* A grey picture takes its place"):
        batch = pictures.batch(torch.tensor([1, 0]))
    assert (batch.pixels[0] == GREY).all()
    assert batch.true_box_mask.tolist() == [[False], [True]]
    assert things.batch(torch.tensor([1]))["true_box_mask"].all()  # the table is as it was
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pictures.batch(torch.tensor([0, 1, 1]))
    assert again.true_box_mask.tolist() == [[True], [False], [False]]


def test_pixels_in_memory_are_those_of_the_disk_in_any_order(tmp_path):
    paths = paint(tmp_path, [f"{i}.png" for i in range(5)])
    ids = [path.stem for path in paths]
    kept, streamed = PixelTable(paths, ids, SIZE, keep=True), PixelTable(paths, ids, SIZE)
    for rows in ([0, 3], [3, 3, 1], [4, 2, 1, 0]):
        one, other = (pictures.batch(torch.tensor(rows)) for pictures in (kept, streamed))
        assert torch.equal(one.pixels, other.pixels)
        assert torch.equal(one.sizes, other.sizes)
        assert one.ids == other.ids
    for path in paths:
        path.unlink()
    assert torch.equal(kept.batch(torch.tensor([1])).pixels, one.pixels[2:3])


def test_only_grid_backbones_are_given_cells(tmp_path):
    paths = paint(tmp_path, ["a.png"])
    assert PixelTable(paths, ["a"], 64).batch(torch.tensor([0])).boxes.shape == (1, 4, 4)
    plain = PixelTable(paths, ["a"], 64, cells=False).batch(torch.tensor([0]))
    assert (plain.boxes, plain.region_mask, plain.grid_shapes) == (None, None, ())


def test_boxes_beyond_the_most_are_told(root):
    with gzip.open(root / "boxes.jsonl.gz", "wt") as file:
        file.write(json.dumps(["1000", [[16, 0.5, 0, 0, 500, 500]] * 45]) + "\n")
    told = build_data(config(), UPDOWN, base=root, vision=SIGHT).notes
    assert "Of train, boxes beyond 40 of a photo are left out: 5." in told
