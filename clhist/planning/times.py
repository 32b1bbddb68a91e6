"""Predicted times: a plan's seconds, from rates that `clhist calibrate` measured on the device.

Not in the paper, which chooses between the memories by the number of passes; so does `clhist.planning.choose` where a
device has no rates. A rate is of whole kernels as they are planned, in elements a nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clhist.planning.plan import Plan

# What is measured of each kind of update, and then of all: names of the tables `[measured."..."]` in a profile.
ONE_PASS, FURTHER_PASS, PACKED, PARTITIONED, EVERYWHERE = (
    "one pass in local memory",
    "further pass in local memory",
    "16-bit counters in local memory",
    "partitioned",
    "in global memory",
)
CELLS, BANDWIDTH, SHORT = "filling and combining cells", "bandwidth", "shortest kernel"
VALUES = {size: f"partitioned values of {size} bytes" for size in (4, 8)}

COUNT = "count"  # the kind of 32-bit additions of 1, whose pairs have no values
_CELL_BYTES = 4
SWEEP_READING = 0.85  # of the bandwidth of plain reading, on an H200
BIN_NUMBER_BYTES = 4  # of an element where rates are measured
_KERNELS = {PACKED: 3, PARTITIONED: 4, ONE_PASS: 2, EVERYWHERE: 3}


def rate_name(kind: str, what: str) -> str:
    """Return the name of a rate in a profile, such as "cas 32, partitioned"."""
    return f"{kind}, {what}"


@dataclass(frozen=True)
class Times:
    """What is known of one kind of update on one device.

    Attributes
    ----------
    rates : mapping of str to float
        Of a profile.
    kind : str
        Of `clhist.hardware.atomics.update_kind`, or `COUNT`.
    bin_bytes, value_bytes, read_bytes : int
        Of a bin; of a value in memory, 0 if all pairs have the same; and of what the map reads for each element.
    emits : int or None
        How many pairs an element has; None, for which nothing is predicted, if that is not known.
    """

    rates: Mapping[str, float]
    kind: str
    bin_bytes: float
    value_bytes: int
    read_bytes: int
    emits: int | None

    def seconds(self, plan: Plan) -> float | None:
        """Return how long `plan` takes on the device, or None if a rate that this needs is not known.

        None, too, of what was not measured: batches, sorting, and copies that are not shared.
        """
        if plan.is_batch or plan.flat or plan.update in ("private", "sort"):
            return None
        what, overhead = way_of(plan), self.overhead(plan)
        rate, further = self._rate(what), self._rate(FURTHER_PASS if what == ONE_PASS else what)
        bandwidth = self.rates.get(BANDWIDTH, 0)
        values = self.rates.get(VALUES[4 if self.value_bytes <= 4 else 8], 0)  # GB/s
        if overhead is None or self.emits is None or not all((rate, further, bandwidth, values)):
            return None
        reading = self.read_bytes / (SWEEP_READING * bandwidth)
        each = max(self.emits / rate, reading)
        if plan.passes > 1:  # in global memory the updates are what takes long, however many passes they are made in
            each += (plan.passes - 1) * max(self.emits / further if what == ONE_PASS else 0.0, reading)
        if what == PARTITIONED:  # the rate is of bins alone
            each += (self.read_bytes - BIN_NUMBER_BYTES) / (SWEEP_READING * bandwidth) + self.value_bytes / values
        return overhead + plan.num_elements * each * 1e-9

    def overhead(self, plan: Plan) -> float | None:
        """Return the seconds of `plan` that are not of its elements: of kernels, and of cells filled and combined."""
        cells, short = self.rates.get(CELLS, 0), self.rates.get(SHORT, 0)
        if not cells or not short:
            return None
        filled = plan.global_copies * (plan.partitions or 1) * plan.copy_bins[0] * self.bin_bytes / _CELL_BYTES
        return filled / cells * 1e-9 + _KERNELS[way_of(plan)] * short * 1e-6

    def _rate(self, what: str) -> float:
        return self.rates.get(rate_name(self.kind, what), 0)


def way_of(plan: Plan) -> str:
    """Return which of the ways that are measured `plan` goes."""
    if plan.packed:
        return PACKED
    if plan.partitions:
        return PARTITIONED
    return ONE_PASS if plan.memory == "local" else EVERYWHERE
