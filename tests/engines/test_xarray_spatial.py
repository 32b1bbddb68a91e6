"""Zones as xarray-spatial has them: DataArrays of NumPy and Dask, and its own tests with our function in its place."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import xrspatial
from peers import run_tests

from clhist.zonal import zonal_stats

PLUGIN = """
import xrspatial
import xrspatial.zonal

import clhist.zonal

xrspatial.zonal.stats = xrspatial.zonal_stats = clhist.zonal.zonal_stats
"""


@pytest.fixture
def rasters(rng):
    zones = xr.DataArray(rng.integers(0, 20, (60, 70)).astype(float), dims=("y", "x"), attrs={"crs": "EPSG:3857"})
    values = xr.DataArray(rng.integers(-9, 9, (60, 70)).astype(np.float32), dims=("y", "x"), attrs={"unit": "m"})
    zones[0, :5], zones[1, :3] = np.nan, np.inf
    values[2, :9], values[3, 3] = np.nan, np.inf
    return zones, values.where(zones != 7).assign_coords(y=np.arange(60), x=np.arange(70))


@pytest.mark.parametrize(
    "options",
    [{}, {"nodata_values": 3}, {"zone_ids": [3, 5, 99]}, {"stats_funcs": ["mean"]}, {"stats_funcs": {"a": np.ptp}}],
    ids=["all", "nodata", "some", "mean", "functions"],
)
@pytest.mark.parametrize("return_type", ["pandas.DataFrame", "xarray.DataArray"])
def test_as_xarray_spatial(options, return_type, rasters):
    ours, theirs = (f(*rasters, **options, return_type=return_type) for f in (zonal_stats, xrspatial.zonal_stats))
    compare = pd.testing.assert_frame_equal if return_type == "pandas.DataFrame" else xr.testing.assert_allclose
    compare(ours, theirs, rtol=1e-5)
    if return_type == "xarray.DataArray":
        xr.testing.assert_identical(ours.coords.to_dataset(), theirs.coords.to_dataset())
        assert ours.attrs == theirs.attrs


def test_datasets_and_bands(rasters):
    zones, values = rasters
    bands = xr.concat([values, values * 2], xr.DataArray(["red", "blue"], dims="band"))
    expected = xrspatial.zonal_stats(zones, bands.to_dataset("band"), stats_funcs=["mean", "count"])
    for given in (bands.to_dataset("band"), bands):
        found = zonal_stats(zones, given, stats_funcs=["mean", "count"])
        pd.testing.assert_frame_equal(found, expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"^return_type: "):
        zonal_stats(zones, bands.to_dataset("band"), return_type="xarray.DataArray")


@pytest.mark.parametrize("options", [{}, {"nodata_values": 3}, {"zone_ids": [3, 5, 99]}], ids=str)
def test_chunks(options, rasters):
    zones, values = rasters
    found = zonal_stats(zones.chunk(x=20), values.chunk(y=25), **options)
    expected = zonal_stats(zones, values, **options).drop(columns="majority")
    pd.testing.assert_frame_equal(found.compute(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"^stats_funcs: expected what blocks can be merged to.*got 'median'"):
        zonal_stats(da.from_array(zones.values, 30), values.values, stats_funcs=["median"])
    with pytest.raises(ValueError, match=r"^return_type: .* chunked"):
        zonal_stats(zones.chunk(x=20), values, return_type="xarray.DataArray")


def test_its_own_tests():
    assert run_tests(PLUGIN, "-k", "stats", "--pyargs", "xrspatial.tests.test_zonal")["passed"] >= 17
