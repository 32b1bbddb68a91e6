"""Statistics of groups by chains of kernels on arrays of CUDA: calls that repeat others only launch."""

import numpy as np
import pytest

import clhist

# Without optimization, kernels that select quantiles take three times as long, more than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

N, BINS = 7000, 77
RNG = np.random.default_rng(5)
ONLY_LAUNCHES = {"cuCtxGetCurrent", "cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyDtoDAsync_v2", "empty"}
# Statistics that chains of kernels compute, of groups and values, and whether they are the same to the bit on the host.
OF_CHAINS = {
    "cumsum": (lambda groups, x: groups.cumsum(x), False),
    "cummax": (lambda groups, x: groups.cummax(x, skipna=False), True),
    "cumcount": (lambda groups, x: groups.cumcount(ascending=False), True),
    "rank": (lambda groups, x: groups.rank(x, "dense", pct=True), True),
    "transform": (lambda groups, x: groups.transform(x, "max"), True),
    "nth": (lambda groups, x: groups.nth(x, -2), True),
    "median": (lambda groups, x: groups.median(x), False),
    "quantile": (lambda groups, x: groups.quantile(x, [0.25, 0.9]), False),
}


@pytest.mark.parametrize("name", OF_CHAINS)
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_chains_of_kernels_only_launch(name, dtype, fake):
    """Groups, values, numbers of groups and shapes change; memory of a chain is new in each call."""
    cuda, cupy = fake
    statistic, is_exact = OF_CHAINS[name]
    compare = np.testing.assert_array_equal if is_exact else np.testing.assert_allclose
    options = {} if is_exact else {"rtol": 1e-12}
    for bins, shape in [(BINS, (N,))] * 5 + [(BINS - 9, (N,)), (BINS, (N // 7, 7)), (BINS, (N,))]:
        keys, x = RNG.integers(0, bins + 3, shape, np.int32), (100 * RNG.random(shape)).astype(dtype)
        on_device = clhist.group_by(cupy.asarray(keys), bins), cupy.asarray(x)
        cuda.calls.clear()
        got = statistic(*on_device)
        calls = {call.split()[0] for call in cuda.calls}
        expected = statistic(clhist.group_by(keys, bins), x)
        assert got.array.dtype == expected.dtype
        compare(got.get(), expected, **options)
    assert calls <= ONLY_LAUNCHES
