"""The names of the core that adapters use beside the public interface; each is documented where it is defined.

Adapters are `hist`, `dask`, `torch`, `jax`, `boosting`, `rdf`, `pyfai`, `ndimage`, `flox`, `zonal`, `tables` and
`multi_device`. They import nothing else of `clhist._core`, so what is behind these names may change.
"""
# isort: skip_file

from __future__ import annotations


# Arrays of NumPy, PyOpenCL and CUDA: what kernels can take of them.
from clhist._core.opencl.arrays import (
    Array as Array,
    are_plain_numbers as are_plain_numbers,
    as_bytes as as_bytes,
    check_array as check_array,
    check_contiguous as check_contiguous,
    check_layout as check_layout,
    check_native as check_native,
    is_device_array as is_device_array,
    on_host as on_host,
    plain as plain,
)
from clhist._core.opencl.new_arrays import to_device as to_device, zeros as zeros
from clhist._core.opencl.cuda_kinds import (
    NotDirectError as NotDirectError,
    cuda_device_of as cuda_device_of,
    is_cuda as is_cuda,
)
from clhist._core.opencl.operands import in_place as in_place
from clhist._core.opencl.upload import FEWEST_BYTES as FEWEST_BYTES, uploads as uploads
from clhist._core.cuda.imported import is_complete as is_complete
from clhist._core.cuda.libraries import library as library
from clhist._core.runtime.cuda_calls import warn_of_host as warn_of_host
from clhist._core.runtime.cuda_entry import takes_cuda as takes_cuda
from clhist._core.runtime.scatter import native as native
from clhist._core.runtime.reading import as_array as as_array, check_width as check_width
from clhist._core.runtime.multi_index import flat_indices as flat_indices

# Masks, missing elements, columns of tables, labelled arrays.
from clhist._core.opencl.masks import (
    check_unmasked as check_unmasked,
    leave_out as leave_out,
    mask_of as mask_of,
    mask_of_values as mask_of_values,
    without_masked as without_masked,
)
from clhist._core.runtime.missing import (
    any_missing as any_missing,
    are_plain as are_plain,
    masked as masked,
    refuse_missing as refuse_missing,
    rows_missing as rows_missing,
    split as split,
)
from clhist._core.runtime.columns import read_column as read_column
from clhist._core.runtime.labelled import is_labelled as is_labelled, unlabelled as unlabelled

# Numbers as integers in their order, elements as kernels read them.
from clhist._core.keys import (
    from_keys as from_keys,
    has_keys as has_keys,
    key_dtype as key_dtype,
    key_range as key_range,
    keys_of as keys_of,
)
from clhist._core.elements import are_converted as are_converted, kernel_dtype as kernel_dtype

# Devices, queues, lost devices.
from clhist._core.opencl.device import (
    check_fp64 as check_fp64,
    default_queue as default_queue,
    device_kind as device_kind,
    device_profile as device_profile,
    devices as devices,
    has_fp64 as has_fp64,
    is_processor as is_processor,
    memory_budget as memory_budget,
    planning_profile as planning_profile,
    profile_names as profile_names,
    use_device as use_device,
)
from clhist._core.opencl.several import device_name as device_name, queues_of as queues_of
from clhist._core.opencl.lost import check_process as check_process, is_forked as is_forked
from clhist._core.opencl.memory import OutOfMemoryError as OutOfMemoryError

# Calls of the engine, bins that stay on the device, signatures.
from clhist._core.runtime.engine import Engine as Engine
from clhist._core.runtime.call import Call as Call
from clhist._core.runtime.outputs import Outputs as Outputs
from clhist._core.runtime.held import Held as Held, Updates as Updates
from clhist._core.runtime.reproducible import reproducible as reproducible
from clhist._core.runtime.signature import Remembered as Remembered, signature_of as signature_of
from clhist._core.opencl.on_device import HoldsBins as HoldsBins, OnDevice as OnDevice

from clhist._core.runtime.cuda_repeats import (
    ANEW as ANEW,
    LastRepeat as LastRepeat,
    Repeat as Repeat,
    record_repeats as record_repeats,
    report_origin as report_origin,
    report_repeat as report_repeat,
)

# Other kernels: programs, element by element, scans, chains of launches, scratch memory.
from clhist._core.kernels.render import render as render
from clhist._core.kernels.scan import ScanSpec as ScanSpec
from clhist._core.opencl.program import Kernel as Kernel, kept_by_context as kept_by_context, kernels_of as kernels_of
from clhist._core.opencl.elementwise import (
    are_positive as are_positive,
    as_numbers as as_numbers,
    taken as taken,
    zero_where_none as zero_where_none,
)
from clhist._core.runtime import row_kernels as row_kernels
from clhist._core.runtime.row_dots import row_dots as row_dots
from clhist._core.runtime.mapped_rows import reduce_mapped as reduce_mapped
from clhist._core.runtime.rows_by_count import operator_by_count as operator_by_count
from clhist._core.runtime.chain import Chain as Chain, chain_on as chain_on
from clhist._core.runtime.each import Elementwise as Elementwise
from clhist._core.runtime.extremes import extremes as extremes
from clhist._core.runtime.pool import Pool as Pool
from clhist._core.runtime.scan import Scan as Scan

# Calls that the host computes, and warnings.
from clhist._core.runtime import small as small
from clhist._core.runtime.small import (
    check_host_way as check_host_way,
    counted_by_numpy as counted_by_numpy,
    is_small as is_small,
)
from clhist._core.runtime.caller import warn_caller as warn_caller
