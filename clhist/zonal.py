"""Statistics of a raster's zones: the signature and the results of xarray-spatial's `zonal_stats`.

One sweep over the raster computes all statistics of all zones, where xarray-spatial sorts the cells by zone and then
calls a function for each zone and statistic.

pandas must be installed: ``pip install "clhist[zonal]"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyopencl as cl

from clhist._core.spi import (
    as_numbers,
    check_layout,
    default_queue,
    is_device_array,
    is_labelled,
    mask_of,
    on_host,
    refuse_missing,
    split,
    takes_cuda,
)
from clhist.groupby import GroupBy, group_by
from clhist.operators.halves import half_name, number_of
from clhist.statistics.spi import STATISTICS, TABLE
from clhist.unique import factorize

__all__ = ["stats", "zonal_stats"]

DEFAULT_STATS = ("mean", "max", "min", "sum", "std", "var", "count", "majority")

_AS = {"majority": "mode"}  # what `GroupBy` calls it
_KNOWN = [*_AS, *(name for name in STATISTICS if not TABLE[name].is_position and name != "size")]
_FRAME, _RASTER = "pandas.DataFrame", "xarray.DataArray"
_Functions = Mapping[str, Callable[[np.ndarray], Any]]


@takes_cuda
def zonal_stats(
    zones: Any,
    values: Any,
    zone_ids: Sequence[float] | None = None,
    stats_funcs: Sequence[str] | _Functions = DEFAULT_STATS,
    nodata_values: float | None = None,
    return_type: str = _FRAME,
    *,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Return statistics of the values of each zone: ``xrspatial.zonal_stats``.

    Parameters
    ----------
    zones : xarray.DataArray or array of real numbers
        The zone of each cell: all cells of one number, next to each other or not. Cells that are NaN or infinite are
        in none. Of NumPy, Dask or PyOpenCL, or an xarray.DataArray that holds one of these; CUDA's go through the host.
    values : xarray.DataArray, xarray.Dataset or array of real numbers
        The value of each cell, of the shape of `zones`. A dataset has several, and so have arrays with one dimension
        more, in front, of bands. Cells that are NaN or infinite are left out.
    zone_ids : sequence of numbers, optional
        The zones that are asked for; those that do not occur are left out. Defaults to all that occur.
    stats_funcs : sequence of str, or dict of str to callable
        Of "mean", "max", "min", "sum", "std", "var" (with ``ddof=0``), "count" and "majority", the least of the most
        frequent values; also other statistics of `clhist.GroupBy.agg`, such as "median" and "nunique". Of a dict each
        function is called on the host with the values of one zone, for each zone.
    nodata_values : number, optional
        Cells of this value are left out.
    return_type : {"pandas.DataFrame", "xarray.DataArray"}
        The latter is a raster with the dimension ``stats`` in front, whose cells have the statistics of their zones.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `values`, or the default one.

    Returns
    -------
    pandas.DataFrame, dask.dataframe.DataFrame or xarray.DataArray
        A row for each zone, in the order of the zones: the column ``zone``, and for each statistic one of float64, NaN
        where a zone has no values. Of a dataset or of bands their names are in front: ``red_mean``.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Notes
    -----
    All is computed in float64 where the device has it, also of values of float32.

    Examples
    --------
    >>> from clhist.zonal import zonal_stats
    >>> zones = np.array([[1, 1, 2], [1, 2, 2]])
    >>> zonal_stats(zones, np.array([[1.0, 3, 5], [2, 4, np.nan]]), stats_funcs=["mean", "count"])
       zone  mean  count
    0     1   2.0    3.0
    1     2   4.5    2.0
    """
    if return_type not in (_FRAME, _RASTER):
        raise ValueError(f"return_type: expected {_FRAME!r} or {_RASTER!r}, got {return_type!r:.60}")
    request = _Request(*_functions(stats_funcs), _identifiers(zone_ids), _number(nodata_values), queue)
    area = _data("zones", zones)
    _check_real("zones", area)
    bands = _bands(values, area)
    if return_type == _RASTER and set(bands) != {None}:
        raise ValueError(f"return_type: expected {_FRAME!r}, since values has several bands, got {return_type!r}")
    if _is_dask(area) or any(map(_is_dask, bands.values())):
        if return_type == _RASTER:
            raise ValueError(f"return_type: expected {_FRAME!r}, since values is chunked, got {return_type!r}")
        # Blocks cannot merge a majority: leave it out of the defaults; a request for it is refused below.
        names = [name for name in request.names if name != "majority" or stats_funcs is not DEFAULT_STATS]
        return _frame_of_blocks(area, bands, request._replace(names=names))
    cells = _Cells.of(area, queue)
    if return_type == _RASTER:
        return _raster(cells, values, bands[None], request)
    return _frame(cells.zones, {name: request.of(cells, band) for name, band in bands.items()}, request.zones)


