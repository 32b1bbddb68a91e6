"""The text of `clhist plan`: the numbers that a plan starts from, its steps, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from clhist._core.devices.profile import Profile
from clhist._core.devices.profile_files import PARAMETERS
from clhist._core.model import global_memory
from clhist._core.model.plan import Plan, Step
from clhist._core.model.scaling import rates_of
from clhist._core.model.shared import PREDICTED
from clhist.cli.tables import bytes_text, table, wrapped


@dataclass(frozen=True)
class PlannedSweep:
    """One sweep: which of the histograms it fills, how, and how a bin of each is laid out.

    Attributes
    ----------
    members : tuple of int
        The histograms, by their place on the command line.
    plan : Plan
        How they are computed.
    sizes : tuple of int
        Bytes of a bin of each, without locks.
    arrays : int
        Arrays that a bin's parts lie in.
    """

    members: tuple[int, ...]
    plan: Plan
    sizes: tuple[int, ...]
    arrays: int

    def record(self) -> dict[str, object]:
        """Return the plan for JSON."""
        plan = self.plan
        local, everywhere = plan.memory_bytes(self.sizes)
        record: dict[str, object] = {"strategy": plan.strategy}
        # The fallback of a plan is written as text, below.
        record |= {field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "again"}
        record["steps"] = [step._asdict() for step in plan.steps]
        if plan.behind is not None:
            record["robust"] = str(plan.behind)
        record["outputs"] = [
            {
                "operator": output.operator.name,
                "accumulator": str(output.operator.accumulator),
                "updates": output.updates,
            }
            for output in plan.outputs
        ]
        return record | {"local_bytes": local, "global_bytes": everywhere, "arrays": self.arrays}


def show(
    sweeps: Sequence[PlannedSweep], num_elements: int, num_bins: Sequence[int], histograms: int | None,
    race_factor: float, profile: Profile, title: str, notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return the plans as text; `title` says how bins are updated, `notes` what a call warns of."""
    constants = [
        ("RF", value_text(race_factor), "race factor: H consecutive elements touch H / RF distinct bins"),
        *((letter, value_text(number), text) for letter, number, text in _numbers(profile)),
        ("k_RF", value_text(global_memory.K_RF), "constant (III-D)"),
        ("F_L2", value_text(global_memory.F_L2), "constant (III-D)"),
        ("k_ct_min", value_text(global_memory.K_CT_MIN), "constant (III-D)"),
    ]
    batch = "" if histograms is None else f"{histograms:,} histograms of "
    bins = " + ".join(f"{n:,}" for n in num_bins)
    lines = [wrapped(f"{num_elements:,} elements into {batch}{bins} bins on {profile.name}, {title}")]
    for number, sweep in enumerate(sweeps, start=1):
        heading = ""
        if len(num_bins) > 1:
            which = " and ".join(f"{num_bins[k]:,}" for k in sweep.members)
            several = "s"[: len(sweep.members) != 1]
            heading = f"\nSweep {number} of {len(sweeps)}: the histogram{several} of {which} bins\n"
        lines += [heading, "Given\n" + table([*_given(sweep, histograms), *constants], right=(1,))]
        for stage, steps in _stages(sweep.plan):
            rows = [(step.symbol, value_text(step.value), step.equation, step.formula) for step in steps]
            lines.append(f"\n{stage}\n" + table([("", "", "SC'20", ""), *rows], right=(1,)))
        lines.append("\nPlan\n" + table(_result(sweep.plan, *sweep.plan.memory_bytes(sweep.sizes))))
    scaled = rates_of(profile).source
    lines += ["", wrapped(f"Rates: {scaled or 'measured on the device'}"), *(wrapped(note) for note in notes)]
    return "\n".join(lines)


def value_text(number: float) -> str:
    """Return a number for people."""
    return f"{int(number):,}" if number == int(number) else f"{number:,.6g}"


def _given(sweep: PlannedSweep, histograms: int | None) -> list[tuple[str, str, str]]:
    """Return letter, value and meaning of what a sweep is planned from; of several histograms the sum and the mean."""
    lock, plan = sweep.plan.lock_bytes, sweep.plan
    # The mean of all bins, each with its lock.
    size = sum(n * (bin_bytes + lock) for n, bin_bytes in zip(plan.bins, sweep.sizes, strict=True)) / plan.num_bins
    several = len(sweep.members) > 1
    rows = [
        ("N", value_text(plan.num_elements), "elements"),
        ("H", value_text(plan.num_bins), "bins" + (" of all of them" if several else "")),
        ("elsize", value_text(size), "bytes of a bin" + (", 4 of them its lock" if lock else "")),
        ("avg", value_text(size / (sweep.arrays + bool(lock))), "elsize / arrays that it is laid out in"),
    ]
    if histograms is not None:
        rows.insert(1, ("N_out", value_text(histograms), "histograms of a batch"))
    return rows


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
        how = f" ({chosen.way()})" if chosen.way() else ""
        stages.append((f"In {chosen.memory} memory{how}", steps[after:]))
    return [*stages, *([("Predicted, in µs", predicted)] if predicted else [])]


def _result(chosen: Plan, local: int, everywhere: int) -> list[tuple[str, str]]:
    rows = chosen.words()
    if local:
        rows.append(("local memory", f"{bytes_text(local)} of each work-group"))
    if chosen.seconds is not None:
        rows.append(("predicted time", f"{chosen.seconds * 1e6:,.0f} µs on the device"))
    return [*rows, ("global memory", f"{bytes_text(everywhere)} for {chosen.in_global_memory()}")]
