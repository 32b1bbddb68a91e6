"""Half precision in collections of Dask."""

import dask.array as da
import ml_dtypes
import numpy as np
import pytest

import clhist

N, BINS = 9000, 31


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_sums(dtype):
    rng = np.random.default_rng(0)
    bins, values = rng.integers(0, BINS, N), rng.normal(size=N).astype(dtype)
    exact, close = np.bincount(bins, values.astype(np.float64)), {"rtol": 1e-2, "atol": 1e-3}
    of_bins, of_values = (da.from_array(each, chunks=4000) for each in (bins, values))
    counted = clhist.bincount(of_bins, weights=of_values, minlength=BINS).compute()
    np.testing.assert_allclose(counted, exact)
    reduced = clhist.reduce_by_index(BINS, "sum", of_bins, of_values).compute()
    assert reduced.dtype == np.float32  # as of arrays
    np.testing.assert_allclose(reduced.astype(np.float64), exact, **close)
    hist = clhist.histogram(of_bins.astype(float), BINS, (0, BINS), weights=of_values)[0].compute()
    assert hist.dtype == dtype
    np.testing.assert_allclose(hist.astype(np.float64), exact, **close)
    np.testing.assert_allclose(clhist.group_by(of_bins, BINS).sum(of_values).compute(), exact, rtol=1e-5, atol=1e-5)
