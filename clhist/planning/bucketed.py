"""Private copies of many bins: pairs wait in buckets, by ranges of bins, and a full bucket is emptied into its range.

An update of a bin that is in no cache waits for memory. Here a pair is appended to one of few buckets, whose ends are
cached, and a full bucket then updates a range of bins that fits the second-level cache: propagation blocking (Beamer,
Asanović, Patterson: "Reducing Pagerank Communication via Propagation Blocking", IPDPS 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import ClassVar

from clhist.operators.halves import number_of
from clhist.planning.feature import Feature, Parameter, Sweep, Variable, uints, ulongs
from clhist.planning.plan import Trace
from clhist.planning.private import PrivatePlan, PrivateRates, private_copies
from clhist.planning.workload import Workload

PLACE_BITS = 16  # of a bin's place in its range, at most: 2^16 cells of 4 bytes are a quarter of a MiB
MOST_ROOM = 2**16  # pairs of a bucket; of 2^12 it was half as fast on a Xeon (docs/notebook)
_LEAST_PAIRS = 2**12  # of a range: with fewer there are more of its cache lines than updates
_GAIN = 1.1  # what it must be faster to be taken: skewed bins, which are in the cache anyway, lose


_ALIGNMENT = 128  # bytes: where each array begins in memory


@dataclass(frozen=True)
class Buckets(Feature):
    """Pairs wait in buckets, by ranges of bins, until their work-item updates its copy.

    Attributes
    ----------
    value : str or None
        C of the value that all pairs share; None if each has its own.
    """

    template: ClassVar[str] = "buckets.mako"
    sections: ClassVar[tuple[str, ...]] = ("functions", "take", "start", "end")
    scratch: ClassVar[str] = "clhist_waiting"

    value: str | None

    def parameters(self, sweep: Sweep) -> tuple[Parameter, ...]:
        numbers = uints("buckets", "bucket_bits", "bucket_room")
        places = ulongs("waiting_places", "waiting_values", "waiting_stride")
        return (Parameter("__global char *", self.scratch, None), *numbers, *places)

    def arguments(self, plan: BucketedPlan, sweep: Sweep) -> Mapping[str, object]:
        places, values, stride = self._layout(plan, sweep)
        return {
            "clhist_buckets": plan.buckets,
            "clhist_bucket_bits": plan.place_bits,
            "clhist_bucket_room": plan.room,
            "clhist_waiting_places": places,
            "clhist_waiting_values": values,
            "clhist_waiting_stride": stride,
        }

    def state(self, sweep: Sweep) -> tuple[Variable, ...]:
        own = Variable(f"__global value{sweep.outputs[0].suffix}_t *", "clhist_bucket_values")
        return (
            *(Variable("const uint", f"clhist_bucket_{name}") for name in ("bits", "room")),
            Variable("__global uint *", "clhist_bucket_ends"),
            Variable("__global ushort *", "clhist_bucket_places"),
            *([own] if self.value is None else []),
        )

    def scratch_bytes(self, plan: BucketedPlan, sweep: Sweep) -> int:
        return self._layout(plan, sweep)[-1] * plan.work_groups * plan.work_group_size

    def comment(self) -> str:
        return "pairs wait in buckets, by ranges of bins that fit a cache"

    def _layout(self, plan: BucketedPlan, sweep: Sweep) -> tuple[int, int, int]:
        """Return where places and values of one work-item's pairs begin, and where the next work-item's numbers do.

        A work-item has the number of pairs in each bucket, then their places, then their values.
        """
        value_bytes = number_of(sweep.outputs[0].operator.dtype).itemsize if self.value is None else 0
        places = _aligned(4 * plan.buckets)
        values = places + _aligned(2 * plan.buckets * plan.room)
        return places, values, values + _aligned(value_bytes * plan.buckets * plan.room)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True, kw_only=True)
class BucketedPlan(PrivatePlan):
    """Each work-item has a copy of all bins, and `buckets` of up to `room` pairs, each of 2^`place_bits` bins."""

    strategy: ClassVar[str] = "bucketed"
    is_joinable: ClassVar[bool] = False

    buckets: int
    place_bits: int
    room: int

    def how(self) -> str:
        return f" by way of {self.buckets:,} buckets of {self.room:,} pairs"

    def way(self) -> str:
        return "private copies by way of buckets"

    def features(self, value: str | None) -> tuple[Feature, ...]:
        return (*super().features(value), Buckets(value))

    @property
    def choices(self) -> dict[str, object]:
        return {"memory": "partitioned", "update": "private", "passes": self.buckets}


def cannot_fill_buckets(load: Workload) -> str:
    """Return why a sweep cannot have buckets; nothing if it can."""
    if not load.on_cpu:
        return "memory: 'partitioned' takes native, cas and lock updates, got 'private'"
    if load.num_histograms is not None or len(load.bins) > 1:
        return "memory: 'partitioned' makes one histogram, and no batch"
    return ""


def bucketed(load: Workload) -> BucketedPlan:
    """A copy in global memory for each work-item, updated by way of buckets.

    Raises
    ------
    ValueError
        If there can be no buckets.
    MemoryError
        If not even one copy and its buckets fit the budget.
    """
    if reason := cannot_fill_buckets(load):
        raise ValueError(reason)
    direct = private_copies(replace(load, choices=replace(load.choices, memory=None, passes=None)))
    trace = Trace()
    bits, cells = PLACE_BITS, load.num_bins + 1  # one for what is in no bin
    while bits and ceil(cells / 2**bits) < (load.choices.passes or 1):
        bits -= 1
    buckets = int(trace.step("P", ceil(cells / 2**bits), "", f"ranges of 2^{bits} bins"))
    items = direct.work_groups * direct.work_group_size
    room = int(trace.step("room", _room(load, items, buckets), "", "pairs of a bucket"))
    size = trace.step("bytes", items * buckets * room * (2 + load.value_bytes), "", "of all buckets")
    if load.memory_budget is not None and size + items * load.copy_bytes("private") > load.memory_budget:
        raise MemoryError(f"memory_budget: buckets take {size:g} bytes besides the copies, got {load.memory_budget}")
    given = {each.name: getattr(direct, each.name) for each in fields(direct)}
    given |= {"copies": items, "turns": 1, "may_take_turns": False, "steps": (*direct.steps, *trace.steps)}
    return BucketedPlan(**given, buckets=buckets, place_bits=bits, room=room)


def is_worth_buckets(load: Workload) -> bool:
    """Whether buckets are predicted, by measured rates, to be faster than updates of bins wherever they are."""
    if cannot_fill_buckets(load) or load.max_pairs is None:
        return False
    rates = PrivateRates.of(load.profile.rates, not load.value_bytes, load.bin_bytes[0])
    if rates is None or not rates.buckets or load.num_bins <= 2**PLACE_BITS:
        return False
    pairs = load.pairs / load.threads / ceil(load.num_bins / 2**PLACE_BITS)
    return pairs >= _LEAST_PAIRS and rates.buckets > _GAIN * rates.rate(ceil(load.num_bins / load.race_factor))


def _room(load: Workload, items: int, buckets: int) -> int:
    """Return the pairs of a bucket: a power of two, so that all buckets take no more than twice what all pairs do."""
    each = max(1, load.pairs // (items * buckets))
    return min(MOST_ROOM, max(16, 1 << (each - 1).bit_length()))
