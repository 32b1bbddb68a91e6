"""OpenCL C to code objects, by Debian's clang and ROCm's device library."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from emulated.places import NEWEST, places, replace
from emulated.targets import Target

VERSION = os.environ.get("CLHIST_EMULATED_CLANG", NEWEST)  # 16 makes code objects of version 4


class CompileError(Exception):
    """The compiler rejects a program; the message is its log."""


def compile_for(target: Target, source: str, options: Sequence[str] = ()) -> Path:
    """Return the code object of a program, compiled or kept from before.

    Raises
    ------
    CompileError
        With the compiler's log.
    """
    clang, given = places().program("clang", VERSION), [option for option in options if option]
    standard = [] if any("-cl-std" in option for option in given) else ["-cl-std=CL1.2"]
    words = ["-x", "cl", *standard, *given, "-target", "amdgcn-amd-amdhsa", *target.options, "-O3", "-w"]
    words += ["-Xclang", "-finclude-default-header", "-D__AMD__=1", "-D__AMDGCN__=1", "-D__OPENCL_VERSION__=200"]
    key = hashlib.sha256("\0".join([source, *words, VERSION]).encode()).hexdigest()[:24]
    file = places().cache / "objects" / f"{key}.co"
    if not file.exists():
        text, made = file.with_suffix(".cl"), file.with_suffix(f".{os.getpid()}")
        replace(text, source.encode())
        library = f"--rocm-device-lib-path={_device_library(target)}"
        run = _run([str(clang), *words, library, "-o", str(made), str(text)])
        if run.returncode:
            raise CompileError(run.stderr)
        made.replace(file)
    return file


def disassembly(target: Target, file: Path) -> str:
    """Return the instructions of a code object, each with its address."""
    return _run([str(places().program("llvm-objdump")), "-d", target.options[0].replace("-m", "--m"), str(file)]).stdout


def _run(line: Sequence[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, input=given, capture_output=True, text=True, env=places().environment, timeout=300, check=False
    )


def _device_library(target: Target) -> Path:
    """Return a directory with the device library, which lacks only a constant for targets newer than itself."""
    directory, version = places().cache / "bitcode", target.name.partition("-")[0].removeprefix("gfx")
    directory.mkdir(parents=True, exist_ok=True)
    for file in places().bitcode.glob("*.bc"):
        link = directory / file.name
        if not link.exists():
            made = directory / f"{file.name}.{os.getpid()}"
            made.symlink_to(file)
            made.replace(link)
    wanted = directory / f"oclc_isa_version_{version}.bc"
    if not wanted.exists():
        number = int(version[:-2]) * 1000 + int(version[-2], 16) * 100 + int(version[-1], 16)
        text = _run([str(places().program("llvm-dis")), str(directory / "oclc_isa_version_906.bc"), "-o", "-"]).stdout
        made = wanted.with_suffix(f".{os.getpid()}")
        run = _run(
            [str(places().program("llvm-as")), "-o", str(made)],
            text.replace("constant i32 9006", f"constant i32 {number}"),
        )
        if run.returncode:
            raise CompileError(run.stderr)
        made.replace(wanted)
    return directory
