"""Sums and products of floats of which a part leaves the range of the dtype."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from clhist import reduce_by_index

pytestmark = pytest.mark.usefixtures("with_optimizer")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_that_overflow(dtype, queue):
    """What docs/reliability.md says of sums and products of which a part is out of range; NumPy goes in order."""
    most = np.finfo(dtype).max
    far = dtype(2) ** (np.finfo(dtype).maxexp * 2 // 3)
    sums = {
        (most, most, -most): ({most, inf}, most),
        (-inf, most, most): ({-inf, "nan"}, -inf),
        (inf, most, -most): ({inf}, inf),
        (most, most): ({inf}, inf),
    }
    products = {(0, *[2] * 2000): {0, "nan"}, (far, 1 / far, 1 / far, far): {1, 0, inf, "nan"}, (inf, 0, 1): {"nan"}}
    zeros = np.zeros(2001, np.intp)

    def found(op, values, **options):
        (result,) = reduce_by_index(1, op, zeros[: len(values)], np.array(values, dtype), **options)
        return "nan" if result != result else result

    with np.errstate(all="ignore"):
        for terms, (allowed, exact) in sums.items():
            for values in (terms, terms[::-1], terms[1:] + terms[:1]):
                assert found("sum", values) in allowed
                assert found("sum", values, queue=queue) in allowed
                assert found("sum", values, queue=queue, reproducible=True) == exact
        for factors, allowed in products.items():
            for values in (factors, factors[::-1], factors[1:] + factors[:1]):
                assert found("prod", values) in allowed
                assert found("prod", values, queue=queue) in allowed
