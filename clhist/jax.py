"""Reductions by index and histograms of JAX's arrays, with gradients, under `jax.jit` and `jax.vmap` as well.

`segment_sum` and its like are those of `jax.ops`, `bincount` and `histogram` those of `jax.numpy`. JAX calls clhist
back on the host (`jax.pure_callback`): arrays of the CPU are read in place, and those of a GPU are copied to the host
and back. Outside of `jax.jit`, the functions of `clhist` take arrays of a GPU as they are, without gradients. JAX must
be installed: ``pip install clhist[jax]``.

What only values show, such as edges that descend, raises JAX's error with clhist's in it. On CPUs, JAX's callbacks wait
for ever if compiled functions are called by several threads at once with large arrays, whatever they call, unless
``jax.config.update("jax_cpu_enable_async_dispatch", False)`` was called before; in `shard_map` over several CPU devices
they do so anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import clhist
from clhist.operators.c_types import check_booleans

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

__all__ = ["bincount", "histogram", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum"]


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None, *, reproducible: bool = False) -> Any:
    """Return the sum of the values of each segment: `jax.ops.segment_sum`.

    Parameters
    ----------
    data : array of shape (N, ...)
        Values: floats, of half precision as well, or integers.
    segment_ids : array of shape (N,) of integers
        Where each value goes. What is outside of [0, `num_segments`) is ignored, and its values have a gradient of 0.
    num_segments : int, optional
        Number of segments. Defaults to the largest of `segment_ids` and one; under `jax.jit` it must be given.
    reproducible : bool
        Whether sums and means of floats are bitwise the same in any order and on any device, as of
        `clhist.reduce_by_index`.

    Returns
    -------
    array of shape (num_segments, ...)
        Of the dtype of `data`; 0 for a segment without values.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Notes
    -----
    The gradient of a sum is that of its segment, of a mean that divided by the number of values; of a minimum or
    maximum it goes in equal parts to the values that are equal to it; of a product it is right with zeros, too, where
    `jax.ops.segment_prod` has none, and it has no second one. There is no forward mode.

    Examples
    --------
    >>> import jax, clhist.jax
    >>> data, ids = jax.numpy.array([1.0, 2.0, 5.0]), jax.numpy.array([0, 2, 0])
    >>> clhist.jax.segment_sum(data, ids, 3)
    Array([6., 0., 2.], dtype=float32)
    """
    return _segments("sum", data, segment_ids, num_segments, reproducible)


def segment_mean(data: Any, segment_ids: Any, num_segments: int | None = None, *, reproducible: bool = False) -> Any:
    """Return the mean of the floats of each segment, NaN for one without; see `segment_sum`.

    Examples
    --------
    >>> import jax, clhist.jax
    >>> data, ids = jax.numpy.array([1.0, 2.0, 5.0]), jax.numpy.array([0, 2, 0])
    >>> clhist.jax.segment_mean(data, ids, 3)
    Array([ 3., nan,  2.], dtype=float32)
    """
    return _segments("mean", data, segment_ids, num_segments, reproducible)


def segment_min(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the least value of each segment, the largest there is for one without; see `segment_sum`.

    Examples
    --------
    >>> import jax, clhist.jax
    >>> data, ids = jax.numpy.array([1.0, 2.0, 5.0]), jax.numpy.array([0, 2, 0])
    >>> clhist.jax.segment_min(data, ids, 3)
    Array([ 1., inf,  2.], dtype=float32)
    """
    return _segments("min", data, segment_ids, num_segments, False)


