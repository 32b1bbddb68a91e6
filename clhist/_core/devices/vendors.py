"""Features of devices beyond OpenCL 1.2: one record for each way that a vendor or a standard offers.

To support another vendor's atomics, add a record to `VENDOR_PATHS`, and to ``.ci/offline.py`` the instruction that they
must become.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import product
from typing import NamedTuple

import numpy as np

MEMORIES = ("local", "global")

_EXTENSIONS = {
    "int64_base_atomics": ("cl_khr_int64_base_atomics", "64-bit add, exchange and compare-exchange"),
    "int64_extended_atomics": ("cl_khr_int64_extended_atomics", "64-bit min, max, and, or, xor"),
    "fp64": ("cl_khr_fp64", "double precision"),
}
_WORK_GROUP_FENCE = "mem_fence(CLK_GLOBAL_MEM_FENCE)"


class NativeAtomic(NamedTuple):
    """One hardware atomic.

    Attributes
    ----------
    operation : str
        NumPy's name of it. A minimum or maximum of floats ignores NaN: it is `numpy.fmin` or `numpy.fmax`.
    dtype : numpy.dtype
        Type of the accumulator.
    memory : {"local", "global"}
        Where the word is.
    code : str
        C statement of a pointer `p` to the word and an operand `v`, both of C type `word`.
    word : str
        C type of the word that is updated.
    path : str or None
        The one of `FEATURES` that provides it; None if every OpenCL 1.1 device has it.
    guard : str
        Preprocessor condition under which the compiler knows it, if it must be proven first.
    options : tuple of str
        Compiler options that it needs.
    numbers : int
        How many of `dtype` one updates, which follow each other.
    """

    operation: str
    dtype: np.dtype
    memory: str
    code: str
    word: str
    path: str | None = None
    guard: str = ""
    options: tuple[str, ...] = ()
    numbers: int = 1

    @property
    def feature(self) -> str | None:
        """The feature it needs: its path, or the name under which `opencl.probe` has proven this very atomic."""
        many = f"x{self.numbers}" if self.numbers > 1 else ""
        return f"{self.path}:{self.operation}_{self.dtype}{many}_{self.memory}" if self.guard else self.path


class Compiler(NamedTuple):
    """A compiler for which templates have text of its own.

    Attributes
    ----------
    name : str
        As people call it.
    macro : str
        Which it defines, and no other.
    """

    name: str
    macro: str


POCL = Compiler("PoCL", "POCL_DEVICE_ADDRESS_BITS")


class DriverReport(NamedTuple):
    """The report of a driver on a device.

    Attributes
    ----------
    extensions : frozenset of str
        Names of OpenCL extensions.
    platform : str
        Name of the platform.
    c_version : int
        Major version of OpenCL C; 0 if it is not understood.
    """

    extensions: frozenset[str]
    platform: str
    c_version: int


class VendorPath(NamedTuple):
    """One way to atomics or fences beyond OpenCL 1.2.

    Attributes
    ----------
    feature : str
        Its name among the features of a device.
    description : str
        What it provides, for `clhist info`.
    is_promised : callable
        Whether a `DriverReport` says that the device has it.
    atomics : tuple of NativeAtomic
        Atomics on floats that it provides; each must be proven on the device.
    label : str
        Its name in tables of atomics, and `source`, where they come from.
    fence : str
        C expression that orders all global memory for the device, or nothing.
    fence_options : tuple of str
        Compiler options that the fence needs.
    fence_needs_proof : bool
        Whether the fence must be proven on the device.
    reconvergence : str
        C statement that makes the lanes of a warp wait for each other, where they do not do so by themselves.
    any_lane : str
        C statements that return whether `condition` holds for some lane of a warp.
    warp : int
        Work-items of a warp, to which these apply.
    local_adds_loop : bool
        Whether atomic additions of floats and of 64 bits in local memory are loops of compare-exchange.
    """

    feature: str
    description: str
    is_promised: Callable[[DriverReport], bool]
    atomics: tuple[NativeAtomic, ...] = ()
    label: str = ""
    source: str = ""
    fence: str = ""
    fence_options: tuple[str, ...] = ()
    fence_needs_proof: bool = False
    reconvergence: str = ""
    any_lane: str = ""
    warp: int = 0
    local_adds_loop: bool = False


_FLOATS: tuple[tuple[np.dtype, str], ...] = ((np.dtype(np.float32), "float"), (np.dtype(np.float64), "double"))


def _ptx() -> tuple[NativeAtomic, ...]:
    """Return NVIDIA's additions; those of four floats need compute capability 9.0."""
    atomics = []
    for (dtype, word), memory in product(_FLOATS, MEMORIES):
        space, constraint = {"local": "shared", "global": "global"}[memory], {"float": "f", "double": "d"}[word]
        # `red` is an atomic that returns nothing. The guard "1" is always true, and asks for a proof.
        operands = f'"l"(p), "{constraint}"(v) : "memory"'
        code = f'__asm__ volatile("red.{space}.add.f{8 * dtype.itemsize} [%0], %1;" :: {operands});'
        atomics.append(NativeAtomic("add", dtype, memory, code, word, "nvidia_ptx", guard="1"))
    four = ", ".join(f'"f"(v.{component})' for component in "xyzw")
    code = f'__asm__ volatile("red.global.add.v4.f32 [%0], {{%1, %2, %3, %4}};" :: "l"(p), {four} : "memory");'
    atomics.append(NativeAtomic("add", np.dtype("f4"), "global", code, "float4", "nvidia_ptx", guard="1", numbers=4))
    return tuple(atomics)


