"""`clhist plan`: how a histogram would be computed, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from decimal import Decimal
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from clhist import operators
from clhist._core.devices.profile import MEMORY_FRACTION, Profile, named_profile
from clhist._core.devices.vendors import expected_features
from clhist._core.kernels.from_plan import programs_of
from clhist._core.kernels.render import render_programs
from clhist._core.kernels.source import Source
from clhist._core.model.choose import plan_sweep
from clhist._core.model.plan import Plan, unheeded
from clhist._core.model.problem import PLACES, Choices, Histogram, Problem, check_choices
from clhist._core.model.scaling import rates_of
from clhist._core.model.sweeps import is_worth_joining, join_sweeps, plan_sweeps
from clhist._core.model.updates import FORCEABLE, SORT, useful_copies
from clhist._core.model.workload import Workload
from clhist.cli.console import Console, InputError, completed, shared_options
from clhist.cli.paper_table import table_1, table_1_records
from clhist.cli.plan_text import PlannedSweep, show
from clhist.errors import NoDeviceError
from clhist.operators.operator import Operator

_NUMBER = re.compile(r"(-?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(?:\.\d+)?(?:e\+?\d{1,2})?) ?(?:([kmgt])(i?)b?|b)?", re.I)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Number(click.ParamType):
    """A whole number as people write it: ``50000000``, ``50_000_000``, ``50,000,000``, ``50M``, ``5e7``, ``64MiB``."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _NUMBER.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"expected a number such as 50000000, 50M, 5e7 or 64MiB, got {value!r}", param, ctx)
        digits, letter, binary = match[1].replace(",", "").replace("_", ""), match[2] or "", match[3]
        # Decimal is exact for 1.5M or 5e7.
        number = Decimal(digits) * (1024 if binary else 1000) ** _POWERS[letter.lower()]
        if number != int(number):
            self.fail(f"expected a whole number, got {value!r}", param, ctx)
        if abs(number) >= 2**63:
            self.fail(f"expected less than 2^63, got {value!r}", param, ctx)
        return int(number)


class Size(Number):
    """A number that elements and bins may have: they are counted in an int32."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = super().convert(value, param, ctx)
        if not 1 <= number < 2**31:
            self.fail(f"expected a number from 1 to 2^31 - 1, got {value}", param, ctx)
        return number


NUMBER = Number()
SIZE = Size()
if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # click 8.1 has no type parameters


class OneOf(_Choice):
    """One of some values, which need not be texts."""

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__([str(value) for value in values])
        self.kind = type(values[0])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.kind(super().convert(str(value), param, ctx))


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each of the `Choices` that has no other meaning here than in a call."""
    # Decorators apply from the last one on, so this keeps the order of the fields in the help.
    for choice in reversed(fields(Choices)):
        metadata = choice.metadata
        if "help" not in metadata or choice.name == "memory":
            continue
        name = f"--{choice.name.replace('_', '-')}"
        kind = OneOf(metadata["values"]) if "values" in metadata else NUMBER
        command = click.option(name, type=kind, metavar=metadata.get("letter"), help=metadata["help"])(command)
    return command


# Those that need nothing but a dtype.
_OPERATORS = tuple(name for name in operators.__all__ if name not in ("as_operator", "product", "saturating_add"))


