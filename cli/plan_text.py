"""What `clhist plan` prints: the numbers a plan starts from, its steps, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from clhist.cli.tables import bytes_text, table, wrapped
from clhist.hardware.profile import Profile
from clhist.hardware.profile_files import PARAMETERS
from clhist.planning import global_memory
from clhist.planning.batch import BatchedPlan
from clhist.planning.bucketed import BucketedPlan
from clhist.planning.choose import PREDICTED
from clhist.planning.packed import WORD_BITS, PackedPlan
from clhist.planning.partition import PartitionedPlan
from clhist.planning.plan import Plan, Step
from clhist.planning.sort import sort_bytes
from clhist.planning.updates import BY_NAME, SORT, SORT_WORDS
from clhist.planning.workload import LOCK_BYTES

UPDATE_WORDS = {name: update.words for name, update in BY_NAME.items()} | {SORT: SORT_WORDS}


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

    @property
    def lock_bytes(self) -> int:
        """Bytes of a bin's lock."""
        return LOCK_BYTES if self.plan.update == "lock" and self.plan.locks is None else 0

    def copy_bytes(self) -> tuple[int, int]:
        """Return the bytes that copies take in the local memory of a work-group, and in global memory."""
        chosen, lock = self.plan, self.lock_bytes
        if chosen.update == SORT:
            return 0, sort_bytes(chosen.num_elements, chosen.num_bins * chosen.num_histograms, self.sizes[0])
        chunk = sum(n * (size + lock) for n, size in zip(chosen.chunks(), self.sizes, strict=True))
        local = chosen.copies * chosen.teams * chunk if chosen.memory == "local" else 0
        if isinstance(chosen, PackedPlan):
            words = chosen.record_words + chosen.work_groups * chosen.row_words
            return local * chosen.counter_bits // WORD_BITS, 4 * (words + chosen.global_copies * chosen.num_bins)
        one = sum(n * (size + (0 if local else lock)) for n, size in zip(chosen.bins, self.sizes, strict=True))
        pairs = 0
        if isinstance(chosen, PartitionedPlan):
            pairs = next((int(step.value) for step in chosen.steps if step.symbol == "bytes"), 0)
        return local, pairs + chosen.global_copies * chosen.num_histograms * one

    def record(self) -> dict[str, object]:
        """Return the plan for JSON."""
        local, everywhere = self.copy_bytes()
        plan = self.plan
        record: dict[str, object] = {"strategy": plan.strategy}
        record |= {each.name: getattr(plan, each.name) for each in fields(plan)}
        record["steps"] = [step._asdict() for step in plan.steps]
        if isinstance(plan, PackedPlan):
            record["robust"] = str(plan.robust)
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
    race_factor: float, profile: Profile, title: str,
) -> str:  # fmt: skip
    """Return the plans as text; `title` says how bins are updated."""
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
        lines.append("\nPlan\n" + table(_result(sweep.plan, *sweep.copy_bytes())))
    return "\n".join(lines)


def value_text(number: float) -> str:
    """Return a number for people."""
    return f"{int(number):,}" if number == int(number) else f"{number:,.6g}"


def _given(sweep: PlannedSweep, histograms: int | None) -> list[tuple[str, str, str]]:
    """Return letter, value and meaning of what a sweep is planned from; of several histograms the sum and the mean."""
    lock, plan = sweep.lock_bytes, sweep.plan
    size = sum(n * (each + lock) for n, each in zip(plan.bins, sweep.sizes, strict=True)) / plan.num_bins
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
        how = {"private": " (private copies)", "sort": " (sorted pairs)"}.get(chosen.update, "")
        how = " (partitioned pairs)" if isinstance(chosen, PartitionedPlan) else how
        how = " (private copies by way of buckets)" if isinstance(chosen, BucketedPlan) else how
        stages.append((f"In {chosen.memory} memory{how}", steps[after:]))
    return [*stages, *([("Predicted, in µs", predicted)] if predicted else [])]


def _work_groups(chosen: Plan) -> str:
    if chosen.is_one_launch:
        return f"one work-group of {chosen.work_group_size:,} work-items, one launch: it combines its copies itself"
    return f"{chosen.work_groups:,} of {chosen.work_group_size:,} work-items"


def _result(chosen: Plan, local: int, everywhere: int) -> list[tuple[str, str]]:
    owner = "in each work-group" if chosen.memory == "local" else "on the device"
    if chosen.is_batch:
        owner = "of each histogram"
    rows = [
        ("memory", chosen.memory),
        ("update", f"{chosen.update} ({UPDATE_WORDS[chosen.update]})"),
        ("copies (M)", f"{chosen.copies:,} {owner}"),
        ("cooperation (C)", f"{chosen.cooperation:,} work-items share a copy" if chosen.cooperation > 1 else "1"),
        ("passes (S)", f"{chosen.passes:,}" + (f" {chosen.pass_order}" if chosen.passes > 1 else "")),
        ("bins per pass (H_chk)", f"{chosen.bins_per_pass:,}"),
        ("work-groups", _work_groups(chosen)),
    ]
    if isinstance(chosen, PartitionedPlan):
        rows.insert(5, ("partitions (P)", f"{chosen.partitions:,}: the pairs are grouped by ranges of bins first"))
    if isinstance(chosen, PackedPlan):
        rows.insert(2, ("counters", f"{chosen.counter_bits} bits, {chosen.fields} to a word"))
        rows.append(("if input is skewed", f"counted again: {chosen.robust}"))
    if isinstance(chosen, BatchedPlan):
        rows.insert(-1, ("chunks (K)", f"{chosen.groups_per_histogram:,} of each histogram's elements"))
        rows.insert(-1, ("teams", f"{chosen.teams:,} in a work-group, each with one chunk at a time"))
    if chosen.locks is not None:
        rows.append(("locks", f"{chosen.locks:,} for all bins"))
    if local:
        rows.append(("local memory", f"{bytes_text(local)} of each work-group"))
    if isinstance(chosen, PackedPlan):
        return [*rows, *_predicted(chosen), ("global memory", f"{bytes_text(everywhere)} for all copies")]
    copies = "one copy" if chosen.global_copies == 1 else f"{chosen.global_copies:,} copies"
    if chosen.update == "sort":
        copies = "the pairs and one copy"
    if isinstance(chosen, PartitionedPlan):
        copies = f"the pairs, and {copies}"
    rows += _predicted(chosen)
    each = " of each histogram" if chosen.is_batch else ""
    return [*rows, ("global memory", f"{bytes_text(everywhere)} for {copies} of all bins{each}")]


def _predicted(chosen: Plan) -> list[tuple[str, str]]:
    if chosen.seconds is None:
        return []
    return [("predicted time", f"{chosen.seconds * 1e6:,.0f} µs on the device")]
