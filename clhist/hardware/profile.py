"""Device profiles: the numbers that the model needs, each with the source that it comes from.

A profile is a TOML file. Those in devices/ are shipped; those in the user's directory come before them. For one device
they form a chain (exact device, architecture, vendor, default of its kind; at each level the user's own first), and
each number is taken from the first that has it; what OpenCL reports comes before the default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from clhist.errors import ProfileError
from clhist.hardware.atomics import ALL_FEATURES, native_table

# The model's parameters, with the paper's letters.
PARAMETERS = {
    "local_memory": "L: bytes of local memory that one work-group may use",
    "l2_cache": "L2: bytes of the last-level cache that all compute units share",
    "l2_line": "L2_line: bytes of one of its lines",
    "hardware_threads": "Thw: work-items resident on the device at full occupancy",
    "work_group_size": "B: work-items of a work-group",
}
LEVELS = ("device", "architecture", "vendor", "default")
KINDS = ("gpu", "cpu")
_KEYS = ("name", "kind", "level", "match", *PARAMETERS, "features", "measured")
_MEASURED_KEYS = {
    "value": (int, float),
    "spread": (int, float),
    "unit": (str,),
    "method": (str,),
    "date": (str,),
    "driver": (str,),
}
_SHIPPED = "devices/"
_MOST_BYTES = 1 << 20  # of a profile's file; ours have a few thousand
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
    features : frozenset of str, or None
        What updates may use, of `clhist.hardware.atomics.ALL_FEATURES`; None, of a profile without its device, for all
        that the device has.
    rates : mapping of str to float
        What `clhist calibrate` measured, by the names of `clhist.planning.times`; empty if it did not.
    """

    name: str
    kind: str
    local_memory: int
    l2_cache: int
    l2_line: int
    hardware_threads: int
    work_group_size: int
    sources: Mapping[str, str]
    features: frozenset[str] | None = None
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def atomics(self) -> dict[tuple[str, str, str], str]:
        """By which way a bin is updated natively, for each (operation, dtype, memory) that has one.

        Such as ``atomics["add", "float32", "local"] == "nvidia_ptx"``: "core", or one of
        `clhist.hardware.atomics.FEATURES`. What is missing goes by compare and exchange, or by a lock.
        """
        return native_table(self.features or ())

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
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what `clhist calibrate` found besides
    features: frozenset[str] | None = None

    @property
    def key(self) -> str:
        """What to call the profile on a command line: its file's name without the ending."""
        return Path(self.path).stem

    @property
    def rates(self) -> dict[str, float]:
        """The measured values by their names."""
        return {name: float(found["value"]) for name, found in self.measured.items()}

    @property
    def is_shipped(self) -> bool:
        """Whether it came with the package."""
        return self.path.startswith(_SHIPPED)

    def matches(self, *names: str) -> bool:
        """Whether the profile is for a device that has one of these `names`."""
        return any(re.search(pattern, name, re.IGNORECASE) for pattern in self.match for name in names)


def parse_profile(text: str, path: str) -> ProfileFile:
    """Return the profile that `text` spells out.

    Parameters
    ----------
    text : str
        TOML: ``name``, ``kind`` ("gpu" or "cpu"), ``level`` ("device", "architecture", "vendor" or "default"; "device"
        if missing), ``match`` (regular expressions looked for in the device's name), and a table for each number with
        ``value`` or ``per_compute_unit``, and ``source``. Only at the level "device" must all five be there.
        ``features``, a list, is what updates may use; without it that is all that the device has.
    path : str
        Where it stands, for errors.

    Raises
    ------
    ProfileError
        If it is no TOML, or a key is unknown, missing, of the wrong type or not positive; file and key are named.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # besides TOMLDecodeError, of numbers and brackets without end
        raise ProfileError(f"{path}: not valid TOML: {error}") from error

    def fail(key: str, expected: str, got: object) -> ProfileError:
        return ProfileError(f"{path}: {key}: expected {expected}, got {got!r}")

    for key in document:
        if key not in _KEYS:
            raise ProfileError(f"{path}: {key}: unknown key; known are {', '.join(_KEYS)}")
    name, kind, level = document.get("name"), document.get("kind"), document.get("level", "device")
    if not isinstance(name, str) or not name:
        raise fail("name", "a text", name)
    if kind not in KINDS:
        raise fail("kind", f"one of {', '.join(KINDS)}", kind)
    if level not in LEVELS:
        raise fail("level", f"one of {', '.join(LEVELS)}", level)
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
    measured = _parse_measured(document.get("measured", {}), fail)
    features = document.get("features")
    if features is not None and not (isinstance(features, list) and all(f in ALL_FEATURES for f in features)):
        raise fail("features", f"a list of some of {', '.join(sorted(ALL_FEATURES))}", features)
    usable = None if features is None else frozenset(features)
    return ProfileFile(path, name, kind, level, tuple(match), MappingProxyType(values), measured, usable)


def _parse_measured(
    tables: object, fail: Callable[[str, str, object], ProfileError]
) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(tables, dict):
        raise fail("measured", "a table for each measurement", tables)
    for name, found in tables.items():
        for key, types in _MEASURED_KEYS.items():
            value = found.get(key) if isinstance(found, dict) else None
            if not isinstance(value, types) or isinstance(value, bool):
                raise fail(f"measured.{name}.{key}", " or ".join(t.__name__ for t in types), value)
        if not 0 <= found["value"] < inf:
            raise fail(f"measured.{name}.value", "a finite number that is not negative", found["value"])
    return MappingProxyType(tables)


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
    if number >= 2**63:
        raise fail(f"{key}.{how[0]}", "less than 2^63", number)
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
        path = str(item) if isinstance(item, Path) and item in own else f"{_SHIPPED}{item.name}"
        try:
            size = item.stat().st_size if isinstance(item, Path) else 0
            if size > _MOST_BYTES:
                raise ProfileError(f"{path}: expected at most {_MOST_BYTES} bytes, got {size}")
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
    aliases : tuple of str
        What else it is called: AMD's driver has a name of the board, NVIDIA's a compute capability (here "sm_86").
    features : frozenset of str
        What it has, of `clhist.hardware.atomics.ALL_FEATURES`.
    """

    name: str
    vendor: str
    kind: str
    compute_units: int
    max_work_group_size: int
    local_memory: int
    cache: int
    cache_line: int
    aliases: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()


