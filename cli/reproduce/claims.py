"""Claims of the sources, as ratios of times, and which of them hold on the device at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from clhist.cases.image_data import photograph
from clhist.cli.reproduce.published import futhark_seconds
from clhist.cli.reproduce.sc20 import AUTO, OURS, SORT, ModelEntry, Point
from clhist.strategies import DataSet, datasets


class Verdict(NamedTuple):
    """A claim with what was found.

    Attributes
    ----------
    where : str
        The section of the source.
    claim : str
        What it says, and between which limits its number has to be.
    found : float or None
        The number here; None where it could not be had.
    holds : bool or None
        Whether it is within the limits.
    note : str
        What the number is, or why there is none.
    """

    where: str
    claim: str
    found: float | None
    holds: bool | None
    note: str


def _verdict(where: str, claim: str, value: float | None, limits: tuple[float, float], note: str) -> Verdict:
    if value is None or not math.isfinite(value):
        return Verdict(where, claim, None, None, note or "not measured on this device")
    return Verdict(where, claim, value, limits[0] <= value <= limits[1], note)


Times = Mapping[tuple[str, str, int, int, str], float]  # by update, memory, race factor, bins and choice


def sc20(model: Sequence[ModelEntry], points: Sequence[Point]) -> Iterator[Verdict]:
    """Yield the claims of SC'20's section V-A and V-B."""
    # The first five fields of a point are its key.
    times: Times = {point[:5]: point.seconds for point in points if point.seconds is not None}
    equal = sum(entry.is_equal for entry in model)
    yield _verdict(
        "Table I",
        f"the model gives all {len(model)} entries",
        equal,
        (len(model), len(model)),
        "entries that are equal",
    )
    slowest = _worst(_over_best_static(times))
    yield _verdict(
        "V-A", "Auto takes at most 1.05 times as long as the best fixed M", *slowest[:1], (0, 1.05), slowest[1]
    )
    first = _worst(_over(times, ("HDW", "local", "M1"), _best_static(times)))
    yield _verdict("V-A", "M1 is near the best for HDW in local memory", first[0], (0, 1.15), first[1])
    ratio = _ratio(times, ("HDW", "global", 1, 1572863, "M = 1"), ("HDW", "global", 1, 1572863, AUTO))
    note = "M = 1 over Auto; 1,572,863 bins, RF 1"
    yield _verdict("V-A", "HDW in global memory: one copy is about 9 times slower", ratio, (4.5, 18), note)
    few = [
        _ratio(times, ("CAS", "local", 63, bins, "M1"), ("CAS", "local", 63, bins, AUTO))
        for bins in (31, 127, 505, 2041)
    ]
    measured = [ratio for ratio in few if ratio is not None]
    ratio, note = (min(measured), f"to {max(measured):.2f}: M1 over Auto, up to 2041 bins") if measured else (None, "")
    yield _verdict("V-A", "CAS in local memory, RF 63: M1 is 2.6 to 12.8 times slower", ratio, (2.6, math.inf), note)
    for update, factor in (("CAS", 1.9), ("XCG", 1.6)):  # the least of Table II
        ratios = _over(times, (update, "", SORT), _auto(times))
        least = min(ratios, default=(None, ""))
        claim = f"{update}: sorting takes at least {factor} times as long"
        yield _verdict("V-B", claim, least[0], (factor, math.inf), least[1])
    ratios = _over(times, (None, "", OURS), _auto(times))
    yield _verdict("here", "clhist's plan takes at most 1.05 times as long as Auto", *_worst(ratios)[:1], (0, 1.05),
                   _worst(ratios)[1])  # fmt: skip


def futhark_ratios(points: Sequence[Point]) -> Iterator[tuple[Point, float]]:
    """Yield our plan's times with how many times as long Futhark took on the paper's device."""
    for point in points:
        if point.choice == OURS and point.seconds is not None:
            published = futhark_seconds(point.update, point.race_factor).get(point.num_bins)
            if published:
                yield point, published / point.seconds


def _ratio(times: Times, over: tuple[str, str, int, int, str], under: tuple[str, str, int, int, str]) -> float | None:
    return times[over] / times[under] if over in times and under in times else None


def _best_static(times: Times) -> Times:
    """Return by the same keys the best of the fixed choices of its memory."""
    best: dict[tuple[str, str, int, int, str], float] = {}
    for (update, memory, factor, bins, choice), seconds in times.items():
        # clhist's plan and sorting have no memory here, and are no fixed choices.
        if memory and choice != AUTO:
            key = update, memory, factor, bins, ""
            best[key] = min(best.get(key, math.inf), seconds)
    return best


def _auto(times: Times) -> Times:
    """Return the seconds of Auto in the better memory."""
    best: dict[tuple[str, str, int, int, str], float] = {}
    for (update, _, factor, bins, choice), seconds in times.items():
        if choice == AUTO:
            key = update, "", factor, bins, ""
            best[key] = min(best.get(key, math.inf), seconds)
    return best


def _over_best_static(times: Times) -> list[tuple[float, str]]:
    return _over(times, (None, None, AUTO), _best_static(times))


def _over(times: Times, which: tuple[str | None, str | None, str], best: Times) -> list[tuple[float, str]]:
    """Return the ratios of a choice to what is best at the same input, each with where that is."""
    ratios = []
    for (update, memory, factor, bins, choice), seconds in times.items():
        under = best.get((update, memory, factor, bins, ""))
        if under and choice == which[2] and which[0] in (None, update) and which[1] in (None, memory):
            place = ", ".join(word for word in (update, memory, f"RF {factor}", f"{bins:,} bins") if word)
            ratios.append((seconds / under, place))
    return ratios


def _worst(ratios: list[tuple[float, str]]) -> tuple[float | None, str]:
    return max(ratios, default=(None, ""))


class Comparison(NamedTuple):
    """A claim of another source: one strategy's time, of an input, over another's."""

    where: str
    claim: str
    over: tuple[str, str]
    under: tuple[str, str]
    limits: tuple[float, float]


_FASTER = (1.0, math.inf)
_RUN = 16  # equal letters in a row, of input with locality
# By source, as `clhist strategies` names the first part. Those that are programs without a text make none.
COMPARISONS: dict[str, tuple[Comparison, ...]] = {
    "blog": (
        Comparison("Striding", "interleaved access is faster than sections",
                   ("blog/naive", "letters"), ("blog/interleaved", "letters"), _FASTER),
        Comparison("Privatization", "copies in local memory are faster than one in global memory",
                   ("blog/interleaved", "letters"), ("blog/local", "letters"), _FASTER),
        Comparison("Registers", "copies in registers are faster than those in local memory",
                   ("blog/local", "letters"), ("blog/registers", "letters"), _FASTER),
        Comparison("Aggregation", "of runs of equal letters, adding up is faster than an update for each element",
                   ("blog/local", "runs of letters"), ("blog/runs", "runs of letters"), _FASTER),
    ),
    "handbook": (
        Comparison("Managing Overflow", "a check for overflow is slower than avoiding it",
                   ("handbook/thread/column/check", "photograph"), ("handbook/thread/column/avoid", "photograph"),
                   _FASTER),
        Comparison("Managing Overflow", "periodic merging is faster than avoiding overflow",
                   ("handbook/thread/column/avoid", "photograph"), ("handbook/thread/column/merge", "photograph"),
                   _FASTER),
        Comparison("Privatized Histograms", "its time depends little on the data (at most 1.5 times)",
                   ("handbook/thread/column/merge", "one value"), ("handbook/thread/column/merge", "uniform"),
                   (0.0, 1.5)),
    ),
    "shams-kennedy": (
        Comparison("III-A, Figure 3", "method 1 is slowest where all elements are alike",
                   ("shams-kennedy/1", "one value"), ("shams-kennedy/1", "uniform"), _FASTER),
        Comparison("III-B", "the time of method 2 does not depend on the data (at most 1.2 times)",
                   ("shams-kennedy/2", "one value"), ("shams-kennedy/2", "uniform"), (0.0, 1.2)),
        Comparison("III-B", "method 2 is faster than method 1 at its worst",
                   ("shams-kennedy/1", "one value"), ("shams-kennedy/2", "one value"), _FASTER),
        Comparison("III-B", "method 1 is faster for many bins that are uniform",
                   ("shams-kennedy/2", "D3"), ("shams-kennedy/1", "D3"), _FASTER),
    ),
    "thesis": (
        *(Comparison("4.3, Table 1", f"atomicCAS is 2.5 to 5 times slower than atomicAdd on {bins:,} global bins",
                     ("thesis/global/cas/H", name), ("thesis/global/add/H", name), (2.5, 5.0))
          for name, bins in zip(datasets.THESIS, datasets.THESIS_BINS, strict=False)),
        Comparison("4.1", "a lock is slower than compare and exchange",
                   ("thesis/global/xchg/H", "D3"), ("thesis/global/cas/H", "D3"), _FASTER),
        Comparison("4.3, Table 2", "compare and exchange on 4096 bins is 4.5 times faster in local memory",
                   ("thesis/global/cas/H", "D3"), ("thesis/local/cas/H", "D3"), (2.25, math.inf)),
        Comparison("6.1, Figure 34", "sort and reduce is slower on uniform bins",
                   ("sc20/sort", "D3"), ("thesis/local/add/H", "D3"), _FASTER),
    ),
}  # fmt: skip
SOURCES = ("sc20", *COMPARISONS)


def data_of(name: str, size: int) -> DataSet:
    """Return the input that a claim names."""
    if name in ("letters", "runs of letters"):
        run = 1 if name == "letters" else _RUN
        # One letter for each run, which is repeated below.
        text = np.random.default_rng(datasets.SEED).choice(
            np.frombuffer(b"etaoin shrdlu.\n", np.uint8), -(-size // run)
        )
        return datasets.letters(name, text.repeat(run)[:size].tobytes())
    if name == "photograph":
        side = max(2, int(size**0.5))
        return datasets.pixels(name, photograph(side, side))
    if name == "one value":
        return datasets.indices(name, np.full(size, 128), 256)
    return datasets.uniform(size, 256) if name == "uniform" else datasets.thesis(name, size)


def compared(source: str, seconds: Callable[[str, str], float | None]) -> Iterator[Verdict]:
    """Yield the claims of a source, given the seconds of a strategy on an input."""
    for comparison in COMPARISONS[source]:
        over, under = seconds(*comparison.over), seconds(*comparison.under)
        note = f"{comparison.over[0]} over {comparison.under[0]}, {comparison.over[1]}"
        if comparison.over[1] != comparison.under[1]:
            note += f" over {comparison.under[1]}"
        yield _verdict(
            comparison.where, comparison.claim, over / under if over and under else None, comparison.limits, note
        )
