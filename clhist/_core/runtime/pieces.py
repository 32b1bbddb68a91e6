"""Calls in pieces of their elements: each piece is combined with the results of the pieces before it."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Whether each result is one array that overlaps none of the map's `arrays` and no `dest` of another output."""
    read = [checked.values[n] for n in arrays]
    for target in checked.targets:  # a `dest` that its own `out` overlaps is that, or was copied
        # A piece writes results before the next one is read, so no array may be both.
        others = [dest for other in checked.targets if other is not target for dest in other.dest or ()]
        if target.fields or any(overlap(array, out) for out in target.out or () for array in (*read, *others)):
            return False
    return True


def by_pieces(engine: Engine, checked: CheckedCall, call: Call, step: int) -> Outcome:
    """Run a call `step` elements at a time; NumPy arrays are copied piece by piece, and results at the end."""
    queue, targets = checked.queue, checked.targets
    dests: list[Array | None] = [None if target.dest is None else target.dest[0] for target in targets]
    outs: list[Array | None] = [None if target.out is None else target.out[0] for target in targets]
    if checked.on_device:
        return _in_turn(engine, checked, call, step, dests, outs)
    # Allocated first: nothing is computed if the host has no room for one.
    new = (
        empty(None, target.shape, target.operator.dtype, False) if target.out is None else None for target in targets
    )
    results: list[Array] = [array if out is None else out for array, out in zip(new, outs, strict=True)]
    # Results stay on the device from piece to piece, and are copied once at the end.
    there = [None if dest is None else in_place(dest, queue) for dest in dests]
    total = _in_turn(engine, checked, call, step, there, [None] * len(outs))
    for out, result in zip(results, total.results, strict=True):
        result.get(queue, out)
    for target, out in zip(targets, results, strict=True):
        check_range(target.name, target.operator, out)
    return replace(total, results=results)


def _in_turn(engine: Engine, checked: CheckedCall, call: Call, step: int, dests: _Arrays, outs: _Arrays) -> Outcome:
    """Combine `dests` with one piece after the other on the device.

    Between pieces, bins are accumulators if these contain more than results; `accumulator_bytes` is 0 otherwise.
    """
    # Accumulators between pieces take a part of the caller's budget.
    accumulator_bytes = kept_bytes(engine.outputs.operators, [prod(shape) for shape in checked.shapes])
    budget = call.memory_budget
    call = replace(
        call,
        queue=checked.queue,
        wait_for=checked.wait_for,
        memory_budget=budget and max(1, budget - accumulator_bytes),
    )
    total, done, new, like = Outcome([*dests], {}, {}), 0, [None] * len(outs), engine.outputs.like

    def compute(args: list[Any], size: int) -> list[cl.Event]:
        nonlocal done
        # Only the first piece reads values and only the last writes results: in between, bins are accumulators.
        is_first, done = done == 0, done + size
        is_last = done == checked.size
        partial = tuple(name for name, ends in (("dest", is_first), ("out", is_last)) if accumulator_bytes and not ends)
        # Accumulators have another dtype than results, so `out` takes the last piece alone; values are updated in
        # place.
        places = (outs if is_last else new) if accumulator_bytes else (outs if is_first else total.results)
        piece_call = replace(call, size=size, dest=like(total.results), out=like([*places]), partial=partial)
        outcome = engine.run(args, piece_call if is_last else replace(piece_call, largest=None))
        total.results = outcome.results
        for stage, events in outcome.events.items():
            total.events.setdefault(stage, []).extend(events)
        total.after.update(outcome.after)
        return [outcome.event]

    chunks = Chunks(
        checked.queue, step * max((argument.dtype.itemsize for argument in engine.source.elementwise), default=1)
    )
    chunks.feed(Piece(engine, checked.values, checked.size, checked.on_device, step, None, 0), compute)
    return total