def matching(report: Report, profiles: Iterable[ProfileFile]) -> list[ProfileFile]:
    """Return those of `profiles` that are for the device of `report`, the most particular first."""
    same_kind = [profile for profile in profiles if profile.kind == report.kind]
    names = (report.name, *report.aliases)

    def is_of(profile: ProfileFile) -> bool:
        return profile.level == "default" or profile.matches(*names, *([report.vendor] * (profile.level == "vendor")))

    return [profile for level in LEVELS for profile in same_kind if profile.level == level and is_of(profile)]


def merge(report: Report, profiles: Iterable[ProfileFile]) -> Profile:
    """Return the profile of the device that `report` describes.

    Parameters
    ----------
    report : Report
        What OpenCL says.
    profiles : iterable of ProfileFile
        As `load_profiles` gives them. Used are those that `matching` finds.

    Raises
    ------
    ProfileError
        If no profile and no report has one of the numbers.
    """
    found_files = matching(report, profiles)
    chain = [profile for profile in found_files if profile.level != "default"]
    defaults = [profile for profile in found_files if profile.level == "default"]
    queried = {
        "local_memory": (report.local_memory, "CL_DEVICE_LOCAL_MEM_SIZE"),
        "l2_cache": (report.cache, "CL_DEVICE_GLOBAL_MEM_CACHE_SIZE"),
        "l2_line": (report.cache_line, "CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE"),
    }
    numbers: dict[str, Any] = {}
    sources = {}
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
    # A profile of this very device may know of more local memory than the driver admits; one of its family does not.
    exact = any(profile.level == "device" and "local_memory" in profile.values for profile in chain)
    limits = {
        "work_group_size": (report.max_work_group_size, "CL_DEVICE_MAX_WORK_GROUP_SIZE"),
        "local_memory": (0 if exact else report.local_memory, "CL_DEVICE_LOCAL_MEM_SIZE"),
    }
    for key, (most, query) in limits.items():
        if 0 < most < numbers[key]:
            sources[key] = (
                f"reported by the driver ({query}), which allows fewer than the {numbers[key]} of {sources[key]}"
            )
            numbers[key] = most
    features = next((file.features for file in found_files if file.features is not None), report.features)
    _check_features(report.name, features, report)
    rates = next((file.rates for file in found_files if file.level == "device" and file.measured), {})
    merged = Profile(report.name, report.kind, **numbers, sources=MappingProxyType(sources))
    return replace(merged, features=features, rates=rates)


def _check_features(name: str, claimed: frozenset[str], report: Report) -> None:
    missing = sorted(claimed - report.features)
    if missing:
        raise ProfileError(
            f"profile {name!r}: features: expected some of those of {report.name!r} "
            f"({', '.join(sorted(report.features)) or 'none'}), got {', '.join(missing)}"
        )


def check_fits(profile: Profile, report: Report, profiles: Iterable[ProfileFile]) -> None:
    """Raise ProfileError if `profile` claims what the device of `report` cannot have; both figures are named.

    Local memory may be as much as the driver reports, or as says one of `profiles` that is of this very device: the
    driver of NVIDIA reports less than it gives.
    """
    _check_features(profile.name, profile.features or frozenset(), report)
    known = [file.values["local_memory"][1] for file in matching(report, profiles) if file.level == "device"]
    limits = {
        "work_group_size": (report.max_work_group_size, "work-items"),
        "local_memory": (max([report.local_memory, *known]) if report.local_memory else 0, "bytes"),
    }
    for key, (most, unit) in limits.items():
        claimed = getattr(profile, key)
        if 0 < most < claimed:
            raise ProfileError(
                f"profile {profile.name!r}: {key}: expected at most the {most} {unit} of {report.name!r}, got {claimed}"
            )


def named_profile(key: str, profiles: Iterable[ProfileFile] | None = None) -> Profile:
    """Return a complete profile by the name of its file, or by its own name; no device is needed.

    Parameters
    ----------
    key : str
        Such as "nvidia-h200" or "NVIDIA H200", in any case; ``clhist info --profiles`` lists them.
    profiles : iterable of ProfileFile, optional
        Where to look; defaults to `load_profiles`.

    Raises
    ------
    ProfileError
        If there is none; the message lists those that there are.

    Examples
    --------
    >>> clhist.named_profile("nvidia-h200").l2_cache                                        # doctest: +SKIP
    62914560
    """
    profiles = load_profiles() if profiles is None else profiles
    complete = [p for p in profiles if p.level == "device"]
    for profile in complete:
        if key.lower() in (profile.key.lower(), profile.name.lower()):
            numbers: dict[str, Any] = {name: value for name, (_, value, _) in profile.values.items()}
            sources = {name: f"{profile.path}: {source}" for name, (_, _, source) in profile.values.items()}
            named = Profile(profile.name, profile.kind, **numbers, sources=MappingProxyType(sources))
            return replace(named, features=profile.features, rates=profile.rates)
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
