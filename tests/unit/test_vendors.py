"""The records of vendors' paths: detection, fences, reconvergence, atomics."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clhist
from clhist import operators
from clhist._core.devices.vendors import (
    ALL_FEATURES,
    FEATURES,
    NATIVE_ATOMICS,
    PROVEN_FENCE,
    VENDOR_PATHS,
    compiler_options,
    device_fence,
    faults_to_try,
    features_of,
    local_adds_loop,
    native_atomic,
    of_warps,
    program_text,
    rolled_updates,
    to_prove,
)
from clhist._core.kernels.from_plan import programs_of
from clhist._core.kernels.render import render_programs
from clhist._core.kernels.source import Source
from clhist._core.kernels.specs import SweepSpec
from clhist._core.model.plan import Output
from clhist._core.model.problem import Choices, Problem

BY_NAME = {path.feature: path for path in VENDOR_PATHS}


def spec(features, update="cas", memory="global", operator=None, **changed):
    operator = operator or operators.add(np.int32)
    given = {"work_group_size": 64, "order": "interleaved", "device_features": frozenset(features), **changed}
    return SweepSpec((Output(operator, (update,) * len(operator.parts)),), (), "EMIT(i, 1)", memory, **given)


@pytest.mark.parametrize("path", VENDOR_PATHS, ids=lambda path: path.feature)
def test_a_record_is_whole(path):
    assert path.feature in FEATURES
    assert path.feature in ALL_FEATURES
    assert FEATURES[path.feature] == path.description
    assert path.atomics or path.fence, "it provides something"
    for atomic in path.atomics:
        assert atomic.path == path.feature
        assert atomic.guard, "a promise is not enough"
        assert atomic in to_prove({path.feature})
        assert atomic in NATIVE_ATOMICS
    assert bool(path.label) == bool(path.source) == bool(path.atomics), "what `clhist info` calls it"
    assert bool(path.reconvergence) == bool(path.warp)
    assert path.fence or not (path.fence_options or path.fence_needs_proof)


def test_no_two_records_have_one_name():
    assert len(BY_NAME) == len(VENDOR_PATHS)
    assert [path.feature for path in VENDOR_PATHS if path.fence_needs_proof] == [PROVEN_FENCE.feature]


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (("", "", ""), set()),
        (("cl_khr_fp64 cl_khr_int64_base_atomics", "PoCL", "OpenCL C 1.2 PoCL"), {"fp64", "int64_base_atomics"}),
        (("", "NVIDIA CUDA", "OpenCL C 1.2 "), {"nvidia_ptx"}),
        (("", "Not NVIDIA", "OpenCL C 2.0"), set()),
        (("", "AMD Accelerated Parallel Processing", "OpenCL C 2.0 "), {"amd_builtins"}),
        (("cl_ext_float_atomics", "Intel(R) OpenCL", "OpenCL C 3.0 "), {"ext_float_atomics", "device_fence"}),
        (("cl_ext_float_atomics_not", "rusticl", "OpenCL C 10.1"), {"device_fence"}),
        (("", "rusticl", "no version at all"), set()),
    ],
)
def test_what_a_driver_promises(driver, expected):
    assert features_of(*driver) == expected


def test_the_first_path_with_a_fence_gives_it():
    every = set(BY_NAME)
    assert device_fence(()) == ("mem_fence(CLK_GLOBAL_MEM_FENCE)", ())
    assert "membar.gl" in device_fence(every)[0]
    assert "amdgcn_fence" in device_fence(every - {"nvidia_ptx"})[0]
    assert device_fence({"device_fence"}) == (PROVEN_FENCE.fence, PROVEN_FENCE.fence_options)
    assert device_fence({"ext_float_atomics"}) == device_fence(())


def test_reconvergence_is_for_whole_warps():
    assert [of_warps({"nvidia_ptx"}, n) for n in (32, 96, 1024)] == [BY_NAME["nvidia_ptx"]] * 3
    assert [of_warps({"nvidia_ptx"}, n).reconvergence for n in (1, 16, 33, 100)] == [""] * 4
    assert of_warps(ALL_FEATURES - {"nvidia_ptx"}, 64).any_lane == ""


@pytest.mark.parametrize(
    ("features", "memory", "update", "fence", "options"),
    [
        ({"nvidia_ptx"}, "local", "lock", "mem_fence(CLK_LOCAL_MEM_FENCE)", ()),
        ({"device_fence"}, "local", "lock", "mem_fence(CLK_LOCAL_MEM_FENCE)", ()),
        ({"device_fence"}, "global", "lock", PROVEN_FENCE.fence, ("-cl-std=CL3.0",)),
        ({"device_fence"}, "global", "cas", PROVEN_FENCE.fence, ()),
        ({"nvidia_ptx", "device_fence"}, "global", "lock", BY_NAME["nvidia_ptx"].fence, ()),
    ],
)
def test_fences_and_options_of_a_sweep(features, memory, update, fence, options):
    found = spec(features, update, memory)
    assert (found.fence, found.options) == (fence, options)


@pytest.mark.parametrize(
    ("dtype", "features", "hot", "statement"),
    [
        (np.float32, {"nvidia_ptx"}, True, True),
        (np.int64, {"nvidia_ptx"}, True, True),
        (np.int32, {"nvidia_ptx"}, False, False),
        (np.float32, {"amd_builtins"}, False, False),
    ],
)
def test_local_additions_that_are_loops(dtype, features, hot, statement):
    assert local_adds_loop(features) == ("nvidia_ptx" in features)
    found = spec(features, "native", "local", operators.add(dtype), single_pair=True)
    assert found.hot_bin == hot
    assert bool(found.warp.reconvergence) == statement


def test_where_several_paths_have_an_atomic_the_first_is_taken():
    float32 = np.dtype(np.float32)
    order = [path.feature for path in VENDOR_PATHS if any(atomic.dtype == float32 for atomic in path.atomics)]
    every = set(ALL_FEATURES)
    for name in order:
        assert native_atomic("add", float32, "global", every).path == name
        every = {feature for feature in every if not feature.startswith(name)}
    assert native_atomic("add", float32, "global", every) is None


def test_no_other_module_asks_for_a_vendor():
    """Of a device's features only those of extensions are asked for by name."""
    root = Path(clhist.__file__).parents[1]
    asking = [
        str(file.relative_to(root))
        for folder in ("clhist", "cases", "strategies")
        for file in (root / folder).rglob("*.py")
        if file.name != "vendors.py" and re.search(rf'"({"|".join(BY_NAME)})\b.* in \w*features', file.read_text())
    ]
    assert sorted(asking) == []