def _extension() -> tuple[NativeAtomic, ...]:
    """Return the additions of cl_ext_float_atomics; with a NaN in memory its minima and maxima never end on PoCL 5."""
    atomics = []
    for (dtype, word), memory in product(_FLOATS, MEMORIES):
        # The narrowest scope with all work-items that can see the memory.
        scope = {"local": "memory_scope_work_group", "global": "memory_scope_device"}[memory]
        arguments = f"(volatile __{memory} atomic_{word} *)p, v, memory_order_relaxed, {scope}"
        # Intel's CPU runtime has the functions but not the macros.
        guard = f"defined(__opencl_c_ext_fp{8 * dtype.itemsize}_{memory}_atomic_add) || defined(cl_ext_float_atomics)"
        code = f"atomic_fetch_add_explicit({arguments});"
        atomics.append(
            NativeAtomic("add", dtype, memory, code, word, "ext_float_atomics", guard, options=("-cl-std=CL3.0",))
        )
    return tuple(atomics)


def _amd() -> tuple[NativeAtomic, ...]:
    """Return the builtins of AMD's compiler; each generation of devices has some of them."""
    # Operation, dtype, memory, builtin, and the arguments behind the value: memory order, scope and volatile.
    builtins = [("add", "f4", "local", "ds_faddf", ", 0, 0, 0")]
    builtins += [(name, "f4", "local", f"ds_{name}f", ", 0, 0, 0") for name in ("fmin", "fmax")]
    builtins += [("add", "f4", "global", "global_atomic_fadd_f32", "")]
    builtins += [("add", "f8", "local", "ds_atomic_fadd_f64", "")]
    names = {"add": "fadd", "fmin": "fmin", "fmax": "fmax"}
    builtins += [(operation, "f8", "global", f"global_atomic_{name}_f64", "") for operation, name in names.items()]
    atomics = []
    for operation, kind, memory, name, more in builtins:
        builtin, word = f"__builtin_amdgcn_{name}", {"f4": "float", "f8": "double"}[kind]
        code, guard = f"{builtin}((__{memory} {word} *)p, v{more});", f"CLHIST_HAS_BUILTIN({builtin})"
        atomics.append(NativeAtomic(operation, np.dtype(kind), memory, code, word, "amd_builtins", guard))
    return tuple(atomics)


