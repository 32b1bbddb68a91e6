"""Replay of calls on arrays of CUDA: a call with the signature of an earlier one launches the recorded kernels.

A call that reads no array launches the same kernels whatever the content of its arrays. So later calls on arrays of the
same dtypes and shapes repeat the launches: nothing is described, checked or planned again.
Note [A repeated call launches again], docs/decisions/0014.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from clhist._core.cuda.driver import driver, stream_of
from clhist._core.cuda.libraries import Library
from clhist._core.cuda.libraries import library as library_of_name
from clhist._core.kinds import of_libraries
from clhist._core.opencl import lost
from clhist._core.opencl.cuda_arrays import CudaArray, CudaConverted, CudaCopied, CudaFilled, CudaMade, CudaMemory
from clhist._core.opencl.cuda_kinds import NotDirectError, results_like
from clhist._core.opencl.device import profile_names
from clhist._core.opencl.memory import OutOfMemoryError
from clhist._core.recording import heard, listening, note
from clhist._core.runtime.call_cache import MANY_USES, SizedCall
from clhist._core.runtime.cuda_launcher import CudaCommand, CudaExecutable, CudaLaunched, CudaRun
from clhist._core.runtime.peek import Reading, found_words
from clhist._core.runtime.reported_repeats import recording_threads, report_repeat
from clhist._core.runtime.signature import UnknownError, alike, call_templates

_MOST_ITEMS = 64  # of a sequence, which takes longer
_new_tuple = tuple.__new__
_TRIES = 5  # calls that may still build, upload tables, check an operator, or be planned with others


ANEW = object()
"""In the place of a result: the call has to be made anew."""


class Given(NamedTuple):
    """An array of a library that a call was given, as `Library.alike` says."""

    array: Any
    address: int
    size: int


class _Launch(NamedTuple):
    """A recorded launch.

    Attributes
    ----------
    executable : CudaExecutable
        What is launched.
    numbers : list
        Addresses of tables that belong to no caller, 0 for other arrays, and scalars.
    places : list of tuple of int
        For other arrays their index in `numbers`, the index of a base address, and a byte offset.
    tables : list of CudaArray
        The tables.
    """

    executable: CudaExecutable
    numbers: list[Any]
    places: list[tuple[int, int, int]]
    tables: list[CudaArray]

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        numbers = self.numbers.copy()
        # A kernel argument may point into an array, such as at a slice, so it is a base and an offset.
        for k, n, more in self.places:
            numbers[k] = addresses[n] + more
        self.executable.launch(numbers, library, stream)


class _New(NamedTuple):
    """An array that the call allocates, for a kernel to write."""

    shape: tuple[int, ...]
    dtype: np.dtype
    make: Callable[[], Any]

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        # The appended order is that of the recording, whose indices count these arrays.
        try:
            made = self.make()
        except (RuntimeError, MemoryError):
            made = library.new(self.shape, self.dtype, device)  # or raises what says that there is no memory
        arrays.append(made)
        addresses.append(library.address(made))


class _Conversion(NamedTuple):
    """A conversion: the library casts the first elements of the array of this number to another dtype."""

    number: int
    size: int
    dtype: np.dtype

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        arrays.append(made := library.converted(arrays[self.number].reshape(-1)[: self.size], self.dtype))
        addresses.append(library.address(made))


class _Reading(NamedTuple):
    """A read by the host of the array of this number, while later commands run."""

    number: int
    size: int
    dtype: np.dtype

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        driver().begin_reading(device, stream)

    def read(self, addresses: list[int], device: int) -> np.ndarray:
        """Wait for the copy and return it."""
        host = np.empty(self.size, self.dtype)
        driver().end_reading(host, addresses[self.number], device)
        return host


class _Filling(NamedTuple):
    """Memory that is set to one byte: the index of a base address, a byte offset, the byte, and their number."""

    number: int
    more: int
    byte: int
    size: int

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        driver().fill(addresses[self.number] + self.more, self.byte, self.size, stream)


class _Copy(NamedTuple):
    """A copy on the device: the index of a base address and a byte offset of each memory, and the bytes."""

    to: tuple[int, int]
    of: tuple[int, int]
    size: int

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        to, address = (addresses[n] + more for n, more in (self.to, self.of))
        driver().copy(to, address, self.size, stream)


class _Single(NamedTuple):
    """A launch of one kernel of a chain; for each address the index of a base address, and a byte offset."""

    command: CudaCommand
    places: list[tuple[int, int]]
    lock: threading.Lock  # threads share the memory of the command's arguments

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        numbers = [addresses[n] + more for n, more in self.places]
        with self.lock:
            self.command.run(stream_of(stream), numbers)


_Step = _Launch | _New | _Conversion | _Reading | _Filling | _Copy | _Single


class Ending(NamedTuple):
    """The end of a call that reads.

    Attributes
    ----------
    words : CudaArray, optional
        Two words, which `found_words` gave; else there was a `Reading`.
    result : CudaArray
        What is computed until then.
    of_words : callable
        Returns the result of `result` and of what was read, or None if the call has to be made anew, and whether the
        recording stays usable.
    """

    words: CudaArray | None
    result: CudaArray
    of_words: Callable[..., tuple[Any, bool]]


class Repeat:
    """The launches and results of a call, without its arrays.

    Parameters
    ----------
    memory : CudaMemory
        That of an array on the device, of the caller's library.
    steps : list of the classes of `_Step`
        Commands to enqueue. Indices of addresses count the argument arrays, then the new arrays.
    result : callable
        Returns the result, from a list of the argument arrays and the new arrays.
    ending : Ending or None
        Makes the result if the call reads; its words follow the argument arrays.
    shared : sequence of SizedCall
        The calls by shared plans among them, which count their uses.
    """

    def __init__(
        self,
        memory: CudaMemory,
        steps: list[_Step],
        result: Callable[[list[Any]], Any],
        ending: Ending | None,
        shared: Sequence[SizedCall],
    ) -> None:
        # Without an owner: a cached replay must not keep an array of its first caller alive.
        self._memory = CudaMemory(memory.library, memory.device, None)
        self._on = driver().on(memory.device)
        self._steps, self._result, self.shared = steps, result, [*shared]
        self._launches = [step for step in steps if isinstance(step, _Launch)]
        self._readings = [step for step in steps if isinstance(step, _Reading)]
        self._ending = (
            None if ending is None else (None if ending.words is None else ending.words.stands_for, ending.of_words)
        )

    def run(self, arrays: list[Any], addresses: list[int]) -> tuple[Any, bool]:
        """Replay with arrays at these addresses on the library's current stream; append new arrays to both lists.

        Return the result, or `ANEW` if the call has to be made anew, and whether the recording stays usable.
        """
        if lost.unchecked:
            lost.check_process()
        memory = self._memory
        device = memory.device
        # The usual case has few functions: a with block costs as much as a launch.
        if self._ending is None and self._on.is_current():
            library = memory.library
            stream = library.stream(device)
            for step in self._steps:
                step.enqueue(arrays, addresses, library, device, stream)
            return self._result(arrays), True
        with driver().on(device):
            stream = self._memory.stream
            if self._ending is None:
                return self._launched(arrays, addresses, stream), True
            # The host reads words of the device, which a captured stream cannot deliver.
            driver().check_not_captured(stream)
            queue, of_words = self._ending
            read: tuple[Any, ...]
            with results_like(self._memory):
                # Without words, the recorded steps contain the reads. Otherwise the pair of words is lent for this
                # replay.
                if queue is None:
                    result = self._launched(arrays, addresses, stream)
                    read = tuple([reading.read(addresses, device) for reading in self._readings])
                else:
                    with found_words(queue) as words:
                        # The words come right after the arguments, as in the recording; no library has an array of
                        # them.
                        result = self._launched([*arrays, None], [*addresses, words.array.offset], stream)
                        read = words.read()
                outcome, is_good = of_words(result, *read)
        return ANEW if outcome is None else outcome, is_good

    @property
    def is_one_launch(self) -> bool:
        """Whether nothing is enqueued if memory is refused: all is allocated before the one launch."""
        only_allocates = all(isinstance(step, _New) for step in self._steps[:-1])
        return only_allocates and all(launch.executable.prepared.is_of_one for launch in self._launches)

    def is_worth_it(self) -> bool:
        """Count a use; return False once the call is frequent enough to deserve a plan of its exact size."""
        is_worth_it = True
        # A replay does not call `SizedCall.run`, so uses of shared plans are counted here.
        for call in self.shared:
            call.uses += 1
            is_worth_it = is_worth_it and call.uses < MANY_USES
        return is_worth_it

    def _launched(self, arrays: list[Any], addresses: list[int], stream: int) -> Any:
        library, device = self._memory.library, self._memory.device
        for step in self._steps:
            step.enqueue(arrays, addresses, library, device, stream)
        return self._result(arrays)


class _Unrepeatable(Exception):
    """Raised for a call that has to be made anew each time."""


class RecognisedCall(NamedTuple):
    """The signature of a call, and its arrays."""

    key: Hashable
    arguments: list[Given]


def recognised_call(
    function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
) -> RecognisedCall | None:
    """Return the signature of a call and its arrays; None if a value has no signature, or arrays overlap."""
    arguments: list[Given] = []
    # The number of positional arguments tells a string among them from the name of an option.
    parts: list[Hashable] = [function, len(args)]
    try:
        for value in args:
            parts.append(_part(value, arguments))
        for name, value in options.items():
            parts.append(name)
            parts.append(_part(value, arguments))
    except UnknownError:
        return None
    # The first call may have copied one of two arrays that overlap; a replay would not.
    for n, one in enumerate(arguments):
        for other in arguments[:n]:
            if one.address < other.address + other.size and other.address < one.address + one.size:
                return None
    return _new_tuple(RecognisedCall, ((*parts, *profile_names()), arguments))


def _part(value: Any, arguments: list[Given]) -> Hashable:
    kind = type(value)
    if value is None or kind is int:
        return value
    name = of_libraries.get(kind)
    if name is not None:
        library = library_of_name(name)
        # An array that is passed twice is part of the signature: kernels may read and write it.
        for n, argument in enumerate(arguments):
            if argument.array is value:
                return "again", n
        description = library.alike(value)
        # An empty array has no address range by which the recording could recognise it.
        if description is None or not description[2]:
            raise UnknownError
        arguments.append(_new_tuple(Given, (value, *description[1:])))  # `Given` itself takes twice as long
        return description[0]
    if kind is tuple or kind is list:
        if len(value) > _MOST_ITEMS:
            raise UnknownError
        return (kind, *[_part(entry, arguments) for entry in value])
    return alike(value)


def repeated(call: RecognisedCall) -> Any:
    """Return the result of a recorded call by a replay; `ANEW` if the call has to be made anew."""
    repeat: Repeat | int | None = call_templates.get(call.key)  # or how often a recording was tried
    if not isinstance(repeat, Repeat):
        return ANEW
    # Zero tries instead of a recording: the call is made anew, gets its exact plan, and is recorded again.
    if repeat.shared and not repeat.is_worth_it():
        call_templates.put(call.key, 0)
        return ANEW
    arguments = call.arguments
    try:
        result, is_good = repeat.run([one.array for one in arguments], [one.address for one in arguments])
    except (NotDirectError, OutOfMemoryError):
        # Some of several steps may be enqueued; their results might be added twice.
        if not repeat.is_one_launch:  # else nothing was enqueued
            raise
        call_templates.put(call.key, 0)
        return ANEW
    # Even if the result is right, the guess that chose the launches has become a poor one.
    if not is_good:
        call_templates.put(call.key, 0)
    elif recording_threads:
        report_repeat(repeat, [one.address for one in arguments], range(len(arguments)), result)
    return result


def ends_with(words: CudaArray | None, result: CudaArray, of_words: Callable[..., tuple[Any, bool]]) -> None:
    """Record that the call ends by a read that makes its result; see `Ending`."""
    note(Ending(words, result, of_words))


def noted(call: RecognisedCall | None, compute: Callable[[], Any]) -> Any:
    """Return `compute()`, and store its launches by the signature of the call if they can be replayed."""
    tries = 0 if call is None else call_templates.get(call.key) or 0
    # A call inside a recorded one belongs to that recording. After several failed tries, recording only costs time.
    if call is None or isinstance(tries, Repeat) or tries >= _TRIES or heard.calls is not None:
        return compute()
    with listening() as calls:
        result = compute()
    try:
        call_templates.put(call.key, _repeat(calls, call.arguments, result))
    except _Unrepeatable:
        call_templates.put(call.key, tries + 1)
    return result


def _repeat(calls: Sequence[Any], arguments: Sequence[Given], result: Any) -> Repeat:
    ranges = [(entry.address, entry.size) for entry in arguments]  # `_steps` appends new arrays
    shared = [entry for entry in calls if isinstance(entry, SizedCall)]
    calls = [entry for entry in calls if not isinstance(entry, SizedCall)]
    # A read that makes the result must come last: no launch can depend on what the host has read.
    ending = calls[-1] if calls and isinstance(calls[-1], Ending) else None
    if ending is not None:
        calls = calls[:-1]
        if ending.words is not None:
            ranges.append((ending.words.offset, ending.words.nbytes))
        result = ending.result
    # Other reads of the host may decide on launches.
    if ending is None and any(isinstance(entry, Reading) for entry in calls):
        raise _Unrepeatable
    # Any other entry is the name of a driver call, such as an upload, that a replay would leave out.
    launches = [entry for entry in calls if isinstance(entry, CudaRun | CudaLaunched)]
    others = CudaMade | CudaConverted | CudaFilled | CudaCopied | Reading
    if not launches or not all(isinstance(entry, CudaRun | CudaLaunched | others) for entry in calls):
        raise _Unrepeatable
    made: dict[int, tuple[tuple[int, ...], np.dtype]] = {}
    steps = _steps(calls, ranges, made)
    return Repeat(launches[0].memory, steps, _maker(result, ranges, made), ending, shared)


def _steps(
    calls: Sequence[Any], ranges: list[tuple[int, int]], made: dict[int, tuple[tuple[int, ...], np.dtype]]
) -> list[_Step]:
    """Return the steps of recorded calls; add the arrays that they allocate to `ranges`, and to `made` by index."""
    # `ranges` grows in the order in which a replay appends its arrays, so that indices agree.
    steps: list[_Step] = []
    for call in calls:
        if isinstance(call, Reading):
            steps.append(_Reading(_place(call.array, ranges)[0], call.array.size, call.array.dtype))
        elif isinstance(call, CudaMade):
            address, shape, dtype, memory = call
            steps.append(_New(shape, dtype, memory.library.maker(shape, dtype, memory.device)))
            made[len(ranges)] = shape, dtype
            ranges.append((address, prod(shape) * dtype.itemsize))
        elif isinstance(call, CudaConverted):
            n, begin = _place(call.array, ranges)
            # A replay converts arrays that it allocates, from their first element on.
            if begin or n not in made or made[n][1] != call.array.dtype:
                raise _Unrepeatable
            steps.append(_Conversion(n, call.array.size, call.result.dtype))
            made[len(ranges)] = (call.array.size,), call.result.dtype
            ranges.append((call.result.offset, call.result.nbytes))
        elif isinstance(call, CudaFilled):
            steps.append(_Filling(*_range_of(call.address, call.size, ranges), call.byte, call.size))
        elif isinstance(call, CudaCopied):
            to, of = (_range_of(address, call.size, ranges) for address in (call.to, call.address))
            steps.append(_Copy(to, of, call.size))
        elif isinstance(call, CudaLaunched):
            steps.append(_single(call, ranges))
        else:
            steps.append(_launch(call, ranges))
    return steps


def _single(call: CudaLaunched, ranges: Sequence[tuple[int, int]]) -> _Single:
    # An address among the numbers would be that of the recorded call in each replay.
    numbers = [int(value) for value in call.arguments if isinstance(value, int | np.integer)]
    if any(address <= number < address + size for number in numbers for address, size in ranges):
        raise _Unrepeatable
    return _Single(*call.command(lambda address: _range_of(address, 1, ranges)), threading.Lock())


def _launch(call: CudaRun, ranges: Sequence[tuple[int, int]]) -> _Launch:
    numbers, places = list[Any](), list[tuple[int, int, int]]()
    tables: list[CudaArray] = []
    for k, (array, slot) in enumerate(zip(call.arrays, call.executable.prepared.arrays, strict=True)):
        is_lent = any(address == array.offset for address, _ in ranges)  # to this call
        if array.memory.library is None and not slot.is_written and not is_lent:
            tables.append(array)
            numbers.append(array.offset)
        else:
            places.append((k, *_place(array, ranges)))
            numbers.append(0)
    return _Launch(call.executable, [*numbers, *call.scalars], places, tables)


def _place(array: CudaArray, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the index of the address range that contains an array, and the byte offset of the array in it."""
    return _range_of(array.offset, array.nbytes, ranges)


