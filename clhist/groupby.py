"""`group_by`: statistics of the values of each group, all of them from one sweep over the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Never, TypeAlias, cast, overload

import numpy as np

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.halves import as_numbers
from clhist._core.opencl.lost import check_process
from clhist._core.opencl.on_device import OnDevice
from clhist._core.runtime.columns import missing_of, read_column
from clhist._core.runtime.cuda_entry import takes_cuda_as
from clhist._core.runtime.labelled import unlabelled
from clhist._core.runtime.shown_options import shows
from clhist._core.runtime.small import check_refused
from clhist.grouped.dates import NAT, as_integers
from clhist.grouped.frame_groups import FrameGroupBy
from clhist.grouped.frames import (
    ComputedKey,
    Frame,
    is_column_number,
    key_columns,
    library_of,
    read_frame,
    used_categories,
)
from clhist.grouped.groups import Groups, groups_of, labels_once
from clhist.grouped.hints import Hints, check_by_name, check_index, check_number
from clhist.grouped.methods import ON_DEVICE, A, Methods, X
from clhist.grouped.table import Table
from clhist.operators.c_types import check_booleans, native
from clhist.statistics.outputs import Column, Numbers
from clhist.statistics.quantiles import Method, checked_method, probability
from clhist.statistics.table import column_of

if TYPE_CHECKING:
    import pyopencl as cl
    from numpy.typing import DTypeLike

    from clhist.typing import DeviceArray, GroupStatistics, HostArray, Values

_Queue: TypeAlias = "cl.CommandQueue | None"


@overload
def group_by(  # type: ignore[overload-overlap]
    keys: DeviceArray | Sequence[DeviceArray], num_groups: int | None = ..., *, sort: bool = ..., queue: _Queue = ...
) -> GroupBy[DeviceArray]: ...
@overload
def group_by(
    keys: Values | Sequence[Any], num_groups: int | None = ..., *, sort: bool = ..., queue: _Queue = ...
) -> GroupBy[HostArray]: ...
@overload
def group_by(keys: Any, num_groups: Any, *names: Any, sort: bool = ..., queue: _Queue = ...) -> FrameGroupBy: ...
@shows()
def group_by(
    keys: Any,
    num_groups: Any = None,
    *names: Any,
    sort: bool = True,
    queue: _Queue = None,
    **wrong: Any,
) -> GroupBy[Any] | FrameGroupBy:
    """Group elements by equal keys, for statistics of each group.

    ``group_by(table, "zone", "hour")`` groups the rows of a table of pandas, polars or PyArrow by columns of keys, and
    its results are tables of the same library.

    Parameters
    ----------
    keys : array of any shape, or a list of columns
        Key of each element, of any type; the groups are those of the keys that occur, as in pandas. Numbers, booleans
        and dates are put into a hash table on the device; strings and other objects are numbered on the host, by
        PyArrow or pandas where one is installed. A pandas Categorical, or a Series of one, has a group per category.
        Arrays and columns of NumPy, PyOpenCL, pandas, PyArrow and polars are taken; of a list of them, or a dataframe,
        each combination that occurs is a group; columns of a dataframe are taken by position. Keys that are None, NA,
        null, NaN, NaT or masked belong to no group; NaN of polars is a key.
    num_groups : int, optional
        Number of groups, for integer keys that are the numbers of groups: empty groups have results as well, and those
        outside [0, num_groups) are left out. The array is not copied; each call reads it. Defaults to the keys that
        occur, and the device is waited for. If `keys` is a table, the name of a column of keys instead, or a list of
        names. In the place of a name a column beside the table, such as ``df["time"].dt.hour`` or
        ``pandas.cut(df["fare"], 5)`` of pandas, or an expression of polars, or `clhist.cut`, `clhist.qcut`,
        `clhist.date_part` or `clhist.date_bin` of a column.
    *names : str, or column or expression of the table's library
        If `keys` is a table, more columns of keys.
    sort : bool
        Whether groups come in the order of their keys, rather than in that of their first elements. Categories keep
        theirs.
    queue : pyopencl.CommandQueue, optional
        Where statistics are computed; those of few host elements as well then, which the host computes otherwise.
        Defaults to that of `keys`, or the default one.

    Returns
    -------
    GroupBy or FrameGroupBy
        The latter of a table and names of columns.

    Raises
    ------
    KeyError
        If a table has no column of a name.
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> groups = clhist.group_by(np.array(["a", "b", "a"]))
    >>> groups.mean(x)
    array([2.5, 2. ])
    >>> table = groups.agg(x=(x, "mean", "max"))
    >>> table["x"]["max"]
    array([4., 2.])
    """
    keys = unlabelled(keys)
    if wrong:
        name = min(wrong)
        several = "columns" if isinstance(wrong[name], list | tuple) else "column"
        hint = f"; pass the {several}: group_by(df[{wrong[name]!r}])" if name == "by" else ""
        raise TypeError(f"{name}: expected num_groups, sort or queue as keywords, got {wrong[name]!r}{hint}")
    # After a table, the second argument is a key: by name, beside the table, or computed.
    is_key = isinstance(num_groups, str | list | tuple | ComputedKey) or library_of(num_groups) is not None
    # An integer may be the name of a pandas column rather than a number of groups.
    if names or is_key or is_column_number(keys, num_groups):
        frame = read_frame(keys)
        if frame is None:
            check_number(num_groups)
            raise TypeError(f"keys: expected a table with named columns, got {type(keys).__name__}")
        return group_frame(frame, key_columns(frame, num_groups, *names), sort, queue)
    return GroupBy(groups_of(keys, cast(int | None, num_groups), sort, queue))


def group_frame(
    frame: Frame, keys: Mapping[str, Any], sort: bool = True, queue: cl.CommandQueue | None = None
) -> FrameGroupBy:
    """Return the groups of a table by columns of keys, which have names."""
    columns = [used_categories(column) for column in keys.values()]
    return FrameGroupBy(frame, keys, GroupBy(groups_of(columns, None, sort, queue)))


class GroupBy(
    Hints, OnDevice, Methods[A],
    instead="the keys can be, or clhist.dask.group_by groups in many processes",
):  # fmt: skip
    """The groups of equal keys; made by `group_by`.

    All methods take arrays of the shape of the keys: NumPy's, or what NumPy makes arrays of, if the keys were, and
    PyOpenCL's if those were. Results are of the same kind, with one element for each group. ``len`` is the number of
    groups.

    Attributes
    ----------
    num_groups : int
        How many groups there are, empty ones included.

    Examples
    --------
    >>> groups = clhist.group_by(["a", "b", "a"])
    >>> groups.size()
    array([2, 1])
    >>> groups.sum([1.0, 2.0, 4.0])
    array([5., 2.])
    """

    def __init__(self, groups: Groups) -> None:
        self.num_groups, queue = groups.num_groups, groups.queue
        self._user_queue = queue
        self._shape = groups.numbers.shape
        # Keys are read on first use, since those on a device need a synchronisation.
        self._labels = labels_once(groups)
        self._names, self._like, self._index = groups.names, groups.like, groups.index
        self._on_device = groups.on_device
        # One upload for all statistics of these groups.
        self._keys = self._placed(groups.numbers)
        computes_in_double = True  # without a queue, the host
        if queue is not None:
            from clhist._core.opencl.device import has_fp64  # PyOpenCL, which few elements do without

            computes_in_double = has_fp64(queue.device)
        self._numbers = Numbers.of(int(prod(self._shape)), computes_in_double)

    def __repr__(self) -> str:
        size, dtype, queue = prod(self._shape), self._keys.dtype, self._user_queue
        where = "the host" if queue is None else queue.device.name.strip()
        return f"<GroupBy {self.num_groups:,} groups of {size:,} elements by {dtype}, on {where}>"

    def __len__(self) -> int:
        return self.num_groups

    @property
    def keys(self) -> HostArray | tuple[HostArray, ...]:
        """The keys of the groups, in order; arrays of as many columns as the keys have."""
        labels: HostArray | tuple[HostArray, ...] = self._labels()
        return labels

    def _read_to_host(self) -> GroupBy[Any]:
        """Return the same groups for NumPy arrays; keys on a device are read."""
        from clhist._core.opencl.device import default_queue

        keys = self._keys.get(self._queue) if is_device_array(self._keys) else self._keys
        fields = (
            keys.reshape(self._shape),
            self.num_groups,
            self._labels,
            self._names,
            False,
            default_queue(),
            self._like,
        )
        return GroupBy(Groups(*fields))

    @shows()
    def agg(
        self,
        *wrong: Never,
        skipna: bool = True,
        ddof: int = 0,
        dtype: DTypeLike | None = None,
        reproducible: bool = False,
        **columns: tuple[X[A], *tuple[GroupStatistics, ...]],
    ) -> Table[A]:
        """Compute several statistics of several arrays, in one sweep over all of them.

        Parameters
        ----------
        skipna : bool
            Skip NaN, as in pandas; False propagates NaN, as in NumPy.
        ddof : int
            Delta degrees of freedom of ``"var"``, ``"std"`` and ``"sem"``: 0 as in NumPy and xarray; pandas has 1.
        dtype : dtype-like, optional
            Of means, variances, medians, sums and products: a float. Defaults to the dtype of an array of floats or
            complex numbers; of integers, to 64 bits of the same kind for sums and products, and float64 for the others.
        reproducible : bool
            Whether sums, means and variances are bitwise the same in any order and on any device, see
            `clhist.reduce_by_index`. Each then takes its own sweep, which are waited for.
        **columns : tuple of (array, str, ...)
            Under each name an array and its statistics: "count", "sum", "mean", "var", "std", "min", "max", "argmin",
            "argmax", "first", "last", "median", "prod", "any", "all", "sem", "skew", "kurt", "size", "nunique", "mode",
            or NumPy's functions of these names; "q90" is the quantile of 0.9, as is `clhist.quantile` of it, and "nth1"
            the second value, as `nth` has it. Of complex numbers "count", "sum", "mean" and "prod"; of dates and
            durations "count", "min", "max", "argmin", "argmax", "first", "last", "mean", "median", "std", "mode",
            quantiles, and "sum" of durations; of text, categories and objects "count", "first", "last",
            "mode", and where values have an order "min", "max", "argmin" and "argmax"; of values of any type "size"
            and "nunique".

        Returns
        -------
        dict of str to dict of str to array of shape (num_groups,)
            ``result[column][statistic]``; ``result.to_pandas()`` is a frame with a row for each group. "argmin" and
            "argmax" are positions (of the flattened array), the lowest of equal ones; "any" and "all" are booleans.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; it is named, and nothing is enqueued but what numbers text.

        Notes
        -----
        A group without values has count and sum 0, product 1, position -1, False as "any" and True as "all"; everything
        else is NaN of floats. Of integers it has the largest of the type as "min", the least as "max", and 0 as
        "first", "last" and "mode".
        Results of masked arrays and of nullable columns of pandas, PyArrow and polars are masked arrays, and NA in the
        tables made of them: integers stay integers, what is missing is skipped, and a group without values is masked,
        its position too. Without `skipna` a group with a missing value is masked. NaN of polars is a value, as there:
        sums and means of it are NaN, "min" and "max" ignore it.
        Dates are exact: means, medians and quantiles are rounded toward zero, to their unit; "std" of days, hours and
        minutes is in seconds. Without `skipna` NaT propagates as NaN does. Of a column with a time zone results are a
        column of its library. Objects stand for text, None for no text.
        Columns are combined by position: a pandas Series whose index is another one than that of the keys is refused.

        Floats are summed in float64 and rounded once, where the device has double precision, and in float32 elsewhere.
        A mean is such a sum divided. A float64 mean of n values may lie outside their range, by n units in the last
        place at most (few in practice; one if reproducible), and is infinite where the sum overflows. On a device of
        double precision, float32 means of fewer than 2^28 values lie within the range.
        Variances take a second sweep, around the means. Medians are selected digit by digit, with a sweep for each 8
        bits or so. "skew" and "kurt" are without bias, as in pandas, and NaN of less than three or four values or of
        values that are all equal. For "mode" pairs of a group and a value are numbered as keys are; for "nunique" this
        or, for many groups on a CPU, values are sorted.
        """
        if wrong:
            check_by_name(wrong)
        options: dict[str, Any] = {"skipna": skipna, "ddof": ddof, "dtype": dtype, "reproducible": reproducible}
        return Table(self._statistics(**options | columns), self._labels, self._names, self._like)

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def _statistics(
        self, *, skipna: bool, ddof: int, dtype: DTypeLike | None, reproducible: bool, **columns: Any
    ) -> dict[str, dict[str, A]]:
        """Return the statistics of `agg` by column and name."""
        check_process()
        check_booleans(skipna=skipna, reproducible=reproducible)
        # Check the arguments of all columns before anything is enqueued for one.
        requests = [
            self._request(name, request, skipna, ddof, dtype, reproducible) for name, request in columns.items()
        ]
        options: dict[str, Any] = {"ddof": ddof, "dtype": dtype, "reproducible": reproducible}
        table: dict[str, Any] = {}
        arrays: dict[str, Array] = {}
        swept: dict[str, Column] = {}
        for name, _, _, statistics, data, array, column, exact in requests:
            table[name] = {} if data is None else self._of_column(name, data, statistics, skipna, options)
            if column is None:
                continue
            # One upload for all statistics of a column.
            arrays[name] = self._placed(array)
            if exact:
                # Exact sums take sweeps of their own, and are finished on the host; others compute what remains.
                table[name] = self._exact_sums(arrays[name], column)
                column = column.without(exact)
            if column.statistics:
                swept[name] = column
        if swept:
            # All other statistics of all columns, in one sweep or by NumPy.
            values = [*map(arrays.__getitem__, swept)]
            for name, results in zip(swept, self._swept(values, tuple(swept.values())), strict=True):
                table[name] |= results
        # Order statistics and modes, which no sweep computes, then quantiles, places and statistics of any values.
        for request in requests:
            table[request.name] = self._finished(request, table[request.name], arrays.get(request.name), skipna, dtype)
        return table

    _statistics.__qualname__ = agg.__qualname__  # which warnings and errors say

    @takes_cuda_as("_keys", state=ON_DEVICE)
    def size(self) -> A:
        """Return how many elements each group has, whatever their values, as int64."""
        check_process()
        if self._on_host:
            # Function numpy.bincount refuses negative numbers, and would return a count for larger ones.
            inside = self._keys[(self._keys >= 0) & (self._keys < self.num_groups)]
            return self._returned(np.bincount(inside.astype(np.intp), minlength=self.num_groups))
        from clhist.grouped.sweep import size_kernel

        kernel = size_kernel(self._queue.context, self._keys.dtype)
        return self._returned(kernel(self._keys, num_bins=self._bins(8), queue=self._queue))

    @takes_cuda_as("_keys", state=ON_DEVICE)
    def weighted_mean(
        self, x: X[A], weights: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None, reproducible: bool = False
    ) -> A:
        """Return the sum of x times weight over the sum of the weights of each group, NaN for an empty one.

        Parameters
        ----------
        x, weights : array of the shape of the keys
            Values, which may be complex, and their real weights.
        skipna : bool
            Whether elements are left out of which either is NaN.
        dtype : dtype-like, optional
            Of the result; defaults to that of `x` and `weights` together, or float64 of integers.
        reproducible : bool
            As of `agg`; of real numbers.
        """
        check_process()
        check_booleans(skipna=skipna, reproducible=reproducible)
        for name, array in (("x", x), ("weights", weights)):
            check_index(name, array, self._index)
        if (missing := missing_of(x, weights)) is not None:
            columns, groups = [read_column(array) for array in (x, weights)], self._without(missing)
            arrays = [array if one is None else one.values for array, one in zip((x, weights), columns, strict=True)]
            # In polars NaN is a value: means of it are NaN.
            nan: list[Any] = [
                values != values for values, one in zip(arrays, columns, strict=True) if one and one.nan_is_value
            ]
            options: dict[str, Any] = {"skipna": skipna and not nan, "dtype": dtype, "reproducible": reproducible}
            means: Any = groups.weighted_mean(*arrays, **options)
            # A group without values or with a missing one has a masked mean, not NaN.
            masked = means != means
            if nan:
                masked &= ~groups.any(np.logical_or.reduce(nan))
            if not skipna:
                masked |= self.any(cast(Any, missing))
            return cast(A, np.ma.array(means, mask=masked))
        x, column = self._column("x", x, ("mean",), skipna, 0, dtype)
        if column.dates is not None:
            raise TypeError(f"x: expected numbers, got {column.dates}")
        w = self._array("weights", weights)
        if w.dtype.kind == "c":
            raise TypeError(f"weights: expected real numbers, got {w.dtype}")
        result = column.result
        # Without double precision the result stays float32, whatever the dtype of the weights.
        if dtype is None and w.dtype.kind == "f" and self._numbers.real == np.float64:
            result = np.result_type(result, w.dtype)
        x, w = self._placed(x), self._placed(w)
        if reproducible:
            from clhist.grouped.reproducible import names_of, reproducible_mean

            names_of(column)  # raises TypeError for values without exact sums
            means = reproducible_mean(self._keys, x, w, self._bins(8, 8), skipna, self._numbers, self._queue)
            return self._returned(self._like_keys(means.astype(result)))
        key = (self._keys.dtype, column.dtype, native(w.dtype), result, skipna, self._numbers)
        from clhist.grouped.sweep import weighted_kernel

        kernel = weighted_kernel(self._queue.context, *key)
        bins = self._bins(kernel.outputs.operators[0].dtype.itemsize)
        # The other results are the sums of the weights, and nothing.
        means, *_ = kernel(self._keys, x, w, num_bins=bins, queue=self._queue)
        return self._returned(means)

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def quantile(
        self,
        x: X[A],
        q: float | Sequence[float],
        *,
        method: Method = "linear",
        weights: X[A] | None = None,
        skipna: bool = True,
        dtype: DTypeLike | None = None,
    ) -> A:
        """Return a quantile of each group, NaN for an empty one.

        Parameters
        ----------
        x : array of the shape of the keys
            Values, real numbers.
        q : float, or several of them
            Probability, from 0 (the least value) to 1 (the largest). Of several the result has a row for each, as
            NumPy's has.
        method : str
            What a quantile between two values is, as in ``numpy.quantile``: "linear", "lower", "higher", "nearest" or
            "midpoint".
        weights : array of the shape of the keys, optional
            Weights, not negative; looking for negative ones in a device array synchronises. A group whose weights add
            up to 0, or to infinity, has NaN.
        skipna, dtype
            As of `agg`; an element is left out if its value or its weight is NaN.

        Notes
        -----
        Without weights, as by ``numpy.quantile``, in float64 where the device has it. With weights, the least value up
        to which at least the share `q` of the weight lies, as by ``numpy.quantile(..., method="inverted_cdf")``;
        weights are added up in float64, so that, where rounding decides whether the share is reached, either neighbour
        may be returned.
        Quantiles of dates and durations are interpolated in integers, exactly, and rounded toward zero. A probability
        is then the nearest fraction of integers up to 10^9, so that 0.29 is 29 / 100.
        """
        check_process()
        check_booleans(skipna=skipna)
        several = isinstance(q, list | tuple | np.ndarray) and np.ndim(q) == 1
        probabilities = [probability(one) for one in (np.asarray(q).tolist() if several else [q])]
        if checked_method(method) != "linear":
            # A weighted quantile is an element, never a number between two.
            check_refused({"method": method if weights is not None else None}, "with weights")
        for name, array in (("x", x), ("weights", weights)):
            check_index(name, array, self._index)
        if (quantiles := self._quantile_of_column(x, q, method, weights, skipna, dtype)) is not None:
            return quantiles
        x, column = self._column("x", x, ("quantile",), skipna, 0, dtype)
        if weights is not None:
            weights = self._array("weights", weights)
            from clhist.statistics.selection import check_weights

            check_weights(weights, self._queue)
            weights = self._placed(weights)
        x = self._placed(x)  # the reference keeps the device memory until the result is read
        quantiles = [self._returned(self._selected(x, column, one, weights, method=method)) for one in probabilities]
        return self._stacked(quantiles, column.result) if several else quantiles[0]

    def _quantile_of_dates(
        self, values: Any, q: Any, method: Method, skipna: bool, like: Callable[[np.ndarray], Any] | None
    ) -> Any:
        """Return quantiles of dates or durations, as a column of the caller's library if there is a `like`."""
        ticks, dates = as_integers(values)
        column = column_of("x", ticks.dtype, ("quantile",), self._numbers.real, True, 0, None, dates)
        missing = ticks == NAT
        groups = self._without(missing)
        results: Any = [GroupBy._of_order(groups, ticks, column, probability(p), method) for p in np.ravel(q).tolist()]
        results = [result.view(dates) for result in results]
        if not skipna:
            # As NaN of floats, NaT then makes the result of its group NaT.
            some: Any = cast(Any, self).any(missing)
            results = [np.where(some, np.array("NaT", dates), result) for result in results]
        if like is not None:
            results = [like(result) for result in results]
        if np.ndim(q) == 0:
            return results[0]
        return results if like is not None else self._stacked(results, values.dtype)

    def _quantile_of_column(
        self, x: Any, q: Any, method: Method, weights: Any, skipna: bool, dtype: DTypeLike | None
    ) -> Any:
        """Return quantiles of dates or of columns with missing values or weights; None for plain numbers."""
        data, missing = read_column(x), missing_of(x, weights)
        values = x if data is None else data.values
        if getattr(getattr(values, "dtype", None), "kind", "") in ("m", "M"):
            check_refused({"weights": weights, "dtype": dtype}, "for dates and durations")
            return self._quantile_of_dates(values, q, method, skipna, None if data is None else data.like)
        if missing is None:
            return None
        if weights is not None and (of_weights := read_column(weights)) is not None:
            weights = of_weights.values
        nan_is_value, groups = data is not None and data.nan_is_value, self._without(missing)
        # In polars NaN is a value, the greatest: select it as such instead of skipping it.
        if nan_is_value and weights is None:
            column = column_of("x", as_numbers(values).dtype, ("quantile",), self._numbers.real, False, 0, dtype)
            by_probability: Any = [
                GroupBy._of_order(groups, values, column, probability(p), method) for p in np.ravel(q).tolist()
            ]
            quantiles: Any = by_probability[0] if np.ndim(q) == 0 else self._stacked(by_probability, column.result)
        else:
            quantiles = groups.quantile(
                values, q, method=method, weights=weights, skipna=skipna and not nan_is_value, dtype=dtype
            )
        # NaN stands for a group without values, unless NaN itself is a value.
        mask: Any = quantiles != quantiles
        if nan_is_value:
            mask &= ~groups.any(np.isnan(values))
        if not skipna:
            mask |= cast(Any, self).any(missing)
        return np.ma.array(quantiles, mask=mask)

    def kernel_arrays(self, name: str, x: Any) -> tuple[Array, Array, cl.CommandQueue]:
        """Return values and the number of the group of each, as kernels on this queue take them."""
        return self._placed(self._array(name, x)), self._keys, self._queue
