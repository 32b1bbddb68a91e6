"""`clhist hist --axis`: a histogram object of hist, filled from files and written as UHI has it."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from clhist.cli.hist.condition import Condition
from clhist.cli.hist.report import bars, labelled_bars, picture, shows_unicode
from clhist.cli.hist.rows import present
from clhist.cli.hist.tables import rows_of
from clhist.cli.tables import escaped
from clhist.files.table import Chunk, Table, TableError

Array = npt.NDArray[Any]

EXAMPLES = "pt=reg(100,0,200), pt=reg(50,1,1000,log), eta=var(-2.5,0,2.5), n=int(0,8), id=cat(11,13), run=str(a,b)"
STORAGES = ("int64", "atomic_int64", "double", "unlimited", "weight", "mean", "weighted_mean")
ENDINGS = (".json", ".zip", ".h5", ".hdf5", ".root")

_SPEC = re.compile(r"\s*(?P<name>.+?)\s*=\s*(?P<kind>reg|var|int|cat|str|bool)\s*\((?P<given>[^()]*)\)\s*")
_NUMBERS = {"reg": 3, "int": 2, "bool": 0}
_FLAGS = {
    "reg": ("log", "sqrt", "circular", "growth", "no_underflow", "no_overflow"),
    "var": ("circular", "growth", "no_underflow", "no_overflow"),
    "int": ("circular", "growth", "no_underflow", "no_overflow"),
    "cat": ("growth", "no_overflow"),
    "str": ("growth", "no_overflow"),
    "bool": (),
}


@dataclass(frozen=True)
class AxisSpec:
    """An axis as the command line has it.

    Attributes
    ----------
    name : str
        The column.
    kind : str
        "reg", "var", "int", "cat", "str" or "bool".
    values : tuple
        Numbers, or categories.
    flags : frozenset of str
        Options of the axis.
    """

    name: str
    kind: str
    values: tuple[Any, ...]
    flags: frozenset[str]

    @classmethod
    def of(cls, text: str) -> AxisSpec:
        """Return the axis that `text` says.

        Raises
        ------
        ValueError
            If it says none.
        """
        match = _SPEC.fullmatch(text)
        if match is None:
            raise ValueError(f"expected NAME=KIND(...) such as {EXAMPLES}; got {text!r}")
        kind = match["kind"]
        words = [word.strip() for word in match["given"].split(",") if word.strip()]
        flags = frozenset(word for word in words if word in _FLAGS[kind])
        rest = [word for word in words if word not in flags]
        number: Callable[[str], Any] = {"cat": int, "int": int, "str": str}.get(kind, float)
        try:
            values = tuple(number(word) for word in rest)
        except ValueError:
            options = ", ".join(_FLAGS[kind]) or "no option"
            raise ValueError(f"expected numbers and {options} in {kind}(...), got {text!r}") from None
        if len(values) != _NUMBERS.get(kind, len(values)):
            raise ValueError(f"expected {_NUMBERS[kind]} numbers in {kind}(...), got {text!r}")
        if kind == "var" and len(values) < 2:
            raise ValueError(f"expected two or more numbers in {kind}(...), got {text!r}")
        # An axis without categories can only grow.
        if kind in ("cat", "str") and not values:
            flags |= {"growth"}
        return cls(match["name"], kind, values, flags)

    def axis(self) -> Any:
        """Return the axis of hist.

        Raises
        ------
        ValueError
            As the axis does.
        """
        hist, bh = import_module("hist"), import_module("boost_histogram")
        options: dict[str, Any] = {flag: True for flag in ("circular", "growth") if flag in self.flags}
        for side in ("underflow", "overflow"):
            if f"no_{side}" in self.flags:
                options[side] = False
        if "log" in self.flags or "sqrt" in self.flags:
            transforms = bh.axis.transform
            options["transform"] = transforms.log if "log" in self.flags else transforms.sqrt
        try:
            if self.kind == "reg":
                return hist.axis.Regular(int(self.values[0]), *self.values[1:], name=self.name, **options)
            if self.kind == "int":
                return hist.axis.Integer(*self.values, name=self.name, **options)
            if self.kind == "bool":
                return hist.axis.Boolean(name=self.name)
            kind = {"var": hist.axis.Variable, "cat": hist.axis.IntCategory, "str": hist.axis.StrCategory}[self.kind]
            return kind(list(self.values), name=self.name, **options)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"--axis {self.name}: {error}") from error


def filled(
    tables: Sequence[Table],
    specs: Sequence[AxisSpec],
    storage: str,
    weight: str | None,
    sample: str | None,
    condition: Condition | None,
    progress: Callable[[float], None],
) -> tuple[Any, int]:
    """Return the histogram of all rows, and how many rows were left out because one of their columns is missing.

    Parameters
    ----------
    tables : sequence of Table
        Of the same columns.
    specs : sequence of AxisSpec
        The axes.
    storage : str
        Of `STORAGES`.
    weight, sample : str or None
        Columns.
    condition : Condition or None
        Which rows count.
    progress : callable
        Called with the part of all files that has been read.

    Raises
    ------
    TableError, ValueError
        If a column is no such one, or an axis cannot be.
    """
    import clhist.hist as objects

    hist = import_module("hist")
    # Classes such as AtomicInt64 are found without regard to case and underscores.
    kinds = {name.replace("_", ""): name for name in dir(hist.storage)}
    of_storage = next(kind for name, kind in kinds.items() if name.lower() == storage.replace("_", ""))
    h = hist.Hist(*(spec.axis() for spec in specs), storage=getattr(hist.storage, of_storage)())
    # Filler refuses Regular and Variable axes that grow.
    grows = any(spec.kind in ("reg", "var") and "growth" in spec.flags for spec in specs)
    filler = objects.Hist(h) if grows else objects.Filler(h)
    missing = 0
    for columns, rows in _columns(tables, specs, weight, sample, condition, progress):
        missing += rows
        args = [_as_column(columns[spec.name], spec) for spec in specs]
        names = (("weight", weight), ("sample", sample))
        options: dict[str, Any] = {name: columns[column] for name, column in names if column}
        if len(args[0]):
            filler.fill(*args, **options)
    return (filler if grows else filler.result()), missing


def _columns(
    tables: Sequence[Table],
    specs: Sequence[AxisSpec],
    weight: str | None,
    sample: str | None,
    condition: Condition | None,
    progress: Callable[[float], None],
) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield the columns of the rows that count, and the number of rows with something missing."""
    # Axes of texts read their columns as keys, other axes as numbers.
    keys = tuple(dict.fromkeys(spec.name for spec in specs if spec.kind == "str"))
    wanted = [*(spec.name for spec in specs if spec.kind != "str"), weight, sample]
    wanted += condition.names if condition else ()
    numbers = tuple(dict.fromkeys(name for name in wanted if name is not None))
    seen = 0
    for n, table in enumerate(tables):
        for chunk in table.chunks(numbers, keys):
            seen += rows_of(chunk)
            yield _counted(chunk, condition)
            progress((n + chunk.done) / len(tables))
    if not seen:
        raise TableError(f"{', '.join(str(table.path) for table in tables)}: expected rows, got none")


