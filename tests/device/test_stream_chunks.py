"""`Accumulator`: how pieces are divided into chunks, maps over them, iterators, and chunks that fail."""

from __future__ import annotations

import gc
import io
import sys
import weakref

import numpy as np
import pytest
import streams
from streams import SUM, every_path, pieces_of

import clhist
from clhist import Accumulator, HistogramKernel, operators
from clhist._core.opencl.new_arrays import shares_memory
from clhist._core.runtime import launcher
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.staging import InPlace, Staging
from clhist.selftest.reference import counts_of, groups_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

path, chunks, example = streams.path, streams.chunks, streams.example


@every_path
@pytest.mark.parametrize("chunk_bytes", [1, 8, 100, 1000, 1024, 8192, 3001 * 8, 10**9])
def test_chunks_are_no_larger_than_chunk_bytes(chunk_bytes, path, chunks, example):
    indices, values = (array[:300] if chunk_bytes < 100 else array for array in example[:2])
    accumulator = Accumulator(SUM, 40, chunk_bytes=chunk_bytes)
    accumulator.add(indices, values)
    assert sum(chunks) == len(indices)
    assert max(chunks) <= max(1, chunk_bytes // 8)
    assert len(chunks) <= -(-len(indices) // max(1, chunk_bytes // 8 - 127))
    expected = np.array([sum(group) for group in groups_of(indices, values, 40)])
    np.testing.assert_array_equal(accumulator.result(), expected, strict=True)
    staging = accumulator._chunks.staging
    if staging is not None:
        rooms = [room for slot in (staging._slot, staging._other) for room in slot.buffers]
        assert set(rooms) == {"indices", "values"}
        for slot in (staging._slot, staging._other):
            assert all(room.size <= max(8, chunk_bytes) for room in slot.buffers.values())


def test_the_path_is_what_the_device_needs(path):
    in_place = path == "in place" and shares_memory(clhist.default_queue().device)
    assert (Accumulator(SUM, 3)._chunks.staging is None) == in_place


def test_memory_mapped_files(path, chunks, example, tmp_path):
    indices, values, expected = example
    np.save(tmp_path / "indices.npy", indices)
    np.save(tmp_path / "values.npy", values)
    files = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indices", "values")]
    accumulator = Accumulator(SUM, 40, chunk_bytes=2048)
    accumulator.add(*files)
    assert len(chunks) == 12
    np.testing.assert_array_equal(accumulator.result(), expected)


def test_arrays_may_be_changed_after_each_piece(path, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40)
    room = np.empty(500, np.int64), np.empty(500, np.int64)
    for piece in pieces_of(indices, values, sizes=[500] * 6):
        for array, content in zip(room, piece, strict=True):
            array[: content.size] = content
        accumulator.add(*(array[: piece[0].size] for array in room))
        for array in room:
            array[:] = 7
    np.testing.assert_array_equal(accumulator.result(), expected)


def test_staging_takes_turns_and_ends_with_its_accumulator(monkeypatch, example):
    monkeypatch.setattr("clhist._core.runtime.chunks.shares_memory", lambda device: False)
    slots, original = [], Staging.take

    def spy(self, arguments, args, places):
        original(self, arguments, args, places)
        slots.append({arguments[n].name: args[n].base_data.int_ptr for n in places})

    monkeypatch.setattr(Staging, "take", spy)
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, chunk_bytes=4096)
    accumulator.add(indices, values)
    assert len(slots) == 6
    assert slots[0] == slots[2] == slots[4]
    assert slots[1] == slots[3] == slots[5]
    assert not set(slots[0].values()) & set(slots[1].values())
    np.testing.assert_array_equal(accumulator.result(), expected)
    staging = accumulator._chunks.staging
    assert sorted([*staging._slot.buffers, *staging._other.buffers]) == ["indices", "indices", "values", "values"]
    seen = weakref.ref(staging)
    accumulator.add(indices, values)  # and the device may still compute
    del accumulator, staging
    gc.collect()
    assert seen() is None


# Maps.


MEAN, COUNT = operators.mean(np.float32), operators.add(np.int32)
ARGUMENTS = "const long *group, const float *x, float scale"


@every_path
def test_several_histograms(path, example):
    indices, values, expected = example
    x = values.astype(np.float32)
    code = "EMIT_m(group[i], x[i]); EMIT_n(x[i] > scale, 1)"
    accumulator = HistogramKernel(None, {"m": MEAN, "n": COUNT}, arguments=ARGUMENTS, map=code).accumulator(
        {"m": 40, "n": 2}, chunk_bytes=1000, dest={"n": np.array([100, 200], np.int32)}
    )
    for piece in pieces_of(indices, x):
        accumulator.add(*piece, 5)
    assert accumulator.size == len(x)
    above, found = counts_of(x > 5, 2), accumulator.result()
    assert list(found) == ["m", "n"]
    np.testing.assert_allclose(found["m"], expected / counts_of(indices, 40), rtol=1e-4)
    np.testing.assert_array_equal(found["n"], [above[0] + 100, above[1] + 200])
    accumulator.merge(accumulator.partial(), allow_repeat=True)
    np.testing.assert_array_equal(accumulator.result()["n"], 2 * above + [200, 400])


def test_several_histograms_in_a_list(example):
    indices, values, expected = example
    x = values.astype(np.float32)
    code = "EMIT0(group[i], x[i]); EMIT1(x[i] > scale, 1)"
    kernel = HistogramKernel(None, (MEAN, COUNT), arguments=ARGUMENTS, map=code)
    accumulator = Accumulator(kernel, [40, 2], chunk_bytes=1000)
    for piece in pieces_of(indices, x):
        accumulator.add(*piece, 5)
    assert isinstance(accumulator.result(), tuple)
    np.testing.assert_array_equal(accumulator.result()[1], counts_of(x > 5, 2))
    accumulator.merge(accumulator.partial(), allow_repeat=True)
    np.testing.assert_allclose(accumulator.result()[0], expected / counts_of(indices, 40), rtol=1e-4)


def test_what_is_not_split_goes_along_once(path, monkeypatch, chunks, rng):
    taken, original = [], InPlace.take

    def spy(self, arguments, args, places):
        taken.append([arguments[n].name for n in places])
        original(self, arguments, args, places)

    monkeypatch.setattr(InPlace, "take", spy)
    kernel = HistogramKernel(
        None, SUM, arguments="const int *key, const short *table, int n", map="EMIT(table[key[i]], n)"
    )
    key, table = rng.integers(0, 50, 3000, np.int32), rng.integers(0, 9, 50, np.int16)
    accumulator = kernel.accumulator(9, chunk_bytes=64)
    accumulator.add(key, table, 2)
    accumulator.add(key[:10], np.repeat(table, 2)[::2], -2)
    np.testing.assert_array_equal(accumulator.result(), 2 * counts_of(table[key[10:]], 9))
    assert len(chunks) == 189
    assert sum("table" in names for names in taken) == 2
    in_place = path == "in place" and shares_memory(clhist.default_queue().device)
    assert all(("key" in names) == in_place for names in taken if "table" not in names and names)


def test_arrays_that_the_map_writes(path, chunks, rng):
    kernel = HistogramKernel(
        None,
        SUM,
        arguments="const int *x, short *twice, int *seen",
        map="twice[i] += 2 * x[i]; seen[x[i] % 7] = 1; EMIT(x[i], 1)",
    )
    x, twice, seen = rng.integers(0, 20, 1000, np.int32), np.arange(1200, dtype=np.int16), np.zeros(7, np.int32)
    accumulator = kernel.accumulator(20, chunk_bytes=512)
    accumulator.add(x, twice, seen)
    assert len(chunks) == 8
    np.testing.assert_array_equal(twice[:1000], np.arange(1000) + 2 * x)
    np.testing.assert_array_equal(twice[1000:], np.arange(1000, 1200))
    np.testing.assert_array_equal(seen, 1)
    np.testing.assert_array_equal(accumulator.result(), counts_of(x, 20))


def test_maps_that_use_i(path, chunks, rng):
    x = rng.integers(0, 9, 1000, np.int32)
    kernel = HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], i)")
    accumulator = kernel.accumulator(9, chunk_bytes=400)
    with pytest.raises(ValueError, match=r"^x: expected at most 400 bytes \(chunk_bytes\), got 4000, .* first_index "):
        accumulator.add(x)
    assert (chunks, accumulator.size) == ([], 0)
    accumulator.add(x[:100])
    positioned = HistogramKernel(None, SUM, arguments="const int *x, int first", map="EMIT(x[i], first + i)")
    going_on = positioned.accumulator(9, chunk_bytes=400, first_index="first", start=5)
    going_on.add(x[:700])
    going_on.extend([x[700:], x[:0]])
    np.testing.assert_array_equal(accumulator.result(), [np.flatnonzero(x[:100] == k).sum() for k in range(9)])
    np.testing.assert_array_equal(going_on.result(), [(np.flatnonzero(x == k) + 5).sum() for k in range(9)])


