"""Bins by NumPy's rules of arrays of the host and of the device: NumPy's, however the rule is computed."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.opencl.device import device_kind
from clhist.binned import rules, selection

# Without optimization, kernels that select quartiles take twice as long, more than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

RNG = np.random.default_rng(11)
N = 3000
DATA = {
    "normal": RNG.normal(size=N) * 1000,
    "ties": RNG.integers(-3, 4, N) * 1.0,
    "outliers": np.append(RNG.random(N - 3), [-900, 1e3, 0.5]),
    "constant": np.full(N, 7.0),
    "sorted": np.arange(N) * 0.25 - 99,
    "five": np.array([3.0, -1.0, 8.0, 2.0, 2.0]),
    "three": np.array([3.0, -1.0, 8.0]),
    "one": np.array([-5.0]),
}


def check(x, rule, ends, **options):
    counts, edges = clhist.histogram(x, rule, ends, **options)
    host = x.get() if isinstance(x, cl_array.Array) else x
    expected, expected_edges = np.histogram(host, rule, ends)
    np.testing.assert_array_equal(edges, expected_edges)
    assert edges.dtype == expected_edges.dtype
    np.testing.assert_array_equal(counts.get() if isinstance(counts, cl_array.Array) else counts, expected)


@pytest.mark.parametrize("many", [0, 2**30], ids=["digits of many", "digits of few"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_quartiles_are_selected_exactly(dtype, many, queue, monkeypatch):
    monkeypatch.setattr(selection, "_MANY", many)
    monkeypatch.setattr(rules, "_MANY_OF_HOST", 0)
    for data in DATA.values():
        x = data.astype(dtype)
        for ends in (None, (-2, 900)):
            for rule in ("fd", "auto"):
                check(x, rule, ends, queue=queue)
            check(cl_array.to_device(queue, x), "fd", ends)


@pytest.mark.parametrize("rule", ["sturges", "sqrt", "rice", "scott", "doane"])
def test_other_rules_of_the_host_are_numpys(rule, queue, monkeypatch):
    """Moments of the device are not added up in NumPy's order."""
    monkeypatch.setattr(rules, "_MANY_OF_HOST", 0)
    for data in DATA.values():
        check(data, rule, None, queue=queue)
    if device_kind(queue.device) == "cpu":
        assert not rules.has_quick_rule(DATA["normal"], rule, queue)


def test_the_call_with_the_number_of_bins_is_repeated(queue):
    """Other data has another number of bins; also with a mask, a shape and an `out`."""
    for n in range(5):
        x = RNG.normal(size=(N + 40 * n, 3))
        for rule in ("fd", "sturges"):
            check(x, rule, None, queue=queue)
            where = x[:, :1] + 0 * x > 0
            counts, edges = clhist.histogram(x, rule, where=where, queue=queue)
            expected = np.histogram(x[where], rule)
            np.testing.assert_array_equal(edges, expected[1])
            np.testing.assert_array_equal(counts, expected[0])
            out = np.zeros(len(edges) - 1, np.intp)
            assert clhist.histogram(x, rule, where=where, out=out, queue=queue)[0] is out
            np.testing.assert_array_equal(out, expected[0])
            with pytest.raises(ValueError, match="out"):
                clhist.histogram(x, rule, out=np.zeros(1, np.intp), queue=queue)
    with pytest.raises(ValueError, match="finite"):
        clhist.histogram(np.append(x, np.nan), "fd", queue=queue)
    with pytest.raises(TypeError, match="weighted"):
        clhist.histogram(x, "fd", weights=x, queue=queue)
