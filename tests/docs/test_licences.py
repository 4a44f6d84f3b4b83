"""docs/licences.md names everything that Sightline installs or can."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = {"Sightline": PROJECT["dependencies"]} | {
    f"`sightline[{extra}]`": some
    for extra, some in PROJECT["optional-dependencies"].items()
    if extra != "dev"  # which nobody needs who uses it
}
FREE = re.compile(
    r"\b(MIT|0?BSD|FreeBSD|Apache|PSF|Python Software Foundation|ISC|Zlib|HPND|Unlicense)\b", re.IGNORECASE
)
BOUND = re.compile(r"GPL|MPL|Mozilla|EPL|Proprietary|Commercial|NVIDIA|See License", re.I)


def listed() -> dict[tuple[str, str], str]:
    """Licences by package and by what installs it."""
    page = (ROOT / "docs" / "licences.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    return {(name, by): licence for names, by, licence in rows for name in names.split(", ")}


def licence_of(package: metadata.Distribution) -> str:
    """What a package's own metadata say."""
    kinds = [kind for kind in package.metadata.get_all("Classifier", []) if kind.startswith("License ::")]
    words = (package.metadata.get("License-Expression"), *kinds, package.metadata.get("License"))
    return " ".join(filter(None, words))[:200]


def installed_for(requirements: list[str]) -> dict[str, str]:
    """The packages that requirements bring, and those bring in turn, with licences; as far as they are installed."""
    licences, waiting = dict[str, str](), [(Requirement(one), "") for one in requirements]
    done = set[tuple[str, str]]()
    while waiting:
        one, extra = waiting.pop()
        name = canonicalize_name(one.name)
        if (one.marker is not None and not one.marker.evaluate({"extra": extra})) or (name, str(one.extras)) in done:
            continue
        done.add((name, str(one.extras)))
        try:
            package = metadata.distribution(one.name)
        except metadata.PackageNotFoundError:
            continue
        licences[name] = licence_of(package)
        waiting += [(Requirement(text), extra) for text in package.requires or () for extra in ("", *one.extras)]
    return licences


def test_every_dependency_is_listed_where_it_is_installed_from():
    rows = listed()
    for by, some in NEEDED.items():
        for one in some:
            name = re.match(r"[\w-]+", one)[0]
            assert rows.get((name, by)), f"{name} is installed by {by}"


@pytest.mark.parametrize("by", [by for by in NEEDED if by != "`sightline[bench]`"])
def test_what_dependencies_bring_in_turn_is_listed_unless_its_licence_asks_for_nothing(by):
    names = {name for name, _ in listed()}
    installed = installed_for(NEEDED[by])
    bound = {name: licence for name, licence in installed.items() if BOUND.search(licence) or not FREE.search(licence)}
    assert not {name: licence for name, licence in bound.items() if name not in names and not is_cuda(name)}


def is_cuda(name: str) -> bool:
    """Whether a row of the table stands for it by a star."""
    return name.startswith(("nvidia-", "cuda-"))
