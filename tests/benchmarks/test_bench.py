"""`make bench`: its records, its report, and that every figure README and docs promise is in it; no test is of time."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import bench  # noqa: E402
import scaling  # noqa: E402
from bench_records import Record  # noqa: E402

FIELDS = {"name", "ours", "peer", "unit", "ratio", "goal", "machine", "date"}
# They are no speed beside a peer: one writes docs/results/speed.json, one counts people's faults, one lasts 30 minutes.
ALONE = {"model_speed.py", "caption_profile.py", "captions_of_people.py", "soak.py"}


def test_the_ratio_says_how_many_times_better():
    assert Record("time", 2.0, 6.0, "s", "peer").ratio == 3
    assert Record("rate", 2.0, 6.0, "/s", "peer", more=True).ratio == pytest.approx(1 / 3)
    assert Record("alone", 2.0, None, "s", "").ratio is None


def test_a_goal_is_reached_from_its_own_side():
    assert Record("time", 2.0, None, "s", "", goal=2.0).reached
    assert not Record("time", 2.1, None, "s", "", goal=2.0).reached
    assert Record("rate", 2.1, None, "/s", "", more=True, goal=2.0).reached
    assert Record("time", 2.0, None, "s", "").reached is None


def test_a_part_is_measured_and_the_others_stay(tmp_path, capsys):
    kept = {"part": "text", **Record("kept", 1.0, 2.0, "s", "peer").as_json()}
    (tmp_path / "report.json").write_text(json.dumps({"records": [kept], "curves": {}}))
    assert bench.main(["--only", "startup", "--quick", "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert [record["name"] for record in report["records"]] == ["import sightline", "sightline --help", "kept"]
    assert all(record.keys() >= FIELDS for record in report["records"])
    assert report["records"][0]["ratio"] > 1  # PyTorch takes longer to import
    text = (tmp_path / "report.md").read_text()
    assert "| sightline --help |" in text
    assert "`python benchmarks/startup.py --rounds 1`" in text
    assert (tmp_path / "report-ratios.png").stat().st_size > 1000


def test_what_cannot_run_is_told_and_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SIGHTLINE_DATA", raising=False)
    broken = bench.Benchmark("search_recall.py", bench.search_recall, needs=bench.FLICKR8K)
    monkeypatch.setitem(bench.PARTS, "search", (broken,))
    assert bench.gather(["search"], True, tmp_path)["records"] == []
    assert "left out: needs flickr8k/images" in capsys.readouterr().err


def test_what_a_gpu_printed_elsewhere_becomes_records_of_that_machine(tmp_path):
    row = {"name": "Up-Down, training", "images": 128, "images_per_s": 50.0}
    limits = {"roofline_images_per_s": 200.0, "operators_images_per_s": 100.0}
    scan = {"images": 5000, "captions": 25000, "sightline_seconds": 5.0, "usual_seconds": 50.0, "roofline_seconds": 2.0}
    where = {"device": "NVIDIA X", "torch": "2.11", "date": "2026-01-02"}
    (tmp_path / "gpu.json").write_text(json.dumps({**where, "rows": [row | limits], "scan": scan}))
    given = ["--only", "roofline", "--printed", str(tmp_path / "gpu.json"), "--out", str(tmp_path)]
    assert bench.main(given) == 0
    records = json.loads((tmp_path / "report.json").read_text())["records"]
    assert [record["ratio"] for record in records] == [0.25, 0.5, 10, 0.4]
    assert {record["machine"] for record in records} == {"NVIDIA X, torch 2.11"}
    assert {record["date"] for record in records} == {"2026-01-02"}
    assert [record["reached"] for record in records] == [None, None, True, True]


def test_what_was_printed_elsewhere_is_of_one_script(tmp_path, capsys):
    with pytest.raises(SystemExit):
        bench.main(["--only", "text", "--printed", str(tmp_path / "text.json")])
    assert "of one script" in capsys.readouterr().err


def test_every_benchmark_that_readme_and_docs_quote_is_part_of_the_report():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    quoted = {name for page in pages for name in re.findall(r"benchmarks/(\w+\.py)", page.read_text("utf-8"))}
    scripts = {benchmark.script for part in bench.PARTS.values() for benchmark in part}
    assert all((ROOT / "benchmarks" / script).is_file() for script in scripts)
    assert quoted - ALONE - {"bench.py"} <= scripts


def test_the_exponent_is_that_of_a_power():
    sizes = (10, 20, 40, 80)
    assert scaling.exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_a_point_of_a_curve_is_measured():
    point = scaling.point("captions", 50)
    assert point["seconds"] > 0
    assert point["mb"] >= 0
