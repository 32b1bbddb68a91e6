"""What holds of every histogram, over thousands of drawn inputs and plans; each is compared with a fold on the host.

Few kernels are built (`FORMS`), since building takes a hundred times as long as running; all that is only a number
(elements, bins, copies, passes, locks, race factor, budget) is drawn freely. The examples are the same in every run;
``CLHIST_EXAMPLES=2000 pytest --hypothesis-seed=7 tests/test_properties.py`` draws more, and others.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from allocators import Limited
from hypothesis import given, settings
from hypothesis import strategies as st

from clhist import Accumulator, HistogramKernel, Operator
from clhist._core.devices.vendors import MEMORIES
from clhist._core.model.updates import UPDATES
from clhist.selftest.cases import CASES, PRODUCTS, Case, is_available, pair_kernel, random_values, ufunc_case
from clhist.selftest.reference import groups_of

GIVEN = os.environ.get("CLHIST_EXAMPLES")
EXAMPLES = int(GIVEN or 500)  # of each test
checked = settings(derandomize=GIVEN is None, max_examples=EXAMPLES)

MASK = 2**32 - 1
FAR = (-(2**31), -1, 2**31 - 1)  # and H: bins that there are not
MOST_BYTES = 32  # of a bin, with its locks
ORDERS = ("interleaved", "blocked")
BATCHED = ("add int32", "add float32")


def custom(name, combine, neutral):
    """Return the case of an operator on 32 bits that nobody knows, from its C, which is Python's too."""
    operator = Operator(np.uint32, combine, neutral, name)
    function = eval(f"lambda a, b: ({combine.replace('u', '')}) & {MASK}")
    return Case(operator, partial(random_values, dtype=np.uint32), lambda group: reduce(function, group, neutral))


def customs(rng):
    """Draw constants of some families of operators that are associative and commutative whatever these are."""
    k, m = (int(number) for number in rng.integers(1, MASK, 2))
    yield custom("shifted sum", f"a + b + {k}u", -k & MASK)
    yield custom("sum and product", f"a + b + {m}u * a * b", 0)  # (1 + m a) (1 + m b) = 1 + m (a o b)
    yield custom("or here, and there", f"((a | b) & {k}u) | (a & b & {k ^ MASK}u)", k ^ MASK)
    yield custom("xor here, or there", f"((a ^ b) & {m}u) | ((a | b) & {m ^ MASK}u)", 0)


def with_nan(case, share=0.02):
    """Return a case of floats that are sometimes none."""

    def draw(rng, n):
        values = case.draw(rng, n)
        values[rng.random(n) < share] = np.nan
        return values

    return Case(case.operator, draw, case.fold)


UFUNCS = [
    *((np.add, dtype) for dtype in ("u2", "i8")),
    *((np.multiply, dtype) for dtype in ("i2", "u8", "f4")),
    *((np.minimum, dtype) for dtype in ("u1", "i8")),
    (np.bitwise_xor, "u4"),
    (np.bitwise_and, "i4"),
]
NANS = [(np.minimum, "f4"), (np.maximum, "f8"), (np.fmin, "f8"), (np.fmax, "f4")]
SUBJECTS = {
    **CASES,
    **PRODUCTS,
    **{f"{ufunc.__name__} {np.dtype(dtype)}": ufunc_case(ufunc, dtype) for ufunc, dtype in UFUNCS},
    **{f"{ufunc.__name__} {np.dtype(dtype)}": with_nan(ufunc_case(ufunc, dtype)) for ufunc, dtype in NANS},
    **{case.operator.name: case for case in customs(np.random.default_rng(2020))},
}


@dataclass(frozen=True)
class Form:
    """What a kernel is built of: the operator, the order of a profile, and what is forced."""

    name: str
    order: str
    update: str | None = None
    memory: str | None = None
    work_group_size: int | None = None


def _forms():
    """Yield a form of each subject, all updates, memories and orders taking turns, and what the model chooses."""
    ways = [(update, memory, order) for order in ORDERS for memory in MEMORIES for update in UPDATES]
    for k, name in enumerate(SUBJECTS):
        update, memory, order = ways[5 * k % len(ways)]
        yield Form(
            name, order, update, memory, {"interleaved": 48, "blocked": 7}[order] if update == "private" else None
        )
    for name in ("add float32", "argmax float32", "saturating_add uint8"):
        yield Form(name, "interleaved")
    yield Form("add complex64", "blocked", work_group_size=16)
    yield Form("two largest", "interleaved", "sort")
    yield Form("minimum float32", "interleaved", None, "partitioned")


