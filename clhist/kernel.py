"""`HistogramKernel`: a map and operators compiled into histograms, in the manner of PyOpenCL's ReductionKernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.model.plan import Plan
from clhist._core.model.problem import CHOICES, FREE, Choices
from clhist._core.opencl.lost import check_process
from clhist._core.opencl.memory import Allocator
from clhist._core.runtime.bound import Bound
from clhist._core.runtime.call import Call, call_of, checked_events, queue_for
from clhist._core.runtime.cuda_entry import takes_cuda, takes_cuda_only
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.reproducible import reproducible as reproducible_engine
from clhist._core.runtime.scatter import arguments_of_call
from clhist._core.runtime.shown_options import shows
from clhist._core.runtime.signature import itself, recognise
from clhist.accumulator import Accumulator
from clhist.kernel_types import KernelCalls
from clhist.operators.c_types import check_booleans, check_max_abs, integer
from clhist.operators.names import with_names
from clhist.race_factor import RaceFactor, run, sample_race_factor, with_race_factor
from clhist.typing import HostArray, K, MadeOf, NumBins, PlanChoices

_CHOICES = frozenset(CHOICES)


class HistogramKernel(KernelCalls[K]):
    """A generalized histogram with a fused map: ``dest[bin] = combine(dest[bin], value)`` for each emitted pair.

    Parameters
    ----------
    context : pyopencl.Context or None
        Context of the kernel; None for that of the default device.
    operator : Operator, str or numpy.ufunc, or sequence or mapping of them
        How values are combined; a name such as ``"mean"``, or a ufunc, needs `dtype`. Several operators compute several
        histograms in one sweep over the input: the map emits to them by ``EMIT0``, ``EMIT1``, ... or, for a mapping,
        by ``EMIT_name``.
    arguments : str
        C declarations of the map's arguments, such as ``"const float *x, const int32_t *bin, float scale"``: pointers
        are arrays in global memory, the rest scalars. The map may write to an array that is not ``const``.
    map : str
        C run for each `i` in [0, size). It calls ``EMIT(bin, value)`` zero, one or many times; bins outside
        [0, num_bins) are ignored. It may run several times for one `i`, once per pass.
    preamble : str, optional
        C functions that the map uses.
    structs : mapping of str to dtype-like, optional
        Structured types named in `arguments`, `preamble` and `map`. The operator's own is ``value_t``; with several
        operators ``value0_t``, ``value1_t``, ... or ``value_name_t``.
    options : sequence of str, optional
        Options for the OpenCL compiler.
    profile : Profile, optional
        Device profile to plan with. Defaults to `clhist.device_profile`.
    emits : int, optional
        Upper bound of the pairs per element and histogram. Defaults to the number of ``EMIT`` in the map; give it for a
        map with a loop. There, operators with `most_values`, such as ``count``, require it. With ``update="sort"``, a
        call waits for the pairs of such a map, and an element that emits more raises ValueError; other updates take any
        number.
    dtype : dtype-like, or mapping of str to it, optional
        Type of the emitted values, for operators given by name or as ufuncs: one for all, or one each.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    UnsupportedError
        If the device lacks double precision and the operator or an argument needs it.

    Attributes
    ----------
    operator : Operator, or sequence or mapping of it
        As given, with operators in the place of names and ufuncs; `context` is that of the kernel.

    Examples
    --------
    >>> kernel = clhist.HistogramKernel(None, clhist.operators.add(np.float32),
    ...     arguments="const float *x, const float *weight",
    ...     map="EMIT((int)floor(x[i]), weight[i])")
    >>> x, weight = np.array([0.5, 2.5, 2.75], np.float32), np.array([1, 2, 3], np.float32)
    >>> kernel(x, weight, num_bins=3)
    array([1., 0., 5.], dtype=float32)

    Two histograms at once:

    >>> add = clhist.operators.add
    >>> kernel = clhist.HistogramKernel(None, {"number": add(np.int32), "total": add(np.float32)},
    ...     arguments="const int *group, const float *x",
    ...     map="EMIT_number(group[i], 1); EMIT_total(group[i], x[i])")
    >>> kernel(np.array([0, 1, 1], np.int32), x, num_bins=2)["total"]
    array([0.5 , 5.25], dtype=float32)

    Notes
    -----
    The strings are code that runs on the device: do not take them from someone you do not trust.
    """

    def __init__(
        self: HistogramKernel[MadeOf],
        context: cl.Context | None,
        operator: MadeOf,
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
        more: dict[str, Any] = {"preamble": preamble, "structs": structs, "options": options, "emits": emits}
        more["trusts_emits"] = False
        operators = with_names(operator, dtype)
        self._set(operators, Engine.of(context, operators, arguments, map, profile=profile, **more))

    @classmethod
    def of(cls, operator: Any, engine: Engine) -> HistogramKernel[Any]:
        """Return the kernel of an engine that was made of `operator`."""
        cls._set(kernel := cls.__new__(cls), operator, engine)
        return kernel

    def _set(self, operator: Any, engine: Engine) -> None:
        vars(self)["operator"] = operator  # whose type `KernelCalls` has
        self.engine, self.context, self.arguments = engine, engine.context, engine.arguments

    if not TYPE_CHECKING:  # which looks at the signatures of `KernelCalls`

        def plan(
            self,
            size: int,
            num_bins: Any,
            *,
            queue: cl.CommandQueue | None = None,
            race_factor: float = 1.0,
            memory_budget: int | None = None,
            num_histograms: int | None = None,
            **choices: Any,
        ) -> Any:
            """Return the `Plan` of a call with these parameters; see `__call__`.

            Of a kernel with several operators it is a tuple, one plan for each sweep over the input.
            """
            check_process()
            forced, shapes = Choices(**choices), (engine := self.engine).outputs.shapes(num_bins)
            if num_histograms is not None:
                num_histograms = integer("num_histograms", num_histograms, 1)
            size, device = integer("size", size, 0), queue_for(queue, self.context).device
            plans = engine.plan(device, size, shapes, num_histograms, race_factor, forced, memory_budget)
            return plans[0] if engine.outputs.is_single else plans

        @shows(PlanChoices)
        @takes_cuda
        def __call__(  # noqa: PLR0913  # an option each
            self,
            *args: Any,
            num_bins: Any = None,
            size: int | None = None,
            dest: Any = None,
            out: Any = None,
            queue: cl.CommandQueue | None = None,
            allocator: Allocator | None = None,
            wait_for: Sequence[cl.Event] | None = None,
            return_event: bool = False,
            race_factor: float | str = 1.0,
            memory_budget: int | None = None,
            num_histograms: int | None = None,
            offsets: Any = None,
            reproducible: bool = False,
            max_abs: float | None = None,
            **choices: Any,
        ) -> Any:
            """Compute the histogram, or histograms.

            Parameters
            ----------
            *args : array or scalar
                One per declaration in `arguments`. Arrays are all of one library (NumPy, PyOpenCL, or one of CUDA),
                contiguous, of the declared dtype; lists of numbers that fit it are converted.
            num_bins : int, or tuple of int
                H, or the shape of the result, whose bins are numbered as by `numpy.ravel_multi_index`. With several
                operators one for all, or a sequence or mapping.
            size : int, optional
                N: the map runs for `i` in [0, size). Defaults to the size of the first array used only at ``[i]``, or
                else of the first array.
            dest : array of shape (num_bins,), optional
                Initial contents of the bins. For a structured dtype also a tuple of arrays, one per field. With several
                operators a sequence or mapping.
            out : array of shape (num_bins,), optional
                Array for the result; may be `dest`. Defaults to a new array of the arguments' kind.
            queue : pyopencl.CommandQueue, optional
                Defaults to that of the first device array, or the default one.
            allocator : callable, optional
                Allocator of the result and the copies, such as a `pyopencl.tools.MemoryPool`.
            wait_for : sequence of pyopencl.Event, optional
                Events to wait for, besides those of the arrays.
            return_event : bool
                Whether to return ``(result, event)``; the event covers the whole call.
            race_factor : float, "sample" or "sample once"
                Bins divided by the distinct bins that as many consecutive elements touch. "sample" measures it before
                planning, see `race_factor`; "sample once" only at the first call with this number of bins.
            update : {"private", "native", "carry", "cas", "lock", "sort", "gather"}, optional
                Force the update; "sort" sorts the pairs by bin and combines neighbours (SC'20, Listing 4); "gather", of
                `clhist.reduce_by_index` alone, combines the rows of each bin in registers.
            memory : {"local", "global", "partitioned"}, optional
                Force the memory of the copies; "partitioned" groups the pairs by ranges of bins that fit local memory
                first, for maps that emit one value per element; with ``update="private"`` a CPU does so in its caches.
            copies, passes, work_group_size : int, optional
                Force the numbers of copies, passes and work-items of a work-group. With ``memory="partitioned"``,
                `passes` is the minimum number of partitions. A UserWarning says once if the plan can only use
                fewer: it has no more work-items than copies, and no more passes than bins.
            locks : int, optional
                Most locks that the bins of all copies share, a power of two. Defaults to one per bin. Only
                ``update="lock"`` has locks, which the model need not choose; another update beside `locks` is refused.
            pass_order : {"in turn", "side by side"}, optional
                Force how passes over local memory follow one another: side by side, all passes share one launch. A
                UserWarning says once if the plan has passes over global memory, which run in turn.
            counter_bits : {4, 8, 16, 32}, optional
                Force the width of counters in local memory where all values are 1 and are added.
            memory_budget : int, optional
                Bytes that the copies may take in global memory. Defaults to a quarter of the device's.
            num_histograms : int, optional
                Number of histograms in a batch: each has an equal consecutive share of the elements. Results get a
                first dimension for the histograms; bins are numbered within each histogram.
            offsets : array of int of shape (num_histograms + 1,), optional
                A batch of unequal shares: histogram k has the elements [offsets[k], offsets[k + 1]). Read on the host.
            reproducible : bool
                Make sums of float32 and float64 bitwise the same in any order of values, by any plan and on any device,
                by `clhist.operators.reproducible_add`: the exact sums, rounded once. Also defines zeros and NaN of
                minima and maxima.
            max_abs : float, optional
                Upper bound of ``abs(value)`` over all finite values, `dest` included, by which accumulators have fewer
                words and sums the error of `clhist.operators.reproducible_add`. Only with `reproducible`.

            Returns
            -------
            array of shape (num_bins,)
                Of the operator's dtype, of the library of the arguments. A tuple of arrays if `dest` or `out` was one.
                With several operators a tuple, or a dict for a mapping. With `return_event` a pair with the event.

            Raises
            ------
            TypeError, ValueError
                If an argument is wrong; it is named, and nothing is enqueued.
            OverflowError
                If values exceed `max_abs` (on a device their bins are NaN instead), or a bin may get more values than
                its operator can take, before anything is enqueued.
            MemoryError
                If not even one copy fits the budget or the device.
            BuildError
                If the compiler refuses the operator or the map.
            DeviceLostError
                If a kernel failed on the device, in this call or before, and the process must be restarted.
            """
            args = arguments_of_call(self.arguments, args, num_bins)
            # Most calls force no choice, and share one object without the checks of names.
            forced = FREE
            if choices:
                if unknown := choices.keys() - _CHOICES:
                    shown = list(signature(type(self).__call__).parameters)[2:]  # but for the kernel and its arrays
                    raise TypeError(f"{min(unknown)}: expected one of {', '.join(sorted(shown))}")
                forced = Choices(**choices)
            events, batch = checked_events(wait_for) if wait_for else (), (num_histograms, offsets)
            call = Call(num_bins, size, dest, out, queue, allocator, events, race_factor, forced, memory_budget, *batch)
            # Any value but the default is checked: one of a wrong type must not pass for False.
            if reproducible is not False or max_abs is not None:
                check_max_abs(max_abs, reproducible)
            if return_event is not False:
                check_booleans(return_event=return_event)
            # A string requests a measurement of the race factor before the plan.
            compute = run if isinstance(race_factor, str) else Engine.run
            engine = reproducible_engine(self.engine, args, call, max_abs) if reproducible else self.engine
            outcome = compute(engine, args, call)
            # Results have the kernel's names and structure, whichever engine computed them.
            result = self.engine.outputs.collect(outcome.results)
            return (result, outcome.event) if return_event else result

        @takes_cuda_only
        def bind(
            self,
            *args: Any,
            num_bins: Any = None,
            reproducible: bool = False,
            max_abs: float | None = None,
            **choices: Any,
        ) -> Bound:
            """Return a call with these arguments, checked, planned and built: what it costs the host is little.

            Parameters
            ----------
            *args, num_bins, reproducible, max_abs
                As in `__call__`.
            **choices
                Others of `__call__`, but for `return_event`. A race factor to be sampled is measured now.

            Returns
            -------
            Bound
                To be called; changed contents of the arrays are read each time.

            Raises
            ------
            TypeError, ValueError, OverflowError, MemoryError, BuildError
                As `__call__`.
            """
            check_process()
            args = arguments_of_call(self.arguments, args, num_bins)
            call, engine = call_of(num_bins, choices), self.engine
            check_max_abs(max_abs, reproducible)
            if reproducible:
                engine = reproducible_engine(engine, args, call, max_abs)
            # Checked, and sampled if requested, once: each call of the result only launches.
            checked = engine.check(args, call)
            return Bound(engine, args, with_race_factor(engine, checked, call), checked)

        def timed(
            self, *args: Any, num_bins: NumBins, queue: cl.CommandQueue, **choices: Any
        ) -> tuple[Any, dict[str, float]]:
            """Compute once and return the result with the seconds that each stage took on the device.

            Parameters
            ----------
            *args, num_bins, **choices
                As in `__call__`, without `return_event`.
            queue : pyopencl.CommandQueue
                With ``PROFILING_ENABLE``.

            Returns
            -------
            array, dict of str to float
                The result, and seconds of "clear" (where there is one), "sweep" and "combine", without gaps between
                them, or of "combine" alone if the plan is one launch; where pairs are sorted, with those between its
                launches.
            """
            if not queue.properties & cl.command_queue_properties.PROFILING_ENABLE:
                raise ValueError("queue: expected one with PROFILING_ENABLE, got one without")
            args = arguments_of_call(self.arguments, args, num_bins)
            call = call_of(num_bins, choices | {"queue": queue})
            outcome = run(self.engine, args, call)
            return self.engine.outputs.collect(outcome.results), outcome.seconds(queue)

    def race_factor(
        self, *args: Any, num_bins: Any, size: int | None = None, queue: cl.CommandQueue | None = None
    ) -> RaceFactor:
        """Measure the race factor of the map on these arguments (SC'20, section III-D).

        Parameters
        ----------
        *args, num_bins, size, queue
            As in `__call__`.

        Returns
        -------
        RaceFactor
            The number, and what it was measured from.
        """
        check_process()
        args = arguments_of_call(self.arguments, args, num_bins)
        return sample_race_factor(self.engine, self.engine.check(args, Call(num_bins, size, queue=queue)))

    def accumulator(self, num_bins: Any, **options: Any) -> Accumulator[HostArray, K]:
        """Return an `Accumulator` of this map, for input that comes piece by piece; it has the `options`."""
        return Accumulator(self, num_bins, **options)

    def source(self, chosen: Plan, queue: cl.CommandQueue | None = None) -> str:
        """Return the OpenCL C of the sweep that `chosen` plan leads to, for reading."""
        return self.engine.text(chosen, queue_for(queue, self.context).device)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{'const ' * a.is_const}{a.c_type} {a.mark}{a.name}" for a in self.arguments)
        operators = ", ".join(str(operator) for operator in self.engine.outputs.operators)
        return f"<HistogramKernel({arguments}): {operators}; on {self.context.devices[0].name.strip()}>"

    @property
    def emits(self) -> int:
        """How many values an element has at most for one histogram, as far as that is known; at least 1."""
        return self.engine.emits

    @property
    def uses_position(self) -> bool:
        """Whether the map may use `i` other than for the elements of the arrays that it uses only at ``[i]``."""
        return self.engine.uses_position


recognise(HistogramKernel, lambda kernel: itself(kernel.engine))
