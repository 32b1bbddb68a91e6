"""Predicted times: a plan's seconds, from rates that `clhist calibrate` measured on the device.

Not in the paper, which chooses between the memories by the number of passes (`clhist.planning.paper`). A rate is of
whole kernels as they are planned, in elements a nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from clhist.planning.plan import Plan
from clhist.planning.problem import BIN_NUMBER_BYTES, COUNTER_BITS, SIDE_BY_SIDE

# What is measured of each kind of update, and then of all: names of the tables `[measured."..."]` in a profile.
ONE_PASS, FURTHER_PASS, PASS_ASIDE, PASS_DEALT, PARTITIONED, EVERYWHERE = (
    "one pass in local memory",
    "further pass in local memory",
    "further pass side by side",
    "further pass side by side, bins dealt out",
    "partitioned",
    "in global memory",
)
PACKED = {bits: f"{bits}-bit counters in local memory" for bits in reversed(COUNTER_BITS[:-1])}
PACKED_ASIDE = {bits: f"further pass of {bits}-bit counters" for bits in PACKED}
CELLS, BANDWIDTH, SHORT, LAUNCH = "filling and combining cells", "bandwidth", "shortest kernel", "launch"
ROWS_PLACED, ROWS_GATHERED = "rows placed by bin", "rows gathered"  # in G/s and GB/s, on a GPU
ROWS_AT_ONCE = "rows added by atomics of several numbers"  # atomics, in G/s
ROWS_FOUND, ROWS_ADDED = "rows found", "rows added"  # the same on a CPU
ROWS_UPDATED = "components of rows updated"  # in private copies, in G/s
VALUES = {size: f"partitioned values of {size} bytes" for size in (4, 8)}

# Of a device that was not measured in time, but whose instructions were counted (.ci/emulated).
NATIVE_COPIES, PARTITIONED_BYTES = "copies of native updates", "bytes of partitioned values"

COUNT = "count"  # the kind of 32-bit additions of 1, whose pairs have no values
PLUS = " + "
_CARRY = "carry "
_CELL_BYTES = 4
SWEEP_READING = 0.85  # of the bandwidth of plain reading, on an H200
# The paper's constants (section III-D).
K_RF = 0.75
F_L2 = 0.4
# Compute units that fill cells as fast as all: one writes 64 bytes a clock, 32 G cells a second of an H200's 358.
FILLING_UNITS = 12
MISSED_BYTES = 128  # that an update moves at most which misses the last-level cache: a line, read and written


def rate_name(kind: str, what: str) -> str:
    """Return the name of a rate in a profile, such as "cas 32, partitioned"."""
    return f"{kind}, {what}"


def race_expansion(race_factor: float, line: int, average: float) -> float:
    """Return RACE_exp: how many times as many bins the cache holds where neighbours share its lines (equation 4)."""
    return max(1.0, K_RF * race_factor / max(1.0, line / average))


class Times(NamedTuple):
    """What is known of one kind of update on one device.

    Attributes
    ----------
    rates : mapping of str to float
        Of a profile.
    kind : str
        Of `clhist.planning.updates.rate_kind`, or `COUNT`; of several parts, which are updated one after the other,
        joined by " + ".
    bin_bytes, value_bytes, read_bytes : int
        Of a bin; of a value in memory, 0 if all pairs have the same; and of what the map reads for each element.
    max_pairs : int
        Pairs that an element has, as far as that is known.
    cached_bytes : float
        Of bins that the last-level cache holds: F_L2 L2 RACE_exp.
    """

    rates: Mapping[str, float]
    kind: str
    bin_bytes: float
    value_bytes: int
    read_bytes: int
    max_pairs: int
    cached_bytes: float = inf

    def seconds(self, plan: Plan) -> float | None:
        """Return how long `plan` takes on the device, or None if a rate that this needs is not known.

        None, too, for what was not measured: batches, sorting, and private copies in global memory. Those in local
        memory are as fast as shared ones, at least.
        """
        if plan.rate is None:
            return None
        overhead, each = self.overhead(plan), self._each(plan)
        if overhead is None or each is None:
            return None
        if plan.rate == EVERYWHERE:
            held = self.cached_bytes * plan.passes / (plan.copies * plan.num_bins * self.bin_bytes)
            each += self.max_pairs * max(0.0, 1 - held) * MISSED_BYTES / self.rates[BANDWIDTH]
        if plan.passes > 1:
            further = self._further(plan, self._reading)
            if further is None:
                return None
            each += (plan.passes - 1) * further
        return overhead + plan.num_elements * each * 1e-9

    def without_bins(self, plan: Plan, *, missed: bool) -> float | None:
        """Return the seconds of kernels and elements, in one pass; `missed` if bins are beyond the cache."""
        each = self._each(plan)
        if each is None:
            return None
        if plan.rate == EVERYWHERE and missed:
            each += self.max_pairs * MISSED_BYTES / self.rates[BANDWIDTH]
        return plan.launches * self.rates[SHORT] * 1e-6 + plan.num_elements * each * 1e-9

    @property
    def _reading(self) -> float:
        """Nanoseconds of reading an element."""
        return self.read_bytes / (SWEEP_READING * self.rates[BANDWIDTH])

    def _each(self, plan: Plan) -> float | None:
        """Return the nanoseconds of an element in the first pass, or None if a rate that this needs is not known."""
        rate = self._rate(plan.rate) if plan.rate else 0
        values = self.rates.get(VALUES[4 if self.value_bytes <= 4 else 8], 0)  # GB/s
        if not all((rate, values, self.rates.get(BANDWIDTH, 0), self.rates.get(SHORT, 0))):
            return None
        each = max(self.max_pairs / rate, self._reading)
        if plan.rate == PARTITIONED:  # the rate is of bins alone
            more = (self.read_bytes - BIN_NUMBER_BYTES) / (SWEEP_READING * self.rates[BANDWIDTH])
            each += more + self.value_bytes / values
        return each

    def _further(self, plan: Plan, reading: float) -> float | None:
        """Return the nanoseconds that each further pass takes for an element, or None."""
        if plan.pass_order == SIDE_BY_SIDE:  # reads come from the cache, whose bandwidth is that of counts
            whole = PASS_DEALT if plan.cyclic_passes else PASS_ASIDE
            further = next((PACKED_ASIDE[bits] for bits, name in PACKED.items() if name == plan.rate), whole)
            rate, count = self._rate(further), self.rates.get(rate_name(COUNT, PASS_ASIDE), 0)
            cached = self.read_bytes / (BIN_NUMBER_BYTES * count) if count else 0.0
        elif plan.rate == ONE_PASS:
            rate, cached = self._rate(FURTHER_PASS), reading
        else:  # in global memory the updates dominate, however many passes they are made in
            return reading
        return max(self.max_pairs / rate, cached) if rate else None

    def overhead(self, plan: Plan) -> float | None:
        """Return the seconds of `plan` that are not of its elements: of kernels, and of cells filled and combined."""
        cells, short = self.rates.get(CELLS, 0), self.rates.get(SHORT, 0)
        if not cells or not short:
            return None
        filled = plan.filled_cells * self.bin_bytes / _CELL_BYTES
        if plan.memory == "local" and not plan.ranges:
            groups = plan.work_groups * (plan.passes if plan.pass_order == SIDE_BY_SIDE else 1)
            filled *= max(1.0, FILLING_UNITS / groups)
        return filled / cells * 1e-9 + plan.launches * short * 1e-6

    def _rate(self, what: str) -> float:
        """Return a rate; 0 if it is not known. The parts of an operator are updated one after the other."""
        kinds = self.kind.split(PLUS)
        rates = [self._rate_of(kind, what) for kind in kinds]
        if what == PARTITIONED and len(kinds) > 1:  # pairs are split once
            slowest = min(range(len(kinds)), key=lambda k: rates[k])
            rates = [rates[k] if k == slowest else self._rate_of(kind, ONE_PASS) for k, kind in enumerate(kinds)]
        return 1 / sum(1 / rate for rate in rates) if all(rates) else 0

    def _rate_of(self, kind: str, what: str) -> float:
        """Return a rate; of carries that were not measured those of the next longer integer: few words are touched."""
        rate = self.rates.get(rate_name(kind, what), 0)
        if not rate and what == PASS_DEALT and PLUS in self.kind:  # a part that is one atomic, beside one that loops
            rate = self.rates.get(rate_name(kind, PASS_ASIDE), 0)
        if rate or not kind.startswith(_CARRY) or rate_name(kind, ONE_PASS) in self.rates:
            return rate
        lengths = {int(name[len(_CARRY) :].partition(",")[0]) for name in self.rates if name.startswith(_CARRY)}
        own = int(kind[len(_CARRY) :])
        nearest = f"{_CARRY}{min(lengths, key=lambda bits: (bits < own, abs(bits - own)), default=0)}"
        further = self.rates.get(rate_name(nearest, FURTHER_PASS), 0) if what in (PASS_ASIDE, PASS_DEALT) else 0
        return self.rates.get(rate_name(nearest, what), further)
