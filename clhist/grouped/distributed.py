"""Statistics of groups as one `Spec`: partial results of parts of the data, and the statistics of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clhist import operators
from clhist.operators.c_types import c_name
from clhist.partial import Partial
from clhist.spec import Spec
from clhist.statistics.outputs import Column, Numbers, Output
from clhist.statistics.table import outputs_of
from clhist.typing import Named

_NUMBERS = Numbers(np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.uint64))  # of any number of elements


@dataclass(frozen=True)
class GroupSpec:
    """A request of statistics of groups.

    Attributes
    ----------
    keys : numpy.dtype
        Of the keys, integers.
    columns : tuple of (str, Column)
        The values, by name.
    num_groups : int
        How many groups there are.
    """

    keys: np.dtype
    columns: tuple[tuple[str, Column], ...]
    num_groups: int

    def spec(self) -> Spec:
        """Return the Spec of the sweep; its arguments are keys, values and the position of the first element."""
        by_name, emits = {}, []
        arguments = [f"const {c_name(self.keys)} *keys"]
        for c, (_, column) in enumerate(self.columns):
            arguments.append(f"const {c_name(column.dtype)} *x{c}")
            calls = []
            for k, output in enumerate(_outputs(column)):
                # Each of several outputs has a value type of its own name, and positions count from `first`.
                name = f"{c}s{k}"
                by_name[name] = output.operator
                value = output.value.replace("value_t", f"value_{name}_t").replace("v, i}", "v, first + i}")
                calls.append(f"EMIT_{name}(g, {value});")
            emits.append(f"{{ const {c_name(column.dtype)} v = x{c}[i]; {column.condition}{{ {' '.join(calls)} }} }}")
        arguments.append("const long first")
        code = f"const {c_name(self.keys)} g = keys[i]; {' '.join(emits)}"
        return Spec(by_name, self.num_groups, arguments=", ".join(arguments), map=code, emits=1, first_index="first")

    def results(self, whole: Partial[Named]) -> dict[str, dict[str, np.ndarray]]:
        """Return the statistics of each column by their names."""
        histograms: Mapping[str, Any] = whole.result()
        named = {}
        for c, (name, column) in enumerate(self.columns):
            results: dict[str, np.ndarray] = {}
            for k, output in enumerate(_outputs(column)):
                array = histograms[f"{c}s{k}"]
                fields = [array[field] for field in array.dtype.names or ()] or [array]
                results |= {
                    statistic: part for statistic, part in zip(output.statistics, fields, strict=True) if statistic
                }
            # Standard deviations and errors follow from the merged variance; roots of partial results cannot be merged.
            if "var" in results:
                variance = results["var"]
                spreads = {"var": variance, "std": np.sqrt(variance)}
                if "sem" in column.statistics:
                    with np.errstate(all="ignore"):
                        spreads["sem"] = np.sqrt(variance / results["count"])
                results |= {statistic: array.astype(column.result) for statistic, array in spreads.items()}
            named[name] = {statistic: np.ascontiguousarray(results[statistic]) for statistic in column.statistics}
        return named


def _outputs(column: Column) -> tuple[Output, ...]:
    """Return the histograms of one sweep; variances use an operator whose partial results can be merged."""
    first = outputs_of(column.without(column.spreads), _NUMBERS)
    if not column.spreads:
        return first
    # The standard error divides by the count, which must be merged as well.
    if "sem" in column.spreads and "count" not in column.statistics:
        counted = replace(column, statistics=(*column.without(column.spreads).statistics, "count"))
        first = outputs_of(counted, _NUMBERS)
    return (*first, Output(operators.variance(np.float64, column.ddof), "((double)v)", ("var",)))
