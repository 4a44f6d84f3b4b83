"""Jobs on a Ray cluster of two nodes: equal to this process alone, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from bundle_samples import draw_photo
from sightline.cli import commands
from sightline.errors import ClusterError, ConfigError
from sightline.jobs.cluster import AHEAD, LIVES, _Batch, _retry, executor_of
from sightline.jobs.job import run
from sightline.jobs.job_photos import PhotoRef, photos_below
from sightline.jobs.ledger import Ledger
from sightline.search.query import open_index
from sightline.vision.feature_store import FeatureStore

ray = pytest.importorskip("ray", reason="Ray is not installed")
torch.set_num_threads(1)
PHOTOS = 60
COLOURS = ("red", "green", "blue", "black", "orange", "purple", "brown")


@pytest.fixture(scope="module")
def storage():
    """An S3 server, which the environment leads to."""
    moto = pytest.importorskip("moto.server", reason="moto, an S3 server for tests, is not installed")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    settings = {"AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()), "AWS_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**settings, "AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret"}.items():
            patch.setenv(name, value)
        yield settings["AWS_ENDPOINT_URL"]
    server.stop()


@pytest.fixture(scope="module")
def cluster(storage):
    """Two nodes of one CPU each, to which this process is connected; they inherit the environment."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    node = {"num_cpus": 1, "object_store_memory": 80 << 20}
    both = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    both.add_node(**node)
    ray.init(both.address, log_to_driver=False, logging_level="ERROR")
    both.wait_for_nodes()
    yield both
    ray.shutdown()
    both.shutdown()


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(PHOTOS):
        draw_photo(folder / f"{number:02d} é.png", (100 + number, 120), COLOURS[number % len(COLOURS)])
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    return folder


class Kept:
    """A sink in memory."""

    def __init__(self) -> None:
        self.results: dict[str, tuple[str, float, str]] = {}

    def __contains__(self, id: object) -> bool:
        return id in self.results

    def add(self, result: tuple[str, float, str]) -> None:
        assert result[0] not in self.results
        self.results[result[0]] = result

    def drop(self, ids) -> None:
        for id in ids:
            self.results.pop(id, None)

    def flush(self) -> None:
        pass


@dataclass
class Brightness:
    """Work that tells how bright a photo is and which node looked, and whose process dies at one photo."""

    deadly: str = ""
    once: str = ""  # a file that says that it has happened
    meet: str = ""  # a folder where nodes say that they are there, and wait for one another

    def __call__(self, photos):
        if any(photo.id == self.deadly for photo in photos) and not (self.once and Path(self.once).exists()):
            if self.once:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        if self.meet:
            (Path(self.meet) / node).touch()
            while len(list(Path(self.meet).iterdir())) < 2:
                time.sleep(0.01)
        return [(photo.id, float(photo.pixels.mean()), node) for photo in photos]


def brightness(folder: Path | str, place: Path, work=None, address: str | None = "auto", sink: Kept | None = None):
    kept = sink or Kept()
    with Ledger(place / "ledger.jsonl") as ledger, executor_of(address) as executor:
        report = run(photos_below(folder)[0], work or Brightness(), kept, ledger, size=8, batch=4, executor=executor)
    return report, {id: level for id, level, _ in kept.results.values()}, {node for _, _, node in kept.results.values()}


@pytest.fixture(scope="module")
def alone(photos, tmp_path_factory) -> dict[str, float]:
    """What this process makes of the photos."""
    report, levels, _ = brightness(photos, tmp_path_factory.mktemp("alone"), address=None)
    assert (report.made, len(report.bad)) == (PHOTOS, 1)
    return levels


def test_both_nodes_work_and_bad_photos_are_told(cluster, photos, tmp_path, alone):
    (tmp_path / "nodes").mkdir()
    report, levels, nodes = brightness(photos, tmp_path, Brightness(meet=str(tmp_path / "nodes")))
    assert levels == alone
    assert len(nodes) == 2
    assert (report.photos, report.made, report.kept) == (PHOTOS + 1, PHOTOS, 0)
    assert [Path(error.where).name for error in report.bad] == ["broken.jpg"]


