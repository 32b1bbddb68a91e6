"""Which calls on NumPy arrays are left to NumPy, SciPy or boost-histogram: one rule, and one table of costs.

These libraries are done with few elements before a kernel has started. Their results have to be those of kernels, but
for the rounding of sums in no defined order; so no option that they lack may be given.
Note [The host computes few elements], docs/decisions/0016.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clhist._core.kinds import imported, is_instance
from clhist.errors import NoDeviceError

if TYPE_CHECKING:
    import pyopencl as cl


class Cost(NamedTuple):
    """Cost of a call on NumPy arrays: on a device, compared with the host library.

    Attributes
    ----------
    extra : float
        Microseconds that a call on the device takes longer, apart from its commands.
    commands : int
        Launches and copies of the device.
    host : float
        Nanoseconds per element on the host.
    unit : float
        Nanoseconds per element on one compute unit.
    columns : int
        Arrays that a GPU gets a copy of; below 0 those of a GPU that the host copies.
    bins : float
        Nanoseconds per bin that a call on the device takes longer; 0 where callers do not know the number of bins.
    """

    extra: float
    commands: int
    host: float
    unit: float
    columns: int = 1
    bins: float = 0.0


COSTS = {
    "bincount": Cost(112, 3, 1.2, 0.9, bins=1.0),
    "bincount, weights": Cost(145, 3, 1.42, 1.3, 2, bins=1.5),
    "reduce_by_index": Cost(145, 3, 1.45, 1.5, 2, bins=1.3),  # elements times the passes of the operator
    "1 dimension": Cost(26, 3, 8.0, 2.8),
    "rule": Cost(180, 3, 8.0, 2.8),  # of one dimension, beside what NumPy takes for the number of bins
    "edges": Cost(37, 3, 7.5, 5.4),
    "digitize": Cost(310, 6, 5.6, 1.2, bins=4.6),  # steps of a binary search
    "2 dimensions": Cost(255, 5, 60, 7, 2),
    "binned_statistic": Cost(540, 8, 61, 12, 2),
    "unique": Cost(700, 30, 150, 230),
    "distinct": Cost(700, 30, 6.0, 200),  # values alone, which NumPy sorts
    "factorize": Cost(420, 20, 4.4, 4.0),  # integers of few values, which pandas hashes
    "distinct, of a device": Cost(150, 10, 9.0, 200, -2),  # of floats
    "unique, of a device": Cost(190, 10, 150, 230, -2),
    "factorize, of a device": Cost(190, 10, 6.0, 4.0, -2),  # and distinct integers
    "group_by": Cost(180, 8, 5.5, 5.6, 2),
    "running": Cost(180, 8, 60, 20, 2),  # running values of groups
    "rank": Cost(900, 15, 75, 80, 2),
    "ndimage": Cost(190, 8, 2.7, 2.8, 2, bins=2.0),  # means, by NumPy's counts and sums
    "tensors": Cost(150, 3, 3.0, 1.2),  # of PyTorch on the CPU, whose threads begin at 32,768 elements
    "boost-histogram": Cost(228, 5, 2.2, 1.9),
    "boost-histogram, means": Cost(150, 10, 10, 4.6, 2),  # NumPy's sums; measured on a Xeon (family 6, model 167)
}
"""Costs by call, from which `least_size` predicts the threshold of a device without a measured one.

