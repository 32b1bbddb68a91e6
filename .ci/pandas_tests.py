"""pandas' own tests of groupby with our statistics and numbers of keys in the place of its own, on the device.

    python .ci/pandas_tests.py

Its wheels hold its tests. Statistics, running sums, ranks, quantiles and places of integers, floats and dates by
`clhist.GroupBy`; numbers of keys and of combinations of several by `clhist.factorize`. All else, and what is made of
the results, stays pandas': values with a mask (its nullable types), objects and strings, complex numbers, float16,
initial values, `ohlc`, ranks with `na_option` other than "keep", `skipna=False` of positions and running sums,
quantiles without interpolation. A test that fails must be one of `DIFFERENT`.

Left out, since hardly anything of theirs would be ours: `test_numba` (other engines), `test_libgroupby` (calls pandas'
compiled functions), `test_api`, `test_raises`, `test_pipe`, `test_sparse`, `test_index_as_string`,
`test_groupby_subclass`, `methods.test_sample`, `test_bin_groupby` (bins are not keys).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

MODULES = """
    test_reductions test_missing test_numeric_only test_groupby_dropna aggregate.test_aggregate aggregate.test_cython
    aggregate.test_other test_counting test_groupby test_grouping methods.test_nth methods.test_quantile
    transform.test_transform test_cumulative test_all_methods test_apply test_filters test_categorical test_timegrouper
    test_indexing methods.test_rank methods.test_skew methods.test_kurt methods.test_size methods.test_describe
    methods.test_value_counts methods.test_groupby_shift_diff methods.test_nlargest_nsmallest
"""

# Tests that cannot pass, and why.
DIFFERENT = {
    r"test_groupby_numerical_stability_sum_mean": "pandas compensates sums; ours are exact with reproducible=True",
}

PLUGIN = """
import numpy as np
from pandas.core.arrays import DatetimeArray, TimedeltaArray
from pandas.core.groupby import generic, groupby, grouper, ops

import clhist

QUEUE = clhist.default_queue()  # given, so that small data goes to the device as well
SPREADS = {"var", "std", "sem"}
OF_DATES = {"min", "max", "first", "last"}
OF_NONE = {"sum", "prod"}  # which a group without values has
OF_INTEGERS = OF_NONE | OF_DATES
STATISTICS = OF_INTEGERS | SPREADS | {"mean", "median", "skew", "kurt"}
POSITIONS = {"idxmin": "argmin", "idxmax": "argmax"}
ALONG = {"cumsum", "cumprod", "cummin", "cummax"}
used = dict.fromkeys(("statistics", "numberings", "along"), 0)
theirs = ops.WrappedCythonOp._cython_op_ndim_compat
their_places, their_compress = groupby.GroupBy._cumcount_array, ops.compress_group_index


def is_ours(values):
    return isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.dtype != np.float16


def grouped(ids, number):
    return clhist.group_by(np.asarray(ids), number, queue=QUEUE)


def operation(self, values, *, min_count, ngroups, comp_ids, mask=None, result_mask=None, initial=0, **options):
    how, is_date = self.how, values.dtype.kind in "mM"
    statistic = chosen(how, values, is_date, min_count, ngroups, comp_ids, options)
    if statistic is None or mask is not None or initial != 0 or not values.size:
        options |= {"min_count": min_count, "ngroups": ngroups, "comp_ids": comp_ids, "initial": initial}
        return theirs(self, values, mask=mask, result_mask=result_mask, **options)
    used["along" if self.kind == "transform" else "statistics"] += 1
    groups = grouped(comp_ids, ngroups)
    found = [statistic(groups, np.ascontiguousarray(row)) for row in np.atleast_2d(values)]
    return found[0] if values.ndim == 1 else np.array(found)


def chosen(how, values, is_date, min_count, number, ids, options):
    skips, all_in = options.get("skipna", True), (ids >= 0).all()
    if is_date:
        known = how in OF_DATES and {*options} <= {"skipna"} and skips and min_count < 2
        return (lambda groups, row: getattr(groups, how)(row)) if known else None
    if not is_ours(values):
        return None
    if how in STATISTICS and {*options} <= {"ddof", "skipna"}:
        if how in SPREADS:
            options = {"ddof": 1, **options}
        return lambda groups, row: reduced(groups, row, how, min_count, options)
    if how in POSITIONS and {*options} <= {"skipna"} and skips:
        return lambda groups, row: getattr(groups, POSITIONS[how])(row).astype(np.intp)
    if how in ("any", "all") and {*options} <= {"skipna"}:
        return lambda groups, row: getattr(groups, how)(row, **options)
    if how in ALONG and {*options} <= {"skipna"} and skips and all_in:
        return lambda groups, row: of_its_dtype(getattr(groups, how)(row), row.dtype)
    if how == "rank" and options.get("na_option", "keep") == "keep" and all_in:
        ascending, pct = bool(options.get("ascending", True)), bool(options.get("pct"))
        method = options.get("ties_method", "average")
        return lambda groups, row: np.float64(groups.rank(row, method, ascending=ascending, pct=pct))
    return None