@click.command()
@click.option("-n", "--num-elements", type=NUMBER, metavar="N", help="Elements of the input: 50M, 1e6.  [required]")
@click.option(
    "-H",
    "--num-bins",
    type=NUMBER,
    multiple=True,
    metavar="BINS",
    help="Bins of the histogram. Repeat for several histograms in one call.  [required]",
)
@click.option(
    "--histograms",
    type=NUMBER,
    metavar="N_OUT",
    help="Plan a batch: N_OUT histograms with equal shares of the elements.",
)
@click.option(
    "--op",
    "ops",
    multiple=True,
    metavar="OPERATOR",
    shell_complete=completed(lambda: _OPERATORS),
    help="Operator: add, maximum, argmax, count, mean, any function of clhist.operators that needs only a dtype, or C "
    "such as 'a + b'. Repeat for several histograms.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="DTYPE",
    help="Type of the values of --op. Repeat for several histograms. [default: int32, or float32 where it must be]",
)
@click.option(
    "--update",
    type=click.Choice(FORCEABLE),
    help="With --op: force the update. Without: the update of shared copies; private forces one copy per work-item, "
    "sort forces sorting. [default: native]",
)
@click.option(
    "--memory", type=click.Choice((*PLACES, "auto")), default="auto", show_default=True, help="Memory of the copies."
)
@click.option(
    "--race-factor",
    type=float,
    default=1.0,
    show_default=True,
    metavar="RF",
    help="Race factor: BINS consecutive elements touch BINS / RF distinct bins.",
)
@click.option(
    "--element-size",
    type=NUMBER,
    default=(4,),
    show_default=False,
    multiple=True,
    metavar="BYTES",
    help="Bytes per bin, without a lock's 4. Repeat for several histograms. [default: 4]",
)
@click.option(
    "--arrays",
    type=NUMBER,
    default=1,
    show_default=True,
    metavar="Q",
    help="Arrays that hold a bin's parts: 1 for scalars and structs.",
)
@click.option(
    "--memory-budget",
    type=NUMBER,
    metavar="BYTES",
    help="Limit of global memory for copies: 64MiB. [default: a quarter of the device's; of a profile where it says]",
)
@choice_options
@click.option("--counts", is_flag=True, help="Every value is 1, so two counters may share a word.")
@click.option(
    "--source",
    is_flag=True,
    help="With --op: print the OpenCL C of the plan, for arrays of bins and values. Needs no device.",
)
@click.option(
    "--paper",
    is_flag=True,
    help="Print Table I of the paper, computed by the model for the paper's device, and exit.",
)
@shared_options(applied=False)
@click.pass_context
def plan(  # noqa: PLR0913  # an option each
    context: click.Context,
    console: Console,
    num_elements: int | None,
    num_bins: tuple[int, ...],
    histograms: int | None,
    ops: tuple[str, ...],
    dtypes: tuple[str, ...],
    update: str | None,
    memory: str,
    race_factor: float,
    element_size: tuple[int, ...],
    arrays: int,
    memory_budget: int | None,
    counts: bool,
    source: bool,
    paper: bool,
    **forced: Any,
) -> None:
    """Show how a histogram is computed, and why.

    Evaluates the cost model of SC'20 (Henriksen, Hellfritzsch, Sadayappan, Oancea: Compiling Generalized Histograms for
    GPU, section III) step by step: copies, passes, and their memory. With --profile no OpenCL is needed.

    The plan is that of clhist.reduce_by_index, and so is the note on few elements, which NumPy computes; `clhist info
    -v` shows from how many elements on a device computes each function.

    \b
    Example: the plan of clhist.reduce_by_index(..., np.add, ...) with float32
      clhist plan -n 50M -H 12281 --op add --dtype float32

    \b
    An entry of the paper's Table I, 138 copies in one pass:
      clhist plan -n 50M -H 12281 --update cas --memory global \\
          --race-factor 63 --profile nvidia-geforce-rtx-2080-ti

    \b
    The whole table, without clhist's own limits on copies:
      clhist plan --paper

    \b
    Counts and sums of k-means in one sweep, and a thousand small histograms:
      clhist plan -n 25600000 -H 1024 -H 262144 --profile nvidia-h200
      clhist plan -n 10M -H 256 --histograms 1000 --profile nvidia-h200
    """
    if paper:
        console.report(table_1_records(), table_1)
        return
    # Required only here, since --paper needs neither.
    for option in context.command.params:
        if option.name in ("num_elements", "num_bins") and context.params[option.name] in (None, ()):
            raise click.MissingParameter(ctx=context, param=option)
    assert num_elements is not None
    if (dtypes or source) and not ops:
        raise click.UsageError(f"{'--dtype' if dtypes else '--source'} needs --op")
    device, default_budget, most_work_items, opencl_device = _device(console)
    budget = default_budget if memory_budget is None else memory_budget
    programs: list[dict[str, object]] = []
    requested: tuple[Histogram, ...] = ()
    with _named_options():
        choices = Choices(update, None if memory == "auto" else memory, **forced)
        check_choices(choices, most_work_items, device.name)
        if ops:
            requested = _histograms(ops, dtypes, num_bins, counts)
            # A pair is read as a bin of 4 bytes and, unless all values are 1, a value.
            problem = Problem(
                requested, num_elements, histograms, race_factor=race_factor, choices=choices, memory_budget=budget,
                read_bytes=4 + sum(0 if h.counts else h.operator.dtype.itemsize for h in requested),
            )  # fmt: skip
            plans = plan_sweeps(problem, device)
            sweeps = [_sweep(plan) for plan in plans]
            title = "operator" + "s"[: len(requested) != 1] + f" {', '.join(_name(h) for h in requested)}"
            if source:
                programs = _programs(requested, plans, device)
        else:
            sizes = _each("--element-size", element_size, len(num_bins))
            numbers = _Numbers(
                num_elements, num_bins, histograms, update, race_factor, sizes, arrays, budget, counts, choices, device
            )
            sweeps = numbers.sweeps()
            title = "update " + " and ".join(dict.fromkeys(sweep.plan.update for sweep in sweeps))
    notes = _notes(choices, sweeps, requested)
    if opencl_device is not None:
        notes += _left_to_host(opencl_device, num_elements, (histograms or 1) * sum(num_bins), requested)

    def text() -> str:
        if source:
            return "\n".join(f"// === {program['program']}\n{program['source']}" for program in programs)
        return show(sweeps, num_elements, num_bins, histograms, race_factor, device, title, notes)

    record = _document(sweeps, budget) | {"rates": rates_of(device).source or "measured"}
    console.report(record | ({"notes": notes} if notes else {}) | ({"sources": programs} if source else {}), text)