_NONE = VendorPath("", "", lambda driver: False)
_ANY_LANE = """uint any;
    __asm__ volatile(
        "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.u32 %0, 1, 0, q; }"
        : "=r"(any) : "r"((uint)condition));
    return any;"""

# Where a device has several paths, the first takes precedence.
# Note [Fences reach the device], docs/decisions/0009. Note [Lanes of a warp reconverge], docs/decisions/0005.
VENDOR_PATHS = (
    VendorPath(
        "nvidia_ptx",
        "inline PTX: float atomics, device-wide fence",
        lambda driver: driver.platform.startswith("NVIDIA"),
        _ptx(),
        label="ptx",
        source="by inline PTX",
        fence='__asm__ volatile("membar.gl;" ::: "memory")',
        reconvergence='__asm__ volatile("bar.warp.sync 0xffffffff;")',
        any_lane=_ANY_LANE,
        warp=32,
        local_adds_loop=True,
    ),
    VendorPath(
        "ext_float_atomics",
        "float atomics by cl_ext_float_atomics",
        lambda driver: "cl_ext_float_atomics" in driver.extensions,
        _extension(),
        label="ext",
        source="by cl_ext_float_atomics",
    ),
    VendorPath(
        "amd_builtins",
        "builtins of AMD's compiler: float atomics, device-wide fence",
        lambda driver: driver.platform.startswith("AMD Accelerated Parallel Processing"),
        _amd(),
        label="amd",
        source="by builtins of AMD's compiler",
        fence='__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")',
    ),
    VendorPath(
        "device_fence",
        "device-wide fence of OpenCL C 3.0",
        lambda driver: driver.c_version >= 3,
        fence="atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device)",
        fence_options=("-cl-std=CL3.0",),
        fence_needs_proof=True,
    ),
)


class Fault(NamedTuple):
    """A fault of a driver that may end the process, and so is tried in a child process.

    Attributes
    ----------
    words : str
        What the driver does wrong.
    consequence : str
        What clhist does about it, in a sentence.
    device : str
        How the names of devices begin that may have it.
    source : str
        OpenCL C of a kernel ``clhist_fault`` that one work-item runs on a buffer of 64 integers.
    first, second : int
        The first of them before, and the second after a right run.
    """

    words: str
    consequence: str
    device: str
    source: str
    first: int
    second: int


class Platform(NamedTuple):
    """Options and text of all programs for a platform, because of faults of its compiler.

    Attributes
    ----------
    options : tuple of str
        Compiler options.
    prefix, suffix : str
        C before and after a program; the prefix ends with ``#line 1``, so that errors name the program's lines.
    faults : tuple of Fault
        Those that only a try can show.
    rolled : tuple of str
        Updates whose code is in the text once, not for each element of wide loads, since the compiler takes minutes.
    """

    options: tuple[str, ...] = ()
    prefix: str = ""
    suffix: str = ""
    faults: tuple[Fault, ...] = ()
    rolled: tuple[str, ...] = ()


# A load that all work-items share, behind a condition that they share: llvmpipe of Mesa 26.1.6 loads in any case.
_UNIFORM_LOAD = Fault(
    "it loads from memory behind conditions that are false",
    "Work-groups of one work-item are left out: it is planned for as a GPU",
    "llvmpipe",
    """kernel void clhist_fault(global int *words)
{
    const uint place = words[get_group_id(0)];
    if (place < 64)
        words[place] += 1;
    words[1] = 7;
}
""",
    1 << 30,
    7,
)


