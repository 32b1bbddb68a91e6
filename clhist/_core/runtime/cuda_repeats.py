"""Calls on arrays of CUDA that do nothing on the device but launch: those that are alike launch the same.

What a call launches depends on the content of no array as long as it reads none. So what one launched, all launch later
on that have other arrays of the same dtypes and shapes: nothing is described, checked or planned again.
Note [A repeated call launches again], docs/decisions/0014.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clhist._core.cuda.driver import driver, heard, listening
from clhist._core.cuda.libraries import Library
from clhist._core.cuda.recognised import library_of
from clhist._core.opencl import lost
from clhist._core.opencl.cuda_arrays import CudaArray, CudaConverted, CudaMemory
from clhist._core.opencl.cuda_kinds import NotDirectError, results_like
from clhist._core.opencl.device import profile_names
from clhist._core.opencl.memory import OutOfMemoryError
from clhist._core.runtime.cuda_launcher import CudaLoaded, CudaRun
from clhist._core.runtime.peek import Reading, found_words
from clhist._core.runtime.ready import Uses
from clhist._core.runtime.signature import Remembered, UnknownError, alike

_MOST_ITEMS = 64  # of a sequence, which takes longer
_TRIES = 5  # calls that may still build, upload tables, check an operator, or be planned with others


ANEW = object()
"""In the place of a result: the call has to be made anew."""


class Given(NamedTuple):
    """An array of a library that a call was given, as `Library.alike` says."""

    array: Any
    address: int
    size: int


class _Launch(NamedTuple):
    """A run: new arrays by shape and dtype, and for each of its arrays the number of an address and what is added."""

    loaded: CudaLoaded
    new: list[tuple[tuple[int, ...], np.dtype, Callable[[], Any]]]
    places: list[tuple[int, int]]
    scalars: list[Any]

    def enqueue(self, arrays: list[Any], addresses: list[int], library: Library, device: int, stream: int) -> None:
        for shape, dtype, make in self.new:
            try:
                made = make()
            except (RuntimeError, MemoryError):
                made = library.new(shape, dtype, device)  # or raises what says that there is no memory
            arrays.append(made)
            addresses.append(library.address(made))
        numbers = [addresses[n] + more for n, more in self.places]
        numbers += self.scalars
        self.loaded.launch(numbers, library, stream)


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
        """Return it, once it is there."""
        found = np.empty(self.size, self.dtype)
        driver().end_reading(found, addresses[self.number], device)
        return found


_Step = _Launch | _Conversion | _Reading


class Ending(NamedTuple):
    """The end of a call that reads.

    Attributes
    ----------
    words : CudaArray, optional
        Two words, which `found_words` gave; else there was a `Reading`.
    result : CudaArray
        What is computed until then.
    of_words : callable
        Makes the result of that and what is read, None if the call has to be made anew, and whether others may repeat
        it.
    """

    words: CudaArray | None
    result: CudaArray
    of_words: Callable[..., tuple[Any, bool]]


class Repeat:
    """The launches and results of a call, without its arrays.

    Parameters
    ----------
    memory : CudaMemory
        Of an array of the device and library that there are.
    steps : list of _Launch, _Conversion and _Reading
        What is enqueued; numbers of addresses are of the arrays that are given, then of those that are made.
    result : callable
        Returns the result of a list of the arrays given and made.
    ending : Ending or None
        What then makes the result of what is read; words are an array behind those that are given.
    uses : sequence of Uses
        Of what is planned for others as well.
    """

    def __init__(
        self,
        memory: CudaMemory,
        steps: list[_Step],
        result: Callable[[list[Any]], Any],
        ending: Ending | None,
        uses: Sequence[Uses],
    ) -> None:
        self._memory = CudaMemory(memory.library, memory.device, None)
        self._on = driver().on(memory.device)
        self._steps, self._result, self._uses = steps, result, uses
        self._launches = [each for each in steps if isinstance(each, _Launch)]
        self._readings = [each for each in steps if isinstance(each, _Reading)]
        self._ending = (
            None if ending is None else (None if ending.words is None else ending.words.stands_for, ending.of_words)
        )

    def __call__(self, given: Sequence[Given]) -> tuple[Any, bool]:
        """Enqueue it with these arrays on the library's current stream, and return the result, or `ANEW`.

        The second is whether other calls may repeat it as well.
        """
        return self.run([each.array for each in given], [each.address for each in given])

    def run(self, arrays: list[Any], addresses: list[int]) -> tuple[Any, bool]:
        """Do the same for arrays and their addresses; the lists get what is made as well."""
        if lost.unchecked:
            lost.check_process()
        device = self._memory.device
        if self._ending is None and self._on.is_current():  # the usual case: a with block costs as much as a launch
            return self._launched(arrays, addresses, self._memory.library.stream(device)), True
        with driver().on(device):
            stream = self._memory.stream
            if self._ending is None:
                return self._launched(arrays, addresses, stream), True
            driver().check_not_captured(stream)
            queue, of_words = self._ending
            read: tuple[Any, ...]
            with results_like(self._memory):
                if queue is None:
                    result = self._launched(arrays, addresses, stream)
                    read = tuple([each.read(addresses, device) for each in self._readings])
                else:
                    with found_words(queue) as words:
                        result = self._launched([*arrays, None], [*addresses, words.array.offset], stream)
                        read = words.read()
                found, is_good = of_words(result, *read)
        return ANEW if found is None else found, is_good

    @property
    def is_one_launch(self) -> bool:
        """Whether nothing is enqueued if memory is refused."""
        return len(self._steps) == 1 and all(each.loaded.prepared.is_of_one for each in self._launches)

    def is_worth_it(self) -> bool:
        """Whether it is not used so often that it should be planned for itself; it is used once more."""
        if not self._uses:
            return True
        for each in self._uses:
            each.number += 1
        return not any(each.are_many for each in self._uses)

    def _launched(self, arrays: list[Any], addresses: list[int], stream: int) -> Any:
        library, device = self._memory.library, self._memory.device
        for step in self._steps:
            step.enqueue(arrays, addresses, library, device, stream)
        return self._result(arrays)


class _Unrepeatable(Exception):
    """Raised for a call that has to be made anew each time."""


class RecognisedCall(NamedTuple):
    """A call by its signature, with the arrays that it was given."""

    key: Hashable
    given: list[Given]


class LastRepeat(NamedTuple):
    """The last repeat of a thread, the addresses of its arrays, its result, and what an adapter says of that."""

    repeat: Repeat
    addresses: list[int]
    result: Any
    origin: Any = None


class _Last(threading.local):
    """The repeat that is reported in a thread while it records."""

    repeat: LastRepeat | None = None


_last = _Last()
_recording: set[int] = set()  # identifiers of threads that record; mostly empty, and cheaper than a threading.local


class record_repeats:  # as a function; a generator would take three times as long
    """Records the last repeat of a ``with`` block for `repeat_of`, and forgets it behind the block."""

    __slots__ = ("_is_inner",)

    def __enter__(self) -> record_repeats:
        thread = threading.get_ident()
        self._is_inner, _last.repeat = thread in _recording, None
        _recording.add(thread)
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_inner:
            _recording.discard(threading.get_ident())
            _last.repeat = None  # PyTorch copies a gradient that anyone else holds

    def repeat_of(self, result: Any) -> LastRepeat | None:
        """Return the repeat whose result this is; None if it is of no repeat."""
        last = _last.repeat
        return last if last is not None and last.result is result else None


def report_repeat(repeat: Repeat, addresses: Sequence[int], order: Iterable[int], result: Any) -> None:
    """Report a repeat, and which of the addresses its arrays have, to `record_repeats` in this thread."""
    if _recording and threading.get_ident() in _recording:
        _last.repeat = LastRepeat(repeat, [addresses[n] for n in order], result)


def report_origin(result: Any, origin: Any) -> None:
    """Report where the result of the last repeat in this thread comes from, as its adapter knows it."""
    if _recording and _last.repeat is not None and _last.repeat.result is result:
        _last.repeat = _last.repeat._replace(origin=origin)


_repeats: Remembered[Repeat | int] = Remembered(256)  # or how often it was tried


def recognised_call(
    function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
) -> RecognisedCall | None:
    """Return by what a call is recognised, or None of one that is not: with other values, or arrays that overlap."""
    given: list[Given] = []
    parts: list[Hashable] = [function]
    try:
        for value in args:
            parts.append(_part(value, given))
        for name, value in options.items():
            parts.append(name)
            parts.append(_part(value, given))
    except UnknownError:
        return None
    for n, one in enumerate(given):
        for other in given[:n]:
            if one.address < other.address + other.size and other.address < one.address + one.size:
                return None
    return RecognisedCall((*parts, *profile_names()), given)


def _part(value: Any, given: list[Given]) -> Hashable:
    kind = type(value)
    if value is None or kind is int:
        return value
    library = library_of(kind)
    if library is not None:
        for n, each in enumerate(given):
            if each.array is value:
                return "again", n
        found = library.alike(value)
        if found is None or not found[2]:
            raise UnknownError
        given.append(Given(value, *found[1:]))
        return found[0]
    if kind is tuple or kind is list:
        if len(value) > _MOST_ITEMS:
            raise UnknownError
        return (kind, *[_part(each, given) for each in value])
    return alike(value)


def repeated(call: RecognisedCall) -> Any:
    """Return the result of a call that repeats an earlier one; `ANEW` of one that has to be made anew."""
    repeat = _repeats.get(call.key)
    if not isinstance(repeat, Repeat):
        return ANEW
    if not repeat.is_worth_it():
        _repeats.put(call.key, 0)
        return ANEW
    try:
        result, is_good = repeat(call.given)
    except (NotDirectError, OutOfMemoryError):
        if not repeat.is_one_launch:  # else nothing was enqueued
            raise
        _repeats.put(call.key, 0)
        return ANEW
    if not is_good:
        _repeats.put(call.key, 0)
    else:
        report_repeat(repeat, [each.address for each in call.given], range(len(call.given)), result)
    return result


def ends_with(words: CudaArray | None, result: CudaArray, of_words: Callable[..., tuple[Any, bool]]) -> None:
    """Note that the rest of a call is to read and make its result; see `Ending`."""
    if heard.calls is not None:
        heard.calls.append(Ending(words, result, of_words))


def noted(call: RecognisedCall | None, compute: Callable[[], Any]) -> Any:
    """Return what `compute` does, and keep by the signature of a call what it launches, if that can be repeated."""
    tries = 0 if call is None else _repeats.get(call.key) or 0
    if call is None or isinstance(tries, Repeat) or tries >= _TRIES or heard.calls is not None:
        return compute()
    with listening() as calls:
        result = compute()
    try:
        _repeats.put(call.key, _repeat(calls, call.given, result))
    except _Unrepeatable:
        _repeats.put(call.key, tries + 1)
    return result


def _repeat(calls: Sequence[Any], given: Sequence[Given], result: Any) -> Repeat:
    known = [(each.address, each.size) for each in given]  # with the arrays that are made
    uses = [each for each in calls if isinstance(each, Uses)]
    calls = [each for each in calls if not isinstance(each, Uses)]
    ending = calls[-1] if calls and isinstance(calls[-1], Ending) else None
    if ending is not None:
        calls = calls[:-1]
        if ending.words is not None:
            known.append((ending.words.offset, ending.words.nbytes))
        result = ending.result
    if not calls or not all(isinstance(each, CudaRun | CudaConverted | Reading) for each in calls):
        raise _Unrepeatable
    made: dict[int, tuple[tuple[int, ...], np.dtype]] = {}
    steps = _steps(calls, known, made)
    memory = next(call.memory for call in calls if isinstance(call, CudaRun))
    return Repeat(memory, steps, _maker(result, known, made), ending, uses)


def _steps(
    calls: Sequence[Any], known: list[tuple[int, int]], made: dict[int, tuple[tuple[int, ...], np.dtype]]
) -> list[_Step]:
    """Return what calls enqueue, and add the arrays that they make to all that are `known`, and to the ones `made`."""
    steps: list[_Step] = []
    for call in calls:
        if isinstance(call, Reading):
            steps.append(_Reading(_place(call.array, known)[0], call.array.size, call.array.dtype))
            continue
        if isinstance(call, CudaConverted):
            n, begin = _place(call.array, known)
            if begin or n not in made or made[n][1] != call.array.dtype:
                raise _Unrepeatable
            steps.append(_Conversion(n, call.array.size, call.result.dtype))
            made[len(known)] = (call.array.size,), call.result.dtype
            known.append((call.result.offset, call.result.nbytes))
            continue
        library, device = call.memory.library, call.memory.device
        new = [
            (array.shape, array.dtype, library.maker(array.shape, array.dtype, device))
            for is_made, array in zip(call.made, call.arrays, strict=True)
            if is_made
        ]
        for array in (array for is_made, array in zip(call.made, call.arrays, strict=True) if is_made):
            made[len(known)] = array.shape, array.dtype
            known.append((array.offset, array.nbytes))
        steps.append(_Launch(call.loaded, new, [_place(array, known) for array in call.arrays], call.scalars))
    return steps


def _place(array: CudaArray, known: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return which of the arrays that are known one is a part of, and where in it that begins."""
    for n, (address, size) in enumerate(known):
        if address <= array.offset and array.offset + array.nbytes <= address + size and array.nbytes:
            return n, array.offset - address
    raise _Unrepeatable


def _maker(
    result: Any, known: Sequence[tuple[int, int]], made: Mapping[int, tuple[tuple[int, ...], np.dtype]]
) -> Callable[[list[Any]], Any]:
    """Return what makes a result such as this of arrays given and made."""
    kind = type(result)
    if isinstance(result, CudaArray):
        if result.memory.back is not None or result.dtype.names is not None:
            raise _Unrepeatable
        n, begin = _place(result, known)
        if result.memory.given is not None:
            return lambda arrays: arrays[n]
        shape, size = result.shape, result.size
        if begin or n not in made or made[n][1] != result.dtype:
            raise _Unrepeatable
        if made[n][0] == shape:
            return lambda arrays: arrays[n]
        return lambda arrays: arrays[n].reshape(-1)[:size].reshape(shape)
    if kind is tuple or kind is list:
        parts = [_maker(each, known, made) for each in result]
        return lambda arrays: kind([part(arrays) for part in parts])
    if kind is np.ndarray:
        kept = result.copy()
        return lambda arrays: kept.copy()
    if result is None or kind in (int, float, bool, str):
        return lambda arrays: result
    raise _Unrepeatable
