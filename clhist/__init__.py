"""Generalized histograms ("reduce by index") on any OpenCL device.

``dest[i] = dest[i] ⊕ v`` over a stream of (bin, value) pairs, for any associative and commutative ⊕.
"""

from pathlib import Path

if not (Path(__file__).parent / "kernels_cl").is_dir():
    # In a checkout, which hides what is installed, the other parts of the package lie beside this folder.
    __path__.append(str(Path(__file__).parents[1]))

from clhist.caches import replace_caches, unwritable_caches

if unwritable := unwritable_caches():
    replace_caches(unwritable)  # before PyOpenCL is imported, which looks at the environment then

from clhist import operators
from clhist.api import bincount, reduce_by_index
from clhist.device import default_queue, device_profile
from clhist.errors import BuildError, DeviceLostError, NoDeviceError, ProfileError, UnsupportedError
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
    "DeviceLostError",
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
    "free_scratch",
    "named_profile",
    "operators",
    "plan",
    "reduce_by_index",
]