def test_a_worker_that_is_killed_at_its_work_loses_and_doubles_nothing(cluster, photos, tmp_path, alone):
    work = Brightness("30 é.png", str(tmp_path / "killed"))
    report, levels, _ = brightness(photos, tmp_path, work)
    assert (tmp_path / "killed").exists()
    assert (report.made, len(report.bad), levels) == (PHOTOS, 1, alone)


def test_a_photo_that_kills_every_worker_is_left_out_and_told(cluster, photos, tmp_path, alone):
    report, levels, _ = brightness(photos, tmp_path, Brightness("30 é.png"))
    assert levels == {id: level for id, level in alone.items() if id != "30 é.png"}
    assert f"{LIVES} workers died" in str(report.bad[0])
    assert [Path(error.where).name for error in report.bad] == ["30 é.png", "broken.jpg"]


def test_what_is_done_is_not_done_again_on_a_cluster_either(cluster, photos, tmp_path, alone):
    sink = Kept()
    brightness(photos, tmp_path, address=None, sink=sink)
    for id in ("07 é.png", "45 é.png"):
        del sink.results[id]
    report, levels, _ = brightness(photos, tmp_path, sink=sink)
    assert (report.made, report.kept, report.news, levels) == (2, PHOTOS - 2, [], alone)


def test_photos_on_storage_are_read_by_those_who_look_at_them(cluster, storage, photos, tmp_path, alone):
    import boto3

    client = boto3.client("s3", endpoint_url=storage, region_name="us-east-1")
    client.create_bucket(Bucket="shared")
    for path in photos.iterdir():
        client.upload_file(str(path), "shared", f"album/{path.name}")
    report, levels, _ = brightness("s3://shared/album", tmp_path)
    assert (report.made, levels) == (PHOTOS, alone)
    assert str(report.bad[0]).startswith("s3://shared/album/broken.jpg: this JPEG picture is damaged")


def test_an_error_of_the_work_is_the_error_of_the_job(cluster, photos, tmp_path):
    def wrong(some):
        raise ConfigError("`beam` is 0", fix="give 1 or more")

    with pytest.raises(ConfigError, match="`beam` is 0"):
        brightness(photos, tmp_path, wrong)


def told(out: Path) -> list[dict]:
    return json.loads((out / "captions.json").read_text())


def assert_same(one: object, other: object, where: str = "") -> None:
    """The same words; numbers may differ in their last digit, as a photo's do beside other photos of a batch."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other), where
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, where=f"{where}/{number}")
    elif isinstance(one, float):
        digit = 0.1 if "/box/" in where else 1e-3
        assert other == pytest.approx(one, abs=1.5 * digit), where
    else:
        assert one == other, where


def options(model: Path, *more: object) -> list[str]:
    return ["--model", str(model), "--device", "cpu", "--threads", "1", *map(str, more)]


@pytest.fixture(scope="module")
def captions(tiny_model, photos, tmp_path_factory) -> list[dict]:
    """What `sightline caption` says without Ray."""
    out = tmp_path_factory.mktemp("local")
    assert commands.main(["caption", str(photos), "--out", str(out), *options(tiny_model, "--format", "json")]) == 0
    return told(out)


def test_captions_are_those_of_one_process_though_a_worker_is_killed_from_outside(
    cluster, tiny_model, photos, tmp_path, captions, capsys
):
    killed = []
    killer = threading.Thread(target=lambda: killed.append(kill_a_worker(tmp_path / "out/.sightline/ledger.jsonl")))
    killer.start()
    arguments = ["caption", str(photos), "--out", str(tmp_path / "out"), "--ray", "auto"]
    assert commands.main([*arguments, *options(tiny_model, "--format", "json")]) == 0
    killer.join()
    assert killed[0] < PHOTOS
    assert_same(told(tmp_path / "out"), captions)
    assert len({one["path"] for one in captions}) == PHOTOS
    assert "broken.jpg" in capsys.readouterr().err


def kill_a_worker(ledger: Path) -> int:
    """Kill one as soon as something is written down; how many photos that were."""
    until = time.monotonic() + 60
    while not lines(ledger):
        assert time.monotonic() < until
        time.sleep(0.002)
    done = photos_in(ledger)
    os.kill(workers()[0], signal.SIGKILL)
    return done


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def photos_in(ledger: Path) -> int:
    return sum(len(json.loads(line.partition(" ")[2])) for line in lines(ledger))


def workers() -> list[int]:
    """The processes of this cluster's workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::_Worker") and mine(int(folder.name)):
                found.append(int(folder.name))
        except OSError:  # gone meanwhile
            continue
    return found


