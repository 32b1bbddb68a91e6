"""Which calls on NumPy arrays are left to NumPy, SciPy or boost-histogram: the one rule, and the one table of sizes.

These libraries are done with few elements before a kernel has started. What they compute has to be what kernels
compute, but for the rounding of sums in no defined order; so no option that they lack may be given.
Note [The host computes few elements], docs/decisions/0016.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.cuda.imported import imported, is_instance
from clhist.errors import NoDeviceError

if TYPE_CHECKING:
    import pyopencl as cl

LEAST = {
    "bincount": 60_000,
    "reduce_by_index": 50_000,  # elements, or bins
    "1 dimension": 2**16,
    "2 dimensions": 2**13,
    "unique": 2**16,
    "distinct": 2**16,  # values alone, which NumPy sorts
    "factorize": 2**17,  # integers, which pandas hashes
    "group_by": 12_000,
    "ndimage": 60_000,  # sums and means, which SciPy computes
    "boost-histogram": 2**13,
}
"""From how many elements on kernels are faster, by call; `clhist calibrate` measures it for a device.

Those `_BY_UNITS` are what the host computes in the fixed time of a call on a device of many cores. They were measured
on two cores of an EPYC (Zen 2), with PoCL 3.0 and Intel's runtime, beside NumPy, SciPy and pandas; the others are
those of two cores.
"""

_BY_UNITS = frozenset({"bincount", "reduce_by_index", "distinct", "factorize", "group_by", "ndimage"})
_MOST = 2**19
# Elements that NumPy sorts in the time in which one core of a device numbers them: 2^19 on two cores (EPYC, Zen 2).
SORTED = 2**20
_ALWAYS_SMALL = 2**10
_MANY = 2**12  # integers, from which on a view of their halves costs less than it saves
_SMALL_AT_FIRST = 2**14  # while no device is in use: to look for one takes longer than the host does


def rate_name(call: str) -> str:
    """Return the name under which the profile of a device has the least size of a call."""
    return f"NumPy arrays, {call}, least"


_RATES = {call: rate_name(call) for call in LEAST}


@cache
def _devices() -> Any:
    """Return the module of devices, which imports PyOpenCL; calls of few elements do without."""
    from clhist._core.opencl import device

    return device


def is_in_use() -> bool:
    """Whether the default queue has been made, which takes some tenths of a second."""
    return imported("clhist._core.opencl.device", "_default") is not None


def default_queue() -> cl.CommandQueue:
    """Return the queue of calls without one."""
    return _devices().default_queue()


def own_rates(device: cl.Device) -> Mapping[str, float]:
    """Return the measured rates of a device."""
    rates: Mapping[str, float] = _devices().own_rates(device)
    return rates


def is_small(call: str, size: int, queue: cl.CommandQueue | None, **asked: Any) -> bool:
    """Whether a call on NumPy arrays is left to another library.

    Parameters
    ----------
    call : str
        One of `LEAST`.
    size : int
        Number of elements.
    queue : pyopencl.CommandQueue or None
        The caller's; with one, kernels compute the call.
    **asked
        Options that the other library lacks; kernels compute the call if one is neither None nor False.
    """
    for value in asked.values():
        if value is not None and value is not False:
            return False
    return queue is None and not pays_off(call, size)


def pays_off(call: str, size: int) -> bool:
    """Whether the default device computes a call on so many elements sooner than the other library."""
    least: float = LEAST[call]
    if size < least and (size < _ALWAYS_SMALL or (size < _SMALL_AT_FIRST and not is_in_use())):
        return False  # without looking for a device
    try:
        device = default_queue().device
    except NoDeviceError:
        return size >= least
    measured = own_rates(device).get(_RATES[call])
    if measured is None and size < least:  # the least of all devices
        return False
    return size >= (least_size(call, device)[0] if measured is None else measured)


def least_size(call: str, device: cl.Device) -> tuple[float, str]:
    """Return from how many elements a device computes a call of `LEAST`, and how that is known."""
    measured = own_rates(device).get(_RATES[call])
    if measured is not None:
        return measured, "measured"
    least: float = LEAST[call]
    if call not in _BY_UNITS:
        return least, "default"
    # A core of the device takes about as long for an element as the host: n cores save 1 - 1/n of that time.
    units = device.max_compute_units
    if call == "distinct":
        return max(least, SORTED // units), "derived from the number of compute units"
    return min(_MOST, least * units / (units - 1 or 0.1)), "derived from the number of compute units"


def check_host_way(what: str, queue: Any, **asked: Any) -> None:
    """Raise TypeError if a call that no kernel can compute has an option that only kernels have.

    Parameters
    ----------
    what : str
        What another library computes.
    queue : pyopencl.CommandQueue or None
        The caller's. It says where kernels run, and there are none.
    **asked
        As of `is_small`.
    """
    if queue is not None and not is_instance(queue, "pyopencl", "CommandQueue"):
        raise TypeError(f"queue: expected a pyopencl.CommandQueue or None, got {queue!r}")
    check_refused(asked, f"for {what}")


def check_refused(refused: Mapping[str, Any], where: str) -> None:
    """Raise TypeError if an argument is given that a call cannot have."""
    for name, value in refused.items():
        if value is not None and value is not False:
            raise TypeError(f"{name}: expected none {where}, got {value!r}")


MOST_BINS = np.iinfo(np.intp).max // 8  # of an array of NumPy, whose words follow
TOO_BIG = "array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size."


def counted_by_numpy(x: np.ndarray, weights: np.ndarray | None, minlength: int) -> np.ndarray:
    """Return NumPy's counts of integers of one dimension.

    Raises
    ------
    ValueError
        As NumPy, and if the number of bins overflows, where NumPy writes outside of its result.
    MemoryError
        If the host has no memory for so many bins; it names the argument.
    """
    if x.itemsize == 8 and x.size and _is_beyond(x):
        if x.min() < 0:
            raise ValueError("'list' argument must have no negative elements")
        raise ValueError(TOO_BIG)
    try:
        return np.bincount(x, weights, minlength)
    except MemoryError as error:
        raise no_memory_for_bins(int(x.max(initial=0)) + 1, minlength) from error


def _is_beyond(x: np.ndarray) -> bool:
    """Whether an integer of 64 bits is too large for a number of bins."""
    # argmax, since max takes two microseconds for ten elements; it reads halves of integers in two thirds of the time.
    if x.size > _MANY and x.flags.c_contiguous and x.dtype.isnative:
        halves = x.view(np.int32)
        if halves[halves.argmax()] < MOST_BINS >> 32:
            return False
    return bool(x[x.argmax()] >= MOST_BINS)


def no_memory_for_bins(number: int, minlength: int) -> MemoryError:
    """Return the error of counts of so many bins, as the largest element and `minlength` say."""
    name = "x" if number > minlength else "minlength"
    return MemoryError(
        f"{name}: expected few enough bins for the memory, got {max(number, minlength)}; "
        "number the elements by clhist.factorize, and count these"
    )
