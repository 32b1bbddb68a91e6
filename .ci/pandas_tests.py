"""pandas' own tests of groupby with our groups, statistics and numbers of keys in the place of its own, on the device.

    python .ci/pandas_tests.py [MODULE ...]

Its wheels hold its tests, and `clhist_in_pandas` is the plugin that puts ours in. With `frames_in_pandas` groups by
columns are computed by the frame API as well and compared. A test that fails must be one of `DIFFERENT`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# All tests of groupby but those of Numba, and tests of what is made by it. Of 8,000 tests of arrays only those in which
# pandas groups: with pandas 3.1 ours was called in no other.
MODULES = "groupby resample reshape.test_pivot reshape.test_crosstab extension.test_masked extension.test_datetime"
OF_ARRAYS = "TestMaskedArrays or TestDatetimeArray or Test2DCompat"
LEFT_OUT = f"not test_numba and not (({OF_ARRAYS}) and not (group or test_dtype_name_in_info))"

# Tests that cannot pass, and why.
DIFFERENT = {
    r"test_groupby_numerical_stability": "pandas compensates sums; ours are exact with reproducible=True",
    r"test_groupby_sum_timedelta_overflow": "sums of durations are those of integers of 64 bits, which wrap",
    r"test_groupby_std_datetimelike": "the last bits of durations of years in nanoseconds, as float64",
    r"test_quantile_out_of_bounds_q_raises": "our words are others",
}

# What must have been ours, and how often at least: nine of ten calls of all tests, those of arrays among them.
FEWEST = {
    "aggregates": 12000, "counts": 830, "numbers of keys": 16000, "numbers of several keys": 4600,
    "numbers of texts": 6900, "nunique": 520, "places": 970, "quantiles": 670, "sizes": 1600, "values of rows": 2600,
}  # fmt: skip


# The same of the frame API: tests that call statistics of groups.
FRAMES = "groupby.test_groupby groupby.test_reductions groupby.methods groupby.aggregate"
DIFFERENT_FRAMES = {
    r"numerical_stability_sum_mean": "pandas compensates sums of few values",
    r"test_groupby_aggregation_mixed_dtype": "keys of text and numbers in one column are refused: they have no order",
    r"test_groupby_multiindex_not_lexsorted|test_skew_kwargs_deprecated": "the plugin is one more frame for warnings",
}
FEWEST_FRAMES = {"count": 15, "first": 15, "last": 15, "max": 10, "mean": 25, "min": 10, "sum": 20}


def main() -> int:
    """Run the tests; return 1 if one fails that should not, or if too few were of ours."""
    asked = sys.argv[1:]
    return max(
        run("clhist_in_pandas", asked or MODULES.split(), DIFFERENT, {} if asked else FEWEST),
        run("frames_in_pandas", asked or FRAMES.split(), DIFFERENT_FRAMES, {} if asked else FEWEST_FRAMES),
    )


def run(plugin: str, names: list[str], different: dict[str, str], fewest: dict[str, int]) -> int:
    """Run the tests of modules with a plugin; return 1 if one fails that should not, or if too few were of ours."""
    modules = [f"pandas.tests.{name}" for name in names]
    here = str(Path(__file__).resolve().parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-p", plugin, "-k", LEFT_OUT]
    done = subprocess.run(
        [sys.executable, "-c", code, *options, "--pyargs", *modules], capture_output=True, text=True, check=False
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    wrong = [name for name in failed if not any(re.search(pattern, name) for pattern in different)]
    used = {what: int(number) for number, what in re.findall(r"^ours: (\d+) (.*)$", done.stdout, re.MULTILINE)}
    few = [what for what, least in fewest.items() if used.get(what, 0) < least]
    if wrong or few or not used or done.returncode not in (0, 1):
        print(done.stdout[-20_000:], done.stderr[-5_000:], *wrong, *(f"too few {what}" for what in few), sep="\n")
        return 1
    ours = ", ".join(f"{number} {what}" for what, number in used.items())
    for line in re.findall(r"^left out: .*$", done.stdout, re.MULTILINE):
        print(line)
    print(f"pandas, {plugin}: {done.stdout.splitlines()[-1].strip('= ')}; ours: {ours}; {len(failed)} differ as meant")
    return 0


if __name__ == "__main__":
    sys.exit(main())
