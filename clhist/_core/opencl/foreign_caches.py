"""Caches of PyOpenCL and PoCL, whose files have no checksums: damaged ones are found, named and made again.

Either would load machine code with a wrong bit, or end the process. PyOpenCL's programs are stored in files that hold
their checksum. PoCL writes whenever it likes, so what it wrote is recorded when the process ends.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import platformdirs
import pyopencl as cl

from clhist._core.opencl import intel
from clhist._core.opencl.build_options import is_output_shown, is_own_build
from clhist._core.opencl.caches import pocl_cache, replace_caches
from clhist.files.sealed import read_sealed, warn_of_damage, write_sealed

_PROGRAM = re.compile(r"[A-Z]{20,64}")  # a directory of PoCL's, by the checksum of the source
_INCLUDE = re.compile(rb"#\s*include")
_LENGTH_BYTES = 8
# Programs that PoCL used since then are recorded at the end of the process.
_started = time.time()


def seal_programs_of_pyopencl() -> None:
    """Have PyOpenCL store each program of clhist in one file with a checksum, in the cache directory of clhist.

    PyOpenCL's cache has several files for a program and one lock file for all: a process that ends while it holds the
    lock stops all others. Here a file takes its place at once, so processes need no lock. Programs that the caller
    builds, and those with ``#include``, stay PyOpenCL's, which repeats what compilers said and looks at headers.

    Code that calls kernels is made anew in each process, in 0.4 ms for a signature: its database takes half of that,
    and would be read before any of it could be checked.
    """
    _keep_invokers_in_memory()
    import pyopencl.cache as cache

    # Another PyOpenCL may lack the function, and a second import must not wrap it twice.
    create = getattr(cache, "create_built_program_from_source_cached", None)
    if create is None or hasattr(create, "__wrapped__"):
        return

    program_of = cache._cl._Program  # noqa: SLF001  # which `create` returns, and PyOpenCL has no public name for

    @wraps(create)
    def create_built_program_from_source_cached(
        context: cl.Context,
        source: str | bytes,
        options: bytes,
        devices: Sequence[cl.Device] | None = None,
        cache_dir: str | Literal[False] | None = None,
        include_path: Sequence[str] | None = None,
    ) -> tuple[Any, bool]:
        text = source.encode() if isinstance(source, str) else source
        if cache_dir is not None or _INCLUDE.search(text) or is_output_shown() or not is_own_build():
            return create(context, source, options, devices, cache_dir, include_path)
        chosen = [*(devices or context.devices)]
        path = path_of_program(chosen, options, text)
        stored = read_sealed(path, path.name) if os.path.lexists(path) else None
        if stored is not None:
            with suppress(cl.Error):  # a driver that does not take what it wrote: compiled again
                program = program_of(context, chosen, _split(stored))
                program.build(options, chosen)
                return program, True
        # With `cache_dir=False` PyOpenCL stores nothing itself.
        program, _ = create(context, source, options, devices, False)
        write_sealed(path, path.name, _joined(program, chosen))
        return program, False

    cache.create_built_program_from_source_cached = create_built_program_from_source_cached  # type: ignore[assignment]


def path_of_program(devices: Sequence[cl.Device], options: bytes, text: bytes) -> Path:
    """Return the file of a program in the cache; its name is the program's key."""
    from pyopencl.cache import get_cache_key

    # PyOpenCL's own keys have the platform, the device, its driver, the options and the source.
    keys = [get_cache_key(device, options, text) for device in devices]
    # Intel's CPU runtime also takes a binary with other instructions than it compiles for now.
    keys += [os.environ[intel.VARIABLE]] if intel.VARIABLE in os.environ else []
    return platformdirs.user_cache_path("clhist") / "programs" / sha256(json.dumps(keys).encode()).hexdigest()


