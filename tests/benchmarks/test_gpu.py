"""The GPU's benchmark, tried small on a CPU: every row is there; no test is of time."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import bench_records
import gpu


def test_all_rows_are_measured_and_become_records(capsys):
    gpu.main(["--device", "cpu", "--quick", "--json"])
    report = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in report["rows"]]
    models = ("Up-Down", "default captioner", "default model")
    assert names == [f"{model}, {what}" for model in models for what in ("training", "beam 3")]
    assert all(row["images_per_s"] > 0 and row["share_of_roofline"] > 0 for row in report["rows"])
    assert report["scan"]["largest_difference"] < 1e-5
    records = list(bench_records.gpu(report))
    assert len(records) == 2 * len(names) + 2
    assert "share" in gpu.table_of(report)
