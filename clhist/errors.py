"""The errors that are clhist's own; wrong arguments raise TypeError and ValueError as everywhere in Python."""

from __future__ import annotations


class NoDeviceError(RuntimeError):
    """There is no OpenCL device that can be used; the message says how to get one.

    Examples
    --------
    >>> try:
    ...     queue = clhist.default_queue()
    ... except clhist.NoDeviceError as error:
    ...     print(error)
    """


class UnsupportedError(RuntimeError):
    """The device lacks what the call needs, such as double precision; the message names both.

    Examples
    --------
    >>> try:
    ...     counts = clhist.bincount([0, 2, 2])
    ... except clhist.UnsupportedError as error:
    ...     print(error)
    """


class DeviceLostError(RuntimeError):
    """A fault ended all work of this process on a device; the message says at which call. Restart the process.

    Examples
    --------
    >>> try:
    ...     counts = clhist.bincount([0, 2, 2])
    ... except clhist.DeviceLostError as error:
    ...     print(error)  # then restart the process
    """


class ProfileError(ValueError):
    """A device profile is broken, missing, or claims more than the device has; the message names it and the key.

    Examples
    --------
    >>> try:
    ...     clhist.named_profile("no such device")
    ... except clhist.ProfileError as error:
    ...     print(str(error)[:40])
    profile 'no such device': there is none;
    """


class BuildError(RuntimeError):
    """The device's compiler refused a kernel; the message shows the line of the operator or map that is wrong.

    Attributes
    ----------
    source : str
        The generated OpenCL C.
    log : str
        The compiler's full output.

    Examples
    --------
    >>> kernel = clhist.HistogramKernel(None, "count", arguments="const int *x", map="EMIT(y[i], 1)")
    >>> try:
    ...     kernel(np.zeros(3, np.int32), num_bins=2)
    ... except clhist.BuildError as error:
    ...     print("y[i]" in error.source)
    True
    """

    def __init__(self, message: str, source: str = "", log: str = "") -> None:
        super().__init__(message)
        self.source, self.log = source, log
