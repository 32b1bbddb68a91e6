"""Caches of PyOpenCL and PoCL, whose files have no checksums: damaged ones are found, named and made again.

Either would load machine code with a wrong bit, or end the process. PyOpenCL's programs get a file of checksums when
they are written. PoCL writes whenever it likes, so what it wrote is recorded when the process ends.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pyopencl as cl

from clhist._core.opencl.caches import pocl_cache, replace_caches
from clhist.files.sealed import digest_of, drop_damaged, read_sealed, warn_of_damage, write_sealed

_PROGRAM = re.compile(r"[A-Z]{20,64}")  # a directory of PoCL's, by the checksum of the source
_CHECKED = ("binary", "info")
_started = time.time()


def check_pyopencl_caches() -> None:
    """Have PyOpenCL use those entries of its cache alone that are as they were written.

    Code that calls kernels is made anew in each process, in 0.4 ms for a signature: its database takes half of that,
    and would be read before any of it could be checked.
    """
    _keep_invokers_in_memory()
    import pyopencl.cache as cache

    retrieve = getattr(cache, "retrieve_from_cache", None)
    create = getattr(cache, "create_built_program_from_source_cached", None)
    if retrieve is None or create is None or hasattr(retrieve, "__wrapped__"):
        return
    building = threading.local()  # threads build at the same time

    @wraps(retrieve)
    def retrieve_from_cache(cache_dir: str, cache_key: str) -> Any:
        entry = Path(cache_dir, cache_key)
        if _is_sealed(entry):
            return retrieve(cache_dir, cache_key)
        building.entries = [*getattr(building, "entries", []), entry]
        return None

    @wraps(create)
    def create_built_program_from_source_cached(*args: Any, **options: Any) -> Any:
        building.entries = []
        found = create(*args, **options)
        for entry in building.entries:
            with suppress(OSError):
                for name in _CHECKED:
                    write_sealed(entry / f"{name}.sha256", entry.name, digest_of(entry / name))
        return found

    cache.retrieve_from_cache = retrieve_from_cache
    cache.create_built_program_from_source_cached = create_built_program_from_source_cached


def _is_sealed(entry: Path) -> bool:
    """Whether an entry is as it was written; what is damaged is removed, and its file is named.

    An entry without seals is one that another process is writing, or that PyOpenCL has written without clhist. PyOpenCL
    writes it again, under its lock; removed here, it would vanish under the other process.
    """
    try:
        if not entry.is_dir():
            return False
        sealed = [drop_damaged(entry / name, entry / f"{name}.sha256", entry.name) for name in _CHECKED]
        return all(sealed)
    except OSError as error:
        warn_of_damage(entry, str(error), "nothing is kept")
        replace_caches(["PYOPENCL_NO_CACHE"])
    return False


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
            if digest_of(path).hex() == digest:
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
            warn_of_damage(path, reason, "a temporary cache takes its place")
            replace_caches(["POCL_CACHE_DIR"])
            return
    atexit.register(_record, root, record, os.getpid())


def _record(root: Path, record: Path, process: int) -> None:
    """Record the files of programs that were used since this process began."""
    if os.getpid() != process:
        return
    with suppress(OSError):
        found = {name: state for name, state in _recorded(record).items() if (root / name).is_file()}
        before = dict(found)
        for program in _programs(root):
            with suppress(OSError):
                if (program / "last_accessed").stat().st_mtime >= _started - 1:
                    found |= {str(file.relative_to(root)): _entry(file) for file in _files(program)}
        if found != before:
            write_sealed(record, "kernels", json.dumps(found).encode())


def _programs(root: Path) -> Iterator[Path]:
    for folder in (root, root / "kcache"):
        if folder.is_dir():
            for initial in folder.iterdir():
                if len(initial.name) == 2 and initial.is_dir():
                    yield from (each for each in initial.iterdir() if _PROGRAM.fullmatch(each.name))


def _files(program: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(program):
        yield from (Path(folder, name) for name in names if name != "last_accessed" and not name.startswith("temp"))


def _entry(path: Path) -> list[Any]:
    return [*_state(path), digest_of(path).hex()]


def _state(path: str | Path) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _recorded(record: Path) -> Mapping[str, list[Any]]:
    content = read_sealed(record, "kernels")
    found: dict[str, list[Any]] = {} if content is None else json.loads(content)
    return found
