"""`HistogramKernel`: a map and an operator compiled into one histogram, in the manner of PyOpenCL's ReductionKernel."""

from __future__ import annotations

import operator as python_operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.arguments import check_structs, parse_arguments, scalar
from clhist.arrays import (
    Array,
    Operand,
    check_array,
    check_context,
    common_kind,
    empty,
    is_aligned,
    is_device_array,
    operand,
    overlap,
)
from clhist.atomics import MEMORIES, choose_update
from clhist.device import check_process, default_queue, device_features, device_profile, memory_budget
from clhist.dtypes import needs_fp64
from clhist.errors import UnsupportedError
from clhist.execute import Allocator, Launch, is_wide, local_capacity, order_of, sweep_kernel
from clhist.model import Forced, Plan, plan
from clhist.operator import Operator
from clhist.profile import Profile
from clhist.program import Kernel
from clhist.render import SweepSpec, is_elementwise, render_sweep

_LOAD_BYTES = 16


@dataclass(frozen=True)
class _Call:
    """What one call asks for besides the map's arguments; see `HistogramKernel.__call__`."""

    num_bins: int
    size: int | None = None
    dest: Array | None = None
    out: Array | None = None
    queue: cl.CommandQueue | None = None
    allocator: Allocator | None = None
    wait_for: Sequence[cl.Event] = ()
    race_factor: float = 1.0
    forced: Forced = field(default_factory=Forced)
    memory_budget: int | None = None
    reach: bool = False


_Prepared = tuple[Plan, Profile, Kernel]


