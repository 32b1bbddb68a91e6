"""From what a call asks for to kernel sources and strategies, without a device.

Tests of sources and of plans go through here: how the library plans and renders is known to this file alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clhist import Operator, Profile, operators
from clhist._core.devices.vendors import to_prove
from clhist._core.kernels.from_plan import programs_of
from clhist._core.kernels.maps import RowText
from clhist._core.kernels.render import render_combine, render_programs, render_scan, render_sort_scan
from clhist._core.kernels.source import Source
from clhist._core.kernels.specs import CombineSpec
from clhist._core.model.plan import Plan
from clhist._core.model.problem import Choices, Problem, Rows
from clhist._core.model.sweeps import plan_sweeps
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.build import sweep_of
from clhist._core.runtime.prepare import LargestBin, Preparation, ResultForms
from clhist._core.runtime.prepared import ArraySlot, Prepared, ResultSlots
from clhist._core.runtime.sort import pairs_scan
from clhist._core.runtime.stages import Limits, Result

# What OpenCL reports of each vendor's devices; atomics that must be proven count as proven.
_REPORTED = {
    "core": frozenset({"int64_base_atomics"}),
    "nvidia": frozenset({"int64_base_atomics", "int64_extended_atomics", "fp64", "nvidia_ptx"}),
    "amd": frozenset({"int64_base_atomics", "int64_extended_atomics", "fp64", "amd_builtins"}),
    "intel": frozenset({"int64_base_atomics", "int64_extended_atomics", "ext_float_atomics", "device_fence"}),
    "cpu": frozenset({"int64_base_atomics", "int64_extended_atomics", "fp64"}),
}
COUNT = "EMIT(x[i], 1)"
WEIGHT = "EMIT(x[i], w[i])"


def device(vendor: str) -> Profile:
    """Return a made-up device with a vendor's features, so that tuning a profile changes no source."""
    features = _REPORTED[vendor] | {str(atomic.feature) for atomic in to_prove(_REPORTED[vendor])}
    kind, threads, group = ("cpu", 8, 1) if vendor == "cpu" else ("gpu", 65536, 256)
    return replace(Profile(vendor, kind, 49152, 2**22, 64, threads, group, {}), features=features)


@dataclass(frozen=True)
class Call:
    """What a caller asks for.

    Attributes
    ----------
    operator : Operator or dict of str to Operator
        One, or several by name.
    code, preamble : str
        The map; it reads `x` (int), `w` (the first operator's value type) and whatever `more` declares.
    more : str
        Further arguments.
    size, bins : int
        N and H; all outputs have as many bins.
    choices : dict
        The caller's: update, memory, copies, passes, work_group_size, locks.
    histograms : int, optional
        Of a batch.
    ragged : bool
        Whether the batch is given by offsets.
    aligned : bool
        Whether arrays allow wide loads.
    race_factor : float
        RF.
    components : int
        D, if values are rows.
    """

    operator: Operator | dict[str, Operator]
    code: str = COUNT
    preamble: str = ""
    more: str = ""
    size: int = 1_000_000
    bins: int = 500
    choices: dict[str, Any] = field(default_factory=dict)
    histograms: int | None = None
    ragged: bool = False
    aligned: bool = True
    race_factor: float = 1.0
    components: int = 0


