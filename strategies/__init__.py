"""The published strategies for histograms, each as its authors describe it, to be compared on any device.

`STRATEGIES` is the registry. A strategy turns a `StrategyProblem` into a `StrategyRecipe` (kernels of
``kernels_cl/strategies``) or into `Chosen` (our own kernels with forced choices), or raises `NotApplicable` with the
reason. `Runner` runs both, compares the result with NumPy's and times it. `clhist strategies` is the command.
"""

from clhist.strategies.datasets import DataSet
from clhist.strategies.problem import (
    Chosen,
    DeviceLimits,
    Local,
    NotApplicable,
    StrategyLaunch,
    StrategyProblem,
    StrategyRecipe,
)
from clhist.strategies.registry import STRATEGIES, Strategy, select
from clhist.strategies.run import Runner, StrategyOutcome

__all__ = [
    "STRATEGIES",
    "Chosen",
    "DataSet",
    "DeviceLimits",
    "Local",
    "NotApplicable",
    "Runner",
    "Strategy",
    "StrategyLaunch",
    "StrategyOutcome",
    "StrategyProblem",
    "StrategyRecipe",
    "select",
]
