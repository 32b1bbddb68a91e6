"""`Hist`: hist's class, filled on the device."""

from __future__ import annotations

from typing import Any

import hist
import pyopencl as cl

from clhist.hist.filling import fill, positions


class Hist(hist.Hist, family=hist):
    """A `hist.Hist` whose `fill` runs on an OpenCL device; all else, its shortcuts included, is hist's own.

    Examples
    --------
    >>> h = clhist.hist.Hist.new.Reg(4, 0, 200, name="pt").Int64().fill(pt=np.array([10.0, 60.0, 70.0]))
    >>> h.values().tolist()
    [1, 2, 0, 0]
    """

    __slots__ = ()

    def fill(  # type: ignore[override]
        self,
        *args: Any,
        weight: Any = None,
        sample: Any = None,
        threads: int | None = None,
        queue: cl.CommandQueue | None = None,
        reproducible: bool = False,
        **named: Any,
    ) -> Any:
        """Fill on an OpenCL device; the parameters, the results and the errors are those of `clhist.hist.fill`."""
        # Let hist raise its own error.
        if positions(self, args, named) is None:
            return super().fill(*args, weight=weight, sample=sample, threads=threads, **named)
        return fill(
            self, *args, weight=weight, sample=sample, threads=threads, queue=queue, reproducible=reproducible, **named
        )
