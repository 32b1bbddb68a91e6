"""Sweeps that bin each element by its axes. They are compiled once for the kinds of axes; edges are arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.opencl.arrays import address_of, is_device_array
from clhist._core.opencl.bare_arrays import array_in
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import beginning, kept_on_device, to_device
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.call_template import CallTemplate, sizes_of, sweep_calls
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.reproducible import reproducible as reproducible_engine
from clhist._core.runtime.signature import Remembered, itself
from clhist.axes.axis import Axis
from clhist.axes.block_search import ABSENT, BLOCK, LOOP, ahead_of, joint_block
from clhist.axes.edges import EdgesKind
from clhist.axes.kinds import Kind
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator
from clhist.operators.reproducible import is_complex_sum

_ELEMENTWISE = re.compile(r"\b(\w+)\[i\]")  # arrays that an expression reads at element `i`

# One `i` of the map is a block. The inner loop redeclares `i` as the element, for the C of the values. All blocks have
# one constant length, so the last one overlaps the one before it and skips the `repeated` elements.
# Note [Blocks of 128 elements], docs/decisions/0028.
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
    """The parameters that the C of binning depends on.

    Attributes
    ----------
    axes : tuple of Kind
        One for each dimension.
    in_rows : bool
        Whether the data is one array (N, D) rather than an array for each axis.
    masked : bool
        Whether a mask selects the elements that count.
    in_blocks : bool
        Whether an `i` of the map stands for a block of elements, see `clhist.axes.block_search`.
    has_spare : bool
        Whether elements without a bin go to a spare bin behind the last, so that updates need no check.
    """

    axes: tuple[Kind, ...]
    in_rows: bool = False
    masked: bool = False
    in_blocks: bool = False
    has_spare: bool = False

    def arguments(self) -> list[str]:
        """Return the declarations of the arguments."""
        declarations = []
        for n, axis in enumerate(self.axes):
            if axis.data is not None and (n == 0 or not self.in_rows):
                declarations.append(f"const {c_name(axis.data)} *x{n}")
            declarations += [axis.parameters(n), f"int size{n}"]
        declarations += ["const uchar *where"] if self.masked else []
        return [*declarations, "long count"] if self.in_blocks else declarations

    @property
    def has_blocks(self) -> bool:
        """Whether the C for blocks of elements exists for these axes."""
        return not self.in_rows and all(axis.has_block for axis in self.axes)

    def element(self, n: int) -> str:
        """Return the C expression of coordinate `n` of element `i`."""
        return f"x0[i * {len(self.axes)} + {n}]" if self.in_rows else f"x{n}[i]"

    def code(self) -> str:
        """Return C statements that declare `bin`, the bin of element `i` in C order of the axes, or -1."""
        # An element that one axis or the mask excludes skips the searches on further axes.
        steps = ["int bin = where[i] ? 0 : -1;" if self.masked else "int bin = 0;"]
        for n, axis in enumerate(self.axes):
            axis_bin = axis.call(self.element(n), n)
            if n == 0 and not self.masked:
                steps = [f"int bin = {axis_bin};"]
            else:
                steps.append(f"if (bin >= 0) {{ const int k = {axis_bin}; bin = k < 0 ? -1 : bin * size{n} + k; }}")
        return "\n".join(steps)

    def block(self, emits: Sequence[str]) -> str:
        """Return C statements that find the bins of a block of elements, and then run `emits` for each element `i`."""
        most = len(self.axes) - 1
        absent = " * ".join(f"size{n}" for n in range(most + 1)) if self.has_spare else ABSENT
        # Elements without a bin are negative until the last step, which may replace them by the spare bin.
        absents = [ABSENT] * most + [ABSENT if self.masked else absent]
        steps = [self.axes[0].block("x0", 0, "bins", absents[0])]
        for n, axis in enumerate(self.axes[1:], 1):
            steps.append(axis.block(f"x{n}", n, "part"))
            steps.append(f"{LOOP} bins[e] = (bins[e] | part[e]) < 0 ? {absents[n]} : bins[e] * size{n} + part[e];")
        joint = [axis.joint for axis in self.axes if axis.joint is not None]
        # Guess the bins of all axes at once; the steps remain for blocks in which a guess is not sure.
        if len(joint) == len(self.axes):
            steps = [joint_block(joint, "\n".join(steps))]
        if self.masked:
            steps.append(f"{LOOP} bins[e] = !where[begin + e] | (bins[e] < 0) ? {absent} : bins[e];")
        # Further axes need a second array, for their own bins before both are combined.
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
        """Return the C functions that the binning calls."""
        return functions_of(self.axes, in_blocks=self.in_blocks)

    def engine(
        self, context: cl.Context, operators: Any, code: str, *arguments: str, before: Sequence[str] = (), **more: Any
    ) -> Engine:
        """Return the engine of a map that bins elements.

        Parameters
        ----------
        context : pyopencl.Context
            The context to build for.
        operators : Operator or mapping
            Of the outputs.
        code : str
            The map, which begins with `code` or `block`.
        *arguments : str
            Declarations behind those of the axes.
        before : sequence of str
            Declarations in front of those of the axes.
        **more
            Options of `Source.of`.
        """
        declared = ", ".join([*before, *self.arguments(), *arguments])
        structs = [item for axis in self.axes if isinstance(axis, EdgesKind) for item in axis.structs.items()]
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
        Contiguous, in the dtypes of the axes. One array for each axis (None if it takes no data), or one array (N, D).
        The arrays that a single axis gets from each call follow its data.
    where : array of bool or None
        True for elements that count.
    size : int
        The number of elements, N.
    """

    axes: tuple[Axis, ...]
    data: tuple[Any, ...]
    where: Any
    size: int

    @property
    def kind(self) -> BinnedKind:
        """The parameters that the C of binning depends on."""
        in_rows = len(self.axes) > len(self.data)
        return BinnedKind(tuple(axis.kind for axis in self.axes), in_rows, self.where is not None)

    @property
    def packed(self) -> Binned:
        """The same data, with a packed table for each axis that can have one."""
        return Binned(tuple([axis.packed for axis in self.axes]), self.data, self.where, self.size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Bins of each axis."""
        return tuple(axis.extent for axis in self.axes)

    @property
    def arrays(self) -> list[Any]:
        """The caller's arrays, in the order of the gaps in `template`."""
        return [array for array in (*self.data, self.where) if array is not None]

    def arguments(self, queue: cl.CommandQueue) -> list[Any]:
        """Return the arguments that `BinnedKind` declares."""
        args, dtypes = self.template(queue, on_device=any(is_device_array(array) for array in self.data))
        return filled(args, dtypes, self.arrays)

    def template(self, queue: cl.CommandQueue, *, on_device: bool = True) -> tuple[list[Any], list[np.dtype | None]]:
        """Return the arguments with None in place of the caller's `arrays`, and the dtypes that these are read as.

        `filled` inserts the arrays. Tables of axes are `on_device`, or NumPy's.
        """
        in_rows = len(self.axes) > len(self.data)
        arguments: list[Any] = []
        dtypes: list[np.dtype | None] = []
        for n, axis in enumerate(self.axes):
            # Rows are one argument for all axes.
            if n == 0 if in_rows else self.data[n] is not None:
                arguments.append(None)
                dtypes.append(axis.kind.data)
            arguments += arguments_of(queue, axis, on_device)
            dtypes += [None for array in axis.tables if array is None]
        return (arguments, dtypes) if self.where is None else ([*arguments, None], [*dtypes, None])


def filled(template: Sequence[Any], dtypes: Sequence[np.dtype | None], arrays: Iterable[Any]) -> list[Any]:
    """Return the arguments of a `template` with its gaps filled by `arrays`."""
    converted = iter([viewed(array, dtype) for array, dtype in zip(arrays, dtypes, strict=True)])
    return [next(converted) if value is None else value for value in template]


def viewed(array: Any, dtype: np.dtype | None) -> Any:
    """Return `array`, reinterpreted as `dtype` (its bits as integers) if it has another dtype."""
    return array if dtype is None or array.dtype == dtype or array.dtype.kind == "b" else array.view(dtype)


def functions_of(axes: Sequence[Kind], *, in_blocks: bool) -> str:
    """Return the C functions that find bins on `axes`, without duplicates."""
    functions = [function for axis in axes for function in axis.functions()]
    functions += [function for axis in axes for function in axis.block_functions()] if in_blocks else []
    return "\n".join(dict.fromkeys(functions))


def arguments_of(queue: cl.CommandQueue, axis: Axis, on_device: bool) -> list[Any]:
    """Return the arguments of an axis behind its data: tables, scalars, and the number of bins."""
    return [*(_uploaded(queue, axis) if on_device else axis.arrays), *axis.scalars, axis.extent]


# Tables on devices, by queue and axis: fewer than calls are cached, since some take megabytes.
_tables: Remembered[list[Any]] = Remembered(64)


def _uploaded(queue: cl.CommandQueue, axis: Axis) -> list[Any]:
    """Return the tables of an axis on the device; None for an array that each call has anew."""
    # The axis of new edges belongs to one call.
    key = None if axis.is_searched else (queue, itself(axis))
    tables = _tables.get(key)
    if tables is None:
        tables, arrays = [], axis.arrays
        for array in reversed(arrays):
            table, last = tables[0] if tables else None, arrays[-1]
            if array is None:
                tables.append(None)
            # The keys of a packed table are in the memory of that table.
            elif type(table) is cl_array.Array and (address_of(array), array.nbytes) == (address_of(last), last.nbytes):
                tables.append(array_in(queue, array.shape, array.dtype, table.base_data))
            else:
                tables.append(kept_on_device(queue, array))
        tables.reverse()
        _tables.put(key, tables)
    return tables


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
        The context to build for.
    kind : BinnedKind
        How bins are found.
    outputs : tuple of (str, Operator, str)
        Name, operator, and C expression of the value of element `i`. The name of a single output does not matter.
    values : tuple of numpy.dtype
        The dtypes of the arrays `v0`, `v1`, ... that the expressions read.
    """
    is_single = len(outputs) == 1
    emits = [f"EMIT{'' if is_single else f'_{name}'}(bin, {value});" for name, _, value in outputs]
    operators = outputs[0][1] if is_single else {name: operator for name, operator, _ in outputs}
    code = kind.block(emits) if kind.in_blocks else "\n".join([kind.code(), *emits])
    return kind.engine(context, operators, code, *(f"const {c_name(dtype)} *v{n}" for n, dtype in enumerate(values)))


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep over binned data that is ready for other arrays with the same signature.

    Attributes
    ----------
    template : CallTemplate
        The call of `sweep_engine`, with slots for the caller's arrays, and for N if elements are processed in blocks.
    names : tuple of str
        The names of the outputs.
    dtypes : tuple of numpy.dtype or None
        The dtype that the engine reads each of the caller's arrays as; None for the array's own.
    shape : tuple of int
        The shape of each result.
    bins : int or tuple of int
        The bins of the engine: `shape`, or their number if the engine appends a spare bin.
    size : int
        The number of elements, N.
    in_blocks : bool
        Whether elements are processed in blocks.
    kind : BinnedKind
        How bins are found.
    """

    template: CallTemplate
    names: tuple[str, ...]
    dtypes: tuple[np.dtype | None, ...]
    shape: tuple[int, ...]
    bins: int | tuple[int, ...]
    size: int
    in_blocks: bool
    kind: BinnedKind

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
        tables: tuple[np.dtype, ...] = (),
    ) -> Sweep:
        """Return the sweep of binned data.

        Parameters
        ----------
        binned : Binned
            The data and its axes.
        outputs : tuple of (str, Operator, str)
            As of `sweep_engine`.
        values : sequence of array
            The arrays `v0`, `v1`, ... of the outputs' expressions.
        queue : pyopencl.CommandQueue
            The queue that computes.
        rows : int, optional
            The number of histograms, each of an equal share of the elements.
        reproducible : bool
            Whether float sums are bitwise the same in any order.
        tables : tuple of numpy.dtype
            Dtypes of further arrays of the expressions, which follow `values` and have an entry for each bin.
        """
        kind, size, shape = binned.kind, binned.size, binned.shape
        # CPUs find the bins of a block in one loop and count them in the next; histograms of a batch share no block.
        in_blocks = rows is None and device_kind(queue.device) == "cpu" and size >= BLOCK and kind.has_blocks
        # Reproducible sums have no spare bin: its values would take part in their scale.
        has_spare = in_blocks and not reproducible
        if in_blocks:
            binned = binned.packed
            packed = binned.kind
            kind = BinnedKind(packed.axes, packed.in_rows, packed.masked, in_blocks=True, has_spare=has_spare)
        args, dtypes = binned.template(queue)
        # An element of the engine is then a block; the number of real elements is an argument.
        args = [*args, *([None] if in_blocks else []), *(None for _ in (*values, *tables))]
        bins = prod(shape) + 1 if has_spare else shape
        call = Call(bins, size, queue=queue, num_histograms=rows)
        value_dtypes = *(array.dtype for array in values), *tables

        def engine() -> Engine:
            # Exact sums have no complex accumulator: their form has two parts, which `run` joins.
            summed = by_parts(outputs) if reproducible else outputs
            made = sweep_engine(queue.context, kind, summed, value_dtypes)
            return reproducible_engine(made) if reproducible else made

        # Sweeps of one kind share plans, whatever their axes and sizes.
        of_kind = kind, outputs, rows, reproducible, tables
        calls = sweep_calls(queue, [*binned.arrays, *values], of_kind, engine)
        template = CallTemplate(calls, args, call)
        dtypes = [*dtypes, *(None for _ in value_dtypes)]
        return cls(template, tuple(name for name, *_ in outputs), tuple(dtypes), shape, bins, size, in_blocks, kind)

    def of_axis(self, axis: Axis) -> Sweep:
        """Return the sweep over one other axis, of the same kind."""
        if self.in_blocks:
            axis = axis.packed
        shape = (axis.extent,)
        bins = shape if type(self.bins) is tuple else axis.extent + 1  # with a spare bin
        template = self.template.with_args(1, arguments_of(self.queue, axis, on_device=True))
        return Sweep(template, self.names, self.dtypes, shape, bins, self.size, self.in_blocks, self.kind)

    def of_axes(self, binned: Binned) -> Sweep:
        """Return the sweep over the axes of similar data, which are of the same kinds."""
        binned, shape = binned.packed if self.in_blocks else binned, binned.shape
        bins = shape if type(self.bins) is tuple else prod(shape) + 1  # with a spare bin
        template = self.template.with_args(0, binned.template(self.queue)[0])
        return Sweep(template, self.names, self.dtypes, shape, bins, self.size, self.in_blocks, self.kind)

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue that computes."""
        assert self.template.call.queue is not None
        return self.template.call.queue

    @property
    def may_combine(self) -> bool:
        """Whether results can be combined with other results: no operator narrows them."""
        return not any(operator.narrows for operator in self.template.calls.engine.outputs.operators)

    def run(
        self,
        arrays: Iterable[Any],
        dest: Any = None,
        out: Any = None,
        begun: Callable[[], None] | None = None,
        size: int | None = None,
    ) -> list[Any]:
        """Run the sweep on data, mask and values, and return each result; a None in `arrays` is skipped.

        Results include the spare bin if the engine has one. So must `dest` and `out`, in the form of the engine.
        `size` is the number of elements if it is not that of the sweep; both are of one `size_class`.
        """
        converted: list[Any] = []
        for array in arrays:
            if array is not None:
                # The index counts the arrays that are not None, as `dtypes` does.
                dtype = self.dtypes[len(converted)]
                converted.append(array if dtype is None or array.dtype == dtype else viewed(array, dtype))
        template, size = self.template, self.size if size is None else size
        sizes = sizes_of(_blocks(size), self.bins, (size,)) if self.in_blocks else sizes_of(size, self.bins)
        call = template.call if dest is None and out is None else template.call_with(dest, out, begun=begun)
        results = template.calls.engine.run_template(template, converted, call, sizes).results
        # Two results for one name are the parts of a complex sum.
        return results if len(results) == len(self.names) else [joined(results[0], results[1], self.queue)]

    def results(self, arrays: Iterable[Any], size: int | None = None) -> list[Any]:
        """Run the sweep and return each result in its shape, without a spare bin; `size` is of `run`."""
        results = self.run(arrays, size=size)
        # With a spare bin the results are flat, and have one bin more.
        return results if self.bins == self.shape else [beginning(cells, *self.shape) for cells in results]

    def __call__(self, arrays: Iterable[Any], size: int | None = None) -> dict[str, Any]:
        """Return `results` by name."""
        return dict(zip(self.names, self.results(arrays, size), strict=True))


def size_class(size: int) -> int:
    """Return a number that is equal for sizes that one sweep serves: those of blocks, and those of fewer elements."""
    return size if not 0 < size < 2**31 else -2 if size >= BLOCK else -1


def _blocks(size: int) -> int:
    """Return the number of blocks of `size` elements, the last of which may overlap the one before."""
    return -(-size // BLOCK)


def by_parts(outputs: tuple[tuple[str, Operator, str], ...]) -> tuple[tuple[str, Operator, str], ...]:
    """Split a single output of complex sums into real and imaginary part; return all others unchanged."""
    if len(outputs) != 1 or not is_complex_sum(outputs[0][1]):
        return outputs
    ((_, operator, value),) = outputs
    half = operators.add(np.empty(0, operator.dtype).real.dtype)
    return ("real", half, f"({value}).x"), ("imag", half, f"({value}).y")


def joined(real: Any, imag: Any, queue: cl.CommandQueue) -> Any:
    """Return complex numbers from real and imaginary parts; parts on a device are joined on the host."""
    on_device = is_device_array(real)
    parts = [part.get(queue) if on_device else part for part in (real, imag)]
    numbers = np.stack(parts, axis=-1).view(np.result_type(parts[0], np.complex64))[..., 0]
    return to_device(queue, numbers) if on_device else numbers


def sweep(
    binned: Binned, outputs: tuple[tuple[str, Operator, str], ...], values: Sequence[Any] = (), **options: Any
) -> dict[str, Any]:
    """Combine values by bins, and return the results by name; see `sweep_engine`, and `Sweep.of` of the options."""
    return Sweep.of(binned, outputs, values, **options)([*binned.arrays, *values])
