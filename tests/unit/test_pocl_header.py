"""Programs without PoCL's header of built-in functions, and the declarations that they get in its place."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from clhist._core.opencl import pocl_header

POCL = SimpleNamespace(name="Portable Computing Language", version="OpenCL 3.0 PoCL 3.0-rc2  Linux, LLVM 14.0.6, SLEEF")
KERNEL = "kernel void a(global int *x) { x[0] = min(x[1], 1); }"


@pytest.fixture
def header(monkeypatch, tmp_path):
    """Return PoCL's header: a small one with all that the real one has."""
    path = tmp_path / "opencl-c.h"
    path.write_text(HEADER)
    monkeypatch.setattr(pocl_header, "_HEADER", path)
    pocl_header._header.cache_clear()
    yield path
    pocl_header._header.cache_clear()


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
    text, options = pocl_header.without_header(POCL, KERNEL, ["-w"])
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
    assert words("double __ovld max (double x, double y);") in words(pocl_header.without_header(POCL, "max", [])[0])


@pytest.mark.parametrize(
    ("source", "caller"),
    [('#include "own.h"', []), ("#define A(b) mi##b", []), (KERNEL, ["-cl-std=CL2.0"]), (KERNEL, ["-include own.h"])],
)
def test_programs_whose_functions_are_unknown_get_the_whole_header(header, source, caller):
    assert pocl_header.without_header(POCL, source, caller) == (source, caller)


@pytest.mark.parametrize("release", ["PoCL 3.1 Linux, LLVM 14.0.6", "PoCL 3.0-rc2 LLVM 13.0.1", "PoCL 6.0 LLVM 18.1.8"])
def test_other_releases_of_pocl_get_the_whole_header(header, release):
    platform = SimpleNamespace(name=POCL.name, version=f"OpenCL 3.0 {release}, SLEEF")
    assert pocl_header.without_header(platform, KERNEL, []) == (KERNEL, [])
    header.unlink()
    assert pocl_header.without_header(POCL, KERNEL, []) == (KERNEL, [])


@pytest.mark.skipif(not pocl_header._HEADER.is_file(), reason="pip's PoCL is not installed")
def test_all_overloads_of_the_installed_header_are_declared():
    lines = pocl_header._HEADER.read_text().split("\n")
    for name in ("barrier", "get_global_id", "min", "fabs", "atomic_add", "atom_cmpxchg", "convert_long_rte"):
        text = pocl_header.without_header(POCL, name, [])[0]
        expected = [line for line in lines if re.match(rf"\w.*\b{name}\(.*;$", line)]
        assert expected
        assert [line for line in text.split("\n") if line.endswith(";")] == expected
        assert text.count("#if") == text.count("#endif")
