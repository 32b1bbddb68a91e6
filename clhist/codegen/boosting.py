"""The kernels that grow trees of gradient boosting: what they are made from, and their parameters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist.planning.feature import INT, LONG, UINT, ULONG, Parameter

ROWS = np.dtype([(name, np.uint64) for name in ("begin", "end", "first", "groups", "slot", "odd")])
"""Rows of a node: where they are, which work-groups share them, where their sums go, and whether its depth is odd."""

SPLIT = np.dtype([*((name, np.uint64) for name in ("left", "feature", "bin", "missing")), ("set", np.uint32, (8,))])
"""How a node is split: how many rows go to the left, and which; a `bin` of 256 is for those in the set."""

CHILD = np.dtype(
    [("slot", np.uint64), *((name, np.int64) for name in ("rows", "gradients", "hessians")), ("value", np.float64)]
)
"""A node whose best split is asked for."""

FOUND = np.dtype([("gain", np.float64), *((name, np.int64) for name in ("bin", "rows", "gradients", "hessians"))])
"""The best split of one feature, and what is left of it; 256 is added to `bin` where missing values are."""

DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True)
class BoostingSpec:
    """What the kernels are made from.

    Attributes
    ----------
    features : int
        That one work-group adds up, a multiple of 4.
    words : int
        Of 4 bins, of each row.
    bins : int
        Of a feature.
    lanes : int
        Work-items of a work-group; one, on CPUs, has cells of its own.
    hessians : bool
        Whether rows have hessians, or 1 each.
    doubles : bool
        Whether the device has float64, and so can find the best splits.
    """

    features: int
    words: int
    bins: int
    lanes: int
    hessians: bool
    doubles: bool

    @property
    def seekers(self) -> int:
        """Work-items that look for the best split of a feature."""
        return min(self.lanes, 32)

    @property
    def sums(self) -> int:
        """Of a bin: its rows, and what they add up to."""
        return 3 if self.hessians else 2


def features_at_once(words: int, bins: int, lanes: int, hessians: bool, local_memory: int) -> int:
    """Return how many features fit local memory, a multiple of 4, of as many each time as of all words are."""
    cell = 8 * (1 + hessians) if lanes == 1 else 4 * (3 + 2 * hessians)
    most = max(1, local_memory // (4 * bins * cell))
    return 4 * -(-words // -(-words // most))


def _buffers(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter("__global", name, None) for name in names)


def _numbers(dtype: np.dtype, *names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter("const", name, dtype) for name in names)


def boosting_parameters(spec: BoostingSpec) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of each kernel of ``boosting.mako``, in order."""
    values, rows = ("gradients", "hessians")[: spec.sums - 1], _numbers(ULONG, "rows")
    nodes = (*_buffers("nodes"), *_numbers(UINT, "number"))
    found = {
        "by_row": (
            *(*_buffers("binned"), *_numbers(ULONG, "offset"), *_numbers(LONG, "row_step", "feature_step")),
            *(*_buffers("by_row"), *rows, *_numbers(UINT, "features")),
        ),
        "largest": (*_buffers(*values), *rows, *_buffers("largest")),
        "in_units": (*_buffers(*values), *rows, *_buffers("largest"), *_numbers(INT, "bits"), *_buffers("values")),
        "sweep": (
            *(*_buffers("by_row", "values", "rows_even", "rows_odd"), *nodes),
            *(*_buffers("sums"), *_numbers(UINT, "features")),
        ),
        "split": (
            *(*_buffers("by_feature"), *rows, *nodes),
            *(*_buffers("splits", "rows_even", "rows_odd", "filled"), *_numbers(UINT, "missing_bin")),
        ),
        "number": (*_buffers("rows"), *_numbers(ULONG, "size")),
        "leaves": (*nodes, *_buffers("rows_even", "rows_odd"), *_numbers(UINT, "width"), *_buffers("leaf_of")),
        "clear": (*_buffers("slots", "sums"), *_numbers(ULONG, "size")),
        "subtract": (*_buffers("slots", "sums"), *_numbers(ULONG, "size")),
    }
    if spec.doubles:
        found["find"] = (
            *_buffers("sums", "children", "bins_of", "has_missing", "largest"),
            *(*_numbers(INT, "bits"), *_numbers(UINT, "features")),
            *(
                *_numbers(LONG, "fewest_rows"),
                *_numbers(DOUBLE, "least_hessian", "least_gain", "l2"),
                *_buffers("found"),
            ),
        )
        found["in_floats"] = (
            *(*_buffers("sums"), *_numbers(ULONG, "nodes", "plane"), *_buffers("largest"), *_numbers(INT, "bits")),
            *_buffers("counts", *values),
        )
        found["squared_error"] = found["log_loss"] = (
            *(*_buffers("targets", "predictions", "weights"), *rows, *_buffers(*values, "number", "unsure")),
            *_numbers(UINT, "most"),
        )
        found["predict"] = (*nodes, *_buffers("rows_even", "rows_odd", "values", "predictions"))
    return found
