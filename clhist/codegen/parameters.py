"""The parameters of each kernel, in order."""

from __future__ import annotations

import numpy as np

from clhist.codegen.maps import Parameter
from clhist.codegen.specs import CombineSpec, PartitionSpec, SampleSpec, SweepSpec
from clhist.operators.operator import Operator

_INT, _UINT, _LONG, _ULONG = (np.dtype(kind) for kind in (np.int32, np.uint32, np.int64, np.uint64))


def sweep_parameters(spec: SweepSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_sweep``, in order."""
    index, bins = (_LONG, _ULONG) if spec.wide else (_INT, _UINT)
    found = [parameter for argument in spec.arguments for parameter in argument.kernel_parameters]
    found.append(Parameter("const clhist_index_t", "clhist_size", index))
    for output in spec.outputs:
        found.append(Parameter("const clhist_bin_t", f"clhist_num_bins{output.suffix}", bins))
        found.append(Parameter("const clhist_bin_t", f"clhist_bins_per_pass{output.suffix}", bins))
        if spec.apart:
            found.append(Parameter("const clhist_bin_t", f"clhist_stride{output.suffix}", bins))
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
    if spec.bucketed:
        found.append(Parameter("__global char *", "clhist_waiting", None))
        found += [
            Parameter("const uint", f"clhist_{name}", _UINT) for name in ("buckets", "bucket_bits", "bucket_room")
        ]
        found += [Parameter("const ulong", f"clhist_waiting_{name}", _ULONG) for name in ("places", "values", "stride")]
    if spec.batch in ("equal", "ragged"):
        found.append(Parameter("const ulong", "clhist_tasks", _ULONG))
    if spec.is_dealt:
        found += [Parameter("const uint", f"clhist_{name}", _UINT) for name in ("passes", "magic", "shift")]
    if spec.counter_bits:
        names = ("table_size", "most_spills", "least_distinct", "most_alike")
        found += [Parameter("const uint", f"clhist_{name}", _UINT) for name in names]
    if spec.batch == "partitioned":
        found += partitioned_parameters()
    if spec.batch == "flattened":
        found.append(Parameter("const ulong", "clhist_each", _ULONG))
        for output in spec.outputs:
            found.append(Parameter("const clhist_bin_t", f"clhist_bins_each{output.suffix}", bins))
    if spec.batch == "equal":
        found.append(Parameter("const ulong", "clhist_chunks", _ULONG))
        found.append(Parameter("const ulong", "clhist_each", _ULONG))
    if spec.batch == "ragged":
        found.append(Parameter("__global const clhist_index_t *", "clhist_table", None))
    if spec.after_flag:
        found.append(Parameter("const ulong", "clhist_flag_place", _ULONG))
    if spec.combines and spec.combine is not None:
        found += result_parameters(spec.combine, "clhist_")
    return tuple(found)


def combining_arguments(spec: SweepSpec) -> list[str]:
    """Return the arguments with which a sweep that combines its copies calls the second stage, in C."""
    if not spec.combines or spec.combine is None:
        return []
    places = [f"clhist_place{part.n}" for part in spec.parts]
    stride = "clhist_stride" if spec.apart else "clhist_num_bins"
    copies = "1" if spec.memory == "local" else "clhist_copies"
    results = [parameter.name for parameter in result_parameters(spec.combine, "clhist_")]
    return ["clhist_scratch", *places, "clhist_num_bins", stride, copies, *results]


def partitioned_parameters() -> list[Parameter]:
    """Return the further parameters of a sweep over partitioned pairs."""
    numbers = ("clhist_partitions", "clhist_tiles", "clhist_region", "clhist_span")
    return [
        *(Parameter("__global const uint *", name, None) for name in ("clhist_starts", "clhist_sums", "clhist_totals")),
        Parameter("__global ulong *", "clhist_whose", None),
        *(Parameter("const uint", name, _UINT) for name in numbers),
    ]


def split_parameters(spec: PartitionSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_split``, in order."""
    found = [parameter for argument in spec.sweep.arguments for parameter in argument.kernel_parameters]
    found.append(Parameter("const int", "clhist_size", _INT))
    numbers = ("num_bins", "width", "magic", "shift", "partitions", "tiles")
    found += [Parameter("const uint", f"clhist_{name}", _UINT) for name in numbers]
    found.append(Parameter("__global char *", "clhist_pairs", None))
    found += [Parameter("const ulong", f"clhist_{name}_place", _ULONG) for name in ("bins", "values")]
    found.append(Parameter("__global uint *", "clhist_starts", None))
    return (*found, *flag_parameters(spec))


def flag_parameters(spec: PartitionSpec) -> list[Parameter]:
    """Return the parameters of a kernel that partitions only if narrow counters raised their flag."""
    if not spec.sweep.after_flag:
        return []
    return [
        Parameter("__global const char *", "clhist_scratch", None),
        Parameter("const ulong", "clhist_flag_place", _ULONG),
    ]


def index_parameters(spec: PartitionSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_index``, in order."""
    found = [Parameter("__global const uint *", "clhist_starts", None)]
    found += [Parameter("__global uint *", name, None) for name in ("clhist_sums", "clhist_totals")]
    return (*found, Parameter("const uint", "clhist_tiles", _UINT), *flag_parameters(spec))


def sample_parameters(spec: SampleSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_count_distinct``, in order."""
    sweep = spec.sweep
    index, bins = (_LONG, _ULONG) if sweep.wide else (_INT, _UINT)
    found = [parameter for argument in sweep.arguments for parameter in argument.kernel_parameters]
    found.append(Parameter("const clhist_index_t", "clhist_size", index))
    found += [Parameter("const clhist_bin_t", f"clhist_num_bins{output.suffix}", bins) for output in sweep.outputs]
    found.append(Parameter("__global char *", "clhist_scratch", None))
    found.append(Parameter("const clhist_index_t", "clhist_length", index))
    found.append(Parameter("const uint", "clhist_words", _UINT))
    return tuple(found)


def clear_parameters(spec: CombineSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_clear``, in order."""
    found = [Parameter("__global char *", "clhist_scratch", None), Parameter("const ulong", "clhist_num_cells", _ULONG)]
    for n in range(len(spec.operator.parts)):
        for name in ("place", "lock_place", "num_locks"):
            found.append(Parameter("const ulong", f"clhist_{name}{n}", _ULONG))
    return tuple(found)


def combine_parameters(spec: CombineSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_combine_copies``, in order."""
    found = [Parameter("__global char *" if spec.counter_bits else "__global const char *", "clhist_scratch", None)]
    found += [Parameter("const ulong", f"clhist_place{n}", _ULONG) for n in range(len(spec.operator.parts))]
    found += [Parameter("const ulong", name, _ULONG) for name in ("clhist_num_bins", "clhist_bins", "clhist_copies")]
    if spec.batch == "ragged":
        found.append(Parameter("__global const ulong *", "clhist_first", None))
    if spec.is_dealt:
        found.append(Parameter("const uint", "clhist_passes", _UINT))
    if spec.counter_bits:
        found.append(Parameter("const ulong", "clhist_packed_place", _ULONG))
        found += [Parameter("const uint", f"clhist_{name}", _UINT) for name in ("rows", "tables", "table_size")]
    return (*found, *result_parameters(spec))


def result_parameters(spec: CombineSpec, prefix: str = "") -> list[Parameter]:
    """Return those of the second stage that say where results go; a `prefix` keeps them apart from the caller's."""
    found = []
    if spec.used:
        found.append(Parameter("const ulong", "clhist_known", _ULONG))
        found.append(Parameter("__global char *", "clhist_found_base", None))
        found.append(Parameter("const ulong", "clhist_found_offset", _ULONG))
    found.append(Parameter("const int", f"{prefix}has_dest", _INT))
    for suffix in [f"_{name}" for name, _ in spec.fields] or [""]:
        for kind, name in (("const char", "dest"), ("char", "out")):
            found.append(Parameter(f"__global {kind} *", f"{prefix}{name}_base{suffix}", None))
            found.append(Parameter("const ulong", f"{prefix}{name}_offset{suffix}", _ULONG))
    return found


def accumulator_words(operator: Operator) -> int:
    """Return the 32-bit words of an accumulator while pairs are sorted: an odd number.

    On GPUs, PyOpenCL's scan packs items of a multiple of 8 bytes into structs, to spread them over banks, and still
    reads its local array of them by words. Compilers need not align such an array: NVIDIA's aligned it for the first
    field, and the device faulted if that was narrower than a word.
    """
    return -(-operator.accumulator.itemsize // 4) | 1


def pairs_parameters(spec: SweepSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_pairs``, in order."""
    found = [parameter for argument in spec.arguments for parameter in argument.kernel_parameters]
    found.append(Parameter("const int", "clhist_size", _INT))
    for name in ("clhist_num_bins", "clhist_no_bin"):
        found.append(Parameter("const uint", name, _UINT))
    for kind, name in (("uint", "clhist_keys"), ("uint", "clhist_positions"), ("clhist_held_t", "clhist_accumulators")):
        found.append(Parameter(f"__global {kind} *", name, None))
    if spec.batch:
        found.append(Parameter("const int", "clhist_each", _INT))
    return tuple(found)
