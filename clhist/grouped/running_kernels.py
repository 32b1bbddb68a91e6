"""Running sums, products and extremes of groups on a device.

Elements are sorted by group and scanned; on CPUs each core takes a share of them, with an accumulator for each group.
"""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist._core.kernels.scan import ScanSpec
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.launcher import chain_on
from clhist._core.runtime.scan import Scan
from clhist.grouped.in_order import PURPOSE, in_order
from clhist.grouped.running import Running
from clhist.operators.c_types import c_name

_LINE = 128  # bytes between accumulators of two cores: false sharing halves the speed with one group


def running_of_each(keys: Array, num_groups: int, values: Array, of: Running, queue: cl.CommandQueue) -> Array:
    """Return for each element the combination of the values of its group up to this one."""
    result = empty(queue, (keys.size,), of.result, True)
    if not keys.size:
        return result
    if device_kind(queue.device) == "cpu":
        return _running_by_shares(keys, num_groups, values, of, result, queue)
    chain = chain_on(queue, PURPOSE)
    order = in_order(keys, num_groups, chain)
    _running(queue.context, of)(chain, keys.size, [*order[:2], values, result, num_groups])
    chain.finish(result)
    return result


def _running_by_shares(
    keys: Array, num_groups: int, values: Array, of: Running, result: Array, queue: cl.CommandQueue
) -> Array:
    """Return the same without a sort, from one more share of the elements than there are cores.

    The first pass writes the results of the first share, and combines the groups of all shares but the last. The second
    pass starts from the joined accumulators and writes the results of all other shares.
    """
    size, chain = keys.size, chain_on(queue, PURPOSE)
    # Each share has at least as many elements as accumulators, which have to be cleared and joined.
    cores = max(1, min(queue.device.max_compute_units, size // num_groups))
    share, line = -(-size // (cores + 1)), max(1, _LINE // of.accumulator.itemsize)
    # Whole lines for each share, so that no two cores write to one line.
    stride = -(-num_groups // line) * line
    items = chain.new(cores * stride, of.accumulator)
    run, join = _by_shares(queue.context, keys.dtype, of)
    arguments = [keys, values, items, result, num_groups, stride, size, share]
    # First pass: totals of all shares but the last, and the results of share 0.
    run(chain, cores, [*arguments, 0])
    # Turn the totals of shares into the accumulators with which the next shares start.
    if cores > 1:
        join(chain, num_groups, [items, stride, cores])
    # Second pass: the results of all other shares, each from the accumulators before it.
    run(chain, cores, [*arguments, 1])
    chain.finish(result)
    return result


@kept_by_context
def _running(context: cl.Context, of: Running) -> Scan:
    accumulator, value, result = of.c_type, c_name(of.dtype), c_name(of.result)
    neutral, missing = of.item(of.neutral), of.missing.format(v="v") or "false"
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
            f"""{of.preamble}{accumulator} clhist_item(const {value} v)
{{
    return {missing} ? {neutral} : {of.item("v")};
}}
{result} clhist_result(const bool in_group, const {value} v, const {accumulator} item)
{{
    return in_group && !({missing}) ? {of.result_of("item")} : ({result}){of.none};
}}""",
        ),
    )


@kept_by_context
def _by_shares(context: cl.Context, keys: np.dtype, of: Running) -> list[Elementwise]:
    """Return the kernel of a share, counted from `skipped`, and the kernel that joins the accumulators of shares."""
    accumulator, result = of.c_type, c_name(of.result)
    missing, combine = of.missing.format(v="values[at]") or "0", "clhist_combined"
    function = f"{of.preamble}{accumulator} {combine}(const {accumulator} a, const {accumulator} b)"
    function += f" {{ return {of.combine}; }}"
    parts = [
        (
            f"const {c_name(keys)} *keys, const {c_name(of.dtype)} *values, {accumulator} *items, {result} *found, "
            "const ulong groups, const ulong stride, const ulong elements, const ulong each, const ulong skipped",
            f"""__global {accumulator} *mine = items + i * stride;
            const ulong first = (i + skipped) * each, last = min(elements, first + each);
            const bool writes = i + skipped == 0 || skipped;
            for (ulong g = 0; !skipped && g < groups; ++g) mine[g] = {of.item(of.neutral)};
            for (ulong at = first; at < last; ++at) {{
                const ulong g = (ulong)keys[at];
                const bool counts = g < groups && !({missing});
                {accumulator} item = {of.item(of.neutral)};
                if (counts) mine[g] = item = {combine}(mine[g], {of.item("values[at]")});
                if (writes) found[at] = counts ? {of.result_of("item")} : ({result}){of.none};
            }}""",
            "clhist_run_of_share",
        ),
        (
            f"{accumulator} *items, const ulong stride, const ulong shares",
            f"""for (ulong s = 1; s < shares; ++s)
                items[s * stride + i] = {combine}(items[(s - 1) * stride + i], items[s * stride + i]);""",
            "clhist_join_shares",
        ),
    ]
    return Elementwise.together(context, parts, function)
