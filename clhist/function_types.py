"""The types of functions: signatures of the functions of these names, which type checkers and editors see instead.

Each is one function wherever types allow: of a wrong call type checkers print every overload, with all of its options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, overload

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike, NDArray

from clhist.typing import (
    A,
    AnyOperator,
    Axes,
    Bins,
    CallOptions,
    Dest,
    DeviceArray,
    Devices,
    Ends,
    Given,
    HostArray,
    OnDevice,
    Others,
    Positions,
    Scalar,
    Shape,
    Values,
)


def reduce_by_index(  # noqa: PLR0913  # as the function
    dest: Dest | Shape,
    op: AnyOperator,
    indices: OnDevice[Dest] | HostArray | Others,
    values: OnDevice[Dest] | HostArray | Others | Scalar | tuple[A, ...],
    *,
    batched: bool = False,
    offsets: Any = None,
    dtype: DTypeLike | None = None,
    queue: cl.CommandQueue | None = None,
    out: Dest | None = None,
    reproducible: bool = False,
    max_abs: float | None = None,
    devices: Devices | None = None,
    **options: Unpack[CallOptions],
) -> Dest:
    """Combine each value into the bin of its index: ``dest[i] = op(dest[i], v)`` for each pair (i, v)."""
    raise NotImplementedError


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
    """Count the occurrences of each value, or sum their weights, like `numpy.bincount`."""
    raise NotImplementedError


def histogram(  # noqa: PLR0913  # as the function
    a: Given[A],
    bins: Bins = 10,
    range: Ends | None = None,
    density: bool | None = None,
    weights: Given[A] | None = None,
    *,
    where: Given[A] | None = None,
    axis: Axes | None = None,
    queue: cl.CommandQueue | None = None,
    out: A | None = None,
    reproducible: bool = False,
    devices: Devices | None = None,
) -> tuple[A, HostArray]:
    """Count data by bins: `numpy.histogram` on an OpenCL device."""
    raise NotImplementedError


def histogram2d(
    x: Given[A],
    y: Given[A],
    bins: Bins | Sequence[Bins] = 10,
    range: Sequence[Ends | None] | None = None,
    density: bool | None = None,
    weights: Given[A] | None = None,
    *,
    where: Given[A] | None = None,
    queue: cl.CommandQueue | None = None,
    out: A | None = None,
    reproducible: bool = False,
) -> tuple[A, HostArray, HostArray]:
    """Count points by bins of two dimensions: `numpy.histogram2d` on an OpenCL device."""
    raise NotImplementedError


@overload
def histogramdd(  # type: ignore[overload-overlap]
    sample: DeviceArray | Sequence[DeviceArray], bins: Any = ..., range: Any = ..., density: bool | None = ...,
    weights: DeviceArray | None = ..., *, where: Any = ..., queue: cl.CommandQueue | None = ..., out: Any = ...,
    reproducible: bool = ...,
) -> tuple[DeviceArray, list[HostArray]]: ...  # fmt: skip
@overload
def histogramdd(
    sample: Values, bins: Any = ..., range: Any = ..., density: bool | None = ..., weights: Values | None = ..., *,
    where: Any = ..., queue: cl.CommandQueue | None = ..., out: Any = ..., reproducible: bool = ...,
) -> tuple[HostArray, list[HostArray]]: ...  # fmt: skip
def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
    *,
    where: Any = None,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    reproducible: bool = False,
) -> Any:
    """Count points by bins of several dimensions: `numpy.histogramdd` on an OpenCL device."""
    raise NotImplementedError


def histogram_bin_edges(
    a: Given[A],
    bins: Bins = 10,
    range: Ends | None = None,
    weights: Given[A] | None = None,
    *,
    where: Given[A] | None = None,
    queue: cl.CommandQueue | None = None,
) -> HostArray:
    """Return the edges that `histogram` uses: `numpy.histogram_bin_edges`, for device arrays as well."""
    raise NotImplementedError


def digitize(
    x: Positions | Values, bins: Values, right: bool = False, *, queue: cl.CommandQueue | None = None
) -> Positions:
    """Return the number of the bin of each element: `numpy.digitize` on an OpenCL device."""
    raise NotImplementedError


def unique(
    x: Positions | Values,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    sorted: bool = True,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Return the different elements of an array: `numpy.unique` on an OpenCL device."""
    raise NotImplementedError


def factorize(
    values: Positions | Values,
    sort: bool = False,
    use_na_sentinel: bool = True,
    *,
    queue: cl.CommandQueue | None = None,
) -> tuple[Positions, Positions]:
    """Return elements as numbers of different values: `pandas.factorize` on an OpenCL device."""
    raise NotImplementedError
