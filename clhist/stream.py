"""`Accumulator`: histograms of input that comes piece by piece, or that is larger than the device's memory.

What a bin holds between two pieces is an accumulator of the operator, neither lifted nor finished, on the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from math import prod
from typing import Any

import click
import numpy as np
import pyopencl as cl

from clhist.arguments import integer, scalar
from clhist.arrays import Array, check_array, check_context, common_kind, empty, is_device_array, operand, shares_memory
from clhist.device import default_queue, device_profile
from clhist.execute import Result, combine_partials
from clhist.fixed_point import check_range
from clhist.kernel import Call, HistogramKernel, check_number
from clhist.map_text import Argument
from clhist.model_draft import Forced
from clhist.operator import Operator
from clhist.operator_names import COUNT, operator_on_bins, operator_on_values
from clhist.outputs import Outputs
from clhist.pairs import arguments_of, as_array, checked_values, pair_kernel, pair_spec
from clhist.process import check_process
from clhist.results import check_dest
from clhist.staging import InPlace, Staging

_CHUNK_BYTES = 64 << 20
_MULTIPLE = 128  # elements: chunks begin as their arrays do at an address for wide loads

Progress = Callable[[int, int | None], None]


class Accumulator:
    """A histogram that is added to piece by piece: ``reduce_by_index`` or a `HistogramKernel` over a stream.

    Parameters
    ----------
    operator : Operator, numpy.ufunc, str or HistogramKernel
        How values are combined, by name too, as in `clhist.reduce_by_index`; or a kernel whose map makes the pairs,
        with one or several operators.
    num_bins : int, or tuple of int
        H: bins of the result, as in `HistogramKernel.__call__`.
    dtype : dtype-like, optional
        Of the bins, for a ufunc or an expression; defaults to that of `dest`.
    dest : array of shape (num_bins,), optional
        Values that the histogram is combined with; of several operators a sequence or mapping.
    queue : pyopencl.CommandQueue, optional
        Defaults to the default one, or the kernel's.
    chunk_bytes : int
        NumPy arrays of more bytes are taken in chunks of at most so many. On a device with its own memory each argument
        takes twice that there, and as much page-locked memory of the host.
    race_factor : float, "sample" or "sample once"
        As in `HistogramKernel.__call__`, for each chunk.
    first_index : str, optional
        The scalar argument of the kernel's map that gets the position in the stream of the element 0 of a chunk, so
        that ``first + i`` is the position of an element. It is left out of what is added.
    start : int
        The position of the first element, for a stream that is a later part of another.
    **choices
        `update`, `memory`, `copies`, `passes`, `work_group_size`, `locks` and `memory_budget` of
        `HistogramKernel.__call__`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> sums = Accumulator(np.add, 1000, dtype=np.float32)                                  # doctest: +SKIP
    >>> sums.extend((np.load(f"bins{k}.npy"), np.load(f"values{k}.npy")) for k in range(9))  # doctest: +SKIP
    >>> sums.result()                                                                       # doctest: +SKIP

    Notes
    -----
    One thread at a time may use it. Sums of floats are those of one call but for rounding; other results are the same.
    """

    def __init__(
        self,
        operator: Operator | np.ufunc | str | HistogramKernel,
        num_bins: Any,
        *,
        dtype: Any = None,
        dest: Any = None,
        queue: cl.CommandQueue | None = None,
        chunk_bytes: int = _CHUNK_BYTES,
        race_factor: float | str = 1.0,
        first_index: str | None = None,
        start: int = 0,
        **choices: Any,
    ) -> None:
        check_process()
        self._counts = isinstance(operator, str) and operator == COUNT
        known = {each.name for each in fields(Forced)}
        unknown = choices.keys() - known - {"memory_budget"}
        if unknown:
            raise TypeError(f"{min(unknown)}: expected one of {', '.join(sorted(known))} or memory_budget")
        self._budget = choices.pop("memory_budget", None)
        self._forced, self._race_factor = Forced(**choices), race_factor
        self._chunk_bytes = integer("chunk_bytes", chunk_bytes, 1)
        self._position = self._start = integer("start", start, 0)
        self._merged = 0
        if isinstance(operator, HistogramKernel):
            if dtype is not None:
                raise TypeError(f"dtype: expected none, since the kernel's operators have theirs; got {dtype!r}")
            self._outputs, kernel = operator._outputs, operator
            self._queue = kernel._queue(queue)
            self._profile = kernel.profile_of(self._queue.device)
        else:
            self._outputs, kernel = Outputs.of(_operator(operator, dtype, dest)), None
            self._queue = queue or default_queue()
            self._profile = device_profile(self._queue.device)
        self._shapes = self._outputs.shapes(num_bins)
        # Accumulators go from call to call: the operators may not take another form in the next.
        shared = self._profile.kind != "cpu"
        self._forms = [each.fixed(shared=shared) for each in self._outputs.operators]
        self._kernel, self._first = None, None
        self._emits = [1] if kernel is None else [target.emits or 1 for target in kernel._preparation.targets]
        if kernel is not None:
            self._kernel, self._first = kernel.with_operators(self._forms), _first_argument(kernel, first_index)
        elif first_index is not None:
            raise TypeError(f"first_index: expected none, since there is no map; got {first_index!r}")
        elif len(self._shapes[0]) > 1:
            raise ValueError(f"num_bins: expected one dimension for an operator, got {num_bins}")
        dests = [None] * len(self._forms)
        if dest is not None:
            dests = self._each("dest", dest, [form.dtype for form in self._forms])
            for label, form, given in zip(self._outputs.labels, self._forms, dests, strict=True):
                if given is not None:
                    check_dest(f"dest{label}", form)
        self._on_device = False
        self._held = self._empty()
        # A chunk is in all of several histograms or in none.
        self._spare = self._held if len(self._held) == 1 else self._empty()
        self._staging = None if shares_memory(self._queue.device) else Staging(self._queue, self._chunk_bytes)
        for form, given, held in zip(self._forms, dests, self._held, strict=True):
            self._combine(form, given, held, out_is_partial=True)

    @property
    def size(self) -> int:
        """How many elements, each an `i` of the map or an index, have been added."""
        return self._position - self._start

    def add(self, *args: Any, size: int | None = None) -> None:
        """Add a piece of the stream.

        Parameters
        ----------
        *args : array or scalar
            For an operator the indices and the values, as `clhist.reduce_by_index` takes them: where the operator is on
            (value, index) pairs, as `clhist.operators.argmax` is, values alone have their position in the whole stream
            for an index. For a kernel the map's arguments, without `first_index`. All NumPy's or all PyOpenCL's.
        size : int, optional
            N, as in `HistogramKernel.__call__`; only for a kernel.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; it is named, and nothing is added. So too if NumPy arrays are larger than
            `chunk_bytes` and the map uses `i` other than for their elements, unless there is a `first_index`.
        OverflowError
            If a bin may have more values then than its operator can take, such as 2^32 of `clhist.operators.count`;
            nothing is added.
        MemoryError
            If the device has no room. Chunks before this one stay added; `size` says how many elements.

        Notes
        -----
        NumPy arrays that the map uses only at ``[i]`` are split into chunks along their first axis (further ones
        included, in C order); others, and scalars, go whole with each chunk. Device arrays are not split. When `add`
        returns, NumPy arrays may be changed. If anything is raised while chunks are computed, Ctrl-C included, the
        chunks before stay added and the device is waited for.
        """
        check_process()
        if self._kernel is None:
            if len(args) != 2 or size is not None:
                raise TypeError(f"add: expected indices and values, got {len(args)} arguments and size={size}")
            self._add(*self._pairs(*args))
            return
        given, first = list(args), self._first
        if first is not None and len(args) == len(self._kernel.arguments) - 1:
            given.insert(self._kernel.arguments.index(first), 0)
        elif first is not None:
            names = ", ".join(a.name for a in self._kernel.arguments if a != first)
            raise TypeError(f"add: expected {len(self._kernel.arguments) - 1} arguments ({names}), got {len(args)}")
        self._add(self._kernel, given, first, size)

    def extend(self, iterable: Iterable[Any], total: int | None = None, progress: bool | Progress = False) -> None:
        """Add piece after piece.

        Parameters
        ----------
        iterable : iterable of tuple, or of array
            What `add` takes: its arguments, or its only one. If it raises, what came before stays added.
        total : int, optional
            How many elements there will be, for `progress`.
        progress : bool or callable
            True shows a bar on the standard error. A callable gets the number of elements after each piece, and
            `total`.
        """
        total = None if total is None else integer("total", total, 0)
        if not isinstance(progress, bool) and not callable(progress):
            raise TypeError(f"progress: expected a bool or a callable, got {progress!r}")
        before = self._position
        with _reporter(total, progress) as report:
            for given in iterable:
                self.add(*(given if isinstance(given, tuple) else (given,)))
                report(self._position - before, total)

    def result(self) -> Any:
        """Return the histogram of all that has been added; more can be added then.

        Returns
        -------
        array of shape (num_bins,)
            Of the operator's dtype, and PyOpenCL's if what was added last was. With several operators a tuple, or a
            dict if they are a mapping.
        """
        check_process()
        found = self._finished(self._on_device)
        for label, form, result in zip(self._outputs.labels, self._forms, found, strict=True):
            if not self._on_device and form.largest is not None:
                check_range(label, form, result)
        return self._outputs.collect(found)

    def partial(self) -> Any:
        """Return the accumulators as they are: what `merge` takes, for as many values as there may be.

        Returns
        -------
        numpy.ndarray of shape (num_bins,)
            Of the operator's accumulators' dtype; on devices other than CPUs that of a form of it which hardware
            updates better. With several operators a tuple, or a dict if they are a mapping.
        """
        check_process()
        return self._outputs.collect([held.get(self._queue) for held in self._held])

    def merge(self, other: Any) -> None:
        """Add what another accumulator has been given, on whatever device; `size` stays as it is.

        Parameters
        ----------
        other : Accumulator or array
            Of the same operators and `num_bins`, and then left as it is; or what `partial` returned. What `dest` it was
            made with counts as well.

        Raises
        ------
        TypeError, ValueError
            If it is of other operators or another number of bins; nothing is added then.
        OverflowError
            If a bin may have more values then than its operator can take; of arrays it is not known how many there are.
        """
        check_process()
        merged = self._merged
        if not isinstance(other, Accumulator):
            partials = self._each("other", other, [form.accumulator for form in self._forms])
        else:
            merged += other.size + other._merged
            for what in ("operators", "names"):
                own, its = getattr(self._outputs, what), getattr(other._outputs, what)
                if own != its:
                    raise ValueError(f"other: expected an Accumulator of the {what} {own}, got one of {its}")
            if other._shapes != self._shapes:
                raise ValueError(f"other: expected an Accumulator of {self._shapes} bins, got {other._shapes}")
            if other._forms != self._forms:
                partials = self._lifted_from(other)
            elif other._queue.context == self._queue.context:
                partials = other._held
            else:
                partials = [held.get(other._queue) for held in other._held]
        for form, emits in zip(self._forms, self._emits, strict=True):
            check_number(form, (self.size + merged) * emits)
        for form, given, held in zip(self._forms, partials, self._held, strict=True):
            self._combine(form, held, held, dest_is_partial=True, out_is_partial=True, more=given)
        self._merged = merged

    def _pairs(self, indices: Any, values: Any) -> tuple[HistogramKernel, list[Any], Argument | None, int]:
        """Return the kernel of (index, value) pairs, and its arguments."""
        indices = as_array("indices", indices)
        if indices.dtype.kind not in "iu":
            raise TypeError(f"indices: expected integers, got {indices.dtype}")
        if self._counts:
            values = 1
        values, with_position = checked_values(values, self._outputs.operators[0], indices.shape, ())
        spec = pair_spec(self._forms[0], indices, values, 1, self._queue.device, with_position)
        kernel = pair_kernel(self._queue.context, replace(spec, from_first=with_position))
        given = list(arguments_of(spec, indices, values, 0))
        if with_position and self._position + indices.size - 1 > np.iinfo(spec.operator.dtype["index"]).max:
            last = self._position + indices.size - 1
            raise ValueError(f"indices: the position {last} does not fit {spec.operator.dtype['index']} of the index")
        first = kernel.arguments[-1] if with_position else None
        return kernel, [*given, 0] if with_position else given, first, indices.size

    def _add(self, kernel: HistogramKernel, args: Sequence[Any], first: Argument | None, size: int | None) -> None:
        if len(args) != len(kernel.arguments):
            kernel._check_arguments(args)  # which says so
        values = [self._checked(kernel, a, value) for a, value in zip(kernel.arguments, args, strict=True)]
        arrays = [(a.name, value) for a, value in zip(kernel.arguments, values, strict=True) if a.is_array]
        on_device = common_kind(arrays)
        check_context(arrays, self._queue.context)
        size = kernel._size(size, values, None)
        kernel._check_elements(values, size)
        for form, emits in zip(self._forms, self._emits, strict=True):
            check_number(form, (self.size + self._merged + size) * emits)
        if first is not None:
            scalar(first, self._position + max(size, 1) - 1)
        named = dict(zip([argument.name for argument in kernel.arguments], values, strict=True))
        split = [] if on_device else kernel._elementwise
        step = self._step(kernel, split, size, first)
        self._on_device = on_device
        whole, pieces = InPlace(self._queue), self._staging or InPlace(self._queue)
        events: list[cl.Event] = []
        try:
            others = [a for a in kernel.arguments if a.is_array and a not in split and not on_device]
            taken = {**named, **whole.take({a: named[a.name] for a in others})}
            for begin in range(0, size, step):
                end = min(begin + step, size)
                taken |= pieces.take({a: _flat(named[a.name])[begin:end] for a in split})
                if first is not None:
                    taken[first.name] = scalar(first, self._position)
                events = self._continue(kernel, taken, end - begin)
                pieces.done(events)
            whole.done(events)
        except BaseException:  # the memory of NumPy arrays must not go while a kernel may use it
            self._queue.finish()
            raise

    def _checked(self, kernel: HistogramKernel, argument: Argument, value: Any) -> Any:
        if not argument.is_array:
            return scalar(argument, value)
        if isinstance(value, np.ndarray) and argument.is_const and argument in kernel._elementwise:
            check_array(argument.name, _flat(value)[:0], argument.dtype, written=False)
            return value  # and no copy of all of it
        return check_array(argument.name, value, argument.dtype, written=not argument.is_const)

    def _step(self, kernel: HistogramKernel, split: Sequence[Argument], size: int, first: Argument | None) -> int:
        """Return how many elements a chunk has."""
        if not split or not size:
            return max(1, size)
        widest = max(split, key=lambda argument: argument.dtype.itemsize)
        step = max(1, self._chunk_bytes // widest.dtype.itemsize)
        if step < size and first is None and kernel.uses_position:
            raise ValueError(
                f"{widest.name}: expected at most {self._chunk_bytes} bytes (chunk_bytes), got "
                f"{size * widest.dtype.itemsize}, which cannot be split since the map uses i by itself; let "
                "first_index name a scalar argument and use its sum with i, or choose another chunk_bytes"
            )
        return step if step < _MULTIPLE else step // _MULTIPLE * _MULTIPLE

    def _continue(self, kernel: HistogramKernel, given: Mapping[str, Any], size: int) -> list[cl.Event]:
        """Enqueue the histogram of one chunk, combined with what there is."""
        outputs = self._outputs
        call = Call(
            outputs.like(list(self._shapes)),
            size,
            outputs.like(self._held),
            outputs.like(self._spare),
            self._queue,
            race_factor=self._race_factor,
            forced=self._forced,
            memory_budget=self._budget,
            partial=True,
        )
        outcome = kernel.run([given[argument.name] for argument in kernel.arguments], call)
        self._held, self._spare = self._spare, self._held
        self._position += size
        return outcome.events["combine"][-1:]

    def _combine(
        self,
        form: Operator,
        dest: Array | None,
        out: Array,
        *,
        dest_is_partial: bool = False,
        out_is_partial: bool = False,
        more: Array | None = None,
    ) -> None:
        """Write to `out` what `dest` and the accumulators `more` are together; NumPy arrays are waited for."""
        arrays = [array for array in (dest, out, more) if array is not None]
        into = operand(out, self._queue, written=True, read=False)
        held = None if dest is None else into if dest is out else operand(dest, self._queue, written=False)
        added = None if more is None else operand(more, self._queue, written=False)
        result = Result(None if held is None else (held,), (into,), (), dest_is_partial, out_is_partial)
        wait_for = [event for array in arrays if is_device_array(array) for event in array.events]
        try:
            event = combine_partials(self._queue, self._profile, form, prod(out.shape), result, added, wait_for)
            if not all(is_device_array(array) for array in arrays):
                event.wait()
        except BaseException:
            self._queue.finish()
            raise
        into.retrieve()
        for array in arrays:
            if is_device_array(array):
                array.add_event(event)

    def _finished(self, on_device: bool) -> list[Array]:
        found = []
        for form, shape, held in zip(self._forms, self._shapes, self._held, strict=True):
            found.append(empty(self._queue, shape, form.dtype, on_device))
            self._combine(form, held, found[-1], dest_is_partial=True)
        return found

    def _lifted_from(self, other: Accumulator) -> list[Array]:
        """Return the accumulators of another form as such of this one: its results are values."""
        for operator in self._outputs.operators:
            product = operator.accumulator.names is not None and operator.accumulator.names == operator.dtype.names
            if operator.lift != "v" and not product:
                raise ValueError(
                    f"other: expected one on a device of the same kind, since {operator} has other accumulators on "
                    f"others; got one on {other._queue.device.name.strip()}"
                )
        found = self._empty()
        for form, given, array in zip(self._forms, other._finished(False), found, strict=True):
            self._combine(form, given, array, out_is_partial=True)
        return found

    def _empty(self) -> list[Array]:
        pairs = zip(self._forms, self._shapes, strict=True)
        return [empty(self._queue, shape, form.accumulator, True) for form, shape in pairs]

    def _each(self, argument: str, given: Any, dtypes: Sequence[np.dtype]) -> list[Any]:
        """Return the arrays of `given`, one for each output, checked."""
        names = [f"{argument}{label}" for label in self._outputs.labels]
        arrays = [given] if self._outputs.is_single else self._outputs._each(argument, given)
        found = []
        for name, array, dtype, shape in zip(names, arrays, dtypes, self._shapes, strict=True):
            if array is not None or argument != "dest":  # of several, some may have no dest
                array = check_array(name, array, dtype, written=False, shape=shape)
            found.append(array)
        check_context(zip(names, found, strict=True), self._queue.context)
        return found


def _flat(array: np.ndarray) -> Any:
    """Return what slices of `array`, in C order, can be taken of without a copy of all of it."""
    return array.reshape(-1) if array.ndim < 2 or array.flags.c_contiguous else array.flat


def _operator(op: Operator | np.ufunc | str, dtype: Any, dest: Any) -> Operator:
    """Return the operator that the first argument, on the dtype of the others, stands for."""
    if dtype is None:
        dtype = op.dtype if isinstance(op, Operator) else getattr(dest, "dtype", None)
    if op == COUNT and dtype is None:
        dtype = np.int64
    if dtype is None and isinstance(op, np.ufunc | str):
        raise TypeError(f"dtype: expected that of the bins for {op!r}, since there is no dest; got none")
    return (operator_on_bins if dest is not None else operator_on_values)(op, dtype, "operator")


def _first_argument(kernel: HistogramKernel, name: str | None) -> Argument | None:
    if name is None:
        return None
    found = next((argument for argument in kernel.arguments if argument.name == name), None)
    if found is None or found.is_array or found.dtype.kind not in "iu":
        raise ValueError(f"first_index: expected the name of a scalar argument of an integer type, got {name!r}")
    return found


@contextmanager
def _reporter(total: int | None, progress: bool | Progress) -> Iterator[Progress]:
    """Give what is called after each piece."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda done, total: None
    else:
        unknown = None if total is not None else (None for _ in ())  # click asks it for its length
        with click.progressbar(unknown, total, label="elements", file=sys.stderr) as bar:
            yield lambda done, total: bar.update(done - bar.pos)
