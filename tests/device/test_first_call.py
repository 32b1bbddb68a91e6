"""A first call compiles few programs: those of a CPU have the second stages of all their outputs."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from processes import run_python

import clhist
from clhist import HistogramKernel, operators
from clhist._core.opencl.device import default_device, default_queue, device_kind
from clhist._core.opencl.new_arrays import to_device
from clhist._core.opencl.program import build, programs_built
from clhist.grouped import numbering

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


def test_operators_whose_functions_name_their_types(context):
    """The second stage uses the structs of the sweep, whose functions take and return them."""
    groups, before = clhist.group_by(KEYS, num_groups=97), programs_built()
    places, first = groups.argmax(VALUES), groups.first(VALUES)
    sums = groups.sum(VALUES, reproducible=True)
    if device_kind(context.devices[0]) == "cpu":
        assert programs_built() - before == 3  # one of each
    np.testing.assert_array_equal(places, by_group(np.argmax) * 97 + np.arange(97))
    np.testing.assert_array_equal(first, by_group(lambda values: values[0]))
    np.testing.assert_allclose(sums, by_group(np.sum), rtol=1e-6, atol=1e-6)


def test_custom_operator(context):
    indices, values = np.arange(1 << 20) % 7, np.ones(1 << 20)
    indices[::2], values[::2] = -1, np.nan  # no bin, so that the operator need not be defined on these values
    operator = clhist.Operator(np.float64, "a > b ? a : b", -np.inf)
    before = programs_built()
    np.testing.assert_array_equal(clhist.reduce_by_index(7, operator, indices, values), np.ones(7))
    # Programs of the sweep, which combines copies on CPUs, and of the check of the operator.
    assert programs_built() - before == (2 if device_kind(context.devices[0]) == "cpu" else 3)


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


WITHOUT_LIBRARIES_OF_THE_HOST = """
    import numpy as np

    keys, values = np.arange(1_000_000) % 97, np.ones(1_000_000)
    clhist.unique(keys, queue=clhist.default_queue())
    clhist.group_by(keys, queue=clhist.default_queue()).sum(values)
    clhist.stats.binned_statistic(values, values, "mean", 9, queue=clhist.default_queue())
    print(sorted({"pandas", "pyarrow", "scipy.stats"} & set(sys.modules)))