def mine(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_whoever_asked_is_killed_and_asks_again(cluster, tiny_model, photos, tmp_path, captions):
    arguments = ["caption", str(photos), "--out", str(tmp_path), "--ray", cluster.address]
    command = [sys.executable, "-m", "sightline", *arguments, *options(tiny_model, "--format", "json")]
    ledger = tmp_path / ".sightline" / "ledger.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        while not lines(ledger) and child.poll() is None:
            time.sleep(0.002)
        child.kill()
    before = photos_in(ledger)
    assert 0 < before < PHOTOS
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{PHOTOS - before} captioned now, {before} done before" in again.stderr
    assert_same(told(tmp_path), captions)


def test_an_index_has_the_rows_of_one_process(cluster, tiny_model, photos, tmp_path):
    for name, ray_ in (("here", ()), ("there", ("--ray", "auto"))):
        assert commands.main(["index", str(photos), "--store", str(tmp_path / name), *ray_, *options(tiny_model)]) == 0
    here, there = (open_index(tmp_path / name) for name in ("here", "there"))
    assert there.states() == here.states()
    assert len(there) == PHOTOS
    by_path = [sorted(index.rows(index.states()), key=lambda row: row.path) for index in (here, there)]
    for one, other in zip(*by_path, strict=True):
        assert (one.path, one.caption, one.size) == (other.path, other.caption, other.size)
        np.testing.assert_allclose(one.vector, other.vector, atol=1e-6)


def test_a_feature_store_has_the_scenes_of_one_process(cluster, tiny_model, photos, tmp_path):
    for name, ray_ in (("here", ()), ("there", ("--ray", "auto"))):
        assert commands.main(["extract", str(photos), "--out", str(tmp_path / name), *ray_, *options(tiny_model)]) == 0
    here, there = (FeatureStore(tmp_path / name) for name in ("here", "there"))
    assert sorted(here.ids()) == sorted(there.ids())
    assert len(here) == PHOTOS
    for id in here.ids():
        np.testing.assert_allclose(here[id].regions, there[id].regions, atol=1e-2)
        assert here[id].size == there[id].size


@pytest.mark.parametrize(("address", "why"), [("127.0.0.1:9", "refused"), ("everywhere", "a name and a port")])
def test_an_address_where_nobody_answers_is_told(photos, tmp_path, monkeypatch, address, why):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # as in a process of its own
    with pytest.raises(ClusterError, match=f"{why}.*ray start --head"), executor_of(address):
        pytest.fail("somebody answered")


def test_a_photo_pays_only_for_workers_that_it_had_to_itself():
    photos = [PhotoRef(name, Path(name), (0, 0)) for name in "ab"]
    waiting: deque[_Batch] = deque([_Batch([PhotoRef("c", Path("c"), (0, 0))])])
    assert list(_retry(_Batch(photos), waiting)) == []  # either may have done it
    assert [([photo.id for photo in one.photos], one.load, one.deaths) for one in waiting] == [
        (["a"], AHEAD, 0),
        (["b"], AHEAD, 0),
        (["c"], 1, 0),
    ]
    for death in range(1, LIVES):
        assert list(_retry(waiting.popleft(), waiting)) == []
        assert waiting[0].deaths == death
    (left_out,) = _retry(waiting.popleft(), waiting)
    assert [photo.id for photo, _ in left_out.bad] == ["a"]
    assert len(waiting) == 2
