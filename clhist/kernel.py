"""`HistogramKernel`: a map and operators compiled into histograms, in the manner of PyOpenCL's ReductionKernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from clhist.arguments import check_structs, integer, parse_arguments, scalar
from clhist.arrays import Array, check_array, is_device_array, note_event, operand, survey, without_memory
from clhist.batch import Batch, batch_of_offsets, check_batch
from clhist.device import default_queue, profile_names
from clhist.execute import Events, Launch
from clhist.fixed_point import check_range
from clhist.inspector import RaceFactor, counting, sample_race_factor
from clhist.map_text import is_elementwise, uses_position
from clhist.model_draft import Forced, Plan
from clhist.operator import Operator
from clhist.operator_names import with_names
from clhist.outputs import Outputs
from clhist.prepare import FREE, Preparation, Prepared
from clhist.process import check_process
from clhist.profile import Profile
from clhist.program import kept_by_context
from clhist.repeat import Repeat
from clhist.reproducible import check_emits, is_float_sum, largest_values, magnitudes, reproducible_form
from clhist.results import Target as ResultTarget
from clhist.scratch import Allocator

if TYPE_CHECKING:
    from clhist.stream import Accumulator

_LOAD_BYTES = 16
_NO_CHOICE = (None,) * 6
_MOST_OTHERS = 64
_WIDER = {"count": "use clhist.operators.add", "reproducible_add": "give it a larger count="}


@dataclass(slots=True)
class Call:
    """What one call asks for besides the map's arguments; see `HistogramKernel.__call__`.

    `ranges` are the elements of each histogram of a batch, in the place of `num_histograms` or `offsets`; `partial`
    says that `dest` and `out` hold accumulators.
    """

    num_bins: Any
    size: int | None = None
    dest: Any = None
    out: Any = None
    queue: cl.CommandQueue | None = None
    allocator: Allocator | None = None
    wait_for: Sequence[cl.Event] = ()
    race_factor: float | str = 1.0
    forced: Forced = FREE
    memory_budget: int | None = None
    num_histograms: int | None = None
    offsets: Any = None
    ranges: Batch | None = None
    reach: bool = False
    partial: bool = False


@dataclass
class Outcome:
    """What a call gives: its results in order, the events of each stage, and the largest bin if that was asked.

    `after` is that of `clhist.execute.Enqueued`.
    """

    results: list[Any]
    events: Events
    after: dict[cl.Event, cl.Event]
    reached: int


class HistogramKernel:
    """A generalized histogram with its map fused: ``dest[bin] = combine(dest[bin], value)`` for every pair emitted.

    Parameters
    ----------
    context : pyopencl.Context or None
        Where it runs; None for that of the default device.
    operator : Operator, str or numpy.ufunc, or sequence or mapping of them
        How values are combined; a name such as ``"mean"``, or a ufunc, needs `dtype`. Several operators make several
        histograms from one sweep over the input: the map emits to them by ``EMIT0``, ``EMIT1``, ... or, if they are a
        mapping, by ``EMIT_name``.
    arguments : str
        The map's arguments as C declares them, such as ``"const float *x, const float *weight, float scale"``: pointers
        are arrays in global memory, the rest are scalars. An array that is not ``const`` may be written by the map.
    map : str
        C run for each `i` in [0, size). It calls ``EMIT(bin, value)`` zero, one or many times; a `bin` (an integer
        expression) outside [0, num_bins) is ignored. It may run several times for one `i`, once for each pass.
    preamble : str, optional
        C functions that the map uses.
    structs : mapping of str to dtype-like, optional
        Structured types that `arguments`, `preamble` and `map` name. The operator's own is always there as ``value_t``;
        of several operators as ``value0_t``, ``value1_t``, ... or ``value_name_t``.
    options : sequence of str, optional
        Options for the OpenCL compiler.
    profile : Profile, optional
        The device's numbers; defaults to those of `clhist.device_profile`.
    emits : int, optional
        How many values an element has at most for one histogram. Defaults to what the text of the map says; a map with
        a loop is planned better if it is given.
    dtype : dtype-like, or mapping of str to it, optional
        Type of the emitted values, for operators given by name or as ufuncs: one for all, or one for each.

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

    Two histograms at once:

    >>> add = clhist.operators.add
    >>> kernel = HistogramKernel(None, {"number": add(np.int32), "total": add(np.float32)},
    ...     arguments="const int *group, const float *x",
    ...     map="EMIT_number(group[i], 1); EMIT_total(group[i], x[i])")                     # doctest: +SKIP
    >>> kernel(group, x, num_bins=10)["total"]                                              # doctest: +SKIP

    Notes
    -----
    The strings are code that runs on the device: do not take them from someone you do not trust.
    """

    def __init__(
        self,
        context: cl.Context | None,
        operator: Any,
        *,
        arguments: str,
        map: str,
        preamble: str = "",
        structs: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        profile: Profile | None = None,
        emits: int | None = None,
        dtype: Any = None,
    ) -> None:
        check_process()
        for name, text in (("arguments", arguments), ("map", map), ("preamble", preamble)):
            if not isinstance(text, str):
                raise TypeError(f"{name}: expected C as a str, got {text!r}")
        if context is not None and not isinstance(context, cl.Context):
            raise TypeError(f"context: expected a pyopencl.Context or None for the default one, got {context!r}")
        if isinstance(options, str):
            raise TypeError(f"options: expected a sequence of str, such as [{options!r}], got a str")
        operator = with_names(operator, dtype)
        self._outputs, self._arguments = Outputs.of(operator), arguments
        self._structs = check_structs(structs)
        self.arguments = parse_arguments(arguments, {**self._outputs.value_types(), **self._structs})
        self._elementwise = [argument for argument in self.arguments if is_elementwise(argument, map, preamble)]
        self._sized = [n for n, argument in enumerate(self.arguments) if argument in self._elementwise]
        self._sizing = next(iter([*self._sized, *(n for n, a in enumerate(self.arguments) if a.is_array)]), None)
        self._outputs.check_map(map)
        self.context = default_queue().context if context is None else context
        self.operator = operator
        self._given_emits = None if emits is None else integer("emits", emits, 1)
        self._map, self._preamble, self._options, self._profile = map, preamble, tuple(options), profile
        self._preparation = Preparation(
            self.context,
            self._outputs,
            self.arguments,
            map=map,
            preamble=preamble,
            structs=self._structs,
            options=options,
            profile=profile,
            emits=self._given_emits,
        )
        self._repeat: Repeat | None = None
        self._race_factors: dict[tuple[int, ...], RaceFactor] = {}
        self._counting: HistogramKernel | None = None
        self._others: dict[tuple[Operator, ...], HistogramKernel] = {}
        self._preparation.check_fp64()

    def plan(
        self,
        size: int,
        num_bins: Any,
        *,
        queue: cl.CommandQueue | None = None,
        race_factor: float = 1.0,
        update: str | None = None,
        memory: str | None = None,
        copies: int | None = None,
        passes: int | None = None,
        work_group_size: int | None = None,
        locks: int | None = None,
        memory_budget: int | None = None,
        num_histograms: int | None = None,
    ) -> Any:
        """Return the `Plan` of a call with these parameters; see `__call__`.

        Of a kernel with several operators it is a tuple, one plan for each sweep over the input.
        """
        check_process()
        device = (queue or self._queue(None)).device
        forced = Forced(update, memory, copies, passes, work_group_size, locks)
        shapes = self._outputs.shapes(num_bins)
        if num_histograms is not None:
            num_histograms = integer("num_histograms", num_histograms, 1)
        size = integer("size", size, 0)
        asked = (size, shapes, num_histograms, race_factor, forced, memory_budget, device)
        plans = tuple(sweep.plan for sweep in self._preparation.plan(device, self._preparation.problem(*asked)))
        return plans[0] if self._outputs.is_single else plans

    def __call__(
        self,
        *args: Any,
        num_bins: Any,
        size: int | None = None,
        dest: Any = None,
        out: Any = None,
        queue: cl.CommandQueue | None = None,
        allocator: Allocator | None = None,
        wait_for: Sequence[cl.Event] | None = None,
        return_event: bool = False,
        race_factor: float | str = 1.0,
        update: str | None = None,
        memory: str | None = None,
        copies: int | None = None,
        passes: int | None = None,
        work_group_size: int | None = None,
        locks: int | None = None,
        memory_budget: int | None = None,
        num_histograms: int | None = None,
        offsets: Any = None,
        reproducible: bool = False,
        max_abs: float | None = None,
    ) -> Any:
        """Compute the histogram, or histograms.

        Parameters
        ----------
        *args : array or scalar
            One for each of `arguments`. Arrays are all NumPy's or all PyOpenCL's, contiguous, of the declared dtype.
        num_bins : int, or tuple of int
            H: bins of the result. A tuple is the shape of a result of several dimensions, whose bins are counted as
            `numpy.ravel_multi_index` does. With several operators a sequence or mapping, or one for all.
        size : int, optional
            N: the map runs for `i` in [0, size). Defaults to the number of elements of the first array that the map
            uses only at ``[i]``, or else of the first.
        dest : array of shape (num_bins,), optional
            Values that the histogram is combined with. Of a structured dtype also a tuple of arrays, one for each
            field. With several operators a sequence or mapping.
        out : array of shape (num_bins,), optional
            Where the result goes; may be `dest`, and is given like it. Defaults to a new array of the arguments' kind.
        queue : pyopencl.CommandQueue, optional
            Defaults to that of the first device array, or the default one.
        allocator : callable, optional
            Gives device memory for the result and the copies, such as a `pyopencl.tools.MemoryPool`.
        wait_for : sequence of pyopencl.Event, optional
            What to wait for besides the events of the arrays.
        return_event : bool
            Whether to return ``(result, event)``; the event covers the whole call.
        race_factor : float, "sample" or "sample once"
            RF: how many times fewer distinct bins than H a run of H consecutive elements touches (SC'20, III-D).
            "sample" measures it before the histogram is planned, see `race_factor`; "sample once" only at the first
            call of this kernel with so many bins.
        update : {"private", "native", "cas", "lock", "sort"}, optional
            Forces how a bin is updated; "sort" sorts the pairs by bin and combines neighbours (SC'20, Listing 4).
        memory : {"local", "global", "partitioned"}, optional
            Forces where the copies are; "partitioned" groups the pairs by ranges of bins first, for each of which one
            pass in local memory does. Only for maps that emit one value for an element.
        copies, passes, work_group_size : int, optional
            Force M, S and B; with ``memory="partitioned"`` `passes` are the fewest partitions.
        locks : int, optional
            How many locks the bins of all copies share, a power of two; defaults to one for each bin.
        memory_budget : int, optional
            Bytes that the copies may take in global memory. Defaults to a quarter of the device's.
        num_histograms : int, optional
            N_out, for a batch: the elements belong in equal shares to so many histograms, one after the other
            (SC'20, IV-C). Results have a first dimension of N_out more; bins count within each histogram.
        offsets : array of int of shape (N_out + 1,), optional
            A batch of different shares: histogram k has the elements [offsets[k], offsets[k + 1]). Read on the host.
        reproducible : bool
            Whether sums of float32 and float64 are bitwise the same in any order of values, by any plan and on any
            device: they are those of `clhist.operators.reproducible_add`. Zeros and NaN of minima and maxima are
            defined then, too. Without `max_abs` the map runs twice, and the device is waited for in between.
        max_abs : float, optional
            No less than the largest finite |value|, `dest` included, of sums of floats; only if `reproducible`.

        Returns
        -------
        array of shape (num_bins,)
            Of the operator's dtype, NumPy's if NumPy arrays went in. A tuple of arrays if `dest` or `out` was one.
            With several operators a tuple, or a dict if they are a mapping. With `return_event` a pair with the event.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; it is named, and nothing is enqueued.
        OverflowError
            If values are larger than `max_abs`: their bins are NaN then, of which PyOpenCL arrays have nothing else. If
            a bin may get more values than its operator can take; nothing is enqueued then.
        MemoryError
            If not even one copy fits the budget or the device; where fewer copies than planned fit, these are made.
        BuildError
            If the compiler refuses the operator or the map.
        """
        choices = (update, memory, copies, passes, work_group_size, locks)
        forced = FREE if choices == _NO_CHOICE else Forced(*choices)
        call = Call(
            num_bins,
            size,
            dest,
            out,
            queue,
            allocator,
            wait_for or (),
            race_factor,
            forced,
            memory_budget,
            num_histograms,
            offsets,
        )
        if max_abs is not None and not reproducible:
            raise TypeError(f"max_abs: expected none, since the sums are not reproducible; got {max_abs!r}")
        kernel = self._reproducible(args, call, max_abs) if reproducible else self
        outcome = kernel.run(args, call)
        result = self._outputs.collect(outcome.results)
        return (result, outcome.events["combine"][-1]) if return_event else result

    def count_with_reach(self, *args: Any, num_bins: int, queue: cl.CommandQueue) -> tuple[Array, int]:
        """Return the histogram and the largest bin emitted, as an unsigned number of 32 bits (all ones: none fits).

        For callers who learn the number of bins from the data; `num_bins` must be less than 2^31.
        """
        outcome = self.run(args, Call(num_bins, queue=queue, reach=True))
        return outcome.results[0], outcome.reached

    def timed(self, *args: Any, num_bins: Any, queue: cl.CommandQueue, **choices: Any) -> tuple[Any, dict[str, float]]:
        """Compute once and return the result with the seconds that each stage took on the device.

        Parameters
        ----------
        *args, num_bins
            As in `__call__`.
        queue : pyopencl.CommandQueue
            With ``PROFILING_ENABLE``.
        **choices
            Others of `__call__`, but for `return_event`.

        Returns
        -------
        array, dict of str to float
            The result, and seconds of "clear" (where there is one), "sweep" and "combine", without gaps between them;
            where pairs are sorted, with those between the launches of the sort and of the scan.
        """
        if not queue.properties & cl.command_queue_properties.PROFILING_ENABLE:
            raise ValueError("queue: expected one with PROFILING_ENABLE, got one without")
        names = {each.name for each in fields(Forced)}
        forced = Forced(**{name: choices.pop(name) for name in names & choices.keys()})
        outcome = self.run(args, Call(num_bins, queue=queue, forced=forced, **choices))
        cl.wait_for_events([events[-1] for events in outcome.events.values()])

        def start(event: cl.Event) -> int:
            return outcome.after[event].profile.end if event in outcome.after else event.profile.start

        seconds = {
            stage: sum(event.profile.end - start(event) for event in events) * 1e-9
            for stage, events in outcome.events.items()
        }
        return self._outputs.collect(outcome.results), seconds

    def race_factor(
        self, *args: Any, num_bins: Any, size: int | None = None, queue: cl.CommandQueue | None = None
    ) -> RaceFactor:
        """Measure the race factor of the map on these arguments (SC'20, section III-D).

        Parameters
        ----------
        *args, num_bins
            As in `__call__`.
        size, queue
            As in `__call__`.

        Returns
        -------
        RaceFactor
            The number, and what it was measured from.
        """
        check_process()
        shapes = self._outputs.shapes(num_bins)
        values = self._check_arguments(args)
        size = self._size(size, values, None)
        self._check_elements(values, size)
        arrays = [(a.name, v) for a, v in zip(self.arguments, values, strict=True) if a.is_array]
        known = survey(arrays, self.context, _LOAD_BYTES)
        return sample_race_factor(self, values, size, shapes, self._queue(queue, known.queue), known.events)

    @property
    def emits(self) -> int:
        """How many values an element has at most for one histogram, as far as that is known; at least 1."""
        return self._preparation.emits

    @property
    def uses_position(self) -> bool:
        """Whether the map may use `i` other than for the elements of the arrays that it uses only at ``[i]``."""
        preambles = (self._preamble, *(o.preamble for o in self._outputs.operators))
        return uses_position(self._elementwise, self._map, "\n".join(preambles))

    def accumulator(self, num_bins: Any, **options: Any) -> Accumulator:
        """Return an `Accumulator` of this map, for input that comes piece by piece; it has the `options`."""
        from clhist.stream import Accumulator  # which uses this module

        return Accumulator(self, num_bins, **options)

    def with_operators(self, operators: Sequence[Operator]) -> HistogramKernel:
        """Return the kernel of the same map with other operators, one for each of its own, on the same dtypes."""
        return HistogramKernel(
            self.context,
            self._outputs.like(list(operators)),
            arguments=self._arguments,
            map=self._map,
            preamble=self._preamble,
            structs=self._structs,
            options=self._options,
            profile=self._profile,
            emits=self._given_emits,
        )

    def count_ranges(
        self,
        args: Sequence[Any],
        shapes: Sequence[tuple[int, ...]],
        ranges: Batch,
        size: int,
        queue: cl.CommandQueue,
        wait_for: Sequence[cl.Event],
    ) -> list[Array]:
        """Return how many values each bin of each output gets in each of `ranges`, whatever the values are."""
        if self._counting is None:
            self._counting = self.with_operators([counting(operator) for operator in self._outputs.operators])
        names = self._outputs.like(list(shapes))
        call = Call(names, size, queue=queue, wait_for=wait_for, ranges=ranges, partial=True)
        return self._counting.run(args, call).results

    def source(self, chosen: Plan, queue: cl.CommandQueue | None = None) -> str:
        """Return the OpenCL C of the sweep that `chosen` plan leads to, for reading."""
        return self._preparation.source(chosen, (queue or self._queue(None)).device)

    def profile_of(self, device: cl.Device) -> Profile:
        """Return the profile that was given, or that of `device`; raises ProfileError if the device cannot have it."""
        return self._preparation.profile_of(device)

    def run(self, args: Sequence[Any], call: Call) -> Outcome:
        """Check, plan, build and enqueue; what `__call__` and its relatives do."""
        check_process()
        numbers, given_to_call = self._repeatable(call), (*args, call.dest, call.out)
        again = self._repeat
        if numbers is not None and again is not None and again.fits(numbers, given_to_call):
            values = again.values_of(args)
            like = again.like if call.allocator is None else None
            target = self._outputs.unchecked_target(call.num_bins, call.dest, call.out, like)
            arrays = [v for v in (*given_to_call,) if is_device_array(v)]
            wait_for = [*call.wait_for, *(event for array in arrays for event in array.events)]
            return self._enqueue(values, [target], call, again.queue, wait_for, again.prepared, None, on_device=True)
        shapes = self._outputs.shapes(call.num_bins)
        values = self._check_arguments(args)
        batch = _batch(call)
        size = self._size(call.size, values, batch)
        self._check_elements(values, size)
        if batch is not None:
            check_batch(batch, size)
            shapes = tuple((batch.num_histograms, *shape) for shape in shapes)
        longest = size if batch is None else batch.longest(size)
        for asked in self._preparation.targets:
            check_number(asked.operator, longest * (asked.emits or 1))
        targets = self._outputs.targets(shapes, call.dest, call.out, partial=call.partial)
        given = [(a.name, v) for a, v in zip(self.arguments, values, strict=True) if a.is_array]
        given += [pair for each in targets for pair in each.named]
        known = survey(given, self.context, _LOAD_BYTES)
        on_device, queue = known.on_device, self._queue(call.queue, known.queue)
        wait_for = [*call.wait_for, *known.events]
        own_shapes = shapes if batch is None else tuple(shape[1:] for shape in shapes)
        factor = call.race_factor
        if isinstance(factor, str):
            self.profile_of(queue.device)  # refused here, if at all: nothing is enqueued yet
            factor = self._sampled_race_factor(factor, values, size, own_shapes, queue, wait_for)
        histograms = None if batch is None else batch.num_histograms
        kind = "" if batch is None else batch.kind
        prepared = self._preparation.prepared_for(
            queue.device,
            size,
            own_shapes,
            histograms,
            factor,
            call.forced,
            call.memory_budget,
            aligned=known.is_aligned,
            reach=call.reach,
            kind=kind,
        )
        as_given = targets[0].dest is None or targets[0].dest[0] is call.dest  # no copy, because `out` overlaps it
        if numbers is not None and on_device and as_given and not targets[0].fields:
            self._repeat = again = Repeat.of(numbers, given_to_call, values, queue, prepared)
            outcome = self._enqueue(values, targets, call, queue, wait_for, prepared, batch, on_device=on_device)
            again.like = without_memory(outcome.results[0])
            return outcome
        return self._enqueue(values, targets, call, queue, wait_for, prepared, batch, on_device=on_device)

    def _repeatable(self, call: Call) -> tuple[Any, ...] | None:
        """Return what tells calls apart besides their arguments, or None of a call that is checked each time."""
        plain = call.forced is FREE and call.ranges is None and call.offsets is None and call.num_histograms is None
        if not plain or call.reach or call.partial or not self._outputs.is_single:
            return None
        shape = call.num_bins if type(call.num_bins) is tuple else (call.num_bins,)
        if any(type(bins) is not int for bins in shape):
            return None
        if type(call.race_factor) is not float or call.memory_budget is not None:
            return None
        return (call.num_bins, call.size, call.queue, call.race_factor, *profile_names())

    def _enqueue(
        self,
        values: Sequence[Any],
        targets: Sequence[ResultTarget],
        call: Call,
        queue: cl.CommandQueue,
        wait_for: Sequence[cl.Event],
        prepared: Prepared,
        batch: Batch | None,
        *,
        on_device: bool,
    ) -> Outcome:
        """Enqueue what was checked and prepared."""
        for each in targets:
            each.allocate(queue, on_device, call.allocator)
        operands = {}
        arguments: dict[str, object] = {}
        for argument, value in zip(self.arguments, values, strict=True):
            if argument.is_array:
                operands[argument.name] = found = operand(value, queue, written=not argument.is_const)
                arguments |= {f"{argument.name}__base": found.buffer, f"{argument.name}__offset": found.offset}
            else:
                arguments[argument.name] = value
        results = [each.operands(queue) for each in targets]
        reached = np.zeros(1, np.uint32) if call.reach else None
        reach = None if reached is None else operand(reached, queue, written=True)
        launch = Launch(prepared.sweeps, prepared.profile, arguments, results, reach, batch, smaller=prepared.smaller)
        waits = not on_device or reach is not None
        try:
            events = launch.run(queue, call.allocator, wait_for)
            if waits:
                events["combine"][-1].wait()
        except BaseException:  # Ctrl-C too: the memory of NumPy arrays must not go while a kernel may use it
            queue.finish()
            raise
        if on_device:
            written = [v for a, v in zip(self.arguments, values, strict=True) if a.is_array and not a.is_const]
            for array in (*(array for each in targets for array in each.out or ()), *written):
                note_event(array, events["combine"][-1], wait_for)
        if waits:
            for item in (*operands.values(), *(o for result in results for o in result.out), reach):
                if item is not None:
                    item.retrieve()
        for each in [] if on_device or call.partial else targets:
            if each.operator.largest is not None:
                check_range(each.name, each.operator, each.result())
        return Outcome(
            [each.result() for each in targets], events, launch.after, 0 if reached is None else int(reached[0])
        )

    def _sampled_race_factor(
        self,
        how: str,
        values: Sequence[Any],
        size: int,
        shapes: Sequence[tuple[int, ...]],
        queue: cl.CommandQueue,
        wait_for: Sequence[cl.Event],
    ) -> float:
        if how not in ("sample", "sample once"):
            raise TypeError(f"race_factor: expected a number, 'sample' or 'sample once', got {how!r}")
        key = tuple(prod(shape) for shape in shapes)
        if how == "sample" or key not in self._race_factors:
            self._race_factors[key] = sample_race_factor(self, values, size, shapes, queue, wait_for)
        return self._race_factors[key].value

    def _reproducible(self, args: Sequence[Any], call: Call, max_abs: float | None) -> HistogramKernel:
        """Return the kernel whose results depend on nothing but the values."""
        check_emits(self._preparation.targets)
        values, batch = self._check_arguments(args), _batch(call)
        size = self._size(call.size, values, batch)
        shapes = self._outputs.shapes(call.num_bins)
        if batch is not None:
            check_batch(batch, size)
            shapes = tuple((batch.num_histograms, *shape) for shape in shapes)
        given = self._outputs.operators
        largest: list[float | None] = [max_abs] * len(given)
        if max_abs is None and any(is_float_sum(operator) for operator in given):
            targets = self._outputs.targets(shapes, call.dest, call.out, partial=False)
            looked = replace(call, dest=None, out=None, forced=FREE, race_factor=1.0)
            results = self._other(magnitudes(given)).run(args, looked).results
            dests = [target.dest or () for target in targets]
            queue = self._queue(call.queue, next((r.queue for r in results if is_device_array(r)), None))
            largest = largest_values(given, results, dests, queue, call.wait_for)
        count = (size if batch is None else batch.longest(size)) * self.emits + 1
        return self._other(tuple(reproducible_form(o, most, count) for o, most in zip(given, largest, strict=True)))

    def _other(self, forms: tuple[Operator, ...]) -> HistogramKernel:
        """Return the kernel of the same map with these operators, made once."""
        if forms == self._outputs.operators:
            return self
        if forms not in self._others:
            if len(self._others) >= _MOST_OTHERS:
                self._others.clear()
            self._others[forms] = self.with_operators(forms)
        return self._others[forms]

    def _check_arguments(self, args: Sequence[Any]) -> list[Any]:
        if len(args) != len(self.arguments):
            names = ", ".join(argument.name for argument in self.arguments)
            raise TypeError(f"expected {len(self.arguments)} arguments ({names}), got {len(args)}")
        return [
            check_array(a.name, value, a.dtype, written=not a.is_const) if a.is_array else scalar(a, value)
            for a, value in zip(self.arguments, args, strict=True)
        ]

    def _check_elements(self, values: Sequence[Any], size: int) -> None:
        for n in self._sized:
            if values[n].size < size:
                raise ValueError(f"{self.arguments[n].name}: expected at least {size} elements, got {values[n].size}")

    def _size(self, size: int | None, values: Sequence[Any], batch: Batch | None) -> int:
        if size is not None:
            return integer("size", size, 0)
        if self._sizing is not None:
            return int(values[self._sizing].size)
        if batch is not None and batch.ends is not None:
            return int(batch.ends[-1])
        raise TypeError("size: expected a number of elements, since no argument is an array; got None")

    def _queue(self, queue: cl.CommandQueue | None, of_arrays: cl.CommandQueue | None = None) -> cl.CommandQueue:
        if queue is not None and not isinstance(queue, cl.CommandQueue):
            raise TypeError(f"queue: expected a pyopencl.CommandQueue or None, got {queue!r}")
        if queue is None and of_arrays is not None:
            return of_arrays  # of this context, since the array is
        if queue is None:
            default = default_queue()
            queue = default if default.context == self.context else _queue_of(self.context)
        if queue.context != self.context:
            raise ValueError(f"queue: expected a queue of the context {self.context}, got one of {queue.context}")
        return queue


def check_number(operator: Operator, number: int) -> None:
    """Raise OverflowError if a bin may get more values, so many, than `operator` can take."""
    if operator.most_values is not None and number > operator.most_values:
        wider = _WIDER.get(operator.name, "use an operator with a wider accumulator")
        raise OverflowError(
            f"size: expected at most {operator.most_values} values for {operator.name}, got {number}; {wider}"
        )


def _batch(call: Call) -> Batch | None:
    if call.ranges is not None:
        return call.ranges
    if call.num_histograms is not None and call.offsets is not None:
        raise ValueError("offsets: expected either num_histograms or offsets, got both")
    if call.offsets is not None:
        return batch_of_offsets(call.offsets)
    return None if call.num_histograms is None else Batch(integer("num_histograms", call.num_histograms, 1))


@kept_by_context
def _queue_of(context: cl.Context) -> cl.CommandQueue:
    return cl.CommandQueue(context)
