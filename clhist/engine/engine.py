"""`Engine`: one map with its operators, from the arguments of a call to what is enqueued.

All that computes histograms stands on it: `clhist.HistogramKernel`, `clhist.Accumulator`, the functions, and the
engine's own looks at the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyopencl as cl

from clhist.codegen.arguments import integer, scalar
from clhist.codegen.source import Source
from clhist.engine.batch import Batch, batch_of, check_batch
from clhist.engine.bound import Bound
from clhist.engine.build import Builder, Built
from clhist.engine.given import Call, Given, Outcome, named_arrays, queue_for
from clhist.engine.launch import Found, Launch
from clhist.engine.outputs import Outputs
from clhist.engine.repeat import Repeats
from clhist.engine.replay import Recording
from clhist.engine.sample import Sampler
from clhist.errors import BuildError
from clhist.hardware.profile import Profile
from clhist.opencl import lost
from clhist.opencl.arrays import check_array, note_event, operand, survey
from clhist.opencl.device import default_queue
from clhist.opencl.fork_guard import check_process
from clhist.opencl.memory import in_order
from clhist.opencl.program import kept_by_context
from clhist.operators.fixed_point import check_range
from clhist.operators.operator import Operator
from clhist.planning.plan import Plan
from clhist.planning.problem import FREE, Choices

_LOAD_BYTES = 16
_MOST_OTHERS = 64
_WIDER = {"count": "use clhist.operators.add", "reproducible_add": "give it a larger count="}


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
    race_factors : dict
        Race factors of the map that were measured to be kept, by the bins of each output; see `clhist.race_factor`.
    sampler : Sampler
        Measures them.

    Raises
    ------
    ValueError
        If the map does not emit to each output.
    UnsupportedError
        If a device lacks double precision and an operator or argument needs it.
    """

    def __init__(
        self, context: cl.Context | None, outputs: Outputs, source: Source, profile: Profile | None = None
    ) -> None:
        check_process()
        if context is not None and not isinstance(context, cl.Context):
            raise TypeError(f"context: expected a pyopencl.Context or None for the default one, got {context!r}")
        outputs.check_map(source.map)
        self.context = default_queue().context if context is None else context
        lost.check_devices(self.context.devices)
        self.outputs, self.source, self.profile = outputs, source, profile
        self.arguments = source.arguments
        self.race_factors: dict[tuple[int, ...], float] = {}
        self.sampler = Sampler(source)
        self._preparation = Builder(self.context, source, profile)
        self._repeats = Repeats(self)
        self._others: dict[tuple[Operator, ...], Engine] = {}
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
        **more: Any,
    ) -> Engine:
        """Return the engine of operators and a map as `clhist.HistogramKernel` takes them; `more` is of `Source.of`."""
        if isinstance(context, Operator):
            raise TypeError(f"context: expected a pyopencl.Context or None, got {context!r}; the operator comes second")
        outputs = Outputs.of(operator)
        return cls(context, outputs, Source.of(arguments, map, outputs.operators, outputs.suffixes, **more), profile)

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
        if forms not in self._others:
            if len(self._others) >= _MOST_OTHERS:
                self._others.clear()
            outputs = Outputs(forms, self.outputs.suffixes, self.outputs.names)
            self._others[forms] = Engine(self.context, outputs, self.source.with_operators(forms), self.profile)
        return self._others[forms]

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
        asked = (size, shapes, num_histograms, race_factor, choices, memory_budget, device)
        return self._preparation.plan(device, self._preparation.problem(*asked))

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
        return [
            check_array(a.name, value, a.dtype, written=not a.is_const) if a.is_array else scalar(a, value)
            for a, value in zip(self.arguments, args, strict=True)
        ]

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
        for operator, most in zip(self.source.operators, self.source.max_pairs, strict=True):
            check_number(operator, size * (most or 1))

    def check(self, args: Sequence[Any], call: Call) -> Given:
        """Return the arguments of a call, checked.

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
        self.check_counts(size if batch is None else batch.longest(size))
        targets = self.outputs.targets(of_results, call.dest, call.out, partial=call.partial)
        arrays = survey(named_arrays(self.arguments, values, targets), self.context, _LOAD_BYTES)
        queue = queue_for(call.queue, self.context, arrays.queue)
        events = [*call.wait_for, *arrays.events]
        return Given(values, size, shapes, batch, targets, arrays.on_device, arrays.is_aligned, queue, events)

    def prepared(self, given: Given, call: Call) -> Built:
        """Return the sweeps of a call, planned and built."""
        batch = given.batch
        try:
            return self._preparation.prepared_for(
                given.queue.device,
                given.size,
                given.shapes,
                None if batch is None else batch.num_histograms,
                call.race_factor,
                call.choices,
                call.memory_budget,
                aligned=given.is_aligned,
                kind="" if batch is None else batch.kind,
                used="" if call.largest is None else call.largest.used,
                one_launch=not call.partial and not any(target.fields for target in given.targets),
            )
        except (cl.Error, BuildError) as error:  # what a lost device answers as well
            lost.settle(given.queue, error)
            raise

    def run(self, args: Sequence[Any], call: Call) -> Outcome:
        """Check, plan, build and enqueue; a call that repeats earlier ones is only enqueued."""
        return self._repeats.run(args, call)

    def run_given(self, given: Given, call: Call) -> Outcome:
        """Plan, build and enqueue a call whose arguments have been checked."""
        return self.enqueue(given, call, self.prepared(given, call))

    def bind(self, args: Sequence[Any], call: Call, given: Given) -> Bound:
        """Return a call, of which `given` was checked, bound to its arguments."""
        return Bound(self, args, call, given, self.prepared(given, call))

    def enqueue(self, given: Given, call: Call, prepared: Built, recording: Recording | None = None) -> Outcome:
        """Enqueue what was checked and prepared, noted by `recording`; NumPy arrays are waited for."""
        try:
            return self._enqueue(given, call, prepared, recording)
        except (cl.Error, MemoryError, BuildError) as error:  # what a lost device answers as well
            lost.settle(given.queue, error)
            raise

    def _enqueue(self, given: Given, call: Call, prepared: Built, recording: Recording | None) -> Outcome:
        lost.check_queue(given.queue)
        lost.last_call = prepared.call
        queue, on_device, targets = given.queue, given.on_device, given.targets
        for each in targets:
            each.allocate(queue, on_device, call.allocator)
        operands = {}
        arguments: dict[str, object] = {}
        for argument, value in zip(self.arguments, given.values, strict=True):
            if argument.is_array:
                operands[argument.name] = found = operand(value, queue, written=not argument.is_const)
                arguments |= {f"{argument.name}__base": found.buffer, f"{argument.name}__offset": found.offset}
            else:
                arguments[argument.name] = value
        results = [each.operands(queue) for each in targets]
        largest = None if call.largest is None else Found(operands[call.largest.argument], call.largest)
        launch = Launch(
            prepared.sweeps,
            prepared.profile,
            arguments,
            results,
            largest,
            given.batch,
            smaller=prepared.smaller,
            recording=recording,
        )
        try:
            events = launch.run(queue, call.allocator, given.wait_for)
            if not on_device:
                if not in_order(queue):
                    events["combine"][-1].wait()
                for item in (*operands.values(), *(o for result in results for o in result.out)):
                    item.retrieve()  # after all that a queue in order has to do
                events["combine"][-1].wait()
        except BaseException as error:  # Ctrl-C too: the memory of NumPy arrays must not go while a kernel may use it
            lost.settle(queue, error)
            raise
        if on_device:
            written = [v for a, v in zip(self.arguments, given.values, strict=True) if a.is_array and not a.is_const]
            for array in (*(array for each in targets for array in each.out or ()), *written):
                note_event(array, events["combine"][-1], given.wait_for)
        for each in [] if on_device or call.partial else targets:
            if each.operator.largest is not None:
                check_range(each.name, each.operator, each.result())
        return Outcome([each.result() for each in targets], events, launch.after)


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
