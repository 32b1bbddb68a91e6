"""The statistics of `clhist.GroupBy` that `agg` computes, each as a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from clhist._core.opencl.arrays import is_device_array
from clhist._core.runtime.columns import read_column
from clhist._core.runtime.cuda_entry import takes_cuda_as
from clhist.grouped.element_results import ElementResults
from clhist.grouped.groups import numbered_texts
from clhist.grouped.hints import check_index
from clhist.grouped.running import RUNNING
from clhist.statistics.table import OF_ANY, OF_ORDER, named_statistics

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from clhist.typing import DeviceArray, HostArray, Others

A = TypeVar("A", "HostArray", "DeviceArray")  # the results, and the keys
X: TypeAlias = "A | Others"  # values, of the kind of the keys

ON_DEVICE = "num_groups", "_shape"
"""The attributes of a `GroupBy` on which results depend, beside keys on a device."""


class Methods(ElementResults, Generic[A]):
    """A method for each statistic without arguments of its own."""

    def count(self, x: X[A], *, skipna: bool = True) -> A:
        """Return how many values each group has, as int64."""
        return self._one(x, "count", skipna=skipna)

    def sum(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None, reproducible: bool = False) -> A:
        """Return the sum of each group; see `agg`."""
        return self._one(x, "sum", skipna=skipna, dtype=dtype, reproducible=reproducible)

    def prod(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None) -> A:
        """Return the product of each group; see `agg`."""
        return self._one(x, "prod", skipna=skipna, dtype=dtype)

    def mean(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None, reproducible: bool = False) -> A:
        """Return the mean of each group, which may be of complex numbers; see `agg`."""
        return self._one(x, "mean", skipna=skipna, dtype=dtype, reproducible=reproducible)

    def var(
        self, x: X[A], *, ddof: int = 0, skipna: bool = True, dtype: DTypeLike | None = None, reproducible: bool = False
    ) -> A:
        """Return the variance of each group; see `agg`."""
        return self._one(x, "var", ddof=ddof, skipna=skipna, dtype=dtype, reproducible=reproducible)

    def std(
        self, x: X[A], *, ddof: int = 0, skipna: bool = True, dtype: DTypeLike | None = None, reproducible: bool = False
    ) -> A:
        """Return the standard deviation of each group; see `agg`."""
        return self._one(x, "std", ddof=ddof, skipna=skipna, dtype=dtype, reproducible=reproducible)

    def sem(
        self, x: X[A], *, ddof: int = 0, skipna: bool = True, dtype: DTypeLike | None = None, reproducible: bool = False
    ) -> A:
        """Return the standard error of the mean of each group; see `agg`."""
        return self._one(x, "sem", ddof=ddof, skipna=skipna, dtype=dtype, reproducible=reproducible)

    def skew(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None) -> A:
        """Return the unbiased skewness of each group, as pandas does; see `agg`."""
        return self._one(x, "skew", skipna=skipna, dtype=dtype)

    def kurt(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None) -> A:
        """Return the unbiased excess kurtosis of each group, as pandas does; see `agg`."""
        return self._one(x, "kurt", skipna=skipna, dtype=dtype)

    def nunique(self, x: X[A], *, skipna: bool = True) -> A:
        """Return how many different values each group has, as int64; of values of any type that keys may have."""
        return self._one(x, "nunique", skipna=skipna)

    def mode(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the most frequent value of each group, the least of equally frequent ones; see `agg`."""
        return self._one(x, "mode", skipna=skipna)

    def median(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None) -> A:
        """Return the median of each group; see `agg`."""
        return self._one(x, "median", skipna=skipna, dtype=dtype)

    def min(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the least value of each group; see `agg`."""
        return self._one(x, "min", skipna=skipna)

    def max(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the largest value of each group; see `agg`."""
        return self._one(x, "max", skipna=skipna)

    def argmin(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the position of the least value of each group; see `agg`."""
        return self._one(x, "argmin", skipna=skipna)

    def argmax(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the position of the largest value of each group; see `agg`."""
        return self._one(x, "argmax", skipna=skipna)

    def first(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the first value of each group; see `agg`."""
        return self._one(x, "first", skipna=skipna)

    def last(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the last value of each group; see `agg`."""
        return self._one(x, "last", skipna=skipna)

    def any(self, x: X[A], *, skipna: bool = True) -> A:
        """Return whether any value of each group is not zero; see `agg`."""
        return self._one(x, "any", skipna=skipna)

    def all(self, x: X[A], *, skipna: bool = True) -> A:
        """Return whether all values of each group are not zero; see `agg`."""
        return self._one(x, "all", skipna=skipna)

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def transform(self, x: X[A], statistic: str, **options: Any) -> A:
        """Return for each element a statistic of its group.

        Parameters
        ----------
        x : array of the shape of the keys
            Values.
        statistic : str
            Of those of `agg`; or "cumsum", "cumprod", "cummin", "cummax" or "rank", as the methods of these names.
        **options
            As of `agg`, or of that method.

        Returns
        -------
        array of the shape of the keys
            Of the dtype of the statistic. Elements whose key is missing get NaN (floats), NaT (dates), 0 (integers) or
            False (booleans); of a nullable column or masked array they are masked.

        Examples
        --------
        >>> x = np.array([1.0, 2.0, 3.0])
        >>> groups = clhist.group_by(np.array([7, 5, 7]))
        >>> x / groups.transform(x, "sum")
        array([0.25, 1.  , 0.75])
        """
        (statistic,) = named_statistics([statistic]) if callable(statistic) else (statistic,)
        if not isinstance(statistic, str):
            raise TypeError(f"statistic: expected the name of one, got {statistic!r:.60}")
        # These have a result for each element already.
        if statistic in ("rank", *RUNNING):
            of_rows: A = getattr(self, statistic)(x, **options)
            return of_rows
        result: A
        check_index("x", x, self._index)
        column = read_column(x)
        if column is None and not is_device_array(x) and statistic in OF_ORDER:
            column = numbered_texts("x", x, (statistic,), self._user_queue)
        # Kernels gather numbers only: gather first, then convert to the type of the column.
        if column is not None and column.like is not None and statistic not in ("count", "argmin", "argmax", *OF_ANY):
            x = cast(Any, column._replace(like=None))
            rows: Any = self._rows(self._one(x, statistic, **options))
            # Durations, such as the spread of dates, are not of the type of the column.
            return cast(A, column.like(rows) if rows.dtype.kind != "m" else rows)
        result = self._rows(self._one(x, statistic, **options))
        return result

    @takes_cuda_as("_keys", state=ON_DEVICE)
    def cumcount(self, *, ascending: bool = True) -> A:
        """Return how many elements of its group come before each element, as int64; -1 of one that is in no group.

        Parameters
        ----------
        ascending : bool
            False counts those that come after it. ``x[groups.cumcount() < n]`` are the first n of each group, as
            pandas' ``head(n)``, and with ``ascending=False`` the last, as ``tail(n)``; -1 is less, too.
        """
        places: A = self._places(ascending)
        return places

    @takes_cuda_as("_keys", state=ON_DEVICE)
    def ngroup(self) -> A:
        """Return the number of the group of each element, as int64; -1 of one that is in no group.

        Examples
        --------
        >>> clhist.group_by(["a", "b", "a"]).ngroup()
        array([0, 1, 0])
        """
        numbers: A = self._group_numbers()
        return numbers

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def cumsum(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None) -> A:
        """Return the sum of the values of its group up to each element, of float64 with its rounding errors.

        Parameters
        ----------
        x : array of the shape of the keys
            Values, real numbers.
        skipna : bool
            Whether NaN is left out, and has NaN; else all elements after it have NaN.
        dtype : dtype-like, optional
            As of `agg`.

        Returns
        -------
        array of the shape of the keys
            NaN or 0 of elements in no group; masked of a nullable column or masked array, as its missing values are.
        """
        sums: A = self._along("cumsum", x, skipna, dtype)
        return sums

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def cumprod(self, x: X[A], *, skipna: bool = True, dtype: DTypeLike | None = None) -> A:
        """Return the product of the values of its group up to each element; see `cumsum`."""
        products: A = self._along("cumprod", x, skipna, dtype)
        return products

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def cummin(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the least value of its group up to each element, which may be a date; see `cumsum`."""
        minima: A = self._along("cummin", x, skipna)
        return minima

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def cummax(self, x: X[A], *, skipna: bool = True) -> A:
        """Return the largest value of its group up to each element, which may be a date; see `cumsum`."""
        maxima: A = self._along("cummax", x, skipna)
        return maxima

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def rank(self, x: X[A], method: str = "average", *, ascending: bool = True, pct: bool = False) -> A:
        """Return the rank of each value in its group, from 1 on, as a float.

        Parameters
        ----------
        x : array of the shape of the keys
            Values, real numbers or dates.
        method : str
            The rank of equal values: their "average", "min" or "max"; "first", in their order; or "dense", "min"
            without gaps.
        ascending : bool
            Whether the least value is the first.
        pct : bool
            Whether ranks are divided by the largest one, which is the number of values but for "dense".

        Returns
        -------
        array of the shape of the keys
            NaN of NaN and NaT, and of elements in no group; masked of a nullable column or masked array.
        """
        ranks: A = self._ranked(x, method, ascending, pct)
        return ranks

    @takes_cuda_as("_keys", "_read_to_host", ON_DEVICE)
    def nth(self, x: X[A], n: int) -> A:
        """Return the n-th value of each group, NaN included, from 0 on; from its end if `n` is negative.

        Where a group has fewer, it is NaN, NaT, 0 or False. Missing values count; of a nullable column or masked array,
        and where it has fewer, the result is masked.
        """
        values: A = self._nth(x, n)
        return values

    def _one(self, x: X[A], statistic: str, **options: Any) -> A:
        own: Any = self
        result: A = own.agg(x=(x, statistic), **options)["x"][statistic]
        return result
