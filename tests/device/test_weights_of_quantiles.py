"""Types of weights and values that quantiles take, and refuse by name."""

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import stats

pytestmark = pytest.mark.usefixtures("without_optimizer")

X = np.array([1.0, 0.0, 1.0])


def test_weights_of_half_precision():
    half = stats.binned_statistic(X, X, "quantile", bins=2, q=0.5, weights=X.astype(np.float16))
    np.testing.assert_array_equal(half.statistic, [np.nan, 1.0])


def test_extended_precision_is_refused_by_name():
    with pytest.raises(TypeError, match=r"^weights: OpenCL has no type"):
        stats.binned_statistic(X, X, "quantile", bins=2, q=0.5, weights=X.astype(np.longdouble))


@pytest.mark.parametrize("name", ["values", "weights"])
def test_device_arrays_of_the_other_byte_order_are_refused_by_name(queue, name):
    x, other = cl_array.to_device(queue, X), cl_array.to_device(queue, X.astype(X.dtype.newbyteorder()))
    given = {"values": x, "weights": x} | {name: other}
    with pytest.raises(TypeError, match=f"^{name}: expected"):
        stats.binned_statistic(x, given["values"], "quantile", bins=2, q=0.5, weights=given["weights"])
    groups = clhist.group_by(cl_array.to_device(queue, np.array([0, 1, 1])))
    with pytest.raises(TypeError, match=f"^{'x' if name == 'values' else name}: expected"):
        groups.quantile(given["values"], 0.5, weights=given["weights"])


def test_elements_with_masked_weights_are_skipped():
    weights = np.ma.array(X, mask=[True, False, False])
    options = {"bins": 2, "range": (X.min(), X.max()), "q": 0.5}
    found = stats.binned_statistic(X, X, "quantile", weights=weights, **options)
    expected = stats.binned_statistic(X[1:], X[1:], "quantile", weights=X[1:], **options)
    np.testing.assert_array_equal(found.statistic, expected.statistic)


def test_messages_of_refused_weights_have_one_line():
    weights = np.arange(500.0)
    groups = clhist.group_by(np.zeros(500, int))
    with pytest.raises(TypeError, match=r"^weights: expected none for dates and durations, got .{1,60}$"):
        groups.quantile(weights.astype("m8[s]"), 0.5, weights=weights)
