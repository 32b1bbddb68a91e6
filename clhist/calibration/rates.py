"""Measuring what `model.times` predicts from: rates of whole kernels, each planned in one particular way."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.devices.profile import Profile
from clhist._core.model.partition import power_of_two
from clhist._core.model.plan import Plan
from clhist._core.model.problem import BIN_NUMBER_BYTES, IN_TURN, SIDE_BY_SIDE
from clhist._core.model.times import (
    CELLS,
    COUNT,
    EVERYWHERE,
    FURTHER_PASS,
    ONE_PASS,
    PACKED,
    PACKED_ASIDE,
    PARTITIONED,
    PASS_ASIDE,
    PASS_DEALT,
    SHORT,
    VALUES,
    Times,
    rate_name,
)
from clhist.calibration.measure import MIB, Bench, Measurement
from clhist.errors import BuildError
from clhist.kernel import HistogramKernel
from clhist.operators.operator import Operator

_FEW_ELEMENTS = 1024  # take no time beside the launch of a kernel
_FEW, _MANY = 2048, 400_000  # bins: with many copies in a work-group, or as many as fit, and too many for one pass
# Whose pairs are partitioned with and without values, with which operator, and the C of these.
_WITH_VALUES = {
    "native int32": (operators.add(np.int32), "bins[i]"),
    "native int64": (operators.argmax(np.int32), "((value_t){bins[i], i})"),  # as one maximum of 64 bits
}

_SIDE_BY_SIDE = {"memory": "local", "pass_order": SIDE_BY_SIDE}
# Of which kinds passes are timed side by side, by operators that are one atomic, and with cyclic passes, since sums of
# floats and of 64 bits are loops. Passes of the others are in turn.
_ASIDE = {
    COUNT: operators.add(np.int32),
    "native int32": operators.add(np.int32),
    "native int64": operators.maximum(np.int64),
}
_DEALT = ("native float32", "native float64", "native int64")

_RECORD = np.dtype([("key", np.int64), ("position", np.int64)])

# Of each kind an operator, the C of the value that all pairs have, and the update.
KINDS: dict[str, tuple[Operator, str, str]] = {
    COUNT: (operators.add(np.int32), "1", "native"),
    "native int32": (operators.add(np.int32), "three", "native"),
    "native float32": (operators.add(np.float32), "three", "native"),
    "native float64": (operators.add(np.float64), "three", "native"),
    "native int64": (operators.add(np.int64), "three", "native"),
    "cas 32": (operators.multiply(np.int32), "three", "cas"),
    "cas 64": (operators.multiply(np.int64), "three", "cas"),
    # Their narrow forms compute, whose words have these bits.
    "carry 160": (operators.reproducible_add(np.float64), "three", "carry"),
    "carry 96": (operators.reproducible_add(np.float32), "three", "carry"),
    "carry 64": (operators.reproducible_add(np.float32, 1000.0), "three", "carry"),
    "lock": (
        Operator(
            _RECORD, "b.key > a.key || (b.key == a.key && b.position < a.position) ? b : a", (0, 0), verified=True
        ),
        "((value_t){i, i})",
        "lock",
    ),
}


def plan_rates(bench: Bench, profile: Profile, num_elements: int | None = None) -> dict[str, Measurement]:
    """Return the rate of each kind of update in each way that a GPU has, for uniform bins.

    Parameters
    ----------
    bench : Bench
        The device.
    profile : Profile
        What is planned with; without rates.
    num_elements : int, optional
        By default four times as many as the last-level cache holds of bins.

    Returns
    -------
    dict of str to Measurement
        Elements a nanosecond, by the names of `model.times`. Ways that a kind cannot go are left out.
    """
    size = num_elements or max(8 * MIB, profile.l2_cache) // (4 if bench.quick else 1)
    inputs: dict[int, cl_array.Array] = {}
    rates: dict[str, Measurement] = {}
    for kind, (operator, value, _) in KINDS.items():
        if operator.needs_fp64 and not bench.device.double_fp_config:
            continue
        timer = _Timer.of(bench, profile, kind, operator, value, size, inputs)
        few = max(1, min(_FEW, power_of_two(profile.local_memory // operator.bin_bytes)))
        # Counts are the first kind: rates of all kinds are without these overheads.
        if kind == COUNT:
            rates |= _overheads(timer, profile)
        if kind in _WITH_VALUES:
            rates |= _values(timer, _Timer.of(bench, profile, kind, *_WITH_VALUES[kind], size, inputs))
        for what, bins, choices in (
            (ONE_PASS, few, {"memory": "local", "passes": 1}),
            (PARTITIONED, _MANY, {"memory": "partitioned"}),
            (EVERYWHERE, _MANY, {"memory": "global"}),
        ):
            rates |= timer.rate(what, bins, rates, **choices)
        # The difference of two passes and one in the same bins is a pass without overheads.
        one, two = (timer.seconds(few, memory="local", passes=n, pass_order=IN_TURN) for n in (1, 2))
        if further := _longer(one, two):
            samples, method = [size / further / 1e9], f"{size} elements, {few} bins, two passes against one"
            rates[rate_name(kind, FURTHER_PASS)] = Measurement(samples[0], "G/s", 0.0, method)
        if kind in _ASIDE:
            other = _Timer.of(bench, profile, kind, _ASIDE[kind], value, size, inputs)
            rates |= other.further(PASS_ASIDE, ONE_PASS, _MANY, rates, **_SIDE_BY_SIDE)
        if kind in _DEALT:
            rates |= timer.further(PASS_DEALT, ONE_PASS, _MANY, rates, **_SIDE_BY_SIDE)
        if kind == COUNT:
            rates |= _packed(timer, profile, rates)
    return rates


def _packed(timer: _Timer, profile: Profile, rates: Mapping[str, Measurement]) -> dict[str, Measurement]:
    """Return the rates of packed counters of each width, in as many bins as nearly fit one pass, and in three."""
    packed: dict[str, Measurement] = {}
    for bits, what in PACKED.items():
        # Seven eighths of the counters that local memory has room for.
        bins = profile.local_memory * 8 // bits * 7 // 8
        packed |= timer.rate(what, bins, rates, counter_bits=bits)
        packed |= timer.further(PACKED_ASIDE[bits], what, 3 * bins, {**rates, **packed}, counter_bits=bits)
    return packed


def _overheads(timer: _Timer, profile: Profile) -> dict[str, Measurement]:
    """Return the time of a kernel with hardly any work, and the rate of cells that are filled and combined."""
    few = replace(timer, size=_FEW_ELEMENTS, inputs={}).seconds(1, memory="local", passes=1)
    if not few:
        return {}
    halves = [0.5e6 * seconds for seconds in few]
    rates = {SHORT: Measurement.median(halves, "us", f"{_FEW_ELEMENTS} elements, one bin")}
    # Half of the local memory against a sixteenth: what both calls have in common cancels.
    bins, choices = profile.local_memory // 8, {"memory": "local", "copies": 1}
    seconds = _longer(timer.seconds(bins // 8, **choices), timer.seconds(bins, **choices))
    if seconds:
        few_cells, many_cells = (timer.plan(n, **choices).global_copies * n for n in (bins // 8, bins))
        text = f"copies of {bins} bins of 4 bytes in each work-group, against {bins // 8}"
        rates[CELLS] = Measurement((many_cells - few_cells) / seconds / 1e9, "G/s", 0.0, text)
    return rates


def _values(timer: _Timer, with_values: _Timer) -> dict[str, Measurement]:
    """Return the rate of bytes of values that are partitioned with the bins."""
    seconds = _longer(*(variant.seconds(_MANY, memory="partitioned") for variant in (timer, with_values)))
    value_bytes = _WITH_VALUES[timer.kind][0].dtype.itemsize
    method = f"{timer.size} of them, against pairs without values"
    rate = Measurement(value_bytes * timer.size / seconds / 1e9, "GB/s", 0.0, method) if seconds else None
    return {VALUES[value_bytes]: rate} if rate else {}


def _longer(few: list[float], many: list[float]) -> float:
    """Return by how much the median of `many` is longer than that of `few`, if it is."""
    return max(0.0, statistics.median(many) - statistics.median(few)) if few and many else 0.0


@dataclass(frozen=True)
class _Timer:
    """Times a kernel with one update on so many elements."""

    bench: Bench
    kernel: HistogramKernel
    kind: str
    size: int
    inputs: dict[int, cl_array.Array]

    @classmethod
    def of(
        cls,
        bench: Bench,
        profile: Profile,
        kind: str,
        operator: Operator,
        value: str,
        size: int,
        inputs: dict[int, cl_array.Array],
    ) -> _Timer:
        """Return the timer of a kind of update, an operator and the C of its values; `inputs` are those made so far."""
        arguments = f"const int *bins, const {'int' if operator.dtype.names else 'value_t'} three"
        code = f"EMIT(bins[i], {value})"
        kernel = HistogramKernel(bench.context, operator, arguments=arguments, map=code, profile=profile)
        return cls(bench, kernel, kind, size, inputs)

    def plan(self, num_bins: int, **choices: Any) -> Plan:
        return self.kernel.plan(self.size, num_bins, queue=self.bench.queue, **self._with_update(choices))

    def seconds(self, num_bins: int, **choices: Any) -> list[float]:
        """Return the seconds of all kernels, of each run; nothing where this way is impossible."""
        if num_bins not in self.inputs:
            random = np.random.default_rng(num_bins).integers(0, num_bins, self.size, dtype=np.int32)
            self.inputs[num_bins] = cl_array.to_device(self.bench.queue, random)
        bins = self.inputs[num_bins]
        options = {"num_bins": num_bins, "queue": self.bench.queue, **self._with_update(choices)}
        try:
            runs = [self.kernel.timed(bins, 3, **options)[1] for _ in range(self.bench.runs)]
        except ValueError:
            # Partitioning does not support this kind.
            return []
        except (MemoryError, BuildError) as error:
            way = ", ".join(f"{key} {value}" for key, value in choices.items())
            warnings.warn(f"not measured: {self.kind}, {num_bins} bins, {way}: {error}", RuntimeWarning, stacklevel=2)
            return []
        return [sum(stages.values()) for stages in runs]

    def rate(
        self, what: str, num_bins: int, rates: Mapping[str, Measurement], **choices: Any
    ) -> dict[str, Measurement]:
        """Return how many elements are done in a nanosecond, without the overhead that `model.times` adds."""
        runs = self.seconds(num_bins, **choices)
        # A plan may turn out other than it was asked for, and its rate would have the wrong name.
        if not runs or (plan := self.plan(num_bins, **choices)).rate != what:
            return {}
        overhead = self._overhead(plan, rates)
        # The overhead is a prediction: a tenth of the time remains in any case.
        samples = [self.size / max(seconds - overhead, seconds / 10) / 1e9 for seconds in runs]
        method = f"{self.size} elements, {num_bins} uniform bins, without {1e6 * overhead:.0f} us for kernels and cells"
        return {rate_name(self.kind, what): Measurement.median(samples, "G/s", method)}

    def further(
        self, what: str, first: str, num_bins: int, rates: Mapping[str, Measurement], **choices: Any
    ) -> dict[str, Measurement]:
        """Return how many elements each pass beyond the first does in a nanosecond; `first` is the rate of that."""
        one, runs = rates.get(rate_name(self.kind, first)), self.seconds(num_bins, **choices)
        if one is None or not runs or (plan := self.plan(num_bins, **choices)).pass_order != SIDE_BY_SIDE:
            return {}
        rest = self._overhead(plan, rates) + self.size / one.value * 1e-9
        passes = plan.passes - 1
        samples = [passes * self.size / max(seconds - rest, seconds / 10) / 1e9 for seconds in runs]
        method = f"{self.size} elements, {num_bins} uniform bins, {passes} passes beyond the first"
        return {rate_name(self.kind, what): Measurement.median(samples, "G/s", method)}

    def _overhead(self, plan: Plan, rates: Mapping[str, Measurement]) -> float:
        """Return the seconds of kernels and cells that `model.times` adds."""
        values = {name: rate.value for name, rate in rates.items()}
        bin_bytes = plan.outputs[0].operator.bin_bytes
        return Times(values, (self.kind,), bin_bytes, 0, BIN_NUMBER_BYTES, 1).overhead(plan) or 0.0

    def _with_update(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Return the choices; counters of 16 bits are only taken where nothing is forced."""
        return {**choices, "update": KINDS[self.kind][2]} if choices else {}