@pytest.mark.parametrize(
    ("code", "preamble", "uses"),
    [
        ("EMIT(x[i], y[ i ])", "", False),
        ("EMIT(x[i], y[i]) // for each i", "", False),
        ("/* each i\n */ EMIT(x[i], y[i])", "int f(int i) { return i; }", False),
        ("EMIT(x[i], y[i].i)", "", False),
        ("EMIT(x[i], i)", "", True),
        ("EMIT(x[i], y[i + 1])", "", True),
        ("// comment\nEMIT(x[i], y[i] + i)", "", True),
        ("EMIT(x[i], y[i] * HERE)", "#define HERE \\\n i", True),
    ],
)
def test_what_uses_the_position(code, preamble, uses):
    pair = np.dtype([("i", np.int32)])
    kernel = HistogramKernel(
        None, SUM, arguments="const int *x, const pair *y", map=code, preamble=preamble, structs={"pair": pair}
    )
    assert kernel.uses_position is uses


def test_maps_without_arrays():
    kernel = HistogramKernel(None, SUM, arguments="int step", map="EMIT(i % 3, step)")
    accumulator = kernel.accumulator(3, chunk_bytes=1)
    accumulator.add(5, size=10)
    accumulator.add(1, size=0)
    accumulator.add(1, size=1)
    assert accumulator.result().tolist() == [21, 15, 15]
    assert accumulator.size == 11