def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the largest value of each segment, the least there is for one without; see `segment_sum`.

    Examples
    --------
    >>> import jax, clhist.jax
    >>> data, ids = jax.numpy.array([1.0, 2.0, 5.0]), jax.numpy.array([0, 2, 0])
    >>> clhist.jax.segment_max(data, ids, 3)
    Array([  5., -inf,   2.], dtype=float32)
    """
    return _segments("max", data, segment_ids, num_segments, False)


def segment_prod(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the product of the values of each segment, 1 for one without; see `segment_sum`.

    Examples
    --------
    >>> import jax, clhist.jax
    >>> data, ids = jax.numpy.array([1.0, 2.0, 5.0]), jax.numpy.array([0, 2, 0])
    >>> clhist.jax.segment_prod(data, ids, 3)
    Array([5., 1., 2.], dtype=float32)
    """
    return _segments("prod", data, segment_ids, num_segments, False)


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, reproducible: bool = False
) -> Any:
    """Count the occurrences of each value, or sum their weights: `jax.numpy.bincount`, whose weights have a gradient.

    Parameters
    ----------
    x : array of shape (N,) of integers
        What is counted.
    weights : array of shape (N,), optional
        What each counts.
    minlength : int
        The least number of bins.
    length : int, optional
        The number of bins; what is outside of [0, `length`) is ignored, where `jax.numpy.bincount` counts negative
        numbers as 0. Under `jax.jit` it must be given.
    reproducible : bool
        As of `segment_sum`.

    Returns
    -------
    array of shape (length or max(minlength, max(x) + 1),)
        Counts of JAX's default integer; sums of the dtype of `weights`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, and without `length` if an entry is negative.

    Examples
    --------
    >>> import jax, clhist.jax
    >>> clhist.jax.bincount(jax.numpy.array([0, 2, 2]), length=4)
    Array([1, 0, 2, 0], dtype=int32)
    """
    check_booleans(reproducible=reproducible)
    x = _integers("x", x)
    _check_size("minlength", minlength)
    if length is None:
        if _is_traced(x):
            raise TypeError(
                "length: expected a number under jax.jit, since the shape of the result depends on it, got None"
            )
        if x.size and int(x.min()) < 0:
            raise ValueError(f"x: expected non-negative integers, got {int(x.min())}")
        length = max(minlength, int(x.max()) + 1 if x.size else 0)
    _check_size("length", length)
    if length < minlength:
        raise ValueError(f"length: expected at least minlength, which is {minlength}, got {length}")
    if weights is not None:
        return _segments("sum", weights, x, length, reproducible, ("weights", "x"))
    return _counted(x, length)


def histogram(
    a: Any,
    bins: Any = 10,
    range: tuple[float, float] | None = None,
    weights: Any = None,
    density: bool = False,
    *,
    reproducible: bool = False,
) -> tuple[Any, Any]:
    """Count data by bins: `jax.numpy.histogram`, whose weights have a gradient.

    Parameters
    ----------
    a : array of any shape
        Data. Its gradient is zero.
    bins : int or array of shape (H + 1,)
        Number of bins of one width, or the edges of all.
    range : (float, float), optional
        Ends of the bins. Defaults to the least and the greatest element.
    weights : array of the shape of `a`, optional
        What each element contributes.
    density : bool
        Whether to return the density at each bin instead.
    reproducible : bool
        As of `segment_sum`.

    Returns
    -------
    hist : array of shape (H,)
        Counts of JAX's default integer, sums of the dtype of `weights`, or densities.
    bin_edges : array of shape (H + 1,)
        Of JAX's default float. Bins are those of NumPy's edges: of float64, or of half precision as the data is.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; as `clhist.histogram`.

    Examples
    --------
    >>> import jax, clhist.jax
    >>> counts, edges = clhist.jax.histogram(jax.numpy.array([0.1, 0.2, 0.9]), 2, (0, 1))
    >>> counts, edges
    (Array([2, 1], dtype=int32), Array([0. , 0.5, 1. ], dtype=float32))
    """
    check_booleans(density=density, reproducible=reproducible)
    a = jax.lax.stop_gradient(jnp.asarray(a))
    size, edges = _number_or_edges(bins)
    ends = _ends(range)
    if weights is None:
        hist, bin_edges = _counts(a, edges, size, ends)
    else:
        weights = jnp.asarray(weights)
        if weights.shape != a.shape:
            raise ValueError(f"weights: expected shape {a.shape} as of a, got {weights.shape}")
        # The sum goes by the bin of each element, since `_segments` has a gradient for the weights.
        number, bin_edges = _numbers(a, edges, size, ends)
        hist = _segments("sum", weights.reshape(-1), number, size, reproducible, ("weights", "a"))
    if density:
        hist = hist / (hist.sum() * jnp.diff(bin_edges))
    return hist, bin_edges


def _number_or_edges(bins: Any) -> tuple[int, tuple[Any, ...]]:
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        _check_size("bins", bins, 1)
        return int(bins), ()
    edges = jax.lax.stop_gradient(jnp.asarray(bins))
    if edges.ndim == 0 and jnp.issubdtype(edges.dtype, jnp.integer) and not _is_traced(edges):
        return _number_or_edges(int(edges))
    if edges.ndim != 1 or edges.size < 2:
        raise ValueError(f"bins: expected edges of one dimension, two or more, got shape {edges.shape}")
    return edges.size - 1, (edges,)


