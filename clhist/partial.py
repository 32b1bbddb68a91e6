"""`Partial`: histograms of a part of the data, in a form that any process can merge.

Chunks of a stream, the devices of one host and the tasks of a cluster all produce and merge these.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Generic, overload

import numpy as np
import pyopencl as cl

from clhist._core.opencl.device import default_queue, device_profile
from clhist._core.opencl.new_arrays import empty
from clhist._core.runtime.outputs import Outputs
from clhist._core.runtime.partials import combine_arrays, merge_arrays
from clhist._version import __version__
from clhist.files.arrays import read_npz
from clhist.files.regular import replaced
from clhist.operators.c_types import check_booleans, shown_dtype
from clhist.operators.described import UntrustedError, operator_of
from clhist.operators.described import described as described_operator
from clhist.operators.fixed_point import check_range
from clhist.operators.names import COUNT
from clhist.operators.operator import Operator
from clhist.typing import HostArray, K, MadeOf, Named, One, Ordered, Recipe

FORMAT = 2  # version of pickles and files
_READABLE = (1, FORMAT)  # format 1 lacks the descriptions of the operators and the sources of the elements


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
    sources : frozenset of str
        Identities of the streams and calls whose elements are in it: two partial results that share one are not merged,
        unless `allow_repeat` asks for it. Saving and pickling keep them.

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
    sources: frozenset[str] = frozenset()

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
        """Write it to an ``.npz`` file: the accumulators, and a description as JSON, with the operator; no pickles.

        An existing file is replaced once the new one is complete: a crash meanwhile leaves the old one.
        """
        described = {
            "format": FORMAT,
            "clhist": __version__,
            "size": self.size,
            "values": self.values,
            "positions": self.positions,
            "sources": sorted(self.sources),
            "named": self.outputs.names is not None,
            "outputs": [
                {
                    "name": name,
                    "operator": repr(operator),
                    "fingerprint": fingerprint(operator),
                    "description": described_operator(operator),
                    "num_bins": shape,
                }
                for name, operator, shape in zip(
                    self.outputs.names or self.outputs.suffixes, self.outputs.operators, self.shapes, strict=True
                )
            ],
        }
        arrays = {f"accumulators{k}": array for k, array in enumerate(self.arrays)}
        with replaced(file) as stream:
            np.savez(stream, allow_pickle=False, description=np.array(json.dumps(described)), **arrays)

    @overload
    @classmethod
    def load(cls, file: str | os.PathLike[str], operator: None = ..., *, trusted: bool = ...) -> Partial[Any]: ...
    @overload
    @classmethod
    def load(
        cls, file: str | os.PathLike[str], operator: Recipe[MadeOf], *, trusted: bool = ...
    ) -> Partial[MadeOf]: ...
    @overload
    @classmethod
    def load(cls, file: str | os.PathLike[str], operator: MadeOf, *, trusted: bool = ...) -> Partial[MadeOf]: ...
    @classmethod
    def load(cls, file: str | os.PathLike[str], operator: Any = None, *, trusted: bool = False) -> Any:
        """Read what `save` wrote.

        Parameters
        ----------
        file : str or path
            An ``.npz`` file, not compressed: its arrays take no more memory than it has bytes.
        operator : Operator, Spec, HistogramKernel, or sequence or mapping of Operator, optional
            Whose partial result it is. Defaults to the operator that the file names.
        trusted : bool
            Whether the C expressions of custom operators may be taken from the file. They run on the device with the
            rights of this process, and are not sandboxed: say so only of files that nobody else can write. Files
            never run Python code.

        Raises
        ------
        TypeError
            If `file` is no path.
        ValueError
            If it is no such file, is of another format or other operators, or contradicts itself; it says how. So too
            if `operator` is missing and the operator is a custom one, unless the file is `trusted`.
        """
        check_booleans(trusted=trusted)
        outputs = None if operator is None else portable_outputs(outputs_of(operator))
        # Ask for one array more than expected: its presence shows that the file has too many.
        most = _MOST_OUTPUTS if outputs is None else len(outputs.operators)
        keys = [f"accumulators{k}" for k in range(most + 1)]
        # Compressed archives are refused: the arrays of a small file could exhaust the memory.
        try:
            arrays_of = read_npz(file, ["description"], optional=keys, kinds="biufcVU", compressed=False)
            described = json.loads(str(arrays_of.pop("description")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file}: expected what clhist.Partial.save wrote: {_shown(error)}") from error
        accumulators = list(arrays_of.values())
        if not isinstance(described, dict):
            raise ValueError(f"{file}: expected what clhist.Partial.save wrote, got another description")
        if described.get("format") not in _READABLE:
            raise ValueError(
                f"{file}: expected format {FORMAT} of partial results, got {_shown(described.get('format'))} "
                f"of clhist {_shown(described.get('clhist'))}; this is clhist {__version__}"
            )
        size, values, ranges, each_output, sources = _described(file, described)
        if outputs is None:
            outputs = _outputs_in(file, described, each_output, trusted)
        # A file may be damaged or forged: compare its description and its arrays with the operators.
        names = [output["name"] for output in each_output]
        if names != list(outputs.names or outputs.suffixes):
            raise ValueError(
                f"{file}: expected histograms {_listed(outputs)}, got {_shown(', '.join(map(str, names)))}"
            )
        if len(accumulators) != len(names):
            raise ValueError(f"{file}: expected the accumulators of {len(names)} histograms, got {len(accumulators)}")
        arrays = []
        for label, operator, array, output in zip(
            outputs.labels, outputs.operators, accumulators, each_output, strict=True
        ):
            if output["fingerprint"] != fingerprint(operator):
                raise ValueError(
                    f"{file}: expected accumulators{label} of {operator}, got those of {_shown(output['operator'])}, "
                    f"written by clhist {_shown(described.get('clhist'))}"
                )
            if array.dtype != operator.accumulator:
                expected = f"accumulators{label} of {shown_dtype(operator.accumulator)}"
                raise ValueError(
                    f"{file}: expected {expected}, got {shown_dtype(array.dtype)}: it was not written by clhist"
                )
            if list(array.shape) != output["num_bins"]:
                expected = f"{_shown(output['num_bins'])} accumulators{label}"
                raise ValueError(f"{file}: expected {expected}, got {list(array.shape)}")
            # A merge in place writes to these arrays.
            arrays.append(np.require(array.astype(operator.accumulator, copy=False), requirements=["C", "W"]))
        return cls(outputs, tuple(arrays), size, values, ranges, sources)

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
        state = (self.outputs, self.arrays, self.size, self.values, self.positions, self.sources)
        return _restored, (FORMAT, __version__, *state)


def merge(partials: Iterable[Partial[K]], *, allow_repeat: bool = False) -> Partial[K]:
    """Return partial results as one; they are left as they are.

    Parameters
    ----------
    partials : iterable of Partial
        Of the same operators and numbers of bins, at least one. Only two are held at a time.
    allow_repeat : bool
        Whether elements may be in several of them, and count as often.

    Returns
    -------
    Partial

    Raises
    ------
    TypeError, ValueError
        If there is none, if one is of other operators or another number of bins, or if two have elements of the same
        stream or call, or of the same positions, without `allow_repeat`.
    OverflowError
        If a bin may have more values than its operator can take.

    Notes
    -----
    Operations that NumPy has are done on the host, others on the default device. Which partial results are merged in
    which order affects only the rounding of floats.

    Examples
    --------
    >>> spec = clhist.Spec("count", 3)
    >>> parts = [spec.partial(np.array(bins), 1) for bins in ([0, 2], [2, 2])]
    >>> spec.result(clhist.merge(parts))
    array([1, 0, 3])
    """
    check_booleans(allow_repeat=allow_repeat)
    if isinstance(partials, Partial):
        raise TypeError("partials: expected an iterable of Partial, got a single one")
    whole, owned, sources = None, False, set[str]()
    for k, partial in enumerate(partials):
        if not isinstance(partial, Partial):
            raise TypeError(f"partials[{k}]: expected a clhist.Partial, got {type(partial).__name__}")
        argument = f"partials[{k}]"
        if whole is None:
            whole = partial
        else:
            # The first merge makes a copy, to which later ones add in place.
            more: Any = {"in_place": owned, "allow_repeat": allow_repeat, "sources": sources}
            whole, owned = combined(whole, partial, argument, **more), True
        sources |= partial.sources
    if whole is None:
        raise ValueError("partials: expected at least one, got none")
    return replace(whole, sources=frozenset(sources))


def combined(
    own: Partial[K],
    other: Partial[K],
    argument: str,
    *,
    in_place: bool = False,
    allow_repeat: bool = False,
    sources: Set[str] | None = None,
) -> Partial[K]:
    """Merge two partial results, in the arrays of the first if `in_place`; see `merge`.

    If `sources` is not None, it replaces the sources of `own` in the check, and the result has no sources.
    """
    other.check(own.outputs, own.shapes, argument)
    positions = None
    if own.positions is not None and other.positions is not None:
        try:
            positions = joined((*own.positions, *other.positions), argument)
        except ValueError:
            # With repeated elements the ranges overlap: the result claims no positions.
            if not allow_repeat:
                raise
    if not allow_repeat and not other.sources.isdisjoint(own.sources if sources is None else sources):
        raise ValueError(
            f"{argument}: expected other elements, got a partial result with elements of a stream or call that is "
            "merged already; take() begins a new part of a stream, allow_repeat=True merges its elements again"
        )
    # Everything that can be refused is refused before arrays are changed in place.
    values = own.values + other.values
    for operator in own.outputs.operators:
        if operator.most_values is not None and values > operator.most_values:
            most = f"{operator.most_values} values for {operator.name} in all"
            raise OverflowError(f"{argument}: expected at most {most}, got {values}")
    for operator, current, more in zip(own.outputs.operators, own.arrays, other.arrays, strict=True):
        _check_counts(operator, current, more, values, argument)
    arrays = own.arrays if in_place else tuple(array.copy() for array in own.arrays)
    for operator, into, more in zip(own.outputs.operators, arrays, other.arrays, strict=True):
        merge_arrays(operator, into, more)
    # A merge of many collects the sources itself, so that no step copies their union.
    every = frozenset[str]() if sources is not None else own.sources | other.sources
    return Partial(own.outputs, arrays, own.size + other.size, values, positions, every)


def outputs_of(operator: Any) -> Outputs:
    """Return the outputs of an operator, of several, or of a kernel, Spec or engine."""
    engine = getattr(operator, "engine", operator)
    outputs = getattr(engine, "outputs", None)
    return outputs if isinstance(outputs, Outputs) else Outputs.of(operator)


def portable_outputs(outputs: Outputs) -> Outputs:
    """Return `outputs` with each operator in the form whose accumulators are the same on all devices."""
    return Outputs(tuple(operator.portable() for operator in outputs.operators), outputs.suffixes, outputs.names)


def neutral_arrays(outputs: Outputs, shapes: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
    """Return the accumulators of bins without values."""
    arrays = []
    for operator, shape in zip(outputs.operators, shapes, strict=True):
        arrays.append(empty(None, shape, operator.accumulator, False))
        arrays[-1][...] = np.asarray(operator.neutral, operator.accumulator)
    return tuple(arrays)


def fingerprint(operator: Operator) -> str:
    """Return a hash of all that defines an operator's result, which identifies it in files."""
    # The name is left out: it does not change results.
    parts = [str(_layout(operator.dtype)), operator.combine, str(_layout(operator.accumulator)), operator.lift]
    parts += [operator.finish, operator.preamble, repr(np.asarray(operator.neutral, operator.accumulator).tolist())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _layout(dtype: np.dtype) -> Any:
    """Return the names, types and offsets of fields, independent of NumPy's representation of dtypes."""
    if dtype.fields is None:
        return dtype.str
    fields: Mapping[str, Any] = dtype.fields
    return [(name, _layout(fields[name][0]), fields[name][1]) for name in dtype.names or ()], dtype.itemsize


def _outputs_in(
    file: Any, described: Mapping[str, Any], each_output: Sequence[Mapping[str, Any]], trusted: bool
) -> Outputs:
    """Return the outputs that a file describes; raise ValueError if it lacks them, or needs trusted=True."""
    operators = []
    for output in each_output:
        operator = f"operator {_shown(output['operator'])}"
        if output.get("description") is None:
            raise ValueError(f"{file}: expected operator=, since the file only names its {operator}; got none")
        try:
            operators.append(operator_of(output["description"], trusted=trusted))
        except UntrustedError as error:
            raise ValueError(
                f"{file}: expected operator= for its {operator}, whose C expressions a file could misuse; "
                "trusted=True takes them from the file"
            ) from error
        except ValueError as error:
            raise ValueError(f"{file}: expected what clhist.Partial.save wrote: {_shown(error)}") from error
    names = [output["name"] for output in each_output]
    try:
        if described.get("named") is True:
            return Outputs.of(dict(zip(names, operators, strict=True)))
        # A single operator without a name has an empty suffix.
        return Outputs.of(operators[0] if names == [""] else operators)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: expected names of histograms: {_shown(error)}") from error


def _described(
    file: Any, described: Mapping[str, Any]
) -> tuple[int, int, tuple[tuple[int, int], ...] | None, Sequence[Mapping[str, Any]], frozenset[str]]:
    """Return size, values, positions, outputs and sources from a file's description; raise ValueError if invalid."""
    try:
        size, values, outputs = described["size"], described["values"], described["outputs"]
        positions = described["positions"]
        ranges = None if positions is None else tuple((low, high) for low, high in positions)
        lacking: list[Any] = [not isinstance(output, dict) or _OUTPUT_KEYS - set(output) for output in outputs]
        sources = described.get("sources", [])
        lacking += [not isinstance(sources, list), *(not isinstance(source, str) for source in sources)]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: expected what clhist.Partial.save wrote, got another description") from error
    numbers = [size, values, *(end for interval in ranges or () for end in interval)]
    # isinstance would accept JSON's true and false as numbers.
    if any(map(bool, lacking)) or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"{file}: expected what clhist.Partial.save wrote, got another description")
    if ranges is not None:
        ends = [end for interval in ranges for end in interval]
        # Ends that rise strictly are those of disjoint ranges, none of them empty or adjacent to the next.
        if sorted(set(ends)) != ends or sum(high - low for low, high in ranges) != size:
            raise ValueError(
                f"{file}: expected positions of {size} elements that rise, got {_shown(list(map(list, ranges)))}"
            )
    return size, values, ranges, outputs, frozenset(sources)


