"""Reads columns of pandas, polars and PyArrow, and masked arrays, as NumPy arrays with a mask of missing elements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from clhist._core.opencl.arrays import mask_of
from clhist._core.runtime.reading import as_array

# (is missing, drop missing) of pandas, polars and PyArrow.
_METHODS = (("isna", "dropna"), ("is_null", "drop_nulls"), ("is_null", "drop_null"))


class ColumnData(NamedTuple):
    """The values of a nullable column or masked array.

    Attributes
    ----------
    values : numpy.ndarray
        Numbers or booleans, or dates and durations; dates of a time zone in UTC. Missing ones are 0 or NaT.
    missing : numpy.ndarray of bool, or None
        True where an element is missing; None if none is.
    like : callable or None
        Converts dates to a column of the caller's library, in its time zone; None if NumPy has the type.
    nan_is_value : bool
        Whether NaN is a value, as in polars, rather than missing.
    """

    values: np.ndarray
    missing: np.ndarray | None
    like: Callable[[np.ndarray], Any] | None = None
    nan_is_value: bool = False

    @property
    def present(self) -> np.ndarray:
        """The values that are not missing."""
        return self.values if self.missing is None else self.values[~self.missing]


def read_column(column: Any) -> ColumnData | None:
    """Return the values of a nullable column or masked array; None for other arrays, text, decimals and objects."""
    if type(column) is np.ndarray:
        return None
    if isinstance(column, ColumnData):
        return column
    column = from_arrow(column)
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype):
        return _of_mask(column) if _is_masked_array(column) and dtype.kind in "biufcmM" else None
    # Recognised by their methods, so that none of the libraries is imported.
    if hasattr(column, "dictionary_encode") and hasattr(column, "type"):
        return _of_arrow(column)
    if hasattr(column, "to_physical") and hasattr(column, "is_null"):
        return _of_polars(column)
    return _of_pandas(column) if hasattr(column, "isna") and dtype is not None else None


def from_arrow(column: Any) -> Any:
    """Return a column that has only Arrow's C data interface as PyArrow's, without a copy; others unchanged."""
    if hasattr(column, "dtype") or hasattr(column, "dictionary_encode"):
        return column
    if hasattr(column, "__arrow_c_stream__") and not hasattr(column, "columns"):
        return import_module("pyarrow").chunked_array(column)
    return import_module("pyarrow").array(column) if hasattr(column, "__arrow_c_array__") else column


def present_and_missing(column: Any) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return the present elements and the mask of missing ones (None if none is); None if `column` is no column."""
    for missing_of, present_of in _METHODS:
        if hasattr(column, missing_of) and hasattr(column, present_of):
            missing = np.asarray(getattr(column, missing_of)(), bool)
            present = getattr(column, present_of)()
            is_wide = str(getattr(column, "dtype", "")) in ("Int128", "UInt128")  # polars' types that NumPy lacks
            present = np.array(present.to_list(), object) if is_wide else np.asarray(present)
            return present, missing if missing.any() else None
    return None


def missing_of(*arrays: Any) -> np.ndarray | None:
    """Return a mask of the elements that are missing in any of the arrays; None if all are plain arrays."""
    columns = [column for array in arrays if (column := read_column(array)) is not None]
    masks = [column.missing for column in columns if column.missing is not None]
    if not masks and columns:
        # Results of nullable columns are masked arrays, even if no element is missing.
        return np.zeros(columns[0].values.shape, bool)
    return np.logical_or.reduce(masks) if masks else None


def of_list(name: str, values: Any) -> Any:
    """Return a list as an array of objects if NumPy would convert its elements.

    NumPy converts other types beside text, and large integers.
    If an integer exceeds int64, the result is uint64, or objects if that cannot hold all of them.
    """
    if not isinstance(values, list | tuple):
        return values
    array = as_array(name, values)
    if array.dtype.kind not in "USfO" or not array.size:
        return array
    # NumPy makes text of mixed types, and floats of large integers: the objects show what they were.
    objects = np.array(values, object)
    types = {*map(type, objects.flat)}
    if array.dtype.kind in "US":
        return array if all(issubclass(kind, str | bytes) for kind in types) else objects
    if all(issubclass(kind, int | np.integer) for kind in types):  # NumPy would convert some of them to floats
        return objects.astype(np.uint64) if objects.min() >= 0 and objects.max() < 2**64 else objects
    return array


