"""`Accumulator`: histograms of input that comes piece by piece."""

from __future__ import annotations

import gc
import io
import sys

import numpy as np
import pyopencl.array as cl_array
import pytest
from cases import CASES, PRODUCTS, problem, random_values
from reference import counts_of, groups_of

import clhist
from clhist import Accumulator, HistogramKernel, Operator, operators, reduce_by_index
from clhist.arrays import shares_memory
from clhist.execute import Combine
from clhist.staging import InPlace, Staging

SUM = operators.add(np.int64)


@pytest.fixture(params=["in place", "staged", "staged, as a GPU"])
def path(request, gpu_like, monkeypatch):
    """Let NumPy arrays be used where they lie, or staged as for a device with its own memory; and plan as for a GPU."""
    if request.param != "in place":
        monkeypatch.setattr("clhist.stream.shares_memory", lambda device: False)
    if request.param == "staged, as a GPU":
        pretend(monkeypatch, gpu_like)
    clhist.pairs.pair_kernel.cache_clear()  # its kernels keep the plans that they made
    yield request.param
    clhist.pairs.pair_kernel.cache_clear()


def pretend(monkeypatch, profile):
    """Let all that asks for the device's profile get this one."""
    for module in ("kernel", "pairs", "stream"):
        monkeypatch.setattr(f"clhist.{module}.device_profile", lambda device: profile)
    clhist.pairs.pair_kernel.cache_clear()


@pytest.fixture
def chunks(monkeypatch):
    """The numbers of elements of all chunks, in order."""
    seen, original = [], Accumulator._continue

    def spy(self, kernel, given, size):
        seen.append(size)
        return original(self, kernel, given, size)

    monkeypatch.setattr(Accumulator, "_continue", spy)
    return seen


@pytest.fixture
def example(rng):
    """Return indices, some of which do not exist, values, and the sums of 40 bins."""
    indices, values = rng.integers(-3, 45, 3001), rng.integers(-99, 99, 3001)
    return indices, values, np.array([sum(group) for group in groups_of(indices, values, 40)])


def pieces_of(*arrays, sizes=(0, 1, 7, 0, 1000, 130)):
    """Return the arrays in pieces of these sizes, and the rest."""
    ends = np.cumsum(sizes)
    return zip(*(np.split(array, ends) for array in arrays), strict=True)


@pytest.mark.parametrize("name", [*CASES, *PRODUCTS])
def test_operators(name, path):
    bins, values, check = problem(name)
    accumulator = Accumulator((CASES | PRODUCTS)[name].operator, 37, chunk_bytes=1000)
    for piece in pieces_of(bins, values):
        accumulator.add(*piece)
        accumulator.result()  # which changes nothing
    assert accumulator.size == len(bins)
    check(accumulator.result())
    check(accumulator.result())


@pytest.mark.parametrize("chunk_bytes", [1, 8, 100, 1000, 1024, 8192, 3001 * 8, 10**9])
def test_chunks_are_no_larger_than_chunk_bytes(chunk_bytes, path, chunks, example):
    indices, values, expected = (array[:300] if chunk_bytes < 100 else array for array in example)
    accumulator = Accumulator(SUM, 40, chunk_bytes=chunk_bytes)
    accumulator.add(indices, values)
    assert sum(chunks) == len(indices)
    assert max(chunks) <= max(1, chunk_bytes // 8)
    assert len(chunks) <= -(-len(indices) // max(1, chunk_bytes // 8 - 127))
    expected = reduce_by_index(np.zeros(40, np.int64), np.add, indices, values)
    np.testing.assert_array_equal(accumulator.result(), expected, strict=True)
    if accumulator._staging is not None:
        rooms = [room for slot in (accumulator._staging._slot, accumulator._staging._other) for room in slot.locked]
        assert set(rooms) == {"indices", "values"}
        for slot in (accumulator._staging._slot, accumulator._staging._other):
            assert all(room.size <= max(8, chunk_bytes) for room in slot.locked.values())


def test_the_path_is_what_the_device_needs(path):
    in_place = path == "in place" and shares_memory(clhist.default_queue().device)
    assert (Accumulator(SUM, 3)._staging is None) == in_place


@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.bitwise_xor, np.logical_or, "a + b", "max(a, b)"])
def test_ufuncs_and_expressions(ufunc, path, example):
    indices, values, _ = example
    accumulator = Accumulator(ufunc, 40, dtype=np.int64, chunk_bytes=500)
    accumulator.add(indices, values)
    neutral = operators.as_operator(ufunc, np.int64).neutral
    expected = reduce_by_index(np.full(40, neutral, np.int64), ufunc, indices, values)
    np.testing.assert_array_equal(accumulator.result(), expected, strict=True)


