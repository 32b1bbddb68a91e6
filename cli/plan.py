"""`clhist plan`: how a histogram would be computed, and why."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from decimal import Decimal

import click

from clhist.cli.main import bytes_text, table
from clhist.errors import NoDeviceError
from clhist.hardware.atomics import PLACES, STRATEGIES, enough_copies
from clhist.hardware.profile import Profile, named_profile
from clhist.hardware.profile_files import PARAMETERS, load_profiles
from clhist.planning import equations as model_equations
from clhist.planning.choose import PREDICTED
from clhist.planning.choose import plan as make_plan
from clhist.planning.plan import LOCK_BYTES, Forced, Plan, Step, sort_bytes
from clhist.planning.sweeps import grouped, pays

_NUMBER = re.compile(r"(-?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(?:\.\d+)?(?:e\+?\d{1,2})?) ?(?:([kmgt])(i?)b?|b)?", re.I)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UPDATE_WORDS = {
    "private": "a work-item owns its copy: no atomic",
    "native": "a hardware atomic, HDW in the paper",
    "cas": "a loop of compare and exchange, CAS in the paper",
    "lock": "a spinlock for each bin, XCG in the paper",
    "sort": "pairs are sorted by bin and scanned, Listing 4 of the paper",
}


class Number(click.ParamType):
    """A whole number as people write it: ``50000000``, ``50_000_000``, ``50,000,000``, ``50M``, ``5e7``, ``64MiB``."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _NUMBER.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"expected a number such as 50000000, 50M, 5e7 or 64MiB, got {value!r}", param, ctx)
        digits, letter, binary = found[1].replace(",", "").replace("_", ""), found[2] or "", found[3]
        number = Decimal(digits) * (1024 if binary else 1000) ** _POWERS[letter.lower()]
        if number != int(number):
            self.fail(f"expected a whole number, got {value!r}", param, ctx)
        if abs(number) >= 2**63:
            self.fail(f"expected less than 2^63, got {value!r}", param, ctx)
        return int(number)


NUMBER = Number()


