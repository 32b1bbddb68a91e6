"""Instructions that Intel's CPU runtime compiles for."""

from __future__ import annotations

import os

import pytest

from clhist._core.opencl import intel

OLD, NEW = "flags : fpu sse4_2 avx avx2 bmi1", "flags : fpu avx avx2 avx512f avx512vl"
UNSET = None


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Return a function that imports clhist into a process: with a processor, an environment, and mapped libraries."""

    def import_clhist(processor, chosen, mapped="libOpenCL.so.1"):
        for name, text in (("_PROCESSORS", processor), ("_MAPPED", mapped)):
            path = tmp_path / name
            if text is not None:
                path.write_text(text)
            monkeypatch.setattr(intel, name, path)
        monkeypatch.delenv(intel.VARIABLE, raising=False)
        if chosen is not UNSET:
            monkeypatch.setenv(intel.VARIABLE, chosen)
        monkeypatch.setattr(intel, "_is_safe", False)
        monkeypatch.setitem(intel.sys.modules, "pyopencl", object())
        intel.compile_for_avx2()
        return os.environ.get(intel.VARIABLE), not intel.may_use_avx512()

    return import_clhist


@pytest.mark.parametrize(
    ("processor", "chosen", "mapped", "expected"),
    [
        (NEW, UNSET, "libOpenCL.so.1", (intel.AVX2, True)),
        (NEW, UNSET, "/lib/libintelocl.so.2026", (intel.AVX2, False)),  # which has read the environment before
        (NEW, "", "libOpenCL.so.1", (intel.AVX2, True)),  # as unset: the runtime refuses it
        (NEW, "skx", "libOpenCL.so.1", ("skx", False)),  # the caller's choice stands, and is tried
        (NEW, "corei7-avx", "libOpenCL.so.1", ("corei7-avx", True)),
        (OLD, UNSET, "libOpenCL.so.1", (UNSET, True)),
        (None, UNSET, "libOpenCL.so.1", (UNSET, False)),  # another system, which does not list the features
    ],
)
def test_processors_with_avx512_get_kernels_for_avx2(process, processor, chosen, mapped, expected):
    assert process(processor, chosen, mapped) == expected


def test_kernels_of_one_work_item_are_not_compiled_for_vectors_of_work_items(monkeypatch):
    """The runtime refuses to build a program in which the attribute contradicts its own variable."""
    one, several = (f"__attribute__((reqd_work_group_size({items}, 1, 1)))" for items in (1, 16))
    monkeypatch.delenv(intel.VECTORS, raising=False)
    hinted = "__attribute__((reqd_work_group_size(1, 1, 1), intel_vec_len_hint(1)))"
    assert intel.program_text(f"{one} a {several} b {one} c") == f"{hinted} a {several} b {hinted} c"
    monkeypatch.setenv(intel.VECTORS, "4")
    assert intel.program_text(one) == one


@pytest.mark.parametrize(
    ("source", "caller", "is_needed"),
    [
        ("kernel void a(global int *x) { x[0] = 1; }", ["-cl-std=CL3.0"], False),
        ("x[0] = sub_group_any(1);", [], True),
        ("x[0] = intel_sub_group_shuffle(1, 2);", [], True),
        ("__attribute__((intel_reqd_sub_group_size(8)))", [], True),
        ("#ifdef cl_intel_subgroups", [], True),
        ('#include "own.h"', [], True),
        ("atomic_add(x, 1.f);", ["-Dfloat_atomics_enable"], True),
        ("", ["-include own.h"], True),
    ],
)
def test_the_header_of_sub_groups_is_included_only_where_it_may_be_needed(source, caller, is_needed):
    expected = caller if is_needed else [*caller, "-D_OPENCL_CTH_"]
    assert intel.without_header(source, caller) == expected
