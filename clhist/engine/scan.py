"""Segmented scans on a device."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.codegen.render import render_scan
from clhist.codegen.scan import ScanSpec, each_of, lanes_of
from clhist.engine.chain import Chain
from clhist.opencl.device import device_kind
from clhist.opencl.program import kernels_of

_SHARES = 8  # for each compute unit


class Scan:
    """An inclusive scan of elements in segments.

    What is combined with what depends on the device, the number of elements and the segments alone.

    Parameters
    ----------
    context : pyopencl.Context
        Where it runs.
    spec : ScanSpec
        What it combines.
    lanes : int, optional
        Work-items of a work-group. Defaults to one on CPUs.

    Raises
    ------
    BuildError
        If the compiler refuses it.
    """

    def __init__(self, context: cl.Context, spec: ScanSpec, lanes: int | None = None) -> None:
        if lanes is None:
            lanes = min(
                1
                if device_kind(each) == "cpu"
                else lanes_of(spec.item_bytes, each.max_work_group_size, each.local_mem_size)
                for each in context.devices
            )
        self._spec, self._lanes = spec, lanes
        self._tile = 1 if lanes == 1 else lanes * each_of(spec.item_bytes)
        self._kernels = kernels_of(context, render_scan(spec, lanes))

    def __call__(self, chain: Chain, size: int, arguments: Sequence[Any]) -> None:
        """Enqueue it for so many elements; arguments are arrays, memory and numbers."""
        if not size:
            return
        given: list[Any] = []
        for each in arguments:
            given += [each] if isinstance(each, int | float | np.generic) else chain.place(each)
        share = self._tile * ceil(size / (self._tile * chain.queue.device.max_compute_units * _SHARES))
        groups, name = ceil(size / share), self._spec.name
        totals = None
        if groups > 1:
            totals = chain.new((groups - 1) * self._spec.item_bytes, np.uint8)
            begins = chain.new(groups - 1, np.uint8)
            chain.run(
                self._kernels[f"{name}_totals"], groups - 1, self._lanes, [*given, size, share, totals, begins]
            )
            chain.run(self._kernels[f"{name}_carries"], 1, self._lanes, [totals, begins, groups - 1])
        chain.run(self._kernels[name], groups, self._lanes, [*given, size, share, totals])
