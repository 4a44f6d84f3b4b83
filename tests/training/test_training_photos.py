"""Nothing is trained on the photos, captions or boxes that models are chosen and measured by."""

import pytest

from learning_samples import training_photos
from sightline.config import build
from sightline.data.image_list import photo_number, read_names
from sightline.training.data_config import DataConfig
from sightline.training.recipe import SHIPPED, read_recipe
from sightline.training.training_photos import read_boxes

pytestmark = pytest.mark.data


def numbers(path):
    return {photo_number(name) for name in read_names(path)}


@pytest.fixture(scope="module")
def machine_seen(data_dir):
    """The photos that the machine's boxes cover, which are those of train2017."""
    ids, _ = read_boxes(data_dir / "coco" / "pseudo_boxes.jsonl.gz")
    return set(ids)


@pytest.fixture(scope="module")
def recipe(machine_seen, tmp_path_factory):
    """The data of the shipped vision model; COCO's pictures are empty files, named as those of train2017 are."""
    images = tmp_path_factory.mktemp("coco")
    for id in machine_seen:
        (images / f"{int(id):012d}.jpg").touch()
    return build(
        DataConfig,
        {
            "captions": ["coco/captions_train2014.json.gz", "coco/captions_val2014.json.gz"],
            "splits": {split: f"coco/karpathy_{split}.txt.gz" for split in ("train", "val", "test")},
            "images": str(images),
            "boxes": "coco/pseudo_boxes.jsonl.gz",
            "boxed": {
                "images": "flickr8k/images",
                "boxes": "flickr8k/flickr30k_entities_8091.tar.gz",
                "photos": "flickr8k/Flickr_8k.trainImages.txt",
            },
            "allow_missing": True,
        },
    )


@pytest.fixture(scope="module")
def listed(recipe, data_dir):
    return training_photos(recipe, data_dir)


def test_no_photo_of_karpathys_val_or_test_is_trained_on(listed, data_dir):
    held_out = numbers(data_dir / "coco/karpathy_val.txt.gz") | numbers(data_dir / "coco/karpathy_test.txt.gz")
    assert len(held_out) == 10_000
    coco = [photo for photo in listed if photo.pool == "train"]
    assert len(coco) == 109_488
    assert held_out.isdisjoint(photo_number(photo.file.name) for photo in coco)
    assert held_out.isdisjoint(photo_number(photo.id) for photo in coco)


def test_pictures_and_boxes_are_those_of_the_captions_photo(listed):
    for photo in listed:
        if photo.pool == "train":
            assert photo_number(photo.file.name) == photo.id


def test_machine_boxes_of_held_out_photos_are_dropped(listed, machine_seen, data_dir):
    dropped = machine_seen - {photo_number(photo.file.name) for photo in listed if photo.pool == "train"}
    held_out = numbers(data_dir / "coco/karpathy_val.txt.gz") | numbers(data_dir / "coco/karpathy_test.txt.gz")
    assert dropped == held_out & machine_seen
    assert len(dropped) == 8_799


def test_no_photo_of_flickr8ks_dev_or_test_is_trained_on(listed, data_dir):
    flickr = {photo_number(photo.file.name) for photo in listed if photo.pool == "boxed"}
    assert flickr == numbers(data_dir / "flickr8k/Flickr_8k.trainImages.txt")
    for split in ("dev", "test"):
        assert numbers(data_dir / f"flickr8k/Flickr_8k.{split}Images.txt").isdisjoint(flickr)
    assert sum(photo.boxes > 0 for photo in listed if photo.pool == "boxed") > 5_900


@pytest.fixture(scope="module", params=["keep", "truthful"])
def of_both_sets(request, machine_seen, data_dir, tmp_path_factory):
    """The training photos of the rows that learn from both sets; every photo of both, held-out ones too, is there."""
    root = tmp_path_factory.mktemp("both")
    for name in ("coco", "flickr8k"):
        (root / name).symlink_to(data_dir / name)
    (root / "photos").mkdir()
    for id in machine_seen:
        (root / "photos" / f"{int(id):012d}.jpg").touch()
    for split in ("train", "dev", "test"):
        for name in read_names(data_dir / "flickr8k" / f"Flickr_8k.{split}Images.txt"):
            (root / "photos" / name).touch()
    parts = ("coco/pseudo_boxes.jsonl.gz", "flickr8k/boxes.jsonl.gz")
    (root / "photos" / "boxes.jsonl.gz").write_bytes(b"".join((data_dir / part).read_bytes() for part in parts))
    return training_photos(read_recipe(SHIPPED / "default" / "captioner.yaml", request.param).data, root)


def test_rows_of_both_sets_train_on_no_held_out_photo(of_both_sets, data_dir):
    trained = {photo_number(photo.file.name) for photo in of_both_sets}
    flickr = numbers(data_dir / "flickr8k/Flickr_8k.trainImages.txt")
    assert len([photo for photo in of_both_sets if photo.pool == "train"]) == 115_488  # as the model's card says
    assert flickr <= trained
    for held_out in ("coco/karpathy_val.txt.gz", "coco/karpathy_test.txt.gz"):
        assert numbers(data_dir / held_out).isdisjoint(trained - flickr)
    for held_out in ("flickr8k/Flickr_8k.devImages.txt", "flickr8k/Flickr_8k.testImages.txt"):
        assert numbers(data_dir / held_out).isdisjoint(trained)
