"""The validated arguments of `clhist.reduce_by_index`: pairs of indices and values, with `dest`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from clhist._core.opencl.arrays import (
    Array,
    check_unmasked,
    common_kind,
    is_device_array,
    leave_out,
    mask_of,
    mask_of_values,
)
from clhist._core.runtime.reading import as_array, as_indices, numbers_as_array
from clhist._core.runtime.result_arrays import target
from clhist._core.runtime.values import checked_values, ones, row_shape
from clhist.operators.c_types import integer, same_value, scalar, supported_dtype
from clhist.operators.halves import number_of
from clhist.operators.host import combined, of_bins
from clhist.operators.names import COUNT, PAIRS, operator_of_call, operator_on_bins, operator_on_values
from clhist.operators.operator import Operator

_NAMED = (np.ufunc, str)  # hashable arguments, for the cache of `_named`


@dataclass
class Pairs:
    """The validated arrays of a call.

    Attributes
    ----------
    dests : tuple of array
        The initial contents of the bins, one for each field; empty if bins start as the identity element.
    fields : bool
        Whether the caller passed `dest` as a tuple of fields.
    shape : tuple of int
        Of the result.
    batched : bool
        Whether its first dimension is that of histograms.
    operator : Operator
        How values are combined.
    indices : array
        The bin of each pair.
    values : tuple of array, or scalar
        The value of each pair, one array for each field; a scalar for all pairs.
    with_position : bool
        Whether the operator takes (value, index) pairs and the position of an element is its index.
    on_device : bool
        Whether the arrays are PyOpenCL's.
    is_plain : bool
        Whether `plain_pairs` made them.
    """

    dests: tuple[Array, ...]
    fields: bool
    shape: tuple[int, ...]
    batched: bool
    operator: Operator
    indices: Array
    values: tuple[Array, ...] | Any
    with_position: bool = False
    on_device: bool = False
    is_plain: bool = False

    @property
    def dest(self) -> Any:
        """`dests` in the form of the argument: a tuple of fields, an array, or None."""
        return self.dests if self.fields else self.dests[0] if self.dests else None

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of the bins that one index addresses: () for scalars, (D,) for rows."""
        return row_shape(self.shape, self.batched)

    @property
    def arrays(self) -> list[Array]:
        """All arrays."""
        return [*self.dests, self.indices, *(self.values if isinstance(self.values, tuple) else ())]

    def on_host(self, out: Any) -> Any:
        """Compute ``dest[i] = op(dest[i], v)`` for each pair by NumPy, with the results of the kernels.

        Raises
        ------
        TypeError, ValueError
            As kernels do, if `dest`, `out` or the scalar is wrong.
        """
        # Plain pairs were checked when they were made, and need no conversion.
        operator, values = self.operator, self.values
        if self.is_plain and out is None:
            return of_bins(operator, self.dests[0] if self.dests else None, self.indices, values[0], self.shape[0])
        checked = target("", operator, self.shape, self.dest, out)
        if not isinstance(values, tuple):
            dtype = number_of(operator.dtype)
            values = scalar(_Scalar("values", dtype), values)
        dest = None if checked.dest is None else checked.dest[0]
        result = combined(operator, self.shape, self.batched, dest, self.indices, values, self.with_position)
        if checked.out is None:
            return result
        checked.out[0][...] = result
        return out

    def by_parts(self) -> Pairs:
        """Return complex sums as sums of vectors of two: real and imaginary part.

        Raises
        ------
        TypeError
            If values on a device have another dtype.
        """
        # A scalar has no parts to view, so it becomes an array.
        dtype, values = self.operator.dtype, self.values
        if not isinstance(values, tuple):
            repeated = np.full(self.indices.shape + self.row, same_value(values, dtype, "values"), dtype)
            values = (_on_device(repeated, self.indices.queue) if self.on_device else repeated,)
        elif self.on_device and values[0].dtype != dtype:
            raise TypeError(f"values: expected {dtype} of reproducible sums on a device, got {values[0].dtype}")
        else:
            values = (values[0].astype(dtype, copy=False) if not self.on_device else values[0],)
        # Real and imaginary parts add up independently, so each is a sum of floats.
        half = Operator(f"f{dtype.itemsize // 2}", "a + b", 0, "add")
        dests = tuple(map(as_parts, self.dests))
        return replace(self, dests=dests, shape=(*self.shape, 2), operator=half, values=tuple(map(as_parts, values)))


class _Scalar(NamedTuple):
    """Name and dtype of a call's scalar value, as `scalar` expects of an argument."""

    name: str
    dtype: np.dtype


