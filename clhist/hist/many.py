"""`fill_many`: several histograms filled in one sweep over the columns that they share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.spi import Engine, device_kind, is_device_array, kept_by_context, on_host, takes_cuda, to_device
from clhist.axes.spi import ABSENT, BLOCK, Kind, ahead_of
from clhist.binned.spi import BLOCK_OF_ELEMENTS, arguments_of, functions_of, mask_array
from clhist.hist.columns import MEANS, Columns, as_column, columns_of, is_column, present_columns, storage_of
from clhist.hist.filling import check_room, fill, positions
from clhist.hist.storages import merge, num_cells, outputs_of, takes
from clhist.operators.c_types import c_name, check_booleans
from clhist.operators.operator import Operator

# Histograms of one sweep: more take longer to compile and gain little.
_MOST_TOGETHER = 10
# Bytes of the bins of one sweep that a CPU's cache should hold.
_MOST_HELD = 2**20


@dataclass(frozen=True)
class _FillPart:
    """One histogram of a sweep.

    Attributes
    ----------
    axes : tuple of int
        Their numbers.
    mask : int or None
        Number of the array that says which entries count.
    outputs : tuple of (str, Operator, str)
        As of `clhist.binned.spi.sweep_engine`.
    cells : int
        Sums that a bin has, each of the value of `cell`; 0 of storages but MultiCell.
    """

    axes: tuple[int, ...]
    mask: int | None
    outputs: tuple[tuple[str, Operator, str], ...]
    cells: int


@dataclass(frozen=True)
class _Many:
    """The parameters of the C of a sweep for several histograms.

    Attributes
    ----------
    columns : tuple of numpy.dtype
        Of the distinct arrays.
    axes : tuple of (Kind, int or None)
        Distinct axes, each with the number of the array that it bins.
    parts : tuple of _FillPart
        The histograms.
    """

    columns: tuple[np.dtype, ...]
    axes: tuple[tuple[Kind, int | None], ...]
    parts: tuple[_FillPart, ...]

    def arguments(self) -> str:
        """Return the declarations of the arguments."""
        declarations = [f"const {c_name(dtype)} *c{n}" for n, dtype in enumerate(self.columns)]
        for n, (kind, _) in enumerate(self.axes):
            declarations += [kind.parameters(n), f"int size{n}"]
        return ", ".join([*declarations, "long count"])

    def code(self, *, in_blocks: bool) -> str:
        """Return C of the map, for element `i` or for the block number `i`."""
        emits = "\n".join(self._emits(part, j, in_blocks) for j, part in enumerate(self.parts))
        if not in_blocks:
            finds = [f"const int part{n} = {kind.call(f'c{c}[i]', n)};" for n, (kind, c) in enumerate(self.axes)]
            return "\n".join([*finds, emits])
        # In blocks, each axis finds the bins of BLOCK elements in a loop of its own before any is emitted.
        finds = [kind.block(f"c{c}", n, f"part{n}") for n, (kind, c) in enumerate(self.axes)]
        binned = {column for _, column in self.axes}
        declared = "int " + ", ".join(f"part{n}[{BLOCK}]" for n in range(len(self.axes))) + ";"
        return BLOCK_OF_ELEMENTS.format(
            block=BLOCK,
            unroll=1 if any(part.cells for part in self.parts) else 8,
            declared=declared,
            finds="\n".join(finds),
            skip=" = ".join([*(f"part{n}[e]" for n in range(len(self.axes))), ABSENT]),
            ahead=ahead_of(f"c{n}" for n in range(len(self.columns)) if f"c{n}[i]" in emits or n in binned),
            body="",
            emits=emits,
        )

    def _emits(self, part: _FillPart, number: int, in_blocks: bool) -> str:
        bins = [f"part{n}[e]" if in_blocks else f"part{n}" for n in part.axes]
        steps = [f"int bin = {bins[0]};"]
        # Combine the indices in row-major order. An OR is negative if either index is, so one miss drops the element.
        steps += [
            f"bin = (bin | {index}) < 0 ? -1 : bin * size{n} + {index};"
            for n, index in zip(part.axes[1:], bins[1:], strict=True)
        ]
        if part.mask is not None:
            steps.append(f"if (!c{part.mask}[i]) bin = -1;")
        if part.cells:
            ((name, _, value),) = part.outputs
            emit = f"EMIT_{name}_{number}(bin * {part.cells} + cell, {value});"
            loop = f"\n#pragma unroll 1\nfor (int cell = 0; cell < {part.cells}; ++cell) {emit}"
            return f"{{ {' '.join(steps)} if (bin >= 0) {{ {loop} }} }}"
        steps += [f"EMIT_{name}_{number}(bin, {value});" for name, _, value in part.outputs]
        return f"{{ {' '.join(steps)} }}"


@kept_by_context
def _kernel(context: cl.Context, many: _Many, in_blocks: bool) -> Engine:
    operators = {f"{name}_{j}": op for j, part in enumerate(many.parts) for name, op, _ in part.outputs}
    return Engine.of(
        context,
        operators,
        arguments=many.arguments(),
        map=many.code(in_blocks=in_blocks),
        preamble=functions_of([kind for kind, _ in many.axes], in_blocks=in_blocks),
        emits=(BLOCK if in_blocks else 1) * max(part.cells or 1 for part in many.parts),
    )


def fill_many(
    fills: Iterable[Sequence[Any]], *, queue: cl.CommandQueue | None = None, reproducible: bool = False
) -> None:
    """Fill several histograms, together where they are filled from columns of one length.

    Parameters
    ----------
    fills : iterable of tuple
        ``(h, args)`` or ``(h, args, options)``: a histogram, the tuple of what `clhist.hist.fill` takes for its axes
        (or a dict of that by the names of axes), and a dict of `weight`, `sample` and `where`. The last is an array of
        booleans: which entries count.
    queue : pyopencl.CommandQueue, optional
        As of `clhist.hist.fill`.
    reproducible : bool
        As of `clhist.hist.fill`; each histogram is then filled separately.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, MemoryError
        As of `clhist.hist.fill`. Histograms before the wrong one may have been filled.

    Notes
    -----
    An array that occurs several times is read once, and its bin on equal axes is found once. Storages of means are
    filled one after the other.

    Examples
    --------
    >>> import boost_histogram as bh
    >>> hists = [bh.Histogram(bh.axis.Regular(2, 0, 1)) for _ in range(2)]
    >>> x = np.array([0.1, 0.6, 0.7])
    >>> clhist.hist.fill_many([(h, (x,), {"where": cut}) for h, cut in zip(hists, (x > 0.5, x < 0.5))])
    >>> [h.values().tolist() for h in hists]
    [[0.0, 2.0], [1.0, 0.0]]
    """
    check_booleans(reproducible=reproducible)
    _fill_many(list(fills), queue=queue, reproducible=reproducible)


@takes_cuda
def _fill_many(fills: Sequence[Sequence[Any]], *, queue: cl.CommandQueue | None, reproducible: bool) -> None:
    """Do it."""
    group: list[tuple[Any, Columns, Any]] = []
    for h, args, *rest in fills:
        options = dict(rest[0]) if rest else {}
        where = options.pop("where", None)
        named = dict(args) if isinstance(args, dict) else {}
        args = () if named else tuple(args)
        # Wrong names leave too few columns; then `fill` runs for this histogram alone and raises its error.
        more = positions(h, args, named) or ()
        values, weight, sample, present = present_columns((*args, *more), options.get("weight"), options.get("sample"))
        # From here on only the present elements count.
        if present is not None:
            args, named = tuple(values), {}
            options |= {key: value for key, value in (("weight", weight), ("sample", sample)) if key in options}
            where = None if where is None else on_host(mask_array(where, present.shape))[present]
        # Means take several sweeps, axes that grow change shape, and unknown options must raise: each is filled alone.
        together = not reproducible and storage_of(h) not in MEANS
        together = together and options.keys() <= {"weight", "sample"} and not any(ax.traits.growth for ax in h.axes)
        columns = columns_of(h, values, weight, sample, queue) if together else None
        if columns is None or not takes(h, columns):
            _fill_alone(h, args, named, options, where, queue, reproducible)
            continue
        check_room(h, columns)
        mask = mask_array(where, (columns.size,))
        # A sweep has one number of elements and one device: launch the group before a fill that does not fit.
        if group and (len(group) == _MOST_TOGETHER or not _fit(group[0][1], columns)):
            _fill_group(group)
            group = []
        group.append((h, columns, mask))
    if group:
        _fill_group(group)


def _fit(first: Columns, columns: Columns) -> bool:
    same = first.size == columns.size and first.on_device == columns.on_device
    return same and first.queue.context == columns.queue.context


def _fill_alone(
    h: Any, args: Sequence[Any], named: Any, options: Any, where: Any, queue: Any, reproducible: bool
) -> None:
    if where is None:
        fill(h, *args, queue=queue, reproducible=reproducible, **named, **options)
        return

    def chosen(value: Any) -> Any:
        # A fill of one histogram has no mask, so entries are selected on the host.
        value = as_column(value)
        if not is_column(value):
            return value
        selected = on_host(value)[on_host(where).astype(bool)]
        return to_device(value.queue, selected) if is_device_array(value) and len(selected) else selected

    named = {name: chosen(value) for name, value in named.items()}
    options = {name: chosen(value) for name, value in options.items()}
    fill(h, *map(chosen, args), queue=queue, reproducible=reproducible, **named, **options)


class _Group:
    """The arrays and axes of one sweep over several histograms, each once."""

    def __init__(self, group: Sequence[tuple[Any, Columns, Any]]) -> None:
        self._arrays: dict[int, Any] = {}
        self._axes: dict[tuple[int, int | None], tuple[Any, int | None]] = {}
        self.parts = tuple(self._part(*item) for item in group)

    def _number_of(self, array: Any) -> int:
        # The dict also keeps the array alive: an id is unique only during the lifetime of its object.
        self._arrays.setdefault(id(array), array)
        return list(self._arrays).index(id(array))

    def _part(self, h: Any, columns: Columns, mask: Any) -> _FillPart:
        cells = num_cells(h, columns.storage)
        outputs, values = outputs_of(columns, cells)
        value_numbers = [self._number_of(value) for value in values]
        numbers = []
        for axis, data in zip(columns.axes[::-1], columns.data[::-1], strict=True):
            # Equal axes mostly are one cached object; with the same data, their bins are found once.
            key = id(axis), None if data is None else self._number_of(data)
            self._axes.setdefault(key, (axis, key[1]))
            numbers.append(list(self._axes).index(key))
        renamed = tuple((name, op, _renamed(value, value_numbers)) for name, op, value in outputs)
        return _FillPart(tuple(numbers), None if mask is None else self._number_of(mask), renamed, cells)

    @property
    def kinds(self) -> tuple[tuple[Kind, int | None], ...]:
        """The kind of each axis, and the number of its data."""
        return tuple((axis.kind, column) for axis, column in self._axes.values())

    def data(self) -> list[Any]:
        """Return the arrays in the types in which kernels take them."""
        arrays = [array.view(np.uint8) if array.dtype == np.bool_ else array for array in self._arrays.values()]
        return [_bits(array, [kind for kind, column in self.kinds if column == n]) for n, array in enumerate(arrays)]

    def arguments(self, queue: cl.CommandQueue, on_device: bool) -> Iterator[Any]:
        """Yield the arguments of the kernel that are of axes."""
        for axis, _ in self._axes.values():
            yield from arguments_of(queue, axis, on_device)


def _fill_group(group: Sequence[tuple[Any, Columns, Any]]) -> None:
    """Fill histograms in one sweep."""
    together, first = _Group(group), group[0][1]
    queue, data, parts = first.queue, together.data(), together.parts
    shapes = {
        f"{name}_{j}": (*columns.shape, part.cells) if part.cells else columns.shape
        for j, ((_, columns, _), part) in enumerate(zip(group, parts, strict=True))
        for name, _, _ in part.outputs
    }
    accumulator_bytes = sum(
        prod(shapes[f"{name}_{j}"]) * op.bin_bytes for j, part in enumerate(parts) for name, op, _ in part.outputs
    )
    # CPUs process blocks of elements, unless the bins are too large for the cache.
    in_blocks = device_kind(queue.device) == "cpu" and BLOCK <= first.size < 2**31 and accumulator_bytes <= _MOST_HELD
    many = _Many(tuple(array.dtype for array in data), together.kinds, parts)
    kernel = _kernel(queue.context, many, in_blocks)
    size = -(-first.size // BLOCK) if in_blocks else first.size
    of_axes = together.arguments(queue, first.on_device)
    results = kernel(*data, *of_axes, first.size, num_bins=shapes, size=size, queue=queue)
    for j, ((h, columns, _), part) in enumerate(zip(group, parts, strict=True)):
        merge(h, columns.storage, columns.weight, {name: results[f"{name}_{j}"] for name, _, _ in part.outputs}, queue)


def _renamed(value: str, numbers: Sequence[int]) -> str:
    """Return C of a value with the arrays `v0`, `v1`, ... by their numbers among those of the sweep."""
    return re.sub(r"\bv(\d+)\[", lambda match: f"c{numbers[int(match[1])]}[", value)


def _bits(array: Any, kinds: Sequence[Kind]) -> Any:
    """Return an array as the type in which axes take it."""
    wanted = next((kind.data for kind in kinds if kind.data is not None and kind.data != array.dtype), None)
    return array if wanted is None else array.view(wanted)
