"""Faults of drivers that end the process: each is tried in a child process, once for a device and its driver.

Only platforms for which `clhist._core.devices.vendors` has a record are tried.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from functools import lru_cache
from pathlib import Path

import pyopencl as cl

from clhist._core.devices.vendors import Fault, faults_to_try
from clhist.files.sealed import read_measurement, write_measurement

_SECONDS = 60.0  # llvmpipe compiles such a kernel in 0.1 s; ten times longer on a busy machine
_log = logging.getLogger("clhist")
# The child says "begins" once the device is set up: what goes wrong before is no fault of the kernel.
_BEGINS, _RIGHT = "begins", "right"
_CHILD = """
import sys, json, numpy as np, pyopencl as cl
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, OSError, ValueError):
    pass
wanted = json.load(sys.stdin)
context = cl.Context([next(
    device for platform in cl.get_platforms() if platform.name == wanted["platform"]
    for device in platform.get_devices() if [device.name, device.driver_version] == wanted["device"]
)])
queue = cl.CommandQueue(context)
words = np.zeros(64, np.int32)
words[0] = wanted["first"]
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=words)
print("begins", flush=True)
cl.Program(context, wanted["source"]).build().clhist_fault(queue, (1,), (1,), buffer)
cl.enqueue_copy(queue, words, buffer)
print("right" if words[1] == wanted["second"] else "wrong", flush=True)
"""


@lru_cache(maxsize=64)
def faults_of(device: cl.Device) -> tuple[Fault, ...]:
    """Return the faults that `device` showed in a child process, now or in an earlier process."""
    return tuple(fault for fault in faults_to_try(device.platform.name, device.name) if _is_shown(device, fault))


def _is_shown(device: cl.Device, fault: Fault) -> bool:
    # Another driver, or another kernel, is tried anew.
    driver = [device.platform.version, device.driver_version, device.name]
    facts = [driver, fault.source, fault.first, fault.second]
    outcome = read_measurement("faults", facts)
    if outcome is None:
        outcome = _tried(device, fault)
        # Nothing is stored without an outcome: the next process tries again.
        if outcome is None:
            return False
        write_measurement("faults", facts, outcome)
        if outcome:
            warnings.warn(
                f"{device.name.strip()} (driver {device.driver_version.strip()}): {fault.words}; {outcome}. "
                f"{fault.consequence}",
                RuntimeWarning,
                stacklevel=2,
            )
    if outcome:
        _log.info("%s: %s; %s. %s", device.name.strip(), fault.words, outcome, fault.consequence)
    return bool(outcome)


def _tried(device: cl.Device, fault: Fault) -> str | None:
    """Return how a child process that ran the kernel ended, nothing if it was right, None if it could not be run."""
    if not Path(sys.executable or "").name.startswith("python"):  # a program with Python inside would start again
        return None
    wanted = {
        "platform": device.platform.name,
        "device": [device.name, device.driver_version],
        "source": fault.source,
        "first": fault.first,
        "second": fault.second,
    }
    # The child finds PyOpenCL where this process does, and compiles anew.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYOPENCL_NO_CACHE": "1"}
    try:
        child = subprocess.run(
            [sys.executable, "-c", _CHILD],
            input=json.dumps(wanted),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired as error:
        begun = _BEGINS in _text(error.stdout)
        return f"a kernel in another process took more than {_SECONDS:g} s" if begun else None
    said = child.stdout.split()
    if _BEGINS not in said:
        return None
    if _RIGHT in said:
        return ""
    # The kernel ran to its end, with another result.
    if said[-1] != _BEGINS:
        return "a kernel in another process was wrong"
    return f"a kernel ended another process with status {child.returncode}"


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
