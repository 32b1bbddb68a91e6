"""`group_by` on Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from numpy.typing import DTypeLike

from clhist._core.spi import is_device_array, native, refuse_missing
from clhist.dask.frame_groups import FrameGroupBy
from clhist.dask.reductions import part_of_block
from clhist.dask.tree import as_array, blocks_of, check_unmasked, meta_of, on_host, task, tree
from clhist.grouped.spi import (
    Frame,
    GroupSpec,
    Table,
    groups_of,
    integers,
    key_columns,
    labels_of,
    picked_or_missing,
    used_categories,
)
from clhist.operators.c_types import check_booleans, integer, supported_dtype
from clhist.operators.halves import number_of
from clhist.partial import Partial, combined, merge, neutral_arrays
from clhist.statistics.spi import TABLE, Column, column_of, named_statistics

# Statistics whose results of blocks can be merged; "nunique" merges pairs of a key and a value instead.
_MERGED = tuple(name for name, entry in TABLE.items() if entry.merges or name in ("size", "nunique"))
_WHOLE = ("cumsum", "cumprod", "cummin", "cummax", "cumcount", "ngroup", "rank", "nth", "weighted_mean")
_NUMBERS = "integers, the numbers of groups, or categories"


def group_by(keys: Any, num_groups: Any = None, sort: bool = True) -> GroupBy | FrameGroupBy:
    """Group elements by equal keys: `clhist.group_by` of Dask collections.

    Parameters
    ----------
    keys : dask array of one dimension, dataframe column, `Delayed`, or a list of columns, or a dataframe
        Key of each element, of any type, as `clhist.group_by` takes blocks of them; the groups are those of the keys
        that occur. A categorical column of known categories has a group per category.
    num_groups : int, or str or list of str, optional
        If `keys` is a dataframe, the names of its columns of keys; results are dataframes then. Otherwise the
        number of groups, for integer keys that are the numbers of groups; those outside [0, num_groups) belong to none.
        Defaults to the keys that occur: each block has groups of its own, which are merged by their keys, and the
        length of results is unknown until they are computed.
    sort : bool
        Whether groups come in the order of their keys, rather than in that of their first elements.

    Returns
    -------
    GroupBy or FrameGroupBy
        The latter of a dataframe and names of columns.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> import dask.array as da
    >>> keys, x = da.from_array(np.array(["a", "b", "a"]), chunks=2), da.arange(3, chunks=2) ** 2
    >>> clhist.dask.group_by(keys).mean(x).compute()
    array([2., 1.])
    """
    if isinstance(num_groups, str | list | tuple):
        if not hasattr(meta_of(keys), "columns"):
            raise TypeError(f"keys: expected a dataframe with named columns, got {type(keys).__name__}")
        names = [*key_columns(Frame(meta_of(keys), "pandas"), num_groups)]
        columns = [keys[name] for name in names]
        return FrameGroupBy(keys, names, GroupBy(columns, None, sort))
    return GroupBy(keys, num_groups, sort)


class GroupBy:
    """The groups of equal keys of Dask collections; made by `group_by`.

    Each statistic is a method of that name with the options of `agg`: ``groups.mean(x)``.

    Attributes
    ----------
    num_groups : int or None
        How many groups there are, empty ones included; None if the keys that occur are to be found.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(6, chunks=2)
    >>> clhist.dask.group_by(x % 3).sum(x).compute()
    array([3, 5, 7])
    """

    def __init__(self, keys: Any, num_groups: int | None = None, sort: bool = True) -> None:
        check_booleans(sort=sort)
        collections = _columns(keys)
        names = ["keys"] if collections is None else [f"keys[{n}]" for n in range(len(collections))]
        self._collections = [keys] if collections is None else collections
        columns = dict(zip(names, self._collections, strict=True))
        self._one, self._sort = collections is None, sort
        # Codes in the known categories of a column are integer keys, equal in all partitions.
        self._categories = {name: _categories(column) for name, column in columns.items()}
        self._keys = {
            name: column if self._categories[name] is None else _codes_of(name, column, self._categories[name])
            for name, column in columns.items()
        }
        categories = self._categories["keys"] if collections is None else None
        if collections is not None and num_groups is not None:
            raise TypeError(f"num_groups: expected none with keys of {len(collections)} columns, got {num_groups!r}")
        if categories is not None and num_groups not in (None, len(categories)):
            raise ValueError(f"num_groups: expected {len(categories)}, the categories of the keys; got {num_groups}")
        number = num_groups if categories is None else len(categories)
        self.num_groups = None if number is None else integer("num_groups", number, 0)
        # Keys that are found become numbers of groups, which are int32.
        self._dtype: np.dtype = np.dtype(np.int32)
        if self.num_groups is not None:
            self._dtype = _dtype_of_collection("keys", self._keys["keys"], np.dtype(np.int64), _NUMBERS)
            if self._dtype.kind not in "iub":
                raise TypeError(f"keys: expected {_NUMBERS}, got {self._dtype}")
            self._dtype = np.dtype(np.uint8) if self._dtype.kind == "b" else native(self._dtype)

    def __repr__(self) -> str:
        if self.num_groups is None:
            return f"<GroupBy unknown number of groups by Dask collections, {len(self._keys)} of them>"
        return f"<GroupBy {self.num_groups:,} of groups by a Dask collection of {self._dtype}>"

    @property
    def keys(self) -> Any:
        """The keys of the groups, numbers or categories; Dask arrays if they are to be found, one for each column."""
        if self.num_groups is not None:
            categories = self._categories["keys"]
            return np.arange(self.num_groups) if categories is None else categories
        check_unmasked(**self._keys)
        whole = self._whole((), blocks_of(**self._keys), None)
        labels = []
        for n, (name, column) in enumerate(self._keys.items()):
            categories = self._categories[name]
            dtype = getattr(column if categories is None else categories, "dtype", np.int64)
            dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(object)
            labels.append(as_array(task(_labels)(whole, n, categories), (np.nan,), dtype))
        return labels[0] if self._one else tuple(labels)

    def _whole(self, requests: tuple[tuple[str, Column], ...], blocks: Any, split_every: int | None) -> Any:
        """Return the task of the groups that occur, with their accumulators for `requests`."""
        parts = blocks.tasks(_part, requests, self._coded, self._sort)
        return tree(parts, partial(_joined, sort=self._sort), split_every)

    @property
    def _coded(self) -> tuple[bool, ...]:
        """Whether each column of keys has the codes of its categories."""
        return tuple(categories is not None for categories in self._categories.values())

    def agg(
        self,
        *,
        skipna: bool = True,
        ddof: int = 0,
        dtype: DTypeLike | None = None,
        split_every: int | None = None,
        **columns: Any,
    ) -> LazyTable:
        """Compute several statistics of several arrays, in one sweep over all of them.

        Parameters
        ----------
        skipna, ddof, dtype
            As of `clhist.GroupBy.agg`.
        split_every : int, optional
            How many partial results one task merges.
        **columns : tuple of (collection, str, ...)
            As of `clhist.GroupBy.agg`, but for medians, which parts of the data do not have. For "nunique" the values
            that each group has in a block are merged.

        Returns
        -------
        dict of str to dict of str to dask.array.Array of shape (num_groups,)
            ``result[column][statistic]``; ``result.compute()`` is the same table of NumPy arrays, which ``to_pandas()``
            and the like compute.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong, or chunk sizes are unknown where positions count; it is named, before any work
            starts.

        Notes
        -----
        Needs devices with double precision. Variances are combined together with means, which takes locks on GPUs.
        """
        check_booleans(skipna=skipna)
        names = {name: _names(name, request) for name, request in columns.items()}
        # Distinct values are counted from merged pairs of key and value; other statistics have accumulators.
        merged = {name: [statistic for statistic in own if statistic != "nunique"] for name, own in names.items()}
        requests = tuple(
            (name, _request(name, (columns[name][0], *own), skipna, ddof, dtype)) for name, own in merged.items() if own
        )
        table: dict[str, dict[str, da.Array]] = {name: {} for name in columns}
        if requests:
            table |= self._computed(requests, {name: columns[name][0] for name, _ in requests}, split_every)
        for name, own in names.items():
            if "nunique" in own:
                number = self._number_of_different(name, columns[name][0], skipna, split_every)
                table[name] = {
                    statistic: number if statistic == "nunique" else table[name][statistic] for statistic in own
                }
        columns_of_keys = tuple(
            getattr(getattr(collection, "_meta", None), "name", None) for collection in self._collections
        )
        return LazyTable(table, self._key_arrays, columns_of_keys)

    def _key_arrays(self) -> Any:
        return self.keys

    def _number_of_different(self, name: str, x: Any, skipna: bool, split_every: int | None) -> da.Array:
        """Return the number of distinct values of each group, by merging the distinct pairs of key and value."""
        # Pairs with a missing value are in no group, so missing values cannot count as one more.
        if not skipna:
            raise TypeError(f"skipna: expected True with 'nunique' of {name} in blocks, got {skipna!r}")
        pairs = GroupBy([*self._collections, x], sort=False)
        blocks = blocks_of(**dict(zip([*self._keys, name], pairs._keys.values(), strict=True)))
        whole = None if self.num_groups is not None else self._whole((), blocks_of(**self._keys), split_every)
        counted = task(_number_of_pairs)(pairs._whole((), blocks, split_every), whole, self.num_groups)
        return as_array(counted, (np.nan if self.num_groups is None else self.num_groups,), np.dtype(np.int64))

    def _computed(
        self, requests: tuple[tuple[str, Column], ...], collections: dict[str, Any], split_every: int | None
    ) -> dict[str, dict[str, da.Array]]:
        """Return the requested statistics of collections; None stands for the group numbers as values."""
        _spec_of(self._dtype, requests, 1).spec()  # raises for wrong options, before any task is made
        named = {
            f"values of {name!r}" if name in self._keys else name: collection
            for name, collection in collections.items()
        }
        check_unmasked(**self._keys, **named)
        blocks = blocks_of(**self._keys, **named)
        # Positions in the whole collection need the number of elements of every earlier block.
        if blocks.starts is None and any(
            TABLE[statistic].is_position for _, column in requests for statistic in column.statistics
        ):
            first = next(iter(self._keys.values()))
            if getattr(first, "ndim", 1) != 1:
                raise ValueError(f"keys: expected one dimension, since positions are asked for, got {first.ndim}")
            raise ValueError(
                "keys: expected chunks of known sizes, since positions are asked for, got unknown ones; arrays have "
                "compute_chunk_sizes(), columns to_dask_array(lengths=True)"
            )
        if self.num_groups is None:
            whole = task(_results_of_keys)(requests, self._whole(requests, blocks, split_every))
        else:
            of_groups = _spec_of(self._dtype, requests, self.num_groups)
            parts = blocks.tasks(_partial, of_groups)
            whole = task(_results)(of_groups, tree(parts, merge, split_every), self.num_groups)
        shape = (np.nan if self.num_groups is None else self.num_groups,)
        return {
            name: {
                statistic: as_array(whole[name][statistic], shape, TABLE[statistic].dtype(column))
                for statistic in column.statistics
            }
            for name, column in requests
        }

    def size(self, *, split_every: int | None = None) -> da.Array:
        """Return how many elements each group has, as int64."""
        if self.num_groups is not None:
            return self.agg(keys=(self._keys["keys"], "count"), split_every=split_every)["keys"]["count"]
        count = column_of("keys", self._dtype, ("count",), np.dtype(np.float64), True, 0, None)
        return self._computed((("keys", count),), {"keys": None}, split_every)["keys"]["count"]

    def transform(self, x: Any, statistic: str, *, split_every: int | None = None, **options: Any) -> da.Array:
        """Return for each element a statistic of its group, which blocks are merged for.

        Parameters
        ----------
        x : collection
            Values, as of `agg`.
        statistic : str
            As of `agg`.
        split_every, **options
            As of `agg`.

        Returns
        -------
        dask.array.Array
            With the blocks of the keys. Elements whose key is missing have NaN or NaT, or are masked.
        """
        results = self.agg(x=(x, statistic), split_every=split_every, **options)["x"][statistic]
        blocks = blocks_of(**self._keys)
        # Each row finds its group by its key among the merged groups.
        whole = None if self.num_groups is not None else self._whole((), blocks, split_every)
        parts = [task(_of_rows)(whole, results, self.num_groups, self._coded, *row) for row in blocks.rows]
        first = next(iter(self._keys.values()))
        sizes = first.chunks[0] if isinstance(first, da.Array) else [np.nan] * len(parts)
        dtype = results.dtype
        arrays = [as_array(part, (size,), dtype) for part, size in zip(parts, sizes, strict=True)]
        return da.concatenate(arrays, allow_unknown_chunksizes=True)

    def __getattr__(self, name: str) -> Any:
        if name in _WHOLE:
            raise AttributeError(
                f"{name}: expected a statistic that blocks have parts of: {', '.join(_MERGED)}; "
                f"clhist.group_by of NumPy arrays has {name}"
            )
        if name not in TABLE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def statistic(x: Any, *own: Any, **options: Any) -> da.Array:
            if own and not TABLE[name].takes:
                raise TypeError(f"{name}: expected options by name, got {own[0]!r:.60}")
            options = {key: value for key, value in options.items() if key not in TABLE[name].takes}
            return self.agg(x=(x, name), **options)["x"][name]

        return statistic


class LazyTable(Table[Any]):
    """A table of Dask arrays, and a Dask collection: its result is the table of NumPy arrays."""

    @cached_property
    def _task(self) -> Delayed:
        return delayed(_computed_table)({name: {**column} for name, column in self.items()}, self._keys(), self._names)

    def compute(self, **options: Any) -> Table[Any]:
        """Return the table of NumPy arrays; `options` are those of ``dask.compute``."""
        (table,) = dask.compute(self, **options)
        return table

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each group, computed; see `clhist.GroupBy.agg`."""
        return self.compute().to_pandas()

    def to_arrow(self) -> Any:
        """Return a pyarrow.Table with a row for each group, computed."""
        return self.compute().to_arrow()

    def to_polars(self) -> Any:
        """Return a polars.DataFrame with a row for each group, computed."""
        return self.compute().to_polars()

    def __reduce__(self) -> tuple[Any, ...]:
        return _computed_table, ({**self}, self._keys(), self._names, LazyTable)

    def __dask_graph__(self) -> Any:
        return self._task.__dask_graph__()

    def __dask_keys__(self) -> Any:
        return self._task.__dask_keys__()

    def __dask_layers__(self) -> Any:
        return self._task.__dask_layers__()

    def __dask_tokenize__(self) -> Any:
        return self._task.__dask_tokenize__()

    def __dask_postcompute__(self) -> Any:
        return self._task.__dask_postcompute__()

    # Dask returns results in another order where collections of one call have different optimisers.
    __dask_optimize__ = staticmethod(da.Array.__dask_optimize__)
    __dask_scheduler__ = staticmethod(Delayed.__dask_scheduler__)


