"""The names of this package that adapters use beside the public interface; each is documented where it is defined."""
# isort: skip_file

from __future__ import annotations

# Combining values by the bins of axes.
from clhist.binned.sweep import (
    BLOCK_OF_ELEMENTS as BLOCK_OF_ELEMENTS,
    Binned as Binned,
    BinnedKind as BinnedKind,
    Sweep as Sweep,
    arguments_of as arguments_of,
    functions_of as functions_of,
    sweep as sweep,
    sweep_engine as sweep_engine,
)
from clhist.binned.extent import extent as extent

# Arguments of histograms, and NumPy's own.
from clhist.binned.inputs import (
    as_array as as_array,
    check_ends as check_ends,
    check_number as check_number,
    mask_array as mask_array,
    range_ends as range_ends,
    split_array as split_array,
    without as without,
)
from clhist.binned.device_inputs import numpy_axis as numpy_axis, queue_for as queue_for
from clhist.binned.counts import densities as densities
from clhist.binned.host import numpy_edges as numpy_edges, numpy_histogramdd as numpy_histogramdd
