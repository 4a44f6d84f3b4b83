"""`sightline doctor`: what is installed, what is not and how to get it."""

import importlib.metadata
import os
import platform
import sys
from importlib.util import find_spec
from typing import Any

from sightline import __version__
from sightline.cli.console import show
from sightline.errors import printable
from sightline.files import cache_dir

REQUIRED = ("numpy", "torch", "pillow", "safetensors", "pyyaml", "rich")

# Optional packages: module, what it is for, the extra that brings it.
OPTIONAL = {
    "pycocoevalcap": ("the METEOR metric's data", "meteor"),
    "lancedb": ("search beyond 100,000 photos", "search"),
    "fastapi": ("the web page and HTTP API", "serve"),
    "ray": ("work on several machines", "ray"),
    "h5py": ("hdf5 features and labels", "train"),
    "lmdb": ("lmdb features", "train"),
    "tensorboard": ("training curves in TensorBoard", "train"),
    "pillow_heif": ("HEIC photos", "heic"),
}


def doctor(*, json: bool = False, quiet: bool = False) -> int:
    """Show versions, device, threads, and which optional parts are present or how to get them.

    Exit code 1 if a required part is missing.
    """
    facts: dict[str, Any] = {
        "sightline": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "required": {name: _version(name) for name in REQUIRED},
        "optional": {
            module: {"version": _version(module), "for": purpose, "install": f"pip install 'sightline[{extra}]'"}
            for module, (purpose, extra) in OPTIONAL.items()
        },
        "cpus": os.cpu_count(),
        **_torch(),
        "cache": str(cache_dir()),
        "text_encoding": sys.stdout.encoding,
    }
    show(facts, lambda: _print(facts), json=json, quiet=quiet, indent=2)
    return 0 if all(facts["required"].values()) and "torch_error" not in facts else 1


def _torch() -> dict[str, Any]:
    if find_spec("torch") is None:
        return {"devices": [], "threads": None}
    try:
        import torch
    except Exception as error:  # a broken installation is what a doctor is for
        return {"devices": [], "threads": None, "torch_error": f"{type(error).__name__}: {error}"}
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {"devices": devices, "threads": torch.get_num_threads()}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return None


def _print(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("sightline", facts["sightline"])
    table.add_row("python", f"{facts['python']} on {facts['platform']}")
    table.add_row("devices", ", ".join(facts["devices"]) or "[red]none[/red]")
    if "torch_error" in facts:
        table.add_row("torch", f"[red]cannot be imported[/red]: {escape(facts['torch_error'])}")
    table.add_row("threads", f"{facts['threads']} of {facts['cpus']} CPUs")
    table.add_row("cache", escape(printable(facts["cache"])))
    for name, version in facts["required"].items():
        table.add_row(name, version or f"[red]missing[/red]: pip install {name}")
    for name, part in facts["optional"].items():
        have = part["version"] or "[yellow]not installed[/yellow]"
        how = "" if part["version"] else f": {part['install']}".replace("[", "\\[")
        table.add_row(name, f"{have} ({part['for']}){how}")
    console.print(table)