stats = zonal_stats


class _Request(NamedTuple):
    """The request of the statistics of zones."""

    names: list[str]
    functions: _Functions | None
    zones: np.ndarray | None
    nodata: float | None
    queue: cl.CommandQueue | None

    def of(self, cells: _Cells, values: Any) -> dict[str, np.ndarray]:
        """Return the statistics of each zone, in float64."""
        numbers, number, nodata = cells.numbers, len(cells.zones), self.nodata
        missing = mask_of(values)
        if missing is not None:
            numbers, values = _where(~missing, numbers), np.asarray(values)
        if half_name(values.dtype):
            # Rounded as the values are, or none would be equal to it.
            nodata = None if nodata is None else float(values.dtype.type(nodata))
            values = as_numbers(values)
        if nodata is not None:
            numbers = _where(values != nodata, numbers)
        statistics = self._computed(group_by(numbers, number, queue=self.queue), values)
        if values.dtype.kind == "f" and any(np.isinf(statistics[name]).any() for name in ("min", "max")):
            # Infinite values are rare: look for them only if a result shows one, so that others need no extra pass.
            numbers = _where(abs(values) < np.inf, numbers)
            statistics = self._computed(group_by(numbers, number, queue=self.queue), values)
        if self.functions is not None:
            return _called(self.functions, numbers, values, number)
        return {name: np.where(statistics["count"] > 0, statistics[_AS.get(name, name)], np.nan) for name in self.names}

    def _computed(self, groups: GroupBy[Any], values: Any) -> dict[str, np.ndarray]:
        of_names = () if self.functions is not None else (_AS.get(name, name) for name in self.names)
        # Counts show empty zones, minima and maxima infinite values.
        names = dict.fromkeys(["count", "min", "max", *of_names])
        device = (self.queue or default_queue(values)).device
        real = np.float64 if device.double_fp_config else np.float32
        statistics = groups.agg(values=(values, *names), dtype=real)["values"]
        return {name: np.asarray(on_host(column), np.float64)[: len(groups)] for name, column in statistics.items()}


class _Cells(NamedTuple):
    """The number of the zone of each cell, -1 of none, and the zones."""

    numbers: Any
    zones: np.ndarray

    @classmethod
    def of(cls, zones: Any, queue: cl.CommandQueue | None) -> _Cells:
        shape, missing = zones.shape, mask_of(zones)
        zones = as_numbers(zones.reshape(-1) if missing is None else np.asarray(zones)[~missing])
        numbers, ids = factorize(zones, sort=True, queue=queue)
        # Put the numbers back in place; masked cells are in no zone.
        if missing is not None:
            everywhere = np.full(shape, -1, np.asarray(on_host(numbers)).dtype)
            everywhere[~missing] = on_host(numbers)
            numbers = everywhere
        ids = np.asarray(on_host(ids))
        if ids.dtype.kind == "f" and not np.isfinite(ids).all():
            # Sorted, infinite ids are first and last.
            below = int(np.isneginf(ids[:1]).sum())
            ids = ids[np.isfinite(ids)]
            numbers = numbers - below
            numbers = _where(numbers < len(ids), numbers)
            numbers = _where(numbers >= 0, numbers)  # those of NaN were -1 before
        return cls(numbers.reshape(shape), ids)


def _where(condition: Any, numbers: Any) -> Any:
    """Return numbers, and -1 where the condition is false."""
    if isinstance(numbers, np.ndarray):
        return np.where(condition, numbers, np.int32(-1))
    # On a device by arithmetic: numbers from 0 on, for those of no zone, are multiplied by the condition.
    return (numbers + 1) * condition - 1


