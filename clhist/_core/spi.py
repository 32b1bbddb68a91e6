"""The names of the core that adapters use beside the public interface; each is documented where it is defined.

Adapters are `hist`, `dask`, `torch`, `jax`, `boosting`, `rdf`, `pyfai`, `ndimage`, `flox`, `zonal`, `tables` and
`multi_device`. They import nothing else of `clhist._core`, so what is behind these names may change.
"""
# isort: skip_file

from __future__ import annotations

from clhist._core.host_spi import *  # noqa: F403

# Arrays of NumPy, PyOpenCL and CUDA: what kernels can take of them.
from clhist._core.opencl.new_arrays import beginning as beginning, to_device as to_device, zeros as zeros
from clhist._core.opencl.operands import in_place as in_place
from clhist._core.opencl.upload import FEWEST_BYTES as FEWEST_BYTES, uploads as uploads
from clhist._core.cuda.libraries import library as library
from clhist._core.runtime.cuda_calls import warn_of_host as warn_of_host
from clhist._core.runtime.multi_index import flat_indices as flat_indices

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
from clhist._core.opencl.memory import OutOfMemoryError as OutOfMemoryError

# Calls of the engine, bins that stay on the device, signatures.
from clhist._core.runtime.engine import Engine as Engine
from clhist._core.runtime.call import Call as Call
from clhist._core.runtime.outputs import Outputs as Outputs
from clhist._core.runtime.device_accumulators import DeviceAccumulators as DeviceAccumulators, Updates as Updates
from clhist._core.runtime.reproducible import reproducible as reproducible
from clhist._core.runtime.signature import (
    Remembered as Remembered,
    call_templates as call_templates,
    signature_of_arguments as signature_of_arguments,
)

from clhist._core.runtime.cuda_repeats import ANEW as ANEW, Repeat as Repeat
from clhist._core.runtime.reported_repeats import (
    ReportedRepeat as ReportedRepeat,
    finished as finished,
    record_repeats as record_repeats,
    recording_threads as recording_threads,
    report_origin as report_origin,
    report_repeat as report_repeat,
)

# Other kernels: programs, element by element, scans, chains of launches, scratch memory.
from clhist._core.templates import render as render
from clhist._core.kernels.scan import ScanSpec as ScanSpec
from clhist._core.opencl.program import Kernel as Kernel, kept_by_context as kept_by_context, kernels_of as kernels_of
from clhist._core.opencl.elementwise import are_positive as are_positive, zero_where_none as zero_where_none
from clhist._core.runtime import row_kernels as row_kernels
from clhist._core.runtime.mapped_rows import row_dots as row_dots
from clhist._core.runtime.mapped_rows import reduce_mapped as reduce_mapped, reduce_sorted as reduce_sorted
from clhist._core.runtime.row_means import operator_by_count as operator_by_count
from clhist._core.runtime.chain import Chain as Chain
from clhist._core.runtime.launcher import chain_on as chain_on
from clhist._core.runtime.elementwise_kernel import Elementwise as Elementwise
from clhist._core.runtime.counting import extremes as extremes
from clhist._core.runtime.pool import Pool as Pool, Worker as Worker
from clhist._core.runtime.scan import Scan as Scan
