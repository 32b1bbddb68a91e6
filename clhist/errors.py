"""The errors that are clhist's own; wrong arguments raise TypeError and ValueError as everywhere in Python."""

from __future__ import annotations


class NoDeviceError(RuntimeError):
    """There is no OpenCL device that can be used; the message says how to get one."""


class UnsupportedError(RuntimeError):
    """The device lacks what the call needs, such as double precision; the message names both."""


class DeviceLostError(RuntimeError):
    """A fault ended all work of this process on a device; the message says at which call. Restart the process."""


class ProfileError(ValueError):
    """A device profile is broken, missing, or claims more than the device has; the message names it and the key."""


class BuildError(RuntimeError):
    """The device's compiler refused a kernel; the message shows the line of the operator or map that is wrong.

    Attributes
    ----------
    source : str
        The generated OpenCL C.
    log : str
        The compiler's full output.
    """

    def __init__(self, message: str, source: str = "", log: str = "") -> None:
        super().__init__(message)
        self.source, self.log = source, log
