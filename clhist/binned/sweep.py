"""Sweeps over data that find the bin of each element: compiled once for the kinds of axes, whatever the edges are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import is_device_array
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import beginning, kept_on_device, to_device
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.known import KnownCall
from clhist._core.runtime.reproducible import reproducible as reproducible_engine
from clhist._core.runtime.signature import Remembered
from clhist.axes.axis import Axis
from clhist.axes.block_search import ABSENT, BLOCK, LOOP, ahead_of, joint_block
from clhist.axes.edges import EdgesKind
from clhist.axes.kinds import Kind
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator
from clhist.operators.reproducible import is_complex_sum

_ELEMENTWISE = re.compile(r"\b(\w+)\[i\]")

# Elements are named `i` again, for the values that are emitted; this hides the number of the block. Blocks are all of
# one length, which compilers know: the last one begins among the elements of the one before it.
BLOCK_OF_ELEMENTS = """
const long begin = min((long)i * {block}, count - {block});
const int length = {block}, repeated = (int)((long)i * {block} - begin);
{declared}
{finds}
for (int e = 0; e < repeated; ++e) {skip};
#pragma unroll {unroll}
for (int e = 0; e < length; ++e) {{
    const long i = begin + e;
    if (e % 8 == 0) {{ {ahead} }}
    {body}
    {emits}
}}
"""


@dataclass(frozen=True)
class BinnedKind:
    """The parameters of the C that finds bins.

    Attributes
    ----------
    axes : tuple of Kind
        One for each dimension.
    in_rows : bool
        Whether the data is one array (N, D) rather than an array for each axis.
    masked : bool
        Whether an array says which elements count.
    in_blocks : bool
        Whether an `i` of the map stands for a block of elements, see `clhist.axes.block_search`.
    has_spare : bool
        Whether the elements of a block that have no bin are counted in one behind the last. Updates need no check then.
    """

    axes: tuple[Kind, ...]
    in_rows: bool = False
    masked: bool = False
    in_blocks: bool = False
    has_spare: bool = False

    def arguments(self) -> list[str]:
        """Return the declarations of the arguments."""
        found = []
        for n, axis in enumerate(self.axes):
            if axis.data is not None and (n == 0 or not self.in_rows):
                found.append(f"const {c_name(axis.data)} *x{n}")
            found += [axis.parameters(n), f"int size{n}"]
        found += ["const uchar *where"] if self.masked else []
        return [*found, "long count"] if self.in_blocks else found

    @property
    def has_blocks(self) -> bool:
        """Whether elements may be taken in blocks."""
        return not self.in_rows and all(axis.has_block for axis in self.axes)

    def element(self, n: int) -> str:
        """Return C of element `i` on axis `n`."""
        return f"x0[i * {len(self.axes)} + {n}]" if self.in_rows else f"x{n}[i]"

    def code(self) -> str:
        """Return C that makes `bin` the bin of element `i`, or -1."""
        steps = ["int bin = where[i] ? 0 : -1;" if self.masked else "int bin = 0;"]
        for n, axis in enumerate(self.axes):
            found = axis.call(self.element(n), n)
            if n == 0 and not self.masked:
                steps = [f"int bin = {found};"]
            else:
                steps.append(f"if (bin >= 0) {{ const int k = {found}; bin = k < 0 ? -1 : bin * size{n} + k; }}")
        return "\n".join(steps)

    def block(self, emits: Sequence[str]) -> str:
        """Return C that finds the bins of a block of elements and emits the values of each element `i`."""
        most = len(self.axes) - 1
        absent = " * ".join(f"size{n}" for n in range(most + 1)) if self.has_spare else ABSENT
        absents = [ABSENT] * most + [ABSENT if self.masked else absent]  # until the last step
        steps = [self.axes[0].block("x0", 0, "bins", absents[0])]
        for n, axis in enumerate(self.axes[1:], 1):
            steps.append(axis.block(f"x{n}", n, "part"))
            steps.append(f"{LOOP} bins[e] = (bins[e] | part[e]) < 0 ? {absents[n]} : bins[e] * size{n} + part[e];")
        joint = [axis.joint for axis in self.axes if axis.joint is not None]
        if len(joint) == len(self.axes):
            steps = [joint_block(joint, "\n".join(steps))]
        if self.masked:
            steps.append(f"{LOOP} bins[e] = !where[begin + e] | (bins[e] < 0) ? {absent} : bins[e];")
        part = f", part[{BLOCK}]" if len(self.axes) > 1 else ""
        columns = [f"x{n}" for n, axis in enumerate(self.axes) if axis.data is not None]
        columns += _ELEMENTWISE.findall(" ".join(emits))
        return BLOCK_OF_ELEMENTS.format(
            block=BLOCK,
            unroll=8,
            declared=f"int bins[{BLOCK}]{part};",
            finds="\n".join(steps),
            skip=f"bins[e] = {absent}",
            ahead=ahead_of(columns),
            body="const int bin = bins[e];",
            emits=" ".join(emits),
        )

    def functions(self) -> str:
        """Return the C functions of the axes."""
        return functions_of(self.axes, in_blocks=self.in_blocks)

    def engine(
        self, context: cl.Context, operators: Any, code: str, *arguments: str, before: Sequence[str] = (), **more: Any
    ) -> Engine:
        """Return the engine of a map with further `arguments`, behind those of the axes and `before` them.

        `more` are options of `Source.of`.
        """
        declared = ", ".join([*before, *self.arguments(), *arguments])
        structs = [each for axis in self.axes if isinstance(axis, EdgesKind) for each in axis.structs.items()]
        options: Any = {
            "structs": dict(structs),
            "emits": BLOCK if self.in_blocks else 1,
            "covered": self.has_spare,
            **more,
        }
        return Engine.of(context, operators, declared, code, preamble=self.functions(), **options)


@dataclass(frozen=True)
class Binned:
    """Data with the axes that bin it.

    Attributes
    ----------
    axes : tuple of Axis
        One for each dimension.
    data : tuple of array
        Contiguous, of the dtypes of the axes: one for each (None of one that takes no data), or a single one (N, D)
        for several. Behind that of a single axis are the arrays that this has of each call.
    where : array of bool or None
        Which elements count.
    size : int
        N.
    """

    axes: tuple[Axis, ...]
    data: tuple[Any, ...]
    where: Any
    size: int

    @property
    def kind(self) -> BinnedKind:
        """The parameters of its C."""
        in_rows = len(self.axes) > len(self.data)
        return BinnedKind(tuple(axis.kind for axis in self.axes), in_rows, self.where is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Bins of each axis."""
        return tuple(axis.extent for axis in self.axes)

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the caller, as `arguments` has places for them."""
        return [each for each in (*self.data, self.where) if each is not None]

    def arguments(self, queue: cl.CommandQueue) -> list[Any]:
        """Return the arguments that `BinnedKind` declares."""
        args, dtypes = self.template(queue)
        return filled(args, dtypes, self.arrays)

    def template(self, queue: cl.CommandQueue) -> tuple[list[Any], list[np.dtype | None]]:
        """Return the arguments with None in the places of the `arrays`, and as what dtypes these are taken."""
        on_device = any(is_device_array(each) for each in self.data)
        in_rows = len(self.axes) > len(self.data)
        found: list[Any] = []
        dtypes: list[np.dtype | None] = []
        for n, axis in enumerate(self.axes):
            if n == 0 if in_rows else self.data[n] is not None:
                found.append(None)
                dtypes.append(axis.kind.data)
            found += arguments_of(queue, axis, on_device)
            dtypes += [None for array in axis.arrays if array is None]
        return (found, dtypes) if self.where is None else ([*found, None], [*dtypes, None])


def filled(template: Sequence[Any], dtypes: Sequence[np.dtype | None], arrays: Iterable[Any]) -> list[Any]:
    """Return the arguments of a `template` with `arrays` in their places."""
    given = iter([_as(array, dtype) for array, dtype in zip(arrays, dtypes, strict=True)])
    return [next(given) if value is None else value for value in template]


def _as(array: Any, dtype: np.dtype | None) -> Any:
    """Return `array`, as integers if it is of another dtype."""
    return array if dtype is None or array.dtype == dtype or array.dtype.kind == "b" else array.view(dtype)


def shaped(cells: Any, shape: tuple[int, ...]) -> Any:
    """Return the first cells in this shape; PyOpenCL takes long to reshape arrays, so one dimension stays as it is."""
    size = prod(shape)
    cells = cells[:size] if isinstance(cells, np.ndarray) else beginning(cells, size)
    return cells if len(shape) == 1 else cells.reshape(shape)


def functions_of(axes: Sequence[Kind], *, in_blocks: bool) -> str:
    """Return the C functions that find bins on `axes`, each once."""
    found = [function for axis in axes for function in axis.functions()]
    found += [function for axis in axes for function in axis.block_functions()] if in_blocks else []
    return "\n".join(dict.fromkeys(found))


def arguments_of(queue: cl.CommandQueue, axis: Axis, on_device: bool) -> list[Any]:
    """Return the arguments of an axis, but for its data, and its extent."""
    return [*(_uploaded(queue, axis) if on_device else axis.arrays), *axis.scalars, axis.extent]


_tables: Remembered[tuple[Any, ...]] = Remembered(64)  # of axes, on devices


def _uploaded(queue: cl.CommandQueue, axis: Axis) -> tuple[Any, ...]:
    found = _tables.get((queue, axis))
    if found is None:
        found = tuple(None if array is None else kept_on_device(queue, array) for array in axis.arrays)
        _tables.put((queue, axis), found)
    return found


@kept_by_context
def sweep_engine(
    context: cl.Context,
    kind: BinnedKind,
    outputs: tuple[tuple[str, Operator, str], ...],
    values: tuple[np.dtype, ...] = (),
) -> Engine:
    """Return the engine that combines values by bins.

    Parameters
    ----------
    context : pyopencl.Context
        Where it runs.
    kind : BinnedKind
        How bins are found.
    outputs : tuple of (str, Operator, str)
        Name, operator and C of the value of element `i`; the name of a single one does not matter.
    values : tuple of numpy.dtype
        Of the arrays `v0`, `v1`, ... that the values are computed from.
    """
    is_single = len(outputs) == 1
    emits = [f"EMIT{'' if is_single else f'_{name}'}(bin, {value});" for name, _, value in outputs]
    operators = outputs[0][1] if is_single else {name: operator for name, operator, _ in outputs}
    code = kind.block(emits) if kind.in_blocks else "\n".join([kind.code(), *emits])
    return kind.engine(context, operators, code, *(f"const {c_name(dtype)} *v{n}" for n, dtype in enumerate(values)))


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep over binned data but for the arrays of the caller: what calls on arrays alike need again.

    Attributes
    ----------
    known : KnownCall
        Of `sweep_engine`.
    names : tuple of str
        Of the outputs.
    dtypes : tuple of numpy.dtype or None
        As what the engine takes each of the caller's arrays, if that is another dtype than its own.
    shape : tuple of int
        Of each result, which begins as that of the engine.
    size : int
        N.
    count_at : int, optional
        Where the arguments have N, if the elements are taken in blocks.
    """

    known: KnownCall
    names: tuple[str, ...]
    dtypes: tuple[np.dtype | None, ...]
    shape: tuple[int, ...]
    size: int
    count_at: int | None

    @classmethod
    def of(
        cls,
        binned: Binned,
        outputs: tuple[tuple[str, Operator, str], ...],
        values: Sequence[Any] = (),
        *,
        queue: cl.CommandQueue,
        rows: int | None = None,
        reproducible: bool = False,
    ) -> Sweep:
        """Return it for data with its axes and values; `rows` histograms have equal shares of the elements."""
        kind, size, shape = binned.kind, binned.size, binned.shape
        count: tuple[int, ...] = ()
        in_blocks = rows is None and device_kind(queue.device) == "cpu" and size >= BLOCK and kind.has_blocks
        has_spare = in_blocks and not reproducible  # the scale of reproducible sums is that of all bins
        if in_blocks:
            binned = Binned(tuple([axis.packed for axis in binned.axes]), binned.data, binned.where, binned.size)
            packed = binned.kind
            kind = BinnedKind(packed.axes, packed.in_rows, packed.masked, in_blocks=True, has_spare=has_spare)
            size, count = _blocks(size), (size,)
        args, dtypes = binned.template(queue)
        count_at = len(args) if in_blocks else None
        args = [*args, *count, *(None for _ in values)]
        summed = by_parts(outputs) if reproducible else outputs
        engine = sweep_engine(queue.context, kind, summed, tuple(array.dtype for array in values))
        bins = prod(shape) + 1 if has_spare else shape
        engine = reproducible_engine(engine) if reproducible else engine
        known = KnownCall(engine, args, Call(bins, size, queue=queue, num_histograms=rows))
        dtypes = [*dtypes, *(None for _ in values)]
        return cls(known, tuple(name for name, *_ in outputs), tuple(dtypes), shape, binned.size, count_at)

    def of_size(self, size: int) -> Sweep | None:
        """Return the sweep for `size` elements; None if there are fewer than now, or if their loop would be another."""
        if not self.size <= size < 2**31 or (self.count_at is None and self.size < BLOCK <= size):
            return None
        if self.count_at is None:
            known = self.known.of_size(size, {})
        else:
            known = self.known.of_size(_blocks(size), {self.count_at: size})
        return replace(self, known=known, size=size)

    @property
    def queue(self) -> cl.CommandQueue:
        """Where it runs."""
        assert self.known.call.queue is not None
        return self.known.call.queue

    @property
    def may_combine(self) -> bool:
        """Whether results can be combined with others of their dtypes."""
        return not any(operator.narrows for operator in self.known.engine.outputs.operators)

    def run(
        self, arrays: Iterable[Any], dest: Any = None, out: Any = None, begun: Callable[[], None] | None = None
    ) -> list[Any]:
        """Return each result for the data, the mask and the values; None among `arrays` stands for none.

        If an element without a bin is counted in one behind the last, the results have that. So have `dest` and `out`,
        which are as the engine takes them.
        """
        given: list[Any] = []
        for array in arrays:
            if array is not None:
                dtype = self.dtypes[len(given)]
                given.append(array if dtype is None or array.dtype == dtype else _as(array, dtype))
        known = self.known
        call = known.call if dest is None and out is None else known.asked(dest, out, begun=begun)
        found = known.engine.run(given, call, known).results
        return found if len(found) == len(self.names) else [joined(found[0], found[1], self.queue)]

    def __call__(self, arrays: Iterable[Any]) -> dict[str, Any]:
        """Return the results by name."""
        found = self.run(arrays)
        if self.known.call.num_bins != self.shape:
            found = [shaped(each, self.shape) for each in found]
        return dict(zip(self.names, found, strict=True))


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def by_parts(outputs: tuple[tuple[str, Operator, str], ...]) -> tuple[tuple[str, Operator, str], ...]:
    """Return a single output of complex sums as two, of real and imaginary parts; all others as they are."""
    if len(outputs) != 1 or not is_complex_sum(outputs[0][1]):
        return outputs
    ((_, operator, value),) = outputs
    half = operators.add(np.empty(0, operator.dtype).real.dtype)
    return ("real", half, f"({value}).x"), ("imag", half, f"({value}).y")


def joined(real: Any, imag: Any, queue: cl.CommandQueue) -> Any:
    """Return complex numbers of their parts; those of a device by the host."""
    on_device = is_device_array(real)
    parts = [part.get(queue) if on_device else part for part in (real, imag)]
    found = np.stack(parts, axis=-1).view(np.result_type(parts[0], np.complex64))[..., 0]
    return to_device(queue, found) if on_device else found


def sweep(
    binned: Binned, outputs: tuple[tuple[str, Operator, str], ...], values: Sequence[Any] = (), **options: Any
) -> dict[str, Any]:
    """Combine values by bins, and return the results by name; see `sweep_engine`, and `Sweep.of` of the options."""
    return Sweep.of(binned, outputs, values, **options)([*binned.arrays, *values])
