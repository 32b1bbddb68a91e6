"""Tests whether an operator is associative and commutative, and whether its identity element is one.

The tests run on the device, since its compiler decides what the expression means. Samples find mistakes; they prove
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.render import render_check
from clhist._core.opencl.device import check_fp64, device_kind
from clhist._core.opencl.program import build
from clhist._core.runtime.call import queue_for
from clhist._core.runtime.signature import Remembered
from clhist.errors import UnsupportedError
from clhist.operators.c_types import integer
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator, checked_samples

_FEW = 8  # all triples of the first 8 values are tried
_SAMPLES = 64  # values of a call that are tried
_TRIPLES = 1024  # triples of a call's values
_ROUNDING = 1000.0  # tolerance for floats, see `_differ`
_MOST_CHECKED = 1024  # operators whose check is remembered
_checked: Remembered[bool] = Remembered(_MOST_CHECKED)

# Rows that the kernel writes: the operands x, y, z, the identity element n, and their combinations.
# XY_Z stands for (x ⊕ y) ⊕ z, X_YZ for x ⊕ (y ⊕ z).
_X, _NX, _XN, _XY, _YX, _XY_Z, _X_YZ, _Y, _Z, _YZ, _NN, _N, _NN_X = range(13)


class _Law(NamedTuple):
    """A law of operators: the rows `left` and `right` must be equal.

    Attributes
    ----------
    left, right : int
        Rows of the kernel.
    operands : tuple of int
        The rows of the values that both depend on.
    between : tuple of int
        Intermediate rows, whose size bounds the rounding.
    message : str
        The error.
    """

    left: int
    right: int
    operands: tuple[int, ...]
    between: tuple[int, ...]
    message: str


_LAWS = (
    _Law(
        _XY,
        _YX,
        (_X, _Y),
        (),
        "combine: expected a commutative operator, but {combine!r} of a={x} and b={y} is {left}, and of b and a "
        "{right}",
    ),
    _Law(
        _XY_Z,
        _X_YZ,
        (_X, _Y, _Z),
        (_XY, _YZ),
        "combine: expected an associative operator, but {combine!r} of x={x}, y={y} and z={z} is {left} as (x, y), z "
        "and {right} as x, (y, z)",
    ),
    _Law(_X, _NX, (_X,), (), "neutral: expected the identity element, but {neutral} with a={x} is {right}"),
    _Law(_X, _XN, (_X,), (), "neutral: expected the identity element, but a={x} with {neutral} is {right}"),
    _Law(_N, _NN, (), (), "neutral: expected the identity element, but {neutral} with itself is {right}"),
    _Law(
        _X,
        _NN_X,
        (_X,),
        (),
        "neutral: expected the identity element, but {neutral} with itself, and then with a={x}, is {right}",
    ),
)


@dataclass(frozen=True)
class OperatorCheck:
    """The evidence of `clhist.check_operator`: what it tried, and what holds.

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


@np.errstate(all="ignore")  # values may be signaling NaN, or so large that the next one is infinite
def check_operator(operator: Operator, samples: Any = None, queue: cl.CommandQueue | None = None) -> OperatorCheck:
    """Check on the device that an operator is associative and commutative, and its identity element neutral.

    Parameters
    ----------
    operator : Operator
        What is checked.
    samples : int or array of the dtype of `operator`, optional
        The values to combine, for an operator that is only defined on some; or the number of pairs and triples of
        random and special values (0, 1, -1, fractions, extremes, infinities). Defaults to the operator's own `samples`,
        or to 1000 triples.
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
        If a law does not hold; the message shows the values and both results. Integers must be equal, floats of each
        field but for rounding. What overflows is ignored, but no NaN that finite values make with the identity element.

    Examples
    --------
    >>> clhist.check_operator(clhist.Operator(np.int32, "a - b", 0))
    Traceback (most recent call last):
    ValueError: combine: expected a commutative operator, but 'a - b' of a=2 and b=1 is 1, and of b and a -1; ...
    """
    if not isinstance(operator, Operator):
        raise TypeError(f"operator: expected a clhist.Operator, got {operator!r}")
    queue = queue_for(queue)
    samples = operator.samples if samples is None else samples
    own = isinstance(samples, np.ndarray | list | tuple)
    # The caller's samples come alone: the operator may be undefined for all other values.
    if own:
        values, triples = checked_samples(samples, operator.dtype), _TRIPLES
    else:
        triples = 1000 if samples is None else integer("samples", samples, 1)
        values = _made(number_of(operator.dtype), min(triples, 256))
    _check(operator, values, len(values) if own else 0, triples, queue)
    depends = False
    # Not for the caller's samples: the operator may be undefined for NaN.
    if any(leaf.dtype.kind == "f" for leaf in _leaves(values)) and not own:
        depends = _nan_depends_on_order(operator, values, queue)
    return OperatorCheck(len(values), triples, depends)


