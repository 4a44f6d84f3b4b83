"""An index on object storage: an S3 server on loopback, written to and searched by other processes too."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from search_samples import bring, paint
from sightline.errors import DataError
from sightline.search.lance import LanceIndex, storage_options
from sightline.search.query import PhotoIndex

pytest.importorskip("lancedb", reason="LanceDB is not installed")
moto = pytest.importorskip("moto.server", reason="moto, an S3 server for tests, is not installed")

SEARCH = """
import sys, numpy as np
from sightline.search.lance import LanceIndex
for found in LanceIndex(sys.argv[1]).find(np.array([0.0, 0.0, 1.0]), ["blue"], 1):
    print(found.path, found.caption, found.bm25 > 0)
"""


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """An empty bucket, which the environment leads to."""
    import boto3

    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "SIGHTLINE_CACHE": str(tmp_path / "cache"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    name = f"photos-{secrets.token_hex(4)}"  # servers of one process share their buckets
    boto3.client("s3", endpoint_url=settings["AWS_ENDPOINT_URL"]).create_bucket(Bucket=name)
    yield f"s3://{name}/index"
    server.stop()


def test_an_index_on_s3_is_written_searched_and_followed(bucket, tmp_path):
    folder = tmp_path / "photos"
    for name, colour in (("red", (250, 9, 9)), ("green", (9, 250, 9)), ("blue", (9, 9, 250))):
        paint(folder / f"{name}.png", colour)
    report, seen = bring(folder, bucket)
    assert (report.made, report.total, report.engine) == (3, 3, "lance")
    child = subprocess.run([sys.executable, "-c", SEARCH, bucket], capture_output=True, text=True, check=True)
    assert child.stdout == f"{folder.as_posix()}/blue.png a blue wall True\n"
    (folder / "red.png").rename(folder / "crimson.png")
    (folder / "green.png").unlink()
    report, seen = bring(folder, bucket)
    assert (report.moved, report.gone, report.total, seen) == (1, 1, 2, [])
    assert {Path(path).name for path in LanceIndex(bucket).states()} == {"crimson.png", "blue.png"}
    assert not (tmp_path / "s3:").exists()


def test_an_address_without_an_index_or_a_bucket_is_told(bucket):
    with pytest.raises(DataError, match="no photo index"):
        PhotoIndex(bucket)
    with pytest.raises(DataError, match="bucket does not exist"):
        PhotoIndex("s3://nowhere/index")


def test_only_plain_http_has_to_be_allowed():
    assert storage_options({"AWS_ENDPOINT_URL": "https://s3.example.org", "AWS_REGION": "eu"}) == {
        "aws_region": "eu",
        "aws_endpoint": "https://s3.example.org",
    }
