"""The output of `clhist bench`: the device, the table, and everything as JSON."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import clhist
from benchmarks.lab import Lab, Row
from benchmarks.suite import Column, Request, op_text
from clhist._core.devices.profile_files import PARAMETERS
from clhist.cli.tables import bytes_text, grid

_PACKAGES = ("numpy", "pyopencl", "numba", "boost-histogram", "pandas", "scipy", "torch", "cupy", "jax")
_LEFT = ("op", "plan", "update", "memory", "function", "arrays", "bins are", "implementation", "strategy")
_KEYS = ("op", "H", "RF", "function", "arrays", "bins are", "implementation", "strategy")  # what tells rows apart


def header(lab: Lab, request: Request) -> str:
    """Return the device, the versions and the input of a run."""
    device = lab.device
    return (
        f"{request.num_elements:,} elements on {device.name.strip()} ({_version(lab)}, driver "
        f"{device.driver_version.strip()}), {device.max_compute_units} compute units\n"
        f"profile {lab.profile.name}, last-level cache {bytes_text(lab.profile.l2_cache)}\n"
        f"host {processor()}, {os.cpu_count()} threads"
    )


def _version(lab: Lab) -> str:
    return lab.device.platform.version.strip().partition("  ")[0]  # PoCL goes on with how it was built


def processor() -> str:
    """Return the name of the host's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table_text(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return the table, in the order of operators, race factors and bins."""
    operations = list(dict.fromkeys(map(_operation, rows)))
    ordered = sorted(  # they were measured input by input
        rows,
        key=lambda row: (
            operations.index(_operation(row)),
            row["plan"]["memory"] if "fixed" in row else "",
            row.get("race_factor", 1),
        ),
    )
    names = [name for name, _ in columns]
    lines = [names, *([show(row) for _, show in columns] for row in ordered)]
    keys = next((n for n, name in enumerate(names) if name not in _KEYS), len(names))
    return grid(lines, left=[n for n, name in enumerate(names) if name in _LEFT], indent=2, keys=max(1, keys))


def _operation(row: Row) -> str:
    return op_text(row) if "op" in row else ""


def line_text(row: Row, columns: Sequence[Column]) -> str:
    """Return one row of the table as a line of its own, numbers with the names of their columns."""
    cells = [(name, show(row)) for name, show in columns]
    shown = [cell if name in _LEFT else f"{name} {cell}" for name, cell in cells if cell != "-"]
    return ", ".join([*shown, row["note"]] if "note" in row else shown)


def notes(rows: Sequence[Row]) -> list[str]:
    """Return a line for each row that has something to say: why it was not timed."""
    words = ("implementation", "function", "arrays", "op", "update", "distribution")
    return [
        ", ".join([op_text(row) if word == "op" else str(row[word]) for word in words if word in row])
        + f", H = {row['num_bins']:,}"
        + (f", RF {row['race_factor']}" if "race_factor" in row else "")
        + f": {row['note']}"
        for row in rows
        if "note" in row
    ]


def floors(rows: Sequence[Row]) -> list[str]:
    """Return a line for each number of bytes of which F was measured."""
    measured: dict[int, list[float]] = {}
    for row in rows:
        if "floor" in row:
            measured.setdefault(row["bytes"], []).append(row["floor"]["median"])
    warm = any(not row.get("is_cold", True) for row in rows)
    note = (
        ["The inputs stay in the cache, so F and all times are those of the cache: give a larger -n."] if warm else []
    )
    return note + [
        f"F, reading {nbytes / 1e6:,.4g} MB once: {min(seconds) * 1e6:,.1f} to {max(seconds) * 1e6:,.1f} µs "
        f"(up to {nbytes / min(seconds) / 1e9:,.1f} GB/s)"
        for nbytes, seconds in sorted(measured.items())
    ]


def record(suite: str, lab: Lab, request: Request, rows: Sequence[Row], *, complete: bool) -> dict[str, Any]:
    """Return everything, for JSON."""
    device = lab.device
    return {
        "suite": suite,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": complete,
        "device": {
            "name": device.name.strip(),
            "vendor": device.vendor.strip(),
            "platform": device.platform.name.strip(),
            "version": device.platform.version.strip(),
            "driver": device.driver_version.strip(),
            "compute_units": device.max_compute_units,
            "memory": device.global_mem_size,
        },
        "host": {"processor": processor(), "threads": os.cpu_count()},
        "profile": {key: getattr(lab.profile, key) for key in ("name", "kind", *PARAMETERS)},
        "versions": _versions(),
        "num_elements": request.num_elements,
        "bins": list(request.bins),
        "operations": list(request.operations),
        "race_factors": list(request.race_factors),
        "rows": list(rows),
    }


def _versions() -> dict[str, str]:
    versions = {"clhist": clhist.__version__, "python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        module = name.replace("-", "_")
        if module in sys.modules:
            versions[name] = getattr(importlib.import_module(module), "__version__", None) or metadata.version(name)
    return versions