@contextmanager
def _named_options() -> Iterator[None]:
    """Have errors of numbers name options as they are on the command line."""
    names = {"bin_bytes": "element_size", "num_histograms": "histograms"}
    try:
        yield
    except (ValueError, MemoryError) as error:
        # Errors of the library begin with the name of the parameter.
        name, colon, rest = str(error).partition(": ")
        parameters = {parameter.name for parameter in plan.params} | set(names)
        if not colon or name not in parameters:
            raise
        option = f"--{names.get(name, name).replace('_', '-')}"
        raise InputError(f"{option}: {rest}") from error


def _notes(choices: Choices, sweeps: Sequence[PlannedSweep], histograms: Sequence[Histogram]) -> list[str]:
    """Return the warnings and additional checks of a call."""
    texts = [text.partition(":") for text in unheeded(choices, [sweep.plan for sweep in sweeps])]
    notes = [f"--{name.replace('_', '-')}:{rest}" for name, _, rest in texts]
    notes += [
        f"--op: {histogram.operator.name!r} is not verified here: a call checks that its operator is associative and "
        "commutative, and that its identity changes nothing"
        for histogram in histograms
        if histogram.operator.is_custom
    ]
    return notes


def _programs(histograms: Sequence[Histogram], plans: Sequence[Plan], device: Profile) -> list[dict[str, object]]:
    """Return the programs of plans for arrays of bins and values, as a call on them has."""
    arguments, emits = ["const int *bins"], []
    for histogram in histograms:
        arguments += [] if histogram.counts else [f"const value{histogram.suffix}_t *values{histogram.suffix}"]
        emits.append(f"EMIT{histogram.suffix}(bins[i], {'1' if histogram.counts else f'values{histogram.suffix}[i]'})")
    operators_, suffixes = [h.operator for h in histograms], [h.suffix for h in histograms]
    text = Source.of(", ".join(arguments), "; ".join(emits), operators_, suffixes)
    return [
        {"program": " ".join((name, *options)), "source": source}
        for plan in plans
        for name, source, options in render_programs(programs_of(plan, text, device, aligned=True))
    ]


