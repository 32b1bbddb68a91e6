"""Runs a `clhist._core.runtime.prepared.SortPairs`: a radix sort, then a segmented scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernels.parameters import accumulator_words
from clhist._core.kernels.render import render_sort_scan
from clhist._core.kernels.scan import ScanSpec
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.chain import Chain
from clhist._core.runtime.digit_sort import sorted_by_digits
from clhist._core.runtime.prepared import SortPairs
from clhist._core.runtime.scan import Scan
from clhist.operators.operator import Operator


def build_sort(context: cl.Context, operator: Operator) -> None:
    """Build the kernels that sort pairs of `operator`; raise BuildError if the compiler rejects its C."""
    _scan(context, operator)


def enqueue_sort(command: SortPairs, chain: Chain, blocks: Sequence[Any]) -> Iterator[None]:
    """Enqueue the sort and then the scan, yielding after each; `blocks` is the scratch memory of the part.

    Raises
    ------
    ValueError
        If an element emitted more pairs than the kernel states. No result has been written then.
    """
    pairs, checked, scan = (
        command.pairs,
        command.checked_pairs is not None,
        _scan(chain.queue.context, command.operator),
    )
    # Only these bits can differ, which saves passes; with a check, one more key than `no_bin` marks excess pairs.
    bits = (command.no_bin + checked).bit_length()
    keys, positions = blocks[command.keys.number], blocks[command.positions.number]
    in_order = sorted_by_digits(chain, keys, positions, pairs, np.dtype(np.uint32), bits)
    yield
    # The key that marks an element with more pairs than it has room for is the largest.
    if checked and pairs and chain.fetched(in_order[0], 1, np.uint32, 4 * (pairs - 1))[0] > command.no_bin:
        raise ValueError(
            f"emits: expected at most {command.checked_pairs} pairs of each element, as the kernel states, got an "
            "element with more; pass a larger emits="
        )
    accumulators, cells = blocks[command.accumulators.number], blocks[command.cells.number]
    scan(chain, pairs, [*in_order, accumulators, cells, command.no_bin, *command.places])
    yield


def pairs_scan(operator: Operator) -> ScanSpec:
    """Return the scan of sorted pairs. Pairs without a bin do not take part, since their accumulators are undefined."""
    arrays = "const uint *clhist_keys, const uint *clhist_positions, const uint *clhist_held, uchar *clhist_scratch"
    places = [f"clhist_place{n}" for n in range(len(operator.parts))]
    return ScanSpec(
        "sorted_pairs",
        ", ".join([arrays, "const uint clhist_no_bin", *(f"const ulong {place}" for place in places)]),
        "clhist_held_t",
        4 * accumulator_words(operator),
        "clhist_read(clhist_keys[i] < clhist_no_bin, clhist_held, clhist_positions[i])",
        "clhist_joined(a, b)",
        "clhist_no_words()",
        "if (clhist_keys[i] < clhist_no_bin && (i + 1 == size || clhist_keys[i + 1] != clhist_keys[i]))\n"
        f"            clhist_publish(item, clhist_keys[i], clhist_scratch, {', '.join(places)});",
        "clhist_keys[i] != clhist_keys[i - 1]",
        render_sort_scan(operator),
    )


@kept_by_context
def _scan(context: cl.Context, operator: Operator) -> Scan:
    return Scan(context, pairs_scan(operator))
