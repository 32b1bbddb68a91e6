"""Generalized histograms ("reduce by index") on any OpenCL device.

``dest[i] = dest[i] ⊕ v`` over a stream of (bin, value) pairs, for any associative and commutative ⊕.
"""

from pathlib import Path

if not (Path(__file__).parent / "kernels_cl").is_dir():
    # In a checkout, which hides what is installed, the other parts of the package lie beside this folder.
    __path__.append(str(Path(__file__).parents[1]))

from clhist import operators, stats
from clhist.api import bincount, reduce_by_index
from clhist.device import default_queue, device_profile
from clhist.errors import BuildError, NoDeviceError, ProfileError, UnsupportedError
from clhist.histogram import digitize, histogram, histogram2d, histogram_bin_edges, histogramdd
from clhist.inspector import RaceFactor
from clhist.kernel import HistogramKernel
from clhist.model import plan
from clhist.model_draft import Plan
from clhist.operator import Operator
from clhist.profile import Profile, named_profile
from clhist.scratch import free_scratch
from clhist.stream import Accumulator

__version__ = "0.1.0"

__all__ = [
    "Accumulator",
    "BuildError",
    "HistogramKernel",
    "NoDeviceError",
    "Operator",
    "Plan",
    "Profile",
    "ProfileError",
    "RaceFactor",
    "UnsupportedError",
    "bincount",
    "default_queue",
    "device_profile",
    "digitize",
    "free_scratch",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
    "named_profile",
    "operators",
    "plan",
    "reduce_by_index",
    "stats",
]
