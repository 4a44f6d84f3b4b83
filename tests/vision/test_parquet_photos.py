"""Photos that are no files of their own: on object storage, and in parquet files."""

from __future__ import annotations

import io
import json
import random
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

from bundle_samples import draw_photo
from search_samples import Eyes
from sightline.cli import commands
from sightline.errors import DataError
from sightline.jobs.job_photos import GONE, find_named_photos, mark_of, photos_below
from sightline.search.query import open_index
from sightline.search.sync import sync
from sightline.vision.feature_store import FeatureStore
from sightline.vision.images import open_image
from sightline.vision.parquet_photos import AT_ONCE, GROUPS_IN_MEMORY, PhotoTable

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet")
moto = pytest.importorskip("moto.server", reason="moto, an S3 server for tests, is not installed")

torch.set_num_threads(1)
NAMES = ("dépôt 1/a b.png", "dépôt 1/ü.png", "z.png", "y/x.png")
ORDER = ("dépôt 1/a b.png", "dépôt 1/ü.png", "y/x.png", "z.png")


@pytest.fixture(scope="module")
def server():
    started = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    started.start()
    yield "http://{}:{}".format(*started.get_host_and_port())
    started.stop()


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """An empty bucket, and what puts bytes into it."""
    import boto3

    settings = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "SIGHTLINE_CACHE": str(tmp_path / "cache"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    client, name = boto3.client("s3", endpoint_url=server, region_name="us-east-1"), f"b-{secrets.token_hex(4)}"
    client.create_bucket(Bucket=name)
    return f"s3://{name}", lambda key, raw: client.put_object(Bucket=name, Key=key, Body=raw)


def picture(number: int) -> bytes:
    """A photo that is so many pixels wider than 20."""
    raw = io.BytesIO()
    Image.new("RGB", (20 + number, 12), (40 * number % 256, 9, 9)).save(raw, "PNG")
    return raw.getvalue()


@pytest.fixture
def filled(bucket):
    address, put = bucket
    for number, name in enumerate(NAMES):
        put(f"photos/{name}", picture(number))
    put("photos/.hidden.png", picture(9))
    put("photos/.trash/h.png", picture(9))
    put("photos/notes.txt", b"no photo")
    put("photography/other.png", picture(9))
    return f"{address}/photos", put


def command(name: str, model: Path, *arguments: object) -> int:
    return commands.main([name, *map(str, arguments), "--model", str(model), "--device", "cpu", "--threads", "1"])


def test_photos_below_an_address_are_listed_as_below_a_folder(filled):
    address, _ = filled
    for given in (address, f"{address}/"):
        photos, problems = photos_below(given)
        assert [photo.id for photo in photos] == list(ORDER)
        assert [photo.path for photo in photos] == [f"{address}/{name}" for name in ORDER]
        assert problems == []
    assert all(photo.mark == mark_of(photo.path) != GONE for photo in photos)
    assert [photo.id for photo in find_named_photos([f"{address}/z.png", address])[0]] == [
        f"{address}/{name}" for name in ("z.png", *ORDER[:3])
    ]


def test_a_photo_is_opened_by_its_address(filled):
    address, put = filled
    assert open_image(f"{address}/dépôt 1/ü.png").size == (21, 12)
    put("photos/broken.png", b"<html>404</html>")
    with pytest.raises(Exception, match=r"photos/broken\.png: this is a web page"):
        open_image(f"{address}/broken.png")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("s3://no-such-bucket-here/x", "bucket does not exist"),
        ("https://example.org/a.jpg", "nothing is downloaded"),
        ("ftp://example.org/a.jpg", "cannot be read from ftp"),
    ],
)
def test_addresses_that_lead_nowhere_are_told(bucket, name, says, capsys, tiny_model):
    with pytest.raises(DataError, match=says):
        photos_below(name)
    assert command("caption", tiny_model, name) == 1
    assert says in capsys.readouterr().err
    assert mark_of(name) == GONE


def test_photos_on_storage_are_captioned_like_files(filled, tiny_model, tmp_path, capsys):
    address, put = filled
    out, here = tmp_path / "out", tmp_path / "photos"
    for number, name in enumerate(NAMES):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(picture(number))
    assert command("caption", tiny_model, here) == 0
    local = capsys.readouterr().out
    assert command("caption", tiny_model, address) == 0
    assert capsys.readouterr().out.replace(f"{address}/", f"{here}/") == local
    assert command("caption", tiny_model, address, "--out", out) == 0
    told = json.loads((out / "captions.json").read_text())
    assert [one["path"] for one in told] == [f"{address}/{name}" for name in ORDER]
    assert sorted(path.name for path in out.rglob("*.jpg")) == [f"{n}.captioned.jpg" for n in ("a b", "x", "z", "ü")]
    capsys.readouterr()
    put("photos/z.png", picture(7))
    assert command("caption", tiny_model, address, "--out", out) == 0
    assert "1 captioned now, 3 done before" in capsys.readouterr().err
    assert not (Path.cwd() / "s3:").exists()


