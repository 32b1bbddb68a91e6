"""Generalized histograms ("reduce by index") on any OpenCL device.

``dest[i] = dest[i] ⊕ v`` over a stream of (bin, value) pairs, for any associative and commutative ⊕.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

if not (Path(__file__).parent / "kernels_cl").is_dir():
    # In a checkout, which hides what is installed, the other parts of the package lie beside this folder.
    __path__.append(str(Path(__file__).parents[1]))

from clhist.opencl.caches import replace_caches, unwritable_caches

if unwritable := unwritable_caches():
    replace_caches(unwritable)  # before PyOpenCL is imported, which looks at the environment then

from clhist import ndimage, operators, stats
from clhist._version import __version__
from clhist.accumulator import Accumulator
from clhist.bincount import bincount
from clhist.digitize import digitize
from clhist.engine.bound import Bound
from clhist.errors import BuildError, DeviceLostError, NoDeviceError, ProfileError, UnsupportedError
from clhist.groupby import GroupBy, group_by
from clhist.hardware.profile import Profile, named_profile
from clhist.histogram import histogram, histogram2d, histogram_bin_edges, histogramdd
from clhist.kernel import HistogramKernel
from clhist.multi import MultiAccumulator
from clhist.opencl.device import default_queue, device_profile
from clhist.opencl.memory import free_scratch
from clhist.operators.operator import Operator
from clhist.partial import Partial, merge
from clhist.planning.plan import Plan
from clhist.planning.problem import Choices, Histogram, Problem
from clhist.planning.sweeps import plan, plan_sweeps
from clhist.race_factor import RaceFactor
from clhist.reduce import reduce_by_index
from clhist.spec import Spec

_EXTRAS = ("dask", "flox", "hist")  # which need other libraries, and are imported when used


def __getattr__(name: str) -> ModuleType:
    if name in _EXTRAS:
        return import_module(f"clhist.{name}")
    raise AttributeError(f"module 'clhist' has no attribute {name!r}")


__all__ = [
    "Accumulator",
    "Bound",
    "BuildError",
    "Choices",
    "DeviceLostError",
    "GroupBy",
    "Histogram",
    "HistogramKernel",
    "MultiAccumulator",
    "NoDeviceError",
    "Operator",
    "Partial",
    "Plan",
    "Problem",
    "Profile",
    "ProfileError",
    "RaceFactor",
    "Spec",
    "UnsupportedError",
    "__version__",
    "bincount",
    "default_queue",
    "device_profile",
    "digitize",
    "free_scratch",
    "group_by",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
    "merge",
    "named_profile",
    "ndimage",
    "operators",
    "plan",
    "plan_sweeps",
    "reduce_by_index",
    "stats",
]
