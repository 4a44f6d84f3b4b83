"""`sightline audit`, as people and scripts run it."""

import json
import os
import shutil
import signal
import sys
import time

import pytest
import torch

from bundle_samples import EXAMPLES, draw_photo
from interrupting import start
from sightline.pipeline import Pipeline

torch.set_num_threads(1)
SAID = {"cat.jpg": ["A dog on a table.", "two cats"], "ünï code,\n2.jpg": ["a man holds a ball"]}


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in SAID:
        shutil.copy(EXAMPLES / "cat.jpg", folder / name)
    return folder


@pytest.fixture
def coco(tmp_path):
    return write_coco(tmp_path / "captions.json", SAID)


def write_coco(path, said):
    images = [{"id": number, "file_name": name} for number, name in enumerate(said)]
    notes = [(number, text) for number, texts in enumerate(said.values()) for text in texts]
    annotations = [{"id": id, "image_id": image, "caption": text} for id, (image, text) in enumerate(notes)]
    path.write_text(json.dumps({"images": images, "annotations": annotations}))
    return path


@pytest.fixture
def audit(command):
    return command("audit")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json"])
def test_what_caption_wrote_is_audited_where_the_photos_are(kind, audit, command, photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    assert command("caption")("photos", "--out", "made", "--format", kind, "--quiet")[0] == 0
    for arguments in ((), ("--images", "photos")):
        code, out, err = audit(f"made/captions.{kind}", *arguments, "--json")
        assert code in (0, 1)
        assert len(json.loads(out)) == len(SAID), err


def test_findings_are_told_with_the_caption_and_give_exit_code_1(audit, coco, photos):
    code, out, err = audit(coco, "--images", photos, "--threshold", 1)
    assert code == 1
    assert "A dog on a table." in out
    assert "  dog: the photo does not show it" in out or "  dog: little speaks for it" in out
    assert "3 of 3 captions" in err


def test_captions_that_are_supported_give_exit_code_0(audit, coco, photos):
    assert audit(coco, "--images", photos, "--threshold", 0)[:2] == (0, "")


def test_json_is_the_whole_output_an_object_for_each_caption(audit, coco, photos):
    told = json.loads(audit(coco, "--images", photos, "--threshold", 1, "--json")[1])
    expected = [(str(photos / name), text) for name, texts in SAID.items() for text in texts]
    assert [(one["path"], one["caption"]) for one in told] == expected
    assert all(list(one) == ["path", "caption", "size", "nouns", "flagged"] for one in told)
    assert sum(one["flagged"] for one in told) == 5


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("said.csv", "file,caption\ncat.jpg,a dog\ncat.jpg,a ball\nmore/b.jpg,a cup\n"),
        (
            "said.jsonl",
            '{"path": "cat.jpg", "caption": ["a dog", "a ball"]}\n{"path": "more/b.jpg", "caption": "a cup"}',
        ),
        ("said.token.txt", "cat.jpg#0\ta dog\ncat.jpg#1\ta ball\nmore/b.jpg#0\ta cup\n"),
    ],
)
def test_captions_may_be_in_other_formats_and_folders_than_the_photos(audit, photos, tmp_path, name, text):
    (photos / "more").mkdir()
    shutil.copy(EXAMPLES / "cat.jpg", photos / "more" / "b.jpg")
    (tmp_path / name).write_text(text)
    told = json.loads(audit(tmp_path / name, "--images", photos, "--json")[1])
    assert [one["caption"] for one in told] == ["a dog", "a ball", "a cup"]


def test_by_default_photos_are_beside_their_captions(audit, photos):
    write_coco(photos / "captions.json", SAID)
    assert len(json.loads(audit(photos / "captions.json", "--json")[1])) == 3


@pytest.fixture
def holiday(tmp_path):
    """A folder with photos of one name in it and in a folder of it, and a table elsewhere."""
    (tmp_path / "hol" / "sub").mkdir(parents=True)
    shutil.copy(EXAMPLES / "cat.jpg", tmp_path / "hol" / "cat.jpg")
    shutil.copy(EXAMPLES / "coffee.jpg", tmp_path / "hol" / "sub" / "cat.jpg")
    (tmp_path / "album").mkdir()
    (tmp_path / "album" / "captions.csv").write_text("file,caption\nhol/cat.jpg,a cat\nhol/sub/cat.jpg,a cup\n")
    return tmp_path / "hol"


