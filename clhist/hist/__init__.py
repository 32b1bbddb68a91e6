"""Histograms of boost-histogram and hist, filled by any OpenCL device.

It needs ``pip install clhist[hist]``.
"""
from clhist.hist.fill import fill
__all__=["fill"]