def _computed_table(columns: dict[str, Any], keys: Any, names: tuple[Any, ...], kind: Any = Table) -> Any:
    return kind(columns, partial(_returned, tuple(keys) if isinstance(keys, list | tuple) else keys), names)


def _returned(value: Any) -> Any:
    return value


def _names(name: str, request: Any) -> tuple[str, ...]:
    """Return the names of the statistics of one column."""
    if not isinstance(request, tuple | list) or len(request) < 2:
        raise TypeError(f"{name}: expected a tuple of a collection and its statistics, got {request!r}")
    return named_statistics(request[1:])


def _number_of_pairs(pairs: _Part, whole: _Part | None, number: int | None) -> np.ndarray:
    """Return the number of pairs of each group: the groups of `whole`, or integers below `number`."""
    *keys, _ = pairs.keys
    if whole is None:
        own = np.asarray(keys[0]).astype(np.int64)
        return np.bincount(own[(own >= 0) & (own < (number or 0))], minlength=number or 0).astype(np.int64)
    (of_groups, of_pairs), size, _ = _numbered_together([whole.keys, keys])
    return np.bincount(of_pairs, minlength=size)[of_groups].astype(np.int64)


def _columns(keys: Any) -> list[Any] | None:
    """Return the columns of a dataframe or of a list of collections; None of one collection."""
    if hasattr(keys, "columns") and not hasattr(keys, "dtype"):
        names = [*keys.columns]
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"keys: expected columns of different names, got {twice!r} twice")
        return [keys[name] for name in keys.columns]
    if not isinstance(keys, list | tuple) or all(isinstance(part, Delayed) for part in keys):
        return None  # a list of Delayed is the blocks of one collection
    return list(keys)