def test_files_beside_photos_need_photos_that_are_files(filled, tiny_model, tmp_path, capsys):
    assert command("caption", tiny_model, filled[0], "--format", "xmp") == 2
    assert "xmp needs photos that are files" in capsys.readouterr().err
    assert command("caption", tiny_model, filled[0], "--format", "html", "--out", tmp_path) == 2
    assert "html needs photos" in capsys.readouterr().err


def test_an_index_of_storage_follows_it(filled, tmp_path):
    pytest.importorskip("lancedb")
    address, put = filled
    store = f"{address.rpartition('/')[0]}/index"
    options = {"maker": "eyes", "size": 4}
    report = sync(address, store, Eyes(), **options)
    assert (report.made, report.total, report.engine) == (4, 4, "lance")
    assert sorted(open_index(store).states()) == sorted(f"{address}/{name}" for name in NAMES)
    put("photos/z.png", picture(8))
    put("photos/new.png", picture(5))
    report = sync(f"{address}/", store, Eyes(), **options)
    assert (report.made, report.kept, report.gone, report.total) == (2, 3, 0, 5)


def write_table(path: Path | io.BytesIO, columns: dict, **options) -> None:
    parquet.write_table(pa.table(columns), path, **options)


def test_a_parquet_file_of_pictures_is_a_folder_of_photos(tmp_path, tiny_model, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids = ["cats/1.jpg", "dog", "ü 3"]
    write_table("photos.parquet", {"id": ids, "image": [picture(n) for n in range(3)], "size": [1, 2, 3]})
    photos, problems = photos_below("photos.parquet")
    assert [photo.id for photo in photos] == ids
    assert problems == []
    assert open_image("photos.parquet/ü 3").size == (22, 12)
    assert command("extract", tiny_model, "photos.parquet", "--out", "scenes") == 0
    assert FeatureStore("scenes")["dog"].size == (21, 12)
    assert command("index", tiny_model, "photos.parquet", "--store", "index") == 0
    assert sorted(open_index("index").states()) == [f"{tmp_path}/photos.parquet/{id}" for id in ids]
    assert command("caption", tiny_model, "photos.parquet", "--out", "out", "--json") == 0
    told = json.loads((tmp_path / "out/captions.json").read_text())
    assert [one["path"] for one in told] == [f"photos.parquet/{id}" for id in ids]
    capsys.readouterr()
    assert command("index", tiny_model, "photos.parquet", "--store", "index") == 0
    assert "none new, 3 were there" in capsys.readouterr().out


def test_a_parquet_file_on_storage_is_read_there(bucket, tiny_model, tmp_path):
    address, put = bucket
    raw = io.BytesIO()
    write_table(raw, {"key": [1, 2], "bytes": [picture(1), picture(2)]})
    put("tables/photos.parquet", raw.getvalue())
    assert command("extract", tiny_model, f"{address}/tables/photos.parquet", "--out", tmp_path / "scenes") == 0
    assert FeatureStore(tmp_path / "scenes")["2"].size == (22, 12)


def test_a_parquet_file_of_paths_leads_to_them(filled, tmp_path):
    address, _ = filled
    (tmp_path / "sub").mkdir()
    draw_photo(tmp_path / "sub" / "a.png")
    draw_photo(tmp_path / "b.png")
    paths = ["sub/a.png", str(tmp_path / "b.png"), f"{address}/z.png", "sub/none.png", "sub/a.png", None]
    write_table(tmp_path / "list.parquet", {"path": paths, "caption": ["x"] * 6})
    photos, _ = photos_below(tmp_path / "list.parquet")
    assert [photo.id for photo in photos] == paths[:4]
    assert photos[0].path == tmp_path / "sub" / "a.png"
    assert photos[0].mark == mark_of(tmp_path / "sub" / "a.png") != GONE
    assert photos[2].mark != GONE
    assert photos[3].mark == GONE


def test_tables_of_hugging_face_datasets_are_read(tmp_path):
    cells = [{"bytes": picture(n), "path": f"{n}.png"} for n in range(3)]
    write_table(tmp_path / "train.parquet", {"image": cells, "caption": ["a dog"] * 3})
    assert [photo.id for photo in photos_below(tmp_path / "train.parquet")[0]] == ["0.png", "1.png", "2.png"]
    assert open_image(tmp_path / "train.parquet" / "1.png").size == (21, 12)


def test_ids_that_cannot_be_names_and_cells_without_a_picture_are_told(tmp_path):
    ids = ["a", "../b", "/c", "", None, "a", "d"]
    write_table(tmp_path / "t.parquet", {"id": ids, "image": [picture(1)] * 6 + [None]})
    photos, problems = photos_below(tmp_path / "t.parquet")
    assert [photo.id for photo in photos] == ["a", "d"]
    assert [str(error).split("row ")[1][:1] for error in problems] == ["1", "2", "3", "4", "5"]
    with pytest.raises(DataError, match="no picture"):
        open_image(tmp_path / "t.parquet" / "d")
    with pytest.raises(DataError, match="no photo 'e'"):
        open_image(tmp_path / "t.parquet" / "e")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"score": [1.0]}, r"\(score\).*none has paths"),
        ({"a": ["x"], "b": ["y"]}, "none has paths"),
        ({"image": [b"x"], "score": [1.0]}, "none has an id"),
    ],
)
def test_tables_without_photos_are_told(tmp_path, columns, says):
    write_table(tmp_path / "t.parquet", columns)
    with pytest.raises(DataError, match=says):
        photos_below(tmp_path / "t.parquet")


