"""Calibrating a device: what was measured becomes a profile, as far as it is plausible.

An implausible number is refused in favour of the one that a shipped profile or the driver has, and the profile says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.devices.profile_files import PARAMETERS, exactly, parse_profile, usable_profiles, user_directory
from clhist._core.opencl.device import device_kind, own_profile, trust
from clhist.calibration import measure
from clhist.calibration.cpu_rates import cpu_rates
from clhist.calibration.host_sizes import host_sizes
from clhist.calibration.measure import MIB, Bench, Measurement
from clhist.calibration.rates import plan_rates
from clhist.calibration.row_rates import row_rates

# What a measured number may be; beyond it the measurement is taken for wrong.
_MOST_LOCAL_MEMORY = MIB
_LINES = (32, 64, 128, 256)  # bytes
_CACHES = (64 * 1024, 4096 * MIB)  # bytes, at least and at most
# Largest ratio to the number in a shipped profile of the same device or architecture, or to an earlier measurement.
_FACTOR = 2.0


@dataclass(frozen=True)
class Finding:
    """One number of a profile after calibration.

    Attributes
    ----------
    key : str
        Of `clhist._core.devices.profile_files.PARAMETERS`.
    value : int
        What the profile has from now on.
    source : str
        Where it comes from.
    measured : Measurement or None
        What was measured, if anything.
    refused : str
        Why the measurement was not taken; empty if it was.
    """

    key: str
    value: int
    source: str
    measured: Measurement | None
    refused: str = ""


@dataclass(frozen=True)
class Calibration:
    """All that was found out about one device.

    Attributes
    ----------
    name, kind, driver : str
        The device's.
    findings : tuple of Finding
        The numbers of the model.
    rates : dict of str to Measurement
        What else was measured: bandwidth, cost of a launch, rates of updates.
    """

    name: str
    kind: str
    driver: str
    findings: tuple[Finding, ...]
    rates: dict[str, Measurement]

    @property
    def file_name(self) -> str:
        """The name of the profile's file."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") + ".toml"

    def toml(self) -> str:
        """Return the profile as text; `clhist._core.devices.profile_files.parse_profile` reads it."""
        lines = [
            f"name = {json.dumps(self.name)}",
            f"kind = {json.dumps(self.kind)}",
            f"match = [{json.dumps(exactly(self.name))}]",
        ]
        for finding in self.findings:
            lines += ["", f"[{finding.key}]", f"value = {finding.value}", f"source = {json.dumps(finding.source)}"]
        for name, rate in self.rates.items():
            lines += [
                "",
                f"[measured.{json.dumps(name)}]",
                f"value = {rate.value!r}",
                f"unit = {json.dumps(rate.unit)}",
            ]
            lines += [f"spread = {rate.spread!r}", f"method = {json.dumps(rate.method)}"]
            lines += [f"date = {json.dumps(date.today().isoformat())}", f"driver = {json.dumps(self.driver)}"]
        text = "\n".join(lines) + "\n"
        # Check that the written profile can be read.
        parse_profile(text, self.file_name)
        return text

    def write(self, path: Path | None = None) -> Path:
        """Write the profile to `path`, or into the user's directory of profiles, and return where it is."""
        path = path or user_directory() / self.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.toml(), encoding="utf-8")
        return path


def calibrate(
    device: cl.Device, *, quick: bool = False, progress: Callable[[str], None] = lambda stage: None
) -> Calibration:
    """Measure `device`: under two minutes on a GPU, under 20 seconds on a CPU, less if `quick`.

    Parameters
    ----------
    device : pyopencl.Device
        Should have nothing else to do.
    quick : bool
        Fewer runs over smaller arrays.
    progress : callable
        Called with the name of each of `stages_of` the device when it begins.

    Returns
    -------
    Calibration
        `write` makes it the device's profile.
    """
    bench, before = Bench.of(device, quick=quick), own_profile(device)
    is_cpu = device_kind(device) == "cpu"
    stages = _stages(bench)
    measured: dict[str, Measurement] = {}
    # The last stage plans with the numbers of all others.
    for stage in stages_of(device)[:-1]:
        progress(stage)
        measured |= stages[stage]()
    driver = f"{device.platform.name.strip()} {device.driver_version.strip()}"
    findings = tuple(_finding(key, measured.get(key), before, device, driver) for key in PARAMETERS)
    progress(STAGES[-1])
    # Planned as it will be: with more local memory than before there are fewer partitions.
    numbers: dict[str, Any] = {finding.key: finding.value for finding in findings}
    planned_with = trust(replace(before, rates={}, **numbers))
    measured |= cpu_rates(bench, planned_with) if is_cpu else plan_rates(bench, planned_with)
    measured |= row_rates(bench, planned_with)
    rates = {name: measurement for name, measurement in measured.items() if name not in PARAMETERS}
    return Calibration(device.name.strip(), device_kind(device), driver, findings, rates)