@np.errstate(all="ignore")  # values may be signaling NaN, or so large that the next one is infinite
def check_once(operator: Operator, values: Callable[[], np.ndarray], queue: cl.CommandQueue) -> None:
    """Check `operator` on values of a call, once on each device.

    Parameters
    ----------
    operator : Operator
        The operator to check.
    values : callable
        Returns some values of the call, in the dtype in which kernels compute. An operator may be defined on these
        only. If all values of a field are equal, others are added, unless the operator has `samples`.
    queue : pyopencl.CommandQueue
        A queue of the device.

    Raises
    ------
    ValueError
        As `check_operator`.
    """
    # Everything that decides on the kernel, and the device, whose compiler gives the expression its meaning.
    key = operator.dtype, operator.parts, operator.lift, operator.finish, operator.preamble, queue.device.int_ptr
    if _checked.get(key):
        return
    of_call = values()
    # Evenly spaced, so that values from all over the input are tried.
    of_call = of_call[:: max(1, len(of_call) // _SAMPLES)]
    samples = _with_evidence(of_call) if operator.samples is None else np.concatenate([of_call, operator.samples])
    # A queue of its own: the caller's may wait for a user event that is set after this call.
    beside = cl.CommandQueue(queue.context, queue.device)
    with suppress(UnsupportedError):  # the call itself says so
        _check(operator, samples, len(of_call), _TRIPLES, beside)
        _checked.put(key, True)


def _with_evidence(values: np.ndarray) -> np.ndarray:
    """Return `values`, followed by others if all values of a field are equal, which would prove nothing.

    In a struct, equal numbers other than zero suggest what a field holds, such as counts of 1: multiples of them are
    added. For zeros, and for values that are no structs, the others are of the whole type.
    """
    if not len(values):
        return _made(values.dtype, _SAMPLES)
    rows = max(len(values), _SAMPLES)
    # The fields that do vary keep values of the call, so that the added ones stay plausible.
    more = values[np.arange(rows) % len(values)]
    alike, is_poor = [], False
    for leaf in _leaves(more):
        flat = _flat(leaf, 1)
        alike.append(bool((_bits(flat) == _bits(flat[:1])).all()))
        is_poor |= alike[-1]
    if not is_poor:
        return values
    is_whole = values.dtype.names is None or all(not _flat(leaf, 1).any() for leaf in _leaves(more))
    of_type = _made(values.dtype, rows)
    rng = np.random.default_rng(2)
    for leaf, synthetic, is_alike in zip(_leaves(more), _leaves(of_type), alike, strict=True):
        if is_alike:  # permuted separately: fields in a fixed proportion, as of quaternions, may commute
            leaf[...] = synthetic if is_whole else _multiples(leaf)[rng.permutation(rows)]
    return np.concatenate([values, more])


def _bits(numbers: np.ndarray) -> np.ndarray:
    """Return numbers for comparison, in which NaN equals NaN."""
    return np.nan_to_num(numbers, nan=0.0) if numbers.dtype.kind == "f" else numbers


def _multiples(leaf: np.ndarray) -> np.ndarray:
    """Return multiples by 1 to 7 of the only number of a leaf; of 1 if that is 0 or may overflow."""
    if leaf.dtype.kind == "b":
        return np.broadcast_to((np.arange(len(leaf)) % 2).reshape(-1, *[1] * (leaf.ndim - 1)), leaf.shape)
    factors = (np.arange(len(leaf)) % 7 + 1).reshape(-1, *[1] * (leaf.ndim - 1))
    number = leaf.reshape(-1)[0]
    largest = np.finfo(leaf.dtype).max if leaf.dtype.kind == "f" else np.iinfo(leaf.dtype).max
    # The margin of 16 keeps 7 times the number, and a sum of two multiples, below overflow.
    unit = number if number != 0 and abs(float(number)) < float(largest) / 16 else leaf.dtype.type(1)
    return np.broadcast_to(factors.astype(leaf.dtype) * unit, leaf.shape)


def _check(operator: Operator, values: np.ndarray, own: int, triples: int, queue: cl.CommandQueue) -> None:
    """Raise ValueError if a law fails for `values`, of which the first `own` are the caller's."""
    chosen = _chosen(len(values), triples)
    both = _combined(operator, values, chosen, queue)
    # The same for values one step off: the differences show how far rounding may reach.
    steps = _combined(operator, _nudged(values), chosen, queue)
    accumulators, results = both
    # A law fails only if the accumulators differ and so do the finished results.
    for law in _LAWS:
        wrong = ~_is_unclear(accumulators, law, chosen[0] < own)
        # `both` has accumulators and finished results: a difference that `finish` removes is harmless.
        for array, step in zip(both, steps, strict=True):
            wrong &= _differ(array, step, law)
        if wrong.any():
            # The first failing triple is shown: if possible one of the first few values, which are simple numbers.
            at = int(np.argmax(wrong))
            x, y, z = (_shown(values[k]) for k in chosen[:, at])
            left, right = _shown(results[law.left, at]), _shown(results[law.right, at])
            neutral = f"the neutral element {_shown(operator.neutral)}"
            raise ValueError(
                law.message.format(combine=operator.combine, neutral=neutral, x=x, y=y, z=z, left=left, right=right)
                + f"; if {operator.name!r} is valid for some values only, pass them to clhist.Operator as samples=, or "
                "verified=True to skip this check"
            )


def _combined(
    operator: Operator, values: np.ndarray, chosen: np.ndarray, queue: cl.CommandQueue
) -> tuple[np.ndarray, np.ndarray]:
    """Run the kernel on each triple of `values`; return its rows as accumulators and as finished results."""
    if operator.needs_fp64:
        check_fp64(queue.device, operator.name)
    context, flags = queue.context, cl.mem_flags
    is_cpu = device_kind(queue.device) == "cpu"
    program: Any = build(context, render_check(operator, is_cpu=is_cpu))
    inputs = [
        cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(array))
        for array in (values, chosen)
    ]
    # One row for each combination of the kernel, one column for each triple.
    shape = (_NN_X + 1, chosen.shape[1])
    outputs = [np.zeros(shape, dtype) for dtype in (operator.accumulator, number_of(operator.dtype))]
    written = [cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array) for array in outputs]
    kernel = cl.Kernel(program, "clhist_check")
    event = cl.enqueue_nd_range_kernel(queue, _set(kernel, *inputs, *written), (shape[1],), (1,) if is_cpu else None)
    for array, buffer in zip(outputs, written, strict=True):
        cl.enqueue_copy(queue, array, buffer, wait_for=[event])
    return outputs[0], outputs[1]


