"""From a specification to OpenCL C: pure text, no device.

Into the source goes what changes the code (types, operator, map, update, memory, work-group size, capacity of the local
array); what changes only numbers (N, H, M, the bins of a pass) is passed when a kernel is launched.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
from mako.lookup import TemplateLookup
from mako.template import Template

from clhist.atomics import native_atomic
from clhist.dtypes import c_name, declare
from clhist.operator import Operator

# A map longer than this is not written out several times for the sake of wide loads: it is not bound by them.
_LONGEST_UNROLLED_MAP = 400
_LOADS_IN_FLIGHT = 4
_BYTES_OF_A_LOAD = 16


@dataclass(frozen=True)
class Argument:
    """One argument of a map, as its C declaration says it.

    Attributes
    ----------
    name, c_type : str
        The identifier, and the C type of the scalar or of an element.
    dtype : numpy.dtype
        The same type for NumPy.
    is_array, is_const : bool
        Whether it is a pointer to global memory, and whether the map may only read it.
    """

    name: str
    c_type: str
    dtype: np.dtype
    is_array: bool
    is_const: bool

    @property
    def pointer(self) -> str:
        """C type of a pointer to the elements."""
        return f"__global {'const ' if self.is_const else ''}{self.c_type} *"

    @property
    def parameter(self) -> str:
        """Declaration of it as the map sees it."""
        if self.is_array:
            return f"{self.pointer}{'restrict ' if self.is_const else ''}{self.name}"
        return f"const {self.c_type} {self.name}"

    @property
    def kernel_parameter(self) -> str:
        """Declaration of it as the kernel gets it: an array by its buffer and an offset in bytes."""
        if self.is_array:
            return f"__global char *{self.name}__base, const ulong {self.name}__offset"
        return self.parameter


@dataclass(frozen=True)
class SweepSpec:
    """Everything that the source of a sweep depends on.

    Attributes
    ----------
    operator : Operator
        The combining operator.
    arguments : tuple of Argument
        Inputs of the map.
    map : str
        C run for each `i`, with ``EMIT(bin, value)``.
    memory, update : str
        As in `clhist.model.Plan`.
    order : {"blocked", "interleaved"}
        Whether a work-item's elements are neighbours (CPU), or those of neighbouring work-items (GPU).
    work_group_size : int
        B.
    capacity : int
        Cells of the local array, copies and bins together; 0 in global memory.
    wide : bool
        Whether elements and bins are counted in 64 bits.
    aligned : bool
        Whether the arrays allow loads of 16 bytes.
    reach : bool
        Whether the largest bin that was emitted is reported, as an unsigned number.
    structs : tuple of (str, numpy.dtype)
        Structured types that the map may name.
    preamble : str
        C before the map.
    features : frozenset of str
        What the device has, of `clhist.atomics.FEATURES`.
    """

    operator: Operator
    arguments: tuple[Argument, ...]
    map: str
    memory: str
    update: str
    order: str
    work_group_size: int
    capacity: int = 0
    wide: bool = False
    aligned: bool = False
    reach: bool = False
    structs: tuple[tuple[str, np.dtype], ...] = ()
    preamble: str = ""
    features: frozenset[str] = frozenset()

    @property
    def streamed(self) -> tuple[Argument, ...]:
        """The arrays that the map reads only as ``name[i]``: their elements can be loaded ahead, and wide."""
        return tuple(argument for argument in self.arguments if is_streamed(argument, self.map, self.preamble))

    @property
    def vector_width(self) -> int:
        """Elements of one load: 16 bytes of the widest streamed array, or 1."""
        if not self.streamed or not self.aligned or self.order == "blocked" or len(self.map) > _LONGEST_UNROLLED_MAP:
            return 1
        return max(1, _BYTES_OF_A_LOAD // max(argument.dtype.itemsize for argument in self.streamed))

    @property
    def converges(self) -> bool:
        """Whether the lanes of an NVIDIA warp wait for each other after each element.

        They do not come together by themselves after a loop of compare and exchange, or after a bin that only some of
        them have in this pass: left alone, each goes on through the rest of its elements at its own pace.
        """
        return "nvidia_ptx" in self.features and self.update in ("cas", "lock") and self.work_group_size % 32 == 0

    @property
    def loads(self) -> int:
        """Loads of each streamed array in flight; fewer where one load brings many elements."""
        return max(1, min(_LOADS_IN_FLIGHT, 32 // self.vector_width)) if self.vector_width > 1 else 1


# A declaration of another i, or what only another i can have done to it: the map's own is const.
_HIDDEN_INDEX = re.compile(r"[\w*]\s+\**i\s*[=;,:)]|\bi\s*(=[^=]|\+\+|--|[-+*/%&|^]=)|(\+\+|--)\s*i\b")


def render_sweep(spec: SweepSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_sweep``."""
    return _template("sweep.mako").render(
        spec=spec,
        streamed=spec.streamed,
        map_body=_read_ahead(spec.map, spec.streamed),
        atomic=native_atomic(spec.operator.operation, spec.operator.accumulator, spec.memory),
        fence=_fence(spec.memory, spec.features),
        word=_word(spec.operator),
        declare=declare,
        c_name=c_name,
    )


