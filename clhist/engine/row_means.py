"""Means of vectors on CPUs: the vectors of a bin are counted once, not once for each component, and sums divided.

A sum and a number for each component would be 16 bytes, four times as many as those of a float32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.elementwise import ElementwiseKernel

from clhist.engine.call import Call, Outcome
from clhist.engine.engine import Engine
from clhist.engine.results import target
from clhist.engine.scatter import ScatterSpec, value_text
from clhist.opencl.arrays import Array, empty, note_event, survey
from clhist.opencl.memory import scratch_allocator
from clhist.opencl.program import building, kept_by_context
from clhist.operators.c_types import c_name
from clhist.operators.statistics import sum_and_number


def are_row_means(spec: ScatterSpec, call: Call) -> bool:
    """Whether a call is left to `RowMeans`.

    With a `dest` it is not, whose components count as one value each; nor with choices, which are for the sweep of the
    operator itself.
    """
    is_plain = spec.by_rows and spec.values is not None and call.dest is None and not call.choices.forced
    return is_plain and sum_and_number(spec.operator) is not None


class RowMeans:
    """One such call: `engine` is run with `call`, and `finish` makes the means of what comes of it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    spec : ScatterSpec
        Of the arrays, with a mean as its operator.
    call : Call
        Of that operator.
    shape : tuple of int
        Of the means: of all histograms of a batch.
    given : sequence of arrays
        What is read: indices and values.

    Raises
    ------
    TypeError, ValueError
        If `out` is wrong.
    """

    def __init__(
        self, queue: cl.CommandQueue, spec: ScatterSpec, call: Call, shape: tuple[int, ...], given: tuple[Array, ...]
    ) -> None:
        out = target("", spec.operator, shape, None, call.out)
        arrays = survey([*zip(("indices", "values"), given, strict=True), *out.named], queue.context, 1)
        self._queue, self._on_device, self._wait_for = queue, arrays.on_device, arrays.events
        made = out.out or (empty(queue, shape, spec.operator.dtype, self._on_device, call.allocator),)
        self._means = made[0]
        self.engine = _engine(queue.context, spec)
        parts = {"number": call.num_bins[:1], "sum": call.num_bins}
        # Device memory that is new takes time, and nobody else sees these.
        allocator = scratch_allocator(queue) if self._on_device and call.allocator is None else call.allocator
        self.call = replace(call, num_bins=parts, out=None, allocator=allocator)

    def finish(self, outcome: Outcome) -> tuple[Array, cl.Event]:
        """Return the means, and the event after which they are there."""
        number, sums = outcome.results
        means, held, result = self._means, _real(sums.dtype), _real(self._means.dtype)
        if not self._on_device:
            divisor = number.astype(held).reshape(*number.shape, *[1] * (sums.ndim - number.ndim))
            with np.errstate(all="ignore"):
                np.divide(sums.view(held), divisor, out=means.view(result), casting="same_kind")
            return means, outcome.event
        components = np.int64(sums.nbytes // held.itemsize // number.size)
        waited = [outcome.event, *self._wait_for]
        given = (sums.view(held), number, means.view(result), components)
        event = _division(self._queue.context, held, result)(
            *given, queue=self._queue, range=slice(number.size), wait_for=waited
        )
        note_event(means, event, waited)
        return means, event


def _real(dtype: np.dtype) -> np.dtype:
    """Return the type of the parts of complex numbers, and that of others."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


@kept_by_context
def _engine(context: cl.Context, spec: ScatterSpec) -> Engine:
    """Return the engine of the sums and numbers, with the arguments of that of `spec`."""
    found = sum_and_number(spec.operator)
    assert found is not None
    assert spec.values is not None
    (given,) = spec.values
    d, value = spec.vector, value_text(spec, f"(size_t)i * {spec.vector} + j")
    code = (
        "const long row = (long)indices[i]; if (row >= 0 && row < rows) { EMIT_number(row, 1); "
        f"for (int j = 0; j < {d}; ++j) EMIT_sum(row * {d} + j, {found.convert.format(value)}); }}"
    )
    arguments = f"const {c_name(spec.index)} *indices, const {c_name(given)} *values, const long rows"
    return Engine.of(context, {"number": found.number, "sum": found.sum}, arguments, code, emits=d)


@kept_by_context
def _division(context: cl.Context, held: np.dtype, dtype: np.dtype) -> Any:
    """Return the kernel that divides sums of type `held` by the numbers of their vectors."""
    with building():
        return ElementwiseKernel(
            context,
            f"const {c_name(held)} *sums, const ulong *number, {c_name(dtype)} *means, const long components",
            f"const {c_name(held)} n = number[i]; "
            "for (long j = i * components; j < (i + 1) * components; ++j) means[j] = sums[j] / n",
            "clhist_row_means",
        )
