"""OpenCL runtimes that are installed and that no .icd file names.

The loader inside PyOpenCL's wheels reads /etc/OpenCL/vendors and finds PoCL beside itself. It misses the drivers of
containers, into which the host's libraries are mounted without their .icd files, and Intel's CPU runtime from PyPI
(``intel-opencl-rt``), whose own .icd file has the path of its build machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import platformdirs

from clhist._core.opencl.caches import temporary_directory

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
ROOT = Path("/")
_CHOSEN_BY = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")  # variables by which a caller says what there is


class Vendor(NamedTuple):
    """A vendor's library, and the folders where it usually lies, as patterns; of several the first is taken."""

    entry: str
    library: str
    folders: tuple[str, ...]
    is_searched: bool = False  # also where the dynamic linker looks


VENDORS = (
    Vendor(
        "zz-nvidia.icd",
        "libnvidia-opencl.so.1",
        (
            "usr/local/nvidia/lib64",
            "usr/local/nvidia/lib",
            "usr/lib/*-linux-gnu",
            "usr/lib64",
            "usr/lib",
            "usr/lib/wsl/lib",
        ),
        is_searched=True,
    ),
    Vendor(
        "zz-amd.icd",
        "libamdocl64.so",
        (
            "opt/rocm/lib",
            "opt/rocm/opencl/lib",
            "opt/rocm-*/lib",
            "opt/rocm-*/opencl/lib",
            "opt/amdgpu-pro/lib/*-linux-gnu",
            "opt/amdgpu-pro/lib64",
            "opt/amdgpu/lib/*-linux-gnu",
            "opt/amdgpu/lib64",
        ),
    ),
    Vendor(
        "zz-intel-gpu.icd",
        "libigdrcl.so",
        (
            "usr/lib/*-linux-gnu/intel-opencl",
            "usr/lib64/intel-opencl",
            "usr/lib/intel-opencl",
            "usr/local/lib/intel-opencl",
        ),
    ),
)
_INTEL_CPU = Vendor("zz-intel-cpu.icd", "libintelocl.so", ())  # of this environment
_OWN_ENTRIES = {vendor.entry for vendor in (*VENDORS, _INTEL_CPU)}


def register_installed_runtimes() -> None:
    """Let the OpenCL loader see the runtimes that it misses, beside all that it sees anyway.

    Works by ``OCL_ICD_VENDORS``, and so only before the first OpenCL call of the process. Does nothing if the caller
    has set that variable or ``OPENCL_VENDOR_PATH``, or if no such runtime is installed. What the loader reads is in the
    user's cache directory, or in a temporary one if that cannot be written.
    """
    # The caller's own choice of runtimes stands.
    if any(name in os.environ for name in _CHOSEN_BY):
        return
    named = list(_named(_vendor_folders()))
    missed = {vendor.entry: f"{library}\n" for vendor, library in _missed(name for _, name in named)}
    if not missed:
        return
    # `OCL_ICD_VENDORS` names the only folder that the loader reads, so that it gets the entries of all others too.
    entries = {file.name: f"{name}\n" for file, name in reversed(named)} | missed  # the system's before conda's
    # A folder for each content: what another process reads is never written again.
    content = hashlib.sha256(repr(entries).encode()).hexdigest()[:16]
    try:
        try:
            vendors = _written(platformdirs.user_cache_path("clhist") / "vendors" / content, entries)
        except OSError:
            vendors = _written(temporary_directory() / "vendors" / content, entries)
    except OSError:
        return
    os.environ["OCL_ICD_VENDORS"] = str(vendors)
    if "pyopencl" in sys.modules:  # by which the caller may have called OpenCL already
        _registered[:] = [Path(text.strip()) for text in missed.values()]


_registered: list[Path] = []


def registered_too_late(seen: Iterable[Path | None]) -> list[str]:
    """Return the libraries that were registered and are none of those `seen`: OpenCL was used before the import."""
    libraries = [path for path in seen if path is not None]
    return [str(library) for library in _registered if not any(library.samefile(other) for other in libraries)]


def library_of(platform: int) -> Path | None:
    """Return the library that a platform's functions are in, by the pointer that is its ID; None where nothing says so.

    A platform begins with a pointer to the table of its functions (cl_khr_icd), and Linux knows which file each is in.
    """
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    # The first function of the table is as good as any: all are in the vendor's library.
    table = ctypes.c_void_p.from_address(platform).value
    function = table and ctypes.c_void_p.from_address(table).value
    for line in maps if function else ():
        where, *_, path = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in where.split("-"))
        if low <= (function or 0) < high:
            return Path(path) if path.startswith("/") else None
    return None


