"""The OpenAPI document holds: whatever fits it is answered as it says, and whatever does not is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bundle_samples import draw_photo
from serve_samples import index_of, served, tiny_pipeline

pytest.importorskip("schemathesis", reason="schemathesis is not installed")
torch.set_num_threads(1)

# What the document calls a photo, a table of captions and a sentence; schemathesis makes up everything else.
WORDS = """
import base64, pathlib, schemathesis
from hypothesis import strategies as st
photos = st.sampled_from([path.read_bytes() for path in sorted(pathlib.Path(__file__).parent.glob("*.png"))])
schemathesis.openapi.format("base64-photo", photos.map(lambda photo: base64.b64encode(photo).decode()))
for kind in ("jpeg", "png", "webp"):
    schemathesis.openapi.media_type(f"image/{kind}", photos)
captions = b"file,caption\\nred.png,a dog\\n"
schemathesis.openapi.media_type("text/csv", st.just(captions))
schemathesis.openapi.format("base64-captions", st.just(base64.b64encode(captions).decode()))
schemathesis.openapi.media_type("text/plain", st.sampled_from([b"a dog", b"Two cats, on a table."]))
"""


def test_schemathesis_finds_nothing(tmp_path):
    for colour in ("red", "blue"):
        draw_photo(tmp_path / f"{colour}.png", (48, 40), colour)
    (tmp_path / "words.py").write_text(WORDS)
    pipeline = tiny_pipeline()
    with served(pipeline, index=index_of(pipeline, tmp_path)) as running:
        done = subprocess.run(
            [
                *(Path(sys.executable).parent / "schemathesis", "run", f"{running.address}/openapi.json"),
                *("--max-examples", "4", "--workers", "2", "--no-color", "--seed", "1"),
            ],
            cwd=tmp_path,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "words", "PYTHONPATH": str(tmp_path), "NO_PROXY": "*"},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "Tested: 8" in done.stdout
    assert "No issues found" in done.stdout
