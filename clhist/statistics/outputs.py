"""The histograms that statistics are made of: operators, and what a map emits to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from clhist import operators
from clhist.operators import equivalents as lifts
from clhist.operators.c_types import c_name, literal, struct_of
from clhist.operators.operator import Equivalent, Operator
from clhist.statistics.variance import central_moments_text, kurtosis_text, skewness_text, variance_text

SPREADS = ("var", "std", "sem", "skew", "kurt")
"""The statistics that take a second sweep, around the means."""
_OF_SHAPE = ("skew", "kurt")
_VALUE = "value"  # a field that carries the value of an element, and is no result


@dataclass(frozen=True)
class Column:
    """The statistics of one array of values.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the values.
    statistics : tuple of str
        Of `clhist.statistics.table.TABLE`, without those that are selected.
    skipna : bool
        Whether a NaN is no value at all.
    ddof : int
        Subtracted from the number of values in the divisor of the variance.
    result : numpy.dtype
        Of means, variances, and sums and products of floats; a float, or a complex number.
    total : numpy.dtype
        Of sums and products.
    dates : numpy.dtype or None
        Of the dates or durations that the values, int64, stand for; the least is NaT.
    """

    dtype: np.dtype
    statistics: tuple[str, ...]
    skipna: bool
    ddof: int
    result: np.dtype
    total: np.dtype
    dates: np.dtype | None = None

    @property
    def spreads(self) -> tuple[str, ...]:
        """Which of the statistics need a second sweep."""
        return tuple(name for name in SPREADS if name in self.statistics)

    @property
    def is_exact(self) -> bool:
        """Whether sums are those of integers."""
        return self.dtype.kind in "biu" and self.total.kind != "f"

    @property
    def first(self) -> Column:
        """The statistics that the first sweep computes."""
        names = [name for name in self.statistics if name not in SPREADS]
        names += ["mean"] if self.spreads and "mean" not in names else []
        return replace(self, statistics=tuple(names))

    def without(self, names: Sequence[str]) -> Column:
        """Return it without some of the statistics."""
        return replace(self, statistics=tuple(name for name in self.statistics if name not in names))

    @property
    def condition(self) -> str:
        """C that says whether the value `v` counts; empty if all do."""
        if self.dates is not None:
            return f"if (v != {literal(np.iinfo(self.dtype).min, self.dtype)}) "
        if not self.skipna or self.dtype.kind not in "fc":
            return ""
        return "if (v == v) " if self.dtype.kind == "f" else "if (v.x == v.x && v.y == v.y) "


@dataclass(frozen=True)
class Numbers:
    """The types in which a device computes statistics of so many values.

    Attributes
    ----------
    real : numpy.dtype
        In which floats are summed.
    index : numpy.dtype
        Of positions.
    count : numpy.dtype
        Of numbers of values.
    """

    real: np.dtype
    index: np.dtype
    count: np.dtype

    @classmethod
    def of(cls, size: int, has_fp64: bool) -> Numbers:
        """Return them for `size` values."""
        # Positions are signed, since -1 stands for none.
        wide = size >= 2**31
        real = np.float64 if has_fp64 else np.float32
        return cls(np.dtype(real), np.dtype(np.int64 if wide else np.int32), np.dtype(np.uint64 if wide else np.uint32))


class Output(NamedTuple):
    """One histogram of a sweep.

    Attributes
    ----------
    operator : Operator
        How values are combined.
    value : str
        C of what is emitted for the value `v` at position `i` of the bin `g`; ``value_t`` is the operator's.
    statistics : tuple of str
        What its results are: one for each field of the operator's type (empty for one that nobody wants), or only one.
    """

    operator: Operator
    value: str
    statistics: tuple[str, ...]


def spread_of(column: Column, numbers: Numbers) -> Output:
    """Return the histogram of the second sweep, in whose map `m` is the mean of the group."""
    real, names = numbers.real, column.spreads
    # As of moments: a narrower result must not round each deviation.
    is_narrower = not np.can_cast(column.dtype, column.result)
    carrier, carried = (_VALUE, real) if is_narrower else (names[0], column.result)
    kind, nan, first = c_name(real), _nan(real), f"v.{carrier}"
    # A deviation of float32 may exceed its largest number, half of the deviation does not.
    is_halved = carried == column.dtype == np.float32 != real
    half, twice = ("0.5f * ", "2 * ") if is_halved else ("", "")
    parts = {"number": operators.add(numbers.count), "shift": operators.add(real), "squares": operators.add(real)}
    # The map emits a deviation in one field of the value; the other fields carry nothing.
    first = f"({twice}({kind}){first})"
    lifted = ["1", first, f"{first} * {first}"]
    is_of_shape = any(name in _OF_SHAPE for name in names)
    if is_of_shape:
        parts |= {"cubes": operators.add(real), "fourths": operators.add(real)}
        lifted += [f"{first} * {first} * {first}", f"{first} * {first} * {first} * {first}"]
    parameters = ", ".join(f"const {kind} {part}" for part in parts)
    # A program may contain the functions of several columns: names say what they depend on.
    var, shape = (f"clhist_{of}_{real.name}_{column.ddof}" for of in ("variance", "shape"))
    preamble = f"""{kind} {var}({parameters})
{{
    {variance_text(kind, column.ddof, nan)}
}}"""
    called = ", ".join(f"a.{part}" for part in parts)
    results = {
        "var": f"{var}({called})",
        "std": f"sqrt({var}({called}))",
        "sem": f"sqrt({var}({called}) / a.number)",
        "skew": f"{shape}({called}, 0)",
        "kurt": f"{shape}({called}, 1)",
    }
    if is_of_shape:
        preamble += f"""
{kind} {shape}({parameters}, const bool is_kurtosis)
{{
    {central_moments_text(kind)}
    return is_kurtosis ? ({kurtosis_text(nan)}) : ({skewness_text(nan)});
}}"""
    fields = {carrier: carried} | dict.fromkeys(names, column.result)
    operator = Operator(
        struct_of(fields),
        parts,
        name="variance",
        lift=f"(accumulator_t){{{', '.join(lifted)}}}",
        finish=f"(value_t){{{', '.join(results.get(name, '0') for name in fields)}}}",
        preamble=preamble,
    )
    zeros = ", 0" * (len(fields) - 1)
    return Output(
        operator,
        f"((value_t){{{half}(({kind})v - ({kind})m){zeros}}})",
        tuple("" if name == _VALUE else name for name in fields),
    )


def weighted_mean(values: np.dtype, weights: np.dtype, result: np.dtype, real: np.dtype) -> Output:
    """Return the histogram of means of values `v` by their weights `w`; the means are its first field."""
    weight = np.dtype(f"f{result.itemsize // 2}") if result.kind == "c" else result
    total = np.dtype(f"c{2 * real.itemsize}") if result.kind == "c" else real
    kind = c_name(real)
    fields, emitted, means = {_VALUE: result, "weight": weight}, f"{converted('v', values, result)}, w", ""
    # As of moments: values and weights are not rounded to a narrower result.
    if not (np.can_cast(values, result) and np.can_cast(weights, weight)):
        fields, emitted, means = {"mean": result, _VALUE: values, "weight": weights}, "0, v, w", "0, "
    total_of = converted(f"v.{_VALUE}", fields[_VALUE], total)
    mean = converted("(a.sum / a.weight)", total, result)
    operator = operators.product(
        {"sum": operators.add(total), "weight": operators.add(real)},
        struct_of(fields),
        lift=f"(accumulator_t){{{total_of} * ({kind})v.weight, v.weight}}",
        finish=f"(value_t){{{mean}, {means}a.weight}}",
        name="weighted_mean",
    )
    return Output(operator, f"((value_t){{{emitted}}})", ("mean", *[""] * (len(fields) - 1)))


def moments_of(column: Column, names: Sequence[str], numbers: Numbers) -> Output:
    """Return sum, mean and number of values, as far as they are wanted, which share their accumulators."""
    real, integers = numbers.real, column.dtype.kind in "biu"
    counted = "count" in names or "mean" in names
    total = _total_of(column, names, real)
    # One field of the emitted value carries the element; constants fill the others, which no lift reads.
    carrier, carried = _carrier_of(column, names)
    parts, lifted = {}, []
    if counted:
        parts["number"] = operators.add(numbers.count)
        lifted.append("1" if carrier else "v.count")
    if carrier:
        parts["sum"] = operators.add(total)
        lifted.append(converted(f"v.{carrier}", carried, total))
    # A sum of 64-bit integers may wrap, as NumPy's does; its mean must not, so it gets another accumulator.
    mean_of = "sum"
    if "sum" in names and "mean" in names and integers and column.dtype.itemsize == 8 and total.kind != "f":
        parts["exact"], mean_of = operators.add(real), "exact"
        lifted.append(f"({c_name(real)})v.{carrier}")
    results = _results_of_moments(column, mean_of, total, real)
    fields = [*names, _VALUE] if carrier == _VALUE else names
    operator = operators.product(
        parts,
        struct_of({name: results[name][0] for name in fields}),
        lift=f"(accumulator_t){{{', '.join(lifted)}}}",
        finish=f"(value_t){{{', '.join(results[name][1] for name in fields)}}}",
        name="moments",
    )
    other = "0" if column.dtype.kind == "c" else "1"
    texts = {name: "1" if name == "count" else other for name in fields}
    if carrier:
        texts[carrier] = converted("v", column.dtype, carried)
    results_of = tuple("" if name == _VALUE else name for name in fields)
    return Output(operator, f"((value_t){{{', '.join(texts.values())}}})", results_of)


def _carrier_of(column: Column, names: Sequence[str]) -> tuple[str, np.dtype]:
    """Return the field that carries the value of an element, and its dtype; no name if elements are only counted."""
    name = next((name for name in names if name != "count"), "")
    dtype = column.total if name == "sum" else column.result
    # A result that cannot hold the values, such as float32 of float64, must not round each of them.
    return (name, dtype) if not name or np.can_cast(column.dtype, dtype) else (_VALUE, column.dtype)


def _results_of_moments(
    column: Column, mean_of: str, total: np.dtype, real: np.dtype
) -> dict[str, tuple[np.dtype, str]]:
    """Return dtype and C of each result of an accumulator `a`, whose part `mean_of` is divided to be the mean."""
    summed, dtype = f"a.{mean_of}", total
    if column.dtype.kind != "c":
        summed, dtype = f"({c_name(real)}){summed}", real
    return {
        "sum": (column.total, converted("a.sum", total, column.total)),
        "mean": (column.result, converted(f"({summed} / ({c_name(real)})a.number)", dtype, column.result)),
        "count": (np.dtype(np.int64), "a.number"),
        _VALUE: (column.dtype, "0"),
    }


def _total_of(column: Column, names: Sequence[str], real: np.dtype) -> np.dtype:
    """Return in what values are added up."""
    if column.dtype.kind == "c":
        return np.dtype(f"c{2 * real.itemsize}")
    if column.dtype.kind not in "biu" or column.total.kind == "f":
        return real
    # A mean of large integers must not wrap.
    return real if "sum" not in names and column.dtype.itemsize == 8 else column.total


def extreme(name: str, dtype: np.dtype, skipna: bool) -> Operator:
    """Return the minimum or maximum, NaN of a group without values where `dtype` has it."""
    if dtype.kind != "f":
        return operators.minimum(dtype) if name == "min" else operators.maximum(dtype)
    if not skipna:
        return lifts.minimum_or_nan(dtype) if name == "min" else lifts.maximum_or_nan(dtype)
    # As fmin, which PoCL computes slowly.
    # NaN is the identity element: any number replaces it, and groups without values keep it.
    sign, lifted = ("<", lifts.fmin(dtype)) if name == "min" else (">", lifts.fmax(dtype))
    return Operator(dtype, f"b {sign} a || a != a ? b : a", np.nan, f"nan{name}", equivalents=lifted, verified=True)


def positioned(name: str, dtype: np.dtype, index: np.dtype) -> Operator:
    """Return argmin, argmax, first or last, with -1 as the index of none and NaN, or 0, as its value."""
    plain: Operator = getattr(operators, name)(dtype, index)
    result = struct_of({"value": dtype, "index": np.dtype(np.int64)})
    # The index of the identity element loses against every position.
    none = np.iinfo(index).min if name == "last" else np.iinfo(index).max
    function = f"clhist_{name}_{dtype.name}_{index.name}"
    missing = _nan(dtype) if dtype.kind == "f" else "0"
    preamble = f"""value_t {function}(value_t a)
{{
    if (a.index == {literal(none, index)}) {{
        a.index = -1;
        a.value = {missing};
    }}
    return a;
}}"""

    def of(operator: Operator, lift: str, finish: str) -> Operator:
        return Operator(
            result,
            operator.combine,
            operator.neutral,
            name,
            accumulator=operator.accumulator,
            lift=lift,
            finish=f"{function}({finish})",
            preamble=preamble,
            equivalents=[Equivalent(of(o.operator, o.operator.lift, o.operator.finish)) for o in operator.equivalents],
            verified=True,
        )

    # The two types of a plain pair may differ in their index alone.
    return of(plain, "(accumulator_t){v.value, v.index}", "(value_t){a.value, a.index}")


def converted(text: str, dtype: np.dtype, wanted: np.dtype) -> str:
    """Return C of a number of one dtype as another."""
    if wanted.kind != "c":
        return text if dtype == wanted else f"({c_name(wanted)}){text}"
    return text if dtype == wanted else f"convert_{c_name(wanted)}({text})"


def _nan(dtype: np.dtype) -> str:
    return literal(np.nan, dtype)
