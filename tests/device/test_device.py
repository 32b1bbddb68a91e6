"""Which device is taken, what is said when there is none, and runtimes that pip installed."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from processes import run_python

import clhist
from clhist import NoDeviceError
from clhist._core.devices.profile_files import PARAMETERS
from clhist._core.opencl import device
from clhist._core.opencl import icd as runtimes

pytestmark = pytest.mark.usefixtures("without_optimizer")


class Fake(SimpleNamespace):
    """A device, which like PyOpenCL's can be a key of a cache."""

    __hash__ = object.__hash__


def fake_device(
    name="Turbo", kind=cl.device_type.GPU, units=8, platform="ACME OpenCL", version="OpenCL 3.0 1.0", **more
):
    about = SimpleNamespace(name=platform, version=version)
    return Fake(
        name=name, type=kind, max_compute_units=units, platform=about, version=more.get("device_version", "OpenCL 3.0")
    )


GPU, SMALL_GPU = fake_device("Big", units=80), fake_device("Small", units=4)
CPU = fake_device("Slow", cl.device_type.CPU, 64, "Portable Computing Language", "OpenCL 3.0 PoCL 3.1+debian")
BROKEN_CPU = fake_device(
    "Generic", cl.device_type.CPU, 128, "Portable Computing Language", "OpenCL 3.0 PoCL 3.0  Linux",
    device_version="OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-generic",
)  # fmt: skip


@pytest.fixture
def present(monkeypatch):
    """Return a function that lets these devices be all there are."""

    def show(*devices):
        found = [SimpleNamespace(get_devices=lambda d=d: [d], **vars(d.platform)) for d in devices]
        monkeypatch.setattr(cl, "get_platforms", lambda: found)
        monkeypatch.setattr(device, "_default", None)
        monkeypatch.delenv("PYOPENCL_CTX", raising=False)

    return show


def test_gpus_come_before_cpus_and_large_before_small(present):
    present(CPU, SMALL_GPU, BROKEN_CPU, GPU)
    assert device.devices() == [GPU, SMALL_GPU, CPU, BROKEN_CPU]
    assert device.devices(platform="acme") == [GPU, SMALL_GPU]
    assert device.devices(device="LOW") == [CPU]
    assert [device.device_kind(d) for d in (GPU, CPU)] == ["gpu", "cpu"]


def test_no_device_of_that_name(present):
    present(CPU, GPU)
    message = (
        r"no OpenCL device matches platform 'acme', device 'slow'; there are: Slow \(Portable.*\); Big \(ACME OpenCL\)"
    )
    with pytest.raises(NoDeviceError, match=message):
        device.devices(platform="acme", device="slow")


def test_no_device_at_all(present, monkeypatch):
    present()
    with pytest.raises(NoDeviceError, match=r"no OpenCL device was found; install .*pip install \"clhist\[cpu\]\""):
        clhist.default_queue()

    def refuse():
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", refuse)
    with pytest.raises(NoDeviceError, match=r"no OpenCL platform was found; install .*pip install \"clhist\[cpu\]\""):
        clhist.default_queue()


def test_only_a_device_that_is_known_not_to_work(present):
    present(BROKEN_CPU)
    with pytest.raises(
        NoDeviceError, match=r"Generic of OpenCL 3.0 PoCL 3.0  Linux, does not work: PoCL 3.0 does not know"
    ):
        clhist.default_queue()


@pytest.mark.parametrize(
    ("version", "device_version", "works"),
    [
        ("OpenCL 3.0 PoCL 3.0  Linux", "OpenCL 3.0 PoCL HSTR: pthread-generic", False),
        ("OpenCL 1.2 pocl PoCL 2.9", "OpenCL 1.2 pthread-generic ", False),
        ("OpenCL 3.0 PoCL 3.0  Linux", "OpenCL 3.0 PoCL HSTR: pthread-haswell", True),
        ("OpenCL 3.0 PoCL 3.1+debian", "OpenCL 3.0 PoCL HSTR: pthread-generic", True),
        ("OpenCL 3.0 PoCL 10.0", "OpenCL 3.0 PoCL HSTR: pthread-generic", True),
        ("OpenCL 3.1 LINUX", "OpenCL 3.1 (Build 0)", True),
    ],
)
def test_known_problems(version, device_version, works):
    problem = device.known_problem(fake_device(version=version, device_version=device_version))
    assert (problem is None) == works


def test_the_default_queue_is_kept(queue):
    assert clhist.default_queue() is queue
    assert queue.device in device.devices() or os.environ.get("PYOPENCL_CTX")


