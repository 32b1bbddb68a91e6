"""Parameters of the kernels that group pairs by ranges of bins, and of the sweep over the ranges."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from clhist._core.kernels.maps import Argument
from clhist._core.kernels.specs import SweepSpec
from clhist._core.model.feature import PartitionedPairs
from clhist._core.model.partition import (
    ALONE_COUNTERS,
    CPU_TILE,
    INDEX_GROUPS,
    INDEXED_TILES,
    LARGE_TILE_GROUP,
    LEAST_COUNTERS,
    LEAST_GROUP,
    MOST_COUNTERS,
    MOST_TILE,
    PARTITION_GROUP,
    TILES_AT_A_TIME,
    USUAL_GROUP,
    PartitionedPlan,
    Split,
    counted_partitions,
    counters,
    power_of_two,
    tile_bytes,
    tile_elements,
)
from clhist.operators.c_types import c_name
from clhist.operators.halves import number_of

# Names of the arrays of partitioned pairs.
PAIR_BINS, PAIR_VALUES = "clhist_pair_bins", "clhist_pair_values"
_PARTITION_ELEMENTS = 16


class PartitionSpec(NamedTuple):
    """Everything that the source of partitioning depends on.

    Attributes
    ----------
    sweep : SweepSpec
        The map and its arguments; one output, to which an element emits at most one pair.
    most : int
        Upper bound on the number of partitions: see `clhist._core.model.partition.counted_partitions`.
    has_values : bool
        Whether each pair stores its value.
    index_group : int
        Work-items of the group that indexes one partition, a power of two.
    rounds : int
        How often a work-item takes as many `elements`.
    lists_whole : bool
        Whether ranges that are not shared out are listed as tasks as well, which make copies of them.
    clears : bool
        Whether words that kernels behind need are set to 0 besides.
    keeps : bool
        Whether the pairs of a tile are kept from when they are counted to when they are placed; else they are mapped
        twice.
    """

    sweep: SweepSpec
    most: int
    has_values: bool
    index_group: int
    rounds: int = 1
    lists_whole: bool = False
    clears: bool = False
    keeps: bool = True

    @property
    def elements(self) -> int:
        """Elements of a work-item in one round."""
        return max(_PARTITION_ELEMENTS, self.sweep.vector_width)

    @property
    def tile(self) -> int:
        """Elements of a work-group."""
        return self.elements * self.sweep.work_group_size * self.rounds

    @property
    def is_alone(self) -> bool:
        """Whether one work-item of a CPU splits a tile."""
        return self.sweep.is_alone

    @property
    def per_lane(self) -> int:
        """Partitions of a work-item."""
        return ceil(self.most / self.sweep.work_group_size)

    @property
    def counters(self) -> int:
        """Counters of a partition: several, so that neighbouring work-items, or elements, collide less."""
        if not self.is_alone:
            return counters(self.most)
        # A CPU needs several where partitions are few, or a few of them hot: see `model.partition`.
        return max(1, ALONE_COUNTERS // self.most, min(LEAST_COUNTERS, MOST_COUNTERS // self.most))

    @property
    def value_bytes(self) -> int:
        """Bytes of a pair's value."""
        return number_of(self.sweep.outputs[0].operator.dtype).itemsize if self.has_values else 0

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group, in bytes."""
        if self.sweep.is_alone:
            return (self.tile * (4 + self.value_bytes) if self.keeps else 0) + 4 * self.most * self.counters
        return tile_bytes(self.tile, self.sweep.work_group_size, self.most, self.value_bytes)


def partition_specs(
    plan: PartitionedPlan, spec: SweepSpec, value: str | None, local_memory: int, *, repeatable: bool = False
) -> tuple[PartitionSpec, SweepSpec]:
    """Return the specifications of the kernels that partition the pairs, and of the sweep over the pairs.

    Parameters
    ----------
    plan : PartitionedPlan
        With the ranges of bins.
    spec : SweepSpec
        Of the same sweep over elements.
    value : str or None
        C expression of the value that all pairs share; None if each pair stores its own.
    local_memory : int
        Bytes that a work-group may use.
    repeatable : bool
        Whether the map may be called twice for an element, and has the same bin each time.
    """
    output = spec.outputs[0]
    before = partition_spec(plan.split, spec, local_memory, has_values=value is None, repeatable=repeatable)
    # Whole ranges are tasks with copies unless the sweep writes their results.
    before = before._replace(lists_whole=not plan.writes_results)
    arguments = [Argument(PAIR_BINS, "ushort", np.dtype(np.uint16), True, True)]
    if value is None:
        # Pairs store numbers: the split has already converted halves.
        dtype = number_of(output.operator.dtype)
        kind = f"value{output.suffix}_t" if dtype.names is not None else c_name(dtype)
        arguments.append(Argument(PAIR_VALUES, kind, dtype, True, True))
    else:
        # The common value may name scalars; arrays were read by the split.
        arguments += [argument for argument in spec.arguments if not argument.is_array]
    over_pairs = replace(
        spec,
        arguments=tuple(arguments),
        map=f"EMIT{output.suffix}({PAIR_BINS}[i], {value or f'{PAIR_VALUES}[i]'})",
        strategy=(PartitionedPairs(plan.writes_results), *spec.strategy),
        aligned=True,
        structs=() if value is None else spec.structs,  # scalar arguments may be of these types
        preamble="",
        ignored=(),
        indices=None,
        in_range=spec.is_alone,
    )
    return before, over_pairs


def partition_spec(
    split: Split, spec: SweepSpec, local_memory: int, *, has_values: bool, repeatable: bool, most_tile: int = MOST_TILE
) -> PartitionSpec:
    """Return the specification of the kernels that group pairs by tiles with enough pairs of each range.

    `spec` has the map.
    """
    # The split only groups pairs: it has no copies, results or common factor.
    most, largest = counted_partitions(split.ranges), power_of_two(spec.work_group_size)
    plain = replace(spec, memory="global", capacity=0, fused_combine=False, combine=None, single_pair=False, factor="")

    def of(group: int, rounds: int = 1) -> PartitionSpec:
        # Mapping an element twice saves the memory of its pair, which makes larger tiles possible.
        keeps = not repeatable or (rounds == 1 and not spec.is_alone)
        mapped = replace(plain, work_group_size=group)
        return PartitionSpec(mapped, most, has_values, min(INDEX_GROUPS[0], largest), rounds, keeps=keeps)

    usual = of(PARTITION_GROUP)
    enough = tile_elements(split.ranges, usual.value_bytes)
    # Not so large that work-groups have none.
    wanted = CPU_TILE if spec.is_alone else min(enough, split.elements // split.work_groups)
    group = min(LARGE_TILE_GROUP if 2 * usual.tile < wanted else PARTITION_GROUP, largest)
    # Large values and many partitions leave room for fewer work-items.
    while group // 2 >= LEAST_GROUP and of(group).local_bytes > local_memory:
        group //= 2
    # Smaller work-groups, so that a compute unit has room for several tiles, as long as these are large enough.
    while (
        group > USUAL_GROUP and TILES_AT_A_TIME * of(group).local_bytes > local_memory and of(group // 2).tile >= wanted
    ):
        group //= 2
    result = of(group)
    # More rounds enlarge a tile until it has enough pairs of each range.
    while (repeatable or spec.is_alone) and result.tile < wanted and 2 * result.tile <= most_tile:
        larger = of(group, 2 * result.rounds)
        if larger.local_bytes > local_memory:
            break
        result = larger
    # Each work-item of the index gets several tiles, and takes some words of local memory.
    least, largest = INDEX_GROUPS[0], min(largest, INDEX_GROUPS[1], local_memory // 8)
    items = max(least, split.elements // (result.tile * INDEXED_TILES))
    return result._replace(index_group=power_of_two(max(1, min(largest, items))))
