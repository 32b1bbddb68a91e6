"""Parts of a call that an engine keeps for its repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyopencl as cl

from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.recording import heard
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.launcher import OpenCLExecutable
from clhist._core.runtime.prepared import New, Part, Prepared

# Uses of a shared plan after which a call gets one for its exact size.
_MANY = 32

Operands = tuple[list[Array | None], Sequence[Any]]  # arrays and scalars of a call, as `Executable.run` takes them


def executable_of(
    queue: cl.CommandQueue,
    prepared: Prepared,
    smaller: Callable[[Part, int], Sequence[Part]] | None = None,
    same: Mapping[str, Any] = MappingProxyType({}),
) -> Executable:
    """Return what runs a prepared call on a queue: by OpenCL, or by CUDA if the queue stands for a device of that."""
    if cuda_device_of(queue) is None:
        return OpenCLExecutable(queue, prepared, smaller, same)
    from clhist._core.runtime.cuda_launcher import CudaExecutable

    return CudaExecutable(queue, prepared, smaller, same)


@dataclass(slots=True)
class Uses:
    """The use count of a plan that several calls share; a frequent call gets a plan for its exact size.

    `bins` is the number of bins of the plan, if it serves all sizes that `planned_size` rounds up to the same one.
    """

    number: int = 0
    bins: int | None = None

    @property
    def are_many(self) -> bool:
        return self.number >= _MANY

    def end(self) -> None:
        """Request a plan for the exact size from now on."""
        self.number = _MANY


@dataclass(slots=True)
class Ready:
    """A prepared call on a queue, cached for calls of the same signature.

    Attributes
    ----------
    executable : Executable
        What runs it.
    queue : pyopencl.CommandQueue
        Where.
    on_device : bool
        Whether arrays are PyOpenCL's.
    targets : tuple of int or None
        For each array after those of the map, its index among the arrays of `dest` and `out`; None for a new result.
    scalars : tuple of two lists
        The scalars of the previous call, as passed and as kernels take them.
    sizes : tuple of int
        The values of `clhist._core.runtime.prepare.SIZES` that kernels get; empty if the plan is for exact sizes.
    shape : tuple of int
        The shape of new results, if kernels get the sizes.
    uses : Uses, optional
        The use count of a shared plan; None if the plan is for exact sizes.
    """

    executable: Executable
    queue: cl.CommandQueue
    on_device: bool
    targets: tuple[int | None, ...] = ()
    scalars: tuple[list[Any], list[Any]] = ([], [])
    sizes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    uses: Uses | None = None

    def of_sizes(self, sizes: tuple[int, ...]) -> Ready:
        """Return the call for other sizes that the plan serves, with a use count of its own."""
        # `dataclasses.replace` takes three times as long.
        same = self.executable, self.queue, self.on_device, self.targets, self.scalars
        return Ready(*same, sizes, self.shape, Uses())

    def ends_for_less(self) -> bool:
        """Return whether a plan for exactly this call's bins may fit after memory was refused; if so, request it."""
        # Only a call of one part and one result is certain to have enqueued nothing when memory is refused.
        if self.uses is None or not self.executable.prepared.is_of_one:
            return False
        self.uses.end()
        return True

    def counted(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Count a use; return the arrays, with shapes for new results, and the scalars followed by the sizes."""
        assert self.uses is not None
        self.uses.number += 1
        # A replay does not pass here, so the recording contains the counter.
        if heard.calls is not None:
            heard.calls.append(self.uses)
        return [New(self.shape) if array is None else array for array in arrays], [*scalars, *self.sizes]
