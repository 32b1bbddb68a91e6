"""Histograms and statistics of rows that come in chunks: NumPy's results for all rows together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import clhist
from clhist.binned.counts import densities
from clhist.binned.device_points import binned_points
from clhist.binned.points import points_of
from clhist.binned.statistics import Form, computed
from clhist.cli.hist.rows import RowPiece, TableRows

Array = npt.NDArray[Any]
Range = tuple[float, float]

STREAMED = ("count", "sum", "mean", "std", "min", "max")
STATISTICS = (*STREAMED, "median")  # and quantiles, by `quantile_of`
# 1 GiB of counts of 64 bits.
_MOST_BINS = 1 << 27


def quantile_of(name: str) -> float | None:
    """Return the probability of a quantile such as "q90" or "q2.5"; None of another name."""
    percent = re.fullmatch(r"q(\d{1,3}(?:\.\d+)?)", name, re.ASCII)
    return float(percent[1]) / 100 if percent and float(percent[1]) <= 100 else None


@dataclass(frozen=True)
class Bins:
    """The requested bins of one column.

    Attributes
    ----------
    bins : int, str or tuple of float
        How many there are, a rule of `numpy.histogram_bin_edges`, or their edges.
    range : (float, float) or None
        Which numbers they cover.
    is_log : bool
        Whether they are even in the logarithm.
    """

    bins: int | str | tuple[float, ...]
    range: Range | None
    is_log: bool


@dataclass(frozen=True)
class HistResult:
    """Results.

    Attributes
    ----------
    edges : tuple of array
        Of each column; empty if only statistics of groups are asked for.
    counts : array of shape (groups, bins of each column), or None
        Counts, sums of weights, or densities.
    statistics : dict of str to array of shape (groups, ...)
        By groups, or by groups and bins.
    labels : list or None
        The keys of the groups.
    inside : int
        Rows in bins, or in groups if there are none.
    outside : int
        Rows out of the bins.
    """

    edges: tuple[Array, ...]
    counts: Array | None
    statistics: dict[str, Array]
    labels: list[Any] | None
    inside: int
    outside: int


Extents = list[tuple[Any, Any] | None]  # of each column


def extents_of(rows: TableRows, bins: Sequence[Bins]) -> Extents:
    """Return the least and the greatest finite number of each column, above 0 for logarithmic bins."""
    ends: Extents = [None] * len(bins)
    for piece in rows.pieces(keep=True):
        here = [_extent(column, positive=spec.is_log) for column, spec in zip(piece.columns, bins, strict=True)]
        ends = joined_extents(ends, here)
    return ends


def joined_extents(one: Extents, other: Extents) -> Extents:
    """Return the extents of two parts of the rows together."""
    return [
        b if a is None else a if b is None else (min(a[0], b[0]), max(a[1], b[1]))
        for a, b in zip(one, other, strict=True)
    ]


def _extent(column: Array, *, positive: bool) -> tuple[Any, Any] | None:
    if not column.size:
        return None
    low, high = column.min(), column.max()
    # Only columns with infinities, or numbers that have no logarithm, need a filtered copy.
    if not (np.isfinite(low) and np.isfinite(high) and (low > 0 or not positive)):
        usable = column[np.isfinite(column) & (column > 0 if positive else True)]
        if not usable.size:
            return None
        low, high = usable.min(), usable.max()
    return low, high


def edges_of(
    rows: TableRows, bins: Sequence[Bins], extents: Callable[[TableRows, Sequence[Bins]], Extents] = extents_of
) -> tuple[tuple[Array, ...], list[Any]]:
    """Return NumPy's edges of each column, and what `clhist.histogram` takes for its bins and range.

    Raises
    ------
    ValueError
        If a column has no number that bins could begin or end at, or logarithmic bins begin at 0 or below.
    """
    needs_range = [not isinstance(spec.bins, tuple) and spec.range is None for spec in bins]
    ranges: Extents = extents(rows, bins) if any(needs_range) else [None] * len(bins)
    for name, missing, extent, spec in zip(rows.columns, needs_range, ranges, bins, strict=True):
        if missing and extent is None:
            above = " above 0" if spec.is_log else ""
            raise ValueError(f"{name}: expected a finite number{above} in some row, got none; give --range")
    edges: list[Array] = []
    arguments: list[Any] = []
    for n, spec in enumerate(bins):
        dtype = rows.dtypes[rows.columns[n]]
        ends: Any = spec.range or ranges[n]
        if isinstance(spec.bins, tuple):
            edges.append(np.histogram_bin_edges(np.zeros(0, dtype), np.array(spec.bins)))
            arguments.append((edges[-1], None))
            continue
        number = _number(rows, n, spec, ends) if isinstance(spec.bins, str) else spec.bins
        if spec.is_log:
            low, high = ends
            if not low > 0:
                raise ValueError(f"--log: expected a range above 0, got {low:g} to {high:g}")
            # Logarithmic bins of a single value reach up to its double.
            edges.append(np.geomspace(float(low), float(high) if high > low else 2 * float(low), number + 1))
            arguments.append((edges[-1], None))
        else:
            # NumPy looks at the data for their dtype alone.
            edges.append(np.histogram_bin_edges(np.zeros(0, dtype), number, ends))
            arguments.append((number, ends))
    return tuple(edges), arguments


def _number(rows: TableRows, n: int, bins: Bins, ends: Any) -> int:
    """Return the number of bins by a rule, for which the column is read as a whole."""
    column = np.concatenate([piece.columns[n] for piece in rows.pieces(keep=True)])
    if bins.is_log:
        column, ends = np.log(column[column > 0]), np.log(ends)
    column = column[np.isfinite(column)]
    rule: Any = bins.bins
    return len(clhist.histogram_bin_edges(column, rule, tuple(ends))) - 1


class Counts:
    """Counts, or sums of weights, of each group between edges."""

    def __init__(self, edges: tuple[Array, ...], arguments: Sequence[Any], dtype: np.dtype) -> None:
        self.edges = edges
        self._given = arguments
        self._shape = tuple(len(axis_edges) - 1 for axis_edges in edges)
        self.total = np.zeros((0, *self._shape), dtype)

    def empty(self) -> Counts:
        """Return one of the same bins without rows."""
        return Counts(self.edges, self._given, self.total.dtype)

    def join(self, total: Array, groups: Array | None = None) -> None:
        """Add what another one of the same bins has counted; `groups` are the numbers here of its groups."""
        groups = np.arange(len(total)) if groups is None else groups
        number = int(groups.max(initial=-1)) + 1
        _check_size(number, self._shape)
        self.total = _grown(self.total, max(number, len(self.total)), 0)
        self.total[groups] += total

    def add(self, piece: RowPiece, groups: int, queue: Any = None) -> None:
        """Count some rows; `groups` is how many groups there are by now."""
        _check_size(groups, self._shape)
        groups = max(groups, len(self.total))
        self.total = _grown(self.total, groups, 0)
        if not piece.columns[0].size:
            return
        weights = None if piece.weights is None else piece.weights.astype(np.float64, copy=False)
        if piece.groups is None and len(self.edges) == 1:
            bins, ends = self._given[0]
            counts = clhist.histogram(piece.columns[0], bins, ends, weights=weights, queue=queue)[0]
        else:
            # Groups are one more dimension, in front of the columns.
            sample, edges = _with_groups(piece.columns, self.edges, piece.groups, groups)
            counts = clhist.histogramdd(sample, edges, weights=weights, queue=queue)[0]
        # histogramdd returns float64, which holds the counts of a chunk exactly.
        self.total += counts.reshape(self.total.shape).astype(self.total.dtype)


class Statistics:
    """Moments and extremes of values of each group, and between edges if there are any."""

    def __init__(self, names: Sequence[str], edges: tuple[Array, ...]) -> None:
        self._names, self._edges = names, edges
        self._shape = tuple(len(axis_edges) - 1 for axis_edges in edges)
        self._parts = {name: np.zeros((0, *self._shape)) for name in ("count", "sum", "mean", "squares", "min", "max")}
        self._held: list[RowPiece] = []

    def add(self, piece: RowPiece, values: Array, groups: int) -> None:
        """Add the `values` of some rows."""
        _check_size(groups, self._shape)
        # Medians and quantiles are selected from all values at the end.
        if not set(self._names) <= set(STREAMED):
            self._held.append(RowPiece(piece.columns, None, values, piece.groups))
        # Groups without values have no extremes, and 0 in all that is added up.
        empty = {"min": np.nan, "max": np.nan}
        self._parts = {name: _grown(part, groups, empty.get(name, 0.0)) for name, part in self._parts.items()}
        if not values.size:
            return
        new = self._computed(piece, values, groups, ("count", "sum", "mean", "std", "min", "max"))
        old, count = self._parts, self._parts["count"] + new["count"]
        with np.errstate(invalid="ignore", divide="ignore"):
            # Chan, Golub and LeVeque, 1979: deviations of both parts, and what their means differ by.
            distance = np.where((old["count"] > 0) & (new["count"] > 0), new["mean"] - old["mean"], 0.0)
            within = np.where(new["count"] > 0, new["std"] ** 2 * new["count"], 0.0)
            between = np.where(count > 0, distance**2 * old["count"] * new["count"] / count, 0.0)
            total = old["sum"] + new["sum"]
            self._parts = {
                "count": count,
                "sum": total,
                "mean": np.where(count > 0, total / count, 0.0),
                "squares": old["squares"] + within + between,
                # fmin and fmax skip the NaN of groups without values.
                "min": np.fmin(old["min"], new["min"]),
                "max": np.fmax(old["max"], new["max"]),
            }

    @property
    def size(self) -> int:
        """The number of values in bins or groups."""
        return int(self._parts["count"].sum())

    def results(self) -> dict[str, Array]:
        """Return the statistics asked for; NaN of an empty bin, but for counts and sums."""
        parts = self._parts
        there = parts["count"] > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            statistics = {
                "count": parts["count"].astype(np.int64),
                "sum": parts["sum"],
                "mean": np.where(there, parts["mean"], np.nan),
                "std": np.where(there, np.sqrt(parts["squares"] / parts["count"]), np.nan),
                "min": parts["min"],
                "max": parts["max"],
            }
        return {name: statistics[name] if name in statistics else self._selected(name) for name in self._names}

    def _selected(self, name: str) -> Array:
        """Return medians or quantiles."""
        groups = len(self._parts["count"])
        pieces = [piece for piece in self._held if piece.values is not None and piece.values.size]
        if not pieces:
            return np.full(self._parts["count"].shape, np.nan)
        columns = tuple(np.concatenate(parts) for parts in zip(*(piece.columns for piece in pieces), strict=True))
        of: Any = None if pieces[0].groups is None else np.concatenate([piece.groups for piece in pieces])
        values = np.concatenate([piece.values for piece in pieces])
        q = quantile_of(name)
        statistic = name if q is None else "quantile"
        return self._computed(RowPiece(columns, None, values, of), values, groups, (statistic,), q=q)[statistic]

    def _computed(
        self, piece: RowPiece, values: Array, groups: int, names: tuple[str, ...], *, q: float | None = None
    ) -> dict[str, Array]:
        queue = clhist.default_queue()
        sample, edges = _with_groups(piece.columns if self._edges else (), self._edges, piece.groups, groups)
        if not sample:  # one group of all
            sample, edges = (np.zeros(values.size, np.uint8),), [np.array([0, 1])]
        points = points_of(tuple(sample))
        assert points is not None
        binned, form = binned_points(points, edges, None, queue), Form(tuple(names), None, None, None, False, q, ())
        (results, _, _), _ = computed(points, edges, binned, [values], None, None, queue, form)
        return {name: part.reshape(groups, *self._shape) for name, part in results.items()}


def _with_groups(
    columns: tuple[Array, ...], edges: tuple[Array, ...], groups: Array | None, number: int
) -> tuple[tuple[Array, ...], list[Array]]:
    if groups is None:
        return columns, list(edges)
    # As narrow as fits: numbers of several types are compared in one that holds all.
    narrow = np.uint8 if number <= 2**8 else np.uint16
    # float32 holds these edges exactly, since there are at most 2**16 groups.
    return (groups.astype(narrow), *columns), [np.arange(number + 1, dtype=np.float32), *edges]


def _grown(array: Array, groups: int, empty: float) -> Array:
    if len(array) == groups:
        return array
    more = np.full((groups - len(array), *array.shape[1:]), empty, array.dtype)
    return np.concatenate([array, more])


def _check_size(groups: int, shape: tuple[int, ...]) -> None:
    if groups * prod(shape) > _MOST_BINS:
        raise ValueError(f"--bins: expected at most {_MOST_BINS:,} in all, got {groups} groups of {prod(shape):,}")


def compute(
    rows: TableRows,
    bins: Sequence[Bins] | None,
    statistics: Sequence[str],
    *,
    density: bool,
    by_bin: bool,
    count: Callable[[Counts, Iterator[tuple[RowPiece, int]]], int | None] | None = None,
    extents: Callable[[TableRows, Sequence[Bins]], Extents] = extents_of,
) -> HistResult:
    """Read all rows and return what is asked of them.

    Parameters
    ----------
    rows : TableRows
        What counts.
    bins : sequence of Bins, or None
        Of each column; None if there is no histogram.
    statistics : sequence of str
        Of `STATISTICS`, and quantiles such as "q90".
    density : bool
        Whether counts are turned into densities.
    by_bin : bool
        Whether statistics are those of the values in each bin, rather than those of the column in each group.
    count : callable, optional
        What counts the rows if no statistics are asked for: it gets where they are counted, and the rows with the
        number of groups there are by then, and may return how many are in bins if it does not draw these.
    extents : callable
        Finds what the bins must cover where that is not given.
    """
    edges, arguments = ((), []) if bins is None else edges_of(rows, bins, extents)
    weighted = rows.weights is not None
    counts = (
        None if bins is None or by_bin else Counts(edges, arguments, np.dtype(np.float64 if weighted else np.int64))
    )
    accumulated = Statistics(statistics, edges if by_bin else ()) if statistics else None
    inside = 0

    def pieces() -> Iterator[tuple[RowPiece, int]]:
        nonlocal inside
        for piece in rows.pieces():
            if weighted:
                inside += int(np.count_nonzero(within(piece, edges)))
            yield piece, 1 if not rows.by else len(rows.groups)

    if count is not None:
        assert counts is not None
        # Workers of a cluster read the rows themselves and return how many lie in bins.
        inside = count(counts, pieces()) or inside
    for piece in rows.pieces() if count is None else ():
        groups = 1 if not rows.by else len(rows.groups)
        if counts is not None:
            counts.add(piece, groups)
        if weighted or (accumulated is not None and not by_bin):
            there = within(piece, edges)
            inside += int(np.count_nonzero(there))
        if accumulated is not None and by_bin:
            assert piece.values is not None
            accumulated.add(piece, piece.values, groups)
        elif accumulated is not None:
            of = None if piece.groups is None else piece.groups[there]
            accumulated.add(RowPiece((), None, None, of), piece.columns[0][there], groups)
    results = {} if accumulated is None else accumulated.results()
    if counts is not None and not weighted:
        inside = int(counts.total.sum())
    elif accumulated is not None and by_bin:
        inside = accumulated.size
    # Groups were numbered as they came; results have the order of their keys.
    labels, order = (None, np.zeros(1, np.intp)) if not rows.by else rows.groups.sorted()
    total = None if counts is None else counts.total[order]
    if total is not None and density:
        with np.errstate(invalid="ignore", divide="ignore"):
            total = densities(total, edges, None, over=len(edges))
    results = {name: part[order] for name, part in results.items()}
    return HistResult(edges, total, results, labels, inside, rows.total - rows.missing - rows.cut - inside)


def within(piece: RowPiece, edges: tuple[Array, ...]) -> Array:
    """Return which rows lie in bins; all of them if there are none."""
    inside = np.ones(piece.columns[0].size, bool)
    with np.errstate(all="ignore"):
        for column, axis_edges in zip(piece.columns, edges, strict=False):
            inside &= (column >= axis_edges[0]) & (column <= axis_edges[-1])
    return inside
