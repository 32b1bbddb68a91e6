"""What must be set before PyOpenCL is imported: profiles and caches of a run's own.

Caches of compiled kernels outlive a run and can hide build errors, so each run begins with empty ones, which its
processes share: what two tests need is compiled once. With CLHIST_TEST_CACHE=1 they stay in .pytest_cache: a
developer's second run compiles only what has changed. CLHIST_TEST_CACHE=FOLDER names a folder for several runs on the
same runtime with the same settings, which its caches do not tell apart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
_RUN = "CLHIST_TEST_RUN"  # the run's directory, which pytest-xdist's workers inherit
_CHOSE = "CLHIST_TEST_CHOSE_RUNTIME"
_IS_FIRST = _RUN not in os.environ
if _IS_FIRST:
    os.environ[_RUN] = tempfile.mkdtemp(prefix="clhist-tests-")
_OWN = os.environ[_RUN]
_OPTIONS = "PYOPENCL_BUILD_OPTIONS"
_BUILD_OPTIONS = os.environ.get(_OPTIONS)
_KEPT = TESTS.parent / ".pytest_cache" / "opencl"

os.environ["CLHIST_PROFILES"] = f"{_OWN}/profiles"  # none, in the place of the user's own
os.environ.pop("CLHIST_PROFILE", None)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait in loops: 0.05 s of processor for each process
os.environ.pop("COLUMNS", None)  # tables fold by it; workers of pytest-xdist have 80
os.environ.pop("PYOPENCL_NO_CACHE", None)
if (_cache := os.environ.get("CLHIST_TEST_CACHE")) == "1":
    _KEPT.mkdir(parents=True, exist_ok=True)
    os.environ |= {"POCL_CACHE_DIR": str(_KEPT), "XDG_CACHE_HOME": str(_KEPT)}
else:
    os.environ["XDG_CACHE_HOME"] = _cache or _OWN
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(dir=_OWN)  # each process's: PoCL 3.0 has crashed with a shared one


_CHOSEN = bool(os.environ.keys() & {"OCL_ICD_VENDORS", "PYOPENCL_CTX"})  # importing clhist sets the first
_DEFAULT_TYPE = "import clhist, pyopencl as cl; print(cl.device_type.to_string(clhist.default_queue().device.type))"


def choose_runtime() -> None:
    """Take Intel's CPU runtime, where it is installed, for a CPU that nobody has chosen another for.

    It compiles three times as fast as PoCL, and most of a run is compiling; besides it notices missing atomics. One
    work-item at a time, since its vectoriser takes four times as long; CI runs the tests of kernels at width 16 too.
    """
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if _CHOSEN or not library.exists():
        return
    found = subprocess.run([sys.executable, "-c", _DEFAULT_TYPE], capture_output=True, text=True, check=False)
    if found.returncode or "CPU" in found.stdout:
        os.environ["OCL_ICD_VENDORS"] = str(library)
        os.environ.setdefault("CL_CONFIG_CPU_VECTORIZER_MODE", "1")
        os.environ[_CHOSE] = "1"


def chose_runtime() -> bool:
    """Return whether `choose_runtime` took Intel's, for this process or for the one that started it."""
    return _CHOSE in os.environ


def use_optimizer(wanted: bool) -> None:
    """Build programs with or without optimization, which takes more than half of a build's time, from now on.

    Without it, programs that are in the run's cache with optimization are not built again. On the runtime that
    `choose_runtime` took: what other compilers make of programs is tested wherever these are named.
    """
    options = _BUILD_OPTIONS if wanted else "-cl-opt-disable"
    if not chose_runtime() or os.environ.get(_OPTIONS) == options:
        return
    import clhist  # reads the environment

    _take_optimized()
    if options is None:
        del os.environ[_OPTIONS]
    else:
        os.environ[_OPTIONS] = options
    clhist.clear_caches()  # programs that were built the other way


def _take_optimized() -> None:
    """Let a program that is to be built without optimization be loaded, if it was built with optimization before."""
    import pyopencl.cache as cache

    from clhist._core.opencl.foreign_caches import path_of_program

    create = cache.create_built_program_from_source_cached
    if hasattr(create, "takes_optimized"):
        return

    def created(
        context: Any, source: str | bytes, options: bytes, devices: Any = None, *arguments: Any, **named: Any
    ) -> tuple[Any, bool]:
        text = source.encode() if isinstance(source, str) else source
        optimized = options.removesuffix(b" -cl-opt-disable")
        if optimized != options and path_of_program(devices or context.devices, optimized, text).exists():
            options = optimized
        return create(context, source, options, devices, *arguments, **named)

    created.takes_optimized = True
    cache.create_built_program_from_source_cached = created


@contextmanager
def without_optimizer() -> Iterator[None]:
    """Build programs without optimization meanwhile."""
    use_optimizer(False)
    try:
        yield
    finally:
        use_optimizer(True)


def hide_opencl() -> None:
    """Let this process, and those that it starts, find no OpenCL."""
    os.environ["OCL_ICD_VENDORS"] = "/nowhere.icd"


def remove() -> None:
    """Remove what is of this run alone."""
    if _IS_FIRST:
        shutil.rmtree(_OWN)
