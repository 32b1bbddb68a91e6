"""Statistics by the bins of axes (`clhist.axes`): `sweep` combines values by the bins of one axis or several."""

from clhist.binned.extent import extent
from clhist.binned.sweep import Binned, BinnedKind, Sweep, sweep, sweep_engine

__all__ = ["Binned", "BinnedKind", "Sweep", "extent", "sweep", "sweep_engine"]
