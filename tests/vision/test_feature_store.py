"""The feature store gives back what it was given, and says clearly what it refuses."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightline.errors import (
    ChecksumError,
    ConfigError,
    DataError,
    DuplicateRecordError,
    MissingRecordError,
    NonFiniteError,
    TruncatedError,
)
from sightline.files import checksum
from sightline.scene import Concept, Scene
from sightline.vision.feature_store import FeatureStore
from sightline.vision.store_layout import Entry, Settings, encode, index_line, shard_name

MAKER = "detector-7"


def a_scene(number: int, regions: int = 3, width: int = 8, dtype: type = np.float16) -> Scene:
    rng = np.random.default_rng(number)
    corners = np.sort(rng.random((regions, 2, 2), dtype=np.float32), axis=1).reshape(regions, 4)
    return Scene(
        f"{number:012d}",
        boxes=corners,
        scores=np.sort(rng.random(regions, dtype=np.float32))[::-1],
        regions=rng.standard_normal((regions, width)).astype(dtype),
        concepts=(Concept("dog", 0.5, (0.0, 0.1, 0.25, 1.0)), Concept("grass")),
        size=(640, 480),
        fingerprint=MAKER,
    )


def make(folder: Path, scenes: list[Scene], **options: Any) -> FeatureStore:
    with FeatureStore.writer(folder, fingerprint=MAKER, **options) as writer:
        for scene in scenes:
            writer.add(scene)
    return FeatureStore(folder)


@st.composite
def scenes(draw: st.DrawFn, dtype: type) -> Scene:
    n = draw(st.integers(0, 5))
    have = draw(st.fixed_dictionaries({k: st.booleans() for k in ("boxes", "scores", "regions", "grid", "vector")}))

    def array(shape: tuple[int, ...], kind: type = dtype, **limits: float) -> np.ndarray:
        width = 16 if kind is np.float16 else 32
        return draw(hnp.arrays(kind, shape, elements=st.floats(width=width, **limits or FINITE)))

    unit = {"min_value": 0, "max_value": 1}
    height, across = draw(st.integers(0, 2)), draw(st.integers(1, 2))
    box = st.tuples(*[st.floats(0, 1)] * 4) | st.none()
    concept = st.builds(Concept, ANY_TEXT, st.floats(allow_nan=False, allow_infinity=False), box)
    return Scene(
        draw(ANY_TEXT),
        boxes=np.sort(array((n, 2, 2), np.float32, **unit), axis=1).reshape(n, 4) if have["boxes"] else None,
        scores=np.sort(array((n,), np.float32))[::-1] if have["scores"] else None,
        regions=array((n, draw(st.integers(1, 4)))) if have["regions"] else None,
        grid=array((height * across, 2)) if have["grid"] else None,
        grid_shape=(height, across) if have["grid"] else None,
        vector=array((draw(st.integers(0, 9)),)) if have["vector"] else None,
        concepts=tuple(draw(st.lists(concept, max_size=3))),
        size=draw(st.none() | st.tuples(st.integers(1, 10000), st.integers(1, 10000))),
        fingerprint=MAKER,
    )


FINITE: dict[str, Any] = {"allow_nan": False, "allow_infinity": False}
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates too: file names may hold them


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@settings(max_examples=30)
@given(data=st.data())
def test_any_scene_comes_back_bit_for_bit(dtype: str, data: st.DataObject) -> None:
    kind = np.dtype(dtype).type
    given_scenes = data.draw(st.lists(scenes(kind), max_size=2, unique_by=lambda scene: scene.id))
    with tempfile.TemporaryDirectory() as folder:
        store = make(Path(folder, "store"), given_scenes, dtype=dtype)
        assert list(store) == given_scenes
        assert list(store.ids()) == [scene.id for scene in given_scenes]
        for scene in given_scenes:
            back = store[scene.id]
            assert back == scene
            assert back.source == str(store.path)
            for name in ("boxes", "scores", "regions", "grid", "vector"):
                one, other = getattr(back, name), getattr(scene, name)
                assert (one is None and other is None) or one.tobytes() == other.tobytes()


def test_float32_features_are_rounded_to_float16_but_boxes_and_scores_are_kept(tmp_path: Path) -> None:
    scene = a_scene(1, dtype=np.float32)
    back = make(tmp_path, [scene])[scene.id]
    assert back.regions.dtype == np.float16
    assert np.array_equal(back.regions, scene.regions.astype(np.float16))
    assert not np.array_equal(back.regions, scene.regions)
    assert np.array_equal(back.boxes, scene.boxes)
    assert np.array_equal(back.scores, scene.scores)


@pytest.mark.parametrize("value", [65505.0, -65505.0, 1e30])
def test_a_value_beyond_float16_is_refused_not_clipped(tmp_path: Path, value: float) -> None:
    regions = np.zeros((2, 3), np.float32)
    regions[1, 2] = value
    with pytest.raises(DataError, match=r"`regions` holds .* at \[1, 2\].*65504.*--dtype float32"):
        make(tmp_path, [Scene("a", regions=regions, fingerprint=MAKER)])
    assert len(FeatureStore(tmp_path)) == 0
    kept = make(tmp_path / "wide", [Scene("a", regions=regions, fingerprint=MAKER)], dtype="float32")["a"]
    assert kept.regions[1, 2] == np.float32(value)


def test_the_largest_float16_is_kept_and_a_score_beyond_float32_is_refused(tmp_path: Path) -> None:
    edge = Scene("edge", vector=np.array([65504.0, -65504.0], np.float32), fingerprint=MAKER)
    assert make(tmp_path, [edge])["edge"].vector.tolist() == [65504.0, -65504.0]
    with pytest.raises(DataError, match=r"`scores` holds 1e\+300.*scale"):
        make(tmp_path, [Scene("b", scores=np.array([1e300]), fingerprint=MAKER)])


def test_a_concept_score_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="image a: a concept's score"):
        make(tmp_path, [Scene("a", concepts=(Concept("dog", float("nan")),), fingerprint=MAKER)])


def test_numpy_numbers_in_sizes_and_concepts_are_stored_as_plain_ones(tmp_path: Path) -> None:
    box = tuple(np.float32([0.25, 0.5, 0.75, 1]))
    concepts = (Concept("dog", np.float32(0.1), box),)
    scene = Scene("a", concepts=concepts, size=tuple(np.array([4, 3])), fingerprint=MAKER)
    assert make(tmp_path, [scene])["a"] == scene


def test_arrays_are_read_only_aligned_in_the_file_and_keep_what_was_read(tmp_path: Path) -> None:
    store = make(tmp_path, [a_scene(1)])
    regions = store[a_scene(1).id].regions
    assert not regions.flags.writeable
    data = tmp_path / shard_name(0)
    raw = bytearray(data.read_bytes())
    at = raw.find(regions.tobytes())
    assert at % 64 == 0
    with data.open("r+b") as file:
        file.seek(at)
        file.write(np.float16(7).tobytes())
    assert regions[0, 0] == a_scene(1).regions[0, 0] != 7


def test_an_empty_store_opens_and_holds_nothing(tmp_path: Path) -> None:
    store = make(tmp_path / "deep" / "store", [])
    assert len(store) == 0
    assert list(store) == []
    assert store.ids() == ()
    assert store.verify() == {}
    with pytest.raises(MissingRecordError, match="no image cat among the 0 scenes"):
        store["cat"]


def test_a_stopped_run_is_resumed_by_skipping_what_is_there(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(n) for n in range(3)])
    with FeatureStore.writer(tmp_path, fingerprint=MAKER) as writer:
        assert len(writer) == 3
        for n in range(5):
            scene = a_scene(n)
            assert (scene.id in writer) == (n < 3)
            if scene.id not in writer:
                writer.add(scene)
    assert list(FeatureStore(tmp_path)) == [a_scene(n) for n in range(5)]


def test_an_id_is_added_once(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(1)])
    with (
        FeatureStore.writer(tmp_path, fingerprint=MAKER) as writer,
        pytest.raises(DuplicateRecordError, match="000000000001 is in the store already"),
    ):
        writer.add(a_scene(1))
    assert len(FeatureStore(tmp_path)) == 1


def test_scenes_of_another_maker_are_refused(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(1)])
    with (
        pytest.raises(DataError, match=r"made by detector-7.*made by detector-8.*another folder"),
        FeatureStore.writer(tmp_path, fingerprint="detector-8"),
    ):
        pass
    with pytest.raises(DataError, match=r"image a: .*made by detector-7.*made by \(unknown\)"):
        make(tmp_path, [Scene("a", vector=np.zeros(2, np.float16))])
    assert FeatureStore(tmp_path).fingerprint == MAKER


def test_the_number_type_of_a_store_cannot_change(tmp_path: Path) -> None:
    assert make(tmp_path, [a_scene(1)], dtype="float32").dtype == "float32"
    with pytest.raises(DataError, match="holds float32, and float16 was asked for"):
        make(tmp_path, [], dtype="float16")
    assert make(tmp_path, [a_scene(2)]).dtype == "float32"
    with pytest.raises(ConfigError, match="cannot hold 'int8'"):
        make(tmp_path / "new", [], dtype="int8")


def test_records_continue_in_further_files_when_one_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.vision.feature_store.SHARD_BYTES", 1000)
    given_scenes = [a_scene(n) for n in range(7)]
    make(tmp_path, given_scenes[:4])
    store = make(tmp_path, given_scenes[4:])
    assert len(list(tmp_path.glob("data-*.bin"))) > 2
    assert all(file.stat().st_size <= 1000 for file in tmp_path.glob("data-*.bin"))
    assert list(store) == given_scenes


def test_a_store_crosses_to_another_process(tmp_path: Path) -> None:
    store = make(tmp_path, [a_scene(n) for n in range(4)])
    assert list(pickle.loads(pickle.dumps(store))) == list(store)


def test_a_store_is_read_while_it_is_written(tmp_path: Path) -> None:
    with FeatureStore.writer(tmp_path, fingerprint=MAKER, flush_every=2) as writer:
        for n in range(5):
            writer.add(a_scene(n))
            assert list(FeatureStore(tmp_path)) == [a_scene(k) for k in range((n + 1) // 2 * 2)]
        early = FeatureStore(tmp_path)
        writer.flush()
        assert len(early) == 4
        assert len(FeatureStore(tmp_path)) == 5


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with FeatureStore.writer(tmp_path, fingerprint=MAKER) as writer:
        writer.add(a_scene(1))
        code = "import sys; from sightline.vision.feature_store import FeatureStore as F; F.repair(sys.argv[1])"
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert "another process is writing here" in other.stderr
        with pytest.raises(DataError, match="another process is writing here"):
            make(tmp_path, [a_scene(2)])
    assert list(make(tmp_path, [a_scene(2)])) == [a_scene(1), a_scene(2)]


def test_a_folder_that_is_no_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        FeatureStore(tmp_path / "missing")
    (tmp_path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match=r"not a feature store: it holds no store\.json"):
        FeatureStore(tmp_path)
    with pytest.raises(DataError, match=r"not empty \(it holds photo\.jpg\)"):
        make(tmp_path, [])
    with pytest.raises(DataError, match="a store is a folder"):
        make(tmp_path / "photo.jpg", [])
    assert [p.name for p in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_writer_stopped_before_the_settings_were_written_can_start_again(tmp_path: Path) -> None:
    for name in (".lock", "index.jsonl", ".sightline-41933e46.tmp"):
        (tmp_path / name).touch()
    assert list(make(tmp_path, [a_scene(1)])) == [a_scene(1)]


def test_settings_from_the_future_foreign_or_damaged_are_refused(tmp_path: Path) -> None:
    make(tmp_path, [])
    said = json.loads((tmp_path / "store.json").read_text())
    for change, error, told in (
        ({"version": 2}, DataError, "version 2, and this Sightline reads up to 1.*upgrade"),
        ({"format": "other"}, DataError, "not the settings file"),
        ({"dtype": "float32"}, ChecksumError, "settings are damaged"),
        ({"fingerprint": "detector-8"}, ChecksumError, "settings are damaged"),
    ):
        (tmp_path / "store.json").write_text(json.dumps({**said, **change}))
        with pytest.raises(error, match=told):
            FeatureStore(tmp_path)


def test_a_store_whose_index_is_lost_does_not_look_empty(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(1)])
    (tmp_path / "index.jsonl").unlink()
    with pytest.raises(DataError, match=r"index\.jsonl: no such file"):
        FeatureStore(tmp_path)


def test_two_different_records_of_one_id_are_refused(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(1)])
    with (tmp_path / "index.jsonl").open("ab") as file:
        file.write(index_line([Entry(a_scene(1).id, 0, 64, 3, 64, 5)]))
    with pytest.raises(DuplicateRecordError, match="image 000000000001 has two different records"):
        FeatureStore(tmp_path)


def test_a_flipped_byte_anywhere_in_a_record_is_noticed_and_repaired(tmp_path: Path) -> None:
    given_scenes = [a_scene(n) for n in range(3)]
    store = make(tmp_path, given_scenes)
    data = tmp_path / shard_name(0)
    whole = data.read_bytes()
    size = len(whole) // 3
    rng = np.random.default_rng(0)
    for at in rng.integers(size, 2 * size, 40).tolist():
        raw = bytearray(whole)
        raw[at] ^= 1 << int(rng.integers(8))
        data.write_bytes(raw)
        opened = FeatureStore(tmp_path)
        with pytest.raises(ChecksumError) as caught:
            opened[given_scenes[1].id]
        assert all(word in str(caught.value) for word in ("image 000000000001", data.name, f"byte {size}", "extract"))
        assert opened[given_scenes[2].id] == given_scenes[2]
        assert list(opened.verify()) == [given_scenes[1].id]
        assert store.verify().keys() == opened.verify().keys()
    assert FeatureStore.repair(tmp_path) == (1, 0)
    assert FeatureStore(tmp_path).ids() == (given_scenes[0].id, given_scenes[2].id)
    assert make(tmp_path, [given_scenes[1]])[given_scenes[1].id] == given_scenes[1]
    assert FeatureStore.repair(tmp_path) == (0, 0)


def test_a_flipped_byte_in_the_index_is_noticed_and_repaired(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(n) for n in range(3)], flush_every=1)
    index = tmp_path / "index.jsonl"
    whole = index.read_bytes()
    second = whole.index(b"\n") + 1
    for at in range(second, whole.index(b"\n", second)):
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        with pytest.raises(ChecksumError, match=r"index\.jsonl: line 2 is damaged \(damaged lines in all: 1\).*repair"):
            FeatureStore(tmp_path)
        with pytest.raises(ChecksumError, match="line 2 is damaged"):
            make(tmp_path, [])
    assert FeatureStore.repair(tmp_path) == (0, 1)
    assert list(FeatureStore(tmp_path)) == [a_scene(0), a_scene(2)]


def test_without_verifying_nonsense_is_still_an_error_that_names_the_record(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(1)])
    data = tmp_path / shard_name(0)
    raw = data.read_bytes()
    data.write_bytes(b"\xff" + raw[1:])
    with pytest.raises(ChecksumError, match="image 000000000001 is damaged"):
        FeatureStore(tmp_path, verify=False)[a_scene(1).id]
    data.write_bytes(raw[:-1] + b"\1")
    assert FeatureStore(tmp_path, verify=False)[a_scene(1).id] == a_scene(1)


@pytest.mark.parametrize("left", [None, 0, 70])
def test_a_data_file_that_is_missing_or_cut_names_the_record(tmp_path: Path, left: int | None) -> None:
    make(tmp_path, [a_scene(1)])
    data = tmp_path / shard_name(0)
    if left is None:
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:left])
    with pytest.raises(TruncatedError, match=r"image 000000000001.*copy the store again"):
        FeatureStore(tmp_path)[a_scene(1).id]
    assert list(FeatureStore(tmp_path).verify()) == [a_scene(1).id]


ITERATE = """
import sys
from pathlib import Path
from sightline.vision.feature_store import FeatureStore
def resident(): return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) >> 10
before = resident()
count = sum(1 for _ in FeatureStore(sys.argv[1]))
print(count, resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_reading_a_large_store_keeps_little_of_it_resident(tmp_path: Path) -> None:
    zeros = np.zeros((100, 16384), np.float16)
    record, meta = encode(Scene("0", regions=zeros), "float16")
    count = (300 << 20) // len(record)
    Settings("float16", "").write(tmp_path)
    crc = checksum(record)
    lines = [index_line([Entry(str(n), 0, n * len(record), meta, len(record), crc)]) for n in range(count)]
    (tmp_path / "index.jsonl").write_bytes(b"".join(lines))
    with (tmp_path / shard_name(0)).open("wb") as file:  # sparse: only the JSON of each record takes room on the disk
        for n in range(count):
            file.seek(n * len(record))
            file.write(record[:meta])
        file.truncate(count * len(record))
    told = subprocess.run([sys.executable, "-c", ITERATE, str(tmp_path)], capture_output=True, text=True, check=True)
    read, megabytes = map(int, told.stdout.split())
    assert read == count
    assert megabytes < 200


def test_a_line_written_twice_by_an_interrupted_flush_counts_once(tmp_path: Path) -> None:
    make(tmp_path, [a_scene(1), a_scene(2)])
    index = tmp_path / "index.jsonl"
    index.write_bytes(index.read_bytes() * 2)
    assert list(FeatureStore(tmp_path)) == [a_scene(1), a_scene(2)]