"""


def test_libraries_of_the_host_are_not_imported_for_calls_on_a_device():
    assert run_python(WITHOUT_LIBRARIES_OF_THE_HOST) == "[]\n"


# Calls that the host computes, in processes without a device, and the results to expect.
SMALL = {
    "bincount": ("clhist.bincount(k)", "np.bincount(k)"),
    "bincount of a list": ("clhist.bincount(k.tolist(), v.tolist(), 60)", "np.bincount(k, v, 60)"),
    "bincount of masked": ("clhist.bincount(np.ma.array(k, mask=k > 5))", "np.bincount(k[k <= 5])"),
    "bincount, out": ("clhist.bincount(k, out=np.empty(50, np.intp))", "np.bincount(k)"),
    "histogram": ("clhist.histogram(v)[0]", "np.histogram(v)[0]"),
    "histogram of a list": ("clhist.histogram(v.tolist(), [0, 0.1, 1])[0]", "np.histogram(v, [0, 0.1, 1])[0]"),
    "histogram, weights": ("clhist.histogram(v, weights=v)[0]", "np.histogram(v, weights=v)[0]"),
    "histogram of float16": ("clhist.histogram(h, [0, 0.1, 1])[0]", "np.histogram(h.astype('f4'), [0, 0.1, 1])[0]"),
    "histogram, density": ("clhist.histogram(v, density=True)[0]", "np.histogram(v, density=True)[0]"),
    "histogram2d": ("clhist.histogram2d(v, v)[0]", "np.histogram2d(v, v)[0]"),
    "histogramdd": ("clhist.histogramdd(np.stack([v, v], 1))[0]", "np.histogramdd(np.stack([v, v], 1))[0]"),
    "histogram_bin_edges": ("clhist.histogram_bin_edges(v, 'fd')", "np.histogram_bin_edges(v, 'fd')"),
    "reduce_by_index": ("clhist.reduce_by_index(50, 'sum', k, v)", "np.bincount(k, v)"),
    "reduce_by_index, ufunc": ("clhist.reduce_by_index(np.zeros(50), np.add, k, v)", "np.bincount(k, v)"),
    "reduce_by_index of lists": ("clhist.reduce_by_index(50, 'max', [3, 3], [1.0, 2.0])[3]", "2.0"),
    "reduce_by_index, count": ("clhist.reduce_by_index(50, 'count', k, 1)", "np.bincount(k)"),
    "reduce_by_index, mean": ("clhist.reduce_by_index(50, 'mean', k, v)", "np.bincount(k, v) / np.bincount(k)"),
    "unique": ("clhist.unique(k)", "np.unique(k)"),
    "unique, counts": ("clhist.unique(v, return_counts=True)[1]", "np.unique(v, return_counts=True)[1]"),
    "unique of texts": ("clhist.unique(k.astype(str)) == np.unique(k.astype(str))", "np.ones(50, bool)"),
    "factorize": ("np.take(clhist.factorize(k)[1], clhist.factorize(k)[0])", "k"),
    "digitize": ("clhist.digitize(v, [0.1, 0.5])", "np.digitize(v, [0.1, 0.5])"),
    "groups": (
        "list(clhist.group_by(k).agg(x=(v, 'sum', 'mean', 'std', 'min', 'median', 'nunique'))['x'].values())",
        "[[f(v[k == g]) for g in range(50)] for f in (np.sum, np.mean, np.std, np.min, np.median, np.size)]",
    ),
    "groups by two keys": ("clhist.group_by([k, k % 2]).max(v)", "[v[k == g].max() for g in range(50)]"),
    "groups by text": ("clhist.group_by(k.astype(str)).size()", "np.unique(k.astype(str), return_counts=True)[1]"),
    "quantiles": (
        "clhist.group_by(k).quantile(v, [0.1, 0.9])",
        "np.transpose([np.quantile(v[k == g], [0.1, 0.9]) for g in range(50)])",
    ),
    "transform": ("clhist.group_by(k).transform(v, 'sum')", "np.bincount(k, v)[k]"),
    "running": ("clhist.group_by(k * 0).cumsum(v)", "np.cumsum(v)"),
    "running of masked": ("clhist.group_by(k * 0).cummax(np.ma.array(v, mask=v < 0))", "np.maximum.accumulate(v)"),
    "rank": ("clhist.group_by(k * 0).rank(v)", "v.argsort().argsort() + 1"),
    "nth": ("clhist.group_by(k).nth(v, 1)", "[v[k == g][1] for g in range(50)]"),
    "ndimage.mean": ("clhist.ndimage.mean(v, k, np.arange(50))", "np.bincount(k, v) / np.bincount(k)"),
    "ndimage.extrema": ("clhist.ndimage.extrema(v, k, [3])[:2]", "[[v[k == 3].min()], [v[k == 3].max()]]"),
    "stats": (
        "clhist.stats.binned_statistic(v, v, 'sum', 9, (0, 1)).statistic",
        "np.histogram(v, 9, (0, 1), weights=v)[0]",
    ),
    "groups of a table": (
        "clhist.group_by(table(), 'k').agg(x=('v', 'mean'))['x']",
        "table().groupby('k')['v'].mean()",
    ),
    "crosstab": ("clhist.crosstab(table().assign(j=k % 2), 'k', 'j').sum(axis=1)", "np.bincount(k)"),
}
ABSENT = (
    "pyopencl",
    "pytools",
    "clhist._core.opencl.device",
    "clhist._core.runtime.engine",
    "clhist._core.cuda.driver",
    "scipy.stats",
)


def test_few_elements_import_neither_pyopencl_nor_the_engine():
    run_python(
        f"""
        import numpy as np
        rng = np.random.default_rng(0)
        k, v = rng.integers(0, 50, 1000), rng.random(1000)
        h = v.astype(np.float16)

        def table():
            import pandas
            return pandas.DataFrame({{"k": k, "v": v}})

        for name, (call, expected) in {SMALL!r}.items():
            np.testing.assert_allclose(eval(call), eval(expected), rtol=1e-12, err_msg=name)
            assert not (there := [each for each in {ABSENT!r} if each in sys.modules]), (name, there)
        """
    )


UNUSED = [
    *(
        f"clhist._core.model.{name}"
        for name in ("batch", "narrow", "packed", "partition", "row_ranges", "rows", "shared", "sort")
    ),
    *("clhist._core.kernels.partitions", "clhist._core.kernels.rows", "clhist._core.opencl.upload"),
    *("clhist._core.opencl.cuda_arrays", "clhist._core.opencl.compiler_log"),
    *(f"clhist._core.runtime.{name}" for name in ("cuda_calls", "cuda_launcher", "cuda_repeats")),
    *(f"clhist._core.runtime.{name}" for name in ("digit_sort", "operator_check", "scan", "sort")),
    *(f"clhist.operators.{name}" for name in ("equivalents", "fixed_point", "names", "narrow", "statistics", "ufuncs")),
]
MOST_MODULES = 90  # of clhist


@pytest.mark.parametrize("size", [300_000, 1_000_000])
def test_a_cpu_counts_without_modules_of_cuda_and_other_strategies(queue, size):
    if device_kind(queue.device) != "cpu":
        pytest.skip("plans of GPUs need other strategies")
    number = run_python(
        f"""
        import numpy as np
        k = np.arange({size}) % 97
        np.testing.assert_array_equal(clhist.bincount(k, queue=clhist.default_queue()), np.bincount(k))
        own = [name for name in sys.modules if name.partition(".")[0] == "clhist"]
        assert "clhist._core.runtime.engine" in own
        unused = {UNUSED!r}
        assert not (there := [n for n in own if n in unused or n.startswith("clhist._core.cuda")]), there
        print(len(own))
        """
    )
    assert int(number) <= MOST_MODULES


FROM_GROUPS = ("cuda.driver", "opencl.cuda_arrays", "runtime.cuda_launcher")


def test_groups_of_a_device_need_no_module_of_cuda(queue):
    if device_kind(queue.device) != "cpu":
        pytest.skip("groups of NumPy arrays import them on an NVIDIA GPU, seen on an H200")
    run_python(
        f"""
        import numpy as np
        k, v = np.arange(300_000) % 97, np.ones(300_000)
        clhist.group_by(k, queue=clhist.default_queue()).agg(x=(v, "mean", "min"))
        assert not (there := [n for n in {FROM_GROUPS!r} if f"clhist._core.{{n}}" in sys.modules]), there
        """
    )


@pytest.mark.parametrize("kind", ["b1", "i1", "u1", "i2", "u4", "i8", "u8"])
@pytest.mark.parametrize("on_host", [True, False])
def test_few_marked_keys_of_a_cpu_are_numbered_without_kernels(queue, monkeypatch, kind, on_host):
    """By the host, whose kernels for it took half of the time of a first `unique`."""
    dtype = np.dtype(kind)
    least = 0 if dtype.kind == "b" else np.iinfo(dtype).max - 60 if dtype.kind == "u" else np.iinfo(dtype).min
    keys = np.random.default_rng(1).integers(0, 2 if dtype.kind == "b" else 50, 5000).astype(dtype)
    keys += np.array(least, dtype)
    made, kernels = [], numbering._kernels
    monkeypatch.setattr(numbering, "_kernels", lambda *key: made.append(key[-1]) or kernels(*key))
    result = numbering.number_keys(keys if on_host else to_device(queue, keys), queue)
    expected, numbers = np.unique(keys, return_inverse=True)
    found = [each if on_host else each.get(queue) for each in (result.keys, result.numbers)]
    np.testing.assert_array_equal(found[0], expected)
    assert found[0].dtype == expected.dtype
    np.testing.assert_array_equal(found[1], numbers)
    assert (True in made) == (device_kind(queue.device) != "cpu")


@pytest.mark.parametrize("call", ["bincount(k, queue=1)", "histogram(k, queue=1)", "digitize(k, [1, 2], queue=1)"])
def test_a_wrong_queue_is_refused_by_the_first_call(call):
    printed = run_python(
        f"""
        import numpy as np
        k = np.arange(10)
        try:
            clhist.{call}
        except TypeError as error:
            print(error)
        """
    )
    assert printed == "queue: expected a pyopencl.CommandQueue or None, got 1\n"


def test_first_calls_of_several_threads():
    """The modules for devices are imported by several threads at the same time."""
    run_python(
        """
        import threading
        import numpy as np
        k = np.arange(300_000) % 97
        start, wrong = threading.Barrier(4), []

        def count(function, expected):
            start.wait()
            if not np.array_equal(function(), expected):
                wrong.append(function)

        calls = [
            (lambda: clhist.bincount(k), np.bincount(k)),
            (lambda: clhist.bincount(k[:100]), np.bincount(k[:100])),
            (lambda: clhist.histogram(k, 97)[0], np.histogram(k, 97)[0]),
            (lambda: clhist.bincount(k, minlength=100), np.bincount(k, minlength=100)),
        ]
        threads = [threading.Thread(target=count, args=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong and len(calls) == 4
        """
    )