@dataclass(frozen=True)
class CombineSpec:
    """Everything that the source of the second stage depends on; `rows` work-items combine the copies of one bin."""

    operator: Operator
    order: str
    columns: int = 1
    rows: int = 1


def render_combine(spec: CombineSpec) -> str:
    """Return the OpenCL C program with the kernels ``clhist_clear`` and ``clhist_combine_copies``."""
    return _template("combine.mako").render(
        operator=spec.operator,
        order=spec.order,
        columns=spec.columns,
        rows=spec.rows,
        word=_word(spec.operator),
        declare=declare,
        c_name=c_name,
    )


def _template(name: str) -> Template:
    return _lookup().get_template(name)


@lru_cache(maxsize=1)
def _lookup() -> TemplateLookup:
    lookup = TemplateLookup(strict_undefined=True)
    for item in resources.files("clhist.kernels_cl").iterdir():
        if item.name.endswith(".mako"):
            lookup.put_string(item.name, item.read_text(encoding="utf-8"))
    return lookup


def _word(operator: Operator) -> str | None:
    return {4: "uint", 8: "ulong"}.get(operator.cell_bytes)


def _fence(memory: str, features: Collection[str]) -> str:
    """Return the fence between a lock and its data; a plain mem_fence reaches only the work-group on GPUs."""
    if memory == "local":
        return "mem_fence(CLK_LOCAL_MEM_FENCE)"
    if "nvidia_ptx" in features:
        return '__asm__ volatile("membar.gl;" ::: "memory")'
    if "amd_fence" in features:
        return '__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")'
    return "mem_fence(CLK_GLOBAL_MEM_FENCE)"


def is_elementwise(argument: Argument, code: str, preamble: str = "") -> bool:
    """Return whether the map `code` uses an array only as ``name[i]``, with its own `i` and without its address.

    A preamble that has the name may hold a macro which the map uses.
    """
    name = rf"(?<!\.)(?<!->)\b{argument.name}\b"  # not a member of that name
    uses = re.findall(name, code)
    if not argument.is_array or not uses or re.search(name, preamble) or _HIDDEN_INDEX.search(code):
        return False
    return len(uses) == len(re.findall(_element(argument), code)) and not re.search(rf"&\s*\(*\s*{name}", code)


def is_streamed(argument: Argument, code: str, preamble: str = "") -> bool:
    """Return whether an array's elements can be loaded ahead: scalars that the map only reads, one for each `i`."""
    scalars = argument.dtype.names is None and argument.dtype.kind != "c"
    return argument.is_const and scalars and is_elementwise(argument, code, preamble)


def _read_ahead(code: str, streamed: Collection[Argument]) -> str:
    for argument in streamed:
        code = re.sub(_element(argument), f"clhist_{argument.name}", code)
    return code


def _element(argument: Argument) -> str:
    return rf"(?<!\.)(?<!->)\b{argument.name}\s*\[\s*i\s*\]"
