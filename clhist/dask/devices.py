"""A device for each worker of a cluster."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from clhist.opencl.device import default_queue, devices, use_device
from clhist.opencl.several import device_name

_locks: list[Any] = []  # open for as long as this process has its device


def use_devices(client: Any, platform: str | None = None, device: str | None = None) -> dict[str, str]:
    """Give each worker process of a cluster a device of its own.

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
    of a GPU need one thread only (``threads_per_worker=1``).
    """
    if not hasattr(client, "register_plugin"):
        raise TypeError(f"client: expected a distributed.Client, got {type(client).__name__}")
    from distributed import WorkerPlugin

    class Devices(WorkerPlugin):
        """Chooses the default device of a worker's process."""

        name = "clhist.dask.use_devices"

        def setup(self, worker: Any) -> None:
            take_device(platform, device, str(worker.name))

    client.register_plugin(Devices())
    return dict(client.run(_device))


def take_device(platform: str | None = None, device: str | None = None, name: str = "") -> str:
    """Let this process use the first device that no other process of the host has taken in this way.

    Parameters
    ----------
    platform, device : str, optional
        Only devices whose platform's or own name contains this.
    name : str
        Of the process; its number decides if no device is free.

    Returns
    -------
    str
        The device.
    """
    found = devices(platform, device)
    found = [each for each in found if each.type == found[0].type]
    number = next((k for k in range(len(found)) if _take(k)), None)
    if number is None:
        number = (int(name) if name.isdigit() else os.getpid()) % len(found)
    use_device(found[number])
    return _device()


def _take(number: int) -> bool:
    """Whether this process could lock the device of that number."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    file = (Path(tempfile.gettempdir()) / f"clhist-{os.getuid()}-device-{number}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return False
    _locks.append(file)
    return True


def _device() -> str:
    return device_name(default_queue())
