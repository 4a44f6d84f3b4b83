"""The frame of the HTML pages that Sightline writes: no request leaves them; colours for light and for dark."""

from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6675; --line: #d9dee6; --card: #fff; --page: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7ebf1; --soft: #9aa6b6; --line: #333c49; --card: #1b212b; --page: #12161d; }
}
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); }
main { max-width: 1120px; margin: 0 auto; padding: 40px 16px 80px; }
h1 { font-size: 28px; line-height: 1.25; margin: 0 0 24px; }
figure { margin: 0; overflow: hidden; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
"""
PAGE_END = "</main>\n</body>\n</html>\n"


def page_start(title: str, style: str = "") -> str:
    """A page from its beginning to its heading; `style` is the CSS of what comes below."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n"
    )