def _joined(program: Any, devices: Sequence[cl.Device]) -> bytes:
    """Return the binaries of a program in the order of these devices, each after its length."""
    # Binaries come in the order of the program's devices, which may differ from the caller's.
    order = program.get_info(cl.program_info.DEVICES)
    binaries = program.get_info(cl.program_info.BINARIES)
    return b"".join(
        len(binary).to_bytes(_LENGTH_BYTES, "little") + binary
        for binary in (binaries[order.index(device)] for device in devices)
    )


def _split(content: bytes) -> list[bytes]:
    """Return the parts that `_joined` has joined."""
    binaries, begin = [], 0
    while begin < len(content):
        begin += _LENGTH_BYTES
        end = begin + int.from_bytes(content[begin - _LENGTH_BYTES : begin], "little")
        binaries.append(content[begin:end])
        begin = end
    return binaries


class _Invokers(dict[Any, Any]):
    """The cache in which PyOpenCL keeps its invokers."""

    def store_if_not_present(self, key: Any, value: Any) -> None:
        """Keep the value, unless there is one."""
        self.setdefault(key, value)


def _keep_invokers_in_memory() -> None:
    before, cl._PYOPENCL_NO_CACHE = cl._PYOPENCL_NO_CACHE, True  # whose import opens the database otherwise
    try:
        import pyopencl.invoker as invoker
    finally:
        cl._PYOPENCL_NO_CACHE = before
    invoker.invoker_cache = _Invokers()  # type: ignore[assignment]


def check_pocl_cache() -> None:
    """Remove the files of PoCL's cache that are not as they were when they were recorded; a warning names each.

    Before PoCL is used for the first time. Files that only were touched since are read; others cost 2 µs each.
    """
    root = pocl_cache()
    record = root / "clhist-kernels.sha256"
    folder = os.fspath(root)
    for name, (*state, digest) in _recorded(record).items():
        file = f"{folder}/{name}"
        try:
            if _state(file) == state:
                continue
            path = Path(file)  # which costs ten times as much as to look at a file, so only here
            if _digest(path) == digest:
                continue
            reason = "its checksum is wrong"
        except FileNotFoundError:
            continue
        except OSError as error:
            path, reason = Path(file), str(error)
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            warn_of_damage(path, reason)
        except OSError:
            # PoCL would load the damaged file, which stays: in this process it has another cache.
            warn_of_damage(path, reason, "a temporary cache takes its place")
            replace_caches(["POCL_CACHE_DIR"])
            return
    atexit.register(_record, root, record, os.getpid())


def _record(root: Path, record: Path, process: int) -> None:
    """Record the files of programs that were used since this process began."""
    # A forked child may run its parent's exit handlers as well.
    if os.getpid() != process:
        return
    with suppress(OSError):
        # Files that PoCL has removed since are dropped from the record.
        states = {name: state for name, state in _recorded(record).items() if (root / name).is_file()}
        before = dict(states)
        for program in _programs(root):
            with suppress(OSError):
                # A second earlier, since file systems may store coarse times.
                if (program / "last_accessed").stat().st_mtime >= _started - 1:
                    states |= {str(file.relative_to(root)): _entry(file) for file in _files(program)}
        if states != before:
            write_sealed(record, "kernels", json.dumps(states).encode())


def _programs(root: Path) -> Iterator[Path]:
    for folder in (root, root / "kcache"):
        if folder.is_dir():
            for initial in folder.iterdir():
                if len(initial.name) == 2 and initial.is_dir():
                    yield from (program for program in initial.iterdir() if _PROGRAM.fullmatch(program.name))


def _files(program: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(program):
        yield from (Path(folder, name) for name in names if name != "last_accessed" and not name.startswith("temp"))


def _entry(path: Path) -> list[Any]:
    return [*_state(path), _digest(path)]


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _state(path: str | Path) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _recorded(record: Path) -> Mapping[str, list[Any]]:
    content = read_sealed(record, "kernels")
    states: dict[str, list[Any]] = {} if content is None else json.loads(content)
    return states
