"""How many OpenCL programs each test file builds: nearly all of the time of a run, printed at its end.

`tests/budget.toml` records the numbers; with `--budget`, which CI gives, a file that builds more than twice as many
fails the run. `--update-budget` records those of this run.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RECORD = TESTS / "budget.toml"
FREE = 10  # programs that a file may build in any case
_SHOWN = 12

_built = 0  # by this process


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", action="store_true", help="fail if a file builds more than twice its programs")
    parser.addoption("--update-budget", action="store_true", help="record how many programs each file builds")


def pytest_configure(config: pytest.Config) -> None:
    _count_builds()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budget(config), "clhist-budget")


def _count_builds() -> None:
    """Count what PyOpenCL builds: clhist's programs, and those of its own arrays, sorts and scans."""
    import pyopencl as cl

    build = cl.Program.build

    def counted(self, *arguments, **options):
        global _built
        _built += 1
        return build(self, *arguments, **options)

    cl.Program.build = counted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[_before] = _built
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[pytest.TestReport]:
    report = yield
    if report.when == "teardown" and _built > item.stash[_before]:
        report.user_properties.append(("programs", _built - item.stash[_before]))
    return report


_before = pytest.StashKey[int]()


def recorded() -> dict[str, int]:
    """Return how many programs each file may build."""
    return tomllib.loads(RECORD.read_text())["programs"] if RECORD.exists() else {}


class Budget:
    """Sums the reports of all workers; `programs` is by file, as budget.toml names it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.programs = config, Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and (built := dict(report.user_properties).get("programs", 0)):
            file = (self.config.rootpath / report.nodeid.partition("::")[0]).resolve()
            name = file.relative_to(TESTS).as_posix() if file.is_relative_to(TESTS) else file.name
            self.programs[name] += built

    def over(self) -> list[str]:
        """Return what is wrong: files that build more than twice what is recorded; new files have no budget yet."""
        known = recorded()
        return [
            f"{name} builds {built} programs, recorded are {known[name]}"
            for name, built in sorted(self.programs.items())
            if name in known and built > max(FREE, 2 * known[name])
        ]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.config.getoption("--update-budget"):
            found = {name: built for name, built in (recorded() | self.programs).items() if built}
            lines = [f'"{name}" = {built}' for name, built in sorted(found.items())]
            RECORD.write_text(
                "# Programs that each file builds: pytest --update-budget\n[programs]\n" + "\n".join(lines) + "\n"
            )
        elif self.config.getoption("--budget") and self.over() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = self.programs.total()
        if not total:
            return
        most = self.programs.most_common(_SHOWN)
        rest = f", {total - sum(built for _, built in most)} others" if len(+self.programs) > _SHOWN else ""
        listed = ", ".join(f"{built} {Path(name).stem.removeprefix('test_')}" for name, built in most if built)
        terminalreporter.write_sep("-", f"{total} programs built")
        terminalreporter.write_line(f"{listed}{rest}")
        for line in self.over():
            terminalreporter.write_line(f"OVER BUDGET: {line}", red=True)