_MOST_OUTPUTS = 1000  # of a file that is loaded without operator=
_OUTPUT_KEYS = {"name", "operator", "fingerprint", "num_bins"}


def _shown(text: object) -> str:
    """Return text from a file as one short line of ASCII, without control characters."""
    shown = ascii(str(text))[1:-1]
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def _restored(form: int, version: str, *state: Any) -> Partial:
    if form not in _READABLE:
        raise ValueError(
            f"partial: expected format {FORMAT}, got {form} of clhist {version}; this is clhist {__version__}"
        )
    return Partial(*state)


def _finished(label: str, operator: Operator, array: np.ndarray, queue: cl.CommandQueue | None) -> np.ndarray:
    # The accumulator is the result: no kernel is needed.
    if operator.finish == "a" and operator.accumulator.kind in "iufc":
        return array.astype(operator.dtype)
    queue = queue or default_queue()
    result = np.empty(array.shape, operator.dtype)
    combine_arrays(queue, device_profile(queue.device), operator, array, result, dest_is_partial=True)
    check_range(label, operator, result)
    return result


def _check_counts(operator: Operator, current: np.ndarray, more: np.ndarray, values: int, argument: str) -> None:
    """Raise OverflowError if a count would exceed its dtype; `values` bounds the count of any bin."""
    if operator.name != COUNT or operator.accumulator.kind not in "iu":
        return
    most = np.iinfo(operator.accumulator).max
    # Look at the bins only if the bound does not rule out an overflow.
    # The difference cannot overflow, unlike the sum.
    if values > most and (current > most - more).any():
        raise OverflowError(f"{argument}: expected counts of at most {most} in all, got a bin with more")


def joined(ranges: Iterable[tuple[int, int]], argument: str = "partial") -> tuple[tuple[int, int], ...]:
    """Return ranges of positions, adjacent ones merged; raise ValueError if two overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(interval for interval in ranges if interval[0] < interval[1]):
        if merged and low < merged[-1][1]:
            both = min(high, merged[-1][1])
            raise ValueError(
                f"{argument}: expected other elements, got those at positions {low} to {both - 1} again; "
                "start= says where a part begins, allow_repeat=True merges its elements again"
            )
        if merged and low == merged[-1][1]:
            merged[-1] = merged[-1][0], high
        else:
            merged.append((low, high))
    return tuple(merged)


def _listed(outputs: Outputs) -> str:
    return ", ".join(outputs.names or ()) or f"{len(outputs.operators)} without names"


def bins_text(shapes: Sequence[tuple[int, ...]]) -> str:
    """Return a description of the shapes of histograms; equal shapes are listed once."""
    descriptions = [" x ".join(map(str, shape)) for shape in shapes]
    return descriptions[0] if len(set(descriptions)) == 1 else ", ".join(descriptions)