def of_its_dtype(found, dtype):
    return found.astype(dtype) if dtype.kind in "iu" and (found.astype(dtype) == found).all() else found


def reduced(groups, row, how, min_count, options):
    found = getattr(groups, how)(row, **options)
    if how in OF_INTEGERS:
        found = of_its_dtype(found, row.dtype)
    few = groups.count(row) < max(min_count, 0 if how in OF_NONE else 1)
    return np.where(few, np.nan, found) if few.any() else found


class Instead:
    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


class Algorithms(Instead):
    def factorize(self, values, sort=False, use_na_sentinel=True, **options):
        is_date = isinstance(values, DatetimeArray | TimedeltaArray) and values.freq is None
        array = values._ndarray if is_date else values
        if options or not (is_date or is_ours(array)) or array.ndim != 1:
            return self._module.factorize(values, sort=sort, use_na_sentinel=use_na_sentinel, **options)
        used["numberings"] += 1
        codes, uniques = clhist.factorize(array, sort, use_na_sentinel, queue=QUEUE)
        return codes.astype(np.intp), values._from_backing_data(uniques) if is_date else uniques


class Library(Instead):
    def group_quantile(self, out, values, *, labels, qs, interpolation, mask, **options):
        if interpolation != "linear" or not is_ours(values) or not values.size or options.get("is_datetimelike"):
            options |= {"labels": labels, "qs": qs, "interpolation": interpolation, "mask": mask}
            return self._module.group_quantile(out, values, **options)
        used["statistics"] += 1
        known = np.where(mask, np.nan, values) if mask.any() else np.ascontiguousarray(values)
        found = grouped(labels, out.size // len(qs)).quantile(known, qs)
        if options.get("result_mask") is not None:
            options["result_mask"][:] = np.isnan(found.T).ravel()
        out[:] = found.T.ravel()


def places(self, ascending=True):
    ids, number = self._grouper.ids, self._grouper.ngroups
    if not ids.size:
        return their_places(self, ascending)
    used["along"] += 1
    found = grouped(ids, number).cumcount(ascending=ascending)
    return np.where(ids < 0, np.nan, found) if self._grouper.has_dropped_na else found


def compress(group_index, sort=True):
    if group_index.size == 0 or group_index.min() < 0:
        return their_compress(group_index, sort)
    used["numberings"] += 1
    codes, labels = clhist.factorize(group_index, sort, queue=QUEUE)
    return codes.astype(np.intp), labels


grouper.algorithms, generic.algorithms = Algorithms(grouper.algorithms), Algorithms(generic.algorithms)
groupby.libgroupby, ops.compress_group_index = Library(groupby.libgroupby), compress
groupby.GroupBy._cumcount_array = places
ops.WrappedCythonOp._cython_op_ndim_compat = operation


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("ours: " + ", ".join(f"{number} {name}" for name, number in used.items()))
"""


def main() -> int:
    """Run the tests; return 1 if one fails that should not, or if hardly any was of ours."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "clhist_in_its_place.py").write_text(PLUGIN)
        modules = [f"pandas.tests.groupby.{name}" for name in MODULES.split()]
        code = f"import sys; sys.path.insert(0, {directory!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
        options = ["-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-p", "clhist_in_its_place", "--pyargs"]
        run = subprocess.run(
            [sys.executable, "-c", code, *options, *modules], capture_output=True, text=True, check=False
        )
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    wrong = [name for name in failed if not any(re.search(pattern, name) for pattern in DIFFERENT)]
    used = re.search(r"^ours: (\d+) statistics, (\d+) numberings, (\d+) along$", run.stdout, re.MULTILINE)
    if wrong or used is None or min(int(each) for each in used.groups()) < FEWEST or run.returncode not in (0, 1):
        print(run.stdout[-20_000:], run.stderr[-5_000:], *wrong, sep="\n")
        return 1
    print(f"pandas: {run.stdout.splitlines()[-1].strip('= ')}; {used.group()}; {len(failed)} differ as meant")
    return 0


FEWEST = 500  # statistics, numberings and values for each element that must have been ours

if __name__ == "__main__":
    sys.exit(main())
