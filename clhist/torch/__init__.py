"""Histograms and reductions by index of PyTorch's tensors, with gradients, under `torch.compile` as well.

Names and parameters are those that users of tensors know: `scatter` and `segment` are PyTorch Geometric's, `bincount`,
`histogram` and `histogramdd` PyTorch's. Each is an operator of `torch.library`: it has a kernel for the shapes alone,
so that ``torch.compile(fullgraph=True)`` and ``torch.export`` take it, and a gradient wherever one is defined.

Tensors of the CPU are taken in place, as NumPy's arrays are; those of CUDA go to CUDA's launches, on the current
stream. Results are on the device of the arguments. PyTorch must be installed: ``pip install clhist[torch]``.
"""

from clhist.torch.edges import gather_scatter
from clhist.torch.exponentials import logsumexp, softmax
from clhist.torch.functions import bincount, histogram, histogramdd, scatter, segment
from clhist.torch.moments import std, var
from clhist.torch.sorting import CountingSort, counting_sort

__all__ = [
    "CountingSort",
    "bincount",
    "counting_sort",
    "gather_scatter",
    "histogram",
    "histogramdd",
    "logsumexp",
    "scatter",
    "segment",
    "softmax",
    "std",
    "var",
]