FORMS = tuple(_forms())
SOME_FORMS = FORMS[::3]
STREAMED = FORMS[1 : len(SUBJECTS) : 9]  # one of each update, since partial results take kernels of their own


@dataclass(frozen=True)
class Input:
    """What is combined: everything else about it follows from the seed."""

    seed: int
    size: int
    num_bins: int
    spread: str
    far: float
    has_dest: bool

    def arrays(self, case: Case):
        """Return bins, some of which do not exist, their values, and `dest` or None."""
        rng, n, num_bins = np.random.default_rng(self.seed), self.size, self.num_bins
        bins = {
            "uniform": lambda: rng.integers(0, num_bins, n),
            "one bin": lambda: np.full(n, rng.integers(0, num_bins)),
            "skewed": lambda: (num_bins * rng.beta(0.3, 3, n)).astype(int),
            "runs": lambda: np.sort(rng.integers(0, num_bins, n)),
            "neighbours": lambda: np.arange(n) % num_bins,
        }[self.spread]()
        bins = np.where(rng.random(n) < self.far, rng.choice((*FAR, num_bins), n), bins).astype(np.int32)
        values = case.draw(rng, n + num_bins)  # at once, so that indices are all different
        return bins, values[:n].copy(), values[n:].copy() if self.has_dest else None

    def check(self, case: Case, bins, values, dest):
        """Return the check of the result: a bin holds `dest` and its values, or the neutral element."""
        if dest is not None:
            bins, values = np.concatenate([np.arange(self.num_bins), bins]), np.concatenate([dest, values])
        return case.check(groups_of(bins, values, self.num_bins))


@dataclass(frozen=True)
class Numbers:
    """What of a plan is forced besides its form."""

    copies: int | None
    passes: int
    race_factor: float
    budget: int | None
    locks: int | None


def few_or_many(least, few, many):
    return st.integers(least, few) | st.integers(least, many)


inputs = st.builds(
    Input,
    seed=st.integers(0, 2**32 - 1),
    size=few_or_many(0, 20, 2000),
    num_bins=few_or_many(1, 8, 300),
    spread=st.sampled_from(["uniform", "one bin", "skewed", "runs", "neighbours"]),
    far=st.sampled_from([0, 0.1, 1]),
    has_dest=st.booleans(),
)
numbers = st.builds(
    Numbers,
    copies=st.none() | few_or_many(1, 9, 600),
    passes=st.sampled_from([0, 0, 1, 2, 10_000]),
    race_factor=st.floats(1, 1e6),
    budget=st.none() | st.integers(1, 9),
    locks=st.none() | st.sampled_from([1, 2, 64, 512]),
)


@dataclass(frozen=True)
class Subject:
    """A form on this device: its kernel, its operator and what is forced of each plan."""

    kernel: HistogramKernel
    case: Case
    forced: dict[str, Any]

    def choices(self, given: Input, number: Numbers) -> dict[str, Any]:
        """Return the arguments of a call, as far as the form leaves them open."""
        found = self.forced | {"race_factor": number.race_factor}
        if found.get("update") not in UPDATES:
            return found
        found["copies"] = number.copies
        if found["update"] == "lock":
            found["locks"] = number.locks
        if number.budget is not None:  # at least one copy, with its locks
            found["memory_budget"] = number.budget * given.num_bins * MOST_BYTES
        if number.passes:  # more than it takes
            found["passes"] = self.kernel.plan(given.size, given.num_bins, **found).passes + number.passes
        return found

    def __call__(self, given: Input, number: Numbers, bins, values, dest, **options):
        return self.kernel(bins, values, num_bins=given.num_bins, dest=dest, **self.choices(given, number), **options)


@pytest.fixture(scope="session")
def subject_of(cpu_like, gpu_like, queue):
    """Return the subject of a form; what the device has takes the place of an update that it lacks."""

    @cache
    def subject(form: Form) -> Subject:
        case = SUBJECTS[form.name]
        forced = {key: getattr(form, key) for key in ("update", "memory", "work_group_size") if getattr(form, key)}
        if form.update in UPDATES:
            worse = UPDATES[UPDATES.index(form.update) :]
            forced["update"] = next(update for update in worse if is_available(case, update, form.memory, queue))
        return Subject(pair_kernel(case.operator, cpu_like if form.order == "blocked" else gpu_like), case, forced)

    return subject


