"""Devices as OpenCL reports them, and the choice of one."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.devices.profile import MEMORY_FRACTION, Profile, Report, check_fits, merge, named_profile
from clhist._core.devices.profile_files import usable_profiles
from clhist._core.devices.vendors import features_of
from clhist._core.opencl import lost
from clhist._core.opencl.caches import is_writable, pocl_cache
from clhist._core.opencl.cpu_runtimes import CPUINFO, comparison, fastest_first, launch_seconds, processor_aliases
from clhist._core.opencl.faults import faults_of
from clhist._core.opencl.foreign_caches import check_pocl_cache
from clhist._core.opencl.icd import library_of, registered_too_late
from clhist.errors import NoDeviceError, UnsupportedError

HOW_TO_GET_ONE = (
    'install a GPU driver with OpenCL, or an OpenCL for the processor: pip install "clhist[cpu]" '
    "(on Debian and Ubuntu also: apt-get install pocl-opencl-icd)"
)

PROFILE_VARIABLE = "CLHIST_PROFILE"


# The context is kept as well: on Intel's CPU runtime a queue does not keep its own alive.
_default: tuple[cl.Context, cl.CommandQueue] | None = None
_default_lock = threading.Lock()


def platforms() -> list[cl.Platform]:
    """Return the OpenCL platforms that have devices.

    Raises
    ------
    NoDeviceError
        If there is none; the message says how to get one.
    """
    lost.check_process()
    # Before the first use of PoCL, which loads whatever its cache holds.
    _check_caches()
    try:
        usable = [platform for platform in cl.get_platforms() if _devices(platform)]
    except (cl.Error, RuntimeError) as error:  # PyOpenCL's words for "no platform" depend on the loader
        raise NoDeviceError(f"no OpenCL platform was found; {HOW_TO_GET_ONE}") from error
    if not usable:
        raise NoDeviceError(f"no OpenCL device was found; {HOW_TO_GET_ONE}{_about_caches()}")
    return usable


def numbers() -> dict[cl.Device, str]:
    """Return the devices, each with what ``PYOPENCL_CTX`` calls it: the numbers of its platform and its own."""
    every = enumerate(cl.get_platforms())
    return {device: f"{n}:{k}" for n, platform in every for k, device in enumerate(_devices(platform))}


def _about_order() -> str:
    """Return a hint if runtimes are missing because OpenCL was used before clhist was imported."""
    # Runtimes that clhist registered, but that the loader, initialised before, has not read.
    late = registered_too_late(library_of(platform.int_ptr) for platform in cl.get_platforms())
    if not late:
        return ""
    return f". OpenCL was used before clhist was imported, and has not seen {', '.join(late)}: import clhist first"


@lru_cache(maxsize=1)
def _check_caches() -> None:
    check_pocl_cache()


def _about_caches() -> str:
    if is_writable(pocl_cache()):
        return ""
    return (
        f". PoCL, if that is installed, has no device without a cache, and {pocl_cache()} cannot be written: let "
        "POCL_CACHE_DIR name a directory that can"
    )


def devices(platform: str | None = None, device: str | None = None) -> list[cl.Device]:
    """Return the OpenCL devices, best first: GPUs before CPUs, more compute units before fewer, the fastest runtime.

    Parameters
    ----------
    platform, device : str, optional
        Keep those whose platform's or own name contains this, in any case.

    Raises
    ------
    NoDeviceError
        If there is none; the message lists what there is.
    """
    every = [d for p in platforms() for d in _devices(p)]
    matching = [d for d in every if _contains(d.platform.name, platform) and _contains(d.name, device)]
    if not matching:
        listed = "; ".join(f"{d.name.strip()} ({d.platform.name.strip()})" for d in every)
        criteria = ", ".join(f"{what} {name!r}" for what, name in (("platform", platform), ("device", device)) if name)
        raise NoDeviceError(f"no OpenCL device matches {criteria}; there are: {listed}")
    ordered = sorted(matching, key=_rank)
    # Several runtimes of one processor come in the order of their measured speed, before all other devices.
    same = _same_processor(ordered)
    return [*fastest_first(same), *(d for d in ordered if d not in same)] if len(same) > 1 else ordered


def _rank(device: cl.Device) -> tuple[bool, bool, int, bool]:
    # PoCL first where nothing can be measured: Note [The fastest CPU runtime], docs/decisions/0003.
    pocl = device.platform.name.strip() == "Portable Computing Language"
    return known_problem(device) is not None, is_processor(device), -device.max_compute_units, not pocl


def _same_processor(ordered: Sequence[cl.Device]) -> list[cl.Device]:
    """Return the devices of all runtimes without faults that are the best one, if that is a processor."""
    first = _rank(ordered[0])
    # Only processors without a known problem are compared.
    if first[:2] != (False, True) or device_kind(ordered[0]) != "cpu":
        return []
    return [candidate for candidate in ordered if _rank(candidate)[:3] == first[:3] and device_kind(candidate) == "cpu"]


def cpu_runtimes() -> list[cl.Device]:
    """Return the CPU devices among which a measurement chooses the default; none if there is no choice."""
    same = _same_processor(sorted((d for p in platforms() for d in _devices(p)), key=_rank))
    return same if len(same) > 1 and not os.environ.get("PYOPENCL_CTX") else []


def default_reason() -> str:
    """Return why the default device is the default, with the figures of CPU runtimes that were compared."""
    if os.environ.get("PYOPENCL_CTX"):
        return f"PYOPENCL_CTX={os.environ['PYOPENCL_CTX']}"
    ordered, same = devices(), cpu_runtimes()
    if same:
        return comparison(same) or "CPU runtimes in a fixed order, since no measurement can be stored"
    if len(ordered) == 1:
        return "the only device"
    return "the GPU with most compute units" if not is_processor(ordered[0]) else "the CPU with most compute units"


def default_queue(*arrays: Any) -> cl.CommandQueue:
    """Return the queue that calls without one use; it is made at the first call and kept.

    ``PYOPENCL_CTX`` chooses the device as everywhere in PyOpenCL. Without it the default is a GPU, or the fastest CPU
    runtime, which a measurement of some milliseconds finds once; ``clhist info`` shows the figures.

    Parameters
    ----------
    *arrays : array
        Of a call: the queue of the first PyOpenCL array that has one is returned instead.

    Raises
    ------
    NoDeviceError
        If there is no device, or only one that is known not to work.
    DeviceLostError
        If the device was lost to a fault.

    Examples
    --------
    >>> queue = clhist.default_queue()
    >>> clhist.bincount([0, 2, 2], queue=queue)
    array([1, 0, 2])
    """
    global _default
    if lost.unchecked:
        lost.check_process()
    for array in arrays:
        if isinstance(array, cl_array.Array) and array.queue is not None:
            return array.queue
    # Without the lock: the tuple is replaced as a whole, so that both of its parts belong together.
    if (current := _default) is not None and not lost.reasons:
        return current[1]
    with _default_lock:
        # Checked again with the lock: another thread may have made the queue meanwhile.
        if _default is None:
            usable = platforms()
            if os.environ.get("PYOPENCL_CTX"):
                context = _asked_for()
            else:
                best = devices()[0]
                reason = known_problem(best)
                if reason is not None:
                    raise NoDeviceError(
                        f"the only OpenCL device, {best.name.strip()} of {usable[0].version.strip()}, "
                        f"does not work: {reason}"
                    )
                context = cl.Context([best])
            _default = context, cl.CommandQueue(context)
        if lost.reasons:
            lost.check_queue(_default[1])
        return _default[1]


def use_device(device: cl.Device) -> None:
    """Let `device` be the one that calls without a queue use from now on."""
    global _default
    context = cl.Context([device])
    with _default_lock:
        _default = context, cl.CommandQueue(context, device)  # PoCL's contexts of a part of a device are of the whole


@contextmanager
def default_device(device: cl.Device) -> Iterator[None]:
    """Let `device` be the one that calls without a queue use, in all threads."""
    global _default
    context = cl.Context([device])
    # Context and queue are made before the lock is taken, since drivers may take long.
    default, before = (context, cl.CommandQueue(context, device)), _default
    try:
        with _default_lock:
            _default = default
        yield
    finally:
        with _default_lock:
            _default = before


def _asked_for() -> cl.Context:
    try:
        return cl.create_some_context(interactive=False)
    except (cl.Error, RuntimeError) as error:
        names = [
            f"{number} ({device.name.strip()} of {device.platform.name.strip()})"
            for device, number in numbers().items()
        ]
        raise NoDeviceError(
            f"PYOPENCL_CTX={os.environ['PYOPENCL_CTX']!r} chooses no device: {error}; there are {', '.join(names)}"
            f"{_about_order()}"
        ) from error


def is_processor(device: cl.Device) -> bool:
    """Whether `device` is a CPU."""
    return bool(device.type & cl.device_type.CPU)


@lru_cache(maxsize=64)
def device_kind(device: cl.Device) -> str:
    """Return the kind of plans: "cpu" for a CPU whose driver runs work-groups of one, "gpu" for everything else."""
    return "cpu" if is_processor(device) and not faults_of(device) else "gpu"


def device_profile(device: cl.Device) -> Profile:
    """Return the profile of `device` for the model: the one that ``CLHIST_PROFILE`` names, or its own.

    Inside `profile_context` it is that one.

    Raises
    ------
    ProfileError
        If a profile is broken, a number is nowhere to be had, or the named profile is missing or claims more than the
        device has.

    Examples
    --------
    >>> profile = clhist.device_profile(clhist.default_queue().device)
    >>> profile.local_memory > 0
    True
    """
    name, directory, instead = profile_names()
    if instead is not None:
        return checked_profile(instead, device)
    return _named_profile(name, directory, device) if name else own_profile(device)


# What is in the environment: to look into it takes a microsecond less than to ask `os.environ`, in each call.
_environ = os.environ
_variables: Any = getattr(os.environ, "_data", os.environ)
_PROFILE: Any = os.environ.encodekey(PROFILE_VARIABLE) if _variables is not os.environ else PROFILE_VARIABLE


def profile_names() -> tuple[str | None, str | None, Profile | None]:
    """Return the settings that select a profile: ``CLHIST_PROFILE``, ``CLHIST_PROFILES``, `profile_context`."""
    # A program may replace `os.environ`: then `_variables` are no longer those of the process.
    name = os.environ.get(PROFILE_VARIABLE) if os.environ is not _environ or _PROFILE in _variables else None
    return name, os.environ.get("CLHIST_PROFILES") if name else None, _instead


_instead: Profile | None = None


@contextmanager
def profile_context(profile: Profile) -> Iterator[None]:
    """Let `profile` be that of every device, in all threads: for tests of functions that take none.

    Nothing that was planned before is used inside, nor afterwards what is planned inside.
    """
    global _instead
    before = _instead
    try:
        _instead = profile
        yield
    finally:
        _instead = before


@lru_cache(maxsize=64)
def own_profile(device: cl.Device) -> Profile:
    """Return the profile of `device` from the profiles that match it and from what OpenCL reports.

    Raises
    ------
    ProfileError
        If a profile is broken, or a number is nowhere to be had.
    """
    return merge(report(device), usable_profiles(device_kind(device)))


def planning_profile(device: cl.Device) -> Profile:
    """Return `device_profile`; of a CPU with what it claims to have, as long as nothing has called for its proof.

    A copy for each work-item needs no atomics, and trying them costs a first call on Intel's runtime 0.2 s.
    """
    name, _, instead = profile_names()
    # Proof of atomics compiles kernels. As long as no call needed it, a CPU's plans do without.
    if name is None and instead is None and device not in _features and device_kind(device) == "cpu":
        return _claimed_profile(device)
    return device_profile(device)


def own_rates(device: cl.Device) -> Mapping[str, float]:
    """Return the measured rates of `own_profile`, which need no proof of atomics: that compiles in a first call."""
    return (own_profile if device in _features else _claimed_profile)(device).rates


@lru_cache(maxsize=64)
def _claimed_profile(device: cl.Device) -> Profile:
    return merge(report(device, claimed_features(device)), usable_profiles(device_kind(device)))


@lru_cache(maxsize=64)
def overheads(device: cl.Device) -> tuple[float, int, bool]:
    """Return the seconds of a small command, the compute units, and whether the memory is not the host's."""
    # A new context on a GPU takes a tenth of a second, so that the default one is used.
    default = _default
    context = default[0] if default is not None and default[1].device == device else None
    return launch_seconds(device, context), device.max_compute_units, not device.host_unified_memory


