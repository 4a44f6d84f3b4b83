"""`sightline data …`, from the outside: what it prints, writes and refuses."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import caption_samples
from feature_samples import sample_scenes
from sightline import FeatureStore, Scene
from sightline.cli import commands
from sightline.data import bottom_up_tsv
from sightline.data.convert import convert
from sightline.data.formats import FORMATS, identify, inspect
from sightline.errors import ConfigError, DataError, MissingRecordError, UnknownFormatError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def written(path, scenes):
    bottom_up_tsv.write_scenes(path, scenes)
    return path


def test_format_names_are_unique_and_every_caption_format_is_listed_in_its_order():
    names = [format.name for format in FORMATS]
    assert len(set(names)) == len(names)
    order = [names.index(name) for name in caption_samples.NAMES]
    assert order == sorted(order)


def test_inspecting_the_examples_counts_photos_and_captions(capsys):
    assert commands.main(["data", "inspect", str(EXAMPLES)]) == 0
    assert "5 photos, 10 captions" in capsys.readouterr().out


def test_a_folder_of_many_files_is_walked_and_unknown_files_are_told(tmp_path, capsys):
    files = {"a.bin": b"\0\1", "b.json": b'{"x": 1}', "c.json": b"[1, 2]", "d.md": b"# hello", "empty": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "deep" / "nothing").mkdir(parents=True)
    shutil.copy(EXAMPLES / "captions.csv", tmp_path / "deep" / "table.csv")
    assert commands.main(["data", "inspect", str(tmp_path), "--json"]) == 0
    reports = {Path(r["path"]).name: r for r in json.loads(capsys.readouterr().out)}
    assert "a binary file" in reports["a.bin"]["about"]
    assert "a JSON object with the keys x" in reports["b.json"]["about"]
    assert "a JSON list of 2 items" in reports["c.json"]["about"]
    assert "a text file" in reports["d.md"]["about"]
    assert "an empty file" in reports["empty"]["about"]
    assert "an empty folder" in reports["nothing"]["about"]
    assert reports["table.csv"]["format"] == "captions-csv"
    assert reports["table.csv"]["notes"] == ["5 of the photos are not beside it"]


def test_problems_are_listed_in_red_words_and_quiet_shows_only_them(tmp_path, capsys):
    results = [{"image_id": i, "caption": "b'a dog'"} for i in range(30)]
    (tmp_path / "results.json").write_text(json.dumps(results))
    arguments = ["data", "inspect", str(EXAMPLES), str(tmp_path / "results.json"), "--quiet"]
    assert commands.main(arguments) == 1
    shown = capsys.readouterr().out
    assert "5 photos" not in shown
    assert "is a printed bytes object" in shown
    assert "… and 10 more problems" in shown


def test_one_bad_entry_never_stops_the_walk(tmp_path, capsys):
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "fake.json.gz").write_bytes(b"not gzip")
    (tmp_path / "caf\udce9.md").write_text("x")
    shutil.copy(EXAMPLES / "cat.jpg", tmp_path / "cat.jpg")
    (tmp_path / "words.txt").write_text("a dog runs\ntwo cats sleep\n")
    assert commands.main(["data", "inspect", str(tmp_path / "cat.jpg")]) == 1  # named, and in no format
    assert "a JPEG picture" in capsys.readouterr().out
    (tmp_path / "cat.jpg").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "sightline", "data", "inspect", str(tmp_path), "--json"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    reports = {Path(r["path"]).name: r for r in json.loads(done.stdout)}
    assert "a broken link" in reports["gone.json"]["problems"][0]
    assert "neither a file nor a folder" in reports["pipe"]["problems"][0]
    assert "not a gzip file" in reports["fake.json.gz"]["problems"][0]
    assert reports["words.txt"]["format"] == "corpus"
    assert len(reports) == 5


def test_links_to_folders_are_followed_and_circles_end(tmp_path, capsys):
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for folder in (data / "inner", elsewhere):
        folder.mkdir(parents=True)
        (folder / "words.txt").write_text("a dog runs\ntwo cats sleep\n")
        (folder / "other.bin").write_bytes(b"\0")
    (data / "inner" / "again").symlink_to(data)
    (data / "itself").symlink_to(".")
    (data / "linked").symlink_to(elsewhere)
    assert commands.main(["data", "inspect", str(data), "--json"]) == 0
    reports = [Path(report["path"]).relative_to(data).as_posix() for report in json.loads(capsys.readouterr().out)]
    assert reports == ["inner/other.bin", "inner/words.txt", "linked/other.bin", "linked/words.txt"]


def test_what_is_no_file_or_cannot_be_read_is_refused_with_a_fix(tmp_path, capsys, monkeypatch):
    assert commands.main(["data", "inspect", os.devnull]) == 2
    assert "neither a file nor a folder. To fix: name a file" in capsys.readouterr().err
    (tmp_path / "a.csv").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read all
    assert commands.main(["data", "inspect", str(tmp_path / "a.csv")]) == 2
    assert "no permission to read it. To fix: change its permissions" in capsys.readouterr().err


def test_text_in_another_encoding_and_models_are_told_what_they_are(tmp_path, capsys):
    (tmp_path / "words.md").write_bytes("Ein Café mit vielen Gästen".encode("latin-1"))
    (tmp_path / "my model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    assert commands.main(["data", "inspect", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "text that is not UTF-8 (save it as UTF-8)" in told
    assert f"`sightline models '{tmp_path}/my model.safetensors'`" in told


def test_one_of_a_thing_is_counted_as_one(tmp_path, capsys):
    shutil.copy(EXAMPLES / "cat.jpg", tmp_path / "cat.jpg")
    (tmp_path / "captions.csv").write_text("file,caption\ncat.jpg,\n")
    assert commands.main(["data", "inspect", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "1 photo, 1 caption, 1 jpg" in told
    assert "1 caption is empty" in told
    bottom_up_tsv.write_scenes(tmp_path / "a.tsv", sample_scenes(1))
    assert commands.main(["data", "convert", str(tmp_path / "a.tsv"), str(tmp_path / "store")]) == 0
    assert "1 scene as" in capsys.readouterr().out
    assert commands.main(["data", "inspect", str(tmp_path / "a.tsv")]) == 0
    told = capsys.readouterr().out
    assert "1 image, " in told
    assert "1 with boxes" in told


@pytest.mark.parametrize("name", ["b.tsv", "b.h5", "b.lmdb", "b"])
def test_photos_of_folders_in_folders_keep_their_ids_in_every_format(name, tmp_path):
    scenes = [replace(scene, id=f"sub/{scene.id}.jpg") for scene in sample_scenes()]
    convert(written(tmp_path / "a.tsv", scenes), tmp_path / "store")
    convert(tmp_path / "store", tmp_path / name, "npz-folder" if name == "b" else None)
    convert(tmp_path / name, tmp_path / "again")
    assert list(FeatureStore(tmp_path / "again").ids()) == [scene.id for scene in scenes]


def test_an_id_that_would_be_read_as_another_is_refused(tmp_path):
    scenes = [replace(scene, id=f"sub%2F{scene.id}") for scene in sample_scenes(1)]
    source = written(tmp_path / "a.tsv", scenes)
    with pytest.raises(DataError, match="%2F in it, which stands for a slash"):
        convert(source, tmp_path / "b.h5")


def test_gzip_is_written_where_the_name_says_so(tmp_path):
    convert(EXAMPLES, tmp_path / "captions.json.gz", "coco-captions")
    assert (tmp_path / "captions.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert convert(tmp_path / "captions.json.gz", tmp_path / "again.csv.gz").records == 5


def test_parts_that_a_format_does_not_hold_are_told(tmp_path, capsys):
    bottom_up_tsv.write_scenes(tmp_path / "a.tsv", sample_scenes())
    assert commands.main(["data", "convert", str(tmp_path / "a.tsv"), str(tmp_path / "b.lmdb")]) == 0
    assert "note: lmdb does not hold boxes, size; they were left out" in capsys.readouterr().out
    assert convert(tmp_path / "a.tsv", tmp_path / "store").left_out == ()


def test_values_beyond_float16_need_a_store_of_float32(tmp_path, capsys):
    bottom_up_tsv.write_scenes(
        tmp_path / "a.tsv", [Scene("1", boxes=np.zeros((1, 4)), regions=np.full((1, 2), 1e6), size=(9, 9))]
    )
    command = ["data", "convert", str(tmp_path / "a.tsv"), str(tmp_path / "store")]
    assert commands.main(command) == 2
    assert "--dtype float32" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "store")
    assert commands.main([*command, "--dtype", "float32"]) == 0
    assert FeatureStore(tmp_path / "store")["1"].regions.tolist() == [[1e6, 1e6]]


def test_a_terminated_conversion_leaves_no_hidden_file(tmp_path):
    code = (
        "import os, signal, sys; from sightline.cli import commands as cli\n"
        "def stop(scenes):\n"
        "    for n, scene in enumerate(scenes):\n"
        "        yield scene\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "import sightline.vision.photo_reader as reader; reader.progress_bar = lambda title: stop\n"
        "sys.exit(cli.main(['data', 'convert', sys.argv[1], sys.argv[2]]))"
    )
    bottom_up_tsv.write_scenes(tmp_path / "a.tsv", sample_scenes())
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path / "a.tsv"), str(tmp_path / "out" / "b.tsv")]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 143
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_too_broken_to_count_is_reported_not_raised(tmp_path):
    (tmp_path / "captions_x.json").write_text('{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"id"')
    (report,) = inspect(tmp_path / "captions_x.json")
    assert report.format == "coco-captions"
    assert "ends too early" in report.problems[0]


def test_what_no_format_claims_is_refused_by_name(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"\0\0")
    with pytest.raises(UnknownFormatError, match=r"a binary file.*sightline data formats"):
        identify(tmp_path / "x.bin")


def test_features_go_from_tsv_through_the_store_to_every_format_and_back(tmp_path):
    scenes = sample_scenes()
    bottom_up_tsv.write_scenes(tmp_path / "a.tsv", scenes)
    assert convert(tmp_path / "a.tsv", tmp_path / "store").records == 3
    for name in ("b.tsv", "c.hdf5", "d.lmdb"):
        done = convert(tmp_path / "store", tmp_path / name)
        assert (done.kind, done.records) == ("scenes", 3)
        assert convert(tmp_path / name, tmp_path / f"{name[0]}-store").records == 3
        assert [s.id for s in FeatureStore(tmp_path / f"{name[0]}-store")] == [s.id for s in scenes]
        for one, other in zip(
            FeatureStore(tmp_path / f"{name[0]}-store"), FeatureStore(tmp_path / "store"), strict=True
        ):
            assert np.array_equal(one.regions, other.regions)
    half = [s.regions.astype(np.float16) for s in scenes]
    assert all(np.array_equal(a, b.regions) for a, b in zip(half, FeatureStore(tmp_path / "store"), strict=True))


def test_converting_into_a_store_that_was_begun_goes_on_where_it_stopped(tmp_path, capsys):
    scenes = sample_scenes(5)
    bottom_up_tsv.write_scenes(tmp_path / "half.tsv", scenes[:2])
    bottom_up_tsv.write_scenes(tmp_path / "all.tsv", scenes)
    for source in ("half.tsv", "all.tsv", "all.tsv"):
        assert commands.main(["data", "convert", str(tmp_path / source), str(tmp_path / "store"), "--quiet"]) == 0
    assert list(FeatureStore(tmp_path / "store").ids()) == [s.id for s in scenes]
    assert capsys.readouterr().out == ""


def test_captions_convert_and_a_split_can_be_chosen(tmp_path, capsys):
    (tmp_path / "dataset_coco.json").write_text(json.dumps(caption_samples.KARPATHY))
    command = ["data", "convert", str(tmp_path / "dataset_coco.json"), str(tmp_path / "refs.json")]
    assert commands.main([*command, "--to", "coco-captions", "--split", "test", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["kind"], done["records"], done["source_format"]) == ("captions", 1, "karpathy")
    written = json.loads((tmp_path / "refs.json").read_text())
    assert [a["caption"] for a in written["annotations"]] == ["A man.", "A moped."]
    assert commands.main([*command, "--to", "coco-captions"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert commands.main([*command, "--to", "coco-captions", "--force"]) == 0
    assert "2 photos with captions as coco-captions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("destination", "to", "words"),
    [
        ("x.json", None, "does not tell a format"),
        ("x.json", "karpaty", "cannot be written"),
        ("x.tsv", None, "holds captions and bottom-up-tsv can be written from features"),
    ],
)
def test_a_conversion_that_makes_no_sense_is_refused(tmp_path, destination, to, words):
    with pytest.raises(ConfigError, match=words):
        convert(EXAMPLES, tmp_path / destination, to)


def test_features_are_converted_by_split_where_the_format_has_splits(tmp_path):
    bottom_up_tsv.write_scenes(tmp_path / "a.tsv", sample_scenes())
    with pytest.raises(ConfigError, match="no splits"):
        convert(tmp_path / "a.tsv", tmp_path / "store", split="train")
    convert(tmp_path / "a.tsv", tmp_path / "f30k_precomp", "precomp")
    assert convert(tmp_path / "f30k_precomp", tmp_path / "store", split="train").records == 3
    with pytest.raises(MissingRecordError, match="no features of split 'dev'"):
        convert(tmp_path / "f30k_precomp", tmp_path / "dev", split="dev")


def test_repair_drops_damaged_records_so_that_they_can_be_written_again(tmp_path, capsys):
    source, store = tmp_path / "a.tsv", tmp_path / "store"
    bottom_up_tsv.write_scenes(source, sample_scenes())
    convert(source, store)
    data = store / "data-00000.bin"
    raw = bytearray(data.read_bytes())
    raw[10] ^= 0xFF
    data.write_bytes(raw)
    assert commands.main(["data", "inspect", str(store)]) == 1
    assert f"`sightline data repair {store}`" in capsys.readouterr().out
    assert commands.main(["data", "repair", str(store)]) == 0
    assert "1 damaged record dropped" in capsys.readouterr().out
    assert commands.main(["data", "repair", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"store": str(store), "records": 0, "index_lines": 0}
    assert convert(source, store).records == 3
    assert commands.main(["data", "inspect", str(store)]) == 0


def test_a_progress_bar_is_shown_while_features_pass(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes it a terminal
    bottom_up_tsv.write_scenes(tmp_path / "a.tsv", sample_scenes())
    assert commands.main(["data", "convert", str(tmp_path / "a.tsv"), str(tmp_path / "store")]) == 0
    shown = capsys.readouterr()
    assert "converting" in shown.err
    assert "3 scenes as sightline-store, from bottom-up-tsv" in shown.out


def test_formats_are_listed_for_people_and_for_scripts(capsys):
    assert commands.main(["data", "formats", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["bottom-up-tsv"]["writes"] == ["scenes"]
    assert rows["precomp"]["reads"] == ["scenes", "captions"]
    assert commands.main(["data", "formats", "--quiet"]) == 0
    assert capsys.readouterr().out.split() == list(rows)
    assert commands.main(["data", "formats"]) == 0
    assert "[writes captions]" in capsys.readouterr().out


@pytest.mark.data
def test_every_real_file_is_told_and_none_has_a_problem(data_dir, capsys):
    assert commands.main(["data", "inspect", str(data_dir), "--json"]) == 0
    reports = {Path(r["path"]).name: r for r in json.loads(capsys.readouterr().out)}
    unknown = {name for name, report in reports.items() if report["format"] == "unknown"}
    assert unknown <= {"README.md", "reference.json"}
    assert reports["flickr30k_entities_8091.tar.gz"]["counts"]["boxes"] == 52311
    assert reports["captions_train2014.json.gz"]["counts"] == {"photos": 82783, "captions": 414113}
    assert reports["images"]["counts"]["photos"] == 8091
