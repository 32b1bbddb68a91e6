"""Bin numbers of elements as in `numpy.digitize`: 0 below all edges, the number of edges above all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.elements import bits_of, has_no_type, key_of_bits
from clhist._core.keys import bits_dtype, key_dtype, key_range
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.operands import in_place
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.call_template import CallTemplate, Sizes, origin_for
from clhist._core.runtime.engine import Engine
from clhist.axes.axis import Axis, axis_of, searched_axis
from clhist.axes.block_search import KEYED
from clhist.axes.edges import EdgesKind
from clhist.axes.thresholds import Thresholds, first_keys
from clhist.binned.sweep import Binned, BinnedKind, filled
from clhist.operators.c_types import c_name, literal


def steps_axis(edges: np.ndarray, dtype: np.dtype, *, right: bool, fp64: bool, searched: bool = False) -> Axis | None:
    """Return the axis of the bins between ascending edges; None if no number of `dtype` reaches an edge.

    With `right`, a bin contains its upper edge rather than its lower one. `searched` is of `numpy_axis`.
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
    return (searched_axis(bins, fp64=fp64) if searched else None) or axis_of(bins, fp64=fp64)


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
    return NumbersCall.of(binned, num_edges, queue, falling=falling, out=out)(binned.arrays, binned.size, out)


class NumbersCall(NamedTuple):
    """A call of the kernel that stores bin numbers, for arrays with the same signature.

    `searches` tells whether bins of an axis are searched without a table, see `are_searched`.
    """

    template: CallTemplate
    dtypes: tuple[np.dtype | None, ...]
    searches: bool = False

    @classmethod
    def of(
        cls, binned: Binned, num_edges: Sequence[int], queue: cl.CommandQueue, *, falling: bool, out: Any = None
    ) -> NumbersCall:
        """Return the call of data with its axes; the parameters are those of `bin_numbers`."""
        args, dtypes = binned.template(queue)
        kind, call = binned.kind, Call(1, binned.size, queue=queue)

        def engine() -> Engine:
            return _numbers_kernel(queue.context, kind)

        # Calls on axes of one kind share plans; an array of the caller may be aligned differently.
        origin = origin_for(queue, [*binned.arrays, out], ("numbers", kind), engine)
        template = CallTemplate(
            engine() if origin is None else origin.engine, [*args, *num_edges, int(falling), None], call, origin
        )
        return cls(template, tuple(dtypes), any(axis.is_searched for axis in binned.axes))

    @property
    def is_provisional(self) -> bool:
        """Whether its bins are searched, and it had so many calls that a table pays off."""
        return self.searches and self.template.has_many_calls

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of its axes."""
        return self.template.nbytes

    def __call__(self, data: Sequence[Array], size: int, out: Any = None) -> Any:
        """Return the bin number of each element of other data of so many elements, in `out` if there is one."""
        template = self.template
        if out is None:
            out = empty(template.call.queue, (size,), np.dtype(np.int64), is_device_array(data[0]))
        if size:
            arrays = [*filled([None] * len(data), self.dtypes, data), out]
            template.engine.run(arrays, template.call, template, Sizes(size, 1))
        return out


def place_in_bins(binned: Binned, queue: cl.CommandQueue) -> Array:
    """Return the bin of each element on the device, as int32; -1 for an element without a bin, or masked."""
    places = empty(queue, (binned.size,), np.dtype(np.int32), True)
    kernel = _places_kernel(queue.context, binned.kind)
    arguments = [
        in_place(argument, queue) if isinstance(argument, np.ndarray) else argument
        for argument in binned.arguments(queue)
    ]
    kernel(*arguments, places, size=binned.size, num_bins=1, queue=queue)
    return places


@kept_by_context
def _places_kernel(context: cl.Context, kind: BinnedKind) -> Engine:
    """Return the kernel of `place_in_bins`: it stores the bin in `places` and emits nothing (bin -1)."""
    code = f"{kind.code()} places[i] = bin; EMIT(-1, 1);"
    return kind.engine(context, operators.count(np.int32), code, "int *places")


@kept_by_context
def _numbers_kernel(context: cl.Context, kind: BinnedKind) -> Engine:
    """Return the kernel of `bin_numbers`: it stores the number in `numbers` and emits nothing (bin -1)."""
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
    arguments = [*(f"int edges{n}" for n in range(len(kind.axes))), "int falling", "long *numbers"]
    code = "\n".join(["long number = 0;", *steps, "numbers[i] = falling ? edges0 - number : number;", "EMIT(-1, 1);"])
    return kind.engine(context, operators.count(np.int32), code, *arguments)