def _categories(column: Any) -> np.ndarray | None:
    """Return the categories of a column; None if it has none, or if they are unknown."""
    return np.asarray(column.cat.categories) if hasattr(column, "cat") and column.cat.known else None


def _codes_of(name: str, column: Any, categories: Any) -> Any:
    """Return the codes of a column in `categories`; partitions may have other categories, in another order."""
    meta = meta_of(column).cat.codes.astype(np.int64)
    return column.map_partitions(_codes_of_partition, name, categories, meta=meta)


def _codes_of_partition(part: Any, name: str, categories: np.ndarray) -> Any:
    own = part.cat.categories
    if len(own) == len(categories) and (np.asarray(own) == categories).all():
        return part.cat.codes.astype(np.int64)
    codes = part.cat.set_categories(categories).cat.codes.astype(np.int64)
    if ((codes < 0) & part.notna()).any():
        unknown = next(value for value, code in zip(part, codes, strict=True) if code < 0 and value == value)
        raise ValueError(f"{name}: expected values of the column's categories in all partitions, got {unknown!r}")
    return codes


def _request(name: str, request: Any, skipna: bool, ddof: int, dtype: DTypeLike | None) -> Column:
    """Return the checked request of the statistics of one collection."""
    statistics = named_statistics(request[1:])
    for statistic in (statistic for statistic in statistics if statistic in TABLE and not TABLE[statistic].merges):
        raise ValueError(
            f"{name}: expected statistics that can be merged, got {statistic!r}, which blocks have no part of; "
            "clhist.group_by of NumPy arrays computes it"
        )
    if np.ndim(request[0]) == 0 and not hasattr(request[0], "dask"):
        raise TypeError(f"{name}: expected a Dask collection, got {type(request[0]).__name__}")
    values = _dtype_of_collection(name, request[0], np.dtype(np.float64))
    values = number_of(supported_dtype(values, name))
    if values.names:
        raise TypeError(f"{name}: expected numbers, got {values}")
    return column_of(name, values, statistics, np.dtype(np.float64), skipna, ddof, dtype)


