"""Results of binned statistics: named tuples with SciPy's fields, defined here since importing SciPy takes a second."""

from __future__ import annotations

from typing import Any, NamedTuple


class BinnedStatisticResult(NamedTuple):
    """The result of `clhist.stats.binned_statistic`."""

    statistic: Any
    bin_edges: Any
    binnumber: Any


class BinnedStatistic2dResult(NamedTuple):
    """The result of `clhist.stats.binned_statistic_2d`."""

    statistic: Any
    x_edge: Any
    y_edge: Any
    binnumber: Any


class BinnedStatisticddResult(NamedTuple):
    """The result of `clhist.stats.binned_statistic_dd`."""

    statistic: Any
    bin_edges: Any
    binnumber: Any
