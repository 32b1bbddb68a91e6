"""Running sums, products and extremes of groups.

Elements are sorted by group and scanned; on CPUs each core takes a share of them, with an accumulator for each group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from clhist._core.kernels.scan import ScanSpec
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.chain import chain_on
from clhist._core.runtime.each import Elementwise
from clhist._core.runtime.scan import Scan
from clhist.grouped.in_order import PURPOSE, in_order
from clhist.operators.c_types import c_name, literal

RUNNING = {"cumsum": "sum", "cumprod": "prod", "cummin": "min", "cummax": "max"}
"""By name the statistic that is computed up to each element."""


@dataclass(frozen=True)
class Running:
    """The operator that is combined along a group.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the values, with booleans as bytes.
    accumulator, result : numpy.dtype
        In which they are combined, and of the results.
    combine : str
        C of `a`, of the elements before, and `b`.
    neutral : str
        C of what changes nothing.
    missing : str
        C of whether the value ``{v}`` is left out; empty if none is.
    none : str
        C of the result of an element that is left out, or in no group.
    ufunc : numpy.ufunc
        What combines them on the host.
    """

    dtype: np.dtype
    accumulator: np.dtype
    result: np.dtype
    combine: str
    neutral: str
    missing: str
    none: str
    ufunc: np.ufunc


def running(name: str, dtype: np.dtype, result: np.dtype, real: np.dtype, missing: str, none: str) -> Running:
    """Return what cumsum, cumprod, cummin and cummax combine."""
    ufunc = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}[name]
    if name in ("cumsum", "cumprod"):
        accumulator = real if result.kind == "f" else result
        return Running(
            dtype, accumulator, result, *(("a + b", "0") if name == "cumsum" else ("a * b", "1")), missing, none, ufunc
        )
    sign, is_float = "<" if name == "cummin" else ">", dtype.kind == "f"
    limit = (np.inf if name == "cummin" else -np.inf) if is_float else None
    if limit is None:
        limit = getattr(np.iinfo(dtype), "max" if name == "cummin" else "min")
    combine = f"a != a || a {sign} b ? a : b" if is_float else f"a {sign} b ? a : b"  # NaN stays
    return Running(dtype, dtype, dtype, combine, literal(limit, dtype), missing, none, ufunc)


def running_of_each(keys: Array, num_groups: int, values: Array, of: Running, queue: cl.CommandQueue) -> Array:
    """Return what the elements of its group up to each element are combined to."""
    found = empty(queue, (keys.size,), of.result, True)
    if not keys.size:
        return found
    if device_kind(queue.device) == "cpu":
        return _running_by_shares(keys, num_groups, values, of, found, queue)
    chain = chain_on(queue, PURPOSE)
    order = in_order(keys, num_groups, chain)
    _running(queue.context, of)(chain, keys.size, [*order[:2], values, found, num_groups])
    chain.finish(found)
    return found


def _running_by_shares(
    keys: Array, num_groups: int, values: Array, of: Running, found: Array, queue: cl.CommandQueue
) -> Array:
    """Return the same without a sort: each core of a CPU has what the groups are combined to in its share."""
    size, chain = keys.size, chain_on(queue, PURPOSE)
    shares = max(1, min(queue.device.max_compute_units, size // num_groups))
    number, share = shares * num_groups, -(-size // shares)
    before = chain.new(number, of.accumulator)
    total, begin, run = _by_shares(queue.context, keys.dtype, of)
    given = [keys, values, before, num_groups, size, share]
    total(chain, shares, given)
    begin(chain, num_groups, [before, num_groups, shares])
    run(chain, shares, [*given, found])
    chain.finish(found)
    return found


@kept_by_context
def _running(context: cl.Context, of: Running) -> Scan:
    accumulator, value, result = map(c_name, (of.accumulator, of.dtype, of.result))
    neutral, missing = f"({accumulator})({of.neutral})", of.missing.format(v="v") or "false"
    return Scan(
        context,
        ScanSpec(
            "running",
            f"const uint *groups, const uint *positions, const {value} *values, {result} *found, const uint none",
            accumulator,
            of.accumulator.itemsize,
            "clhist_item(values[positions[i]])",
            of.combine,
            neutral,
            "found[positions[i]] = clhist_result(groups[i] != none, values[positions[i]], item);",
            "groups[i] != groups[i - 1]",
            f"""{accumulator} clhist_item(const {value} v) {{ return {missing} ? {neutral} : ({accumulator})v; }}
{result} clhist_result(const bool in_group, const {value} v, const {accumulator} item)
{{
    return in_group && !({missing}) ? ({result})item : ({result}){of.none};
}}""",
        ),
    )


@kept_by_context
def _by_shares(context: cl.Context, keys: np.dtype, of: Running) -> tuple[Elementwise, ...]:
    accumulator, missing = c_name(of.accumulator), of.missing.format(v="values[at]") or "0"
    given = f"const {c_name(keys)} *keys, const {c_name(of.dtype)} *values, {accumulator} *before, "
    given += "const ulong groups, const ulong elements, const ulong each"
    neutral, name = f"({accumulator})({of.neutral})", "clhist_combined"
    function = f"{accumulator} {name}(const {accumulator} a, const {accumulator} b) {{ return {of.combine}; }}"
    element = f"""__global {accumulator} *mine = before + i * groups;
        const ulong first = i * each, last = min(elements, first + each);
        {{start}}for (ulong at = first; at < last; ++at) {{{{
            const ulong g = (ulong)keys[at];
            const bool counts = g < groups && !({missing});
            if (counts) mine[g] = {name}(mine[g], values[at]);
            {{end}}
        }}}}"""
    start = f"for (ulong g = 0; g < groups; ++g) mine[g] = {neutral}; "
    end = f"found[at] = counts ? ({c_name(of.result)})mine[g] : ({c_name(of.result)}){of.none};"
    return (
        Elementwise(context, given, element.format(start=start, end=""), "clhist_total_of_share", function),
        Elementwise(
            context,
            f"{accumulator} *before, const ulong groups, const ulong shares",
            f"""{accumulator} a = {neutral};
            for (ulong s = 0; s < shares; ++s) {{
                const {accumulator} b = before[s * groups + i];
                before[s * groups + i] = a;
                a = {name}(a, b);
            }}""",
            "clhist_begin_of_share",
            function,
        ),
        Elementwise(
            context,
            f"{given}, {c_name(of.result)} *found",
            element.format(start="", end=end),
            "clhist_run_of_share",
            function,
        ),
    )
