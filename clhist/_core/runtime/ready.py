"""Parts of a call that an engine keeps for its repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from clhist._core.cuda.driver import heard
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.runtime.launcher import Loaded
from clhist._core.runtime.prepared import New, Part, Prepared

if TYPE_CHECKING:
    from clhist._core.runtime.cuda_launcher import CudaLoaded

_MANY = 32

Operands = tuple[list[Array | None], list[Any]]  # arrays and scalars of a call, as `Loaded.run` takes them


def loaded_call(
    queue: cl.CommandQueue,
    prepared: Prepared,
    smaller: Callable[[Part, int], Sequence[Part]] | None = None,
    same: Mapping[str, Any] = MappingProxyType({}),
) -> Loaded | CudaLoaded:
    """Return what runs a prepared call on a queue: by OpenCL, or by CUDA if the queue stands for a device of that."""
    if cuda_device_of(queue) is None:
        return Loaded(queue, prepared, smaller, same)
    from clhist._core.runtime.cuda_launcher import CudaLoaded

    return CudaLoaded(queue, prepared, smaller, same)


@dataclass(slots=True)
class Uses:
    """How often a call was made as it was planned for others as well; if often, to plan it for itself is worth it.

    `bins` are those of the plan if it is for all numbers of elements that `planned_size` rounds up to the same one.
    """

    number: int = 0
    bins: int | None = None

    @property
    def are_many(self) -> bool:
        return self.number >= _MANY

    def end(self) -> None:
        """Have the call planned for itself from now on."""
        self.number = _MANY


@dataclass(slots=True)
class Ready:
    """A prepared call on a queue, and what calls of the same signature need again.

    Attributes
    ----------
    loaded : Loaded or CudaLoaded
        What runs it.
    queue : pyopencl.CommandQueue
        Where.
    on_device : bool
        Whether arrays are PyOpenCL's.
    targets : tuple of int or None
        For each array after those of the map its number among those of `dest` and `out`; None of a new one.
    scalars : tuple of two lists
        The scalars of the call before as they were given, and as kernels take them.
    sizes : tuple of int
        How many elements and bins there are, as of `clhist._core.runtime.prepare.SIZES`, if kernels are given that.
    shape : tuple of int
        Of new results then.
    uses : Uses, optional
        How often it was run then.
    """

    loaded: Loaded | CudaLoaded
    queue: cl.CommandQueue
    on_device: bool
    targets: tuple[int | None, ...] = ()
    scalars: tuple[list[Any], list[Any]] = ([], [])
    sizes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    uses: Uses | None = None

    def ends_for_less(self) -> bool:
        """Return whether the device, which lacked memory for others' bins, may have enough for the call's own.

        Then the call is planned for itself from now on.
        """
        if self.uses is None or not self.loaded.prepared.is_of_one:
            return False
        self.uses.end()
        return True

    def counted(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Count one more of its `uses`, and return these with the numbers that kernels are given then."""
        assert self.uses is not None
        self.uses.number += 1
        if heard.calls is not None:
            heard.calls.append(self.uses)
        return [New(self.shape) if array is None else array for array in arrays], [*scalars, *self.sizes]
