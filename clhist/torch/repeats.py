"""Repeated calls on tensors of CUDA: the launches of an earlier call with the same signature, without its checks.

A call is recorded if it only repeated one set of launches and returned their result (`runtime.cuda_repeats`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial, wraps
from inspect import signature
from typing import Any, NamedTuple, TypeVar, cast

import torch

from clhist._core.spi import (
    ANEW,
    LastRepeat,
    NotDirectError,
    OutOfMemoryError,
    Repeat,
    call_templates,
    profile_names,
    record_repeats,
    report_origin,
    report_repeat,
)
from clhist.torch.checks import CHECKED
from clhist.torch.eager import TENSORS, is_watched

F = TypeVar("F", bound=Callable[..., Any])

# Kernels use vector loads of so many bytes at addresses that are a multiple of it.
_LOAD_BYTES = 16
_REAL = frozenset(CHECKED)
_NUMBERS = frozenset((type(None), bool, int, str))


class _RecordedCall(NamedTuple):
    """The repeat of a call, and the numbers of the tensors that are its arrays.

    Attributes
    ----------
    repeat : Repeat
        The launches.
    order : tuple of int
        Numbers of the tensors that are the arrays of `repeat`.
    apply : callable or None
        `torch.autograd.Function.apply` of the operator, where a tensor requires a gradient.
    args : tuple
        Arguments of `apply` after the launches: tensors by number (`_Tensor`), and constants.
    """

    repeat: Repeat
    order: tuple[int, ...]
    apply: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()


class _Tensor(NamedTuple):
    """The number of a tensor of a call, in the place of an argument."""

    number: int


def repeats(needed: str = "") -> Callable[[F], F]:
    """Let a function launch again what an earlier call with the same signature launched.

    Parameters
    ----------
    needed : str
        The parameter without which results have shapes that depend on the content of tensors.
    """

    def repeating(function: F) -> F:
        place = list(signature(function).parameters).index(needed) if needed else -1

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if is_watched():
                return function(*args, **options)
            # The shape of the result depends on the content of tensors, so the launches cannot be repeated.
            if needed and (args[place] if place < len(args) else options.get(needed)) is None:
                return function(*args, **options)
            tensors: list[Any] = []
            addresses: list[int] = []
            key = _signature(function, args, options, tensors, addresses)
            if key is None:
                return function(*args, **options)
            recorded: _RecordedCall | None = call_templates.get(key)
            if recorded is not None:
                # The launches run inside of the autograd function, which gives the result its gradient.
                if recorded.apply is not None:
                    launch = partial(_repeated, key, recorded, tensors, addresses)
                    inputs = [tensors[arg.number] if type(arg) is _Tensor else arg for arg in recorded.args]
                    result = recorded.apply(launch, *inputs)
                    report_origin(result, (recorded.apply, tuple(inputs)))
                    return result
                result = _repeated(key, recorded, tensors, addresses)
                if result is not ANEW:
                    return result
            with record_repeats() as recorder:
                result = function(*args, **options)
                if (last := recorder.repeat_of(result)) is not None:
                    _record(key, tensors, addresses, last)
            return result

        return cast(F, call)

    return repeating


def _signature(
    function: Any, args: tuple[Any, ...], options: dict[str, Any], tensors: list[Any], addresses: list[int]
) -> Hashable:
    """Return the signature of a call, and add its tensors and their addresses; None if the call has none."""
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    if is_deterministic and torch.is_deterministic_algorithms_warn_only_enabled():
        # Such calls are not recorded: each may warn.
        return None
    has_gradients = torch.is_grad_enabled()
    # Modes and profiles decide the plan, so they are a part of the signature.
    parts: list[Any] = [function, is_deterministic, *profile_names()]
    for value in (*args, *options.values()) if options else args:
        kind = type(value)
        if kind in _NUMBERS:
            parts += (kind, value)
        elif kind in TENSORS:
            dtype, device = value.dtype, value.get_device()
            # -1 is the CPU: only launches on CUDA are recorded.
            if device < 0 or dtype not in _REAL:
                return None
            try:
                # Kernels read memory as it is, so the call copies tensors with strides or a pending negation first.
                if not value.is_contiguous() or value.is_neg():
                    return None
                address = value.data_ptr()
            except RuntimeError:  # a batch of `torch.autograd.functional.jacobian(vectorize=True)` has none
                return None
            parts += (dtype, value.shape, device, address % _LOAD_BYTES, has_gradients and value.requires_grad)
            tensors.append(value)
            addresses.append(address)
        elif kind is float and value:  # 0.0 is equal to -0.0
            parts += (kind, value)
        else:
            return None
    return (*parts, *options) if tensors else None


def _record(key: Hashable, tensors: list[Any], addresses: list[int], last: LastRepeat) -> None:
    """Store the launches of a call for its repeats, if its arrays are the tensors of the call."""
    # Tensors that share an address cannot be told apart, and memory that is no argument is not known to a repeat.
    if len(set(addresses)) < len(addresses) or not set(addresses).issuperset(last.addresses):
        return
    apply, args = last.origin or (None, ())
    # Without its autograd function, the result of a repeat would lose the gradient.
    if apply is None and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return
    # Arguments of the autograd function are stored as numbers, so that the cache keeps no tensor alive.
    numbers = {id(tensor): n for n, tensor in enumerate(tensors)}
    if any(type(arg) in TENSORS and id(arg) not in numbers for arg in args):
        # An array is a tensor computed from the arguments, which a repeat would not compute again.
        return
    places = tuple(_Tensor(numbers[id(arg)]) if type(arg) in TENSORS else arg for arg in args)
    call_templates.put(key, _RecordedCall(last.repeat, tuple(map(addresses.index, last.addresses)), apply, places))


def _repeated(key: Hashable, recorded: _RecordedCall, tensors: list[Any], addresses: list[int]) -> Any:
    """Return the result of a call that is repeated, or `ANEW`."""
    repeat, order, *_ = recorded
    # After many hits, the call pays off a plan for its exact size.
    if not repeat.is_worth_it():
        call_templates.take(key)
        return ANEW
    try:
        result, is_good = repeat.run([tensors[n] for n in order], [addresses[n] for n in order])
    except (NotDirectError, OutOfMemoryError):
        # A single launch that failed has enqueued nothing: make the call anew. Several launches may have.
        if not repeat.is_one_launch:
            raise
        result, is_good = ANEW, False
    if not is_good:
        call_templates.take(key)
    else:
        report_repeat(repeat, addresses, order, result)
    return result
