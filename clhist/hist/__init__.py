"""Histograms of boost-histogram and hist, filled by any OpenCL device.

`Histogram` and `Hist` are boost-histogram's and hist's own classes but for `fill`; `fill` fills any histogram of either
library, `fill_many` several in one sweep over their data, and a `Filler` keeps the bins on the device from one fill to
the next.

boost-histogram must be installed (``pip install clhist[hist]``), and hist for `Hist`; importing this package needs
neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clhist.hist.filler import Filler as Filler
    from clhist.hist.filling import fill as fill
    from clhist.hist.many import fill_many as fill_many
    from clhist.hist.named import Hist as Hist
    from clhist.hist.objects import Histogram as Histogram

_MODULES = {"Filler": "filler", "Hist": "named", "Histogram": "objects", "fill": "filling", "fill_many": "many"}

__all__ = ["Filler", "Hist", "Histogram", "fill", "fill_many"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("boost_histogram", "hist"):
            raise
        raise ImportError(f"clhist.hist.{name}: needs {missing}; pip install 'clhist[hist]'") from error
    return getattr(module, name)
