"""`clhist._core.runtime.prepared.SortPairs`: a sort by digits, and a segmented scan."""

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
    """Build the kernels that sort pairs of `operator`; raises BuildError if the compiler refuses it."""
    _scan(context, operator)


def enqueue_sort(command: SortPairs, chain: Chain, blocks: Sequence[Any]) -> Iterator[None]:
    """Enqueue a sort and the scan after it, in scratch memory of these blocks; yield behind each of the two."""
    pairs, bits, scan = command.pairs, command.no_bin.bit_length(), _scan(chain.queue.context, command.operator)
    keys, positions = blocks[command.keys.number], blocks[command.positions.number]
    in_order = sorted_by_digits(chain, keys, positions, pairs, np.dtype(np.uint32), bits)
    yield
    held, cells = blocks[command.accumulators.number], blocks[command.cells.number]
    scan(chain, pairs, [*in_order, held, cells, command.no_bin, *command.places])
    yield


def pairs_scan(operator: Operator) -> ScanSpec:
    """Return the scan of sorted pairs; what has no bin takes no part, its accumulator may be anything."""
    arrays = "const uint *clhist_keys, const uint *clhist_positions, const uint *clhist_held, uchar *clhist_scratch"
    places = [f"clhist_place{n}" for n in range(len(operator.parts))]
    return ScanSpec(
        "sorted_pairs",
        ", ".join([arrays, "const uint clhist_no_bin", *(f"const ulong {each}" for each in places)]),
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
