"""`clhist info`: the OpenCL devices, the model's numbers for each, and what their hardware can update."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import click
import numpy as np
import pyopencl as cl

from clhist import __version__, operators
from clhist.cli.main import bytes_text, table
from clhist.errors import NoDeviceError, ProfileError
from clhist.hardware.atomics import native_atomic, native_table
from clhist.hardware.profile import matching
from clhist.hardware.profile_files import KINDS, LEVELS, PARAMETERS, ProfileFile, load_profiles, user_directory
from clhist.hardware.vendors import FEATURES, MEMORIES, VENDOR_PATHS
from clhist.opencl import device
from clhist.operators.operator import Operator
from clhist.planning.updates import available_updates

DTYPES = ("int32", "int64", "float32", "float64", "complex64", "complex128")
ATOMIC_DTYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64")
OPERATORS: Mapping[str, Callable[[str], Operator]] = {
    "add": operators.add,
    "multiply": operators.multiply,
    "minimum": operators.minimum,
    "maximum": operators.maximum,
    "fmin": operators.fmin,
    "fmax": operators.fmax,
    "bitwise_and": operators.bitwise_and,
    "bitwise_or": operators.bitwise_or,
    "bitwise_xor": operators.bitwise_xor,
    "logical_and": operators.logical_and,
    "logical_or": operators.logical_or,
    "logical_xor": operators.logical_xor,
    "saturating_add": partial(operators.saturating_add, maximum=255),
    "argmin": operators.argmin,
    "argmax": operators.argmax,
}

_LABELS = {
    "local_memory": "local memory (L)",
    "l2_cache": "L2 cache (L2)",
    "l2_line": "L2 line (L2_line)",
    "hardware_threads": "hardware threads (Thw)",
    "work_group_size": "work-group size (B)",
}

_WAYS = {path.feature: path.label for path in VENDOR_PATHS if path.label}

_LEGEND = (
    "native: a hardware atomic; cas: a loop of compare and exchange; lock: a spinlock for each bin; -: there is none. "
    "Unsigned integers are as signed ones, 8 and 16 bits as 32. A copy that is not shared needs none of them."
)

_WAYS_LEGEND = (
    f"yes: by OpenCL's core or extensions; {'; '.join(f'{p.label}: {p.source}' for p in VENDOR_PATHS if p.label)}. "
    "All but the first were tested on this device and gave right results. local, global: only there."
)

_PROFILES_LEGEND = (
    "L: bytes of local memory; L2, line: bytes of the last cache that all compute units share, and of its line; Thw: "
    "work-items resident at full occupancy; B: work-items of a work-group. /CU: for each compute unit; -: from another "
    "profile that matches, from the driver, or from the default. `--json` has the source of each number."
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--platform", metavar="P", help="Only devices of platforms whose name contains P.")
@click.option("--device", "device_name", metavar="D", help="Only devices whose name contains D.")
@click.option("--profiles", is_flag=True, help="List the profiles instead, yours and those that came with clhist.")
def info(as_json: bool, platform: str | None, device_name: str | None, profiles: bool) -> None:
    """Show the OpenCL devices and what clhist knows of them.

    For each: the numbers that the model needs and where they come from, the features and hardware atomics that it has,
    and the update that each ready-made operator gets. The best device comes first.

    \b
    Example: the devices of NVIDIA's driver, and what is known of others
      clhist info --platform NVIDIA
      clhist info --profiles
    """
    if profiles:
        files = load_profiles()
        click.echo(json.dumps(list(map(_profile_record, files)), indent=2) if as_json else show_profiles(files))
        return
    found = device.devices(platform, device_name)
    default, problem = _default_device()
    records = [describe(each, is_default=each == default) for each in found]
    if as_json:
        record = {"clhist": __version__, "pyopencl": cl.VERSION_TEXT, "devices": records, "default_problem": problem}
        click.echo(json.dumps(record, indent=2, allow_nan=False))
        return
    click.echo(f"clhist {__version__}, PyOpenCL {cl.VERSION_TEXT}")
    for each in records:
        click.echo("\n" + show(each))
    if problem:
        click.echo(f"\nno default device: {problem}")


def describe(dev: cl.Device, *, is_default: bool) -> dict[str, Any]:
    """Return all that is known of a device, as `clhist info --json` prints it."""
    profile, problem = device.own_profile(dev), None
    named = os.environ.get(device.PROFILE_VARIABLE) or None
    if named:
        try:
            profile = device.device_profile(dev)
        except ProfileError as error:
            problem = str(error)
    matched = matching(device.report(dev), load_profiles())
    features = profile.features or frozenset()
    return {
        "name": dev.name.strip(),
        "vendor": dev.vendor.strip(),
        "platform": dev.platform.name.strip(),
        "platform_version": dev.platform.version.strip(),
        "version": dev.version.strip(),
        "driver_version": dev.driver_version.strip(),
        "kind": device.device_kind(dev),
        "default": is_default,
        "problem": device.known_problem(dev),
        "compute_units": dev.max_compute_units,
        "global_memory": dev.global_mem_size,
        "memory_budget": device.memory_budget(dev),
        "profiles": [{"name": file.key, "level": file.level, "path": file.path} for file in matched],
        "named_profile": named,
        "profile_problem": problem,
        "parameters": {key: {"value": getattr(profile, key), "source": profile.sources[key]} for key in PARAMETERS},
        "features": {name: name in features for name in FEATURES},
        "native_atomics": native_atomics(features),
        "updates": updates(features),
    }


def native_atomics(features: Collection[str]) -> list[dict[str, str]]:
    """Return the hardware atomics of a device with these `features`: operation, dtype, memory, and by which way."""
    table = native_table(features)
    return [
        {"operation": operation, "dtype": dtype, "memory": memory, "way": table[operation, dtype, memory]}
        for operation, dtype, memory in product(OPERATORS, ATOMIC_DTYPES, MEMORIES)
        if (operation, dtype, memory) in table
    ]


def updates(features: Collection[str]) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return for each operator, dtype and memory the updates of shared copies that a device has, best first.

    A dtype for which there is no such operator is left out; one that the device lacks has no updates.
    """
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, ready in OPERATORS.items():
        found[name] = {}
        for dtype in DTYPES:
            try:
                operator = ready(dtype)
            except TypeError:
                continue
            lacking = operator.needs_fp64 and "fp64" not in features
            found[name][dtype] = {
                memory: [] if lacking else list(available_updates(operator, memory, features)) for memory in MEMORIES
            }
    return found


