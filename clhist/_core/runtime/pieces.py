"""A call that is done in pieces of its elements: each is combined with the results of those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from clhist._core.model.pieces import kept_bytes
from clhist._core.opencl.arrays import Array, overlap
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.operands import in_place
from clhist._core.runtime.call import Call, CheckedCall, Outcome
from clhist._core.runtime.chunks import Chunks, Piece
from clhist.operators.fixed_point import check_range

if TYPE_CHECKING:
    from clhist._core.runtime.engine import Engine

_Arrays = Sequence[Array | None]


def are_apart(checked: CheckedCall, arrays: Sequence[int]) -> bool:
    """Whether results are one array each, and neither the map's `arrays` nor what others are combined with."""
    read = [checked.values[n] for n in arrays]
    for each in checked.targets:  # a `dest` that its own `out` overlaps is that, or was copied
        others = [dest for other in checked.targets if other is not each for dest in other.dest or ()]
        if each.fields or any(overlap(array, out) for out in each.out or () for array in (*read, *others)):
            return False
    return True


def by_pieces(engine: Engine, checked: CheckedCall, call: Call, step: int) -> Outcome:
    """Run a call `step` elements at a time; NumPy arrays are copied piece by piece, and results at the end."""
    queue, targets = checked.queue, checked.targets
    dests: list[Array | None] = [None if each.dest is None else each.dest[0] for each in targets]
    outs: list[Array | None] = [None if each.out is None else each.out[0] for each in targets]
    if checked.on_device:
        return _in_turn(engine, checked, call, step, dests, outs)
    # Allocated first: nothing is computed if the host has no room for one.
    new = (empty(None, each.shape, each.operator.dtype, False) if each.out is None else None for each in targets)
    found: list[Array] = [each if out is None else out for each, out in zip(new, outs, strict=True)]
    there = [None if dest is None else in_place(dest, queue) for dest in dests]
    total = _in_turn(engine, checked, call, step, there, [None] * len(outs))
    for out, result in zip(found, total.results, strict=True):
        result.get(queue, out)
    for target, out in zip(targets, found, strict=True):
        check_range(target.name, target.operator, out)
    return replace(total, results=found)


def _in_turn(engine: Engine, checked: CheckedCall, call: Call, step: int, dests: _Arrays, outs: _Arrays) -> Outcome:
    """Combine `dests` with each piece in turn on the device, as accumulators where these hold more than results."""
    kept = kept_bytes(engine.outputs.operators, [prod(shape) for shape in checked.shapes])
    names, budget = [each.name for each in engine.arguments], call.memory_budget
    call = replace(call, queue=checked.queue, wait_for=checked.wait_for, memory_budget=budget and max(1, budget - kept))
    total, done, new, like = Outcome([*dests], {}, {}), 0, [None] * len(outs), engine.outputs.like

    def compute(values: Mapping[str, Any], size: int) -> list[cl.Event]:
        nonlocal done
        is_first, done = done == 0, done + size
        is_last = done == checked.size
        held = tuple(name for name, ends in (("dest", is_first), ("out", is_last)) if kept and not ends)
        places = (outs if is_last else new) if kept else (outs if is_first else total.results)
        each = replace(call, size=size, dest=like(total.results), out=like([*places]), partial=held)
        found = engine.run([values[name] for name in names], each if is_last else replace(each, largest=None))
        total.results = found.results
        for stage, events in found.events.items():
            total.events.setdefault(stage, []).extend(events)
        total.after.update(found.after)
        return [found.event]

    given = dict(zip(names, checked.values, strict=True))
    chunks = Chunks(checked.queue, step * max((each.dtype.itemsize for each in engine.source.elementwise), default=1))
    chunks.feed(Piece(engine, given, checked.size, checked.on_device, step, None, 0), compute)
    return total
