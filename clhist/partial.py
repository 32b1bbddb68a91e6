"""`Partial`: histograms of a part of the data, which mean the same in every process, and how they become one.

All that is computed in parts goes this way: chunks of a stream, the devices of one host, the tasks of a cluster.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, overload

import numpy as np
import pyopencl as cl

from clhist._version import __version__
from clhist.engine.outputs import Outputs
from clhist.engine.partials import combine_arrays, merge_arrays
from clhist.files.arrays import read_npz
from clhist.opencl.arrays import empty
from clhist.opencl.device import default_queue, device_profile
from clhist.operators.fixed_point import check_range
from clhist.operators.names import COUNT
from clhist.operators.operator import Operator
from clhist.typing import HostArray, K, MadeOf, Named, One, Ordered, Recipe

FORMAT = 1  # of what is pickled and saved; another one is refused


@dataclass(frozen=True, eq=False, repr=False)
class Partial(Generic[K]):
    """Accumulators of a part of the data: what a bin holds, before the result is made of it.

    It can be pickled, sent, saved and merged with partial results of other devices, processes and machines: the form
    of its accumulators is the same everywhere. `Spec.partial`, `Accumulator.partial` and `MultiAccumulator.partial`
    make it.

    Attributes
    ----------
    outputs : Outputs
        The operators, in the form in which accumulators are portable, and the names of the histograms.
    arrays : tuple of numpy.ndarray
        The accumulators of each histogram.
    size : int
        How many elements are in them.
    values : int
        How many values a bin may have at most.
    positions : tuple of (int, int), or None
        Ranges of their positions in the whole, the ends excluded and neighbours joined; None if nobody said.

    Examples
    --------
    >>> spec = clhist.Spec("count", 3, arguments="const int *bin", map="EMIT(bin[i], 1)")
    >>> whole = clhist.merge([spec.partial(np.array([0, 2], np.int32)) for _ in range(5)])
    >>> spec.result(whole)
    array([5, 0, 5])
    """

    outputs: Outputs
    arrays: tuple[np.ndarray, ...]
    size: int
    values: int
    positions: tuple[tuple[int, int], ...] | None = None

    def __copy__(self) -> Partial[K]:
        return replace(self, arrays=tuple(array.copy() for array in self.arrays))

    @property
    def accumulators(self) -> Any:
        """The arrays, one, a tuple or a dict, as results are returned."""
        return self.outputs.collect(list(self.arrays))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each histogram."""
        return tuple(array.shape for array in self.arrays)

    @overload
    def result(self: Partial[One], queue: cl.CommandQueue | None = ...) -> HostArray: ...  # type: ignore[overload-overlap]
    @overload
    def result(self: Partial[Named], queue: cl.CommandQueue | None = ...) -> dict[str, HostArray]: ...
    @overload
    def result(self: Partial[Ordered], queue: cl.CommandQueue | None = ...) -> tuple[HostArray, ...]: ...
    def result(self, queue: cl.CommandQueue | None = None) -> Any:
        """Return the histograms, of the operators' dtypes.

        Parameters
        ----------
        queue : pyopencl.CommandQueue, optional
            Where results are made of accumulators that are not the results themselves. Defaults to the default one.

        Returns
        -------
        numpy.ndarray of shape (num_bins,)
            With several operators a tuple, or a dict if they are a mapping.
        """
        return self.outputs.collect(self.results(queue))

    def results(self, queue: cl.CommandQueue | None = None) -> list[np.ndarray]:
        """Return a list of the histograms; see `result`."""
        pairs = zip(self.outputs.labels, self.outputs.operators, self.arrays, strict=True)
        return [_finished(label, operator, array, queue) for label, operator, array in pairs]

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write it to an ``.npz`` file: the accumulators, and a description as JSON; no code and no pickles."""
        described = {
            "format": FORMAT,
            "clhist": __version__,
            "size": self.size,
            "values": self.values,
            "positions": self.positions,
            "outputs": [
                {"name": name, "operator": repr(operator), "fingerprint": fingerprint(operator), "num_bins": shape}
                for name, operator, shape in zip(
                    self.outputs.names or self.outputs.suffixes, self.outputs.operators, self.shapes, strict=True
                )
            ],
        }
        arrays = {f"accumulators{k}": array for k, array in enumerate(self.arrays)}
        with open(file, "wb") as stream:
            np.savez(stream, allow_pickle=False, description=np.array(json.dumps(described)), **arrays)

    @overload
    @classmethod
    def load(cls, file: str | os.PathLike[str], operator: Recipe[MadeOf]) -> Partial[MadeOf]: ...
    @overload
    @classmethod
    def load(cls, file: str | os.PathLike[str], operator: MadeOf) -> Partial[MadeOf]: ...
    @classmethod
    def load(cls, file: str | os.PathLike[str], operator: Any) -> Any:
        """Read what `save` wrote.

        Parameters
        ----------
        file : str or path
            An ``.npz`` file, not compressed: its arrays take no more memory than it has bytes.
        operator : Operator, Spec, HistogramKernel, or sequence or mapping of Operator
            Whose partial result it is: a file has no code in it.

        Raises
        ------
        ValueError
            If it is no such file, is of another format or other operators, or contradicts itself; it says how.
        """
        outputs = portable_outputs(outputs_of(operator))
        keys = [f"accumulators{k}" for k in range(len(outputs.operators) + 1)]  # one more shows that there are others
        try:  # uncompressed, as they are written: the arrays take no more memory than the file
            arrays_of = read_npz(file, ["description"], optional=keys, kinds="biufcVU", compressed=False)
            described = json.loads(str(arrays_of.pop("description")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file}: expected what clhist.Partial.save wrote: {_shown(error)}") from error
        found = list(arrays_of.values())
        if not isinstance(described, dict):
            raise ValueError(f"{file}: expected what clhist.Partial.save wrote, got another description")
        if described.get("format") != FORMAT:
            raise ValueError(
                f"{file}: expected format {FORMAT} of partial results, got {_shown(described.get('format'))} "
                f"of clhist {_shown(described.get('clhist'))}; this is clhist {__version__}"
            )
        size, values, ranges, each_output = _described(file, described)
        names = [each["name"] for each in each_output]
        if names != list(outputs.names or outputs.suffixes):
            raise ValueError(
                f"{file}: expected histograms {_listed(outputs)}, got {_shown(', '.join(map(str, names)))}"
            )
        if len(found) != len(names):
            raise ValueError(f"{file}: expected the accumulators of {len(names)} histograms, got {len(found)}")
        arrays = []
        for label, operator, array, each in zip(outputs.labels, outputs.operators, found, each_output, strict=True):
            if each["fingerprint"] != fingerprint(operator):
                raise ValueError(
                    f"{file}: expected accumulators{label} of {operator}, got those of {_shown(each['operator'])}, "
                    f"written by clhist {_shown(described.get('clhist'))}"
                )
            if array.dtype != operator.accumulator:
                expected = f"accumulators{label} of {operator.accumulator}"
                raise ValueError(f"{file}: expected {expected}, got {array.dtype}: it was not written by clhist")
            if list(array.shape) != each["num_bins"]:
                expected = f"{_shown(each['num_bins'])} accumulators{label}"
                raise ValueError(f"{file}: expected {expected}, got {list(array.shape)}")
            arrays.append(np.require(array.astype(operator.accumulator, copy=False), requirements=["C", "W"]))
        return cls(outputs, tuple(arrays), size, values, ranges)

    def check(self, outputs: Outputs, shapes: Sequence[tuple[int, ...]], argument: str = "partial") -> None:
        """Raise ValueError if it is of other operators than `outputs`, in their portable form, or of other shapes."""
        if self.outputs.names != outputs.names or len(self.arrays) != len(outputs.operators):
            raise ValueError(f"{argument}: expected histograms {_listed(outputs)}, got {_listed(self.outputs)}")
        for label, own, its in zip(outputs.labels, outputs.operators, self.outputs.operators, strict=True):
            if own is not its and own != its:
                raise ValueError(f"{argument}: expected accumulators{label} of {own}, got those of {its}")
        if self.shapes != tuple(shapes):
            raise ValueError(f"{argument}: expected {bins_text(shapes)} bins, got {bins_text(self.shapes)}")

    def __repr__(self) -> str:
        operators = ", ".join(map(str, self.outputs.operators))
        return f"<Partial {operators}: {bins_text(self.shapes)} bins, {self.size:,} elements>"

    def __reduce__(self) -> Any:
        return _restored, (FORMAT, __version__, self.outputs, self.arrays, self.size, self.values, self.positions)


def merge(partials: Iterable[Partial[K]]) -> Partial[K]:
    """Return partial results as one; they are left as they are.

    Parameters
    ----------
    partials : iterable of Partial
        Of the same operators and numbers of bins, at least one. Only two are held at a time.

    Returns
    -------
    Partial

    Raises
    ------
    TypeError, ValueError
        If there is none, if one is of other operators or another number of bins, or if two say that they have the
        elements of the same positions.
    OverflowError
        If a bin may have more values than its operator can take.

    Notes
    -----
    Operations that NumPy has are done on the host, others on the default device. Which partial results are merged in
    which order affects only the rounding of floats.
    """
    if isinstance(partials, Partial):
        raise TypeError("partials: expected an iterable of Partial, got a single one")
    whole, owned = None, False
    for k, partial in enumerate(partials):
        if not isinstance(partial, Partial):
            raise TypeError(f"partials[{k}]: expected a clhist.Partial, got {type(partial).__name__}")
        if whole is None:
            whole = partial
        else:
            whole, owned = combined(whole, partial, f"partials[{k}]", in_place=owned), True
    if whole is None:
        raise ValueError("partials: expected at least one, got none")
    return whole


def combined(own: Partial[K], other: Partial[K], argument: str, *, in_place: bool = False) -> Partial[K]:
    """Return two partial results as one, in the arrays of the first if it need not be kept; see `merge`."""
    other.check(own.outputs, own.shapes, argument)
    positions = None
    if own.positions is not None and other.positions is not None:
        positions = joined((*own.positions, *other.positions), argument)
    values = own.values + other.values
    for operator in own.outputs.operators:
        if operator.most_values is not None and values > operator.most_values:
            most = f"{operator.most_values} values for {operator.name} in all"
            raise OverflowError(f"{argument}: expected at most {most}, got {values}")
    for operator, held, more in zip(own.outputs.operators, own.arrays, other.arrays, strict=True):
        _check_counts(operator, held, more, values, argument)
    arrays = own.arrays if in_place else tuple(array.copy() for array in own.arrays)
    for operator, into, more in zip(own.outputs.operators, arrays, other.arrays, strict=True):
        merge_arrays(operator, into, more)
    return Partial(own.outputs, arrays, own.size + other.size, values, positions)


def outputs_of(operator: Any) -> Outputs:
    """Return the outputs of an operator, or several, or of what has them."""
    engine = getattr(operator, "engine", operator)
    found = getattr(engine, "outputs", None)
    return found if isinstance(found, Outputs) else Outputs.of(operator)


def portable_outputs(outputs: Outputs) -> Outputs:
    """Return `outputs` with the operators of which accumulators are portable."""
    return Outputs(tuple(each.portable() for each in outputs.operators), outputs.suffixes, outputs.names)


def neutral_arrays(outputs: Outputs, shapes: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
    """Return the accumulators of bins without values."""
    found = []
    for operator, shape in zip(outputs.operators, shapes, strict=True):
        found.append(empty(None, shape, operator.accumulator, False))
        found[-1][...] = np.asarray(operator.neutral, operator.accumulator)
    return tuple(found)


def fingerprint(operator: Operator) -> str:
    """Return what tells operators apart in files."""
    parts = [str(_layout(operator.dtype)), operator.combine, str(_layout(operator.accumulator)), operator.lift]
    parts += [operator.finish, operator.preamble, repr(np.asarray(operator.neutral, operator.accumulator).tolist())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _layout(dtype: np.dtype) -> Any:
    """Return the names, types and places of fields, whatever NumPy calls them."""
    if dtype.fields is None:
        return dtype.str
    fields: Mapping[str, Any] = dtype.fields
    return [(name, _layout(fields[name][0]), fields[name][1]) for name in dtype.names or ()], dtype.itemsize


def _described(
    file: Any, described: Mapping[str, Any]
) -> tuple[int, int, tuple[tuple[int, int], ...] | None, Sequence[Mapping[str, Any]]]:
    """Return size, values, positions and outputs as a file describes them; raise ValueError if they cannot be."""
    try:
        size, values, outputs = described["size"], described["values"], described["outputs"]
        positions = described["positions"]
        ranges = None if positions is None else tuple((low, high) for low, high in positions)
        lacking = [not isinstance(each, dict) or _OUTPUT_KEYS - set(each) for each in outputs]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: expected what clhist.Partial.save wrote, got another description") from error
    numbers = [size, values, *(end for each in ranges or () for end in each)]
    if any(map(bool, lacking)) or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"{file}: expected what clhist.Partial.save wrote, got another description")
    if ranges is not None:
        ends = [end for each in ranges for end in each]
        if sorted(set(ends)) != ends or sum(high - low for low, high in ranges) != size:
            raise ValueError(
                f"{file}: expected positions of {size} elements that rise, got {_shown(list(map(list, ranges)))}"
            )
    return size, values, ranges, outputs


_OUTPUT_KEYS = {"name", "operator", "fingerprint", "num_bins"}


def _shown(text: object) -> str:
    """Return what a file says as one short line, without what a terminal might take for its own."""
    shown = ascii(str(text))[1:-1]
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def _restored(form: int, version: str, *state: Any) -> Partial:
    if form != FORMAT:
        raise ValueError(
            f"partial: expected format {FORMAT}, got {form} of clhist {version}; this is clhist {__version__}"
        )
    return Partial(*state)


def _finished(label: str, operator: Operator, array: np.ndarray, queue: cl.CommandQueue | None) -> np.ndarray:
    if operator.finish == "a" and operator.accumulator.kind in "iufc":
        return array.astype(operator.dtype)
    queue = queue or default_queue()
    found = np.empty(array.shape, operator.dtype)
    combine_arrays(queue, device_profile(queue.device), operator, array, found, dest_is_partial=True)
    check_range(label, operator, found)
    return found


def _check_counts(operator: Operator, held: np.ndarray, more: np.ndarray, values: int, argument: str) -> None:
    """Raise OverflowError if the count of a bin would be beyond its integers; `values` is the most that one has."""
    if operator.name != COUNT or operator.accumulator.kind not in "iu":
        return
    most = np.iinfo(operator.accumulator).max
    if values > most and (held > most - more).any():
        raise OverflowError(f"{argument}: expected counts of at most {most} in all, got a bin with more")


def joined(ranges: Iterable[tuple[int, int]], argument: str = "partial") -> tuple[tuple[int, int], ...]:
    """Return ranges of positions with neighbours as one; raise ValueError if some are in two of them."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(each for each in ranges if each[0] < each[1]):
        if found and low < found[-1][1]:
            both = min(high, found[-1][1])
            raise ValueError(f"{argument}: expected other elements, got those at positions {low} to {both - 1} again")
        if found and low == found[-1][1]:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return tuple(found)


def _listed(outputs: Outputs) -> str:
    return ", ".join(outputs.names or ()) or f"{len(outputs.operators)} without names"


def bins_text(shapes: Sequence[tuple[int, ...]]) -> str:
    """Return shapes of histograms in words: once, if all are the same."""
    each = [" x ".join(map(str, shape)) for shape in shapes]
    return each[0] if len(set(each)) == 1 else ", ".join(each)
