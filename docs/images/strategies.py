"""Draw clhist's strategies, memory and work-groups, for docs/strategies.md: ``python docs/images/strategies.py``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from draw import COLOURS, INK, LINE, PAIRS, Drawing

BINS = [bin_ for bin_, _ in PAIRS]
WIDTH, LEFT, LABELS = 760, 20, 520  # labels stand to the right of the picture
ELEMENT, BIN, HEIGHT = 60, 20, 24  # sizes of cells
ITEMS = [LEFT + ELEMENT * (2 * k + 1) for k in range(4)]  # centres of work-items, two to a work-group
GROUPS = [(ITEMS[0] + ITEMS[1]) / 2, (ITEMS[2] + ITEMS[3]) / 2]
CENTRE = sum(GROUPS) / 2


class Picture(Drawing):
    """A drawing with elements, work-groups, and copies."""

    def label(self, y: float, *lines: str) -> None:
        """Lines of text to the right, the first at the height of a row that begins at y."""
        for n, line in enumerate(lines):
            self.text(LABELS, y + 17 + 17 * n, line, size=13)

    def cells(self, centre: float, y: float, bins: Iterable[object], width: float = BIN) -> None:
        """A row of bins, in their colours, around a centre."""
        numbers = list(bins)
        for n, number in enumerate(numbers):
            colour = COLOURS[number] if isinstance(number, int) else "white"
            self.box(centre + (n - len(numbers) / 2) * width, y, width, HEIGHT, number, colour, "white")

    def elements(self, y: float, colours: Sequence[int] = BINS, texts: Sequence[object] = BINS) -> None:
        """The input, two elements for each work-item."""
        for n, (colour, text) in enumerate(zip(colours, texts, strict=True)):
            self.box(LEFT + n * ELEMENT + 2, y, ELEMENT - 4, HEIGHT, text, COLOURS[colour], "white")

    def group(self, centre: float, y: float, height: float, width: float = 4 * ELEMENT - 12) -> None:
        """The dashed frame of a work-group."""
        self.parts.append(
            f'<rect x="{centre - width / 2:g}" y="{y}" width="{width:g}" height="{height}" rx="6" fill="none" '
            f'stroke="{LINE}" stroke-dasharray="5 4"/>'
        )

    def item(self, x: float, y: float, text: object = "") -> None:
        """A work-item."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y}" r="13" fill="white" stroke="{LINE}"/>')
        self.text(x, y + 5, text, "middle", INK, 13)

    def items(self, y: float, height: float, above: float) -> None:
        """Four work-items in two work-groups, with arrows from the elements above."""
        for centre in GROUPS:
            self.group(centre, y - 22, height)
        for k, x in enumerate(ITEMS):
            self.arrow(x, above, x, y - 14)
            self.item(x, y, k)

    def result(self, y: float) -> None:
        """The result, in global memory."""
        self.cells(CENTRE, y, range(4), 34)
        self.label(y, "result, in global memory")


def private() -> Picture:
    """A copy for each work-item."""
    picture = Picture(WIDTH, 292, "Private: a copy for each work-item")
    picture.elements(16)
    picture.label(16, "elements, by their bin")
    picture.items(90, 44, 40)
    picture.label(73, "work-groups of work-items")
    for x in ITEMS:
        picture.arrow(x, 103, x, 146)
        picture.cells(x, 150, range(4))
        picture.arrow(x, 174, CENTRE + (x - CENTRE) / 5, 238)
    picture.label(150, "global memory:", "a copy for each work-item,", "updated without atomics")
    picture.label(208, "second kernel adds up the copies")
    picture.result(242)
    return picture


def local() -> Picture:
    """Copies in local memory."""
    picture = Picture(WIDTH, 292, "Local: work-items of a work-group share copies in local memory")
    picture.elements(16)
    picture.label(16, "elements, by their bin")
    picture.items(90, 116, 40)
    picture.label(73, "work-groups of work-items")
    for n, centre in enumerate(GROUPS):
        for x in ITEMS[2 * n : 2 * n + 2]:
            picture.arrow(x, 103, centre + (x - centre) / 4, 146)
        picture.cells(centre, 150, range(4), 34)
        picture.arrow(centre, 174, CENTRE + (centre - CENTRE) / 5, 238)
    picture.label(116, "atomics in local memory")
    picture.label(150, "a copy for each work-group")
    picture.label(208, "second kernel adds up the copies")
    picture.result(242)
    return picture


