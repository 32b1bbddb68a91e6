"""boost-histogram's own tests with `clhist.hist.Histogram` in the place of its class, on the device.

    python .ci/boost_histogram_tests.py [FOLDER]

Its wheels hold no tests: the source distribution of the installed version is downloaded, unless FOLDER has it unpacked.
The tests run twice, with and without our class, and must end alike, except that ours may pass where a bug of theirs is
expected to fail; a fill of any size goes to the device.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

# Without those of accumulators, axes and benchmarks, which fill nothing of ours.
FILES = """
    axis_options histogram histogram_indexing histogram_init histogram_set minihist_title numpy_interface pandaslike pbt
    pickle plottable_protocol profiles serialization_uhi storage subclassing threaded_fill views
"""

PLUGIN = """
import boost_histogram as bh
import boost_histogram.numpy

import clhist.hist
import clhist.hist.columns

assert clhist.hist.columns.is_small  # an old name would leave small fills to boost-histogram, unseen
clhist.hist.columns.is_small = lambda *args, **options: False
bh.Histogram = boost_histogram.numpy.Histogram = clhist.hist.Histogram
"""


def sources(folder: Path) -> Path:
    """Return the folder of boost-histogram's sources, downloaded into `folder`."""
    name = f"boost-histogram=={version('boost-histogram')}"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", name, "-d", str(folder)],
        check=True,
    )
    (archive,) = folder.glob("boost_histogram-*.tar.gz")
    with tarfile.open(archive) as found:
        found.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir() and path.name.startswith("boost_histogram-"))


def outcomes(tests: Path, plugins: Path | None) -> dict[str, str]:
    """Return what became of each test."""
    files = [str(path) for name in FILES.split() if (path := tests / f"test_{name}.py").exists()]
    options = [] if plugins is None else ["-p", "clhist_in_its_place"]
    code = (
        f"import sys; sys.path.insert(0, {str(plugins or tests)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "-q", "-rA", "--tb=short", "-p", "no:cacheprovider", *options, *files],
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S.*?)(?: - .*)?$", run.stdout, re.MULTILINE)
    if not found:
        sys.exit(f"no test ran:\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
    return {test: outcome for outcome, test in found}


def main() -> None:
    """Run the tests both ways and compare."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        # Away from its pyproject.toml, which asks for plugins of pytest.
        found = (Path(sys.argv[1]) if len(sys.argv) > 1 else sources(folder)) / "tests"
        tests = Path(shutil.copytree(found, folder / "tests"))
        plugins = folder / "plugins"
        plugins.mkdir()
        (plugins / "clhist_in_its_place.py").write_text(PLUGIN, encoding="utf-8")
        theirs, ours = outcomes(tests, None), outcomes(tests, plugins)
    counts = {outcome: list(theirs.values()).count(outcome) for outcome in sorted(set(theirs.values()))}
    print(f"boost-histogram {version('boost-histogram')}: {counts}")
    different = {test for test in theirs | ours if theirs.get(test) != ours.get(test)}
    fixed = {test for test in different if (theirs.get(test), ours.get(test)) == ("XFAIL", "PASSED")}
    for test in sorted(different):
        print(f"{test}: {theirs.get(test)} with its class, {ours.get(test)} with ours")
    sys.exit(bool(different - fixed) or "PASSED" not in counts)


if __name__ == "__main__":
    main()
