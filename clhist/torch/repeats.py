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
    NotDirectError,
    OutOfMemoryError,
    Repeat,
    ReportedRepeat,
    call_templates,
    finished,
    profile_names,
    record_repeats,
    recording_threads,
    report_origin,
    report_repeat,
)
from clhist.torch.checks import CHECKED
from clhist.torch.eager import TENSORS, is_watched

F = TypeVar("F", bound=Callable[..., Any])

# Kernels use vector loads of so many bytes at addresses that are a multiple of it.
_LOAD_BYTES = 16
_REAL = frozenset(CHECKED)
_c: Any = torch._C  # noqa: SLF001  # the public function calls this one
_is_deterministic: Callable[[], bool] = getattr(
    _c, "_get_deterministic_algorithms", torch.are_deterministic_algorithms_enabled
)
_NUMBERS = frozenset((type(None), bool, int, str))
_MOST_NUMBERS = 64  # of a sequence, which takes longer


class _Step(NamedTuple):
    """Recorded launches of a call.

    Attributes
    ----------
    repeat : Repeat
        The launches.
    order : tuple of int
        Numbers of the tensors that are its arrays: those of the call, then the results of steps before.
    finish : callable or None
        Makes the result from that of the launches.
    """

    repeat: Repeat
    order: tuple[int, ...]
    finish: Callable[[Any], Any] | None


class _RecordedCall(NamedTuple):
    """The steps that repeat a call.

    Attributes
    ----------
    earlier : list of _Step
        Make tensors that later steps read.
    last : _Step
        Makes the result.
    apply : callable or None
        `torch.autograd.Function.apply` of the operator, where a tensor requires a gradient. It runs `last`.
    args : list
        Arguments of `apply` after the launches, None in the place of tensors.
    places : list of tuple of int
        Where the tensors are among `args`, and their numbers.
    finish : callable or None
        Makes the result from that of `apply`.
    """

    earlier: list[_Step]
    last: _Step
    apply: Callable[..., Any] | None
    args: list[Any]
    places: list[tuple[int, Any]]
    finish: Callable[[Any], Any] | None


def repeats(*needed: str) -> Callable[[F], F]:
    """Let a function launch again what an earlier call with the same signature launched.

    Parameters
    ----------
    needed : str
        The parameters without all of which results have shapes that depend on the content of tensors.
    """

    def repeating(function: F) -> F:
        names = list(signature(function).parameters)
        places = [(name, names.index(name)) for name in needed]

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if is_watched():
                return function(*args, **options)
            # The shape of the result depends on the content of tensors, so the launches cannot be repeated.
            if places:
                for name, place in places:
                    if (args[place] if place < len(args) else options.get(name)) is not None:
                        break
                else:
                    return function(*args, **options)
            tensors: list[Any] = []
            addresses: list[int] = []
            key = _signature(function, args, options, tensors, addresses)
            if key is None:
                return function(*args, **options)
            recorded: _RecordedCall | None = call_templates.get(key)
            if recorded is not None:
                if recorded.apply is None and not recorded.earlier:
                    result = _launched(key, recorded.last, tensors, addresses)
                else:
                    result = _repeated(key, recorded, tensors, addresses)
                if result is not ANEW:
                    return result
                # The results of earlier steps were appended.
                tensors, addresses = [], []
                _signature(function, args, options, tensors, addresses)
            with record_repeats() as recorder:
                result = function(*args, **options)
                if reports := recorder.repeats_of(result):
                    _record(key, tensors, addresses, reports)
            return result

        return cast(F, call)

    return repeating


def _signature(
    function: Any, args: tuple[Any, ...], options: dict[str, Any], tensors: list[Any], addresses: list[int]
) -> Hashable:
    """Return the signature of a call, and add its tensors and their addresses; None if the call has none."""
    is_deterministic = _is_deterministic()
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
            # Tensors that share an address cannot be told apart in the recording.
            if address in addresses:
                return None
            parts += (dtype, value.shape, device, address % _LOAD_BYTES, has_gradients and value.requires_grad)
            tensors.append(value)
            addresses.append(address)
        elif (part := _number(value)) is not None:
            parts.append(part)
        else:
            return None
    return (*parts, *options) if tensors else None


