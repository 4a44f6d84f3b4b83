"""`sightline ground`, as people and scripts run it."""

import json
import shutil

import pytest
import torch
from PIL import Image

from bundle_samples import EXAMPLES

torch.set_num_threads(1)
CAT = EXAMPLES / "cat.jpg"


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model


@pytest.fixture
def ground(command):
    return command("ground")


def test_each_noun_is_told_with_its_box_and_how_sure_it_is(ground):
    code, out, err = ground(CAT, "A dog on the table.")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["dog", "table"]
    for line in out.splitlines():
        _, *box, score = line.split()
        assert len(box) == 4
        assert 0 <= float(score) <= 1


def test_json_is_the_whole_output(ground, tmp_path):
    odd = tmp_path / "ünïcode\n name.jpg"
    shutil.copy(CAT, odd)
    code, out, _ = ground(odd, "a dog", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["path"] == str(odd)
    assert [word["word"] for word in told["words"]] == ["a", "dog"]


def test_the_picture_shows_photo_and_sentence(ground, tmp_path):
    out = tmp_path / "new" / "boxes.png"
    assert ground(CAT, "a dog", "--out", out)[0] == 0
    with Image.open(out) as picture:
        assert picture.format == "PNG"
        assert picture.height > 500  # the photo, with the sentence below
    assert [path.name for path in out.parent.iterdir()] == ["boxes.png"]


def test_the_photo_itself_is_never_replaced_by_its_picture(ground, tmp_path):
    photo, link = tmp_path / "cat.jpg", tmp_path / "link.jpg"
    shutil.copy(CAT, photo)
    link.symlink_to(photo)
    for out in (photo, link):
        code, _, err = ground(photo, "a dog", "--out", out)
        assert code == 2
        assert "this file is read, and would be replaced" in err
    assert photo.read_bytes() == CAT.read_bytes()
    assert link.is_symlink()


def test_a_sentence_without_nouns_finds_nothing(ground):
    assert ground(CAT, "very quickly", "--quiet") == (1, "", "")
    code, out, _ = ground(CAT, "very quickly")
    assert code == 1
    assert "No noun" in out
    assert [word["box"] for word in json.loads(ground(CAT, "very quickly", "--json")[1])["words"]] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((CAT, ""), "empty"),
        ((CAT, "!?"), "no word"),
        (("nowhere.jpg", "a dog"), "nowhere.jpg"),
        ((CAT, "a dog", "--out", "boxes.txt"), "boxes.txt"),
    ],
)
def test_wrong_use_is_told(ground, arguments, told):
    code, out, err = ground(*arguments)
    assert (code, out) == (2, "")
    assert told in err