def _set(kernel: cl.Kernel, *arguments: Any) -> cl.Kernel:
    kernel.set_args(*arguments)
    return kernel


def _chosen(samples: int, triples: int) -> np.ndarray:
    """Return the indices of `triples` triples, shape (3, triples): all of the first few values, then random ones."""
    few = min(samples, _FEW)
    # Reversed, so that the first operand varies fastest.
    ordered = np.array(np.unravel_index(np.arange(min(few**3, triples)), (few, few, few)))[::-1]
    rng = np.random.default_rng(1)
    return np.concatenate([ordered, rng.integers(0, samples, (3, triples - ordered.shape[1]))], axis=1).astype(
        np.uint32
    )


def _made(dtype: np.dtype, number: int) -> np.ndarray:
    """Return `number` synthetic values: in each field 1, 2, 3, special numbers, then random ones, large and small."""
    values = np.zeros(number, dtype)
    for k, leaf in enumerate(_leaves(values)):
        rng = np.random.default_rng(k)
        small = rng.integers(0 if leaf.dtype.kind in "ub" else -100, 100, leaf.shape)
        if leaf.dtype.kind == "f":
            # Exact small numbers first, then those where identities often fail: zero, negatives, infinities, the
            # largest.
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
        # Special numbers first in the same order in all fields, then rotated, so that fields differ.
        for n in range(min(number, 2 * len(special))):
            leaf[n] = special[(n + k * (n >= len(special))) % len(special)]
    return values


def _nan_depends_on_order(operator: Operator, values: np.ndarray, queue: cl.CommandQueue) -> bool:
    """Return whether a NaN and a number give different results in different orders."""
    values = values[:3].copy()
    if len(values) < 2:
        return False
    # The first of three values becomes NaN: the 27 triples have it in every place, beside numbers.
    for leaf in _leaves(values[:1]):
        if leaf.dtype.kind == "f":
            leaf[...] = np.nan
    _, results = _combined(operator, values, _chosen(len(values), 27), queue)
    return any(bool(_differ(results, results, law).any()) for law in _LAWS[:2])


