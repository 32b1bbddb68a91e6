"""A first call compiles few programs: those of a CPU have the second stages of all their outputs."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from processes import run_python

import clhist
from clhist import HistogramKernel, operators
from clhist._core.opencl.device import default_device, default_queue, device_kind
from clhist._core.opencl.program import build, programs_built

KEYS = np.arange(5003) % 97
VALUES = np.random.default_rng(5).normal(size=KEYS.size).astype(np.float32)


def by_group(function, values=VALUES):
    return np.array([function(values[k].astype(np.float64)) for k in (np.flatnonzero(g == KEYS) for g in range(97))])


@pytest.fixture
def context(queue):
    """A context in which nothing has been built, as the one of calls without a queue."""
    with default_device(queue.device):
        yield default_queue().context


def test_statistics_of_groups(context):
    before = programs_built()
    more = VALUES[::-1].copy()
    found = clhist.group_by(KEYS).agg(
        mean=(VALUES, "mean"), std=(VALUES, "std"), std_of_more=(more, "std"), min=(VALUES, "min"), sum=(more, "sum")
    )
    if device_kind(context.devices[0]) == "cpu":
        assert programs_built() - before == 2  # of the first sweep, and of that of the deviations from the means
    expected = {
        "mean": by_group(np.mean),
        "std": by_group(np.std),
        "std_of_more": by_group(np.std, more),
        "min": by_group(np.min),
        "sum": by_group(np.sum, more),
    }
    for name, values in expected.items():
        (statistic,) = found[name]
        np.testing.assert_allclose(found[name][statistic], values, rtol=1e-5, atol=1e-5)


OPERATORS = {
    "first": operators.argmax(np.float32),
    "plain": operators.add(np.float64),
    "variance": operators.variance(np.float64),
    "again": operators.variance(np.float64),
    "other": operators.variance(np.float64, ddof=1),
    "same": operators.argmax(np.float32),
}


def test_operators_with_types_and_functions_of_the_same_names(context):
    """Structs of the same fields, operators twice, C before operators that names their types."""
    emit = "EMIT_first(g, ((value_first_t){v[i], (int)i})); EMIT_same(g, ((value_same_t){v[i], (int)i}));" + "".join(
        f"EMIT_{name}(g, v[i]);" for name in ("plain", "variance", "again", "other")
    )
    kernel = HistogramKernel(
        context, OPERATORS, arguments="const int *k, const float *v", map=f"const int g = k[i]; {emit}"
    )
    found = kernel(KEYS.astype(np.int32), VALUES, num_bins=97)
    positions = by_group(np.argmax) * 97 + np.arange(97)
    for name in ("first", "same"):
        np.testing.assert_array_equal(found[name]["value"], by_group(np.max).astype(np.float32), err_msg=name)
        np.testing.assert_array_equal(found[name]["index"], positions, err_msg=name)
    np.testing.assert_allclose(found["plain"], by_group(np.sum), rtol=1e-12, atol=1e-12)
    for name in ("variance", "again"):
        np.testing.assert_allclose(found[name], by_group(np.var), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(found["other"], by_group(lambda x: np.var(x, ddof=1)), rtol=1e-9)


def test_results_of_another_form_than_was_expected(context):
    """An array for each field was; the kernels for whole structs, and with `dest`, come later."""
    operator = operators.argmax(np.float32)
    kernel = HistogramKernel(
        context, {"a": operator, "b": operators.add(np.int32)}, arguments="const int *k, const float *v",
        map="EMIT_a(k[i], ((value_a_t){v[i], (int)i})); EMIT_b(k[i], 1)",
    )  # fmt: skip
    keys = KEYS.astype(np.int32)
    fields = (np.full(97, -np.inf, np.float32), np.full(97, -1, np.int32))
    whole = kernel(keys, VALUES, num_bins=97)
    apart = kernel(keys, VALUES, num_bins=97, dest={"a": fields, "b": np.ones(97, np.int32)})
    np.testing.assert_array_equal(apart["a"][0], whole["a"]["value"])
    np.testing.assert_array_equal(apart["a"][1], whole["a"]["index"])
    np.testing.assert_array_equal(whole["a"]["value"], by_group(np.max).astype(np.float32))
    np.testing.assert_array_equal(whole["b"], np.bincount(KEYS))
    np.testing.assert_array_equal(apart["b"], np.bincount(KEYS) + 1)


def test_a_log_of_what_is_compiled(context, caplog, capfd):
    source = "kernel void clhist_logged(global int *x) { x[0] = 1; }"
    build(context, source)
    assert not caplog.records
    with caplog.at_level(logging.INFO, "clhist"):
        build(context, source)  # was built before
        build(context, f"{source} // again")
    (record,) = caplog.records
    assert record.getMessage().startswith(f"program {programs_built()} for ")
    assert "".join(capfd.readouterr()) == ""


UNUSED = """
    import numpy as np

    keys, values = np.arange(1_000_000) % 97, np.ones(1_000_000)
    clhist.unique(keys, queue=clhist.default_queue())
    clhist.group_by(keys, queue=clhist.default_queue()).sum(values)
    clhist.stats.binned_statistic(values, values, "mean", 9, queue=clhist.default_queue())
    print(sorted({"pandas", "pyarrow", "scipy.stats"} & set(sys.modules)))
"""


def test_libraries_of_the_host_are_not_imported_for_calls_on_a_device():
    assert run_python(UNUSED) == "[]\n"
