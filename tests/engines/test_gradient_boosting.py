"""scikit-learn's histogram gradient boosting with trees of our growers: its own checks and tests."""

from __future__ import annotations

import numpy as np
import pytest
from peers import run_tests
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier as TheirClassifier
from sklearn.ensemble import HistGradientBoostingRegressor as TheirRegressor
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import clhist
from clhist.boosting import HistGradientBoostingClassifier, HistGradientBoostingRegressor

PLUGIN = """
import sklearn.ensemble
import sklearn.ensemble._hist_gradient_boosting.gradient_boosting
import sklearn.ensemble._hist_gradient_boosting.grower

import clhist.boosting
from clhist.boosting import grower, on_device
from clhist._core.opencl.device import default_queue

modules = [sklearn.ensemble, sklearn.ensemble._hist_gradient_boosting.gradient_boosting]
for module in modules:
    for name in ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"):
        setattr(module, name, getattr(clhist.boosting, name))
clhist.boosting.estimators.FEWEST_BINS = 0


def grow(X_binned, gradients, hessians, **options):
    rows = on_device.DeviceRows(default_queue(), X_binned, options.get("n_bins", 256), len(hessians) > 1)
    return grower.DeviceTreeGrower(X_binned, gradients, hessians, device_rows=rows, **options)


sklearn.ensemble._hist_gradient_boosting.grower.TreeGrower = grow
"""
pytestmark = pytest.mark.usefixtures("one_thread")
TESTS = "sklearn.ensemble._hist_gradient_boosting.tests.test_"


@pytest.mark.parametrize("estimator", [HistGradientBoostingClassifier, HistGradientBoostingRegressor])
def test_its_checks_of_estimators(estimator):
    device = clhist.default_queue().device.name.strip()
    check_estimator(estimator(max_iter=5, device=device), on_skip=None)


@pytest.mark.parametrize("load", [load_breast_cancer, load_diabetes, load_wine])
def test_accuracy(load):
    x, y = load(return_X_y=True)
    ours, theirs = HistGradientBoostingClassifier, TheirClassifier
    if load is load_diabetes:
        ours, theirs = HistGradientBoostingRegressor, TheirRegressor
    options = {"max_iter": 30, "max_leaf_nodes": 15}
    device = {"device": clhist.default_queue().device.name.strip()}
    found, expected = (
        np.array([cross_val_score(of(**given, random_state=seed), x, y, cv=3).mean() for seed in range(3)])
        for of, given in ((ours, options | device), (theirs, options))
    )
    assert np.abs(found.mean() - expected.mean()) < 0.01


def test_its_own_tests():
    modules = [f"{TESTS}{name}" for name in ("gradient_boosting", "grower", "monotonic_constraints", "warm_start")]
    different = [
        "test_sum_hessians_are_sample_weight",  # asks the grower for histograms, which are on the device
        "test_grow_tree",  # looks at rows of nodes before the tree has grown
        "test_early_stopping_with_sample_weights",  # replaces a global name of the module that `fit` was made from
    ]
    # A weight of 2 is rounded once and two rows are twice, so predictions may differ there, or not.
    chosen = ["-k", "not (test_sample_weight_effect and regression)"]
    assert run_tests(PLUGIN, *chosen, "--pyargs", *modules, different=different)["passed"] > 200
