"""`bincount`: NumPy's function on any OpenCL device."""

from __future__ import annotations

import operator as python_operator
from functools import cache
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from clhist._core.opencl.arrays import Array, common_kind, is_device_array, mask_of, without_masked
from clhist._core.runtime import small
from clhist._core.runtime.caller import at_caller
from clhist._core.runtime.labelled import any_host_tensor
from clhist._core.runtime.reading import (
    NUMBERED,
    as_array,
    check_width,
    into,
    missing_integers,
    numbers_as_array,
)
from clhist._core.runtime.small import MOST_BINS, TOO_BIG, counted_by_numpy

if TYPE_CHECKING:
    import pyopencl as cl
    from numpy.typing import NDArray

    from clhist.typing import DeviceArray, Devices, Values


_FLOAT64 = np.dtype(np.float64)
_SAMPLED = 64  # entries, whose largest is rarely below nine tenths of that of uniform data


@overload
def bincount(
    x: DeviceArray, weights: DeviceArray | None = ..., minlength: int = ..., *, queue: cl.CommandQueue | None = ...,
    out: Any = ..., reproducible: bool = ...,
) -> DeviceArray: ...  # fmt: skip


@overload
def bincount(
    x: Values, weights: None = ..., minlength: int = ..., *, queue: cl.CommandQueue | None = ...,
    out: Any = ..., reproducible: bool = ..., devices: Any = ...,
) -> NDArray[np.intp]: ...  # fmt: skip


@overload
def bincount(
    x: Values, weights: Values, minlength: int = ..., *, queue: cl.CommandQueue | None = ...,
    out: Any = ..., reproducible: bool = ..., devices: Any = ...,
) -> NDArray[np.float64]: ...  # fmt: skip


def bincount(
    x: Any,
    weights: Any = None,
    minlength: int = 0,
    *,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    reproducible: bool = False,
    devices: Devices | None = None,
) -> Any:
    """Count the occurrences of each value, or sum their weights, like `numpy.bincount`.

    Parameters
    ----------
    x : array of shape (N,) of non-negative integers
        NumPy or PyOpenCL array. Unlike NumPy's function, masked entries are skipped, here and in `weights`.
    weights : array of shape (N,), optional
        Any real dtype; summed in float64.
    minlength : int
        Minimum number of bins.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `x`, or the default one.
    out : array of shape (max(minlength, max(x) + 1),), optional
        Array for the result.
    reproducible : bool
        Whether sums of weights are bitwise the same in any order, as of `reduce_by_index`. Counts always are.
    devices : "all" or sequence of pyopencl.Device, optional
        Several devices that count parts of NumPy arrays at the same time; see `MultiAccumulator`.

    Returns
    -------
    array of shape (max(minlength, max(x) + 1),)
        Counts as `numpy.intp`, sums of weights as float64; of the kind of `x`.

    Raises
    ------
    TypeError, ValueError
        As NumPy's, of the same text: for negative entries, more dimensions than one, weights of another length, dtypes
        that do not convert safely. Also if `out` is wrong.

    Notes
    -----
    NumPy itself counts its arrays of fewer than 110,000 elements, or 160,000 if the device has two compute units
    (`clhist calibrate` measures how many), and sums their weights, unless a `queue` is given or sums are reproducible.
    With 100,000 bins it counts twice as many.

    The number of bins is guessed from a sample, and entries beyond them are noticed while counting: `x` is read once
    unless there are such, or the sums are `reproducible`. The number of bins is known only then; so unlike
    `reduce_by_index` this function waits for the device.

    Examples
    --------
    >>> clhist.bincount([0, 2, 2], minlength=4)
    array([1, 0, 2, 0])
    >>> clhist.bincount([0, 2, 2], weights=[0.5, 1.0, 2.0])
    array([0.5, 0. , 3. ])
    """
    arguments = x, weights
    if type(x) is not np.ndarray or not (weights is None or type(weights) is np.ndarray):
        try:
            arguments, (x, weights) = _as_arrays(x, weights)
        except ValueError:  # rows of different lengths
            return np.bincount(*arguments, minlength)
    if not _is_countable(x, weights, minlength):
        # NumPy raises its own errors for wrong arguments, and counts empty input without a kernel.
        counts = _by_numpy(arguments, x, minlength)
        if not reproducible or x is None or weights is None or not x.size:
            return into(out, counts)
        # NumPy accepted x, but its sums depend on the order of the weights: compute them again, reproducibly.
        x = x.astype(np.intp)
    if not is_device_array(x) and _is_for_numpy(x, weights, minlength, queue, reproducible):
        counts = counted_by_numpy(x, weights, minlength)
        return counts if out is None else into(out, counts)
    return _counting().counted(x, weights, python_operator.index(minlength), queue, out, reproducible)


