"""Specifications: everything that the source of each kernel depends on. They are the keys of built kernels.

A specification has what changes the code (types, operator, map, update, memory, work-group size, capacity of the local
array). What changes only numbers (N, H, M, the bins of a pass) is an argument of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple, TypeVar

import numpy as np

from clhist._core.devices.vendors import (
    NativeAtomic,
    VendorPath,
    device_fence,
    local_adds_loop,
    native_atomic,
    of_warps,
)
from clhist._core.kernels.maps import Argument, is_streamed
from clhist._core.model.feature import Feature, HotBin, PartitionedPairs
from clhist._core.model.plan import Output
from clhist._core.model.updates import CARRY, WITHOUT_UPDATES, part_loops, slowest, waits
from clhist.operators.operator import Operator, Part
from clhist.operators.recognition import replaced_if, without_call

# A longer map (in characters) is not unrolled for wide loads: it is not bound by its loads. No measurement is recorded.
_LONGEST_UNROLLED_MAP = 400
# On an H200 two loads in flight are 10 to 50 % slower than four, eight alike (packed counters; no command recorded).
_LOADS_IN_FLIGHT = 4
_BYTES_OF_A_LOAD = 16  # the widest that a work-item of a GPU has
_MOST_JOINED = 4  # terms of long integers
# Eight updates under way took counts of 2,041 bins on a Xeon from 13.2 to 9.2 ms; rounds of 4, 16 and 32 gain nothing.
# Note [Rounds of eight elements], docs/decisions/0003.
_ELEMENTS_OF_A_ROUND = 8
# Blocks of 128 are faster at 300 bins, blocks of 512 at 1.4 million, on a Xeon. Those of narrow sums have room in the
# first cache with the copies: blocks of 512 are 5 % slower on a Zen 5, of 64 alike.
_ELEMENTS_OF_A_BLOCK, _TERMS_OF_A_BLOCK, _PAIRS_OF_A_BLOCK = 512, 128, 64

F = TypeVar("F", bound=Feature)


@dataclass(frozen=True)
class SweepSpec:
    """Everything that the source of a sweep depends on.

    Attributes
    ----------
    outputs : tuple of Output
        The histograms that it fills.
    arguments : tuple of Argument
        Inputs of the map.
    map : str
        C run for each `i`, with ``EMIT(bin, value)`` of each output.
    memory : {"local", "global"}
        Where the copies are.
    order : {"blocked", "interleaved"}
        Whether each work-item has consecutive elements (CPU), or neighbouring work-items have neighbouring ones (GPU).
    work_group_size, teams : int
        B, and into how many teams a work-group is divided.
    capacity : int
        Bytes of the local array; 0 in global memory.
    wide : bool
        Whether elements and bins are counted in 64 bits.
    aligned : bool
        Whether the arrays allow loads of 16 bytes.
    rolled : tuple of str
        Updates that are in the text once, not for each element of wide loads; see `devices.vendors.Platform`.
    structs : tuple of (str, numpy.dtype)
        Structured types that the map may name.
    preamble : str
        C before the map.
    device_features : frozenset of str
        What the device has, of `clhist._core.devices.atomics.ALL_FEATURES`.
    ignored : tuple of Output
        Histograms that the map emits to, but another sweep fills.
    single_pair : bool
        Whether there is one output, and an element emits at most one pair to it.
    combine : CombineSpec, optional
        Of the second stage, if it is in the same program.
    stages : tuple of CombineSpec
        Second stages in the same program that have types of their own, of several outputs or of fields.
    fused_combine : bool
        Whether the sweep, the only launch, combines its copies itself.
    in_range : bool
        Whether every emitted bin is in range by construction, so that updates skip the bounds check.
    indices : Argument, optional
        The array whose elements are the bins, where those of a block of elements are compared with the histogram's
        before its updates.
    strategy : tuple of Feature
        What the strategy adds.
    factor : str
        C of the value that all pairs have, where bins count them: additions of a literal 1 to one bin by the lanes of a
        warp are one addition.
    """

    outputs: tuple[Output, ...]
    arguments: tuple[Argument, ...]
    map: str
    memory: str
    order: str
    work_group_size: int
    capacity: int = 0
    teams: int = 1
    wide: bool = False
    aligned: bool = False
    rolled: tuple[str, ...] = ()
    structs: tuple[tuple[str, np.dtype], ...] = ()
    preamble: str = ""
    device_features: frozenset[str] = frozenset()
    ignored: tuple[Output, ...] = ()
    single_pair: bool = False
    combine: CombineSpec | None = None
    fused_combine: bool = False
    in_range: bool = False
    indices: Argument | None = None
    stages: tuple[CombineSpec, ...] = ()
    strategy: tuple[Feature, ...] = ()
    factor: str = ""

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The features that the strategy and the kind of updates add to a plain sweep."""
        return (*([HotBin(self.memory == "local")] if self.hot_bin else []), *self.strategy)

    def feature(self, kind: type[F]) -> F | None:
        """Return the strategy's feature of this class, if it has one."""
        for feature in self.strategy:
            if isinstance(feature, kind):
                return feature
        return None

    @property
    def writes_results(self) -> bool:
        """Whether it writes results itself."""
        pairs = self.feature(PartitionedPairs)
        return self.fused_combine or (pairs is not None and pairs.writes_results)

    @property
    def is_alone(self) -> bool:
        """Whether a work-group is one work-item, of a CPU."""
        return self.order == "blocked" and self.work_group_size == 1

    @property
    def second_stage(self) -> str:
        """The function of the second stage that it calls, if any: for all bins of its copies, or for one bin."""
        if self.fused_combine:
            return "clhist_combine_bins"
        return "clhist_write_bin" if self.writes_results else ""

    @property
    def replaces_cells(self) -> bool:
        """Whether a feature has something else in the place of cells and locks."""
        return any(feature.replaces_cells for feature in self.strategy)

    @cached_property
    def update(self) -> str:
        """The slowest of all updates."""
        return slowest(update for output in self.outputs for update in output.updates)

    @property
    def team_size(self) -> int:
        """Work-items that go through the same elements together."""
        return self.work_group_size // self.teams

    @cached_property
    def parts(self) -> tuple[SweepPart, ...]:
        """The parts of all outputs, numbered."""
        # Numbered through all outputs, since names of types and functions in a program end with the number.
        pairs = [(o, p, u) for o in self.outputs for p, u in zip(o.operator.parts, o.updates, strict=True)]
        return tuple(
            SweepPart(
                n,
                output,
                part,
                update,
                native_atomic(part.operation, part.dtype, self.memory, self.device_features),
                # A store can be skipped only where no other work-item updates the cell.
                _replaced_if(output, part) if update == "private" and self.order == "blocked" else None,
                # CPU compilers may not inline min and max: Note [Text that CPU compilers need], docs/decisions/0003.
                without_call(part.combine, part.dtype) if self.order == "blocked" else part.combine,
            )
            for n, (output, part, update) in enumerate(pairs)
        )

    @cached_property
    def hot_bin(self) -> bool:
        """Whether work-items hold one hot bin in registers: only for updates that serialise under contention.

        Any in global memory; in local memory compare-exchange, locks, and additions that are loops themselves.
        """
        shares_copies = self.update not in ("private", *WITHOUT_UPDATES) and not self.replaces_cells
        if not self.single_pair or self.order != "interleaved" or not shares_copies:
            return False
        # In global memory a majority vote chooses the bin, whatever the update is.
        if self.memory == "global":
            return True
        # In local memory it is a bin whose update failed at once: the update must be a loop, and of a single part.
        first, *others = self.parts
        loops = local_adds_loop(self.device_features) and part_loops(first.part)
        return not others and (waits(first.update) or loops)

    @property
    def joined(self) -> int:
        """Neighbouring elements of a load whose pairs take one update if they have one bin; 1 if each has its own."""
        # A divisor of the load's elements: each element is in one group of neighbours.
        is_whole = self.single_pair and self.update == CARRY.name and all(part.part.whole for part in self.parts)
        return gcd(self.vector_width, _MOST_JOINED) if is_whole and not self.hot_bin and not self.in_range else 1

    @property
    def options(self) -> tuple[str, ...]:
        """Compiler options that the updates need."""
        used = {option for p in self.parts if p.update == "native" and p.atomic for option in p.atomic.options}
        if self.update == "lock" and self.memory == "global":
            used.update(device_fence(self.device_features)[1])
        # Options are part of the key of a program, so their order must not vary.
        return tuple(sorted(used))

    @property
    def fence(self) -> str:
        """C of the fence between a lock and its data."""
        return "mem_fence(CLK_LOCAL_MEM_FENCE)" if self.memory == "local" else device_fence(self.device_features)[0]

    @cached_property
    def streamed(self) -> tuple[Argument, ...]:
        """The arrays that the map reads only as ``name[i]``: their elements can be loaded ahead, by wide loads."""
        return tuple(argument for argument in self.arguments if is_streamed(argument, self.map, self.preamble))

    def map_parameters(self) -> list[str]:
        """Return the parameters of the map function: a streamed array passes one element."""
        streamed = self.streamed
        return [f"const {a.element} clhist_element_{a.name}" if a in streamed else a.parameter for a in self.arguments]

    def map_arguments(self, element: Callable[[Argument], str]) -> list[str]:
        """Return the arguments of a call of it; `element` gives the C of a streamed array's element."""
        streamed = self.streamed
        return [element(a) if a in streamed else a.name for a in self.arguments]

    @property
    def vector_width(self) -> int:
        """Elements of one load: 16 bytes of the widest streamed array, or 1."""
        if not self.streamed or not self.aligned or self.order == "blocked" or self.is_long:
            return 1
        # Wide loads repeat the update for each element, which some compilers take minutes for.
        if self.update in self.rolled:
            return 1
        # The widest array decides: one load of each array has the same number of elements.
        return max(1, _BYTES_OF_A_LOAD // max(argument.dtype.itemsize for argument in self.streamed))

    @property
    def round(self) -> int:
        """Elements of one round of a CPU's loop."""
        return _ELEMENTS_OF_A_ROUND

    @property
    def unrolled(self) -> int:
        """The number of unrolled elements of a round. Note [Rounds of eight elements], docs/decisions/0003."""
        is_plain = self.order == "blocked" and self.update == "private" and self.memory == "global" and self.single_pair
        return _ELEMENTS_OF_A_ROUND if is_plain and not self.is_long else 1

    @property
    def is_long(self) -> bool:
        """Whether the map is so long that its compilation and its own work outweigh the loop around it."""
        return len(self.map) > _LONGEST_UNROLLED_MAP

    @property
    def in_pass(self) -> str:
        """C of whether `bin`, one of `num_bins`, may be in this pass; what updates of private copies ask anyway."""
        return (
            # Unsigned: a bin before the first wraps to a large number, so that one comparison does for both ends.
            "CLHIST_BIN(bin) - clhist_first < clhist_count"
            if self.unrolled > 1
            else "(uint)CLHIST_BIN(bin) < (num_bins)"
        )

    @property
    def block(self) -> int:
        """Elements whose bins a CPU compares with the histogram's at a time, several by one instruction; 0 if none.

        Their updates need no comparison then: what is in no bin is counted behind the last one.
        """
        if self.makes_terms:
            return _PAIRS_OF_A_BLOCK if self.parts[0].part.words == 2 else _TERMS_OF_A_BLOCK
        return 0 if self.indices is None else _ELEMENTS_OF_A_BLOCK

    @cached_property
    def makes_terms(self) -> bool:
        """Whether a CPU makes the terms of a block's values by vectors, before it adds them one by one."""
        return self.indices is not None and self.parts[0].part.is_split

    @property
    def looks_first(self) -> bool:
        """Whether a look at some bins of a block says how its others are compared: where elements have nothing else.

        A branch that is always taken costs less than vectors of comparisons, and one that is not twenty times as much.
        One launch has few elements, for which compiling less is worth more.
        """
        return self.streamed == (self.indices,) and "CLHIST_IN_PASS" not in self.map and not self.fused_combine

    @property
    def warp(self) -> VendorPath:
        """The statement that makes the lanes of a warp converge after an element of an unrolled tile, if any.

        NVIDIA lanes do not reconverge by themselves after a divergent compare-exchange loop, nor when only some of
        their bins belong to this pass: the rest of the tile would run one lane at a time.
        """
        loops = waits(self.update) or (self.hot_bin and self.memory == "local")
        return of_warps(self.device_features if loops else (), self.team_size)

    @property
    def loads(self) -> int:
        """Loads of each streamed array in flight; fewer if one load has many elements."""
        # The text of a tile has the update of each element once, so loads of many elements are fewer.
        return max(1, min(_LOADS_IN_FLIGHT, 32 // self.vector_width)) if self.vector_width > 1 else 1


def _replaced_if(output: Output, part: Part) -> str | None:
    """Return the condition on which a value takes the place of that of its bin, the quick test first."""
    condition, kept_if = replaced_if(part.combine), output.operator.kept_if
    return f"!({kept_if}) && ({condition})" if condition and kept_if else condition


class SweepPart(NamedTuple):
    """One part of an output's operator in a sweep.

    Attributes
    ----------
    n : int
        Its number in the sweep.
    output : Output
        Whose operator it is of.
    part : Part
        What it combines.
    update : str
        How.
    atomic : NativeAtomic or None
        The hardware's for it.
    replaced_if : str or None
        Of private copies on a CPU: C of the condition on which a value `b` takes the place of `a`, if combining is such
        a choice.
    combine : str
        C that combines `a` and `b`; on a CPU without calls.
    """

    n: int
    output: Output
    part: Part
    update: str
    atomic: NativeAtomic | None
    replaced_if: str | None
    combine: str


class SampleSpec(NamedTuple):
    """Everything that the source of the kernel depends on that looks at some elements: a sweep's map and arguments."""

    sweep: SweepSpec


@dataclass(frozen=True)
class CombineSpec:
    """Everything that the source of the second stage depends on.

    Attributes
    ----------
    operator : Operator
        The combining operator.
    order : {"blocked", "interleaved"}
        As in `SweepSpec`.
    columns, rows : int
        `rows` work-items of a work-group combine the copies of each of `columns` bins.
    batch : {"", "equal", "ragged"}
        How the copies belong to the histograms of a batch: as many of each, or as a table says.
    dest_is_partial, out_is_partial : bool
        Whether these are arrays of accumulators, neither lifted nor finished.
    fields : tuple of (str, str)
        Name and C type of each field of a structured value, if each has an array of its own.
    whole : bool
        Whether the copies are arrays of accumulators rather than one array for each part.
    largest_bin_condition : str
        C condition on an accumulator `total`: the largest bin that meets it is reported; none if empty.
    features : tuple of Feature
        Those of the sweep that say how the bins of a copy lie.
    """

    operator: Operator
    order: str
    columns: int = 1
    rows: int = 1
    batch: str = ""
    dest_is_partial: bool = False
    out_is_partial: bool = False
    fields: tuple[tuple[str, str], ...] = ()
    whole: bool = False
    largest_bin_condition: str = ""
    features: tuple[Feature, ...] = ()

    def feature(self, kind: type[F]) -> F | None:
        """Return the feature of this class, if there is one."""
        return next((feature for feature in self.features if isinstance(feature, kind)), None)

    @property
    def bins_per_word(self) -> int:
        """Bins of a copy that share a word."""
        return max((feature.bins_per_word for feature in self.features), default=1)

    @property
    def sums_counts(self) -> bool:
        """Whether the sum of all counts is reported, too: it is N unless some element was outside."""
        return bool(self.largest_bin_condition) and self.order == "blocked" and self.operator.name == "count"