STAGES = (
    "local memory",
    "bandwidth",
    "last-level cache",
    "cache line",
    "resident work-items",
    "launch",
    "updates",
    "NumPy arrays",
    "plans",
)
# A CPU's local memory is its ordinary one, and its private copies share neither cache lines nor atomics.
CPU_STAGES = ("bandwidth", "launch", "NumPy arrays", "plans")


def stages_of(device: cl.Device) -> tuple[str, ...]:
    """Return the names of what is measured, in order."""
    return CPU_STAGES if device_kind(device) == "cpu" else STAGES


def _stages(bench: Bench) -> dict[str, Callable[[], dict[str, Measurement]]]:
    device = bench.device
    memory, reported = device.global_mem_size, device.local_mem_size
    return {
        "local memory": lambda: {
            "local_memory": measure.local_memory(bench, reported, _MOST_LOCAL_MEMORY),
            "local memory as an argument": measure.local_argument(bench, reported),
        },
        "bandwidth": lambda: {"bandwidth": measure.bandwidth(bench, memory)},
        "last-level cache": lambda: {"l2_cache": last_level_cache(bench)},
        "cache line": lambda: {"l2_line": measure.line(bench, memory)},
        "resident work-items": lambda: {"hardware_threads": measure.residents(bench)},
        "launch": lambda: {"launch": measure.launch(bench)},
        "updates": lambda: measure.update_rates(bench),
        "NumPy arrays": lambda: host_sizes(bench),
    }


def last_level_cache(bench: Bench) -> Measurement:
    """Return the size of the last-level cache: the knee of the rate of atomic updates over growing working sets."""
    most = min(1024 * MIB, bench.device.global_mem_size // 8, bench.device.max_mem_alloc_size)
    # Working sets in geometric steps, up to what a buffer may have and far beyond any cache.
    sweep = measure.cache_sweep(bench, _sizes(MIB // 4, most, steps=1 if bench.quick else 2))
    rates = [rate for _, rate in sweep]
    fall = max(rates) / rates[-1]
    method = f"knee of random atomic updates of {len(sweep)} working sets, which fall {fall:.1f} times"
    # Without a clear fall all working sets fit the cache, or none: 0 stands for no knee.
    return Measurement(measure.knee(sweep) if fall >= 1.5 else 0, "bytes", 0.0, method)


def _sizes(least: int, most: int, steps: int) -> Iterator[int]:
    k = 0
    while least * 2 ** (k / steps) <= most:
        yield int(least * 2 ** (k / steps)) // 64 * 64
        k += 1


def _finding(key: str, measured: Measurement | None, before: Profile, device: cl.Device, driver: str) -> Finding:
    current, source = getattr(before, key), before.sources[key]
    if measured is None:
        return Finding(key, current, source, None)
    reason = _implausible(key, measured.value, current, source, device)
    how = f"{measured.method}, {date.today().isoformat()}, {driver}"
    if reason:
        text = f"{source} (measured {measured.value:.0f} on {date.today().isoformat()} was refused: {reason})"
        return Finding(key, current, text, measured, reason)
    return Finding(key, int(measured.value), f"measured: {how}", measured)


def _implausible(key: str, value: float, current: int, source: str, device: cl.Device) -> str:
    """Return why a measured number is not to be believed, or nothing."""
    if key == "local_memory" and value < 0.9 * device.local_mem_size:
        return f"less than the {device.local_mem_size} bytes that the driver reports"
    if key == "l2_cache":
        if value == 0:
            return "no knee: updates of large working sets are hardly slower than of small ones"
        if not _CACHES[0] <= value <= _CACHES[1]:
            return f"expected {_CACHES[0]} to {_CACHES[1]} bytes"
    if key == "l2_line":
        if value not in _LINES:
            return f"expected one of {', '.join(map(str, _LINES))} bytes"
        return "" if value == current else f"memory is fetched in other units than the cache's lines of {current} bytes"
    if key == "hardware_threads" and value < device.max_compute_units * 32:
        return f"fewer than 32 for each of {device.max_compute_units} compute units"
    if key != "local_memory" and not current / _FACTOR <= value <= current * _FACTOR:
        path = _file_of_device(source)
        return f"more than {_FACTOR:g} times off the {current} of {path}" if path else ""
    return ""


def _file_of_device(source: str) -> str:
    """Return the path of the profile that `source` names, if its number is a bound for measurements; else ""."""
    # Vendors and defaults have the least of many devices; a driver may report another cache than the last-level one.
    for file in usable_profiles():
        if source.startswith(f"{file.path}: "):
            is_measured = source.startswith("measured", len(file.path) + 2)
            is_known = file.is_shipped and file.level in ("device", "architecture")
            return file.path if is_measured or is_known else ""
    return ""