def test_nothing_added(path):
    assert Accumulator(np.add, 3, dtype=np.float32).result().tolist() == [0, 0, 0]
    assert Accumulator(np.minimum, 2, dtype=np.int8).result().tolist() == [127, 127]
    accumulator = Accumulator(np.add, 2, dest=np.array([3.0, 4.0]))
    accumulator.add(np.empty(0, np.int32), np.empty(0))
    accumulator.add(np.empty((3, 0), np.int32), 5)
    result = accumulator.result()
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.tolist(), accumulator.size) == (np.float64, [3, 4], 0)


@pytest.mark.parametrize("dtype", ["i1", "u2", "?", "f2", "f4", ">i4", ">f8"])
def test_values_of_another_dtype(dtype, path, rng):
    indices, values = rng.integers(0, 10, 700), rng.integers(0, 2, 700).astype(dtype)
    accumulator = Accumulator(np.add, 10, dtype=np.float64, chunk_bytes=512)
    accumulator.add(indices.astype(">i2"), values)
    accumulator.add(indices.astype(np.uint8), values)
    expected = [2.0 * sum(group) for group in groups_of(indices, values.astype(float), 10)]
    assert accumulator.result().tolist() == expected


def test_one_value_for_all(path, example):
    indices, *_ = example
    accumulator = Accumulator(np.add, 40, dtype=np.int32, chunk_bytes=512)
    accumulator.add(indices, 3)
    accumulator.add(indices, np.int64(-1))
    np.testing.assert_array_equal(accumulator.result(), 2 * counts_of(indices, 40))


@pytest.mark.parametrize("shape", [(3001, 1), (1, 3001), ()])
@pytest.mark.parametrize("order", ["C", "F"])
def test_more_dimensions_and_strides(shape, order, path, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, chunk_bytes=700)
    accumulator.add(np.asarray(indices.reshape(shape or 3001), order=order), values.reshape(shape or 3001))
    np.testing.assert_array_equal(accumulator.result(), expected)
    spread = np.repeat(np.stack([indices[:3000], values[:3000]], axis=1).reshape(30, 100, 2), 2, axis=1)[:, ::2]
    accumulator.add(np.asarray(spread[..., 0], order=order), spread[..., 1])
    accumulator.add(indices[3000:].tolist(), values[3000:].tolist())
    np.testing.assert_array_equal(accumulator.result(), 2 * expected)


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


def test_out_of_order_queue(path, out_of_order_queue, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, queue=out_of_order_queue, chunk_bytes=256)
    accumulator.add(indices, values)
    accumulator.merge(accumulator)
    accumulator.add(indices, values)
    np.testing.assert_array_equal(accumulator.result(), 3 * expected)


# Kinds of arrays.


def test_device_arrays_give_device_arrays(path, queue, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, queue=queue, chunk_bytes=64)
    accumulator.add(*(cl_array.to_device(queue, array) for array in (indices, values)))
    result = accumulator.result()
    assert isinstance(result, cl_array.Array)
    np.testing.assert_array_equal(result.get(), expected, strict=True)
    accumulator.add(indices, values)
    assert isinstance(accumulator.result(), np.ndarray)
    np.testing.assert_array_equal(accumulator.result(), 2 * expected, strict=True)
    accumulator.add(cl_array.to_device(queue, indices), 0)
    np.testing.assert_array_equal(accumulator.result().get(), 2 * expected)
    np.testing.assert_array_equal(result.get(), expected)  # is a copy