_measured: set[Profile] = set()


def trust(profile: Profile) -> Profile:
    """Return `profile`, which is taken as it is from now on: calibration has measured it, and no file says so yet."""
    _measured.add(profile)
    return profile


@lru_cache(maxsize=64)
def checked_profile(profile: Profile, device: cl.Device) -> Profile:
    """Return `profile`, with the features of `device` unless it has its own, if `device` has what it claims.

    Raises
    ------
    TypeError
        If it is no profile.
    ProfileError
        If its work-groups are larger, their local memory is more, or its features are others than `device` can have;
        both figures are named.
    """
    if not isinstance(profile, Profile):
        raise TypeError(f"profile: expected a clhist.Profile, such as clhist.named_profile gives, got {profile!r}")
    # Calibration plans with more local memory than any file allows yet.
    if profile not in _measured:
        check_fits(profile, report(device), usable_profiles(device_kind(device)))
    return profile if profile.features is not None else replace(profile, features=device_features(device))


@lru_cache(maxsize=64)
def _named_profile(name: str, _directory: str | None, device: cl.Device) -> Profile:
    """Return what `named_profile` finds, which depends on the user's directory too."""
    return checked_profile(named_profile(name, compute_units=device.max_compute_units), device)


def report(device: cl.Device, features: frozenset[str] | None = None) -> Report:
    """Return OpenCL's report of `device`, with its proven features unless others are given."""
    return Report(
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        kind=device_kind(device),
        compute_units=device.max_compute_units,
        max_work_group_size=device.max_work_group_size,
        local_memory=device.local_mem_size,
        cache=device.global_mem_cache_size,
        cache_line=device.global_mem_cacheline_size,
        aliases=_aliases(device),
        features=device_features(device) if features is None else features,
    )


