"""The fuzzer runs, its cases follow from their numbers, and the first of every target find nothing."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import fuzz_http
import fuzz_readers as tool
import pytest

CASES = 6  # of each target


def test_no_reader_fails_on_the_first_cases(tmp_path):
    found = tool.targets(tmp_path)
    assert len(found) > 62
    assert {"http caption, form", "http search, json", "picture JPEG", "tokenizers and vocabulary"} <= found.keys()
    for name, target in found.items():
        for number in range(CASES):
            tool.prepare(target, name, number, 0, tmp_path / "case")
            outcome, story = tool.judged(target, tmp_path / "case")
            assert outcome in ("read", "refused"), (name, number, story)


def test_a_case_follows_from_its_number(tmp_path):
    target = tool.targets(tmp_path)["karpathy"]
    files = []
    for number in (3, 4, 3):
        tool.prepare(target, "karpathy", number, 0, tmp_path / "case")
        files.append((tmp_path / "case" / target.files[0]).read_bytes())
    assert files[0] == files[2] != files[1]


def test_another_exception_is_a_finding(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    broken = tool.Target(("x.txt",), tmp_path, lambda place: 1 // 0, tool.mutate_text)
    outcome, story = tool.judged(broken, tmp_path)
    assert outcome == "crash"
    assert "ZeroDivisionError" in story


@pytest.mark.parametrize("name", fuzz_http.samples())
def test_a_request_that_nobody_changed_is_answered(tmp_path, name):
    (tmp_path / "x.http").write_bytes(fuzz_http.samples()[name])
    fuzz_http.send(tmp_path / "x.http")


def test_a_defect_of_the_server_and_a_place_it_keeps_are_findings(tmp_path, monkeypatch, capsys):
    service = fuzz_http.server().running.service
    (tmp_path / "x.http").write_bytes(fuzz_http.samples()["ground, json"])
    target = tool.Target(("x.http",), tmp_path, lambda place: fuzz_http.send(place / "x.http"), tool.mutate_request)
    monkeypatch.setattr(service.pipeline, "ground_many", lambda *_: 1 // 0)
    assert "500" in tool.judged(target, tmp_path)[1]
    assert "ZeroDivisionError" in capsys.readouterr().err
    monkeypatch.setattr(fuzz_http, "PATIENCE", 0.5)
    monkeypatch.setattr(service.worker, "reserved", 1)
    outcome, story = tool.judged(target, tmp_path)
    assert outcome == "crash"
    assert "not given back" in story
