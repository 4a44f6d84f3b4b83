"""Shared fixtures. Tests marked `data` read the folder SIGHTLINE_DATA names, and are skipped and counted without it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import sightline  # noqa: F401 - before any test imports torch: it sets how threads wait for each other

# Time limits would make results depend on the machine's load; on CI the same examples are drawn at every run.
settings.register_profile(
    "sightline",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    max_examples=50,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("sightline")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real datasets."""
    folder = os.environ.get("SIGHTLINE_DATA")
    if not folder:
        pytest.skip("SIGHTLINE_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a whole model, tiny and random."""
    from bundle_samples import tiny_bundle
    from sightline.checkpoint.bundle import save_bundle

    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_bundle(path, tiny_bundle())
    return path


@pytest.fixture
def command(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Callable[..., tuple]]:
    """From its name to a command with the tiny model: run here, it gives exit code, what was printed, what was told."""
    from sightline.cli import commands

    def named(name: str) -> Callable[..., tuple]:
        def run(*arguments: object) -> tuple[int, str, str]:
            code = commands.main([name, *map(str, arguments), "--model", str(tiny_model), "--device", "cpu"])
            shown = capsys.readouterr()
            return code, shown.out, shown.err

        return run

    return named


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SIGHTLINE_DATA"):
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="SIGHTLINE_DATA is not set"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reason = "SIGHTLINE_DATA is not set"
    skipped = sum(reason in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.write_line(f"{skipped} tests need datasets and were skipped: {reason}")
