"""Bin numbers of elements as in `numpy.digitize`: 0 below all edges, the number of edges above all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.elements import has_no_type
from clhist._core.kernel_code import ALONE, with_arrays
from clhist._core.kernels.stored_source import stored_source
from clhist._core.keys import key_dtype, key_range
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import empty, shares_memory
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call_template import MANY
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import ArraySlot, New
from clhist._core.runtime.single_kernel import single_kernel, sizes
from clhist._core.templates import render
from clhist.axes.axis import Axis, axis_of, numbered_axis, searched_axis
from clhist.axes.block_search import BLOCK, KEYED
from clhist.axes.edges import EdgesKind
from clhist.axes.thresholds import Thresholds, first_keys
from clhist.binned.device_inputs import are_few_to_search
from clhist.binned.sweep import Binned, BinnedKind, arguments_of, functions_of, viewed
from clhist.operators.c_types import dtype_of

# Work-items of a GPU's compute unit, and of a work-group, at most: as many as H200 and MI300 run at once, so that each
# loops over elements. Shares of a CPU's compute unit even out what else runs there.
_RESIDENT, _LANES, _CPU_SHARES = 2048, 256, 8
_UPLOADED = 2**24  # elements that are uploaded at once


def steps_axis(edges: np.ndarray, dtype: np.dtype, *, right: bool, fp64: bool, most: int = 0) -> Axis | None:
    """Return the axis of the bins between ascending edges; None if no number of `dtype` reaches an edge.

    With `right`, a bin contains its upper edge rather than its lower one. `most` is of `numpy_axis`.
    """
    # Edges beyond the numbers of `dtype` have no key: fewer keys than edges.
    keys = first_keys(edges, dtype, strict=right)
    # Integers below all edges need no kernel; floats do, since NaN is above all edges.
    if not len(keys) and dtype.kind != "f":
        return None
    if not len(keys):  # all numbers are below the edges, only NaN is above
        return _axis_without_bins(dtype, key_range(dtype)[1] + 1, len(edges) - 1, fp64)
    if len(edges) == 1:
        return _axis_without_bins(dtype, int(keys[0]), 0, fp64)
    reachable = len(keys) == len(edges)
    # The last edge begins no bin: it ends the last one, unless no number reaches it.
    last = int(keys[-1]) - 1 if reachable else key_range(dtype)[1]
    bins = Thresholds(dtype, len(edges) - 1, keys[: len(edges) - 1], last)
    if bins.is_empty:
        return _axis_without_bins(dtype, int(keys[0]), len(edges) - 1, fp64)
    return (searched_axis(bins, most, fp64=fp64) if most else None) or axis_of(bins, fp64=fp64)


def _axis_without_bins(dtype: np.dtype, start: int, num_bins: int, fp64: bool) -> Axis:
    """Return an axis without keys between its edges: a key is below all edges (< `start`) or above all."""
    keys = np.array([start, start], key_dtype(dtype))
    kind = EdgesKind(dtype, KEYED, has_no_type(dtype, fp64))
    # The arguments of a KEYED axis: keys, cells, bins, shift, start, last. A key equal to `start` is above all, too.
    # Blocks of elements read the cell of `last`, which lies before `start`: after this shift it is one of two.
    cells, least, shift = np.full(2, num_bins, np.int32), np.iinfo(keys.dtype).min, 8 * keys.itemsize - 1
    return Axis(kind, (keys, cells), (num_bins + 1, shift, keys[0], keys.dtype.type(least)), num_bins)


class NumbersCall:
    """A call of the kernel that stores bin numbers, for arrays with the same signature.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    executable : Executable
        Of the kind of axes.
    tables : sequence of array
        Those of axes, on the device.
    dtypes : sequence of numpy.dtype or None
        The dtypes that the caller's arrays are read as.
    scalars : sequence of NumPy scalar
        All but the number of elements.
    in_blocks : bool
        Whether the bins of a block of elements are found at once.
    is_searched : bool
        Whether an axis has a small table, see `most_cells`.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        executable: Executable,
        tables: Sequence[Any],
        dtypes: Sequence[np.dtype | None],
        scalars: Sequence[Any],
        in_blocks: bool,
        is_searched: bool,
    ) -> None:
        self.queue, self.executable, self.tables = queue, executable, tuple(tables)
        self._dtypes, self._scalars, self._in_blocks = dtypes, tuple(scalars), in_blocks
        self._is_searched = is_searched
        # The scalars of the last call: kernels need not compare those of a repeat.
        self._last: tuple[int, tuple[Any, ...]] = -1, ()
        self._calls = 0

    @classmethod
    def of(cls, binned: Binned, queue: cl.CommandQueue, *, falling: bool) -> NumbersCall:
        """Return the call of data without a mask, whose numbers of several axes are `numpy.ravel_multi_index`'s.

        With `falling`, the edges were descending, and numbers count from the other end.
        """
        axes = tuple(map(numbered_axis, binned.axes))
        return cls._of(replace(binned, axes=axes), queue, [int(falling)])

    @classmethod
    def of_places(cls, binned: Binned, queue: cl.CommandQueue) -> NumbersCall:
        """Return the call that stores bins as int32, and -1 for an element without a bin, or masked."""
        return cls._of(binned, queue, [], places=True)

    @classmethod
    def _of(
        cls, binned: Binned, queue: cl.CommandQueue, numbers: Sequence[int], *, places: bool = False
    ) -> NumbersCall:
        # Numbers of several axes together may exceed the 32 bits of bins.
        are_bins = places or len(binned.axes) == 1
        # Devices that need uploads get parts, the last of which may be shorter than a block.
        has_blocks = device_kind(queue.device) == "cpu" and shares_memory(queue.device) and binned.kind.has_blocks
        in_blocks = has_blocks and are_bins and binned.size >= BLOCK
        binned = binned.packed if in_blocks else binned
        spec = NumbersSpec(binned.kind, places, in_blocks)
        args, dtypes = binned.template(queue)
        args, places_of = [*args, *numbers], _places(spec)
        tables = [args[n] for n in places_of.tables]
        executable = _executable(queue.context, queue, spec)
        scalars = [kind(args[n]) for n, kind in places_of.numbers]
        is_searched = any(axis.is_searched for axis in binned.axes)
        return cls(queue, executable, tables, dtypes, scalars, in_blocks, is_searched)

    def of_axis(self, axis: Axis, *, falling: bool) -> NumbersCall:
        """Return the call of similar data by one other axis of edges of the same kind."""
        axis, in_blocks = numbered_axis(axis), self._in_blocks
        axis = axis.packed if in_blocks else axis
        number, args = len(self.tables), [*arguments_of(self.queue, axis, on_device=True), int(falling)]
        scalars = [type(before)(value) for before, value in zip(self._scalars, args[number:], strict=True)]
        tables = args[:number]
        return NumbersCall(self.queue, self.executable, tables, self._dtypes, scalars, in_blocks, axis.is_searched)

    def is_provisional(self, size: int) -> bool:
        """Whether its table is small, and a large one pays off: for so many elements, or since it had many calls."""
        return self._is_searched and (self._calls >= MANY or not are_few_to_search(size, self.queue))

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of its axes."""
        return sum(array.nbytes for array in self.tables)

    def __call__(self, data: Sequence[Array], size: int, out: Any = None) -> Any:
        """Return the bin number of each element of other data, of so many, in `out` if there is one."""
        on_device = is_device_array(data[0])
        self._calls += 1
        if not size:
            return empty(self.queue, (0,), self._result, on_device) if out is None else out
        arrays = [viewed(array, dtype) for array, dtype in zip(data, self._dtypes, strict=True)]
        if on_device or shares_memory(self.queue.device) or size <= _UPLOADED:
            return self._run(arrays, size, New((size,)) if out is None else out, on_device)
        # A GPU may lack the memory for all elements of the host.
        out = empty(self.queue, (size,), self._result, False)
        for begin in range(0, size, _UPLOADED):
            part = slice(begin, min(size, begin + _UPLOADED))
            number = part.stop - begin
            out[part] = self._run([array[part] for array in arrays], number, New((number,)), False)
        return out

    @property
    def _result(self) -> np.dtype:
        """The dtype of the numbers."""
        (dtype,) = (slot.new[1] for slot in self.executable.prepared.arrays if slot.new is not None)
        return dtype

    def _run(self, arrays: Sequence[Any], size: int, result: Any, on_device: bool) -> Any:
        last, scalars = self._last
        if last != size:
            scalars = *self._scalars, *sizes(size)
            self._last = size, scalars
        return self.executable.run(self.queue, [*self.tables, *arrays, result], scalars, on_device).results[0]


class NumbersSpec(NamedTuple):
    """The parameters that the C of the kernel depends on.

    Attributes
    ----------
    kind : BinnedKind
        How bins are found, not in blocks.
    places : bool
        Whether bins are stored, rather than numbers as of `numpy.digitize`.
    in_blocks : bool
        Whether the bins of a block of elements are found at once, see `clhist.axes.block_search`.
    """

    kind: BinnedKind
    places: bool = False
    in_blocks: bool = False

    @property
    def declarations(self) -> list[str]:
        """Arguments: those of `kind`, for numbers also whether edges fall."""
        return [*", ".join(self.kind.arguments()).split(", "), *([] if self.places else ["int falling"])]

    @property
    def tables(self) -> list[str]:
        """Those of the arrays of axes; the others are the caller's."""
        return [text for text in self.declarations if "*" in text and not _is_data(text)]

    @property
    def arrays(self) -> list[str]:
        """Those of all arrays, tables first."""
        return [*self.tables, *filter(_is_data, self.declarations)]

    @property
    def numbers(self) -> list[str]:
        """Those of the numbers."""
        return [text for text in self.declarations if "*" not in text]

    def code(self) -> str:
        """Return C that makes `result[i]` the number of element `i`, or of each element of block `i`."""
        stored = "result[i] = bin;" if self.places else "result[i] = falling ? size0 - 1 - bin : bin;"
        if self.in_blocks:
            # The last block overlaps the one before it, which another work-item may have.
            return self.kind.block([f"if (e >= repeated) {stored}"])
        if self.places or len(self.kind.axes) == 1:
            return f"{self.kind.code()}\n{stored}"
        steps = [
            f"number = number * size{n} + {axis.call(self.kind.element(n), n)};"
            for n, axis in enumerate(self.kind.axes)
        ]
        return "\n".join(["long number = 0;", *steps, "result[i] = number;"])


