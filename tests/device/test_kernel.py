"""`HistogramKernel`: maps that emit what they like, and all that they can be given."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from processes import run_python

import clhist
from clhist import HistogramKernel, Operator, operators
from clhist._core.devices.vendors import MEMORIES
from clhist.selftest.reference import counts_of, groups_of

SUM = operators.add(np.int32)


def kernel_of(profile, arguments, map, operator=SUM, **more):
    return HistogramKernel(None, operator, arguments=arguments, map=map, profile=profile, **more)


@pytest.mark.parametrize("passes", [1, 4])
@pytest.mark.parametrize("memory", MEMORIES)
def test_pairs_for_each_element(memory, passes, profile, rng):
    # Element x gives x pairs: none, one or many.
    kernel = kernel_of(profile, "const uchar *x", "for (int k = 0; k < x[i]; ++k) EMIT(i % 10 + k, k + 1)")
    x = rng.integers(0, 6, 3000, np.uint8)
    pairs = [(element % 10 + k, k + 1) for element, many in enumerate(x.tolist()) for k in range(many)]
    bins, values = (np.array(part) for part in zip(*pairs, strict=True))
    expected = [sum(group) for group in groups_of(bins, values, 12)]
    assert kernel(x, num_bins=12, memory=memory, passes=passes).tolist() == expected


def test_no_pair_at_all(profile):
    kernel = kernel_of(profile, "const int *x", "if (x[i] > 5) EMIT(0, x[i])")
    assert kernel(np.zeros(1000, np.int32), num_bins=3).tolist() == [0, 0, 0]


def test_scalars_of_each_type(profile):
    names = ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double"]
    arguments = (
        ", ".join(f"{name} a_{name}" for name in names) + ", float2 a_float2, double2 a_double2, value_t a_value"
    )
    emitted = [f"EMIT({k}, a_{name})" for k, name in enumerate(names)]
    emitted += ["EMIT(10, a_float2.x)", "EMIT(11, a_float2.y)", "EMIT(12, a_double2.x)", "EMIT(13, a_double2.y)"]
    kernel = kernel_of(profile, arguments, "; ".join([*emitted, "EMIT(14, a_value)"]), operators.add(np.float64))
    values = [-128, 255, -32768, 65535, -(2**31), 2**32 - 1, -(2**53), 2**53, 0.5, -np.inf]
    result = kernel(*values, 1.5 - 2j, np.complex128(3 + 4j), np.float32(7), size=1, num_bins=15)
    assert result.tolist() == [*values, 1.5, -2, 3, 4, 7]


@pytest.mark.parametrize("memory", [*MEMORIES, "partitioned", None])
def test_scalars_that_are_in_arrays(memory, profile, queue, rng):
    """A map gets the first element of an array, of a struct as well, whatever the way of the bins."""
    pair = np.dtype([("step", np.int32), ("scale", np.float32)])
    arguments, code = (
        "const int *x, const pair &by, const long &least",
        "EMIT(x[i], (int)(x[i] * by.scale) + by.step + least)",
    )
    kernel = kernel_of(profile, arguments, code, structs={"pair": pair})
    assert "const pair &by" in repr(kernel)
    x, more = rng.integers(0, 50, 9000, np.int32), {} if memory is None else {"memory": memory}
    for by, least in (((3, 2.0), 5), ((-7, 1.0), 9)):
        given = x, np.array([by, (0, 0)], pair), np.array([least], np.int64)
        expected = np.bincount(x, x * by[1] + by[0] + least, 50)
        assert kernel(*given, num_bins=50, **more).tolist() == expected.tolist()
        on_device = [cl_array.to_device(queue, each) for each in given]
        assert kernel(*on_device, num_bins=50, **more).get().tolist() == expected.tolist()


def test_names_of_arguments_are_the_callers(profile):
    # Whatever the kernel around the map calls its own variables.
    names = [
        "t",
        "k",
        "n",
        "x_1",
        "copy",
        "total",
        "bin",
        "value",
        "a",
        "b",
        "v",
        "cell",
        "size",
        "tile",
        "lane",
        "mine",
        "first",
        "count",
        "cells0",
    ]
    numbers = np.arange(1, len(names) + 1)
    scalars = kernel_of(
        profile,
        f"const int *data, {', '.join(f'int {name}' for name in names)}",
        "; ".join(f"EMIT({k} + data[i], {name})" for k, name in enumerate(names)),
    )
    np.testing.assert_array_equal(scalars(np.zeros(5000, np.int32), *numbers, num_bins=len(names)), 5000 * numbers)
    arrays = kernel_of(
        profile,
        ", ".join(f"const int *{name}" for name in names),
        "; ".join(f"EMIT({k}, {name}[i] + {name}[i ^ {k % 2}])" for k, name in enumerate(names)),
    )
    given = [np.full(5000, number, np.int32) for number in numbers]
    np.testing.assert_array_equal(arrays(*given, num_bins=len(names)), 10_000 * numbers)
    streamed = kernel_of(
        profile,
        ", ".join(f"const int *{name}" for name in names),
        f"EMIT(i % 2, {' + '.join(f'{name}[i]' for name in names)})",
    )
    assert streamed(*given, num_bins=2).tolist() == [2500 * numbers.sum()] * 2


def test_a_loop_of_the_map_may_hide_i(profile):
    kernel = kernel_of(profile, "const int *x", "for (int i = 0; i < 3; ++i) EMIT(i, x[i])")
    assert kernel(np.array([1, 10, 100], np.int32), num_bins=3).tolist() == [3, 30, 300]


def test_complex_arguments_by_the_names_of_pyopencl(profile):
    kernel = kernel_of(profile, "const cfloat_t *z, cfloat_t one", "EMIT((int)z[i].x, z[i].y + one.y)")
    z = np.array([0 + 1j, 1 + 2j, 1 + 3j], np.complex64)
    assert kernel(z, 10j, num_bins=2).tolist() == [11, 25]


def test_indirect_access(profile, rng):
    kernel = kernel_of(profile, "const int *pairs, const float *x", "EMIT((int)x[pairs[i]], pairs[i])")
    pairs, x = rng.integers(0, 200, 3000, np.int32), rng.uniform(0, 20, 200).astype(np.float32)
    expected = [sum(group) for group in groups_of(x.astype(int)[pairs], pairs, 20)]
    assert kernel(pairs, x, num_bins=20).tolist() == expected


def test_neighbours(profile, rng):
    kernel = kernel_of(profile, "const int *x, int n", "if (i + 1 < n) EMIT(x[i + 1] - x[i], 1)")
    x = np.cumsum(rng.integers(0, 9, 3000)).astype(np.int32)
    np.testing.assert_array_equal(kernel(x, 3000, num_bins=9), counts_of(np.diff(x), 9))


def test_structs_and_preamble(profile, rng):
    particle = np.dtype([("position", np.float32, 3), ("charge", np.int8), ("kind", np.uint16)], align=True)
    kernel = kernel_of(
        profile,
        "const particle *all, box_t box",
        "EMIT(cell_of(all + i, box), all[i].charge * all[i].kind)",
        structs={"particle": particle, "box_t": np.dtype([("size", np.float32), ("cells", np.int32)])},
        preamble="""
            int cell_of(__global const particle *p, const box_t box) {
                return (int)(p->position[2] / box.size * box.cells);
            }
        """,
    )
    particles = np.zeros(2000, particle)
    particles["position"] = rng.integers(0, 64, (2000, 3)) / 4
    particles["charge"], particles["kind"] = rng.integers(-5, 5, 2000), rng.integers(0, 9, 2000)
    cells = (particles["position"][:, 2] / 2).astype(int)
    values = particles["charge"].astype(int) * particles["kind"]
    expected = [sum(group) for group in groups_of(cells, values, 8)]
    assert kernel(particles, (16.0, 8), num_bins=8).tolist() == expected


@pytest.mark.parametrize("passes", [1, 3])
def test_arrays_that_the_map_writes(profile, passes, queue, rng):
    kernel = kernel_of(profile, "const float *x, short *cell, float *seen", "cell[i] = x[i]; EMIT((int)x[i], 1)")
    x, before = rng.uniform(0, 30, 3000).astype(np.float32), np.full(3000, -1.0, np.float32)
    cell, seen = np.full(3000, -1, np.int16), before.copy()
    result = kernel(x, cell, seen, num_bins=30, passes=passes)
    np.testing.assert_array_equal(cell, x.astype(np.int16))
    np.testing.assert_array_equal(seen, before)
    np.testing.assert_array_equal(result, counts_of(cell, 30))
    there = [cl_array.to_device(queue, array) for array in (x, np.zeros_like(cell), before)]
    np.testing.assert_array_equal(kernel(*there, num_bins=30, passes=passes).get(), result)
    np.testing.assert_array_equal(there[1].get(), cell)


def test_bins_and_values_are_evaluated_once(profile):
    kernel = kernel_of(
        profile,
        "",
        """
            int k = 0, v = 1;
            long wide = 4;
            EMIT(k++, v++);
            EMIT(k, 10 * v);
            EMIT(wide++, 7);
            EMIT(wide, 100)
        """,
    )
    assert kernel(size=1, num_bins=7).tolist() == [1, 20, 0, 0, 7, 100, 0]


def test_maps_may_return_early_and_contain_semicolons_and_comments(profile):
    kernel = kernel_of(
        profile,
        "const int *x",
        """
            // Odd ones are left out; /* so are negative ones */
            if (x[i] & 1)
                return;
            EMIT(x[i], 1);
            if (x[i] == 2) { EMIT(0, 100); }
        """,
    )
    assert kernel(np.arange(-3, 8, dtype=np.int32), num_bins=5).tolist() == [101, 0, 1, 0, 1]


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_size(size, profile):
    x = np.ones(1000, np.int32)
    assert kernel_of(profile, "const int *x", "EMIT(0, x[i])")(x, size=size, num_bins=1).tolist() == [size]
    assert kernel_of(profile, "", "EMIT(i % 2, 1)")(size=size, num_bins=2).tolist() == [(size + 1) // 2, size // 2]


def test_size_is_that_of_the_first_array(profile):
    kernel = kernel_of(profile, "int n, const int *x, const int *y", "EMIT(y[x[i] % 3], n)")
    assert kernel(1, np.arange(10, dtype=np.int32), np.array([0, 2, 1], np.int32), num_bins=3).tolist() == [4, 3, 3]


def test_options_reach_the_compiler(profile):
    kernel = kernel_of(profile, "", "EMIT(i % MODULUS, 1)", options=["-DMODULUS=3"])
    assert kernel(size=9, num_bins=4).tolist() == [3, 3, 3, 0]


def test_new_numbers_need_no_new_program(profile, monkeypatch, rng):
    kernel = kernel_of(profile, "const int *bins, int step", "EMIT(bins[i] + step, 1)")
    choices = [(100, 10), (3000, 20), (3001, 1), (2999, 50)]
    for size, num_bins in choices[:1]:
        kernel(np.zeros(size, np.int32), 0, num_bins=num_bins)
    monkeypatch.setattr("clhist._core.opencl.program._build", None)
    for size, num_bins in choices[1:]:
        bins = rng.integers(0, num_bins, size, np.int32)
        np.testing.assert_array_equal(kernel(bins, 0, num_bins=num_bins), counts_of(bins, num_bins))


def test_plans_and_sources_can_be_read(gpu_like):
    kernel = kernel_of(gpu_like, "const int *x", "EMIT(x[i], 1)")
    chosen = kernel.plan(10**6, 1000)
    budget = clhist._core.opencl.device.memory_budget(clhist.default_queue().device)
    problem = clhist.Problem.of(SUM, 1000, 10**6, value="1", memory_budget=budget)
    assert chosen == clhist.plan(problem, gpu_like)
    assert (chosen.memory, chosen.update) == ("local", "native")
    assert "__local cell0_t" in kernel.source(chosen)
    assert "__local" not in kernel.source(kernel.plan(10**6, 1000, memory="global", update="lock", copies=3))


def test_the_context_may_be_the_default_one(queue):
    kernel = HistogramKernel(None, SUM, arguments="", map="EMIT(i, i)")
    assert kernel.context == queue.context
    assert kernel(size=4, num_bins=4).tolist() == [0, 1, 2, 3]


def test_an_example_of_statistics(profile, rng):
    # (sum, sum of squares, count) of the readings of each sensor, as one operator.
    moments = np.dtype([("n", np.int32), ("sum", np.int32), ("squares", np.int64)], align=True)
    operator = Operator(moments, "(value_t){a.n + b.n, a.sum + b.sum, a.squares + b.squares}", (0, 0, 0), "moments")
    kernel = kernel_of(
        profile,
        "const uchar *sensor, const short *y",
        "EMIT(sensor[i], ((value_t){1, y[i], (long)y[i] * y[i]}))",
        operator,
    )
    sensor, y = rng.integers(0, 20, 3000, np.uint8), rng.integers(-999, 999, 3000, np.int16)
    expected = [(len(g), sum(g), sum(v * v for v in g)) for g in groups_of(sensor, y, 20)]
    assert kernel(sensor, y, num_bins=20).tolist() == expected


def test_numpy_arrays_at_any_address():
    # In a process of its own: a load of 16 bytes from another address may end it.
    run_python(
        """
        import dataclasses
        import numpy as np

        own = clhist.device_profile(clhist.default_queue().device)
        for kind in ("cpu", "gpu"):
            kernel = clhist.HistogramKernel(
                None,
                clhist.operators.add(np.int64),
                arguments="const short *bins, const long *values",
                map="EMIT(bins[i], values[i])",
                profile=dataclasses.replace(own, kind=kind, hardware_threads=512, work_group_size=64),
            )
            for offset in (0, 1, 2, 4, 8):
                first, second = np.zeros(20_008, np.uint8), np.zeros(80_008, np.uint8)
                bins, values = first[offset : offset + 20_000].view("i2"), second[offset : offset + 80_000].view("i8")
                bins[:], values[:] = np.arange(10_000) % 3, np.arange(10_000)
                expected = [values[k::3].sum() for k in range(3)]
                assert kernel(bins, values, num_bins=3).tolist() == expected, (kind, offset)
        """
    )


def test_an_empty_array_has_no_first_element(profile, queue):
    """Nothing is read beyond its end. Nor does an array of which one element is read say how many there are."""
    kernel = kernel_of(profile, "const int &step, const int *x", "EMIT(x[i], step)")
    empty, x = np.empty(0, np.int32), np.arange(9000, dtype=np.int32) % 5
    for given in ((empty, x), [cl_array.to_device(queue, each) for each in (empty, x)]):
        with pytest.raises(ValueError, match=r"^step: expected an array with a first element, got an empty one$"):
            kernel(*given, num_bins=5)
    table = kernel_of(profile, "const int &step, const int *table", "EMIT(table[i % 5], step)")
    assert table(np.array([2], np.int32), x[:10], num_bins=5).tolist() == [4] * 5