def registered_by(library: Path) -> str:
    """Return how the loader came to a platform's library: by an .icd file, a variable, clhist, or PyOpenCL itself."""
    chosen = next((name for name in _CHOSEN_BY if name in os.environ), "")
    folder = Path(os.environ.get(chosen, ""))
    for file, name in _named([*_vendor_folders(), *([folder] if chosen and folder.is_dir() else [])]):
        if any(path.exists() and path.samefile(library) for path in _files_of(name)):
            is_ours = file.name in _OWN_ENTRIES
            return "found by clhist, since no .icd file names it" if is_ours else f"named by {file}"
    return f"named by {chosen}" if chosen and not folder.is_dir() else "bundled with PyOpenCL"


def _named(folders: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the .icd files of folders, and the libraries that they name."""
    for folder in folders:
        for file in sorted(folder.glob("*.icd")):
            try:
                yield file, file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError):
                continue


def _vendor_folders() -> list[Path]:
    """Return the folders of .icd files that a loader reads: the system's, and that of an environment of conda."""
    return [SYSTEM_VENDORS, Path(sys.prefix, "etc", "OpenCL", "vendors")]


def _missed(registered: Iterable[str]) -> Iterator[tuple[Vendor, Path]]:
    """Yield the vendors whose library is installed and in none of the .icd files, with it."""
    # An .icd file outlives its library, or has a wrong path: such a library is not there.
    registered_stems = {_stem(name) for name in registered if any(file.is_file() for file in _files_of(name))}
    for vendor in VENDORS:
        # The latest of several versions, as of ROCm, is tried first.
        folders = [folder for pattern in vendor.folders for folder in sorted(ROOT.glob(pattern), key=_version)[::-1]]
        for folder in [*(_linked_folders() if vendor.is_searched else ()), *folders]:
            library = folder / vendor.library
            if _stem(vendor.library) not in registered_stems and library.is_file():
                yield vendor, library
                break
    # The wheel of Intel's runtime puts its libraries into the environment.
    runtime = Path(sys.prefix) / "lib" / _INTEL_CPU.library
    if _stem(runtime.name) not in registered_stems and runtime.is_file():
        yield _INTEL_CPU, runtime


def _version(folder: Path) -> list[str | int]:
    """Return the text of a path with its numbers as integers, so that version 10 follows version 9."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", str(folder))]


def _files_of(name: str) -> list[Path]:
    """Return where the library may be that an .icd file names."""
    return [Path(name)] if "/" in name else [folder / name for folder in _linked_folders()] if name else []


def _linked_folders() -> Iterator[Path]:
    """Yield the folders where the dynamic linker looks: LD_LIBRARY_PATH, those of ld.so.conf, and its own."""
    for name in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if name:
            yield Path(name)
    etc = ROOT / "etc"
    for file in (etc / "ld.so.conf", *sorted((etc / "ld.so.conf.d").glob("*.conf"))):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            folder = line.partition("#")[0].strip()
            if folder.startswith("/"):
                yield ROOT / folder.lstrip("/")
    for name in ("lib64", "usr/lib64", "lib", "usr/lib"):
        yield ROOT / name
    yield from sorted(ROOT.glob("usr/lib/*-linux-gnu"))


def _stem(library: str) -> str:
    """Return the name of a library without folder and version."""
    return library.rpartition("/")[2].partition(".so")[0]


def _damaged(vendors: Path, entries: Mapping[str, str]) -> Path | None:
    """Return an entry of the folder that is not as it was written; None if all are."""
    for name, text in entries.items():
        try:
            if (vendors / name).read_bytes() == text.encode():
                continue
        except OSError:
            pass
        return vendors / name
    return None


def _written(vendors: Path, entries: Mapping[str, str]) -> Path:
    """Return the folder `vendors`, which has these `entries`; raises OSError if it cannot be written."""
    if vendors.is_dir() and (damaged := _damaged(vendors, entries)):
        from clhist.files.sealed import warn_of_damage  # rarely, and `import clhist` comes by

        warn_of_damage(damaged, "it has other contents")
        shutil.rmtree(vendors)
    if not vendors.is_dir():
        vendors.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed: another process sees the folder with all entries or not at all.
        made = Path(tempfile.mkdtemp(dir=vendors.parent))
        try:
            for name, text in entries.items():
                (made / name).write_text(text, encoding="utf-8")
            made.rename(vendors)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            if not vendors.is_dir():  # or another process was faster
                raise
    return vendors
