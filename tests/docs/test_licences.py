"""docs/licences.md names everything that Sightline installs or can."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_dependency_is_listed_where_it_is_installed_from():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"Sightline": project["dependencies"]}
    needed |= {f"`sightline[{extra}]`": some for extra, some in project["optional-dependencies"].items()}
    del needed["`sightline[dev]`"]  # which nobody needs who uses it
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE
    )
    listed = {(name, by): licence for names, by, licence in rows for name in names.split(", ")}
    for by, some in needed.items():
        for one in some:
            name = re.match(r"[\w-]+", one)[0]
            assert listed.get((name, by)), f"{name} is installed by {by}"
