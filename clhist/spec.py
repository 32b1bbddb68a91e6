"""`Spec`: histograms as a description, from which any process makes partial results of its part of the data."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import pyopencl as cl

from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import queue_for
from clhist._core.runtime.cuda_entry import takes_cuda
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.outputs import Outputs
from clhist._core.runtime.signature import Remembered
from clhist._core.runtime.streams import stream_operator
from clhist.accumulator import Accumulator
from clhist.operators.c_types import integer, supported_dtype
from clhist.operators.names import COUNT, with_names
from clhist.operators.operator import checked_by
from clhist.partial import Partial, bins_text, neutral_arrays, portable_outputs
from clhist.typing import HostArray, K, MadeOf, Named, NumBins, One, Ordered, Recipe

_MOST_KEPT = 16  # accumulators, with their page-locked memory


@dataclass(frozen=True, init=False, repr=False)
class Spec(Recipe[K]):
    """A computation without data, device or process, which can be pickled and hashed.

    Parameters
    ----------
    operators : Operator, numpy.ufunc, str, or sequence or mapping of them
        How values are combined: without a map as in `clhist.reduce_by_index`, with one as in `clhist.HistogramKernel`.
    num_bins : int, or tuple, sequence or mapping of them
        H, as in `HistogramKernel.__call__`.
    arguments, map, preamble, structs, options, emits
        As of `HistogramKernel`. Without a map, the data is indices and values.
    dtype : dtype-like, optional
        Of the values, for operators given by name or as ufuncs.
    first_index : str, optional
        As of `Accumulator`: the scalar argument of the map that gets the position of the element 0.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named. The map is compiled where it is first used.

    Examples
    --------
    >>> spec = clhist.Spec({"n": clhist.operators.count(), "top": clhist.operators.maximum(np.float32)}, 3,
    ...     arguments="const int *bin, const float *x",
    ...     map="EMIT_n(bin[i], 1); EMIT_top(bin[i], x[i])")
    >>> bins = np.array([0, 1, 1, 2], np.int32)
    >>> parts = [spec.partial(bins, np.full(4, k, np.float32)) for k in range(3)]  # in any processes
    >>> spec.result(clhist.merge(parts))["top"]
    array([2., 2., 2.], dtype=float32)

    Notes
    -----
    The strings are code that runs on the device: do not take them, or a pickled `Spec`, from someone you do not trust.
    """

    outputs: Outputs
    shapes: tuple[tuple[int, ...], ...]
    arguments: str
    map: str
    preamble: str
    structs: tuple[tuple[str, Any], ...]
    options: tuple[str, ...]
    emits: int | None
    first_index: str | None
    counts: bool
    _checked_by: tuple[Hashable, ...]

    def __init__(
        self: Spec[MadeOf],
        operators: MadeOf,
        num_bins: NumBins,
        *,
        arguments: str = "",
        map: str = "",
        preamble: str = "",
        structs: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        emits: int | None = None,
        dtype: Any = None,
        first_index: str | None = None,
    ) -> None:
        untyped: Any = operators
        counts = not map and isinstance(untyped, str) and untyped == COUNT
        if map:
            outputs = Outputs.of(with_names(untyped, dtype))
            outputs.check_map(map, preamble)
        elif arguments or preamble or structs or options or emits is not None or first_index is not None:
            raise TypeError("map: expected C that emits values, since other parts of a map are given; got none")
        else:
            outputs = Outputs.of(stream_operator(untyped, dtype, None))
        shapes = outputs.shapes(num_bins)
        # Without a map, indices are numbers of bins along one dimension.
        if not map and len(shapes[0]) > 1:
            raise ValueError(f"num_bins: expected one dimension for an operator, got {num_bins}")
        for name, value in {
            "outputs": outputs,
            "shapes": shapes,
            "arguments": arguments,
            "map": map,
            "preamble": preamble,
            "structs": tuple((name, supported_dtype(struct)) for name, struct in (structs or {}).items()),
            "options": tuple(options),
            "emits": None if emits is None else integer("emits", emits, 1),
            "first_index": first_index,
            "counts": counts,
            "_checked_by": tuple([checked_by(operator) for operator in outputs.operators]),
        }.items():
            # The dataclass is frozen, so that it can be hashed, and has a constructor of its own.
            object.__setattr__(self, name, value)

    def accumulator(self, **options: Any) -> Accumulator[HostArray, K]:
        """Return an `Accumulator` for it, which takes `queue`, `start`, `dest`, `chunk_bytes` and further choices."""
        queue = queue_for(options.pop("queue", None))
        shapes = self.outputs.like(list(self.shapes))
        if self.map:
            engine: Any = _engine_of(queue.context, self)
            return Accumulator(engine, shapes, queue=queue, first_index=self.first_index, **options)
        operator: Any = COUNT if self.counts else self.outputs.operators[0]
        dtype = self.outputs.operators[0].dtype if self.counts and options.get("dest") is None else None
        return Accumulator(operator, shapes, dtype=dtype, queue=queue, **options)

    @takes_cuda
    def partial(
        self, *arrays: Any, size: int | None = None, start: int | None = None, queue: cl.CommandQueue | None = None
    ) -> Partial[K]:
        """Compute a part of the data.

        Parameters
        ----------
        *arrays : array or scalar
            As `Accumulator.add` takes them: indices and values, or the map's arguments. NumPy's, PyOpenCL's or CUDA's.
        size : int, optional
            N, as in `HistogramKernel.__call__`; only with a map.
        start : int, optional
            The position of the first element in the whole, for operators and maps that use it. Where it is given, the
            same elements are not merged twice.
        queue : pyopencl.CommandQueue, optional
            Where it runs. Defaults to that of the first device array, or the default one.

        Returns
        -------
        Partial

        Raises
        ------
        TypeError, ValueError, OverflowError, MemoryError, BuildError
            As `Accumulator.add`.
        """
        queue = queue or default_queue(*arrays)
        start = None if start is None else integer("start", start, 0)
        # Kept while it is not in use: with it goes its page-locked memory, which takes long to get.
        # One thread at a time may use an accumulator, so the thread is a part of the key.
        key = threading.get_ident(), self, queue
        # Taken out while in use: after an exception it is not put back.
        accumulator: Accumulator[Any, K] = _kept.take(key) or self.accumulator(queue=queue)
        accumulator.seek(start)
        accumulator.add(*arrays, size=size)
        part = accumulator.take()
        # Accumulators on CUDA hold memory of the caller's library and are not cached.
        if cuda_device_of(queue) is None:
            _kept.put(key, accumulator)
        return part

    def empty(self) -> Partial[K]:
        """Return the partial result of no data, which changes no other that it is merged with."""
        outputs = portable_outputs(self.outputs)
        return Partial(outputs, neutral_arrays(outputs, self.shapes), 0, 0, ())

    @overload
    def result(  # type: ignore[overload-overlap]
        self: Spec[One], partial: Partial[One], queue: cl.CommandQueue | None = ...
    ) -> HostArray: ...
    @overload
    def result(
        self: Spec[Named], partial: Partial[Named], queue: cl.CommandQueue | None = ...
    ) -> dict[str, HostArray]: ...
    @overload
    def result(
        self: Spec[Ordered], partial: Partial[Ordered], queue: cl.CommandQueue | None = ...
    ) -> tuple[HostArray, ...]: ...
    def result(self, partial: Partial[Any], queue: cl.CommandQueue | None = None) -> Any:
        """Return the histograms of what is in `partial`; see `Partial.result`.

        Raises
        ------
        TypeError, ValueError
            If it is of other operators or another number of bins; what differs is named.
        """
        if not isinstance(partial, Partial):
            raise TypeError(f"partial: expected a clhist.Partial, got {type(partial).__name__}")
        partial.check(portable_outputs(self.outputs), self.shapes)
        return partial.result(queue)

    def load(self, file: str | os.PathLike[str]) -> Partial[K]:
        """Return what `Partial.save` wrote, if it is of these operators and bins; see `Partial.load`."""
        own: Any = self
        part = Partial.load(file, own)
        part.check(portable_outputs(self.outputs), self.shapes, str(file))
        return part

    def __repr__(self) -> str:
        operators = ", ".join(map(str, self.outputs.operators))
        parameters = f"({self.arguments})" if self.map else "(indices, values)"
        return f"<Spec {parameters}: {operators}, {bins_text(self.shapes)} bins>"


@kept_by_context
def _engine_of(context: cl.Context, spec: Spec) -> Engine:
    outputs = spec.outputs
    return Engine.of(
        context,
        outputs.like(list(outputs.operators)),
        spec.arguments,
        spec.map,
        preamble=spec.preamble,
        structs=dict(spec.structs) or None,
        options=spec.options,
        emits=spec.emits,
        trusts_emits=False,
    )


_kept: Remembered[Accumulator[Any, Any]] = Remembered(_MOST_KEPT)  # each belongs to a thread
