"""The repeats of a call on arrays of CUDA as its adapter records them, to repeat the whole call by one signature."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from clhist._core.runtime.cuda_repeats import Repeat


class ReportedRepeat(NamedTuple):
    """A repeat while `record_repeats` records.

    Attributes
    ----------
    repeat : Repeat
        The launches.
    addresses : list of int
        Those of its arrays.
    result : object
        Its result, finished by `inner`, `origin` and `outer`.
    inner, outer : callable or None
        Make the result from that of the launches, and from that of `origin`.
    origin : object
        The call between both, as an adapter describes it.
    """

    repeat: Repeat
    addresses: list[int]
    result: Any
    inner: Callable[[Any], Any] | None = None
    origin: Any = None
    outer: Callable[[Any], Any] | None = None


class _Reported(threading.local):
    """The repeats that are reported in a thread while it records."""

    def __init__(self) -> None:
        self.repeats: list[ReportedRepeat] = []


_reported = _Reported()
recording_threads: set[int] = set()
"""The identifiers of threads in `record_repeats`; mostly empty, and cheaper than a threading.local."""


class record_repeats:  # as a function; a generator would take three times as long
    """Records the repeats of a ``with`` block for `repeats_of`, and forgets them behind the block."""

    __slots__ = ("_first", "_is_inner")

    def __enter__(self) -> record_repeats:
        thread = threading.get_ident()
        self._is_inner, self._first = thread in recording_threads, len(_reported.repeats)
        recording_threads.add(thread)
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_inner:
            recording_threads.discard(threading.get_ident())
            _reported.repeats.clear()  # PyTorch copies a gradient that anyone else holds

    def repeats_of(self, result: Any) -> list[ReportedRepeat]:
        """Return all repeats if this is the result of the last one, whose arrays may be results of the others."""
        repeats = _reported.repeats[self._first :]
        return repeats if repeats and repeats[-1].result is result else []


def report_repeat(repeat: Repeat, addresses: Sequence[int], order: Iterable[int], result: Any) -> None:
    """Report a repeat, and which of the addresses its arrays have, to `record_repeats` in this thread."""
    if recording_threads and threading.get_ident() in recording_threads:
        _reported.repeats.append(ReportedRepeat(repeat, [addresses[n] for n in order], result))


def report_origin(result: Any, origin: Any) -> None:
    """Report which call made this of the result of the last repeat in this thread."""
    last = _last_with(result) if recording_threads else None
    if last is not None:
        _reported.repeats[-1] = last._replace(result=result, origin=origin)


def finished(result: Any, finish: Callable[[Any], Any]) -> Any:
    """Return `finish` of a result; if that is of the last repeat in this thread, later repeats call `finish` as well.

    It must depend on nothing else, and must not change the result in place.
    """
    value = finish(result)
    last = _last_with(result) if recording_threads else None
    if last is not None:
        name = "inner" if last.origin is None else "outer"
        before = getattr(last, name)
        both = finish if before is None else lambda first: finish(before(first))
        _reported.repeats[-1] = last._replace(**{"result": value, name: both})
    return value


def _last_with(result: Any) -> ReportedRepeat | None:
    """Return the last repeat in this thread if this is its result, or has the same entries."""
    last = _reported.repeats[-1] if _reported.repeats else None
    if last is None or last.result is result:
        return last
    # An autograd function returns a tuple of its own.
    is_same = type(result) is tuple and type(last.result) is tuple and len(result) == len(last.result)
    return last if is_same and all(map(operator.is_, result, last.result)) else None
