"""Rows of values, gathered by bin: what the kernels' source depends on, and their parameters."""

from __future__ import annotations

from typing import NamedTuple

from clhist.codegen.maps import RowText
from clhist.codegen.parameters import result_parameters
from clhist.codegen.source import Source
from clhist.codegen.specs import CombineSpec, SweepSpec
from clhist.hardware.atomics import vector_atomic
from clhist.hardware.vendors import NativeAtomic
from clhist.planning.feature import Parameter, buffers, uints
from clhist.planning.rows import FEW_BINS, RowsPlan

_JOINED_BYTES = 8192
_AHEAD = 8


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
    copies : bool
        Whether a CPU has copies of accumulators in scratch memory, rather than results in place.
    few_bins : int
        Bins that the one work-group has room for that counts and places all; 0 without it.
    few_group : int
        Work-items of that.
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
    copies: bool
    few_bins: int
    few_group: int
    in_doubles: bool = False
    atomic: NativeAtomic | None = None
    is_guarded: bool = False

    @property
    def ahead(self) -> int:
        """How many rows ahead a CPU asks for the bin of one."""
        return _AHEAD

    @property
    def slots(self) -> int:
        """Bins, or pieces, of a work-group of a GPU."""
        return self.sweep.work_group_size // self.lanes

    @property
    def joined(self) -> int:
        """Rows of a work-group that joins pieces: a power of two, whose accumulators take little local memory."""
        operator = self.sweep.outputs[0].operator
        size = 16 if self.in_doubles else operator.accumulator.itemsize
        each = self.lanes * self.vector * size
        most = max(1, min(self.slots, _JOINED_BYTES // each))
        return 1 << (most.bit_length() - 1)


def rows_spec(plan: RowsPlan, spec: SweepSpec, source: Source) -> RowsSpec:
    """Return what the program depends on that gathers rows; `spec` is of a sweep over them."""
    text, operator = source.rows, plan.outputs[0].operator
    assert text is not None
    vector = 1
    if text.loads and spec.aligned and spec.order != "blocked":
        vector = 16 // operator.dtype.itemsize
        while plan.rows.components % vector:
            vector //= 2
    elif spec.order == "blocked" and operator.accumulator.kind in "iuf":
        vector = max(1, 16 // operator.accumulator.itemsize)
        while vector > plan.rows.components:
            vector //= 2
    vectors = plan.rows.components // vector
    lanes = min(1 << (plan.work_group_size.bit_length() - 1), 1 << (vectors - 1).bit_length())
    few = 0
    if plan.is_few:
        few = FEW_BINS // 8 if plan.row_bins <= FEW_BINS // 8 <= plan.few_bins else plan.few_bins
    copies = bool(plan.parts) and (plan.parts > 1 or not operator.holds_values)
    can = plan.at_once > 0 and bool(text.loads) and spec.aligned  # else rows are gathered
    atomic = vector_atomic(operator.operation, operator.dtype, spec.device_features) if can else None
    return RowsSpec(
        spec,
        text,
        vector,
        lanes,
        copies,
        few,
        plan.few_group,
        plan.in_doubles,
        atomic,
        atomic is not None and plan.again is not None,
    )


def rows_parameters(spec: RowsSpec) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of each kernel that gathers rows, in order, by its name without ``clhist_rows_``."""
    arrays = tuple(parameter for each in spec.sweep.arguments for parameter in each.kernel_parameters)
    results = tuple(result_parameters(CombineSpec(spec.sweep.outputs[0].operator, spec.sweep.order), "clhist_"))
    size, held = uints("elements", "row_bins"), buffers("__global accumulator_t *", "held")

    def words(*names: str) -> tuple[Parameter, ...]:
        return buffers("__global uint *", *names)

    if spec.sweep.order == "blocked":
        joined = (*uints("row_bins", "parts"), *held, *results)
        return {"add": (*arrays, *size, *uints("parts"), *held, *results), "join": joined}
    if spec.atomic is not None:
        flag = words("call") if spec.is_guarded else ()
        look = {"look": (*arrays, *size, *uints("most_alike"), *flag)} if spec.is_guarded else {}
        return {**look, "start": (*uints("row_bins"), *results, *flag), "add": (*arrays, *size, *results, *flag)}
    placed = words("counts", "begins", "ids")
    pieces = (*words("cursors"), *buffers("__global uint4 *", "pieces"))
    found = {
        "clear": (*words("counts"), *uints("words")),
        "begin": (*arrays, *uints("row_bins", "piece", "slots"), *words("counts", "begins"), *pieces),
        "gather": (*arrays, *uints("row_bins", "piece", "slots"), *placed, *pieces, *held, *results),
        "join": (*uints("slots"), *pieces, *held, *results),
    }
    if spec.few_bins:
        found["few"] = (*arrays, *size, *uints("piece", "slots"), *placed, *pieces)
    else:
        found["count"] = (*arrays, *size, *words("counts", "ranks"))
        found["place"] = (*arrays, *size, *words("begins", "ranks", "ids"))
    return found
