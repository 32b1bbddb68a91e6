"""The parameters of each kernel, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clhist._core.kernels.specs import CombineSpec, SampleSpec, SweepSpec
from clhist._core.model.feature import (
    INT,
    LONG,
    UINT,
    ULONG,
    BatchChunks,
    Guarded,
    PackedCounters,
    Parameter,
    buffers,
    uints,
    ulongs,
)
from clhist._core.model.private import PaddedCopies
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from clhist._core.kernels.partitions import PartitionSpec


def sweep_parameters(spec: SweepSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_sweep``, in order."""
    index, bins = (LONG, ULONG) if spec.wide else (INT, UINT)
    padded = spec.feature(PaddedCopies)
    parameters = [parameter for argument in spec.arguments for parameter in argument.kernel_parameters]
    parameters.append(Parameter("const clhist_index_t", "clhist_size", index))
    for output in spec.outputs:
        parameters.append(Parameter("const clhist_bin_t", f"clhist_num_bins{output.suffix}", bins))
        parameters.append(Parameter("const clhist_bin_t", f"clhist_bins_per_pass{output.suffix}", bins))
        # A stride stands beside the bins of its output, and is left out with the other features below.
        if padded is not None:
            parameters += [
                parameter for parameter in padded.parameters(spec) if parameter.name == f"clhist_stride{output.suffix}"
            ]
    parameters.append(Parameter("const uint", "clhist_copies", UINT))
    parameters.append(Parameter("__global char *", "clhist_scratch", None))
    for part in spec.parts:
        parameters.append(Parameter("const ulong", f"clhist_place{part.n}", ULONG))
    if spec.update == "lock":
        # Local memory has at most 2^32 locks, in one array behind the cells; global memory needs places and 64 bits.
        if spec.memory == "global":
            for part in spec.parts:
                if part.update == "lock":
                    parameters.append(Parameter("const ulong", f"clhist_lock_place{part.n}", ULONG))
            parameters.append(Parameter("const ulong", "clhist_lock_mask", ULONG))
        else:
            parameters.append(Parameter("const uint", "clhist_lock_mask", UINT))
    for feature in spec.features:
        parameters += () if feature is padded else feature.parameters(spec)
    if spec.writes_results and spec.combine is not None:
        parameters += result_parameters(spec.combine, "clhist_")
    return tuple(parameters)


