"""Predicted times: a plan's seconds, from rates that `clhist calibrate` measured or `model.scaling` scaled.

Not in the paper, which chooses between the memories by the number of passes; so does `model.shared` for kinds
of updates without rates. A rate is of whole kernels as they are planned, in elements a nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from clhist._core.model.plan import Plan
from clhist._core.model.problem import BIN_NUMBER_BYTES, COUNTER_BITS, SIDE_BY_SIDE

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
WAIT = "wait for a lock"  # of an update for the one before it
ROWS_PLACED, ROWS_GATHERED = "rows placed by bin", "rows gathered"  # in G/s and GB/s, on a GPU
ROWS_AT_ONCE = "rows added by atomics of several numbers"  # atomics, in G/s
ROWS_FOUND, ROWS_ADDED = "rows found", "rows added"  # the same on a CPU
ROWS_UPDATED = "components of rows updated"  # in private copies, in G/s
VALUES = {size: f"partitioned values of {size} bytes" for size in (4, 8)}

# Of a device that was not measured in time, but whose instructions were counted (.ci/emulated).
NATIVE_COPIES = "copies of native updates"

COUNT = "count"  # the kind of 32-bit additions of 1, whose pairs have no values
_CELL_BYTES = 4  # of a cell whose filling is measured; larger ones count as several
SWEEP_READING = 0.85  # of the bandwidth of plain reading, on an H200
# Rates are of uniform bins. A plan that skew slows more than another must be predicted to be so many times as fast:
# a CPU's tiles and gathered rows (no record of a measurement), counters of half the width (the same), packed counters,
# which skew makes count again, and partitions behind them (1.28: H200, 57,000 and 98,290 bins, whole and packed), and
# updates in global memory (1.5: H200, float64 sums of 400,000 bins). `clhist bench --suite skew`
# has such input; the commands of then are not recorded.
RISK_ON_CPU, RISK_NARROW, RISK_PACKED, RISK_GLOBAL = 1.1, 1.11, 1.28, 1.5


def rate_name(kind: str, what: str) -> str:
    """Return the name of a rate in a profile, such as "cas 32, partitioned"."""
    return f"{kind}, {what}"


class Times(NamedTuple):
    """Measured rates of one kind of update on one device.

    Attributes
    ----------
    rates : mapping of str to float
        Of a profile.
    kinds : tuple of str
        `clhist._core.model.updates.rate_kind` of each update of a pair, or `COUNT`.
    bin_bytes, value_bytes, read_bytes : int
        Of a bin; of a value in memory, 0 if all pairs have the same; and of what the map reads for each element.
    max_pairs : int or None
        Pairs that an element has at most; None, for which nothing is predicted, if that is not known.
    """

    rates: Mapping[str, float]
    kinds: tuple[str, ...]
    bin_bytes: float
    value_bytes: int
    read_bytes: int
    max_pairs: int | None

    def seconds(self, plan: Plan) -> float | None:
        """Return how long `plan` takes on the device, or None if a rate that this needs is not known.

        None, too, for what was not measured: batches, sorting, and copies that are not shared.
        """
        if plan.rate is None or plan.update == "private":
            return None
        overhead = self.overhead(plan)
        rate = self._rate(plan.rate)
        bandwidth = self.rates.get(BANDWIDTH, 0)
        # Two sizes are measured: values above four bytes have the rate of eight.
        values = self.rates.get(VALUES[4 if self.value_bytes <= 4 else 8], 0)  # GB/s
        if overhead is None or self.max_pairs is None or not all((rate, bandwidth, values)):
            return None
        reading = self.read_bytes / (SWEEP_READING * bandwidth)
        # Loads and updates overlap, so the slower of them decides.
        nanoseconds = max(self.max_pairs / rate, reading)
        if plan.passes > 1:
            further = self._further(plan, reading)
            if further is None:
                return None
            nanoseconds += (plan.passes - 1) * further
        if plan.rate == PARTITIONED:  # the rate is of bins alone
            nanoseconds += (self.read_bytes - BIN_NUMBER_BYTES) / (
                SWEEP_READING * bandwidth
            ) + self.value_bytes / values
        return overhead + plan.num_elements * nanoseconds * 1e-9

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
        return max((self.max_pairs or 1) / rate, cached) if rate else None

    def overhead(self, plan: Plan) -> float | None:
        """Return the seconds of `plan` that are not of its elements: of kernels, and of cells filled and combined."""
        cells, short = self.rates.get(CELLS, 0), self.rates.get(SHORT, 0)
        if not cells or not short:
            return None
        filled = plan.filled_cells * self.bin_bytes / _CELL_BYTES
        return filled / cells * 1e-9 + plan.launches * short * 1e-6

    def _rate(self, what: str) -> float:
        """Return the pairs a nanosecond, whose updates follow each other; 0 if the rate of one is not known."""
        rates = [self.rates.get(rate_name(kind, what), 0) for kind in self.kinds]
        return 1 / sum(1 / rate for rate in rates) if rates and all(rates) else 0
