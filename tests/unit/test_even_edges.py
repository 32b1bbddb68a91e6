"""Bins of a range that is found: what their kernel is rendered from."""

from __future__ import annotations

import numpy as np
import pytest

from clhist._core.kernel_code import signatures
from clhist._core.keys import from_keys, key_dtype
from clhist.axes.axis import found_axis
from clhist.binned.even_edges import EvenEdgesSpec, render_even_edges

DTYPES = [np.dtype(each) for each in ("f4", "f8", "i1", "u2", "i4", "u4", "i8", "u8")]


def _spec(dtype):
    return EvenEdgesSpec(found_axis(dtype, 10).kind, 64, 256)


@pytest.mark.parametrize("dtype", DTYPES)
def test_edges_follow_the_struct(dtype):
    spec = _spec(dtype)
    for bins in (1, 2, 9, 10, 11, 1000):
        expected = np.linspace(0, 1, bins + 1, dtype=spec.edge)
        assert expected.dtype == np.histogram_bin_edges(np.zeros(1, dtype), bins).dtype
        found = np.zeros(spec.record_count(bins), spec.kind.found_dtype)
        begin = found.dtype.itemsize
        assert 0 <= found.nbytes - begin - expected.nbytes < begin
        found.view(np.uint8)[begin : begin + expected.nbytes] = expected.view(np.uint8)
        np.testing.assert_array_equal(spec.edges(found, bins), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_that_are_finite_and_exact(dtype):
    ends = from_keys(np.array(_spec(dtype).finite, key_dtype(dtype)), dtype)
    if dtype.kind == "f":
        assert ends.tolist() == [np.finfo(dtype).min, np.finfo(dtype).max]
    else:
        info = np.iinfo(dtype)
        assert ends.tolist() == [max(info.min, 1 - 2**53), min(info.max, 2**53 - 1)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_source_has_the_names_of_its_arguments(dtype):
    (parameters,) = signatures(render_even_edges(_spec(dtype))).values()
    arrays = [name for array in ("ends", "keys", "found") for name in (f"{array}_memory", f"{array}_offset")]
    assert [each.name for each in parameters] == [*arrays, "num_bins"]
