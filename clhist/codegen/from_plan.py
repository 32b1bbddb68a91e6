"""From a plan to what the source of each of its kernels depends on. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clhist.codegen.layout import is_wide, local_capacity, order_of
from clhist.codegen.maps import Argument
from clhist.codegen.source import Source
from clhist.codegen.specs import CombineSpec, PartitionSpec, SampleSpec, SweepSpec
from clhist.hardware.profile import Profile
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator
from clhist.planning.bucketed import BucketedPlan
from clhist.planning.packed import PackedPlan
from clhist.planning.partition import (
    FEW_PARTITIONS,
    LARGE_TILE_GROUP,
    LEAST_GROUP,
    PARTITION_GROUP,
    PartitionedPlan,
    power_of_two,
)
from clhist.planning.plan import Output, Plan
from clhist.planning.private import PrivatePlan

# Names of the arrays of partitioned pairs.
PAIR_BINS, PAIR_VALUES = "clhist_pair_bins", "clhist_pair_values"

# Shape of the work-groups that combine many copies.
_COMBINE_COLUMNS = 32
_COMBINE_ROWS = 16
_MANY_COPIES = 128
_PACKED_ROWS = 8
_WINDOW_GROUP = 256
_COMBINE_BYTES = 64  # of an accumulator: larger ones would fill local memory


def sweep_spec(plan: Plan, source: Source, profile: Profile, *, aligned: bool, used: str = "") -> SweepSpec:
    """Return what the source of a planned sweep depends on.

    Parameters
    ----------
    plan : Plan
        With its outputs.
    source : Source
        Of the kernel that was planned.
    profile : Profile
        Of the device.
    aligned : bool
        Whether the arrays of a call allow loads of 16 bytes.
    used : str
        As in `CombineSpec`.
    """
    every = enumerate(zip(source.operators, source.suffixes, strict=True))
    ignored = [Output(operator, (), suffix) for n, (operator, suffix) in every if n not in plan.output_indices]
    return SweepSpec(
        outputs=plan.outputs,
        arguments=source.arguments,
        map=source.map,
        memory=plan.memory,
        order=order_of(profile),
        work_group_size=plan.work_group_size,
        capacity=local_capacity(plan.outputs, plan, profile),
        teams=plan.teams,
        batch=plan.layout,
        wide=is_wide(plan),
        aligned=aligned,
        structs=source.structs,
        preamble=source.preamble,
        features=profile.features or frozenset(),
        ignored=tuple(ignored),
        counter_bits=plan.counter_bits if isinstance(plan, PackedPlan) else 0,
        single_pair=source.has_single_pair,
        combine=_second_stage(plan, source, profile, used),
        combines=plan.is_one_launch,
        in_turn=isinstance(plan, PrivatePlan) and plan.may_take_turns,
        covered=_is_covered(plan, source, profile),
        is_dealt=plan.is_dealt,
        bucketed=isinstance(plan, BucketedPlan),
        value=source.values[plan.output_indices[0]] if isinstance(plan, BucketedPlan) else None,
        apart=isinstance(plan, PrivatePlan) and bool(plan.strides),
        indices=_compared_ahead(plan, source, profile),
    )


def robust_spec(plan: PackedPlan, spec: SweepSpec, profile: Profile) -> SweepSpec:
    """Return what the sweep that `plan` has behind it depends on; `spec` is that of the packed counters."""
    robust = plan.robust
    capacity = local_capacity(plan.outputs, replace(robust, outputs=plan.outputs), profile)
    return replace(
        spec, counter_bits=0, after_flag=True, capacity=capacity, work_group_size=robust.work_group_size,
        wide=is_wide(robust),
    )  # fmt: skip


def windows_spec(source: Source, profile: Profile, *, wide: bool) -> SampleSpec:
    """Return what the kernel depends on that counts the distinct bins of windows."""
    each = zip(source.operators, source.suffixes, strict=True)
    outputs = tuple(Output(operator, (), suffix) for operator, suffix in each)
    group = min(_WINDOW_GROUP, profile.work_group_size)
    sweep = SweepSpec(
        outputs, source.arguments, source.map, "global", order_of(profile), group, wide=wide,
        structs=source.structs, preamble=source.preamble, features=profile.features or frozenset(),
    )  # fmt: skip
    return SampleSpec(sweep)


def _compared_ahead(plan: Plan, source: Source, profile: Profile) -> Argument | None:
    """Return the array of bins that a CPU compares with those of the histogram before the updates, or None."""
    is_plain = isinstance(plan, PrivatePlan) and not plan.is_batch and order_of(profile) == "blocked"
    can_be = is_plain and source.indices in source.streamed and not _is_covered(plan, source, profile)
    return source.indices if can_be else None


def _is_covered(plan: Plan, source: Source, profile: Profile) -> bool:
    """Whether all bins that the map may emit are in the one pass of a CPU, where comparing took half of the time."""
    is_private = plan.strategy == "private" and order_of(profile) == "blocked" and plan.passes == 1
    is_narrow = source.index_values is not None and plan.bins[0] >= source.index_values
    return is_private and (source.covered or is_narrow)


def _second_stage(plan: Plan, source: Source, profile: Profile, used: str) -> CombineSpec | None:
    """Return the second stage that a sweep is compiled with: of one launch, and of CPUs.

    Compilers take long for even the least program. None where the caller's macros or options would apply to its
    kernels, or where it has the types of several operators.
    """
    order = order_of(profile)
    is_plain = isinstance(plan, PrivatePlan) and source.suffixes == ("",) and not source.preamble and not source.options
    is_within = plan.is_one_launch or (order == "blocked" and is_plain)
    return CombineSpec(plan.outputs[0].operator, order, used=used) if is_within else None


def partition_specs(
    plan: PartitionedPlan, spec: SweepSpec, value: str | None, local_memory: int
) -> tuple[PartitionSpec, SweepSpec]:
    """Return what the kernels that partition the pairs depend on, and the sweep over the pairs.

    Parameters
    ----------
    plan : PartitionedPlan
        With the number of partitions.
    spec : SweepSpec
        Of the same sweep over elements.
    value : str or None
        C expression of the value that all pairs share; None if each pair stores its own.
    local_memory : int
        Bytes that a work-group may use.
    """
    output = spec.outputs[0]
    most = 1 << (plan.partitions - 1).bit_length()
    # Where the lanes of a warp must stay together, a tile should have pairs for all of them in each partition.
    slow = spec.update in ("cas", "lock") and plan.partitions > FEW_PARTITIONS
    index_group = min(LARGE_TILE_GROUP, power_of_two(spec.work_group_size))

    def before_of(group: int) -> PartitionSpec:
        mapped = replace(spec, memory="global", work_group_size=group, capacity=0)
        return PartitionSpec(mapped, most, value is None, index_group)

    # Each partition has its own work-item, even if the sweep has smaller groups.
    group = max(most, min(LARGE_TILE_GROUP if slow else PARTITION_GROUP, power_of_two(spec.work_group_size)))
    while group // 2 >= max(most, LEAST_GROUP) and before_of(group).local_bytes > local_memory:
        group //= 2
    arguments = [Argument(PAIR_BINS, "ushort", np.dtype(np.uint16), True, True)]
    if value is None:
        dtype = output.operator.dtype
        kind = f"value{output.suffix}_t" if dtype.names is not None else c_name(dtype)
        arguments.append(Argument(PAIR_VALUES, kind, dtype, True, True))
    else:
        arguments += [argument for argument in spec.arguments if not argument.is_array]
    over_pairs = replace(
        spec,
        arguments=tuple(arguments),
        map=f"EMIT{output.suffix}({PAIR_BINS}[i], {value or f'{PAIR_VALUES}[i]'})",
        batch="partitioned",
        aligned=True,
        structs=() if value is None else spec.structs,  # scalar arguments may be of these types
        preamble="",
        ignored=(),
    )
    return before_of(group), over_pairs


def combine_spec(
    operator: Operator,
    profile: Profile,
    *,
    largest_group: int,
    copies: int,
    batch: str = "",
    dest_is_partial: bool = False,
    out_is_partial: bool = False,
    fields: tuple[tuple[str, str], ...] = (),
    whole: bool = False,
    used: str = "",
    is_dealt: bool = False,
    counter_bits: int = 0,
) -> CombineSpec:
    """Return what the source of the second stage depends on.

    Parameters
    ----------
    operator : Operator
        The combining operator.
    profile : Profile
        Of the device.
    largest_group : int
        Work-items that a work-group may have.
    copies : int
        Copies of each bin.
    batch, dest_is_partial, out_is_partial, fields, whole, used, is_dealt, counter_bits
        As in `CombineSpec`.
    """
    order, columns, rows = order_of(profile), 1, 1
    if counter_bits:  # columns are words, of which all sums fit a little local memory
        rows = _PACKED_ROWS
        columns = max(1, min(_COMBINE_COLUMNS, largest_group // rows))
    elif order == "interleaved":
        columns = min(256, largest_group)
        if copies >= _COMBINE_ROWS and operator.accumulator.itemsize <= _COMBINE_BYTES:
            wanted = _COMBINE_ROWS if copies >= _MANY_COPIES else max(1, _COMBINE_ROWS // 4)
            columns = min(_COMBINE_COLUMNS * _COMBINE_ROWS // wanted, largest_group)
            rows = max(1, min(wanted, largest_group // columns))
            rows = 1 << (rows.bit_length() - 1)  # rows are combined in a tree
    return CombineSpec(
        operator, order, columns, rows, batch, dest_is_partial, out_is_partial, fields, whole, used, is_dealt,
        counter_bits,
    )  # fmt: skip