def picked(results: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return `results[places]`, where -1 stands for a missing result: masked, NaT or None."""
    # Append the missing element, which index -1 then selects.
    if isinstance(results, np.ma.MaskedArray):
        mask = np.append(np.ma.getmaskarray(results), True)[places]
        return np.ma.array(np.append(results.data, results.dtype.type(0))[places], mask=mask)
    none = np.array([None if results.dtype.kind == "O" else "NaT"], results.dtype)
    return np.concatenate([results, none])[places]


def _is_masked_array(value: object) -> bool:
    module: Any = sys.modules.get("numpy.ma")  # if it was never imported, there are no masked arrays
    return module is not None and isinstance(value, module.MaskedArray)


def _of_mask(column: Any) -> ColumnData:
    missing = mask_of(column)
    values = np.asarray(column).astype(column.dtype.newbyteorder("="), copy=False)
    return ColumnData(*_cleared(values, missing))


def _cleared(values: np.ndarray, missing: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return values with 0 or NaT where they are missing, and the mask, None if nothing is missing."""
    if missing is None or not missing.any():
        return values, None
    # Missing elements get a defined value, since what the library stores there is arbitrary.
    return np.where(missing, np.array("NaT" if values.dtype.kind in "mM" else 0, values.dtype), values), missing


def _of_pandas(column: Any) -> ColumnData | None:
    dtype, array = column.dtype, getattr(column, "array", column)
    # Columns of pandas in Arrow's memory are read by Arrow, and their dates go back to an array of pandas.
    if hasattr(dtype, "pyarrow_dtype"):
        data = _of_arrow(array.__arrow_array__())
        if data is None or data.like is None:
            return data
        of_arrow: Any = data.like
        return data._replace(like=lambda dates: type(array)(of_arrow(dates)))
    missing = np.asarray(column.isna(), bool)
    # Dates of a time zone are UTC in memory; NumPy has no zones, so `like` restores it.
    if hasattr(dtype, "tz") and hasattr(dtype, "unit"):
        values = np.asarray(array, f"M8[{dtype.unit}]")
        index: Any = import_module("pandas").DatetimeIndex
        return ColumnData(*_cleared(values, missing), lambda dates: index(dates, tz="UTC").tz_convert(dtype.tz).array)
    if hasattr(dtype, "categories") and hasattr(array, "codes"):
        # The code -1 of a missing element selects the zero that is appended.
        categories = np.asarray(dtype.categories)
        if categories.dtype.kind not in "biufmM":
            return None
        codes = np.asarray(array.codes)
        return ColumnData(*_cleared(np.append(categories, np.zeros(1, categories.dtype))[codes], missing))
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if not isinstance(numpy_dtype, np.dtype) or numpy_dtype.kind not in "biuf":
        return None
    return ColumnData(*_cleared(array.to_numpy(dtype=numpy_dtype, na_value=numpy_dtype.type(0)), missing))


def _of_polars(column: Any) -> ColumnData | None:
    dtype = column.dtype
    kind, zone = str(dtype).partition("(")[0], getattr(dtype, "time_zone", None)
    # Decimals and 128-bit integers are numeric to polars, but no kernel has their types.
    is_number = dtype.is_numeric() and not dtype.is_decimal() and kind not in ("Int128", "UInt128")
    if not is_number and kind not in ("Boolean", "Date", "Datetime", "Duration", "Null"):
        return None
    missing = column.is_null().to_numpy() if column.null_count() else None
    if kind == "Null":
        return ColumnData(np.zeros(len(column)), missing)
    zero = False if kind == "Boolean" else 0
    values = np.asarray(column.to_physical().fill_null(zero).to_numpy())
    # The physical values are integers: days, or ticks of the column's unit.
    if kind == "Date":
        values = values.astype("M8[D]")
    elif kind in ("Datetime", "Duration"):
        values = values.view(f"{'M8' if kind == 'Datetime' else 'm8'}[{dtype.time_unit}]")
    series: Any = type(column)

    def in_zone(dates: np.ndarray) -> Any:
        return series(dates).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)

    return ColumnData(*_cleared(values, missing), in_zone if zone else None, nan_is_value=values.dtype.kind == "f")


def _of_arrow(column: Any) -> ColumnData | None:
    arrow = import_module("pyarrow")
    types, kind = arrow.types, column.type
    if types.is_dictionary(kind):
        # Chunks may have different dictionaries, so each is decoded by its own.
        chunks = [chunk.dictionary_decode() for chunk in getattr(column, "chunks", [column])]
        return _of_arrow(arrow.chunked_array(chunks, kind.value_type))
    missing = np.asarray(column.is_null(), bool) if column.null_count else None
    unit = "D" if types.is_date32(kind) else "ms" if types.is_date64(kind) else getattr(kind, "unit", None)
    if types.is_null(kind):
        return ColumnData(np.zeros(len(column)), missing)
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        if types.is_date32(kind):
            column = column.cast(arrow.int32())
        # Integers of the column's unit, which a view reads as dates or durations.
        numbers = column.cast(arrow.int64())
        code = "m8" if types.is_duration(kind) else "M8"
        values = np.asarray(numbers.fill_null(0)).view(f"{code}[{unit}]")
        zone = getattr(kind, "tz", None)
        like = (lambda dates: arrow.array(dates).cast(kind)) if zone else None
        return ColumnData(*_cleared(values, missing), like)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        return None
    # PyArrow fills no nulls of half precision.
    filled = column if types.is_float16(kind) else column.fill_null(False if types.is_boolean(kind) else 0)
    return ColumnData(*_cleared(np.asarray(filled), missing))
