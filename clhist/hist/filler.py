"""`Filler`: a histogram filled piece by piece, whose bins stay on the device."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyopencl as cl

from clhist._core.spi import (
    DeviceAccumulators,
    HoldsBins,
    Remembered,
    Updates,
    beginning,
    cuda_device_of,
    default_queue,
    device_kind,
    device_profile,
    is_device_array,
    takes_cuda,
    to_device,
)
from clhist.accumulator import CHUNK_BYTES
from clhist.binned.spi import Sweep
from clhist.hist.axes import grows_in_value
from clhist.hist.categories import growth_undone_on_error
from clhist.hist.columns import MEANS, Columns, adds_up, is_column, present_columns
from clhist.hist.filling import device_columns, key_of, places_of, positions
from clhist.hist.storages import WITHOUT_SWEEP, merge, num_cells, plan_of, sum_of, sums_of, sums_sweep
from clhist.operators.c_types import check_booleans, integer

_SOURCES = "_clhist_sources"  # attribute of a partial histogram


class Filler(HoldsBins, instead="its partial() can be, and merged in another process"):
    """A histogram that is filled many times: what has been added stays on the device until it is asked for.

    Parameters
    ----------
    h : boost_histogram.Histogram or hist.Hist
        What is filled; it is left as it is. Its Regular and Variable axes do not grow.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then. Defaults to that of the first device arrays, or the default one.
    chunk_bytes : int
        On a device with its own memory NumPy arrays go there in pieces of at most so many bytes, unless their sums are
        `reproducible`.
    reproducible : bool
        Whether the sums of one fill are bitwise the same in any order and on any device; those of several are added in
        the order of the fills.

    Raises
    ------
    ValueError
        If an axis cannot be merged.
    RuntimeError
        When it is used after an exception, such as that of Ctrl-C, ended a call while it changed the bins.

    Examples
    --------
    >>> import boost_histogram as bh
    >>> filler = clhist.hist.Filler(bh.Histogram(bh.axis.Regular(4, 0, 1)))
    >>> filler.fill(np.array([0.1, 0.9])).fill(np.array([0.2, 0.3])).result().values().tolist()
    [2.0, 1.0, 0.0, 1.0]

    Notes
    -----
    Sums and counts stay on the device; means, and the bins of axes that grow, are joined on the host. One thread at a
    time may use it.
    """

    def __init__(
        self,
        h: Any,
        *,
        queue: cl.CommandQueue | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        reproducible: bool = False,
    ) -> None:
        check_booleans(reproducible=reproducible)
        for n, ax in enumerate(h.axes):
            if grows_in_value(ax):
                raise ValueError(f"h: expected Regular and Variable axes that do not grow, got axes[{n}] = {ax!r}")
        # The initial content is stored separately: `partial` returns only what was added here.
        self._first = copy.deepcopy(h)
        self._added = copy.deepcopy(h).reset()
        # `reset` leaves the flag as it is, but the variances of empty bins are known.
        self._added._variance_known = True
        self._storage = h.storage_type
        self._queue, self._reproducible = queue, reproducible
        self._chunk_bytes = integer("chunk_bytes", chunk_bytes, 1)
        self._grows = any(ax.traits.growth for ax in h.axes)
        # Growth depends on the content of arrays, and a reproducible fill has no single sweep to repeat.
        self._may_repeat = not (self._grows or reproducible or self._storage in WITHOUT_SWEEP)
        # Sums on the device, by what they are multiplied with in the end, and by their names and sizes.
        self._held: dict[tuple[Any, tuple[str, ...], Any], DeviceAccumulators] = {}
        self._of: cl.CommandQueue | None = None
        self._source, self._is_filled, self._merged = uuid.uuid4().hex, False, frozenset[str]()
        # Sweeps, what their sums are multiplied with, and which arguments they take; here, since their tables go with
        # the axes of this histogram.
        self._sweeps: Remembered[tuple[Sweep, Any, tuple[int, ...]]] = Remembered(16)
        self._updates = Updates(type(self).__name__)

    def __repr__(self) -> str:
        axes = ", ".join(map(repr, self._first.axes))
        return f"<Filler of {type(self._first).__name__}({axes}, storage={self._storage.__name__}())>"

    @takes_cuda
    def fill(
        self, *args: Any, weight: Any = None, sample: Any = None, threads: int | None = None, **named: Any
    ) -> Filler:
        """Add entries; the parameters and errors are those of `clhist.hist.fill`."""
        if self._updates.is_open:
            self._updates.check()
        rest = positions(self._added, args, named)
        if rest is None:
            raise TypeError(
                f"fill: expected the axes {[getattr(ax, 'name', None) for ax in self._added.axes][len(args) :]} by "
                f"name, got {list(named)}"
            )
        inputs = (*args, *rest, weight, sample)
        # Repeats by signature skip all checks.
        key = key_of(inputs, self._queue) if self._may_repeat else None
        if key is not None and (cached := self._sweeps.get(key)) is not None:
            repeated, scale, places = cached
            self._sweep(repeated, scale, [inputs[n] for n in places])
            self._is_filled = True
            self._updates.is_open = False
            return self
        values, weight, sample, _ = present_columns((*args, *rest), weight, sample)
        # Bins on the device would lack those that a growing axis adds.
        if self._grows:
            self._flush()
        with growth_undone_on_error(self._added):
            columns = device_columns(self._added, values, weight, sample, threads, self._queue, self._reproducible)
        if columns is None:
            self._is_filled = True
            return self
        scale = _scale(weight)
        for piece in self._pieces(columns):
            sweep = sums_sweep(piece, reproducible=self._reproducible)
            if sweep is not None:
                order = places_of(self._added, inputs, columns) if piece is columns else None
                self._sweeps.put(key, None if order is None else (sweep, scale, order))
                self._sweep(sweep, scale, piece.arrays)
                continue
            sums = sums_of(piece, num_cells(self._added, self._storage), reproducible=self._reproducible)
            if piece.on_device and self._storage not in MEANS:
                group = scale, tuple(sums), tuple(part.shape for part in sums.values())
                self._hold(group, self._on(group, piece.queue), [*sums.values()])
            else:
                self._updates.begin()
                merge(self._added, self._storage, scale, sums, piece.queue)
        self._is_filled = True
        self._updates.end()
        return self

    def merge(self, other: Any, *, allow_repeat: bool = False) -> Filler:
        """Add what another `Filler` has been given, or what its `partial` returned; on whatever device.

        Parameters
        ----------
        other : Filler or histogram
            It is left as it is.
        allow_repeat : bool
            Whether entries that have been merged before may be merged again, and count as often.

        Raises
        ------
        ValueError
            If its axes or its storage are others, as boost-histogram says, or if entries of it are here already.
        """
        check_booleans(allow_repeat=allow_repeat)
        part = other.partial() if isinstance(other, Filler) else other
        sources = vars(part).get(_SOURCES, frozenset())
        if not (allow_repeat or sources.isdisjoint(self._sources())):
            raise ValueError(
                "other: expected other entries, got those of a Filler that is merged already; allow_repeat=True merges "
                "them again"
            )
        self._flush()
        # Merge into a copy: if the axes differ, `_join` raises and the bins here are unchanged.
        added = copy.deepcopy(self._added)
        _join(added, part)
        self._added, self._merged = added, self._merged | sources
        return self

    def partial(self) -> Any:
        """Return a histogram of what has been added here alone: it can be pickled, sent and merged."""
        self._flush()
        part = copy.deepcopy(self._added)
        # An attribute of the histogram survives copies and pickles.
        setattr(part, _SOURCES, self._sources())
        return part

    def result(self) -> Any:
        """Return the histogram with all that has been added; more can be added then."""
        self._flush()
        total = copy.deepcopy(self._first)
        _join(total, self._added)
        return total

    def plan(self, size: int, *dtypes: Any, weight: Any = None, sample: Any = None) -> Any:
        """Return the `Plan` of a fill with `size` entries: how and where bins are updated.

        Parameters
        ----------
        size : int
            N.
        *dtypes : dtype-like
            Of the columns. Defaults to float64 for axes of numbers, and int32 for others.
        weight, sample : dtype-like, optional
            Of arrays of weights and samples.

        Returns
        -------
        Plan or tuple of Plan
            One for each sweep over the columns.
        """
        return plan_of(self._added, size, dtypes, weight, sample, self._queue or default_queue())

    def _pieces(self, columns: Columns) -> Iterator[Columns]:
        """Yield the columns in pieces that are on the device, or NumPy's as they are: on CPUs, or for one exact sum."""
        is_one = self._reproducible and adds_up(columns.weight, columns.sample)
        if columns.on_device or is_one or device_kind(columns.queue.device) == "cpu":
            yield columns
            return
        values, size, queue = (*columns.data, columns.weight, columns.sample), columns.size, columns.queue
        # Bytes of one entry in all columns; the limit of a chunk is in bytes, its step in entries.
        step = max(1, self._chunk_bytes // (sum(value.nbytes for value in values if is_column(value)) // size))
        for begin in range(0, size, step):
            end = min(begin + step, size)
            *data, weight, sample = (to_device(queue, v[begin:end]) if is_column(v) else v for v in values)
            more: Any = {"weight": weight, "sample": sample, "on_device": True}
            yield replace(columns, data=tuple(data), size=end - begin, **more)

    def _sweep(self, sweep: Sweep, scale: Any, arrays: Sequence[Any]) -> None:
        """Add the sums of device arrays to those on the device, and the sums of NumPy arrays to those on the host."""
        if not is_device_array(arrays[0]):
            sums = sweep(arrays)
            self._updates.begin()
            merge(self._added, self._storage, scale, sums, sweep.queue)
            return
        accumulators = self._on((key := (scale, sweep.names, sweep.bins)), sweep.queue)
        # Counters narrower than their results cannot continue from earlier sums: count from 0, then add.
        if accumulators is None or not sweep.may_combine:
            self._hold(key, accumulators, sweep.run(arrays))
        else:
            like = sweep.template.calls.engine.outputs.like
            accumulators.check()
            accumulators.join(lambda dest, out, begun: sweep.run(arrays, like(dest), like(out), begun), self._updates)

    def _on(self, key: Any, queue: cl.CommandQueue) -> DeviceAccumulators | None:
        """Return the sums of this scale and of these names and sizes on the device of `queue`, if there are any."""
        # Arrays of another context cannot be added on this device; the host adds what is there so far.
        if self._of is not None and not _same_memory(self._of, queue):
            self._flush()
        self._of = queue
        return self._held.get(key)

    def _hold(self, key: Any, accumulators: DeviceAccumulators | None, sums: list[Any]) -> None:
        """Hold sums, together with those that were held before."""
        if accumulators is None:
            assert self._of is not None
            forms = [sum_of(array.dtype) for array in sums]
            accumulators = DeviceAccumulators(self._of, device_profile(self._of.device), forms, [])
        accumulators.add(sums, self._updates)
        self._held[key] = accumulators

    def _sources(self) -> frozenset[str]:
        """Return the identities of the fillers whose entries are here, this one's if it was filled."""
        return self._merged | {self._source} if self._is_filled else self._merged

    def _flush(self) -> None:
        """Add what is on the device to what is on the host."""
        self._updates.check()
        # Sums have the first axis fastest, so their shape is reversed.
        shape = tuple(ax.extent for ax in self._added.axes)[::-1]
        # Check all before the first is merged: an error then leaves the bins of the host unchanged.
        for accumulators in self._held.values():
            accumulators.check()
        if self._held:
            self._updates.begin()
        for (scale, names, _), accumulators in self._held.items():
            # Accumulators of a sweep are flat, and some have a spare bin behind the others.
            sums = (beginning(array, *shape) if array.ndim == 1 else array for array in accumulators.arrays)
            merge(self._added, self._storage, scale, dict(zip(names, sums, strict=True)), accumulators.queue)
        self._held = {}
        self._updates.end()


def _same_memory(one: cl.CommandQueue, other: cl.CommandQueue) -> bool:
    """Whether arrays of one queue can be used on the other."""
    return one is other or (one.context == other.context and cuda_device_of(one) == cuda_device_of(other))


def _scale(weight: Any) -> Any:
    """Return the factor by which counts are multiplied in the end."""
    return None if weight is None else "each" if is_column(weight) else float(weight)


def _join(h: Any, part: Any) -> None:
    """Add the histogram `part` to `h`; whether variances are known stays known, which ``+=`` forgets."""
    has_variance = h._variance_known and part._variance_known
    h += part
    h._variance_known = has_variance