def show(record: Mapping[str, Any]) -> str:
    """Return the text for people of what `describe` found."""
    title = record["name"] + ("  [default]" if record["default"] else "")
    rows = [
        ("platform", record["platform"]),
        ("version", record["version"]),
        ("driver", record["driver_version"]),
        ("kind", record["kind"]),
        ("compute units", str(record["compute_units"])),
        ("global memory", f"{bytes_text(record['global_memory'])}; for copies {bytes_text(record['memory_budget'])}"),
    ]
    rows.append(("profiles", ", then ".join(f"{file['name']} ({file['level']})" for file in record["profiles"])))
    if record["named_profile"]:
        outcome = f"; not used: {record['profile_problem']}" if record["profile_problem"] else ", used instead"
        rows.append((device.PROFILE_VARIABLE, record["named_profile"] + outcome))
    head = f"{title}\n{'-' * len(title)}\n"
    if record["problem"]:
        return head + table([("does not work", record["problem"]), *rows])
    return "\n".join(
        [
            head + table(rows),
            "\n  The model's numbers",
            table([_parameter(key, **found) for key, found in record["parameters"].items()], indent=4),
            "\n  Features",
            table([(_yes(has), name, FEATURES[name]) for name, has in record["features"].items()], indent=4),
            "\n  Hardware atomics, in local and global memory (unsigned as signed)",
            table(_atomics_rows(record["native_atomics"]), indent=4),
            table([(_WAYS_LEGEND,)], indent=4),
            "\n  Best update of a copy that work-items share (local/global memory if two are given)",
            table(_update_rows(record["updates"]), indent=4),
            table([(_LEGEND,)], indent=4),
        ]
    )