def _counted(chunk: Chunk, condition: Condition | None) -> tuple[dict[str, Array], int]:
    there = present(chunk)
    missing = len(there) - int(np.count_nonzero(there))
    if condition is not None:
        there = there & np.broadcast_to(condition(chunk.columns), there.shape)
    columns = {name: _in_dtype(array) for name, array in chunk.columns.items()}
    columns |= {name: chunk.texts(name) for name in chunk.keys}
    if there.all():
        return columns, missing
    return {name: array[there] for name, array in columns.items()}, missing


def _in_dtype(array: Array) -> Array:
    """Return a column in a dtype that axes take: Python's integers, which conditions compute with, as floats."""
    return array.astype(np.float64) if array.dtype.hasobject else array


def _as_column(array: Array, spec: AxisSpec) -> Array:
    """Return a column as its axis takes it: text files have floats for integers."""
    if spec.kind == "str":
        return array.astype(str)
    if spec.kind in ("reg", "var") or array.dtype.kind != "f":
        return array
    # Floats without an integer convert to an undefined one, which the comparison finds.
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    if not np.array_equal(whole, array):
        raise TableError(f"{spec.name}: expected integers for {spec.kind}(...), got other numbers")
    return whole


def write(h: Any, path: Path) -> None:
    """Write a histogram as UHI has it, in the format that the ending of the file says.

    Raises
    ------
    ImportError
        If a library that the format needs is not installed.
    """
    ending = path.suffix.lower()
    io = {".json": "json", ".zip": "zip", ".root": "root"}.get(ending, "hdf5")
    if io == "root":
        try:
            module, uproot = import_module("uhi.io.uproot"), import_module("uproot")
        except ImportError as error:
            raise ImportError(f"{path}: needs {error.name}; pip install 'uhi[uproot]'") from error
        with uproot.recreate(path) as file:
            module.write(file, "histogram", h)
        return
    try:
        module = import_module(f"uhi.io.{io}")
        library = import_module({"hdf5": "h5py"}.get(io, "zipfile"))
    except ImportError as error:
        raise ImportError(f"{path}: needs {error.name}; pip install {error.name}") from error
    if io == "json":
        path.write_text(as_json(h) + "\n", encoding="utf-8")
    elif io == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            module.write(archive, "histogram", h)
    else:
        with library.File(path, "w") as file:
            module.write(file.create_group("histogram"), h)


