"""A feature: what one idea adds to the kernel of a sweep, and what the kernel is then given. Pure.

Features that kernels ask for by their class are here, others in the module of their strategy, each with a template of
kernels_cl. So what a plan knows and a kernel needs is written once: as a parameter, as the plan's number for it, and
as C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from clhist._core.kernel_code import Parameter

if TYPE_CHECKING:
    from clhist._core.model.batch import FlattenedPlan
    from clhist._core.model.packed import PackedPlan
    from clhist._core.model.plan import Output, Plan

INT, UINT, LONG, ULONG = (np.dtype(kind) for kind in (np.int32, np.uint32, np.int64, np.uint64))


class Variable(NamedTuple):
    """One variable of a kernel that its functions pass on: its C type and its name."""

    c_type: str
    name: str


class SweepView(Protocol):
    """The attributes of a sweep that a feature may read: those of `clhist._core.kernels.specs.SweepSpec`."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The histograms that it fills."""

    @property
    def wide(self) -> bool:
        """Whether elements and bins are counted in 64 bits."""

    @property
    def memory(self) -> str:
        """The memory that has the copies."""


@dataclass(frozen=True)
class Feature:
    """An addition to a sweep. A value: equal features make equal source.

    A subclass without fields needs no decorator.

    Attributes
    ----------
    template : str
        Of kernels_cl: it has a def for each of the sections.
    sections : tuple of str
        Which sections of ``sweep.mako`` and its parts it fills, or takes over.
    scratch : str
        Parameter for memory of its own, of `scratch_bytes`; nothing if it has none.
    replaces_cells : bool
        Whether its state takes the place of cells and locks.
    combine_rows : int
        Rows of a work-group of the second stage, if it has a layout of copies of its own; 0 if not.
    """

    template: ClassVar[str] = ""
    sections: ClassVar[tuple[str, ...]] = ()
    scratch: ClassVar[str] = ""
    replaces_cells: ClassVar[bool] = False
    combine_rows: ClassVar[int] = 0

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        """Return the parameters that it adds to the kernel."""
        return ()

    def arguments(self, plan: Any, sweep: SweepView) -> Mapping[str, object]:
        """Return the arguments for these that follow from the plan, by name."""
        return {}

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        """Return the variables that an update needs besides those of the copies."""
        return ()

    @property
    def element_state(self) -> tuple[Variable, ...]:
        """Variables that only the map of an element passes to its ``EMIT``."""
        return ()

    def scratch_bytes(self, plan: Any, sweep: SweepView) -> int:
        """Return the bytes of the memory for `scratch`."""
        return 0

    def comment(self) -> str:
        """Return what it is, in a few words, for the head of the source."""
        return ""

    def combine_parameters(self) -> tuple[Parameter, ...] | None:
        """Return the parameters that it adds to the second stage; None if that does not depend on it."""
        return None

    @property
    def bins_per_word(self) -> int:
        """Bins of a copy that share a word."""
        return 1


def buffers(c_type: str, *names: str) -> tuple[Parameter, ...]:
    """Return parameters that are buffers, such as of the type ``__global uint *``."""
    return tuple(Parameter(c_type, f"clhist_{name}", None) for name in names)


def uints(*names: str) -> tuple[Parameter, ...]:
    """Return parameters of 32 bits."""
    return tuple(Parameter("const uint", f"clhist_{name}", UINT) for name in names)


def ulongs(*names: str) -> tuple[Parameter, ...]:
    """Return parameters of 64 bits."""
    return tuple(Parameter("const ulong", f"clhist_{name}", ULONG) for name in names)


