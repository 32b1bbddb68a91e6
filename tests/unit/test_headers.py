"""Programs without the header of built-in functions, and the declarations that they get in its place."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from clhist._core.opencl import headers

INTEL = SimpleNamespace(name="Intel(R) OpenCL", version="OpenCL 3.0 LINUX")
POCL = SimpleNamespace(name="Portable Computing Language", version="OpenCL 3.0 PoCL 3.0-rc2  Linux, LLVM 14.0.6, SLEEF")
KERNEL = "kernel void a(global int *x) { x[0] = min(x[1], 1); }"


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
def test_intels_header_of_sub_groups_is_included_only_where_it_may_be_needed(source, caller, is_needed):
    expected = caller if is_needed else [*caller, "-D_OPENCL_CTH_"]
    assert headers.without_header(INTEL, source, caller) == (source, expected)


@pytest.fixture
def header(monkeypatch, tmp_path):
    """Return PoCL's header: a small one with all that the real one has."""
    path = tmp_path / "opencl-c.h"
    path.write_text(HEADER)
    monkeypatch.setattr(headers, "_POCL_HEADER", path)
    headers._pocl_header.cache_clear()
    yield path
    headers._pocl_header.cache_clear()


HEADER = """// first; of min(int)
#ifndef _OPENCL_H_
#define _OPENCL_H_
#include "opencl-c-base.h"
#define __ovld __attribute__((overloadable))
/* a comment; of
max(int); */
int __ovld min(int x, int y); // the least; of two
int __ovld max(int x, int y);
#if defined(cl_khr_fp64) && \\
    defined(cl_khr_fp16)
#ifdef wide
double __ovld min(double x,
                  double y);
#endif // wide
double __ovld max (double x, double y);
#endif
#undef __ovld
#endif //_OPENCL_H_
"""


def words(text):
    return " ".join(text.split())


def test_programs_on_pocl_declare_the_functions_that_they_name_as_the_header_does(header):
    text, options = headers.without_header(POCL, KERNEL, ["-w"])
    declarations, _, rest = text.partition("#line 1\n")
    assert (rest, options) == (KERNEL, ["-w", "-D_OPENCL_H_"])
    assert words(declarations) == words(
        """#define __ovld __attribute__((overloadable))
        int __ovld min(int x, int y);
        #if defined(cl_khr_fp64) && \\
            defined(cl_khr_fp16)
        #ifdef wide
        double __ovld min(double x, double y);
        #endif
        #endif
        #undef __ovld"""
    )
    assert words("double __ovld max (double x, double y);") in words(headers.without_header(POCL, "max", [])[0])


@pytest.mark.parametrize(
    ("source", "caller"),
    [('#include "own.h"', []), ("#define A(b) mi##b", []), (KERNEL, ["-cl-std=CL2.0"]), (KERNEL, ["-include own.h"])],
)
def test_programs_whose_functions_are_unknown_get_the_whole_header(header, source, caller):
    assert headers.without_header(POCL, source, caller) == (source, caller)


@pytest.mark.parametrize("release", ["PoCL 3.1 Linux, LLVM 14.0.6", "PoCL 3.0-rc2 LLVM 13.0.1", "PoCL 6.0 LLVM 18.1.8"])
def test_other_releases_of_pocl_get_the_whole_header(header, release):
    platform = SimpleNamespace(name=POCL.name, version=f"OpenCL 3.0 {release}, SLEEF")
    assert headers.without_header(platform, KERNEL, []) == (KERNEL, [])
    header.unlink()
    assert headers.without_header(POCL, KERNEL, []) == (KERNEL, [])


@pytest.mark.skipif(not headers._POCL_HEADER.is_file(), reason="pip's PoCL is not installed")
def test_all_overloads_of_the_installed_header_are_declared():
    lines = headers._POCL_HEADER.read_text().split("\n")
    for name in ("barrier", "get_global_id", "min", "fabs", "atomic_add", "atom_cmpxchg", "convert_long_rte"):
        text = headers.without_header(POCL, name, [])[0]
        expected = [line for line in lines if re.match(rf"\w.*\b{name}\(.*;$", line)]
        assert expected
        assert [line for line in text.split("\n") if line.endswith(";")] == expected
        assert text.count("#if") == text.count("#endif")
