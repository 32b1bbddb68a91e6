"""Calls to be interrupted at any place, each with what must be right afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import boost_histogram as bh
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import Accumulator, HistogramKernel, MultiAccumulator, operators
from clhist._core.opencl.upload import Uploads

BINS = 50
MOST = 80_000
_rng = np.random.default_rng(0)
# What lies behind the elements of a call is no element, and shows in its result.
X = _rng.integers(0, BINS, MOST, np.int32)
X[-10_000:] = BINS - 1
W = _rng.integers(1, 9, MOST).astype(np.int64)
W[-10_000:] = 10**9
F = (X + 0.5).astype(np.float32)
REFUSED = "ended an earlier call while it changed the bins"


class Case:
    """A call of `size` elements, and what it must return; another of each size.

    Parameters
    ----------
    call : callable
        Gets a number of elements.
    expected : callable
        Returns what the call returns.
    waited : bool
        Whether no kernel of it runs when it has returned.
    """

    def __init__(self, call: Callable[[int], Any], expected: Callable[[int], Any], *, waited: bool = True) -> None:
        self._call, self._expected, self.waited = call, cache(expected), waited
        self._new, self.size, self.seconds = count(), 59_000, 1e-3
        for size in (59_000, 59_001, 30_000):  # from now on nothing is compiled
            self.verify(size)

    def verify(self, size: int) -> None:
        found = self._call(size)
        found = found.get() if isinstance(found, cl_array.Array) else found
        np.testing.assert_array_equal(found, self._expected(size))

    def first(self) -> Callable[[], Any]:
        """Return a call of a size that few had before."""
        self.size = 60_000 + next(self._new) % 9000
        return lambda: self._call(self.size)

    def again(self) -> Callable[[], Any]:
        """Return a call that others repeat."""
        self.size = 59_000
        return lambda: self._call(self.size)

    def check(self, raised: BaseException | None) -> None:
        """Raise AssertionError if a later call is wrong: of the same size, of a larger, of a smaller."""
        for size in (self.size, self.size + 1, 30_000, self.size):
            self.verify(size)


@cache
def _on_device(queue: cl.CommandQueue) -> tuple[Any, Any, Any]:
    return tuple(cl_array.to_device(queue, each) for each in (X, W, F))


def cases(queue: Any) -> dict[str, Callable[[], Case]]:
    """Return functions and classes, called once for each number of elements; a queue of None is for their names."""
    x, w, f = (None,) * 3 if queue is None else _on_device(queue)
    counts = cache(lambda n: np.bincount(X[:n], minlength=BINS))
    sums = cache(lambda n: np.bincount(X[:n], W[:n], BINS).astype(np.int64))
    scale = iter(np.arange(1, 10**6))
    edges = np.arange(BINS + 1.0)

    def kernel() -> Case:
        text = "EMIT(x[i], (long)scale * w[i])"
        made = HistogramKernel(
            queue.context, operators.add(np.int64), arguments="const int *x, const long *w, int scale", map=text
        )

        def call(n: int) -> Any:
            by = int(next(scale))
            found = made(x[:n], w[:n], by, num_bins=BINS).get()
            assert not (found % by).any()
            return found // by

        return Case(call, sums, waited=False)

    def bound() -> Case:
        made = HistogramKernel(queue.context, operators.add(np.int64), arguments="const int *x", map="EMIT(x[i], 1)")
        binds = cache(lambda n: made.bind(x[:n], num_bins=BINS, queue=queue))
        return Case(lambda n: binds(n)(), counts, waited=False)

    def fill(n: int) -> Any:
        h = bh.Histogram(bh.axis.Regular(BINS, 0, BINS), storage=bh.storage.Weight())
        clhist.hist.fill(h, F[:n], weight=W[:n].astype(np.float64), queue=queue)
        return h.values()

    def groups(n: int) -> Any:
        return clhist.group_by(X[:n], queue=queue).agg(s=(W[:n], "sum"))["s"]["sum"]

    def partitioned(n: int) -> Any:
        return clhist.reduce_by_index(BINS, "sum", x[:n], w[:n], memory="partitioned", update="native")

    def sort(n: int) -> Any:
        return clhist.reduce_by_index(BINS, "sum", X[:n], W[:n], update="sort", queue=queue)

    return {
        "reduce": lambda: Case(lambda n: clhist.reduce_by_index(BINS, "sum", X[:n], W[:n], queue=queue), sums),
        "reduce on device": lambda: Case(
            lambda n: clhist.reduce_by_index(BINS, "sum", x[:n], w[:n]), sums, waited=False
        ),
        "bincount": lambda: Case(lambda n: clhist.bincount(X[:n], queue=queue), counts),
        "bincount on device": lambda: Case(lambda n: clhist.bincount(x[:n]), counts, waited=False),
        "known bins": lambda: Case(lambda n: clhist.reduce_by_index(BINS, "count", X[:n], 1, queue=queue), counts),
        "histogram": lambda: Case(lambda n: clhist.histogram(F[:n], edges, queue=queue)[0], counts),
        "histogram on device": lambda: Case(
            lambda n: clhist.histogram(f[:n], BINS, (0, BINS))[0], counts, waited=False
        ),
        "kernel": kernel,
        "bound": bound,
        "groups": lambda: Case(groups, sums),
        "reproducible": lambda: Case(
            lambda n: clhist.reduce_by_index(BINS, "sum", X[:n], F[:n], reproducible=True, queue=queue),
            lambda n: np.bincount(X[:n], F[:n].astype(np.float64), BINS).astype(np.float32),
        ),
        "partitioned": lambda: Case(partitioned, sums, waited=False),
        "sort": lambda: Case(sort, sums),
        "unique": lambda: Case(lambda n: clhist.unique(X[:n], return_counts=True, queue=queue)[1], counts),
        "fill": lambda: Case(fill, sums),
        "upload": lambda: _uploads(queue),
    }


def _uploads(queue: cl.CommandQueue) -> Case:
    """Return copies by page-locked memory, which a device without any would need."""
    there, made = cl_array.zeros(queue, MOST, np.int32), [Uploads(queue.context, queue.device, part=4096, threads=1)]
    queue.finish()  # uploads have a queue of their own, which would not wait for the zeros

    def call(n: int) -> Any:
        try:
            made[0].upload(there.base_data, X[:n], X.dtype).wait()
        except BaseException:  # as of those that are kept
            made[0] = Uploads(queue.context, queue.device, part=4096, threads=1)
            raise
        return there.get()[:n]

    return Case(call, lambda n: X[:n])


def _check_refused(error: RuntimeError, raised: BaseException | None) -> None:
    if raised is None or REFUSED not in str(error):
        raise error


class Stream:
    """A stream that is interrupted: its bins have as many elements as it says, or it refuses.

    Parameters
    ----------
    make : callable
        Returns one without elements.
    size_of : callable
        How many elements one says that it has.
    bins_of : callable
        Its bins.
    """

    def __init__(self, make: Callable[[], Any], change: Callable[[Any], Any], bins_of: Callable[[Any], Any]) -> None:
        self._make, self._change, self._bins_of, self.refused = make, change, bins_of, 0
        self.stream: Any = None
        self.waited, self.seconds = False, 1e-3
        self.first()()
        self.check(None)

    def first(self) -> Callable[[], Any]:
        """Return a call that changes a new stream, which has elements already."""
        self.stream = self._make().add(X[:20_000], 1)
        return lambda: self._change(self.stream)

    def check(self, raised: BaseException | None) -> None:
        """Raise AssertionError if bins and size differ, or a stream that may be used on is wrong then."""
        stream = self.stream
        try:
            bins = self._bins_of(stream)
        except RuntimeError as error:
            _check_refused(error, raised)
            self.refused += 1
            for use in (stream.partial, stream.result, lambda: stream.add(X[:5], 1), lambda: stream.merge(stream)):
                with pytest.raises(RuntimeError, match=REFUSED):
                    use()
            return
        assert bins.sum() in (stream.size, stream.size + 7 * BINS)  # with what was merged
        more = stream.add(X[:30_000], 1)
        np.testing.assert_array_equal(self._bins_of(more), bins + np.bincount(X[:30_000], minlength=BINS))


def streams(queue: Any) -> dict[str, Callable[[], Stream]]:
    """Return streams, and what changes each; a queue of None is for their names."""
    x = None if queue is None else _on_device(queue)[0]
    sevens = np.arange(7 * BINS, dtype=np.int32) % BINS
    part = cache(lambda: Accumulator("count", BINS, queue=queue).add(sevens, 1).partial())

    def one() -> Any:
        return Accumulator("count", BINS, queue=queue, chunk_bytes=80_000)

    def several() -> Any:
        operator = {"count": operators.count(np.int64), "most": operators.maximum(np.int32)}
        made = HistogramKernel(
            queue.context, operator, arguments="const int *x, int one", map="EMIT_count(x[i], 1); EMIT_most(x[i], one)"
        )
        return Accumulator(made, BINS, queue=queue, chunk_bytes=80_000)

    def devices() -> Any:
        return MultiAccumulator("count", BINS, queues=[queue], chunk_bytes=80_000)

    def result(stream: Any) -> Any:
        found = stream.result()
        found = found["count"] if isinstance(found, dict) else found
        return found.get() if isinstance(found, cl_array.Array) else found

    def added(stream: Any) -> Any:
        return stream.add(X[20_000:70_000], 1)  # in three chunks

    def read(stream: Any) -> None:
        stream.partial()
        stream.result()

    return {
        "chunks": lambda: Stream(one, added, result),
        "device chunk": lambda: Stream(one, lambda s: s.add(x[20_000:70_000], 1), result),
        "several": lambda: Stream(several, added, result),
        "merge": lambda: Stream(one, lambda s: s.merge(part()), result),
        "read": lambda: Stream(one, read, result),
        "devices": lambda: Stream(devices, added, result),
        "devices' arrays": lambda: Stream(devices, lambda s: s.add(x[20_000:70_000], 1).result(), result),
    }


class Fills:
    """A `Filler` that is interrupted: it has all entries of a fill, or none, or it refuses."""

    waited = False

    def __init__(self, queue: cl.CommandQueue, make: Callable[[], Any], *, on_device: bool) -> None:
        self._make, self._queue, self.refused = make, queue, 0
        self._data = cl_array.to_device(queue, F) if on_device else F
        self.seconds = 1e-3
        self.first()()
        self.check(None)

    def first(self) -> Callable[[], Any]:
        self.filler = clhist.hist.Filler(self._make(), queue=self._queue).fill(self._data[:20_000])

        def change() -> None:
            self.filler.fill(self._data[20_000:70_000])
            self.filler.result()

        return change

    def check(self, raised: BaseException | None) -> None:
        try:
            number = self.filler.result().sum()
        except RuntimeError as error:
            _check_refused(error, raised)
            self.refused += 1
            return
        number = getattr(number, "value", number)
        assert number in (20_000, 70_000)
        more = self.filler.fill(self._data[:30_000]).result()
        assert getattr(more.sum(), "value", more.sum()) == number + 30_000


def fillers(queue: Any) -> dict[str, Callable[[], Fills]]:
    """Return fillers of several storages."""

    def of(storage: Any) -> Callable[[], Any]:
        return lambda: bh.Histogram(bh.axis.Regular(BINS, 0, BINS), storage=storage)

    return {
        "counts": lambda: Fills(queue, of(bh.storage.Double()), on_device=True),
        "weights": lambda: Fills(queue, of(bh.storage.Weight()), on_device=True),
        "on the host": lambda: Fills(queue, of(bh.storage.Int64()), on_device=False),
    }