class HistogramKernel:
    """A generalized histogram with its map fused: ``dest[bin] = combine(dest[bin], value)`` for every pair emitted.

    Parameters
    ----------
    context : pyopencl.Context or None
        Where it runs; None for that of the default device.
    operator : Operator
        How values are combined.
    arguments : str
        The map's arguments as C declares them, such as ``"const float *x, const float *weight, float scale"``: pointers
        are arrays in global memory, the rest are scalars. An array that is not ``const`` may be written by the map.
    map : str
        C run for each `i` in [0, size). It calls ``EMIT(bin, value)`` zero, one or many times; a `bin` (an integer
        expression) outside [0, num_bins) is ignored. It may run several times for one `i`, once for each pass.
    preamble : str, optional
        C functions that the map uses.
    structs : mapping of str to dtype-like, optional
        Structured types that `arguments`, `preamble` and `map` name. The operator's own is always there as ``value_t``.
    options : sequence of str, optional
        Options for the OpenCL compiler.
    profile : Profile, optional
        The device's numbers; defaults to those of `clhist.device_profile`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    UnsupportedError
        If the device lacks double precision and the operator or an argument needs it.

    Examples
    --------
    >>> kernel = HistogramKernel(None, clhist.operators.add(np.float32),
    ...     arguments="const float *x, const float *weight",
    ...     map="EMIT((int)floor(x[i]), weight[i])")                                        # doctest: +SKIP
    >>> histogram = kernel(x, weight, num_bins=100)                                         # doctest: +SKIP

    Notes
    -----
    The strings are code that runs on the device: do not take them from someone you do not trust.
    """

    def __init__(
        self,
        context: cl.Context | None,
        operator: Operator,
        *,
        arguments: str,
        map: str,
        preamble: str = "",
        structs: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        profile: Profile | None = None,
    ) -> None:
        if not isinstance(operator, Operator):
            raise TypeError(f"operator: expected a clhist.Operator, got {operator!r}")
        self._structs = check_structs(structs)
        self.arguments = parse_arguments(arguments, {"value_t": operator.dtype, **self._structs})
        self._elementwise = [argument for argument in self.arguments if is_elementwise(argument, map, preamble)]
        if "EMIT" not in map:
            raise ValueError(f"map: expected C that calls EMIT(bin, value), got {map!r}")
        self.context = default_queue().context if context is None else context
        self.operator = operator
        self._map, self._preamble, self._options = map, preamble, tuple(options)
        self._profile = profile
        self._prepared = lru_cache(maxsize=256)(self._prepare)
        needing = [
            name
            for name, dtype in (
                ("operator", operator.dtype),
                ("operator", operator.accumulator),
                *((a.name, a.dtype) for a in self.arguments),
            )
            if needs_fp64(dtype)
        ]
        for device in self.context.devices:
            if needing and "fp64" not in device_features(device):
                raise UnsupportedError(
                    f"{needing[0]}: {device.name.strip()} has no double precision (cl_khr_fp64); "
                    "use float32 or integers"
                )

    def plan(
        self,
        size: int,
        num_bins: int,
        *,
        queue: cl.CommandQueue | None = None,
        race_factor: float = 1.0,
        update: str | None = None,
        memory: str | None = None,
        copies: int | None = None,
        passes: int | None = None,
        work_group_size: int | None = None,
        memory_budget: int | None = None,
    ) -> Plan:
        """Return how a call with these parameters would be computed; see `__call__`."""
        device = (queue or self._queue(None)).device
        forced = Forced(update, memory, copies, passes, work_group_size)
        size, num_bins = _integer("size", size, 0), _integer("num_bins", num_bins, 1)
        return self._plan(device, size, num_bins, race_factor, forced, memory_budget)

    def __call__(
        self,
        *args: Any,
        num_bins: int,
        size: int | None = None,
        dest: Array | None = None,
        out: Array | None = None,
        queue: cl.CommandQueue | None = None,
        allocator: Allocator | None = None,
        wait_for: Sequence[cl.Event] | None = None,
        return_event: bool = False,
        race_factor: float = 1.0,
        update: str | None = None,
        memory: str | None = None,
        copies: int | None = None,
        passes: int | None = None,
        work_group_size: int | None = None,
        memory_budget: int | None = None,
    ) -> Any:
        """Compute the histogram.

        Parameters
        ----------
        *args : array or scalar
            One for each of `arguments`. Arrays are all NumPy's or all PyOpenCL's, contiguous, of the declared dtype.
        num_bins : int
            H: bins of the result.
        size : int, optional
            N: the map runs for `i` in [0, size). Defaults to the number of elements of the first array that the map
            uses only at ``[i]``, or else of the first.
        dest : array of shape (num_bins,), optional
            Values that the histogram is combined with.
        out : array of shape (num_bins,), optional
            Where the result goes; may be `dest`. Defaults to a new array of the kind that went in.
        queue : pyopencl.CommandQueue, optional
            Defaults to that of the first device array, or the default one.
        allocator : callable, optional
            Gives device memory for the result and the copies, such as a `pyopencl.tools.MemoryPool`.
        wait_for : sequence of pyopencl.Event, optional
            What to wait for besides the events of the arrays.
        return_event : bool
            Whether to return ``(result, event)``; the event covers the whole call.
        race_factor : float
            RF: how many times fewer distinct bins than H a run of H consecutive elements touches (SC'20, III-D).
        update : {"private", "native", "cas", "lock"}, optional
            Forces how a bin is updated.
        memory : {"local", "global"}, optional
            Forces where the copies are.
        copies, passes, work_group_size : int, optional
            Force M, S and B.
        memory_budget : int, optional
            Bytes that the copies may take in global memory. Defaults to a quarter of the device's.

        Returns
        -------
        array of shape (num_bins,)
            Of the operator's dtype, NumPy's if NumPy arrays went in. With `return_event` a pair with the event.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; it is named, and nothing is enqueued.
        MemoryError
            If the copies do not fit the budget or the device.
        BuildError
            If the compiler refuses the operator or the map.
        """
        forced = Forced(update, memory, copies, passes, work_group_size)
        call = _Call(num_bins, size, dest, out, queue, allocator, wait_for or (), race_factor, forced, memory_budget)
        result, events, _ = self._run(args, call)
        return (result, events["combine"]) if return_event else result

    def count_with_reach(self, *args: Any, num_bins: int, queue: cl.CommandQueue) -> tuple[Array, int]:
        """Return the histogram and the largest bin emitted, as an unsigned number of 32 bits (all ones: none fits).

        For callers who learn the number of bins from the data; `num_bins` must be less than 2^31.
        """
        result, _, reached = self._run(args, _Call(num_bins, queue=queue, reach=True))
        return result, reached

    def timed(
        self, *args: Any, num_bins: int, queue: cl.CommandQueue, **choices: Any
    ) -> tuple[Array, dict[str, float]]:
        """Compute once and return the result with the seconds that each stage took on the device.

        Parameters
        ----------
        *args, num_bins
            As in `__call__`.
        queue : pyopencl.CommandQueue
            With ``PROFILING_ENABLE``.
        **choices
            `size`, `race_factor`, `update`, `memory`, `copies`, `passes`, `work_group_size`, `memory_budget` as in
            `__call__`.

        Returns
        -------
        array, dict of str to float
            The result, and seconds of "clear" (where there is one), "sweep" and "combine", without gaps between them.
        """
        general = {key: choices.pop(key) for key in ("size", "race_factor", "memory_budget") if key in choices}
        result, events, _ = self._run(args, _Call(num_bins, queue=queue, forced=Forced(**choices), **general))
        events["combine"].wait()
        return result, {stage: (e.profile.end - e.profile.start) * 1e-9 for stage, e in events.items()}

    def source(self, chosen: Plan, queue: cl.CommandQueue | None = None) -> str:
        """Return the OpenCL C of the sweep that `chosen` plan leads to, for reading."""
        return render_sweep(self._spec(chosen, (queue or self._queue(None)).device, aligned=True, reach=False))

    def _run(self, args: Sequence[Any], call: _Call) -> tuple[Array, dict[str, cl.Event], int]:
        """Check, plan, build and enqueue; return the result, the event of each stage, and the largest bin if asked."""
        check_process()
        num_bins = _integer("num_bins", call.num_bins, 1)
        values = self._check_arguments(args)
        size = self._size(call.size, values)
        for argument, value in zip(self.arguments, values, strict=True):
            if argument in self._elementwise and value.size < size:
                raise ValueError(f"{argument.name}: expected at least {size} elements, got {value.size}")
        given = [(a.name, v) for a, v in zip(self.arguments, values, strict=True) if a.is_array]
        dest, out = self._check_results(call, (num_bins,))
        given += [(name, array) for name, array in (("dest", dest), ("out", out)) if array is not None]
        on_device = common_kind(given)
        check_context(given, self.context)
        queue = self._queue(call.queue, [array for _, array in given])
        device_arrays = [array for _, array in given if is_device_array(array)]
        aligned = all(is_aligned(array, _LOAD_BYTES) for _, array in given)
        choices = (size, num_bins, call.race_factor, call.forced, call.memory_budget)
        chosen, profile, sweep = self._prepared(queue.device, choices, aligned, call.reach)
        if out is None:
            out = empty(queue, (num_bins,), self.operator.dtype, on_device, call.allocator)
        operands = [
            operand(value, queue, written=not argument.is_const) if argument.is_array else value
            for argument, value in zip(self.arguments, values, strict=True)
        ]
        out_operand = operand(out, queue, written=True, read=dest is out)
        dest_operand = out_operand if dest is out else None if dest is None else operand(dest, queue, written=False)
        reached = np.zeros(1, np.uint32)
        reach = operand(reached, queue, written=True) if call.reach else None
        launch = Launch(chosen, profile, self.operator, sweep, operands, dest_operand, out_operand, reach)
        try:
            events = launch.run(queue, call.allocator, [*call.wait_for, *(e for a in device_arrays for e in a.events)])
            if not on_device or reach is not None:
                events["combine"].wait()
        except BaseException:  # Ctrl-C too: the memory of NumPy arrays must not go while a kernel may use it
            queue.finish()
            raise
        if on_device:
            written = [v for a, v in zip(self.arguments, values, strict=True) if a.is_array and not a.is_const]
            for array in (out, *written):
                array.add_event(events["combine"])
        if not on_device or reach is not None:
            for item in (*operands, out_operand, reach):
                if isinstance(item, Operand):
                    item.retrieve()
        return out, events, int(reached[0])

    def _check_results(self, call: _Call, shape: tuple[int, ...]) -> tuple[Array | None, Array | None]:
        dest, out = call.dest, call.out
        if out is not None:
            out = check_array("out", out, self.operator.dtype, written=True, shape=shape)
        if dest is not None and dest is not out:
            dest = check_array("dest", dest, self.operator.dtype, written=False, shape=shape)
            if out is not None and overlap(dest, out):
                dest = dest.copy()
        return dest, out

    def _check_arguments(self, args: Sequence[Any]) -> list[Any]:
        if len(args) != len(self.arguments):
            names = ", ".join(argument.name for argument in self.arguments)
            raise TypeError(f"expected {len(self.arguments)} arguments ({names}), got {len(args)}")
        return [
            check_array(a.name, value, a.dtype, written=not a.is_const) if a.is_array else scalar(a, value)
            for a, value in zip(self.arguments, args, strict=True)
        ]

    def _size(self, size: int | None, values: Sequence[Any]) -> int:
        if size is not None:
            return _integer("size", size, 0)
        pairs = list(zip(self.arguments, values, strict=True))
        for array in (*(v for a, v in pairs if a in self._elementwise), *(v for a, v in pairs if a.is_array)):
            return int(array.size)
        raise TypeError("size: expected a number of elements, since no argument is an array; got None")

    def _queue(self, queue: cl.CommandQueue | None, arrays: Sequence[Array] = ()) -> cl.CommandQueue:
        if queue is None:
            queue = next((a.queue for a in arrays if is_device_array(a) and a.queue is not None), None)
        if queue is None:
            default = default_queue()
            queue = default if default.context == self.context else _queue_of(self.context)
        if queue.context != self.context:
            raise ValueError(f"queue: expected a queue of the context {self.context}, got one of {queue.context}")
        return queue

    def _prepare(self, device: cl.Device, choices: tuple[Any, ...], aligned: bool, reach: bool) -> _Prepared:
        """Plan and build; what a call with the same numbers needs again is kept by `_prepared`."""
        chosen = self._plan(device, *choices)
        spec = self._spec(chosen, device, aligned=aligned, reach=reach)
        return chosen, self._profile_of(device), sweep_kernel(self.context, spec, self._options)

    def _plan(
        self, device: cl.Device, size: int, num_bins: int, race_factor: float, forced: Forced, budget: int | None
    ) -> Plan:
        _check_forced(forced, race_factor, device)
        shared = None if forced.update == "private" else forced.update
        memories = (forced.memory,) if forced.memory in MEMORIES else MEMORIES
        features = device_features(device)
        updates = {m: choose_update(self.operator, m, features, shared) for m in memories if m is not None}
        return plan(
            size,
            num_bins,
            self._profile_of(device),
            local_update=updates.get("local", "lock"),
            global_update=updates.get("global", "lock"),
            bin_bytes=self.operator.cell_bytes,
            race_factor=race_factor,
            forced=forced,
            memory_budget=memory_budget(device) if budget is None else _integer("memory_budget", budget, 1),
        )

    def _profile_of(self, device: cl.Device) -> Profile:
        return self._profile or device_profile(device)

    def _spec(self, chosen: Plan, device: cl.Device, *, aligned: bool, reach: bool) -> SweepSpec:
        profile = self._profile_of(device)
        return SweepSpec(
            self.operator,
            self.arguments,
            self._map,
            chosen.memory,
            chosen.update,
            order_of(profile),
            chosen.work_group_size,
            local_capacity(chosen, self.operator, profile),
            is_wide(chosen),
            aligned,
            reach,
            tuple(self._structs.items()),
            self._preamble,
            device_features(device),
        )


def _check_forced(forced: Forced, race_factor: object, device: cl.Device) -> None:
    """Raise for choices that are no numbers, or groups that the device cannot have; the model checks the rest."""
    for name in ("copies", "passes", "work_group_size"):
        if getattr(forced, name) is not None:
            _integer(name, getattr(forced, name), 1)
    if not isinstance(race_factor, int | float | np.integer | np.floating):
        raise TypeError(f"race_factor: expected a number, got {race_factor!r}")
    most = device.max_work_group_size
    if forced.work_group_size is not None and forced.work_group_size > most:
        name = device.name.strip()
        raise ValueError(f"work_group_size: expected at most the {most} of {name}, got {forced.work_group_size}")


@lru_cache(maxsize=16)
def _queue_of(context: cl.Context) -> cl.CommandQueue:
    return cl.CommandQueue(context)


def _integer(name: str, value: object, least: int) -> int:
    try:
        number = python_operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name}: expected at least {least}, got {number}")
    return number
