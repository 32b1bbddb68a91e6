"""Other libraries on several workers: flox and xarray, and the recipes of the documentation, where these install."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clhist

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

NAMES = ("sum", "nansum", "prod", "nanprod", "mean", "nanmean", "min", "nanmin", "max", "nanmax", "count", "any", "all")


@pytest.fixture(scope="module")
def flox():
    return pytest.importorskip("flox", reason="flox is not installed")


@pytest.fixture
def data():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 5000))
    x[:, ::17] = np.nan
    return x, rng.integers(0, 12, 5000)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_groupby_reduce(name, flox, data):
    import clhist.flox as ours

    x, labels = data
    for array in (x, x[0], x.astype(np.float32), np.nan_to_num(x * 4).astype(np.int32), x > 0):
        expected = flox.groupby_reduce(array, labels, func=name, engine="numpy")
        found = flox.groupby_reduce(array, labels, func=getattr(ours, name))
        np.testing.assert_array_equal(found[1], expected[1])
        if array.dtype != bool or name[-3:] not in ("min", "max"):  # of which flox makes integers in custom ones
            assert found[0].dtype == expected[0].dtype
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    few = labels // 3
    expected = flox.groupby_reduce(x, few, func=name, expected_groups=np.arange(8), engine="numpy")[0]
    found = flox.groupby_reduce(x, few, func=getattr(ours, name), expected_groups=np.arange(8))[0]
    # Products of so many fall below the least normal number, where digits are lost at each step.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=np.finfo(np.float64).tiny)


WHOLE = [
    f"{nan}{name}" for name in ("var", "std", "argmin", "argmax", "first", "last", "median") for nan in ("", "nan")
]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.filterwarnings("ignore")
def test_statistics_of_whole_groups(name, flox, data):
    import clhist.flox as ours

    x, labels = data
    engine = "flox" if "median" in name else "numpy"
    for array in (x, x[0], x.astype(np.float32), np.nan_to_num(x * 4).astype(np.int32)):
        expected = flox.groupby_reduce(array, labels, func=name, engine=engine)
        found = flox.groupby_reduce(array, labels, func=getattr(ours, name))
        assert found[0].dtype == expected[0].dtype
        if name == "argmax" or name == "argmin":  # in which a NaN wins for NumPy, and flox is not of one mind
            where = np.isnan(array).any() * np.isnan(array)
            rows = np.atleast_2d(np.where(where, -np.inf if name == "argmin" else np.inf, array))
            for row, got in zip(rows, np.atleast_2d(found[0]), strict=True):
                places = [np.flatnonzero(labels == group) for group in range(12)]
                np.testing.assert_array_equal(got, [each[getattr(np, name)(row[each])] for each in places])
        else:
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    groups = np.arange(14)  # two of them empty
    options = {"expected_groups": groups, "finalize_kwargs": {"ddof": 1} if name[-3:] in ("var", "std") else None}
    if "arg" not in name:
        expected = flox.groupby_reduce(x, labels, func=name, engine=engine, **options)[0]
        np.testing.assert_allclose(flox.groupby_reduce(x, labels, func=getattr(ours, name), **options)[0], expected)
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    if name in ("first", "last", "median", "nanmedian"):
        ordered = np.sort(labels)
        ends = np.flatnonzero(np.diff(ordered)) + 1
        chunks = (3, tuple(np.diff([0, *ends[3::4], 5000]).tolist()))
        options = {"method": "blockwise", "expected_groups": np.arange(12)}
    else:
        ordered, chunks, options = labels, (3, 900), {}
    expected = flox.groupby_reduce(np.nan_to_num(x), ordered, func=name, engine=engine)[0]
    given = da.from_array(np.nan_to_num(x), chunks=chunks)
    found = flox.groupby_reduce(given, ordered, func=getattr(ours, name), **options)[0]
    np.testing.assert_allclose(found.compute(scheduler="synchronous"), expected)


def test_an_aggregation_is_no_function(flox):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    import clhist.flox as ours

    array = xarray.DataArray(np.arange(4.0), dims="time", coords={"label": ("time", [0, 1, 0, 1])})
    with pytest.raises(TypeError, match=r"write flox.xarray.xarray_reduce\(data, label, func=clhist.flox.nanmean\)"):
        array.groupby("label").reduce(ours.nanmean)


@pytest.mark.parametrize("name", ["nansum", "nanmean", "nanmax", "nanstd", "count"])
@pytest.mark.filterwarnings("ignore")
def test_on_dask_and_in_bins_and_in_xarray(name, flox, data):
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    import clhist.flox as ours

    x, labels = data
    expected = flox.groupby_reduce(x, labels, func=name, engine="numpy")[0]
    for method in ("map-reduce", "cohorts"):
        found = flox.groupby_reduce(da.from_array(x, chunks=(3, 900)), labels, func=getattr(ours, name), method=method)
        np.testing.assert_allclose(found[0].compute(scheduler="synchronous"), expected)
    by, edges = np.random.default_rng(5).random(5000), np.linspace(0, 1, 9)
    options = {"expected_groups": edges, "isbin": True}
    np.testing.assert_allclose(
        flox.groupby_reduce(x, by, func=getattr(ours, name), **options)[0],
        flox.groupby_reduce(x, by, func=name, engine="numpy", **options)[0],
    )
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    from flox.xarray import xarray_reduce

    array = xarray.DataArray(x, dims=("row", "time"), coords={"label": ("time", labels)})
    found = xarray_reduce(array, "label", func=getattr(ours, name), skipna=None)
    np.testing.assert_allclose(found.values, expected)


def test_parquet_row_groups(tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset", reason="pyarrow is not installed")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    x = np.random.default_rng(0).integers(0, 50, 10_000)
    for k in range(2):
        table = pa.table({"x": x[k * 5_000 : (k + 1) * 5_000]})
        parquet.write_table(table, tmp_path / f"{k}.parquet", row_group_size=700)
    counts = clhist.MultiAccumulator("count", 50)
    batches = dataset.dataset(tmp_path).to_batches(columns=["x"])
    counts.extend((batch["x"].to_numpy(), 1) for batch in batches)
    np.testing.assert_array_equal(counts.result(), np.bincount(x, minlength=50))


@pytest.mark.filterwarnings("ignore")
def test_zarr_chunks(tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    x = np.random.default_rng(0).integers(0, 50, 10_000)
    stored = zarr.open_array(str(tmp_path / "x.zarr"), mode="w", shape=x.shape, chunks=(900,), dtype=x.dtype)
    stored[:] = x
    counts = clhist.Accumulator("count", 50)
    step = stored.chunks[0]
    counts.extend((stored[k : k + step], 1) for k in range(0, stored.shape[0], step))
    np.testing.assert_array_equal(counts.result(), np.bincount(x, minlength=50))


MPI = """
import numpy as np
from mpi4py import MPI
import clhist

