"""The calls that cases make: each function returns one, with its input still to be drawn."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyopencl as cl

import clhist
from clhist import operators
from clhist._core.model import narrow
from clhist.grouped.numbering import number_keys
from clhist.selftest.reference import nearest
from emulated.cases.case import Action, bins_of, folded, same


def _neutral(ufunc: np.ufunc, dtype: np.dtype) -> Any:
    if ufunc is np.maximum:
        return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf
    return ufunc.identity


def pairs(ufunc: np.ufunc, dtype: Any, n: int, h: int, kind: str, **options: Any) -> Action:
    """Values that any order combines to the same result, by a ufunc."""
    dtype = np.dtype(dtype)

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins = bins_of(kind, rng, n, h)
        if dtype.kind == "c" and ufunc is np.multiply:
            values = np.array([1, -1, 1j, -1j], dtype)[rng.integers(0, 4, n)]
        elif dtype.kind == "c":
            values = (rng.integers(-9, 9, n) + 1j * rng.integers(-9, 9, n)).astype(dtype)
        else:
            values = (rng.integers(-1000, 1000, n) / (4 if dtype.kind == "f" else 1)).astype(dtype)
        start = np.full(h, _neutral(ufunc, dtype), dtype)
        found = clhist.reduce_by_index(start.copy(), ufunc, bins, values, queue=queue, **options)
        same(found, folded(ufunc, bins, values, start))

    return action


def rows(ufunc: np.ufunc, dtype: Any, n: int, h: int, d: int, kind: str, **options: Any) -> Action:
    """Rows of values, onto others."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins, start = bins_of(kind, rng, n, h), rng.integers(-9, 9, (h, d)).astype(dtype)
        values = rng.integers(-1000, 1000, (n, d)).astype(dtype)
        found = clhist.reduce_by_index(start.copy(), ufunc, bins, values, queue=queue, **options)
        same(found, np.stack([folded(ufunc, bins, values[:, k], start[:, k]) for k in range(d)], axis=1))

    return action


def exact_rows(dtype: Any, n: int, h: int, d: int, **options: Any) -> Action:
    """Exact sums of rows: of values near each other, of others that cancel, and of one bin with many."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins, values = rng.integers(0, h, n, dtype=np.int32), rng.integers(-1000, 1000, (n, d)).astype(dtype)
        bins[: n // 2] = 7
        large = np.ldexp(rng.normal(size=(n, d)), rng.integers(-100, 100, (n, d))).astype(dtype)
        large[bins % 2 == 0] = 0  # these cancel; what is left are sums of integers
        order = rng.permutation(3 * n)
        rows = np.concatenate([values, large, -large])[order]
        found = clhist.reduce_by_index((h, d), np.add, np.tile(bins, 3)[order], rows, queue=queue, **options)
        zeros = np.zeros(h, dtype)
        same(found, np.stack([folded(np.add, bins, values[:, k], zeros) for k in range(d)], axis=1))

    return action


def counts(n: int, h: int, kind: str, **options: Any) -> Action:
    """Counts, by a kernel whose map emits 1."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins = bins_of(kind, rng, n, h)
        kernel = clhist.HistogramKernel(
            queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)"
        )
        found = kernel(bins, num_bins=h, queue=queue, **options)
        same(found, folded(np.add, bins, np.ones(n), np.zeros(h, np.int32)))

    return action


def argmax(dtype: Any, n: int, h: int, kind: str, **options: Any) -> Action:
    """The largest value of each bin and the first place where it stands."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins, values = bins_of(kind, rng, n, h), rng.integers(-500, 500, n).astype(dtype)
        operator = operators.argmax(dtype)
        found = clhist.reduce_by_index(h, operator, bins, values, queue=queue, **options)
        order = np.lexsort((np.arange(n), -values.astype(np.int64), bins))
        first = order[np.r_[True, np.diff(bins[order]) != 0]]
        same(found["index"][bins[first]], first.astype(found["index"].dtype))
        same(found["value"][bins[first]], values[first])

    return action


def saturating(n: int, h: int, kind: str, most: int, **options: Any) -> Action:
    """Counts that stop at `most`."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins, operator = bins_of(kind, rng, n, h), operators.saturating_add(np.int32, most)
        start, ones = np.zeros(h, np.int32), np.ones(n, np.int32)
        found = clhist.reduce_by_index(start, operator, bins, ones, queue=queue, **options)
        same(found, np.minimum(np.bincount(bins, minlength=h), most).astype(np.int32))

    return action


_RECORD = np.dtype([("n", "i4"), ("s", "f8"), ("m", "i4")], align=True)  # 24 bytes
_COMBINE = "((accumulator_t){a.n + b.n, a.s + b.s * (b.n > -1), a.m > b.m ? a.m : b.m})"


