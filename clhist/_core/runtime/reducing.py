"""Reductions of values by indices by kernels, and calls that repeat earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.model.updates import GATHER
from clhist._core.opencl.arrays import is_array, is_device_array, overlap
from clhist._core.runtime.call import Call, Outcome, call_of, queue_for, queue_of
from clhist._core.runtime.call import checked_events as checked_events
from clhist._core.runtime.call_template import CallTemplate, Sizes, SweepCalls, sizes_of
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.multi_index import flat_indices as flat_indices
from clhist._core.runtime.pairs import Pairs, as_parts
from clhist._core.runtime.reading import as_array
from clhist._core.runtime.row_means import are_row_means, row_means
from clhist._core.runtime.scatter import ScatterSpec, arguments_of, elements, pair_spec, scatter_engine
from clhist._core.runtime.signature import call_templates, keys_of_columns, signature_of
from clhist.operators.reproducible import is_complex_sum, reproducible_form


def repeated(arguments: tuple[Any, ...], allocator: Any, wait_for: Any) -> tuple[Outcome | None, Hashable]:
    """Run a call on device arrays if it repeats an earlier one; return its outcome, or None, and its signature.

    The first `arguments` are `dest`, `op`, `indices`, `values`, `queue` and `out` of `reduce_by_index`.
    """
    dest, _, indices, values, _, out, *_ = arguments
    # A call whose `out` overlaps its data may have to copy, which a repeat does not.
    key, sizes = (None, None) if _shares(out, indices, values) else _signature(arguments)
    entry: _Repeated | None = call_templates.get(key)
    if entry is None:
        return None, key
    arrays = (indices, *values) if isinstance(values, tuple) else (indices, values)
    template = entry.template
    call = template.call_with(dest if entry.has_dest else None, out, allocator, wait_for)
    return template.calls.engine.run_template(template, arrays[: entry.num_arrays], call, sizes or entry.sizes), key


class _Repeated(NamedTuple):
    """A call on device arrays: how many of them its template has slots for, and whether `dest` is an array."""

    template: CallTemplate
    num_arrays: int
    has_dest: bool
    sizes: Sizes


def _signature(arguments: tuple[Any, ...]) -> tuple[Hashable, Sizes | None]:
    """Return the signature of the arguments of `repeated`, and the sizes if it is that of calls of all sizes."""
    dest, operator, indices, values, queue, out, reproducible, max_abs, *more = arguments
    batched, dtype, offsets, options = more or (False, None, None, None)
    # Exact sums have another operator for another number of elements, and histograms of a batch other lengths.
    if not (reproducible or batched) and offsets is None and (targets := _keys_of_targets(dest, out)) is not None:
        columns = [indices]
        others: tuple[Any, ...] = max_abs, dtype, options
        if is_device_array(values):
            columns.append(values)
        elif type(values) is tuple and all(map(is_device_array, values)):
            columns += values
        else:
            others = *others, values
        # No scalar of the map depends on the length of columns or of results.
        if (parts := keys_of_columns(columns)) is not None:
            bins, results = targets
            rest = signature_of(operator, queue) if others == _NO_OTHERS else signature_of(operator, queue, *others)
            is_tuple = type(values) is tuple
            key = None if rest is None else ("reduce_by_index", is_tuple, *parts, *results, *rest)
            return key, sizes_of(indices.size, bins)
    return signature_of("reduce_by_index", *arguments), None


_NO_OTHERS: tuple[Any, ...] = (None, None, None)


def _keys_of_targets(dest: Any, out: Any) -> tuple[tuple[int, ...], list[Hashable]] | None:
    """Return the bins, and the keys of `dest` and `out` without their length; None unless these are columns."""
    if type(dest) is int:
        bins, first = (dest,), None
    elif is_device_array(dest):
        bins, first = dest.shape, dest
    else:
        return None
    if out is not None and not (is_device_array(out) and out.shape == bins):
        return None
    keys = [] if first is out is None else keys_of_columns((first, out))
    return None if keys is None or len(bins) != 1 or bins[0] <= 0 else (bins, keys)


def by_kernels(
    run: Callable[..., Outcome],
    pairs: Pairs,
    key: Hashable,
    queue: cl.CommandQueue | None,
    out: Any,
    reproducible: bool,
    max_abs: float | None,
    options: Mapping[str, Any],
    offsets: Any,
) -> tuple[Any, cl.Event]:
    """Return the result that kernels compute of pairs, and its event; a call with a `key` is kept for its repeats.

    `run` runs a call of an engine; the other parameters are those of `reduce_by_index`.
    """
    queue = queue_for(queue, pairs.indices.context if pairs.on_device else None, queue_of(*pairs.arrays))
    # Complex sums may be computed by parts; the original pairs say what to return.
    whole, given_out = pairs, out
    if reproducible:
        pairs, out = _reproducible(pairs, out, max_abs)
    spec = _spec(pairs, queue.device)
    call = _call(pairs, spec, options, offsets)
    call.out, call.queue = out, queue
    pairs = _apart(pairs, spec, call)
    args = arguments_of(spec, pairs.indices, pairs.values, pairs.shape[1 if pairs.batched else 0])
    if are_row_means(spec, call):
        result, event = row_means(run, spec, call, pairs.shape, args)
    else:
        engine = scatter_engine(queue.context, spec)
        outcome = run(engine, args, call)
        (result,), event = outcome.results, outcome.event
        _remember(key, pairs, whole, engine, args, call)
    return _as_whole(result, whole, given_out), event


def _spec(pairs: Pairs, device: cl.Device) -> ScatterSpec:
    """Return what the engine of pairs depends on."""
    return pair_spec(pairs.operator, pairs.indices, pairs.values, prod(pairs.row), device, pairs.with_position)


def _reproducible(pairs: Pairs, out: Any, max_abs: float | None) -> tuple[Pairs, Any]:
    """Return pairs and `out` of sums that no order of values changes; those of complex numbers by parts."""
    if is_complex_sum(pairs.operator):
        out = None if out is None else _out_by_parts(out, pairs)
        pairs = pairs.by_parts()
    # One more than the pairs: `dest` counts as a value of its bin.
    form = reproducible_form(pairs.operator, max_abs, int(prod(pairs.indices.shape)) + 1)
    return replace(pairs, operator=form), out


def _as_whole(result: Any, pairs: Pairs, out: Any) -> Any:
    """Return a result as complex numbers if it is of their parts; in `out`, if that was given."""
    if not is_complex_sum(pairs.operator) or result.dtype.kind == "c":
        return result
    return result.reshape(-1).view(pairs.operator.dtype).reshape(pairs.shape) if out is None else out


def _out_by_parts(out: Any, pairs: Pairs) -> Any:
    """Return `out` of complex sums as vectors of two, or raise TypeError or ValueError if it is not as the result."""
    dtype, kind = pairs.operator.dtype, "PyOpenCL" if pairs.on_device else "NumPy"
    if is_device_array(out) is not pairs.on_device or not hasattr(out, "dtype") or out.dtype != dtype:
        raise TypeError(f"out: expected an array of {kind} of {dtype}, got {type(out).__name__} {out!r:.60}")
    if out.shape != pairs.shape or not out.flags.c_contiguous:
        raise ValueError(f"out: expected a contiguous array of shape {pairs.shape}, got {out.shape}, {out.strides}")
    return as_parts(out)


def _shares(out: Any, *others: Any) -> bool:
    """Whether an array of a result shares memory with an array of `others`."""
    if out is None:
        return False
    outs = [array for array in (out if isinstance(out, tuple) else (out,)) if is_array(array)]
    arrays = chain.from_iterable(entry if isinstance(entry, tuple) else (entry,) for entry in others)
    return any(overlap(array, result) for array in arrays if is_array(array) for result in outs)


def _apart(pairs: Pairs, spec: ScatterSpec, call: Call) -> Pairs:
    """Return pairs that share no memory with results, which kernels may write while they read rows."""
    out = call.out
    # Scalars are read completely before results are written; kernels that gather, or take rows, do both at once.
    if (spec.vector == 1 and call.choices.update != GATHER) or not _shares(out, pairs.indices, pairs.values):
        return pairs

    def copied_if_shared(array: Any) -> Any:
        return array.copy() if _shares(out, array) else array

    values = (
        tuple([copied_if_shared(component) for component in pairs.values])
        if isinstance(pairs.values, tuple)
        else pairs.values
    )
    return replace(pairs, indices=copied_if_shared(pairs.indices), values=values)


def _call(pairs: Pairs, spec: ScatterSpec, options: Mapping[str, Any], offsets: Any) -> Call:
    """Return the call of the engine of `spec`, but for its queue and where results go."""
    call = call_of(pairs.shape[1:] if pairs.batched else pairs.shape, options)
    # On a GPU an element is a component, so offsets of rows are multiplied by the components.
    call.size, call.dest = elements(spec, pairs.indices), pairs.dest
    if offsets is not None:
        call.offsets = offsets if spec.by_rows or spec.vector == 1 else as_array("offsets", offsets) * spec.vector
    elif pairs.batched:
        call.num_histograms = pairs.shape[0]
    return call


def _remember(key: Hashable, pairs: Pairs, whole: Pairs, engine: Engine, args: Sequence[Any], call: Call) -> None:
    """Store a call on device arrays by its signature, unless its repeats have to measure a race factor."""
    if key is None or isinstance(call.race_factor, str):
        return
    if pairs.shape != whole.shape:  # sums of complex numbers by parts, whose arrays are not the caller's
        return
    # Device arrays leave slots, so that the cache keeps none alive; all other arguments are in the signature.
    same = [None if is_device_array(value) else value for value in args]
    offsets = None if call.offsets is None else np.array(call.offsets)  # which the caller may change
    stored = replace(call, dest=None, out=None, allocator=None, wait_for=(), offsets=offsets)
    template = CallTemplate(SweepCalls(engine, {}), same, stored)
    assert call.size is not None
    sizes = Sizes(call.size, call.num_bins)
    call_templates.put(key, _Repeated(template, len(pairs.arrays) - len(pairs.dests), bool(pairs.dests), sizes))
