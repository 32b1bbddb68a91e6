"""What all tests share: the checkout under test, an environment of its own, devices, markers, and a watchdog."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import covering
import environment  # before PyOpenCL, whose first import reads it
import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from hypothesis import HealthCheck, settings
from thresholds import threshold

import clhist
from clhist._core.model import choose, partition, private, rows, scaling, sort
from clhist._core.model.choose import plan_sweep
from clhist._core.opencl.device import profile_context
from clhist._core.runtime import small
from clhist.selftest.inputs import as_cpu, as_gpu

pytest_plugins = ["budget", "repeats"]
LONGEST_TEST = 300  # seconds: a lock that waits for itself never comes back
_MOMENT = 5  # seconds
_ALLOCATIONS = 20_000  # between garbage collections: by Python's 700 they take 5 % of tests without a device
_terminal = pytest.StashKey()
# The same examples in every run, however long one takes.
settings.register_profile(
    "clhist", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("clhist")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the sources and plans that are compared")
    parser.addoption("--exhaustive", action="store_true", help="all combinations, not only those that cover pairs")


def pytest_configure(config: pytest.Config) -> None:
    # A copy, since a test's own standard error is captured.
    config.stash[_terminal] = os.fdopen(os.dup(sys.stderr.fileno()), "w")
    for marker in ("skip_xp_backends", "xfail_xp_backends", "uses_xp_capabilities", "array_api_backends"):
        config.addinivalue_line("markers", f"{marker}: of SciPy's own tests")
    config.option.maxworkerrestart = "0"  # of pytest-xdist: what hangs in one process ends the run, too
    covering.exhaustive = config.getoption("--exhaustive")
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    if all(path.is_relative_to(environment.TESTS / "unit") for path in named):
        environment.hide_opencl()  # so that none of them can use it
    else:
        environment.choose_runtime()


def pytest_report_header() -> str:
    try:
        device = clhist.default_queue().device
    except clhist.NoDeviceError:
        return "OpenCL: hidden"
    return f"OpenCL: {device.name} on {device.platform.name}, {device.platform.version}"


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_terminal].close()
    environment.remove()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what is left out by its folder: that takes seconds in each process.

    Tests of tensors and beside other packages run only if their folder is named: these need not be installed.
    """
    left_out = {environment.TESTS / "tensors", environment.TESTS / "engines"}
    if config.option.markexpr == "not slow":
        left_out.add(environment.TESTS / "slow")
    return True if collection_path in left_out else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests by their folder, and those whose kernels CI builds with optimization; order each worker's share.

    A worker of pytest-xdist begins with an equal share of the selected tests, those with optimization first: the others
    load the programs that these have built, and each change of the optimizer clears the caches.
    """
    for item in items:
        folder = item.path.parent.name
        if folder in ("unit", "smoke", "slow"):
            item.add_marker(folder)
        elif folder == "device" and not {"with_optimizer", "without_optimizer"} & set(_fixtures(item)):
            item.add_marker("kernels")
    yield
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    shares = {item: k * workers // len(items) for k, item in enumerate(items)}
    items.sort(key=lambda item: (shares[item], not _is_optimized(item)))


def _fixtures(test: pytest.Item | pytest.FixtureRequest) -> Sequence[str]:
    return getattr(test, "fixturenames", ())


def _is_optimized(test: pytest.Item | pytest.FixtureRequest) -> bool:
    """Return whether README's command, too, builds the programs of this test with optimization."""
    return test.path.parent.name != "device" or "with_optimizer" in _fixtures(test)


class _Watchdog:
    """Ends the run, showing where it hangs, if something takes too long."""

    _since = -inf

    def watch(self, config: pytest.Config) -> None:
        """Watch what begins now, unless something else began a moment ago: a watch is a thread, which takes 0.2 ms."""
        if monotonic() - self._since > _MOMENT:
            faulthandler.dump_traceback_later(LONGEST_TEST, exit=True, file=config.stash[_terminal])
            self._since = monotonic()

    def stop(self) -> None:
        """Watch nothing."""
        faulthandler.cancel_dump_traceback_later()
        self._since = -inf


_watchdog = _Watchdog()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Watch imports of test files, whose objects live as long as the process: no collection looks at them."""
    gc.disable()
    try:
        _watchdog.watch(session.config)
        return (yield)
    finally:
        _watchdog.stop()
        gc.freeze()
        gc.set_threshold(_ALLOCATIONS)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Watch each test with all its fixtures, of whatever scope, and their ends."""
    _watchdog.watch(item.config)
    try:
        return (yield)
    finally:
        if nextitem is None:
            _watchdog.stop()


@pytest.fixture(scope="session")
def queue() -> cl.CommandQueue:
    """The default queue."""
    return clhist.default_queue()


