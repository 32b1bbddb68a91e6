"""The default among several CPU runtimes: measured once, stored, and never an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest
from processes import run_python

import clhist
from clhist._core.opencl import cpu_runtimes, device
from clhist.files import sealed

pytestmark = pytest.mark.usefixtures("with_optimizer")


class Fake(SimpleNamespace):
    """A device, which like PyOpenCL's can be a key of a cache."""

    __hash__ = object.__hash__


def fake(platform, driver="1", kind=cl.device_type.CPU, units=8):
    about = SimpleNamespace(name=platform, version=f"OpenCL 3.0 {platform}")
    return Fake(
        name="Core", type=kind, max_compute_units=units, platform=about, driver_version=driver, version="OpenCL 3.0"
    )


POCL, OTHER = fake("Portable Computing Language"), fake("Other")
GPU = fake("Other", kind=cl.device_type.GPU)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The cache directory of these tests."""
    for module in (sealed, cpu_runtimes):
        monkeypatch.setattr(module, "platformdirs", SimpleNamespace(user_cache_path=lambda name: tmp_path / name))
    monkeypatch.setattr(cpu_runtimes, "_figures", {})
    return tmp_path / "clhist" / "runtimes"


@pytest.fixture
def measured(monkeypatch):
    """The devices that were measured, and the seconds that a measurement finds."""
    state = SimpleNamespace(devices=[], seconds={POCL: 8e-6, OTHER: 5e-6})

    def in_turn(runs):
        state.devices += runs
        return [{"launch": state.seconds[each]} for each in runs]

    monkeypatch.setattr(cpu_runtimes, "_commands", lambda each: each)
    monkeypatch.setattr(cpu_runtimes, "_in_turn", in_turn)
    return state


def new_process(monkeypatch):
    monkeypatch.setattr(cpu_runtimes, "_figures", {})


def test_it_is_measured_once(measured, monkeypatch):
    assert cpu_runtimes.fastest_first([POCL, OTHER]) == [OTHER, POCL]
    assert measured.devices == [POCL, OTHER]
    measured.seconds = {}
    for _ in range(2):
        assert cpu_runtimes.fastest_first([POCL, OTHER]) == [OTHER, POCL]
        new_process(monkeypatch)
    assert cpu_runtimes.comparison([POCL, OTHER]) == (
        "fastest CPU runtime (Other / Portable Computing Language): a launch 5.0 / 8.0 µs"
    )


@pytest.mark.parametrize(("seconds", "is_first"), [(7.5e-6, False), (7.1e-6, True), (9e-6, False)])
def test_noise_does_not_decide(measured, seconds, is_first):
    measured.seconds[OTHER] = seconds
    assert cpu_runtimes.fastest_first([POCL, OTHER])[0] == (OTHER if is_first else POCL)


def test_another_driver_is_measured(measured, monkeypatch):
    cpu_runtimes.fastest_first([POCL, OTHER])
    newer = fake("Other", driver="2")
    measured.seconds[newer] = 1.0
    assert cpu_runtimes.fastest_first([POCL, newer]) == [POCL, newer]
    monkeypatch.setattr(cpu_runtimes, "processor_aliases", lambda path: ("another processor",))
    new_process(monkeypatch)
    measured.seconds[OTHER] = 1.0
    assert cpu_runtimes.fastest_first([POCL, OTHER]) == [POCL, OTHER]


def test_kernels_decide_where_they_were_measured(measured, monkeypatch):
    cpu_runtimes.fastest_first([POCL, OTHER])
    figures = [
        {"launch": 8e-6, "bandwidth": 1e-3, "reduction": 1e-3},
        {"launch": 5e-6, "bandwidth": 1e-3, "reduction": 9e-3},
    ]
    monkeypatch.setattr(cpu_runtimes, "_kernels", lambda each: each)
    monkeypatch.setattr(cpu_runtimes, "_in_turn", lambda runs: figures)
    assert cpu_runtimes.measure_kernels([POCL, OTHER]) == figures
    for _ in range(2):
        assert cpu_runtimes.fastest_first([POCL, OTHER]) == [POCL, OTHER]
        new_process(monkeypatch)
    assert "counts of 1 M values into 256 bins 1,000.0 / 9,000.0 µs" in cpu_runtimes.comparison([POCL, OTHER])


def test_a_damaged_file_is_measured_again(measured, monkeypatch, cache):
    cpu_runtimes.fastest_first([POCL, OTHER])
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes().replace(b"5", b"9"))
    new_process(monkeypatch)
    with pytest.warns(RuntimeWarning, match=r"a damaged file of a cache \(its checksum is wrong\); it is made again"):
        assert cpu_runtimes.fastest_first([POCL, OTHER]) == [OTHER, POCL]
    assert len(measured.devices) == 4


def test_without_a_cache_the_order_is_fixed(measured, monkeypatch):
    monkeypatch.setattr(cpu_runtimes, "is_writable", lambda directory: False)
    assert cpu_runtimes.fastest_first([POCL, OTHER]) == [POCL, OTHER]
    assert measured.devices == []
    assert cpu_runtimes.comparison([POCL, OTHER]) is None


def test_a_read_only_cache_is_read(measured, monkeypatch):
    cpu_runtimes.fastest_first([POCL, OTHER])
    monkeypatch.setattr(cpu_runtimes, "is_writable", lambda directory: False)
    new_process(monkeypatch)
    assert cpu_runtimes.fastest_first([POCL, OTHER]) == [OTHER, POCL]


def test_a_runtime_that_fails_is_not_chosen(monkeypatch, cache):
    def fails():
        raise cl.RuntimeError("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES")

    monkeypatch.setattr(cpu_runtimes, "_commands", lambda each: {"launch": fails if each is POCL else lambda: None})
    assert cpu_runtimes.fastest_first([POCL, OTHER]) == [OTHER, POCL]
    assert not cache.exists()  # the next process tries again
    new_process(monkeypatch)
    monkeypatch.setattr(cpu_runtimes, "_commands", lambda each: {"launch": fails})
    assert cpu_runtimes.fastest_first([POCL, OTHER]) == [POCL, OTHER]


def test_the_process_that_was_quicker_has_the_word(measured, monkeypatch):
    def in_turn(runs):
        sealed.write_measurement("runtimes", cpu_runtimes._facts(runs), [{"launch": 1e-6}, {"launch": 2e-6}])
        return [{"launch": 2e-6}, {"launch": 1e-6}]

    monkeypatch.setattr(cpu_runtimes, "_in_turn", in_turn)
    assert cpu_runtimes.fastest_first([POCL, OTHER]) == [POCL, OTHER]


@pytest.fixture
def present(monkeypatch):
    """Return a function that lets these devices be all there are."""

    def show(*devices):
        found = [SimpleNamespace(get_devices=lambda d=d: [d], **vars(d.platform)) for d in devices]
        monkeypatch.setattr(cl, "get_platforms", lambda: found)
        monkeypatch.delenv("PYOPENCL_CTX", raising=False)

    return show


def test_only_equal_processors_are_measured(present, measured):
    fewer = fake("Fewer", units=4)
    present(fewer, OTHER, POCL)
    assert device.devices() == [OTHER, POCL, fewer]
    assert device.cpu_runtimes() == [POCL, OTHER]
    assert device.default_reason().startswith("fastest CPU runtime (Other / Portable Computing Language)")
    assert device.devices(platform="fewer") == [fewer]


def test_a_runtime_with_a_fault_is_no_candidate(present, measured, monkeypatch):
    """Its work-groups of one work-item may end the process."""
    present(OTHER, POCL)
    monkeypatch.setattr(device, "device_kind", lambda each: "gpu" if each is OTHER else "cpu")
    assert device.devices() == [POCL, OTHER]
    assert device.cpu_runtimes() == []
    assert measured.devices == []


def test_a_gpu_is_first_and_nothing_is_measured(present, measured):
    present(OTHER, GPU, POCL)
    assert device.devices() == [GPU, POCL, OTHER]
    assert device.cpu_runtimes() == []
    assert device.default_reason() == "the GPU with most compute units"
    present(POCL)
    assert device.devices() == [POCL]
    assert device.default_reason() == "the only device"
    assert measured.devices == []


def test_the_environment_chooses_before_a_measurement(present, measured, monkeypatch):
    present(OTHER, POCL)
    monkeypatch.setenv("PYOPENCL_CTX", "0")
    assert device.cpu_runtimes() == []
    assert device.default_reason() == "PYOPENCL_CTX=0"
    assert measured.devices == []


def test_real_runtimes(tmp_path):
    """Both runtimes of the extra ``cpu``: figures by a process, which the next reads without a second context."""
    if not Path(sys.prefix, "lib", "libintelocl.so").exists() or os.environ.get("PYOPENCL_CTX"):
        pytest.skip("the environment has no second CPU runtime, or chooses one")
    code = """
        import pyopencl as cl
        from clhist._core.opencl import cpu_runtimes, device
        contexts, make = [], cl.Context
        cl.Context = lambda *args: contexts.append(args) or make(*args)
        queue = clhist.default_queue()
        print(queue.device.platform.name, len(contexts), len(device.cpu_runtimes()), sep="|")
        print(device.default_reason())
    """
    unset = "import os; os.environ.pop('OCL_ICD_VENDORS', None); "
    first, second = (run_python(code, before=unset, XDG_CACHE_HOME=str(tmp_path)).splitlines() for _ in range(2))
    name, contexts, number = first[0].split("|")
    if number == "0":
        pytest.skip("there is one CPU runtime, or a GPU")
    assert (contexts, second[0]) == (str(1 + int(number)), f"{name}|1|{number}")
    assert first[1] == second[1]
    assert first[1].startswith(f"fastest CPU runtime ({name.strip()}")


def test_kernels_of_the_default_device():
    """Kernels that are measured compile and take some time on this device."""
    (figures,) = cpu_runtimes.measure_kernels([clhist.default_queue().device])
    assert set(figures) == set(cpu_runtimes.FIGURES)
    assert all(0 < seconds < 10 for seconds in figures.values())