def _dtype_of_collection(name: str, collection: Any, otherwise: np.dtype, expected: str = "numbers") -> np.dtype:
    """Return the dtype of an array or a column; `otherwise` of what has none."""
    if hasattr(collection, "columns") and not hasattr(collection, "dtype"):
        raise TypeError(f"{name}: expected a column, got a dataframe of {', '.join(map(str, collection.columns))}")
    dtype = getattr(collection, "dtype", otherwise)
    try:
        return np.dtype(dtype)
    except TypeError:  # an extension dtype of pandas
        raise TypeError(f"{name}: expected {expected}, got {dtype}") from None


def _spec_of(keys: np.dtype, columns: tuple[tuple[str, Any], ...], number: int) -> GroupSpec:
    return GroupSpec(keys, columns, max(1, number))


def _results(of_groups: GroupSpec, whole: Partial, number: int) -> dict[str, dict[str, np.ndarray]]:
    results = of_groups.results(whole)
    return {
        name: {statistic: array[:number] for statistic, array in column.items()} for name, column in results.items()
    }


def _keys_of(block: Any) -> np.ndarray:
    """Return the keys of a block; raise TypeError if they are no integers, since a `Delayed` has no dtype to check."""
    array = integers(block)
    if array.size and array.dtype.kind not in "iub":
        raise TypeError(f"keys: expected {_NUMBERS}, got {array.dtype}")
    return array