def _leaves(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield views of the numbers in `array`: of each field, and of the real and imaginary parts of complex ones."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from _leaves(array[name])
    elif array.dtype.kind == "c":
        yield array.real
        yield array.imag
    else:
        yield array


def _flat(leaf: np.ndarray, rows: int) -> np.ndarray:
    """Return a leaf whose first `rows` dimensions stay and all others are one, the elements of the field."""
    return leaf.reshape(*leaf.shape[:rows], -1)


def _nudged(values: np.ndarray) -> np.ndarray:
    """Return `values` with each float moved to a neighbour, up or down by a hash of its bits: equal ones stay equal."""
    nudged = values.copy()
    for leaf in _leaves(nudged):
        if leaf.dtype.kind == "f":
            # Fibonacci hashing: the constant is 2^64 divided by the golden ratio, and the product wraps on purpose.
            bits = np.ascontiguousarray(leaf).view(f"u{leaf.dtype.itemsize}").astype(np.uint64)
            up = (bits * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63) != 0
            # Zero and the largest floats stay: their neighbours are subnormal and infinite.
            moved = np.nextafter(leaf, np.where(up, np.inf, -np.inf).astype(leaf.dtype))
            leaf[...] = np.where(np.isfinite(moved) & (leaf != 0), moved, leaf)
    return nudged


def _fields(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the numbers of each field, shape (rows, triples, numbers in the field); complex ones have two."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from _fields(array[name])
    else:
        yield np.concatenate([_flat(leaf, 2) for leaf in _leaves(array)], axis=2)


def _is_unclear(accumulators: np.ndarray, law: _Law, own: np.ndarray) -> np.ndarray:
    """Return a mask of the triples to which a law does not apply.

    - An operand is NaN.
    - A result is infinite, though all operands are finite: an overflow.
    - A result is NaN, though no operand is: by an infinity, or by numbers whose products may overflow.

    Laws of the identity element are stricter. They excuse an overflow of large numbers only, and no infinity among the
    caller's `own` values.
    """
    with_identity = len(law.operands) < 2
    unclear, infinite, nan = (np.zeros(accumulators.shape[1], bool) for _ in range(3))
    excused, finite, large = np.zeros_like(unclear), ~unclear, np.zeros_like(unclear)
    operands, rows = list(law.operands), [law.left, law.right, *law.between]
    for numbers in _fields(accumulators):
        if numbers.dtype.kind != "f":
            continue
        # Rows of the operands, and of everything that was computed from them.
        into, out = numbers[operands], numbers[rows]
        unclear |= np.isnan(into).any(axis=(0, 2))
        excused |= np.isinf(into).any(axis=(0, 2))
        finite &= np.isfinite(into).all(axis=(0, 2))
        with np.errstate(invalid="ignore"):
            # Products of four numbers below the fourth root of the largest float cannot overflow.
            large |= (np.abs(into) > float(np.finfo(numbers.dtype).max) ** 0.25).any(axis=(0, 2))
        infinite |= np.isinf(out).any(axis=(0, 2))
        nan |= np.isnan(out).any(axis=(0, 2))
    if with_identity:
        excused &= ~own
        return unclear | (large & finite & (infinite | nan)) | (nan & excused)
    return unclear | (finite & infinite) | (nan & (large | excused))


def _differ(array: np.ndarray, step: np.ndarray, law: _Law) -> np.ndarray:
    """Return a mask of the triples for which the two rows of a law differ by more than rounding.

    The tolerance of a float is `_ROUNDING` times the sum of two numbers. The first is the spacing of floats at the
    largest operand, intermediate or result, or at the median operand if that is larger. The second is the change of the
    results in `step`, which was computed from values that are one step off.
    """
    rows, sides = [law.left, law.right, *law.between, *law.operands], [law.left, law.right]
    differs = np.zeros(array.shape[1], bool)
    for numbers, moved in zip(_fields(array), _fields(step), strict=True):
        left, right = numbers[law.left], numbers[law.right]
        same = left == right
        if numbers.dtype.kind == "f":
            with np.errstate(all="ignore"):
                largest = np.where(np.isfinite(numbers[rows]), np.abs(numbers[rows]), 0).max(axis=(0, 2))
                # The median operand bounds the tolerance from below: results near 0 by cancellation have its rounding.
                usual = np.abs(numbers[_X])[np.isfinite(numbers[_X]) & (numbers[_X] != 0)]
                # In float64, where the difference of two float32 does not overflow.
                changed = np.abs(numbers[sides].astype(np.float64) - moved[sides])
                changed = np.where(np.isfinite(changed), changed, 0).max(axis=(0, 2))
                least = np.median(usual) if usual.size else np.finfo(np.float32).tiny
                room = _ROUNDING * (np.finfo(numbers.dtype).eps * np.maximum(largest, least) + changed)
                same |= np.abs(left - right) <= room[:, None]
            # NaN differs from itself by ==, but two NaN are the same result.
            same |= np.isnan(left) & np.isnan(right)
        differs |= ~same.all(axis=1)
    return differs


def _shown(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)