def _on_device(array: np.ndarray, queue: Any) -> Array:
    from clhist._core.opencl.new_arrays import to_device  # imported here, since NumPy arrays do not need PyOpenCL

    return to_device(queue, array)


def as_parts(array: Array) -> Array:
    """Return a complex array with a last dimension of two, real and imaginary part; a view if it is contiguous."""
    half = np.dtype(f"f{array.dtype.itemsize // 2}")
    whole = array if array.flags.c_contiguous else array.copy()
    return whole.reshape(-1).view(half).reshape(*array.shape, 2)


def plain_pairs(dest: Any, op: Any, indices: Any, values: Any, out: Any) -> Pairs | None:
    """Return the pairs of NumPy arrays of one dimension and plain dtypes; None if `checked_pairs` must decide."""
    if not (type(indices) is type(values) is np.ndarray and indices.ndim == 1 and indices.shape == values.shape):
        return None
    # Only arrays that certainly are right: any doubt goes to `checked_pairs`, which raises the errors.
    dtype = values.dtype
    is_number = dtype.kind in "biufc" and dtype.isnative and dtype.char not in "gG"  # g, G: extended precision
    if not is_number or indices.dtype.kind not in "iu" or not isinstance(op, _NAMED) or op == COUNT:
        return None
    dests: tuple[Array, ...] = ()
    # By exact type: a bool is an int, too, and must be refused.
    if type(dest) is int and dest > 0:
        number, operator = dest, _named(_without_dtype, op, dtype)
    elif type(dest) is np.ndarray and dest.ndim == 1 and dest.size and dest.dtype == dtype:
        dests, number, operator = (dest,), dest.size, _named(operator_on_bins, op, dtype)
    else:
        return None
    # NumPy widens sums of narrow integers; the values are then converted while they are combined.
    if operator.dtype != dtype and not _widens(operator, dtype, out):
        return None
    return Pairs(dests, False, (number,), False, operator, indices, (values,), is_plain=True)


def _widens(operator: Operator, dtype: np.dtype, out: Any) -> bool:
    """Return whether values may be converted to the operator's dtype here; with `out` its dtype decides."""
    return out is None and not operator.positional and bool(np.can_cast(dtype, operator.dtype, "same_kind"))


def checked_pairs(
    dest: Any, op: Any, indices: Any, values: Any, batched: bool, offsets: Any, dtype: Any = None, out: Any = None
) -> Pairs:
    """Validate the arguments of `reduce_by_index`, and leave masked elements out."""
    # Masks are read before the conversions to plain arrays, which drop them.
    of_indices, of_values = mask_of(indices), mask_of_values(values)
    indices, given_shape = as_indices(indices), _shape_of(dest)
    fields = isinstance(dest, tuple) and given_shape is None
    dests: tuple[Array, ...] = ()
    # With arrays in `dest`, their dtype decides on the operator; without, that of the values does.
    if given_shape is None:
        if dtype is not None:
            raise TypeError(f"dtype: expected none, since dest is an array and has its own, got {dtype!r}")
        for array in dest if fields else (dest,):
            _check_dest(array)
        dests = (
            tuple(numbers_as_array("dest", array) for array in dest) if fields else (numbers_as_array("dest", dest),)
        )
        shape = _dest_shape([array.shape for array in dests], batched)
        operator = _operator_of(op, dests, fields)
    else:
        shape = _dest_shape([given_shape], batched)
        operator = _operator_of_values(op, values, dtype, out)
    if batched:
        _check_batched(shape, indices, offsets)
    # Everything about the bins is checked now; values are checked against them.
    pairs = Pairs(dests, fields, shape, batched, operator, indices, values)
    if isinstance(op, str) and op == COUNT:
        values = ones(values, indices.shape + pairs.row)
    pairs.values, pairs.with_position = checked_values(values, operator, indices.shape, pairs.row)
    arrays = pairs.values if isinstance(pairs.values, tuple) else ()
    named = [("dest", array) for array in dests] + [("indices", indices)] + [("values", array) for array in arrays]
    pairs.on_device = common_kind(named)
    # Shapes were compared with the masked elements in place, which are left out now.
    if of_indices is not None or of_values is not None:
        pairs.indices, pairs.values = leave_out(indices, pairs.values, of_indices, of_values)
    return pairs


def _check_dest(dest: Any) -> None:
    """Raise TypeError or ValueError unless `dest` is an array without masked elements."""
    check_unmasked("dest", dest)
    if (
        not isinstance(dest, np.ndarray | np.generic | list | tuple)
        and not is_device_array(dest)
        and np.ndim(dest) == 0
    ):
        hint = "; the order is dest, op, indices, values" if isinstance(dest, np.ufunc | str | Operator) else ""
        raise TypeError(f"dest: expected an array, a shape or a number of bins, got {dest!r}{hint}")


