"""Arrays of half precision, and what sums of them are."""

import ml_dtypes
import numpy as np
import pytest

DTYPES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
EPS = {np.dtype(np.float16): 2.0**-11, np.dtype(ml_dtypes.bfloat16): 2.0**-8}
N, BINS = 20_011, 97

both = pytest.mark.parametrize("dtype", DTYPES, ids=str)
places = pytest.mark.parametrize("place", ["host", "device"])


def every(dtype):
    """Return all numbers of a dtype, NaN of all sorts among them."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def finite(dtype):
    """Return all numbers of a dtype that are neither infinite nor NaN."""
    values = every(dtype)
    with np.errstate(invalid="ignore"):
        return values[np.isfinite(values.astype(np.float32))]


def drawn(dtype, shape=N, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, BINS, shape if isinstance(shape, int) else shape[0]), rng.normal(size=shape).astype(dtype)


def assert_rounded(found, exact, dtype):
    """Assert that sums are what float32 has of the exact ones, rounded to `dtype`."""
    assert found.dtype == dtype
    close = EPS.get(np.dtype(dtype), 0.0) + 1e-5
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=close, atol=1e-4)
