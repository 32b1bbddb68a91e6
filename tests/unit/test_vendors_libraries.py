"""Which vendors' libraries are registered: found in fake folders, without a loader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clhist._core.opencl import icd

NVIDIA, AMD, INTEL_GPU, INTEL_CPU = "libnvidia-opencl.so.1", "libamdocl64.so", "libigdrcl.so", "libintelocl.so"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return the root of a system that knows of one library, which is there."""
    monkeypatch.setattr(icd, "ROOT", tmp_path)
    monkeypatch.setattr(icd, "SYSTEM_VENDORS", tmp_path / "etc" / "OpenCL" / "vendors")
    monkeypatch.setattr(icd.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "")  # so that what it was comes back in the end
        monkeypatch.delenv(name)
    (tmp_path / "etc" / "OpenCL" / "vendors").mkdir(parents=True)
    add(tmp_path, "usr/lib/x86_64-linux-gnu/libpocl.so.2")
    write_icd(tmp_path, "pocl", "libpocl.so.2")
    return tmp_path


def add(root, path):
    library = root / path
    library.parent.mkdir(parents=True, exist_ok=True)
    library.touch()
    return library


def write_icd(root, name, text, folder="etc/OpenCL/vendors"):
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / f"{name}.icd").write_text(f"{text}\n")


def registered(monkeypatch):
    """Return the libraries that the loader is told of by clhist's own entries; None if it is told nothing."""
    icd.register_installed_runtimes()
    if "OCL_ICD_VENDORS" not in os.environ:
        return None
    folder = Path(os.environ["OCL_ICD_VENDORS"])
    found = {entry.name: entry.read_text().strip() for entry in folder.iterdir()}
    assert found.pop("pocl.icd") == "libpocl.so.2"
    monkeypatch.delenv("OCL_ICD_VENDORS")
    return found


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ("zz-nvidia.icd", f"usr/lib/{NVIDIA}"),
        ("zz-nvidia.icd", f"usr/lib/x86_64-linux-gnu/{NVIDIA}"),
        ("zz-nvidia.icd", f"usr/lib/aarch64-linux-gnu/{NVIDIA}"),
        ("zz-nvidia.icd", f"usr/lib64/{NVIDIA}"),
        ("zz-nvidia.icd", f"usr/local/nvidia/lib64/{NVIDIA}"),
        ("zz-nvidia.icd", f"usr/lib/wsl/lib/{NVIDIA}"),
        ("zz-amd.icd", f"opt/rocm/lib/{AMD}"),
        ("zz-amd.icd", f"opt/rocm-6.2.0/lib/{AMD}"),
        ("zz-amd.icd", f"opt/amdgpu-pro/lib/x86_64-linux-gnu/{AMD}"),
        ("zz-amd.icd", f"opt/amdgpu/lib/x86_64-linux-gnu/{AMD}"),
        ("zz-intel-gpu.icd", f"usr/lib/x86_64-linux-gnu/intel-opencl/{INTEL_GPU}"),
        ("zz-intel-gpu.icd", f"usr/local/lib/intel-opencl/{INTEL_GPU}"),
        ("zz-intel-cpu.icd", f"venv/lib/{INTEL_CPU}"),
    ],
)
def test_a_library_that_no_icd_file_names(root, monkeypatch, entry, path):
    assert registered(monkeypatch) is None
    library = add(root, path)
    for _ in range(2):
        assert registered(monkeypatch) == {entry: str(library)}
    write_icd(root, "vendor", library)  # which names it
    assert registered(monkeypatch) is None
    write_icd(root, "vendor", f"/nowhere/{library.name}")  # which names one that is not there
    found = registered(monkeypatch)
    assert found[entry] == str(library)
    (root / "etc/OpenCL/vendors/vendor.icd").unlink()
    for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"):
        monkeypatch.setenv(name, "mine")
        icd.register_installed_runtimes()
        assert os.environ[name] == "mine"
        monkeypatch.delenv(name)
        assert "OCL_ICD_VENDORS" not in os.environ


