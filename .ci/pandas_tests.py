"""pandas' own tests of groupby with our groups, statistics and numbers of keys in the place of its own, on the device.

    python .ci/pandas_tests.py [MODULE ...]

Its wheels hold its tests, and `clhist_in_pandas` is the plugin that puts ours in. A test that fails must be one of
`DIFFERENT`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# All tests of groupby but those of Numba, and tests of what is made by it.
MODULES = "groupby resample reshape.test_pivot reshape.test_crosstab extension.test_masked extension.test_datetime"
LEFT_OUT = "not test_numba"

# Tests that cannot pass, and why.
DIFFERENT = {
    r"test_groupby_numerical_stability": "pandas compensates sums; ours are exact with reproducible=True",
    r"test_groupby_sum_timedelta_overflow": "sums of durations are those of integers of 64 bits, which wrap",
    r"test_groupby_std_datetimelike": "the last bits of durations of years in nanoseconds, as float64",
    r"test_quantile_out_of_bounds_q_raises": "our words are others",
}

# What must have been ours, and how often at least.
FEWEST = {
    "aggregates": 8000, "counts": 500, "numbers of keys": 4000, "numbers of several keys": 1500,
    "numbers of texts": 3000, "nunique": 200, "places": 150, "quantiles": 100, "sizes": 500, "values of rows": 500,
}  # fmt: skip


def main() -> int:
    """Run the tests; return 1 if one fails that should not, or if too few were of ours."""
    asked = sys.argv[1:]
    modules = [f"pandas.tests.{name}" for name in asked or MODULES.split()]
    here = str(Path(__file__).resolve().parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-p", "clhist_in_pandas", "-k", LEFT_OUT]
    run = subprocess.run(
        [sys.executable, "-c", code, *options, "--pyargs", *modules], capture_output=True, text=True, check=False
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    wrong = [name for name in failed if not any(re.search(pattern, name) for pattern in DIFFERENT)]
    used = {what: int(number) for number, what in re.findall(r"^ours: (\d+) (.*)$", run.stdout, re.MULTILINE)}
    few = [what for what, least in FEWEST.items() if used.get(what, 0) < least and not asked]
    if wrong or few or not used or run.returncode not in (0, 1):
        print(run.stdout[-20_000:], run.stderr[-5_000:], *wrong, *(f"too few {what}" for what in few), sep="\n")
        return 1
    ours = ", ".join(f"{number} {what}" for what, number in used.items())
    print(f"pandas: {run.stdout.splitlines()[-1].strip('= ')}; ours: {ours}; {len(failed)} differ as meant")
    return 0


if __name__ == "__main__":
    sys.exit(main())