class _Numbers(NamedTuple):
    """A call by its numbers alone, without operators: the options of the same names."""

    num_elements: int
    num_bins: tuple[int, ...]
    histograms: int | None
    update: str | None
    race_factor: float
    sizes: tuple[int, ...]
    arrays: int
    budget: int | None
    counts: bool
    choices: Choices
    device: Profile

    def sweeps(self) -> list[PlannedSweep]:
        return join_sweeps([self._sweep_of((k,)) for k in range(len(self.num_bins))], self._join)

    def _sweep_of(self, members: tuple[int, ...]) -> PlannedSweep:
        update, choices, sizes, single = self.update, self.choices, self.sizes, len(members) == 1
        shared = "native" if update in (None, "private", SORT) else str(update)
        if shared == update:
            # The update is that of work-items that share a copy; other plans are not forced to use it.
            choices = replace(choices, update=None)
        # Counters of fewer bits, and rates of one kind of bin, are for a sweep with a single histogram.
        load = Workload(
            size=self.num_elements,
            bins=tuple(self.num_bins[k] for k in members),
            profile=self.device,
            local_update=shared,
            global_update=shared,
            bin_bytes=tuple(sizes[k] for k in members),
            arrays=self.arrays,
            race_factor=self.race_factor,
            choices=choices,
            memory_budget=self.budget,
            num_histograms=self.histograms,
            max_pairs=1 if single else None,
            useful_copies=max(useful_copies(shared, max(1, self.num_bins[k])) for k in members),
            counts=self.counts and shared == "native" and sizes[members[0]] == 4 and single,
            value_bytes=0 if self.counts else sizes[members[0]],
            rate_kinds=((_rate_kind(shared, sizes[members[0]]),),) * 2 if single else ((), ()),
        )
        return PlannedSweep(members, plan_sweep(load), load.bin_bytes, self.arrays)

    def _join(self, first: PlannedSweep, second: PlannedSweep) -> PlannedSweep | None:
        # Sorting orders the pairs of one histogram, and shares no sweep.
        if SORT in (first.plan.update, second.plan.update):
            return None
        try:
            joint = self._sweep_of(first.members + second.members)
        except (ValueError, MemoryError):  # does not fit
            return None
        return joint if is_worth_joining(joint.plan, first.plan, second.plan) else None


def _document(sweeps: list[PlannedSweep], budget: int | None) -> dict[str, object]:
    """Return the plans for JSON: one as it is, several as a list."""
    records = [sweep.record() | {"memory_budget": budget, "element_size": sweep.sizes} for sweep in sweeps]
    if len(sweeps) == 1 and len(sweeps[0].members) == 1:
        return records[0] | {"element_size": sweeps[0].sizes[0]}
    members = [{"histograms": sweep.members} for sweep in sweeps]
    return {"sweeps": [one | record for one, record in zip(members, records, strict=True)]}


def _histograms(
    ops: tuple[str, ...], dtypes: tuple[str, ...], num_bins: tuple[int, ...], counts: bool
) -> tuple[Histogram, ...]:
    """Return the histograms of a call with these operators."""
    number = len(num_bins)
    names = _each("--op", ops, number)
    kinds = _each("--dtype", dtypes, number) if dtypes else [_own_dtype(name) for name in names]
    suffixes = [f"{k}" if number > 1 else "" for k in range(number)]
    return tuple(
        Histogram(_operator(name, dtype), bins, suffix, 1, "1" if counts or name == "count" else None)
        for name, dtype, bins, suffix in zip(names, kinds, num_bins, suffixes, strict=True)
    )


