"""`Engine`: one map with its operators, from the arguments of a call to what is enqueued.

All that computes histograms stands on it: `clhist.HistogramKernel`, `clhist.Accumulator`, the functions, and the
engine's own looks at the input.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.kernels.arguments import same_scalar
from clhist._core.kernels.source import Source
from clhist._core.model.plan import Plan
from clhist._core.model.problem import FREE, Choices, planned_size
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, is_taken
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.memory import OutOfMemoryError
from clhist._core.opencl.new_arrays import shares_memory, survey
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.batch import Batch, batch_of, check_batch
from clhist._core.runtime.build import Builder
from clhist._core.runtime.call import Call, CheckedCall, Outcome, call_of, named_arrays, queue_for, taken_argument
from clhist._core.runtime.call_cache import MANY_USES, CallCache, Operands, SizedCall, SizedCalls
from clhist._core.runtime.call_template import CallTemplate, Sizes
from clhist._core.runtime.outputs import Outputs
from clhist._core.runtime.prepare import numbered
from clhist._core.runtime.signature import aliases_of, signature_of_call
from clhist.operators.c_types import integer, scalar
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from clhist._core.runtime.distinct_bins import Sampler

# Bytes of the widest loads of kernels. If all arrays are aligned to them, the source of the sweep loads vectors.
_LOAD_BYTES = 16
# Remedies in the error of too many values for one bin, by the name of the operator.
_WIDER = {"count": "use clhist.operators.add", "reproducible_add": "give it a larger count="}


class _Request(NamedTuple):
    """A call that is not repeated as it is.

    Attributes
    ----------
    args : sequence
        The map's arguments.
    call : Call
        The other options.
    targets : sequence of array
        The arrays of `dest` and `out`.
    calls : SizedCalls or None
        The calls of all sizes, which store this one; None of a call that is checked each time.
    sizes : tuple
        The number of elements and the bins, as `calls` look them up.
    tables : sequence of int
        Positions of arrays that are on the device also if the caller's are NumPy's.
    key : hashable
        The key of `calls` in the cache of the engine; None if a template has them.
    """

    args: Sequence[Any]
    call: Call
    targets: Sequence[Array]
    calls: SizedCalls | None
    sizes: tuple[Any, ...]
    tables: Sequence[int] = ()
    key: Hashable = None


class Engine:
    """Histograms of one map: calls are checked, planned, built and enqueued.

    Parameters
    ----------
    context : pyopencl.Context or None
        Where it runs; None for that of the default device.
    outputs : Outputs
        Its operators.
    source : Source
        Its map.
    profile : Profile or None
        Instead of the device's own.

    Attributes
    ----------
    arrays, scalars : tuple of int
        Positions of the map's arrays and scalars among its arguments.
    race_factors : dict
        Race factors of the map that were measured to be kept, by the bins of each output; see `clhist.race_factor`.

    Raises
    ------
    ValueError
        If the map does not emit to each output, or may repeat an ``EMIT`` whose operator has a limit of values.
    UnsupportedError
        If a device lacks double precision and an operator or argument needs it.
    """

    def __init__(
        self, context: cl.Context | None, outputs: Outputs, source: Source, profile: Profile | None = None
    ) -> None:
        lost.check_process()
        if context is not None and not isinstance(context, cl.Context):
            raise TypeError(f"context: expected a pyopencl.Context or None for the default one, got {context!r}")
        # The map is checked first: a wrong one raises without looking for a device.
        outputs.check_map(source.map, source.preamble)
        for operator, most in zip(source.operators, source.max_pairs, strict=True):
            if most is None and operator.most_values is not None:
                raise ValueError(
                    f"emits: expected a bound of the pairs per element, since {operator.name} takes at most "
                    f"{operator.most_values} values per bin, and the map may repeat its EMIT; got None; pass emits="
                )
        self.context = default_queue().context if context is None else context
        lost.check_devices(self.context.devices)
        self.outputs, self.source, self.profile = outputs, source, profile
        self.arguments = source.arguments
        self.race_factors: dict[tuple[int, ...], float] = {}
        self._preparation = Builder(self.context, source, profile)
        self.arrays = tuple(n for n, argument in enumerate(self.arguments) if argument.is_array)
        self.scalars = tuple(n for n, argument in enumerate(self.arguments) if not argument.is_array)
        self._calls = CallCache(self._preparation, source)
        pairs = zip(source.operators, source.max_pairs, strict=True)
        self._limited = [(operator, most or 1) for operator, most in pairs if operator.most_values is not None]
        self._custom = any(operator.is_custom for operator in source.operators)
        self._preparation.check_fp64()

    @classmethod
    def of(
        cls,
        context: cl.Context | None,
        operator: Operator | Sequence[Operator] | Mapping[str, Operator],
        arguments: str,
        map: str,
        *,
        profile: Profile | None = None,
        trusts_emits: bool = True,
        by_fields: bool = False,
        **more: Any,
    ) -> Engine:
        """Return the engine of operators and a map as `clhist.HistogramKernel` takes them; `more` is of `Source.of`.

        With `by_fields`, new results of structured dtypes are tuples of arrays, one for each field.
        """
        if isinstance(context, Operator):
            raise TypeError(f"context: expected a pyopencl.Context or None, got {context!r}; the operator comes second")
        outputs = Outputs.of(operator)._replace(by_fields=by_fields)
        source = Source.of(arguments, map, outputs.operators, outputs.suffixes, **more)
        return cls(context, outputs, replace(source, trusts_emits=trusts_emits), profile)

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler that measures the race factors of the map."""
        from clhist._core.runtime.distinct_bins import Sampler  # imported here, since few calls ask for them

        return Sampler(self.source)

    @property
    def emits(self) -> int:
        """How many values an element has at most for one histogram, as far as that is known; at least 1."""
        return self.source.pairs_per_element

    @property
    def output_emits(self) -> tuple[int | None, ...]:
        """The same for each output; None where it is not known."""
        return self.source.max_pairs

    @property
    def uses_position(self) -> bool:
        """Whether the map may use `i` other than for the elements of the arrays that it uses only at ``[i]``."""
        return self.source.uses_position

    def with_operators(self, operators: Sequence[Operator]) -> Engine:
        """Return the engine of the same map with other operators, one for each of its own, on the same dtypes."""
        forms = tuple(operators)
        if forms == self.outputs.operators:
            return self
        engine: Engine | None = self._calls.get(forms)
        if engine is None:
            outputs = self.outputs._replace(operators=forms)
            engine = Engine(self.context, outputs, self.source.with_operators(forms), self.profile)
            self._calls.put(forms, engine)
        return engine

    def on(self, context: cl.Context) -> Engine:
        """Return the engine of the same map and operators in a context."""
        return self if context == self.context else _elsewhere(context, self)

    def profile_of(self, device: cl.Device) -> Profile:
        """Return the profile that was given, or that of `device`; raises ProfileError if the device cannot have it."""
        return self._preparation.profile_of(device)

    def plan(
        self,
        device: cl.Device,
        size: int,
        shapes: Sequence[tuple[int, ...]],
        num_histograms: int | None = None,
        race_factor: float = 1.0,
        choices: Choices = FREE,
        memory_budget: int | None = None,
    ) -> tuple[Plan, ...]:
        """Return the plan of each sweep over the input that a call with these numbers makes."""
        request = (size, shapes, num_histograms, race_factor, choices, memory_budget, device)
        return self._preparation.plan(device, self._preparation.problem(*request))

    def text(self, plan: Plan, device: cl.Device) -> str:
        """Return the OpenCL C of the sweep of `plan` on `device`."""
        return self._preparation.source(plan, device)

    def check_arguments(self, args: Sequence[Any]) -> list[Any]:
        """Return the map's arguments as kernels take them.

        Raises
        ------
        TypeError, ValueError
            If one of them is wrong; it is named.
        """
        self.check_number_of_arguments(args)
        return [taken_argument(a, value) for a, value in zip(self.arguments, args, strict=True)]

    def check_number_of_arguments(self, args: Sequence[Any]) -> None:
        """Raise TypeError if these are more or fewer than the map has."""
        if len(args) != len(self.arguments):
            names = ", ".join(argument.name for argument in self.arguments)
            raise TypeError(f"expected {len(self.arguments)} arguments ({names}), got {len(args)}")

    def size_of(self, size: int | None, values: Sequence[Any], batch: Batch | None = None) -> int:
        """Return N, as the caller says or as the arguments do; raises if it is wrong, or arrays have fewer elements."""
        if size is not None:
            size = integer("size", size, 0)
        elif self.source.sizing is not None:
            size = int(values[self.source.sizing].size)
        # Without arrays at [i], the last offset says how many elements there are.
        elif batch is not None and batch.ends is not None:
            size = int(batch.ends[-1])
        else:
            raise TypeError("size: expected a number of elements, since no argument is an array; got None")
        for n in self.source.sized:
            if values[n].size < size:
                raise ValueError(f"{self.arguments[n].name}: expected at least {size} elements, got {values[n].size}")
        return size

    def check_counts(self, size: int) -> None:
        """Raise OverflowError if a bin may get more values from `size` elements than its operator can take."""
        for operator, most in self._limited:
            check_number(operator, size * most)

    def check(self, args: Sequence[Any], call: Call, tables: Sequence[int] = ()) -> CheckedCall:
        """Return the arguments of a call, checked; those at the positions of `tables` may be on the device.

        Raises
        ------
        TypeError, ValueError
            If one of them is wrong; it is named.
        OverflowError
            If a bin may get more values than its operator can take.
        """
        shapes = self.outputs.shapes(call.num_bins)
        values = self.check_arguments(args)
        batch = batch_of(call.num_histograms, call.offsets)
        size = self.size_of(call.size, values, batch)
        of_results = shapes
        if batch is not None:
            check_batch(batch, size)
            of_results = tuple((batch.num_histograms, *shape) for shape in shapes)
        # A bin belongs to one histogram, so the longest histogram bounds the values of any bin.
        self.check_counts(size if batch is None else batch.longest(size))
        targets = self.outputs.targets(of_results, call.dest, call.out, call.partial)
        named = named_arrays(self.arguments, values, targets, tables)
        arrays = survey(named, self.context, _LOAD_BYTES)
        queue = queue_for(call.queue, self.context, arrays.queue)
        events = [*call.wait_for, *arrays.events]
        return CheckedCall(values, size, shapes, batch, targets, arrays.on_device, arrays.is_aligned, queue, events)

    def __call__(self, *args: Any, num_bins: Any, **options: Any) -> Any:
        """Return the results of a call with these keywords of `clhist.HistogramKernel.__call__`, but the last three."""
        return self.outputs.collect(self.run(args, call_of(num_bins, options)).results)

    def run(self, args: Sequence[Any], call: Call) -> Outcome:
        """Check, plan, build and enqueue a call; one with the signature of an earlier call is only enqueued.

        Parameters
        ----------
        args : sequence
            The map's arguments.
        call : Call
            The other options.
        """
        if lost.unchecked:
            lost.check_process()
        targets: list[Array] = []
        key = signature_of_call(self.arguments, args, call, self.context, targets, self.source.sizing)
        if key is None:
            return self._first(_Request(args, call, targets, None, ()), exact=False)
        alike, size, bins = key
        # Arrays of one signature may differ in their lengths; an array that is too short is refused by the check.
        if size is not None:
            for n in self.source.sized:
                if args[n].size < size:
                    return self._first(_Request(args, call, targets, None, ()), exact=False)
        calls: SizedCalls = self._calls.get(alike) or SizedCalls()
        sizes = size, bins
        prepared = calls.get(sizes) or self._of_other_sizes(calls, sizes, call)
        if prepared is not None and prepared.uses < MANY_USES:
            scalars = self._taken(prepared, args, call)
            try:
                return prepared.run([args[n] for n in self.arrays], scalars, call, targets)
            except OutOfMemoryError:
                if not prepared.ends_for_less():
                    raise
        # A shared plan was used often, or its spare bins did not fit memory: the plan is then for these sizes alone.
        return self._first(_Request(args, call, targets, calls, sizes, (), alike), exact=prepared is not None)

    def run_template(self, template: CallTemplate, arrays: Sequence[Any], call: Call, sizes: Sizes) -> Outcome:
        """Do the same for a call of a template: only the first of its calls is checked.

        Parameters
        ----------
        template : CallTemplate
            The cached call that this repeats, with arrays of the same dtypes and dimensions. Which arrays are both in
            `dest` and `out` may differ.
        arrays : sequence of array
            Those for its slots.
        call : Call
            The other options, of `CallTemplate.call_with`.
        sizes : Sizes
            The number of elements, the bins, and the scalars that depend on them.
        """
        if lost.unchecked:
            lost.check_process()
        targets: list[Array] = []
        template.uses += 1
        # Most calls have new results.
        aliases = () if call.dest is None and call.out is None else aliases_of(call, targets)
        calls = prepared = None
        if aliases is not None:
            calls = template.calls.prepared.get(aliases)
            if calls is None:
                calls = template.calls.prepared[aliases] = SizedCalls()
            prepared = calls.get(sizes) or self._of_other_sizes(calls, sizes, call)
        if prepared is not None and prepared.uses < MANY_USES:
            scalars = template.scalars.get(prepared)
            if scalars is None:
                scalars = template.scalars_of(prepared, sizes.numbers)
            try:
                return prepared.run(template.with_tables(arrays), scalars, call, targets)
            except OutOfMemoryError:
                if not prepared.ends_for_less():
                    raise
        args = template.with_slots(arrays, sizes.numbers)
        call = template.call_with(call.dest, call.out, call.allocator, call.wait_for, call.begun, sizes)
        return self._first(_Request(args, call, targets, calls, sizes, template.tables), exact=prepared is not None)

    def _of_other_sizes(self, calls: SizedCalls, sizes: tuple[Any, ...], call: Call) -> SizedCall | None:
        """Return the prepared call of a request by that of other sizes whose plan serves these; None if there is none.

        Raises
        ------
        OverflowError
            As `check` does of the number of elements.
        """
        # A plan with spare bins does not report the largest bin.
        close = calls.close(sizes[0], sizes[1], exact_bins=call.largest is not None)
        if close is None:
            return None
        alike, shape = close
        self.check_counts(sizes[0])
        # A separate use count lets a frequent size get an exact plan, whatever other sizes do.
        prepared = alike.of_sizes(self._preparation.sizes(sizes[0], prod(shape)), shape)
        calls.put(sizes, prepared)
        return prepared

    def _first(self, request: _Request, *, exact: bool) -> Outcome:
        """Check, plan, build and enqueue a call, and store it for its repeats unless arrays had to be copied.

        With `exact`, the plan is for the size of this call alone.
        """
        args, call, targets, calls, sizes, tables, key = request
        checked = self.check(args, call, tables)
        # A call that exceeds the memory runs in pieces. Its plan is checked before the first piece is enqueued.
        if (step := self._step(checked, call)) is not None:
            from clhist._core.runtime.pieces import by_pieces

            self._calls.check(checked, call, step)
            return by_pieces(self, checked, call, step)
        prepared, operands = self.prepare(checked, call, exact=exact)
        try:
            outcome = prepared.run(*operands, call, ())
        except OutOfMemoryError:
            # The exact plan of this call has no spare bins, so it may still fit.
            if not prepared.ends_for_less():
                raise
            prepared, operands = self.prepare(checked, call, exact=True)
            outcome = prepared.run(*operands, call, ())
        # A repeat passes its arguments to kernels as they are, so none may have been copied or converted.
        if calls is None or not all(map(is_taken, args, checked.values)):
            return outcome
        numbers: list[int | None] = []
        for array in numbered(checked.targets)[1]:
            number = None if array is None else next((n for n, target in enumerate(targets) if target is array), -1)
            numbers.append(number)
        prepared.targets = tuple(numbers)
        # -1 is an array that is none of the caller's, such as the copy of a `dest` that overlaps `out`.
        if -1 not in numbers:
            # Calls of other sizes with the same plan might need pieces, which a repeat does not make.
            any_size = checked.on_device or self._takes_all_at_once(checked.queue.device)
            any_size = any_size or self._step(replace(checked, size=planned_size(checked.size)), call) is None
            calls.put(sizes, prepared, any_size=any_size)
            self._calls.put(key, calls)
        return outcome

    def _step(self, checked: CheckedCall, call: Call) -> int | None:
        """Return the number of elements of a piece if all, or their pairs, do not fit memory; None for all at once.

        Only maps that use `i` as an index alone, with results of one array each, can be split. A batch has no pairs.
        """
        if checked.batch is not None or call.partial or isinstance(call.race_factor, str):
            return None
        source, device = self.source, checked.queue.device
        # Arrays that a kernel takes in place need no upload. On a CPU such calls are never split.
        is_there = checked.on_device or shares_memory(device)
        is_all_there = is_there and self.profile_of(device).kind == "cpu"  # with whatever pairs need
        can_be_split = (checked.on_device or source.sized) and not source.uses_position
        if is_all_there or not can_be_split:
            return None
        from clhist._core.runtime.pieces import are_apart

        if not are_apart(checked, self.arrays):
            return None
        # Only uploads take device memory for each element.
        element_bytes = 0 if is_there else sum(argument.dtype.itemsize for argument in source.elementwise)
        numbers = checked.size, checked.shapes, None, call.race_factor, call.choices, call.memory_budget
        return self._preparation.step(device, self._preparation.problem(*numbers, device), element_bytes)

    def _takes_all_at_once(self, device: cl.Device) -> bool:
        """Whether no array of NumPy is too large for the device: it is a CPU, planned for as one."""
        return shares_memory(device) and self.profile_of(device).kind == "cpu"

    def _taken(self, prepared: SizedCall, args: Sequence[Any], call: Call) -> list[Any]:
        """Return the scalars as kernels take them, those of the last call if they are equal; raise as `scalar` does.

        Their order is that of the prepared scalars: those of the map, the lower bound, and the sizes.
        """
        previous, before = prepared.scalars
        if previous == []:  # as of maps of arrays alone
            return before
        values = [args[n] for n in self.scalars]
        if call.largest is not None:
            values.append(call.largest.lower_bound)
        scalars = before if previous is not None else [*(None for _ in values), *prepared.sizes]
        # Repeats mostly pass the same objects or equal ints: these need no call of `same_scalar` and no conversion.
        for k, value in enumerate(values):
            if previous is not None:
                other = previous[k]
                is_same = value is other or (type(value) is type(other) is int and value == other)
                if is_same or same_scalar(value, other):
                    continue
            if scalars is before:
                scalars = [*before]
            scalars[k] = scalar(self.arguments[self.scalars[k]], value) if k < len(self.scalars) else value
        # The same list tells the executable that its kernels have these arguments.
        if scalars is not before:
            prepared.scalars = values, scalars
        return scalars

    def check_plan(self, checked: CheckedCall, call: Call) -> None:
        """Raise what the plan of a call raises, whatever its race factor: nothing is enqueued."""
        self._calls.check(checked, call, checked.size)

    def prepare(self, checked: CheckedCall, call: Call, *, exact: bool = False) -> tuple[SizedCall, Operands]:
        """Plan, build and prepare a checked call; return it with its arrays and scalars.

        With `exact`, the plan is for the size of this call alone.
        """
        numbers, targets = numbered(checked.targets)
        prepared = self._calls.prepared(checked, call, numbers, exact=exact)
        if self._custom and checked.size:  # which enqueues kernels: what is refused has been by now
            self._check_operators(checked, call)
        arrays, scalars = self._operands(checked, call, targets)
        if prepared.new is not None:
            arrays = [prepared.new if array is None else array for array in arrays]
        return prepared, (arrays, [*scalars, *prepared.sizes])

    def _check_operators(self, checked: CheckedCall, call: Call) -> None:
        """Check the custom operators once on each device, on values that this call emits, where it has any."""
        from clhist._core.runtime.operator_check import check_once

        emitted = cache(lambda: self._emitted(checked, call))
        for n, operator in enumerate(self.source.operators):
            if operator.is_custom:
                check_once(operator, lambda n=n: emitted()[n], checked.queue)  # type: ignore[misc]

    def _emitted(self, checked: CheckedCall, call: Call) -> list[np.ndarray]:
        """Return values that a call emits to each output; none if they cannot be read before the call."""
        # A map that writes its arguments cannot run twice. Pending events may belong to arrays that are not filled yet,
        # and the caller may complete an event of its own after this call; other events of arrays are waited for.
        is_written = any(argument.is_array and not argument.is_const for argument in self.arguments)
        # Statuses above COMPLETE are queued, submitted and running; errors are negative.
        complete = cl.command_execution_status.COMPLETE
        of_user = [event for event in checked.wait_for if event.command_type == cl.command_type.USER]
        is_pending = any(event.command_execution_status > complete for event in (*call.wait_for, *of_user))
        if is_written or is_pending:
            return [np.zeros(0, number_of(operator.dtype)) for operator in self.source.operators]
        from clhist._core.runtime.distinct_bins import emitted_values  # imported here, for custom operators alone

        return emitted_values(self.source, self.profile_of(checked.queue.device), checked)

    def operands(self, checked: CheckedCall, call: Call) -> Operands:
        """Return the arrays and scalars of a call as a prepared one has slots for them; None of new arrays."""
        return self._operands(checked, call, numbered(checked.targets)[1])

    def _operands(self, checked: CheckedCall, call: Call, targets: Sequence[Array | None]) -> Operands:
        values = checked.values
        arrays, scalars = [values[n] for n in self.arrays], [values[n] for n in self.scalars]
        return [*arrays, *targets], scalars if call.largest is None else [*scalars, call.largest.lower_bound]


@kept_by_context
def _elsewhere(context: cl.Context, engine: Engine) -> Engine:
    return Engine(context, engine.outputs, engine.source, engine.profile)


def check_number(operator: Operator, number: int) -> None:
    """Raise OverflowError if a bin may get more values, so many, than `operator` can take."""
    if operator.most_values is not None and number > operator.most_values:
        wider = _WIDER.get(operator.name, "use an operator with a wider accumulator")
        raise OverflowError(
            f"size: expected at most {operator.most_values} values for {operator.name}, got {number}; {wider}"
        )
