"""What a new user stumbled over: each of these gave a wrong result, a crash or a hang once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyopencl.array as cl_array
import pytest
from processes import run_python

import clhist
from clhist import HistogramKernel, Operator, operators, reduce_by_index
from clhist._core.opencl import memory as scratch
from clhist._core.opencl.program import Kernel

FLOATS = operators.add(np.float32)
PAIR = np.dtype([("bin", np.int32), ("value", np.float32)])


@pytest.mark.parametrize(
    ("arguments", "map", "given"),
    [
        ("const float *x, float *y", "y[i] = x[i]; EMIT(0, x[i])", (np.ones(2000, "f4"), np.zeros(10, "f4"))),
        ("const float *x, const float2 *y", "EMIT(0, x[i] + y[i].x)", (np.ones(2000, "f4"), np.zeros(10, "c8"))),
        ("const float *x, const pair *y", "EMIT(y[i].bin, x[i])", (np.ones(2000, "f4"), np.zeros(10, PAIR))),
        ("const float *x, const float *y", "EMIT(0, x[i] * y[i])", (np.ones(2000, "f4"), np.zeros(10, "f4"))),
    ],
)
def test_arrays_shorter_than_the_first_are_refused(arguments, map, given):
    kernel = HistogramKernel(None, FLOATS, arguments=arguments, map=map, structs={"pair": PAIR})
    with pytest.raises(ValueError, match=r"^y: expected at least 2000 elements, got 10"):
        kernel(*given, num_bins=1)


def test_a_lookup_table_does_not_set_the_size():
    kernel = HistogramKernel(None, FLOATS, arguments="const float *table, const int *x", map="EMIT(0, table[x[i] % 4])")
    assert kernel(np.ones(4, np.float32), np.arange(1000, dtype=np.int32), num_bins=1).tolist() == [1000]


def test_the_address_of_an_element():
    code = "__global const int *p = &x[i]; EMIT(0, p[0] + p[1])"
    kernel = HistogramKernel(None, operators.add(np.int32), arguments="const int *x", map=code)
    assert kernel(np.arange(101, dtype=np.int32), num_bins=1, size=100).tolist() == [sum(range(100)) + sum(range(101))]


@pytest.mark.parametrize("size", [1, 35, 300])
@pytest.mark.parametrize("num_bins", [100_000, 1_000_000])
def test_few_elements_into_many_bins_on_a_gpu(size, num_bins, gpu_like):
    kernel = HistogramKernel(
        None, operators.maximum(np.float32), arguments="const int *x", map="EMIT(x[i], 5)", profile=gpu_like
    )
    result = kernel(np.full(size, 3, np.int32), num_bins=num_bins)
    assert result[3] == 5
    assert (np.delete(result, 3) == -np.inf).all()


def test_dest_and_out_that_overlap_on_the_device(queue):
    bins = cl_array.to_device(queue, np.zeros(5, np.int32))
    memory = cl_array.to_device(queue, np.arange(10.0))
    reduce_by_index(memory[:-1], np.add, bins, 1.0, out=memory[1:])
    assert memory.get().tolist() == [0, 5, 1, 2, 3, 4, 5, 6, 7, 8]


def test_a_forked_process_gets_an_error():
    said = run_python(
        """
        import os
        clhist.bincount([1, 2], queue=clhist.default_queue())
        child = os.fork()
        if not child:
            try:
                clhist.bincount([1, 2], queue=clhist.default_queue())
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """
    )
    assert "forked" in said
    assert 'get_context("spawn")' in said


def test_an_exception_between_the_launches_waits_for_the_device(monkeypatch):
    enqueue, launched, stops = Kernel.enqueue, [], [True]

    def stop(self, *arguments, **options):
        if launched and stops:
            raise KeyboardInterrupt
        launched.append(self)
        return enqueue(self, *arguments, **options)

    monkeypatch.setattr(Kernel, "enqueue", stop)
    with pytest.raises(KeyboardInterrupt):
        clhist.bincount(np.arange(1_000_000) % 7)
    stops.clear()  # launchers keep the method that they were made with
    assert clhist.bincount(np.arange(1_000_000) % 5).tolist() == [200_000] * 5


@pytest.mark.parametrize(("combine", "neutral"), [("a + b", 1), ("b * a", 0), ("a | b", 1), ("a ^ b", -1)])
def test_a_wrong_neutral_element_of_a_known_operation(combine, neutral):
    with pytest.raises(ValueError, match=r"^neutral: expected [01] for "):
        Operator(np.int32, combine, neutral)


def test_scratch_of_only_so_many_queues_is_kept(other_queue):
    import pyopencl as cl

    for _ in range(20):
        queue = cl.CommandQueue(other_queue.context)
        ones = cl_array.to_device(queue, np.ones(1000, np.int32))
        assert clhist.bincount(ones, queue=queue).get().tolist() == [0, 1000]
    assert len(scratch._pools) <= 8
    clhist.free_scratch()
    assert not scratch._pools


def test_a_checkout_that_hides_the_installed_package():
    root = Path(clhist.__file__).parents[1]
    code = "import clhist; print(clhist.bincount([1, 2, 2], queue=clhist.default_queue()).tolist())"
    paths = os.pathsep.join([str(root), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "[0, 1, 2]\n", done.stderr


@pytest.mark.parametrize(("size", "num_bins", "named"), [(10.5, 3, "size"), ("a", 3, "size"), (10, None, "num_bins")])
def test_plans_of_what_is_no_number(size, num_bins, named):
    kernel = HistogramKernel(None, FLOATS, arguments="const float *x", map="EMIT(0, x[i])")
    with pytest.raises(TypeError, match=rf"^{named}: expected an integer, got "):
        kernel.plan(size, num_bins)
