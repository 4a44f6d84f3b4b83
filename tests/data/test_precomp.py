"""`*_precomp` folders: features, captions, and how their lines belong together."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_samples import assert_same_scenes, read_in_forked_process, sample_scenes, scene_lists
from sightline.data.format import Probe
from sightline.data.precomp import FORMAT, PrecompFeatures, read_captions, write_scenes
from sightline.errors import (
    ByteStringError,
    CountError,
    DataError,
    DuplicateRecordError,
    MissingPartError,
    MissingRecordError,
    NonFiniteError,
    TruncatedError,
)
from sightline.scene import Scene

FEATURES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
CAPTIONS = [f"caption {number} of the split" for number in range(10)]


def lines(path: Path, *texts: str) -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def precomp(folder: Path, split: str = "train", ids: tuple[str, ...] = ("40", "41")) -> Path:
    folder.mkdir(exist_ok=True)
    np.save(folder / f"{split}_ims.npy", FEATURES)
    lines(folder / f"{split}_caps.txt", *CAPTIONS)
    lines(folder / f"{split}_ids.txt", *ids)
    return folder


def pos_scan(folder: Path, split: str = "train") -> Path:
    h5py = pytest.importorskip("h5py")
    precomp(folder, split)
    (folder / f"{split}_ims.npy").unlink()
    with h5py.File(folder / f"{split}_ims.h5", "w") as file:
        file["feats"] = FEATURES
    with h5py.File(folder / f"{split}_ims_box.h5", "w") as file:
        file["boxes"] = np.tile(np.array([0, 0, 320, 240], np.float32), (2, 3, 1))
    (folder / f"{split}_files.json").write_text(json.dumps(["a.jpg", "b.jpg"]))
    lines(folder / f"{split}_tags.txt", *["NN CD IN DT NN"] * 10)
    return folder


def test_features_and_captions_belong_to_the_same_ids(tmp_path: Path) -> None:
    folder = precomp(tmp_path)
    source, captions = PrecompFeatures(folder, "train"), read_captions(folder)
    assert source.ids() == ["40", "41"] == [photo.id for photo in captions]
    np.testing.assert_array_equal(source["41"].regions, FEATURES[1])
    assert [sentence.text for sentence in captions["41"].sentences] == CAPTIONS[5:]
    assert captions["41"].split == "train"
    assert captions["41"].sentences[0].tokens is None


@given(data=st.data())
def test_what_is_written_is_read_by_iteration_and_by_id(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenes = data.draw(scene_lists(same_count=True))
    path = tmp_path_factory.mktemp("precomp") / "x_precomp"
    assert write_scenes(path, scenes) == len(scenes)
    source = PrecompFeatures(path)
    assert_same_scenes(list(source), scenes)
    assert_same_scenes([source[scene.id] for scene in scenes], scenes)
    stored = np.load(path / "train_ims.npy")
    assert stored.dtype == scenes[0].regions.dtype
    np.testing.assert_array_equal(stored, np.stack([scene.regions for scene in scenes]))


def test_vectors_are_written_and_read_where_there_are_no_regions(tmp_path: Path) -> None:
    scenes = [Scene(id, vector=np.full(4, int(id), np.float32)) for id in ("1", "2")]
    write_scenes(tmp_path / "x", scenes)
    assert list(PrecompFeatures(tmp_path / "x")) == scenes


def test_one_row_a_caption_is_one_caption_an_image(tmp_path: Path) -> None:
    folder = precomp(tmp_path)
    np.save(folder / "train_ims.npy", np.ones((10, 4), np.float32))
    (folder / "train_ids.txt").unlink()
    captions = read_captions(folder)
    assert [len(photo.sentences) for photo in captions] == [1] * 10
    assert captions["9"].sentences[0].text == CAPTIONS[9]
    assert PrecompFeatures(folder)["9"].vector is not None


def test_an_id_may_be_written_once_a_caption(tmp_path: Path) -> None:
    folder = precomp(tmp_path, ids=("40",) * 5 + ("41",) * 5)
    assert PrecompFeatures(folder).ids() == ["40", "41"]
    assert [photo.id for photo in read_captions(folder)] == ["40", "41"]


def test_ids_that_splits_share_are_written_with_the_split(tmp_path: Path) -> None:
    folder = precomp(precomp(tmp_path, "test"), "testall")
    expected = ["test/40", "test/41", "testall/40", "testall/41"]
    assert PrecompFeatures(folder).ids() == expected
    assert [photo.id for photo in read_captions(folder)] == expected
    assert [photo.id for photo in read_captions(folder).split("test")] == expected[:2]
    assert any("split/id" in note for note in FORMAT.inspect(folder).notes)


def test_the_ids_of_one_split_are_as_they_are_stored(tmp_path: Path) -> None:
    folder = precomp(precomp(tmp_path, "test"), "testall")
    source = PrecompFeatures(folder, "testall")
    assert source.ids() == ["40", "41"]
    assert source.notes() == ()
    assert [photo.id for photo in read_captions(folder, split="testall")] == ["40", "41"]
    with pytest.raises(MissingRecordError, match="no split 'dev'"):
        read_captions(folder, split="dev")


def test_a_split_without_features_and_other_files_are_noted(tmp_path: Path) -> None:
    folder = precomp(precomp(tmp_path), "dev", ids=("50", "51"))
    (folder / "dev_ims.npy").unlink()
    (folder / "vocab.json").write_text("{}")
    report = FORMAT.inspect(folder)
    assert report.problem_count == 0
    assert report.notes == (
        "captions without features (no _ims.npy or _ims.h5): dev",
        "other files here, to be named one by one: vocab.json",
    )


def test_splits_of_two_widths_are_a_problem(tmp_path: Path) -> None:
    folder = precomp(precomp(tmp_path), "dev", ids=("50", "51"))
    np.save(folder / "dev_ims.npy", FEATURES[..., :3])
    with pytest.raises(CountError, match=r"split dev, row 0, image 50: .* 3 wide, those of the first image 4"):
        list(PrecompFeatures(folder))
    assert len(list(PrecompFeatures(folder, "dev"))) == 2
    assert FORMAT.inspect(folder).problem_count == 2


def test_ids_that_differ_are_left_as_they_are(tmp_path: Path) -> None:
    folder = precomp(precomp(tmp_path, "train"), "dev", ids=("50", "51"))
    assert PrecompFeatures(folder).ids() == ["40", "41", "50", "51"]


def test_rows_are_numbered_where_there_are_no_ids(tmp_path: Path) -> None:
    folder = precomp(tmp_path)
    (folder / "train_ids.txt").unlink()
    assert PrecompFeatures(folder).ids() == ["0", "1"]


def test_the_pos_scan_variant_has_tags_and_files(tmp_path: Path) -> None:
    folder = pos_scan(tmp_path)
    photo = read_captions(folder)["41"]
    assert photo.file == "b.jpg"
    assert photo.sentences[0].tokens == ("caption", "5", "of", "the", "split")
    assert photo.sentences[0].tags == ("NN", "CD", "IN", "DT", "NN")
    np.testing.assert_array_equal(PrecompFeatures(folder)["41"].regions, FEATURES[1])
    assert "boxes left out: they are in pixels, and no image size is stored" in FORMAT.inspect(folder).notes
    assert read_in_forked_process(PrecompFeatures(folder), "41").id == "41"


def test_captions_may_come_without_features(tmp_path: Path) -> None:
    folder = precomp(tmp_path, ids=("40",) * 5 + ("41",) * 5)
    (folder / "train_ims.npy").unlink()
    assert [len(photo.sentences) for photo in read_captions(folder)] == [5, 5]
    with pytest.raises(MissingRecordError, match="no features"):
        PrecompFeatures(folder)
    report = FORMAT.inspect(folder)
    assert report.problem_count == 0
    assert report.counts["captions"] == 10


def test_features_may_come_without_captions(tmp_path: Path) -> None:
    folder = precomp(tmp_path)
    (folder / "train_caps.txt").unlink()
    assert len(read_captions(folder)) == 0
    assert FORMAT.inspect(folder).counts["images"] == 2


def test_only_a_line_feed_ends_a_caption(tmp_path: Path) -> None:
    folder = precomp(tmp_path)
    odd = ["a\rb", "c\u2028d", "e\x0cf", *CAPTIONS[3:]]
    (folder / "train_caps.txt").write_bytes("\r\n".join(odd).encode())
    assert [sentence.text for sentence in read_captions(folder).sentences()] == odd


def test_empty_captions_keep_their_place_and_are_noted(tmp_path: Path) -> None:
    folder = precomp(tmp_path)
    lines(folder / "train_caps.txt", *CAPTIONS[:4], "", *CAPTIONS[5:])
    assert [len(photo.sentences) for photo in read_captions(folder)] == [5, 5]
    assert any("1 caption is an empty line" in note for note in FORMAT.inspect(folder).notes)


def _nan(folder: Path) -> None:
    broken = FEATURES.copy()
    broken[1, 2, 3] = np.nan
    np.save(folder / "train_ims.npy", broken)


def _cut(folder: Path) -> None:
    path = folder / "train_ims.npy"
    path.write_bytes(path.read_bytes()[:-5])


def _objects(folder: Path) -> None:
    np.save(folder / "train_ims.npy", np.array([{}, {}], dtype=object), allow_pickle=True)


SCENES: dict[str, tuple[type[DataError], str, Callable[[Path], object]]] = {
    "cut features": (TruncatedError, "last whole row is 0", _cut),
    "NaN": (NonFiniteError, "split train, row 1, image 41", _nan),
    "pickled objects": (DataError, "train_ims.npy", _objects),
    "columns first": (
        DataError,
        "train_ims.npy",
        lambda folder: np.save(folder / "train_ims.npy", np.asfortranarray(FEATURES)),
    ),
    "no array": (DataError, "train_ims.npy", lambda folder: (folder / "train_ims.npy").write_bytes(b"nothing" * 9)),
    "whole numbers": (
        DataError,
        "row 0",
        lambda folder: np.save(folder / "train_ims.npy", np.ones((2, 3, 4), np.int8)),
    ),
    "one id too many": (CountError, "3 entries for 2 images", lambda f: lines(f / "train_ids.txt", "1", "2", "3")),
    "an id twice": (DuplicateRecordError, "train_ids.txt", lambda f: lines(f / "train_ids.txt", "1", "1")),
    "five ids that differ": (
        CountError,
        "line 5 is '2'",
        lambda f: lines(f / "train_ids.txt", *"1111211111"),
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_damaged_features_are_named_by_reading_and_listed_by_inspection(name: str, tmp_path: Path) -> None:
    kind, words, damage = SCENES[name]
    folder = precomp(tmp_path)
    damage(folder)
    with pytest.raises(DataError) as caught:
        list(PrecompFeatures(folder))
    assert type(caught.value) is kind
    assert str(folder) in str(caught.value)
    assert words in str(caught.value)
    assert FORMAT.matches(Probe(folder))
    assert str(caught.value) in FORMAT.inspect(folder).problems


CAPTION_FILES: dict[str, tuple[type[DataError], str, Callable[[Path], object]]] = {
    "a caption too few": (CountError, "9 captions for 2 images", lambda f: lines(f / "train_caps.txt", *CAPTIONS[:9])),
    "printed bytes": (
        ByteStringError,
        "train_caps.txt, line 3",
        lambda f: lines(f / "train_caps.txt", *CAPTIONS[:2], "b'a man'", *CAPTIONS[3:]),
    ),
    "latin-1": (
        DataError,
        "train_caps.txt, line 1",
        lambda f: (f / "train_caps.txt").write_bytes(b"caf\xe9\n" + b"x\n" * 9),
    ),
    "a tag too few": (
        CountError,
        "train_tags.txt, line 2",
        lambda f: lines(f / "train_tags.txt", "NN CD IN DT NN", "NN CD IN DT", *["NN CD IN DT NN"] * 8),
    ),
    "a line of tags too few": (
        CountError,
        "9 lines of tags for 10 captions",
        lambda f: lines(f / "train_tags.txt", *["NN CD IN DT NN"] * 9),
    ),
    "a file name too few": (
        CountError,
        "train_files.json",
        lambda f: (f / "train_files.json").write_text('["a.jpg"]'),
    ),
    "no list of files": (DataError, "train_files.json", lambda f: (f / "train_files.json").write_text('{"a": 1}')),
    "neither features nor ids": (
        MissingRecordError,
        "train_caps.txt",
        lambda f: ((f / "train_ims.npy").unlink(), (f / "train_ids.txt").unlink()),
    ),
}


@pytest.mark.parametrize("name", CAPTION_FILES)
def test_damaged_captions_are_named_by_reading_and_listed_by_inspection(name: str, tmp_path: Path) -> None:
    kind, words, damage = CAPTION_FILES[name]
    folder = precomp(tmp_path)
    damage(folder)
    with pytest.raises(DataError) as caught:
        read_captions(folder)
    assert type(caught.value) is kind
    assert str(folder) in str(caught.value)
    assert words in str(caught.value)
    assert FORMAT.inspect(folder).problems == (str(caught.value),)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("feats", 0.5, "no rows"), ("feats", None, "but a group"), ("bogus", [1.0], "no rows in a dataset 'feats'")],
)
def test_features_of_the_pos_scan_variant_are_checked(name: str, value: object, message: str, tmp_path: Path) -> None:
    import h5py

    folder = pos_scan(tmp_path)
    with h5py.File(folder / "train_ims.h5", "w") as file:
        file.create_group(name) if value is None else file.create_dataset(name, data=value)
    with pytest.raises(DataError, match=rf"train_ims\.h5: .*{message}"):
        PrecompFeatures(folder)


def test_a_missing_split_or_id_is_named(tmp_path: Path) -> None:
    folder = precomp(tmp_path)
    with pytest.raises(MissingRecordError, match=r"no features of split 'test'.*splits found: train"):
        PrecompFeatures(folder, "test")
    with pytest.raises(MissingRecordError, match="no features of image 42 "):
        PrecompFeatures(folder)["42"]


def test_a_file_cut_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    source = PrecompFeatures(precomp(tmp_path))
    _cut(tmp_path)
    with pytest.raises(TruncatedError, match="row 1"):
        source["41"]


def test_inspection_counts_both_sides(tmp_path: Path) -> None:
    report = FORMAT.inspect(precomp(tmp_path))
    assert report.problem_count == 0
    assert report.counts["images"] == 2
    assert report.counts["captions"] == 10
    assert report.counts["regions per image"] == "3"
    assert report.counts["splits"] == "train 2"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: sample_scenes(1) * 2, DuplicateRecordError),
        (lambda: [*sample_scenes(1, regions=2), Scene("2", regions=np.ones((3, 4), np.float32))], CountError),
        (lambda: [*sample_scenes(1), Scene("2", regions=np.ones((2, 4), np.float16))], CountError),
        (lambda: [Scene("2")], MissingPartError),
        (lambda: [Scene("a\nb", regions=np.ones((2, 4)))], DataError),
    ],
)
def test_a_scene_that_does_not_fit_leaves_nothing_behind(
    make: Callable[[], list[Scene]], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        write_scenes(tmp_path / "x", make())
    assert list(tmp_path.iterdir()) == []


def test_a_source_goes_to_worker_processes(tmp_path: Path) -> None:
    source = PrecompFeatures(precomp(tmp_path))
    assert pickle.loads(pickle.dumps(source))["41"] == source["41"]