def records(n: int, h: int, kind: str, **options: Any) -> Action:
    """A count, a sum and a maximum of one bin, under one lock."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins, numbers, values = bins_of(kind, rng, n, h), rng.integers(-99, 99, n), np.zeros(n, _RECORD)
        least = np.iinfo(np.int32).min
        operator = clhist.Operator(_RECORD, combine=_COMBINE, neutral=(0, 0.0, least))
        values["n"], values["s"], values["m"] = 1, numbers / 4, numbers
        found = clhist.reduce_by_index(h, operator, bins, values, queue=queue, **options)
        same(found["n"], folded(np.add, bins, np.ones(n), np.zeros(h, np.int32)))
        same(found["s"], folded(np.add, bins, numbers / 4, np.zeros(h)))
        same(found["m"], folded(np.maximum, bins, numbers, np.full(h, least, np.int32)))

    return action


def narrow_sums(dtype: Any, n: int, h: int, **options: Any) -> Action:
    """Exact sums that are tried in few words: of values that fit, and with one that does not."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins, values = bins_of("outside", rng, n, h), rng.standard_normal(n).astype(dtype)
        least, narrow.LEAST_ELEMENTS = narrow.LEAST_ELEMENTS, 0
        try:
            for value in (1.0, 2.0**100):
                values[n // 2 + 39] = value
                found = clhist.reduce_by_index(h, np.add, bins, values, queue=queue, reproducible=True, **options)
                each = [[Fraction(v) for v in values[bins == k].tolist()] for k in range(h)]
                same(found, np.array([nearest(sum(group, Fraction(0)), dtype) for group in each]))
        finally:
            narrow.LEAST_ELEMENTS = least

    return action


def reproducible(dtype: Any, n: int, h: int, kind: str, **options: Any) -> Action:
    """Exact sums in another order and by another plan, and those of a window near them."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins = bins_of(kind, rng, n, h)
        values = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(dtype)
        most = float(np.abs(values).max())

        def sums(order: Any, **more: Any) -> np.ndarray:
            start = np.zeros(h, dtype)
            given = {"queue": queue, "reproducible": True, **more}
            return clhist.reduce_by_index(start, np.add, bins[order], values[order], **given)

        each = [[Fraction(v) for v in values[bins == k].tolist()] for k in range(h)]
        same(sums(slice(None), **options), np.array([nearest(sum(group, Fraction(0)), dtype) for group in each]))
        one, two = (sums(order, max_abs=most, **options) for order in (slice(None), rng.permutation(n)))
        if one.tobytes() != two.tobytes():
            raise AssertionError("another order gives other bits")
        exact, size = np.zeros(h, np.longdouble), np.zeros(h)
        np.add.at(exact, bins, values.astype(np.longdouble))
        np.add.at(size, bins, np.abs(values))
        bound = size * np.finfo(dtype).eps + most * n * 2.0 ** (-29 if dtype == np.float32 else -61)
        wrong = np.abs(one - exact) > bound
        assert not wrong.any(), f"{wrong.sum()} bins are further from the exact sums than documented"

    return action


def batch(n: int, rows: int, h: int, kind: str) -> Action:
    """Counts of many short rows: of equal lengths, or with `offsets`; or by `num_histograms` of a kernel."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins = rng.integers(0, h, n, np.int32)
        lengths = np.full(rows, n // rows) if kind == "equal" else rng.multinomial(n, np.ones(rows) / rows)
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        expected = [np.bincount(bins[a:b], minlength=h) for a, b in pairwise(ends)]
        kernel = clhist.HistogramKernel(
            queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)"
        )
        given = {"num_histograms": rows} if kind == "equal" else {"offsets": ends}
        found = kernel(bins, num_bins=h, queue=queue, **given)
        same(found, np.array(expected, np.int32))

    return action


def edges(n: int) -> Action:
    """A histogram of float64 over uneven edges."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        x = rng.standard_normal(n)
        where = np.sort(rng.uniform(-3, 3, 41))
        found, _ = clhist.histogram(x, bins=where, queue=queue)
        same(np.asarray(found, np.int64), np.histogram(x, bins=where)[0].astype(np.int64))

    return action


def keys(dtype: Any, n: int, kind: str) -> Action:
    """Numbers of keys: a few that are far apart, all different, or near each other."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        if np.dtype(dtype).kind == "f":
            given = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, 2.5, 1e-42], dtype), n)
            given = rng.standard_normal(n).astype(dtype) if kind == "different" else given
        else:
            info = np.iinfo(dtype)
            given = rng.integers(info.min, info.max, n, dtype, endpoint=True)
            if kind != "different":
                given = given[rng.integers(0, 9, n)] if kind == "few" else rng.integers(0, 300, n).astype(dtype)
        there = given == given
        labels, first, numbers = np.unique(given[there], return_index=True, return_inverse=True)
        expected = np.full(n, -1, np.int32)
        expected[there] = numbers
        found = number_keys(given, queue, first=True)
        same(found.numbers, expected)
        same(found.keys, labels)
        same(found.first, np.flatnonzero(there)[first])

    return action


def along_groups(dtype: Any, n: int, groups: int) -> Action:
    """Run the functions along groups: place, running sum, largest so far, and rank of each element."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        numbers, values = rng.integers(0, groups, n), rng.integers(-50, 50, n).astype(dtype)
        grouped = clhist.group_by(numbers, groups, queue=queue)
        found = [grouped.cumcount(), grouped.cumsum(values), grouped.cummax(values), grouped.rank(values, "min")]
        expected = np.zeros((4, n))
        for k in range(groups):
            of_it = np.flatnonzero(numbers == k)
            own = values[of_it]
            ranks = (own[:, None] > own).sum(1) + 1
            expected[:, of_it] = np.arange(own.size), np.cumsum(own), np.maximum.accumulate(own), ranks
        for ours, theirs in zip(found, expected, strict=True):
            same(ours.astype(np.float64), theirs)

    return action
