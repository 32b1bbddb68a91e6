"""Bin numbers of elements as in `numpy.digitize`: 0 below all edges, the number of edges above all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.elements import bits_of, has_no_type, key_of_bits
from clhist._core.kernels.kernel_code import with_arrays
from clhist._core.kernels.render import render
from clhist._core.keys import bits_dtype, key_dtype, key_range
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import empty, shares_memory
from clhist._core.opencl.operands import in_place
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import ArraySlot, New
from clhist._core.runtime.single_kernel import single_kernel, sizes
from clhist.axes.axis import Axis, axis_of
from clhist.axes.block_search import KEYED
from clhist.axes.edges import EdgesKind
from clhist.axes.thresholds import Thresholds, first_keys
from clhist.binned.sweep import Binned, BinnedKind
from clhist.operators.c_types import c_name, dtype_of, literal

# Work-items of a GPU's compute unit, and of a work-group, at most: as many as H200 and MI300 run at once, so that each
# loops over elements. Shares of a CPU's compute unit even out what else runs there.
_RESIDENT, _LANES, _CPU_SHARES = 2048, 256, 8
_UPLOADED = 2**24  # elements that are uploaded at once


def steps_axis(edges: np.ndarray, dtype: np.dtype, *, right: bool, fp64: bool) -> Axis | None:
    """Return the axis of the bins between ascending edges; None if no number of `dtype` reaches an edge.

    With `right`, a bin contains its upper edge rather than its lower one.
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
    return axis_of(bins, fp64=fp64)


def _axis_without_bins(dtype: np.dtype, start: int, num_bins: int, fp64: bool) -> Axis:
    """Return an axis without keys between its edges: a key is below all edges (< `start`) or above all."""
    keys = np.array([start, start], key_dtype(dtype))
    kind = EdgesKind(dtype, KEYED, has_no_type(dtype, fp64))
    # The arguments of a KEYED axis: keys, cells, bins, shift, start, last. A key equal to `start` is above all, too.
    cells = np.full(2, num_bins, np.int32)
    return Axis(kind, (keys, cells), (num_bins + 1, 0, keys[0], keys.dtype.type(np.iinfo(keys.dtype).min)), num_bins)


def bin_numbers(
    binned: Binned, num_edges: Sequence[int], queue: cl.CommandQueue, *, falling: bool = False, out: Any = None
) -> Any:
    """Return the bin number of each element as `numpy.intp`; of several axes raveled as by `numpy.ravel_multi_index`.

    Parameters
    ----------
    binned : Binned
        Data and axes, without a mask.
    num_edges : sequence of int
        For each axis, the number of an element above all bins, or NaN. Numbers run from 0 to this one.
    queue : pyopencl.CommandQueue
        The queue that computes.
    falling : bool
        Whether the edges were descending, so that numbers count from the other end.
    out : array of int64, optional
        Receives the numbers.
    """
    return NumbersCall.of(binned, num_edges, queue, falling=falling)(binned.arrays, out)


