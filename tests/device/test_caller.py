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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"passes": 100}, "passes: 100 requested, 7 used: no more than bins"),
        (
            {"work_group_size": 32, "update": "private", "memory_budget": 4 * 8 * 5},
            "work_group_size: 32 requested, 5 used: limited by the number of copies",
        ),
        (
            {"pass_order": "side by side", "copies": 1, "passes": 3, "update": "cas", "bins": 50_000},
            "pass_order: 'side by side' requested, 'in turn' used in global memory",
        ),
    ],
)
def test_choices_that_a_plan_cannot_use_are_said_once(options, says, gpu_like):
    options = dict(options)
    bins = options.pop("bins", 7)
    kernel = HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like)
    x = np.arange(100, dtype=np.int32) % 7
    with pytest.warns(UserWarning, match=f"^{says}$") as caught:
        result = kernel(x, num_bins=bins, **options)
    assert result.tolist() == np.bincount(x, minlength=bins).tolist()
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(x, num_bins=bins, **options)


def test_choices_that_a_plan_uses_warn_of_nothing(gpu_like):
    kernel = HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like)
    x = np.arange(9, dtype=np.int32) % 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A limit on locks holds without locks, an order without a second pass.
        for options in ({"locks": 64}, {"pass_order": "side by side"}, {"memory": "partitioned", "passes": 9}):
            assert kernel(x, num_bins=7, **options).tolist() == np.bincount(x).tolist()
