"""The table of statistics of bins and groups: for each name the histograms, the kinds of values and the result.

`clhist.group_by`, `clhist.stats`, `clhist.ndimage`, `clhist.dask` and `clhist.flox` read it. All statistics of all
columns come from one sweep, but for the variance, which takes a second one around the mean (sums of squares alone
cancel where the mean is large, and combining means and deviations needs a lock on GPUs), and for order statistics,
which are selected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from clhist import operators
from clhist.operators.c_types import integer, literal, struct_of, supported_dtype
from clhist.operators.halves import half_name, number_of
from clhist.operators.names import FUNCTIONS, name_hint
from clhist.operators.operator import Operator
from clhist.statistics import host
from clhist.statistics.outputs import Column, Numbers, Output, converted, extreme, moments_of, positioned
from clhist.statistics.quantiles import METHODS, Method, checked_method, probability
from clhist.statistics.variance import variance

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from clhist.typing import QuantileName

Array = np.ndarray
Parts = Mapping[str, Array]


@dataclass(frozen=True, eq=False, repr=False)
class Statistic:
    """The definition of a statistic.

    Attributes
    ----------
    dtype : callable
        The dtype of the result, of a `Column`.
    output : callable or None
        The histogram of a `Column` and `Numbers`; None if the statistic shares another histogram (moments, variances)
        or needs none (order statistics).
    kinds : str
        Kinds of the dtypes of values, "m" and "M" for dates and durations.
    is_moment, is_apart : bool
        Whether it shares the histogram of the moments; whether no sweep computes it: order statistics are selected,
        and others depend on the distinct values of each group.
    merges : bool
        Whether it can be computed from partial results of parts of the data.
    rounds : bool
        Whether it depends on the order of the elements, unless sums are reproducible.
    is_position : bool
        Whether it depends on the positions of elements.
    parts : tuple of str
        Of `clhist.stats`: the outputs of the sweep, of `PARTS`.
    finish : callable or None
        Of `clhist.stats`: what is made of these on the host; None where `clhist.stats` does not have it.
    text : str
        Of `clhist.stats`: C of the same for bin `i`, of arrays named after the parts; empty for the only part itself.
    of_none : float
        Of `clhist.stats`: the result of a bin without values.
    takes : tuple of str
        Arguments of its own. `clhist.GroupBy.agg` leaves such a statistic to its method.
    host : callable or None
        Computes it of a `Grouped` on the host, for few elements; None for "size" and "nunique".
    """

    dtype: Callable[[Column], np.dtype]
    output: Callable[[Column, Numbers], Output] | None = None
    kinds: str = "biuf"
    is_moment: bool = False
    is_apart: bool = False
    merges: bool = True
    rounds: bool = False
    is_position: bool = False
    parts: tuple[str, ...] = ()
    finish: Callable[[Parts], Array] | None = None
    text: str = ""
    of_none: float = np.nan
    takes: tuple[str, ...] = ()
    host: Callable[..., Array] | None = None


def _without_arguments(names: Sequence[str]) -> list[str]:
    """Return the names that `clhist.GroupBy.agg` accepts, with examples of places and quantiles."""
    quantiles = ["q90"] if "quantile" in names else []
    return [name for name in names if not TABLE[name].takes] + ["nth1", *quantiles]


def column_of(
    name: str,
    values_dtype: np.dtype,
    statistics: Sequence[str],
    real: np.dtype,
    skipna: bool,
    ddof: int,
    dtype: DTypeLike | None,
    dates: np.dtype | None = None,
) -> Column:
    """Return the checked request of statistics of one column; see `clhist.GroupBy.agg`.

    Errors call the column `name`. `dates` is the dtype of dates or durations whose integers are the values.

    Raises
    ------
    TypeError, ValueError
        If there is no such statistic, or `dtype` is none of its results.
    """
    # As keys of a cache: a dtype may be requested by a list, and an integer be an array.
    wanted = None if dtype is None else supported_dtype(dtype)
    number = ddof if type(ddof) is int else integer("ddof", ddof, 0)
    return _column_of(name, values_dtype, tuple(statistics), real, bool(skipna), number, wanted, dates)


@lru_cache(maxsize=1024)
def _column_of(
    name: str,
    values_dtype: np.dtype,
    statistics: tuple[str, ...],
    real: np.dtype,
    skipna: bool,
    ddof: int,
    wanted: np.dtype | None,
    dates: np.dtype | None,
) -> Column:
    values_dtype = number_of(values_dtype.newbyteorder("="))
    kind = values_dtype.kind
    _check_supported(name, statistics, values_dtype if dates is None else dates)
    if dates is not None and not skipna:
        raise TypeError(f"skipna: expected True, since {name} has dates, of which NaT cannot be propagated; got False")
    # Floats keep their dtype; sums of integers and booleans take 64 bits, as in NumPy.
    result = values_dtype if kind in "fc" else real
    total = result if kind in "fc" else np.dtype(np.uint64 if kind == "u" else np.int64)
    if wanted is not None:
        if wanted.kind != ("c" if kind == "c" else "f") or half_name(wanted):
            raise TypeError(f"dtype: expected a {'complex number' if kind == 'c' else 'float'}, got {wanted}")
        result = total = wanted
    counted = ["count"] if dates is not None else []  # without values a group is NaT
    swept = tuple(statistic for statistic in dict.fromkeys([*statistics, *counted]) if not TABLE[statistic].is_apart)
    return Column(values_dtype, swept, skipna, integer("ddof", ddof, 0), result, total, dates)


def _check_supported(name: str, statistics: Sequence[str], dtype: np.dtype) -> None:
    """Raise ValueError if one of the statistics is none, or none of values of `dtype`."""
    if all(statistic in TABLE and dtype.kind in TABLE[statistic].kinds for statistic in statistics):
        return
    supported = [statistic for statistic in TABLE if dtype.kind in TABLE[statistic].kinds]
    wrong = next(statistic for statistic in statistics if statistic not in supported)
    of = f" of {dtype}" if dtype.kind in "cmM" else ""
    expected = f"{name}: expected statistics{of} among {', '.join(_without_arguments(supported))}"
    raise ValueError(f"{expected}; got {wrong!r}{name_hint(wrong, supported)}")


def named_statistics(statistics: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of statistics, which are listed one by one or as one sequence, by name or by function."""
    entries = statistics[0] if len(statistics) == 1 and isinstance(statistics[0], tuple | list) else statistics
    return tuple(dict.fromkeys(FUNCTIONS.get(one, one) if callable(one) else one for one in entries))