def test_dest(path, queue, example):
    indices, values, expected = example
    dest = np.arange(40)
    for given in (dest, np.repeat(dest, 2)[::2], dest.astype(">i8"), cl_array.to_device(queue, dest)):
        accumulator = Accumulator(np.add, 40, dest=given, queue=queue, chunk_bytes=999)
        accumulator.add(indices, values)
        np.testing.assert_array_equal(accumulator.result(), expected + dest, strict=True)
    assert dest.tolist() == list(range(40))


def test_dest_is_a_value(path):
    accumulator = Accumulator(operators.mean(np.float32), 2, dest=np.array([1, 2], np.float32))
    accumulator.add(np.array([0, 0, 7]), np.array([4, 7, 9], np.float32))
    assert accumulator.result().tolist() == [4, 2]
    assert accumulator.partial().tolist() == [(12, 3), (2, 1)]


# Positions.


@pytest.mark.parametrize("start", [0, 10_000])
def test_positions_go_on(start, path, queue, rng):
    indices, values = rng.integers(0, 20, 3000), rng.integers(-9, 9, 3000).astype(np.float32)
    where = [np.flatnonzero(indices == k) for k in range(20)]
    best = [int(each[values[each].argmax()]) for each in where]
    for ready, expected in [
        (operators.argmax, best),
        (operators.first, [int(each[0]) for each in where]),
        (operators.last, [int(each[-1]) for each in where]),
    ]:
        accumulator = Accumulator(ready(np.float32, np.int64), 20, chunk_bytes=512, start=start, queue=queue)
        accumulator.add(indices[:1500], values[:1500].astype(np.int8))
        accumulator.add(*(cl_array.to_device(queue, array[1500:2000]) for array in (indices, values)))
        accumulator.add(indices[2000:].reshape(10, 100), values[2000:].reshape(10, 100))
        result = accumulator.result()
        assert accumulator.size == 3000
        assert (result["index"] - start).tolist() == expected
        assert result["value"].tolist() == values[expected].tolist()


def test_pairs_keep_their_own_indices(path):
    operator = operators.argmax(np.float32)
    pairs = np.array([(1, 70), (5, 60), (5, 50)], operator.dtype)
    accumulator = Accumulator(operator, 1)
    accumulator.add(np.zeros(3, int), pairs)
    accumulator.add(np.zeros(3, int), (pairs["value"], pairs["index"] - 20))
    assert accumulator.result().tolist() == [(5, 30)]


def test_positions_that_do_not_fit_are_refused():
    accumulator = Accumulator(operators.first(np.int32, np.int8), 2, start=120)
    accumulator.add(np.zeros(3, int), np.arange(3))
    with pytest.raises(ValueError, match=r"^indices: the position 128 does not fit int8 of the index"):
        accumulator.add(np.zeros(6, int), np.arange(6))
    accumulator.add(np.ones(5, int), np.arange(5))
    assert accumulator.result().tolist() == [(0, 120), (0, 123)]


# Maps.


def test_several_histograms(path, example):
    indices, values, expected = example
    x = values.astype(np.float32)
    code = "EMIT{0}(group[i], x[i]); EMIT{1}(x[i] > scale, 1)"
    arguments = "const long *group, const float *x, float scale"
    ready = operators.mean(np.float32), operators.add(np.int32)
    named = HistogramKernel(
        None, dict(zip("mn", ready, strict=True)), arguments=arguments, map=code.format("_m", "_n")
    ).accumulator({"m": 40, "n": 2}, chunk_bytes=1000, dest={"n": np.array([100, 200], np.int32)})
    listed = Accumulator(
        HistogramKernel(None, ready, arguments=arguments, map=code.format(0, 1)), [40, 2], chunk_bytes=1000
    )
    for piece in pieces_of(indices, x):
        named.add(*piece, 5)
        listed.add(*piece, 5)
    assert named.size == len(x)
    means, above = expected / counts_of(indices, 40), counts_of(x > 5, 2)
    found = named.result()
    assert list(found) == ["m", "n"]
    np.testing.assert_allclose(found["m"], means, rtol=1e-4)
    np.testing.assert_array_equal(found["n"], [above[0] + 100, above[1] + 200])
    assert isinstance(listed.result(), tuple)
    np.testing.assert_array_equal(listed.result()[1], above)
    named.merge(named.partial())
    listed.merge(listed.partial())
    np.testing.assert_array_equal(named.result()["n"], 2 * above + [200, 400])
    np.testing.assert_allclose(listed.result()[0], means, rtol=1e-4)


