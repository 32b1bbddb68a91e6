"""From what a call asks for to kernel sources and strategies, without a device.

Tests of sources and of plans go through here: how the library plans and renders is known to this file alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clhist import Operator, Profile, operators
from clhist.codegen.arguments import parse_arguments
from clhist.codegen.maps import uniform_value
from clhist.codegen.render import render_combine, render_pairs, render_partition, render_segments, render_sweep
from clhist.codegen.specs import CombineSpec, Output, SweepSpec
from clhist.engine.launch import is_wide, local_capacity, order_of
from clhist.engine.partition import specs
from clhist.hardware.atomics import to_prove
from clhist.planning.plan import Forced
from clhist.planning.sweeps import Problem, Target, emits_of, plan_sweeps

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
    largest : bool
        Whether the largest bin is reported.
    aligned : bool
        Whether arrays allow wide loads.
    race_factor : float
        RF.
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
    largest: bool = False
    aligned: bool = True
    race_factor: float = 1.0


def kernel_sources(call: Call, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield what each program of a call is called, with its compiler options, and its source."""
    arguments = parse_arguments(_declared(call), {})
    targets = _targets(call, arguments)
    for sweep in _planned(call, profile):
        plan, features = sweep.plan, profile.features or frozenset()
        batch = "" if call.histograms is None else "table" if call.ragged else "flat" if plan.flat else "even"
        spec = SweepSpec(
            sweep.outputs, arguments, call.code, plan.memory, order_of(profile), plan.work_group_size,
            local_capacity(sweep.outputs, plan, profile), plan.teams, batch, is_wide(plan), call.aligned, call.largest,
            (), call.preamble, features,
            tuple(Output(t.operator, (), t.suffix) for n, t in enumerate(targets) if n not in sweep.numbers),
            plan.packed, len(targets) == 1 and targets[0].emits == 1,
        )  # fmt: skip
        target = targets[sweep.numbers[0]]
        if plan.update == "sort":
            yield "pairs", render_pairs(spec, target.emits or 1)
            yield "scan of sorted pairs", render_segments(sweep.outputs[0].operator, "held_t")
            continue
        if plan.partitions:
            before, spec = specs(plan, spec, target.value, profile.local_memory)
            yield "split and index", render_partition(before)
        yield " ".join(("sweep", *spec.options)), render_sweep(spec)


def combine_source(operator: Operator, **changed: Any) -> str:
    """Return the source of the kernels that clear and combine copies."""
    return render_combine(CombineSpec(operator, **{"order": "interleaved", "columns": 256, **changed}))


def strategy(call: Call, profile: Profile) -> str:
    """Return in a few letters how a call is computed, with the number of passes where there are several."""
    (sweep, *others) = _planned(call, profile)
    assert not others
    plan = sweep.plan
    word = "flat " * plan.flat + plan.memory
    if plan.update in ("private", "sort"):
        word = plan.update if plan.update == "sort" else f"private {plan.memory}"
    elif plan.partitions:
        word = "partitioned"
    elif plan.packed:
        word = "packed"
    return word if plan.passes == 1 else f"{word} /{plan.passes}"


def _declared(call: Call) -> str:
    value = "int"
    if isinstance(call.operator, Operator):
        value = "value_t" if call.operator.dtype.names else _C_NAMES.get(call.operator.dtype, "int")
    return ", ".join(["const int *x", *[f"const {value} *w"] * ("w[i]" in call.code), *[call.more] * bool(call.more)])


_C_NAMES = {
    np.dtype(np.float32): "float", np.dtype(np.float64): "double", np.dtype(np.int64): "long",
    np.dtype(np.uint64): "ulong", np.dtype(np.int8): "char", np.dtype(np.uint8): "uchar", np.dtype(np.int16): "short",
}  # fmt: skip


def _targets(call: Call, arguments: Any) -> list[Target]:
    named = {"": call.operator} if isinstance(call.operator, Operator) else call.operator
    suffixes = {f"_{name}" if name else "": operator for name, operator in named.items()}
    return [
        Target(
            operator, suffix, emits_of(f"EMIT{suffix}", call.code, call.preamble),
            uniform_value(suffix, call.code, arguments, call.preamble),
        )
        for suffix, operator in suffixes.items()
    ]  # fmt: skip


def _planned(call: Call, profile: Profile) -> Any:
    targets = _targets(call, parse_arguments(_declared(call), {}))
    most = max(1, *(target.emits or 1 for target in targets))
    problem = Problem(
        call.size, (call.bins,) * len(targets), call.histograms, call.race_factor, Forced(**call.choices), 2**33, most,
        not call.ragged,
    )  # fmt: skip
    return plan_sweeps(targets, problem, profile, profile.features or frozenset())


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
    "reproducible_add float32": operators.reproducible_add(np.float32, 1000.0),
}