def as_json(h: Any) -> str:
    """Return a histogram as JSON, as UHI has it."""
    return json.dumps(h, default=import_module("uhi.io.json").default, indent=1)


def report(h: Any, missing: int, what: str) -> str:
    """Return the histogram in words, and its bins, which hold `what`, if it is of one or two dimensions."""
    lines = [*(escaped(repr(axis)) for axis in h.axes), f"storage: {h.storage_type.__name__}"]
    if missing:
        lines.append(f"{missing:,} rows left out, in which something is missing")
    values = h.values()
    if h.ndim > 2 or not values.size:
        return "\n".join(lines)
    names, what = [escaped(ax.name) for ax in h.axes], escaped(what)
    if h.ndim == 1:
        lines += ["", f"{what} by {names[0]}", *_bins(h.axes[0], values, h.kind), *_outside(h)]
    elif any(map(_has_labels, h.axes)):  # bars of the other axis for each label
        by, other = (0, 1) if _has_labels(h.axes[0]) else (1, 0)
        for label, row in zip(h.axes[by], values if by == 0 else values.T, strict=True):
            lines += [
                "",
                f"{what} by {names[other]}, {names[by]} = {escaped(str(label))}",
                *_bins(h.axes[other], row, h.kind),
            ]
    else:
        edges = [np.asarray(ax.edges) for ax in h.axes]
        lines += ["", f"{what} by {names[0]} (down) and {names[1]} (right)", *picture(edges, values)]
    return "\n".join(lines)


def _bins(ax: Any, values: Any, kind: str) -> list[str]:
    """Return a line for each bin of an axis, or for some of them together."""
    if _has_labels(ax):
        return labelled_bars([escaped(str(label)) for label in ax], values, unicode=shows_unicode())
    return bars(np.asarray(ax.edges), values, unicode=shows_unicode(), add=kind == "COUNT")


def _outside(h: Any) -> list[str]:
    """Return a line of what lies outside the bins of the only axis, if anything does."""
    flow, traits = h.values(flow=True), h.axes[0].traits
    sides = [("below", flow[0])] * traits.underflow + [("above or NaN", flow[-1])] * traits.overflow
    if h.kind != "COUNT" or not any(value for _, value in sides):
        return []
    return [", ".join(f"{value:,.6g} {side}" for side, value in sides)]


def _has_labels(ax: Any) -> bool:
    return not ax.traits.continuous and not ax.traits.ordered


def draw(h: Any, path: Path, what: str, specs: Sequence[AxisSpec]) -> None:
    """Write a plot of one or two dimensions.

    Parameters
    ----------
    h : hist.Hist
        The histogram.
    path : Path
        The picture.
    what : str
        What its bins hold, such as "count".
    specs : sequence of AxisSpec
        The axes, as the command line has them.

    Raises
    ------
    click.UsageError
        If the histogram has more dimensions.
    """
    from clhist.cli.cases.options import figure

    if h.ndim > 2:
        raise click.UsageError(f"--plot: expected one or two --axis, got {h.ndim}")
    values = np.asarray(h.values(), np.float64)
    is_mean = h.kind != "COUNT"
    if is_mean:
        # An empty bin has no mean.
        values = np.where(h.counts() > 0, values, np.nan)
    with figure(path, figsize=(8, 5)) as drawing:
        ax = drawing.subplots()
        if h.ndim == 2:
            mesh = ax.pcolormesh(*map(_plot_edges, h.axes), np.ma.masked_invalid(values.T))
            drawing.colorbar(mesh, label=what)
        elif _has_labels(h.axes[0]):
            ax.plot(np.arange(len(values)), values, "o") if is_mean else ax.bar(np.arange(len(values)), values)
        else:
            # Without a baseline the ends of a profile do not drop to 0.
            ax.stairs(values, h.axes[0].edges, baseline=None if is_mean else 0)
        if h.ndim == 1:
            ax.set_ylabel(what)
        for axis, of_plot, set_scale, spec in zip(
            h.axes, (ax.xaxis, ax.yaxis), (ax.set_xscale, ax.set_yscale), specs, strict=False
        ):
            of_plot.set_label_text(spec.name)
            if _has_labels(axis):
                of_plot.set_ticks(np.arange(len(axis)), [str(label) for label in axis])
            elif "log" in spec.flags:
                set_scale("log")


def _plot_edges(axis: Any) -> Array:
    """Return the edges of bins in a plot, where labels have numbers from 0 on."""
    return np.arange(len(axis) + 1) - 0.5 if _has_labels(axis) else np.asarray(axis.edges)