def _number(value: Any) -> Hashable:
    """Return what stands for a float, or for a sequence of numbers, in a signature; None of others."""
    kind = type(value)
    if kind is float:  # 0.0 is equal to -0.0, and a NaN is not equal to itself
        return kind, value.hex()
    if kind not in (tuple, list) or len(value) > _MOST_NUMBERS:
        return None
    parts = [(type(entry), entry) if type(entry) in (int, bool) else _number(entry) for entry in value]
    return None if None in parts else (kind, *parts)


def _record(key: Hashable, tensors: list[Any], addresses: list[int], reports: list[ReportedRepeat]) -> None:
    """Store the launches of a call for its repeats, if their arrays are tensors of the call or results of launches."""
    numbers = {id(tensor): n for n, tensor in enumerate(tensors)}
    steps = _steps(addresses, reports, numbers)
    if steps is None:
        return
    *_, last = reports
    apply, args = last.origin or (None, ())
    # Without its autograd function, the result of a repeat would lose the gradient.
    if apply is None and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return
    places = [(k, numbers.get(id(arg))) for k, arg in enumerate(args) if type(arg) in TENSORS]
    if any(n is None for _, n in places):
        return
    # Arguments of the autograd function are stored as numbers, so that the cache keeps no tensor alive.
    constants = [None if type(arg) in TENSORS else arg for arg in args]
    call_templates.put(key, _RecordedCall(steps[:-1], steps[-1], apply, constants, places, last.outer))


def _steps(addresses: list[int], reports: list[ReportedRepeat], numbers: dict[int, int]) -> list[_Step] | None:
    """Return the steps of a call on arrays of these addresses; None if arrays are unknown. Number their results."""
    numbered = {address: n for n, address in enumerate(addresses)}
    steps = list[_Step]()
    for report in reports:
        # An array was computed by other means, which a repeat would leave out.
        if not numbered.keys() >= set(report.addresses):
            return None
        steps.append(_Step(report.repeat, tuple([numbered[address] for address in report.addresses]), report.inner))
        if report is reports[-1]:
            break
        for tensor in _entries(report.result):
            # The report keeps its result alive, so no other array has this address.
            if report.origin is not None or type(tensor) not in TENSORS or tensor.data_ptr() in numbered:
                return None
            numbered[tensor.data_ptr()] = numbers[id(tensor)] = len(numbered)
    # The host may have read a tensor that is no array of the launches, such as edges.
    return steps if {n for step in steps for n in step.order}.issuperset(range(len(addresses))) else None


def _entries(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _repeated(key: Hashable, recorded: _RecordedCall, tensors: list[Any], addresses: list[int]) -> Any:
    """Return the result of a call that is repeated, or `ANEW`; append the results of earlier steps to both lists."""
    earlier, last, apply, args, places, finish = recorded
    for step in earlier:
        result = _launched(key, step, tensors, addresses)
        if result is ANEW:
            return ANEW
        for tensor in _entries(result):
            tensors.append(tensor)
            addresses.append(tensor.data_ptr())
    if apply is None:
        return _launched(key, last, tensors, addresses)
    inputs = args.copy()
    for k, n in places:
        inputs[k] = tensors[n]
    # The launches run inside of the autograd function, which gives the result its gradient.
    result = apply(partial(_launched, key, last, tensors, addresses), *inputs)
    if recording_threads:
        report_origin(result, (apply, inputs))
    return result if finish is None else finished(result, finish)


def _launched(key: Hashable, step: _Step, tensors: list[Any], addresses: list[int]) -> Any:
    """Return the result of a step, or `ANEW`."""
    repeat, order, finish = step
    # After many hits, the call pays off a plan for its exact size.
    if repeat.shared and not repeat.is_worth_it():
        call_templates.take(key)
        return ANEW
    try:
        # Each function of Python takes 1 µs in the threads of backward passes; these have none.
        result, is_good = repeat.run([*map(tensors.__getitem__, order)], [*map(addresses.__getitem__, order)])
    except (NotDirectError, OutOfMemoryError):
        # A single launch that failed has enqueued nothing: make the call anew. Several launches may have.
        if not repeat.is_one_launch:
            raise
        result, is_good = ANEW, False
    if not is_good:
        call_templates.take(key)
    elif recording_threads:
        report_repeat(repeat, addresses, order, result)
    return result if finish is None or result is ANEW else finished(result, finish)
