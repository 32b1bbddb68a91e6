"""Device profiles: the numbers that the model needs, each with the source that it comes from.

A profile is a TOML file. Those in devices/ are shipped; those in the user's directory come before them. For one device
they form a chain (user's file, exact device, vendor, default of its kind), and each number is taken from the first that
has it, or from what OpenCL reports.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import platformdirs

from clhist.errors import ProfileError

# The model's parameters, with the paper's letters.
PARAMETERS = {
    "local_memory": "L: bytes of local memory that one work-group may use",
    "l2_cache": "L2: bytes of the last-level cache that all compute units share",
    "l2_line": "L2_line: bytes of one of its lines",
    "hardware_threads": "Thw: work-items resident on the device at full occupancy",
    "work_group_size": "B: work-items of a work-group",
}
_LEVELS = ("device", "vendor", "default")
_KINDS = ("gpu", "cpu")
_KEYS = ("name", "kind", "level", "match", *PARAMETERS)
_PARAMETER_KEYS = ("value", "per_compute_unit", "source")


@dataclass(frozen=True)
class Profile:
    """What the model needs to know of one device.

    Attributes
    ----------
    name : str
        The device's name.
    kind : {"gpu", "cpu"}
        On a CPU a work-item can afford a copy of its own and its elements should be neighbours; on a GPU neighbouring
        work-items should read neighbouring elements.
    local_memory, l2_cache, l2_line : int
        Bytes; see `PARAMETERS`.
    hardware_threads, work_group_size : int
        Work-items; see `PARAMETERS`.
    sources : mapping of str to str
        For each of the five numbers where it comes from.
    """

    name: str
    kind: str
    local_memory: int
    l2_cache: int
    l2_line: int
    hardware_threads: int
    work_group_size: int
    sources: Mapping[str, str]

    def __hash__(self) -> int:
        return hash((self.name, self.kind, *(getattr(self, key) for key in PARAMETERS)))


@dataclass(frozen=True)
class ProfileFile:
    """One profile as its file says it: possibly only some of the numbers."""

    path: str
    name: str
    kind: str
    level: str
    match: tuple[str, ...]
    values: Mapping[str, tuple[str, int, str]]  # parameter: ("value" or "per_compute_unit", number, source)

    @property
    def key(self) -> str:
        """What to call the profile on a command line: its file's name without the ending."""
        return Path(self.path).stem

    def matches(self, device_name: str) -> bool:
        """Whether the profile is for a device that its driver calls `device_name`."""
        return any(re.search(pattern, device_name, re.IGNORECASE) for pattern in self.match)


def parse_profile(text: str, path: str) -> ProfileFile:
    """Return the profile that `text` spells out.

    Parameters
    ----------
    text : str
        TOML: ``name``, ``kind`` ("gpu" or "cpu"), ``level`` ("device", "vendor" or "default"; "device" if missing),
        ``match`` (regular expressions looked for in the device's name), and a table for each number with ``value`` or
        ``per_compute_unit``, and ``source``.
    path : str
        Where it stands, for errors.

    Raises
    ------
    ProfileError
        If it is no TOML, or a key is unknown, missing, of the wrong type or not positive; file and key are named.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from error

    def fail(key: str, expected: str, got: object) -> ProfileError:
        return ProfileError(f"{path}: {key}: expected {expected}, got {got!r}")

    for key in document:
        if key not in _KEYS:
            raise ProfileError(f"{path}: {key}: unknown key; known are {', '.join(_KEYS)}")
    name, kind, level = document.get("name"), document.get("kind"), document.get("level", "device")
    if not isinstance(name, str) or not name:
        raise fail("name", "a text", name)
    if kind not in _KINDS:
        raise fail("kind", f"one of {', '.join(_KINDS)}", kind)
    if level not in _LEVELS:
        raise fail("level", f"one of {', '.join(_LEVELS)}", level)
    match = document.get("match", [])
    if not isinstance(match, list) or not all(isinstance(pattern, str) for pattern in match):
        raise fail("match", "a list of regular expressions", match)
    if level != "default" and not match:
        raise fail("match", "at least one regular expression", match)
    for pattern in match:
        try:
            re.compile(pattern)
        except re.error as error:
            raise fail("match", f"a regular expression ({error})", pattern) from error
    values = {}
    for key in PARAMETERS:
        if key not in document:
            if level == "device":
                raise ProfileError(f"{path}: {key}: missing ({PARAMETERS[key]})")
            continue
        values[key] = _parse_parameter(document[key], key, fail)
        if level == "device" and values[key][0] != "value":
            raise fail(key, "value, since the profile is of one device", values[key][0])
    return ProfileFile(path, name, kind, level, tuple(match), MappingProxyType(values))


def _parse_parameter(table: object, key: str, fail: Callable[[str, str, object], ProfileError]) -> tuple[str, int, str]:
    if not isinstance(table, dict):
        raise fail(key, "a table with value and source", table)
    for inner in table:
        if inner not in _PARAMETER_KEYS:
            raise fail(f"{key}.{inner}", f"one of {', '.join(_PARAMETER_KEYS)}", inner)
    how = [inner for inner in ("value", "per_compute_unit") if inner in table]
    if len(how) != 1:
        raise fail(key, "either value or per_compute_unit", " and ".join(how) or None)
    number, source = table[how[0]], table.get("source")
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        raise fail(f"{key}.{how[0]}", "a positive integer", number)
    if not isinstance(source, str) or not source:
        raise fail(f"{key}.source", "where the number comes from", source)
    return how[0], number, source


def user_directory() -> Path:
    """Return the directory of the user's own profiles (``CLHIST_PROFILES`` names another)."""
    named = os.environ.get("CLHIST_PROFILES")
    return Path(named) if named else platformdirs.user_config_path("clhist") / "profiles"


