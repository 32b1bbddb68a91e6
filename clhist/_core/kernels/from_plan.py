"""Specifications of the kernels of a plan, and the layout of their scratch and local memory. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from clhist._core.devices.profile import Profile
from clhist._core.kernels.maps import Argument
from clhist._core.kernels.source import Source
from clhist._core.kernels.specs import CombineSpec, SampleSpec, SweepSpec
from clhist._core.model.feature import Fallback, Feature
from clhist._core.model.plan import Output, Plan
from clhist._core.model.updates import GATHER
from clhist._core.model.workload import ALIGNMENT, LOCK_BYTES, NARROW_BINS, NARROW_ELEMENTS
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from clhist._core.kernels.partitions import PartitionSpec
    from clhist._core.kernels.rows import RowsSpec
    from clhist._core.model.narrow import NarrowSums
    from clhist._core.model.partition import PartitionedPlan
    from clhist._core.model.rows import RowsPlan

# Shape of the work-groups that combine many copies: 31 bins take 61 us on an H200, with a work-item for each bin 124.
_COMBINE_COLUMNS, _ALL_COLUMNS = 32, 256
_COMBINE_ROWS = 16  # each of which combines a part of the copies: with fewer copies there is one
_MANY_COPIES = 128  # from which on there are so many rows; a quarter of them below
_WINDOW_GROUP = 256  # work-items that count the distinct bins of windows
_ALIGNMENT = 128  # bytes: where each array begins in the scratch memory
_COMBINE_BYTES = 64  # of an accumulator: larger ones would fill local memory


def sweep_spec(
    plan: Plan, source: Source, profile: Profile, *, aligned: bool, used: str = "", rolled: tuple[str, ...] = ()
) -> SweepSpec:
    """Return the specification of the source of a planned sweep.

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
    rolled : tuple of str
        As in `SweepSpec`.
    """
    every = enumerate(zip(source.operators, source.suffixes, strict=True))
    # The map names the EMIT of every histogram, so those of other sweeps must compile as well.
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
        wide=is_wide(plan),
        aligned=aligned,
        rolled=rolled,
        structs=source.structs,
        preamble=source.preamble,
        device_features=profile.features or frozenset(),
        ignored=tuple(ignored),
        single_pair=source.has_single_pair,
        combine=_second_stage(plan, source, profile, used),
        fused_combine=plan.is_one_launch,
        in_range=_is_in_range(plan, source, profile),
        indices=_compared_ahead(plan, source, profile),
        strategy=(*plan.features(source.values[plan.output_indices[0]]), *_narrow_sums(plan, source)),
        stages=_further_stages(plan, source, profile),
        factor=_factor(plan, source, profile),
    )


class Programs(NamedTuple):
    """The parameters of all programs of one plan.

    Attributes
    ----------
    sweep : SweepSpec
        Of the sweep; if the pairs are sorted, of the kernel that writes them.
    partition : PartitionSpec, optional
        Of the kernels that group the pairs before the sweep.
    sorted_pairs : int
        Pairs of an element where they are sorted; 0 if they are not.
    checks_pairs : bool
        Whether an element may emit more than that, which the kernel then reports.
    rows : RowsSpec, optional
        Of what gathers rows, in the place of the sweep.
    look : SampleSpec, optional
        Of what looks at some values before narrow sums.
    behind : Programs, optional
        Of what counts again if the sweep gives up.
    """

    sweep: SweepSpec
    partition: PartitionSpec | None = None
    sorted_pairs: int = 0
    checks_pairs: bool = False
    rows: RowsSpec | None = None
    look: SampleSpec | None = None
    behind: Programs | None = None


def programs_of(
    plan: Plan, source: Source, profile: Profile, *, aligned: bool, used: str = "", rolled: tuple[str, ...] = ()
) -> Programs:
    """Return the specifications of the programs of a plan; parameters as of `sweep_spec`."""
    spec, index = sweep_spec(plan, source, profile, aligned=aligned, used=used, rolled=rolled), plan.output_indices[0]
    # The sort and the scan of pairs are the same for all maps, in programs of their own.
    if plan.sorts_pairs:
        return Programs(spec, sorted_pairs=source.max_pairs[index] or 1, checks_pairs=source.may_exceed[index])
    value, room = source.values[index], profile.local_memory
    again = source.is_repeatable
    # Kernels that gather rows replace the sweep, but a guarded sum has a sweep over plain pairs behind it.
    if plan.update == GATHER:
        from clhist._core.kernels.rows import rows_spec, split_spec  # imported here, since few plans need them

        gathered = cast("RowsPlan", plan)
        rows = rows_spec(gathered, spec, source)
        programs = Programs(spec, split_spec(gathered, rows, source, room), rows=rows)
        if plan.again is None or not rows.is_guarded:
            return programs
        from clhist._core.model.narrow import SeparateFallback

        after = sweep_spec(plan.again, source, profile, aligned=aligned, used=used, rolled=rolled)
        after = replace(after, strategy=(*after.strategy, SeparateFallback()), combine=None, stages=())
        return programs._replace(behind=_over_pairs(plan.again, after, value, room, again))
    programs = _over_pairs(plan, spec, value, room, again)
    if plan.behind is None:
        return programs
    after = _spec_behind(plan, plan.behind, spec, source, profile, used)
    behind = _over_pairs(plan.behind, after, value, room, again)
    return programs._replace(look=_look_spec(plan, source, profile), behind=behind)


def _over_pairs(plan: Plan, spec: SweepSpec, value: str | None, local_memory: int, repeatable: bool) -> Programs:
    """Return the programs of `spec`, a sweep over elements, or over their pairs if the plan has these grouped."""
    if not plan.ranges:
        return Programs(spec)
    from clhist._core.kernels.partitions import partition_specs  # imported here, since few plans have ranges

    ranged = cast("PartitionedPlan", plan)
    before, over_pairs = partition_specs(ranged, spec, value, local_memory, repeatable=repeatable)
    return Programs(over_pairs, before)


def _spec_behind(first: Plan, plan: Plan, spec: SweepSpec, source: Source, profile: Profile, used: str) -> SweepSpec:
    """Return what the sweep depends on that counts again; `spec` is that of the one before it, of the plan `first`."""
    # Packed counters have their flag in scratch memory; narrow sums and rows have it in memory of its own.
    after, value = Fallback(), source.values[plan.output_indices[0]]
    if first.again is not None:
        from clhist._core.model.narrow import SeparateFallback

        after = SeparateFallback()
    return replace(
        spec, outputs=plan.outputs, memory=plan.memory, capacity=local_capacity(plan.outputs, plan, profile),
        work_group_size=plan.work_group_size, wide=is_wide(plan), strategy=(*plan.features(value), after),
        factor=_factor(plan, source, profile), in_range=_is_in_range(plan, source, profile),
        indices=_compared_ahead(plan, source, profile),
        combine=_second_stage(plan, source, profile, used) if plan.writes_results else spec.combine,
    )  # fmt: skip


def _factor(plan: Plan, source: Source, profile: Profile) -> str:
    """Return the C value that all pairs of a plan share, if bins in local memory of a GPU are to count them instead."""
    operator, value = plan.outputs[0].operator, source.values[plan.output_indices[0]]
    # Only integer sums are exactly a count times the common value.
    is_sum = operator.operation == "add" and operator.accumulator.kind in "iu" and operator.lift == "v"
    is_shared = plan.memory == "local" and plan.update == "native" and order_of(profile) != "blocked"
    if value is None or value == "1" or len(plan.outputs) > 1 or not (is_sum and is_shared):
        return ""
    # Packed counters have no cells whose count could be multiplied.
    return "" if any(feature.replaces_cells for feature in plan.features(value)) else value


def _narrow_sums(plan: Plan, source: Source) -> tuple[NarrowSums, ...]:
    """Return the feature of narrow sums, if the plan has them."""
    if plan.again is None or not plan.outputs[0].operator.parts[0].is_narrow:
        return ()
    from clhist._core.model.narrow import NarrowSums

    return (NarrowSums(plan.outputs[0].operator, source.max_pairs[plan.output_indices[0]] or 1),)


def _look_spec(plan: Plan, source: Source, profile: Profile) -> SampleSpec | None:
    """Return what the kernel depends on that looks at some values of narrow sums, whose operator is that of all."""
    if plan.again is None:
        return None
    from clhist._core.model.narrow import LOOKING_GROUP

    # The look needs nothing but the map: no copies, teams or strategy.
    group = min(LOOKING_GROUP, profile.work_group_size)
    spec = sweep_spec(plan.again, source, profile, aligned=False)
    return SampleSpec(replace(spec, memory="global", work_group_size=group, capacity=0, teams=1, strategy=()))


def windows_spec(source: Source, profile: Profile, *, wide: bool) -> SampleSpec:
    """Return the specification of the kernel that counts the distinct bins of windows."""
    named_operators = zip(source.operators, source.suffixes, strict=True)
    outputs = tuple(Output(operator, (), suffix) for operator, suffix in named_operators)
    group = min(_WINDOW_GROUP, profile.work_group_size)
    sweep = SweepSpec(
        outputs, source.arguments, source.map, "global", order_of(profile), group, wide=wide,
        structs=source.structs, preamble=source.preamble, device_features=profile.features or frozenset(),
    )  # fmt: skip
    return SampleSpec(sweep)


def _compared_ahead(plan: Plan, source: Source, profile: Profile) -> Argument | None:
    """Return the array of bins that a CPU compares with those of the histogram before the updates, or None."""
    is_plain = plan.owns_copies and not plan.is_batch and order_of(profile) == "blocked"
    can_be = is_plain and source.indices in source.streamed and not _is_in_range(plan, source, profile)
    return source.indices if can_be else None


def _is_in_range(plan: Plan, source: Source, profile: Profile) -> bool:
    """Whether all bins that the map may emit are in the one pass of a CPU, where comparing took half of the time."""
    is_private = plan.strategy == "private" and order_of(profile) == "blocked" and plan.passes == 1
    # Indices of 8 or 16 bits cannot exceed a histogram with a bin for each of their values.
    is_narrow = source.index_values is not None and plan.bins[0] >= source.index_values
    return is_private and (source.covered or is_narrow)


def _second_stage(plan: Plan, source: Source, profile: Profile, used: str) -> CombineSpec | None:
    """Return the second stage that a sweep is compiled with: of one launch, and of CPUs.

    Compilers take long for even the least program. None where the caller's macros or options would apply to its
    kernels, or where it has the types of several operators.
    """
    order, is_batch = order_of(profile), plan.is_batch and plan.update == "private"
    # Another program for the second stage takes long to compile, so it is in that of the sweep wherever possible.
    is_plain = (plan.owns_copies or is_batch) and source.suffixes == ("",) and not _has_macros(source)
    writes = plan.writes_results and plan.ranges > 0
    is_within = plan.is_one_launch or (order == "blocked" and is_plain and plan.again is None) or writes
    batch = "" if not is_batch else "ragged" if plan.has_table else "equal"
    return CombineSpec(plan.outputs[0].operator, order, batch=batch, largest_bin_condition=used) if is_within else None


def _has_macros(source: Source) -> bool:
    """Whether macros, pragmas or options of a map would apply to other kernels of its program."""
    return bool(source.options) or "#" in source.preamble


def _further_stages(plan: Plan, source: Source, profile: Profile) -> tuple[CombineSpec, ...]:
    """Return the second stages, with types of their own, that the sweep of a CPU is compiled with.

    They are what calls for new results mostly ask for: a structured value has an array for each of its fields.
    """
    if order_of(profile) != "blocked" or source.suffixes == ("",) or _has_macros(source):
        return ()
    if not plan.owns_copies or plan.is_one_launch or plan.is_batch or plan.again is not None:
        return ()
    # One that only counts structs has no results of their type.
    operators = [output.operator for output in plan.outputs]
    operators = [o for o in operators if not (o.dtype.names and o.finish == "a" and o.accumulator != o.dtype)]
    combines = [CombineSpec(operator, "blocked", fields=_fields(operator.dtype)) for operator in operators]
    # One kernel does for all outputs of equal specifications.
    return tuple(dict.fromkeys(combines))


def _fields(dtype: np.dtype) -> tuple[tuple[str, str], ...]:
    """Return name and C type of each field, if they are scalars."""
    names = dtype.names or ()
    return (
        ()
        # A field that is an array or a struct has no scalar C type: such values stay in one array.
        if any(dtype[name].shape or dtype[name].names for name in names)
        else tuple((n, c_name(dtype[n])) for n in names)
    )


def combine_spec(
    operator: Operator,
    profile: Profile,
    *,
    largest_group: int,
    copies: int,
    features: Sequence[Feature] = (),
    **form: Any,
) -> CombineSpec:
    """Return the specification of the second stage.

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
    features : sequence of Feature
        Of the sweep.
    **form
        Further attributes of `CombineSpec`.
    """
    # On a CPU each work-item combines all copies of a block of bins: one column, one row.
    order, columns, rows = order_of(profile), 1, 1
    layout = tuple(feature for feature in features if feature.combine_parameters() is not None)
    if own_rows := max((feature.combine_rows for feature in layout), default=0):
        rows = own_rows if copies >= own_rows else 1  # columns are words, of which all sums fit a little local memory
        columns = max(1, min(_ALL_COLUMNS if rows == 1 else _COMBINE_COLUMNS, largest_group // rows))
    # On a GPU neighbouring work-items have neighbouring bins; rows share the copies if there are many.
    elif order == "interleaved":
        columns = min(_ALL_COLUMNS, largest_group)
        if copies >= _COMBINE_ROWS and operator.accumulator.itemsize <= _COMBINE_BYTES:
            wanted = _COMBINE_ROWS if copies >= _MANY_COPIES else max(1, _COMBINE_ROWS // 4)
            columns = min(_COMBINE_COLUMNS * _COMBINE_ROWS // wanted, largest_group)
            room = profile.local_memory // (columns * operator.accumulator.itemsize)  # a board has less than 32 KiB
            rows = max(1, min(wanted, largest_group // columns, room))
            rows = 1 << (rows.bit_length() - 1)  # rows are combined in a tree
    return CombineSpec(operator, order, columns, rows, features=layout, **form)


def order_of(profile: Profile) -> str:
    """Return the order in which the work-items of a device go through the input."""
    return "blocked" if profile.kind == "cpu" else "interleaved"


def is_wide(plan: Plan) -> bool:
    """Whether a kernel for `plan` counts elements and bins in 64 bits."""
    return plan.num_elements > NARROW_ELEMENTS or max(plan.bins) > NARROW_BINS


def scratch_layout(outputs: Sequence[Output], plan: Plan, copies: int) -> tuple[dict[str, int], int]:
    """Return the layout of scratch memory with `copies` copies of all bins, and its size in bytes.

    The layout maps the kernels' parameters to offsets of cells and locks, in bytes, and to numbers of locks.
    """
    places, size, n = {}, 0, 0
    for output, bins in zip(outputs, plan.copy_bins, strict=True):
        cells = copies * bins
        for part, update in zip(output.operator.parts, output.updates, strict=True):
            # Locks of local copies are in local memory: only those of copies in global memory are placed here.
            locks = 0
            if plan.memory == "global" and update == "lock":
                locks = cells if plan.locks is None else min(cells, plan.locks)
            for name, needed in (("place", cells * part.cell_bytes), ("lock_place", locks * LOCK_BYTES)):
                place = -(-size // _ALIGNMENT) * _ALIGNMENT
                places[f"clhist_{name}{n}"] = place
                size = place + needed if needed else size
            places[f"clhist_num_locks{n}"] = locks
            n += 1
    return places, size


def local_capacity(outputs: Sequence[Output], plan: Plan, profile: Profile) -> int:
    """Return the bytes of the local array: a quarter, a half or all of local memory, so that few kernels are built."""
    if plan.memory == "global":
        return 0
    most = profile.local_memory // ALIGNMENT * ALIGNMENT
    if plan.fills_local_memory:
        return most
    # The same sum as in `local_memory.arrays_in_pool`: cells of all parts, locks, then the strategy's bytes.
    end = locks = 0
    for output, bins in zip(outputs, plan.chunks(), strict=True):
        cells = bins * plan.copies * plan.teams
        for part, update in zip(output.operator.parts, output.updates, strict=True):
            end = -(-end // ALIGNMENT) * ALIGNMENT + cells * part.cell_bytes
            locks += (cells if plan.locks is None else min(cells, plan.locks)) * (update == "lock")
    end = -(-end // LOCK_BYTES) * LOCK_BYTES + LOCK_BYTES * locks
    if plan.more_local_bytes:
        end = -(-end // ALIGNMENT) * ALIGNMENT + plan.more_local_bytes
    # Sweeps over partitions use its last words, so its size is a multiple of a word.
    sizes = (most // parts // ALIGNMENT * ALIGNMENT for parts in (4, 2, 1))
    return next((size for size in sizes if size >= end), -(-end // LOCK_BYTES) * LOCK_BYTES)
