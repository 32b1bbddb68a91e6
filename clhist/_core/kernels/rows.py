"""Rows of values, gathered by bin: what the kernels' source depends on, and their parameters."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from clhist._core.devices.vendors import NativeAtomic, vector_atomic
from clhist._core.kernel_code import Parameter
from clhist._core.kernels.maps import RowText
from clhist._core.kernels.parameters import result_parameters
from clhist._core.kernels.partitions import PartitionSpec, partition_spec
from clhist._core.kernels.source import Source
from clhist._core.kernels.specs import CombineSpec, SweepSpec
from clhist._core.model.feature import buffers, uints, ulongs
from clhist._core.model.plan import Output
from clhist._core.model.private import FIRST_CACHE
from clhist._core.model.row_ranges import MOST_TILE
from clhist._core.model.rows import RowsPlan
from clhist.operators.arithmetic import add, product
from clhist.operators.operator import Operator

_JOINED_BYTES = 8192  # of local memory, for the accumulators of rows of a work-group that joins pieces
_SHARED_BYTES = 16384  # of local memory, for the totals of work-items that share rows
_AHEAD, _AHEAD_ALONE = 8, 16
# On an H200 20,000 rows of 64, half of them in one bin, take 58 us one by one, 32 by four and 20 by eight. A hot bin of
# the work-group in local memory besides: 17, but 6.5 instead of 5.0 where bins are uniform.
_MERGED_ROWS = 8
_NEAR_BINS = FIRST_CACHE // 2 // 16  # vectors of four floats; 5,000 took 1.0 to 1.5 times as long as without (EPYC)


class RowsSpec(NamedTuple):
    """Everything that the source depends on that gathers rows.

    Attributes
    ----------
    sweep : SweepSpec
        The arguments and the operator.
    text : RowText
        The C of indices and values.
    vector : int
        Components that a work-item loads at once.
    lanes : int
        Work-items that have a bin.
    sharers : int
        How many of these share the rows of a bin.
    copies : bool
        Whether a CPU has copies of accumulators in scratch memory, besides results in place.
    is_alone : bool
        Whether each work-item of a CPU has all bins of its copy.
    near_bins : int
        Bins that such a work-item has room for in local memory, with one component more than rows have; 0 without it.
    few_bins : int
        Bins that the one work-group has room for that counts and places all; 0 without it.
    placing_group : int
        Work-items of a work-group that counts and places.
    width, staged : int
        Bins of a range that it has room for otherwise, and numbers of rows.
    carried_bytes : int
        Of a row that is grouped itself, where rows are gathered from these pairs; else 0.
    in_doubles : bool
        Whether exact sums are tried in double precision (`clhist.operators.doubles`).
    atomic : NativeAtomic, optional
        What adds several numbers at once to the results, in the place of gathering.
    is_guarded : bool
        Whether it does so only if no bin has very many rows, and else raises a flag.
    """

    sweep: SweepSpec
    text: RowText
    vector: int
    lanes: int
    sharers: int
    copies: bool
    is_alone: bool
    near_bins: int
    few_bins: int
    placing_group: int
    width: int = 0
    staged: int = 0
    carried_bytes: int = 0
    in_doubles: bool = False
    atomic: NativeAtomic | None = None
    is_guarded: bool = False

    @property
    def is_sorted(self) -> bool:
        """Whether rows are in the order of their bins."""
        return self.text.rows.is_sorted

    @property
    def ahead(self) -> int:
        """The distance, in rows, at which a CPU prefetches the bin of a row."""
        return _AHEAD_ALONE if self.is_alone else _AHEAD

    @property
    def merged(self) -> int:
        """Rows of which a work-item adds the same numbers; several where a bin may have many of the rows."""
        # A work-item has every group-th vector: these are the same numbers of rows only if a group has whole rows.
        vectors = self.text.rows.components // (1 if self.atomic is None else self.atomic.numbers)
        return 1 if self.is_guarded or self.sweep.work_group_size % vectors else _MERGED_ROWS

    @property
    def slots(self) -> int:
        """Bins, or pieces, of a work-group of a GPU."""
        return self.sweep.work_group_size // (self.lanes * self.sharers)

    @property
    def joined(self) -> int:
        """Rows of a work-group that joins pieces: a power of two, whose accumulators take little local memory."""
        operator = self.sweep.outputs[0].operator
        size = 16 if self.in_doubles else operator.accumulator.itemsize
        row_bytes = self.lanes * self.vector * size
        most = max(1, min(self.sweep.work_group_size // self.lanes, _JOINED_BYTES // row_bytes))
        return 1 << (most.bit_length() - 1)


def rows_spec(plan: RowsPlan, spec: SweepSpec, source: Source) -> RowsSpec:
    """Return the specification of the program that gathers rows; `spec` is of a sweep over them."""
    text, operator, ranges = source.rows, plan.outputs[0].operator, plan.ranges_of_bins
    assert text is not None
    is_plain = bool(text.loads) and spec.aligned
    vector = _vector(plan.rows.components, operator, is_plain, spec.order == "blocked")
    vectors = plan.rows.components // vector
    lanes = min(1 << (plan.work_group_size.bit_length() - 1), 1 << (vectors - 1).bit_length())
    size = plan.work_group_size * vector * (16 if plan.in_doubles else operator.accumulator.itemsize)
    fits = lanes * plan.row_sharers <= plan.work_group_size and size <= _SHARED_BYTES
    can = plan.at_once > 0 and is_plain  # else rows are gathered
    atomic = vector_atomic(operator.operation, operator.dtype, spec.device_features) if can else None
    # With fewer work-items than two for each part, a part has one, which takes the rows of all bins.
    is_alone = plan.work_groups * plan.work_group_size < 2 * plan.parts
    return RowsSpec(
        spec,
        text,
        vector,
        lanes,
        plan.row_sharers if fits else 1,
        copies=plan.parts > operator.holds_values and not text.rows.is_sorted,  # one is the results themselves
        is_alone=is_alone,
        near_bins=_near_bins(plan, operator) if is_alone and plan.work_group_size == 1 else 0,
        few_bins=plan.few_bins if plan.is_few and not text.rows.is_sorted else 0,
        placing_group=plan.placing_group,
        width=0 if ranges is None else ranges.most_width,
        staged=0 if ranges is None else ranges.split.most_pairs,
        carried_bytes=ranges.carried_bytes if ranges is not None and is_plain else 0,
        in_doubles=plan.in_doubles,
        atomic=atomic,
        is_guarded=atomic is not None and plan.again is not None,
    )


def _near_bins(plan: RowsPlan, operator: Operator) -> int:
    """Return how many bins of three sums have room near a work-item, where one addition of four numbers is for all."""
    # Three sums and a spare make a vector of 16 bytes, which one addition updates.
    is_short = operator.operation == "add" and operator.accumulator.kind in "iuf" and operator.accumulator.itemsize == 4
    has_room = plan.rows.components == 3 and plan.row_bins <= _NEAR_BINS  # 16 bytes with one more
    return _NEAR_BINS if is_short and has_room else 0


def _vector(components: int, operator: Operator, is_plain: bool, is_blocked: bool) -> int:
    """Return how many components a work-item has at once: 16 bytes of those that it loads, or on a CPU of sums."""
    vector = 1
    if is_plain and not is_blocked:
        # Wide loads must not cross the end of a row.
        vector = 16 // operator.dtype.itemsize
        while components % vector:
            vector //= 2
    elif is_blocked and operator.accumulator.kind in "iuf":
        vector = max(1, 16 // operator.accumulator.itemsize)
        while vector > components:
            vector //= 2
    return vector


def rows_parameters(spec: RowsSpec) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of each kernel that gathers rows, in order, by its name without ``clhist_rows_``."""
    arrays = tuple(parameter for argument in spec.sweep.arguments for parameter in argument.kernel_parameters)
    # Results are those of a plain second stage, whatever kernel writes them.
    results = tuple(result_parameters(CombineSpec(spec.sweep.outputs[0].operator, spec.sweep.order), "clhist_"))
    size, accumulators = uints("elements", "row_bins"), buffers("__global accumulator_t *", "held")

    def words(*names: str) -> tuple[Parameter, ...]:
        return buffers("__global uint *", *names)

    # A CPU adds the rows of each part to a copy, and joins the copies unless rows are sorted.
    if spec.sweep.order == "blocked":
        joined = (*uints("row_bins", "parts"), *accumulators, *results)
        parameters = {"add": (*arrays, *size, *uints("parts"), *accumulators, *results)}
        return parameters if spec.is_sorted else {**parameters, "join": joined}
    # Atomics of several numbers: `start` initialises the results, and guarded rows have a look before it.
    if spec.atomic is not None:
        flag = words("call") if spec.is_guarded else ()
        look = {"look": (*arrays, *size, *uints("most_alike"), *flag)} if spec.is_guarded else {}
        return {**look, "start": (*uints("row_bins"), *results, *flag), "add": (*arrays, *size, *results, *flag)}
    placed = words("counts", "begins", "ids")
    pieces = (*words("cursors"), *buffers("__global uint4 *", "pieces"))
    gathered = (*arrays, *uints("row_bins", "piece", "slots"), *placed, *pieces, *accumulators, *results)
    counts = words("counts") if spec.sweep.outputs[0].operator.by_count else ()
    if spec.is_sorted:
        gathered = (*gathered, *uints("elements"))
        joined = (*arrays, *size, *uints("piece", "slots"), *words("begins"), *accumulators, *results)
        parameters = {"bounds": (*arrays, *size, *uints("cleared"), *words("counts", "begins"))}
    else:
        joined, parameters = (*uints("slots"), *pieces, *counts, *accumulators, *results), {}
    parameters |= {"gather": gathered, "join": joined}
    if spec.in_doubles:
        # Bits mark the vectors of bins whose sum in doubles was not exact, for the kernel `again`.
        parameters["gather"] = (*gathered, *uints("marks_place"))
        parameters["again"] = (*gathered, *uints("marks_place", "marked"))
    if spec.is_sorted:
        return parameters
    # One work-group counts and places few rows; more are placed by ranges of bins, after a split.
    if spec.few_bins:
        parameters["few"] = (*arrays, *size, *uints("piece", "slots", "cleared"), *placed, *pieces)
        return parameters
    grouped = (
        *uints("row_bins", "width", "partitions", "tiles", "region"),
        *buffers("__global const char *", "pairs"),
        *ulongs("values_place"),
        *words("starts", "listed"),
        *buffers("__global const uint4 *", "ranges"),
        *buffers("__global const uint2 *", "tasks"),
        *buffers("__global const ulong *", "task_bounds"),
        *words("befores"),
        *placed,
    )
    ranges = buffers("__global const uint4 *", "ranges")
    parameters["begin"] = (*uints("row_bins", "width", "piece", "slots"), *ranges, *placed, *pieces)
    parameters["ranges"] = (*grouped, *uints("piece", "slots"), *pieces)
    parameters["place"] = grouped
    return parameters