@click.command()
@click.option("-n", "--num-elements", type=NUMBER, required=True, metavar="N", help="Elements of the input: 50M, 1e6.")
@click.option(
    "-H",
    "--num-bins",
    type=NUMBER,
    required=True,
    multiple=True,
    metavar="BINS",
    help="Bins of the histogram. Several times for several histograms that one call fills.",
)
@click.option(
    "--histograms",
    type=NUMBER,
    metavar="N_OUT",
    help="A batch: the elements belong in equal shares to so many histograms of as many bins.",
)
@click.option(
    "--update",
    type=click.Choice(STRATEGIES),
    default="native",
    show_default=True,
    help="How work-items that share a copy update a bin. Where none share one, the model takes private; "
    "private forces a copy for each work-item, sort that the pairs are sorted.",
)
@click.option(
    "--memory",
    type=click.Choice((*PLACES, "auto")),
    default="auto",
    show_default=True,
    help="Where the copies are.",
)
@click.option(
    "--race-factor",
    type=float,
    default=1.0,
    show_default=True,
    metavar="RF",
    help="A run of BINS elements touches BINS / RF distinct bins.",
)
@click.option(
    "--profile",
    metavar="NAME",
    help="The device, by its name or that of its file: no OpenCL is needed then. [default: the default device]",
)
@click.option(
    "--element-size",
    type=NUMBER,
    default=(4,),
    show_default="4",
    multiple=True,
    metavar="BYTES",
    help="Bytes of one bin; lock adds its own 4. Several times for several histograms.",
)
@click.option(
    "--arrays",
    type=NUMBER,
    default=1,
    show_default=True,
    metavar="Q",
    help="Arrays that a bin's parts lie in: 1 for scalars and structs.",
)
@click.option(
    "--memory-budget",
    type=NUMBER,
    metavar="BYTES",
    help="What copies may take of global memory: 64MiB. [default: a quarter of the device's; with --profile unlimited]",
)
@click.option("--copies", type=NUMBER, metavar="M", help="Force the number of copies.")
@click.option("--passes", type=NUMBER, metavar="S", help="Force the number of passes.")
@click.option("--work-group-size", type=NUMBER, metavar="B", help="Force the size of work-groups.")
@click.option("--locks", type=NUMBER, metavar="LOCKS", help="Locks that all bins share. [default: one for each bin]")
@click.option("--counts", is_flag=True, help="Every value is 1, so that two counters may share a word.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    num_elements: int,
    num_bins: tuple[int, ...],
    histograms: int | None,
    update: str,
    memory: str,
    race_factor: float,
    profile: str | None,
    element_size: tuple[int, ...],
    arrays: int,
    memory_budget: int | None,
    copies: int | None,
    passes: int | None,
    work_group_size: int | None,
    locks: int | None,
    counts: bool,
    as_json: bool,
) -> None:
    """Show how a histogram would be computed, and how that comes about.

    Computes the model of SC'20 (Henriksen, Hellfritzsch, Sadayappan, Oancea: Compiling Generalized Histograms for GPU,
    section III) step by step: copies, passes, and in which memory.

    \b
    Example: an entry of the paper's Table I, 138 copies in one pass
      clhist plan -n 50M -H 12281 --update cas --memory global \\
          --race-factor 63 --profile nvidia-geforce-rtx-2080-ti

    \b
    Counts and sums of k-means at once, and a thousand small histograms:
      clhist plan -n 25600000 -H 1024 -H 262144 --profile nvidia-h200
      clhist plan -n 10M -H 256 --histograms 1000 --profile nvidia-h200
    """
    if profile is None:
        numbers, default_budget = _default_device()
    else:
        numbers, default_budget = named_profile(profile, load_profiles()), None
    budget = default_budget if memory_budget is None else memory_budget
    if len(element_size) not in (1, len(num_bins)):
        raise click.BadParameter(
            f"expected one, or one for each of {len(num_bins)} histograms, got {len(element_size)}",
            param_hint="--element-size",
        )
    sizes = element_size * (len(num_bins) // len(element_size))
    whole = update in ("private", "sort")  # strategies rather than updates of shared copies
    shared = "native" if whole else update
    forced = Forced(
        update if whole else None,
        None if memory == "auto" else memory,
        copies,
        passes,
        work_group_size,
        locks,
    )

    def sweep_of(members: tuple[int, ...]) -> _Sweep:
        chosen = make_plan(
            num_elements,
            tuple(num_bins[k] for k in members),
            numbers,
            local_update=shared,
            global_update=shared,
            bin_bytes=tuple(sizes[k] for k in members),
            arrays=arrays,
            race_factor=race_factor,
            forced=forced,
            memory_budget=budget,
            num_histograms=histograms,
            most_emits=1 if len(members) == 1 else None,
            enough_copies=max(enough_copies(shared, max(1, num_bins[k])) for k in members),
            counts=counts and shared == "native" and sizes[members[0]] == 4 and len(members) == 1,
            value_bytes=0 if counts else sizes[members[0]],
            kinds=(_kind(shared, sizes[members[0]]),) * 2 if len(members) == 1 else ("", ""),
        )
        return _Sweep(members, chosen, tuple(sizes[k] for k in members))

    def join(first: _Sweep, second: _Sweep) -> _Sweep | None:
        if "sort" in (first.plan.update, second.plan.update):
            return None
        try:
            joint = sweep_of(first.members + second.members)
        except (ValueError, MemoryError):  # does not fit
            return None
        return joint if pays(joint.plan, first.plan, second.plan) else None

    sweeps = grouped([sweep_of((k,)) for k in range(len(num_bins))], join)
    if as_json:
        given = {"arrays": arrays, "memory_budget": budget}
        records = [_record(sweep) | given | {"element_size": sweep.sizes} for sweep in sweeps]
        if len(num_bins) == 1:
            result = records[0] | {"element_size": sizes[0]}
        else:
            members = [{"histograms": sweep.members} for sweep in sweeps]
            result = {"sweeps": [one | record for one, record in zip(members, records, strict=True)]}
        click.echo(json.dumps(result, indent=2, allow_nan=False))
        return
    constants = [
        ("RF", _value(race_factor), "race factor: H consecutive elements touch H / RF distinct bins"),
        *((letter, _value(number), text) for letter, number, text in _numbers(numbers)),
        ("k_RF", _value(model_equations.K_RF), "constant (III-D)"),
        ("F_L2", _value(model_equations.F_L2), "constant (III-D)"),
        ("k_ct_min", _value(model_equations.K_CT_MIN), "constant (III-D)"),
    ]
    batch = "" if histograms is None else f"{histograms:,} histograms of "
    bins = " + ".join(f"{n:,}" for n in num_bins)
    click.echo(f"{num_elements:,} elements into {batch}{bins} bins on {numbers.name}, update {update}")
    for number, sweep in enumerate(sweeps, start=1):
        title = ""
        if len(num_bins) > 1:
            which = " and ".join(f"{num_bins[k]:,}" for k in sweep.members)
            title = (
                f"\nSweep {number} of {len(sweeps)}: the histogram{'s'[: len(sweep.members) != 1]} of {which} bins\n"
            )
        click.echo(title)
        click.echo("Given\n" + table([*_given(sweep, shared, arrays, histograms), *constants], right=(1,)))
        for heading, steps in _stages(sweep.plan):
            rows = [(step.symbol, _value(step.value), step.equation, step.formula) for step in steps]
            click.echo(f"\n{heading}\n" + table([("", "", "SC'20", ""), *rows], right=(1,)))
        click.echo("\nPlan\n" + table(_result(sweep.plan, *_copy_bytes(sweep))))


def _kind(update: str, element_size: int) -> str:
    """Return whose rates are used: those of integers, as far as bins are as large as these."""
    return {"native": f"native int{8 * element_size}", "cas": f"cas {8 * element_size}"}.get(update, update)


@dataclass(frozen=True)
class _Sweep:
    """One sweep: which of the histograms it fills, how, and the bytes of a bin of each."""

    members: tuple[int, ...]
    plan: Plan
    sizes: tuple[int, ...]


def _record(sweep: _Sweep) -> dict[str, object]:
    local, everywhere = _copy_bytes(sweep)
    return asdict(sweep.plan) | {"local_bytes": local, "global_bytes": everywhere}


def _given(sweep: _Sweep, update: str, arrays: int, histograms: int | None) -> list[tuple[str, str, str]]:
    """Return letter, value and meaning of what a sweep is planned from; of several histograms the sum and the mean."""
    lock = LOCK_BYTES if update == "lock" and sweep.plan.locks is None else 0
    size = sum(n * (each + lock) for n, each in zip(sweep.plan.bins, sweep.sizes, strict=True)) / sweep.plan.num_bins
    several = len(sweep.members) > 1
    rows = [
        ("N", _value(sweep.plan.num_elements), "elements"),
        ("H", _value(sweep.plan.num_bins), "bins" + (" of all of them" if several else "")),
        ("elsize", _value(size), "bytes of a bin" + (", 4 of them its lock" if lock else "")),
        ("avg", _value(size / (arrays + bool(lock))), "elsize / arrays that it is laid out in"),
    ]
    if histograms is not None:
        rows.insert(1, ("N_out", _value(histograms), "histograms of a batch"))
    return rows


def _default_device() -> tuple[Profile, int]:
    """Return the numbers of the default device, and what copies may take of its memory."""
    from clhist.opencl.device import default_queue, device_profile, memory_budget

    try:
        device = default_queue().device
    except NoDeviceError as error:
        raise NoDeviceError(f"{error}; or name a device: --profile nvidia-h200") from error
    return device_profile(device), memory_budget(device)


def _numbers(profile: Profile) -> list[tuple[str, int, str]]:
    """Return letter, value and meaning of each of the device's numbers."""
    return [
        (letter, getattr(profile, key), text)
        for key, (letter, _, text) in ((key, text.partition(": ")) for key, text in PARAMETERS.items())
    ]


def _stages(chosen: Plan) -> list[tuple[str, list[Step]]]:
    """Return the steps under titles: those for local memory end where its passes are compared with their limit."""
    steps = list(chosen.steps)
    after = next((n for n, step in enumerate(steps, start=1) if step.symbol == "S_max"), 0)
    stages = [("In local memory", steps[:after])] if after else []
    predicted = [step for step in steps[after:] if step.symbol in PREDICTED]
    if predicted:
        after, steps = 0, [step for step in steps if step not in predicted]
    if steps[after:]:
        how = {"private": " (private copies)", "sort": " (sorted pairs)"}.get(chosen.update, "")
        how = " (partitioned pairs)" if chosen.partitions else how
        stages.append((f"In {chosen.memory} memory{how}", steps[after:]))
    return [*stages, *([("Predicted, in us", predicted)] if predicted else [])]


def _result(chosen: Plan, local: int, everywhere: int) -> list[tuple[str, str]]:
    owner = "in each work-group" if chosen.memory == "local" else "on the device"
    if chosen.is_batch:
        owner = "of each histogram"
    rows = [
        ("memory", chosen.memory),
        ("update", f"{chosen.update} ({_UPDATE_WORDS[chosen.update]})"),
        ("copies (M)", f"{chosen.copies:,} {owner}"),
        ("cooperation (C)", f"{chosen.cooperation:,} work-items share a copy" if chosen.cooperation > 1 else "1"),
        ("passes (S)", f"{chosen.passes:,}"),
        *[
            ("partitions (P)", f"{n:,}: the pairs are grouped by ranges of bins first")
            for n in [chosen.partitions]
            if n
        ],
        ("bins per pass (H_chk)", f"{chosen.bins_per_pass:,}"),
        ("work-groups", f"{chosen.work_groups:,} of {chosen.work_group_size:,} work-items"),
    ]
    if chosen.is_batch:
        rows.insert(-1, ("chunks (K)", f"{chosen.groups_per_histogram:,} of each histogram's elements"))
        rows.insert(-1, ("teams", f"{chosen.teams:,} in a work-group, each with one chunk at a time"))
    if chosen.locks is not None:
        rows.append(("locks", f"{chosen.locks:,} for all bins"))
    if local:
        rows.append(("local memory", f"{bytes_text(local)} of each work-group"))
    copies = "one copy" if chosen.global_copies == 1 else f"{chosen.global_copies:,} copies"
    if chosen.update == "sort":
        copies = "the pairs and one copy"
    if chosen.partitions:
        copies = f"the pairs, and {copies}"
    if chosen.seconds is not None:
        rows.append(("predicted time", f"{chosen.seconds * 1e6:,.0f} us on the device"))
    each = " of each histogram" if chosen.is_batch else ""
    return [*rows, ("global memory", f"{bytes_text(everywhere)} for {copies} of all bins{each}")]


def _copy_bytes(sweep: _Sweep) -> tuple[int, int]:
    """Return the bytes that copies take in the local memory of a work-group, and in global memory."""
    chosen = sweep.plan
    if chosen.update == "sort":
        return 0, sort_bytes(chosen.num_elements, chosen.num_bins * chosen.num_histograms, sweep.sizes[0])
    lock = LOCK_BYTES if chosen.update == "lock" and chosen.locks is None else 0
    chunk = sum(n * (size + lock) for n, size in zip(chosen.chunks(), sweep.sizes, strict=True))
    local = chosen.copies * chosen.teams * chunk if chosen.memory == "local" else 0
    one = sum(n * (size + (0 if local else lock)) for n, size in zip(chosen.bins, sweep.sizes, strict=True))
    pairs = next((int(step.value) for step in chosen.steps if step.symbol == "bytes"), 0) if chosen.partitions else 0
    return local, pairs + chosen.global_copies * chosen.num_histograms * one


def _value(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:,.6g}"
