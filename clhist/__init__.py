"""Generalized histograms ("reduce by index") on any OpenCL device.

``dest[i] = dest[i] ⊕ v`` over a stream of (bin, value) pairs, for any associative and commutative ⊕.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if not (Path(__file__).parent / "kernels_cl").is_dir():
    # In a checkout, which hides what is installed, the other parts of the package lie beside this folder.
    __path__.append(str(Path(__file__).parents[1]))

from clhist._core.opencl.caches import replace_caches, survive_broken_caches, unwritable_caches
from clhist._core.opencl.icd import register_installed_runtimes
from clhist._core.opencl.intel import compile_for_avx2
from clhist._version import __version__

survive_broken_caches()
if unwritable := unwritable_caches():
    # Before PyOpenCL is imported, which reads the environment then.
    replace_caches(unwritable)
# Before the first call of OpenCL, whose loader looks for runtimes once in a process, and whose runtimes then read the
# environment.
register_installed_runtimes()
compile_for_avx2()

if TYPE_CHECKING:
    from clhist import errors as errors
    from clhist import ndimage, operators, stats
    from clhist import typing as typing
    from clhist._core.devices.profile import Profile, named_profile
    from clhist._core.model.plan import Plan
    from clhist._core.model.problem import Choices, Histogram, Problem
    from clhist._core.model.sweeps import plan, plan_sweeps
    from clhist._core.opencl.device import default_queue, device_profile
    from clhist._core.opencl.memory import free_scratch
    from clhist._core.runtime.bound import Bound
    from clhist._core.runtime.clear import clear_caches
    from clhist._core.runtime.operator_check import check_operator
    from clhist.accumulator import Accumulator
    from clhist.bincount import bincount
    from clhist.digitize import digitize
    from clhist.errors import BuildError, DeviceLostError, NoDeviceError, ProfileError, UnsupportedError
    from clhist.groupby import GroupBy, group_by
    from clhist.grouped.frame_groups import FrameGroupBy
    from clhist.histogram import histogram, histogram2d, histogram_bin_edges, histogramdd
    from clhist.kernel import HistogramKernel
    from clhist.multi import MultiAccumulator
    from clhist.operators.operator import Operator
    from clhist.partial import Partial, merge
    from clhist.race_factor import RaceFactor
    from clhist.reduce import reduce_by_index
    from clhist.spec import Spec
    from clhist.statistics.table import quantile
    from clhist.tables import crosstab, cut, date_bin, date_part, qcut, value_counts
    from clhist.unique import factorize, unique

_SUBMODULES = ("dask", "errors", "flox", "hist", "jax", "ndimage", "operators", "stats", "torch", "typing")
# Public names are imported when first used: all of them take 0.2 s, what one function needs half of it.
_HOMES = {
    "Accumulator": "accumulator",
    "Bound": "_core.runtime.bound",
    "BuildError": "errors",
    "Choices": "_core.model.problem",
    "DeviceLostError": "errors",
    "FrameGroupBy": "grouped.frame_groups",
    "GroupBy": "groupby",
    "Histogram": "_core.model.problem",
    "HistogramKernel": "kernel",
    "MultiAccumulator": "multi",
    "NoDeviceError": "errors",
    "Operator": "operators.operator",
    "Partial": "partial",
    "Plan": "_core.model.plan",
    "Problem": "_core.model.problem",
    "Profile": "_core.devices.profile",
    "ProfileError": "errors",
    "RaceFactor": "race_factor",
    "Spec": "spec",
    "UnsupportedError": "errors",
    "bincount": "bincount",
    "check_operator": "_core.runtime.operator_check",
    "clear_caches": "_core.runtime.clear",
    "crosstab": "tables",
    "cut": "tables",
    "date_bin": "tables",
    "date_part": "tables",
    "default_queue": "_core.opencl.device",
    "device_profile": "_core.opencl.device",
    "digitize": "digitize",
    "factorize": "unique",
    "free_scratch": "_core.opencl.memory",
    "group_by": "groupby",
    "histogram": "histogram",
    "histogram2d": "histogram",
    "histogram_bin_edges": "histogram",
    "histogramdd": "histogram",
    "merge": "partial",
    "named_profile": "_core.devices.profile",
    "plan": "_core.model.sweeps",
    "plan_sweeps": "_core.model.sweeps",
    "qcut": "tables",
    "quantile": "statistics.table",
    "reduce_by_index": "reduce",
    "unique": "unique",
    "value_counts": "tables",
}
# What other libraries call the same.
_ELSEWHERE = {
    **dict.fromkeys(
        (
            *("add_at", "index_add", "index_add_", "index_reduce", "scatter", "scatter_add", "scatter_add_"),
            *("scatter_max", "scatter_mean", "scatter_min", "scatter_reduce", "scatter_reduce_", "segment_max"),
            *("segment_mean", "segment_min", "segment_prod", "segment_sum", "unsorted_segment_sum"),
        ),
        "reduce_by_index(num_bins, 'sum', indices, values), or another name of an operator",
    ),
    "aggregate": "group_by(keys).agg(x=(x, 'mean'))",
    "groupby_reduce": "group_by(keys).mean(x)",
    "hist2d": "histogram2d(x, y)",
    "searchsorted": "digitize(x, bins)",
    **dict.fromkeys(
        ("binned_statistic", "binned_statistic_2d", "binned_statistic_dd"), "stats.binned_statistic and its like"
    ),
}


class _MissingModule(ModuleType):
    """A module of which an optional dependency is not installed, for `help` and those who look at all there is."""

    def __init__(self, name: str, error: ModuleNotFoundError) -> None:
        text = f'clhist.{name} needs {error.name}, which is not installed: pip install "clhist[{name}]"'
        super().__init__(f"clhist.{name}", text)
        self._error = error

    def __dir__(self) -> list[str]:
        return ["__doc__", "__name__"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python and its tools look for, and expect an AttributeError of
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise ImportError(self.__doc__, name=self.__name__) from self._error


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        try:
            return import_module(f"clhist.{name}")
        except ModuleNotFoundError as error:
            # A missing module of clhist itself is a broken installation, not an optional dependency.
            if (error.name or "clhist").partition(".")[0] == "clhist":
                raise
            return _MissingModule(name, error)
    if name not in _HOMES:
        hint = f"; write clhist.{_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"module 'clhist' has no attribute {name!r}{hint}")
    value = getattr(import_module(f"clhist.{_HOMES[name]}"), name)
    front = import_module("clhist.front")
    # Kept as a global, so that Python does not call this function for the name again.
    value = globals()[name] = front.entry(value) if name in front.ENTRIES else value
    return value


def __dir__() -> list[str]:
    # What users may want to see; not what this module imports, nor sub-modules of machinery.
    special = (name for name in globals() if name.startswith("__") and name.endswith("__"))
    return sorted({*special, *__all__, *_SUBMODULES})


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Import sets each submodule as an attribute of its package: `clhist.bincount` stays the function.
        if name not in _HOMES or value is not sys.modules.get(f"{__name__}.{name}"):
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        # cloudpickle, and so Dask, knows what is a module by its exact type.
        return import_module, (__name__,)


sys.modules[__name__].__class__ = _Package

__all__ = [
    "Accumulator",
    "Bound",
    "BuildError",
    "Choices",
    "DeviceLostError",
    "FrameGroupBy",
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
    "check_operator",
    "clear_caches",
    "crosstab",
    "cut",
    "date_bin",
    "date_part",
    "default_queue",
    "device_profile",
    "digitize",
    "factorize",
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
    "qcut",
    "quantile",
    "reduce_by_index",
    "stats",
    "unique",
    "value_counts",
]
