"""What random calls draw: products whose expected value does not depend on the order."""

from __future__ import annotations

import numpy as np
import pytest

from soak.operators import DrawnOperator, operator_text


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_products_stay_in_range(dtype):
    """A scalar stands for each element, and so is of size 1; in an array there are 20 doublings at most."""
    text = operator_text(DrawnOperator("multiply", (dtype,), 0, "ufunc"), special=False)
    draw = text[text.index("def draw") : text.index("def reference")]
    for seed in range(50):
        given = {"np": np, "dtype": np.dtype(dtype), "rng": np.random.default_rng(seed)}
        exec(draw, given)
        assert np.abs(given["draw"](1)) == 1
        assert np.abs(np.prod(given["draw"](30))) <= 2**20