def load_profiles() -> tuple[ProfileFile, ...]:
    """Return all profiles, the user's own before the shipped ones.

    Raises
    ------
    ProfileError
        If one is broken or cannot be read; its file is named.
    """
    own = sorted(user_directory().glob("*.toml")) if user_directory().is_dir() else []
    shipped = sorted(
        (item for item in resources.files("clhist.devices").iterdir() if item.name.endswith(".toml")),
        key=lambda item: item.name,
    )
    found = []
    for item in (*own, *shipped):
        path = str(item) if isinstance(item, Path) and item in own else f"devices/{item.name}"
        try:
            found.append(parse_profile(item.read_text(encoding="utf-8"), path))
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"{path}: cannot be read: {error}") from error
    return tuple(found)


@dataclass(frozen=True)
class Report:
    """What OpenCL reports of a device, as far as profiles need it; a number is 0 where it reports nothing.

    Attributes
    ----------
    name, vendor : str
        As the driver spells them.
    kind : {"gpu", "cpu"}
        Accelerators count as GPUs.
    compute_units, max_work_group_size : int
        Numbers of units and of work-items.
    local_memory, cache, cache_line : int
        Bytes.
    """

    name: str
    vendor: str
    kind: str
    compute_units: int
    max_work_group_size: int
    local_memory: int
    cache: int
    cache_line: int


def merge(report: Report, profiles: Iterable[ProfileFile]) -> Profile:
    """Return the profile of the device that `report` describes.

    Parameters
    ----------
    report : Report
        What OpenCL says.
    profiles : iterable of ProfileFile
        As `load_profiles` gives them. Used are those of the device, of its vendor, and the default of its kind.

    Raises
    ------
    ProfileError
        If no profile and no report has one of the numbers.
    """
    same_kind = [profile for profile in profiles if profile.kind == report.kind]
    chain = [p for p in same_kind if p.level == "device" and p.matches(report.name)]
    chain += [p for p in same_kind if p.level == "vendor" and (p.matches(report.name) or p.matches(report.vendor))]
    defaults = [p for p in same_kind if p.level == "default"]
    queried = {
        "local_memory": (report.local_memory, "CL_DEVICE_LOCAL_MEM_SIZE"),
        "l2_cache": (report.cache, "CL_DEVICE_GLOBAL_MEM_CACHE_SIZE"),
        "l2_line": (report.cache_line, "CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE"),
    }
    numbers, sources = {}, {}
    for key in PARAMETERS:
        reported, query = queried.get(key, (0, ""))
        named = _first(chain, key, report.compute_units)
        fallback = _first(defaults, key, report.compute_units)
        if named is None and reported > 0:
            named = (reported, f"reported by the driver ({query})")
        found = named or fallback
        if found is None:
            raise ProfileError(
                f"{key}: neither a profile nor the driver of {report.name!r} has it "
                f"({PARAMETERS[key]}); write a profile into {user_directory()}"
            )
        numbers[key], sources[key] = found
    if 0 < report.max_work_group_size < numbers["work_group_size"]:
        sources["work_group_size"] = (
            f"reported by the driver (CL_DEVICE_MAX_WORK_GROUP_SIZE), which allows fewer than "
            f"the {numbers['work_group_size']} of {sources['work_group_size']}"
        )
        numbers["work_group_size"] = report.max_work_group_size
    return Profile(report.name, report.kind, **numbers, sources=MappingProxyType(sources))


def named_profile(key: str, profiles: Iterable[ProfileFile]) -> Profile:
    """Return a complete profile by the name of its file, or by its own name; no device is needed.

    Raises
    ------
    ProfileError
        If there is none; the message lists those that there are.
    """
    complete = [p for p in profiles if p.level == "device"]
    for profile in complete:
        if key.lower() in (profile.key.lower(), profile.name.lower()):
            numbers = {name: value for name, (_, value, _) in profile.values.items()}
            sources = {name: f"{profile.path}: {source}" for name, (_, _, source) in profile.values.items()}
            return Profile(profile.name, profile.kind, **numbers, sources=MappingProxyType(sources))
    raise ProfileError(f"profile {key!r}: there is none; known are {', '.join(p.key for p in complete)}")


def _first(chain: Iterable[ProfileFile], key: str, compute_units: int) -> tuple[int, str] | None:
    for profile in chain:
        if key in profile.values:
            how, number, source = profile.values[key]
            if how == "value":
                return number, f"{profile.path}: {source}"
            return (
                number * compute_units,
                f"{profile.path}: {number} for each of {compute_units} compute units: {source}",
            )
    return None