def _partial(of_groups: GroupSpec, start: int | None, keys: Any, *values: Any) -> Partial:
    numbers = _keys_of(keys)
    # Masked keys became -1, which unsigned keys cannot represent.
    if of_groups.keys.kind == "u" and numbers.size and numbers.min() < 0:
        raise ValueError(f"keys: expected signed integers, since some are masked, got {of_groups.keys}")
    arrays = [np.ascontiguousarray(numbers, of_groups.keys)]
    for (name, column), block in zip(of_groups.columns, values, strict=True):
        arrays.append(np.ascontiguousarray(refuse_missing(name, on_host(block)), column.dtype))
    return part_of_block(of_groups.spec(), start, *arrays)


@dataclass(frozen=True)
class _Part:
    """The groups that occur in a part of the data: their keys, an array for each column, and what is asked of them."""

    keys: tuple[np.ndarray, ...]
    partial: Partial | None

    @property
    def number(self) -> int:
        return len(self.keys[0])


def _part(
    requests: tuple[tuple[str, Column], ...], coded: tuple[bool, ...], sort: bool, start: int | None, *row: Any
) -> _Part:
    """Return the groups of a block; `row` has the key columns, then the values."""
    numbers, number, labels = _grouped(_keys_of_block(coded, row), sort)
    if not requests:
        return _Part(labels, None)
    values = [numbers if block is None else block for block in row[len(coded) :]]
    # Round the number of groups up to a power of two, so that blocks share plans and compiled kernels.
    of_groups = _spec_of(numbers.dtype, requests, 1 << max(0, number - 1).bit_length())
    return _Part(labels, _partial(of_groups, start, numbers, *values))