def split_spec(plan: RowsPlan, rows: RowsSpec, source: Source, local_memory: int) -> PartitionSpec | None:
    """Return the specification of the kernels that group rows or their numbers by ranges; None without ranges."""
    if plan.ranges_of_bins is None or rows.atomic is not None:
        return None
    # A tile has at most 2^16 rows, so 16 bits are enough for a row's number in its tile.
    text, spec, value, operator = rows.text, rows.sweep, "(ushort)i", add(np.uint16)
    if rows.carried_bytes:
        # The split moves rows as words; their operator only gives it the type.
        value, word = (
            f"((__global const value_t *){text.loads})[i]",
            add(np.uint32 if rows.carried_bytes % 8 else np.uint64),
        )
        words = rows.carried_bytes // word.dtype.itemsize
        operator = word if words == 1 else product({f"word{k}": word for k in range(words)})
    # The split reads the bins, and the values only if it moves rows.
    named = [argument for argument in spec.arguments if re.search(rf"\b{argument.name}\b", f"{text.bin} {value}")]
    mapped = replace(
        spec, outputs=(Output(operator, ("native",)),), arguments=tuple(named), map=f"EMIT({text.bin}, {value})",
        work_group_size=plan.placing_group, wide=False, ignored=(), strategy=(), stages=(), indices=None,
    )  # fmt: skip
    split, again = plan.ranges_of_bins.split, source.is_repeatable
    partition = partition_spec(split, mapped, local_memory, has_values=True, repeatable=again, most_tile=MOST_TILE)
    return partition._replace(clears=True)