def _range_of(begin: int, size: int, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the index of the address range that contains so many bytes, and their offset in it."""
    # The recording keeps all arrays alive, so an address belongs to one of them.
    for n, (address, available) in enumerate(ranges):
        if address <= begin and begin + size <= address + available and size:
            return n, begin - address
    raise _Unrepeatable


def _maker(
    result: Any, ranges: Sequence[tuple[int, int]], made: Mapping[int, tuple[tuple[int, ...], np.dtype]]
) -> Callable[[list[Any]], Any]:
    """Return a function that makes a result like this one from a list of arguments and new arrays."""
    kind = type(result)
    if isinstance(result, CudaArray):
        # A replay returns arrays of PyTorch or CuPy: without conversion to another library, and without fields.
        if result.memory.back is not None or result.dtype.names is not None:
            raise _Unrepeatable
        n, begin = _place(result, ranges)
        # The result is an array of the caller, such as `out`, in the caller's own type.
        if result.memory.original is not None:
            return operator.itemgetter(n)
        # A new array is returned as it is, or consecutive elements of it in another shape.
        shape, (first, rest) = result.shape, divmod(begin, result.dtype.itemsize)
        if rest or n not in made or made[n][1] != result.dtype:
            raise _Unrepeatable
        if made[n][0] == shape:
            return operator.itemgetter(n)
        end = first + result.size
        return lambda arrays: arrays[n].reshape(-1)[first:end].reshape(shape)
    if kind is list or isinstance(result, tuple):
        parts = [_maker(entry, ranges, made) for entry in result]
        # Named tuples take their entries as separate arguments.
        make = getattr(kind, "_make", kind)
        return lambda arrays: make([part(arrays) for part in parts])
    if kind is dict:
        named = {name: _maker(entry, ranges, made) for name, entry in result.items()}
        return lambda arrays: {name: part(arrays) for name, part in named.items()}
    if kind is np.ndarray:
        # Neither the caller nor a later call may change the recorded result.
        constant = result.copy()
        return lambda arrays: constant.copy()
    if result is None or kind in (int, float, bool, str):
        return lambda arrays: result
    raise _Unrepeatable
