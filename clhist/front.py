"""The front door: what every public function begins with, whatever it computes.

OpenCL must work in this process, boolean options must be bools, a call with Dask collections goes to `clhist.dask`,
one with ``devices=`` to `clhist.multi_device`, both imported only then: Dask need not be installed. Arrays of CUDA are
described as device arrays are. The functions below see none of these. Those in `clhist` are what `entry` returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

import numpy as np

from clhist._core.kinds import are_plain, imported, may_be_cuda
from clhist._core.opencl import lost
from clhist._core.runtime.cuda_entry import cuda_calls, takes_cuda
from clhist._core.runtime.labelled import any_host_tensor, arrays_of_tensors, as_tensors, unlabelled
from clhist._core.runtime.small import check_refused
from clhist.operators.c_types import check_booleans

F = TypeVar("F", bound=Callable[..., Any])

_EAGER: set[type] = {np.ndarray}  # types without the methods of Dask collections, as far as calls had such arguments
# The functions, each with the parameter that decides whether Dask computes a call; nothing where it never does.
ENTRIES = {
    "bincount": "x",
    "digitize": "",
    "factorize": "",
    "group_by": "keys",
    "histogram": "a",
    "histogram2d": "x",
    "histogram_bin_edges": "",
    "histogramdd": "sample",
    "reduce_by_index": "indices",
    "unique": "",
}
# Results that are no tensors on any device: edges, and objects with methods.
_OF_HOST = {"group_by", "histogram_bin_edges"}
_WITH_EDGES = {"histogram", "histogram2d", "histogramdd"}


def is_lazy(value: object) -> bool:
    """Whether `value` is a Dask collection, or a list with one.

    A class may have Dask's methods and an instance no graph: an array of xarray is a collection only if it is chunked.
    Dask itself knows, and is imported already if there is a collection.
    """
    if isinstance(value, list | tuple):
        return any(hasattr(kind, "__dask_graph__") for kind in {*map(type, value)}) and any(map(is_lazy, value))
    if not hasattr(type(value), "__dask_graph__"):
        _EAGER.add(type(value))
        return False
    is_collection = imported("dask.base", "is_dask_collection")
    return is_collection is not None and bool(is_collection(value))


def entry(function: F) -> F:
    """Return one of the `ENTRIES` behind the front door; `function` computes arrays of NumPy and PyOpenCL."""
    parameters, data = signature(function).parameters, ENTRIES[function.__name__]
    names, place = frozenset(parameters), list(parameters).index(data) if data else 0
    is_of_host, has_edges = function.__name__ in _OF_HOST, function.__name__ in _WITH_EDGES
    by_place = [name for name, parameter in parameters.items() if parameter.kind == Parameter.POSITIONAL_OR_KEYWORD]
    check_flags, first_flag = _flags(parameters, by_place)
    own, function = function, takes_cuda(function)

    @wraps(function)
    def begin(*args: Any, **options: Any) -> Any:
        if lost.unchecked:
            lost.check_process()
        if len(args) > first_flag:
            check_flags(zip(by_place, args, strict=False))
        if options:
            check_flags(options.items())
            if not names.issuperset(options) and "options" not in names:
                # The function itself says what it expects.
                return function(*args, **options)
        if data:
            value = args[place] if len(args) > place else options.get(data)
            # Types that were searched for Dask's methods before cost one look-up in a set.
            if type(value) not in _EAGER and is_lazy(value):
                from clhist import dask as target

                computed_by = getattr(target, function.__name__)
                return _redirected(computed_by, function, args, options, "for Dask collections")
        if options.get("devices") is not None and not any(map(may_be_cuda, (*args, *options.values()))):
            from clhist import multi_device

            return _redirected(
                getattr(multi_device, f"{function.__name__}_over"), function, args, options, "with devices="
            )
        # Neither tensors nor CUDA arrays occur: arguments and results need no conversion.
        arguments = (*args, *options.values())
        if are_plain(arguments):
            return own(*args, **options)
        # Without PyTorch, no result is a tensor.
        may_be_tensors = not is_of_host and imported("torch", "Tensor") is not None
        if any(map(may_be_cuda, arguments)):
            result = cuda_calls().call_on_cuda(own, args, options, False)
        else:
            result = own(*(arrays_of_tensors(args, options) if may_be_tensors else args), **options)
        return as_tensors(result, has_edges) if may_be_tensors and any_host_tensor(arguments) else result

    begin.__module__ = "clhist"  # where pickle finds it
    return begin  # type: ignore[return-value]


def _flags(
    parameters: Mapping[str, Parameter], by_place: Sequence[str]
) -> tuple[Callable[[Iterable[tuple[str, Any]]], None], int]:
    """Return a check of boolean options, and the place of the first of them that may be positional.

    None passes for the options whose default it is.
    """
    flags = {
        name: parameter.default is None
        for name, parameter in parameters.items()
        if isinstance(parameter.default, bool) or str(parameter.annotation).startswith("bool")
    }
    places = [place for place, name in enumerate(by_place) if name in flags]

    def check_flags(options: Iterable[tuple[str, Any]]) -> None:
        for name, value in options:
            if name in flags and value is not True and value is not False and not (flags[name] and value is None):
                check_booleans(**{name: value})

    return check_flags, min(places, default=sys.maxsize)


def _redirected(
    target: Callable[..., Any], function: Callable[..., Any], args: Any, options: dict[str, Any], where: str
) -> Any:
    """Call `target` with the arguments of `function`; raise TypeError for one that it lacks.

    Keyword-only parameters of `target` have no counterpart in `function` and keep their defaults.
    """
    function_signature = signature(function)
    arguments = function_signature.bind(*args, **options).arguments
    arguments = {**arguments, **arguments.pop("options", {})}
    if names := arguments.pop("names", ()):  # of columns of keys
        arguments["num_groups"] = [arguments["num_groups"], *names]
    target_parameters = signature(target).parameters.values()
    names = [
        parameter.name
        for parameter in target_parameters
        if parameter.kind == parameter.POSITIONAL_OR_KEYWORD and parameter.name in arguments
    ]
    target_arguments = {name: arguments.pop(name) for name in names}
    # Parameters that are required by the target and optional in the function get the function's default.
    for parameter in target_parameters:
        if (
            parameter.name not in target_arguments
            and parameter.default is parameter.empty
            and parameter.name in function_signature.parameters
        ):
            target_arguments[parameter.name] = function_signature.parameters[parameter.name].default
    check_refused(arguments, where)
    return target(**{name: unlabelled(value) for name, value in target_arguments.items()})