@pytest.mark.parametrize("quarter", range(4))
@settings(checked, max_examples=-(-EXAMPLES // 4))
@given(which=st.integers(0, len(FORMS) // 4 - 1), given=inputs, number=numbers)
def test_any_plan_gives_what_the_host_does(subject_of, quarter, which, given, number):
    subject = subject_of(FORMS[4 * which + quarter])
    bins, values, dest = given.arrays(subject.case)
    before = None if dest is None else dest.copy()
    given.check(subject.case, bins, values, dest)(subject(given, number, bins, values, dest))
    if dest is not None:
        np.testing.assert_array_equal(dest, before)


@checked
@given(form=st.sampled_from(SOME_FORMS), given=inputs, number=numbers, other=numbers)
def test_any_order_gives_the_same(subject_of, form, given, number, other):
    subject = subject_of(form)
    bins, values, dest = given.arrays(subject.case)
    order = np.random.default_rng(given.seed + 1).permutation(given.size)
    first = subject(given, number, bins, values, dest)
    second = subject(given, other, bins[order], values[order], dest, out=dest)  # in place
    if subject.case.bound is None:
        np.testing.assert_array_equal(first, second)
    check = given.check(subject.case, bins, values, given.arrays(subject.case)[2])
    check(first)
    check(second)


@checked
@given(
    form=st.sampled_from(STREAMED),
    given=inputs,
    number=numbers,
    cuts=st.lists(st.floats(0, 1), max_size=4),
    chunk_bytes=st.integers(1, 4000),
)
def test_parts_are_merged_to_the_whole(subject_of, form, given, number, cuts, chunk_bytes):
    """By `dest` from call to call, and by accumulators, the second of which gets every other part."""
    subject = subject_of(form)
    bins, values, dest = given.arrays(subject.case)
    check = given.check(subject.case, bins, values, dest)
    ends = [0, *sorted(int(cut * given.size) for cut in cuts), given.size]
    parts = [(bins[a:b].copy(), values[a:b].copy()) for a, b in pairwise(ends)]
    choices = {key: value for key, value in subject.forced.items() if value != "native"}
    options = {"chunk_bytes": max(chunk_bytes, given.size // 8 * values.itemsize)}
    accumulators = [
        Accumulator(subject.kernel, given.num_bins, dest=start, **options, **choices) for start in (dest, None)
    ]
    for k, part in enumerate(parts):
        accumulators[k % 2].add(*part)
    partial = accumulators[1].partial()
    accumulators[0].merge(accumulators[1] if given.seed % 2 else partial)
    check(accumulators[0].result())
    if subject.case.operator.lift == "v" and subject.case.operator.finish == "a":  # results are values
        held = dest
        for part in parts:
            held = subject(given, number, *part, held)
        check(held)


@checked
@given(form=st.sampled_from(SOME_FORMS), given=inputs, number=numbers, copies=st.sampled_from([0, 1, 3]))
def test_a_device_with_little_memory_gives_the_same(subject_of, queue, form, given, number, copies):
    subject = subject_of(form)
    bins, values, dest = given.arrays(subject.case)
    most = copies * (given.num_bins * MOST_BYTES + 1024)  # aligned, and a few words of locks
    try:
        found = subject(given, replace(number, copies=None), bins, values, dest, allocator=Limited(queue, most))
    except MemoryError:
        assert copies == 0 or form.update == "sort" or form.memory == "partitioned"
        return
    given.check(subject.case, bins, values, dest)(found)


@checked
@given(
    form=st.sampled_from([form for form in FORMS if form.name in BATCHED and form.update != "sort"]),
    given=inputs,
    histograms=st.integers(1, 9),
    even=st.booleans(),
    copies=st.none() | few_or_many(1, 9, 600),
    memory=st.sampled_from([None, "form", "local", "global"]),  # besides that of the form, without its update
)
def test_a_batch_is_its_histograms(subject_of, form, given, histograms, even, copies, memory):
    subject = subject_of(form)
    forced = (subject.forced if memory == "form" else {"memory": memory}) | {"copies": copies}
    bins, values, _ = given.arrays(subject.case)
    if even:
        each = given.size // histograms
        ends = each * np.arange(histograms + 1)
        which = {"num_histograms": histograms}
    else:
        cuts = np.random.default_rng(given.seed + 2).integers(0, given.size, histograms - 1, endpoint=True)
        ends = np.array([0, *np.sort(cuts), given.size])
        which = {"offsets": ends}
    bins, values = bins[: ends[-1]], values[: ends[-1]]
    found = subject.kernel(bins, values, num_bins=given.num_bins, **forced, **which)
    assert found.shape == (histograms, given.num_bins)
    for row, (begin, end) in zip(found, pairwise(ends), strict=True):
        given.check(subject.case, bins[begin:end], values[begin:end], None)(row)
