"""Warnings: what they say, how often, and whose line they point at."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from clhist import HistogramKernel, operators

pytestmark = pytest.mark.usefixtures("without_optimizer")

SUM = operators.add(np.int32)


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({"memory": "global"}, 9),  # work-items
        ({"memory": "local", "update": "native"}, 64),  # of a work-group
        ({"update": "private"}, 9),
        ({"memory": "global", "memory_budget": 4 * 7 * 5}, 5),
    ],
    ids=repr,
)
def test_fewer_copies_than_asked_for_are_said_once(options, made, gpu_like):
    kernel = HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like)
    x = np.arange(9, dtype=np.int32) % 7
    assert kernel.plan(9, 7, copies=100, **options).copies == made  # which shows it, and says nothing
    with pytest.warns(UserWarning, match=rf"^copies: 100 requested, {made} used: limited by ") as caught:
        result = kernel(x, num_bins=7, copies=100, **options)
    assert result.tolist() == np.bincount(x).tolist()
    assert [each.filename for each in caught] == [__file__]  # the caller's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(x, num_bins=7, copies=100, **options)
        kernel(x, num_bins=7, copies=made, **options)
        kernel(x, num_bins=7)
