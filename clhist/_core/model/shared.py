"""The choice among strategies whose work-items share copies: by predicted time, or by passes (SC'20, V-A).

Plans of GPUs, and of CPUs where copies or updates are forced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from clhist._core.model.batch import BatchedPlan, FlattenedPlan
from clhist._core.model.global_memory import GlobalPlan, global_copies, missed_bytes, with_worthwhile_passes
from clhist._core.model.local import LocalPlan, local_copies, needs_passes
from clhist._core.model.packed import (
    WIDTHS,
    PackedPlan,
    may_pack,
    packed_counters,
    packed_passes,
)
from clhist._core.model.partition import PartitionedPlan, partitioned
from clhist._core.model.plan import Plan, Trace, after
from clhist._core.model.private import PrivatePlan
from clhist._core.model.rows import RowsPlan
from clhist._core.model.sort import SortedPlan, global_or_sorted
from clhist._core.model.times import BANDWIDTH, RISK_GLOBAL, RISK_NARROW, RISK_PACKED, Times
from clhist._core.model.updates import BY_NAME
from clhist._core.model.workload import Workload

# A strategy has one file here and, where it is more than a plain sweep, one in runtime/ and one in kernels_cl/.
STRATEGIES: dict[str, type[Plan]] = {
    kind.strategy: kind
    for kind in (
        PrivatePlan,
        LocalPlan,
        PackedPlan,
        PartitionedPlan,
        GlobalPlan,
        SortedPlan,
        BatchedPlan,
        FlattenedPlan,
        RowsPlan,
    )
}


class _Candidate(NamedTuple):
    """A way that is compared by predicted time: the symbol of its time, and what plans it."""

    symbol: str
    plan: Callable[[Workload, str, str], Plan]
    is_needed: bool  # to compare at all


def _counters(load: Workload, update: str, everywhere: str, *, bits: int) -> Plan:
    if not needs_passes(load) or not may_pack(load, update, bits):
        raise ValueError(f"counter_bits: none of {bits} bits")
    return packed_counters(load, update, bits)


CANDIDATES = (
    _Candidate("t_local", lambda load, local, everywhere: local_copies(load, local), True),
    *(_Candidate(f"t_{bits}bit", partial(_counters, bits=bits), False) for bits in WIDTHS),
    _Candidate("t_partitioned", lambda load, local, everywhere: partitioned(load, local), False),
    _Candidate("t_global", lambda load, local, everywhere: global_copies(load, everywhere), True),
)
# Elements; fewer take little time anywhere. Without this limit 8 % of an H200's plans would be others, unmeasured.
LEAST_SKEWED = 2**20
PREDICTED = tuple(candidate.symbol for candidate in CANDIDATES)  # steps of a plan that was chosen by its time


def by_time(load: Workload, times: dict[str, Times]) -> Plan:
    """Return the plan of a GPU, or of shared copies, in whatever memory is faster unless one is forced."""
    choices, tried = load.choices, Trace()
    local_update, global_update = choices.update or load.local_update, choices.update or load.global_update
    if choices.memory is None:
        fastest = None if load.on_cpu else _fastest(load, local_update, global_update, times)  # rates are of GPUs
        plan = fastest or _by_passes(load, local_update, tried)
        if plan is not None and plan.memory == "local":
            return plan
        if fastest is not None:
            tried.extend(step for step in fastest.steps if step.symbol in PREDICTED)
    return after(tried.steps, global_or_sorted(load, global_update))


def local_counters(load: Workload, update: str) -> Plan:
    """Return the plan in local memory: narrow counters where they save passes, the widest that fit in one."""
    forced = load.choices.counter_bits
    if forced in WIDTHS:
        return packed_counters(load, update, forced)
    fitting = (bits for bits in WIDTHS if may_pack(load, update, bits) and packed_passes(load, bits) == 1)
    if needs_passes(load) and (bits := next(fitting, None)):
        try:
            return packed_counters(load, update, bits)
        except MemoryError:  # the budget has room for whole counters, but not for both
            pass
    return local_copies(load, update)


def _fastest(load: Workload, local_update: str, global_update: str, times: dict[str, Times]) -> Plan | None:
    """Return the plan that is predicted to take the least time; None where that of a possible one is not known."""
    candidates: dict[str, tuple[float, Plan]] = {}
    for candidate in CANDIDATES:
        if candidate.symbol == "t_partitioned" and load.choices.forced - {"update", "locks", "counters"}:
            continue
        try:
            plan = candidate.plan(load, local_update, global_update)
        except (ValueError, MemoryError):  # impossible, or more than the budget allows
            # Without room in global memory, pieces may be better than many passes over local memory.
            if candidate.is_needed:
                return None
            continue
        seconds = times[plan.memory].seconds(plan)
        # A candidate without a rate must not drop out: Note [A plan without a rate], docs/decisions/0004.
        if seconds is None:
            # Its width was not measured, or each work-item has a copy: so few bins fit local memory, too.
            if isinstance(plan, PackedPlan) or (plan.update == "private" and plan.memory == "global"):
                continue
            return None
        candidates[candidate.symbol] = seconds, plan
    trace = Trace()
    for symbol, (seconds, _) in candidates.items():
        trace.step(symbol, seconds * 1e6, "", "predicted from the rates of the device, us")
    packed = [timed for timed in candidates.values() if isinstance(timed[1], PackedPlan)]
    others = [timed for timed in candidates.values() if not isinstance(timed[1], PackedPlan)]
    # Rates are measured with uniform bins.
    risk = 1.0
    if load.size >= LEAST_SKEWED:
        risk = trace.step("risk", RISK_GLOBAL, "", "multiplies t_global: skewed bins slow global memory most")
    seconds, best = min(others, key=lambda timed: timed[0] * (risk if timed[1].memory == "global" else 1))
    least = seconds / RISK_PACKED
    # Each narrower width must beat the choice so far by a margin, since skew makes it count again.
    for seconds, plan in packed:  # the widest first
        if seconds < least:
            least, best = seconds / RISK_NARROW, plan
    return replace(best, steps=(*best.steps, *trace.steps))


def _by_passes(load: Workload, update: str, tried: Trace) -> Plan | None:
    """Return the plan in local memory unless that takes too many passes, which is the paper's rule.

    Only of shared copies on a CPU, of what fits one of the memories alone, and of what has no rates, such as passes
    side by side of compare-exchange. Strategies that do not fit are noted in `tried`.
    """
    try:
        local = local_counters(load, update)
    except ValueError:  # what is forced does not fit local memory
        return None
    # The paper's limit is of several passes over whole counters.
    if local.strategy == PackedPlan.strategy:  # in one pass
        return local
    tried.extend(local.steps)
    limit = BY_NAME[update].most_local_passes
    tried.step("S_max", limit, "V-A", "3, 4, 6 passes in local memory for native, cas, lock")
    return replace(local, steps=tried.steps) if local.passes <= limit else None


def with_fewer_passes(
    plan: GlobalPlan, load: Workload, times: Times, seconds: float | None
) -> tuple[Plan, float | None]:
    """Return a plan in global memory with as many passes as are worthwhile, and its predicted seconds."""
    update = load.choices.update or load.global_update
    fewer = with_worthwhile_passes(plan, load, update)
    # Rates do not include the cache misses that fewer passes add.
    if fewer.passes < plan.passes and seconds is not None:
        missed = missed_bytes(fewer, load, update) / times.rates[BANDWIDTH] * 1e-9
        seconds = (times.seconds(fewer) or 0.0) + missed
    return fewer, seconds