def show_profiles(files: Sequence[ProfileFile]) -> str:
    """Return the tables of `files`, one for each level and kind."""
    letters = [meaning.partition(":")[0].replace("L2_line", "line") for meaning in PARAMETERS.values()]
    sections = [f"{len(files)} profiles; your own (*) go into {user_directory()}"]
    for kind, level in product(KINDS, LEVELS):
        rows = [
            [
                file.key + " *" * (not file.is_shipped),
                *(_number_text(file, key) for key in PARAMETERS),
                "  ".join(file.match) or "-",
            ]
            for file in files
            if (file.kind, file.level) == (kind, level)
        ]
        if rows:
            title = f"{kind.upper()}s, level {level}"
            sections.append(f"{title}\n" + table([["", *letters, "matches"], *rows], right=range(1, 6)))
    return "\n\n".join([*sections, table([(_PROFILES_LEGEND,)])])


def _number_text(file: ProfileFile, key: str) -> str:
    if key not in file.values:
        return "-"
    how, number, _ = file.values[key]
    text = f"{number:,}"
    if "bytes" in PARAMETERS[key] and number >= 1024:
        text = f"{number / 2**20:.4g}M" if number >= 2**20 else f"{number / 2**10:.4g}K"
    return text + "/CU" * (how == "per_compute_unit")


def _profile_record(file: ProfileFile) -> dict[str, Any]:
    return {
        "name": file.key,
        "title": file.name,
        "path": file.path,
        "kind": file.kind,
        "level": file.level,
        "match": list(file.match),
        "parameters": {key: {how: number, "source": source} for key, (how, number, source) in file.values.items()},
        "features": None if file.features is None else sorted(file.features),
    }


def _parameter(key: str, value: int, source: str) -> tuple[str, str, str]:
    items = f"{value:,} work-item{'s' if value > 1 else ''}"
    return _LABELS[key], bytes_text(value) if "bytes" in PARAMETERS[key] else items, source


def _yes(has: bool) -> str:
    return "yes" if has else "no"


def _atomics_rows(native: list[dict[str, str]]) -> list[list[str]]:
    shown = [dtype for dtype in ATOMIC_DTYPES if not dtype.startswith("u")]
    ways: dict[tuple[str, str], dict[str, str]] = {}
    for found in native:
        ways.setdefault((found["operation"], found["dtype"]), {})[found["memory"]] = found["way"]

    def cell(operation: str, dtype: str) -> str:
        if not any(native_atomic(operation, np.dtype(dtype), memory) for memory in MEMORIES):
            return "-"
        where = ways.get((operation, dtype), {})
        words = dict.fromkeys(_WAYS.get(way, "yes") for way in where.values())
        return "/".join(words) + (f" {next(iter(where))}" if len(where) == 1 else "") if where else "no"

    rows = [[operation, *(cell(operation, dtype) for dtype in shown)] for operation in OPERATORS]
    return [["", *shown], *(row for row in rows if set(row[1:]) != {"-"})]


def _update_rows(found: dict[str, dict[str, dict[str, list[str]]]]) -> list[list[str]]:
    def cell(available: dict[str, list[str]] | None) -> str:
        if available is None:
            return "-"
        best = [choices[0] if choices else "no" for choices in available.values()]
        return "/".join(dict.fromkeys(best))

    return [["", *DTYPES], *([name, *(cell(of.get(dtype)) for dtype in DTYPES)] for name, of in found.items())]


def _default_device() -> tuple[cl.Device | None, str | None]:
    """Return the device that calls without a queue use, or why there is none."""
    try:
        return device.default_queue().device, None
    except (NoDeviceError, cl.Error) as error:
        return None, str(error)