def test_what_is_not_split_goes_along_once(path, monkeypatch, chunks, rng):
    taken, original = [], InPlace.take

    def spy(self, arrays):
        taken.append([argument.name for argument in arrays])
        return original(self, arrays)

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


def test_maps_without_arrays(path):
    kernel = HistogramKernel(None, SUM, arguments="int step", map="EMIT(i % 3, step)")
    accumulator = kernel.accumulator(3, chunk_bytes=1)
    accumulator.add(5, size=10)
    accumulator.add(1, size=0)
    accumulator.add(1, size=1)
    assert accumulator.result().tolist() == [21, 15, 15]
    assert accumulator.size == 11


def test_bins_of_more_dimensions(path):
    kernel = HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 1)")
    accumulator = kernel.accumulator((2, 3), dest=np.ones((2, 3), np.int64), chunk_bytes=4)
    accumulator.add(np.array([0, 5, 5, 6], np.int32))
    assert accumulator.result().tolist() == [[2, 1, 1], [1, 1, 3]]
    assert accumulator.partial().shape == (2, 3)


@pytest.mark.parametrize(
    "choices",
    [
        {"update": "lock", "memory": "global"},
        {"update": "cas", "memory": "local", "copies": 2},
        {"memory": "local", "passes": 3},
        {"work_group_size": 8},
        {"update": "sort"},
        {"memory_budget": 640},
        {"race_factor": "sample"},
        {"race_factor": 7.5},
    ],
    ids=str,
)
def test_choices_change_nothing_in_the_result(choices, path, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, chunk_bytes=8192, **choices)
    accumulator.add(indices, values)
    np.testing.assert_array_equal(accumulator.result(), expected)


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
    accumulator, run, chunks = Accumulator(SUM, 40, chunk_bytes=4096), HistogramKernel.run, []

    def fails_once(self, *args):
        chunks.append(args)
        if len(chunks) == 3:
            raise error("no more")
        return run(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(HistogramKernel, "run", fails_once)
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
    accumulator, combine, calls = kernel.accumulator(9), Combine.enqueue, []
    accumulator.add(x)

    def fails_at_the_second(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise MemoryError("no more")
        return combine(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Combine, "enqueue", fails_at_the_second)
        with pytest.raises(MemoryError):
            accumulator.add(x)
    first, second = accumulator.result()
    np.testing.assert_array_equal(first, counts_of(x, 9))
    np.testing.assert_array_equal(second, 2 * first)
    accumulator.add(x)
    np.testing.assert_array_equal(accumulator.result()[1], 4 * first)


def test_staging_takes_turns_and_ends_with_its_accumulator(monkeypatch, example):
    monkeypatch.setattr("clhist.stream.shares_memory", lambda device: False)
    slots, original = [], Staging.take

    def spy(self, arrays):
        found = original(self, arrays)
        slots.append({name: array.base_data.int_ptr for name, array in found.items()})
        return found

    monkeypatch.setattr(Staging, "take", spy)
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, chunk_bytes=4096)
    accumulator.add(indices, values)
    assert len(slots) == 6
    assert slots[0] == slots[2] == slots[4]
    assert slots[1] == slots[3] == slots[5]
    assert not set(slots[0].values()) & set(slots[1].values())
    np.testing.assert_array_equal(accumulator.result(), expected)
    kept = [*accumulator._staging._slot.locked, *accumulator._staging._other.locked]
    assert sorted(kept) == ["indices", "indices", "values", "values"]
    locked = [accumulator._staging._slot.locked, accumulator._staging._other.locked]
    accumulator.add(indices, values)  # and the device may still compute
    del accumulator
    gc.collect()
    assert locked == [{}, {}]


# Partial results.


@pytest.mark.parametrize("name", [*CASES, *PRODUCTS])
def test_merge(name, path, other_queue):
    bins, values, check = problem(name)
    operator = (CASES | PRODUCTS)[name].operator
    parts = [Accumulator(operator, 37, queue=queue) for queue in (None, None, other_queue, None)]
    for accumulator, piece in zip(parts, pieces_of(bins, values, sizes=(5, 1000, 1500)), strict=True):
        accumulator.add(*piece)
    total, same, elsewhere, array = parts
    total.merge(same)
    total.merge(elsewhere)
    partial = array.partial()
    assert isinstance(partial, np.ndarray)
    shared = "GPU" in path or clhist.device_profile(clhist.default_queue().device).kind != "cpu"
    assert partial.dtype == operator.fixed(shared=shared).accumulator
    total.merge(partial)
    assert total.size == 5
    check(total.result())
    same.add(bins[:5], values[:5])
    assert (same.size, elsewhere.size, array.size) == (1005, 1500, 496)


@pytest.mark.parametrize("name", ["argmax float32", "add complex64", "first float32", "mean float32"])
def test_merge_of_another_form(name, monkeypatch, gpu_like, cpu_like):
    bins, values, check = problem(name)
    operator = (CASES | PRODUCTS)[name].operator
    with monkeypatch.context() as patch:
        pretend(patch, cpu_like)
        own = [Accumulator(operator, 37) for _ in range(2)]
        pretend(patch, gpu_like)
        others = [Accumulator(operator, 37) for _ in range(2)]
        for k, accumulator in enumerate([*own, *others]):
            accumulator.add(bins[k // 2 :: 2], values[k // 2 :: 2])
    clhist.pairs.pair_kernel.cache_clear()
    assert (own[0].partial().dtype == others[0].partial().dtype) == (not operator.lifted)
    own[0].merge(others[0])
    others[1].merge(own[1])
    check(own[0].result())
    check(others[1].result())


def test_forms_that_no_value_can_stand_for_are_not_merged(monkeypatch, gpu_like, cpu_like):
    # The number of distinct values modulo 32.
    bits = {"lift": "1u << v % 32", "finish": "popcount(a)", "accumulator": np.uint32}
    better = Operator(np.uint32, "max(a, b)", 0, **{**bits, "lift": "v", "finish": "a"})
    own, others = Operator(np.uint32, "a | b", 0, **bits, lifted=better), []
    pretend(monkeypatch, cpu_like)
    plain = Accumulator(own, 3)
    pretend(monkeypatch, gpu_like)
    others.append(Accumulator(own, 3))
    with pytest.raises(ValueError, match=r"^other: expected one on a device of the same kind, since <Operator bitwise"):
        plain.merge(others[0])
    assert plain.result().tolist() == [0, 0, 0]


def test_merge_with_itself(path):
    accumulator = Accumulator(np.add, 3, dtype=np.float32, dest=np.array([1, 2, 3], np.float32))
    accumulator.merge(accumulator)
    accumulator.merge(accumulator.partial())
    assert accumulator.result().tolist() == [4, 8, 12]


def test_a_kernel_merges_with_pairs(path, queue, example):
    indices, values, expected = example
    kernel = HistogramKernel(None, SUM, arguments="const long *k, const long *v", map="EMIT(k[i], v[i])")
    first, second = kernel.accumulator(40), Accumulator(SUM, 40)
    first.add(indices, values)
    second.merge(first)
    second.merge(cl_array.to_device(queue, first.partial()))
    np.testing.assert_array_equal(second.result(), 2 * expected)


# What is wrong is refused.


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((np.add, 3), {}, TypeError, r"dtype: expected that of the bins for <ufunc 'add'>"),
        ((np.subtract, 3), {"dtype": "i4"}, TypeError, r"operator: expected a clhist.Operator"),
        ((None, 3), {}, TypeError, r"operator: expected a clhist.Operator"),
        ((SUM, 0), {}, ValueError, r"num_bins: expected at least 1, got 0"),
        ((SUM, 2.5), {}, TypeError, r"num_bins: expected an integer, got 2.5"),
        ((SUM, (3, 4)), {}, ValueError, r"num_bins: expected one dimension for an operator, got \(3, 4\)"),
        ((SUM, 3), {"dtype": "i4"}, TypeError, r"operator: expected an operator on int32, got one on int64"),
        ((SUM, 3), {"dest": np.zeros(3)}, TypeError, r"dest: expected an array of int64, got one of float64"),
        ((SUM, 3), {"dest": np.zeros(4, int)}, ValueError, r"dest: expected shape \(3,\), got \(4,\)"),
        ((SUM, 3), {"dest": [1, 2, 3]}, TypeError, r"dest: expected a NumPy or PyOpenCL array of int64, got list"),
        ((SUM, 3), {"chunk_bytes": 0}, ValueError, r"chunk_bytes: expected at least 1, got 0"),
        ((SUM, 3), {"chunk_bytes": "1M"}, TypeError, r"chunk_bytes: expected an integer, got '1M'"),
        ((SUM, 3), {"start": -1}, ValueError, r"start: expected at least 0, got -1"),
        ((SUM, 3), {"first_index": "first"}, TypeError, r"first_index: expected none, since there is no map"),
        ((SUM, 3), {"colour": 3}, TypeError, r"colour: expected one of copies, .* or memory_budget"),
    ],
)
def test_bad_accumulators(args, options, error, message):
    with pytest.raises(error, match=f"^{message}"):
        Accumulator(*args, **options)


@pytest.mark.parametrize("name", ["x", "weight", "second", 3])
def test_bad_first_index(name):
    kernel = HistogramKernel(
        None, SUM, arguments="const int *x, float weight, int first", map="EMIT(x[i], weight + first + i)"
    )
    with pytest.raises(ValueError, match=r"^first_index: expected the name of a scalar argument of an integer type"):
        kernel.accumulator(3, first_index=name)
    with pytest.raises(TypeError, match=r"^dtype: expected none"):
        kernel.accumulator(3, dtype=np.int32)


INDICES, VALUES = np.zeros(4, np.int32), np.ones(4, np.int64)


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((INDICES,), {}, TypeError, r"add: expected indices and values, got 1 arguments"),
        ((INDICES, VALUES, 3), {}, TypeError, r"add: expected indices and values, got 3 arguments"),
        ((INDICES, VALUES), {"size": 3}, TypeError, r"add: expected indices and values, got 2 arguments and size=3"),
        ((INDICES / 2, VALUES), {}, TypeError, r"indices: expected integers, got float64"),
        ((INDICES, VALUES[:3]), {}, ValueError, r"values: expected shape \(4,\) as of indices, got \(3,\)"),
        ((INDICES, VALUES / 2), {}, TypeError, r"values: expected what converts to int64"),
        ((INDICES, 2.5), {}, ValueError, r"values: .*2.5.* does not fit int64"),
        ((INDICES, None), {}, TypeError, r"values: expected a scalar of int64, got NoneType"),
    ],
)
def test_bad_pairs(args, options, error, message, path):
    accumulator = Accumulator(SUM, 3, chunk_bytes=16)
    accumulator.add(INDICES, VALUES)
    with pytest.raises(error, match=f"^{message}"):
        accumulator.add(*args, **options)
    with pytest.raises(error):
        accumulator.extend([(INDICES, VALUES), args if not options else (None, None)])
    assert accumulator.size == 8
    assert accumulator.result().tolist() == [8, 0, 0]


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((INDICES,), TypeError, r"add: expected 3 arguments \(x, y, scale\), got 1"),
        ((INDICES, VALUES, 1, 0), TypeError, r"add: expected 3 arguments"),
        ((VALUES, VALUES, 1), TypeError, r"x: expected an array of int32, got one of int64"),
        ((INDICES, [1], 1), TypeError, r"y: expected a NumPy or PyOpenCL array of int64, got list"),
        ((INDICES, VALUES[:3], 1), ValueError, r"y: expected at least 4 elements, got 3"),
        ((INDICES, VALUES, None), TypeError, r"scale: expected a scalar of int32, got NoneType"),
        ((INDICES.repeat(40), VALUES.repeat(40), 1), ValueError, r"first: .*does not fit int8"),
    ],
)
def test_bad_arguments_of_a_map(args, error, message, path):
    kernel = HistogramKernel(
        None, SUM, arguments="const int *x, const long *y, char first, int scale", map="EMIT(x[i], y[i] * scale)"
    )
    accumulator = kernel.accumulator(2, chunk_bytes=8, first_index="first")
    accumulator.add(INDICES, VALUES, 2)
    with pytest.raises(error, match=f"^{message}"):
        accumulator.add(*args)
    assert accumulator.size == 4
    assert accumulator.result().tolist() == [8, 0]