comm = MPI.COMM_WORLD
spec = clhist.Spec("argmax", 50, dtype=np.float64)
rng = np.random.default_rng(0)
k, x = rng.integers(0, 50, 30_000), rng.random(30_000)
begin, end = (len(k) * (comm.rank + n) // comm.size for n in (0, 1))
part = spec.partial(k[begin:end], x[begin:end], start=begin)
whole = comm.reduce(part, op=lambda one, other: clhist.merge([one, other]))
if comm.rank == 0:
    expected = clhist.reduce_by_index(50, "argmax", k, x)
    assert (spec.result(whole) == expected).all() and whole.positions == ((0, 30_000),)
    print("ranks", comm.size)
"""


def test_mpi(tmp_path):
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:/usr/bin:/usr/local/bin")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    if mpirun is None:
        pytest.skip("mpirun is not installed")
    (tmp_path / "job.py").write_text(MPI)
    command = [mpirun, "-n", "3", sys.executable, str(tmp_path / "job.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.stdout.strip() == "ranks 3", run.stderr


def test_ray():
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.data.aggregate import AggregateFnV2

    spec = clhist.Spec("count", 50)

    class Counts(AggregateFnV2):
        def __init__(self, on):
            super().__init__("counts", spec.empty, on=on, ignore_nulls=True)

        def aggregate_block(self, block):
            return spec.partial(block[self._target_col_name].to_numpy(), 1)

        def combine(self, one, other):
            return clhist.merge([one, other])

        def finalize(self, whole):
            return spec.result(whole).tolist()

    x = np.random.default_rng(0).integers(0, 50, 10_000)
    found = ray.data.from_numpy(x, column="x").aggregate(Counts("x"))
    np.testing.assert_array_equal(found["counts"], np.bincount(x, minlength=50))
