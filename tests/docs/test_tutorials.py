"""The commands of the tutorials run, one after another, on a few photos and with tiny models."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.checkpoint import bundle as bundles
from sightline.checkpoint.bundle import save_bundle
from sightline.cli import commands
from sightline.data.convert import any_captions
from sightline.jobs import extract_job

torch.set_num_threads(1)
TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))
# A tiny model of the same kind, trained for one step.
SMALL = ["model.region_width=24", "stages.cross-entropy.epochs=1", "data.min_count=1"]


@pytest.fixture(autouse=True)
def _no_datasets(monkeypatch):
    monkeypatch.delenv("SIGHTLINE_DATA", raising=False)  # a new user has none


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder; a tiny model stands in the place of Sightline's own."""
    save_bundle(tmp_path / "tiny.safetensors", tiny_bundle())
    for module in (bundles, extract_job):  # which has it by name, whichever test imported it first
        monkeypatch.setattr(module, "default_bundle", lambda: tmp_path / "tiny.safetensors")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def follow(tutorial: str) -> list[str]:
    """Run its commands in their order, and give them."""
    text = (TUTORIALS / f"{tutorial}.md").read_text()
    lines = [line for block in re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines()]
    for line in lines:
        sightline, verb, *words = shlex.split(line)
        assert sightline == "sightline"
        if verb == "reproduce":
            words[1:1] = SMALL
        assert commands.main([verb, *words]) in ((0, 1) if verb == "audit" else (0,)), line
    return lines


def test_a_folder_of_holiday_photos_becomes_an_album(folder, capsys):
    (folder / "holiday" / "town").mkdir(parents=True)
    for photo in PHOTOS:
        shutil.copy(photo, folder / "holiday" / ("" if photo.stem == "cat" else "town"))
    verbs = {line.split()[1] for line in follow("album")}
    assert verbs == {"data", "caption", "index", "search", "audit"}
    with (folder / "album" / "captions.csv").open(newline="") as file:
        paths = [row["path"] for row in csv.DictReader(file)]
    assert sorted(Path(path).name for path in paths) == [photo.name for photo in PHOTOS]
    assert (folder / "album" / "captions.html").is_file()
    assert (folder / "holiday" / "cat.jpg.xmp").is_file()
    assert len(list((folder / "album").rglob("*.captioned.jpg"))) == len(PHOTOS)
    assert list((folder / "audited").iterdir())
    assert {photo.id for photo in any_captions(folder / "holiday" / "metadata.jsonl")} == {
        "cat.jpg",
        *(f"town/{photo.name}" for photo in PHOTOS if photo.stem != "cat"),
    }
    assert "holiday/cat.jpg: " in capsys.readouterr().out


def write_coco(folder: Path) -> None:
    """Eight photos in COCO's folders, and Karpathy's file of their captions and splits."""
    images, splits = [], ["train"] * 3 + ["restval"] + ["val"] * 2 + ["test"] * 2
    for i, split in enumerate(splits):
        half = "train2014" if split == "train" else "val2014"
        name = f"COCO_{half}_{i + 1:012d}.jpg"
        (folder / half).mkdir(parents=True, exist_ok=True)
        shutil.copy(PHOTOS[i % len(PHOTOS)], folder / half / name)
        texts = [f"A {thing} is on the table." for thing in ("cat", "cup")]
        sentences = [
            {"raw": text, "tokens": text.lower().strip(".").split(), "imgid": i, "sentid": 2 * i + k}
            for k, text in enumerate(texts)
        ]
        photo = {"filepath": half, "filename": name, "imgid": i, "cocoid": i + 1, "split": split}
        images.append({**photo, "sentids": [2 * i, 2 * i + 1], "sentences": sentences})
    (folder / "dataset_coco.json").write_text(json.dumps({"dataset": "coco", "images": images}))


def test_files_of_coco_become_a_row_of_a_table(folder, capsys):
    write_coco(folder / "coco")
    follow("paper-row")
    shown = capsys.readouterr().out
    assert "cross-entropy: 1 epoch of 1 step" in shown  # of the row that would be run
    assert "Measured on 2 photos of test." in shown
    assert "metrics:bleu+rouge+cider|images:2" in shown
    table = (folder / "runs" / "jran" / "results.md").read_text()
    assert re.search(r"^\| line-6-XE \| here \|(?! – )", table, re.MULTILINE)
    assert "model.region_width=24" in table  # what is not as in the recipe
    (record,) = (folder / "runs" / "records").iterdir()
    assert json.loads(record.read_text())["seeds"] == [0, 1, 2]
    assert (folder / "scores.html").is_file()