def test_each_caption_is_audited_against_the_photo_that_its_folders_name(audit, holiday, monkeypatch):
    monkeypatch.chdir(holiday.parent / "album")
    told = json.loads(audit("captions.csv", "--images", "../hol", "--json")[1])
    assert [(one["path"], one["caption"]) for one in told] == [
        ("../hol/cat.jpg", "a cat"),
        ("../hol/sub/cat.jpg", "a cup"),
    ]


def test_a_name_that_fits_several_photos_is_refused(audit, holiday, tmp_path):
    (tmp_path / "said.csv").write_text("file,caption\nother/cat.jpg,a cat\n")
    code, out, err = audit(tmp_path / "said.csv", "--images", holiday)
    assert (code, out) == (2, "")
    assert "'other/cat.jpg' may be any of cat.jpg, sub/cat.jpg" in err


@pytest.mark.parametrize("name", ["captions.csv", "metadata.csv"])
def test_a_folder_with_captions_has_their_photos_in_itself(audit, holiday, name):
    (holiday / name).write_text("file_name,text\nsub/cat.jpg,a cup\n")
    shutil.copy(EXAMPLES / "rocket.jpg", holiday.parent / "cat.jpg")
    told = json.loads(audit(holiday, "--json")[1])
    assert [(one["path"], one["caption"]) for one in told] == [(str(holiday / "sub/cat.jpg"), "a cup")]


@pytest.mark.parametrize("folder", ["hol", "."])
def test_a_folder_without_captions_is_told(audit, holiday, folder):
    code, out, err = audit(holiday.parent / folder)
    assert (code, out) == (2, "")
    assert "this folder holds no captions. To fix: name a file of captions" in err


def test_photos_that_cannot_be_read_are_told_and_stop_nothing(audit, photos, tmp_path):
    (photos / "broken.jpg").write_text("no picture")
    said = {"broken.jpg": ["a dog"], **SAID, "nowhere.jpg": ["a cat"]}
    code, out, err = audit(write_coco(tmp_path / "more.json", said), "--images", photos, "--json", "--threshold", 0)
    assert code == 0
    assert len(json.loads(out)) == 3
    assert "2 files were left out" in err
    assert "broken.jpg" in err
    assert "nowhere.jpg" in err


def test_where_no_photo_can_be_read_the_exit_code_is_1(audit, coco, tmp_path):
    code, out, err = audit(coco, "--images", tmp_path, "--json")
    assert (code, json.loads(out)) == (1, [])
    assert "No caption was audited" in err


@pytest.fixture
def asked(monkeypatch):
    """The photos that are looked at."""
    found = []
    read = Pipeline.audit_photos
    monkeypatch.setattr(
        Pipeline,
        "audit_photos",
        lambda self, some, *rest, **options: found.extend(some) or read(self, some, *rest, **options),
    )
    return found


def test_a_second_run_audits_only_what_is_new_or_changed(audit, coco, photos, tmp_path, asked):
    out = tmp_path / "audited"
    first = audit(coco, "--images", photos, "--out", out, "--json")
    assert json.loads((out / "audits.json").read_text()) == json.loads(first[1])
    assert len(asked) == 2
    assert audit(coco, "--images", photos, "--out", out, "--json") == first
    assert len(asked) == 2
    write_coco(coco, {**SAID, "cat.jpg": ["a cup"]})  # other words about the first photo
    assert len(json.loads(audit(coco, "--images", photos, "--out", out, "--json")[1])) == 2
    assert len(asked) == 3
    draw_photo(photos / "cat.jpg")  # another photo
    audit(coco, "--images", photos, "--out", out)
    assert len(asked) == 4
    audit(coco, "--images", photos, "--out", out, "--threshold", 0.123)
    assert len(asked) == 6