Measured by whole calls of 512 to 262,144 float64 or int64, 256 bins, on two cores of an EPYC (family 25, model 1) with
Intel's runtime 2026.22 and PoCL 3.0, beside NumPy 2.4, SciPy, pandas and boost-histogram: `clhist bench --suite sizes`.
Costs of bins: from 100, 10,000 and 100,000 bins of 8,000 to 1,000,000 elements.
"""

_MOST = 2**19  # elements: caches of the host hold fewer, and the costs are of these
_TRANSFER = 1.4  # nanoseconds per element of 8 bytes from pageable memory to an H200
# Without a device in use: smaller calls do not look for one until they have cost the host so many nanoseconds, a tenth
# of the time in which PyOpenCL is imported and a queue is made.
_FEW, _START = 2**16, 2e7
_spent = 0.0  # of them
_MANY = 2**12  # integers, from which on a view of their halves costs less than it saves


def rate_name(call: str) -> str:
    """Return the name under which the profile of a device has the least size of a call."""
    return f"NumPy arrays, {call}, least"


_RATES = {call: rate_name(call) for call in COSTS}


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


_last: tuple[Any, Any] = None, None  # the default queue, and its device


def _device_of(queue: cl.CommandQueue) -> cl.Device:
    """Return the device of the default queue; one object for all calls, which caches tell from others sooner."""
    global _last
    last = _last
    if last[0] is not queue:
        _last = last = queue, queue.device
    return last[1]


def own_rates(device: cl.Device) -> Mapping[str, float]:
    """Return the measured rates of a device."""
    rates: Mapping[str, float] = _devices().own_rates(device)
    return rates


def overheads(device: cl.Device) -> tuple[float, int, float]:
    """Return the microseconds of a launch, the compute units, and the nanoseconds of copying an element to a GPU."""
    seconds, units, is_apart = _devices().overheads(device)
    return seconds * 1e6, units, _TRANSFER if is_apart else 0.0


def is_small(call: str, size: int, queue: cl.CommandQueue | None, *, num_bins: int = 0, **options: Any) -> bool:
    """Whether a call on NumPy arrays is left to another library.

    Parameters
    ----------
    call : str
        One of `COSTS`.
    size : int
        Number of elements.
    queue : pyopencl.CommandQueue or None
        The caller's; with one, kernels compute the call.
    num_bins : int
        Number of bins, if the call's `Cost` has a term for them.
    **options
        Options that the other library lacks; kernels compute the call if one is neither None nor False.
    """
    # By identity: an option may be an array, which has no truth value.
    for value in options.values():
        if value is not None and value is not False:
            return False
    return queue is None and not pays_off(call, size, num_bins)


def are_few_of_device(own: cl.CommandQueue, call: str, size: int, queue: cl.CommandQueue | None) -> bool:
    """Whether the host computes a call on arrays of a device, those of the queue `own`, with copies there and back.

    Only for calls that wait for the device anyway. The other parameters are those of `is_small`.
    """
    return queue is None and size < _least_size(f"{call}, of a device", _device_of(own))[0]


def pays_off(call: str, size: int, bins: int = 0) -> bool:
    """Return whether the default device computes a call on so many elements and bins sooner than the other library."""
    cost = COSTS[call]
    if size * cost.host < 1000 * cost.extra:  # no device is so fast
        return False
    # Importing PyOpenCL and finding a device costs far more than these calls, unless there are many of them.
    if size < _FEW and not is_in_use() and _may_wait(size * cost.host):
        return False
    try:
        device = _device_of(default_queue())
    except NoDeviceError:
        return size >= _FEW
    return size >= _least_size(call, device, bins)[0]


def _may_wait(nanoseconds: float) -> bool:
    """Return whether calls that a device might gain from, with this one, have cost the host less than `_START`."""
    # Without a lock: an addition that another thread overwrites only delays the search for a device.
    global _spent
    _spent += nanoseconds
    return _spent < _START


def least_size(call: str, device: cl.Device, bins: int = 0) -> tuple[float, str]:
    """Return from how many elements on a device computes a call of `COSTS` in few bins, and how that is known."""
    least, launch = _least_size(call, device, bins)
    return least, "measured" if launch is None else f"predicted from a launch of {launch:.1f} µs"


def _least_size(call: str, device: cl.Device, bins: int = 0) -> tuple[float, float | None]:
    """Return the size of `least_size`, and the microseconds of a launch if it is predicted."""
    least, launch = _least_of_few_bins(call, device)
    cost = COSTS[call]
    if bins and cost.bins:
        # The costs are those of arrays in the host's caches, so that bins raise no threshold above these.
        least = max(least, min(_MOST, least * (1 + cost.bins * min(bins, MOST_BINS) / (1000 * cost.extra))))
    return least, launch


def _least_of_few_bins(call: str, device: cl.Device) -> tuple[float, float | None]:
    """Return `_least_size` of so few bins that they cost nothing."""
    cost, measured = COSTS[call], own_rates(device).get(_RATES[call])
    # No measured threshold may be below the size at which the host still takes less than the device's fixed cost.
    if measured is not None:
        return max(measured, 1000 * cost.extra / cost.host), None
    launch, units, transfer = overheads(device)
    gain = cost.host - cost.unit / units - cost.columns * transfer  # nanoseconds per element
    extra = 1000 * (cost.extra + cost.commands * launch)
    # The costs are those of arrays in the host's caches, so that no larger threshold can be predicted.
    return extra / gain if gain * _MOST > extra else float(_MOST), launch


def check_host_way(what: str, queue: Any, **options: Any) -> None:
    """Raise TypeError if a call that no kernel can compute has an option that only kernels have.

    Parameters
    ----------
    what : str
        What another library computes.
    queue : pyopencl.CommandQueue or None
        The caller's. It says where kernels run, and there are none.
    **options
        As of `is_small`.
    """
    if queue is not None and not is_instance(queue, "pyopencl", "CommandQueue"):
        raise TypeError(f"queue: expected a pyopencl.CommandQueue or None, got {queue!r}")
    check_refused(options, f"for {what}")


def check_refused(refused: Mapping[str, Any], where: str) -> None:
    """Raise TypeError if an argument is given that a call cannot have."""
    for name, value in refused.items():
        if value is not None and value is not False:
            # The text of an array has many lines.
            raise TypeError(f"{name}: expected none {where}, got {' '.join(repr(value).split()):.60}")


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
    # NumPy computes the size of its result without a check for overflow, and would write outside of it.
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
        # If no half reaches the high half of the limit, then no high half does, whatever the byte order.
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