def _keys_of_block(coded: tuple[bool, ...], row: Sequence[Any]) -> list[Any]:
    """Return the key columns of a block, with negative codes of categories masked."""
    columns = zip(row, coded, strict=False)
    return [np.ma.masked_less(column, 0) if is_coded else used_categories(column) for column, is_coded in columns]


def _of_rows(
    whole: _Part | None, results: np.ndarray, number: int | None, coded: tuple[bool, ...], *row: Any
) -> np.ndarray:
    """Return for each element of a block the result of its group."""
    if whole is None:
        numbers = _keys_of(row[0]).astype(np.int64)
        places = np.where((numbers >= 0) & (numbers < (number or 0)), numbers, -1)
        return np.asarray(picked_or_missing(results, places))
    numbers, _, labels = _grouped(_keys_of_block(coded, row), True)
    (of_groups, of_block), size, _ = _numbered_together([whole.keys, labels])
    # Both tables end with -1, which the number -1 of a missing key selects.
    group = np.full(size + 1, -1)  # the group of each key
    group[of_groups] = np.arange(whole.number)
    return np.asarray(picked_or_missing(results, np.append(group[of_block], -1)[numbers]))


def _grouped(keys: Sequence[Any], sort: bool) -> tuple[np.ndarray, int, tuple[np.ndarray, ...]]:
    """Return the group of each element on the host, how many there are, and their keys in columns."""
    groups = groups_of(keys[0] if len(keys) == 1 else list(keys), None, sort, None)
    numbers = groups.numbers.get() if is_device_array(groups.numbers) else groups.numbers
    labels = labels_of(groups.labels, groups.num_groups)
    labels = labels if isinstance(labels, tuple) else (labels,)
    return np.ascontiguousarray(numbers, np.int32), groups.num_groups, labels


def _numbered_together(
    tables: Sequence[Sequence[np.ndarray]], sort: bool = True
) -> tuple[list[np.ndarray], int, tuple[np.ndarray, ...]]:
    """Return the groups of several tables of keys, equal ones for equal keys, how many there are, and their keys."""
    numbers, number, labels = _grouped([np.concatenate(column) for column in zip(*tables, strict=True)], sort)
    return np.split(numbers, np.cumsum([len(columns[0]) for columns in tables[:-1]])), number, labels


def _joined(parts: Sequence[_Part], sort: bool) -> _Part:
    """Merge the groups of several parts: groups with equal keys are combined."""
    some = [part for part in parts if part.number]
    if len(some) < 2:
        return some[0] if some else parts[0]
    places, number, labels = _numbered_together([part.keys for part in some], sort)
    if some[0].partial is None:
        return _Part(labels, None)
    outputs = some[0].partial.outputs
    whole = Partial(outputs, neutral_arrays(outputs, [(number,)] * len(outputs.operators)), 0, 0, ())
    for place, part in zip(places, some, strict=True):
        assert part.partial is not None
        # Within a part each group occurs once, so bins can be gathered, combined and scattered back.
        current = replace(whole, arrays=tuple(array[place] for array in whole.arrays))
        addition = replace(part.partial, arrays=tuple(array[: part.number] for array in part.partial.arrays))
        merged = combined(current, addition, "keys", in_place=True)
        for into, array in zip(whole.arrays, merged.arrays, strict=True):
            into[place] = array
        whole = replace(merged, arrays=whole.arrays)
    return _Part(labels, whole)


def _labels(whole: _Part, column: int, categories: np.ndarray | None) -> np.ndarray:
    return whole.keys[column] if categories is None else categories[whole.keys[column]]


def _results_of_keys(requests: tuple[tuple[str, Column], ...], whole: _Part) -> dict[str, dict[str, np.ndarray]]:
    assert whole.partial is not None
    return _results(_spec_of(np.dtype(np.int32), requests, whole.number), whole.partial, whole.number)