def _called(functions: _Functions, numbers: Any, values: Any, number: int) -> dict[str, np.ndarray]:
    """Return the results of functions of the host on the values of each zone."""
    numbers, values = np.asarray(on_host(numbers)).reshape(-1), np.asarray(on_host(values)).reshape(-1)
    if values.dtype.kind == "f":
        numbers = np.where(np.isfinite(values), numbers, -1)
    # A stable sort passes the values of a zone in the raster's order.
    order = np.argsort(numbers, kind="stable")
    begins = np.searchsorted(numbers[order], np.arange(number + 1))
    of_zones = [values[order[begin:end]] for begin, end in pairwise(begins)]
    return {
        name: np.array([function(zone) if zone.size else np.nan for zone in of_zones], np.float64)
        for name, function in functions.items()
    }


def _frame(zones: np.ndarray, statistics: Mapping[Any, Mapping[str, np.ndarray]], selection: np.ndarray | None) -> Any:
    """Return a frame of the statistics of each band, for the zones that are asked for."""
    columns: dict[str, Any] = {"zone": zones}
    for band, of_band in statistics.items():
        columns |= {name if band is None else f"{band}_{name}": column for name, column in of_band.items()}
    frame = pd.DataFrame(columns)
    if selection is None:
        return frame
    chosen = frame[frame["zone"].isin(selection)].reset_index(drop=True)
    return chosen.assign(zone=selection[np.isin(selection, zones)])  # in their dtype, as there


def _raster(cells: _Cells, values: Any, band: Any, request: _Request) -> Any:
    """Return the statistics of the zone of each cell, as an array of xarray."""
    import xarray  # only where it is needed

    statistics = request.of(cells, band)
    numbers = np.asarray(on_host(cells.numbers))
    if request.zones is not None:
        # The appended item serves the number -1 of cells in no zone.
        numbers = np.where(np.append(np.isin(cells.zones, request.zones), False)[numbers], numbers, -1)
    data = np.stack([np.append(column, np.nan)[numbers] for column in statistics.values()])
    like = values if is_labelled(values) else None
    dims = [f"dim_{n}" for n in range(band.ndim)] if like is None else like.dims
    coordinates, attributes = ({}, {}) if like is None else (like.coords, like.attrs)
    return xarray.DataArray(data, {"stats": [*statistics], **coordinates}, ("stats", *dims), attrs=attributes)


def _frame_of_blocks(zones: Any, bands: dict[Any, Any], request: _Request) -> Any:
    """Return a frame of Dask's, of one part, for which blocks are computed one by one."""
    import dask.array as da  # only where they are needed
    import dask.dataframe as dd
    from dask import delayed

    from clhist.dask.groups import GroupBy as GroupsOfBlocks

    if request.functions is not None:
        raise ValueError("stats_funcs: expected names, since values is chunked, got functions")
    for name in request.names:
        if not TABLE[_AS.get(name, name)].merges:
            raise ValueError(
                f"stats_funcs: expected what blocks can be merged to, since values is chunked, got {name!r}"
            )
    area, dtype = _without_masks(zones), zones.dtype
    columns: dict[str, Any] = {}
    for n, band in enumerate(bands.values()):
        data = _without_masks(band).rechunk(area.chunks)
        is_counted = da.isfinite(data)
        if request.nodata is not None:
            is_counted &= data != request.nodata
        # Statistics skip NaN; integers become floats for that only if there is a nodata value.
        if request.nodata is not None or data.dtype.kind == "f":
            data = da.where(is_counted, data, np.nan)
        columns[f"band{n}"] = (data, *dict.fromkeys(["count", *request.names]))
    groups = GroupsOfBlocks(da.where(da.isfinite(area), area, np.nan) if area.dtype.kind == "f" else area)
    statistics = groups.agg(**columns, dtype=np.float64)

    def finished(zones: np.ndarray, computed: dict[str, dict[str, np.ndarray]]) -> Any:
        of_bands = {
            band: {
                name: np.where(of_band["count"] > 0, of_band[name].astype(np.float64), np.nan) for name in request.names
            }
            for band, of_band in zip(bands, computed.values(), strict=True)
        }
        return _frame(zones.astype(dtype), of_bands, request.zones)

    nothing = {band: dict.fromkeys(request.names, np.empty(0)) for band in bands}
    like = _frame(np.empty(0, dtype), nothing, None)
    return dd.from_delayed([delayed(finished)(groups.keys, statistics)], meta=like, verify_meta=False)