def test_where_the_dynamic_linker_looks(root, monkeypatch):
    library = add(root, f"cuda/compat/{NVIDIA}")
    assert registered(monkeypatch) is None
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{root}/nowhere:{library.parent}")
    assert registered(monkeypatch) == {"zz-nvidia.icd": str(library)}
    write_icd(root, "nvidia", NVIDIA)  # as the driver's own, which the linker can resolve
    assert registered(monkeypatch) is None
    monkeypatch.delenv("LD_LIBRARY_PATH")
    (root / "etc/OpenCL/vendors/nvidia.icd").unlink()
    (root / "etc/ld.so.conf.d").mkdir()
    (root / "etc/ld.so.conf.d/nvidia.conf").write_text("# libraries\n/cuda/compat # of the host\n")
    assert registered(monkeypatch) == {"zz-nvidia.icd": str(library)}


def test_an_icd_file_whose_name_the_linker_cannot_resolve(root, monkeypatch):
    library = add(root, f"usr/local/nvidia/lib64/{NVIDIA}")
    write_icd(root, "nvidia", NVIDIA)
    assert registered(monkeypatch)["zz-nvidia.icd"] == str(library)


def test_each_vendor_once(root, monkeypatch):
    add(root, f"opt/rocm-5.7.0/lib/{AMD}")
    for version in ("10.1.0", "6.2.0", "10.0.9", "9.3.0"):  # numbers are compared as such
        add(root, f"opt/rocm-{version}/lib/{AMD}")
    newest = root / f"opt/rocm-10.1.0/lib/{AMD}"
    nvidia = add(root, f"usr/lib64/{NVIDIA}")
    add(root, f"usr/lib/wsl/lib/{NVIDIA}")
    assert registered(monkeypatch) == {"zz-amd.icd": str(newest), "zz-nvidia.icd": str(nvidia)}
    default = add(root, f"opt/rocm/lib/{AMD}")
    assert registered(monkeypatch)["zz-amd.icd"] == str(default)


def test_what_an_environment_of_conda_names_stays(root, monkeypatch):
    write_icd(root, "cuda", NVIDIA, "venv/etc/OpenCL/vendors")
    write_icd(root, "pocl", "another", "venv/etc/OpenCL/vendors")
    library = add(root, f"usr/local/nvidia/lib64/{NVIDIA}")
    assert registered(monkeypatch) == {"cuda.icd": NVIDIA, "zz-nvidia.icd": str(library)}


def test_a_folder_that_cannot_be_read(root, monkeypatch):
    (root / "etc/OpenCL/vendors/bad.icd").write_bytes(b"\xff\xfe")
    (root / "etc/OpenCL/vendors/empty.icd").write_text("")
    library = add(root, f"usr/lib/{NVIDIA}")
    assert registered(monkeypatch) == {"empty.icd": "", "zz-nvidia.icd": str(library)}


def test_what_names_a_library(root, monkeypatch):
    pocl = root / "usr/lib/x86_64-linux-gnu/libpocl.so.2"
    assert icd.registered_by(pocl) == f"named by {root}/etc/OpenCL/vendors/pocl.icd"
    bundled = add(root, "venv/lib/pyopencl/libpocl.so.2")
    assert icd.registered_by(bundled) == "bundled with PyOpenCL"
    library = add(root, f"usr/lib/{NVIDIA}")
    icd.register_installed_runtimes()
    assert icd.registered_by(library) == "found by clhist, since no .icd file names it"
    assert icd.registered_by(pocl) == f"named by {root}/etc/OpenCL/vendors/pocl.icd"
    monkeypatch.setenv("OCL_ICD_VENDORS", str(bundled))
    assert icd.registered_by(bundled) == "named by OCL_ICD_VENDORS"
    write_icd(root, "own", bundled, "own")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(root / "own"))
    assert icd.registered_by(bundled) == f"named by {root}/own/own.icd"


def test_a_pointer_to_no_function():
    import ctypes

    table = (ctypes.c_void_p * 2)(None, None)
    assert icd.library_of(ctypes.addressof((ctypes.c_void_p * 1)(ctypes.addressof(table)))) is None
    assert icd.library_of(ctypes.addressof((ctypes.c_void_p * 1)(None))) is None