def test_arrays_of_two_kinds_or_contexts_are_refused(path, queue, other_queue):
    accumulator = Accumulator(SUM, 2, queue=queue)
    with pytest.raises(TypeError, match=r"^indices: expected a PyOpenCL array as values is"):
        accumulator.add(INDICES, cl_array.to_device(queue, VALUES))
    with pytest.raises(ValueError, match=r"^indices: expected an array of the context"):
        accumulator.add(*(cl_array.to_device(other_queue, array) for array in (INDICES, VALUES)))
    with pytest.raises(ValueError, match=r"^dest: expected an array of the context"):
        Accumulator(SUM, 4, queue=queue, dest=cl_array.to_device(other_queue, VALUES))
    assert accumulator.result().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (lambda: Accumulator(np.add, 3, dtype="i4"), ValueError, r"other: .* add on int64.* add on int32"),
        (lambda: Accumulator(SUM, 4), ValueError, r"other: .*of \(\(3,\),\) bins, got \(\(4,\),\)"),
        (lambda: np.zeros(3), TypeError, r"other: expected an array of int64, got one of float64"),
        (lambda: np.zeros(4, int), ValueError, r"other: expected shape \(3,\), got \(4,\)"),
        (lambda: None, TypeError, r"other: expected a NumPy or PyOpenCL array of int64, got NoneType"),
    ],
)  # fmt: skip
def test_bad_merges(other, error, message):
    accumulator = Accumulator(SUM, 3, dest=np.arange(3))
    with pytest.raises(error, match=f"^{message}"):
        accumulator.merge(other())
    assert accumulator.result().tolist() == [0, 1, 2]


