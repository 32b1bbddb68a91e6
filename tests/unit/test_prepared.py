"""Prepared calls are plain values: a back end runs them without OpenCL, on memory of its own."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fake_backend import FakeExecutable
from sources import COUNTS, OPERATORS, WEIGHT, Call, device, prepared_call

from clhist import operators
from clhist._core.kernel_code import KernelCode
from clhist._core.opencl.cuda_kinds import NotDirectError
from clhist._core.opencl.memory import OutOfMemoryError
from clhist._core.runtime.batch import batch_of_offsets
from clhist._core.runtime.prepare import LOWER_BOUND, LargestBin
from clhist._core.runtime.prepared import MEMORY, Block, Launch, Part, Prepared, Scratch, Slot, SortPairs, Table

GPU, CPU = device("nvidia"), device("cpu")


def on_numpy(bins):
    """Return what the kernels of sums of int32 do, with the copies in global memory."""

    def cells(scratch, place, number):
        return np.frombuffer(scratch, np.int32, number, place)

    def clear(clhist_scratch, clhist_place0, clhist_num_cells, **_):
        cells(clhist_scratch, clhist_place0, clhist_num_cells)[:] = 0

    def sweep(clhist_scratch, clhist_place0, clhist_copies, clhist_size, x__base, x__offset, step, **_):
        x = np.frombuffer(x__base, np.int32, clhist_size, x__offset)
        copies = cells(clhist_scratch, clhist_place0, clhist_copies * bins).reshape(clhist_copies, bins)
        for copy in range(clhist_copies):
            np.add.at(copies[copy], x[copy::clhist_copies], step)

    def combine(clhist_scratch, clhist_place0, clhist_copies, clhist_num_bins, has_dest, **given):
        copies = cells(clhist_scratch, clhist_place0, clhist_copies * clhist_num_bins).reshape(clhist_copies, -1)
        out, dest = (
            np.frombuffer(given[f"{name}_base"], np.int32, clhist_num_bins, given[f"{name}_offset"])
            for name in ("out", "dest")
        )
        out[:] = copies.sum(axis=0) + (dest if has_dest else 0)

    return {"clhist_clear": clear, "clhist_sweep": sweep, "clhist_combine_copies": combine}


def placed(array, offset):
    """Return memory with `array` in it, so many bytes from its start."""
    return bytearray(offset) + bytearray(array.tobytes()), offset


@pytest.mark.parametrize("dest", [False, True])
def test_a_back_end_of_its_own_memory(dest, rng):
    """The same value is run on other arrays, offsets and scalars; each time from scratch memory that holds anything."""
    choices = {"memory": "global", "copies": 3, "update": "native"}
    call = Call(COUNTS, "EMIT(x[i], step)", more="int step", size=1000, bins=50, choices=choices)
    prepared = prepared_call(call, GPU, dest=dest)
    executable = FakeExecutable(prepared, on_numpy(50))
    for step, offset in ((1, 0), (-3, 128), (7, 4)):
        x, before = rng.integers(0, 50, 1000, np.int32), rng.integers(-9, 9, 50, np.int32)
        memory, _ = out = placed(before, 2 * offset)
        outcome = executable.run(None, [placed(x, offset), out], [np.int32(step)], True)
        expected = step * np.bincount(x, minlength=50) + dest * before
        np.testing.assert_array_equal(np.frombuffer(memory, np.int32, 50, 2 * offset), expected)
        assert outcome.results == [out]
    assert [(stage, kernel) for stage, kernel, _ in executable.launches] == [
        ("clear", "clhist_clear"),
        ("sweep", "clhist_sweep"),
        ("combine", "clhist_combine_copies"),
    ] * 3


def test_parts_with_less_memory_replace_one_in_its_place():
    """One of several parts is split until its pieces fit; those before and after run once, in order."""
    parts = tuple(Part(None, (Block(size, ""),), (launch(name),), least_bytes=60) for name, size in SIZES.items())
    prepared = Prepared((), (), parts, ())
    budgets = []

    def halves(part, budget):
        budgets.append(budget)
        name = part.commands[0].kernel.name
        return [part._replace(scratch=(Block(budget, ""),), commands=(launch(f"{name}.{n}"),)) for n in (1, 2)]

    executable = FakeExecutable(prepared, smaller=halves, most=100)
    executable.run(None, [], [], True)
    names = [name for _, name, _ in executable.launches]
    # 160 is halved to 80. 250 becomes 125, which is refused as well: twice its 62.
    assert names == ["a", "b.1", "b.2", "c", "d.1.1", "d.1.2", "d.2.1", "d.2.2"]
    assert budgets == [80, 125, 62, 62]


@pytest.mark.parametrize(("most", "launched"), [(100, ["a"]), (5, [])])
def test_no_part_runs_elsewhere_once_one_has_begun(most, launched):
    """The host would do again what is enqueued: only if nothing is, another way may compute the call."""
    parts = tuple(Part(None, (Block(size, ""),), (launch(name),)) for name, size in SIZES.items())
    refused = NotDirectError("a program")
    executable = FakeExecutable(Prepared((), (), parts, ()), None, lambda part, budget: [part], most, refused)
    error, message = (OutOfMemoryError, "no 160 bytes; with less, a program") if launched else (NotDirectError, "a pro")
    with pytest.raises(error, match=message):
        executable.run(None, [], [], True)
    assert [name for _, name, _ in executable.launches] == launched


@pytest.mark.parametrize("smaller", [None, Mock(side_effect=ValueError), Mock(side_effect=MemoryError)])
def test_memory_that_no_plan_can_do_with_less_of(smaller):
    executable = FakeExecutable(Prepared((), (), (Part(None, (Block(9, ""),), ()),), ()), None, smaller, 8)
    with pytest.raises(OutOfMemoryError, match=r"^no 9 bytes$"):
        executable.run(None, [], [], True)


SIZES = {"a": 10, "b": 160, "c": 20, "d": 250}  # of parts


def launch(name):
    return Launch("sweep", KernelCode("", (), name, ()), (1,), (1,), ())


SEVERAL = {"n": operators.add(np.int64), "top": operators.maximum(np.int8)}
EVERY = {
    "one launch": (GPU, Call(COUNTS, size=100, bins=20), ["combine"]),
    "private": (CPU, Call(COUNTS), ["sweep", "combine"]),
    "local": (GPU, Call(COUNTS, choices={"memory": "local", "passes": 2}), ["sweep", "combine"]),
    "locks": (GPU, Call(OPERATORS["argmax int64"], "EMIT(x[i], ((value_t){x[i], i}))", bins=10**6), None),
    "partitioned": (GPU, Call(COUNTS, bins=10**6, choices={"memory": "partitioned"}), ["sweep"] * 2 + ["combine"] * 2),
    "sort": (GPU, Call(COUNTS, choices={"update": "sort"}), ["clear", "sweep", "sweep", "combine"]),
    "packed": (GPU, Call(operators.count(np.int64), bins=4096, choices={"counter_bits": 8}), None),
    "several": (GPU, Call(SEVERAL, "EMIT_n(x[i], 1); EMIT_top(x[i], 2)", bins=20), ["sweep", "combine", "combine"]),
    "several sweeps": (GPU, Call(SEVERAL, "EMIT_n(x[i], 1); EMIT_top(x[i], 2)", bins=10**7), None),
    "batch": (GPU, Call(COUNTS, size=10_000, histograms=100, bins=20), None),
    "weights": (GPU, Call(OPERATORS["mean float32"], WEIGHT, bins=10**6), None),
}


@pytest.mark.parametrize("name", EVERY)
def test_all_that_a_launch_needs_is_there(name):
    profile, call, stages = EVERY[name]
    prepared = prepared_call(call, profile)
    commands = list(prepared.commands)
    assert stages is None or [command.stage for command in commands] == stages
    assert commands[-1].stage == "combine"
    slots = {slot.name for slot in prepared.arrays}
    for part in prepared.parts:
        used = set()
        for command in part.commands:
            if isinstance(command, SortPairs):
                used |= {command.keys.number, command.positions.number, command.accumulators.number}
                continue
            check_launch(command, slots, set(prepared.scalars))
            used |= {value.number for value in command.arguments if isinstance(value, Scratch)}
        assert used == set(range(len(part.scratch))), "all scratch memory is used, and no other"
        assert all(block.size > 0 for block in part.scratch)
    check_plain(prepared)
    assert prepared_call(call, profile) == prepared, "the same call is the same value"


def check_launch(launch: Launch, slots: set[str], scalars: set[str]) -> None:
    """Check that each parameter has an argument of its kind, and that the kernel is in its program."""
    assert f"{launch.kernel.name}(" in launch.kernel.source
    assert all(n % m == 0 for n, m in zip(launch.global_size, launch.local_size, strict=True))
    assert len(launch.arguments) == len(launch.kernel.parameters)
    for parameter, value in zip(launch.kernel.parameters, launch.arguments, strict=True):
        is_memory = isinstance(value, Scratch | Table) or (isinstance(value, Slot) and value.what == MEMORY)
        assert (parameter.dtype is None) == (is_memory or value is None), parameter
        if isinstance(value, Slot):
            assert value.name in (scalars if value.what == "value" else slots)


def check_plain(value: Any) -> None:
    """Check that nothing of OpenCL is part of a value."""
    module = type(value).__module__
    assert not module.startswith("pyopencl"), value
    if is_dataclass(value):
        for each in fields(value):
            check_plain(getattr(value, each.name))
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            check_plain(each)
    elif isinstance(value, dict):
        check_plain(list(value.items()))
    else:
        assert module in ("builtins", "numpy", "functools") or module.startswith(("numpy.", "clhist.")), value


def test_each_slot_has_a_name_of_its_own():
    prepared = prepared_call(Call(COUNTS), CPU)
    with pytest.raises(ValueError, match=r"names of their own, got \['x', 'x'\]"):
        replace(prepared, arrays=(prepared.arrays[0], prepared.arrays[0]))


def test_tables_of_a_batch_are_arrays():
    batch = batch_of_offsets([0, 10, 10, 700, 1000])
    prepared = prepared_call(Call(COUNTS, size=1000, histograms=4, bins=20, ragged=True), GPU, batch=batch)
    tables = [v for command in prepared.commands for v in command.arguments if isinstance(v, Table)]
    assert tables
    assert all(type(table.array) is np.ndarray for table in tables)
    shares = tables[0].array
    assert shares.shape[1] == 3
    np.testing.assert_array_equal(np.bincount(shares[:, 2], shares[:, 1] - shares[:, 0]), [10, 0, 690, 300])


def test_the_bin_that_is_known_is_a_scalar():
    """It depends on content: calls that differ in it alone are the same value."""
    call = Call(operators.count(np.int64), more="uint *found", bins=4096)
    one, other = (prepared_call(call, CPU, largest=LargestBin("total != 0", "found", known)) for known in (0, 77))
    assert one == other
    assert one.scalars == (LOWER_BOUND,)
    assert [slot.is_written for slot in one.arrays] == [False, True, True]
