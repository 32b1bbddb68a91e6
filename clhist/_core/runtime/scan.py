"""Segmented scans on a device, in one launch or three.

Note [Totals from the end of a share], docs/decisions/0020.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernels.render import render_scan
from clhist._core.kernels.scan import ScanSpec, each_of, lanes_of
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.program import Kernel, kernels_of
from clhist._core.runtime.chain import Chain

_SHARES = 16  # work-groups for each compute unit


class Scan:
    """An inclusive segmented scan.

    The order of combinations depends only on the device, the number of elements and the segments. So float sums are
    reproducible on a device.

    Parameters
    ----------
    context : pyopencl.Context
        Where it runs.
    spec : ScanSpec
        The elements and the operator, in C.
    lanes : int, optional
        Work-items of a work-group. Defaults to one on CPUs.

    Raises
    ------
    BuildError
        If the compiler rejects the operator's C.
    """

    def __init__(self, context: cl.Context, spec: ScanSpec, lanes: int | None = None) -> None:
        self._context, self._spec, self._lanes = context, spec, lanes
        # Devices of one context may need different work-groups, and kernels are compiled for a size.
        self._kernels: dict[int, dict[str, Kernel]] = {}  # by the work-items of a work-group
        for device in context.devices:
            self._on(device)

    def _on(self, device: cl.Device) -> tuple[int, dict[str, Kernel]]:
        """Return the work-group size on a device, and the kernels by name."""
        lanes, item = self._lanes, self._spec.item_bytes
        if lanes is None:
            is_cpu = device_kind(device) == "cpu"
            lanes = 1 if is_cpu else lanes_of(item, device.max_work_group_size, device.local_mem_size)
        if lanes not in self._kernels:
            self._kernels[lanes] = kernels_of(self._context, render_scan(self._spec, lanes))
        return lanes, self._kernels[lanes]

    def __call__(self, chain: Chain, size: int, arguments: Sequence[Any]) -> None:
        """Enqueue the scan of `size` elements; `arguments` are those of `ScanSpec`: arrays, memory and numbers."""
        if not size:
            return
        kernel_arguments = chain.placed(arguments)
        device, name, item = chain.queue.device, self._spec.name, self._spec.item_bytes
        lanes, kernels = self._on(device)
        # A single work-item walks through its share, so it needs no tile.
        tile = 1 if lanes == 1 else lanes * each_of(item)
        # Whole tiles for each work-group.
        share = tile * ceil(size / (tile * device.max_compute_units * _SHARES))
        groups, totals = ceil(size / share), None
        if groups > 1:  # totals of all shares but the last, and their scan, before each share is scanned
            totals, begins = chain.new((groups - 1) * item, np.uint8), chain.new(groups - 1, np.uint8)
            chain.run(kernels[f"{name}_totals"], groups - 1, lanes, [*kernel_arguments, size, share, totals, begins])
            chain.run(kernels[f"{name}_carries"], 1, lanes, [totals, begins, groups - 1])
        chain.run(kernels[name], groups, lanes, [*kernel_arguments, size, share, totals])