def test_bad_merges_of_several():
    def made(*names):
        code = "; ".join(f"EMIT_{name}(0, 1)" for name in names)
        return HistogramKernel(None, dict.fromkeys(names, SUM), arguments="", map=code).accumulator(2)

    accumulator = made("a", "b")
    with pytest.raises(
        ValueError, match=r"^other: expected an Accumulator of the names \('a', 'b'\), got .*\('a', 'c'\)"
    ):
        accumulator.merge(made("a", "c"))
    with pytest.raises(TypeError, match=r"^other: expected a mapping of a, b, got ndarray"):
        accumulator.merge(np.zeros(2, int))
    with pytest.raises(TypeError, match=r"^other\['b'\]: expected an array of int64, got one of int8"):
        accumulator.merge({"a": np.ones(2, int), "b": np.ones(2, np.int8)})
    assert accumulator.result()["a"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"total": "many"}, TypeError, "total: expected an integer, got 'many'"),
        ({"total": -1}, ValueError, "total: expected at least 0, got -1"),
        ({"progress": "yes"}, TypeError, "progress: expected a bool or a callable, got 'yes'"),
        ({"progress": None}, TypeError, "progress: expected a bool or a callable, got None"),
    ],
)
def test_bad_extend(options, error, message):
    accumulator = Accumulator(SUM, 3)
    with pytest.raises(error, match=f"^{message}"):
        accumulator.extend([(INDICES, VALUES)], **options)
    assert accumulator.size == 0


def test_floats_agree_with_one_call(path, rng):
    indices, values = rng.integers(0, 30, 5000), random_values(rng, 5000, np.float32)
    accumulator = Accumulator(np.add, 30, dtype=np.float32, chunk_bytes=777)
    accumulator.add(indices, values)
    size = [sum(map(abs, group)) for group in groups_of(indices, values, 30)]
    whole = reduce_by_index(np.zeros(30, np.float32), np.add, indices, values)
    assert (np.abs(accumulator.result() - whole) <= 5000 * np.finfo(np.float32).eps * np.array(size)).all()