def test_what_is_no_parquet_file_is_told(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR")
    with pytest.raises(DataError, match="no parquet file"):
        photos_below(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="nothing is there"):
        photos_below(tmp_path / "none.parquet")


def test_a_damaged_page_costs_the_photos_behind_it_and_no_others(tmp_path):
    """Each of three row groups has four rows on pages of their own; the second page of the second group is damaged."""
    path, cells = tmp_path / "t.parquet", [bytes([number]) * 5000 for number in range(12)]
    options = {"use_dictionary": False, "compression": "none", "write_batch_size": 1, "data_page_size": 100}
    write_table(path, {"id": range(12), "image": cells}, row_group_size=4, **options)
    raw = bytearray(path.read_bytes())
    for at in range(raw.index(cells[5]) - 30, raw.index(cells[5])):
        raw[at] ^= 0x55
    path.write_bytes(raw)
    table, read, told = PhotoTable(str(path)), dict[int, bytes](), list[str]()
    for row in range(12):
        try:
            read[row] = table.read(str(row))
        except DataError as error:
            told.append(str(error))
    assert all("t.parquet" in error and "write or copy it again" in error for error in told)
    assert {0, 1, 2, 3, 8, 9, 10, 11} <= read.keys() < set(range(12))
    assert all(cell == cells[row] for row, cell in read.items())


def test_any_damage_to_a_table_is_told_with_its_place(tmp_path):
    write_table(tmp_path / "whole.parquet", {"id": ["a", "b"], "image": [picture(1), picture(2)]})
    raw = (tmp_path / "whole.parquet").read_bytes()
    chance, told = random.Random(0), dict[str, str]()
    for number in range(300):
        hurt = bytearray(raw)
        for _ in range(chance.choice((1, 4, 16))):
            hurt[chance.randrange(len(hurt))] = chance.randrange(256)
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(hurt)
        try:
            table = PhotoTable(str(path))
            for name in table.names:
                table.read(name)
        except DataError as error:
            told[path.name] = str(error)
    assert len(told) > 100
    assert all(name in error for name, error in told.items())
    assert not any("endpoint" in error for error in told.values())  # a file here has none


def test_rows_come_in_any_order_and_from_many_threads(tmp_path):
    count = AT_ONCE * (GROUPS_IN_MEMORY + 3)
    cells = [b"%d" % number for number in range(count)]
    write_table(tmp_path / "t.parquet", {"id": range(count), "image": cells}, row_group_size=count // 2)
    table = PhotoTable(str(tmp_path / "t.parquet"))
    order = [count - 1, 0, 5, count // 2, count // 2 - 1, 3, *range(count)]
    assert [table.read(str(row)) for row in order] == [cells[row] for row in order]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(lambda row: table.read(str(row)), range(count))) == cells


def test_a_changed_table_is_read_anew(tmp_path):
    for number in (1, 2):
        write_table(tmp_path / "t.parquet", {"id": ["a"], "image": [picture(number)], "more": ["x" * number]})
        assert open_image(tmp_path / "t.parquet" / "a").width == 20 + number


def test_what_is_not_installed_is_named(tmp_path, monkeypatch, tiny_model, capsys):
    draw_photo(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert command("extract", tiny_model, tmp_path, "--out", tmp_path / "s", "--ray", "auto") == 2
    assert "pip install 'sightline[ray]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert command("extract", tiny_model, "s3://bucket/photos", "--out", tmp_path / "s") == 2
    assert "pip install 'sightline[search]'" in capsys.readouterr().err


def test_captions_that_are_printed_need_no_cluster(tmp_path, tiny_model, capsys):
    draw_photo(tmp_path / "a.png")
    assert command("caption", tiny_model, tmp_path / "a.png", "--ray", "auto") == 2
    assert "--out" in capsys.readouterr().err
