"""Where data lies among the edges of bins: thresholds found on the host, compared on the device.

An axis is a `Thresholds` (what a reference library's comparison makes of its edges for data of one dtype), made ready
for a kernel as an `Axis`; `sweep` combines values by the bins of one axis or several.
"""

from clhist.binning.axis import Axis, axis_of
from clhist.binning.extent import extent
from clhist.binning.keys import has_keys
from clhist.binning.sweep import Binned, BinnedKind, sweep, sweep_kernel
from clhist.binning.thresholds import Thresholds, first_keys, numpy_bins, within_range

__all__ = [
    "Axis",
    "Binned",
    "BinnedKind",
    "Thresholds",
    "axis_of",
    "extent",
    "first_keys",
    "has_keys",
    "numpy_bins",
    "sweep",
    "sweep_kernel",
    "within_range",
]
