"""C of the kernels that select order statistics of groups: what is asked, and one text with two recipes, for GPUs and
for CPUs. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clhist import operators
from clhist.operators.c_types import c_name
from clhist.operators.equivalents import decoded, encoded
from clhist.operators.operator import Operator
from clhist.statistics.quantiles import Method

Nan = Literal["skipped", "propagated", "greatest"]

# C of the rank of a quantile from the place `p` between values, and of its share of the way to the next value; NumPy's
# names. Halves are rounded to even, as NumPy's are: not by `rint`, which rounds them down in llvmpipe of Mesa 25.0.7.
_PLACES: dict[Method, tuple[str, str]] = {
    "linear": ("(long)({p})", "{p} - (long)({p})"),
    "lower": ("(long)({p})", "0"),
    "higher": ("(long)ceil({p})", "0"),
    "nearest": (
        "(long)({p}) + ({p} - (long)({p}) > 0.5f || ({p} - (long)({p}) == 0.5f && (long)({p}) % 2 != 0))",
        "0",
    ),
    "midpoint": ("(long)({p})", "{p} > (long)({p}) ? 0.5f : 0"),
}


@dataclass(frozen=True)
class Order:
    """Which order statistic of each group is asked for, but for the probability of a quantile.

    Attributes
    ----------
    group : numpy.dtype
        Of the numbers of the groups.
    dtype : numpy.dtype
        Of the values, with booleans as bytes.
    result : numpy.dtype
        A float, or int64 of dates, whose results are exact and rounded toward zero.
    real : numpy.dtype
        In which positions are computed, and weights added up.
    nan : str
        Whether a NaN is no value, makes the result of its group NaN, or is the greatest value.
    is_median : bool
        Whether it is the median, in the type of the result, rather than a quantile.
    weights : numpy.dtype or None
        Of the weights, if values have them.
    counts : bool
        Whether it is the number of different values instead, which groups have that are sorted.
    method : str
        How a quantile between two values is estimated, one of `METHODS`.
    """

    group: np.dtype
    dtype: np.dtype
    result: np.dtype
    real: np.dtype
    nan: Nan = "skipped"
    is_median: bool = True
    weights: np.dtype | None = None
    counts: bool = False
    method: Method = "linear"

    @property
    def key(self) -> np.dtype:
        """The unsigned integers in the order of the values."""
        return np.dtype(np.uint64 if self.dtype.itemsize == 8 else np.uint32)

    @property
    def is_exact(self) -> bool:
        """Whether it is interpolated between integers by a fraction, as dates are."""
        return self.result.kind == "i" and self.method == "linear" and not (self.is_median or self.counts)

    @property
    def probability(self) -> np.dtype:
        """The dtype of the argument `q` of the kernels; uint64 of a fraction has the numerator in its upper half."""
        return np.dtype(np.uint64) if self.is_exact else self.real

    @property
    def propagates(self) -> bool:
        """Whether results have to be NaN where a value is."""
        return self.nan == "propagated" and self.dtype.kind == "f"

    @property
    def none(self) -> str:
        """C of the result of a group without values; of the type of the result, which the others are not to lose."""
        return "LONG_MIN" if self.result.kind == "i" else "NAN"

    @property
    def ones(self) -> str:
        """C of the key of NaN, which no number has."""
        return f"({c_name(self.key)})-1"

    @property
    def arguments(self) -> str:
        """C declarations of the arrays of the caller."""
        weights = "" if self.weights is None else f", const {c_name(self.weights)} *weights"
        return f"const {c_name(self.group)} *keys, const {c_name(self.dtype)} *values{weights}"

    def element(self, then: str) -> str:
        """Return C that runs `then` for an element `i` that counts, of group `g`, key `k` and weight `w`."""
        is_float = self.dtype.kind == "f"
        keep = " && v == v" if is_float and self.nan == "skipped" else ""
        key = encoded("v", self.dtype)
        # All NaN, of either sign, have one key above those of numbers.
        key = f"(v != v ? {self.ones} : {key})" if is_float else key
        weight = ""
        if self.weights is not None:
            weight = f"const {c_name(self.real)} w = weights[i]; "
            keep += " && w == w" if self.nan == "skipped" else ""
        return (
            f"const {c_name(self.group)} g = keys[i]; const {c_name(self.dtype)} v = values[i]; {weight}"
            f"if (g >= 0 && g < groups{keep}) {{ const {c_name(self.key)} k = {key}; {then} }}"
        )

    def functions(self) -> str:
        """Return C of the place of the statistic among `n` values, and of what it is between two neighbours."""
        real, result, key = (c_name(dtype) for dtype in (self.real, self.result, self.key))
        first, second = (decoded(name, self.dtype) for name in ("low", "high"))
        # Positions and interpolation repeat NumPy's operations, so that results are equal.
        rank, share = (expression.format(p="q * (n - 1)") for expression in _PLACES[self.method])
        if self.is_median:
            rank, share = "(n - 1) / 2", "n % 2 ? 0 : 0.5f"
        if self.is_exact:  # `share` is a fraction as `q` is, or 0
            place, whole = "(ulong)(n - 1) * (q >> 32)", "(q & 0xffffffff)"
            rank, share = f"{place} / {whole}", f"{place} % {whole} ? {place} % {whole} << 32 | {whole} : 0"
        probability = c_name(self.probability)
        if self.result.kind == "i" and not self.counts:  # the sum of two dates may overflow
            part, rest = "share == 0 ? 0 : apart / 2", "share != 0 && apart % 2"
            if self.is_exact:  # by parts, so that no product exceeds 64 bits
                whole = "max(share & 0xffffffff, (ulong)1)"
                beyond = f"apart % {whole} * (share >> 32)"
                part, rest = f"apart / {whole} * (share >> 32) + {beyond} / {whole}", f"{beyond} % {whole}"
            between = f"""const long a = {first}, b = {second};
    const ulong apart = (ulong)b - (ulong)a, part = {part};
    const long value = a + (long)part;
    return value < 0 && ({rest}) ? value + 1 : value;"""
        elif self.is_median:
            between = f"const {result} a = {first}, b = {second}; return a == b ? a : (a + b) / 2;"
        else:  # as NumPy interpolates
            between = f"""const {real} a = {first}, b = {second};
    return low == high || a == b ? a : share < 0.5f ? a + (b - a) * share : b - (b - a) * (1 - share);"""
        # Fused multiply-adds would round differently from NumPy.
        return f"""#pragma OPENCL FP_CONTRACT OFF