def join_parameters(spec: SweepSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_join`` of a sweep over partitioned pairs, in order."""
    assert spec.combine is not None
    return (
        Parameter("__global const char *", "clhist_scratch", None),
        *ulongs(*(f"place{part.n}" for part in spec.parts)),
        *uints("bins_per_pass", "all_bins"),
        *buffers("__global const uint2 *", "tasks"),
        *buffers("__global const ulong *", "task_bounds"),
        *buffers("__global const uint *", "cursors"),
        *result_parameters(spec.combine, "clhist_"),
        *flag_parameters(spec),
    )


def combining_arguments(spec: SweepSpec) -> list[str]:
    """Return the arguments with which a sweep that combines its copies calls the second stage, in C."""
    if not spec.fused_combine or spec.combine is None:
        return []
    places = [f"clhist_place{part.n}" for part in spec.parts]
    stride = "clhist_stride" if spec.feature(PaddedCopies) else "clhist_num_bins"
    copies = "1" if spec.memory == "local" else "clhist_copies"
    return ["clhist_scratch", *places, "clhist_num_bins", stride, copies, *result_arguments(spec)]


def result_arguments(spec: SweepSpec) -> list[str]:
    """Return the arguments with which a sweep that writes results says where, in C."""
    if not spec.writes_results or spec.combine is None:
        return []
    return [parameter.name for parameter in result_parameters(spec.combine, "clhist_")]


def split_parameters(spec: PartitionSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_split``, in order."""
    parameters = [parameter for argument in spec.sweep.arguments for parameter in argument.kernel_parameters]
    parameters.append(Parameter("const int", "clhist_size", INT))
    # At most 2^30 elements and 2^31 bins are partitioned: 32 bits are enough.
    numbers = ("num_bins", "width", "magic", "shift", "partitions", "tiles")
    parameters += [Parameter("const uint", f"clhist_{name}", UINT) for name in numbers]
    parameters.append(Parameter("__global char *", "clhist_pairs", None))
    parameters += [Parameter("const ulong", f"clhist_{name}_place", ULONG) for name in ("bins", "values")]
    parameters += buffers("__global uint *", "starts", "cursors")
    if spec.clears:
        parameters += (*buffers("__global uint *", "zeros"), *uints("cleared"))
    return (*parameters, *flag_parameters(spec.sweep))


def flag_parameters(sweep: SweepSpec) -> list[Parameter]:
    """Return the parameters of a kernel before or behind a sweep that runs only if a flag says so."""
    guarded = sweep.feature(Guarded)
    return [] if guarded is None else list(guarded.leave_parameters())


def index_parameters(spec: PartitionSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_index``, in order."""
    return (
        *buffers("__global const uint *", "starts"),
        *buffers("__global uint4 *", "ranges"),
        *buffers("__global uint2 *", "tasks"),
        *buffers("__global ulong *", "task_bounds"),
        *buffers("volatile __global uint *", "cursors"),
        *uints("tiles", "piece", "segment_cost"),
        *flag_parameters(spec.sweep),
    )


def sample_parameters(spec: SampleSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_count_distinct``, in order."""
    index = LONG if spec.sweep.wide else INT
    return (
        *_map_parameters(spec.sweep),
        *buffers("__global char *", "scratch"),
        Parameter("const clhist_index_t", "clhist_length", index),
        *uints("words"),
    )


def look_parameters(spec: SampleSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_look``, in order."""
    return (*_map_parameters(spec.sweep), *buffers("__global uint *", "call"), *uints("most", "lowest", "highest"))


def _map_parameters(sweep: SweepSpec) -> list[Parameter]:
    """Return the parameters of a kernel that calls the map: its arguments, the number of elements and those of bins."""
    index, bins = (LONG, ULONG) if sweep.wide else (INT, UINT)
    parameters = [parameter for argument in sweep.arguments for parameter in argument.kernel_parameters]
    parameters.append(Parameter("const clhist_index_t", "clhist_size", index))
    return parameters + [
        Parameter("const clhist_bin_t", f"clhist_num_bins{output.suffix}", bins) for output in sweep.outputs
    ]


def clear_parameters(spec: CombineSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_clear``, in order."""
    parameters = [
        Parameter("__global char *", "clhist_scratch", None),
        Parameter("const ulong", "clhist_num_cells", ULONG),
    ]
    for n in range(len(spec.operator.parts)):
        for name in ("place", "lock_place", "num_locks"):
            parameters.append(Parameter("const ulong", f"clhist_{name}{n}", ULONG))
    return tuple(parameters)


def combine_parameters(spec: CombineSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_combine_copies``, in order."""
    # The second stage of packed counters takes their flag down, so it writes to scratch memory.
    is_read = spec.feature(PackedCounters) is None
    parameters = [Parameter(f"__global {'const ' if is_read else ''}char *", "clhist_scratch", None)]
    parameters += [Parameter("const ulong", f"clhist_place{n}", ULONG) for n in range(len(spec.operator.parts))]
    parameters += [
        Parameter("const ulong", name, ULONG) for name in ("clhist_num_bins", "clhist_bins", "clhist_copies")
    ]
    if spec.batch == "ragged":
        parameters.append(Parameter("__global const ulong *", "clhist_first", None))
    for feature in spec.features:
        parameters += feature.combine_parameters() or ()
    return (*parameters, *result_parameters(spec))


def result_parameters(spec: CombineSpec, prefix: str = "") -> list[Parameter]:
    """Return the second stage's parameters for its results; a `prefix` tells them from the caller's."""
    parameters = []
    if spec.largest_bin_condition:
        parameters.append(Parameter("const ulong", "clhist_known", ULONG))
        parameters.append(Parameter("__global char *", "clhist_report_base", None))
        parameters.append(Parameter("const ulong", "clhist_report_offset", ULONG))
    parameters.append(Parameter("const int", f"{prefix}has_dest", INT))
    for suffix in [f"_{name}" for name, _ in spec.fields] or [""]:
        for kind, name in (("const char", "dest"), ("char", "out")):
            parameters.append(Parameter(f"__global {kind} *", f"{prefix}{name}_base{suffix}", None))
            parameters.append(Parameter("const ulong", f"{prefix}{name}_offset{suffix}", ULONG))
    return parameters


def accumulator_words(operator: Operator) -> int:
    """Return the 32-bit words of an accumulator while pairs are sorted: an odd number, which spreads over banks."""
    return -(-operator.accumulator.itemsize // 4) | 1


def pairs_parameters(spec: SweepSpec) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel ``clhist_pairs``, in order."""
    parameters = [parameter for argument in spec.arguments for parameter in argument.kernel_parameters]
    parameters.append(Parameter("const int", "clhist_size", INT))
    # Fewer than 2^30 pairs and 2^31 bins are sorted: 32 bits are enough.
    for name in ("clhist_num_bins", "clhist_no_bin"):
        parameters.append(Parameter("const uint", name, UINT))
    for kind, name in (("uint", "clhist_keys"), ("uint", "clhist_positions"), ("clhist_held_t", "clhist_accumulators")):
        parameters.append(Parameter(f"__global {kind} *", name, None))
    if spec.feature(BatchChunks):
        parameters.append(Parameter("const int", "clhist_histogram_size", INT))
    return tuple(parameters)
