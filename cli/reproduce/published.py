"""Numbers of SC'20 (Henriksen et al., "Compiling Generalized Histograms for GPU"): Tables I to III; Figure 7's shape.

Table I is in pairs "M,S"; Table II is in milliseconds of CUB 1.8.0 and multiples of them; all of it of an NVIDIA RTX
2080 Ti and 50 million elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SIZE = 50_000_000
BINS = (31, 127, 505, 2041, 6141, 12281, 24569, 49145, 196607, 393215, 786431, 1572863)
RACE_FACTORS = (1, 63)

_TABLE_1 = {
    "local": """
             H    HDW/CAS    XCG
            31      396,1  132,1
           127       96,1   32,1
           505       24,1    8,1
          2041        6,1    2,1
          6141        2,1    1,2
         12281        1,1    1,3
         24569        1,2    1,6
         49145        1,4   1,12
    """,
    "global": """
             H   HDW,1  HDW,63  CAS,1  CAS,63  XCG,1  XCG,63
         12281    23,1    69,1   46,1   138,1   15,1    69,1
         24569    11,1    34,1   23,1    69,1    7,1    34,1
         49145     5,1    17,1   11,1    34,1    3,1    17,1
        196607     1,1     4,1    2,1     8,1    1,1     4,1
        393215     1,1     2,1    1,1     4,1    1,2     2,1
        786431     1,2     1,1    1,2     2,1    1,3     1,1
       1572863     1,3     1,1    1,3     1,1    1,5     1,1
    """,
}

# By update and race factor, in the order of BINS; of CUB milliseconds, of Futhark how many times as fast.
CUB = {
    "HDW": (1.40, 1.34, 1.44, 1.55, 1.44, 9.39, 22.13, 29.66, 36.87, 39.20, 42.00, 46.59),
    "CAS": (2.40, 3.52, 3.84, 4.96, 5.17, 5.37, 5.57, 6.45, 6.80, 7.00, 7.22, 8.09),
    "XCG": (6.75, 9.29, 11.11, 13.57, 14.83, 15.94, 17.06, 18.11, 20.11, 21.28, 22.44, 23.28),
}
FASTER = {
    ("HDW", 1): (3.4, 3.3, 3.5, 3.6, 3.1, 19.6, 24.7, 22.5, 30.5, 32.6, 32.7, 27.5),
    ("HDW", 63): (3.4, 3.2, 3.5, 3.7, 3.1, 20.3, 25.2, 22.5, 29.9, 31.8, 33.9, 14.4),
    ("CAS", 1): (3.9, 5.7, 6.2, 7.9, 8.1, 8.1, 4.4, 2.7, 2.7, 2.8, 2.8, 2.6),
    ("CAS", 63): (3.9, 4.9, 4.1, 5.0, 5.4, 5.4, 4.0, 2.6, 1.9, 2.0, 2.0, 2.2),
    ("XCG", 1): (4.0, 5.5, 6.5, 7.8, 5.9, 4.9, 2.8, 2.3, 2.7, 3.1, 3.0, 2.0),
    ("XCG", 63): (2.6, 1.6, 1.6, 1.9, 1.7, 2.2, 2.0, 1.8, 2.0, 2.4, 2.7, 2.7),
}


class Application(NamedTuple):
    """A row of Table III that a command here runs: its seconds there, of what it was compared with and of Futhark.

    `time` is which of the command's times is meant.
    """

    name: str
    other: float
    futhark: float
    command: tuple[str, ...]
    quick: tuple[str, ...]
    note: str
    time: str = "kernels"


TABLE_3 = (
    Application("435.gromacs, HDW", 333e-6, 362e-6, ("gromacs",), ("gromacs", "--quick"), "a box of water of its size"),
    Application(
        "435.gromacs, CAS",
        2432e-6,
        919e-6,
        ("gromacs", "--update", "cas", "--race-factor", "79"),
        ("gromacs", "--quick", "--update", "cas", "--race-factor", "79"),
        "a box of water of its size",
    ),
    Application(
        "k-means, k = 1024",
        4.2,
        3.7,
        ("kmeans",),
        ("kmeans", "--quick"),
        "points that are generated; the whole run, with compiling",
        "call",
    ),
    Application(
        "k-means, k = 5",
        2.98,
        0.097,
        ("kmeans", "-k", "5"),
        ("kmeans", "--quick", "-k", "5"),
        "points that are generated; the whole run, with compiling",
        "call",
    ),
    Application(
        "histo of Parboil", 1.74e-3, 0.37e-3, ("histo",), ("histo", "--points", "100000"), "points that are generated"
    ),
    Application("tpacf of Parboil", 0.916, 0.810, ("tpacf",), ("tpacf", "--quick"), "catalogues that are generated"),
)


class Entry(NamedTuple):
    """An entry of Table I: copies M and passes S."""

    memory: str
    update: str
    race_factor: int
    num_bins: int
    copies: int
    passes: int


def table_1() -> Iterator[Entry]:
    """Yield its 66 entries."""
    for memory, text in _TABLE_1.items():
        (_, *columns), *rows = (line.split() for line in text.strip().splitlines())
        for num_bins, *entries in rows:
            for column, entry in zip(columns, entries, strict=True):
                # A column may be of two updates; without a race factor it is 1.
                names, _, factor = column.partition(",")
                copies, passes = map(int, entry.split(","))
                for name in names.split("/"):
                    yield Entry(memory, name, int(factor or 1), int(num_bins), copies, passes)


def futhark_seconds(update: str, race_factor: int) -> dict[int, float]:
    """Return, by the number of bins, what Futhark took: CUB's time and how many times as fast it was."""
    rows = zip(BINS, CUB[update], FASTER[update, race_factor], strict=True)
    return {num_bins: cub * 1e-3 / faster for num_bins, cub, faster in rows}
