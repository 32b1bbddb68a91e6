"""A device for each worker of a cluster."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pyopencl as cl

from clhist._core.spi import default_queue, device_name, devices, is_processor, use_device

# Descriptors of lock files, open for as long as this process has its device.
_locks: list[int] = []


def use_devices(client: Any, platform: str | None = None, device: str | None = None) -> dict[str, str]:
    """Give each worker process of a cluster a device of its own, or its part of the processor.

    Parameters
    ----------
    client : distributed.Client
        Connected to the scheduler. Workers that join later get a device as well.
    platform, device : str, optional
        Only devices whose platform's or own name contains this.

    Returns
    -------
    dict of str to str
        The device of each worker, by its address.

    Raises
    ------
    TypeError
        If it is no client.
    NoDeviceError
        If a worker has no such device.

    Notes
    -----
    The processes of one host take its devices in order, each the first that is free; once none is, they share. Workers
    of a GPU need one thread only (``threads_per_worker=1``). Of a processor each worker uses as many cores as it has
    threads, where OpenCL alone would use all of them for every worker.

    Examples
    --------
    >>> from dask.distributed import Client, LocalCluster  # doctest: +SKIP
    >>> client = Client(LocalCluster(n_workers=2, threads_per_worker=1))  # doctest: +SKIP
    >>> devices = clhist.dask.use_devices(client)  # doctest: +SKIP
    """
    if not hasattr(client, "register_plugin"):
        raise TypeError(f"client: expected a distributed.Client, got {type(client).__name__}")
    from distributed import WorkerPlugin

    class Devices(WorkerPlugin):
        """Chooses the default device of a worker's process."""

        name = "clhist.dask.use_devices"

        def setup(self, worker: Any) -> None:
            take_device(platform, device, str(worker.name), worker.state.nthreads)

    client.register_plugin(Devices())
    return dict(client.run(_device))


def take_device(
    platform: str | None = None, device: str | None = None, name: str = "", cores: int | None = None
) -> str:
    """Let this process use the first device that no other process of the host has taken in this way.

    Parameters
    ----------
    platform, device : str, optional
        Only devices whose platform's or own name contains this.
    name : str
        Of the process; its number decides if no device is free.
    cores : int, optional
        How many cores of a processor it uses. Defaults to all.

    Returns
    -------
    str
        The device.

    Examples
    --------
    >>> name = clhist.dask.take_device(cores=2)  # doctest: +SKIP
    """
    # Locks are numbered by the position among all devices, so that processes with different filters agree on them.
    every = devices()
    first, *others = every if platform is None and device is None else devices(platform, device)
    # Other platforms may list the same processor.
    if is_processor(first):
        others = [other for other in others if other.platform == first.platform]
    candidates = [first, *(other for other in others if other.type == first.type)]
    free = next((candidate for candidate in candidates if _take(every.index(candidate))), None)
    if free is None:
        # Without a free device, or without locks (Windows), share devices by the worker's number or the process id.
        free = candidates[(int(name) if name.isdigit() else os.getpid()) % len(candidates)]
    use_device(_part(free, cores))
    return _device()


def _part(device: cl.Device, cores: int | None) -> cl.Device:
    """Return so many cores of a processor; the device itself if it has no more, or cannot be divided."""
    if cores is None or not is_processor(device) or cores >= device.max_compute_units:
        return device
    # Partitioning is optional in OpenCL, and a device may support other kinds only.
    try:
        by_counts: list[Any] = [cl.device_partition_property.BY_COUNTS, cores]
        return device.create_sub_devices(by_counts)[0]
    except cl.Error:
        return device


def _take(number: int) -> bool:
    """Whether this process could lock the device of that number."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    path = Path(tempfile.gettempdir()) / f"clhist-{os.getuid()}-device-{number}.lock"
    # Others can write there too. A link is not followed and nothing is truncated, so that their file cannot make this
    # process touch another; O_NONBLOCK, since a pipe would be waited for.
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:  # a link, a directory, or another user's
        return False
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
            raise PermissionError(f"{path}: expected a regular file of this user")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    # The operating system releases the lock when the process ends, even a killed one.
    _locks.append(file)
    return True


def _device() -> str:
    queue = default_queue()
    cores = queue.device.max_compute_units
    part = "" if not is_processor(queue.device) else f", {cores} core{'s' * (cores != 1)}"
    return f"{device_name(queue)}{part}"