@pytest.fixture
def many(photos, tmp_path):
    """Captions of forty photos."""
    said = {f"{number}.jpg": ["a dog on the table"] for number in range(40)}
    for name in said:
        shutil.copy(EXAMPLES / "cat.jpg", photos / name)
    return write_coco(tmp_path / "many.json", said)


def stop_on_the_way(model, how, folder, *arguments):
    """Start an audit, and stop it once a batch of it is done below a folder; its log, and what was told."""
    process = start([sys.executable, "-m", "sightline", "audit", *map(str, arguments), "--model", str(model)])
    limit = time.monotonic() + 60
    while not (done := [path for path in folder.rglob("ledger.jsonl") if path.stat().st_size]):
        assert time.monotonic() < limit
        time.sleep(0.01)
    os.kill(process.pid, how)
    return done[0].with_name("audits.log"), process.communicate()[1]


def test_a_run_that_is_killed_goes_on_where_it_was(audit, model, many, photos, tmp_path):
    out = tmp_path / "audited"
    arguments = [many, "--images", photos, "--out", out, "--device", "cpu", "--threads", "1"]
    log, _ = stop_on_the_way(model, signal.SIGKILL, out, *arguments)
    done = log.read_bytes()
    assert done
    log.write_bytes(done + b"1234abcd [half a li")
    assert len(json.loads(audit(many, "--images", photos, "--out", out, "--json")[1])) == 40
    assert log.read_bytes().startswith(done[: done.rfind(b"\n") + 1])


def test_without_a_folder_for_results_an_interrupted_run_goes_on_too_and_leaves_nothing(
    audit, model, many, photos, asked, monkeypatch, tmp_path
):
    cache = tmp_path / "cache"
    monkeypatch.setenv("SIGHTLINE_CACHE", str(cache))
    arguments = [many, "--images", photos, "--threshold", "0.5"]
    log, told = stop_on_the_way(model, signal.SIGINT, cache, *arguments, "--device", "cpu", "--threads", "1")
    assert "run the same command again to go on" in told
    done = len(log.read_bytes().splitlines())
    assert 0 < done < 40
    assert len(json.loads(audit(*arguments, "--json")[1])) == 40
    assert 40 - done <= len(asked) < 40  # the batch in work may be in the log, and is done again
    assert not list((cache / "audits").iterdir())


def test_where_the_cache_cannot_be_written_audits_are_made_all_the_same(audit, coco, photos, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file, so that no folder can be made there")
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    assert len(json.loads(audit(coco, "--images", photos, "--json")[1])) == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--threshold", 2), "threshold"),
        (("--images", "nowhere"), "nowhere"),
        (("--out", __file__), "file"),
        (("--split", "test"), "split"),
    ],
)
def test_wrong_use_is_told(audit, coco, arguments, told):
    code, out, err = audit(coco, *arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_a_file_without_captions_is_told(audit, tmp_path):
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n")
    code, _, err = audit(tmp_path / "list.txt")
    assert code == 2
    assert "list.txt" in err


@pytest.mark.parametrize("kind", ["json", "csv", "jsonl"])
def test_what_caption_writes_can_be_audited_with_the_folder_of_photos_or_without(
    audit, command, photos, tmp_path, monkeypatch, kind
):
    monkeypatch.chdir(tmp_path)
    assert command("caption")("photos", "--out", "said", "--format", kind)[0] == 0
    for where in (["--images", "photos"], []):
        code, out, _ = audit(f"said/captions.{kind}", *where, "--json", "--threshold", 0)
        assert code == 0
        assert sorted(one["path"] for one in json.loads(out)) == sorted(f"photos/{name}" for name in SAID)


def test_a_list_of_something_else_says_which_item_is_wrong(audit, photos, tmp_path):
    (tmp_path / "said.json").write_text('[{"path": "cat.jpg", "caption": "a cat"}, {"path": "cat.jpg"}]')
    code, _, err = audit(tmp_path / "said.json", "--images", photos)
    assert code == 2
    assert "photos[1]" in err
    assert "there is no caption, title or text among path" in err