def _aliases(device: cl.Device) -> tuple[str, ...]:
    """Return further names of a device; queries that its driver does not know are errors."""
    if is_processor(device):
        return processor_aliases(CPUINFO)
    try:
        # Extensions of AMD and NVIDIA: drivers of others answer with an error.
        return (device.board_name_amd.strip(),)
    except cl.Error:
        pass
    try:
        return (f"sm_{device.compute_capability_major_nv}{device.compute_capability_minor_nv}",)
    except cl.Error:
        return ()


def device_features(device: cl.Device, context: cl.Context | None = None) -> frozenset[str]:
    """Return the features of `device`, of `devices.atomics.ALL_FEATURES`; the first call tries those that need proof.

    Parameters
    ----------
    device : pyopencl.Device
        To be looked at.
    context : pyopencl.Context, optional
        One of its contexts, which saves making one.
    """
    with _features_lock:
        if device not in _features:
            said = claimed_features(device)
            # A device that does not work can prove nothing: its claims stay.
            _features[device] = said
            if known_problem(device) is None:
                from clhist._core.opencl.probe import proven_features  # which renders kernels

                try:
                    _features[device] = proven_features(context or cl.Context([device]), device, said)
                except BaseException:  # Ctrl-C, too: claims without a proof must not stay
                    del _features[device]
                    raise
        return _features[device]