def test_the_environment_chooses_the_device():
    code = "print(clhist.default_queue().device.name)"
    assert run_python(code, PYOPENCL_CTX="0").strip() in {d.name.strip() for d in device.devices()}
    with pytest.raises(AssertionError, match="NoDeviceError: PYOPENCL_CTX='99' chooses no device"):
        run_python(code, PYOPENCL_CTX="99")


def test_the_profile_of_this_device(queue):
    report, found = device.report(queue.device), clhist.device_profile(queue.device)
    assert found is clhist.device_profile(queue.device)
    assert (found.name, found.kind) == (report.name, report.kind)
    assert found.work_group_size <= report.max_work_group_size
    assert device.memory_budget(queue.device) <= queue.device.max_mem_alloc_size


@pytest.fixture
def small(tmp_path, monkeypatch, gpu_like):
    """A profile of the user's, by the name "small": this device with little local memory."""
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    numbers = {key: getattr(gpu_like, key) for key in PARAMETERS} | {"local_memory": 2048}
    text = "".join(f"[{key}]\nvalue = {number}\nsource = 'for a test'\n" for key, number in numbers.items())
    (tmp_path / "small.toml").write_text("name = 'Small'\nkind = 'gpu'\nmatch = ['no device']\n" + text)
    return clhist.named_profile("small")


def test_the_environment_names_a_profile(queue, small, monkeypatch):
    own = clhist.device_profile(queue.device)
    kernel = clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *x", map="EMIT(x[i], 1)")
    x = np.arange(1000, dtype=np.int32) % 7
    expected = np.bincount(x, minlength=1024)
    for name, profile in (("small", small), ("", own), ("small", small)):  # a kernel that has been called before, too
        monkeypatch.setenv("CLHIST_PROFILE", name)
        has = device.device_features(queue.device)
        assert clhist.device_profile(queue.device) == dataclasses.replace(profile, features=has)
        assert kernel.plan(1000, 1024).profile == profile.name
        np.testing.assert_array_equal(kernel(x, num_bins=1024), expected)
    monkeypatch.setenv("CLHIST_PROFILE", "no such")
    with pytest.raises(clhist.ProfileError, match=r"^profile 'no such': there is none; known are small, "):
        kernel(x, num_bins=1024)


@pytest.mark.parametrize(("key", "unit"), [("local_memory", "bytes"), ("work_group_size", "work-items")])
def test_a_profile_that_claims_more_than_the_device_has(queue, gpu_like, monkeypatch, key, unit):
    """It is refused before anything is enqueued, with both figures."""
    has = {"local_memory": queue.device.local_mem_size, "work_group_size": queue.device.max_work_group_size}[key]
    has = max(has, getattr(device.own_profile(queue.device), key))
    claiming = dataclasses.replace(gpu_like, name="Other", **{key: has + 1})
    kernel = clhist.HistogramKernel(
        None, clhist.operators.count(), arguments="const int *x", map="EMIT(x[i], 1)", profile=claiming
    )
    message = rf"^profile 'Other': {key}: expected at most the {has} {unit} of .*, got {has + 1}$"
    out = np.full(10, 77)
    monkeypatch.setattr(cl, "enqueue_copy", None)
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", None)
    for call in (
        lambda: kernel(np.zeros(5, np.int32), num_bins=10, out=out, race_factor="sample"),
        lambda: kernel.plan(5, 10),
    ):
        with pytest.raises(clhist.ProfileError, match=message):
            call()
    assert np.all(out == 77)
    with pytest.raises(TypeError, match=r"profile: expected a clhist.Profile, .* got 'nvidia-h200'"):
        device.checked_profile("nvidia-h200", queue.device)


def test_a_profile_says_what_updates_may_use(queue, gpu_like):
    """Fewer features are obeyed, others than the device has are refused with what it has, before anything runs."""

    def of(profile):
        add = clhist.operators.add(np.int64)
        return clhist.HistogramKernel(None, add, arguments="const int *x", map="EMIT(x[i], 1)", profile=profile)

    has = device.device_features(queue.device)
    assert clhist.device_profile(queue.device).features == has
    assert clhist.device_profile(queue.device).atomics["add", "int32", "local"] == "core"
    choices = {"memory": "global", "copies": 1}
    best = "native" if "int64_base_atomics" in has else "lock"  # Mesa's llvmpipe lacks them
    assert of(gpu_like).plan(10**6, 100, **choices).update == best
    poor = dataclasses.replace(gpu_like, features=has - {"int64_base_atomics"})
    assert of(poor).plan(10**6, 100, **choices).update == "lock"
    assert ("add", "int64", "global") not in poor.atomics
    x = np.arange(10_000, dtype=np.int32) % 100
    np.testing.assert_array_equal(of(poor)(x, num_bins=100, **choices), np.full(100, 100))
    rich = dataclasses.replace(gpu_like, name="Rich", features=has | {"amd_builtins:add_float32_local"})
    message = rf"^profile 'Rich': features: expected some of .*{min(has)}.*, got amd_builtins:add_float32_local$"
    out = np.full(100, 7)
    with pytest.raises(clhist.ProfileError, match=message):
        of(rich)(x, num_bins=100, out=out)
    assert np.all(out == 7)


