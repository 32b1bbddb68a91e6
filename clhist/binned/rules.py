"""NumPy's rules for the number of bins, for data on a device: only the statistics that a rule needs are copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, isqrt, log2, pi
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.elements import bits_of, has_no_type, kernel_dtype, key_of_bits
from clhist._core.keys import bits_dtype, from_keys, key_dtype, key_range
from clhist._core.opencl.device import device_kind, has_fp64
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.caller import warn_caller
from clhist._core.runtime.engine import Engine
from clhist.axes.thresholds import keys_within
from clhist.binned.extent import key_extent
from clhist.binned.selection import order_statistics
from clhist.operators.c_types import c_name

_LANES = 4096  # partial sums, which the host adds up
# Elements of an array of the host from which a CPU selects quartiles: of 10^6 and 10^7 float64 NumPy takes 18 and 193
# ms, and two cores of an EPYC 16 and 120 ms together.
_MANY_OF_HOST = 1 << 19

Counts = Callable[[int], np.ndarray]  # takes a number of bins, returns the counts


def number_of_bins(
    rule: str,
    array: Any,
    where: Any,
    ends: tuple[Any, Any],
    requested_range: Any,
    counts: Counts,
    queue: cl.CommandQueue,
) -> int:
    """Return the number of bins by a rule of `numpy.histogram_bin_edges`, for a flat device array.

    Parameters
    ----------
    rule : str
        The name of the rule, such as "fd".
    array : pyopencl.array.Array
        Flat; finite unless there is a `requested_range`.
    where : array of bool, or None
        True for elements that count.
    ends : pair
        The ends of the bins.
    requested_range : pair or None
        The caller's range: elements outside do not count.
    counts : callable
        Takes a number of bins between the ends, and returns the counts.
    queue : pyopencl.CommandQueue
        The queue that computes.
    """
    dtype = kernel_dtype(array.dtype)
    bounds = key_range(dtype) if requested_range is None else keys_within(*ends, dtype)
    sample = _Sample(array, where, dtype, bounds, counts, queue)
    if not sample.size:
        return 1
    # A width of 0 stands for data without spread, which has one bin.
    width = _RULES[rule](sample)
    if not width:
        return 1
    if dtype.kind in "iu" and width < 1:  # as NumPy: no bin of integers is narrower than one
        width = 1
    # The difference of integer ends may exceed their dtype: subtract Python integers.
    whole = all(isinstance(end, int | np.integer) for end in ends)
    difference = np.uint64(int(ends[1]) - int(ends[0])) if whole else np.subtract(ends[1], ends[0])
    return ceil(difference / width)


def has_quick_rule(array: np.ndarray, rule: str, queue: cl.CommandQueue) -> bool:
    """Whether the device computes a rule for an array of the host sooner than NumPy, and exactly as NumPy.

    Quartiles are exact; moments are not added up in NumPy's order.
    """
    is_of_quartiles = rule in ("auto", "fd") and array.size >= _MANY_OF_HOST
    return is_of_quartiles and array.dtype.isnative and device_kind(queue.device) == "cpu"


@dataclass
class _Sample:
    """Data on a device with the statistics that rules use, each computed on first use."""

    array: Any
    where: Any
    dtype: np.dtype
    bounds: tuple[int, int]
    counts: Counts
    queue: cl.CommandQueue

    @cached_property
    def _extent(self) -> tuple[int, int, int]:
        return key_extent(self.array, self.where, self.bounds, self.queue)

    @property
    def size(self) -> int:
        """The number of elements that count."""
        return self._extent[2]

    @cached_property
    def extent(self) -> Any:
        """The difference of the greatest and the least element."""
        low, high, _ = self._extent
        if self.dtype.kind in "iu":
            return high - low
        ends = from_keys(np.array([low, high], key_dtype(self.dtype)), self.dtype)
        return ends[1] - ends[0]

    @cached_property
    def mean(self) -> float:
        """Mean, in float64 where the device has it."""
        return self._power_sum(0.0, 1.0, 1) / self.size

    @cached_property
    def deviation(self) -> float:
        """Standard deviation."""
        return float((self._power_sum(self.mean, 1.0, 2) / self.size) ** 0.5)

    @cached_property
    def skewness(self) -> float:
        """Mean of the cubes of the standardised elements."""
        return self._power_sum(self.mean, self.deviation, 3) / self.size

    def as_numpys(self, number: float) -> Any:
        """Return a statistic in the dtype that NumPy computes it in."""
        return self.dtype.type(number) if self.dtype.kind == "f" else np.float64(number)

    @cached_property
    def quartile_range(self) -> Any:
        """Difference of the quartiles, interpolated by `numpy.percentile` from only the four neighbours of both."""
        last = self.size - 1
        ranks = [last // 4, last // 4 + 1, 3 * last // 4, 3 * last // 4 + 1] if last > 4 else range(self.size)
        # A sweep searches for four ranks at a time.
        neighbours = [
            element
            for n in range(0, len(ranks), 4)
            for element in order_statistics(self.array, self.where, self.bounds, ranks[n : n + 4], self.queue)
        ]
        # At most five elements are all there: no neighbours to choose.
        if last <= 4:
            return np.subtract(*np.percentile(np.array(neighbours, self.dtype), [75, 25]))
        # A sample of few + 1 elements, whose quartiles divide the distance between neighbours in the same ratio.
        few = 4 + last % 4
        upper = 3 * few // 4
        sample = [
            neighbours[0],
            neighbours[0],
            *[neighbours[1]] * (upper - 2),
            neighbours[2],
            *[neighbours[3]] * (few - upper),
        ]
        return np.subtract(*np.percentile(np.array(sample, self.dtype), [75, 25]))

    def _power_sum(self, shift: float, scale: float, power: int) -> float:
        """Return the sum of ``((x - shift) / scale) ** power`` over the elements that count."""
        fp64 = has_fp64(self.queue.device)
        as_bits = has_no_type(self.array.dtype, fp64)
        kernel = _power_kernel(self.queue.context, self.array.dtype, as_bits, fp64, self.where is not None)
        data = self.array.view(bits_dtype(self.array.dtype)) if as_bits else self.array
        key = key_dtype(self.dtype)
        arguments = (data, *([] if self.where is None else [self.where]), *(key.type(bound) for bound in self.bounds))
        sums = kernel(*arguments, shift, scale, power, size=self.array.size, num_bins=_LANES, queue=self.queue)
        return float(sums.get(self.queue).astype(np.float64).sum())


@kept_by_context
def _power_kernel(context: cl.Context, dtype: np.dtype, as_bits: bool, fp64: bool, masked: bool) -> Engine:
    """Return the kernel of `_Sample._power_sum`, with `_LANES` partial sums as bins."""
    real, key, data = "double" if fp64 else "float", key_dtype(dtype), bits_dtype(dtype) if as_bits else dtype
    # Elements as real numbers: halves and, without double precision, float64 are decoded from their bits.
    if dtype == np.float16:
        value = "vload_half(i, (__global const half *)x)"
    elif as_bits:  # float64 data on a device without double precision: rounded to float
        value = "ldexp((float)((bits & 0xfffffffffffffL) | 0x10000000000000L), (int)((bits >> 52) & 0x7ff) - 1075)"
        value = f"(bits < 0 ? -1 : 1) * {value}"
    else:
        value = "x[i]"
    code = f"""
        const {c_name(bits_dtype(dtype))} bits = {bits_of("x[i]", data)};
        const {c_name(key)} key = {key_of_bits(dtype)};
        if (key >= least && key <= greatest{" && where[i]" if masked else ""}) {{
            const {real} part = (({real})({value}) - shift) / scale;
            EMIT((int)(i % {_LANES}), power == 1 ? part : power == 2 ? part * part : part * part * part);
        }}
    """
    arguments = f"const {c_name(data)} *x, {'const uchar *where, ' if masked else ''}{c_name(key)} least, "
    arguments += f"{c_name(key)} greatest, {real} shift, {real} scale, int power"
    operator = operators.add(np.float64 if fp64 else np.float32)
    return Engine.of(context, operator, arguments=arguments, map=code, emits=1)


# Each rule returns the width of bins by the formula of `numpy.lib._histograms_impl`; 0 stands for a single bin.


def _sqrt(x: _Sample) -> Any:
    return x.extent / np.sqrt(x.size)


def _sturges(x: _Sample) -> Any:
    return x.extent / (np.log2(x.size) + 1.0)


def _rice(x: _Sample) -> Any:
    return x.extent / (2.0 * x.size ** (1.0 / 3))


def _scott(x: _Sample) -> Any:
    return (24.0 * pi**0.5 / x.size) ** (1.0 / 3.0) * x.as_numpys(x.deviation)


def _doane(x: _Sample) -> Any:
    if x.size < 3 or not x.deviation > 0:
        return 0.0
    spread = (6.0 * (x.size - 2) / ((x.size + 1.0) * (x.size + 3))) ** 0.5
    return x.extent / (1.0 + log2(x.size) + log2(1.0 + abs(x.skewness) / spread))


def _fd(x: _Sample) -> Any:
    return 2.0 * x.quartile_range * x.size ** (-1.0 / 3.0)


def _auto(x: _Sample) -> Any:
    least = _fd(x)
    if _has_root_term():
        return min(max(least, _sqrt(x) / 2), _sturges(x))
    return min(least, _sturges(x)) if least else _sturges(x)


@lru_cache(maxsize=1)
def _has_root_term() -> bool:
    """Return whether NumPy's "auto" bounds the width by half of "sqrt", as since its issue 28400; tried by example."""
    outlier = np.append(np.linspace(0, 1e-4, 99), 1)
    return len(np.histogram_bin_edges(outlier, "auto")) < 100


def _stone(x: _Sample) -> Any:
    if x.size <= 1 or x.extent == 0:
        return 0

    def loss(bins: int) -> float:
        share = x.counts(bins) / x.size
        return float((2 - (x.size + 1) * share.dot(share)) / (x.extent / bins))

    # A histogram for each number of bins up to NumPy's bound; the least loss wins.
    most = max(100, isqrt(x.size))
    best = min(range(1, most + 1), key=loss)
    if best == most:
        warn_caller("The number of bins estimated may be suboptimal.", RuntimeWarning)
    return x.extent / best


_RULES: dict[str, Callable[[_Sample], Any]] = {
    "stone": _stone,
    "auto": _auto,
    "doane": _doane,
    "fd": _fd,
    "rice": _rice,
    "scott": _scott,
    "sqrt": _sqrt,
    "sturges": _sturges,
}