def claimed_features(device: cl.Device) -> frozenset[str]:
    """Return the features that `device` claims, without proof."""
    return features_of(device.extensions, device.platform.name, device.opencl_c_version)


@lru_cache(maxsize=64)
def claims(device: cl.Device, feature: str) -> bool:
    """Whether `device` says that it has a feature; asked once, since drivers take long to answer."""
    return feature in claimed_features(device)


def has_fp64(device: cl.Device) -> bool:
    """Whether `device` has double precision."""
    return claims(device, "fp64")


def check_fp64(device: cl.Device, name: str, instead: str = "use float32 or integers") -> None:
    """Raise UnsupportedError if `device` has no double precision, with the argument that needs it and what to do."""
    if not has_fp64(device):
        raise UnsupportedError(f"{name}: {device.name.strip()} has no double precision (cl_khr_fp64); {instead}")


_features: dict[cl.Device, frozenset[str]] = {}
_features_lock = threading.Lock()


def memory_budget(device: cl.Device) -> int:
    """Return the bytes that copies may take on `device` by default: a quarter of its memory, in one buffer."""
    return min(device.global_mem_size // MEMORY_FRACTION, device.max_mem_alloc_size)


def known_problem(device: cl.Device) -> str | None:
    """Return why `device` is known not to work, with what to do, or None."""
    # PoCL before 3.1 hands the name of a processor that its LLVM does not know to a compiler that refuses it.
    pocl = re.search(r"PoCL (\d+)\.(\d+)", device.platform.version)
    if pocl and (int(pocl[1]), int(pocl[2])) < (3, 1) and device.version.rstrip().endswith("-generic"):
        return (
            f"PoCL {pocl[1]}.{pocl[2]} does not know this processor (github.com/pocl/pocl/issues/1049). "
            'Intel\'s OpenCL does, whoever made the processor: pip install "clhist[cpu]"; '
            "on Debian and Ubuntu also: apt-get install pocl-opencl-icd"
        )
    return None


def _devices(platform: cl.Platform) -> list[cl.Device]:
    try:
        return platform.get_devices()
    except cl.Error:  # how PyOpenCL reports a platform without devices
        return []


def _contains(name: str, part: str | None) -> bool:
    return part is None or part.lower() in name.lower()
