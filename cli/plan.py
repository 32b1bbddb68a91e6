"""`clhist plan`: how a histogram would be computed, and why."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from decimal import Decimal

import click

from clhist import model
from clhist.atomics import MEMORIES, UPDATES
from clhist.cli.main import bytes_text, table
from clhist.errors import NoDeviceError
from clhist.profile import PARAMETERS, Profile, load_profiles, named_profile

_NUMBER = re.compile(r"(-?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(?:\.\d+)?(?:e\+?\d{1,2})?) ?(?:([kmgt])(i?)b?|b)?", re.I)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UPDATE_WORDS = {
    "private": "a work-item owns its copy: no atomic",
    "native": "a hardware atomic, HDW in the paper",
    "cas": "a loop of compare and exchange, CAS in the paper",
    "lock": "a spinlock for each bin, XCG in the paper",
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
@click.option("-H", "--num-bins", type=NUMBER, required=True, metavar="BINS", help="Bins of the histogram.")
@click.option(
    "--update",
    type=click.Choice(UPDATES),
    default="native",
    show_default=True,
    help="How work-items that share a copy update a bin. Where none share one, the model takes private; "
    "private forces a copy for each work-item.",
)
@click.option(
    "--memory",
    type=click.Choice((*MEMORIES, "auto")),
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
    default=4,
    show_default=True,
    metavar="BYTES",
    help="Bytes of one bin; lock adds its own 4.",
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    num_elements: int,
    num_bins: int,
    update: str,
    memory: str,
    race_factor: float,
    profile: str | None,
    element_size: int,
    arrays: int,
    memory_budget: int | None,
    copies: int | None,
    passes: int | None,
    work_group_size: int | None,
    as_json: bool,
) -> None:
    """Show how a histogram would be computed, and how that comes about.

    Computes the model of SC'20 (Henriksen, Hellfritzsch, Sadayappan, Oancea: Compiling Generalized Histograms for GPU,
    section III) step by step: copies, passes, and in which memory.

    \b
    Example: an entry of the paper's Table I, 138 copies in one pass
      clhist plan -n 50M -H 12281 --update cas --memory global \\
          --race-factor 63 --profile nvidia-geforce-rtx-2080-ti
    """
    if profile is None:
        numbers, default_budget = _default_device()
    else:
        numbers, default_budget = named_profile(profile, load_profiles()), None
    budget = default_budget if memory_budget is None else memory_budget
    shared = "native" if update == "private" else update
    chosen = model.plan(
        num_elements,
        num_bins,
        numbers,
        local_update=shared,
        global_update=shared,
        bin_bytes=element_size,
        arrays=arrays,
        race_factor=race_factor,
        forced=model.Forced(
            "private" if update == "private" else None,
            None if memory == "auto" else memory,
            copies,
            passes,
            work_group_size,
        ),
        memory_budget=budget,
    )
    local, everywhere = _copy_bytes(chosen, element_size)
    if as_json:
        sizes = {"element_size": element_size, "arrays": arrays, "memory_budget": budget}
        record = asdict(chosen) | sizes | {"local_bytes": local, "global_bytes": everywhere}
        click.echo(json.dumps(record, indent=2, allow_nan=False))
        return
    lock = model.LOCK_BYTES if shared == "lock" else 0
    given = [
        ("N", _value(num_elements), "elements"),
        ("H", _value(num_bins), "bins"),
        ("RF", _value(race_factor), "race factor: H consecutive elements touch H / RF distinct bins"),
        ("elsize", _value(element_size + lock), "bytes of a bin" + (", 4 of them its lock" if lock else "")),
        ("avg", _value((element_size + lock) / (arrays + bool(lock))), "elsize / arrays that it is laid out in"),
        *((letter, _value(number), text) for letter, number, text in _numbers(numbers)),
        ("k_RF", _value(model.K_RF), "constant (III-D)"),
        ("F_L2", _value(model.F_L2), "constant (III-D)"),
        ("k_ct_min", _value(model.K_CT_MIN), "constant (III-D)"),
    ]
    click.echo(f"{num_elements:,} elements into {num_bins:,} bins on {chosen.profile}, update {update}\n")
    click.echo("Given\n" + table(given, right=(1,)))
    for title, steps in _stages(chosen):
        rows = [(step.symbol, _value(step.value), step.equation, step.formula) for step in steps]
        click.echo(f"\n{title}\n" + table([("", "", "SC'20", ""), *rows], right=(1,)))
    click.echo("\nPlan\n" + table(_result(chosen, local, everywhere)))


def _default_device() -> tuple[Profile, int]:
    """Return the numbers of the default device, and what copies may take of its memory."""
    from clhist.device import default_queue, device_profile, memory_budget

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


def _stages(chosen: model.Plan) -> list[tuple[str, list[model.Step]]]:
    """Return the steps under titles: those for local memory end where its passes are compared with their limit."""
    steps = list(chosen.steps)
    after = next((n for n, step in enumerate(steps, start=1) if step.symbol == "S_max"), 0)
    stages = [("In local memory", steps[:after])] if after else []
    if steps[after:]:
        private = " (private copies)" if chosen.update == "private" else ""
        stages.append((f"In {chosen.memory} memory{private}", steps[after:]))
    return stages


def _result(chosen: model.Plan, local: int, everywhere: int) -> list[tuple[str, str]]:
    owner = "in each work-group" if chosen.memory == "local" else "on the device"
    rows = [
        ("memory", chosen.memory),
        ("update", f"{chosen.update} ({_UPDATE_WORDS[chosen.update]})"),
        ("copies (M)", f"{chosen.copies:,} {owner}"),
        ("cooperation (C)", f"{chosen.cooperation:,} work-items share a copy" if chosen.cooperation > 1 else "1"),
        ("passes (S)", f"{chosen.passes:,}"),
        ("bins per pass (H_chk)", f"{chosen.bins_per_pass:,}"),
        ("work-groups", f"{chosen.work_groups:,} of {chosen.work_group_size:,} work-items"),
    ]
    if local:
        rows.append(("local memory", f"{bytes_text(local)} of each work-group"))
    copies = "one copy" if chosen.global_copies == 1 else f"{chosen.global_copies:,} copies"
    return [*rows, ("global memory", f"{bytes_text(everywhere)} for {copies} of all bins")]


def _copy_bytes(chosen: model.Plan, element_size: int) -> tuple[int, int]:
    """Return the bytes that copies take in the local memory of a work-group, and in global memory."""
    cell = element_size + (model.LOCK_BYTES if chosen.update == "lock" else 0)
    local = chosen.copies * chosen.bins_per_pass * cell if chosen.memory == "local" else 0
    return local, chosen.global_copies * chosen.num_bins * (element_size if local else cell)


def _value(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:,.6g}"
