"""`Histogram`: boost-histogram's class, filled on the device."""

from __future__ import annotations

from typing import Any

import boost_histogram as bh
import pyopencl as cl

from clhist.hist.filling import fill


class Histogram(bh.Histogram, family=bh):
    """A `boost_histogram.Histogram` whose `fill` runs on an OpenCL device.

    It is constructed, indexed, projected, added, serialised and plotted as any other, since all that is
    boost-histogram's own.

    Examples
    --------
    >>> import boost_histogram as bh
    >>> h = clhist.hist.Histogram(bh.axis.Regular(4, 0, 1), storage=bh.storage.Weight())
    >>> h.fill(np.array([0.1, 0.2, 0.9]), weight=np.array([2.0, 1.0, 3.0]))[:: bh.rebin(2)].variances()
    array([5., 9.])
    """

    __slots__ = ()

    def fill(
        self,
        *args: Any,
        weight: Any = None,
        sample: Any = None,
        threads: int | None = None,
        queue: cl.CommandQueue | None = None,
        reproducible: bool = False,
    ) -> Any:
        """Fill on an OpenCL device; the parameters, the results and the errors are those of `clhist.hist.fill`."""
        return fill(self, *args, weight=weight, sample=sample, threads=threads, queue=queue, reproducible=reproducible)