def division(width: int) -> tuple[int, int]:
    """Return m and s with ``n // width == (n * m >> 32) >> s`` for all n below 2^31; `width` is at least 2.

    m is the smallest number of at most 32 bits that makes n * m / 2^(32 + s) exceed n / width by less than 1 / width.
    """
    # A power of two: the product with 2^31 is a shift by one to the right, and `s` has the others.
    if width & (width - 1) == 0:
        return 2**31, width.bit_length() - 2
    shift = width.bit_length() - 1
    # Rounded up in exact integers. Since width exceeds 2^s, m fits 32 bits.
    return -(-(2 ** (32 + shift)) // width), shift


# Packed counters, and the parts behind them or behind narrow sums.
WORD_BITS = 32  # of a word of local memory, which atomics of all devices update
SPILLS_BYTES = 16  # of local memory: how often a work-group spilled, and what it saw ahead
CALL_WORDS = 8  # of global memory: the flag, and whether the robust plan was called by it
RAISED = 0x9E3779B9  # the flag that is up; whatever else is there, it is down
SAMPLE = 2048  # elements that are looked at before the counters are taken
_COMBINED_ROWS = 8  # of a work-group that adds up the words of all copies
_OF_PLAN = ("table_size", "most_spills", "least_distinct", "most_alike")


@dataclass(frozen=True)
class BatchChunks(Feature):
    """Each team of a work-group takes one chunk of one histogram's elements at a time.

    Attributes
    ----------
    equal_shares : bool
        Whether all histograms have as many elements; else a table has where chunks begin and end.
    """

    template: ClassVar[str] = "batch.mako"
    sections: ClassVar[tuple[str, ...]] = ("helpers", "shares")

    equal_shares: bool

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        if self.equal_shares:
            return ulongs("tasks", "chunks", "histogram_size")
        return (*ulongs("tasks"), *buffers("__global const clhist_index_t *", "table"))

    def comment(self) -> str:
        return f"a batch: chunks of each histogram's elements, {'equal shares' if self.equal_shares else 'by a table'}"


class FlatBatch(Feature):
    """The histograms of a batch are one of all their bins; the index of an element tells its histogram."""

    template: ClassVar[str] = "batch.mako"
    sections: ClassVar[tuple[str, ...]] = ("target",)

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        bins = ULONG if sweep.wide else UINT
        names = (f"clhist_bins_each{output.suffix}" for output in sweep.outputs)
        return (*ulongs("histogram_size"), *(Parameter("const clhist_bin_t", name, bins) for name in names))

    def arguments(self, plan: FlattenedPlan, sweep: SweepView) -> Mapping[str, object]:
        of_outputs = zip(sweep.outputs, plan.bins, strict=True)
        return {f"clhist_bins_each{output.suffix}": bins // plan.flattened for output, bins in of_outputs}

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        kind = f"const {'ulong' if sweep.wide else 'uint'}"
        return tuple(Variable(kind, f"clhist_bins_each{output.suffix}") for output in sweep.outputs)

    def comment(self) -> str:
        return "a batch, as one histogram of all bins"


class CyclicPasses(Feature):
    """Pass p has the bins b with b % S == p, rather than a contiguous range."""

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        return uints("passes", "magic", "shift")

    def arguments(self, plan: Plan, sweep: SweepView) -> Mapping[str, object]:
        # Kernels divide a bin by the number of passes for each pair: by a multiplication and a shift.
        magic, shift = division(plan.passes)
        return {"clhist_passes": plan.passes, "clhist_magic": magic, "clhist_shift": shift}

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        return tuple(Variable(parameter.c_type, parameter.name) for parameter in self.parameters(sweep))

    def combine_parameters(self) -> tuple[Parameter, ...]:
        return uints("passes")

    def comment(self) -> str:
        return "pass p has the bins b with b % S == p"


@dataclass(frozen=True)
class PackedCounters(Feature):
    """Counters of `bits` bits share words of local memory; the single output counts."""

    template: ClassVar[str] = "packed.mako"
    sections: ClassVar[tuple[str, ...]] = ("combine",)
    replaces_cells: ClassVar[bool] = True
    combine_rows: ClassVar[int] = _COMBINED_ROWS

    bits: int

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        return uints(*_OF_PLAN)

    def arguments(self, plan: PackedPlan, sweep: SweepView) -> Mapping[str, object]:
        return {f"clhist_{name}": getattr(plan, name) for name in _OF_PLAN}

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        s, bin_type = sweep.outputs[0].suffix, "ulong" if sweep.wide else "uint"
        return (
            *(Variable(f"const {bin_type}", f"clhist_{name}{s}") for name in ("first", "count")),
            *(Variable("volatile __local uint *", f"clhist_{name}") for name in ("words", "spills")),
            *(Variable("volatile __global uint *", f"clhist_{name}") for name in ("table", "flag")),
            *(Variable("const uint", f"clhist_{name}") for name in ("table_size", "most_spills")),
        )

    @property
    def element_state(self) -> tuple[Variable, ...]:
        # What an update has found. In private memory, so it is not passed to what settles carries, which is no part of
        # the kernel's own code.
        return (Variable("clhist_pending_t *", "clhist_pending"),)

    def combine_parameters(self) -> tuple[Parameter, ...]:
        return (*ulongs("packed_place"), *uints("rows", "tables", "table_size"))

    def comment(self) -> str:
        return f"counters of {self.bits} bits, {self.bins_per_word} to a word; what they cannot hold is spilled"

    @property
    def bins_per_word(self) -> int:
        return WORD_BITS // self.bits

    def table_bits(self, capacity: int) -> int:
        """Return of how many bits the number of a place is where the bins that were seen ahead are kept.

        There are twice as many places as elements.
        """
        # A place has two words: a bin, and how often it came again. A small local array has fewer places.
        return min(SAMPLE.bit_length(), ((capacity - SPILLS_BYTES) // 8).bit_length() - 1)


@dataclass(frozen=True)
class HotBin(Feature):
    """Each work-item holds one bin in registers, of whose values it makes one update: see ``hot_bin.mako``.

    For updates that wait for each other under skew.

    Attributes
    ----------
    is_local : bool
        Whether the bin is chosen by an update that failed; in global memory by a majority vote.
    """

    is_local: bool

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        return (
            Variable("clhist_bin_t *", "clhist_hot_bin"),
            *(Variable(f"accumulator{output.suffix}_t *", "clhist_hot_value") for output in sweep.outputs),
            *([] if self.is_local else [Variable("uint *", "clhist_votes")]),
        )

    def comment(self) -> str:
        return "each work-item holds one bin in registers"


class Guarded(Feature):
    """Its kernels, and those that partition pairs before them, ask a flag whether to compute."""

    def leave_parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters by which a kernel before the sweep asks for the flag."""
        raise NotImplementedError


class Fallback(Guarded):
    """A sweep that computes only if the narrow counters before it raised their flag."""

    template: ClassVar[str] = "fallback.mako"
    sections: ClassVar[tuple[str, ...]] = ("guard",)
    is_apart: ClassVar[bool] = False  # whether the flag is in memory of its own

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        return ulongs("flag_place")

    def leave_parameters(self) -> tuple[Parameter, ...]:
        return (*buffers("__global const char *", "scratch"), *ulongs("flag_place"))

    def comment(self) -> str:
        return "it computes only if narrow counters raised their flag"


@dataclass(frozen=True)
class PartitionedPairs(Feature):
    """The elements are pairs that kernels before grouped by partition.

    Attributes
    ----------
    writes_results : bool
        Whether a work-group that has all pairs of a range writes its results.
    """

    template: ClassVar[str] = "partitioned.mako"
    sections: ClassVar[tuple[str, ...]] = ("helpers", "shares", "store", "behind")

    writes_results: bool = False

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        return (
            *buffers("__global const uint *", "starts"),
            *buffers("__global const uint4 *", "ranges"),
            *buffers("__global const uint2 *", "tasks"),
            *buffers("__global const ulong *", "task_bounds"),
            *buffers("__global uint *", "cursors"),
            *uints("partitions", "tiles", "region"),
            *(uints("all_bins") if self.writes_results else ()),
        )

    def comment(self) -> str:
        return "the pairs of each range of bins are together, in tiles"
