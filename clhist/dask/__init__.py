"""Histograms of Dask collections: partial results in tasks, merged in a tree, on whatever device each worker has.

One task makes one `clhist.Partial` of one block, and workers hold nothing between tasks: a task that is computed again,
because a worker was killed, changes nothing in the result.

Dask must be installed: ``pip install clhist[dask]``.
"""

from clhist.dask.devices import take_device, use_devices
from clhist.dask.frame_groups import FrameGroupBy
from clhist.dask.functions import bincount, fill, histogram, histogram2d, histogramdd
from clhist.dask.groups import GroupBy, group_by
from clhist.dask.reductions import reduce, reduce_by_index

__all__ = [
    "FrameGroupBy",
    "GroupBy",
    "bincount",
    "fill",
    "group_by",
    "histogram",
    "histogram2d",
    "histogramdd",
    "reduce",
    "reduce_by_index",
    "take_device",
    "use_devices",
]