def _without_masks(array: Any) -> Any:
    """Return an array as Dask's, NaN where it is masked."""
    import dask.array as da  # only where they are needed

    if isinstance(array, np.ma.MaskedArray):
        array = np.ma.filled(array.astype(np.float64), np.nan)
    blocks = da.asarray(array)
    if isinstance(blocks._meta, np.ma.MaskedArray):  # noqa: SLF001  # what Dask says of the blocks
        return da.ma.filled(blocks.astype(np.float64), np.nan)
    return blocks


def _data(name: str, value: Any) -> Any:
    """Return the array that one of xarray holds, or an array as it is."""
    data = value.data if is_labelled(value) else value
    if is_device_array(data):
        check_layout(name, data)
    if is_device_array(data) or _is_dask(data):
        return data
    array, missing = split(name, data)
    if array.dtype == object:
        raise TypeError(f"{name}: expected an array of NumPy, Dask or PyOpenCL, got {type(value).__name__}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if missing is None else np.ma.array(array, mask=missing)


def _bands(values: Any, zones: Any) -> dict[Any, Any]:
    """Return the array of each band by its name; a single one has none."""
    if hasattr(values, "data_vars"):
        bands = {name: _data("values", values[name]) for name in values.data_vars}
        if not bands:
            raise ValueError("values: expected a dataset with variables, got one without")
    else:
        data = _data("values", values)
        bands = {None: data}
        if len(data.shape) == len(zones.shape) + 1:
            first = values.dims[0] if is_labelled(values) else None
            names = values[first].values.tolist() if first in getattr(values, "coords", ()) else range(data.shape[0])
            bands = {name: data[n] for n, name in enumerate(names)}
    for name, band in bands.items():
        argument = "values" if name is None else f"values[{name!r}]"
        if tuple(band.shape) != tuple(zones.shape):
            raise ValueError(f"{argument}: expected shape {tuple(zones.shape)} as of zones, got {tuple(band.shape)}")
        _check_real(argument, band)
    return bands


def _check_real(name: str, array: Any) -> None:
    if number_of(array.dtype).kind not in "iuf":
        raise ValueError(f"{name}: expected integers or floats, got {array.dtype}")


def _functions(functions: Any) -> tuple[list[str], _Functions | None]:
    """Return the names of what is asked for, and functions of the user's."""
    if isinstance(functions, Mapping):
        for name, function in functions.items():
            if not callable(function):
                raise ValueError(f"stats_funcs: expected functions, got {function!r:.60} as {name!r}")
        return [*map(str, functions)], functions
    if isinstance(functions, str) or not isinstance(functions, Sequence):
        raise ValueError(f"stats_funcs: expected a sequence of names or a dict of functions, got {functions!r:.60}")
    for name in functions:
        if name not in _KNOWN:
            raise ValueError(f"stats_funcs: expected some of {', '.join(_KNOWN)}, got {name!r:.60}")
    return [*functions], None


def _identifiers(value: Any) -> np.ndarray | None:
    if value is None:
        return None
    ids = np.unique(refuse_missing("zone_ids", value))
    # pandas supports native byte order only.
    ids = ids.astype(ids.dtype.newbyteorder("="))
    if ids.dtype.kind not in "iuf" and ids.size:
        raise ValueError(f"zone_ids: expected numbers, got {ids.dtype}")
    return ids


def _number(value: Any) -> float | None:
    if value is not None and (np.ndim(value) or not isinstance(value, int | float | np.number)):
        raise ValueError(f"nodata_values: expected a number, got {value!r:.60}")
    return None if value is None else value.item() if isinstance(value, np.number) else value


def _is_dask(array: Any) -> bool:
    return hasattr(array, "dask") and hasattr(array, "chunks")
