"""The wheel, built and installed in an environment of its own: everything is in it, its terms are told, it captions.

What Sightline needs comes from the environment of the tests, so that nothing is downloaded; `make try-wheel` installs
that too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import sightline

pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parents[1]
CAT = ROOT / "examples" / "cat.jpg"


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs of a fresh environment with the wheel, and without the source."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    python = programs / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, str(wheel)], check=True)
    places = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", places], capture_output=True, text=True, check=True).stdout.strip())
    # After the environment's own packages; .pth files in it, such as that of an editable Sightline, count for nothing.
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def run(installed: Path, *command: str, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    program = [str(installed / command[0]), *command[1:]]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=cwd, env=clean)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    package = ROOT / "src" / "sightline"
    files = {path.relative_to(ROOT / "src").as_posix() for path in package.rglob("*") if path.is_file()}
    ours = {name for name in files if "__pycache__" not in name}
    theirs = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert theirs == ours
    assert {"sightline/weights/sightline.safetensors", "sightline/weights/LICENSE", "sightline/py.typed"} <= theirs
    for folder, suffix in (("serve/page", ".html"), ("training/recipes", ".yaml"), ("text/assets", ".npz")):
        assert any(name.startswith(f"sightline/{folder}/") and name.endswith(suffix) for name in theirs), folder


def test_its_metadata_name_the_terms_of_the_weights(wheel):
    with zipfile.ZipFile(wheel) as opened:
        (place,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        told = HeaderParser().parsestr(opened.read(place).decode())
        terms = opened.read(f"{Path(place).parent.as_posix()}/licenses/src/sightline/weights/LICENSE")
    assert told["Version"] == sightline.__version__
    assert "LicenseRef-Sightline-Weights" in told["License-Expression"].split(" AND ")
    assert "src/sightline/weights/LICENSE" in told.get_all("License-File")
    assert terms == (ROOT / "src" / "sightline" / "weights" / "LICENSE").read_bytes()


def test_the_sdist_has_what_builds_tests_and_documents_it(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "NOTICE", "CHANGELOG.md", "Makefile", "tests/test_wheel.py"} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_installed_it_captions_a_photo_as_the_source_does(installed, tmp_path):
    where = run(installed, "python", "-c", "import sightline; print(sightline.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    (told,) = json.loads(run(installed, "sightline", "caption", str(CAT), "--json", "--device", "cpu", cwd=tmp_path))
    right = sightline.load(device="cpu").caption(CAT).to_json()
    assert told["caption"] == right["caption"] != ""
    assert "weights" in run(installed, "sightline", "models", cwd=tmp_path)


def test_another_python_scores_captions_and_reads_files(wheel, tmp_path):
    """All but PyTorch, whose wheels for it are gigabytes here: `make try-wheel PYTHON=python3.12` captions a photo."""
    python = os.environ.get("OTHER_PYTHON") or shutil.which("python3.12")
    if python is None or subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no Python 3.12 here; OTHER_PYTHON=/path/to/python3.12 names one")
    subprocess.run([python, "-m", "venv", str(tmp_path / "other")], check=True)
    programs = tmp_path / "other" / ("Scripts" if os.name == "nt" else "bin")
    small = ["numpy", "pillow", "safetensors", "pyyaml", "rich", "markdown-it-py", "mdurl", "pygments"]
    install = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if subprocess.run([*install, wheel, *small], capture_output=True, check=False).returncode:
        pytest.skip("what it needs cannot be downloaded here")
    package = run(programs, "python", "-c", "import sightline; print(sightline.__path__[0])", cwd=tmp_path).strip()
    run(programs, "python", "-m", "compileall", "-q", "-f", package, cwd=tmp_path)  # every module is this Python's
    captions = {1: "a cat on a bed", 2: "two dogs in the snow"}
    notes = [{"id": id, "image_id": id, "caption": text} for id, text in captions.items()]
    (tmp_path / "refs.json").write_text(json.dumps({"images": [{"id": id} for id in captions], "annotations": notes}))
    (tmp_path / "hyps.json").write_text(json.dumps(notes))
    score = ("score", "--refs", "refs.json", "--hyps", "hyps.json", "--metrics", "bleu", "cider", "spice", "--json")
    scores = json.loads(run(programs, "sightline", *score, cwd=tmp_path))
    assert scores["corpus"]["Bleu_4"] == pytest.approx(1)
    assert "2 captions" in run(programs, "sightline", "data", "inspect", "refs.json", cwd=tmp_path)
