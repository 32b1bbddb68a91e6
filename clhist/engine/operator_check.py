"""Whether an operator is what a histogram needs: associative, commutative, and with a neutral element that is neutral.

All three are tried on the device, as its compiler understands the expression. Samples prove nothing; they find
mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.codegen.render import render_check
from clhist.engine.call import queue_for
from clhist.engine.signature import Remembered
from clhist.errors import UnsupportedError
from clhist.opencl.device import has_fp64
from clhist.opencl.program import build
from clhist.operators.c_types import integer
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator

_FEW = 8  # whose triples are all tried, the smallest numbers first
_SAMPLES = 64  # of a call's own values
_TRIPLES = 1024
_ROUNDING = 1000.0  # multiples of the spacing of floats at the largest number on the way
_MOST_CHECKED = 1024
_checked: Remembered[bool] = Remembered(_MOST_CHECKED)

# Which of the rows that the kernel writes must be the same, and what a mistake is called.
_LAWS = (
    (
        3,
        4,
        "combine: expected a commutative operator, but {combine!r} of a={x} and b={y} is {left}, and of b and a "
        "{right}",
    ),
    (
        5,
        6,
        "combine: expected an associative operator, but {combine!r} of x={x}, y={y} and z={z} is {left} as (x, y), z "
        "and {right} as x, (y, z)",
    ),
    (0, 1, "neutral: expected the identity element, but {neutral} with a={x} is {right}"),
    (0, 2, "neutral: expected the identity element, but a={x} with {neutral} is {right}"),
)


@dataclass(frozen=True)
class OperatorCheck:
    """What `clhist.check_operator` tried and found to hold.

    Attributes
    ----------
    samples : int
        Distinct positions of values that were combined.
    triples : int
        How many pairs and triples of them.
    nan_depends_on_order : bool
        Whether a NaN and a number give one result in one order and another in the other: ``"a < b ? a : b"`` does, and
        its result then depends on the order of the values.
    """

    samples: int
    triples: int
    nan_depends_on_order: bool = False


def check_operator(operator: Operator, samples: Any = 1000, queue: cl.CommandQueue | None = None) -> OperatorCheck:
    """Check on the device that an operator is associative and commutative, and its identity element neutral.

    Parameters
    ----------
    operator : Operator
        What is checked.
    samples : int or array of the dtype of `operator`
        Number of pairs and triples of random and special values (0, 1, -1, extremes, infinities) to combine, or the
        values to combine, for an operator that is only defined on some.
    queue : pyopencl.CommandQueue, optional
        Defaults to the default one.

    Returns
    -------
    OperatorCheck
        What was combined, and whether a NaN changes the result with the order.

    Raises
    ------
    TypeError
        If an argument is of a wrong type.
    ValueError
        If a law does not hold; the message shows the values and both results. Floats may differ by rounding; overflows
        are ignored.

    Examples
    --------
    >>> clhist.check_operator(clhist.Operator(np.int32, "a - b", 0))
    Traceback (most recent call last):
    ValueError: combine: expected a commutative operator, but 'a - b' of a=2 and b=1 is 1, and of b and a -1; ...
    """
    if not isinstance(operator, Operator):
        raise TypeError(f"operator: expected a clhist.Operator, got {operator!r}")
    queue = queue_for(queue)
    if isinstance(samples, np.ndarray | list | tuple):
        values = np.asarray(samples)
        if not values.size:
            raise ValueError("samples: expected at least one value, got none")
        if values.dtype != operator.dtype and not np.can_cast(values.dtype, operator.dtype, "same_kind"):
            raise TypeError(f"samples: expected values of {operator.dtype}, got {values.dtype}")
        values, triples = values.astype(number_of(operator.dtype)).ravel(), _TRIPLES
    else:
        triples = integer("samples", samples, 1)
        values = _made(number_of(operator.dtype), min(triples, 256))
    _check(operator, values, triples, queue)
    depends = False
    if any(leaf.dtype.kind == "f" for leaf in _leaves(values)) and not isinstance(samples, np.ndarray | list | tuple):
        depends = _nan_depends_on_order(operator, values, queue)
    return OperatorCheck(len(values), triples, depends)


def check_once(operator: Operator, values: Callable[[], np.ndarray | None], queue: cl.CommandQueue) -> None:
    """Check `operator` on some of the `values` of a call, unless that has been done; None if there are none.

    Only what the caller combines is combined: an operator may be defined on less than its type holds.

    Raises
    ------
    ValueError
        As `check_operator`.
    """
    if not _checked.get(operator):
        found = values()
        if found is None or not found.size:
            return
        try:
            _check(operator, found[:: max(1, found.size // _SAMPLES)], _TRIPLES, queue)
        except UnsupportedError:
            return  # the call itself says so
        _checked.put(operator, True)
    object.__setattr__(operator, "verified", True)  # which is compared nowhere


def _check(operator: Operator, values: np.ndarray, triples: int, queue: cl.CommandQueue) -> None:
    chosen = _chosen(len(values), triples)
    held, results = _combined(operator, values, chosen, queue)
    unclear = _unclear(held)
    for one, other, message in _LAWS:
        wrong = _differ(held, one, other) & _differ(results, one, other) & ~unclear
        if wrong.any():
            at = int(np.argmax(wrong))
            x, y, z = (_shown(values[k]) for k in chosen[:, at])
            left, right = _shown(results[one, at]), _shown(results[other, at])
            neutral = f"the neutral element {_shown(operator.neutral)}"
            raise ValueError(
                message.format(combine=operator.combine, neutral=neutral, x=x, y=y, z=z, left=left, right=right)
                + f"; clhist.Operator(..., verified=True) accepts {operator.name!r} all the same"
            )


def _combined(
    operator: Operator, values: np.ndarray, chosen: np.ndarray, queue: cl.CommandQueue
) -> tuple[np.ndarray, np.ndarray]:
    """Return the accumulators and the results of the seven ways in which the kernel combines each triple."""
    if operator.needs_fp64 and not has_fp64(queue.device):
        raise UnsupportedError(f"{operator.name}: {queue.device.name.strip()} has no double precision")
    context, flags = queue.context, cl.mem_flags
    program: Any = build(context, render_check(operator))
    given = [
        cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(array))
        for array in (values, chosen)
    ]
    shape = (7, chosen.shape[1])
    found = [np.zeros(shape, dtype) for dtype in (operator.accumulator, number_of(operator.dtype))]
    written = [cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array) for array in found]
    kernel = cl.Kernel(program, "clhist_check")
    event = cl.enqueue_nd_range_kernel(queue, _set(kernel, *given, *written), (shape[1],), None)
    for array, buffer in zip(found, written, strict=True):
        cl.enqueue_copy(queue, array, buffer, wait_for=[event])
    return found[0], found[1]


def _set(kernel: cl.Kernel, *arguments: Any) -> cl.Kernel:
    kernel.set_args(*arguments)
    return kernel


def _chosen(samples: int, triples: int) -> np.ndarray:
    """Return the positions of `triples` triples: all of the first few values, then random ones."""
    few = min(samples, _FEW)
    ordered = np.array(np.unravel_index(np.arange(min(few**3, triples)), (few, few, few)))[::-1]
    rng = np.random.default_rng(1)
    return np.concatenate([ordered, rng.integers(0, samples, (3, triples - ordered.shape[1]))], axis=1).astype(
        np.uint32
    )


def _made(dtype: np.dtype, number: int) -> np.ndarray:
    """Return `number` values of each field of `dtype`: 1, 2, 3, ..., special ones, and random ones large and small."""
    found = np.zeros(number, dtype)
    for k, leaf in enumerate(_leaves(found)):
        rng = np.random.default_rng(k)
        small = rng.integers(0 if leaf.dtype.kind in "ub" else -100, 100, leaf.shape)
        if leaf.dtype.kind == "f":
            special: list[Any] = [1, 2, 3, 0, -1, 0.5, np.inf, -np.inf, np.finfo(leaf.dtype).max]
            drawn = np.where(rng.random(leaf.shape) < 0.5, small, rng.normal(size=leaf.shape) * 10.0 ** (small / 20))
        elif leaf.dtype.kind == "b":
            special, drawn = [1, 0], small % 2
        else:
            limits = np.iinfo(leaf.dtype)
            special = [1, 2, 3, 0, *([-1, limits.min] if limits.min else []), limits.max]
            large = rng.integers(limits.min, limits.max, leaf.shape, leaf.dtype, endpoint=True)
            drawn = np.where(rng.random(leaf.shape) < 0.5, small.astype(leaf.dtype), large)
        leaf[...] = drawn
        for n in range(min(number, 2 * len(special))):  # fields have theirs together, and then apart
            leaf[n] = special[(n + k * (n >= len(special))) % len(special)]
    return found


def _nan_depends_on_order(operator: Operator, values: np.ndarray, queue: cl.CommandQueue) -> bool:
    values = values[:3].copy()
    if len(values) < 2:
        return False
    for leaf in _leaves(values[:1]):
        if leaf.dtype.kind == "f":
            leaf[...] = np.nan
    _, results = _combined(operator, values, _chosen(len(values), 27), queue)
    return bool((_differ(results, 3, 4) | _differ(results, 5, 6)).any())


def _leaves(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the numbers of which `array` is made, as views: fields, elements of fields, and parts of complex ones."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from _leaves(array[name])
    elif array.dtype.kind == "c":
        yield array.real
        yield array.imag
    else:
        yield array


def _flat(leaf: np.ndarray, rows: int) -> np.ndarray:
    """Return a leaf of all rows and triples with one dimension more, of the elements of the field."""
    return leaf.reshape(*leaf.shape[:rows], -1)


def _scale(array: np.ndarray) -> np.ndarray:
    """Return the largest finite |number| on the way, for each triple."""
    found = np.ones(array.shape[1]) * np.finfo(np.float32).tiny
    for leaf in _leaves(array):
        if leaf.dtype.kind == "f":
            numbers = np.abs(_flat(leaf, 2).astype(np.float64))
            numbers[~np.isfinite(numbers)] = 0
            found = np.maximum(found, numbers.max(axis=(0, 2)))
    return found


def _unclear(array: np.ndarray) -> np.ndarray:
    """Return which triples overflow, or make a NaN of numbers: of those nothing is said."""
    found = np.zeros(array.shape[1], bool)
    for leaf in _leaves(array):
        if leaf.dtype.kind == "f":
            numbers = _flat(leaf, 2)
            overflow = np.isinf(numbers).any(axis=(0, 2)) & np.isfinite(numbers[0]).all(axis=1)
            found |= np.isnan(numbers).any(axis=(0, 2)) | overflow
    return found


def _differ(array: np.ndarray, one: int, other: int) -> np.ndarray:
    """Return for which triples two rows differ by more than rounding."""
    scale, found = _scale(array), np.zeros(array.shape[1], bool)
    for leaf in _leaves(array):
        a, b = _flat(leaf[one], 1), _flat(leaf[other], 1)
        if leaf.dtype.kind == "f":
            with np.errstate(all="ignore"):
                near = np.abs(a - b) <= (_ROUNDING * np.finfo(leaf.dtype).eps * scale)[:, None]
            same = near | (a == b) | (np.isnan(a) & np.isnan(b))
        else:
            same = a == b
        found |= ~same.all(axis=1)
    return found


def _shown(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)
