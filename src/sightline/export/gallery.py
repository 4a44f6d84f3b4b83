"""A page of photos, each with its caption as alternative text: no request leaves it, in light and in dark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote

from sightline.export.caption_tables import CaptionJson, sentence
from sightline.files import PathLike

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6675; --line: #d9dee6; --card: #fff; --page: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7ebf1; --soft: #9aa6b6; --line: #333c49; --card: #1b212b; --page: #12161d; }
}
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); }
main { max-width: 1400px; margin: 0 auto; padding: 32px 16px 64px; }
h1 { font-size: 26px; margin: 0 0 24px; }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 20px; }
ul { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }
figure { margin: 0; height: 100%; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
figure { overflow: hidden; }
img { display: block; width: 100%; height: 240px; object-fit: cover; background: var(--line); }
figcaption { padding: 12px 16px 14px; overflow-wrap: anywhere; }
small { display: block; color: var(--soft); margin-top: 4px; }
a { color: inherit; }
a:focus-visible { outline: 3px solid #4c8dff; outline-offset: 2px; }
@media print { li { break-inside: avoid; } }
"""


def page(captions: Iterable[CaptionJson], folder: PathLike, title: str = "Captions") -> Iterator[str]:
    """The page, piece by piece; `folder` is where it will be, from which it leads to the photos."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n<ul>\n"
    )
    for told in captions:
        yield _figure(told, link(told["path"], folder))
    yield "</ul>\n</main>\n</body>\n</html>\n"


def link(path: PathLike, folder: PathLike) -> str:
    """Where a photo is from a folder: a relative address, or a file's where there is none (another Windows drive)."""
    photo = os.path.abspath(path)  # noqa: PTH100 - links are not followed: the photo is where people see it
    try:
        way = Path(os.path.relpath(photo, os.path.abspath(folder))).as_posix()  # noqa: PTH100
    except ValueError:
        return Path(photo).as_uri()
    return quote(way if "/" in way else f"./{way}")  # a colon in a bare name would begin an address


def _figure(told: CaptionJson, address: str) -> str:
    width, height = told["size"]
    said, name = escape(sentence(told["caption"])), escape(Path(told["path"]).name)
    unsure = "<small>The model is not sure of this.</small>" if told["low_confidence"] else ""
    return (
        f'<li><figure><a href="{escape(address)}"><img src="{escape(address)}" alt="{said}" loading="lazy" '
        f'decoding="async" width="{width}" height="{height}"></a>'
        f"<figcaption>{said}{unsure}<small>{name}</small></figcaption></figure></li>\n"
    )
