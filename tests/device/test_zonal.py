"""Statistics of zones against pandas', and what is left out of them."""

from __future__ import annotations

import cuda_fake
import numpy as np
import pandas as pd
import pyopencl.array as cl_array
import pytest

from clhist.zonal import zonal_stats

pytestmark = pytest.mark.usefixtures("without_optimizer")

NAMES = ["mean", "max", "min", "sum", "std", "var", "count", "majority", "median", "nunique"]


def expected(zones, values, names=NAMES, nodata=None):
    """Return what pandas makes of the values that count."""
    zones, values = zones.ravel(), values.ravel()
    counts = np.isfinite(values) & (values != nodata)
    every = np.unique(zones[np.isfinite(zones)])
    of = pd.Series(values[counts].astype(np.float64)).groupby(zones[counts])
    own = {
        "std": lambda: of.std(ddof=0),
        "var": lambda: of.var(ddof=0),
        "majority": lambda: of.agg(lambda x: x.mode().iloc[0]),
    }
    columns = {name: (own[name] if name in own else getattr(of, name))().reindex(every) for name in names}
    found = pd.DataFrame(columns).astype(np.float64)
    return found.rename_axis("zone").reset_index().astype({"zone": zones.dtype})


def drawn(rng, zones, values):
    area = rng.integers(-3, 20, (60, 71)).astype(zones)
    data = rng.integers(0, 40, area.shape).astype(values)
    if area.dtype.kind == "f":
        area[0, :3] = np.nan, np.inf, -np.inf
    if data.dtype.kind == "f":
        data[1, :9], data[2, 2], data[3, 3] = np.nan, np.inf, -np.inf
        data[area == 7] = np.nan
    return area, data


@pytest.mark.parametrize("values", ["i4", "u1", "f4", "f8"])
@pytest.mark.parametrize("zones", ["i8", "i2", "f4", "f8"])
def test_as_pandas(zones, values, rng):
    area, data = drawn(rng, zones, values)
    before = area.copy(), data.copy()
    for nodata in (None, 3):
        found = zonal_stats(area, data, stats_funcs=NAMES, nodata_values=nodata)
        pd.testing.assert_frame_equal(found, expected(area, data, nodata=nodata), rtol=1e-12)
    np.testing.assert_array_equal(area, before[0])
    np.testing.assert_array_equal(data, before[1])


def test_chosen_zones_and_functions(rng):
    area, data = drawn(rng, "i4", "f4")
    of_all = zonal_stats(area, data)
    assert of_all.columns.tolist() == ["zone", *NAMES[:8]]
    found = zonal_stats(area, data, [5, 1, 99])
    assert found["zone"].tolist() == [1, 5]
    pd.testing.assert_frame_equal(
        found.iloc[:, 1:], of_all[of_all["zone"].isin([1, 5])].iloc[:, 1:].reset_index(drop=True)
    )
    called = zonal_stats(area, data, stats_funcs={"largest": np.max, "range": np.ptp})
    np.testing.assert_array_equal(called["largest"], of_all["max"])
    np.testing.assert_array_equal(called["range"], of_all["max"] - of_all["min"])
    assert zonal_stats(area, data, []).shape == (0, 9)


def test_bands(rng):
    area, data = drawn(rng, "i4", "f4")
    bands = np.stack([data, data * 2])
    found = zonal_stats(area, bands, stats_funcs=["mean", "count"])
    assert found.columns.tolist() == ["zone", "0_mean", "0_count", "1_mean", "1_count"]
    np.testing.assert_array_equal(found["1_mean"], found["0_mean"] * 2)


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (7,), (3, 4, 5)])
def test_shapes(shape, rng):
    area, data = rng.integers(0, 3, shape), rng.normal(size=shape)
    found = zonal_stats(area, data, stats_funcs=["sum", "count"])
    assert found["zone"].tolist() == np.unique(area).tolist()
    assert found["count"].sum() == area.size


def test_arrays_of_a_device(queue, rng):
    area, data = drawn(rng, "i4", "f4")
    names = [name for name in NAMES if name != "nunique"]
    of_host = zonal_stats(area, data, stats_funcs=names, nodata_values=3)
    found = zonal_stats(*(cl_array.to_device(queue, each) for each in (area, data)), None, names, 3)
    pd.testing.assert_frame_equal(found, of_host)


@pytest.mark.filterwarnings("ignore:.*goes through the host")
def test_arrays_of_cuda(monkeypatch, rng):
    _, cupy = cuda_fake.install(monkeypatch)
    area, data = drawn(rng, "i4", "f4")
    found = zonal_stats(cupy.asarray(area), cupy.asarray(data), stats_funcs=NAMES)
    pd.testing.assert_frame_equal(found, zonal_stats(area, data, stats_funcs=NAMES))


WRONG = {
    "return_type: expected": {"return_type": "numpy"},
    r"values: expected shape \(60, 71\) as of zones": {"values": np.zeros(3)},
    "values: expected integers or floats, got complex128": {"values": np.zeros((60, 71), complex)},
    "zones: expected an array of NumPy, Dask or PyOpenCL, got list": {"zones": [object()]},
    "zones: expected integers or floats, got <U1": {"zones": np.full((60, 71), "a")},
    "stats_funcs: expected some of .*majority.*, got 'mode of'": {"stats_funcs": ["mode of"]},
    "stats_funcs: expected a sequence": {"stats_funcs": "mean"},
    "stats_funcs: expected functions, got 3 as 'a'": {"stats_funcs": {"a": 3}},
    "nodata_values: expected a number": {"nodata_values": "0"},
    "zone_ids: expected numbers": {"zone_ids": ["a"]},
    "return_type: expected 'pandas.DataFrame', since values has several bands": {
        "values": np.zeros((2, 60, 71)), "return_type": "xarray.DataArray",
    },
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message, rng):
    area, data = drawn(rng, "i4", "f4")
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        zonal_stats(**{"zones": area, "values": data, **WRONG[message]})
