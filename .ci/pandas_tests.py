"""pandas' own tests of groupby with our statistics and numbers of keys in the place of its own, on the device.

    python .ci/pandas_tests.py

Its wheels hold its tests. Statistics of integers and floats by `clhist.GroupBy`, numbers of keys by `clhist.factorize`;
all else, and what is made of the results, stays pandas'. A test that fails must be one of `DIFFERENT`.
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
    transform.test_transform
"""

# Tests that cannot pass, and why.
DIFFERENT = {
    r"test_groupby_numerical_stability_sum_mean": "pandas compensates sums; ours are exact with reproducible=True",
}

PLUGIN = """
import numpy as np
from pandas.core.groupby import grouper, ops

import clhist

QUEUE = clhist.default_queue()  # given, so that small data goes to the device as well
STATISTICS = {"sum", "prod", "mean", "median", "var", "std", "sem", "skew", "kurt", "min", "max", "first", "last"}
OF_NONE = ("sum", "prod")  # which a group without values has
OF_INTEGERS = (*OF_NONE, "min", "max", "first", "last")
used = [0, 0]
theirs, pandas_algorithms = ops.BaseGrouper._cython_operation, grouper.algorithms


def is_ours(values):
    return isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.dtype != np.float16


def operation(self, values, how, axis, min_count=-1, **options):
    if not is_ours(values) or how not in STATISTICS or not {*options} <= {"ddof", "skipna"} or not values.size:
        return theirs(self, values, how, axis, min_count, **options)
    used[0] += 1
    if how in ("var", "std", "sem"):
        options = {"ddof": 1, **options}
    groups = clhist.group_by(np.asarray(self.ids), self.ngroups, queue=QUEUE)
    found = [statistic(groups, row, how, min_count, options) for row in np.atleast_2d(values)]
    return found[0] if values.ndim == 1 else np.array(found)


def statistic(groups, row, how, min_count, options):
    row = np.ascontiguousarray(row)
    found = getattr(groups, how)(row, **options)
    if how in OF_INTEGERS and row.dtype.kind in "iu" and (found.astype(row.dtype) == found).all():
        found = found.astype(row.dtype)
    few = groups.count(row) < max(min_count, 0 if how in OF_NONE else 1)
    return np.where(few, np.nan, found) if few.any() else found


class Algorithms:
    def __getattr__(self, name):
        return getattr(pandas_algorithms, name)

    def factorize(self, values, sort=False, use_na_sentinel=True, **options):
        if options or not is_ours(values) or values.ndim != 1:
            return pandas_algorithms.factorize(values, sort=sort, use_na_sentinel=use_na_sentinel, **options)
        used[1] += 1
        codes, uniques = clhist.factorize(values, sort, use_na_sentinel, queue=QUEUE)
        return codes.astype(np.intp), uniques


grouper.algorithms = Algorithms()
ops.BaseGrouper._cython_operation = operation


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("ours: {} statistics, {} numberings".format(*used))
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
    used = re.search(r"^ours: (\d+) statistics, (\d+) numberings$", run.stdout, re.MULTILINE)
    if wrong or used is None or min(int(each) for each in used.groups()) < FEWEST or run.returncode not in (0, 1):
        print(run.stdout[-20_000:], run.stderr[-5_000:], *wrong, sep="\n")
        return 1
    print(f"pandas: {run.stdout.splitlines()[-1].strip('= ')}; {used.group()}; {len(failed)} differ as meant")
    return 0


FEWEST = 500  # statistics, and numberings, that must have been ours

if __name__ == "__main__":
    sys.exit(main())
