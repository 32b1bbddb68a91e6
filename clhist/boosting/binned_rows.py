"""Rows of binned features on a device, of whose gradients sums are made for each bin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.spi import (
    FEWEST_BYTES,
    Chain,
    Kernel,
    device_kind,
    is_device_array,
    kept_by_context,
    kernels_of,
    planning_profile,
    uploads,
)
from clhist.boosting.kernels import MOST_ROWS, ROWS, BoostingSpec, has_room, render_boosting, sweeps_of
from clhist.operators.c_types import c_name

FLOAT = np.dtype(np.float32)
# Bits of a gradient in units of its common exponent.
MOST_BITS = 30
_EXACT_BITS = 52  # of a sum: float64 has it exactly
# Bytes of local memory that the kernel that splits rows needs for itself.
_OWN_LOCAL_MEMORY = 64
# Least rows of a work-group: with fewer, adding its sums to the common ones costs more than it saves.
_FEWEST_ROWS = {"cpu": 1 << 15, "gpu": 1 << 13}
# Least rows of a work-item in kernels whose work-groups share the rows of nodes.
_ROWS_OF_LANE = 16
_SWEEPS, _GROUPS = 2, 8  # work-groups for each compute unit


def bits_of(rows: int) -> int:
    """Return the bits of the largest gradient in units, so that float64 has all sums of so many rows exactly."""
    return min(MOST_BITS, _EXACT_BITS - max(rows - 1, 1).bit_length())


def unit_of(largest: float, rows: int) -> int:
    """Return the exponent of the unit of gradients of which `largest` is the largest absolute value, a float32."""
    # The biased exponent: an absolute value has no sign bit. Subnormal numbers have 0 there, and the scale of 1.
    exponent = np.float32(largest).view(np.uint32) >> 23
    return max(int(exponent), 1) - 126 - bits_of(rows)


def check_finite(name: str, largest: np.floating) -> None:
    """Raise ValueError if the largest absolute value is not finite."""
    if not np.isfinite(largest):
        raise ValueError(f"{name}: expected finite numbers, got {largest}")


@dataclass(eq=False)
class Node:
    """A node whose rows are on the device.

    Attributes
    ----------
    begin, end : int
        Where its rows are in the list.
    depth : int
        Of the tree; lists of rows take turns.
    slot : int, optional
        Where its sums are, if they are.
    gradients, hessians : int
        The sums of its rows, in units; of rows whose hessians are all 1, their number.
    value : float
        What the tree says of it.
    """

    begin: int
    end: int
    depth: int
    slot: int | None
    gradients: int
    hessians: int
    value: float

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.end - self.begin


def rows_of(nodes: Iterable[Node]) -> int:
    """Return how many rows nodes have."""
    return sum(node.rows for node in nodes)


class BinnedRows:
    """Rows of binned features on a device, of whose gradients sums are made: of those given, or of what is in `inputs`.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where.
    binned : uint8 array of shape (rows, features)
        Of NumPy or PyOpenCL, in either order.
    n_bins : int
        How many bins a feature has.
    dtypes : sequence of numpy.dtype
        Of gradients and, unless all rows have 1, of hessians: float32, or integers of at most 32 bits.
    like : BinnedRows, optional
        The same rows on the device already, in the place of `binned`.

    Raises
    ------
    MemoryError
        If the device has no room.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        binned: Any,
        n_bins: int,
        dtypes: Sequence[np.dtype],
        like: BinnedRows | None = None,
    ) -> None:
        self.rows, self.features = binned.shape
        self.n_bins, self.has_hessians, self.whole = n_bins, len(dtypes) > 1, dtypes[0] != FLOAT
        self.bits = bits_of(self.rows)
        device = queue.device
        profile = planning_profile(device)
        self._kind = profile.kind
        self._units = device.max_compute_units
        self._lanes = 1 if self._kind == "cpu" else min(profile.work_group_size, device.max_work_group_size)
        # Four bins of 8 bits share a 32-bit word.
        words = ceil(self.features / 4)
        room = profile.local_memory - _OWN_LOCAL_MEMORY
        sweeps = sweeps_of(words, n_bins, self._lanes, self.has_hessians, self.whole, room)
        values = tuple(c_name(dtype) for dtype in dtypes)
        self.spec = BoostingSpec(sweeps, words, n_bins, self._lanes, values, bool(device.double_fp_config))
        self._kernels = _kernels(queue.context, self.spec)
        self.size = self.spec.sums * self.features * n_bins
        self.chain = Chain(queue, "to grow trees")
        # Events of copies to the device. PyOpenCL waits for an event whose last reference is dropped.
        self._sending: list[cl.Event] = []
        self._by_row: Any
        self._by_feature: Any
        if like is None:
            self._take_bins(binned, words)
        else:
            self._by_row, self._by_feature = like._by_row, like._by_feature  # noqa: SLF001
        self._names, self._dtypes = ("gradients", "hessians")[: len(dtypes)], dtypes
        self.inputs = [self.chain.new(self.rows, dtype) for dtype in dtypes]
        # Integers are summed as they are. Floats become int32 units, gradient and hessian of a row side by side.
        self._values = self.inputs if self.whole else [self.chain.new(self.rows * len(dtypes), np.int32)]
        self._largest = self.chain.new(len(self._names), np.uint32)
        self.units: list[int] = []

    def _take_bins(self, binned: Any, words: int) -> None:
        self._by_row = self.chain.new(self.rows * words, np.uint32)
        is_host = isinstance(binned, np.ndarray)
        # Splitting a node reads one feature of many rows (`_by_feature`), summing all features of a row (`_by_row`).
        columns = np.asfortranarray(binned) if is_host else binned
        memory, offset = (self.sent(columns.T.reshape(-1)), 0) if is_host else self.chain.place(columns)
        self.run("by_row", memory, offset, *columns.strides, self._by_row, self.rows, self.features)
        self._by_feature = memory

    def take(self, gradients: Any, hessians: Any) -> None:
        """Take the gradients of all rows, floats as integers of a unit; without, those that are in `inputs`."""
        arrays = (gradients, hessians)[: len(self._names)]
        memories = [
            memory if array is None else self._at_hand(memory, array)
            for memory, array in zip(self.inputs, arrays, strict=True)
        ]
        if self.whole:
            self._values = memories
        else:
            # The largest absolute value decides the unit, and sums of integer units are exact.
            self._find_largest(memories)
            self.run("in_units", *memories, self.rows, self._largest, self.bits, *self._values)

    def _find_largest(self, memories: Sequence[Any]) -> None:
        self.chain.fill(self._largest, np.uint32, 0, len(memories))
        self.run("largest", *memories, self.rows, self._largest)

    def _at_hand(self, memory: Any, array: Any) -> Any:
        """Return the memory of an array of the device, or memory that has become a copy."""
        # Kernels take no offset, so an array with one is copied.
        if is_device_array(array) and not array.offset:
            return self.chain.place(array)[0]
        self.send(memory, array if is_device_array(array) else np.ascontiguousarray(array))
        return memory

    def find_units(self) -> None:
        """Read the units of floats, as exponents of 2; check integers, and wait until host arrays have been copied.

        Raises
        ------
        ValueError
            If a number is not finite, or too large for int32.
        """
        if self.whole and np.uint32 not in self._dtypes:
            # When the call returns, the caller may change its arrays.
            for event in self._sending:
                event.wait()
            self._sending.clear()
            return
        self.units = []
        largest = self.fetched(self._largest, len(self._names), np.uint32)
        for name, of, dtype in zip(self._names, largest, self._dtypes, strict=True):
            if dtype == np.uint32 and of >= 1 << 31:
                raise ValueError(f"{name}: expected numbers less than 2**31, got {of}")
            if self.whole:
                continue
            check_finite(name, of.view(np.float32))
            self.units.append(unit_of(of.view(np.float32), self.rows))

    def sweep(self, nodes: Sequence[Node], sums: Any, lists: Sequence[Any]) -> None:
        """Write the sums of nodes to their slots of memory; `lists` are of rows, or None if they are in order."""
        has_large = self.whole and np.uint32 in self._dtypes  # numbers, perhaps
        if has_large:
            self._find_largest(self._values)
        if not nodes:
            return
        # Rows of a work-group: enough work-groups for all compute units, yet enough rows to amortise adding its sums.
        step = max(_FEWEST_ROWS[self._kind], ceil(rows_of(nodes) / (self._units * _SWEEPS)))
        if self._lanes > 1:
            # Equal steps below the limit of 16-bit row counts: no work-group empties its cells midway.
            step = ceil(step / ceil(step / MOST_ROWS))
        table = self._table(nodes, step)
        # Several work-groups add to these sums, which begin at 0; a work-group alone overwrites its slot.
        shared = table["slot"][table["groups"] > 1]
        if len(shared):
            self._of_slots("clear", shared, sums)
        most = min(step, MOST_ROWS)
        sweeps = self._sweeps(most)
        # Several layouts: each kernel decides on the device whether its layout is the first with enough room.
        is_sure = len(sweeps) == 1
        if self.whole and not is_sure and not has_large:
            self._find_largest(self._values)
        arguments = [self._by_row, *self._values, *lists, self.sent(table), len(table), sums, self.features]
        # Without the largest values a kernel skips the check whether its layout has room.
        arguments += [None if is_sure else self._largest, most] if self.whole else []
        for layout, features in sweeps:
            parts = ceil(4 * self.spec.words / features)
            self.chain.run(self._kernels[f"sweep_{layout}"], int(table["groups"].sum()), self._lanes, arguments, parts)
        if self.whole:
            # Drop the references to the caller's arrays.
            self._values = self.inputs

    def _sweeps(self, rows: int) -> Sequence[tuple[str, int]]:
        """Return the sweeps up to the first one that has room for so many rows of any values of their types."""
        bounds = [max(-int(info.min), int(info.max)) for info in map(np.iinfo, self._dtypes)] if self.whole else [0]
        sure = (n for n, (layout, _) in enumerate(self.spec.sweeps, 1) if has_room(layout, bounds, rows))
        return self.spec.sweeps[: next(sure)]

    @staticmethod
    def _table(nodes: Sequence[Node], step: int) -> np.ndarray:
        """Return the rows of nodes as kernels take them, of which a work-group has at most so many."""
        table = np.array([(node.begin, node.end, 0, 0, node.slot or 0, node.depth % 2) for node in nodes], ROWS)
        # The unsigned difference wraps. As int64 it is minus the number of rows, so the floor rounds the quotient up.
        table["groups"] = np.maximum(1, -((table["begin"] - table["end"]).view(np.int64) // step))
        table["first"] = table["groups"].cumsum() - table["groups"]
        return table

    def write_apart(self, sums: Any, nodes: int, counts: Any, others: Sequence[Any]) -> None:
        """Write the sums of nodes to arrays of the device: counts, and the others as float64, or int64 of integers.

        Raises
        ------
        TypeError
            If the device has no float64.
        """
        if not (self.spec.doubles or self.whole):
            raise TypeError("gradients: the device has no float64 for the sums; give an array of NumPy")
        memory = [self.chain.place(array)[0] for array in (counts, *others)]
        plane = self.features * self.n_bins
        self.run("apart", sums, nodes, plane, self._largest, self.bits, *memory)
        self.chain.finish(counts, *others)

    def _of_slots(self, name: str, slots: np.ndarray, sums: Any) -> None:
        lanes = min(self._lanes, 256)
        parts = 1 if self._lanes == 1 else ceil(self.size / (lanes * 4))
        arguments = [self.sent(slots), sums, self.size]
        self.chain.run(self._kernels[name], len(slots), lanes, arguments, parts)

    def sent(self, array: np.ndarray) -> Any:
        """Return memory with a copy of an array of one dimension."""
        memory = self.chain.new(array.size, array.dtype)
        self.send(memory, array)
        return memory

    def send(self, memory: Any, array: Any) -> None:
        """Copy an array of one dimension to memory."""
        queue = self.chain.queue
        if is_device_array(array):
            of, offset = self.chain.place(array)
            copied = cl.enqueue_copy(
                queue, memory, of, byte_count=array.nbytes, src_offset=offset, wait_for=self.chain.events
            )
            self.chain.events = [copied]
        elif device_kind(queue.device) != "cpu" and array.nbytes >= FEWEST_BYTES:
            # Large arrays take the faster upload path of devices with their own memory.
            uploaded = uploads(queue.context, queue.device).upload(memory, array, array.dtype, self.chain.events)
            self.chain.events = [uploaded]
        elif array.size:
            # Small copies do not block: `find_units` waits for them before the caller may change its arrays.
            is_small = array.nbytes < FEWEST_BYTES
            sent = cl.enqueue_copy(queue, memory, array, wait_for=self.chain.events, is_blocking=not is_small)
            self._sending.append(sent)
            self.chain.events = [sent]

    def fetched(self, memory: Any, number: int, dtype: Any, offset: int = 0) -> np.ndarray:
        """Return a copy on the host of so many elements, from a number of bytes on."""
        copy = self.chain.fetched(memory, number, dtype, offset)
        # The blocking read waited for all earlier copies.
        self._sending.clear()
        return copy

    def run(self, name: str, *arguments: Any) -> None:
        """Run a kernel whose work-items share what there is."""
        lanes = min(self._lanes, 256)
        groups = self._units * _GROUPS * (1 if lanes == 1 else 4)
        self.chain.run(self._kernels[name], groups, lanes, arguments)

    def _of_nodes(
        self, name: str, nodes: Sequence[Node], before: Sequence[Any], *arguments: Any, slots: np.ndarray | None = None
    ) -> None:
        """Run a kernel whose work-groups share the rows of nodes."""
        table = self._table(nodes, max(_ROWS_OF_LANE * self._lanes, ceil(rows_of(nodes) / (self._units * _GROUPS))))
        if slots is not None:
            table["slot"] = slots
        parameters = [*before, self.sent(table), len(table), *arguments]
        self.chain.run(self._kernels[name], int(table["groups"].sum()), self._lanes, parameters)


@kept_by_context
def _kernels(context: cl.Context, spec: BoostingSpec) -> dict[str, Kernel]:
    return kernels_of(context, render_boosting(spec))
