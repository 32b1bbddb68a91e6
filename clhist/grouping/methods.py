"""The statistics of `clhist.GroupBy` that `agg` computes, each as a method."""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from numpy.typing import DTypeLike

from clhist.engine.cuda_calls import takes_cuda_as
from clhist.typing import DeviceArray, HostArray, Others

A = TypeVar("A", HostArray, DeviceArray)  # the results, and the keys
X: TypeAlias = A | Others  # values, of the kind of the keys


class Methods(Generic[A]):
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

    @takes_cuda_as("_keys", on_host="_on_host")
    def transform(self, x: X[A], statistic: str, **options: Any) -> A:
        """Return for each element a statistic of its group.

        Parameters
        ----------
        x : array of the shape of the keys
            Values.
        statistic : str
            Of those of `agg`.
        **options
            As of `agg`.

        Returns
        -------
        array of the shape of the keys
            Of the dtype of the statistic; NaN, 0 or False of elements in no group.

        Examples
        --------
        >>> share = x / groups.transform(x, "sum")                                          # doctest: +SKIP
        """
        found: A = self._rows(self._one(x, statistic, **options))
        return found

    @takes_cuda_as("_keys")
    def cumcount(self) -> A:
        """Return how many elements of its group come before each element, as int64; -1 of one that is in no group."""
        found: A = self._rows(None)
        return found

    def _rows(self, results: A | None) -> Any:
        """Return the result of the group of each element, or its place in the group."""
        raise NotImplementedError

    def _one(self, x: X[A], statistic: str, **options: Any) -> A:
        own: Any = self
        found: A = own.agg(x=(x, statistic), **options)["x"][statistic]
        return found
