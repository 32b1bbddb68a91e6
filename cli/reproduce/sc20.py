"""The measurements of SC'20, on the device at hand: Table I by the model, Figure 7, and Tables II and III."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import HistogramKernel, operators
from clhist._core.devices.profile import Profile, named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model.paper import paper_plan
from clhist._core.opencl.device import device_profile
from clhist.cli.paper_table import BIN_BYTES, DEVICE, UPDATES
from clhist.cli.reproduce.published import SIZE, TABLE_3, Entry, table_1
from clhist.cli.timing import repeated

AUTO, OURS, SORT = "Auto", "clhist", "sort"
# Section V-A: copies M_k = k * B / min(H, B) in local memory, in work-groups of B; and M in global memory.
_LOCAL_GROUP, _LOCAL_DEGREES, _GLOBAL_COPIES = 1024, (1, 3, 6, 9), (1, 4, 8, 16, 32)
_CEILING = 2**24 - 1  # of a saturating sum of 24 bits
_LARGEST = 0xFF  # a value: no sum of 50 million loses bits in float64, which the reference uses
_LONGEST = 1.0  # seconds: what takes longer is run once


class Point(NamedTuple):
    """A time of Figure 7 or Table II.

    Attributes
    ----------
    update : {"HDW", "CAS", "XCG"}
        An int32 sum, a saturating sum of 24 bits, an argmax.
    memory : {"local", "global", ""}
        Where the copies are; nothing where the choice has its own.
    choice : str
        "M0" to "M9", "M = 4", "Auto" of the paper's model, "clhist" for our plan, "sort".
    copies, passes : int
        As they were run.
    seconds : float or None
        The median; None where it could not run, and `note` says why.
    """

    update: str
    memory: str
    race_factor: int
    num_bins: int
    choice: str
    copies: int
    passes: int
    seconds: float | None
    note: str = ""


class ModelEntry(NamedTuple):
    """An entry of Table I beside what the model computes for the paper's device, and for this one."""

    published: Entry
    computed: tuple[int, int]
    here: tuple[int, int]

    @property
    def is_equal(self) -> bool:
        """Whether the model gives what was published."""
        return self.computed == (self.published.copies, self.published.passes)


def model_table(profile: Profile) -> list[ModelEntry]:
    """Return Table I, entry by entry."""
    paper = named_profile(DEVICE, load_profiles())

    def computed(entry: Entry, profile: Profile) -> tuple[int, int]:
        options: dict[str, Any] = {"bin_bytes": BIN_BYTES[entry.update], "race_factor": float(entry.race_factor)}
        plan = paper_plan(SIZE, entry.num_bins, profile, UPDATES[entry.update], entry.memory, **options)
        return plan.copies, plan.passes

    return [ModelEntry(entry, computed(entry, paper), computed(entry, profile)) for entry in table_1()]