def _ends(ends: Any) -> tuple[float, float] | None:
    if ends is None:
        return None
    if any(map(_is_traced, jax.tree.leaves(ends))):
        raise TypeError("range: expected numbers that are known when it is compiled, got traced ones")
    limits = tuple(map(float, ends))
    if len(limits) != 2 or not np.isfinite(limits).all() or limits[0] > limits[1]:
        raise ValueError(f"range: expected two finite numbers that do not descend, got {ends}")
    return limits[0], limits[1]


# Compiled once for each shape: JAX compiles a callback anew for each function that it calls back.
@partial(jax.jit, static_argnums=(2, 3))
def _counts(a: Any, edges: tuple[Any, ...], size: int, ends: Any) -> Any:
    counts = jax.ShapeDtypeStruct((size,), jnp.result_type(int))
    floats = jax.ShapeDtypeStruct((size + 1,), jnp.result_type(float))
    return _called(partial(_counted_by_edges, size, ends), (counts, floats), a, *edges)


@partial(jax.jit, static_argnums=(2, 3))
def _numbers(a: Any, edges: tuple[Any, ...], size: int, ends: Any) -> Any:
    numbers = jax.ShapeDtypeStruct((a.size,), jnp.int32)
    floats = jax.ShapeDtypeStruct((size + 1,), jnp.result_type(float))
    return _called(partial(_numbers_by_edges, size, ends), (numbers, floats), a, *edges)


def _counted_by_edges(bins: int, ends: Any, a: np.ndarray, *user_edges: np.ndarray) -> Any:
    return clhist.histogram(a, user_edges[0] if user_edges else bins, ends)


