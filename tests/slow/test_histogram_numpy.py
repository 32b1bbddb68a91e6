"""NumPy's own tests of its histograms and of `digitize`, with our functions in the place of NumPy's.

The test classes are those of the installed NumPy. Its small arrays are computed by kernels here, not left to NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest

import clhist

histograms = pytest.importorskip("numpy.lib.tests.test_histograms", reason="this NumPy has no tests")
twodim = pytest.importorskip("numpy.lib.tests.test_twodim_base", reason="this NumPy has no tests")
functions = pytest.importorskip("numpy.lib.tests.test_function_base", reason="this NumPy has no tests")

_OURS = ("histogram", "histogram2d", "histogramdd", "histogram_bin_edges", "digitize")


@pytest.fixture(autouse=True)
def our_functions(monkeypatch, on_the_device):
    """Put our functions where NumPy's tests look for them, and leave nothing to NumPy because it is small."""
    for module in (np, histograms, twodim, functions):
        for name in _OURS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(clhist, name))


class TestHistogram(histograms.TestHistogram):
    pass


class TestHistogramOptimBinNums(histograms.TestHistogramOptimBinNums):
    pass


class TestHistogramdd(histograms.TestHistogramdd):
    pass


class TestHistogram2d(twodim.TestHistogram2d):
    test_dispatch = None  # of __array_function__, which is NumPy's alone


class TestDigitize(functions.TestDigitize):
    def test_large_integers_decreasing(self):
        # Expected to fail by NumPy, whose check of the order loses integers beyond 2^53.
        super().test_large_integers_decreasing()
