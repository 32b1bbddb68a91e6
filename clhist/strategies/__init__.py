"""The published strategies for histograms, each as its authors describe it, to be compared on any device.

`STRATEGIES` is the registry. A strategy turns a `Problem` into a `Recipe` (kernels of ``kernels_cl/strategies``) or
into `Chosen` (our own kernels with forced choices), or raises `NotApplicable` with the reason. `Runner` runs both,
compares the result with NumPy's and times it. `clhist strategies` is the command.
"""

from clhist.strategies.datasets import DataSet
from clhist.strategies.problem import Chosen, Launch, Limits, Local, NotApplicable, Problem, Recipe
from clhist.strategies.registry import STRATEGIES, Strategy, select
from clhist.strategies.run import Outcome, Runner

__all__ = [
    "STRATEGIES",
    "Chosen",
    "DataSet",
    "Launch",
    "Limits",
    "Local",
    "NotApplicable",
    "Outcome",
    "Problem",
    "Recipe",
    "Runner",
    "Strategy",
    "select",
]