def test_bins_of_more_dimensions():
    kernel = HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 1)")
    accumulator = kernel.accumulator((2, 3), dest=np.ones((2, 3), np.int64), chunk_bytes=4)
    accumulator.add(np.array([0, 5, 5, 6], np.int32))
    assert accumulator.result().tolist() == [[2, 1, 1], [1, 1, 3]]
    assert accumulator.partial().accumulators.shape == (2, 3)


# Iterators.


def test_extend(path, example):
    indices, values, expected = example
    accumulator, reports = Accumulator(SUM, 40, chunk_bytes=512), []
    accumulator.add(indices[:1], values[:1])
    given = pieces_of(indices[1:], values[1:], sizes=(1000, 0, 999))
    accumulator.extend(given, total=3000, progress=lambda *report: reports.append(report))
    assert reports == [(1000, 3000), (1000, 3000), (1999, 3000), (3000, 3000)]
    accumulator.extend(iter(()), progress=lambda *report: reports.append(report))
    assert len(reports) == 4
    np.testing.assert_array_equal(accumulator.result(), expected)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("total", [None, 3001])
def test_a_bar_of_the_progress(total, monkeypatch, capsys, example):
    indices, values, expected = example
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    accumulator = Accumulator(SUM, 40)
    accumulator.extend(pieces_of(indices, values), total=total, progress=True)
    accumulator.extend([], progress=False)
    assert "elements" in terminal.getvalue()
    assert ("100%" in terminal.getvalue()) == (total is not None)
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(accumulator.result(), expected)


# What fails leaves what came before.


def test_what_an_iterator_raises_leaves_what_came_before(path, example):
    indices, values, expected = example

    def broken():
        for piece in pieces_of(indices, values):
            if len(piece[0]) > 1500:
                raise OSError("the disk is gone")
            yield piece

    accumulator = Accumulator(SUM, 40, chunk_bytes=512)
    with pytest.raises(OSError, match=r"^the disk is gone$"):
        accumulator.extend(broken())
    assert accumulator.size == 1138
    np.testing.assert_array_equal(
        accumulator.result(), [sum(group) for group in groups_of(indices[:1138], values[:1138], 40)]
    )
    accumulator.add(indices[1138:], values[1138:])
    np.testing.assert_array_equal(accumulator.result(), expected)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_chunk_that_fails_is_not_added(error, path, monkeypatch, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, chunk_bytes=4096)

    original, chunks = Engine.run, []

    def fails_at_the_third(*args):
        chunks.append(1)
        if len(chunks) == 3:
            raise error("no more")
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "run", fails_at_the_third)
        with pytest.raises(error):
            accumulator.add(indices, values)
    assert accumulator.size == 1024
    np.testing.assert_array_equal(
        accumulator.result(), [sum(group) for group in groups_of(indices[:1024], values[:1024], 40)]
    )
    accumulator.add(indices[1024:], values[1024:])
    np.testing.assert_array_equal(accumulator.result(), expected)


def test_a_chunk_is_in_all_of_several_histograms_or_in_none(path, monkeypatch, rng):
    x = rng.integers(0, 9, 500, np.int32)
    kernel = HistogramKernel(None, (SUM, SUM), arguments="const int *x", map="EMIT0(x[i], 1); EMIT1(x[i], 2)")
    accumulator, counts = kernel.accumulator(9), counts_of(x, 9)
    for added in (1, 2, 3):  # a combination is the last command of either
        accumulator.add(x)
        original, calls = launcher._Command.run, []

        def fails_at_the_second(self, *args, original=original, calls=calls):
            calls.append(args)
            if len(calls) == 2:
                raise MemoryError("no more")
            return original(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(launcher._Command, "run", fails_at_the_second)
            with pytest.raises(MemoryError):
                accumulator.add(x)
        first, second = accumulator.result()
        np.testing.assert_array_equal(first, added * counts)
        np.testing.assert_array_equal(second, 2 * first)
