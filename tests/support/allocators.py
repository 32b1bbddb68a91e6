"""Allocators for tests of memory that is short."""

from __future__ import annotations

import pyopencl as cl

from clhist._core.opencl.memory import immediate_allocator


class Limited:
    """An allocator of a device that has so many bytes for each array; knows what it was asked for."""

    def __init__(self, queue, most):
        self.own, self.most, self.asked = immediate_allocator(queue), most, []

    def __call__(self, size):
        self.asked.append(size)
        if size > self.most:
            raise cl.MemoryError("allocate", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)
        return self.own(size)
