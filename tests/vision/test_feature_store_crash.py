"""Whatever stops a writer, the feature store stays readable and the next run finishes it."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sightline.errors import DataError, TruncatedError
from sightline.scene import Concept, Scene
from sightline.vision import feature_store
from sightline.vision.feature_store import FeatureStore
from sightline.vision.store_layout import Index, shard_name

SCENES = 60
RUN = "import sys; sys.path.insert(0, '..'); import test_feature_store_crash as t; t.work(sys.argv[1])"
FILL = (
    "import sys; sys.path.insert(0, '..'); import test_feature_store_crash as t; t.fill(sys.argv[1], int(sys.argv[2]))"
)


def a_scene(number: int) -> Scene:
    rng = np.random.default_rng(number)
    return Scene(
        f"photo {number}.jpg",
        regions=rng.standard_normal((2 + number % 5, 2048)).astype(np.float16),
        grid=rng.standard_normal((4, 64)).astype(np.float16),
        grid_shape=(2, 2),
        concepts=(Concept("chien", 0.5), Concept("犬")) if number % 2 else (),
        fingerprint="maker",
    )


def work(folder: str) -> None:
    """Add what is missing, saying so after each record that is safe; runs in a child process."""
    feature_store.SHARD_BYTES = 150_000
    with FeatureStore.writer(folder, fingerprint="maker", flush_every=3) as writer:
        for number in range(SCENES):
            scene = a_scene(number)
            if scene.id not in writer:
                writer.add(scene)
                if number % 7 == 0:
                    writer.flush()
                    print(scene.id, flush=True)
    print("done", flush=True)


def fill(folder: str, limit: int) -> None:
    """Add scenes until no file may grow further; runs in a child process."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        with FeatureStore.writer(folder, fingerprint="maker", flush_every=100) as writer:
            for number in range(SCENES):
                if a_scene(number).id not in writer:
                    writer.add(a_scene(number))
    except DataError as error:
        print(error)


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize("seed", range(2))
def test_a_writer_killed_again_and_again_loses_nothing_that_was_flushed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    folder, safe, finished = tmp_path / "store", set[str](), False
    for _ in range(5):
        with child(RUN, str(folder)) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, 2)):
                safe.add(process.stdout.readline().strip())
            time.sleep(chance.random() * 0.004)
            process.kill()
            safe.update(process.stdout.read().split("\n")[:-1])
        finished = "done" in safe
        safe -= {"done", ""}
        store = FeatureStore(folder)
        assert safe <= set(store.ids())
        assert store.ids() == tuple(a_scene(n).id for n in range(len(store)))
        assert list(store) == [a_scene(n) for n in range(len(store))]
        if finished:
            break
    work(str(folder))
    assert list(FeatureStore(folder)) == [a_scene(n) for n in range(SCENES)]
    assert FeatureStore(folder).verify() == {}


def three(folder: Path) -> list[Scene]:
    with FeatureStore.writer(folder, fingerprint="maker", flush_every=1) as writer:
        scenes = [Scene(f"é{n}", vector=np.full(5, n, np.float16), fingerprint="maker") for n in range(3)]
        for scene in scenes:
            writer.add(scene)
    return scenes


def test_an_index_cut_at_any_byte_of_its_last_lines_keeps_the_earlier_records(tmp_path: Path) -> None:
    scenes = three(tmp_path / "store")
    index = tmp_path / "store" / "index.jsonl"
    whole = index.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(ends[0], len(whole)):
        index.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        assert list(FeatureStore(tmp_path / "store")) == scenes[:kept]
    for cut in range(ends[1], len(whole), 7):
        copy = tmp_path / f"cut at {cut}"
        shutil.copytree(tmp_path / "store", copy)
        (copy / "index.jsonl").write_bytes(whole[:cut])
        with FeatureStore.writer(copy, fingerprint="maker") as writer:
            assert scenes[2].id not in writer
            writer.add(scenes[2])
        assert list(FeatureStore(copy)) == scenes


def test_a_data_file_cut_at_any_byte_of_its_last_record_keeps_the_earlier_records(tmp_path: Path) -> None:
    scenes = three(tmp_path)
    data = tmp_path / shard_name(0)
    whole = data.read_bytes()
    for cut in range(len(whole) - len(whole) // 3, len(whole)):
        data.write_bytes(whole[:cut])
        store = FeatureStore(tmp_path)
        assert [store[scene.id] for scene in scenes[:2]] == scenes[:2]
        with pytest.raises(TruncatedError, match=f"ends at byte {cut}"):
            store[scenes[2].id]
    assert sum(FeatureStore.repair(tmp_path)) == 1
    with FeatureStore.writer(tmp_path, fingerprint="maker") as writer:
        writer.add(scenes[2])
    assert list(FeatureStore(tmp_path)) == scenes


def test_records_written_after_a_torn_one_start_on_a_multiple_of_64(tmp_path: Path) -> None:
    three(tmp_path)
    with (tmp_path / shard_name(0)).open("ab") as file:
        file.write(b"half a record")
    later = Scene("later", vector=np.arange(7, dtype=np.float16), fingerprint="maker")
    with FeatureStore.writer(tmp_path, fingerprint="maker") as writer:
        writer.add(later)
    assert FeatureStore(tmp_path)["later"] == later
    assert Index.read(tmp_path).entries["later"].offset % 64 == 0


def test_an_exception_in_the_middle_keeps_the_records_added_before_it(tmp_path: Path) -> None:
    def interrupted() -> None:
        with FeatureStore.writer(tmp_path, fingerprint="maker") as writer:
            writer.add(a_scene(0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(FeatureStore(tmp_path)) == [a_scene(0)]


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a Unix thing")
def test_a_full_disk_leaves_a_readable_store_that_can_be_finished(tmp_path: Path) -> None:
    for limit in (100_000, 300_001, 300_003):
        with child(FILL, str(tmp_path), str(limit)) as process:
            told, _ = process.communicate()
        assert "cannot write: File too large" in told
        assert "run the same command again" in told
        store = FeatureStore(tmp_path)
        assert 0 < len(store) < SCENES
        assert list(store) == [a_scene(n) for n in range(len(store))]
    work(str(tmp_path))
    assert list(FeatureStore(tmp_path)) == [a_scene(n) for n in range(SCENES)]


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a Unix thing")
def test_an_index_that_cannot_grow_leaves_no_half_line(tmp_path: Path) -> None:
    wordy = Scene("x" * 5000, vector=np.zeros(2, np.float16), fingerprint="maker")
    three(tmp_path)
    code = (
        "import sys, resource, numpy as np; from sightline.scene import Scene; "
        "from sightline.vision.feature_store import FeatureStore as F\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "with F.writer(sys.argv[1], fingerprint='maker') as w:\n"
        "    w.add(Scene('x' * 5000, vector=np.zeros(2, np.float16), fingerprint='maker'))\n"
    )
    told = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "index.jsonl: cannot write: File too large" in told.stderr
    assert (tmp_path / "index.jsonl").read_bytes().endswith(b"]\n")
    assert len(FeatureStore(tmp_path)) == 3
    with FeatureStore.writer(tmp_path, fingerprint="maker") as writer:
        writer.add(wordy)
    assert FeatureStore(tmp_path)[wordy.id] == wordy