class NumbersCall(NamedTuple):
    """A call of the kernel that stores bin numbers, for arrays with the same signature.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    executable : Executable
        Of the kind of axes.
    tables : tuple of array
        Those of axes, unless the executable has them.
    dtypes : tuple of numpy.dtype or None
        What the caller's arrays are viewed as; None as they are.
    scalars : tuple of NumPy scalar
        The number of elements, N, is the last. Repeats pass the same tuple, which spares kernels its comparison.
    """

    queue: cl.CommandQueue
    executable: Executable
    tables: tuple[Any, ...]
    dtypes: tuple[np.dtype | None, ...]
    scalars: tuple[Any, ...]

    @classmethod
    def of(cls, binned: Binned, num_edges: Sequence[int], queue: cl.CommandQueue, *, falling: bool) -> NumbersCall:
        """Return the call of data with its axes; the parameters are those of `bin_numbers`."""
        return cls._of(NumbersSpec(binned.kind), binned, queue, [*num_edges, int(falling)])

    @classmethod
    def of_places(cls, binned: Binned, queue: cl.CommandQueue) -> NumbersCall:
        """Return the call that stores bins as int32, and -1 for an element without a bin, or masked."""
        return cls._of(NumbersSpec(binned.kind, places=True), binned, queue, [])

    @classmethod
    def _of(cls, spec: NumbersSpec, binned: Binned, queue: cl.CommandQueue, numbers: Sequence[int]) -> NumbersCall:
        args, dtypes = binned.template(queue)
        values = dict(zip(spec.declarations, [*args, *numbers], strict=True))
        tables = {text: values[text] for text in spec.tables}
        if cuda_device_of(queue) is None:
            executable = _executable(queue.context, queue, spec)
        else:  # a launch on CUDA is replayed with the caller's arrays alone
            executable, tables = _made(queue, spec, tables), {}
        scalars = [_dtype_of(text).type(values[text]) for text in spec.numbers]
        views = [
            None if dtype is None or dtype == array.dtype or array.dtype.kind == "b" else dtype
            for array, dtype in zip(binned.arrays, dtypes, strict=True)
        ]
        return cls(queue, executable, tuple(tables.values()), tuple(views), (*scalars, *sizes(binned.size)))

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of its axes."""
        return sum(array.nbytes for array in self.tables)

    def of_size(self, size: int) -> NumbersCall:
        """Return the call for `size` elements."""
        return self._replace(scalars=(*self.scalars[:-1], *sizes(size)))

    def __call__(self, data: Sequence[Array], out: Any = None) -> Any:
        """Return the bin number of each element of other data, in `out` if there is one."""
        size, on_device = int(self.scalars[-1]), is_device_array(data[0])
        if not size:
            return empty(self.queue, (0,), _result_of(self.executable), on_device) if out is None else out
        arrays = [array if dtype is None else array.view(dtype) for array, dtype in zip(data, self.dtypes, strict=True)]
        if on_device or shares_memory(self.queue.device) or size <= _UPLOADED:
            return self._run(arrays, New((size,)) if out is None else out, on_device)
        # A GPU may lack the memory for all elements of the host.
        out = empty(self.queue, (size,), _result_of(self.executable), False)
        for begin in range(0, size, _UPLOADED):
            part = slice(begin, min(size, begin + _UPLOADED))
            out[part] = self.of_size(part.stop - begin)([array[part] for array in data])
        return out

    def _run(self, arrays: Sequence[Any], result: Any, on_device: bool) -> Any:
        return self.executable.run(self.queue, [*self.tables, *arrays, result], self.scalars, on_device).results[0]


def place_in_bins(binned: Binned, queue: cl.CommandQueue) -> Array:
    """Return the bin of each element on the device, as int32; -1 for an element without a bin, or masked."""
    call = NumbersCall.of_places(binned, queue)
    tables = [in_place(table, queue) if isinstance(table, np.ndarray) else table for table in call.tables]
    call = call._replace(tables=tuple(tables))
    return call([in_place(array, queue) if isinstance(array, np.ndarray) else array for array in binned.arrays])


def _result_of(executable: Executable) -> np.dtype:
    """Return the dtype of the numbers."""
    (dtype,) = (slot.new[1] for slot in executable.prepared.arrays if slot.new is not None)
    return dtype


class NumbersSpec(NamedTuple):
    """What the C of the kernel depends on.

    Attributes
    ----------
    kind : BinnedKind
        How bins are found, not in blocks.
    places : bool
        Whether bins are stored, rather than numbers as of `numpy.digitize`.
    """

    kind: BinnedKind
    places: bool = False

    @property
    def declarations(self) -> list[str]:
        """Arguments: those of `kind`, for numbers also that above all edges of each axis, and whether edges fall."""
        of_numbers = [] if self.places else [*(f"int edges{n}" for n in range(len(self.kind.axes))), "int falling"]
        return [*", ".join(self.kind.arguments()).split(", "), *of_numbers]

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
        """Return C that makes `result[i]` the number of element `i`."""
        kind = self.kind
        if self.places:
            return f"{kind.code()}\nresult[i] = bin;"
        steps = []
        for n, axis in enumerate(kind.axes):
            assert isinstance(axis, EdgesKind)
            key = key_dtype(axis.dtype)
            # No bin (k < 0) is below all edges, above all, or NaN, whose key is outside of the range.
            lowest = literal(key_range(axis.dtype)[0], key)
            steps.append(
                f"""{{
    const {c_name(bits_dtype(axis.dtype))} bits = {bits_of(kind.element(n), axis.data)};
    const {c_name(key)} key = {key_of_bits(axis.dtype)};
    const int k = {axis.call(kind.element(n), n)};
    number = number * (edges{n} + 1) + (k >= 0 ? k + 1 : key >= {lowest} && key < start{n} ? 0 : edges{n});
}}"""
            )
        return "\n".join(["long number = 0;", *steps, "result[i] = falling ? edges0 - number : number;"])


def render_numbers(spec: NumbersSpec, *, in_shares: bool) -> str:
    """Return the OpenCL C program; `in_shares`: whether a work-item takes elements that follow each other."""
    result = "int *result" if spec.places else "long *result"
    parameters, pointers = with_arrays(", ".join([*spec.arrays, result, *spec.numbers, "long count"]))
    return render(
        "binned/numbers.mako",
        functions=spec.kind.functions(),
        declared=", ".join(parameters),
        pointers=" ".join(pointers),
        in_shares=in_shares,
        body=spec.code(),
    )


@kept_by_context
def _executable(context: cl.Context, queue: cl.CommandQueue, spec: NumbersSpec) -> Executable:
    return _made(queue, spec, {})


def _made(queue: cl.CommandQueue, spec: NumbersSpec, tables: Mapping[str, Any]) -> Executable:
    """Return the kernel; no call passes the `tables`, which are its first arrays."""
    is_cpu = device_kind(queue.device) == "cpu"
    dtype = np.dtype(np.int32 if spec.places else np.int64)
    slots = [ArraySlot(_name(text), True, False) for text in spec.arrays]
    slots.append(ArraySlot("result", False, True, ((1,), dtype)))
    lanes = 1 if is_cpu else min(_LANES, queue.device.max_work_group_size)
    items = queue.device.max_compute_units * (_CPU_SHARES if is_cpu else _RESIDENT // lanes * lanes)
    scalars = (*map(_name, spec.numbers), "count")
    same = {_name(text): table for text, table in tables.items()}
    source = render_numbers(spec, in_shares=is_cpu)
    return single_kernel(queue, "numbers", source, tuple(slots), scalars, (items, lanes), "numbers of bins", same=same)


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
