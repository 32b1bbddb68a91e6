"""From a specification to OpenCL C: pure text, no device.

Into the source goes what changes the code (types, operator, map, update, memory, work-group size, capacity of the local
array); what changes only numbers (N, H, M, the bins of a pass) is passed when a kernel is launched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources

import numpy as np
from mako.lookup import TemplateLookup
from mako.template import Template

from clhist.atomics import NativeAtomic, native_atomic, part_loops, slowest
from clhist.dtypes import c_name, declare
from clhist.operator import Operator, Part

# A map longer than this is not written out several times for the sake of wide loads: it is not bound by them.
_LONGEST_UNROLLED_MAP = 400
_LOADS_IN_FLIGHT = 4
_BYTES_OF_A_LOAD = 16

# Of OpenCL C 3.0; a mem_fence is work-group wide there.
DEVICE_FENCE = "atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device)"
DEVICE_FENCE_OPTIONS = ("-cl-std=CL3.0",)

_INT, _UINT, _LONG, _ULONG = (np.dtype(kind) for kind in (np.int32, np.uint32, np.int64, np.uint64))


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
    def kernel_parameters(self) -> tuple[Parameter, ...]:
        """What the kernel gets for it: of an array its buffer and an offset in bytes."""
        if self.is_array:
            base, offset = Parameter("__global char *", f"{self.name}__base", None), f"{self.name}__offset"
            return base, Parameter("const ulong", offset, _ULONG)
        return (Parameter(f"const {self.c_type}", self.name, self.dtype),)


@dataclass(frozen=True)
class Output:
    """One histogram that a sweep fills.

    Attributes
    ----------
    operator : Operator
        Its combining operator.
    updates : tuple of str
        How each of the operator's parts is updated, as in `clhist.model.Plan`.
    suffix : str
        What its ``EMIT``, and its types and functions, end in; nothing for the only one of a kernel.
    """

    operator: Operator
    updates: tuple[str, ...]
    suffix: str = ""


@dataclass(frozen=True)
class SweepSpec:
    """Everything that the source of a sweep depends on.

    Attributes
    ----------
    outputs : tuple of Output
        The histograms that it fills.
    arguments : tuple of Argument
        Inputs of the map.
    map : str
        C run for each `i`, with ``EMIT(bin, value)`` of each output.
    memory : {"local", "global"}
        Where the copies are.
    order : {"blocked", "interleaved"}
        Whether a work-item's elements are neighbours (CPU), or those of neighbouring work-items (GPU).
    work_group_size, teams : int
        B, and into how many teams a work-group is divided.
    capacity : int
        Bytes of the local array; 0 in global memory.
    batch : {"", "even", "table", "flat", "segments"}
        Whether there are histograms of as many elements each, or tasks that a table lists; "flat" if the histograms of
        as many elements are one of all bins; "segments" if the arguments are pairs that were partitioned.
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
        What the device has, of `clhist.atomics.ALL_FEATURES`.
    ignored : tuple of Output
        Histograms that the map emits to, and another sweep fills.
    packed : bool
        Whether counters of 16 bits share words of local memory; the one output then counts.
    one_pair : bool
        Whether there is one output, and an element has one value for it at most.
    """

    outputs: tuple[Output, ...]
    arguments: tuple[Argument, ...]
    map: str
    memory: str
    order: str
    work_group_size: int
    capacity: int = 0
    teams: int = 1
    batch: str = ""
    wide: bool = False
    aligned: bool = False
    reach: bool = False
    structs: tuple[tuple[str, np.dtype], ...] = ()
    preamble: str = ""
    features: frozenset[str] = frozenset()
    ignored: tuple[Output, ...] = ()
    packed: bool = False
    one_pair: bool = False

    @property
    def update(self) -> str:
        """The slowest of all updates."""
        return slowest(update for output in self.outputs for update in output.updates)

    @property
    def team_size(self) -> int:
        """Work-items that go through the same elements together."""
        return self.work_group_size // self.teams

    @cached_property
    def parts(self) -> tuple[SweepPart, ...]:
        """The parts of all outputs, numbered."""
        pairs = [(o, p, u) for o in self.outputs for p, u in zip(o.operator.parts, o.updates, strict=True)]
        return tuple(
            SweepPart(n, output, part, update, native_atomic(part.operation, part.dtype, self.memory, self.features))
            for n, (output, part, update) in enumerate(pairs)
        )

    @property
    def holds(self) -> bool:
        """Whether each work-item of a GPU holds one bin that many want, where updates wait for each other.

        In local memory loops do; additions of floats and of 64 bits are loops of NVIDIA's there.
        """
        parts = self.parts
        if not self.one_pair or self.order != "interleaved" or self.update == "private" or self.packed:
            return False
        if self.memory == "global":
            return True
        loops = parts[0].update in ("cas", "lock") or ("nvidia_ptx" in self.features and part_loops(parts[0].part))
        return len(parts) == 1 and loops

    @property
    def options(self) -> tuple[str, ...]:
        """What the compiler must be told for the sake of these updates."""
        used = {option for p in self.parts if p.update == "native" and p.atomic for option in p.atomic.options}
        if self.update == "lock" and _fence(self.memory, self.features) == DEVICE_FENCE:
            used.update(DEVICE_FENCE_OPTIONS)
        return tuple(sorted(used))

    @cached_property
    def streamed(self) -> tuple[Argument, ...]:
        """The arrays that the map reads only as ``name[i]``: their elements can be loaded ahead, and wide."""
        return tuple(argument for argument in self.arguments if is_streamed(argument, self.map, self.preamble))

    def map_parameters(self) -> list[str]:
        """Return what the map sees of the caller's arguments: of a streamed array one element."""
        streamed = self.streamed
        return [f"const {a.c_type} clhist_{a.name}" if a in streamed else a.parameter for a in self.arguments]

    def map_arguments(self, element: Callable[[Argument], str]) -> list[str]:
        """Return the same in a call; `element` gives the C of a streamed array's element."""
        streamed = self.streamed
        return [element(a) if a in streamed else a.name for a in self.arguments]

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
        loops = self.update in ("cas", "lock") or (self.holds and self.memory == "local")
        return "nvidia_ptx" in self.features and loops and self.team_size % 32 == 0

    @property
    def loads(self) -> int:
        """Loads of each streamed array in flight; fewer where one load brings many elements."""
        return max(1, min(_LOADS_IN_FLIGHT, 32 // self.vector_width)) if self.vector_width > 1 else 1


# A declaration of another i, or what only another i can have done to it: the map's own is const.
_HIDDEN_INDEX = re.compile(r"[\w*]\s+\**i\s*[=;,:)]|\bi\s*(=[^=]|\+\+|--|[-+*/%&|^]=)|(\+\+|--)\s*i\b")


@dataclass(frozen=True)
class SweepPart:
    """One part of an output's operator: its number in the sweep, its update, and the hardware atomic for it, if any."""

    n: int
    output: Output
    part: Part
    update: str
    atomic: NativeAtomic | None


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: its C type, its name, and its dtype, which is None for a buffer."""

    c_type: str
    name: str
    dtype: np.dtype | None

    @property
    def declaration(self) -> str:
        """What stands in the kernel's list."""
        return f"{self.c_type} {self.name}"


def sweep_parameters(spec: SweepSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_sweep``, in order."""
    index, bins = (_LONG, _ULONG) if spec.wide else (_INT, _UINT)
    found = [parameter for argument in spec.arguments for parameter in argument.kernel_parameters]
    found.append(Parameter("const clhist_index_t", "clhist_size", index))
    for output in spec.outputs:
        found.append(Parameter("const clhist_bin_t", f"clhist_num_bins{output.suffix}", bins))
        found.append(Parameter("const clhist_bin_t", f"clhist_bins_per_pass{output.suffix}", bins))
    found.append(Parameter("const uint", "clhist_copies", _UINT))
    found.append(Parameter("__global char *", "clhist_scratch", None))
    for part in spec.parts:
        found.append(Parameter("const ulong", f"clhist_place{part.n}", _ULONG))
    if spec.update == "lock":
        if spec.memory == "global":
            for part in spec.parts:
                if part.update == "lock":
                    found.append(Parameter("const ulong", f"clhist_lock_place{part.n}", _ULONG))
            found.append(Parameter("const ulong", "clhist_lock_mask", _ULONG))
        else:
            found.append(Parameter("const uint", "clhist_lock_mask", _UINT))
    if spec.reach:
        found.append(Parameter("volatile __global clhist_bin_t *", "clhist_global_reach", None))
    if spec.batch in ("even", "table"):
        found.append(Parameter("const ulong", "clhist_tasks", _ULONG))
    if spec.batch == "segments":
        found += segments_parameters()
    if spec.batch == "flat":
        found.append(Parameter("const ulong", "clhist_each", _ULONG))
        for output in spec.outputs:
            found.append(Parameter("const clhist_bin_t", f"clhist_bins_each{output.suffix}", bins))
    if spec.batch == "even":
        found.append(Parameter("const ulong", "clhist_chunks", _ULONG))
        found.append(Parameter("const ulong", "clhist_each", _ULONG))
    if spec.batch == "table":
        found.append(Parameter("__global const clhist_index_t *", "clhist_table", None))
    return tuple(found)


def segments_parameters() -> list[Parameter]:
    """Return what a sweep over partitioned pairs must know of them."""
    numbers = ("clhist_partitions", "clhist_tiles", "clhist_region", "clhist_span")
    return [
        *(Parameter("__global const uint *", name, None) for name in ("clhist_starts", "clhist_sums", "clhist_totals")),
        Parameter("__global ulong *", "clhist_whose", None),
        *(Parameter("const uint", name, _UINT) for name in numbers),
    ]


@dataclass(frozen=True)
class PartitionSpec:
    """Everything that the source of partitioning depends on.

    Attributes
    ----------
    sweep : SweepSpec
        The map and its arguments; one output, of which an element has one value at most.
    most : int
        At most so many partitions: a power of two, no more than work-items of a group.
    has_values : bool
        Whether each pair has a value of its own.
    index_group : int
        Work-items of a group that goes through the tiles of one partition, a power of two.
    """

    sweep: SweepSpec
    most: int
    has_values: bool
    index_group: int

    @property
    def elements(self) -> int:
        """How many elements a work-item has."""
        return max(_PARTITION_ELEMENTS, self.sweep.vector_width)

    @property
    def tile(self) -> int:
        """How many elements a work-group has."""
        return self.elements * self.sweep.work_group_size

    @property
    def counters(self) -> int:
        """How many counters a partition has, so that neighbouring work-items meet less."""
        return max(1, min(8, 512 // self.most))

    @property
    def value_bytes(self) -> int:
        """Bytes of a pair's value."""
        return self.sweep.outputs[0].operator.dtype.itemsize if self.has_values else 0

    @property
    def padding(self) -> int:
        """To a multiple of what the pairs of a partition in a tile are rounded up, for loads of 16 bytes."""
        return 16 if self.value_bytes == 1 else 8

    @property
    def region(self) -> int:
        """How many pairs a tile has room for."""
        return self.tile + self.padding * self.most

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory that a work-group takes."""
        return self.region * (2 + self.value_bytes) + 4 * self.most * (self.counters + 1) + 32


_PARTITION_ELEMENTS = 16


def split_parameters(spec: PartitionSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_split``, in order."""
    found = [parameter for argument in spec.sweep.arguments for parameter in argument.kernel_parameters]
    found.append(Parameter("const int", "clhist_size", _INT))
    numbers = ("num_bins", "width", "magic", "shift", "partitions", "tiles")
    found += [Parameter("const uint", f"clhist_{name}", _UINT) for name in numbers]
    found.append(Parameter("__global char *", "clhist_pairs", None))
    found += [Parameter("const ulong", f"clhist_{name}_place", _ULONG) for name in ("bins", "values")]
    found.append(Parameter("__global uint *", "clhist_starts", None))
    if spec.sweep.reach:
        found.append(Parameter("volatile __global uint *", "clhist_global_reach", None))
    return tuple(found)


def index_parameters() -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_index``, in order."""
    found = [Parameter("__global const uint *", "clhist_starts", None)]
    found += [Parameter("__global uint *", name, None) for name in ("clhist_sums", "clhist_totals")]
    return (*found, Parameter("const uint", "clhist_tiles", _UINT))


def render_partition(spec: PartitionSpec) -> str:
    """Return the OpenCL C program with the kernels ``clhist_split`` and ``clhist_index``."""
    sweep = spec.sweep
    return _render(
        "partition.mako",
        spec=spec,
        split_parameters=split_parameters(spec),
        index_parameters=index_parameters(),
        preamble_of=_preambles((*sweep.ignored, *sweep.outputs)),
        map_body=_read_ahead(sweep.map, sweep.streamed),
        declare=declare,
        c_name=c_name,
    )


def uniform_value(suffix: str, code: str, arguments: Iterable[Argument], preamble: str = "") -> str | None:
    """Return the value that the map `code` gives to every pair, if it is of scalar arguments and literals alone.

    That is only said of maps that name their ``EMIT`` once, and themselves.
    """
    name = rf"\bEMIT{suffix}\b"
    if len(re.findall(name, code)) != 1 or "#" in code or re.search(name, preamble):
        return None
    found = re.search(rf"\bEMIT{suffix}\s*\((.*)\)\s*;?\s*$", code, re.DOTALL)
    if found is None or not re.fullmatch(r"[\w\s.+*/()-]*", last := _last_argument(found[1])):
        return None
    scalars = {argument.name for argument in arguments if not argument.is_array}
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", last)
    return last.strip() if last.strip() and all(name in scalars for name in names) else None


def _last_argument(text: str) -> str:
    """Return what stands after the last comma outside parentheses; all if there is none."""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += (text[position] in ")]}") - (text[position] in "([{")
        if text[position] == "," and depth == 0:
            return text[position + 1 :]
    return text


def render_sweep(spec: SweepSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_sweep``."""
    return _render(
        "sweep.mako",
        spec=spec,
        streamed=spec.streamed,
        parts=spec.parts,
        kernel_parameters=sweep_parameters(spec),
        preamble_of=_preambles((*spec.ignored, *spec.outputs)),
        map_body=_read_ahead(spec.map, spec.streamed),
        bins_are_computed=_may_compute_bins(spec),
        fence=_fence(spec.memory, spec.features),
        declare=declare,
        c_name=c_name,
    )


def _may_compute_bins(spec: SweepSpec) -> bool:
    """Whether a compiler may know how the bin of one value follows from that of the value before."""
    elementwise = [argument for argument in spec.arguments if is_elementwise(argument, spec.map, spec.preamble)]
    loops = re.search(r"\b(for|while|do|goto)\b", f"{spec.map} {spec.preamble}")
    return loops is not None or uses_position(elementwise, spec.map, spec.preamble)


def _preambles(outputs: Iterable[Output]) -> dict[Output, str]:
    """Return the preamble of each operator, without what an earlier one has defined already."""
    found: dict[Output, str] = {}
    seen: list[tuple[str, tuple[np.dtype, np.dtype]]] = []
    for output in outputs:
        text, types = output.operator.preamble, (output.operator.dtype, output.operator.accumulator)
        for earlier, of in seen:
            common = min(text, earlier, key=len)
            whole_lines = rf"^{re.escape(common)}$"
            same = of == types or not re.search(r"\b(value_t|accumulator_t)\b", common)
            if common and same and all(re.search(whole_lines, each, re.MULTILINE) for each in (text, earlier)):
                text = re.sub(whole_lines, "", text, flags=re.MULTILINE).strip()
        found[output] = text
        seen.append((text, types))
    return found


@dataclass(frozen=True)
class CombineSpec:
    """Everything that the source of the second stage depends on.

    Attributes
    ----------
    operator : Operator
        The combining operator.
    order : {"blocked", "interleaved"}
        As in `SweepSpec`.
    columns, rows : int
        `rows` work-items of a work-group combine the copies of each of `columns` bins.
    batch : {"", "even", "table"}
        As in `SweepSpec`.
    dest_is_partial, out_is_partial : bool
        Whether these are arrays of accumulators, neither lifted nor finished.
    fields : tuple of (str, str)
        Name and C type of each field of a structured value, if each has an array of its own.
    whole : bool
        Whether the copies are arrays of accumulators rather than one array for each part.
    """

    operator: Operator
    order: str
    columns: int = 1
    rows: int = 1
    batch: str = ""
    dest_is_partial: bool = False
    out_is_partial: bool = False
    fields: tuple[tuple[str, str], ...] = ()
    whole: bool = False


def clear_parameters(spec: CombineSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_clear``, in order."""
    found = [Parameter("__global char *", "clhist_scratch", None), Parameter("const ulong", "clhist_num_cells", _ULONG)]
    for n in range(len(spec.operator.parts)):
        for name in ("place", "lock_place", "num_locks"):
            found.append(Parameter("const ulong", f"clhist_{name}{n}", _ULONG))
    return tuple(found)


def combine_parameters(spec: CombineSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_combine_copies``, in order."""
    found = [Parameter("__global const char *", "clhist_scratch", None)]
    found += [Parameter("const ulong", f"clhist_place{n}", _ULONG) for n in range(len(spec.operator.parts))]
    found += [Parameter("const ulong", name, _ULONG) for name in ("clhist_num_bins", "clhist_bins", "clhist_copies")]
    if spec.batch == "table":
        found.append(Parameter("__global const ulong *", "clhist_first", None))
    found.append(Parameter("const int", "has_dest", _INT))
    for suffix in [f"_{name}" for name, _ in spec.fields] or [""]:
        found.append(Parameter("__global const char *", f"dest_base{suffix}", None))
        found.append(Parameter("const ulong", f"dest_offset{suffix}", _ULONG))
        found.append(Parameter("__global char *", f"out_base{suffix}", None))
        found.append(Parameter("const ulong", f"out_offset{suffix}", _ULONG))
    return tuple(found)


def render_combine(spec: CombineSpec) -> str:
    """Return the OpenCL C program with the kernels ``clhist_clear`` and ``clhist_combine_copies``."""
    return _render(
        "combine.mako",
        spec=spec,
        clear_parameters=clear_parameters(spec),
        combine_parameters=combine_parameters(spec),
        declare=declare,
        c_name=c_name,
    )


def held_words(operator: Operator) -> int:
    """Return in how many 32-bit words an accumulator lies where pairs are sorted: PyOpenCL scans whole ones."""
    return -(-operator.accumulator.itemsize // 4)


def pairs_parameters(spec: SweepSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_pairs``, in order."""
    found = [parameter for argument in spec.arguments for parameter in argument.kernel_parameters]
    found.append(Parameter("const int", "clhist_size", _INT))
    for name in ("clhist_num_bins", "clhist_no_bin"):
        found.append(Parameter("const uint", name, _UINT))
    for kind, name in (("uint", "clhist_keys"), ("uint", "clhist_positions"), ("clhist_held_t", "clhist_held")):
        found.append(Parameter(f"__global {kind} *", name, None))
    if spec.reach:
        found.append(Parameter("volatile __global uint *", "clhist_global_reach", None))
    if spec.batch:
        found.append(Parameter("const int", "clhist_each", _INT))
    return tuple(found)


def render_pairs(spec: SweepSpec, emits: int) -> str:
    """Return the OpenCL C program with the kernel ``clhist_pairs``; an element has at most so many values."""
    return _template("pairs.mako").render(
        spec=spec,
        emits=emits,
        output=spec.outputs[0],
        words=held_words(spec.outputs[0].operator),
        kernel_parameters=pairs_parameters(spec),
        declare=declare,
        c_name=c_name,
    )


def render_segments(operator: Operator, held: str) -> str:
    """Return the C that PyOpenCL's scan of sorted pairs begins with; `held` is its type of an accumulator."""
    return _template("segments.mako").render(
        operator=operator, held=held, words=held_words(operator), declare=declare, c_name=c_name
    )


def render_measure(kernel: str, *, words: int = 0) -> str:
    """Return the OpenCL C of one of the kernels that measure a device; see ``measure.mako``."""
    return _template("measure.mako").render(kernel=kernel, words=words)


def render_probe(atomics: Sequence[NativeAtomic], cells: int) -> str:
    """Return the OpenCL C that shows whether `atomics`, or the device-wide fence if there are none, work."""
    return _render("probe.mako", atomics=atomics, cells=cells, fence="" if atomics else DEVICE_FENCE)


def _render(name: str, **values: object) -> str:
    """Return what the template says, without the empty lines that it leaves; one that ends a macro stays."""
    return re.sub(r"(?<!\\)\n\s*\n+", "\n", _template(name).render(**values)).lstrip()


def _template(name: str) -> Template:
    return _lookup().get_template(name)


@lru_cache(maxsize=1)
def _lookup() -> TemplateLookup:
    lookup = TemplateLookup(strict_undefined=True)
    for item in resources.files("clhist.kernels_cl").iterdir():
        if item.name.endswith(".mako"):
            lookup.put_string(item.name, item.read_text(encoding="utf-8"))
    return lookup


def _fence(memory: str, features: Collection[str]) -> str:
    """Return the fence between a lock and its data; a plain mem_fence reaches only the work-group on GPUs."""
    if memory == "local":
        return "mem_fence(CLK_LOCAL_MEM_FENCE)"
    if "nvidia_ptx" in features:
        return '__asm__ volatile("membar.gl;" ::: "memory")'
    if "amd_builtins" in features:
        return '__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")'
    if "device_fence" in features:
        return DEVICE_FENCE
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


def uses_position(elementwise: Collection[Argument], code: str, preamble: str = "") -> bool:
    """Return whether the map `code`, or a macro, uses `i` other than for elements of the `elementwise` arrays."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL)
    for argument in elementwise:
        code = re.sub(_element(argument), " ", code)
    macros = re.findall(r"^\s*#\s*define\b(?:.*\\\n)*.*", preamble, re.MULTILINE)
    return any(re.search(r"(?<!\.)(?<!->)\bi\b", text) for text in (code, *macros))


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
