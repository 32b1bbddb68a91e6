"""Public functions that take arrays of CUDA's memory; what computes these is imported when there is one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from clhist._core.kinds import are_plain, may_be_cuda
from clhist._core.opencl.cuda_kinds import is_cuda

F = TypeVar("F", bound=Callable[..., Any])


def takes_cuda(function: F) -> F:
    """Let a public function take arrays of CUDA's memory wherever it takes device arrays.

    The function gets each as a `CudaArray`; results of this type are returned in the caller's library. If the function
    raises `NotDirectError`, it is called again with copies on the host.
    """
    return _taking(function, only=False)


def takes_cuda_only(function: F) -> F:
    """Do the same without the fallback to the host: raise UnsupportedError instead."""
    return _taking(function, only=True)


def _taking(function: F, *, only: bool) -> F:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        # Most calls have plain arguments.
        arguments = (*args, *options.values())
        if are_plain(arguments) or not any(map(may_be_cuda, arguments)):
            return function(*args, **options)
        return cuda_calls().call_on_cuda(function, args, options, only)

    return cast(F, call)


def takes_cuda_as(own: str, on_host: str = "", state: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Let a method take arrays of CUDA's memory if the attribute `own` of its object is such an array.

    What CUDA cannot do goes through the host if `on_host` names a method that returns such an object for there. If the
    result depends on no other attribute than `own` and those named in `state`, calls are repeated as of functions.
    """

    def taking(function: F) -> F:
        @functools.wraps(function)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            # The attribute tells the kind of the whole object, so the arguments need not be searched.
            array = getattr(self, own)
            if not is_cuda(array):
                return function(self, *args, **options)
            attributes = tuple([getattr(self, name) for name in state])
            return cuda_calls().call_of_object(function, array, attributes, on_host, (self, *args), options)

        return cast(F, call)

    return taking


@functools.cache
def cuda_calls() -> Any:
    """Return the module of calls on arrays of CUDA."""
    from clhist._core.runtime import cuda_calls

    return cuda_calls
