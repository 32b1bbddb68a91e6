"""Draw the pictures of docs/notebook/strategies.md: who reads which element, and who updates which copy.

python docs/notebook/strategies/draw.py          write them
python docs/notebook/strategies/draw.py --check  exit with status 1 if one is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
COLOURS = ("#4477aa", "#66ccee", "#ee6677", "#ccbb44")  # of four work-items; two make a work-group
WIDTH, ELEMENTS, CELL = 900, 16, 34
LEFT = 24
RIGHT = LEFT + ELEMENTS * CELL + 24  # where labels begin


@dataclass(frozen=True)
class Stage:
    """Copies of the histogram: where they are, which copy each of what is above updates, and how."""

    place: str
    copies: int
    update: str
    bins: tuple[str, ...] = ("0", "1", "2", "3")


@dataclass(frozen=True)
class Picture:
    """One strategy: its title, which work-item reads each element, and the stages of copies; the last is the result."""

    title: str
    readers: tuple[int, ...]
    stages: tuple[Stage, ...]
    note: str = ""


SECTIONS = tuple(k // 4 for k in range(ELEMENTS))
INTERLEAVED = tuple(k % 4 for k in range(ELEMENTS))
PAIRS = tuple(k // 2 % 4 for k in range(ELEMENTS))
RESULT = Stage("global memory: the result", 1, "atomic add")
SUM = Stage("global memory: the result", 1, "sum of all copies")

PICTURES = {
    "naive": Picture("Naive", SECTIONS, (Stage("global memory: the result", 1, "atomic increment"),)),
    "interleaved": Picture("Interleaved", INTERLEAVED, (Stage("global memory: the result", 1, "atomic increment"),)),
    "local": Picture("Privatised in local memory", INTERLEAVED, (Stage("local memory", 2, "atomic increment"), RESULT)),
    "registers": Picture(
        "Privatised in registers, then local memory",
        INTERLEAVED,
        (Stage("registers", 4, "increment"), Stage("local memory", 2, "atomic add"), RESULT),
    ),
    "runs": Picture(
        "Run lengths", INTERLEAVED, (Stage("local memory", 2, "one atomic add a run"), RESULT),
        "equal bins one after the other in a work-item's elements make one update",
    ),
    "handbook": Picture(
        "Packed 8-bit counters for each work-item",
        INTERLEAVED,
        (Stage("local memory, 8 bits a counter", 4, "increment, no atomic"), RESULT),
        "before a counter overflows: check it, give a work-item fewer elements, or merge",
    ),
    "tagged": Picture(
        "Shams & Kennedy 1: tags instead of atomics",
        INTERLEAVED,
        (Stage("local memory, a copy for each warp", 2, "write tag | count + 1, read back"), SUM),
        "a work-item that does not read its own tag back tries again; one pass for each range of bins",
    ),
    "collision-free": Picture(
        "Shams & Kennedy 2: collision-free",
        INTERLEAVED,
        (Stage("local memory, few bits", 4, "increment"), Stage("global memory", 4, "2^b at overflow"), SUM),
    ),
    "cooperation": Picture(
        "The thesis: C = 2 work-items cooperate on a subhistogram",
        INTERLEAVED,
        (Stage("global or local memory, T / C copies", 2, "add, cas or lock"), SUM),
        "C = 1: a copy for each work-item; C = T: one for all; the heuristic: C = H",
    ),
    "sc20": Picture(
        "SC'20: M copies of H / S bins, in S passes",
        INTERLEAVED,
        (Stage("local memory, pass 1 of 2", 2, "HDW, CAS or XCG", ("0", "1")), SUM),
        "each pass reads all elements again, and counts those of its own bins",
    ),
    "cub": Picture(
        "CUB: tiles, and runs within a work-item's share", PAIRS,
        (Stage("local memory", 2, "one atomic add a run"), RESULT),
    ),
    "bits": Picture(
        "RAFT: counters of few bits", INTERLEAVED,
        (Stage("local memory, b bits a counter", 2, "atomic add to the word"), RESULT),
        "an overflow adds 2^b to the result, and takes back the carry from the next counter",
    ),
    "hash": Picture(
        "RAFT: a hash table", INTERLEAVED,
        (Stage("local memory: bin and count", 2, "claim a place, atomic add", ("9→", "4→", "", "7→")), RESULT),
        "a bin without a place has the table written to the result",
    ),
    "match": Picture(
        "Aggregated by sub-group", INTERLEAVED, (Stage("local memory", 2, "one atomic add for equal bins"), RESULT),
        "work-items of a sub-group that have the same bin elect one that updates it",
    ),
}  # fmt: skip


def draw(picture: Picture) -> str:
    """Return the picture as SVG."""
    lines: list[str] = []
    y = 44
    lines.append(_text(LEFT, 24, picture.title, size=16, weight="bold"))
    lines.append(_text(RIGHT, y + 16, "elements, by the work-item that reads them"))
    for k, reader in enumerate(picture.readers):
        lines.append(_box(LEFT + k * CELL, y, CELL, 22, COLOURS[reader]))
    y += 70
    items = [(LEFT + ELEMENTS * CELL * (2 * k + 1) / 8, y) for k in range(4)]
    for group in range(2):
        x = items[2 * group][0]
        lines.append(_box(x - 44, y - 26, items[2 * group + 1][0] - x + 88, 52, "none", dash=True))
    for k, (x, centre) in enumerate(items):
        lines.append(f'<circle cx="{x:g}" cy="{centre}" r="15" fill="{COLOURS[k]}"/>')
        lines.append(_text(x, centre + 4, str(k), anchor="middle"))
    lines.append(_text(RIGHT, y + 4, "work-items, two to a work-group"))
    above = [(x, y + 15) for x, _ in items]
    for stage in picture.stages:
        y += 96
        places = _places(stage.copies)
        for n, (x, bottom) in enumerate(above):
            to = places[n * len(places) // len(above)]
            colour = COLOURS[n] if len(above) == 4 else "#555555"
            lines.append(
                f'<line x1="{x:g}" y1="{bottom}" x2="{to:g}" y2="{y - 3}" stroke="{colour}" stroke-width="2" '
                'marker-end="url(#tip)"/>'
            )
        for x in places:
            width = 22 * len(stage.bins)
            for k, name in enumerate(stage.bins):
                lines.append(_box(x - width / 2 + 22 * k, y, 22, 22, "#ffffff"))
                lines.append(_text(x - width / 2 + 22 * k + 11, y + 15, name, anchor="middle", size=11))
        lines.append(_text(RIGHT, y - 26, stage.update, style="italic"))
        lines.append(_text(RIGHT, y + 16, stage.place))
        above = [(x, y + 22) for x in places]
    y += 50
    if picture.note:
        lines.append(_text(LEFT, y, picture.note))
        y += 20
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif">'
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555555"/></marker></defs>'
    )
    return "\n".join([head, tip, f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>', *lines, "</svg>", ""])


def draw_layouts() -> str:
    """Return the Handbook's three layouts as SVG: where counters of four work-items and eight bins lie."""
    work_items, bins, side = 4, 8, 24
    places = {
        "row: a work-item's counters in a row": lambda t, b: t * bins + b,
        "column: a bin's counters in a row": lambda t, b: b * work_items + t,
        "interleaved: words of four bins of a work-item": lambda t, b: (b // 4 * work_items + t) * 4 + b % 4,
    }
    lines = [
        _text(
            LEFT,
            24,
            "Layouts of 8-bit counters: colours are work-items, numbers are bins, thick borders are words",
            16,
            "bold",
        )
    ]
    y = 60
    for title, place in places.items():
        lines.append(_text(LEFT, y - 8, title))
        for t in range(work_items):
            for b in range(bins):
                x = LEFT + place(t, b) * (side - 5.5)
                lines.append(_box(x, y, side - 5.5, side, COLOURS[t]))
                lines.append(_text(x + 9, y + 16, str(b), anchor="middle", size=11))
        for word in range(work_items * bins // 4):
            x = LEFT + word * 4 * (side - 5.5)
            lines.append(_box(x, y, 4 * (side - 5.5), side, "none", stroke=2))
        y += 66
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>', *lines, "</svg>", ""])


def pictures() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {f"{name}.svg": draw(picture) for name, picture in PICTURES.items()} | {"layouts.svg": draw_layouts()}


def _places(copies: int) -> list[float]:
    return [LEFT + ELEMENTS * CELL * (2 * k + 1) / (2 * copies) for k in range(copies)]


def _box(x: float, y: float, width: float, height: float, fill: str, *, dash: bool = False, stroke: float = 1) -> str:
    dashes = ' stroke-dasharray="4 3"' if dash else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="#555555" '
        f'stroke-width="{stroke:g}"{dashes}/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    size: int = 13,
    weight: str = "normal",
    *,
    anchor: str = "start",
    style: str = "normal",
) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" font-style="{style}" '
        f'text-anchor="{anchor}" fill="#222222">{escaped}</text>'
    )


def main(arguments: Sequence[str]) -> int:
    """Write the pictures, or compare them."""
    stale = [name for name, text in pictures().items() if not _same(HERE / name, text)]
    if "--check" in arguments:
        for name in stale:
            print(f"{name} is out of date")
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(pictures()[name], encoding="utf-8")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
