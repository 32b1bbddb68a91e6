"""Rates of a device that was not measured: those of the nearest measured one, scaled. Pure.

Note [Scaled rates], docs/decisions/0004.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from math import log
from typing import NamedTuple

from clhist._core.devices.profile import BORROWED, Profile
from clhist._core.devices.profile_files import ProfileFile, parse_profile
from clhist._core.devices.vendors import MEMORIES
from clhist._core.model import times
from clhist._core.model.workload import Workload

MEASURED = ("nvidia-h100", "nvidia-h200")  # the shipped profiles of GPUs with all rates
_USUAL_THREADS = 2048  # of a compute unit, where its number is not known
_LAUNCHES = (times.SHORT, times.LAUNCH, times.WAIT)
_MEMORY = (times.BANDWIDTH, times.ROWS_GATHERED, *times.VALUES.values())
_COMPUTE = (times.CELLS, times.ROWS_PLACED, times.ROWS_AT_ONCE)
_UPDATES_IN_CACHE = (times.EVERYWHERE, times.PASS_ASIDE, times.PASS_DEALT, *times.PACKED_ASIDE.values())
_UPDATES_OF_ELEMENTS = (times.ONE_PASS, times.FURTHER_PASS, times.PARTITIONED, *times.PACKED.values())
_ELEMENT_BYTES = 4  # that a measured sweep reads of an element: its bin


class Rates(NamedTuple):
    """The rates that a device is planned with.

    Attributes
    ----------
    values : mapping of str to float
        By the names of `clhist._core.model.times`.
    source : str
        Where those come from that were not measured on the device; empty if all were.
    """

    values: Mapping[str, float]
    source: str


@lru_cache(maxsize=64)
def rates_of(profile: Profile) -> Rates:
    """Return the measured rates of a device, and for those that it lacks the scaled ones of the nearest device."""
    if profile.kind == "cpu":  # a CPU has the rates of its family, whose cores are alike enough
        source = profile.sources.get("rates", "")
        return Rates(profile.rates, source if source.endswith(BORROWED) else "")
    # A measured device that lacks a rate gets it from another one, and from its own file only what no other has.
    nearest, *further = sorted(_measured(), key=lambda file: (file.name == profile.name, _distance(profile, file)))
    scaled = _scaled(profile, nearest)
    for file in further:
        scaled = _scaled(profile, file) | scaled
    missing = scaled.keys() - profile.rates.keys()
    if not missing:
        return Rates(profile.rates, "")
    memory, compute = _ratios(profile, nearest)
    some = "" if len(missing) == len(scaled) else f"{len(missing)} of {len(scaled)} "
    source = f"{some}scaled from {nearest.name} by {memory:.3g} (bandwidth) and {compute:.3g} (compute units x clock)"
    return Rates({**scaled, **profile.rates}, source)


@lru_cache(maxsize=1)
def _measured() -> tuple[ProfileFile, ...]:
    folder = resources.files("clhist.devices")
    names = (f"{name}.toml" for name in MEASURED)
    return tuple(parse_profile((folder / name).read_text(encoding="utf-8"), f"devices/{name}") for name in names)


def _distance(profile: Profile, file: ProfileFile) -> float:
    memory, compute = _ratios(profile, file)
    # Logarithms make half as fast as far away as twice as fast.
    return abs(log(memory)) + abs(log(compute))


def _ratios(profile: Profile, file: ProfileFile) -> tuple[float, float]:
    """Return the bandwidth, and the compute units x clock, divided by those of a measured device."""
    sheet, other = profile.data_sheet, file.data_sheet
    units = sheet.get("compute_units") or profile.hardware_threads / _USUAL_THREADS
    compute = units * sheet.get("clock", other["clock"]) / (other["compute_units"] * other["clock"])
    memory = compute  # as much for each compute unit, unless known
    # A bandwidth that was measured on both devices is better than that of data sheets.
    if times.BANDWIDTH in profile.rates:
        memory = profile.rates[times.BANDWIDTH] / file.rates[times.BANDWIDTH]
    elif "bandwidth" in sheet:
        memory = sheet["bandwidth"] / other["bandwidth"]
    return memory, compute


def _scaled(profile: Profile, file: ProfileFile) -> dict[str, float]:
    """Return the rates of `file` as the device of `profile` would have them.

    A rate of whole sweeps is limited by memory as far as it is near to reading, else by compute units.
    """
    memory, compute = _ratios(profile, file)
    reading = times.SWEEP_READING * file.rates[times.BANDWIDTH] / _ELEMENT_BYTES
    scaled = {}
    for name, rate in file.rates.items():
        # Names are "kind, way", but the name of cyclic passes has a comma itself.
        _, _, way = name.rpartition(", ") if not name.endswith(times.PASS_DEALT) else ("", "", times.PASS_DEALT)
        if name in _LAUNCHES:
            scaled[name] = rate
        elif name in _MEMORY:
            scaled[name] = rate * memory
        elif name in _COMPUTE or way in _UPDATES_IN_CACHE:
            scaled[name] = rate * compute
        elif way in _UPDATES_OF_ELEMENTS:
            # A weighted geometric mean: at the rate of plain reading, only the bandwidth counts.
            share = min(1.0, rate / reading)
            scaled[name] = rate * memory**share * compute ** (1 - share)
    return scaled


def times_of(load: Workload) -> dict[str, times.Times]:
    """Return the rates, measured or scaled, of the updates of `load`, for each memory."""
    updates = (load.local_update, load.global_update)
    return {
        memory: times.Times(
            rates_of(load.profile).values,
            (times.COUNT,) if load.counts else kinds,
            load.element_bytes(update)[0],
            load.value_bytes,
            load.read_bytes,
            load.max_pairs,
        )
        for memory, kinds, update in zip(MEMORIES, load.rate_kinds, updates, strict=True)
    }