def _numbers_by_edges(bins: int, ends: Any, a: np.ndarray, *user_edges: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the bin of each element, -1 for those in none, and the edges; the last bin has its upper edge."""
    edges, a = np.asarray(clhist.histogram_bin_edges(a, user_edges[0] if user_edges else bins, ends)), a.reshape(-1)
    size = len(edges) - 1
    # digitize counts bins from 1 and excludes the upper edge of the last bin, which histograms include.
    numbers = np.asarray(clhist.digitize(a, edges)).astype(np.int32) - 1
    numbers[a == edges[-1]] = size - 1
    return np.where((numbers < size) & (a == a), numbers, -1), edges  # not NaN


def _segments(
    reduce: str,
    data: Any,
    segment_ids: Any,
    size: int | None,
    reproducible: bool,
    names: tuple[str, str] = ("data", "segment_ids"),
) -> Any:
    check_booleans(reproducible=reproducible)
    data, ids = jnp.asarray(data), _integers(names[1], segment_ids)
    if data.dtype.name not in (_FLOATS if reduce == "mean" else _FLOATS + _INTEGERS):
        kinds = "floats" if reduce == "mean" else "floats or integers"
        raise TypeError(f"{names[0]}: expected {kinds}, got {data.dtype}")
    if data.ndim == 0 or data.shape[0] != ids.size:
        raise ValueError(f"{names[0]}: expected shape ({ids.size}, ...) as of {names[1]}, got {data.shape}")
    if size is None:
        if _is_traced(ids):
            raise TypeError(
                "num_segments: expected a number under jax.jit, since it is the shape of the result, got None"
            )
        size = int(ids.max()) + 1 if ids.size else 0
        if size < 0:
            raise ValueError(
                f"{names[1]}: expected an index of 0 or more, or num_segments, got {size - 1} as the largest; "
                "negative indices are left out"
            )
    _check_size("num_segments", size)
    return _reduced(data, ids, size, reduce, bool(reproducible))


def _integers(name: str, value: Any) -> Any:
    array = jnp.asarray(value)
    if array.dtype.name not in _INTEGERS or array.ndim != 1:
        raise TypeError(f"{name}: expected integers of one dimension, got {array.dtype} of shape {array.shape}")
    return array


def _check_size(name: str, size: Any, least: int = 0) -> None:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < least:
        raise ValueError(f"{name}: expected an int of {least} or more, got {size!r}")


def _is_traced(array: Any) -> bool:
    return isinstance(array, jax.core.Tracer)


def _called(function: Callable[..., Any], results: Any, *arrays: Any) -> Any:
    """Return what a function of NumPy's arrays returns, as arrays of these shapes and dtypes."""

    def call(*operands: Any) -> Any:
        outputs = function(*map(np.asarray, operands))
        return jax.tree.map(lambda array, of: np.asarray(array, of.dtype), outputs, results)

    # Under vmap JAX calls back once for each element of the batch.
    return jax.pure_callback(call, results, *arrays, vmap_method="sequential")


@partial(jax.jit, static_argnums=1)
def _counted(ids: Any, size: int) -> Any:
    shape = jax.ShapeDtypeStruct((size,), jnp.result_type(int))
    return (
        _called(lambda ids: clhist.reduce_by_index(size, "count", ids, 1), shape, ids)
        if size
        else jnp.zeros(0, shape.dtype)
    )


@partial(jax.jit, static_argnums=(2, 3, 4))
@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _reduced(data: Any, ids: Any, size: int, reduce: str, reproducible: bool) -> Any:
    shape = (size, *data.shape[1:])
    if 0 in shape:
        return jnp.zeros(shape, data.dtype)
    # Exact sums, divided once.
    if reproducible and reduce == "mean":
        # A sum in half precision would be rounded before the division.
        wide = jnp.promote_types(data.dtype, jnp.float32)
        total = _reduced(data.astype(wide), ids, size, "sum", True)
        return (total / _by_rows(_counted(ids, size), total)).astype(data.dtype)
    dest: Any = shape if len(shape) > 1 else size
    operator: Any = reduce

    def reduced(data: np.ndarray, ids: np.ndarray) -> Any:
        # As in jax.ops, sums of narrow types keep their dtype.
        dtype = data.dtype if reduce in ("sum", "prod") else None
        return clhist.reduce_by_index(dest, operator, ids, data, dtype=dtype, reproducible=reproducible)

    return _called(reduced, jax.ShapeDtypeStruct(shape, data.dtype), data, ids)


def _forward(data: Any, ids: Any, size: int, reduce: str, reproducible: bool) -> tuple[Any, Any]:
    result = _reduced(data, ids, size, reduce, reproducible)
    return result, (data, ids, result)


def _backward(size: int, reduce: str, reproducible: bool, saved: Any, gradient: Any) -> tuple[Any, None]:
    data, ids, result = saved
    if reduce == "mean":
        # Divide by 1 in segments without values, whose gradient no value gathers.
        gradient = gradient / _by_rows(jnp.maximum(_counted(ids, size), 1), gradient).astype(gradient.dtype)
    if reduce in ("sum", "mean"):
        return _gathered(gradient, ids), None
    if reduce == "prod":
        is_zero = data == 0
        zeros = _reduced(is_zero.astype(jnp.int32), ids, size, "sum", False)
        nonzero = jnp.where(is_zero, 1, data)
        # The product of the other values: without division by 0, and 0 if another value is 0.
        others = _gathered(gradient * _reduced(nonzero, ids, size, "prod", False), ids) / nonzero
        # The gradient is not 0 only if all other values are not 0: a zero itself is one of its segment's zeros.
        return _without_gradient(jnp.where(_gathered(zeros, ids) == is_zero, others, 0)), None
    best = _gathered(result, ids)
    # The gradient of an extreme is divided equally among the values that attain it.
    # NaN is unequal to itself, but is the extreme of a segment that has one.
    won = (data == best) | (jnp.isnan(data) & jnp.isnan(best))
    winners = jnp.maximum(_reduced(won.astype(jnp.int32), ids, size, "sum", False), 1)
    return jnp.where(won, _gathered(gradient / winners.astype(gradient.dtype), ids), 0), None


_reduced.__wrapped__.defvjp(_forward, _backward)


@jax.custom_vjp
def _without_gradient(gradients: Any) -> Any:
    return gradients


def _refuse(saved: Any, gradient: Any) -> Any:
    raise TypeError("data: segment_prod has no second gradient")


_without_gradient.defvjp(lambda gradients: (gradients, None), _refuse)


def _gathered(of_bins: Any, ids: Any) -> Any:
    """Return for each index the row of its bin, zeros for those outside."""
    inside = (ids >= 0) & (ids < of_bins.shape[0])
    # Negative indices would count from the end: read row 0 instead, and set the result to 0 below.
    rows = jnp.asarray(of_bins).at[jnp.where(inside, ids, 0)].get(mode="fill", fill_value=0)
    return jnp.where(_by_rows(inside, rows), rows, 0)


def _by_rows(of_rows: Any, like: Any) -> Any:
    """Return one number for each row of `like` in a shape that broadcasts to it."""
    return of_rows.reshape(-1, *[1] * (like.ndim - 1))
