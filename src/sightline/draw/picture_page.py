"""One self-contained HTML page of pictures: no request leaves it, it works offline, in light and in dark."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from html import escape

from PIL import Image

from sightline.draw.canvas import png
from sightline.errors import ConfigError
from sightline.files import PathLike, write_text
from sightline.web_page import PAGE_END, page_start

_STYLE = """
p.intro { color: var(--soft); margin: -16px 0 32px; max-width: 70ch; }
figure { margin: 0 0 32px; }
figure img, figure svg { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figure img { background: #fff; }
@media (prefers-color-scheme: dark) { figure img { filter: brightness(.92); } }
figure svg { padding: 20px; width: 100%; }
figcaption { padding: 12px 20px 16px; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
@media print { figure { break-inside: avoid; } }
"""


@dataclass
class Page:
    """Pictures with captions, in the order they were added.

    >>> from PIL import Image
    >>> page = Page("My photos").add(Image.new("RGB", (4, 4)), "Nothing to see.", alt="A black square")
    >>> 'alt="A black square"' in page.html()
    True
    """

    title: str = "Sightline"
    intro: str = ""
    figures: list[str] = field(default_factory=list)

    def add(self, picture: Image.Image | str, caption: str, alt: str) -> Page:
        """Add a picture, or the inline SVG of `curves_svg`; `alt` tells those who cannot see it what it shows."""
        if not alt.strip():
            raise ConfigError("a picture has no alternative text", fix="say in `alt` what it shows")
        if isinstance(picture, Image.Image):
            width, height = picture.size
            shown = f'<img src="{data_uri(picture)}" alt="{escape(alt)}" width="{width}" height="{height}">'
        elif picture.startswith("<svg"):
            shown = f'<div role="img" aria-label="{escape(alt)}">{picture}</div>'
        else:
            raise ConfigError("a picture is an image or an inline SVG", fix="open files with PIL.Image.open first")
        self.figures.append(f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>")
        return self

    def html(self) -> str:
        intro = f'<p class="intro">{escape(self.intro)}</p>\n' if self.intro else ""
        body = "\n".join(self.figures)
        return f"{page_start(self.title, _STYLE)}{intro}{body}\n{PAGE_END}"

    def save(self, path: PathLike) -> None:
        write_text(path, self.html())


def data_uri(image: Image.Image) -> str:
    """The picture inside its own address: as PNG, or as JPEG where that is smaller, as it is with photos."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=92, subsampling=0)
    raw, kind = min((png(image), "png"), (buffer.getvalue(), "jpeg"), key=lambda pair: len(pair[0]))
    return f"data:image/{kind};base64,{base64.b64encode(raw).decode('ascii')}"
