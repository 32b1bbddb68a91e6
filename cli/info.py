"""`clhist info`: the OpenCL devices, the model's numbers for each, and what their hardware can update."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from math import ceil
from typing import Any

import click
import numpy as np
import pyopencl as cl

from clhist import __version__, operators
from clhist._core.devices.profile import Profile, matching, named_profile
from clhist._core.devices.profile_files import KINDS, LEVELS, PARAMETERS, ProfileFile, usable_profiles, user_directory
from clhist._core.devices.vendors import FEATURES, MEMORIES, VENDOR_PATHS, native_atomic, native_table
from clhist._core.model.scaling import rates_of
from clhist._core.model.updates import available_updates
from clhist._core.opencl import device
from clhist._core.opencl.cuda_queues import cuda_words
from clhist._core.opencl.icd import library_of, registered_by
from clhist._core.runtime.small import COSTS, least_size
from clhist.cli.console import Console, shared_options
from clhist.cli.tables import bytes_text, grid, table, text_width, wrapped
from clhist.errors import NoDeviceError, ProfileError
from clhist.operators.operator import Operator

MEASURED = "measured on the device"
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
    "native: hardware atomic; cas: compare-exchange loop; lock: one spinlock per bin; -: no such operator. Unsigned "
    "integers are like signed ones, 8 and 16 bits like 32. A copy that is not shared needs no update."
)

_WAYS_LEGEND = (
    f"yes: OpenCL core or extension; {'; '.join(f'{p.label}: {p.source}' for p in VENDOR_PATHS if p.label)}. "
    "All but the first were tested on this device and were right. local, global: only in this memory."
)

_CALLS = {
    "1 dimension": "histogram",
    "rule": "histogram, with bins by a rule",
    "edges": "histogram, with edges",
    "digitize": "digitize, elements x log2(edges)",
    "2 dimensions": "histogram2d, histogramdd",
    "binned_statistic": "clhist.stats",
    "unique": "unique, factorize",
    "distinct": "unique, values alone",
    "factorize": "unique, factorize of integers, with pandas imported",
    "unique, of a device": "unique, factorize, of arrays of the device",
    "distinct, of a device": "unique, values alone, of floats of the device",
    "factorize, of a device": "unique, factorize of integers of the device, with pandas imported",
    "group_by": "group_by, ndimage, zonal_stats",
    "running": "group_by: cumsum, cumprod, cummin, cummax",
    "rank": "group_by: rank",
    "ndimage": "ndimage: sums, means and variances, with SciPy",
    "tensors": "clhist.torch on the CPU",
    "boost-histogram": "clhist.hist",
    "boost-histogram, means": "clhist.hist: storages Mean and WeightedMean",
}  # by the names of `clhist._core.runtime.small.COSTS`, where these are not the functions'

_PROFILES_WIDTH = 80  # that a table of them needs
_PROFILES_LEGEND = (
    "L: local memory in bytes; L2, line: last-level cache shared by all compute units and its line, in bytes; Thw: "
    "work-items resident at full occupancy; B: work-group size. /CU: per compute unit; -: from another matching "
    "profile, the driver, or the default. `--json` has the source of each number."
)


@click.command()
@click.option("--profiles", is_flag=True, help="List the profiles, yours and the shipped ones; no OpenCL is needed.")
@shared_options(applied=False)
def info(console: Console, profiles: bool) -> None:
    """Show the OpenCL devices.

    Lists the numbers that the model uses, the hardware atomics and, with -v, the source of each number, all features
    and the update of each ready-made operator. The best device comes first.

    \b
    Example: the devices of NVIDIA's driver with all details; all profiles; one profile
      clhist info --platform NVIDIA -v
      clhist info --profiles
      clhist info --profile nvidia-h200
    """
    # Profiles are files: nothing here may need OpenCL.
    if profiles or console.profile is not None:
        files = usable_profiles(named=console.profile)
        if console.profile is not None:
            profile = named_profile(console.profile, files)
            console.report(profile_values(profile), lambda: show_profile(profile))
        else:
            console.report(list(map(_profile_record, files)), lambda: show_profiles(files))
        return
    devices = device.devices(console.platform, console.device)
    default, problem = _default_device()
    numbers = device.numbers()
    records = [describe(d, is_default=d == default, number=numbers.get(d)) for d in devices]
    record = {"clhist": __version__, "pyopencl": cl.VERSION_TEXT, "devices": records, "default_problem": problem}

    def text() -> str:
        lines = [f"clhist {__version__}, PyOpenCL {cl.VERSION_TEXT}"]
        lines += ["\n" + (show(item) if console.verbose else summary(item)) for item in records]
        if problem:
            lines.append(f"\nno default device: {problem}")
        elif not console.verbose:
            lines.append("\n-v shows the source of each number, features and updates")
        return "\n".join(lines)

    console.report(record, text)


def describe(dev: cl.Device, *, is_default: bool, number: str | None = None) -> dict[str, Any]:
    """Return all that is known of a device, as `clhist info --json` prints it."""
    profile, problem = device.own_profile(dev), None
    # A named profile may not fit the device: show the device's own numbers and the problem then.
    named = os.environ.get(device.PROFILE_VARIABLE) or None
    if named:
        try:
            profile = device.device_profile(dev)
        except ProfileError as error:
            problem = str(error)
    matched = matching(device.report(dev), usable_profiles())
    features = profile.features or frozenset()
    library = library_of(dev.platform.int_ptr)
    return {
        "name": dev.name.strip(),
        "vendor": dev.vendor.strip(),
        "platform": dev.platform.name.strip(),
        "platform_version": dev.platform.version.strip(),
        "library": None if library is None else str(library),
        "registered_by": None if library is None else registered_by(library),
        "cuda_arrays": cuda_words(dev),
        "version": dev.version.strip(),
        "driver_version": dev.driver_version.strip(),
        "kind": device.device_kind(dev),
        "default": is_default,
        "default_reason": device.default_reason() if is_default else None,
        "pyopencl_ctx": number,
        "problem": device.known_problem(dev),
        "compute_units": dev.max_compute_units,
        "global_memory": dev.global_mem_size,
        "memory_budget": device.memory_budget(dev),
        "profiles": [{"name": file.key, "level": file.level, "path": file.path} for file in matched],
        "named_profile": named,
        "profile_problem": problem,
        "parameters": {key: {"value": getattr(profile, key), "source": profile.sources[key]} for key in PARAMETERS},
        "rates": rates_of(profile).source or MEASURED,
        "features": {name: name in features for name in FEATURES},
        "native_atomics": native_atomics(features),
        "updates": updates(features),
        "host_sizes": {call: dict(zip(("least", "source"), least_size(call, dev), strict=True)) for call in COSTS},
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
    available: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, ready in OPERATORS.items():
        available[name] = {}
        for dtype in DTYPES:
            try:
                operator = ready(dtype)
            except TypeError:
                continue
            lacking = operator.needs_fp64 and "fp64" not in features
            available[name][dtype] = {
                memory: [] if lacking else list(available_updates(operator, memory, features)) for memory in MEMORIES
            }
    return available


def summary(record: Mapping[str, Any]) -> str:
    """Return a few lines on what `describe` found."""
    head = _title(record)
    memory = bytes_text(record["global_memory"]).partition(" (")[0]
    rows = [
        *([("default", record["default_reason"])] if record["default"] else []),
        ("platform", f"{record['platform']}, driver {record['driver_version']}"),
        ("kind", f"{record['kind'].upper()}, {record['compute_units']} compute units, {memory}"),
        *([("arrays of CUDA", record["cuda_arrays"])] if record["cuda_arrays"] else []),
        *([("PYOPENCL_CTX", record["pyopencl_ctx"])] if record["pyopencl_ctx"] else []),
    ]
    # Numbers of a device that does not work would mislead.
    if record["problem"]:
        return head + table([("does not work", record["problem"]), *rows])
    numbers = []
    for key, number in record["parameters"].items():
        letter = PARAMETERS[key].partition(":")[0]
        value = bytes_text(number["value"]).partition(" (")[0] if "bytes" in PARAMETERS[key] else f"{number['value']:,}"
        numbers.append(f"{letter} {value}")
    dtypes: dict[str, list[str]] = {}
    for atomic in record["native_atomics"]:
        # The summary has one operation each for sums, extremes and bits.
        if atomic["memory"] == "global" and atomic["operation"] in ("add", "maximum", "bitwise_or"):
            dtypes.setdefault(atomic["operation"], []).append(atomic["dtype"])
    atomics = "; ".join(f"{operation} {', '.join(names)}" for operation, names in dtypes.items())
    rows += [*_profile_rows(record), ("model", ", ".join(numbers)), ("atomics", atomics or "none")]
    return head + table(rows)


def show(record: Mapping[str, Any]) -> str:
    """Return the text for people of all that `describe` found."""
    head = _title(record)
    rows = [
        *([("default", record["default_reason"])] if record["default"] else []),
        ("platform", record["platform"]),
        *([("library", f"{record['library']} ({record['registered_by']})")] if record["library"] else []),
        ("version", record["version"]),
        ("driver", record["driver_version"]),
        *([("arrays of CUDA", record["cuda_arrays"])] if record["cuda_arrays"] else []),
        ("kind", record["kind"]),
        *([("PYOPENCL_CTX", record["pyopencl_ctx"])] if record["pyopencl_ctx"] else []),
        ("compute units", str(record["compute_units"])),
        ("global memory", f"{bytes_text(record['global_memory'])}; for copies {bytes_text(record['memory_budget'])}"),
        *_profile_rows(record),
    ]
    if record["problem"]:
        return head + table([("does not work", record["problem"]), *rows])
    return "\n".join(
        [
            head + table(rows),
            "\n  The model's numbers",
            table([_parameter(key, **number) for key, number in record["parameters"].items()], indent=4),
            "\n" + wrapped("fewer elements are left to NumPy, SciPy, pandas, PyTorch or boost-histogram", 2),
            table([_host_size(call, **size) for call, size in record["host_sizes"].items()], right=(1,), indent=4),
            "\n  Features",
            table([(_yes(has), name, FEATURES[name]) for name, has in record["features"].items()], indent=4),
            "\n" + wrapped("Hardware atomics, in local and global memory (unsigned as signed)", 2),
            grid(_atomics_rows(record["native_atomics"]), left=range(7), indent=4),
            wrapped(_WAYS_LEGEND, 4),
            "\n" + wrapped("Best update of a shared copy (local/global memory where they differ)", 2),
            grid(_update_rows(record["updates"]), left=range(7), indent=4),
            wrapped(_LEGEND, 4),
        ]
    )


def _host_size(call: str, least: float, source: str) -> tuple[str, str, str]:
    return _CALLS.get(call, call), f"{ceil(least):,}", source


def _title(record: Mapping[str, Any]) -> str:
    title = record["name"] + ("  [default]" if record["default"] else "")
    return f"{title}\n{'-' * len(title)}\n"


def _profile_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("profiles", ", then ".join(f"{file['name']} ({file['level']})" for file in record["profiles"]))]
    if record["named_profile"]:
        outcome = f"; not used: {record['profile_problem']}" if record["profile_problem"] else ", used instead"
        rows.append((device.PROFILE_VARIABLE, record["named_profile"] + outcome))
    return [*rows, ("rates", record["rates"])]


def profile_values(profile: Profile) -> dict[str, Any]:
    """Return the numbers of one profile with their sources, for JSON."""
    numbers = {key: {"value": getattr(profile, key), "source": profile.sources[key]} for key in PARAMETERS}
    rates = rates_of(profile).source or MEASURED
    return {"name": profile.name, "kind": profile.kind, "parameters": numbers, "rates": rates}


def show_profile(profile: Profile) -> str:
    """Return the numbers of one profile with their sources."""
    values = profile_values(profile)
    rows = [_parameter(key, **number) for key, number in values["parameters"].items()]
    return f"{profile.name} ({profile.kind.upper()})\n" + table(rows) + "\n" + wrapped(f"Rates: {values['rates']}", 2)


def show_profiles(files: Sequence[ProfileFile]) -> str:
    """Return the tables of `files`, one for each level and kind."""
    letters = [meaning.partition(":")[0].replace("L2_line", "line") for meaning in PARAMETERS.values()]
    sections = [wrapped(f"{len(files)} profiles; your own (*) go into {user_directory()}")]
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
            sections.append(f"{title}\n{_profiles_table([['', *letters, 'matches'], *rows])}")
    return "\n\n".join([*sections, wrapped(_PROFILES_LEGEND, 2)])


def _profiles_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of profiles; where it is too wide, numbers and matches are two."""
    if text_width() >= _PROFILES_WIDTH:
        return table(rows, right=range(1, 6))
    return "\n\n".join([grid([row[:-1] for row in rows], indent=2), table([(row[0], row[-1]) for row in rows])])


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
    for atomic in native:
        ways.setdefault((atomic["operation"], atomic["dtype"]), {})[atomic["memory"]] = atomic["way"]

    def cell(operation: str, dtype: str) -> str:
        # "-" is an atomic that no device has, "no" one that this device lacks.
        if not any(native_atomic(operation, np.dtype(dtype), memory) for memory in MEMORIES):
            return "-"
        where = ways.get((operation, dtype), {})
        words = dict.fromkeys(_WAYS.get(way, "yes") for way in where.values())
        return "/".join(words) + (f" {next(iter(where))}" if len(where) == 1 else "") if where else "no"

    rows = [[operation, *(cell(operation, dtype) for dtype in shown)] for operation in OPERATORS]
    return [["", *shown], *(row for row in rows if set(row[1:]) != {"-"})]


def _update_rows(by_operator: dict[str, dict[str, dict[str, list[str]]]]) -> list[list[str]]:
    def cell(available: dict[str, list[str]] | None) -> str:
        if available is None:
            return "-"
        # Both memories share a word if their best update is the same.
        best = [choices[0] if choices else "no" for choices in available.values()]
        return "/".join(dict.fromkeys(best))

    return [["", *DTYPES], *([name, *(cell(of.get(dtype)) for dtype in DTYPES)] for name, of in by_operator.items())]


def _default_device() -> tuple[cl.Device | None, str | None]:
    """Return the device that calls without a queue use, or why there is none."""
    try:
        return device.default_queue().device, None
    except (NoDeviceError, cl.Error) as error:
        return None, str(error)