@pytest.mark.parametrize(
    ("more", "aliases"),
    [
        ({"board_name_amd": "AMD Radeon RX 6800 XT"}, ("AMD Radeon RX 6800 XT",)),
        ({"compute_capability_major_nv": 8, "compute_capability_minor_nv": 6}, ("sm_86",)),
        ({}, ()),
    ],
)
def test_what_else_drivers_call_a_device(more, aliases):
    class Device:
        type = cl.device_type.GPU

        def __getattr__(self, name):
            if name in more:
                return more[name]
            raise cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")

    assert device._aliases(Device()) == aliases


@pytest.fixture
def intel(tmp_path, monkeypatch):
    """Return the library of an environment with Intel's runtime, on a system that knows of another."""
    for folder in ("lib", "vendors"):
        (tmp_path / folder).mkdir()
    (tmp_path / "vendors" / "other.icd").write_text("libother.so\n")
    (tmp_path / "vendors" / "notes.txt").write_text("nothing")
    monkeypatch.setattr(runtimes, "SYSTEM_VENDORS", tmp_path / "vendors")
    monkeypatch.setattr(runtimes, "VENDORS", ())  # of GPUs that this machine has
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(runtimes.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("OCL_ICD_VENDORS", "")  # so that what it was comes back in the end
    monkeypatch.delenv("OCL_ICD_VENDORS")
    library = tmp_path / "lib" / "libintelocl.so"
    library.touch()
    return library


def registered(monkeypatch):
    """Register and return what the loader would find; forget the registration."""
    runtimes.register_installed_runtimes()
    found = {entry.name: entry.read_text() for entry in Path(os.environ["OCL_ICD_VENDORS"]).iterdir()}
    monkeypatch.delenv("OCL_ICD_VENDORS")
    return found


def test_an_installed_runtime_is_added_to_those_of_the_system(intel, monkeypatch):
    mine = {"zz-intel-cpu.icd": f"{intel}\n"}
    for _ in range(2):
        assert registered(monkeypatch) == {"other.icd": "libother.so\n", **mine}
    (runtimes.SYSTEM_VENDORS / "other.icd").rename(runtimes.SYSTEM_VENDORS / "third.icd")
    assert registered(monkeypatch) == {"third.icd": "libother.so\n", **mine}
    monkeypatch.setattr(runtimes, "SYSTEM_VENDORS", intel / "nowhere")
    assert registered(monkeypatch) == mine


def test_environments_do_not_share_what_they_register(intel, tmp_path, monkeypatch):
    registered(monkeypatch)
    other = tmp_path / "other"
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "libintelocl.so").touch()
    monkeypatch.setattr("sys.prefix", str(other))
    assert registered(monkeypatch)["zz-intel-cpu.icd"] == f"{other}/lib/libintelocl.so\n"
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert registered(monkeypatch)["zz-intel-cpu.icd"] == f"{intel}\n"


def test_the_users_choice_of_runtimes_stays(intel, monkeypatch):
    monkeypatch.setenv("OCL_ICD_VENDORS", "libmine.so")
    runtimes.register_installed_runtimes()
    assert os.environ["OCL_ICD_VENDORS"] == "libmine.so"


def test_nothing_is_registered(intel):
    intel.unlink()
    runtimes.register_installed_runtimes()
    assert "OCL_ICD_VENDORS" not in os.environ


def test_an_installed_runtime_is_found_without_a_cache(intel, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where the directory would be")
    for _ in range(2):
        assert registered(monkeypatch) == {"other.icd": "libother.so\n", "zz-intel-cpu.icd": f"{intel}\n"}
    monkeypatch.setattr(runtimes, "temporary_directory", lambda: tmp_path / "cache")
    runtimes.register_installed_runtimes()  # nowhere
    assert "OCL_ICD_VENDORS" not in os.environ
