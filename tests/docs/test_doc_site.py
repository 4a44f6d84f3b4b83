"""`make docs` builds the site without a warning: no link leads nowhere, and examples are blocks of code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_is_built_without_a_warning_and_examples_are_code(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "index.html").read_text(encoding="utf-8")
    assert 'class="highlight"' in page
    assert "<blockquote>" not in page  # what Markdown makes of >>>