class _Places(NamedTuple):
    """The positions of tables among the declarations of a spec, and of numbers, with the type of each."""

    tables: tuple[int, ...]
    numbers: tuple[tuple[int, type[np.generic]], ...]


@lru_cache(maxsize=256)
def _places(spec: NumbersSpec) -> _Places:
    declared = list(enumerate(spec.declarations))
    return _Places(
        tuple(n for n, text in declared if text in spec.tables),
        tuple((n, _dtype_of(text).type) for n, text in declared if text in spec.numbers),
    )


@stored_source
def render_numbers(spec: NumbersSpec, *, in_shares: bool) -> str:
    """Return the OpenCL C program; `in_shares`: whether a work-item takes elements that follow each other."""
    result = "int *result" if spec.places else "long *result"
    parameters, pointers = with_arrays(", ".join([*spec.arrays, result, *spec.numbers, "long count"]))
    return render(
        "binned/numbers.mako",
        functions=functions_of(spec.kind.axes, in_blocks=spec.in_blocks),
        declared=", ".join(parameters),
        pointers=" ".join(pointers),
        in_shares=in_shares,
        block=BLOCK if spec.in_blocks else 1,
        alone=ALONE if in_shares else "",
        body=spec.code(),
    )


@kept_by_context
def _executable(context: cl.Context, queue: cl.CommandQueue, spec: NumbersSpec) -> Executable:
    is_cpu = device_kind(queue.device) == "cpu"
    dtype = np.dtype(np.int32 if spec.places else np.int64)
    slots = [ArraySlot(_name(text), True, False) for text in spec.arrays]
    slots.append(ArraySlot("result", False, True, ((1,), dtype)))
    lanes = 1 if is_cpu else min(_LANES, queue.device.max_work_group_size)
    items = queue.device.max_compute_units * (_CPU_SHARES if is_cpu else _RESIDENT // lanes * lanes)
    scalars = (*map(_name, spec.numbers), "count")
    source = render_numbers(spec, in_shares=is_cpu)
    return single_kernel(queue, "numbers", source, tuple(slots), scalars, (items, lanes), "numbers of bins")


def _name(declaration: str) -> str:
    return declaration.rpartition(" ")[2].lstrip("*")


def _is_data(declaration: str) -> bool:
    """Whether it is of an array of the caller: the mask, or data."""
    return "*" in declaration and (
        _name(declaration) == "where" or re.fullmatch(r"x\d+", _name(declaration)) is not None
    )


def _dtype_of(number: str) -> np.dtype:
    """Return the dtype of a declared number."""
    dtype = dtype_of(number.rpartition(" ")[0])
    assert dtype is not None
    return dtype
