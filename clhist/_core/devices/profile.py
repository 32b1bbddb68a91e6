"""The numbers of a device that the model needs, each with its source.

The profiles of one device form a chain: exact device, architecture, vendor, default of its kind; at each level the
user's own come first. Each number comes from the first profile that has it; what OpenCL reports comes before the
default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from clhist._core.devices.profile_files import LEVELS, PARAMETERS, ProfileFile, usable_profiles, user_directory
from clhist._core.devices.vendors import native_table
from clhist.errors import ProfileError

BORROWED = ", not measured on this device"
_parameters_of = attrgetter(*PARAMETERS)
MEMORY_FRACTION = 4  # of a device's memory, a part of which copies take by default


@dataclass(frozen=True)
class Profile:
    """The numbers of one device that the model needs.

    Attributes
    ----------
    name : str
        The device's name.
    kind : {"gpu", "cpu"}
        On a CPU each work-item can have its own copy, and should have consecutive elements; on a GPU neighbouring
        work-items should read neighbouring elements.
    local_memory, l2_cache, l2_line : int
        Bytes; see `PARAMETERS`.
    hardware_threads, work_group_size : int
        Work-items; see `PARAMETERS`.
    sources : mapping of str to str
        The source of each of the five numbers, and of the "rates" if there are some.
    features : frozenset of str, or None
        What updates may use, of `devices.atomics.ALL_FEATURES`; None, of a profile without its device, for all that the
        device has.
    rates : mapping of str to float
        What `clhist calibrate` measured, by the names of `model.times`; empty if it did not. Plans are made
        by these and, where they lack some, by `model.scaling.rates_of`.
    data_sheet : mapping of str to int
        Those numbers of `clhist._core.devices.profile_files.DATA_SHEET` that are known.

    Examples
    --------
    >>> clhist.named_profile("nvidia-h200").kind
    'gpu'
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
    data_sheet: Mapping[str, int] = field(default_factory=dict)

    @property
    def atomics(self) -> dict[tuple[str, str, str], str]:
        """The path of each native update, by (operation, dtype, memory).

        Such as ``atomics["add", "float32", "local"] == "nvidia_ptx"``: "core", or one of
        `clhist._core.devices.vendors.FEATURES`. Updates that are missing use compare-exchange or a lock.
        """
        return native_table(self.features or ())

    def __getstate__(self) -> dict[str, Any]:
        # A view of a mapping cannot be pickled.
        return vars(self) | {"sources": dict(self.sources), "data_sheet": dict(self.data_sheet)}

    def __hash__(self) -> int:
        # Mappings have no hash. Equal profiles have the same numbers, so that these suffice.
        return hash((self.name, self.kind, *_parameters_of(self)))


class Report(NamedTuple):
    """Numbers that OpenCL reports of a device, for its profile; 0 for a number that it does not report.

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
        What it has, of `clhist._core.devices.atomics.ALL_FEATURES`.
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
    """Return the profiles that match the device of `report`, most specific first."""
    same_kind = [profile for profile in profiles if profile.kind == report.kind]
    names = (report.name, *report.aliases)

    def is_of(profile: ProfileFile) -> bool:
        # A vendor's name counts at its own level only: the other levels name devices.
        return profile.level == "default" or profile.matches(*names, *([report.vendor] * (profile.level == "vendor")))

    return [profile for level in LEVELS for profile in same_kind if profile.level == level and is_of(profile)]


def _measured(files: Iterable[ProfileFile], kind: str) -> ProfileFile | None:
    """Return the first file with rates for a device of this kind.

    Rates of a family are those of all its CPUs, which are alike enough for what is chosen by them; GPUs are not.
    """
    return next((file for file in files if file.measured and (kind == "cpu" or file.level == "device")), None)


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
    # Defaults are apart, since what the driver reports comes before them.
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
        entry = named or fallback
        if entry is None:
            raise ProfileError(
                f"{key}: neither a profile nor the driver of {report.name!r} has it "
                f"({PARAMETERS[key]}); write a profile into {user_directory()}"
            )
        numbers[key], sources[key] = entry
    # A profile of exactly this device may have more local memory than the driver reports; one of its family may not.
    exact = any(profile.level == "device" and "local_memory" in profile.values for profile in chain)
    # A limit of 0 is none.
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
    # A profile may withhold features of the device, but not claim others.
    features = next((file.features for file in found_files if file.features is not None), report.features)
    _check_features(report.name, features, report)
    measured = _measured(found_files, report.kind)
    rates = {} if measured is None else measured.rates
    if measured is not None:
        borrowed = "" if measured.level == "device" else BORROWED
        sources["rates"] = f"{measured.path}: rates of {measured.name}{borrowed}"
    sheet = next((_numbers_of(file) for file in chain if file.data_sheet), {})
    if report.compute_units:
        # A part of a device has fewer compute units than its data sheet says.
        sheet["compute_units"] = report.compute_units
    merged = Profile(report.name, report.kind, **numbers, sources=MappingProxyType(sources))
    return replace(merged, features=features, rates=rates, data_sheet=sheet)


def _numbers_of(file: ProfileFile) -> dict[str, int]:
    """Return the numbers of a profile's data sheet."""
    return {key: number for key, number in file.data_sheet.items() if key != "source"}


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
    profiled = [file.values["local_memory"][1] for file in matching(report, profiles) if file.level == "device"]
    limits = {
        "work_group_size": (report.max_work_group_size, "work-items"),
        "local_memory": (max([report.local_memory, *profiled]) if report.local_memory else 0, "bytes"),
    }
    for key, (most, unit) in limits.items():
        claimed = getattr(profile, key)
        if 0 < most < claimed:
            raise ProfileError(
                f"profile {profile.name!r}: {key}: expected at most the {most} {unit} of {report.name!r}, got {claimed}"
            )