def _own_dtype(name: str) -> str:
    """Return int32, or float32 for what integers do not have, such as means."""
    try:
        _operator(name, "int32")
    except click.BadParameter:
        return "float32"
    return "int32"


def _operator(name: str, dtype: str) -> Operator:
    try:
        np.dtype(dtype)
    except TypeError as error:
        raise click.BadParameter(
            f"expected a NumPy dtype such as float32, got {dtype!r}", param_hint="--dtype"
        ) from error
    try:
        if name in _OPERATORS:
            return getattr(operators, name)(dtype)
        # A word is a misspelt name; anything else may be a C expression.
        if name.isidentifier():
            from difflib import get_close_matches

            close = get_close_matches(name, _OPERATORS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            expected = f"{', '.join(_OPERATORS)}, or a C expression of a and b"
            raise click.BadParameter(f"expected one of {expected}; got {name!r}.{hint}", param_hint="--op")
        return operators.as_operator(name, dtype)
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--op") from error


def _name(histogram: Histogram) -> str:
    return f"{histogram.operator.name} of {histogram.operator.dtype}"


def _each(option: str, values: tuple, number: int) -> tuple:
    """Return one of `values` for each of the histograms."""
    if len(values) not in (1, number):
        raise click.BadParameter(
            f"expected one, or one for each of {number} histograms, got {len(values)}", param_hint=option
        )
    return values * (number // len(values))


def _sweep(plan: Plan) -> PlannedSweep:
    sizes = tuple(output.operator.bin_bytes for output in plan.outputs)
    return PlannedSweep(plan.output_indices, plan, sizes, max(len(output.operator.parts) for output in plan.outputs))


def _rate_kind(update: str, element_size: int) -> str:
    """Return whose rates are used: those of integers, as far as bins are as large as these."""
    return {"native": f"native int{8 * element_size}", "cas": f"cas {8 * element_size}"}.get(update, update)


def _left_to_host(device: Any, num_elements: int, bins: int, requested: tuple[Histogram, ...]) -> list[str]:
    """Return a note if `reduce_by_index` leaves NumPy arrays of so many elements to NumPy."""
    from clhist._core.runtime.small import least_size
    from clhist.operators.host import passes

    operators = [histogram.operator for histogram in requested]
    if any(operator.host is None for operator in operators):
        return []
    elements, source = least_size("reduce_by_index", device, bins)
    least = ceil(elements / sum(map(passes, operators)) if operators else elements)
    if num_elements >= least:
        return []
    return [
        f"reduce_by_index leaves NumPy arrays of fewer than {least:,} elements to NumPy, for so many bins and if no "
        f"queue is given ({source}); kernels compute all others, as planned above. `clhist info -v` shows the "
        "threshold of each function for few bins"
    ]


def _device(console: Console) -> tuple[Profile, int | None, int | None, Any]:
    """Return the profile of a device, the bytes of copies, the greatest work-group, and the device if OpenCL has it.

    A named profile needs no OpenCL: its data sheet has the device's memory, a quarter of which copies may take.
    """
    if console.profile is not None:
        named = named_profile(console.profile)
        memory = named.data_sheet.get("global_memory")
        most = None if named.kind == "cpu" else named.work_group_size
        # Without the device its features are those that its kind and name let expect.
        profile = replace(named, features=expected_features(named.kind, named.name))
        return profile, memory // MEMORY_FRACTION if memory else None, most, None
    from clhist._core.opencl.device import default_queue, device_profile, devices, memory_budget

    try:
        name = console.device or console.platform
        device = devices(console.platform, console.device)[0] if name else default_queue().device
    except NoDeviceError as error:
        raise NoDeviceError(f"{error}; or name a device: --profile nvidia-h200") from error
    return device_profile(device), memory_budget(device), device.max_work_group_size, device
