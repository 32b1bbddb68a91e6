"""`numpy.digitize` on a device."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.elements import kernel_dtype
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import has_fp64
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.signature import Remembered, call_templates, signature_of, signature_of_data
from clhist.axes.axis import Axis
from clhist.binned.counts import flat
from clhist.binned.device_inputs import most_cells, queue_for
from clhist.binned.host import numpy_digitize
from clhist.binned.numbers import NumbersCall, steps_axis
from clhist.binned.sweep import Binned, size_class


def repeated_numbers(
    x: Array, edges: np.ndarray, right: bool, queue: cl.CommandQueue | None
) -> tuple[Array | None, Hashable]:
    """Return the bin numbers of a device array if an earlier call has the signature, or None; and the signature."""
    signature = signature_of_data((x,), queue, "digitize", edges, right, size_class(x.size))
    call: NumbersCall | None = call_templates.get(signature)
    return None if call is None or call.is_provisional(x.size) else _numbers(call, x), signature


def numbers_by_edges(
    x: Array, edges: np.ndarray, right: bool, queue: cl.CommandQueue | None, signature: Any = None
) -> Array:
    """Return the bin number of each element; the arguments are the validated ones of `clhist.digitize`.

    `signature` is that of `repeated_numbers`, if that was called.
    """
    edges = np.asarray(edges)
    if signature is None:
        signature = signature_of_data((x,), queue, "digitize", edges, right, size_class(x.size))
    call: NumbersCall | None = call_templates.get(signature)
    if call is None or call.is_provisional(x.size):
        queue = queue_for(queue, [("x", x)])
        # Calls on such arrays that had other edges may have the same kind of axis.
        any_edges = signature and (signature[0], ("digitize", "any edges", *signature[1][3:]), signature[2])
        most = most_cells(x.size, queue, call_templates.get(any_edges)) if call is None else 0
        call_templates.put(any_edges, True)
        falling = len(edges) > 1 and bool(edges[0] > edges[-1])
        axis = None
        if len(edges):
            # Kernels search ascending edges; numbers of descending ones are counted from the other end.
            rising, fp64 = edges[::-1] if falling else edges, has_fp64(queue.device)
            if most:
                axis = steps_axis(rising, kernel_dtype(x.dtype), right=right, fp64=fp64, most=most)
            else:
                axis = _axis(rising, kernel_dtype(x.dtype), right, fp64)
        if axis is None:  # no edges, or every integer is below them
            number = len(edges) if falling else 0
            whole = np.full(x.shape, number, np.intp)
            return to_device(queue, whole) if is_device_array(x) else whole[()]
        of_kind = any_edges and (any_edges, axis.kind)
        earlier: NumbersCall | None = call_templates.get(of_kind)
        if earlier is not None:
            call = earlier.of_axis(axis, falling=falling)
        else:
            call = NumbersCall.of(Binned((axis,), (flat(x),), None, x.size), queue, falling=falling)
            call_templates.put(of_kind, call)
        call_templates.put(signature, call)
    return _numbers(call, x)


def numbers_by_host(x: Array, edges: np.ndarray, right: bool, queue: cl.CommandQueue | None) -> Array:
    """Return the bin numbers of a device array by NumPy.

    NaN edges have no order that kernels could search: NumPy's numbers follow from the steps of its own search.
    """
    queue = queue_for(queue, [("x", x)])
    return to_device(queue, np.asarray(numpy_digitize(fetched(x, queue), edges, right)))


def _numbers(call: NumbersCall, x: Array) -> Any:
    """Return the bin numbers by a call, in the shape of the data."""
    numbers: Any = call([flat(x)], x.size)
    if x.ndim != 1:
        numbers = numbers.reshape(x.shape)
    return numbers if is_device_array(x) else numbers[()]  # a scalar of NumPy for a scalar


_axes: Remembered[tuple[Axis | None]] = Remembered(64)  # as many as have tables on the device


def _axis(edges: np.ndarray, dtype: np.dtype, right: bool, fp64: bool) -> Axis | None:
    """Return the axis of ascending edges; that of an earlier call has its tables on the device."""
    key = signature_of(edges, dtype.str, right, fp64)
    stored = _axes.get(key)
    if stored is None:
        stored = (steps_axis(edges, dtype, right=right, fp64=fp64),)
        _axes.put(key, stored)
    return stored[0]