def named_profile(
    key: str, profiles: Iterable[ProfileFile] | None = None, *, compute_units: int | None = None
) -> Profile:
    """Return a complete profile by the name of its file, or by its own name; no device is needed.

    Numbers that the profile of a family lacks are those of its vendor, or the defaults.

    Parameters
    ----------
    key : str
        Such as "nvidia-h200" or "NVIDIA H200", in any case, or "H200" if there is only one; ``clhist info --profiles``
        lists them.
    profiles : iterable of ProfileFile, optional
        Where to look; defaults to the user's own and the shipped ones.
    compute_units : int, optional
        Of the device, for the numbers of a family. Defaults to those of its smallest device that has a profile.

    Raises
    ------
    TypeError
        If `key` is not a str.
    ProfileError
        If there is none, or several; the message lists those that there are.

    Examples
    --------
    >>> clhist.named_profile("nvidia-h200").l2_cache
    62914560
    """
    if not isinstance(key, str):
        raise TypeError(f"key: expected the name of a profile, got {key!r}")
    profiles = usable_profiles(named=key) if profiles is None else tuple(profiles)
    profile = _named_file(key, profiles)
    units = _units_of(profile, profiles) if compute_units is None else compute_units
    chain = [profile, *(file for file in profiles if _is_more_general(file, profile))]
    # The sort is stable: at one level, the user's own profiles stay first.
    chain.sort(key=lambda file: LEVELS.index(file.level))
    numbers: dict[str, Any] = {}
    sources = {}
    for name in PARAMETERS:
        entry = _first(chain, name, units)
        if entry is None:
            raise ProfileError(f"profile {key!r}: {name}: neither it nor a more general profile has it")
        numbers[name], sources[name] = entry
    named = Profile(profile.name, profile.kind, **numbers, sources=MappingProxyType(sources))
    return replace(named, features=profile.features, rates=profile.rates, data_sheet=_numbers_of(profile))


def _named_file(key: str, profiles: Sequence[ProfileFile]) -> ProfileFile:
    """Return the profile of a name; of a name without vendor, if there is only one."""
    wanted = _plain(key)
    names = [(file, {_plain(file.key), _plain(file.name)}) for file in profiles]
    exact = [file for file, own in names if wanted in own]
    if exact:
        return exact[0]
    # The first of one key, as above: a user's own files precede those of clhist.
    ends = dict[str, ProfileFile]()
    for file, own in names:
        if wanted and any(name.endswith(f"-{wanted}") for name in own):
            ends.setdefault(file.key, file)
    if len(ends) == 1:
        return ends.popitem()[1]
    if ends:
        raise ProfileError(f"profile {key!r}: expected the name of one profile, got one of {', '.join(sorted(ends))}")
    from difflib import get_close_matches

    keys = [file.key for file in profiles]
    # One or two characters are in too many names to be a hint.
    close = [k for k in keys if len(wanted) > 2 and wanted in k] or get_close_matches(wanted, keys, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(keys)}"
    raise ProfileError(f"profile {key!r}: there is none; {hint}")


def _plain(name: str) -> str:
    """Return a name in small letters, with a hyphen for all that is neither letter nor digit."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")


def _is_more_general(other: ProfileFile, profile: ProfileFile) -> bool:
    """Whether numbers that a profile lacks may come from another."""
    if other.kind != profile.kind or LEVELS.index(other.level) <= LEVELS.index(profile.level):
        return False
    return other.level == "default" or other.matches(profile.name, profile.key)


def _units_of(profile: ProfileFile, profiles: Iterable[ProfileFile]) -> int:
    """Return compute units for the numbers of a family: those of its smallest device that has a profile."""
    how, threads, _ = profile.values.get("hardware_threads", ("value", 0, ""))
    if profile.level == "device" or how == "value":
        return _SOME_UNITS[profile.kind]
    devices = [file for file in profiles if file.level == "device" and file.kind == profile.kind]
    units = [file.values["hardware_threads"][1] // threads for file in devices if profile.matches(file.name)]
    return max(1, min(units, default=_SOME_UNITS[profile.kind]))


_SOME_UNITS = {"gpu": 32, "cpu": 8}  # of a family of which no device has a profile


def _first(chain: Iterable[ProfileFile], key: str, compute_units: int) -> tuple[int, str] | None:
    for profile in chain:
        if key in profile.values:
            # A family has numbers for each compute unit of its devices.
            how, number, source = profile.values[key]
            if how == "value":
                return number, f"{profile.path}: {source}"
            return (
                number * compute_units,
                f"{profile.path}: {number} for each of {compute_units} compute units: {source}",
            )
    return None