@cache
def _counting() -> Any:
    """Return the module that counts on devices."""
    from clhist._core.runtime import counting

    return counting


def _by_numpy(arguments: tuple[Any, Any], x: Any, minlength: Any) -> np.ndarray:
    """Call numpy.bincount for its exceptions, for empty input, and for lists of floats, which it deprecates."""
    # NumPy would read tensors as lists of numbers.
    if any_host_tensor(arguments):
        arguments = x, None if arguments[1] is None else np.asarray(arguments[1])
    _check_numbers(arguments[0], x)
    # NumPy's error for an int beyond 64 bits does not name the argument.
    if isinstance(minlength, int) and not -(2**63) <= minlength < 2**63:
        raise ValueError(f"minlength: expected a number of bins, 0 to {MOST_BINS}, got {minlength}")
    return at_caller(np.bincount, _stand_in(arguments[0]), _stand_in(arguments[1]), minlength)


def _as_arrays(x: Any, weights: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Return both arguments unchanged, and both as arrays or None; both without elements masked in either."""
    arguments = x, weights
    (x, of_x), (weights, of_weights) = _with_mask("x", x), _with_mask("weights", weights)
    if weights is not None and x is not None:
        common_kind((("x", x), ("weights", weights)))
    if of_x is None and of_weights is None:
        return arguments, (x, weights)
    present = without_masked(x, weights, (of_x, of_weights))
    return present, present


def _with_mask(name: str, value: Any) -> tuple[Any, np.ndarray | None]:
    """Return `value` as an array, or None, and which of its elements are masked."""
    if value is None or type(value) is np.ndarray or is_device_array(value):
        return value, None
    return (numbers_as_array if name == "weights" else as_array)(name, value), mask_of(value)


def _is_for_numpy(
    x: np.ndarray, weights: Any, minlength: Any, queue: cl.CommandQueue | None, reproducible: bool
) -> bool:
    """Whether NumPy counts its array; older ones refuse uint64, and none has reproducible sums."""
    # NumPy before 2.2.4 refuses uint64, which does not convert safely to intp, whatever the values.
    is_refused = x.dtype.kind == "u" and x.itemsize >= np.dtype(np.intp).itemsize
    if queue is not None or is_refused or (reproducible and weights is not None):
        return False
    call = "bincount" if weights is None else "bincount, weights"
    if not small.pays_off(call, x.size):
        return True
    # The largest of a few entries is nearly the number of bins, unless the data are skewed.
    bins = int(x[:: x.size // _SAMPLED or 1].max())
    return not small.pays_off(call, x.size, max(bins, python_operator.index(minlength)))


def _check_numbers(original: Any, x: Any) -> None:
    """Raise TypeError for values that are no integers, and ValueError for numbers beyond NumPy's memory."""
    if x is None or is_device_array(x):
        return
    if message := missing_integers("x", original, x):
        raise TypeError(message.replace("fill them with -1", "fill them"))
    check_width("x", original, x, NUMBERED)
    if x.ndim == 0 and x.dtype.kind == "O":
        raise TypeError(f"x: expected an array of integers, got {type(x.item()).__name__}")
    if x.size and x.dtype.kind in "iuf" and x.itemsize == 8 and x.max() >= MOST_BINS:
        raise ValueError(TOO_BIG if x.min() >= 0 else "'list' argument must have no negative elements")


def _is_countable(x: Any, weights: Array | None, minlength: Any) -> bool:
    """Whether numpy.bincount would accept the arguments, and there are elements to count."""
    if x is None or x.ndim != 1 or x.dtype.kind not in "biu" or not (x.size or is_device_array(x)):
        return False
    if type(minlength) is not int:
        # A boolean is an index for Python: leave it to NumPy to accept or refuse it.
        if isinstance(minlength, bool | np.bool_):
            return False
        try:
            minlength = python_operator.index(minlength)
        except TypeError:
            return False
    if not 0 <= minlength <= MOST_BINS:
        return False
    if weights is None or weights.shape != x.shape:
        return weights is None
    return weights.dtype == _FLOAT64 or bool(np.can_cast(weights.dtype, _FLOAT64, "safe"))


def _stand_in(array: Any) -> Any:
    """Return a NumPy array of the same shape and dtype as a device array, without its memory; others unchanged."""
    return np.broadcast_to(np.zeros((), array.dtype), array.shape) if is_device_array(array) else array