long clhist_rank(const long n, const {probability} q) {{ return {rank}; }}
{probability} clhist_share(const long n, const {probability} q) {{ return {share}; }}
{result} clhist_between(const {key} low, const {key} high, const {probability} share)
{{
    {between}
}}
"""


@dataclass(frozen=True)
class Recipe:
    """Where the counts of digits lie, and how the next value above the middle one is found.

    Attributes
    ----------
    bin : str
        C of the bin of a digit of group `g`, with ``{digit}`` for C of the digit.
    first : str
        C declared before the counts of group `i` are read.
    at : str
        C of the place of the count of digit `d` of group `i`.
    takes_groups : bool
        Whether `first` or `at` needs `groups`, the number of groups.
    has_blocks : bool
        Whether counts of neighbouring digits are added up first, by many work-items. The one that chooses the digit of
        a group waits for each of its loads, of which there are tens then in place of thousands.
    next_above : callable
        The operator, for a dtype, of what `emit` emits.
    emit : str
        C run for each value of key `k` in group `g` whose middle value has the key ``found[g]``.
    above : str
        C that makes the key of the next value above of ``found[i]`` and ``above[i]``, the result of these.
    """

    bin: str
    first: str
    at: str
    takes_groups: bool
    has_blocks: bool
    next_above: Callable[[np.dtype], Operator]
    emit: str
    above: str


GPU = Recipe(
    bin="((long)g << bits) + {digit}",
    first="first = (long)i << bits, ",
    at="first + d",
    takes_groups=False,
    has_blocks=True,
    next_above=operators.minimum,
    emit="if (k > found[g]) EMIT0(g, k); ",
    above="above[i]",
)

# Most values share a few digits: where the bins of a digit are neighbours, these few are in the cache. Half of the
# values are above the middle, in no order, and a branch would be mispredicted: modulo 2^32 or 2^64 `found[g] - k` is
# largest for the next value above, and small for all that are not above. (A minimum of `k - found[g] - 1` of 64 bits
# crashes the compiler of Intel's runtime.)
CPU = Recipe(
    bin="{digit} * groups + g",
    first="",
    at="i + d * groups",
    takes_groups=True,
    has_blocks=False,
    next_above=operators.maximum,
    emit="EMIT0(g, found[g] - k); ",
    above="found[i] - above[i]",
)


@dataclass(frozen=True)
class Texts:
    """C of the kernels: a map or body of each, and its arguments."""

    functions: str
    digits_arguments: str
    digits: str
    following_arguments: str
    following: str
    blocks_arguments: str
    blocks: str
    choose_arguments: str
    choose: str
    finish_arguments: str
    finish: str


def texts(order: Order, recipe: Recipe) -> Texts:
    """Return the C of a selection digit by digit.

    Of weighted values `digits` adds up weights, and `rank` and `members` are the weight below the digits that were
    found and that of the whole group.
    """
    unsigned, real, probability = c_name(order.key), c_name(order.real), c_name(order.probability)
    weighted = order.weights is not None
    arguments = f"{order.arguments}, const {unsigned} *found, const long groups"
    # `shift` is the lowest bit of the digit; the bits above it have to equal the prefix of the group.
    place = recipe.bin.format(digit=f"(long)(k >> shift & (((({unsigned})1) << bits) - 1))")
    emit = f"if (whole || k >> shift >> bits == found[g]) EMIT({place}, {'w' if weighted else '1'});"
    count, total = (real, real) if weighted else ("uint", "long")
    finish = f"const {unsigned} *found, const {unsigned} *above, const {unsigned} *top, const {total} *rank, "
    missing = f" || top[i] == {order.ones}" if order.propagates else ""
    choose = f"const {count} *counts, {unsigned} *found, {total} *rank, {total} *members, uint *equal, "
    above = f"{recipe.emit}{'EMIT1(g, k); ' if order.propagates else ''}"
    return Texts(
        functions=order.functions(),
        digits_arguments=f"{arguments}, const uint shift, const uint bits, const int whole",
        digits=order.element(emit),
        following_arguments=arguments,
        following=order.element("EMIT(g, k); " if weighted else above),
        blocks_arguments=f"const {count} *counts, {total} *blocks, const uint low" * recipe.has_blocks,
        blocks=_BLOCKS.format(total=total) * recipe.has_blocks,
        choose_arguments=f"{choose}const {probability} q, const uint bits, const int whole"
        + ", const long groups" * recipe.takes_groups
        + f", const {total} *blocks, const uint low" * recipe.has_blocks,
        choose=_CHOICES[weighted, recipe.has_blocks].format(first=recipe.first, at=recipe.at, real=real),
        finish_arguments=f"{finish}const {total} *members, const uint *equal, const {probability} q, "
        f"{c_name(order.result)} *out",
        finish=f"""
            const {unsigned} low = found[i];
            const int missing = !(members[i] > 0 && members[i] < INFINITY){missing};
            out[i] = missing ? {order.none} : clhist_between(low, low, 0);
            """
        if weighted
        else f"""
            const {probability} fraction = members[i] ? clhist_share(members[i], q) : 0;
            const {unsigned} low = found[i];
            const {unsigned} high = !(fraction > 0) ? low : rank[i] + 1 < equal[i] ? low : {recipe.above};
            const int missing = members[i] == 0{missing};
            out[i] = missing ? {order.none} : clhist_between(low, high, fraction);
            """,
    )


_CHOOSE = """
            const long {first}last = (1l << bits) - 1;
            if (whole) {{
                for (long d = 0; d <= last; ++d) members[i] += counts[{at}];
                rank[i] = members[i] ? clhist_rank(members[i], q) : 0;
            }}
            long left = rank[i], d = 0;
            for (; d < last && left >= counts[{at}]; ++d) left -= counts[{at}];
            rank[i] = left;
            equal[i] = counts[{at}];
            found[i] = (whole ? 0 : found[i] << bits) | d;
            """

# Block `i` has the counts of digits that differ in their `low` lowest bits.
_BLOCKS = """
            {total} sum = 0;
            for (long at = (long)i << low; at < (long)(i + 1) << low; ++at) sum += counts[at];
            blocks[i] = sum;
            """

# The result of `_CHOOSE`: first the block with the digit, then the digit.
_CHOOSE_IN_BLOCKS = """
            const long {first}begin = first >> low, end = begin + (1l << (bits - low)) - 1;
            if (whole) {{
                long all = 0;
                for (long block = begin; block <= end; ++block) all += blocks[block];
                members[i] = all;
                rank[i] = all ? clhist_rank(all, q) : 0;
            }}
            long left = rank[i], block = begin;
            for (; block < end && left >= blocks[block]; ++block) left -= blocks[block];
            long d = (block - begin) << low;
            for (const long last = d + (1l << low) - 1; d < last && left >= counts[{at}]; ++d) left -= counts[{at}];
            rank[i] = left;
            equal[i] = counts[{at}];
            found[i] = (whole ? 0 : found[i] << bits) | d;
            """


def _search_by_weight(place: str, first: str, last: str, weight: str) -> str:
    """Return C that sets `chosen` to the first place at which the share of the weight reaches `q`.

    It is the last place with a weight if none does: rounding may leave the sum of a digit's own digits below it.
    """
    return f"""for (long {place} = {first}; {place} <= {last}; ++{place}) {{{{
                const {{real}} w = {weight};
                if (!(w > 0)) continue;
                chosen = {place};
                below = sum;
                sum += w;
                if (sum / members[i] >= q) break;
            }}}}"""


_CHOOSE_BY_WEIGHT = f"""
            const long {{first}}last = (1l << bits) - 1;
            if (whole)
                for (long d = 0; d <= last; ++d) members[i] += counts[{{at}}];
            {{real}} below = rank[i], sum = rank[i];
            long chosen = 0;
            {_search_by_weight("d", "0", "last", "counts[{at}]")}
            rank[i] = below;
            found[i] = (whole ? 0 : found[i] << bits) | chosen;
            """

_CHOOSE_BY_WEIGHT_IN_BLOCKS = f"""
            const long {{first}}begin = first >> low, blocks_last = (1l << (bits - low)) - 1;
            if (whole) {{{{
                {{real}} all = 0;
                for (long block = 0; block <= blocks_last; ++block) all += blocks[begin + block];
                members[i] = all;
            }}}}
            {{real}} below = rank[i], sum = rank[i];
            long chosen = 0;
            {_search_by_weight("block", "0", "blocks_last", "blocks[begin + block]")}
            sum = below;
            const long least = chosen << low, last = least + (1l << low) - 1;
            chosen = least;
            {_search_by_weight("d", "least", "last", "counts[{at}]")}
            rank[i] = below;
            found[i] = (whole ? 0 : found[i] << bits) | chosen;
            """

# By whether values have weights, and whether counts are added up in blocks.
_CHOICES = {
    (False, False): _CHOOSE,
    (False, True): _CHOOSE_IN_BLOCKS,
    (True, False): _CHOOSE_BY_WEIGHT,
    (True, True): _CHOOSE_BY_WEIGHT_IN_BLOCKS,
}