def packed() -> Picture:
    """Narrow counters."""
    picture = Picture(WIDTH, 322, "Packed: several narrow counters share a word of local memory")
    picture.elements(16)
    picture.label(16, "elements, by their bin")
    picture.items(90, 120, 40)
    picture.label(73, "work-groups of work-items")
    for n, centre in enumerate(GROUPS):
        for x in ITEMS[2 * n : 2 * n + 2]:
            picture.arrow(x, 103, centre + (x - centre) / 4, 146)
        picture.cells(centre, 150, range(4))
        picture.parts.append(
            f'<rect x="{centre - 2 * BIN:g}" y="150" width="{4 * BIN}" height="{HEIGHT}" fill="none" '
            f'stroke="{INK}" stroke-width="3"/>'
        )
        picture.arrow(centre, 178, CENTRE + (centre - CENTRE) / 5, 268)
    picture.label(144, "local memory: 8-bit counters,", "four to a word (thick frame)")
    overflow = "Overflows go to global memory;", "if they are many, 32-bit counters", "count again"
    picture.label(200, "second kernel adds up the copies.", *overflow)
    picture.result(272)
    return picture


def partitioned() -> Picture:
    """Pairs grouped by ranges of bins."""
    picture = Picture(WIDTH, 330, "Partitioned: pairs are grouped by ranges of bins first")
    bins = [1, 3, 0, 1, 2, 0, 3, 1]
    ranges = [bin_ // 2 for bin_ in bins]
    picture.elements(16, ranges, bins)
    picture.label(16, "pairs, by their bin; colours are", "two ranges of bins")
    order = [k for tile in (range(4), range(4, 8)) for k in sorted(tile, key=lambda k: ranges[k])]
    for centre in GROUPS:
        picture.arrow(centre, 42, centre, 55)
        picture.group(centre, 57, 22, 150)
        picture.text(centre, 73, "group a tile", "middle", INK, 13)
        picture.arrow(centre, 81, centre, 94)
    picture.label(54, "work-groups, in local memory")
    picture.elements(96, [ranges[k] for k in order], [bins[k] for k in order])
    picture.label(96, "global memory: tiles of pairs,", "grouped by range")
    for n, centre in enumerate(GROUPS):
        picture.group(centre, 176, 66)
        for place, k in enumerate(order):
            if ranges[k] == n:
                picture.arrow(LEFT + ELEMENT * (place + 0.5), 122, centre + (place - 3.5) * 8, 196, COLOURS[n])
        for b in range(2):
            picture.box(centre + (b - 1) * 34, 202, 34, HEIGHT, 2 * n + b, COLOURS[n], "white")
        picture.arrow(centre, 226, CENTRE + (n - 0.5) * 68, 276)
    picture.label(186, "one work-group for each range,", "its bins in local memory")
    for b in range(4):
        picture.box(CENTRE + (b - 2) * 34, 280, 34, HEIGHT, b, COLOURS[b // 2], "white")
    picture.label(280, "result, in global memory")
    return picture


def global_memory() -> Picture:
    """Shared copies in global memory."""
    picture = Picture(WIDTH, 292, "Global: work-items of all work-groups share copies in global memory")
    picture.elements(16)
    picture.label(16, "elements, by their bin")
    picture.items(90, 44, 40)
    picture.label(73, "work-groups of work-items")
    for k, x in enumerate(ITEMS):
        picture.arrow(x, 103, GROUPS[k % 2] + (k - 1.5) * 12, 146)
    for centre in GROUPS:
        picture.cells(centre, 150, range(4), 34)
        picture.arrow(centre, 174, CENTRE + (centre - CENTRE) / 5, 238)
    picture.label(116, "atomics in the last-level cache")
    picture.label(150, "global memory: M = 2 copies,", "shared by all work-groups")
    picture.label(208, "second kernel adds up the copies")
    picture.result(242)
    return picture


def sort() -> Picture:
    """Sorted pairs."""
    picture = Picture(WIDTH, 242, "Sort: pairs are sorted by bin, then scanned")
    picture.elements(16)
    picture.label(16, "pairs, by their bin")
    order = sorted(range(8), key=lambda k: BINS[k])
    for place, k in enumerate(order):
        picture.arrow(LEFT + ELEMENT * (k + 0.5), 42, LEFT + ELEMENT * (place + 0.5), 92, COLOURS[BINS[k]])
    picture.label(54, "sort by bin, 8 bits at a time")
    picture.elements(96, [BINS[k] for k in order], [BINS[k] for k in order])
    picture.label(96, "global memory: sorted pairs")
    for bin_ in range(4):
        places = [place for place, k in enumerate(order) if BINS[k] == bin_]
        middle = LEFT + ELEMENT * (sum(places) / len(places) + 0.5)
        picture.arrow(middle, 122, CENTRE + (bin_ - 1.5) * 34, 188, COLOURS[bin_])
    picture.label(144, "segmented scan: one value a bin,", "no atomics")
    picture.result(192)
    return picture


def rows() -> Picture:
    """Gathered rows."""
    picture = Picture(WIDTH, 322, "Rows: row numbers are placed by bin, then work-items gather the rows")
    for k, bin_ in enumerate(BINS):
        for component in range(3):
            picture.box(LEFT + k * ELEMENT + 6 + component * 16, 16, 16, HEIGHT, "", COLOURS[bin_])
        picture.text(LEFT + ELEMENT * (k + 0.5), 56, f"row {k}", "middle", INK, 12)
    picture.label(16, "rows of 3 numbers; colours are bins")
    order = sorted(range(8), key=lambda k: BINS[k])
    picture.arrow(CENTRE, 62, CENTRE, 92)
    picture.label(62, "count the rows of each bin,", "and place their numbers")
    picture.elements(96, [BINS[k] for k in order], order)
    picture.label(104, "global memory: row numbers")
    for bin_ in range(4):
        places = [place for place, k in enumerate(order) if BINS[k] == bin_]
        left, right = LEFT + ELEMENT * places[0], LEFT + ELEMENT * (places[-1] + 1)
        middle, centre = (left + right) / 2, ITEMS[bin_]
        picture.arrow(middle, 122, centre, 158, COLOURS[bin_])
        picture.group(centre, 162, 36, 66)
        for component in range(3):
            picture.parts.append(
                f'<circle cx="{centre + (component - 1) * 20:g}" cy="180" r="8" fill="white" stroke="{LINE}"/>'
            )
            picture.box(centre + (component - 1.5) * 16, 252, 16, HEIGHT, "", COLOURS[bin_])
        picture.arrow(centre, 200, centre, 248)
        picture.text(centre, 294, f"bin {bin_}", "middle", INK, 12)
    picture.label(158, "work-items of a bin gather its rows", "and combine them in registers")
    picture.label(252, "result, in global memory:", "each row is written once")
    return picture


def batch() -> Picture:
    """Many histograms."""
    picture = Picture(WIDTH, 262, "Batch: many histograms in one call")
    picture.elements(16, [0, 0, 0, 0, 1, 1, 2, 2], [1, 0, 1, 3, 0, 1, 2, 3])
    picture.label(16, "elements, by their bin; colours are", "three histograms")
    for centre in GROUPS:
        picture.group(centre, 68, 100)
    for k, x in enumerate(ITEMS):
        picture.arrow(x, 42, x, 76)
        picture.item(x, 90, k)
    copies = ((GROUPS[0], 0), (ITEMS[2], 1), (ITEMS[3], 2))
    for k, x in enumerate(ITEMS):
        centre = GROUPS[0] if k < 2 else x
        picture.arrow(x, 103, centre + (x - centre) / 4, 130)
    for centre, histogram in copies:
        for b in range(4):
            picture.box(centre + (b - 2) * 22, 134, 22, HEIGHT, b, COLOURS[histogram], "white")
            picture.box(centre + (b - 2) * 22, 214, 22, HEIGHT, b, COLOURS[histogram], "white")
        picture.arrow(centre, 158, centre, 210)
    picture.label(73, "work-groups: the left has one", "histogram, the right two teams")
    picture.label(134, "local memory: a copy of each")
    picture.label(214, "result: a row for each histogram")
    return picture


PICTURES = {
    "private": private, "local": local, "packed": packed, "partitioned": partitioned, "global": global_memory,
    "sort": sort, "rows": rows, "batch": batch,
}  # fmt: skip

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        picture().write(f"strategy-{name}")
