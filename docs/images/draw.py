"""Draw the diagrams of the documentation: ``python docs/images/draw.py``."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

INK, PALE, LINE = "#1f2933", "#e8eef4", "#52667a"
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee")
CELL = 34


class Drawing:
    """An SVG picture on white, so that it can be read on dark pages too."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="sans-serif" font-size="14"><title>{escape(title)}</title>'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>'
            f'<rect width="{width}" height="{height}" rx="8" fill="white"/>'
        )
        self.parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, text: object = "", fill: str = PALE, ink: str = INK) -> None:
        """A rectangle with text in its middle."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="3" fill="{fill}" stroke="{LINE}" stroke-width="1"/>'
        )
        if text != "":
            self.text(x + w / 2, y + h / 2 + 5, text, "middle", ink)

    def row(self, x: float, y: float, values: Iterable[object], fill: str = PALE, ink: str = INK) -> None:
        """A row of cells."""
        for n, value in enumerate(values):
            self.box(x + n * CELL, y, CELL, 28, value, fill, ink)

    def text(self, x: float, y: float, text: object, anchor: str = "start", ink: str = INK, size: int = 14) -> None:
        """A line of text."""
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{ink}" font-size="{size}">{escape(str(text))}</text>'
        )

    def arrow(self, x0: float, y0: float, x1: float, y1: float, colour: str = LINE) -> None:
        """A line with a tip."""
        self.parts.append(
            f'<path d="M{x0} {y0}L{x1} {y1}" stroke="{colour}" stroke-width="1.5" fill="none" marker-end="url(#tip)"/>'
        )

    def write(self, name: str) -> None:
        """Write the picture beside this file."""
        body = "\n".join([self.head, *self.parts, "</svg>\n"])
        (Path(__file__).parent / f"{name}.svg").write_text(body, encoding="utf-8")


PAIRS = [(1, 5), (0, 2), (1, 3), (3, 7), (0, 4), (1, 1), (2, 6), (3, 2)]


def overview() -> None:
    """Pairs, copies, result."""
    drawing = Drawing(760, 250, "From pairs to copies to the result")
    drawing.text(20, 28, "(bin, value) pairs")
    for n, (bin_, value) in enumerate(PAIRS):
        drawing.box(20 + n % 4 * 62, 42 + n // 4 * 90, 56, 28, f"{bin_}, {value}", COLOURS[bin_], "white")
    drawing.text(330, 28, "copies, updated by ⊕ = +")
    for copy, part in enumerate((PAIRS[:4], PAIRS[4:])):
        sums = [sum(v for b, v in part if b == k) for k in range(4)]
        for k, each in enumerate(sums):
            drawing.box(340 + k * CELL, 42 + copy * 90, CELL, 28, each, COLOURS[k], "white")
        drawing.arrow(272, 56 + copy * 90, 332, 56 + copy * 90)
        drawing.arrow(482, 56 + copy * 90, 572, 96 + copy * 12)
    drawing.text(585, 76, "result")
    for k in range(4):
        drawing.box(585 + k * CELL, 88, CELL, 28, sum(v for b, v in PAIRS if b == k), COLOURS[k], "white")
    drawing.text(
        20,
        205,
        "The model chooses: how many copies (M), in which memory, in how many passes (S) over the bins,",
        size=13,
    )
    drawing.text(
        20,
        226,
        "and how work-items that share a copy update a bin: private, hardware atomic, compare-exchange, lock.",
        size=13,
    )
    drawing.write("overview")


def copies() -> None:
    """Work-items that share a copy, and private copies."""
    drawing = Drawing(760, 230, "One shared copy, and a copy for each work-item")
    for left, title, number in (
        (20, "one copy: updates of a bin wait for each other", 1),
        (400, "four copies: no waiting, more to combine", 4),
    ):
        drawing.text(left, 28, title)
        for item in range(4):
            drawing.box(left + item * 84, 44, 66, 26, f"item {item}", "white")
            to = left + item * 84 + 33 if number == 4 else left + 150
            drawing.arrow(left + item * 84 + 33, 72, to + (item - 1.5) * 6 * (number == 1), 118)
        for copy in range(number):
            x = left + copy * 84 if number == 4 else left + 116
            for k in range(4):
                drawing.box(x + k * 17, 122, 17, 26, "", COLOURS[k])
        if number == 4:
            for copy in range(4):
                drawing.arrow(left + copy * 84 + 33, 150, left + 160, 184)
            for k in range(4):
                drawing.box(left + 126 + k * 17, 188, 17, 26, "", COLOURS[k])
    drawing.write("copies")


def passes() -> None:
    """Several passes over the input, each for a range of bins."""
    drawing = Drawing(760, 190, "Two passes, each over half of the bins")
    drawing.text(20, 28, "input, read in each pass")
    for number in range(2):
        y = 44 + number * 66
        drawing.text(20, y + 19, f"pass {number + 1}")
        for n, (bin_, _) in enumerate(PAIRS):
            mine = bin_ // 2 == number
            drawing.box(
                84 + n * CELL, y, CELL, 28, bin_, COLOURS[bin_] if mine else "white", "white" if mine else "#9aa5b1"
            )
        drawing.arrow(366, y + 14, 452, y + 14)
        for k in range(4):
            drawing.box(
                460 + k * CELL,
                y,
                CELL,
                28,
                k,
                COLOURS[k] if k // 2 == number else "white",
                "white" if k // 2 == number else "#9aa5b1",
            )
        drawing.text(612, y + 19, "bins in local memory", size=13)
    drawing.text(
        20, 176, "Where the bins do not fit a memory, each pass takes those that do and ignores the others.", size=13
    )
    drawing.write("passes")


def race_factor() -> None:
    """Consecutive elements that touch many bins, and few."""
    drawing = Drawing(760, 190, "The race factor: how few bins consecutive elements touch")
    rows = (("RF ≈ 1.6: uniform", (5, 2, 7, 0, 2, 6, 2, 5)), ("RF = 4: skewed", (3, 3, 6, 3, 6, 6, 3, 3)))
    for number, (title, bins) in enumerate(rows):
        y = 26 + number * 70
        drawing.text(20, y + 19, title)
        drawing.row(200, y, bins, "white")
        drawing.arrow(480, y + 14, 520, y + 14)
        touched = set(bins)
        for k in range(8):
            drawing.box(
                530 + k * 26, y, 26, 28, k, COLOURS[0] if k in touched else PALE, "white" if k in touched else "#9aa5b1"
            )
    drawing.text(
        20,
        176,
        "H consecutive elements touch H / RF distinct bins: the larger RF, the more copies are worth their memory.",
        size=13,
    )
    drawing.write("race-factor")


def partitioning() -> None:
    """Pairs grouped by ranges of bins, then counted range by range."""
    drawing = Drawing(760, 200, "Partitioning: group the pairs by ranges of bins first")
    drawing.text(20, 28, "pairs")
    order = sorted(PAIRS, key=lambda pair: pair[0] // 2)
    for row, pairs in enumerate((PAIRS, order)):
        for n, (bin_, value) in enumerate(pairs):
            drawing.box(20 + n * 54, 40 + row * 74, 50, 28, f"{bin_}, {value}", COLOURS[bin_ // 2], "white")
    drawing.arrow(235, 72, 235, 106)
    drawing.text(246, 94, "split", size=13)
    drawing.arrow(452, 128, 500, 128)
    for k in range(4):
        drawing.box(510 + k * CELL, 114, CELL, 28, sum(v for b, v in PAIRS if b == k), COLOURS[k // 2], "white")
    drawing.text(
        20,
        182,
        "Each range of bins fits local memory. The pairs are written and read once more, instead of read S times.",
        size=13,
    )
    drawing.write("partitioning")


if __name__ == "__main__":
    for draw in (overview, copies, passes, race_factor, partitioning):
        draw()