# Mesa's rusticl compiles by clang, but its translator to SPIR-V ends the process at clang's prefetch; neither a macro
# nor a failed build tells. Mesa's own inlining is wrong for functions with loops, so that clang inlines.
# Mesa 25.0.7 loads what was there before a whole struct was stored, so fields are stored. In unrolled loops over blocks
# of elements it loses updates of structs of mixed types, so CPUs take elements one by one. llvmpipe 25.0.7 ends the
# process where a branch chooses between a byte and a constant, which a loop of one round or none replaces.
# LLVM compiled 17 exact sums under locks for it in more than 24 minutes and one in 11 s, so that updates are rolled.
_PLATFORMS = {
    "rusticl": Platform(
        ("-DCLHIST_NO_PREFETCH", "-DCLHIST_NO_ROUNDS", "-DCLHIST_STORE_FIELDS"),
        "#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)\n"
        "#define CLHIST_CHOICE(condition, value) ({ accumulator_t chosen = clhist_neutral(); "
        "for (int n = 0; n < (condition); ++n) chosen = clhist_combine(chosen, value); chosen; })\n#line 1\n",
        "\n#pragma clang attribute pop\n",
        (_UNIFORM_LOAD,),
        ("private", "carry", "cas", "lock"),
    )
}

# What a device may have besides OpenCL C 1.2 with its 32-bit atomics, with words for it.
EXTENSIONS = tuple(extension for extension, _ in _EXTENSIONS.values())
FEATURES = {name: f"{text} ({extension})" for name, (extension, text) in _EXTENSIONS.items()}
FEATURES |= {path.feature: path.description for path in VENDOR_PATHS}

# The fence that a device must prove.
PROVEN_FENCE = next(path for path in VENDOR_PATHS if path.fence_needs_proof)


def features_of(extensions: str, platform_name: str, c_version: str) -> frozenset[str]:
    """Return the features that a driver promises; what needs proof is not proven by that.

    Parameters
    ----------
    extensions, platform_name, c_version : str
        CL_DEVICE_EXTENSIONS, CL_PLATFORM_NAME and CL_DEVICE_OPENCL_C_VERSION.

    Returns
    -------
    frozenset of str
        Keys of `FEATURES`.
    """
    version = re.match(r"OpenCL C (\d+)", c_version)
    driver = DriverReport(frozenset(extensions.split()), platform_name, int(version[1]) if version else 0)
    features = {name for name, (extension, _) in _EXTENSIONS.items() if extension in driver.extensions}
    return frozenset(features | {path.feature for path in VENDOR_PATHS if path.is_promised(driver)})


def compiler_options(platform_name: str) -> tuple[str, ...]:
    """Return the options that every program for a platform is built with."""
    return _platform(platform_name).options


def program_text(platform_name: str, source: str) -> str:
    """Return the text of a program as it is given to the compiler of a platform."""
    platform = _platform(platform_name)
    return platform.prefix + source + platform.suffix


def rolled_updates(platform_name: str) -> tuple[str, ...]:
    """Return the updates whose code programs for a platform have once, not for each element of wide loads."""
    return _platform(platform_name).rolled


def faults_to_try(platform_name: str, device_name: str) -> tuple[Fault, ...]:
    """Return the faults that a device may have."""
    return tuple(fault for fault in _platform(platform_name).faults if device_name.strip().startswith(fault.device))


def _platform(name: str) -> Platform:
    return _PLATFORMS.get(name.strip(), Platform())