def test_only_mesa_has_text_that_works_around_faults_of_mesa():
    """Mesa's compiler has clang's prefetch but ends the process when it translates it."""
    options = ("-DCLHIST_NO_PREFETCH", "-DCLHIST_NO_ROUNDS", "-DCLHIST_STORE_FIELDS")
    assert compiler_options("rusticl") == compiler_options("rusticl ") == options
    for name in (
        "Portable Computing Language",
        "Intel(R) OpenCL",
        "NVIDIA CUDA",
        "AMD Accelerated Parallel Processing",
    ):
        assert compiler_options(name) == ()
        assert program_text(name, "int x;") == "int x;"
        assert faults_to_try(name, "llvmpipe") == ()
    # Lines are counted from the program's first, and llvmpipe alone has a fault to try.
    text = program_text("rusticl ", "int x;")
    assert text.startswith("#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)\n")
    assert "\n#define CLHIST_CHOICE(condition, value) (" in text
    assert "\n#line 1\nint x;\n#pragma clang attribute pop" in text
    assert len(faults_to_try("rusticl", "llvmpipe (LLVM 19.1.7, 256 bits)")) == 1
    assert faults_to_try("rusticl", "V3D 7.1") == ()
    golden = Path(__file__).parent / "golden" / "sources"
    texts = [path.read_text(encoding="utf-8") for path in golden.glob("*.cl")]
    with_prefetch = [text for text in texts if "__builtin_prefetch" in text]
    assert with_prefetch
    for text in with_prefetch:
        assert text.index("defined(CLHIST_NO_PREFETCH)") < text.index("__builtin_prefetch")


@pytest.mark.parametrize(
    ("update", "operator"),
    [
        ("native", operators.add(np.int32)),
        ("cas", operators.add(np.float32)),
        ("lock", operators.argmax(np.float32)),
        ("carry", operators.reproducible_add(np.float32)),
    ],
)
@pytest.mark.parametrize("memory", ["local", "partitioned"])
def test_updates_are_once_in_the_text_for_mesa_alone(update, operator, memory):
    """Its compiler takes minutes for one exact sum for each element of wide loads."""
    profile = replace(clhist.named_profile("nvidia-h200"), features=frozenset())
    source = Source.of("const int *b, const value_t *v", "EMIT(b[i], v[i])", [operator])
    choices = Choices(update=update, memory=memory, passes=3 if memory == "partitioned" else None)
    planned = clhist.plan(Problem(source.histograms([100]), 10**6, choices=choices), profile)

    def calls(platform):
        programs = programs_of(planned, source, profile, aligned=True, rolled=rolled_updates(platform))
        text = next(text for name, text, _ in render_programs(programs) if name == "sweep")
        return text[text.index("void clhist_sweep(") :].count("clhist_map(")

    wide = {platform: calls(platform) for platform in ("Intel(R) OpenCL", "NVIDIA CUDA", "")}
    assert len({*wide.values()}) == 1
    assert wide[""] > 3  # elements of wide loads, and what is left
    assert calls("rusticl ") == (wide[""] if update == "native" else 1)
