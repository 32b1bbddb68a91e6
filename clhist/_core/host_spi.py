"""The part of `clhist._core.spi` that imports neither PyOpenCL nor the engine: few elements need no more."""
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
from clhist._core.opencl.cuda_kinds import (
    NotDirectError as NotDirectError,
    cuda_device_of as cuda_device_of,
    is_cuda as is_cuda,
)
from clhist._core.opencl.halves import as_numbers as as_numbers
from clhist._core.kinds import is_complete as is_complete
from clhist._core.runtime.cuda_entry import takes_cuda as takes_cuda
from clhist.operators.c_types import native as native
from clhist._core.runtime.reading import as_array as as_array, check_width as check_width

# Masks, missing elements, columns of tables, labelled arrays.
from clhist._core.opencl.arrays import (
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

# Lost devices, objects of a device.
from clhist._core.opencl.lost import check_process as check_process, is_forked as is_forked
from clhist._core.opencl.on_device import HoldsBins as HoldsBins, OnDevice as OnDevice

# Calls that the host computes, and warnings.
from clhist._core.runtime import small as small
from clhist._core.runtime.small import (
    check_host_way as check_host_way,
    counted_by_numpy as counted_by_numpy,
    is_small as is_small,
)
from clhist._core.runtime.caller import warn_caller as warn_caller