def kernel_sources(call: Call, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield what each program of a call is called, with its compiler options, and its source."""
    source = _source(call)
    for plan in plans_of(call, profile):
        programs = programs_of(plan, source, profile, aligned=call.aligned)
        for name, text, options in render_programs(programs):
            yield " ".join((name, *options)), text
        if programs.sorted_pairs:
            lanes, operator = 1 if profile.kind == "cpu" else 256, plan.outputs[0].operator
            yield "scan of sorted pairs", render_sort_scan(operator)
            yield f"scan of sorted pairs in full, {lanes} work-items", render_scan(pairs_scan(operator), lanes)


def prepared_call(
    call: Call, profile: Profile, *, batch: Batch | None = None, dest: bool = False, largest: LargestBin | None = None
) -> Prepared:
    """Return what a call enqueues on a device with this profile; with `dest` it updates it in place."""
    source, limits = _source(call), Limits(1024, 4)
    plans = plans_of(call, profile)
    used = "" if largest is None else largest.used
    each = [programs_of(plan, source, profile, aligned=call.aligned, used=used) for plan in plans]
    sweeps = [sweep_of(plan, programs, source.options) for plan, programs in zip(plans, each, strict=True)]
    slots, forms, results = [], [], []
    arrays = sum(argument.is_array for argument in source.arguments)
    for n, operator in enumerate(source.operators):
        name = f"clhist_out[{n}]"
        shape = (call.bins,) if call.histograms is None else (call.histograms, call.bins)
        slots.append(ArraySlot(name, dest, True, None if dest else (shape, operator.dtype)))
        forms.append(Result((name,) if dest else None, (name,)))
        results.append(ResultSlots((arrays + n,), False, "", operator))
    targets = ResultForms(tuple(slots), tuple(forms), tuple(results))
    return Preparation(source.arguments, targets, profile, limits, batch, largest).prepared(sweeps)


def combine_source(operator: Operator, **changed: Any) -> str:
    """Return the source of the kernels that clear and combine copies."""
    return render_combine(CombineSpec(operator, **{"order": "interleaved", "columns": 256, **changed}))


def strategy(call: Call, profile: Profile) -> str:
    """Return in a few letters how a call is computed, with the number of passes where there are several."""
    (plan, *others) = plans_of(call, profile)
    assert not others
    is_private = plan.update == "private" and plan.strategy not in _WORDS
    word = f"private {plan.memory}" if is_private else _WORDS.get(plan.strategy, plan.memory)
    return word if plan.passes == 1 else f"{word} /{plan.passes}"


_WORDS = {"sort": "sort", "partitioned": "partitioned", "packed": "packed", "flattened": "flat global", "rows": "rows"}


def _declared(call: Call) -> str:
    value = "int"
    if isinstance(call.operator, Operator):
        value = "value_t" if call.operator.dtype.names else _C_NAMES.get(call.operator.dtype, "int")
    return ", ".join(["const int *x", *[f"const {value} *w"] * ("w[i]" in call.code), *[call.more] * bool(call.more)])


_C_NAMES = {
    np.dtype(np.float32): "float", np.dtype(np.float64): "double", np.dtype(np.int64): "long",
    np.dtype(np.uint64): "ulong", np.dtype(np.int8): "char", np.dtype(np.uint8): "uchar", np.dtype(np.int16): "short",
}  # fmt: skip


def _source(call: Call) -> Source:
    named = {"": call.operator} if isinstance(call.operator, Operator) else call.operator
    suffixes = [f"_{name}" if name else "" for name in named]
    rows = None
    if call.components:
        rows = RowText(Rows(call.components, is_element=False), "x[i]", "w[element]", "w")
    return Source.of(_declared(call), call.code, list(named.values()), suffixes, preamble=call.preamble, rows=rows)


def plans_of(call: Call, profile: Profile) -> tuple[Plan, ...]:
    """Return the plan of each sweep of a call."""
    source = _source(call)
    problem = Problem(
        source.histograms([call.bins] * len(source.operators)),
        call.size,
        call.histograms,
        not call.ragged,
        call.race_factor,
        Choices(**call.choices),
        2**33,
        rows=None if source.rows is None else source.rows.rows,
    )
    return plan_sweeps(problem, profile)


# Operators of every kind: by an atomic, by one that few devices have, by compare-exchange, by a lock, lifted, in parts.
COUNTS = operators.add(np.int32)
OPERATORS = {
    "add int32": COUNTS,
    "add int64": operators.add(np.int64),
    "add float32": operators.add(np.float32),
    "add float64": operators.add(np.float64),
    "maximum int8": operators.maximum(np.int8),
    "fmin float32": operators.fmin(np.float32),
    "multiply float32": operators.multiply(np.float32),
    "saturating_add uint8": operators.saturating_add(np.uint8, 200),
    "argmax float32": operators.argmax(np.float32),
    "argmax int64": operators.argmax(np.int64, np.int64),
    "logical_or bool": operators.logical_or(),
    "mean float32": operators.mean(np.float32),
    "variance float32": operators.variance(np.float32, accumulator=np.float32),
    "reproducible_add float32": operators.reproducible_add(np.float32),
    "reproducible_add float32, a window": operators.reproducible_add(np.float32, 1000.0),
    "reproducible_add float64, a window": operators.reproducible_add(np.float64, 1000.0),
}
