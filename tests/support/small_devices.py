"""Devices that have less than the one that runs the tests: it is presented as one, and held to what it presents.

PyOpenCL's properties of devices are replaced for as long, so that everything that asks a device gets these answers.
Kernels still run on the device, so each program is searched for what a small device lacks, and each launch measured.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any
from unittest.mock import patch

import pyopencl as cl

import clhist
from clhist._core.opencl import device as opencl_device
from clhist._core.opencl.program import forget_contexts

_PLAIN = "cl_khr_global_int32_base_atomics cl_khr_local_int32_base_atomics cl_khr_byte_addressable_store"
_INT64 = "cl_khr_int64_base_atomics cl_khr_int64_extended_atomics"
_GPU: dict[str, Any] = {"type": cl.device_type.GPU, "extensions": f"{_PLAIN} {_INT64} cl_khr_fp64"}

# What each small device presents; the names say what it lacks.
SMALL_DEVICES: dict[str, dict[str, Any]] = {
    "no double precision": {**_GPU, "extensions": f"{_PLAIN} {_INT64}", "double_fp_config": 0},
    "no 64-bit atomics": {**_GPU, "extensions": f"{_PLAIN} cl_khr_fp64"},
    "32 KiB of local memory": {**_GPU, "local_mem_size": 32 << 10},
    "16 KiB of local memory": {**_GPU, "local_mem_size": 16 << 10},
    "work-groups of 64": {**_GPU, "max_work_group_size": 64},
    "no reported cache": {**_GPU, "global_mem_cache_size": 0, "global_mem_cacheline_size": 0},
    "one compute unit": {**_GPU, "max_compute_units": 1},
    "addresses of 32 bits": {**_GPU, "address_bits": 32},
}
SMALL_DEVICES["all of these"] = {
    **{key: value for presented in SMALL_DEVICES.values() for key, value in presented.items()},
    "extensions": _PLAIN,
    "opencl_c_version": "OpenCL C 1.2 ",
}

_DOUBLE, _ATOMIC64 = re.compile(r"\bdouble\d*\b"), re.compile(r"\batom_\w+\(")
_COMMENT = re.compile(r"//.*|/\*.*?\*/", re.DOTALL | re.MULTILINE)


class Launches:
    """What was launched on a small device: how many kernels."""

    def __init__(self) -> None:
        self.number = 0


@contextmanager
def small_device(name: str, device: cl.Device) -> Iterator[tuple[cl.CommandQueue, Launches]]:
    """Present `device` as the one of this name; gives a queue of a new context, and counts launches.

    Raises
    ------
    AssertionError
        At a program or launch that the small device could not run.
    """
    presented, launches = SMALL_DEVICES[name], Launches()
    with _presented(presented), _held_to(presented, launches), opencl_device.default_device(device):
        yield clhist.default_queue(), launches


@contextmanager
def _presented(presented: dict[str, Any]) -> Iterator[None]:
    before = {key: getattr(cl.Device, key) for key in presented}
    try:
        for key, value in presented.items():
            setattr(cl.Device, key, property(lambda self, value=value: value))
        _forget()
        yield
    finally:
        for key, attribute in before.items():
            setattr(cl.Device, key, attribute)
        _forget()


def _forget() -> None:
    """Forget all that was asked of devices, planned and compiled."""
    clhist.clear_caches()
    forget_contexts()
    opencl_device._features.clear()
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "clhist"]
    for value in [value for module in modules for value in vars(module).values()]:
        if isinstance(value, functools._lru_cache_wrapper):
            value.cache_clear()


@contextmanager
def _held_to(presented: dict[str, Any], launches: Launches) -> Iterator[None]:
    program, enqueue = cl.Program, cl.enqueue_nd_range_kernel

    def checked_program(context: cl.Context, source: Any, *more: Any) -> cl.Program:
        text = _COMMENT.sub("", source) if isinstance(source, str) and "clhist" in source else ""
        if "cl_khr_fp64" not in presented["extensions"]:
            assert not _DOUBLE.search(text), "a kernel uses double precision"
        if "cl_khr_int64" not in presented["extensions"]:
            assert not _ATOMIC64.search(text), "a kernel uses 64-bit atomics"
        return program(context, source, *more)

    def checked_enqueue(queue: cl.CommandQueue, kernel: cl.Kernel, size: Any, group: Any, *more: Any, **by_name: Any):
        launches.number += 1
        if "max_work_group_size" in presented and group is not None:
            assert prod(group) <= presented["max_work_group_size"], f"a work-group of {group}"
        if "local_mem_size" in presented:
            local = kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, queue.device)
            assert local <= presented["local_mem_size"], f"{local} bytes of local memory"
        return enqueue(queue, kernel, size, group, *more, **by_name)

    with patch.object(cl, "Program", checked_program), patch.object(cl, "enqueue_nd_range_kernel", checked_enqueue):
        yield