@pytest.fixture(scope="session")
def other_context(queue: cl.CommandQueue) -> cl.Context:
    """Another context on the same device."""
    return cl.Context([queue.device])


@pytest.fixture(scope="session")
def other_queue(other_context: cl.Context) -> cl.CommandQueue:
    """A queue of the other context; Intel's runtime needs the context to be held as long."""
    return cl.CommandQueue(other_context)


@pytest.fixture(scope="session")
def out_of_order_queue(queue: cl.CommandQueue) -> cl.CommandQueue:
    """A queue of the default context whose commands wait for nothing but their events."""
    found = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    assert found.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return found


@pytest.fixture(scope="session")
def gpu_like(queue: cl.CommandQueue) -> clhist.Profile:
    """The device as if it were a small GPU: elements interleaved, wide loads, shared copies."""
    return as_gpu(clhist.device_profile(queue.device))


@pytest.fixture(scope="session")
def cpu_like(gpu_like: clhist.Profile) -> clhist.Profile:
    """The device as if it were a CPU that runs work-groups: a block of neighbouring elements for each work-item."""
    return as_cpu(gpu_like)


@pytest.fixture(scope="session")
def few_items(cpu_like: clhist.Profile) -> clhist.Profile:
    """A CPU with three work-items."""
    return replace(cpu_like, hardware_threads=3, work_group_size=1)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_to_numpy() -> None:
    """Let kernels count small arrays too."""
    names = ["bincount", "bincount, weights", "reduce_by_index", "distinct", "factorize", "group_by", "ndimage"]
    names += [name for name in small.COSTS if name.endswith(", of a device")]
    small.COSTS.update(dict.fromkeys(names, threshold(0)))
    small._START = 0
    rates = small.own_rates  # with the sizes that were measured on some GPUs
    small.own_rates = lambda device: {k: rate for k, rate in rates(device).items() if not k.endswith(", least")}


@pytest.fixture
def only_measured_rates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plan without the rates that are scaled from other devices: by passes, where a profile has none of its own."""
    for module in (scaling, choose, partition, private, rows, sort):
        monkeypatch.setattr(module, "rates_of", lambda profile: scaling.Rates(profile.rates, ""))
    plan_sweep.cache_clear()
    yield
    plan_sweep.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def _optimizer(request: pytest.FixtureRequest) -> None:
    """Build the programs of a module in tests/device without optimization, unless it uses `with_optimizer`.

    Modules that follow one another share the programs that they build in the same way.
    """
    environment.use_optimizer(_is_optimized(request))


@pytest.fixture(scope="module")
def with_optimizer() -> None:
    """Build the programs of a module with optimization: it tests arithmetic, atomics or build options.

    So do tests of so many elements that slower kernels take longer than their builds save.

    Modules that use neither this nor `without_optimizer` have the marker `kernels`: CI also builds their programs with
    optimization.
    """


@pytest.fixture(scope="module")
def without_optimizer() -> None:
    """Mark a module as tests of host code, whose kernels others test: no stage need build them with optimization."""


@pytest.fixture(params=["blocked", "interleaved"])
def profile(request: pytest.FixtureRequest, cpu_like: clhist.Profile, gpu_like: clhist.Profile) -> clhist.Profile:
    """A profile for each order in which a kernel sweeps over its input."""
    return cpu_like if request.param == "blocked" else gpu_like


@pytest.fixture
def put(place: str, queue: cl.CommandQueue) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what puts an array where a test has its arrays, and what reads one."""
    if place == "host":
        return (lambda array: array), np.asarray
    return (lambda array: cl.array.to_device(queue, array)), lambda array: array.get()


@pytest.fixture(params=["own profile", "as a GPU"])
def any_profile(request: pytest.FixtureRequest, gpu_like: clhist.Profile) -> Iterator[None]:
    """Let functions that take no profile compute as the device would, and as a GPU would."""
    if request.param == "own profile":
        yield
    else:
        with profile_context(gpu_like):
            yield


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether stored texts are written instead of compared."""
    return pytestconfig.getoption("--update-golden")


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(20)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """CUDA's driver and its libraries, as OpenCL and NumPy compute for them."""
    import cuda_fake

    monkeypatch.setattr("clhist._core.runtime.cuda_calls._warned", set())
    return cuda_fake.install(monkeypatch)


@pytest.fixture
def on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing to NumPy and SciPy because it is small."""
    monkeypatch.setattr("clhist._core.runtime.small.pays_off", lambda call, size, bins=0: True)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that says what else there is to measure, in the place of what is installed."""
    return lambda *found: monkeypatch.setattr("benchmarks.peer_libraries.peers", lambda: list(found))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Let scikit-learn's threads not wait for each other in loops, which takes ten times as long beside other tests.

    Once for a module: each limit looks at all libraries of the process, for 4 ms.
    """
    from threadpoolctl import threadpool_limits

    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1, "openmp"):
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