def split_statistics(name: str, request: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the statistics of a column, and of those that `column_of` takes.

    The others are quantiles, places and statistics of values of any type.

    Raises
    ------
    TypeError
        If `request` is not a tuple of an array and its statistics, or one of these has arguments of its own.
    """
    if not isinstance(request, tuple | list) or len(request) < 2 or isinstance(request[0], str):
        raise TypeError(f"{name}: expected a tuple of an array and its statistics, got {request!r:.60}")
    _, *entries = request
    return _split(name, *(entries[0] if len(entries) == 1 and isinstance(entries[0], list) else entries))


@lru_cache(maxsize=1024, typed=True)
def _split(name: str, *statistics: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = named_statistics(statistics)
    rest = tuple(one for one in names if one not in OF_ANY and quantile_of(one) is None and place_of(one) is None)
    for statistic in rest:
        # A function of the caller raises here already: the cache keeps none of them alive.
        if callable(statistic):
            _check_supported(name, (statistic,), np.dtype(np.float64))
        # Methods compute these; `agg` has no arguments to pass.
        if statistic in TABLE and TABLE[statistic].takes:
            raise TypeError(
                f"{name}: expected statistics without arguments, got {statistic!r}; write 'q90' for "
                f"that of 0.9, or groups.{statistic}({name}, q)"
            )
    return names, rest


def quantile(q: float, method: Method = "linear") -> QuantileName:
    """Return the name of a quantile, as a statistic of `GroupBy.agg` and `FrameGroupBy.agg`.

    Parameters
    ----------
    q : float
        Probability, from 0 (the least value) to 1 (the largest).
    method : str
        What a quantile between two values is, as in ``numpy.quantile``: "linear", "lower", "higher", "nearest" or
        "midpoint".

    Returns
    -------
    str
        "q90" of 0.9, "q90_lower" of 0.9 and "lower".

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> clhist.group_by(np.array([0, 0, 0])).agg(x=(x, clhist.quantile(0.75, "higher")))["x"]
    {'q75_higher': array([4.])}
    """
    from decimal import Decimal  # which most programs do without

    # Decimal digits, since 0.29 * 100 is 28.999999999999996 in binary; adding 0.0 turns -0.0 into 0.0.
    percent = Decimal(repr(probability(q) + 0.0)).scaleb(2)
    suffix = "" if checked_method(method) == "linear" else f"_{method}"
    return cast("QuantileName", f"q{percent.normalize():f}{suffix}")


def quantile_of(name: object) -> tuple[float, Method] | None:
    """Return the probability and method of a quantile by its name, such as 0.9 for "q90"; None for another name."""
    if not isinstance(name, str) or not name.startswith("q"):
        return None
    from decimal import Decimal

    # A name that does not match gets 2, which is no probability.
    parts = re.fullmatch(rf"q(\d{{1,3}}(?:\.\d+)?)(?:_({'|'.join(METHODS)}))?", name)
    q = float(Decimal(parts[1]).scaleb(-2)) if parts else 2
    return (q, cast(Method, parts[2] or "linear")) if parts and q <= 1 else None


def place_of(name: object) -> int | None:
    """Return the place of a value in its group by the statistic's name, such as 1 for "nth1"; None for other names."""
    # Most names fail here; matching the pattern would cost several times as much.
    if not isinstance(name, str) or not name.startswith("nth"):
        return None
    parts = re.fullmatch(r"nth(-?\d{1,18})", name)
    return int(parts[1]) if parts else None


def outputs_of(column: Column, numbers: Numbers) -> tuple[Output, ...]:
    """Return the histograms that the first sweep fills for a column."""
    moments = [name for name in TABLE if TABLE[name].is_moment and name in column.statistics]
    outputs = [moments_of(column, moments, numbers)] if moments else []
    makes = [TABLE[name].output for name in column.statistics]
    return (*outputs, *(make(column, numbers) for make in makes if make is not None))


def _extreme(name: str) -> Callable[[Column, Numbers], Output]:
    return lambda column, numbers: Output(extreme(name, column.dtype, column.skipna), "v", (name,))


def _positioned(name: str) -> Callable[[Column, Numbers], Output]:
    # The result is a pair of value and index, of which one is wanted.
    results = ("", name) if name.startswith("arg") else (name, "")
    return lambda column, numbers: Output(positioned(name, column.dtype, numbers.index), "((value_t){v, i})", results)


def _logical(name: str, operator: Operator) -> Callable[[Column, Numbers], Output]:
    return lambda column, numbers: Output(operator, "v != 0", (name,))


def _product_of(column: Column, numbers: Numbers) -> Output:
    if column.total.kind == "f" and not np.can_cast(column.dtype, column.total):
        # A result that cannot hold the values is a field of its own: they are rounded once, as products.
        both, real = struct_of({"value": column.dtype, "prod": column.total}), numbers.real
        lift, finish = converted("v.value", column.dtype, real), f"(value_t){{0, {converted('a', real, column.total)}}}"
        operator = Operator(both, "a * b", 1, "multiply", accumulator=real, lift=lift, finish=finish)
        return Output(operator, "((value_t){v, 0})", ("", "prod"))
    if column.total.kind == "f":
        # Floats are multiplied in the widest type of the device, and rounded once.
        operator = Operator(column.total, "a * b", 1, "multiply", accumulator=numbers.real)
    else:
        operator = operators.multiply(column.total)
    return Output(operator, converted("v", column.dtype, column.total), ("prod",))


def _own(column: Column) -> np.dtype:
    return column.dtype


def _total(column: Column) -> np.dtype:
    return column.total


def _result(column: Column) -> np.dtype:
    return column.result


def _int64(column: Column) -> np.dtype:
    return np.dtype(np.int64)


def _bool(column: Column) -> np.dtype:
    return np.dtype(np.bool_)


def _of_some(value: Callable[[Parts], Array]) -> Callable[[Parts], Array]:
    """Return a result that is NaN for empty bins."""
    return lambda parts: np.where(parts["count"] > 0, value(parts), np.nan)


_NAN = literal(np.nan, np.dtype(np.float64))
_ANY, _ALL = "biufcmM", "biufc"
_DATED = "biufmM"

# The order is that of the lists in error messages.
TABLE: dict[str, Statistic] = {
    "sum": Statistic(
        _total,
        kinds=_ALL + "m",
        is_moment=True,
        rounds=True,
        parts=("sum",),
        finish=lambda parts: parts["sum"],
        of_none=0,
        host=host.total,
    ),
    "mean": Statistic(
        _result,
        kinds=_ANY,
        is_moment=True,
        rounds=True,
        parts=("sum", "count"),
        finish=_of_some(lambda parts: parts["sum"] / parts["count"]),
        text=f"count[i] > 0 ? sum[i] / count[i] : {_NAN}",
        host=lambda grouped: grouped.mean.astype(grouped.column.result),
    ),
    "count": Statistic(
        _int64,
        kinds=_ANY,
        is_moment=True,
        parts=("count",),
        finish=lambda parts: parts["count"],
        of_none=0,
        host=lambda grouped: grouped.counts,
    ),
    "var": Statistic(_result, rounds=True, host=partial(host.spread, "var")),
    "std": Statistic(
        _result,
        kinds=_DATED,
        rounds=True,
        parts=("sum", "count"),
        finish=lambda parts: np.sqrt(variance(parts["count"].astype(np.float64), parts["shift"], parts["squares"])),
        text="sqrt(clhist_variance(count[i], shift[i], squares[i]))",
        host=partial(host.spread, "std"),
    ),
    # SciPy's least value ignores NaN, but its greatest does not.
    "min": Statistic(
        _own, _extreme("min"), kinds=_DATED, parts=("fmin",), finish=lambda parts: parts["fmin"], host=host.least
    ),
    "max": Statistic(
        _own,
        _extreme("max"),
        kinds=_DATED,
        parts=("maximum", "count"),
        finish=_of_some(lambda parts: parts["maximum"]),
        text=f"count[i] > 0 ? maximum[i] : {_NAN}",
        host=host.largest,
    ),
    "argmin": Statistic(_int64, _positioned("argmin"), kinds=_DATED, is_position=True, host=host.place_of_least),
    "argmax": Statistic(_int64, _positioned("argmax"), kinds=_DATED, is_position=True, host=host.place_of_largest),
    "first": Statistic(_own, _positioned("first"), kinds=_DATED, is_position=True, host=host.first),
    "last": Statistic(_own, _positioned("last"), kinds=_DATED, is_position=True, host=host.last),
    "sem": Statistic(_result, rounds=True, host=partial(host.spread, "sem")),
    "skew": Statistic(_result, rounds=True, merges=False, host=partial(host.spread, "skew")),
    "kurt": Statistic(_result, rounds=True, merges=False, host=partial(host.spread, "kurt")),
    "median": Statistic(
        _result, kinds=_DATED, is_apart=True, merges=False, finish=lambda parts: parts["median"], host=host.quantile
    ),
    "prod": Statistic(_total, _product_of, kinds=_ALL, host=host.product),
    "any": Statistic(_bool, _logical("any", operators.logical_or(np.bool_)), host=host.any_of),
    "all": Statistic(_bool, _logical("all", operators.logical_and(np.bool_)), host=host.all_of),
    "size": Statistic(_int64, kinds=_ANY, is_apart=True, merges=False),
    "nunique": Statistic(_int64, kinds=_ANY, is_apart=True, merges=False),
    "mode": Statistic(_own, kinds=_DATED, is_apart=True, merges=False, host=host.mode),
    "quantile": Statistic(
        _result,
        kinds=_DATED,
        is_apart=True,
        merges=False,
        takes=("q", "weights"),
        finish=lambda parts: parts["quantile"],
        host=host.quantile,
    ),
}
STATISTICS = tuple(name for name, entry in TABLE.items() if not entry.takes)  # of `clhist.GroupBy.agg`
OF_ANY = tuple(name for name, entry in TABLE.items() if entry.is_apart and entry.kinds == _ANY)  # of texts, too
OF_COLUMN = tuple(name for name, entry in TABLE.items() if entry.dtype is _own)  # values of the column, of its type
# Of values that have an order only, such as text, whose numbers take their place.
OF_ORDER = tuple(name for name, entry in TABLE.items() if entry.dtype is _own or entry.is_position or name == "count")
OF_COMPLEX = tuple(name for name in STATISTICS if "c" in TABLE[name].kinds)
BINNED = tuple(name for name, entry in TABLE.items() if entry.finish is not None)

# Outputs of a sweep of `clhist.stats`: the operator, if there are fewer elements than 32 bits count and if there are
# more, and C of the value of element `i`.
PARTS: dict[str, tuple[Callable[[bool], Operator], str]] = {
    "count": (lambda few: operators.count(np.intp) if few else operators.add(np.intp), "1"),
    "sum": (lambda few: operators.add(np.float64), "(double)v0[i]"),
    "fmin": (lambda few: operators.fmin(np.float64), "(double)v0[i]"),
    "maximum": (lambda few: operators.maximum(np.float64), "(double)v0[i]"),
}


def host_statistics(grouped: host.Grouped, names: Sequence[str]) -> dict[str, Array]:
    """Compute statistics on the host, for few elements; return them by name."""
    results = {}
    with np.errstate(all="ignore"):
        for name in names:
            compute = TABLE[name].host
            assert compute is not None
            results[name] = compute(grouped)
    return results
