"""Draw the models and count their parameters, into docs/methods/.

python tools/method_pages.py           writes the diagrams, and the tables in the pages
python tools/method_pages.py --check   says whether they are up to date, and changes nothing
"""

from __future__ import annotations

import argparse
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from diagrams import DIAGRAMS, Block, Diagram

DOCS = Path(__file__).parents[1] / "docs" / "methods"
WORDS = 9_490  # ids of COCO's 9,487 words (UNK among them), START, END and padding
WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 172, 58, 46, 22, 12

STYLE = """
.block { fill: #eef3fb; stroke: #3a5a92 } .given { fill: #f6f6f4; stroke: #8a8a85 }
.title { font: 600 13px system-ui, sans-serif; fill: #1b1b1a } .note { font: 11px system-ui, sans-serif; fill: #55554f }
.arrow { stroke: #6d6d68; fill: none } .head { fill: #6d6d68 }
@media (prefers-color-scheme: dark) {
  .block { fill: #1e2a40; stroke: #7f9fd6 } .given { fill: #2a2a29; stroke: #8a8a85 }
  .title { fill: #f0f0ee } .note { fill: #b5b5ae } .arrow { stroke: #a5a59f } .head { fill: #a5a59f }
}"""


def counts(diagram: Diagram) -> dict[str, int]:
    """Parameters of each block; every parameter must belong to exactly one."""
    found = dict.fromkeys(diagram.blocks, 0)
    with torch.device("meta"):  # counted, never filled
        model = diagram.config.build(WORDS)
    for name, parameter in model.named_parameters():
        owners = [key for key, block in diagram.blocks.items() if name.startswith(block.owns or "\0")]
        if len(owners) != 1:
            raise SystemExit(f"{diagram.title}: the parameter {name} belongs to {owners or 'no block'}")
        found[owners[0]] += parameter.numel()
    return found


def corner(block: Block) -> tuple[float, float]:
    column, row = block.place
    return EDGE + column * (WIDTH + GAP_X), EDGE + row * (HEIGHT + GAP_Y)


def draw(diagram: Diagram, owned: dict[str, int]) -> str:
    columns = max(block.place[0] for block in diagram.blocks.values()) + 1
    rows = max(block.place[1] for block in diagram.blocks.values()) + 1
    width, height = 2 * EDGE + columns * (WIDTH + GAP_X) - GAP_X, 2 * EDGE + rows * (HEIGHT + GAP_Y) - GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
        f"<title>{escape(diagram.title)}: blocks, equations and parameters</title><style>{STYLE}</style>",
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0 8 4 0 8Z"/></marker>',
    ]
    parts += [arrow(*(diagram.blocks[key] for key in pair.split())) for pair in diagram.arrows]
    for key, block in diagram.blocks.items():
        x, y = corner(block)
        middle, lines = x + WIDTH / 2, [block.note] if block.note else []
        if owned[key]:
            lines.append(millions(owned[key]))
        kind = "block" if block.owns or block.note else "given"
        parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>')
        top = y + HEIGHT / 2 + 5 - 8 * len(lines)
        parts.append(
            f'<text class="title" x="{middle:g}" y="{top:g}" text-anchor="middle">{escape(block.title)}</text>'
        )
        for number, line in enumerate(lines, start=1):
            place = f'x="{middle:g}" y="{top + 15 * number:g}"'
            parts.append(f'<text class="note" {place} text-anchor="middle">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def arrow(start: Block, end: Block) -> str:
    (x1, y1), (x2, y2) = corner(start), corner(end)
    if start.place[0] == end.place[0]:  # within a column: up or down
        down = y2 > y1
        x1 = x2 = x1 + WIDTH / 2 + (8 if down else -8)  # so that two ways do not cover each other
        y1, y2 = (y1 + HEIGHT, y2) if down else (y1, y2 + HEIGHT)
        path = f"M{x1:g} {y1:g}L{x2:g} {y2:g}"
    else:
        x1, y1, y2 = x1 + WIDTH, y1 + HEIGHT / 2, y2 + HEIGHT / 2
        if x2 < x1:  # back to an earlier column: from below to below
            x1, x2, y1, y2 = x1 - WIDTH / 2, x2 + WIDTH / 2, y1 + HEIGHT / 2, y2 + HEIGHT / 2
            low = max(y1, y2) + GAP_Y / 2
            path = f"M{x1:g} {y1:g}C{x1:g} {low:g} {x2:g} {low:g} {x2:g} {y2:g}"
            return f'<path class="arrow" d="{path}" marker-end="url(#head)"/>'
        bend = min(GAP_X, (x2 - x1)) / 2
        path = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return f'<path class="arrow" d="{path}" marker-end="url(#head)"/>'


def millions(count: int) -> str:
    return f"{count / 1e6:.2f} M" if count >= 100_000 else f"{count:,}"


def table(key: str, diagram: Diagram, owned: dict[str, int]) -> str:
    lines = [f"![{diagram.title}: blocks, equations and parameters](images/{key}.svg)", ""]
    lines += [
        f"`python tools/method_pages.py` draws and counts, for {WORDS:,} word ids (COCO) and 2,048-d features:",
        "",
    ]
    lines += ["| block | equations | parameters |", "|---|---|--:|"]
    for name, block in diagram.blocks.items():
        if owned[name]:
            note = block.note if "Eq." in block.note or "section" in block.note else ""
            lines.append(f"| {block.title} | {note} | {owned[name]:,} |")
    return "\n".join([*lines, f"| **{diagram.title}** | | **{sum(owned.values()):,}** |"])


def pages() -> dict[Path, str]:
    """Every file this command writes, and its text."""
    files: dict[Path, str] = {}
    for key, diagram in DIAGRAMS.items():
        owned = counts(diagram)
        files[DOCS / "images" / f"{key}.svg"] = draw(diagram, owned)
        page = DOCS / f"{diagram.page}.md"
        text = files.get(page) or page.read_text(encoding="utf-8")
        begin, end = f"<!-- {key}: made by tools/method_pages.py -->", f"<!-- {key}: end -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise SystemExit(f"{page} has no place for {key}: write the lines {begin} and {end}")
        files[page] = f"{before}{begin}\n{table(key, diagram, owned)}\n{end}{after}"
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [(path, text) for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    for path, text in stale:
        if check:
            print(f"{path.relative_to(DOCS.parents[1])} is out of date; run: python tools/method_pages.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