@lru_cache(maxsize=256)
def _named(make: Callable[..., Operator], op: np.ufunc | str, dtype: np.dtype) -> Operator:
    return make(op, dtype)


def _operator_of(op: Operator | np.ufunc | str, dests: tuple[Array, ...], fields: bool) -> Operator:
    if not fields:
        supported_dtype(dests[0].dtype, "dest")
        hashable = isinstance(op, _NAMED)
        return _named(operator_on_bins, op, dests[0].dtype) if hashable else operator_on_bins(op, dests[0].dtype)
    if not isinstance(op, Operator):
        raise TypeError(f"op: expected a clhist.Operator on a structured dtype, since dest is a tuple, got {op!r}")
    return op


def _operator_of_values(op: Operator | np.ufunc | str, values: Any, dtype: Any, out: Any) -> Operator:
    """Return the operator of a call without `dest`, by the dtype of the values.

    NumPy widens the sum of narrow integers. An `out` of the values' own dtype prevents that.
    """
    if isinstance(op, Operator):
        return operator_of_call(op, op.dtype, dtype)
    # The tuple is (value, index), as of argmax, so each array has a field of the operator.
    if isinstance(op, str) and op in PAIRS and isinstance(values, tuple) and len(values) == 2:
        values_dtype, index = (numbers_as_array("values", array).dtype for array in values)
        return operator_of_call(op, values_dtype, dtype, index)
    values_dtype = supported_dtype(numbers_as_array("values", values).dtype, "values")
    if dtype is None and isinstance(op, np.ufunc | str):
        # The count has the dtype of integers, not that of the values that it counts.
        if getattr(out, "dtype", None) == values_dtype and op != COUNT:
            return _named(operator_on_values, op, values_dtype)
        return _named(_without_dtype, op, values_dtype)
    return operator_of_call(op, values_dtype, dtype)


def _without_dtype(op: np.ufunc | str, values: np.dtype) -> Operator:
    return operator_of_call(op, values, None)


def is_number_or_shape(dest: Any) -> bool:
    """Return whether `dest` is a number of bins or a shape rather than an array; raise if that is not positive."""
    return _shape_of(dest) is not None


def shape_of(dest: Any) -> tuple[int, ...]:
    """Return the shape of the result from `dest`: a number of bins, a shape, an array, or a tuple of fields."""
    first = dest[0] if isinstance(dest, tuple) and dest and _shape_of(dest) is None else dest
    if (shape := _shape_of(first)) is None:
        _check_dest(first)
        shape = as_array("dest", first).shape
    return shape


def _shape_of(dest: Any) -> tuple[int, ...] | None:
    """Return the shape if `dest` is a number of bins or a shape, None if it is an array."""
    if isinstance(dest, int | np.integer) and not isinstance(dest, bool | np.bool_):
        return (integer("dest", dest, 1),)
    if isinstance(dest, tuple) and dest and all(isinstance(n, int | np.integer) for n in dest):
        return tuple(integer("dest", n, 1) for n in dest)
    return None


def _dest_shape(shapes: Sequence[tuple[int, ...]], batched: bool) -> tuple[int, ...]:
    """Return the common shape of the arrays of `dest`; raise ValueError if they differ or have no bins."""
    if not shapes:
        raise ValueError("dest: expected at least one array, got an empty tuple")
    shape = shapes[0]
    for other in shapes[1:]:
        if other != shape:
            raise ValueError(f"dest: expected arrays of one shape, got {shape} and {other}")
    # A batch has a dimension of histograms before those of bins.
    least = 2 if batched else 1
    if len(shape) < least or prod(shape) == 0:
        expected = "two dimensions or more, of histograms and bins," if batched else "one dimension or more"
        raise ValueError(f"dest: expected {expected} and at least one bin, got shape {shape}")
    return shape


def _check_batched(shape: tuple[int, ...], indices: Array, offsets: Any) -> None:
    """Raise ValueError unless `indices` or `offsets` have a row for each histogram of `dest`, of this `shape`."""
    if offsets is None:
        if indices.ndim != 2 or indices.shape[0] != shape[0]:
            raise ValueError(f"indices: expected shape ({shape[0]}, n), a row for each of dest, got {indices.shape}")
        return
    if indices.ndim != 1:
        raise ValueError(f"indices: expected one dimension, since offsets are given, got shape {indices.shape}")
    rows = int(np.size(offsets)) if not is_device_array(offsets) else offsets.size
    if rows != shape[0] + 1:
        raise ValueError(f"offsets: expected {shape[0] + 1} entries, one more than rows of dest, got {rows}")