def device_fence(features: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return the C of the widest fence of global memory that a device with `features` has, and its compiler options.

    Without a path that has one it is ``mem_fence``, which on GPUs orders memory for the work-group only.
    """
    for path in VENDOR_PATHS:
        if path.fence and path.feature in features:
            return path.fence, path.fence_options
    return _WORK_GROUP_FENCE, ()


def of_warps(features: Collection[str], work_items: int) -> VendorPath:
    """Return the path with C for the lanes of a warp; one without any where they need none.

    `work_items` go through the same elements together; it must be a multiple of a warp.
    """
    paths = (path for path in VENDOR_PATHS if path.reconvergence and path.feature in features)
    return next((path for path in paths if work_items % path.warp == 0), _NONE)


def local_adds_loop(features: Collection[str]) -> bool:
    """Return whether atomic additions of floats and of 64 bits in local memory are loops of compare-exchange."""
    return any(path.local_adds_loop and path.feature in features for path in VENDOR_PATHS)


def _integer_rows() -> list[NativeAtomic]:
    rows = []
    names = {"add": "add", "minimum": "min", "maximum": "max"}
    names |= {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
    for (operation, name), kind, memory in product(names.items(), ("i4", "u4", "i8", "u8"), MEMORIES):
        dtype = np.dtype(kind)
        wide, word = dtype.itemsize == 8, "u" * (dtype.kind == "u")
        prefix = "atom" if wide else "atomic"  # the names of cl_khr_int64_*, and those of the core
        path = ("int64_base_atomics" if operation == "add" else "int64_extended_atomics") if wide else None
        word += "long" if wide else "int"
        rows.append(NativeAtomic(operation, dtype, memory, f"{prefix}_{name}(p, v);", word, path))
    return rows


NATIVE_ATOMICS = (*_integer_rows(), *(atomic for path in VENDOR_PATHS for atomic in path.atomics))
ALL_FEATURES = frozenset(FEATURES) | {feature for atomic in NATIVE_ATOMICS if (feature := atomic.feature) is not None}


def expected_features(kind: str, name: str) -> frozenset[str]:
    """Return the features expected of a device of this kind and name, where no device can be queried."""
    if kind == "gpu" and name.startswith("NVIDIA"):
        # Nothing can be proven without the device: each atomic of a promised path counts as proven.
        promised = features_of(" ".join(EXTENSIONS), "NVIDIA CUDA", "OpenCL C 3.0")
        return frozenset(feature for feature in ALL_FEATURES if feature.partition(":")[0] in promised)
    return frozenset({"int64_base_atomics", "int64_extended_atomics", "fp64"})


def native_atomic(
    operation: str | None, dtype: np.dtype, memory: str, features: Collection[str] = ALL_FEATURES
) -> NativeAtomic | None:
    """Return the hardware atomic for `operation` on `dtype` in `memory`, or None.

    Parameters
    ----------
    operation : str or None
        NumPy's name of it, as `clhist.operators.recognition.recognise` gives it.
    dtype : numpy.dtype
        Type of the accumulators.
    memory : {"local", "global"}
        Where the copies are.
    features : collection of str
        What the device has, of `ALL_FEATURES`; defaults to what some device has.
    """
    rows = _BY_KEY.get((operation or "", str(dtype), memory), ())
    return next((row for row in rows if row.feature is None or row.feature in features), None)


def vector_atomic(operation: str | None, dtype: np.dtype, features: Collection[str]) -> NativeAtomic | None:
    """Return the hardware atomic that updates several numbers in global memory at once, or None."""
    rows = (row for row in NATIVE_ATOMICS if row.numbers > 1 and (row.operation, row.dtype) == (operation, dtype))
    return next((row for row in rows if row.feature in features), None)


_BY_KEY: dict[tuple[str, str, str], list[NativeAtomic]] = {}
for _row in NATIVE_ATOMICS:
    if _row.numbers == 1:
        _BY_KEY.setdefault((_row.operation, str(_row.dtype), _row.memory), []).append(_row)


def to_prove(features: Collection[str]) -> tuple[NativeAtomic, ...]:
    """Return the atomics that `features` promise, and that a device must prove."""
    return tuple(row for row in NATIVE_ATOMICS if row.guard and row.path in features)


def native_table(features: Collection[str]) -> dict[tuple[str, str, str], str]:
    """Return the path (a feature, or "core") of each native (operation, dtype, memory) of a device."""
    atomics = {key: native_atomic(key[0], np.dtype(key[1]), key[2], features) for key in _BY_KEY}
    return {key: row.path or "core" for key, row in atomics.items() if row is not None}