@dataclass(frozen=True)
class Input:
    """Uniform integers, of which each `race_factor`th bin gets some: Section V-A."""

    elements: npt.NDArray[np.int32]
    num_bins: int
    race_factor: int

    @property
    def distinct(self) -> int:
        """The number of bins that get elements."""
        return max(1, self.num_bins // self.race_factor)

    @cached_property
    def bins(self) -> npt.NDArray[np.int32]:
        """The bin of each element."""
        return self.elements % self.distinct * self.race_factor

    def expected(self, update: str) -> npt.NDArray:
        """Return the result by NumPy."""
        if update == "XCG":
            best = np.full(self.num_bins, -1, np.int64)
            # The value above the inverted position: the maximum is the first of the largest values.
            order = (np.int64(1) << 31) - 1 - np.arange(self.elements.size, dtype=np.int64)
            np.maximum.at(best, self.bins, self.elements.astype(np.int64) << 31 | order)
            return best
        sums = np.bincount(self.bins, self.elements & _LARGEST, self.num_bins).astype(np.int64)
        return sums.astype(np.int32) if update == "HDW" else np.minimum(sums, _CEILING)


class Lab:
    """A device on which the choices of Figure 7 are run, checked and timed."""

    def __init__(self, context: cl.Context) -> None:
        self.queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.profile = device_profile(self.queue.device)
        arguments = "const int *x, const int distinct, const int race_factor"
        bin = "x[i] % distinct * race_factor"
        value = {"HDW": f"x[i] & {_LARGEST}", "CAS": f"x[i] & {_LARGEST}", "XCG": "((value_t){x[i], (int)i})"}
        operator = {
            "HDW": operators.add(np.int32),
            "CAS": operators.saturating_add(np.int32, _CEILING),
            "XCG": operators.argmax(np.int32),
        }
        self._kernels = {
            name: HistogramKernel(context, operator[name], arguments=arguments, map=f"EMIT({bin}, {value[name]})")
            for name in UPDATES
        }
        self._loaded: tuple[npt.NDArray, cl_array.Array] | None = None

    def choices(self, data: Input, update: str, memory: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield the name, the memory and the forced choices of each line of Figure 7, and of the two beside it."""
        forced: dict[str, Any] = {"update": UPDATES[update], "memory": memory}
        if memory == "local":
            yield "M0", memory, {**forced, "copies": 1}
            for degree in _LOCAL_DEGREES:
                copies = degree * _LOCAL_GROUP // min(data.num_bins, _LOCAL_GROUP)
                yield f"M{degree}", memory, {**forced, "copies": copies}
        else:
            for copies in _GLOBAL_COPIES:
                yield f"M = {copies}", memory, {**forced, "copies": copies, "passes": 1}
        factor: dict[str, Any] = {"bin_bytes": BIN_BYTES[update], "race_factor": float(data.race_factor)}
        plan = paper_plan(data.elements.size, data.num_bins, self.profile, UPDATES[update], memory, **factor)
        yield AUTO, memory, {**forced, "copies": plan.copies, "passes": plan.passes}

    def points(self, data: Input, update: str, memories: Sequence[str]) -> Iterator[Point]:
        """Yield the times of all choices for an input."""
        expected = data.expected(update)
        for memory in memories:
            for name, place, forced in self.choices(data, update, memory):
                yield self._point(data, update, place, name, forced, expected)
        own = {"race_factor": float(data.race_factor)}
        for name, forced in ((OURS, own), (SORT, {"update": "sort"})):
            yield self._point(data, update, "", name, forced, expected)

    def _point(
        self, data: Input, update: str, memory: str, choice: str, forced: dict[str, Any], expected: npt.NDArray
    ) -> Point:
        kernel, size = self._kernels[update], data.elements.size
        at = update, memory, data.race_factor, data.num_bins, choice
        call: dict[str, Any] = {"num_bins": data.num_bins, "queue": self.queue, "size": size}
        arguments = self._on_device(data.elements), np.int32(data.distinct), np.int32(data.race_factor)
        try:
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fewer copies, which `Point` says
                plan = kernel.plan(size, data.num_bins, queue=self.queue, **forced)
                # Time as many copies as fit, which the point also reports.
                forced = forced | ({"copies": plan.copies} if "copies" in forced else {})
                result, stages = kernel.timed(*arguments, **call | forced)
        except (ValueError, MemoryError) as error:  # what is forced contradicts the device
            return Point(*at, 0, 0, None, str(error))
        histogram = result.get()
        if update == "XCG":
            # Bins without elements keep the index of the identity element, beyond all elements.
            reached = histogram["index"] < size
            order = (np.int64(1) << 31) - 1 - histogram["index"].astype(np.int64)
            histogram = np.where(reached, histogram["value"].astype(np.int64) << 31 | order, -1)
        if not np.array_equal(histogram, expected):
            wrong = int(np.count_nonzero(histogram != expected))
            return Point(*at, plan.copies, plan.passes, None, f"wrong: {wrong} of {histogram.size} bins")
        first = sum(stages.values())
        runs = [first] if first > _LONGEST else repeated(
            lambda: sum(kernel.timed(*arguments, **call | forced)[1].values()), first, least=3, most=9
        ).seconds  # fmt: skip
        return Point(*at, plan.copies, plan.passes, statistics.median(runs))

    def _on_device(self, elements: npt.NDArray[np.int32]) -> cl_array.Array:
        # Inputs of all bins and factors share their elements, which are uploaded once.
        if self._loaded is None or self._loaded[0] is not elements:
            self._loaded = elements, cl_array.to_device(self.queue, elements)
        return self._loaded[1]


class ApplicationTime(NamedTuple):
    """A row of Table III here: the seconds of the kernels, whether its check held, and what it was run on."""

    name: str
    seconds: float | None
    passed: bool
    command: str
    note: str


def applications(*, quick: bool) -> Iterator[ApplicationTime]:
    """Yield the applications of Table III that this package has as commands, each in a process of its own."""
    for application in TABLE_3:
        words = application.quick if quick else application.command
        # A command whose result is wrong exits with status 1, but has a record all the same.
        run = subprocess.run(
            [sys.executable, "-m", "clhist", *words, "--json", "--quiet"], capture_output=True, text=True, check=False
        )
        shown = " ".join(("clhist", *words))
        try:
            record = json.loads(run.stdout)
        except ValueError:
            said = run.stderr.strip().splitlines() or ["no output"]
            yield ApplicationTime(application.name, None, False, shown, said[-1])
            continue
        seconds = record["seconds"]
        yield ApplicationTime(
            application.name, seconds.get(application.time, seconds["call"]), record["passed"], shown, application.note
        )
