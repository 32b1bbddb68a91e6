"""Compilers for hardware that is not here, and the devices that they compile for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INT64 = "cl_khr_int64_base_atomics cl_khr_int64_extended_atomics"
AMD = ("Advanced Micro Devices, Inc.", f"cl_khr_fp64 {INT64}", "AMD Accelerated Parallel Processing", "OpenCL C 2.0")
INTEL = ("Intel(R) Corporation", f"{INT64} cl_ext_float_atomics", "Intel(R) OpenCL HD Graphics", "OpenCL C 3.0")
NVIDIA = ("NVIDIA Corporation", f"cl_khr_fp64 {INT64}", "NVIDIA CUDA", "OpenCL C 1.2")


@dataclass(frozen=True)
class Target:
    """A device as its driver presents it, and what the compiler calls it.

    Attributes
    ----------
    name : str
        For the compiler.
    device : str
        CL_DEVICE_NAME.
    driver : tuple of str
        Vendor, extensions, name of the platform, version of OpenCL C.
    compute_units, group, local_memory : int
        As OpenCL reports them.
    more : str
        Further extensions.
    """

    name: str
    device: str
    driver: tuple[str, str, str, str]
    compute_units: int
    group: int = 1024
    local_memory: int = 65536
    more: str = ""

    @property
    def vendor(self) -> str:
        """Short."""
        return {AMD: "amd", INTEL: "intel", NVIDIA: "nvidia"}[self.driver]


TARGETS = (
    Target("gfx803", "Radeon RX 580 Series", AMD, 36, 256, 32768),
    Target("gfx906", "AMD Radeon VII", AMD, 60, 256),
    Target("gfx90a", "AMD Instinct MI210", AMD, 104, 256),
    Target("gfx1030", "AMD Radeon RX 6800", AMD, 30, 256),
    Target("skl", "Intel(R) HD Graphics 530", INTEL, 24, 256, more="cl_khr_fp64"),
    Target("dg2", "Intel(R) Arc(TM) A770 Graphics", INTEL, 512),
    # ptxas takes no more than 48 KiB of constant size; NVIDIA's driver does.
    Target("sm_75", "NVIDIA GeForce RTX 2080 Ti", NVIDIA, 68, local_memory=49152),
    Target("sm_90", "NVIDIA H200", NVIDIA, 132, local_memory=49152),
)


class Tools:
    """The compilers: those that are installed, or else of the directory."""

    def __init__(self, directory: str) -> None:
        self.root = Path(directory)
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        self.environment = os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{self.root / 'usr/lib/llvm-16/lib'}"}
        self.clang = self._program("usr/lib/llvm-16/bin/clang", "clang-16")
        self.ocloc = self._program("usr/bin/ocloc", "ocloc")
        self.ptxas = self._program("bin/ptxas", "ptxas")
        self.rocm = self._file("usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
        self.libclc = self._file("usr/lib/clc/nvptx64--nvidiacl.bc")

    def _program(self, path: str, name: str) -> str | None:
        return shutil.which(name) or (str(self.root / path) if (self.root / path).exists() else None)

    def _file(self, path: str) -> str | None:
        return next((str(root / path) for root in (Path("/"), self.root) if (root / path).exists()), None)

    def missing(self, vendor: str) -> list[str]:
        """Return what is not there for a vendor's targets."""
        needed = {
            "amd": {"clang-16": self.clang, "rocm-device-libs": self.rocm},
            "intel": {"ocloc (intel-opencl-icd)": self.ocloc},
            "nvidia": {"clang-16": self.clang, "libclc-16": self.libclc, "ptxas": self.ptxas},
        }
        return [name for name, found in needed[vendor].items() if found is None]

    def compile(self, target: Target, source: str, options: Sequence[str]) -> tuple[str, str]:
        """Return the assembly and what is wrong: the compiler's errors, or registers that do not suffice."""
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "k.cl").write_text(source)
            return getattr(self, f"_{target.vendor}")(target, Path(directory), list(options))

    def _run(self, directory: Path, *command: str | None) -> subprocess.CompletedProcess[str]:
        line = [str(word) for word in command]
        return subprocess.run(
            line, cwd=directory, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def _clang(self, directory: Path, options: list[str], *more: str) -> subprocess.CompletedProcess[str]:
        standard = [] if any("-cl-std" in option for option in options) else ["-cl-std=CL1.2"]
        header = ["-Xclang", "-finclude-default-header"]
        return self._run(
            directory, self.clang, "-x", "cl", *standard, *options, *header, *more, "-O2", "-S", "-o", "k.s", "k.cl"
        )

    def _amd(self, target: Target, directory: Path, options: list[str]) -> tuple[str, str]:
        device = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target.name}", f"--rocm-device-lib-path={self.rocm}")
        run = self._clang(directory, options, *device)
        if run.returncode:
            return "", run.stderr
        code, wrong = (directory / "k.s").read_text(), ""
        for what in ("private_segment_fixed_size", "vgpr_spill_count", "sgpr_spill_count"):
            most = max(map(int, re.findall(rf"\.{what}: +(\d+)", code)), default=0)
            wrong += f"{what} {most}; " if most else ""
        used = max(map(int, re.findall(r"\.group_segment_fixed_size: +(\d+)", code)), default=0)
        return code, wrong + (f"{used} bytes of local memory; " if used > target.local_memory else "")

    def _nvidia(self, target: Target, directory: Path, options: list[str]) -> tuple[str, str]:
        extensions = [f"-cl-ext=+{name}" for name in target.driver[1].split()]
        words = ["-target-feature", "+ptx78", "-mlink-builtin-bitcode", str(self.libclc), *extensions]
        given = [word for option in words for word in ("-Xclang", option)]
        (directory / "k.cl").write_text(WIDE_ATOMICS + (directory / "k.cl").read_text())
        run = self._clang(directory, options, "-target", "nvptx64-nvidia-nvcl", f"-march={target.name}", *given)
        if run.returncode:
            return "", run.stderr
        assembled = self._run(directory, self.ptxas, f"-arch={target.name}", "-v", "k.s", "-o", "k.cubin")
        if assembled.returncode:
            return "", assembled.stderr
        spilled = re.findall(r"[1-9]\d* bytes (?:stack frame|spill stores|spill loads)", assembled.stderr)
        return (directory / "k.s").read_text(), "; ".join(spilled)

    def _intel(self, target: Target, directory: Path, options: list[str]) -> tuple[str, str]:
        standard = "" if any("-cl-std" in option for option in options) else "-cl-std=CL1.2 "
        line = ("-device", target.name, "-options", standard + " ".join(options), "-out_dir", "o", "-output", "k")
        run = self._run(directory, self.ocloc, "compile", "-file", "k.cl", *line)
        said = run.stdout + run.stderr
        binary = next(directory.glob("o/*.bin"), None)
        if run.returncode or binary is None:
            return "", said
        spilled = re.findall(r".*spill.*", said)
        shown = self._run(
            directory, self.ocloc, "disasm", "-q", "-file", str(binary), "-dump", "d", "-device", target.name
        )
        code = "\n".join(f"{file.stem}:\n{file.read_text()}" for file in sorted(directory.glob("d/*.asm")))
        return code, "\n".join(spilled) if code else f"no assembly: {shown.stdout}{shown.stderr}"


# libclc has no 64-bit atomics in PTX; the driver does. These stand for them.
WIDE_ATOMICS = "".join(
    f"""
inline ulong __attribute__((overloadable, always_inline))
atom_cmpxchg(volatile __{space} ulong *p, ulong expected, ulong next)
{{
    ulong found;
    __asm__ volatile("atom.{name}.cas.b64 %0, [%1], %2, %3;" : "=l"(found) : "l"(p), "l"(expected), "l"(next)
        : "memory");
    return found;
}}
inline ulong __attribute__((overloadable, always_inline)) atom_add(volatile __{space} ulong *p, ulong v)
{{
    ulong found;
    __asm__ volatile("atom.{name}.add.u64 %0, [%1], %2;" : "=l"(found) : "l"(p), "l"(v) : "memory");
    return found;
}}
"""
    for space, name in (("local", "shared"), ("global", "global"))
)
