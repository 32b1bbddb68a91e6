"""Instructions and vectors for which Intel's CPU runtime compiles: no AVX-512, for which its compiler is wrong.

The compiler of release 2026.22 encodes a vector of ones wrongly for AVX-512. It has one where a minimum or a maximum of
integers meets the constant -1, as in ``max(~x, y)``: kernels then give wrong results, or end the process. For AVX2 it
is right, and kernels of clhist are as fast: on an EPYC (family 25, model 17), 25 rows of ``clhist bench --suite
operators -n 4M`` take 0.80 to 1.02 times as long, and 24 of ``--suite histogram -n 4M`` 0.79 to 1.10 times.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

VECTORS = "CL_CONFIG_CPU_VECTORIZER_MODE"
VARIABLE, AVX2 = "CL_CONFIG_CPU_TARGET_ARCH", "core-avx2"
_ALONE = "reqd_work_group_size(1, 1, 1)"
_WITHOUT_AVX512 = (AVX2, "corei7-avx", "corei7")
_PROCESSORS, _MAPPED = Path("/proc/cpuinfo"), Path("/proc/self/maps")
_FIRST_BYTES = 1 << 13  # of the list of processors: the first of them, whose features all have

PROOF = """kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void clhist_extremes(global const long *x, const int n, global long *extremes)
{
    extremes[0] = extremes[1] = -100;
    for (int i = 0; i < n; ++i) {
        const long value = x[i], complement = ~value;
        extremes[0] = max(extremes[0], value);
        extremes[1] = max(extremes[1], complement);
    }
}
"""
"""A kernel whose second result is wrong where the compiler is; `n` and the content of `x` have to be unknown to it."""

# Names of functions that only the header of extensions declares, and of headers of the caller, which may use it.
_OF_HEADER = re.compile("sub_?group|float_atomics_enable|include")
# Whether the runtime compiles for no AVX-512, as far as that is known without a kernel.
_is_safe = False


def compile_for_avx2() -> None:
    """Let the runtime compile for AVX2 where the processor has AVX-512, unless the caller has chosen instructions.

    Works by the environment, which the runtime reads when it is loaded, at the first OpenCL call of the process.
    """
    global _is_safe
    features = _features()
    if not os.environ.get(VARIABLE) and "avx512f" in features and "avx2" in features:
        os.environ[VARIABLE] = AVX2
    has_no_avx512 = bool(features) and "avx512f" not in features
    _is_safe = has_no_avx512 or (os.environ.get(VARIABLE) in _WITHOUT_AVX512 and not _is_loaded())


def may_use_avx512() -> bool:
    """Whether only a kernel can show which instructions the runtime compiles for."""
    return not _is_safe


def program_text(source: str) -> str:
    """Return a program whose kernels of one work-item are not compiled for vectors of work-items as well.

    Such vectors never run. Without them a histogram compiles in 0.13 s in place of 0.24 (EPYC, Zen 4), and is as fast.
    """
    # The compiler refuses the attribute beside another choice of the caller.
    return source if VECTORS in os.environ else source.replace(_ALONE, f"{_ALONE}, intel_vec_len_hint(1)")


def without_header(source: str, options: Sequence[str]) -> list[str]:
    """Return the options of a build without the header of functions of sub-groups and extensions, or these unchanged.

    An empty kernel takes 15 ms in place of 29 (EPYC). The macro of its include guard lets the header be left out.
    """
    return [*options, *["-D_OPENCL_CTH_"] * (not _OF_HEADER.search(" ".join((*options, source))))]


def _features() -> set[str]:
    """Return the names of the processor's features; none where the system does not list them."""
    with suppress(OSError), _PROCESSORS.open() as file:
        return {*file.read(_FIRST_BYTES).split()}
    return set()


def _is_loaded() -> bool:
    """Whether the runtime is loaded already, by a caller who used OpenCL before clhist was imported."""
    if "pyopencl" not in sys.modules:
        return False
    with suppress(OSError):
        return "libintelocl" in _MAPPED.read_text()
    return True
